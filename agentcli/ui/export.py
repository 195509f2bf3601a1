"""A session as a document: JSON for programs, Markdown and HTML for people (CLI-8).

The JSON form is a public format, ``agentcli-session/1``; it loses nothing that was said. The
other two show everything a person saw, with control sequences taken out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ToolRun
from agentcli.domain.session import LoadedSession, SessionInfo, StoredMessage
from agentcli.ui.export_html import export_html
from agentcli.ui.export_markdown import export_markdown
from agentcli.ui.sanitize import safe_json

__all__ = [
    "FORMAT",
    "export_html",
    "export_json",
    "export_json_text",
    "export_markdown",
    "iso_time",
    "session_object",
]

FORMAT = "agentcli-session/1"

Part = TextPart | ThinkingPart | ImagePart | ToolCall


def export_json(session: LoadedSession) -> dict[str, Any]:
    """The session as JSON values. Texts may hold lone surrogates; see ``export_json_text``."""
    return {
        "format": FORMAT,
        "session": session_object(session.info),
        "messages": [_message_object(stored) for stored in session.messages],
        "tool_runs": [_run_object(run) for run in session.runs.values()],
        "usage": _usage_object(session.info),
    }


def export_json_text(
    session: LoadedSession, redact: Callable[[Any], Any] = lambda value: value
) -> str:
    """The same as text that can be written and shown anywhere (SEC-10), ending in a line end.

    ``redact`` takes secrets out of JSON values (SEC-9).
    """
    value = redact(export_json(session))
    return safe_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n"


def session_object(info: SessionInfo) -> dict[str, Any]:
    """A session as ``sessions list --format json`` shows it; times are ISO 8601, UTC."""
    value = {
        "id": info.id,
        "title": info.title,
        "cwd": info.cwd,
        "created_at": iso_time(info.created_at),
        "updated_at": iso_time(info.updated_at),
        "state": info.status.value,
        "turns": info.turns,
        "model": info.model,
    }
    return value | {"agent": info.agent, "parent_id": info.parent_id} if info.agent else value


def iso_time(seconds: float) -> str:
    """Seconds since 1970 as ``2026-01-31T12:00:00.000Z``; what no calendar holds becomes 1970."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message_object(stored: StoredMessage) -> dict[str, Any]:
    """A message; ``is_summary`` and ``hidden_by`` only where a compaction is told of (CMP-3)."""
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
        return {"type": "image", "media_type": part.media_type, "data": data}
    call = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
    return call if part.malformed is None else {**call, "malformed": part.malformed}


def _run_object(run: ToolRun) -> Mapping[str, Any]:
    return {
        "call_id": run.call_id,
        "name": run.name,
        "status": run.status.value,
        "started_at": None if run.started_at is None else iso_time(run.started_at),
        "finished_at": None if run.finished_at is None else iso_time(run.finished_at),
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
