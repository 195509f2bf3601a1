"""How far a turn may go: steps, money, time (CTRL-7), and repeats (OPS-2).

Laws: a limit is looked at before a request: a budget stops before it is passed (COST-2). Near a
limit the model is told so in the request; a turn that then ends by itself was ``wrapped_up``.

A repeat is a call with a name, arguments and a result that the turn has seen together before; a
command is the same with other blanks, and whatever is said of it.
Repeats add up for each such triple, whatever other repeats stand between (A, B, A, B is a circle
too), until anything new comes: a new call, or an old one with a new result. So polling something
that moves is no circle, nor is trying again after a change. The turn is never stopped by a
repeat that was not pointed out to the model before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from agentcli.domain.errors import AgentError, SourceFailed
from agentcli.domain.messages import TextPart, ToolCall, ToolResult, Usage
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import ModelInfo, WrapUpSignal, cost_usd
from agentcli.domain.values import frozen, mutable

FEWEST_STEPS = 5
NEAR = 0.85
FEWEST_OUTPUT_TOKENS = 256
_NEAR_STEPS = 20
_SHELL = "bash"


@mutable
class TurnLimits:
    """``0`` steps and ``None`` are no limit. ``deadline`` is a time of ``time.monotonic``.

    It is put off by the time that an answer took which nothing else waited for (BG-9).
    ``outside_usd`` is what others have spent of the same budget by now. At ``pause_usd`` the turn
    stops like at a budget, but the model is not told before: another run is to go on.
    """

    max_steps: int = 0
    max_budget_usd: float | None = None
    deadline: float | None = None
    began: float = 0.0
    outside_usd: Callable[[], float | None] | None = None
    pause_usd: float | None = None


@mutable
class Spending:
    """What a turn has used. ``cost_usd`` is ``None`` as soon as a part of it is unknown.

    ``last`` is the usage of the newest request; ``compaction`` is a part of ``usage`` (LOOP-6).
    """

    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    last: Usage = field(default_factory=Usage)
    compaction: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0

    def add(self, model: ModelInfo, usage: Usage) -> None:
        """One request's tokens at the prices of the model that answered it."""
        self.usage += usage
        self.last = usage
        cost = cost_usd(model, usage)
        if cost is not None and self.cost_usd is not None:
            self.cost_usd += cost
        elif cost is None:
            self.cost_usd = None

    def add_wasted(self, model: ModelInfo, usage: Usage) -> None:
        """What attempts have cost that came to nothing."""
        last = self.last
        self.add(model, usage)
        self.last = last

    def add_compaction(self, model: ModelInfo, usage: Usage) -> None:
        """What a summary cost; the next request is smaller, nobody knows by how much."""
        self.add(model, usage)
        self.compaction += usage
        self.last = Usage()

    def add_elsewhere(self, usage: Usage, cost_usd: float | None) -> None:
        """What a sub-agent has used (COST-1): not a request of this turn's."""
        self.usage += usage
        known = self.cost_usd is not None and cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + (cost_usd or 0.0) if known else None


def reached(limits: TurnLimits, spent: Spending, model: ModelInfo) -> tuple[str, str] | None:
    """The name of a limit that forbids another request and the reason in words, or ``None``."""
    if limits.max_steps and spent.steps >= limits.max_steps:
        steps = "one step" if limits.max_steps == 1 else f"{limits.max_steps} steps"
        return "steps", f"the limit of {steps} was reached"
    if limits.deadline is not None and time.monotonic() >= limits.deadline:
        return "time", f"the time limit of {limits.deadline - limits.began:g} s was reached"
    if (cost := _cost(limits, spent)) is None:
        return None
    coming = _coming(model, spent.last)
    for name, budget in (("budget", limits.max_budget_usd), ("pause", limits.pause_usd)):
        if budget is not None and cost >= budget:
            return name, f"the budget of {budget:g} USD is spent ({cost:.4f})"
        if budget is not None and cost + coming > budget:
            reason = f"the budget of {budget:g} USD would be passed: {cost:.4f} is spent and the"
            return name, f"{reason} next request costs {coming:.4f} before its answer"
    return None


def near(limits: TurnLimits, spent: Spending, model: ModelInfo) -> str | None:
    """Which limit is near, in words for the model, or ``None``. Asked before each step."""
    left = limits.max_steps - spent.steps
    if limits.max_steps >= FEWEST_STEPS and left <= max(2, limits.max_steps // _NEAR_STEPS):
        return f"{left} of {limits.max_steps} requests are left, this one included"
    if not spent.steps:
        return None
    budget, cost = limits.max_budget_usd, _cost(limits, spent)
    # this request and one like it: after that there is no money for another
    after_next = (cost or 0.0) + 2 * _coming(model, spent.last)
    if budget is not None and cost is not None and max(after_next, cost / NEAR) >= budget:
        return f"{cost:.4f} of the budget of {budget:g} USD is spent"
    if limits.deadline is not None:
        whole_s, left_s = limits.deadline - limits.began, limits.deadline - time.monotonic()
        if left_s <= (1 - NEAR) * whole_s:
            return f"{max(0.0, left_s):.0f} s of {whole_s:.0f} s are left"
    return None


def asked(signal: WrapUpSignal) -> str | None:
    """Why a program wants its agent to finish, if it does (CTRL-9). Raises ``SourceFailed``."""
    try:
        reason = signal()
    except AgentError:
        raise
    except (Exception, SystemExit) as error:
        raise SourceFailed(
            f"the wrap-up signal failed: {type(error).__name__}: {error}",
            "correct the function that was given for it",
        ) from error
    return str(reason) if reason else None


def output_cap(
    limits: TurnLimits, spent: Spending, model: ModelInfo, cap: int | None
) -> int | None:
    """The output limit of the next request: ``cap``, lowered to what model and budget allow."""
    if cap is not None:
        cap = min(cap, model.max_output_tokens)
    budget, cost = limits.max_budget_usd, _cost(limits, spent)
    if budget is None or cost is None or not model.output_price:
        return cap
    left_usd = budget - cost - _coming(model, spent.last)
    affordable = max(FEWEST_OUTPUT_TOKENS, int(left_usd / model.output_price * 1_000_000))
    return affordable if affordable < (cap or model.max_output_tokens) else cap


def wrap_up_note(reason: str) -> str:
    """What the model is told near a limit."""
    return (
        f"(Limit ahead: {reason}. Finish now: start nothing new, bring what you are doing to a"
        " clean state, and answer with what is done and what is left.)"
    )


def _cost(limits: TurnLimits, spent: Spending) -> float | None:
    """What is gone of the budget, in USD."""
    if limits.outside_usd is None or spent.cost_usd is None:
        return spent.cost_usd
    outside = limits.outside_usd()
    return None if outside is None else spent.cost_usd + outside


def _coming(model: ModelInfo, last: Usage) -> float:
    """What the next request costs at least, in USD: the input of the last one, sent again."""
    if not last.is_known:
        return 0.0
    sent = Usage(last.input_tokens, 0, last.cache_read_tokens, last.cache_write_tokens)
    return cost_usd(model, sent) or 0.0


# --- going in circles -----------------------------------------------------------------------------


POINTED_OUT_AT = 5
STOPPED_AT = 8
# A call that takes its time may be waiting for something: it counts for a tenth of another.
POLLING_S = 1.0
_WEIGHT, _POLLING_WEIGHT = 10, 1
_NAME_CHARS = 64
# How long a command took, at the end of what ``bash`` says of it.
_DURATION = LazyPattern(r"(?<!\d)(?:\d+ min )?\d+(?:\.\d+)? s(?=\]\Z)")


@frozen
class Repeated:
    """What to do about a circle: add ``reminder`` for the model, or end the turn with ``stop``.

    Exactly one of the two is not empty.
    """

    reminder: str = ""
    stop: str = ""


class Repeats:
    """Watches the batches of one turn. Costs a digest per call."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._counts: Counter[bytes] = Counter()
        self._weights: Counter[bytes] = Counter()
        self._pointed_out: set[bytes] = set()

    def forget(self) -> None:
        """Start again: the user has said something, so that the same call may be right."""
        self._seen.clear()
        self._counts.clear()
        self._weights.clear()
        self._pointed_out.clear()

    def observe(
        self,
        calls: Sequence[ToolCall],
        results: Sequence[ToolResult],
        lasted_s: Mapping[str, float] = MappingProxyType({}),
    ) -> Repeated | None:
        """Take a finished batch; a call without a result does not count.

        ``lasted_s``: how long each call took, by its id.
        """
        by_id = {result.call_id: result for result in results}
        worst: bytes | None = None
        name = ""
        for call in calls:
            if call.id not in by_id:
                continue
            triple = _digest(call, by_id[call.id])
            if triple not in self._seen:
                self._seen.add(triple)
                self._counts.clear()
                self._weights.clear()
                self._pointed_out.clear()
                worst = None
            self._counts[triple] += 1
            polls = lasted_s.get(call.id, 0.0) >= POLLING_S
            self._weights[triple] += _POLLING_WEIGHT if polls else _WEIGHT
            if worst is None or self._weights[triple] > self._weights[worst]:
                worst, name = triple, call.name[:_NAME_CHARS]
        weight = 0 if worst is None else self._weights[worst]
        if worst is None or weight < POINTED_OUT_AT * _WEIGHT:
            return None
        count = self._counts[worst]
        if weight >= STOPPED_AT * _WEIGHT and worst in self._pointed_out:
            return Repeated(
                stop=f"{name} was called {count} times with the same arguments and the same "
                "result; the model was going in circles"
            )
        self._pointed_out.add(worst)
        return Repeated(
            reminder=f"You have called {name} {count} times with the same arguments and got the "
            "same result each time. Calling it again will not change that. Do something else, "
            "or say what is in the way; if you repeat it again, the turn will be stopped."
        )


def _digest(call: ToolCall, result: ToolResult) -> bytes:
    """Call and result without what differs each time: the id, and how long a command took."""
    digest = hashlib.blake2b(digest_size=16)
    asked = json.dumps([call.name, _meant(call), call.malformed], sort_keys=True)
    digest.update(asked.encode())
    for part in result.parts:
        if isinstance(part, TextPart):
            text = _DURATION.sub("", part.text.replace(result.call_id, ""))
            digest.update(b"\0text" + text.encode("utf-8", "surrogatepass"))
        else:
            digest.update(b"\0image" + part.data)
    digest.update(b"\0" + result.status.value.encode())
    return digest.digest()


def _meant(call: ToolCall) -> Mapping[str, Any]:
    """The arguments, of the shell's without what changes nothing of what it does.

    What those of other tools mean they alone know.
    """
    command = call.arguments.get("command")
    if call.name != _SHELL or not isinstance(command, str):
        return call.arguments
    rest = {name: value for name, value in call.arguments.items() if name != "description"}
    return {**rest, "command": command.split()}
