"""Sessions of Claude Code: one JSON object a line, in ``~/.claude/projects/*/ID.jsonl``.

The format is not documented; what is known comes from files of versions 1.0 to 2.1 and from readers
that others wrote. Each record names the one it follows (``parentUuid``): a prompt said again makes
a branch, and only the one that the last record ends is the conversation; the others count as taken
back. The blocks of one reply are records of their own with one ``message.id``. A compaction is a
record ``compact_boundary`` and the summary after it. Sub-agents are records with ``isSidechain``,
in the same file, in files ``agent-*.jsonl`` beside it or in ``ID/subagents``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any

from agentcli.domain.extensions.claude_calls import ALIASES, from_claude
from agentcli.domain.messages import (
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)
from agentcli.domain.values import mutable
from agentcli.store.imports.draft import (
    MAX_TURNS_BACK,
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
    media_part,
    moment_of,
    opened,
    records_in,
    text_in,
)

NAME = "claude"
MAX_AGENTS = 500
_SAID = frozenset({"user", "assistant"})
_SYNTHETIC = "<synthetic>"
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
_COMMAND = re.compile(
    r"\s*<command-(?:name|message)>.*?<command-name>(?P<name>[^<]*)</command-name>"
    r"|\s*<command-name>(?P<first>[^<]*)</command-name>",
    re.DOTALL,
)
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_OWN_OUTPUT = ("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>")
_REFUSED = "The user doesn't want to "
_OURS: dict[str, str] = {}
for _ours, _names in ALIASES.items():
    for _name in _names:
        _OURS.setdefault(_name, _ours)


def _is_claude(record: Mapping[str, Any]) -> bool:
    """Whether a line of a file is one of Claude Code's."""
    kind = text_in(record, "type")
    is_said = kind in _SAID and isinstance(record.get("message"), dict)
    return is_said or (
        bool(kind) and not record.keys().isdisjoint(("sessionId", "leafUuid", "parentUuid"))
    )


def _read_claude(source: Source, path: Path | None) -> DraftSession:
    """The session in ``source``; ``path`` is where to look for its sub-agents' files."""
    draft = DraftSession(NAME, left_out=source.left_out)
    lines = _ClaudeLines()
    for record in source.records():
        lines.add(record)
    draft.id = lines.session_id or (path.stem if path is not None else "")
    draft.digest = source.digest
    draft.cwd, draft.title = lines.cwd, lines.title
    began = _tell(draft, lines.main)
    chains = lines.chains
    for each in _agent_files(path, draft.id) if path is not None else ():
        _read_agent(each, chains, draft.left_out)
    if (more := len(chains) - MAX_AGENTS) > 0:
        draft.left_out[f"sub-agent beyond the first {MAX_AGENTS}"] += more
    for key, records in islice(chains.items(), MAX_AGENTS):
        agent = DraftSession(NAME, id=key, cwd=draft.cwd, left_out=draft.left_out)
        _tell(agent, records)
        prompt = next((m.message.text for m in agent.messages), "")
        name, call_id = began.get(key) or began.get(prompt.strip()) or ("task", "")
        agent.model = agent.model or draft.model
        draft.agents.append((name, call_id, agent))
    return draft


@mutable
class _ClaudeLines:
    """The records of a file, by the conversation that they belong to."""

    session_id: str = ""
    cwd: str = ""
    main: list[Record] = field(default_factory=list)
    chains: dict[str, list[Record]] = field(default_factory=dict)
    _titles: dict[str, str] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _root_of: dict[str, str] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """A line, unless it was there before."""
        kind = text_in(record, "type")
        if key := _TITLES.get(kind):
            self._titles[kind] = text_in(record, key) or self._titles.get(kind, "")
        name = text_in(record, "uuid")
        if name in self._seen or not kind:
            return
        if name:
            self._seen.add(name)
        self.session_id = self.session_id or text_in(record, "sessionId")
        self.cwd = self.cwd or text_in(record, "cwd")
        if record.get("isSidechain") is not True:
            if name or kind in _SAID:
                self.main.append(record)
            return
        parent = text_in(record, "parentUuid")
        root = text_in(record, "agentId") or self._root_of.get(parent) or name
        self._root_of[name] = root
        self.chains.setdefault(root, []).append(record)

    @property
    def title(self) -> str:
        """What the user, else the program, has called it."""
        return next(filter(None, map(self._titles.get, _TITLES)), "")


def _agent_files(path: Path, session_id: str) -> Iterator[Path]:
    """Where the sub-agents of a session have files of their own; links are not followed."""
    own = path.with_suffix("") / "subagents"
    beside = path.parent.glob("agent-*.jsonl") if path.stem == session_id else ()
    is_own = own.resolve() == path.parent.resolve() / path.stem / own.name  # no link to elsewhere
    found = (*(sorted(own.glob("*.jsonl")) if is_own else ()), *sorted(beside))
    yield from (each for each in found[:MAX_AGENTS] if _is_of(each, session_id))


def _is_of(path: Path, session_id: str) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with opened(path) as stream:
        first = next(Source(stream, path.name, LeftOut()).records(), {})
    return text_in(first, "sessionId") == session_id


def _read_agent(path: Path, chains: dict[str, list[Record]], left_out: LeftOut) -> None:
    with opened(path) as stream:
        for record in Source(stream, path.name, left_out).records():
            if text_in(record, "uuid"):
                chains.setdefault(path.stem.removeprefix("agent-"), []).append(record)


# --- one conversation ------------------------------------------------------------------------


@mutable
class _Telling:
    """What was said, record by record, added to ``draft``.

    ``began`` has, by what a sub-agent is known, its name and the call that began it.
    """

    draft: DraftSession
    part_of: set[int]
    began: dict[str, tuple[str, str]] = field(default_factory=dict)
    _replies: dict[str, tuple[DraftMessage, list[Any]]] = field(default_factory=dict)
    _by_uuid: dict[str, DraftMessage] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _agents: dict[str, str] = field(default_factory=dict)
    _preserved: Sequence[str] = ()
    _boundaries: int = 0

    def reply(self, at: int, when: float, record: Record) -> None:
        """A block or more of a reply."""
        draft, message = self.draft, dict_in(record, "message")
        key = text_in(message, "id") or str(at)
        if key not in self._replies:
            reply = DraftMessage(assistant_message(()), when, taken_back=at not in self.part_of)
            self._replies[key] = reply, []
            draft.messages.append(reply)
        reply, parts = self._replies[key]
        self._by_uuid[text_in(record, "uuid")] = reply
        new = list(_reply_parts(message, draft.left_out))
        parts += new
        reply.usage = _usage(dict_in(message, "usage"))
        reply.model = f"anthropic/{text_in(message, 'model')[:200]}"
        if at in self.part_of:
            draft.model = reply.model
        for call in (each for each in new if isinstance(each, ToolCall)):
            self._names[call.id] = call.name
            if call.name == "task":
                agent = str(call.arguments.get("agent") or "task")[:100]
                prompt = str(call.arguments.get("prompt", "")).strip()
                self.began[prompt] = (agent, call.id)
                self._agents.setdefault(call.id, agent)

    def said(self, at: int, when: float, record: Record) -> None:
        """Results, what the user said, or a summary."""
        draft, message = self.draft, dict_in(record, "message")
        own = list(_user_messages(record, message, self._names, draft.left_out))
        if own and record.get("isCompactSummary") is True:
            if not draft.may_go_back():
                return
            parts = own[0].message.parts
            kept = [self._by_uuid[n] for n in self._preserved if n in self._by_uuid]
            draft.fold_into(DraftMessage(user_message(parts, is_summary=True), when), kept)
            return
        for each in own:
            each.at, each.taken_back = when, at not in self.part_of
            self._by_uuid.setdefault(text_in(record, "uuid"), each)
        draft.messages += own
        agent_id = text_in(dict_in(record, "toolUseResult"), "agentId")
        for block in _blocks(message) if agent_id else ():
            call_id = text_in(block, "tool_use_id")
            self.began[agent_id] = (self._agents.get(call_id, "task"), call_id)

    def compacted(self, record: Record, records: Sequence[Record]) -> None:
        """The summary that follows does not stand for what was kept word for word."""
        may_go_back = self.draft.turns_back < MAX_TURNS_BACK and self._boundaries < MAX_TURNS_BACK
        self._preserved = _preserved(record, records) if may_go_back else ()
        self._boundaries += 1

    def close(self) -> None:
        """All blocks of all replies are known."""
        for reply, parts in self._replies.values():
            reply.message = assistant_message(parts)


def _tell(draft: DraftSession, records: Sequence[Record]) -> dict[str, tuple[str, str]]:
    """Add what was said to ``draft``; by what a sub-agent is known, its name and its call."""
    telling = _Telling(draft, _conversation(records))
    for at, record in enumerate(records):
        when = moment_of(record.get("timestamp"))
        draft.created_at = min(filter(None, (draft.created_at, when)), default=0.0)
        draft.updated_at = max(draft.updated_at, when)
        if record.get("subtype") == "compact_boundary":
            telling.compacted(record, records)
        elif text_in(record, "type") == "user":
            telling.said(at, when, record)
        elif text_in(record, "type") == "assistant" and not _is_synthetic(record):
            telling.reply(at, when, record)
    telling.close()
    return telling.began


def _is_synthetic(record: Record) -> bool:
    """Whether the program, not the model, has said it."""
    is_error = record.get("isApiErrorMessage") is True
    return is_error or dict_in(record, "message").get("model") == _SYNTHETIC


def _conversation(records: Sequence[Record]) -> set[int]:
    """The records that the last one follows from, with all results of their calls."""
    place = {name: at for at, record in enumerate(records) if (name := text_in(record, "uuid"))}
    found: set[int] = set()
    at = next(
        (n for n in range(len(records) - 1, -1, -1) if text_in(records[n], "type") in _SAID),
        len(records) - 1,
    )
    while at >= 0 and at not in found:
        found.add(at)
        record = records[at]
        parent = text_in(record, "parentUuid")
        if not parent and record.get("subtype") == "compact_boundary":
            parent = text_in(record, "logicalParentUuid")
            at = place.get(parent, at - 1)
        elif not parent and (text_in(record, "uuid") and "parentUuid" in record):
            break  # the first of all
        else:
            at = place.get(parent, at - 1)
    _add_parallel(records, found)
    return found


def _add_parallel(records: Sequence[Record], found: set[int]) -> None:
    """Calls that ran side by side are branches of one reply: all of them are part of it."""
    said = [(at, dict_in(record, "message")) for at, record in enumerate(records)]
    replies = {text_in(message, "id") for at, message in said if at in found} - {""}
    found.update(at for at, message in said if text_in(message, "id") in replies)
    calls = {
        text_in(block, "id") for at, message in said if at in found for block in _blocks(message)
    } - {""}
    for at, message in said:
        if any(text_in(block, "tool_use_id") in calls for block in _blocks(message)):
            found.add(at)


def _preserved(boundary: Record, records: Sequence[Record]) -> Sequence[str]:
    """The records that a compaction has kept word for word."""
    facts = dict_in(boundary, "compactMetadata")
    listed = list(list_in(dict_in(facts, "preservedMessages"), "uuids"))
    segment = dict_in(facts, "preservedSegment")
    head, tail = text_in(segment, "headUuid"), text_in(segment, "tailUuid")
    names = [text_in(record, "uuid") for record in records]
    if head in names and tail in names:
        listed += names[names.index(head) : names.index(tail) + 1]
    return [name for name in listed if isinstance(name, str) and name]


def _usage(usage: Record) -> Usage:
    return Usage(
        count_in(usage, "input_tokens"),
        count_in(usage, "output_tokens"),
        count_in(usage, "cache_read_input_tokens"),
        count_in(usage, "cache_creation_input_tokens"),
    )


# --- blocks (https://platform.claude.com/docs/en/api/messages) -------------------------------


def _blocks(message: Record) -> Sequence[Record]:
    return records_in(message, "content")


def _reply_parts(message: Record, left_out: LeftOut) -> Iterator[Any]:
    if isinstance(text := message.get("content"), str):
        yield TextPart(text)
    for block in _blocks(message):
        kind = text_in(block, "type")
        if kind == "text":
            yield TextPart(text_in(block, "text"))
        elif kind == "thinking":
            yield ThinkingPart(text_in(block, "thinking"))
        elif kind == "tool_use":
            yield _call(block)
        elif kind != "redacted_thinking":
            left_out[f"part of kind {str(kind)[:40]}"] += 1
            yield TextPart(f"[left out: a part of kind {str(kind)[:40]}]")


def _call(block: Record) -> ToolCall:
    """A call in our words, where there are such."""
    name, arguments = text_in(block, "name"), dict_in(block, "input")
    call = ToolCall(text_in(block, "id"), _OURS.get(name, name), arguments)
    ours = from_claude(call, arguments) if name in _OURS else None
    if ours is None or "edits" in arguments:  # several edits at once have no word here
        return ToolCall(call.id, name, arguments)
    return ToolCall(call.id, call.name, ours)


def _user_messages(
    record: Record, message: Record, names: Mapping[str, str], left_out: LeftOut
) -> Iterator[DraftMessage]:
    """Results, then what the user said; what the program has added for itself is left away."""
    texts: list[Any] = []
    if isinstance(text := message.get("content"), str):
        texts.append(TextPart(text))
    for block in _blocks(message):
        if text_in(block, "type") == "tool_result":
            call_id = text_in(block, "tool_use_id")
            parts = list(_contents(block, left_out))
            status = ResultStatus.ERROR if block.get("is_error") is True else ResultStatus.OK
            first = parts[0].text if parts and isinstance(parts[0], TextPart) else ""
            if status is ResultStatus.ERROR and first.startswith(_REFUSED):
                status = ResultStatus.REFUSED
            yield DraftMessage(result_of(call_id, names.get(call_id, ""), parts, status=status))
        else:
            texts += _content(block, left_out)
    if record.get("isMeta") is True:
        return
    said = user_message([each for part in texts for each in _said(part)])
    if said.parts:
        yield DraftMessage(said)


def _said(part: Any) -> Iterator[Any]:
    """What the user typed where it was a command of the program's own."""
    if not isinstance(part, TextPart):
        yield part
    elif found := _COMMAND.match(part.text):
        arguments = _ARGUMENTS.search(part.text)
        name = (found["name"] or found["first"] or "").strip()
        yield TextPart(f"{name} {arguments[1] if arguments else ''}".strip())
    elif not part.text.lstrip().startswith(_OWN_OUTPUT):
        yield part


def _contents(block: Record, left_out: LeftOut) -> Iterator[Any]:
    if isinstance(text := block.get("content"), str):
        yield TextPart(text)
    for each in records_in(block, "content"):
        yield from _content(each, left_out)


def _content(block: Record, left_out: LeftOut) -> Iterator[Any]:
    kind, source = text_in(block, "type"), dict_in(block, "source")
    if kind == "text":
        yield TextPart(text_in(block, "text"))
    elif kind in {"image", "document"} and isinstance(source.get("data"), str):
        if source.get("type") == "text":
            yield TextPart(source["data"])
        else:
            name = text_in(block, "title")
            yield media_part(source["data"], text_in(source, "media_type"), left_out, name)
    else:
        left_out[f"part of kind {str(kind)[:40]}"] += 1
        yield TextPart(f"[left out: a part of kind {str(kind)[:40]}]")


FORMAT = SessionFormat(_is_claude, records=_read_claude)
