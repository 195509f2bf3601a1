"""A stream becomes a message in one fold.

Law: blocks are listed in the order in which they first appeared; a message comes only of a
stream that ended with ``StreamEnd``; every call has an id that is new to the history and
fits every provider (HIS-1); arguments are an object that can be sent back as JSON, or the call
is marked malformed (LOOP-9).
"""

from __future__ import annotations

import os
import re
from collections.abc import Set as AbstractSet
from sys import getsizeof
from typing import Any

from agentcli.domain.clean import clean_id, holds_too_many, loads
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    AssistantPart,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)
from agentcli.domain.secrecy import KEYS
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    TextWasThinking,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)

# The longest replies of today's models stay below 10 MB also in pieces of one token.
MAX_REPLY_BYTES = 16 * 1024 * 1024
_BLOCK_BYTES = 512
MAX_CALLS = 500
_JOINED = 1_000
# no tool has so long a name
_NAME_CHARS = 256


class _Block:
    __slots__ = ("_few", "_many", "call_id", "kind", "name", "redacted", "signature")

    def __init__(self, kind: type[AssistantPart]) -> None:
        self.kind = kind
        self._many: list[str] = []
        self._few: list[str] = []
        self.signature: str | None = None
        self.redacted: str | None = None
        self.call_id = ""
        self.name = ""

    def add(self, text: str) -> None:
        """A piece of a few characters takes ten times their memory: a thousand become one."""
        self._few.append(text)
        if len(self._few) >= _JOINED:
            self._many.append("".join(self._few))
            self._few.clear()

    @property
    def text(self) -> str:
        """All of it; kept as one from now on."""
        whole = "".join((*self._many, *self._few))
        self._many, self._few = [whole], []
        return whole


class Assembler:
    """Collects the events of one reply. Linear in the size of the stream.

    ``ended``: the stream said that it is complete. ``usage`` are the tokens reported so far.
    """

    def __init__(self, provider: str, model: str, taken_ids: AbstractSet[str]) -> None:
        self._provider = provider
        self._model = model
        self._taken = set(taken_ids)
        self._blocks: list[_Block] = []
        self._open: dict[tuple[type[AssistantPart], int], _Block] = {}
        self._touched: _Block | None = None
        self._stop: StopReason | None = None
        self.usage = Usage()
        self.ended = False
        self.has_output = False
        """Whether text, thinking or a tool call has come (STR-4)."""
        self._size = self._calls = 0

    def add(self, event: StreamEvent) -> None:
        """Take the next event of the stream; what comes after its end is ignored."""
        if self.ended:
            return
        if isinstance(event, TextDelta):
            self._grow(event.index, TextPart, event.text)
        elif isinstance(event, ToolCallDelta):
            self._grow(event.index, ToolCall, event.json_text)
        elif isinstance(event, ThinkingDelta):
            self._grow(event.index, ThinkingPart, event.text)
        elif isinstance(event, ThinkingSeal):
            sealed = self._open.get((ThinkingPart, event.index))
            block = sealed or self._new_block(event.index, ThinkingPart)
            self._count(getsizeof(event.signature) + getsizeof(event.redacted))
            block.signature = event.signature or block.signature
            block.redacted = event.redacted or block.redacted
        elif isinstance(event, ToolCallStart):
            self._start_call(event)
        elif isinstance(event, UsageReport):
            self.usage = self.usage.updated(event.usage)
        elif isinstance(event, TextWasThinking):
            block = self._open.pop((TextPart, event.index))
            block.kind = ThinkingPart
        elif isinstance(event, StreamEnd):
            self._stop, self.ended = event.stop_reason, True

    def _start_call(self, event: ToolCallStart) -> None:
        block = self._new_block(event.index, ToolCall)
        block.call_id, block.name = event.id, event.name[:_NAME_CHARS]
        self.has_output = self.has_output or bool(event.name)
        self._count(getsizeof(event.id) + getsizeof(event.name))
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise self._too_much(f"{MAX_CALLS} calls")

    def _grow(self, index: int, kind: type[AssistantPart], text: str) -> None:
        self._count(getsizeof(text))
        block = self._open.get((kind, index))
        if block is None:
            block = self._new_block(index, kind)
        block.add(text)
        self.has_output = self.has_output or bool(text)
        self._touched = block

    def _count(self, size: int) -> None:
        """A reply without end must not fill the memory (SEC-13)."""
        self._size += size
        if self._size > MAX_REPLY_BYTES:
            raise self._too_much(f"{MAX_REPLY_BYTES >> 20} MB")

    def _too_much(self, what: str) -> ProviderError:
        return ProviderError(
            f"{self._provider} sent a reply of more than {what}",
            "the reply was given up; try again or use another model",
            kind=ErrorKind.OTHER,
            provider=self._provider,
        )

    def _new_block(self, index: int, kind: type[AssistantPart]) -> _Block:
        self._count(_BLOCK_BYTES)
        block = self._open[kind, index] = self._touched = _Block(kind)
        self._blocks.append(block)
        return block

    @property
    def started(self) -> bool:
        """Whether anything has come: the stream exists (STR-4)."""
        return bool(self._blocks) or self.usage.is_known

    @property
    def text(self) -> str:
        """The visible text so far."""
        return "".join(block.text for block in self._blocks if block.kind is TextPart)

    def message(self) -> AssistantMessage:
        """The reply. Empty text blocks are left out (HIS-2)."""
        if self._stop is None:
            raise ValueError("the stream has not ended")
        parts: list[AssistantPart] = []
        calls = "".join(block.text for block in self._blocks if block.kind is ToolCall)
        is_too_wide = holds_too_many(calls)  # all of them together (SEC-13)
        for block in self._blocks:
            part = self._part(block, block.text, is_too_wide=is_too_wide)
            if part is not None:
                parts.append(part)
        return AssistantMessage(tuple(parts), self._provider, self._model, self._stop, self.usage)

    def _part(self, block: _Block, text: str, *, is_too_wide: bool) -> AssistantPart | None:
        if block.kind is TextPart:
            return TextPart(text) if text and not text.isspace() else None
        if block.kind is ThinkingPart:
            sealed = block.signature is not None or block.redacted is not None
            return ThinkingPart(text, block.signature, block.redacted) if text or sealed else None
        cut = self._stop is StopReason.MAX_TOKENS and block in {self._touched, self._blocks[-1]}
        arguments, malformed = ({}, text) if is_too_wide else read_arguments(text, cut=cut)
        call_id = clean_id(block.call_id)
        if not block.call_id or call_id in self._taken or re.search(KEYS, call_id):
            call_id = f"call_{os.urandom(16).hex()}"
        self._taken.add(call_id)
        return ToolCall(call_id, block.name, arguments, malformed)


def read_arguments(text: str, *, cut: bool) -> tuple[dict[str, Any], str | None]:
    """The arguments, and the text received when it is not a JSON object (LOOP-9).

    Empty text is ``{}``, except where the output limit ``cut`` the call: then it never got its
    arguments (LOOP-12). NaN, infinite numbers and nesting of more than
    100 levels are refused: they could not be stored or sent again (HIS-5, HIS-8).
    """
    if not text.strip():
        return ({}, text) if cut else ({}, None)
    try:
        value = loads(text)
    except ValueError:
        return {}, text
    return (value, None) if isinstance(value, dict) else ({}, text)
