"""Rollouts of Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl``, a JSON object a line.

Format: https://github.com/openai/codex, ``codex-rs/protocol/src/protocol.rs`` (``RolloutItem``)
and ``models.rs`` (``ResponseItem``); rollouts of 2025 have the items alone on their lines. What the
model saw are the items of ``response_item``; ``event_msg`` tells a screen the same once more, but
also of tokens, names and turns taken back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
    UserMessage,
)
from agentcli.domain.values import mutable
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
    count_in,
    dict_in,
    list_in,
    moment_of,
    parsed,
    part_of_url,
    records_in,
    text_in,
)

NAME = "codex"
_ROWS = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output"})
# what the program itself says in the user's place
_SCAFFOLDING = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<skills_instructions>",
    "<skill>",
    "<user_shell_command>",
    "# AGENTS.md instructions",
)
_SHELLS = frozenset({"shell", "container.exec", "shell_command", "exec_command", "local_shell"})


def _is_codex(record: Mapping[str, Any]) -> bool:
    """Whether the first line of a file is one of a rollout."""
    if text_in(record, "type") in _ROWS:
        return isinstance(record.get("payload"), dict)
    is_head = isinstance(record.get("timestamp"), str) and "instructions" in record
    return (is_head and "id" in record) or (
        text_in(record, "type") in _ITEMS and "uuid" not in record
    )


def _read_codex(source: Source, _path: Path | None) -> DraftSession:
    """The session in ``source``."""
    rollout = _Rollout(DraftSession(NAME, left_out=source.left_out))
    for record in source.records():
        rollout.add(record)
    rollout.close()
    draft = rollout.draft
    draft.digest = source.digest
    draft.model = draft.model and f"{rollout.provider or 'openai'}/{draft.model}"
    for each in draft.messages:
        each.model = draft.model if isinstance(each.message, AssistantMessage) else ""
    return draft


@mutable
class _Rollout:
    """The rows so far; the items of a reply are gathered until something answers it."""

    draft: DraftSession
    provider: str = ""
    _at: float = 0.0
    _gathered: list[Any] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _newest: DraftMessage | None = None

    def add(self, record: Record) -> None:
        """A line."""
        draft, kind, payload = self.draft, text_in(record, "type"), dict_in(record, "payload")
        self._at = moment_of(record.get("timestamp")) or self._at
        draft.created_at = draft.created_at or self._at
        draft.updated_at = max(draft.updated_at, self._at)
        if kind == "session_meta" or (not kind and "instructions" in record):
            meta = payload or record
            draft.id = draft.id or text_in(meta, "id")
            draft.cwd = draft.cwd or text_in(meta, "cwd")
            self.provider = self.provider or text_in(meta, "model_provider")[:100]
        elif kind == "turn_context":
            draft.model = text_in(payload, "model")[:200] or draft.model
            draft.cwd = draft.cwd or text_in(payload, "cwd")
        elif kind == "event_msg":
            self._event(payload)
        elif kind == "compacted":
            self._compacted(payload)
        else:
            self._item(payload if kind == "response_item" else record)

    def close(self) -> None:
        """The reply is whole."""
        if self._gathered:
            message = assistant_message(self._gathered)
            self._gathered = []
            if message.parts:
                self._newest = DraftMessage(message, self._at)
                self.draft.messages.append(self._newest)

    def _event(self, payload: Record) -> None:
        kind = text_in(payload, "type")
        if kind == "token_count":
            self.close()
            last = dict_in(dict_in(payload, "info"), "last_token_usage")
            if self._newest is not None and last:
                self._newest.usage = _usage(last)
        elif kind == "thread_rolled_back":
            self.close()
            self._roll_back(count_in(payload, "num_turns") or 0)
        elif kind == "thread_name_updated":
            self.draft.title = text_in(payload, "thread_name", "name") or self.draft.title

    def _roll_back(self, turns: int) -> None:
        if not self.draft.may_go_back():
            return
        prompts = [
            each
            for each in self.draft.messages
            if isinstance(each.message, UserMessage) and not each.taken_back
        ]
        if turns and prompts:
            self.draft.take_back_from(prompts[-min(turns, len(prompts))])

    def _compacted(self, payload: Record) -> None:
        """The summary stands for all but the prompts that were kept; a sealed one for none."""
        self.close()
        if not self.draft.may_go_back():
            return
        history = records_in(payload, "replacement_history")
        said = [user_message(_parts(item, LeftOut())).text for item in history if _is_user(item)]
        prompts = {
            each.message.text: each
            for each in self.draft.messages
            if isinstance(each.message, UserMessage)
        }
        text = text_in(payload, "message") or next(
            (each for each in reversed(said) if each and each not in prompts), ""
        )
        if not text.strip():
            self.draft.left_out["compaction whose summary only its provider can read"] += 1
            return
        summary = user_message([TextPart(text)], is_summary=True)
        kept = [prompts[each] for each in said if each in prompts]
        self.draft.fold_into(DraftMessage(summary, self._at), kept)

    def _item(self, item: Record) -> None:
        kind = text_in(item, "type")
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._gathered.append(ThinkingPart("\n".join(_reasoning(item))))
        elif kind in {"function_call", "custom_tool_call", "local_shell_call"}:
            call = _call(item)
            self._names[call.id] = call.name
            self._gathered.append(call)
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            self.close()
            call_id = text_in(item, "call_id")
            parts, status = _output(item.get("output"), self.draft.left_out)
            result = result_of(call_id, self._names.get(call_id, ""), parts, status=status)
            self.draft.messages.append(DraftMessage(result, self._at))
        elif kind == "web_search_call":
            action = dict_in(item, "action")
            what = text_in(action, "query", "url") or "the web"
            self._gathered.append(TextPart(f"[searched: {what}]\n"))
        elif kind not in {"ghost_snapshot", "compaction", "other"}:
            self.draft.left_out[f"item of kind {kind[:40]}"] += 1

    def _message(self, item: Record) -> None:
        if item.get("role") == "assistant":
            self._gathered += _parts(item, self.draft.left_out)
        elif item.get("role") == "user":
            self.close()
            message = user_message(_parts(item, self.draft.left_out))
            if message.parts:
                self.draft.messages.append(DraftMessage(message, self._at))


def _is_user(item: Record) -> bool:
    return text_in(item, "type") in {"", "message"} and item.get("role") == "user"


def _parts(item: Record, left_out: LeftOut) -> Sequence[Any]:
    found: list[Any] = []
    if isinstance(text := item.get("content"), str):
        found.append(TextPart(text))
    for block in records_in(item, "content"):
        if url := text_in(block, "image_url"):
            found.append(part_of_url(url, "image/png", left_out))
        elif text := text_in(block, "text"):
            found.append(TextPart(text))
    return [
        each
        for each in found
        if not (isinstance(each, TextPart) and each.text.lstrip().startswith(_SCAFFOLDING))
    ]


def _reasoning(item: Record) -> Iterator[str]:
    for block in (*records_in(item, "summary"), *records_in(item, "content")):
        yield text_in(block, "text")


def _call(item: Record) -> ToolCall:
    """A call in our words, where there are such."""
    call_id, name = text_in(item, "call_id", "id"), text_in(item, "name")
    if text_in(item, "type") == "local_shell_call":
        name, arguments = "local_shell", dict_in(item, "action")
    else:
        text = text_in(item, "arguments", "input")
        value = parsed(text) if text.strip() else {}
        if isinstance(value, dict):
            arguments = value
        elif text_in(item, "type") == "custom_tool_call":
            arguments = {"input": text}
        else:
            return ToolCall(call_id, name, {}, text)
    if name in _SHELLS:
        return ToolCall(call_id, "bash", _command(arguments))
    if name == "apply_patch" and (patch := text_in(arguments, "input", "patch")):
        return ToolCall(call_id, name, {"patch": patch})
    if name == "update_plan" and (steps := records_in(arguments, "plan")):
        todos = [{"content": text_in(s, "step"), "status": text_in(s, "status")} for s in steps]
        return ToolCall(call_id, "write_todos", {"todos": todos})
    return ToolCall(call_id, name, arguments)


def _command(arguments: Record) -> Record:
    words = [str(each) for each in list_in(arguments, "command")]
    command = text_in(arguments, "cmd", "command")
    if len(words) == 3 and words[1] in {"-c", "-lc"}:  # noqa: PLR2004 - a shell, its option, the text
        command = words[2]
    elif words:
        import shlex

        command = shlex.join(words)
    found: Record = {"command": command}
    if workdir := text_in(arguments, "workdir", "working_directory"):
        found["workdir"] = workdir
    milliseconds = count_in(arguments, "timeout_ms") or count_in(arguments, "timeout")
    return found | ({"timeout_s": milliseconds / 1000} if milliseconds else {})


def _output(output: Any, left_out: LeftOut) -> tuple[Sequence[Any], ResultStatus]:
    """A text, a list of parts, or an object that holds one of them; in older rollouts as text."""
    status = ResultStatus.OK
    value = parsed(output) if isinstance(output, str) and output[:1] == "{" else output
    if isinstance(value, dict) and ("output" in value or "content" in value):
        if value.get("success") is False:
            status = ResultStatus.ERROR
        output = value.get("output", value.get("content"))
    if isinstance(output, str):
        return (TextPart(output),), status
    if isinstance(output, list):
        return _parts({"content": output}, left_out), status
    return (() if output is None else (TextPart(json.dumps(output)),)), status


def _usage(tokens: Record) -> Usage:
    cached = count_in(tokens, "cached_input_tokens")
    given = count_in(tokens, "input_tokens")
    return Usage(
        None if given is None else max(0, given - (cached or 0)),
        count_in(tokens, "output_tokens"),
        cached,
        None,
        count_in(tokens, "reasoning_output_tokens"),
    )


FORMAT = SessionFormat(_is_codex, records=_read_codex)
