"""How a session comes by its background runs; a part of ``compose``.

Law: nothing of it is imported before a run is started or an earlier session's runs are found (the
import budget); what an earlier process has left is put right before the first turn (BG-7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.domain.cancel import CancelToken
from agentcli.engine.toolkit import Toolkit
from agentcli.store.disk import runs_directory
from agentcli.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from agentcli.domain.background import (
        BackgroundTask,
        Schedule,
        Spawned,
        SpawnWish,
        TaskOutput,
    )
    from agentcli.domain.events import AgentEvent
    from agentcli.domain.ports import QueuedInput
    from agentcli.engine.background.run import Work
    from agentcli.engine.background.runs import BackgroundRuns

SPAWN = "spawn_background"


class SessionBackground:
    """Satisfies ``domain.background.Background``; what does the work is made when it is needed.

    ``emit`` and ``arrived`` are the session's: set them with ``attach`` before the first turn.
    """

    def __init__(self, kit: Toolkit, store: SqliteStore, seal_file: Path) -> None:
        self._kit = kit
        self._seal_file = seal_file
        self._store = store
        self._runs: BackgroundRuns | None = None
        self._fires_missed = True
        self._emit: Callable[[AgentEvent], None] = lambda _: None
        self._arrived: Callable[[QueuedInput], None] = lambda _: None

    def attach(
        self, emit: Callable[[AgentEvent], None], arrived: Callable[[QueuedInput], None]
    ) -> None:
        """Where events go, and messages that wait in the file by then."""
        self._emit, self._arrived = emit, arrived

    async def recover(self, *, fires_missed: bool = True) -> tuple[str, ...]:
        """Put right what an earlier process has left; lines for the person.

        With ``fires_missed`` the schedules that were due meanwhile start their runs (BG-8).
        """
        known = await self._store.tasks.tasks()
        rows = await self._store.tasks.schedules()
        schedules = [each for each in rows if each.is_active]
        if not known and not schedules:
            return ()
        from agentcli.engine.background.recovery import recover

        self._fires_missed = fires_missed
        runs = self._made(known, schedules)
        notices = await recover(runs)
        if runs.scheduler is not None:
            runs.scheduler.begin()
        return notices

    # --- the port --------------------------------------------------------------------------

    async def spawn(self, wish: SpawnWish) -> Spawned:
        """Start a run, or put down its schedule. Raises ``BackgroundRefused``."""
        return await self._made().spawn(wish)

    def tasks(self) -> Sequence[BackgroundTask]:
        """All runs that the session knows of, oldest first."""
        return self._runs.tasks() if self._runs is not None else ()

    def schedules(self) -> Sequence[Schedule]:
        """The schedules that can still start something."""
        return self._runs.schedules() if self._runs is not None else ()

    async def output(
        self, run_id: str, offset: int, limit: int, wait_s: float, cancel: CancelToken
    ) -> TaskOutput:
        """A page of the log. Raises ``BackgroundRefused``."""
        return await self._made().output(run_id, offset, limit, wait_s, cancel)

    async def cancel(self, run_id: str) -> BackgroundTask | Schedule:
        """Ask a run to end, or end a schedule. Raises ``BackgroundRefused``."""
        return await self._made().cancel(run_id)

    async def adopt(self, wish: SpawnWish, work: Work) -> Spawned:
        """Let ``work`` go on as a run (UI-3). Raises ``BackgroundRefused``."""
        if not self._store.created:
            from agentcli.domain.background import BackgroundRefused

            raise BackgroundRefused("the session begins with your first message to the agent")
        return await self._made().adopt(wish, work)

    # --- its life --------------------------------------------------------------------------

    @property
    def runs(self) -> BackgroundRuns:
        """What does the work, made now if need be."""
        return self._made()

    async def aclose(self) -> None:
        """End all runs. May be called again."""
        if self._runs is not None:
            await self._runs.aclose()

    def _made(
        self, known: Sequence[BackgroundTask] = (), schedules: Sequence[Schedule] = ()
    ) -> BackgroundRuns:
        if self._runs is None:
            from agentcli.config.seal import is_sealed, seal
            from agentcli.engine.background.runs import BackgroundRuns, RunServices
            from agentcli.engine.background.scheduler import SessionScheduler
            from agentcli.process.leftovers import end_group, start_time
            from agentcli.store.files import new_session_id

            tasks = self._store.tasks
            services = RunServices(
                kit=self._kit,
                store=tasks,
                directory=runs_directory(self._store.path),
                new_id=lambda: new_session_id().replace("-", ""),
                redact=tasks.redact,
                emit=self._emit,
                arrived=self._arrived,
                start_time=start_time,
                end_process=end_group,
                seal=partial(seal, self._seal_file),
                is_sealed=partial(is_sealed, self._seal_file),
            )
            self._runs = runs = BackgroundRuns(services, known)
            runs.scheduler = SessionScheduler(runs, schedules, fires_missed=self._fires_missed)
        return self._runs


def equip(
    kit: Toolkit, store: SqliteStore, seal_file: Path, *, interactive: bool
) -> SessionBackground | None:
    """Give the session of ``kit`` its background runs, if it has the tool that starts them.

    A session that exists gets them in any case: what an earlier process left is put right.
    ``seal_file`` is the key of the marks on approvals. In an interactive session a running command
    can be moved there (UI-3).
    """
    if not store.created and all(each.name != SPAWN for each in kit.toolbox.definitions):
        return None
    kit.background = made = SessionBackground(kit, store, seal_file)
    kit.policy.free_to_read = (runs_directory(store.path),)
    if interactive:
        from agentcli.engine.background.moving import Moves

        kit.moves = Moves(made.adopt)
    return made
