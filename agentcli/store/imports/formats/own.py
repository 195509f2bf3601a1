"""Our own JSON, ``agentcli-session/1``, as ``agent sessions export`` writes it (CLI-8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentcli.domain.errors import UsageError
from agentcli.domain.messages import (
    DocumentPart,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)
from agentcli.store.imports.draft import (
    DraftMessage,
    DraftSession,
    SessionFormat,
    assistant_message,
    result_of,
    user_message,
)
from agentcli.store.imports.reading import (
    LeftOut,
    Record,
    Source,
    amount_in,
    count_in,
    dict_in,
    media_part,
    moment_of,
    records_in,
    text_in,
)

NAME = "agentcli"
_MARK = "agentcli-session/"
_KNOWN = "agentcli-session/1"


def _is_own(value: Mapping[str, Any]) -> bool:
    """Whether a document is one of ours, of whichever version."""
    return text_in(value, "format").startswith(_MARK)


def _read_own(value: Record, source: Source) -> DraftSession:
    """The session in ``value``, which ``source`` holds; raises ``UsageError`` for a newer one."""
    if text_in(value, "format") != _KNOWN:
        raise UsageError(f"{source.name} was written by a newer version", "upgrade agentcli")
    about = dict_in(value, "session")
    draft = DraftSession(
        NAME,
        text_in(about, "id"),
        text_in(about, "title"),
        text_in(about, "cwd"),
        text_in(about, "model")[:300],
        moment_of(about.get("created_at")),
        moment_of(about.get("updated_at")),
        left_out=source.left_out,
        digest=source.digest,
    )
    for run in records_in(value, "tool_runs"):
        times = (moment_of(run.get("started_at")), moment_of(run.get("finished_at")))
        draft.run_times[text_in(run, "call_id")] = times
    by_seq: dict[Any, DraftMessage] = {}
    hidden: list[tuple[DraftMessage, int]] = []
    for each in records_in(value, "messages"):
        message = _message(each, draft)
        if message is None:
            continue
        draft.messages.append(message)
        seq, hidden_by = count_in(each, "seq"), count_in(each, "hidden_by")
        by_seq[seq] = message
        message.taken_back = seq is not None and seq == hidden_by
        if hidden_by is not None and hidden_by != seq:
            hidden.append((message, hidden_by))
    for message, hidden_by in hidden:
        summary = by_seq.get(hidden_by)
        is_summary = summary is not None and getattr(summary.message, "is_summary", False)
        message.hidden_by = summary if is_summary else None
    usage = dict_in(value, "usage")
    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    draft.usage = Usage(*(count_in(usage, f"{name}_tokens") for name in names))
    draft.cost_usd = amount_in(usage, "cost_usd")
    return draft


def _message(record: Record, draft: DraftSession) -> DraftMessage | None:
    blocks = records_in(record, "content")
    role = text_in(record, "role")
    parts = [_part(block, draft.left_out) for block in blocks]
    if role == "user":
        kept = [each for each in parts if not isinstance(each, ThinkingPart | ToolCall)]
        return DraftMessage(user_message(kept, is_summary=record.get("is_summary") is True))
    if role == "assistant":
        return DraftMessage(
            assistant_message(
                [p for p in parts if isinstance(p, TextPart | ThinkingPart | ToolCall)]
            )
        )
    result = next((block for block in blocks if text_in(block, "type") == "tool_result"), None)
    if role != "tool" or result is None:
        draft.left_out["message of an unknown kind"] += 1
        return None
    call_id = text_in(result, "tool_call_id")
    inner = [_part(block, draft.left_out) for block in records_in(result, "content")]
    status = next((s for s in ResultStatus if s == result.get("status")), ResultStatus.ERROR)
    kept = [each for each in inner if not isinstance(each, ThinkingPart | ToolCall)]
    at = draft.run_times.get(call_id, (0.0, 0.0))[1]
    return DraftMessage(result_of(call_id, text_in(result, "name"), kept, status=status), at)


def _part(block: Record, left_out: LeftOut) -> Any:
    kind = text_in(block, "type")
    part: Any = TextPart(text_in(block, "text"))
    if kind == "thinking":
        part = ThinkingPart(part.text)
    elif kind == "tool_call":
        arguments, malformed = block.get("arguments"), text_in(block, "malformed") or None
        if not isinstance(arguments, dict):
            arguments, malformed = {}, malformed or json.dumps(arguments)
        part = ToolCall(text_in(block, "id"), text_in(block, "name"), arguments, malformed)
    elif kind in {"image", "document"}:
        part = _media(block, left_out)
    elif kind not in {"text", "tool_result"}:
        left_out[f"part of kind {str(kind)[:40]}"] += 1
        part = TextPart(f"[left out: a part of kind {str(kind)[:40]}]")
    return part


def _media(block: Record, left_out: LeftOut) -> Any:
    data, media_type = text_in(block, "data"), text_in(block, "media_type")
    name, text, pages = (
        text_in(block, "name")[:200],
        text_in(block, "text"),
        count_in(block, "pages"),
    )
    if text_in(block, "type") == "document" and text and not data:
        return DocumentPart(media_type[:100], b"", name, text, pages or 0)
    part = media_part(data, media_type, left_out, name)
    return replace(part, text=text, pages=pages or 0) if isinstance(part, DocumentPart) else part


FORMAT = SessionFormat(_is_own, document=_read_own)
