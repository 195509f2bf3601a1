"""Helpers of this folder: cutting bytes into chunks, folding events, building requests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.messages import AssistantMessage, Message, user_text
from agentcli.domain.ports import ModelInfo, ModelRequest
from agentcli.domain.stream import StreamEvent
from agentcli.domain.tools import Effect, ToolDefinition
from agentcli.engine.assemble import Assembler

SUITES = Path(__file__).resolve().parents[2].parent / "shared/suites"

BASH = ToolDefinition(
    "bash",
    "Run",
    "Runs a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    Effect.EXEC,
    "shell",
)
READ = ToolDefinition(
    "read_file",
    "Read",
    "Reads a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    Effect.READ,
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
    """The message that the events amount to, ``None`` when the reply was cut."""
    assembler = Assembler("p", "m", set())
    for event in events:
        assembler.add(event)
    return assembler.message() if assembler.ended else None


def request(
    messages: Sequence[Message] | str = "hi", model: str | ModelInfo = "m", **more: Any
) -> ModelRequest:
    history = (user_text(messages),) if isinstance(messages, str) else tuple(messages)
    info = ModelInfo("p", model) if isinstance(model, str) else model
    return ModelRequest(info, more.pop("system", "Be brief."), history, **more)
