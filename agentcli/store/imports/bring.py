"""A file of another program, or an export of ours, becomes a session (CLI-8, SEC-16).

Laws. What a file is, its content says, never its name. The session appears whole or not at all, its
sub-agents before it; one that was imported before is not written again. It belongs to the directory
where it was imported; where it comes from is kept in ``kv`` and acts on nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from agentcli.domain.accounts import ModelOf
from agentcli.domain.errors import UsageError
from agentcli.domain.messages import (
    ToolResult,
    Usage,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import cost_usd
from agentcli.domain.session import Origin, SessionInfo, SessionStatus
from agentcli.domain.values import frozen
from agentcli.store.file import SessionFile, fault
from agentcli.store.files import SessionFiles
from agentcli.store.imports.draft import (
    DraftMessage,
    DraftSession,
    SessionFormat,
    lawful,
    session_id_of,
)
from agentcli.store.imports.reading import LeftOut, Source, parsed
from agentcli.store.reads import IMPORTED_KEY, SUBAGENT_KEY
from agentcli.store.writes import IMPORTED_KIND, Redact, SessionWrites, title_of

_FORMATS = ("own", "opencode", "codex", "claude")  # the most certain first
_LOOKED_AT = 50
_MAX_NAME = 300
_NOT_KNOWN = (
    "give a session of Claude Code or Codex (.jsonl), what opencode export prints, or"
    " what agent sessions export --format json wrote"
)


@frozen
class ImportedSession:
    """What came of a file. ``is_new`` is false where it had been imported before.

    ``left_out`` says of what could not be taken how often it was there.
    """

    id: str
    origin: Origin
    title: str
    messages: int
    agents: int
    left_out: Mapping[str, int]
    is_new: bool = True


@frozen
class Importer:
    """Imports into ``files``. ``redact`` is that of every session (SEC-9).

    ``model_of`` knows the list prices of a model.
    """

    files: SessionFiles
    cwd: Path
    model_of: ModelOf
    redact: Redact

    def read(self, stream: BinaryIO, name: str, path: Path | None = None) -> DraftSession:
        """What ``stream`` holds; raises ``UsageError`` where that is no session known here.

        ``path`` is where it stands, if anywhere: sub-agents have files beside it.
        """
        source = Source(stream, name, LeftOut())
        for value in source.peek(_LOOKED_AT):
            known = _format_of(value)
            if known is not None and known.records is not None:
                return _said_something(known.records(source, path), name)
        document = parsed(_without_preface(source.document()))
        known = _format_of(document)
        if known is None or known.document is None:
            raise UsageError(f"{name} is no session that is known here", _NOT_KNOWN)
        return _said_something(known.document(document, source), name)

    def bring_in(self, draft: DraftSession) -> ImportedSession:
        """Make the session; raises ``StoreError``. Blocks."""
        session_id = session_id_of(draft)
        messages = lawful(draft)
        origin = Origin(
            draft.format,
            draft.id[:_MAX_NAME],
            draft.cwd[:_MAX_NAME],
            draft.model[:_MAX_NAME],
            time.time(),
        )
        is_new = not self.files.path_of(session_id).exists()
        for number, (name, call_id, agent) in enumerate(draft.agents if is_new else ()):
            agent_id = session_id_of(draft, f"{number} {agent.id}")
            mark = {"agent": name, "call_id": call_id}
            if not self.files.path_of(agent_id).exists():
                self._write(agent_id, agent, lawful(agent), {SUBAGENT_KEY: mark}, session_id)
        if is_new:
            self._write(session_id, draft, messages, {IMPORTED_KEY: origin.as_json()}, None)
        title = _title(draft, messages, self.redact)
        counts = (len(messages), len(draft.agents))
        return ImportedSession(
            session_id, origin, title, *counts, dict(draft.left_out), is_new=is_new
        )

    def _write(
        self,
        session_id: str,
        draft: DraftSession,
        messages: Sequence[DraftMessage],
        state: Mapping[str, Any],
        parent_id: str | None,
    ) -> None:
        path = self.files.path_of(session_id)
        now = time.time()
        created_at = min(draft.created_at or now, now)
        info = SessionInfo(
            id=session_id,
            title=_title(draft, messages, self.redact),
            cwd=str(self.cwd),
            created_at=created_at,
            updated_at=min(max(draft.updated_at, created_at), now),
            status=SessionStatus.DONE,
            turns=sum(map(_is_prompt, messages)),
            model="",
            parent_id=parent_id,
        )
        writes = SessionWrites(None, self.redact)
        file = SessionFile(path, writable=True, seal=self.files.seal)

        def fill(db: Any) -> None:
            writes.session(db, info)
            for key, value in state.items():
                writes.state(db, key, value)
            writes.earlier(db, [(each.message, each.at or created_at) for each in messages])
            writes.places(db, list(_hidden(messages)), list(_summaries(messages)))
            for about, usage, cost in _usage(draft, messages, created_at):
                priced = cost if cost is not None else self._cost(about[3], usage)
                writes.usage(db, about, usage, priced)
            for text in draft.notes:
                writes.note(db, "lost_result", text)
            db.executemany(
                "UPDATE tool_run SET started_at = nullif(?, 0.0), finished_at = nullif(?, 0.0)"
                " WHERE call_id = ?",
                [(*times, call_id) for call_id, times in draft.run_times.items()],
            )

        try:
            file.create(fill)
        except Exception as error:
            raise fault(error, path, writing=True) from error
        finally:
            file.close()

    def _cost(self, model: str, usage: Usage) -> float | None:
        info = self.model_of(model)
        return None if info is None else cost_usd(info, usage)


@cache
def _formats() -> Sequence[SessionFormat]:
    package = f"{__package__}.formats"
    return [import_module(f"{package}.{name}").FORMAT for name in _FORMATS]


def _format_of(value: object) -> SessionFormat | None:
    if not isinstance(value, dict):
        return None
    return next((each for each in _formats() if each.recognizes(value)), None)


def _said_something(draft: DraftSession, name: str) -> DraftSession:
    if not any(each.message.parts for each in draft.messages):
        raise UsageError(f"{name} holds no messages", _NOT_KNOWN)
    return draft


def _without_preface(document: bytes) -> bytes:
    """``opencode export`` says what it does before; in a terminal's copy that comes along."""
    is_copy = document.startswith(b"Exporting session")
    return document[document.find(b"{") :] if is_copy else document


def _title(draft: DraftSession, messages: Sequence[DraftMessage], redact: Redact) -> str:
    first = next((each.message for each in messages if _is_prompt(each)), None)
    given = title_of(user_text(draft.title), redact) if draft.title.strip() else ""
    return given or (title_of(first, redact) if isinstance(first, UserMessage) else "")


def _is_prompt(each: DraftMessage) -> bool:
    message = each.message
    return isinstance(message, UserMessage) and not message.is_summary and not each.taken_back


def _hidden(messages: Sequence[DraftMessage]) -> Iterator[tuple[int, int]]:
    """The seq of each message that is not sent, and of what stands for it."""
    seqs = {id(each): seq for seq, each in enumerate(messages, 1)}
    for seq, each in enumerate(messages, 1):
        if each.taken_back:
            yield seq, seq
        elif each.hidden_by is not None:
            yield seq, seqs[id(each.hidden_by)]


def _summaries(messages: Sequence[DraftMessage]) -> Iterator[tuple[int, int]]:
    """The seq of each summary before which something is sent, and of the first of that."""
    seqs = {id(each): seq for seq, each in enumerate(messages, 1)}
    for seq, each in enumerate(messages, 1):
        if not (isinstance(each.message, UserMessage) and each.message.is_summary):
            continue
        for place, other in enumerate(messages[: seq - 1], 1):
            hidden_at = seqs[id(other.hidden_by)] if other.hidden_by is not None else seq + 1
            if hidden_at > seq and not other.taken_back:
                yield seq, place
                break


def _usage(
    draft: DraftSession, messages: Sequence[DraftMessage], created_at: float
) -> Iterator[tuple[tuple[int | None, float, str, str], Usage, float | None]]:
    """A row for each request whose tokens or cost are known."""
    for seq, each in enumerate(messages, 1):
        is_known = each.usage.is_known or each.cost_usd is not None
        if is_known and not isinstance(each.message, ToolResult):
            at = each.at or created_at
            yield (seq, at, IMPORTED_KIND, each.model), each.usage, each.cost_usd
    if draft.usage.is_known or draft.cost_usd is not None:
        yield (None, created_at, IMPORTED_KIND, draft.model), draft.usage, draft.cost_usd
