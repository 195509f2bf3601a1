"""Keeps what files were before a call changes them; satisfies ``domain.tools.FileKeeper`` (TT-1).

Laws: the snapshot is in the session's file before the change (write-ahead); a file that cannot be
kept holds up no call: the person is told, once for each session (FAIL-2). What a command changes is
found by comparing the workspace before and after it (``workspace_watch``). Calls of sub-agents run
beside each other: what is found while commands run is kept once, in its order, as done by one of
them. A cancel waits for nothing here: looking is stopped, what is being stored is stored.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from agentcli.app.file_states import Mark, is_same, mark_of, read_state
from agentcli.app.workspace_watch import WorkspaceWatch
from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import AgentError
from agentcli.domain.rewind import FileKind, FileState, RewindStore
from agentcli.domain.tools import Effect, Workspace, real_path

T = TypeVar("T")
log = logging.getLogger(__name__)
MAX_PATHS = 2_000
_SHORTEST_SECRET = 6
_SHORTEST_WORD = 16
MAX_CALL_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _Open:
    """A call that runs: its rows, and what it found. ``marks`` are of what was not kept."""

    rows: Mapping[Path, int]
    before: Mapping[Path, FileState]
    marks: Mapping[Path, Mark | None]

    def is_untouched(self, path: Path, after: FileState) -> bool:
        """Whether the call left ``path`` as it was, as far as that can be told."""
        mark = self.marks.get(path)
        return is_same(after, self.before[path]) or (mark is not None and mark == mark_of(path))


@dataclass(slots=True)
class Keeper:
    """For one session. ``tell`` says a line to the person; ``secrets`` are never kept (SEC-9)."""

    store: RewindStore
    workspace: Workspace
    tell: Callable[[str], None] = lambda _: None
    secrets: Callable[[], Iterable[str]] = tuple
    _open: dict[str, _Open] = field(default_factory=dict)
    _watch: WorkspaceWatch = field(init=False)
    _watching: list[str] = field(default_factory=list)
    _warned: set[str] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._watch = WorkspaceWatch(self.workspace.root, self._is_secret)

    async def begin(self, call_id: str, effect: Effect, paths: Sequence[Path]) -> None:
        """Keep what a call may change: the files that it names, or look at the workspace."""
        del effect
        try:
            async with self._turn:
                await self._begin(call_id, paths)
        except asyncio.CancelledError:
            if call_id in self._watching:
                self._watching.remove(call_id)
            if call_id in self._open:  # the call does not run: nothing becomes of the files
                await uninterruptible(self._settle(call_id, self._open[call_id].before))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the call goes on
            self._failed(error)

    async def end(self, call_id: str) -> None:
        """See what the call has made of it."""
        try:
            async with self._turn:
                await self._end(call_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, the call goes on
            self._failed(error)

    async def settled(self) -> None:
        """Return when all that has ended by now is stored."""
        async with self._turn:
            pass

    async def _begin(self, call_id: str, paths: Sequence[Path]) -> None:
        if self._watching:
            await self._keep_found()
        if paths:
            states = await asyncio.to_thread(self._read, paths)
            unkept = [path for path, state in states.items() if state.kind is FileKind.UNKEPT]
            marks = {path: mark_of(path) for path in unkept}
            await uninterruptible(self._keep(call_id, states, marks))
            return
        problem = "" if self._watching else await self._stoppable(self._watch.look)
        self._watching.append(call_id)
        if problem:
            self._warn(problem)

    async def _end(self, call_id: str) -> None:
        if call_id in self._watching:
            try:
                await self._keep_found()
            finally:
                self._watching.remove(call_id)
        elif call_id in self._open:
            after = await asyncio.to_thread(self._read, list(self._open[call_id].before))
            await uninterruptible(self._settle(call_id, after))
            if self._watching:
                await asyncio.to_thread(self._watch.learn, after)

    async def _keep_found(self) -> None:
        """Keep what the commands that run have changed since the workspace was looked at."""
        (was, now), problem = await self._stoppable(self._watch.compare)
        if problem:
            self._warn(problem)
        if was:
            await uninterruptible(self._keep_both(self._watching[0], was, now))

    async def _keep_both(
        self, call_id: str, was: Mapping[Path, FileState], now: Mapping[Path, FileState]
    ) -> None:
        await self._keep(call_id, was)
        await self._settle(call_id, now)

    async def _stoppable(self, work: Callable[[threading.Event], T]) -> T:
        """Run ``work`` in a thread, which stops soon when the wait for it is cancelled."""
        stop = threading.Event()
        try:
            return await asyncio.to_thread(work, stop)
        finally:
            stop.set()

    async def _settle(self, call_id: str, after: Mapping[Path, FileState]) -> None:
        if call_id not in self._open:
            return
        known = self._open.pop(call_id)
        changed = {
            row: None if known.is_untouched(path, after[path]) else after[path]
            for path, row in known.rows.items()
        }
        try:
            await self.store.settle(changed)
        except AgentError as error:
            self._failed(error)

    async def _keep(
        self,
        call_id: str,
        states: Mapping[Path, FileState],
        marks: Mapping[Path, Mark | None] = MappingProxyType({}),
    ) -> None:
        try:
            ids = await self.store.keep(call_id, states)
        except AgentError as error:
            self._failed(error)
            return
        self._open[call_id] = _Open(ids, states, marks)
        for path, state in states.items():
            if state.kind is FileKind.UNKEPT:
                self._warn(f"/undo cannot bring back {path}: {state.why}")

    def _failed(self, error: Exception) -> None:
        """A snapshot is no reason to stop (FAIL-2)."""
        log.warning("snapshots could not be stored", exc_info=error)
        self._warn(f"what files were could not be kept, /undo will not know them: {error}")

    def _read(self, paths: Sequence[Path]) -> dict[Path, FileState]:
        states: dict[Path, FileState] = {}
        total = 0
        for named in paths:
            path = real_path(named.parent) / named.name
            if path in states:
                continue
            if len(states) >= MAX_PATHS or total > MAX_CALL_BYTES:
                states[path] = FileState(FileKind.UNKEPT, why="the call changes too much at once")
                continue
            states[path] = read_state(path, self._is_secret)
            total += len(states[path].data)
        return states

    def _is_secret(self, data: bytes) -> bool:
        known = (secret for secret in self.secrets() if not _is_word(secret))
        return any(secret.encode("utf-8", "replace") in data for secret in known)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.tell(text)


def _is_word(secret: str) -> bool:
    """Whether it is found in many a file, such as the "key" of a server of one's own."""
    return len(secret) < _SHORTEST_SECRET or (secret.isalpha() and len(secret) < _SHORTEST_WORD)
