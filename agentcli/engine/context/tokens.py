"""How many tokens a history takes: estimated once per message, corrected by what was reported.

No tokenizer is asked: each provider has its own. Law: a report of the provider wins; only what
came after it is estimated. Estimates are kept, so that looking costs a step what is new in the
history and no more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)
from agentcli.domain.prepare import text_room
from agentcli.domain.tools import ToolDefinition

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


def of_text(text: str) -> int:
    """Tokens of ``text``: four ASCII characters to one, about one for each ideograph."""
    size = len(text)
    tokens = size / CHARACTERS_PER_TOKEN
    if not text.isascii():
        tokens += (len(text.encode("utf-8", "surrogatepass")) - size) * 0.4
    return int(tokens) + 1 if size else 0


def of_image(image: ImagePart) -> int:
    """Tokens of an image by its size in pixels; the most there can be where that is unknown."""
    from agentcli.domain.images import facts_of

    facts = facts_of(image.data)
    longest = max(facts.width, facts.height)
    if not longest:
        return MOST_IMAGE_TOKENS
    scale = min(1.0, _LONGEST_EDGE_PX / longest)
    tokens = int(facts.width * scale * facts.height * scale / _PIXELS_PER_TOKEN)
    return max(_FEWEST_IMAGE_TOKENS, min(tokens, MOST_IMAGE_TOKENS))


def of_call(call: ToolCall) -> int:
    """Tokens of a tool call with its arguments."""
    written = json.dumps(call.arguments, ensure_ascii=False) if call.arguments else ""
    return CALL_TOKENS + of_text(call.name) + of_text(written)


def of_message(message: Message, context_tokens: int | None = None) -> int:
    """Tokens of a message, by its parts; of a text too long for that window what is sent of it."""
    tokens = MESSAGE_TOKENS + _of_texts(message, context_tokens)
    for part in message.parts:
        if isinstance(part, TextPart):
            continue
        if isinstance(part, ToolCall):
            tokens += of_call(part)
        elif isinstance(part, ImagePart):
            tokens += of_image(part)
        else:
            tokens += _of_thinking(part)
    return tokens


def _of_texts(message: Message, context_tokens: int | None) -> int:
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    tokens = sum(map(of_text, texts))
    if context_tokens is None or isinstance(message, AssistantMessage):
        return tokens
    room = text_room(message, context_tokens)
    if tokens <= room / CHARACTERS_PER_TOKEN:  # no text has more bytes to a token
        return tokens
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return tokens if size <= room else tokens * room // size


def _of_thinking(part: ThinkingPart) -> int:
    return of_text(part.text) if part.text else of_text(part.redacted or "")


def of_tools(tools: Sequence[ToolDefinition]) -> int:
    """Tokens of the tools' definitions."""
    return sum(
        CALL_TOKENS
        + of_text(tool.name)
        + of_text(tool.description)
        + of_text(json.dumps(dict(tool.parameters), ensure_ascii=False))
        for tool in tools
    )


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
        self._fixed_for: tuple[str, tuple[str, ...]] | None = None
        self._report: tuple[int, int] | None = None  # what was reported, what was estimated then
        self._scale = 1.0  # of earlier reports, where there is none of this history

    @property
    def fixed(self) -> int:
        """Estimate of the system prompt and the tools."""
        return self._fixed

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
        """Take in what is new; true when everything had to be counted anew.

        ``context_tokens`` is the model's window, by which huge outputs are cut; by default the
        last one.
        """
        self._look_at_fixed(system, tools)
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

    def _look_at_fixed(self, system: str, tools: Sequence[ToolDefinition]) -> None:
        wanted = (system, tuple(tool.name for tool in tools))
        if self._fixed_for != wanted:
            self._fixed_for = wanted
            self._fixed = of_text(system) + of_tools(tools)

    def _add(self, messages: Sequence[Message]) -> None:
        new = [of_message(message, self._context_tokens) for message in messages]
        self.sizes += new
        self._total += sum(new)

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
    known = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    return sum(count for count in known if count is not None)
