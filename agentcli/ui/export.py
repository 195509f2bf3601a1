"""A session as a document: JSON for programs, Markdown and HTML for people (CLI-8).

The JSON form is a public format, ``agentcli-session/1``; it loses nothing that was said. The
other two show everything that was shown, with control sequences taken out.
Law: a document is made in pieces, of which one is held at a time (SEC-13). What somebody has said,
or a call with its result, is one piece: a key in it is known as a whole.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import Any

from agentcli.domain.accounts import CallCost, ResultCost
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ToolRun
from agentcli.domain.session import Note, SessionInfo, SessionSource, StoredMessage
from agentcli.ui import wording
from agentcli.ui.entries import Exchange, Item, entries, facts, note_title
from agentcli.ui.sanitize import clean, indented, safe_json
from agentcli.ui.session_page import export_html

__all__ = [
    "FORMAT",
    "cost_object",
    "export_html",
    "export_json",
    "export_markdown",
    "iso_time",
    "json_pieces",
    "mark_of",
    "session_object",
]

FORMAT = "agentcli-session/1"

Part = TextPart | ThinkingPart | ImagePart | ToolCall


Costs = Mapping[str, CallCost]
"""What each result has cost, by call id (COST-1)."""


def export_json(session: SessionSource, costs: Costs | None = None) -> dict[str, Any]:
    """The session as JSON values, for ``json_pieces``."""
    known = costs or {}
    return {
        "format": FORMAT,
        "session": session_object(session.info),
        "messages": (_message_object(stored) for stored in session.messages),
        "tool_runs": (_run_object(run, known.get(run.call_id)) for run in session.tool_runs),
        "usage": _usage_object(session.info),
    }


def json_pieces(
    value: Any, redact: Callable[[Any], Any] = lambda value: value, margin: str = "\n"
) -> Iterator[str]:
    """``value`` as indented JSON that can be written and shown anywhere (SEC-10).

    Of what is an iterator, which is a list, one value is held at a time; a function is called when
    its turn comes. They stand in objects that stand in such. Texts may hold lone surrogates.
    ``redact`` takes secrets out of JSON values (SEC-9).
    """
    inner = f"{margin}  "
    if callable(value):
        value = value()
    if isinstance(value, Iterator):
        before = "["
        for each in value:
            yield before + inner
            yield from json_pieces(each, redact, inner)
            before = ","
        yield "[]" if before == "[" else f"{margin}]"
    elif isinstance(value, dict) and any(map(_comes_later, value.items())):
        before = "{"
        for is_later, members in groupby(value.items(), _comes_later):
            some = dict(members)
            if not is_later:
                whole = safe_json(indented(redact(some), margin))
                yield before + whole.removeprefix("{").removesuffix(f"{margin}}}")
                before = ","
                continue
            for name, each in some.items():
                yield f"{before}{inner}{json.dumps(name)}: "
                yield from json_pieces(each, redact, inner)
                before = ","
        yield f"{margin}}}"
    else:
        yield safe_json(indented(redact(value), margin))


def _comes_later(member: tuple[str, Any]) -> bool:
    return isinstance(member[1], Iterator) or callable(member[1])


def session_object(info: SessionInfo) -> dict[str, Any]:
    """A session as ``sessions list --format json`` shows it; times are ISO 8601, UTC."""
    value: dict[str, Any] = {
        "id": info.id,
        "title": info.title,
        "cwd": info.cwd,
        "created_at": iso_time(info.created_at),
        "updated_at": iso_time(info.updated_at),
        "state": info.status.value,
        "turns": info.turns,
        "model": info.model,
    }
    if info.origin is not None:
        value["imported_from"] = info.origin.as_json() | {
            "imported_at": iso_time(info.origin.imported_at)
        }
    return value | {"agent": info.agent, "parent_id": info.parent_id} if info.agent else value


def mark_of(info: SessionInfo) -> str:
    """Whose session it is, where it is not the user's own work here; for lists."""
    if info.agent:
        return f"[{info.agent}] "
    return f"[from {wording.program(info.origin.format)}] " if info.origin is not None else ""


def iso_time(seconds: float) -> str:
    """Seconds since 1970 as ``2026-01-31T12:00:00.000Z``; what no calendar holds becomes 1970."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message_object(stored: StoredMessage) -> dict[str, Any]:
    """A message; ``is_summary`` and ``hidden_by`` only where a compaction is shown (CMP-3)."""
    message = stored.message
    value = {"seq": stored.seq, "role": _role(message), "content": _content(message)}
    if isinstance(message, UserMessage) and message.is_summary:
        value["is_summary"] = True
    if stored.hidden_by is not None:
        value["hidden_by"] = stored.hidden_by
    return value


def _role(message: Message) -> str:
    if isinstance(message, ToolResult):
        return "tool"
    return "assistant" if isinstance(message, AssistantMessage) else "user"


def _content(message: Message) -> list[dict[str, Any]]:
    blocks = [_block(part) for part in message.parts]
    if not isinstance(message, ToolResult):
        return blocks
    return [
        {
            "type": "tool_result",
            "tool_call_id": message.call_id,
            "name": message.name,
            "content": blocks,
            "is_error": message.is_error,
            "status": message.status.value,
        }
    ]


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ThinkingPart):
        block = {"type": "thinking", "text": part.text, "signature": part.signature}
        return block if part.redacted is None else {**block, "redacted": part.redacted}
    if isinstance(part, ImagePart):
        data = base64.b64encode(part.data).decode("ascii")
        if isinstance(part, DocumentPart):
            known = {"name": part.name, "text": part.text, "pages": part.pages}
            return {"type": "document", "media_type": part.media_type, "data": data, **known}
        return {"type": "image", "media_type": part.media_type, "data": data}
    call = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
    return call if part.malformed is None else {**call, "malformed": part.malformed}


def _run_object(run: ToolRun, cost: CallCost | None) -> Mapping[str, Any]:
    value = {
        "call_id": run.call_id,
        "name": run.name,
        "status": run.status.value,
        "started_at": None if run.started_at is None else iso_time(run.started_at),
        "finished_at": None if run.finished_at is None else iso_time(run.finished_at),
    }
    return value if cost is None else value | {"result_cost": cost_object(cost.result)}


def cost_object(cost: ResultCost) -> Mapping[str, Any]:
    """What results have cost; ``cost_usd`` is null where a part of it is unknown."""
    return {
        "added_tokens": cost.added_tokens,
        "again_requests": cost.again_requests,
        "again_cached_tokens": cost.again_cached_tokens,
        "again_uncached_tokens": cost.again_uncached_tokens,
        "added_usd": cost.added_usd,
        "again_usd": cost.again_usd,
        "known_cost_usd": cost.known_usd,
        "cost_usd": cost.cost_usd,
    }


def _usage_object(info: SessionInfo) -> Mapping[str, Any]:
    usage = info.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": info.cost_usd,
    }


# --- Markdown: readable as text, foldable tool calls where HTML is rendered -------------------


_BACKTICKS = re.compile(r"`{3,}")


def export_markdown(session: SessionSource) -> Iterator[str]:
    """The whole session, ending in a line end."""
    title = " ".join(clean(session.info.title).split()) or "Session"
    listed = "\n".join(f"- {name}: {value}" for name, value in facts(session))
    yield f"# {title}\n\n{listed}"
    for entry in entries(session):
        yield f"\n\n## {entry.heading}"
        for item in entry.items:
            yield "\n\n".join(("", *filter(None, _markdown_item(item))))
    yield "\n"


def _markdown_item(item: Item) -> Iterator[str]:
    if isinstance(item, TextPart):
        yield clean(item.text).strip()
    elif isinstance(item, ThinkingPart):
        text = clean(item.text).strip()
        if text:
            yield from _fold("Thinking", [_fence(text)])
    elif isinstance(item, ImagePart):
        yield _markdown_image(item)
    elif isinstance(item, Note):
        yield f"*{note_title(item)}*"
        yield _fence(clean(item.text))
    else:
        yield from _fold(item.summary, list(_markdown_exchange(item)))


def _markdown_exchange(item: Exchange) -> Iterator[str]:
    yield _fence(item.arguments, "json")
    if item.display:
        yield _fence(item.display, "diff")
    for part in item.result.parts if item.result is not None else ():
        yield (
            _markdown_image(part)
            if isinstance(part, ImagePart)
            else _fence(item.beside_display(part.text))
        )


def _fold(summary: str, blocks: list[str]) -> Iterator[str]:
    yield f"<details><summary>{escape(summary)}</summary>"
    yield from blocks
    yield "</details>"


def _fence(text: str, language: str = "") -> str:
    longest = max((len(run[0]) for run in _BACKTICKS.finditer(text)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}{language}\n{text.rstrip()}\n{marks}"


def _markdown_image(image: ImagePart) -> str:
    if isinstance(image, DocumentPart):
        return f"*(document: {clean(image.name)}, {len(image.data):,} bytes)*"
    return f"*(image: {clean(image.media_type)}, {len(image.data):,} bytes)*"
