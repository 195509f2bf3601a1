"""Old tool output is left out of requests before anything is summarised (CTRL-8).

Law: only the copy that is sent is changed. What was left out once stays left out, and it is done
in large blocks: between two of them the beginning of every request is the same, so that it stays
cached. What is left out is named, with the way to read it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.engine.context.tokens import Gauge, of_message

FULL_ENOUGH = 0.6
KEPT_SHARE = 0.25
BLOCK_SHARE = 0.1
KEPT_STEPS = 2
FEWEST_TOKENS = 300
_ARGUMENT_CHARS = 120


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

    def prune(self, messages: Sequence[Message], gauge: Gauge, window: int) -> int:
        """Leave out what is old when the window is getting full; how many results more."""
        used = gauge.used
        if used < max(self._again_at, FULL_ENOUGH * window):
            return 0
        block = int(BLOCK_SHARE * window)
        self._again_at = used + block // 2
        chosen = self._candidates(messages, gauge.sizes, int(KEPT_SHARE * window))
        if sum(saved for _, _, saved in chosen) < block:
            return 0
        for index, stub, _ in chosen:
            self._stubs[stub.call_id] = stub
            gauge.resize(index, of_message(stub))
        return len(chosen)

    def resize(self, messages: Sequence[Message], gauge: Gauge) -> None:
        """Tell a gauge that has counted everything anew what is left out."""
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
    return isinstance(message, UserMessage) and not message.is_summary
