"""The messages of a conversation, as values.

A session's history is a sequence of three kinds of message: what the user said, what the
assistant answered (text, thinking and tool calls in the order they came) and the result of
one tool call. Values are frozen; constructors refuse what can never be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from agentcli.domain.values import frozen


@frozen
class TextPart:
    """Plain text."""

    text: str


@frozen
class ThinkingPart:
    """Reasoning of a model, opaque to us.

    ``signature`` is the provider's proof of origin; ``redacted`` is the encrypted form some
    providers send instead of text. All three go back byte for byte (HIS-4).
    """

    text: str
    signature: str | None = None
    redacted: str | None = None


@frozen
class ImagePart:
    """An image: raw bytes with their media type, for example ``image/png``."""

    media_type: str
    data: bytes


@frozen
class DocumentPart(ImagePart):
    """A PDF; ``text`` is what a model gets that takes no documents, and ``data`` may be empty.

    It goes wherever an image goes. ``pages`` is their number, 0 where it is not known.
    """

    name: str = ""
    text: str = ""
    pages: int = 0


@frozen
class ToolCall:
    """A request of the model to run a tool.

    ``arguments`` is always a JSON object. When what the model sent could not be read as one,
    ``arguments`` is empty and ``malformed`` holds the text received (HIS-5, LOOP-9): such a
    call is answered with an invalid-arguments result and is never run.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    malformed: str | None = None


class StopReason(StrEnum):
    """Why the model stopped."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"
    OTHER = "other"


@frozen
class Usage:
    """Tokens of one or more requests. ``None`` means the provider did not say (LOOP-6).

    ``input_tokens`` counts uncached input only; ``cache_read_tokens`` and
    ``cache_write_tokens`` come on top. ``reasoning_tokens`` is a part of ``output_tokens``.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """Field by field; a field is unknown only where both sides are."""
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.cache_read_tokens, other.cache_read_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
        )

    def updated(self, newer: Usage) -> Usage:
        """The fields of ``newer`` where it knows them: an early report may know more than it."""
        fields = Usage.__dataclass_fields__
        known = {name: value for name in fields if (value := getattr(newer, name)) is not None}
        return replace(self, **known)

    def __sub__(self, other: Usage) -> Usage:
        """What has come since ``other``, field by field; unknown where this side is."""
        fields = ((getattr(self, n), getattr(other, n)) for n in Usage.__dataclass_fields__)
        return Usage(*(None if now is None else now - (before or 0) for now, before in fields))

    @property
    def is_known(self) -> bool:
        """Whether the provider reported anything at all."""
        return self != Usage()


def _sum(left: int | None, right: int | None) -> int | None:
    if left is None:
        return right
    return left if right is None else left + right


class ResultStatus(StrEnum):
    """How a tool call ended. Everything but ``OK`` is an error to the model."""

    OK = "ok"
    ERROR = "error"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


UserPart = TextPart | ImagePart
AssistantPart = TextPart | ThinkingPart | ToolCall
ResultPart = TextPart | ImagePart


def _texts(parts: Iterable[object]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, TextPart):
            yield part.text


ATTACHED = "<attached "
"""How a text part begins that holds an attached file, not words of the user (UI-4)."""
ABOUT_RUNS = "<background-run "
"""How a text part begins that tells of background runs (BG-5)."""
ABOUT_CHECKS = "<checks>"
"""How a text part begins that tells what checks have found after edits (EXT-6)."""
INSTRUCTIONS = "<instructions-for-files>\n"
"""How a text part begins that holds instructions for the files of a directory (EXT-4)."""
NOT_SAID = (ABOUT_RUNS, ABOUT_CHECKS, INSTRUCTIONS)
"""How messages begin that the program has written in the user's place."""
TOLD = "(The user "
"""How a text part begins that tells what the user did between two prompts (UI-4, TT-2)."""
ADDED_BY_HOOK = "(A hook adds: "
"""How a text part begins that a hook has added to a prompt."""


@frozen
class UserMessage:
    """What the user (or a program in the user's place) said.

    ``is_summary``: nobody said it; it stands for messages that a compaction folded (CMP-3).
    """

    parts: tuple[UserPart, ...]
    is_summary: bool = False

    @property
    def text(self) -> str:
        """The text parts, one after another on lines of their own."""
        return "\n".join(_texts(self.parts))

    @property
    def is_instructions(self) -> bool:
        """Whether nobody said it: it brings instructions for files that a call has touched."""
        first = self.parts[0] if self.parts else None
        return isinstance(first, TextPart) and first.text.startswith(INSTRUCTIONS)

    @property
    def typed(self) -> str:
        """The text without what was put around it, for showing and for saying it again."""
        said = enumerate(_texts(self.parts))
        texts = [text for at, text in said if not (at and text.startswith(ADDED_BY_HOOK))]
        while len(texts) > 1 and texts[0].startswith(ABOUT_RUNS):
            del texts[0]
        others = (text for text in texts[1:] if not text.startswith((ATTACHED, TOLD)))
        return "\n".join((*texts[:1], *others))


@frozen
class AssistantMessage:
    """One reply of a model. ``provider`` and ``model`` say who made it (HIS-4)."""

    parts: tuple[AssistantPart, ...]
    provider: str = ""
    model: str = ""
    stop_reason: StopReason = StopReason.END_TURN
    usage: Usage = field(default_factory=Usage)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in the order the model gave."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(_texts(self.parts))


@frozen
class ToolResult:
    """The one answer to one tool call."""

    call_id: str
    name: str
    parts: tuple[ResultPart, ...]
    status: ResultStatus = ResultStatus.OK

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a tool result has at least one part")

    @property
    def is_error(self) -> bool:
        """Whether the model is told that the call failed."""
        return self.status is not ResultStatus.OK

    @property
    def text(self) -> str:
        """The text parts, one after another on lines of their own."""
        return "\n".join(_texts(self.parts))


Message = UserMessage | AssistantMessage | ToolResult


def user_text(text: str) -> UserMessage:
    """A user message of one text part."""
    return UserMessage((TextPart(text),))
