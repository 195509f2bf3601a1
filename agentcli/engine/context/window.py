"""How full a session's context is: tokens counted, old output left out, the time to compact.

No tokenizer is asked: each provider has its own. Laws. A report of the provider wins; only what
came after it is estimated. Looking costs a step what is new in the history and no more. Only the
copy that is sent is changed: old tool output is left out (CTRL-8) before anything is summarised,
for ever and in large blocks, so that between two of them the beginning of every request is the
same and stays cached; a line says how to read it again. A compaction that failed or won nothing is
not tried again at every step (CMP-1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import ModelInfo
from agentcli.domain.tools import ToolDefinition
from agentcli.engine.context.outgoing import text_room

CHARACTERS_PER_TOKEN = 4.0
MESSAGE_TOKENS = 4
CALL_TOKENS = 12
# https://platform.claude.com/docs/en/build-with-claude/vision: width x height / 750, after images
# with a longer edge were made smaller; the other providers count less
_PIXELS_PER_TOKEN = 750
_LONGEST_EDGE_PX = 1_568
MOST_IMAGE_TOKENS = 1_600
_FEWEST_IMAGE_TOKENS = 85
# a report further off than this from the estimate is not about the same messages
_LEAST_RATIO, _MOST_RATIO = 0.5, 2.0
# shares of the window: old output is left out, a compaction is due, the window is nearly used up
FULL_ENOUGH, FULL, NEAR = 0.6, 0.8, 0.9
KEPT_SHARE = 0.25
BLOCK_SHARE = 0.1
KEPT_STEPS = 2
FEWEST_TOKENS = 300
_ARGUMENT_CHARS = 120
_NEXT_SHARE = 0.1
_SURELY_LESS = 0.95
_MOST_SKIPS = 32
_OUTPUT_MARGIN = 1.02
_OUTPUT_SPARE = 100
_FEWEST_OUTPUT = 256


def of_text(text: str) -> int:
    """Tokens of ``text``: four ASCII characters to one, about one for each ideograph."""
    size = len(text)
    tokens = size / CHARACTERS_PER_TOKEN
    if not text.isascii():
        tokens += (len(text.encode("utf-8", "surrogatepass")) - size) * 0.4
    return int(tokens) + 1 if size else 0


def of_image(image: ImagePart) -> int:
    """Tokens of an image by its size in pixels; the most there can be where that is unknown.

    A page of a document counts as its text and a picture of it.
    """
    if isinstance(image, DocumentPart):
        return of_text(image.text) + (image.pages or 1) * MOST_IMAGE_TOKENS * bool(image.data)
    from agentcli.domain.images import facts_of

    facts = facts_of(image.data)
    longest = max(facts.width, facts.height)
    if not longest:
        return MOST_IMAGE_TOKENS
    scale = min(1.0, _LONGEST_EDGE_PX / longest)
    tokens = int(facts.width * scale * facts.height * scale / _PIXELS_PER_TOKEN)
    return max(_FEWEST_IMAGE_TOKENS, min(tokens, MOST_IMAGE_TOKENS))


def of_message(message: Message, context_tokens: int | None = None) -> int:
    """Tokens of a message, by its parts; of a text too long for that window what is sent of it."""
    texts: list[str] = []
    tokens = MESSAGE_TOKENS
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            written = json.dumps(part.arguments, ensure_ascii=False) if part.arguments else ""
            tokens += CALL_TOKENS + of_text(part.name) + of_text(written)
        elif isinstance(part, ImagePart):
            tokens += of_image(part)
        else:
            tokens += of_text(part.text or part.redacted or "")
    in_texts = sum(map(of_text, texts))
    if context_tokens is None or isinstance(message, AssistantMessage):
        return tokens + in_texts
    room = text_room(message, context_tokens)
    if in_texts > room / CHARACTERS_PER_TOKEN:  # no text has more bytes to a token
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        in_texts = in_texts if size <= room else in_texts * room // size
    return tokens + in_texts


def of_tools(tools: Sequence[ToolDefinition]) -> int:
    """Tokens of the tools' definitions."""
    tokens = CALL_TOKENS * len(tools)
    for tool in tools:
        parameters = json.dumps(dict(tool.parameters), ensure_ascii=False)
        tokens += of_text(tool.name) + of_text(tool.description) + of_text(parameters)
    return tokens


class Gauge:
    """The tokens of one history and of what is sent with it. Call ``look`` before the rest."""

    __slots__ = (
        "_context_tokens",
        "_fixed",
        "_fixed_for",
        "_history",
        "_report",
        "_scale",
        "_total",
        "sizes",
    )

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._total = 0
        self._history: tuple[History, int, int | None] | None = None
        self._context_tokens: int | None = None
        self._fixed = 0
        self._fixed_for: tuple[str, tuple[ToolDefinition, ...]] | None = None
        self._report: tuple[int, int] | None = None  # what was reported, what was estimated then
        self._scale = 1.0  # of earlier reports, where there is none of this history

    @property
    def is_measured(self) -> bool:
        """Whether ``used`` rests on a report of the provider."""
        return self._report is not None

    @property
    def used(self) -> int:
        """Tokens of the next request, without its answer."""
        estimated = self._fixed + self._total
        if self._report is None:
            return int(estimated * self._scale)
        reported, then = self._report
        return max(0, reported + int((estimated - then) * self.scale))

    @property
    def scale(self) -> float:
        """Tokens of the provider for one of our estimates."""
        if self._report is None:
            return self._scale
        reported, then = self._report
        return min(max(reported / max(then, 1), _LEAST_RATIO), _MOST_RATIO)

    def look(
        self,
        history: History,
        system: str,
        tools: Sequence[ToolDefinition],
        context_tokens: int | None = None,
    ) -> bool:
        """Take in what is new; true when everything had to be counted.

        ``context_tokens`` is the model's window, by which huge outputs are cut; by default the
        last one.
        """
        sent = (system, tuple(tools))
        if self._fixed_for != sent:
            self._fixed_for = sent
            self._fixed = of_text(system) + of_tools(tools)
        self._context_tokens = context_tokens or self._context_tokens
        known = (history, history.folds, self._context_tokens)
        if self._history != known:
            is_other = self._history is None or self._history[0] is not history
            self._history = known
            self._scale = self.scale
            self.sizes.clear()
            self._total, self._report = 0, None
            self._add(history.messages)
            if is_other:
                self._report = self._last_report(history)
            return True
        if len(history) > len(self.sizes):
            self._add(history.messages[len(self.sizes) :])
        return False

    def measured(self, usage: Usage) -> None:
        """What the provider reported of a request with all that was looked at."""
        if sent := sent_tokens(usage):
            self._report = (sent, self._fixed + self._total)

    def at_least(self, tokens: int) -> None:
        """What was looked at is no less than ``tokens``: our estimates are too low."""
        estimated = self._fixed + self._total
        self._scale = min(max(self._scale, tokens / max(estimated, 1)), _MOST_RATIO)

    def resize(self, index: int, tokens: int) -> None:
        """The message at ``index`` is sent in another size from now on."""
        self._total += tokens - self.sizes[index]
        self.sizes[index] = tokens

    def _add(self, messages: Sequence[Message]) -> None:
        for message in messages:
            size = of_message(message, self._context_tokens)
            self.sizes.append(size)
            self._total += size

    def _last_report(self, history: History) -> tuple[int, int] | None:
        """The newest report in a history that was taken up again."""
        then = self._fixed + self._total
        messages = history.messages
        for index in range(len(messages) - 1, history.unlike_before - 1, -1):
            then -= self.sizes[index]
            message = messages[index]
            if isinstance(message, AssistantMessage) and (sent := sent_tokens(message.usage)):
                return sent, then
        return None


def sent_tokens(usage: Usage) -> int:
    """All input of a request, cached or not; 0 when it was not reported."""
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    return (usage.input_tokens or 0) + cached


# --- old output ----------------------------------------------------------------------------


class Pruner:
    """Which results are left out; a ``ContextTransform``. One per session."""

    __slots__ = ("_again_at", "_stubs")

    name = "old tool output"

    def __init__(self) -> None:
        self._stubs: dict[str, ToolResult] = {}
        self._again_at = 0

    def __len__(self) -> int:
        return len(self._stubs)

    def left_out(self, call_id: str) -> bool:
        """Whether that call's result is sent as a line only."""
        return call_id in self._stubs

    def apply(self, messages: Sequence[Message]) -> Sequence[Message]:
        """``messages`` with a line in the place of each result that is left out."""
        stubs = self._stubs
        if not stubs:
            return messages
        return [
            stubs.get(message.call_id, message) if isinstance(message, ToolResult) else message
            for message in messages
        ]

    def prune(
        self,
        messages: Sequence[Message],
        gauge: Gauge,
        window: int,
        stays: Callable[[ToolCall], bool] = lambda _: False,
    ) -> int:
        """Leave out what is old when the window is getting full; how many results more.

        The result of a call that ``stays`` is never left out.
        """
        used = gauge.used
        if used < max(self._again_at, FULL_ENOUGH * window):
            return 0
        block = int(BLOCK_SHARE * window)
        self._again_at = used + block // 2
        found = self._candidates(messages, gauge.sizes, int(KEPT_SHARE * window))
        kept = {
            call.id
            for message in messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
            if stays(call)
        }
        chosen = [each for each in found if each[1].call_id not in kept]
        if sum(saved for _, _, saved in chosen) < block:
            return 0
        for index, stub, _ in chosen:
            self._stubs[stub.call_id] = stub
            gauge.resize(index, of_message(stub))
        return len(chosen)

    def resize(self, messages: Sequence[Message], gauge: Gauge) -> None:
        """Tell a gauge that has counted everything what is left out."""
        if self._stubs:
            for index, message in enumerate(messages):
                if isinstance(message, ToolResult) and message.call_id in self._stubs:
                    gauge.resize(index, of_message(self._stubs[message.call_id]))

    def forget(self) -> None:
        """The history was folded: there is room again."""
        self._again_at = 0

    def _candidates(
        self, messages: Sequence[Message], sizes: Sequence[int], kept: int
    ) -> list[tuple[int, ToolResult, int]]:
        """Results old enough: index, line, tokens saved. The newest steps are never among them."""
        calls: dict[str, ToolCall] = {}
        for message in messages:
            if isinstance(message, AssistantMessage):
                calls.update({call.id: call for call in message.tool_calls})
        found = []
        newer = steps = 0
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if isinstance(message, AssistantMessage):
                steps += 1
            newer += sizes[index]
            if not isinstance(message, ToolResult) or message.call_id in self._stubs:
                continue
            if newer > kept and steps >= KEPT_STEPS and sizes[index] >= FEWEST_TOKENS:
                stub = stub_of(message, calls.get(message.call_id))
                if (saved := sizes[index] - of_message(stub)) > 0:
                    found.append((index, stub, saved))
        return found


def stub_of(result: ToolResult, call: ToolCall | None) -> ToolResult:
    """What is sent instead of ``result``: what it was, how large, how to read it again."""
    arguments = json.dumps(call.arguments, ensure_ascii=False) if call is not None else ""
    if len(arguments) > _ARGUMENT_CHARS:
        arguments = arguments[: _ARGUMENT_CHARS - 1] + "…"
    images = sum(isinstance(part, ImagePart) for part in result.parts)
    size = f"{len(result.text):,} characters"
    if images:
        size += f" and {images} image{'s' if images > 1 else ''}"
    text = (
        f"[Old output of {result.name} {arguments} left out to save room: {size}. "
        "Call the tool again if you need it"
    )
    whole = f'read_file with path "output://{result.call_id}"'
    text += f", or {whole} where that output was too long to be shown whole.]"
    return ToolResult(result.call_id, result.name, (TextPart(text),), result.status)


def is_prompt(message: Message) -> bool:
    """Whether the user said it."""
    return isinstance(message, UserMessage) and not (message.is_summary or message.is_instructions)


# --- the context ---------------------------------------------------------------------------


class Context:
    """One per session; lives as long as it does."""

    __slots__ = ("_again_at", "_failures", "_skips", "_windows", "gauge", "pruner")

    def __init__(self) -> None:
        self.gauge = Gauge()
        self.pruner = Pruner()
        self._windows: dict[str, int] = {}
        self._again_at = 0
        self._failures = 0
        self._skips = 0

    @property
    def used(self) -> int:
        """Tokens of the next request."""
        return self.gauge.used

    def window(self, model: ModelInfo) -> int:
        """The model's window in tokens, or what it turned out to be."""
        return min(model.context_tokens, self._windows.get(model.id, model.context_tokens))

    def look(
        self,
        history: History,
        system: str,
        tools: Sequence[ToolDefinition],
        model: ModelInfo | None = None,
    ) -> None:
        """Take in what is new, as ``model`` (or the last one) gets it; before all else is asked."""
        window = None if model is None else model.context_tokens
        if self.gauge.look(history, system, tools, window):
            self.pruner.resize(history.messages, self.gauge)

    def prune(
        self,
        messages: Sequence[Message],
        model: ModelInfo,
        stays: Callable[[ToolCall], bool] = lambda _: False,
    ) -> int:
        """Leave old tool output out of requests where they get large; how many results more."""
        return self.pruner.prune(messages, self.gauge, self.window(model), stays)

    def is_full(self, model: ModelInfo) -> bool:
        """Whether it is time for a compaction (CMP-4); asked once a step."""
        if self.used < max(FULL * self.window(model), self._again_at):
            return False
        if self._skips:
            self._skips -= 1
            return False
        return True

    def near_end(self, model: ModelInfo) -> str | None:
        """In words that the window is nearly used up, where no compaction has helped (CTRL-7)."""
        used, window = self.used, self.window(model)
        if used < NEAR * window:
            return None
        return f"about {used:,} of the {window:,} tokens of the context window are used"

    def overflowed(self, model: ModelInfo) -> None:
        """A request had too many tokens: the window, or our estimate, was wrong."""
        if self.gauge.is_measured:
            self._windows[model.id] = min(self.window(model), int(self.used * _SURELY_LESS))
        else:
            self.gauge.at_least(self.window(model))

    def failed(self) -> None:
        """A compaction failed: it is left alone for more and more steps."""
        self._failures += 1
        self._skips = min(2**self._failures, _MOST_SKIPS)

    def folded(self, history: History, system: str, tools: Sequence[ToolDefinition]) -> None:
        """A compaction has changed ``history``."""
        self._failures = self._skips = 0
        self.pruner.forget()
        self.look(history, system, tools)

    def wait_for_more(self, model: ModelInfo) -> None:
        """A compaction leads nowhere before there is more to fold."""
        self._again_at = self.used + int(_NEXT_SHARE * self.window(model))

    def room_for_output(self, model: ModelInfo, cap: int | None) -> int | None:
        """``cap``, lowered where request and reply together would pass the window."""
        left = int(self.window(model) - self.used * _OUTPUT_MARGIN) - _OUTPUT_SPARE
        if left >= (cap or model.max_output_tokens):
            return cap
        return max(_FEWEST_OUTPUT, left)
