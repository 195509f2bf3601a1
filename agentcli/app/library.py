"""The user's sessions: opened, listed, searched and copied; and the models that can answer them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from agentcli.app.compose import open_session
from agentcli.app.models import is_ready, lacks_key, listed_models, providers_with_keys
from agentcli.app.opening import session_files
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.config.settings import Settings
from agentcli.domain.clean import one_line
from agentcli.domain.errors import SessionNotFound
from agentcli.domain.ports import Approver, LongWait, ModelInfo, PermissionMode
from agentcli.domain.session import AFTER_ALL, LoadedSession, NewestUnreadable, SessionInfo
from agentcli.domain.tools import Asker, EditorFiles
from agentcli.store.catalogue.catalogue import SearchHit

__all__ = [
    "AsksUser",
    "NewestUnreadable",
    "SearchHit",
    "SessionLibrary",
]


class AsksUser(Approver, Asker, LongWait, Protocol):
    """Puts all that a session asks to the user: approvals, questions, whether to wait."""


class SessionLibrary:
    """The user's sessions, opened as ``options`` ask.

    ``reread`` gives the settings as they are by now, and lines for the user.
    """

    def __init__(
        self,
        settings: Settings,
        options: SessionOptions,
        reread: Callable[[], tuple[Settings, Sequence[str]]] | None = None,
    ) -> None:
        self._settings = settings
        self._reread = reread
        self._options = options
        self._may_fork = options.fork
        self.leads_to = ""
        """The session that the user has chosen and that is to be opened elsewhere; maybe none."""
        self.came_from = ""
        """The session that was left for that, if anything was said in it."""
        self.mode_before = ""
        """The mode of the session that was left: none that is opened then is freer (SEC-3)."""
        self.has_opened = False
        self._files = session_files(settings)

    async def reread(self) -> tuple[Settings, Sequence[str]]:
        """Take the settings as they are by now; they, and lines for the user.

        Sessions opened later go by them. Raises ``ConfigError``: then nothing has changed.
        """
        notices: Sequence[str] = ()
        if self._reread is not None:
            self._settings, notices = await asyncio.to_thread(self._reread)
        return self._settings, notices

    async def open_first(self, user: AsksUser) -> Session:
        """The session that the options ask for, else the newest interrupted one (REC-4).

        Raises ``NewestUnreadable`` where the user has a choice to make.
        """
        session = await self._open(self._options, user)
        self._may_fork = False
        return session

    async def open_fresh(self, user: AsksUser) -> Session:
        """A new session, whatever the options ask for."""
        options = replace(self._options, new=True, continue_latest=False, fork=False)
        return await self._open(options, user)

    async def repair(self, session_id: str) -> Sequence[str]:
        """Repair a damaged session; lines for the user."""
        from agentcli.store.repair.repair import repair

        path = self._files.path_of(session_id)
        return [one_line(line) for line in (await asyncio.to_thread(repair, path)).lines()]

    async def open_new(self, user: AsksUser, model: str) -> Session:
        """A new session that ``model`` (``provider/model``) answers."""
        options = replace(
            self._options,
            new=True,
            began="clear",
            resume=None,
            continue_latest=False,
            fork=False,
            model=model,
        )
        return await self._open(options, user)

    async def open_for(
        self,
        session_id: str | None,
        approver: Approver,
        asker: Asker | None,
        long_wait: LongWait | None,
        editor: EditorFiles | None,
    ) -> Session:
        """The session ``session_id``, or a new one, for a user who may not be able to answer."""
        options = replace(
            self._options,
            editor=editor,
            new=session_id is None,
            resume=session_id,
            continue_latest=False,
            fork=False,
        )
        return await open_session(self._settings, options, approver, asker, long_wait)

    async def open_existing(self, session_id: str, user: AsksUser) -> Session:
        """An earlier session, by id, its beginning, or name."""
        options = replace(
            self._options,
            resume=session_id,
            new=False,
            continue_latest=False,
            fork=self._may_fork,
            no_session=False,
        )
        self._may_fork = False
        return await self._open(options, user)

    async def elsewhere(self, name: str) -> str:
        """The id of the session ``name`` if it works in another worktree than this one; else empty.

        It is to be opened there: with that directory's settings, instructions and trust (SCALE-1).
        """
        trees = self._settings.paths.worktrees_dir
        if not trees.is_dir():
            return ""
        found = await self._files.resolve(name)
        info = (await self._files.infos_of([found])).get(found)
        places = (trees, self._options.cwd)
        if info is None or not await asyncio.to_thread(_is_apart, info.cwd, *places):
            return ""
        return found if await asyncio.to_thread(self._files.is_own, found) else ""

    async def _open(self, options: SessionOptions, user: AsksUser) -> Session:
        self.has_opened = True
        if self.mode_before:
            mode = options.mode or self._settings.permission_mode
            options = replace(options, mode=mode.no_freer_than(PermissionMode(self.mode_before)))
        return await open_session(self._settings, options, user, user, user)

    async def list(self) -> Sequence[SessionInfo]:
        """The user's sessions, the most recently used first; none of a sub-agent or batch."""
        return [info for info in await self._files.list() if not info.agent]

    def has(self, session_id: str) -> bool:
        """Whether there is a session of this very id. Blocks."""
        try:
            return self._files.path_of(session_id).exists()
        except SessionNotFound:
            return False

    async def newest(
        self, limit: int, places: Iterable[str] = (), before: tuple[float, str] = AFTER_ALL
    ) -> Sequence[SessionInfo]:
        """The ``limit`` sessions used last; see ``SessionFiles.newest``."""
        return await self._files.newest(limit, places, before=before)

    async def infos_of(self, ids: Sequence[str]) -> Mapping[str, SessionInfo]:
        """The lines of these sessions, as far as they are there."""
        return await self._files.infos_of(ids)

    async def delete(self, session_id: str) -> None:
        """Remove a session; raises ``SessionLocked`` while it is open."""
        await self._files.delete(session_id)

    async def allow_always(self, rule: str) -> None:
        """Write ``rule`` to those that hold in every session."""
        from agentcli.config.edit import add_rule

        await asyncio.to_thread(add_rule, self._settings.paths, "allow", rule)

    async def refresh_search(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Let ``search`` know of what is new; may take long and be cancelled.

        ``on_progress`` is told how many sessions of how many have been read.
        """
        await self._files.refresh_index(on_progress)

    async def search(self, text: str, limit: int = 50) -> Sequence[SearchHit]:
        """Sessions in which every word of ``text`` stands, best first, each once."""
        return await self._files.search_sessions(text, limit)

    async def load(self, session_id: str, *, hidden: bool = False) -> LoadedSession:
        """An earlier session, to look at; with ``hidden`` also what is no longer sent."""
        from agentcli.store.files import read_session

        path = self._files.path_of(session_id)
        return await asyncio.to_thread(read_session, path, hidden=hidden)

    async def fork(self, session_id: str, at: int | None = None) -> str:
        """Copy a session, as it is or was right after message ``at``; the id of the copy."""
        return await asyncio.to_thread(self._files.fork, session_id, at)

    def known_models(self) -> Sequence[tuple[ModelInfo, bool]]:
        """Models that can be chosen, and whether their provider is ready; the ready ones first."""
        infos = listed_models(self._settings)
        ready = {name: is_ready(self._settings, name) for name in {i.provider for i in infos}}
        found = [(info, ready[info.provider]) for info in infos]
        return sorted(found, key=lambda each: not each[1])

    def providers_with_keys(self) -> Mapping[str, bool]:
        """The providers that a key can be stored for, and whether they have one."""
        return providers_with_keys(self._settings)

    def lacks_key(self, name: str) -> str:
        """The provider of the model ``name`` if its key is missing; else, or unknown: empty."""
        return lacks_key(self._settings, name)


def _is_apart(place: str, trees: Path, here: Path) -> bool:
    """Whether ``place`` lies in ``trees`` and is not ``here``."""
    real = Path(os.path.realpath(place))
    return real.is_relative_to(os.path.realpath(trees)) and real != Path(os.path.realpath(here))
