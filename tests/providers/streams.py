"""Helpers of this folder: cutting bytes into chunks, folding events, building requests."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.messages import AssistantMessage, Message, ToolCall, user_text
from agentcli.domain.ports import ModelInfo, ModelRequest
from agentcli.domain.stream import StreamEvent
from agentcli.domain.tools import Asks, ToolDefinition
from agentcli.engine.assemble import Assembler

_MADE_UP = re.compile(r"call_[0-9a-f]{32}")
SUITES = Path(__file__).resolve().parents[2].parent / "shared/suites"

BASH = ToolDefinition(
    "bash",
    "Run",
    "Runs a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    Asks.ANYTHING,
    "shell",
)
READ = ToolDefinition(
    "read_file",
    "Read",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    Asks.NOTHING,
    "files",
)


def suite(name: str) -> Path:
    path = SUITES / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


def cuts(data: bytes, seed: int = 7) -> dict[str, list[bytes]]:
    """``data`` whole, byte by byte and in random pieces."""
    rng = random.Random(seed)
    result = {"whole": [data], "single": [data[i : i + 1] for i in range(len(data))]}
    for number in range(3):
        pieces, start = [], 0
        while start < len(data):
            end = start + rng.randint(1, 40)
            pieces.append(data[start:end])
            start = end
        result[f"random {number}"] = pieces
    return result


def decode(decoder: Any, chunks: Iterable[bytes]) -> list[StreamEvent]:
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


def fold(events: Iterable[StreamEvent]) -> AssistantMessage | None:
    """The message that the events amount to, ``None`` when the reply was cut.

    Ids that the fold had to make up become comparable.
    """
    assembler = Assembler("p", "m", set())
    for event in events:
        assembler.add(event)
    if not assembler.ended:
        return None
    message = assembler.message()
    parts = [
        replace(part, id=f"made_up_{number}")
        if isinstance(part, ToolCall) and _MADE_UP.fullmatch(part.id)
        else part
        for number, part in enumerate(message.parts)
    ]
    return replace(message, parts=tuple(parts))


def request(
    messages: Sequence[Message] | str = "hi", model: str | ModelInfo = "m", **more: Any
) -> ModelRequest:
    history = (user_text(messages),) if isinstance(messages, str) else tuple(messages)
    info = ModelInfo("p", model) if isinstance(model, str) else model
    return ModelRequest(info, more.pop("system", "Be brief."), history, **more)
