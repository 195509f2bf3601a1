"""Histories for laws as properties: balanced ones, as a session could hold them, and images."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from hypothesis import strategies as st

from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)

HOME = ("anthropic", "opus")


def png(width: int = 2, height: int = 2, *, noise: bool = False) -> bytes:
    """A sound grey PNG; ``noise`` makes it as large as its pixels."""
    import random

    row = bytes(width)
    source = random.Random(1)
    rows = b"".join(b"\0" + (source.randbytes(width) if noise else row) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = png()

texts = st.text(
    st.one_of(st.characters(), st.sampled_from("\0 \n\t\ud83d\ude00\ud800")), max_size=8
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
thinking = st.builds(
    ThinkingPart, texts, st.none() | st.just("signature"), st.none() | st.just("redacted")
)
makers = st.sampled_from([HOME, ("anthropic", "haiku"), ("openai", "opus")])


@st.composite
def balanced(draw: st.DrawFn) -> list[Message]:
    """A history as a session could hold it: it begins and ends with what asks for a reply."""
    messages: list[Message] = [UserMessage((TextPart("start"),))]
    number = 0
    for _ in range(draw(st.integers(0, 5))):
        provider, model = draw(makers)
        parts: list[TextPart | ThinkingPart | ToolCall] = list(
            draw(st.lists(st.builds(TextPart, texts) | thinking, max_size=4))
        )
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            arguments = draw(st.dictionaries(texts, json_values, max_size=2))
            calls.append(ToolCall(f"c{number}", draw(st.just("look") | texts), arguments))
            number += 1
        messages.append(AssistantMessage((*parts, *calls), provider, model))
        for call in draw(st.permutations(calls)):
            result = st.builds(TextPart, texts)
            found = draw(st.lists(result, min_size=1, max_size=2))
            messages.append(ToolResult(call.id, call.name, tuple(found)))
        if not calls or draw(st.booleans()):
            messages.append(UserMessage((TextPart(draw(texts)), TextPart("more"))))
    return messages


def calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    return [call for m in messages if isinstance(m, AssistantMessage) for call in m.tool_calls]


def thinking_of(messages: Sequence[Message]) -> list[ThinkingPart]:
    return [
        part
        for m in messages
        if isinstance(m, AssistantMessage)
        for part in m.parts
        if isinstance(part, ThinkingPart)
    ]
