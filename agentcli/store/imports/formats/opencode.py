"""What ``opencode export ID`` prints: a JSON object with ``info`` and ``messages``.

Format: https://github.com/anomalyco/opencode, ``packages/opencode/src/session/message-v2.ts``. A
message of the assistant holds all steps of a turn with the results of their calls; times are
milliseconds. A compaction is a prompt with a part ``compaction`` and the reply marked ``summary``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcli.domain.messages import (
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
    moment_of,
    part_of_url,
    records_in,
    text_in,
)

NAME = "opencode"
# its tools, ours, and our names of their fields
_TOOLS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "bash": ("bash", {}),
    "read": ("read_file", {"filePath": "path"}),
    "write": ("write_file", {"filePath": "path"}),
    "edit": (
        "edit_file",
        {
            "filePath": "path",
            "oldString": "old_string",
            "newString": "new_string",
            "replaceAll": "replace_all",
        },
    ),
    "apply_patch": ("apply_patch", {"patchText": "patch"}),
    "patch": ("apply_patch", {"patchText": "patch"}),
    "grep": ("grep_files", {"include": "glob"}),
    "glob": ("glob_files", {}),
    "list": ("list_directory", {}),
    "todowrite": ("write_todos", {}),
    "webfetch": ("web_fetch", {}),
    "websearch": ("web_search", {}),
    "task": ("task", {"subagent_type": "agent"}),
}


def _is_opencode(value: Mapping[str, Any]) -> bool:
    """Whether a document is such an export."""
    return isinstance(value.get("info"), dict) and isinstance(value.get("messages"), list)


def _read_opencode(value: Record, source: Source) -> DraftSession:
    """The session in ``value``, which ``source`` holds."""
    info = dict_in(value, "info")
    times = dict_in(info, "time")
    draft = DraftSession(
        NAME,
        text_in(info, "id"),
        text_in(info, "title"),
        text_in(info, "directory"),
        created_at=moment_of(times.get("created")),
        updated_at=moment_of(times.get("updated")),
        left_out=source.left_out,
        digest=source.digest,
    )
    first_of: dict[str, DraftMessage] = {}
    pending = ""  # where the kept tail of a compaction begins that waits for its summary
    for each in records_in(value, "messages"):
        about, parts = dict_in(each, "info"), records_in(each, "parts")
        at = moment_of(dict_in(about, "time").get("created"))
        compaction = next((part for part in parts if text_in(part, "type") == "compaction"), None)
        count = len(draft.messages)
        if compaction is not None:
            pending = text_in(compaction, "tail_start_id")
        elif text_in(about, "role") == "assistant" and about.get("summary") is True:
            _fold(draft, parts, at, first_of.get(pending))
        elif text_in(about, "role") == "assistant":
            provider, model = text_in(about, "providerID")[:100], text_in(about, "modelID")[:200]
            draft.model = f"{provider}/{model}" if model else draft.model
            draft.messages += _steps(parts, at, draft.model, draft.left_out)
        elif text_in(about, "role") == "user":
            said = user_message(list(_user_parts(parts, draft.left_out)))
            draft.messages += [DraftMessage(said, at)] if said.parts else []
        if len(draft.messages) > count:
            first_of[text_in(about, "id")] = draft.messages[count]
    draft.take_back_from(first_of.get(text_in(dict_in(info, "revert"), "messageID")))
    return draft


def _fold(
    draft: DraftSession, parts: Sequence[Record], at: float, tail: DraftMessage | None
) -> None:
    text = "\n".join(text_in(part, "text") for part in parts if text_in(part, "type") == "text")
    if not text.strip():
        draft.left_out["summary without text"] += 1
        return
    if not draft.may_go_back():
        return
    begin = next((n for n, each in enumerate(draft.messages) if each is tail), len(draft.messages))
    summary = DraftMessage(user_message([TextPart(text)], is_summary=True), at)
    draft.fold_into(summary, draft.messages[begin:])


def _user_parts(parts: Sequence[Record], left_out: LeftOut) -> Iterator[Any]:
    for part in parts:
        kind, media_type = text_in(part, "type"), text_in(part, "mime")
        if kind == "text" and part.get("ignored") is not True:
            yield TextPart(text_in(part, "text"))
        elif kind == "file" and media_type not in {"text/plain", "application/x-directory"}:
            name = text_in(part, "filename")
            yield part_of_url(text_in(part, "url"), media_type, left_out, name)
        elif kind == "subtask":
            yield TextPart(text_in(part, "prompt"))


def _steps(
    parts: Sequence[Record], at: float, model: str, left_out: LeftOut
) -> Iterator[DraftMessage]:
    """Each step as a message, followed by the results of its calls."""
    said: list[Any] = []
    results: list[DraftMessage] = []
    reply = DraftMessage(assistant_message(()), at, model=model)
    for part in (*parts, {"type": "step-start"}):
        kind = text_in(part, "type")
        if kind == "text" and part.get("ignored") is not True:
            said.append(TextPart(text_in(part, "text")))
        elif kind == "reasoning":
            said.append(ThinkingPart(text_in(part, "text")))
        elif kind == "tool":
            call = _call(part)
            said.append(call)
            results += _result(part, call, left_out)
        elif kind == "step-finish":
            tokens, cache = dict_in(part, "tokens"), dict_in(dict_in(part, "tokens"), "cache")
            counts = (count_in(tokens, "input"), count_in(tokens, "output"))
            cached = (count_in(cache, "read"), count_in(cache, "write"))
            reply.usage = Usage(*counts, *cached, count_in(tokens, "reasoning"))
            reply.cost_usd = amount_in(part, "cost")
        elif kind == "step-start" and said:
            reply.message = assistant_message(said)
            yield reply
            yield from results
            said, results = [], []
            reply = DraftMessage(assistant_message(()), at, model=model)


def _call(part: Record) -> ToolCall:
    name, arguments = text_in(part, "tool"), dict_in(dict_in(part, "state"), "input")
    ours, fields = _TOOLS.get(name, (name, {}))
    known = {fields.get(key, key): value for key, value in arguments.items()}
    if ours == "bash" and (milliseconds := count_in(known, "timeout")):
        del known["timeout"]
        known["timeout_s"] = milliseconds / 1000
    return ToolCall(text_in(part, "callID"), ours, known)


def _result(part: Record, call: ToolCall, left_out: LeftOut) -> Iterator[DraftMessage]:
    """What the call gave, where it was answered."""
    state = dict_in(part, "state")
    at = moment_of(dict_in(state, "time").get("end"))
    if state.get("status") == "completed":
        found: list[Any] = [TextPart(text_in(state, "output"))]
        for file in records_in(state, "attachments"):
            url, media_type = text_in(file, "url"), text_in(file, "mime")
            found.append(part_of_url(url, media_type, left_out, text_in(file, "filename")))
        yield DraftMessage(result_of(call.id, call.name, found), at)
    elif state.get("status") == "error":
        printed = text_in(dict_in(state, "metadata"), "output")
        texts = [TextPart(text) for text in (text_in(state, "error"), printed) if text]
        result = result_of(call.id, call.name, texts, status=ResultStatus.ERROR)
        yield DraftMessage(result, at)


FORMAT = SessionFormat(_is_opencode, document=_read_opencode)
