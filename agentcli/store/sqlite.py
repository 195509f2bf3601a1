"""A session in its SQLite file: the store that the engine and the tools talk to.

Laws. Every ``record_...`` is exactly one commit (FAIL-5) and returns after it; whatever goes
wrong inside comes out as a ``StoreError`` that names the file and the cause (FAIL-4). A new
session touches no disk before its first prompt. All SQLite work happens in one thread, one
job after another, and no job is ever torn by a cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import HistoryViolation, PersistenceError
from agentcli.domain.events import Outcome
from agentcli.domain.history import History, RepairReason, repair_results
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import QueuedInput, QueueKind, RecordedResult, ToolRun
from agentcli.domain.session import (
    KeptEvent,
    LoadedSession,
    SessionInfo,
    SessionPage,
    SessionStatus,
    StoredMessage,
)
from agentcli.store import reads, seals, writes
from agentcli.store.codec import to_json
from agentcli.store.disk import ensure_directory, open_or_create, recovery_path, stamp_of
from agentcli.store.file import Body, SessionFile, damaged, fault
from agentcli.store.seals import Seal
from agentcli.store.writes import PriceOf, Redact, SessionWrites

if TYPE_CHECKING:
    from agentcli.store.rewinds import RewindTable
    from agentcli.store.tasks import TaskTable


RESCUE_TIMEOUT_S = 3.0
T = TypeVar("T")
P = ParamSpec("P")


class SqliteStore:
    """One session's file, open. Implements ``SessionStore``, ``SessionState``, ``RawOutputs``.

    Build it with ``new`` or ``open``; end it with ``aclose``. ``price`` gives the cost of a
    message in USD or ``None``; ``redact`` takes secrets out of everything stored (SEC-9).
    """

    __slots__ = (
        "_began_turn",
        "_draft",
        "_draft_events",
        "_draft_messages",
        "_draft_state",
        "_file",
        "_worker",
        "_writes",
    )

    def __init__(
        self,
        file: SessionFile,
        writes: SessionWrites,
        draft: SessionInfo | None,
        messages: Sequence[Message] = (),
    ) -> None:
        self._file = file
        self._writes = writes
        self._worker = Worker(file.close)
        self._draft = draft
        self._draft_state: dict[str, Any] = {}
        self._draft_messages = messages
        self._draft_events: list[KeptEvent] = []
        self._began_turn = False

    @classmethod
    def new(
        cls,
        path: Path,
        info: SessionInfo,
        *,
        price: PriceOf | None = None,
        redact: Redact | None = None,
        seal: Seal | None = None,
        messages: Sequence[Message] = (),
    ) -> Self:
        """A session that will be created at ``path`` by its first ``record_prompt``.

        ``messages`` are what its history begins with.
        """
        file = SessionFile(path, writable=True, seal=seal)
        return cls(file, SessionWrites(price, redact), info, messages)

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        writable: bool = True,
        price: PriceOf | None = None,
        redact: Redact | None = None,
        seal: Seal | None = None,
    ) -> Self:
        """An existing session; an older version is migrated.

        ``seal`` marks what could act; anyone who goes on with the session calls ``drop_foreign``.

        Raises ``SessionNotFound``, ``SessionLocked`` (only when ``writable``, REC-6),
        ``SessionDamaged`` (REC-7), ``SessionTooNew`` or ``PersistenceError``.
        """
        file = SessionFile(path, writable=writable, seal=seal)
        store = cls(file, SessionWrites(price, redact), None)
        try:
            await store._run(store._file.open, writing=False)
        except BaseException:
            await store.aclose()
            raise
        return store

    def beside(self, info: SessionInfo) -> SqliteStore:
        """A new session in the same directory, with the same prices and redaction."""
        path = self.path.with_name(f"{info.id}{self.path.suffix}")
        return SqliteStore(
            SessionFile(path, writable=True, seal=self._file.seal), self._writes, info
        )

    @property
    def path(self) -> Path:
        """The session's file."""
        return self._file.path

    @property
    def created(self) -> bool:
        """Whether the file exists; false until the first prompt of a new session."""
        return self._draft is None

    @property
    def commits(self) -> int:
        """Commits made so far through this store (FAIL-5)."""
        return self._file.commits

    async def aclose(self) -> None:
        """Close the file and give the lock back. May be called again; never raises for a disk."""
        await self._worker.aclose()

    async def drop_foreign(self, cwd: Path) -> tuple[str, ...]:
        """Leave out what could act and was not written in this home; what, in words (SEC-16).

        A session of another home is one of the directory ``cwd`` from now on.
        """
        if not await self._read(seals.has_foreign):
            return ()
        return await self._write(seals.drop_foreign, str(cwd))

    # --- what the engine records ---------------------------------------------------------

    async def record_prompt(
        self,
        message: UserMessage | None,
        *,
        queued: Sequence[int] = (),
        begins_turn: bool = True,
    ) -> int:
        """W0: the prompt, the state "running"; creates the file of a new session."""
        self._began_turn = True
        if self._draft is not None:
            return await self._create(self._writes.prompt, message)
        return await self._write(self._writes.prompt, message, queued, begins_turn=begins_turn)

    async def _create(self, body: Body[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make the file of a new session, with what it begins with."""
        draft, state = self._draft, self._draft_state

        def fill(db: sqlite3.Connection) -> T:
            if draft is not None:
                self._writes.session(db, draft)
            for key, value in state.items():
                self._writes.state(db, key, value)
            self._writes.earlier(db, [(message, None) for message in self._draft_messages])
            return body(db, *args, **kwargs)

        def create() -> T:
            if self._draft is None:  # a job before this one was the first
                return self._file.write(body, *args, **kwargs)
            result = self._file.create(fill)
            self._draft = None
            return result

        return await self._run(create, writing=True)

    async def create(self) -> None:
        """Make the file of a new session before its first prompt."""
        if self._draft is not None:
            await self._create(self._writes.earlier, ())

    async def record_assistant(
        self,
        message: AssistantMessage,
        calls: Sequence[ToolCall],
        *,
        final: Outcome | None,
        wasted: Usage | None = None,
    ) -> int:
        """W1: the message, a pending row per call, its usage; with ``final`` the turn's end."""
        return await self._write(self._writes.assistant, message, calls, final=final, wasted=wasted)

    async def record_running(self, call: ToolCall) -> None:
        """W2: the call is about to take effect."""
        await self._write(self._writes.running, call)

    async def record_result(self, done: RecordedResult, in_order: Sequence[ToolResult]) -> None:
        """W3: ``done`` is parked, or becomes a message with the others of ``in_order``."""
        await self._write(self._writes.result, done, in_order)

    async def record_end(
        self,
        results: Sequence[ToolResult],
        outcome: Outcome,
        detail: str,
        partial: str,
        *,
        usage: Usage | None = None,
        model: str = "",
    ) -> None:
        """Close a turn: balance, outcome, why, and what was seen and spent on a cut reply."""
        status = writes.STATUS_OF_OUTCOME[outcome]

        def write(db: sqlite3.Connection) -> None:
            if usage is not None:
                self._writes.partial_usage(db, model, usage)
            self._writes.end(db, results, status, detail, partial)

        await self._write(write)

    async def record_compaction(
        self,
        summary: UserMessage,
        folded: Sequence[int],
        total: int,
        *,
        usage: Usage,
        model: str,
    ) -> int:
        """Put ``summary`` before the history and hide what it stands for (CMP-3); its seq."""
        return await self._write(self._writes.compaction, summary, folded, total, (model, usage))

    async def undo_compaction(self) -> bool:
        """Bring back what the newest summary stands for; false when there is none (CMP-3)."""
        return self._draft is None and await self._write(writes.undo_compaction)

    async def record_crash(
        self, results: Sequence[ToolResult], detail: str = reads.CRASH_DETAIL
    ) -> None:
        """Close a turn whose process died: the results that balance it (REC-1)."""
        status = SessionStatus.CRASHED
        await self._write(self._writes.end, results, status, detail)

    async def add_usage(
        self, model: str, usage: Usage, cost_usd: float | None, *, kind: str
    ) -> None:
        """Tokens spent outside of a recorded step, for example ``kind="compaction"``."""
        import time

        about = (None, time.time(), kind, model)
        await self._write(self._writes.usage, about, usage, cost_usd)

    # --- reading -------------------------------------------------------------------------

    async def load(self, *, hidden: bool = False) -> LoadedSession:
        """The whole session; ``hidden`` includes what a compaction folded away.

        A stored "running" whose owner is dead is reported as crashed.
        """
        if self._draft is not None:
            stored = enumerate(self._draft_messages, start=1)
            at = self._draft.created_at
            return LoadedSession(
                self._draft, tuple(StoredMessage(seq, at, message) for seq, message in stored)
            )
        loaded = await self._read(reads.read_session, hidden=hidden)
        return replace(loaded, info=self._true_status(loaded.info))

    async def page(self, after: int, most: int) -> SessionPage:
        """At most ``most`` messages after the one with the seq ``after``; empty at the end."""
        return SessionPage() if self._draft else await self._read(reads.read_page, after, most)

    async def history(self) -> Sequence[Message]:
        """The messages to go on with."""
        return [stored.message for stored in (await self.load()).messages]

    async def info(self) -> SessionInfo:
        """The session's line in a list, with its totals."""
        if self._draft is not None:
            return self._draft
        return self._true_status(await self._read(reads.read_info))

    async def stamped_info(self) -> tuple[str, SessionInfo]:
        """The file's stamp, and ``info`` as it was then or became later."""
        stamp, info = await self._read(lambda db: (stamp_of(self.path), reads.read_info(db)))
        return stamp, self._true_status(info)

    async def stored_status(self) -> SessionStatus:
        """The status as the file has it, "running" also where the process that ran it is dead."""
        if self._draft is not None:
            return self._draft.status
        return (await self._read(reads.read_info)).status

    async def tool_runs(self) -> Mapping[str, ToolRun]:
        """The rows of calls that have no result message, by call id."""
        if self._draft is not None:
            return {}
        return await self._read(reads.read_open_runs)

    async def read(self, call_id: str) -> bytes | None:
        """The whole output of a call, when it was kept (TOOL-3)."""
        return None if self._draft is not None else await self._read(reads.read_raw, call_id)

    def _true_status(self, info: SessionInfo) -> SessionInfo:
        return reads.with_true_status(
            info, self.path, own=self._file.writable, live=self._began_turn
        )

    # --- small values --------------------------------------------------------------------

    async def get(self, key: str) -> Any:
        """The JSON value of ``key``, or ``None``."""
        if self._draft is not None:
            return self._draft_state.get(key)
        return await self._read(reads.read_state, key)

    async def set(self, key: str, value: Any) -> None:
        """Store ``value`` durably; ``None`` removes the key."""
        if self._draft is not None:
            self._draft_state[key] = json.loads(self._writes.redact(to_json(value)))
            return
        await self._write(self._writes.state, key, value)

    async def set_title(self, title: str) -> None:
        """Name the session."""
        if self._draft is not None:
            self._draft = replace(self._draft, title=title)
            return
        await self._write(self._writes.named, "title", title)

    async def set_model(self, model: str) -> None:
        """Remember the model that answers from now on (``provider/model``)."""
        if self._draft is not None:
            self._draft = replace(self._draft, model=model)
            return
        await self._write(self._writes.named, "model", model)

    async def rescue(self, text: str) -> str | None:
        """Append ``text`` durably to a file beside the session (FAIL-1); its path, or ``None``."""
        worker = Worker(lambda: None)  # its thread ends with the job, however long a disk hangs
        saved = worker.submit(functools.partial(_rescue, self.path, self._writes.redact(text)))
        await asyncio.wait({saved}, timeout=RESCUE_TIMEOUT_S)
        return saved.result() if saved.done() else None

    # --- text that waits -------------------------------------------------------------------

    async def queue_add(self, kind: QueueKind, text: str) -> QueuedInput:
        """Let ``text`` wait, durably; creates the file of a new session."""
        do = self._write if self._draft is None else self._create
        return await do(writes.queue_add, kind, text, self._writes.redact)

    async def queue_edit(self, row_id: int, text: str) -> str | None:
        """Change what waits; the text as stored, or ``None`` when it waits no longer."""
        return await self._write(writes.queue_edit, row_id, text, self._writes.redact)

    async def queue_drop(self, row_id: int) -> bool:
        """Take back what waits; false when it waits no longer."""
        return await self._write(writes.queue_drop, row_id)

    async def queue_waiting(self) -> Sequence[QueuedInput]:
        """What waits, oldest first."""
        return () if self._draft is not None else await self._read(writes.queue_waiting)

    @property
    def messages(self) -> SqliteStore:
        """The history: ``history`` has it."""
        return self

    @property
    def state(self) -> SqliteStore:
        """Small values by key."""
        return self

    @property
    def events(self) -> EventTable:
        """What the session has said while it worked (``domain.extensions.keeping.EventStore``)."""
        return EventTable(self)

    async def append_events(self, events: Sequence[KeptEvent]) -> None:
        """Keep ``events``; those before the first prompt wait for the file."""
        self._draft_events += events
        if self._draft is None:
            kept, self._draft_events = self._draft_events, []
            await self._write(writes.append_events, kept, self._writes.redact)

    async def read_events(self) -> Sequence[KeptEvent]:
        """All that were kept, in order."""
        return () if self._draft is not None else (await self._read(reads.read_events))[1]

    @property
    def tasks(self) -> TaskTable:
        """The registry of background runs (BG-3)."""
        from agentcli.store.tasks import TaskTable

        return TaskTable(self._write, self._read, self._writes.redact)

    @property
    def rewinds(self) -> RewindTable:
        """Snapshots of files, and what was taken back (TT-1, TT-2)."""
        from agentcli.store.rewinds import RewindTable

        return RewindTable(self._write, self._read, lambda: self._draft is None)

    # --- one thread, one transaction, one kind of error ----------------------------------

    async def _write(self, body: Body[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._draft is not None:
            raise PersistenceError(
                f"cannot write session file {self.path}: it was never created",
                "see the first error of this session",
            )
        return await self._run(
            functools.partial(self._file.write, body, *args, **kwargs), writing=True
        )

    async def _read(self, body: Body[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(
            functools.partial(self._file.read, body, *args, **kwargs), writing=False
        )

    async def _run(self, job: Callable[[], T], *, writing: bool) -> T:
        try:
            return await self._worker.run(job)
        except Exception as error:
            known = fault(error, self.path, writing=writing)
            if known is error:
                raise
            raise known from error


class EventTable:
    """The events of a session file; satisfies ``domain.extensions.keeping.EventStore``."""

    def __init__(self, store: SqliteStore) -> None:
        self.append = store.append_events
        self.read = store.read_events


def _rescue(session_path: Path, text: str) -> str | None:
    path = recovery_path(session_path)
    data = text.encode(errors="backslashreplace")
    if not data.endswith(b"\n"):
        data += b"\n"
    try:
        ensure_directory(path.parent)
        descriptor = open_or_create(path, os.O_APPEND)
    except OSError:
        return None
    before = os.fstat(descriptor).st_size
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        # no half of a text stays: without a path it is shown elsewhere
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, before)
            if before == 0:
                path.unlink()
        return None
    finally:
        os.close(descriptor)
    return str(path)


async def recover(store: SqliteStore) -> tuple[LoadedSession, tuple[ToolResult, ...]]:
    """Balance a session whose process died, once, at the next open (REC-1).

    The repair is the one of ``domain.history``, committed to the file: from then on every reader
    and every request sees the same history; doing it again changes nothing. Returns the session
    and the results that the repair took; one that was stored but not yet a message comes back as
    it was. Raises ``SessionDamaged`` for a history that breaks the law in a way no crash can cause.
    """
    loaded = await store.load()
    try:
        history = History(stored.message for stored in loaded.messages)
    except HistoryViolation as error:
        raise damaged(store.path, error.message) from error
    crashed = loaded.info.status is SessionStatus.CRASHED
    is_news = crashed and await store.stored_status() is SessionStatus.RUNNING
    if not history.pending and not is_news:
        return loaded, ()
    results = repair_results(history.pending, loaded.runs, RepairReason.CRASHED)
    detail = loaded.info.detail if crashed else ""
    await store.record_crash(results, detail or reads.CRASH_DETAIL)
    return await store.load(), results


# --- the thread of a file ------------------------------------------------------------------------

Job = tuple[Callable[[], Any], "asyncio.Future[Any] | None"]
"""A function, and who waits for what it returns or raises."""

JOIN_TIMEOUT_S = 5.0


class Worker:
    """A thread that runs one job after another, so that the event loop never waits for a disk.

    ``on_stop`` runs in it, last, also when the worker is forgotten.

    Laws: a job is never torn, whatever happens to the coroutine that asked for it: a cancelled
    caller waits for the end of its job and is cancelled then. The thread starts with the first
    job, sleeps without waking while there is none, and never keeps the interpreter alive.

    Session files have this and not aiosqlite, on which the catalogue is built: that makes one hop
    per SQL statement, so that a cancellation can leave a transaction half done, and its thread is
    no daemon: a connection left open keeps the process from exiting (aiosqlite 0.22.1, ``core.py``)
    """

    __slots__ = ("_jobs", "_on_stop", "_thread")

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._on_stop = on_stop
        self._thread: threading.Thread | None = None

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``function`` after the jobs before it; what it returns or raises, later."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._jobs,), name="session", daemon=True
            )
            self._thread.start()
        self._jobs.put((function, done))
        return done

    async def run(self, function: Callable[[], T]) -> T:
        """What ``function`` returns or raises; it runs to its end in any case."""
        return await uninterruptible(self.submit(function))

    async def aclose(self) -> None:
        """Run what is queued, then ``on_stop``, and end the thread. May be called again."""
        if self._thread is None:
            return
        thread = self._thread
        try:
            await self.run(self._on_stop)
        finally:
            self._thread = None
            self._jobs.put(None)
            thread.join(JOIN_TIMEOUT_S)

    def __del__(self) -> None:
        if self._thread is not None:
            self._jobs.put((self._on_stop, None))
            self._jobs.put(None)


def _work(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        function, done = job
        result, failure = None, None
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - handed to the coroutine that waits for it
            failure = error
        if done is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed; nobody waits any more
                done.get_loop().call_soon_threadsafe(_answer, done, result, failure)
        del job, function, done, result, failure  # what they hold is not kept until the next one


def _answer(done: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is not None:
        done.set_exception(failure)
    else:
        done.set_result(result)
