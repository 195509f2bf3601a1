"""Schedules: what is to start a background run later (BG-8).

Laws.
- A schedule that is due starts one run, however many of its times were missed. The run's row and
  the schedule's next time are one commit.
- A schedule is judged twice: when it is made, as the run itself would be, and again when it is due.
  Then it does not start if the policy refuses it, or if it would have to ask for something that
  was not approved when it was made, or have more rights than the sandbox left it then (SEC-3). What
  a mode, a rule, a grant or a hook let pass when it was made nobody has approved: it starts where
  nobody has to be asked.
- What was approved was approved for the workspace of then. That it was approved here is the
  store's to prove: a schedule of another home is never seen (SEC-16).
- One timer serves all schedules; without schedules there is none. It wakes when the next is due
  and at least once a minute, so that a changed clock is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agentcli.domain.background import (
    MAX_SCHEDULES,
    BackgroundRefused,
    PlacesTaken,
    Schedule,
    SpawnWish,
)
from agentcli.domain.clean import one_line
from agentcli.domain.errors import StoreError
from agentcli.domain.events import Notice
from agentcli.domain.sandbox import Access
from agentcli.domain.tools import Workspace
from agentcli.engine.background.launch import SPAWN, check_launch, next_time, read_timing
from agentcli.engine.background.runs import BackgroundRuns
from agentcli.engine.jobs import SHELL, ShellPlaces
from agentcli.policy.decision import Answer, CallFacts, CallPlace, Decision
from agentcli.policy.judge import judge

RECHECK_S = 60.0
RETRY_S = 10.0
"""How soon what found no place, or no disk, is tried again."""
SET_BACK_S = 5.0
MISSED_S = 90.0
_SHELL_TOOL = "bash"
_LIMITED = " [in the sandbox]"
_UNASKED = "[nobody was asked]"
log = logging.getLogger(__name__)


class SessionScheduler:
    """Satisfies ``domain.background.Scheduler``. ``known`` are the rows of the file.

    ``now`` is the clock: seconds since 1970. Without ``fires_missed`` what was due before it was
    made does not start here.
    """

    def __init__(
        self,
        runs: BackgroundRuns,
        known: Sequence[Schedule] = (),
        *,
        now: Callable[[], float] = time.time,
        fires_missed: bool = True,
    ) -> None:
        self._runs = runs
        self._services = runs.services
        self._now = now
        self._seen = now()
        self._schedules = {each.id: each for each in known if each.is_active}
        self._held = {
            each.id
            for each in self._schedules.values()
            if not fires_missed and each.next_at is not None and each.next_at <= self._seen
        }
        self._put_off: dict[str, float] = {}
        self._noticed: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._changing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._catch_up_with_clock(self._seen)

    # --- the port --------------------------------------------------------------------------

    async def put(self, wish: SpawnWish) -> Schedule:
        """A new schedule for ``wish``. Raises ``BackgroundRefused``."""
        async with self._changing:  # several of one batch come at once
            schedule = await self._put(wish)
        self.begin()
        return schedule

    async def _put(self, wish: SpawnWish) -> Schedule:
        now = self._now()
        timing = read_timing(wish.schedule, now)
        if len(self._schedules) >= MAX_SCHEDULES:
            raise BackgroundRefused(
                f"{len(self._schedules)} schedules are active, the most that a session may have."
                " End one with task_cancel (list_tasks shows them)."
            )
        given = json.dumps(dict(wish.arguments), ensure_ascii=False)
        if self._services.redact(given) != given:
            raise BackgroundRefused(
                "args hold what looks like a secret, which is not kept in the session file, so"
                " they could not be used later. Let the command read it from a file or variable."
            )
        schedule = Schedule(
            id=f"sch_{self._services.new_id()}",
            tool=wish.tool,
            arguments=wish.arguments,
            title=one_line(wish.title) or wish.tool,
            created_at=now,
            cron_expression=timing.cron_expression,
            scheduled_at=timing.scheduled_at,
            time_zone=timing.time_zone,
            next_at=timing.next_at,
            signals=wish.signals,
            wake=wish.wake,
            root=str(self._workspace.root),
        )
        if schedule.tool == _SHELL_TOOL:
            await self._services.parts.begin_sandbox({schedule.tool})
            place = (await self._shells()).place(schedule.arguments)
            schedule = replace(schedule, cwd=str(place.workspace.cwd))
        approved = await self._needs(schedule) if wish.approved else _UNASKED
        schedule = replace(schedule, approved=approved)
        try:
            await self._services.store.put_schedule(schedule, now)
        except StoreError as error:
            raise BackgroundRefused(f"It was not scheduled: {error.message}.") from error
        self._schedules[schedule.id] = schedule
        return schedule

    def schedules(self) -> Sequence[Schedule]:
        """Those that can still start something."""
        return tuple(self._schedules.values())

    async def cancel(self, schedule_id: str) -> Schedule | None:
        """End a schedule; ``None`` when there is no such one. Raises ``BackgroundRefused``."""
        async with self._changing:  # one that is just starting a run does not come back
            schedule = self._schedules.get(schedule_id)
            if schedule is None:
                return None
            over = replace(schedule, is_active=False, next_at=None)
            try:
                await self._services.store.put_schedule(over, self._now())
            except StoreError as error:
                raise BackgroundRefused(f"It was not ended: {error.message}.") from error
            self._schedules.pop(schedule_id, None)
        self.begin()
        return over

    async def aclose(self) -> None:
        """Start nothing any more. May be called again."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    # --- time ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Wait for what is due next, if anything will be."""
        self._changed.set()
        if (self._task is None or self._task.done()) and self._schedules and not self._closed:
            self._task = asyncio.create_task(self._loop())

    async def _loop(self) -> None:
        while True:
            self._changed.clear()
            delay_s = await self.tick()
            if delay_s is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(delay_s, RECHECK_S)):
                    await self._changed.wait()

    async def tick(self) -> float | None:
        """Start what is due; seconds until the next is, ``None`` when there is none to wait for."""
        now = self._now()
        if now < self._seen - SET_BACK_S:
            self._catch_up_with_clock(now)
        self._seen = now
        async with self._changing:
            await self._forget_ended()
            for schedule in self.schedules():
                if self._due_at(schedule) <= now:
                    await self._fire(schedule, now)
        due = [self._due_at(schedule) for schedule in self._schedules.values()]
        soonest = min(due, default=float("inf"))
        return None if soonest == float("inf") else max(0.0, soonest - self._now())

    def _due_at(self, schedule: Schedule) -> float:
        if schedule.next_at is None or schedule.id in self._held:
            return float("inf")
        return max(schedule.next_at, self._put_off.get(schedule.id, 0.0))

    def _catch_up_with_clock(self, now: float) -> None:
        """The clock may have been set back: nothing waits longer than a new one would."""
        self._put_off.clear()
        for schedule in self.schedules():
            if schedule.cron_expression is None or schedule.next_at is None:
                continue
            with contextlib.suppress(BackgroundRefused):
                following = next_time(schedule.cron_expression, schedule.time_zone, now)
                if following is not None and following < schedule.next_at:
                    self._schedules[schedule.id] = replace(schedule, next_at=following)

    async def _forget_ended(self) -> None:
        """Another process may have ended one, through the file."""
        try:
            rows = await self._services.store.schedules()
        except StoreError as error:
            log.warning("schedules could not be read: %s", error.message)
            return
        for row in rows:
            if not row.is_active and row.id in self._schedules:
                del self._schedules[row.id]
                self._emit(f"the schedule {_name(row)} was ended by another process")

    # --- what is due -----------------------------------------------------------------------

    async def _fire(self, schedule: Schedule, now: float) -> None:
        try:
            fired = _after(schedule, now)
            problem, access = await self._may_start(schedule)
            if problem:
                await self._skip(fired, problem)
                return
            self._notice_missed(schedule, now)
            wish = SpawnWish(
                schedule.tool,
                schedule.arguments,
                schedule.title,
                signals=schedule.signals,
                wake=schedule.wake,
                access=access,
            )
            await self._runs.start(wish, fired, schedule.id)
            self._update(fired)
        except PlacesTaken:
            self._put_off[schedule.id] = now + RETRY_S
        except (BackgroundRefused, StoreError) as error:
            self._notice(schedule, f"did not start: {error}")
            self._put_off[schedule.id] = now + RECHECK_S
        except Exception as error:  # one that is broken keeps no other from its time
            log.exception("schedule %s", schedule.id)
            self._notice(schedule, f"did not start: {type(error).__name__} (see the log)")
            self._put_off[schedule.id] = now + RECHECK_S

    async def _skip(self, fired: Schedule, problem: str) -> None:
        """It does not start this time; one that has no other time is over."""
        await self._services.store.put_schedule(fired, self._now())
        self._update(fired)
        self._notice(fired, f"did not start: {problem}")  # who hears it sees what is left

    def _update(self, fired: Schedule) -> None:
        self._put_off.pop(fired.id, None)
        if fired.is_active:
            self._schedules[fired.id] = fired
        else:
            self._schedules.pop(fired.id, None)

    async def _may_start(self, schedule: Schedule) -> tuple[str, Access | None]:
        """Why it may not start, empty when it may; and where its command then runs."""
        try:
            decision = await self._judged(schedule)
        except BackgroundRefused as refused:
            return str(refused), None
        return await self._problem(schedule, decision), decision.access

    async def _problem(self, schedule: Schedule, decision: Decision) -> str:
        if decision.answer is Answer.DENY:
            return decision.why
        if not await self._has_place(schedule, leaves=decision.access is Access.OUTSIDE):
            return f"its directory {schedule.cwd} is gone"
        needs, approved = _beyond(decision), schedule.approved.removesuffix(_LIMITED)
        if decision.answer is Answer.ASK and approved == _UNASKED:
            needs = "nobody was asked when it was planned"
        if needs and needs != approved:
            return f"it would need an approval ({needs})"
        was_limited = approved != schedule.approved
        if decision.answer is Answer.ASK and was_limited and not _is_limited(decision):
            return "it would need an approval (it was to run in the sandbox)"
        if decision.answer is Answer.ASK and schedule.root != str(self._workspace.root):
            return f"it would need an approval (you gave one for {schedule.root})"
        return ""

    async def _needs(self, schedule: Schedule) -> str:
        """What its call has been approved for, what holds in this session alone not counted."""
        decision = await self._judged(schedule, with_grants=False)
        if decision.answer is Answer.ALLOW:
            return _UNASKED
        return f"{_beyond(decision)}{_LIMITED if _is_limited(decision) else ''}"

    async def _judged(self, schedule: Schedule, *, with_grants: bool = True) -> Decision:
        """The decision about its run. Raises ``BackgroundRefused``.

        What a command allows while it is followed is for that turn alone (SEC-3).
        """
        parts = self._services.parts
        launch = check_launch(parts.toolbox, schedule.tool, schedule.arguments)
        await parts.begin_sandbox({schedule.tool})
        workspace, shell = self._workspace, None
        if schedule.cwd:
            workspace = replace(workspace, cwd=Path(schedule.cwd))
            shell = (await self._shells()).place(launch.arguments)
        paths = launch.tool.paths(launch.args, workspace)
        definition = launch.tool.definition
        call = CallFacts(definition, launch.arguments, paths, SPAWN)
        granted = parts.policy.granted if with_grants else []
        policy = replace(parts.policy, granted=granted)  # the sandbox is known
        place = CallPlace(workspace, policy, is_beside=True)
        if shell:
            place = replace(place, search_path=shell.search_path, obeys=shell.obeys)
        return judge(call, place)

    @property
    def _workspace(self) -> Workspace:
        return self._services.parts.workspace

    async def _shells(self) -> ShellPlaces:
        parts = self._services.parts
        return ShellPlaces.seen(await parts.state.get(SHELL), parts.workspace, parts.policy)

    async def _has_place(self, schedule: Schedule, *, leaves: bool) -> bool:
        """Whether the directory that its command was planned in is still there.

        Outside, where others may have put a link in its place: whether it is that one (SEC-5).
        """
        parts, place = self._services.parts, Path(schedule.cwd)
        if not schedule.cwd or place == self._workspace.cwd:
            return not schedule.cwd or await asyncio.to_thread(place.is_dir)
        sandbox = parts.sandbox
        is_limited = sandbox is not None and (await sandbox.begin()).is_on
        if sandbox is not None and is_limited and not leaves:
            place = sandbox.on_machine(place)
        elif is_limited and await asyncio.to_thread(os.path.realpath, place) != str(place):
            return False
        return await asyncio.to_thread(place.is_dir)

    # --- notices ---------------------------------------------------------------------------

    def _notice_missed(self, schedule: Schedule, now: float) -> None:
        late_s = now - (schedule.next_at or now)
        if late_s > MISSED_S and schedule.id not in self._put_off:
            self._emit(f"the schedule {_name(schedule)} missed its time: it starts now")

    def _notice(self, schedule: Schedule, what: str) -> None:
        """Once, until it is something else."""
        if self._noticed.get(schedule.id) != what:
            self._noticed[schedule.id] = what
            self._emit(f"the schedule {_name(schedule)} {what}")

    def _emit(self, text: str) -> None:
        self._services.emit(Notice(self._services.redact(text)))


def _after(schedule: Schedule, now: float) -> Schedule:
    """The schedule once it has started at ``now``. Raises ``BackgroundRefused``."""
    following = None
    if schedule.cron_expression is not None:
        following = next_time(schedule.cron_expression, schedule.time_zone, now)
    return replace(schedule, next_at=following, is_active=following is not None)


def _beyond(decision: Decision) -> str:
    """For what the decision asks beyond what every command asks for."""
    is_plain = decision.rule is None and decision.lasts
    return "" if decision.answer is not Answer.ASK or is_plain else decision.why


def _is_limited(decision: Decision) -> bool:
    """Whether a sandbox limits the command."""
    return decision.access not in {None, Access.OUTSIDE}


def _name(schedule: Schedule) -> str:
    return f"{schedule.id} ({one_line(schedule.title)})"
