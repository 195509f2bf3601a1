"""The background runs of a session, and its running calls that can go on as such (BG-1, UI-3).

Law: nothing of them is imported where a session has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentcli.engine.parts import Lazy
from agentcli.store.disk import runs_directory

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundTask, Schedule, Spawned, SpawnWish
    from agentcli.domain.events import AgentEvent
    from agentcli.domain.ports import QueuedInput
    from agentcli.engine.background.moving import Moves
    from agentcli.engine.background.run import Work
    from agentcli.engine.background.runs import BackgroundRuns
    from agentcli.engine.parts import SessionParts
    from agentcli.store.sqlite import SqliteStore

SPAWN = "spawn_background"


class RunsOfSession:
    """The runs of one session, made when they are needed.

    ``parts`` are those of the session, which exist by then; ``emit`` gets events, ``arrived`` the
    messages that wait in the file. ``can_ask``: somebody may answer what a run asks (BG-9).
    """

    def __init__(
        self,
        store: SqliteStore,
        parts: Callable[[], SessionParts],
        emit: Callable[[AgentEvent], None],
        arrived: Callable[[QueuedInput], None],
        *,
        can_ask: bool,
    ) -> None:
        self._can_ask = can_ask
        self._store = store
        self._parts = parts
        self._emit = emit
        self._arrived = arrived
        self._earlier: tuple[Sequence[BackgroundTask], Sequence[Schedule], bool] = ((), (), True)
        self.runs = Lazy(self._make)

    async def recover(self, *, fires_missed: bool) -> tuple[str, ...]:
        """Put right what an earlier process has left; lines for the user.

        With ``fires_missed`` the schedules that were due meanwhile start their runs (BG-8).
        """
        tasks = self._store.tasks
        known = await tasks.tasks()
        schedules = [each for each in await tasks.schedules() if each.is_active]
        if not known and not schedules:
            return ()
        from agentcli.engine.background.recovery import recover

        self._earlier = known, schedules, fires_missed
        runs = self.runs()
        notices = await recover(runs)
        if runs.scheduler is not None:
            runs.scheduler.begin()
        return notices

    async def aclose(self) -> None:
        """End all runs. May be called again."""
        if self.runs.made is not None:
            await self.runs.made.aclose()

    def moves(self) -> Moves:
        """The running calls of a chat, which can go on as runs (UI-3)."""
        from agentcli.engine.background.moving import Moves

        return Moves(self._adopt)

    async def _adopt(self, wish: SpawnWish, work: Work) -> Spawned:
        """Let ``work`` go on as a run (UI-3). Raises ``BackgroundRefused``."""
        if not self._store.created:
            from agentcli.domain.background import BackgroundRefused

            raise BackgroundRefused("the session begins with your first message to the agent")
        return await self.runs().adopt(wish, work)

    def _make(self) -> BackgroundRuns:
        from agentcli.engine.background.runs import BackgroundRuns, RunServices
        from agentcli.engine.background.scheduler import SessionScheduler
        from agentcli.process.leftovers import end_group, start_time
        from agentcli.store.files import new_session_id

        tasks = self._store.tasks
        known, schedules, fires_missed = self._earlier
        services = RunServices(
            parts=self._parts(),
            store=tasks,
            directory=runs_directory(self._store.path),
            new_id=lambda: new_session_id().replace("-", ""),
            redact=tasks.redact,
            emit=self._emit,
            arrived=self._arrived,
            start_time=start_time,
            end_process=end_group,
            can_ask=self._can_ask,
        )
        runs = BackgroundRuns(services, known)
        runs.scheduler = SessionScheduler(runs, schedules, fires_missed=fires_missed)
        return runs
