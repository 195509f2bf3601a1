"""What a provider accepts (HIS): a balanced history shaped for one model, and the proof of it.

Law: pure functions of the messages; nothing stored is ever changed by them. ``prepare`` mends,
``check_request`` raises where something is left that every provider refuses: our bug.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from agentcli.domain.errors import HistoryViolation
from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    AssistantPart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)

_BAD_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH = 64


def prepare(messages: Sequence[Message], provider: str, model: str) -> tuple[Message, ...]:
    """``messages`` as they may be sent to ``provider`` and ``model``; pure.

    Drops empty text and messages left empty (HIS-2), all thinking made elsewhere (HIS-4), and
    trailing white space of a final assistant text (HIS-6). Calls keep their results: dropping
    thinking never drops a call. Lone surrogates and NUL are replaced, also in arguments, and so
    is what no tool name may hold: a model can call a tool by any name it makes up (HIS-8).
    """
    prepared: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            foreign = (message.provider, message.model) != (provider, model)
            parts = tuple(_kept_parts(message.parts, foreign=foreign))
            if any(not isinstance(part, ThinkingPart) for part in parts):
                prepared.append(replace(message, parts=parts))
        elif isinstance(message, UserMessage):
            user_parts = tuple(_clean_parts(message.parts))
            if user_parts:
                prepared.append(UserMessage(user_parts))
        else:
            parts_or_stub = tuple(_clean_parts(message.parts)) or (TextPart("(no output)"),)
            name = clean_name(message.name)
            prepared.append(ToolResult(message.call_id, name, parts_or_stub, message.status))
    return tuple(_without_trailing_space(prepared))


def _kept_parts(parts: Sequence[AssistantPart], *, foreign: bool) -> Iterable[AssistantPart]:
    for part in parts:
        if isinstance(part, ThinkingPart):
            provable = part.signature is not None or part.redacted is not None
            if not foreign and (provable or part.text.strip()):
                yield part
        elif isinstance(part, TextPart):
            if part.text.strip():
                yield TextPart(clean_text(part.text))
        else:
            yield _clean_call(part)


def _clean_call(call: ToolCall) -> ToolCall:
    name, arguments = clean_name(call.name), clean_value(call.arguments)
    if name == call.name and arguments is call.arguments:
        return call
    return replace(call, name=name, arguments=arguments)


def _clean_parts(parts: Sequence[TextPart | ImagePart]) -> Iterable[TextPart | ImagePart]:
    for part in parts:
        if isinstance(part, ImagePart):
            yield part
        elif part.text.strip():
            yield TextPart(clean_text(part.text))


def clean_text(text: str) -> str:
    """``text`` without what no provider takes: lone surrogates and NUL become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_name(name: str) -> str:
    """``name`` as every provider takes the name of a tool: ``^[a-zA-Z0-9_-]{1,64}$``."""
    return _BAD_IN_NAME.sub("_", name)[:_NAME_LENGTH] or "unknown"


def clean_value(value: Any) -> Any:
    """A JSON value with ``clean_text`` done to every string in it; itself when all were clean."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        pairs = {clean_text(key): clean_value(item) for key, item in value.items()}
        same = all(key in pairs and pairs[key] is item for key, item in value.items())
        return value if same else pairs
    if isinstance(value, list):
        items = [clean_value(item) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    return value


def _without_trailing_space(messages: list[Message]) -> list[Message]:
    if messages and isinstance(last := messages[-1], AssistantMessage):
        parts = list(last.parts)
        if parts and isinstance(final := parts[-1], TextPart):
            parts[-1] = TextPart(final.text.rstrip())
            messages[-1] = replace(last, parts=tuple(parts))
    return messages


def check_request(messages: Sequence[Message]) -> None:
    """Raise ``HistoryViolation`` unless ``messages`` is what every provider accepts (HIS-1, 2)."""
    history = History(messages)
    if history.pending:
        ids = ", ".join(call.id for call in history.pending)
        raise HistoryViolation(f"calls without a result: {ids}")
    if not messages:
        raise HistoryViolation("a request needs at least one message")
    for message in messages:
        if not message.parts:
            raise HistoryViolation("empty message")
        for part in message.parts:
            if isinstance(part, TextPart) and not part.text.strip():
                raise HistoryViolation("empty text block")
