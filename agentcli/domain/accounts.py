"""What each tool result has cost: when it was first sent to a model, and ever again (COST-1).

Providers report tokens per request, never per message, so a request's tokens are shared out among
what it sent. Laws. The parts of a request add up to what the provider reported, to the token. What
a result adds is measured: the growth of the prompt since the request before, less what the model
had written itself; results that came together share it by their size. What comes first in the
prompt was read from the cache first: providers cache prompts from their beginning on
(https://platform.claude.com/docs/en/build-with-claude/prompt-caching,
https://platform.openai.com/docs/guides/prompt-caching). Money is the request's cost as it was
booked, shared by list price; without a booked cost or a known price it is unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate

from agentcli.domain.messages import Usage
from agentcli.domain.ports import ModelInfo, cost_usd, prices_of
from agentcli.domain.values import frozen, mutable

SUBAGENT = "subagent"
COMPACTION = "compaction"
IMPORTED = "imported"
REPLIES = frozenset({"step", IMPORTED})
"""The requests that got a whole reply, here or in another program."""
_CONVERSATION = REPLIES | {"partial"}
# a prompt that grew by less or more than this, against the sizes, grew for other reasons, too
_LEAST_SHARE, _MOST_TIMES, _SPARE_TOKENS = 8, 2, 64


@frozen
class SentMessage:
    """A message as requests sent it, in the order of the prompt.

    ``size`` is in estimated tokens. Requests from ``until`` on (a seq) sent it no longer;
    ``folded_by`` is the summary that stands for it since. ``call_id`` is empty but for the result
    of a tool call, ``line`` is what the user read of that call.
    """

    seq: int
    size: int
    until: int | None = None
    folded_by: int | None = None
    call_id: str = ""
    name: str = ""
    line: str = ""


@frozen
class UsageRow:
    """What a provider reported of one request; ``before`` is the seq that its reply got.

    It is 0 for the sum that is all that is known of an imported session.
    """

    kind: str
    created_at: float
    model: str
    usage: Usage
    cost_usd: float | None
    before: int

    @property
    def prompt_tokens(self) -> int:
        """All that was sent."""
        usage = self.usage
        parts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        return sum(part or 0 for part in parts)


@frozen
class Ledger:
    """All messages and all requests of a session, the oldest first."""

    messages: tuple[SentMessage, ...] = ()
    rows: tuple[UsageRow, ...] = ()


@mutable
class ResultCost:
    """What some results have cost: tokens, and USD as far as it is known.

    ``added`` is the first request that sent a result, ``again`` all later ones. ``unknown`` counts
    the shares of requests whose price nobody knows.
    """

    added_tokens: int = 0
    added_usd: float = 0.0
    again_requests: int = 0
    again_cached_tokens: int = 0
    again_uncached_tokens: int = 0
    again_usd: float = 0.0
    unknown: int = 0

    @property
    def known_usd(self) -> float:
        """What is known of the cost."""
        return self.added_usd + self.again_usd

    @property
    def cost_usd(self) -> float | None:
        """The whole cost, or ``None`` when a part of it is unknown."""
        return None if self.unknown else self.known_usd

    @property
    def again_tokens(self) -> int:
        """What later requests sent again, cached or not."""
        return self.again_cached_tokens + self.again_uncached_tokens

    @property
    def tokens(self) -> int:
        """All tokens in which the results were sent."""
        return self.added_tokens + self.again_tokens

    @property
    def rank(self) -> tuple[float, int]:
        """The most expensive first: by money, then by tokens."""
        return -self.known_usd, -self.tokens

    def add(self, other: ResultCost) -> None:
        """Both together."""
        self.added_tokens += other.added_tokens
        self.added_usd += other.added_usd
        self.again_requests += other.again_requests
        self.again_cached_tokens += other.again_cached_tokens
        self.again_uncached_tokens += other.again_uncached_tokens
        self.again_usd += other.again_usd
        self.unknown += other.unknown


@mutable
class CallCost:
    """A call and what its result has cost."""

    call_id: str
    name: str
    line: str
    result: ResultCost = field(default_factory=ResultCost)


ModelOf = Callable[[str], ModelInfo | None]
"""The model of a name, ``provider/model``, with its prices; ``None`` where nothing is known."""


def call_costs(
    ledger: Ledger, model_of: ModelOf, counts: Callable[[UsageRow], bool] = lambda _: True
) -> Mapping[str, CallCost]:
    """What each result has cost in the requests that ``counts`` accepts, by call id.

    The others are looked at all the same: they may have sent a result first. A call whose result
    was never sent is there with nothing.
    """
    found = {
        message.call_id: CallCost(message.call_id, message.name, message.line)
        for message in ledger.messages
        if message.call_id
    }
    if not found:
        return found
    prompts = _Prompts(ledger)
    models: dict[str, ModelInfo | None] = {}
    seen: set[int] = set()
    for row in sorted(ledger.rows, key=lambda row: row.before):
        sent = prompts.sent_by(row)
        counted = bool(sent) and counts(row)
        if counted and row.model not in models:
            models[row.model] = model_of(row.model)
        rates = _rates(row, models.get(row.model)) if counted else None
        for message, tokens in prompts.shares(row, sent):
            is_first = message.seq not in seen
            seen.add(message.seq)
            if counted:
                _book(found[message.call_id].result, tokens, rates, is_first=is_first)
    return found


def sum_of(costs: Iterable[CallCost]) -> ResultCost:
    """All of them together."""
    total = ResultCost()
    for cost in costs:
        total.add(cost.result)
    return total


Share = tuple[int, int, int]
"""Tokens read from the cache, written to it, and neither."""


def _book(
    cost: ResultCost, tokens: Share, rates: Sequence[float] | None, *, is_first: bool
) -> None:
    usd = 0.0
    if rates is None:
        cost.unknown += 1
    else:
        usd = tokens[0] * rates[0] + tokens[1] * rates[1] + tokens[2] * rates[2]
    cached, *others = tokens
    if is_first:
        cost.added_tokens += sum(tokens)
        cost.added_usd += usd
        return
    cost.again_requests += 1
    cost.again_cached_tokens += cached
    cost.again_uncached_tokens += sum(others)
    cost.again_usd += usd


def _rates(row: UsageRow, model: ModelInfo | None) -> Sequence[float] | None:
    """USD per token as in ``Share``, so that with what was written the row's cost comes out."""
    if row.cost_usd == 0:
        return 0.0, 0.0, 0.0
    listed = None if model is None else cost_usd(model, row.usage)
    if row.cost_usd is None or model is None or not listed:
        return None
    prices = prices_of(model, row.usage)
    scale = row.cost_usd / listed / 1_000_000
    each = (prices.cache_read_price, prices.cache_write_price, prices.input_price)
    return [(price or 0.0) * scale for price in each]


class _Prompts:
    """What each request sent, and how much of it each message was. Rows come in order."""

    def __init__(self, ledger: Ledger) -> None:
        self._order = {message.seq: at for at, message in enumerate(ledger.messages)}
        self._coming = sorted(ledger.messages, key=lambda message: message.seq, reverse=True)
        self._sent: list[SentMessage] = []
        self._folded: dict[int, list[SentMessage]] = {}
        for message in ledger.messages:
            if message.folded_by is not None:
                self._folded.setdefault(message.folded_by, []).append(message)
        self._written = {
            row.before: max(0, (row.usage.output_tokens or 0) - (row.usage.reasoning_tokens or 0))
            for row in ledger.rows
            if row.kind in REPLIES
        }
        self._fixed: int | None = None  # the system prompt and the tools
        self._measured: dict[int, int] = {}

    def sent_by(self, row: UsageRow) -> Sequence[SentMessage]:
        """The messages of that request, in the order of its prompt; none where that is unknown."""
        if not row.prompt_tokens:
            return ()
        if row.kind == COMPACTION:
            return self._folded.get(row.before, ())
        if row.kind not in _CONVERSATION:
            return ()
        while self._coming and self._coming[-1].seq < row.before:
            message = self._coming.pop()
            is_last = not self._sent or self._place(message) > self._place(self._sent[-1])
            self._sent.append(message)
            if not is_last:
                self._sent.sort(key=self._place)
        if any(each.until is not None and each.until <= row.before for each in self._sent):
            self._sent = [x for x in self._sent if x.until is None or x.until > row.before]
        return self._sent

    def _place(self, message: SentMessage) -> int:
        return self._order[message.seq]

    def shares(
        self, row: UsageRow, sent: Sequence[SentMessage]
    ) -> Iterator[tuple[SentMessage, Share]]:
        """The results among ``sent`` with their parts of the request's tokens."""
        total = row.prompt_tokens
        if row.kind in REPLIES:
            self._measure(sent, total)
        fixed = 0 if row.kind == COMPACTION else self._fixed or 0
        ends = list(accumulate((self._weight(each) for each in sent), initial=fixed))
        whole = ends[-1] or 1
        read = row.usage.cache_read_tokens or 0
        written = read + (row.usage.cache_write_tokens or 0)
        for message, begin, end in zip(sent, ends, ends[1:], strict=False):
            if message.call_id:
                first, last = begin * total // whole, end * total // whole
                cached = min(last, read) - min(first, read)
                kept = min(last, written) - min(first, written) - cached
                yield message, (cached, kept, last - first - cached - kept)

    def _weight(self, message: SentMessage) -> int:
        return self._measured.get(message.seq, message.size)

    def _measure(self, sent: Sequence[SentMessage], total: int) -> None:
        """How many tokens the prompt grew by, for what is new in it."""
        measured = self._measured
        new = [each for each in sent if each.seq not in measured]
        if self._fixed is None:
            measured.update((each.seq, each.size) for each in new)
            self._fixed = max(0, total - sum(each.size for each in new))
            return
        grown = total - self._fixed - sum(measured.get(each.seq, 0) for each in sent)
        own = [each for each in new if self._written.get(each.seq)]
        others = [each for each in new if not self._written.get(each.seq)]
        measured.update((each.seq, self._written[each.seq]) for each in own)
        grown -= sum(measured[each.seq] for each in own)
        size = sum(each.size for each in others)
        if grown > 0:
            least, most = size // _LEAST_SHARE, size * _MOST_TIMES + _SPARE_TOKENS
            grown = min(max(grown, least), most)
        else:
            grown = size  # old output was left out at the same time
        done = 0
        for each, upto in zip(others, accumulate(each.size for each in others), strict=True):
            measured[each.seq] = grown * upto // (size or 1) - done
            done += measured[each.seq]
