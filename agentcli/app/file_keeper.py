"""Keeps what files were before a call changes them; satisfies ``domain.tools.FileKeeper`` (TT-1).

Laws: the snapshot is in the session's file before the change (write-ahead); a file that cannot be
kept holds up no call: the person is told, once for each session. What a command changes is found
by comparing the workspace before and after it (``workspace_watch``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentcli.app.file_states import is_same, read_state
from agentcli.app.workspace_watch import WorkspaceWatch
from agentcli.domain.errors import AgentError
from agentcli.domain.rewind import FileKind, FileState, RewindStore
from agentcli.domain.tools import Effect, Workspace

log = logging.getLogger(__name__)
MAX_PATHS = 2_000


@dataclass(slots=True)
class Keeper:
    """For one session. ``tell`` says a line to the person; ``secrets`` are never kept (SEC-9)."""

    store: RewindStore
    workspace: Workspace
    tell: Callable[[str], None] = lambda _: None
    secrets: Callable[[], Iterable[str]] = tuple
    _open: dict[str, tuple[Mapping[Path, int], Mapping[Path, FileState]]] = field(
        default_factory=dict
    )
    _watch: WorkspaceWatch = field(init=False)
    _watching: set[str] = field(default_factory=set)
    _warned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._watch = WorkspaceWatch(self.workspace.root, self._is_secret)

    async def begin(self, call_id: str, effect: Effect, paths: Sequence[Path]) -> None:
        """Keep what a call may change: the files that it names, or look at the workspace."""
        if paths:
            states = await asyncio.to_thread(self._read, paths[:MAX_PATHS])
            await self._keep(call_id, states)
        elif effect is Effect.EXEC:
            problem = await asyncio.to_thread(self._watch.look)
            self._watching.add(call_id)
            if problem:
                self._warn(problem)

    async def end(self, call_id: str) -> None:
        """See what the call has made of it."""
        if call_id in self._watching:
            self._watching.discard(call_id)
            was, now = await asyncio.to_thread(self._watch.compare)
            if was:
                await self._keep(call_id, was)
                await self._settle(call_id, now)
        elif call_id in self._open:
            _, before = self._open[call_id]
            await self._settle(call_id, await asyncio.to_thread(self._read, list(before)))

    async def _settle(self, call_id: str, after: Mapping[Path, FileState]) -> None:
        if call_id not in self._open:
            return
        ids, before = self._open.pop(call_id)
        changed = {
            row: None if is_same(after[path], before[path]) else after[path]
            for path, row in ids.items()
        }
        try:
            await self.store.settle(changed)
        except AgentError as error:
            self._failed(error)

    async def _keep(self, call_id: str, states: Mapping[Path, FileState]) -> None:
        try:
            ids = await self.store.keep(call_id, states)
        except AgentError as error:
            self._failed(error)
            return
        self._open[call_id] = (ids, states)
        for path, state in states.items():
            if state.kind is FileKind.UNKEPT:
                self._warn(f"/undo cannot bring back {path}: {state.why}")

    def _failed(self, error: AgentError) -> None:
        """A snapshot is no reason to stop (FAIL-2)."""
        log.warning("snapshots could not be stored", exc_info=error)
        self._warn(f"what files were could not be kept, /undo will not know them: {error}")

    def _read(self, paths: Sequence[Path]) -> dict[Path, FileState]:
        return {path: read_state(path, self._is_secret) for path in paths}

    def _is_secret(self, data: bytes) -> bool:
        return any(secret.encode() in data for secret in self.secrets() if secret)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.tell(text)
