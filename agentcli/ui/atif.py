"""A session as a trajectory that others can read: ATIF, the Agent Trajectory Interchange Format.

Version 1.8, https://github.com/laude-institute/harbor (``harbor.models.trajectories``, whose
models forbid every other field). Law: what was taken back is not part of it; what a compaction
folded is, and its summary is a step of the system; each sub-agent is a trajectory of its own in the
one that asked.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from agentcli import __version__
from agentcli.domain.accounts import REPLIES, Ledger, UsageRow
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolResult,
    UserMessage,
)
from agentcli.domain.session import SessionInfo, SessionSource, StoredMessage
from agentcli.ui.export import iso_time

SCHEMA = "ATIF-v1.8"
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def export_atif(
    session: SessionSource,
    ledger: Ledger,
    begun: Mapping[str, Sequence[SessionInfo]],
    agents: Iterator[Mapping[str, Any]],
) -> dict[str, Any]:
    """The trajectory as JSON values, for ``export.json_pieces``. Texts may hold lone surrogates.

    ``begun`` are the sub-agents by the calls that began them, ``agents`` their trajectories.
    """
    info = session.info
    replies = [row for row in ledger.rows if row.kind in REPLIES]
    name = info.agent if info.is_subagent else "agentcli"
    about: dict[str, Any] = {"name": name, "version": __version__}
    if model := info.model or (replies[-1].model if replies else ""):
        about["model_name"] = model
    count = 0

    def steps() -> Iterator[dict[str, Any]]:
        nonlocal count
        spent = {row.before: row for row in replies}
        result_of = session.result_of
        for stored in session.said:
            if stored.hidden_by != stored.seq:
                count += 1
                step = _step(stored, result_of, spent.get(stored.seq), begun)
                yield {"step_id": count, **step}
        if not count:
            count = 1
            yield {"step_id": 1, "source": "system", "message": "(nothing was said)"}

    trajectory = {
        "schema_version": SCHEMA,
        "session_id": info.parent_id if info.is_subagent else info.id,
        "trajectory_id": info.id,
        "agent": about,
        "steps": steps(),
        "final_metrics": lambda: _totals(info, count),
        "extra": {"title": info.title, "cwd": info.cwd, "state": info.status.value},
    }
    return trajectory | ({"subagent_trajectories": agents} if begun else {})


def _step(
    stored: StoredMessage,
    result_of: Callable[[str], ToolResult | None],
    spent: UsageRow | None,
    begun: Mapping[str, Sequence[SessionInfo]],
) -> dict[str, Any]:
    message = stored.message
    step: dict[str, Any] = {"timestamp": iso_time(stored.created_at)}
    if stored.hidden_by is not None:
        step["extra"] = {"folded_into_summary": stored.hidden_by}
    if isinstance(message, UserMessage):
        nobody = message.is_summary or message.is_instructions
        return {**step, "source": "system" if nobody else "user", "message": _content(message)}
    if not isinstance(message, AssistantMessage):
        return step
    step |= {"source": "agent", "message": message.text}
    own = "/".join(filter(None, (message.provider, message.model)))
    if model := own or (spent.model if spent is not None else ""):
        step["model_name"] = model
    thoughts = [part.text for part in message.parts if isinstance(part, ThinkingPart) and part.text]
    if thoughts:
        step["reasoning_content"] = "\n".join(thoughts)
    if message.tool_calls:
        step["tool_calls"] = [
            {
                "tool_call_id": call.id,
                "function_name": call.name,
                "arguments": call.arguments,
                **({"extra": {"malformed": call.malformed}} if call.malformed is not None else {}),
            }
            for call in message.tool_calls
        ]
        found = (
            _result(result, begun.get(call.id, ()))
            for call in message.tool_calls
            if (result := result_of(call.id)) is not None
        )
        if (first := next(found, None)) is not None:
            results = chain((first,), found)
            step["observation"] = lambda: {"results": results}
    if spent is not None:
        step["metrics"] = _metrics(spent)
    return step


def _result(result: ToolResult, agents: Sequence[SessionInfo]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source_call_id": result.call_id,
        "content": _content(result),
        "extra": {"is_error": result.is_error, "status": result.status.value},
    }
    if agents:
        found["subagent_trajectory_ref"] = [
            {"trajectory_id": info.id, "session_id": info.parent_id or info.id} for info in agents
        ]
    return found


def _content(message: UserMessage | ToolResult) -> str | list[dict[str, Any]]:
    """The text, or a list of parts where there is more; the path of an image is its data."""
    if all(isinstance(part, TextPart) for part in message.parts):
        return message.text
    return [_part(part) for part in message.parts]


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, DocumentPart) or part.media_type not in _IMAGES:
        name = part.name if isinstance(part, DocumentPart) else part.media_type
        text = part.text if isinstance(part, DocumentPart) else ""
        return {"type": "text", "text": text or f"(attachment: {name}, {len(part.data):,} bytes)"}
    data = base64.b64encode(part.data).decode("ascii")
    source = {"media_type": part.media_type, "path": f"data:{part.media_type};base64,{data}"}
    return {"type": "image", "source": source}


def _metrics(row: UsageRow) -> dict[str, Any]:
    """What is known of a request; the prompt counts with what was read from the cache."""
    usage = row.usage
    known = {
        "prompt_tokens": row.prompt_tokens if usage.input_tokens is not None else None,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cache_read_tokens,
        "cost_usd": row.cost_usd,
    }
    more = {
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    extra = {name: value for name, value in more.items() if value is not None}
    metrics = {name: value for name, value in known.items() if value is not None}
    return metrics | ({"extra": extra} if extra else {})


def _totals(info: SessionInfo, steps: int) -> dict[str, Any]:
    usage = info.usage
    sent = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    known = {
        "total_prompt_tokens": sum(each or 0 for each in sent) if any(sent) else None,
        "total_completion_tokens": usage.output_tokens,
        "total_cached_tokens": usage.cache_read_tokens,
        "total_cost_usd": info.cost_usd,
    }
    return {"total_steps": steps} | {k: value for k, value in known.items() if value is not None}
