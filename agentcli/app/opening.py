"""The session's file when a session is opened: found, repaired, or made; a part of ``compose``."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from agentcli.app.models import model_info
from agentcli.app.options import SessionOptions
from agentcli.config.redaction import Redactor
from agentcli.config.seal import HomeSeal
from agentcli.config.settings import Settings
from agentcli.domain.clean import one_line
from agentcli.domain.errors import SessionDamaged, SessionNotFound, SessionTooNew, StoreError
from agentcli.domain.messages import AssistantMessage, ToolResult
from agentcli.domain.ports import cost_usd
from agentcli.domain.session import LoadedSession, NewestUnreadable, SessionInfo, SessionStatus
from agentcli.domain.values import mutable
from agentcli.store.files import SessionFiles, new_session_id
from agentcli.store.reads import SUBAGENT_KEY
from agentcli.store.sqlite import SqliteStore, recover


def session_files(settings: Settings) -> SessionFiles:
    """The directory of sessions."""
    paths = settings.paths
    return SessionFiles(paths.sessions_dir, paths.catalogue_file, HomeSeal(paths.seal_file))


@mutable
class Opener:
    """Finds or makes the session's file."""

    settings: Settings
    options: SessionOptions
    files: SessionFiles
    redactor: Redactor
    foreign: str | None = None

    async def open(self) -> tuple[SqliteStore, LoadedSession, tuple[str, ...]]:
        """The file, what is in it, and lines for the user.

        Raises ``StoreError``, ``NewestUnreadable`` where the user has a choice to make.
        """
        found = await self._wanted()
        if found is None:
            return await self._new()
        try:
            return await self._existing(found)
        except (SessionDamaged, SessionTooNew) as error:
            if self.options.resume:
                raise
            raise await self.files.unreadable(found, str(self.options.cwd), error) from error
        except StoreError as error:
            if self.options.resume or self.options.continue_latest:
                raise
            # nobody has asked for that one: it must not stand in the way of a new one (REC-7)
            store, loaded, notices = await self._new()
            return store, loaded, (*notices, f"{error.message}; this is a new session")

    async def _existing(self, found: str) -> tuple[SqliteStore, LoadedSession, tuple[str, ...]]:
        session_id = found
        if self.options.fork:
            session_id = await asyncio.to_thread(self.files.fork, found)
        store = await SqliteStore.open(
            self.files.path_of(session_id),
            price=self._price,
            redact=self.redactor.redact_known,
            seal=self.files.seal,
        )
        try:
            dropped = await store.drop_foreign(self.options.cwd)
            loaded, repaired = await recover(store)
            is_task = loaded.info.agent and not loaded.info.is_subagent
            if is_task and not self.options.begins_missing:
                await store.set(SUBAGENT_KEY, None)  # the user goes on with it: theirs from now on
            killed = await _end_leftovers(store)
        except BaseException:
            await store.aclose()
            raise
        return store, loaded, (*_foreign_notices(dropped), *_repair_notices(repaired), *killed)

    async def _wanted(self) -> str | None:
        options = self.options
        if options.resume:
            if options.begins_missing and not self.files.path_of(options.resume).exists():
                return None
            return await self.files.resolve(options.resume)
        if options.new or options.no_session:
            return None
        if options.continue_latest:
            latest = await self.files.latest(str(options.cwd))
            if latest is None:
                raise SessionNotFound(
                    f"there is no session in {options.cwd} to continue",
                    "start one without --continue, or see: agent sessions list",
                )
            return latest.id
        if options.interactive:
            latest = await self._latest_for_chat()
            if latest is not None and latest.status.interrupted:
                if await asyncio.to_thread(self.files.is_own, latest.id):
                    return latest.id
                self.foreign = one_line(latest.title)
        return None

    async def _latest_for_chat(self) -> SessionInfo | None:
        try:
            return await self.files.latest(str(self.options.cwd))
        except NewestUnreadable as error:
            older = error.older
            if error.is_known_here or (older is not None and older.status.interrupted):
                raise
            return None  # of whatever directory it is: nothing older would be taken up

    async def _new(self) -> tuple[SqliteStore, LoadedSession, tuple[str, ...]]:
        now = time.time()
        info = SessionInfo(
            id=(self.options.begins_missing and self.options.resume) or new_session_id(),
            title="",
            cwd=str(self.options.cwd),
            created_at=now,
            updated_at=now,
            status=SessionStatus.NEW,
            turns=0,
            model="",
        )
        path = self.files.path_of(info.id)
        if self.options.no_session:
            path = Path(tempfile.mkdtemp(prefix="agentcli-")) / path.name
        store = SqliteStore.new(
            path,
            info,
            price=self._price,
            redact=self.redactor.redact_known,
            seal=self.files.seal,
            messages=self.options.seams.messages,
        )
        if self.options.is_task:
            await store.set(SUBAGENT_KEY, {"agent": "batch"})
        notices: tuple[str, ...] = ()
        if self.foreign is not None:
            what = f'the session "{self.foreign}" was interrupted here, but not begun in this home'
            notices = (f"{what}: it is not taken up by itself (agent --continue does)",)
        return store, await store.load(), notices

    def _price(self, message: AssistantMessage) -> float | None:
        return cost_usd(model_info(self.settings, message.provider, message.model), message.usage)


async def _end_leftovers(store: SqliteStore) -> tuple[str, ...]:
    """Where a killed app could not take its commands with it, this start ends them (REC-8)."""
    if not await store.get("processes"):
        return ()
    from agentcli.process.leftovers import kill_leftovers

    return tuple(await kill_leftovers(store))


def _foreign_notices(dropped: Sequence[str]) -> tuple[str, ...]:
    """What a session file of an older version, another home or another hand does not bring."""
    if not dropped:
        return ()
    what = one_line(", ".join(dropped))
    return (f"left out, because this home did not write it into the session: {what}",)


def _repair_notices(repaired: Sequence[ToolResult]) -> tuple[str, ...]:
    if not repaired:
        return ()
    names = ", ".join(dict.fromkeys(result.name for result in repaired))
    number = len(repaired)
    what = "1 interrupted tool call was" if number == 1 else f"{number} interrupted tool calls were"
    return (f"{what} closed: {names}",)
