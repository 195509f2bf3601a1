"""The map of one project for its sessions and for ``agent map``; see ``domain.codemap``.

Law: an answer is of the files as they are now. What has changed little is read at once, the rest in
a process that ends with the call that asked; which files there are is found as ``glob_files`` does.
A file that ends that process is left out, and the rest goes on.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TypeVar

from agentcli.codemap.graph import Graph
from agentcli.codemap.index import (
    Changes,
    MapIndex,
    discard,
    forget_reading,
    is_busy,
    is_damage,
    map_file,
)
from agentcli.codemap.watch import ChangeWatch
from agentcli.codemap.worker import NICE, command_of
from agentcli.config.paths import ensure_dir
from agentcli.domain.cancel import CancelToken
from agentcli.domain.codemap import MapState, Symbol, SymbolUses
from agentcli.domain.errors import AgentError, PersistenceError
from agentcli.domain.values import frozen
from agentcli.process.environment import base_environment
from agentcli.process.run import Command, Ending, RunLimits, run
from agentcli.process.shell import open_nameless
from agentcli.tools.search.search import Query, SearchFailed, search

T = TypeVar("T")
TIME_LIMIT_S = 55.0
MAX_LISTED = 200_000
_KEPT_NOISE = 4_000


class MapFailed(AgentError):
    """The map could not be made or read."""


class MapDamaged(MapFailed):
    """What was there is no map, and has been thrown away."""


@frozen
class ProjectMap:
    """The map of the project at ``root``, kept in ``directory``.

    Its process ends with ``owner``, the id of a session, at the latest.
    """

    directory: Path
    root: Path
    owner: str = ""
    _watch: list[ChangeWatch] = field(default_factory=list, compare=False)
    _early: list[CancelToken] = field(default_factory=list, compare=False)

    async def symbols(
        self, query: str, kind: str, below: Path | None, cancel: CancelToken
    ) -> tuple[Sequence[Symbol], MapState]:
        """See ``CodeMap``."""
        inside = self.relative(below)
        return await self.ask(lambda graph: graph.symbols(query, kind, inside), cancel)

    async def references(
        self, symbol: str, path: Path | None, line: int, cancel: CancelToken
    ) -> tuple[Sequence[SymbolUses], MapState]:
        """See ``CodeMap``."""
        inside = self.relative(path)
        return await self.ask(lambda graph: graph.references(symbol, inside, line), cancel)

    def relative(self, path: Path | None) -> str:
        """``path`` as the map names it; the project itself is nothing. Raises ``MapFailed``."""
        if path is None:
            return ""
        real = Path(os.path.realpath(self.root))
        if not path.is_relative_to(real):
            raise MapFailed(f"{path} is outside of {self.root}", "the map is of that directory")
        found = str(path.relative_to(real))
        return "" if found == "." else found

    async def ask(self, question: Callable[[Graph], T], cancel: CancelToken) -> tuple[T, MapState]:
        """The answer, and what the map covers, after it has been brought up to date."""
        try:
            return await self._asked(question, cancel)
        except MapDamaged:
            return await self._asked(question, cancel)

    async def _asked(
        self, question: Callable[[Graph], T], cancel: CancelToken
    ) -> tuple[T, MapState]:
        await self.update(cancel)

        def answer(index: MapIndex) -> tuple[T, MapState]:
            graph = Graph(index)
            return question(graph), graph.state()

        return await asyncio.to_thread(self._opened, answer)

    async def update(self, cancel: CancelToken, *, is_early: bool = False) -> None:
        """Take up what has changed; what takes too long is left to the next time.

        With ``is_early`` nobody waits for it: it yields to all, and ends where somebody does.
        """
        if is_early:
            self._early.append(cancel)
        else:
            for each in self._early:
                each.cancel(force=True)  # what it has read is kept
        if not await asyncio.to_thread(self._opened, self._small_update):
            await self._pass(cancel, is_early=is_early)

    def _small_update(self, index: MapIndex) -> bool:
        """Whether the map is up to date now; not where that takes long or another writes it."""
        if not self._watch:
            self._watch.append(ChangeWatch(index.root))
        watch = self._watch[0]
        with watch.lock:
            is_done = False
            try:
                seen = watch.seen()
                if seen is None and index.get("listed"):
                    watch.begin(index.directories())  # before all is looked at: nothing is missed
                changes = index.changes(seen)
                is_done = changes.is_small and (
                    changes == Changes() or not index.update(changes, quick=True)
                )
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            finally:
                watch.taken() if is_done else watch.end()
        return is_done

    def _opened(self, use: Callable[[MapIndex], T]) -> T:
        path = map_file(self.directory, self.root)
        try:
            ensure_dir(self.directory)
            index = MapIndex(path, self.root)
            try:
                return use(index)
            finally:
                index.close()
        except (sqlite3.Error, OSError, PersistenceError, ValueError) as error:
            if is_damage(error):
                with suppress(OSError):
                    discard(path)
                raise MapDamaged("the map was damaged", "ask again: it is made again") from error
            if is_busy(error):
                raise MapFailed("another process is writing the map", "ask again") from error
            is_map = isinstance(error, sqlite3.Error)
            advice = f"delete {self.directory}: it is made again" if is_map else ""
            raise MapFailed(f"the map cannot be used: {error}", advice) from error

    async def _pass(self, cancel: CancelToken, *, is_early: bool) -> None:
        """Read what has changed, in a process of its own."""
        try:
            listed = await search(Query(self.root, nice=NICE), MAX_LISTED, cancel, (self.root,))
        except SearchFailed as error:
            raise MapFailed(f"the files cannot be listed: {error}") from error
        if listed.ending is Ending.CANCELLED:
            return
        names = b"\0".join(os.fsencode(line.path) for line in listed.lines)
        noise = bytearray()

        def keep(data: bytes) -> bool:
            noise.extend(data[: _KEPT_NOISE - len(noise)])
            return True

        until = time.monotonic() + TIME_LIMIT_S
        path = map_file(self.directory, self.root)
        while True:
            noise.clear()
            stdin = open_nameless(names)
            ended = None
            try:
                command = Command(
                    command_of(path, self.root, is_early=is_early),
                    Path("/"),
                    {**base_environment(), "PYTHONDONTWRITEBYTECODE": "1"},
                    self.owner,
                    handles={0: stdin},
                )
                ended = await run(command, RunLimits(cancel, TIME_LIMIT_S), keep)
            finally:
                os.close(stdin)
                if ended is None or ended.ending is Ending.CANCELLED:
                    forget_reading(path)
            if ended.ending is not Ending.EXITED or not ended.returncode:
                return
            if time.monotonic() > until:
                return  # what is left waits for the next time
            if not await asyncio.to_thread(self._opened, MapIndex.left_out):
                break  # what ended it was no file
        lines = noise.decode("utf-8", "replace").strip().splitlines()
        raise MapFailed(f"the map could not be made: {lines[-1] if lines else 'it crashed'}")
