"""The background runs of one session (BG-1 to BG-7, BG-9).

Laws. A run has its row before anything of it starts, and its end, with the message that tells of
it, is one commit (BG-5); an end that could not be written is tried again, less and less often. At
most 5 runs are active in a session and 64 in the process; a place is free when its run has ended,
however that was (BG-2). Every run is owned here and joined by ``aclose``. What is only watched
(heartbeats, logs, requests of other processes) may fail: one warning, the run goes on (FAIL-2). One
timer and one writer serve all runs; nothing wakes the program while none is active. A run that asks
waits by itself; its question is in the file before it is shown, and the first answer counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from agentcli.domain.background import (
    HEARTBEAT_S,
    MAX_ACTIVE_PER_PROCESS,
    MAX_ACTIVE_PER_SESSION,
    BackgroundRefused,
    BackgroundSink,
    BackgroundTask,
    Beat,
    PlacesTaken,
    Schedule,
    Scheduler,
    Spawned,
    SpawnWish,
    TaskEnd,
    TaskOutput,
    TaskQuestion,
    TaskState,
)
from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.domain.errors import StoreError
from agentcli.domain.events import AgentEvent, BackgroundChanged, Notice, SubAgentEvent
from agentcli.domain.ports import EndRecorded, QueuedInput
from agentcli.domain.tools import PortMissing, ToolContext, ToolOutput, context_for
from agentcli.domain.values import mutable
from agentcli.engine.background.launch import Launch, check_launch
from agentcli.engine.background.log import LOG_NAME, RESULT_NAME, Redact, read_log, with_own_files
from agentcli.engine.background.run import (
    ENDED,
    ActiveRun,
    Work,
    pass_report_on,
    quoted,
    said,
)
from agentcli.engine.jobs import SHELL, ShellAt, planned_shells
from agentcli.engine.parts import SessionParts

POLL_S = 0.25
MAX_RETRY_S = 60.0
CANCEL_PATIENCE_S = 3.0
CLOSE_PATIENCE_S = 4.0
log = logging.getLogger(__name__)


class RunPlaces:
    """How many runs are active in this process; leaves nothing behind (BG-2)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0


PROCESS_PLACES = RunPlaces(MAX_ACTIVE_PER_PROCESS)


class TaskStore(Protocol):
    """The rows of the registry in the session file; each call is one commit.

    Raises ``StoreError``.
    """

    async def add(self, task: BackgroundTask, fired: Schedule | None = None) -> None:
        """A run is about to start; with ``fired`` the schedule that started it, as it is now."""

    async def tasks(self) -> Sequence[BackgroundTask]:
        """All runs, oldest first."""

    async def beat(self, beats: Sequence[Beat], now: float) -> None:
        """The runs are alive; what belongs to a stale attempt or an ended run changes nothing."""

    async def cancel_requests(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Those of the active runs ``run_ids`` that are asked to end, by whatever process."""

    async def request_cancel(self, run_id: str, now: float) -> bool:
        """Ask an active run to end; false when it is not active."""

    async def end(self, end: TaskEnd, now: float) -> EndRecorded:
        """The end of an attempt, and its message in the input queue, in one commit (BG-5)."""

    async def ask(
        self, run_id: str, attempt: int, question: TaskQuestion, message: str
    ) -> EndRecorded:
        """A run waits for an answer; ``message``, if any, waits in the input queue (BG-9)."""

    async def answered(self, run_id: str, attempt: int, question: TaskQuestion) -> bool:
        """It goes on: its question was answered, or is asked no longer; false: it had not asked."""

    async def answers(self, run_ids: Sequence[str]) -> Mapping[str, str]:
        """What other processes have answered to those of ``run_ids`` that ask."""

    async def tell(self, run_id: str, attempt: int, message: str) -> EndRecorded:
        """What an active run tells the session on its way waits in the input queue."""

    async def restart(self, run_id: str, attempt: int, now: float) -> int | None:
        """Begin the next attempt after ``attempt``; its number, ``None`` when that is stale."""

    async def announce(self, run_ids: Sequence[str], message: str, now: float) -> EndRecorded:
        """Tell the session of runs that had ended unannounced, in one commit."""

    async def schedules(self) -> Sequence[Schedule]:
        """All schedules, oldest first, also those that are over."""

    async def put_schedule(self, schedule: Schedule, now: float) -> None:
        """Add a schedule, or replace the one of its id."""


@mutable
class RunServices:
    """What background runs need of their session.

    ``arrived`` gets the message of each end, which waits in the file by then. ``start_time`` tells
    when a process started, ``end_process`` kills the one of that pid and time and says whether
    there was one; both block. ``can_ask``: the user, who may be elsewhere, can be asked (BG-9).
    """

    parts: SessionParts
    store: TaskStore
    directory: Path
    new_id: Callable[[], str]
    redact: Redact
    emit: Callable[[AgentEvent], None]
    arrived: Callable[[QueuedInput], None]
    start_time: Callable[[int], str]
    end_process: Callable[[int, str], bool]
    can_ask: bool = False
    places: RunPlaces = PROCESS_PLACES


class BackgroundRuns:
    """Satisfies ``domain.background.Background``. End it with ``aclose``.

    ``known`` are the rows of the file as they were when the session was opened.
    """

    def __init__(self, services: RunServices, known: Sequence[BackgroundTask] = ()) -> None:
        self.services = services
        self.scheduler: Scheduler | None = None
        self._tasks = {task.run_id: with_own_files(task, services.directory) for task in known}
        self._active: dict[str, ActiveRun] = {}
        self._taken = 0
        self._watch = Watch(services, self._active)
        self._closed = False

    # --- the port --------------------------------------------------------------------------

    async def spawn(self, wish: SpawnWish) -> Spawned:
        """Start a run, or put down its schedule. Raises ``BackgroundRefused``."""
        launch = check_launch(self.services.parts.toolbox, wish.tool, wish.arguments)
        if wish.schedule is None:
            return await self.start(wish)
        if self.scheduler is None:
            raise BackgroundRefused("Schedules cannot be kept in this run.")
        if not wish.title:
            wish = replace(wish, title=launch.tool.summary(launch.args))
        return Spawned(schedule=await self.scheduler.put(wish))

    def tasks(self) -> Sequence[BackgroundTask]:
        """All runs that the session knows of, oldest first."""
        now = {**self._tasks, **{run_id: run.task for run_id, run in self._active.items()}}
        return sorted(now.values(), key=lambda task: (task.created_at, task.run_id))

    def schedules(self) -> Sequence[Schedule]:
        """The schedules that can still start something."""
        return self.scheduler.schedules() if self.scheduler is not None else ()

    async def output(
        self, run_id: str, offset: int, limit: int, wait_s: float, cancel: CancelToken
    ) -> TaskOutput:
        """A page of the log, waiting up to ``wait_s`` for more or for the end."""
        deadline = time.monotonic() + wait_s
        while True:
            run = self._active.get(run_id)
            task = run.task if run is not None else self._known(run_id)
            seen = run.news_count if run is not None else 0
            if run is not None:
                await run.flush()
            text = await asyncio.to_thread(read_log, Path(task.log_path))
            left_s = deadline - time.monotonic()
            if run is None or len(text) > offset or left_s <= 0 or cancel.cancelled:
                break
            await run.wait_news(left_s, cancel, seen)
        page = text[offset : offset + limit]
        end = offset + len(page)
        over = not task.is_active and end >= len(text)
        return TaskOutput(task, page, offset, None if over else end, len(text))

    async def cancel(self, run_id: str) -> BackgroundTask | Schedule:
        """Ask a run to end and wait for that (BG-6), or end a schedule."""
        if self.scheduler is not None and (ended := await self.scheduler.cancel(run_id)):
            return ended
        task = self._known(run_id)
        run = self._active.get(run_id)
        if run is None:
            return task
        run.stop()  # first: the file may keep us waiting
        run.task = replace(run.task, cancel_requested_at=time.time())
        await self._watch.note_request(run_id)
        if run.life is not None:
            await asyncio.wait({run.life}, timeout=CANCEL_PATIENCE_S)
        return self._known(run_id)

    async def answer(self, run_id: str, text: str) -> BackgroundTask:
        """Answer what a run asks; the run as it goes on. Raises ``BackgroundRefused``."""
        task, run = self._known(run_id), self._active.get(run_id)
        if run is None or run.answer is None:
            raise BackgroundRefused(f"{run_id} asks nothing: it is {task.state.value}.")
        if not text.strip():
            raise BackgroundRefused("The answer is empty.")
        await self._watch.answer(run, text)
        return run.task

    async def ask(self, run_id: str, question: str, options: Sequence[str]) -> str:
        """Put a question of an active run to the user, and wait as long as it takes (BG-9)."""
        run = self._active[run_id]
        waiting = run.asks(question, options)
        try:
            await self._watch.ask(run)
            self._changed(asks=run.task)
            return await waiting
        finally:
            if run.answer is waiting:  # its call has ended without an answer
                await uninterruptible(self._watch.note_answer(run, None))
            self._changed()

    # --- starting --------------------------------------------------------------------------

    async def start(
        self, wish: SpawnWish, fired: Schedule | None = None, task_id: str = ""
    ) -> Spawned:
        """Start a run now; ``fired`` is the schedule that does, as it stands from now on.

        The caller has had it judged. Raises ``BackgroundRefused``.
        """
        launch = check_launch(self.services.parts.toolbox, wish.tool, wish.arguments)

        if not wish.title:
            wish = replace(wish, title=launch.tool.summary(launch.args))
        paths = wish.judged
        if paths is None:
            paths = launch.tool.paths(launch.args, self.services.parts.workspace)
        state = await self._shells_now(fired, wish)
        given = {"judged": paths, "access": wish.access, "state": state}

        async def work(call: ToolContext, sink: BackgroundSink) -> ToolOutput:
            return await self._run(launch, call, sink, given)

        task = self._new_task(wish, task_id, is_repeatable=is_repeatable(launch))
        if fired is not None:
            task = replace(task, schedule_id=fired.id)
        return await uninterruptible(self._begin(task, work, fired))

    async def _shells_now(self, fired: Schedule | None, wish: SpawnWish) -> ShellAt:
        """The shells as the run was judged with them; later calls of the turn may move them."""
        state = self.services.parts.state
        try:
            left = await state.get(SHELL)
        except StoreError as error:
            raise BackgroundRefused(f"It was not started: {error.message}.") from error
        if fired is not None and fired.cwd:
            left = planned_shells(left, fired.cwd, wish.access)
        return ShellAt(state, left)

    async def adopt(self, wish: SpawnWish, work: Work) -> Spawned:
        """Let ``work``, which is under way or about to be, go on as a run (Ctrl-B).

        It is called with the run's context, whose token ends it, and its sink; what it returns is
        the run's result. Raises ``BackgroundRefused``, and then has called nothing.
        """
        return await uninterruptible(self._begin(self._new_task(wish, ""), work, None))

    async def resume(self, task: BackgroundTask, attempt: int) -> None:
        """Start the next ``attempt`` of a run that a crash has ended. Raises as ``start``."""
        launch = check_launch(self.services.parts.toolbox, task.tool, task.arguments)

        paths = launch.tool.paths(launch.args, self.services.parts.workspace)

        async def work(call: ToolContext, sink: BackgroundSink) -> ToolOutput:
            sink.output(f"[system] started again after a crash (attempt {attempt})\n")
            return await self._run(launch, call, sink, {"judged": paths, "access": None})

        again = replace(task, attempt=attempt, pid=None, pid_started="", heartbeat_at=None)
        run = ActiveRun(again, self.services.redact, self._watch.wake)
        self._take_place()
        try:
            await asyncio.to_thread(run.log.open)
        except BaseException:
            self._give_place_back()
            raise
        self._live_on(run, work)

    def _new_task(
        self, wish: SpawnWish, task_id: str, *, is_repeatable: bool = False
    ) -> BackgroundTask:
        run_id = f"bg_{self.services.new_id()}"
        now = time.time()
        place = self.services.directory / run_id
        return BackgroundTask(
            run_id=run_id,
            task_id=task_id or f"task_{self.services.new_id()}",
            tool=wish.tool,
            arguments=wish.arguments,
            title=" ".join(wish.title.split()) or wish.tool,
            state=TaskState.RUNNING,
            created_at=now,
            updated_at=now,
            log_path=str(place / LOG_NAME),
            result_path=str(place / RESULT_NAME),
            heartbeat_at=now,
            signals=wish.signals,
            is_repeatable=is_repeatable,
            wake=wish.wake,
        )

    async def _begin(self, task: BackgroundTask, work: Work, fired: Schedule | None) -> Spawned:
        run = ActiveRun(task, self.services.redact, self._watch.wake)
        self._take_place()
        try:
            await asyncio.to_thread(run.log.open)
            await self.services.store.add(task, fired)
        except BaseException as error:
            self._give_place_back()
            await asyncio.to_thread(run.log.discard)
            if isinstance(error, StoreError):
                raise BackgroundRefused(f"It was not started: {error.message}.") from error
            raise
        self._live_on(run, work)
        number = next(at for at, each in enumerate(self.tasks(), 1) if each.run_id == task.run_id)
        return Spawned(task.run_id, task.task_id, task.log_path, task.result_path, number=number)

    def _take_place(self) -> None:
        places = self.services.places
        if self._closed:
            raise BackgroundRefused("It was not started: the session is being closed.")
        if self._taken >= MAX_ACTIVE_PER_SESSION:
            raise PlacesTaken(
                f"{self._taken} background runs are active, the most that a session may have"
                f" ({', '.join(self._active)}). Wait for one, or end one with task_cancel."
            )
        if places.taken >= places.limit:
            raise PlacesTaken(
                f"{places.taken} background runs are active in this process, the most there may"
                " be. Try again when one has ended."
            )
        self._taken += 1
        places.taken += 1

    def _give_place_back(self) -> None:
        self._taken -= 1
        self.services.places.taken -= 1

    def _live_on(self, run: ActiveRun, work: Work) -> None:
        self._active[run.task.run_id] = run
        run.life = asyncio.create_task(self._live(run, work))
        self._watch.begin()
        self._watch.warn_of(run.log.problem)
        self._changed()

    def _changed(self, **what: BackgroundTask) -> None:
        self.services.emit(BackgroundChanged(len(self._active), **what))

    async def _run(
        self,
        launch: Launch,
        call: ToolContext,
        sink: BackgroundSink,
        given: Mapping[str, object],
    ) -> ToolOutput:
        """The tool, with what it declares; nothing that needs the user or belongs to a turn.

        ``given`` are the ports that hold what the policy has said of the call.
        """
        parts = self.services.parts
        asker = RunAsker(self, call.call_id) if self.services.can_ask else None

        def port(name: str) -> object:
            if name in given:
                return given[name]
            return parts.port(name, self._pass_on, unattended=True, ask=asker)

        try:
            ctx = context_for(launch.tool, call, port)
        except PortMissing as missing:
            return ToolOutput.error(str(missing))
        return await launch.tool.run_background(launch.args, ctx, sink)

    def _pass_on(self, event: AgentEvent) -> None:
        """Of what a run's own agent reports, the user sees what is news and how far it is."""
        if isinstance(event, Notice):
            self.services.emit(event)
            return
        run = self._active.get(event.call_id) if isinstance(event, SubAgentEvent) else None
        if run is not None:
            pass_report_on(event, run)

    # --- ending ----------------------------------------------------------------------------

    async def _live(self, run: ActiveRun, work: Work) -> None:
        output: ToolOutput | None = None
        try:
            parts = self.services.parts
            call = ToolContext(run.task.run_id, parts.workspace, run.token, run.write)
            output = await run.perform(work, call, parts.reaper)
        except Exception as error:  # noqa: BLE001 - a context that cannot be made is its failure
            output = ToolOutput.internal_error(error)
        finally:
            if output is not None and output.cause is not None:
                log.error("background run %s failed", run.task.run_id, exc_info=output.cause)
            await uninterruptible(self._finish(run, output))

    async def _finish(self, run: ActiveRun, output: ToolOutput | None) -> None:
        end, now = run.ended(output), time.time()
        try:
            async with run.flushing:
                self._watch.warn_of(await asyncio.to_thread(run.close_files, end, output))
            await self._watch.record(end, now)
        finally:
            run.task = ended_task(run.task, end, now)
            self._tasks[run.task.run_id] = run.task
            self._active.pop(run.task.run_id, None)
            self._give_place_back()
            run.wake_readers()
            self._watch.wake()
            self._changed(ended=run.task)

    async def interrupt(self, task: BackgroundTask, attempt: int, why: str) -> None:
        """Put down that a run of an earlier process is over."""
        run = ActiveRun(replace(task, attempt=attempt), self.services.redact, self._watch.wake)
        run.give_up(why)
        end = run.ended(None)
        await asyncio.to_thread(run.log.open)
        self._watch.warn_of(await asyncio.to_thread(run.close_files, end, None))
        now = time.time()
        await self._watch.record(end, now)
        self._tasks[task.run_id] = ended_task(run.task, end, now)

    async def aclose(self) -> None:
        """End all runs, as interrupted. May be called again."""
        self._closed = True
        if self.scheduler is not None:
            await self.scheduler.aclose()
        lives = [run.life for run in self._active.values() if run.life is not None]
        for run in tuple(self._active.values()):
            run.stop(why=ENDED)
        if lives:
            await asyncio.wait(lives, timeout=CLOSE_PATIENCE_S)
        await self._watch.aclose()

    def _known(self, run_id: str) -> BackgroundTask:
        task = self._tasks.get(run_id)
        if run := self._active.get(run_id):
            task = run.task
        if task is None:
            known = ", ".join(each.run_id for each in self.tasks()[-5:]) or "none"
            raise BackgroundRefused(f"There is no background run {run_id!r}. Newest: {known}.")
        return task


def is_repeatable(launch: Launch) -> bool:
    """Whether a crash may be answered by doing it again (BG-7)."""
    definition = launch.tool.definition
    return definition.hints.idempotent or (
        definition.only_reads and not definition.hints.destructive
    )


def ended_task(task: BackgroundTask, end: TaskEnd, now: float) -> BackgroundTask:
    """The row after its end."""
    return replace(
        task,
        state=end.state,
        summary=end.summary,
        error_kind=end.error_kind,
        error_message=end.error_message,
        finished_at=now,
        updated_at=now,
        announced_at=now if end.message else None,
        pid=None,
        pid_started="",
    )


class RunAsker:
    """Lets the tool of a run ask; satisfies ``domain.tools.Asker``."""

    def __init__(self, runs: BackgroundRuns, run_id: str) -> None:
        self._runs = runs
        self._run_id = run_id

    async def ask(self, question: str, options: Sequence[str]) -> str:
        """The user's answer, from the chat or from another process."""
        return await self._runs.ask(self._run_id, question, options)


class Watch:
    """Looks after the runs in ``active``, by run id, from ``begin`` until there are none."""

    def __init__(self, services: RunServices, active: Mapping[str, ActiveRun]) -> None:
        self._services = services
        self._active = active
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unrecorded: list[tuple[TaskEnd, float]] = []
        self._warned = False
        self._closed = False

    def begin(self) -> None:
        """There is a run."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._loop())
        elif self._unrecorded:
            self.wake()

    def wake(self) -> None:
        """Something is to be written at once."""
        self._news.set()

    async def aclose(self) -> None:
        """All runs have ended. The flag, as a write that fails outdoes a cancellation."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        await self._record_again()

    async def record(self, end: TaskEnd, now: float) -> None:
        """Write the end of a run; its message is passed on."""
        try:
            recorded = await self._services.store.end(end, now)
        except StoreError as error:
            self._unrecorded.append((end, now))
            self.warn_of(error.message)
            return
        if recorded.message is not None:
            self._services.arrived(recorded.message)

    async def ask(self, run: ActiveRun) -> None:
        """Its question is put down; where it may wake the session, it is a message, too."""
        task = run.task
        if task.question is None:
            return
        message = ""
        if task.wakes_on_message:
            choices = ", ".join(map(quoted, task.question.options))
            asked = f"it asks the user, who answers it directly: {quoted(task.question.text)}"
            message = said(task, asked, *((f"options: {choices}",) if choices else ()))
        try:
            recorded = await self._services.store.ask(
                task.run_id, task.attempt, task.question, message
            )
        except StoreError as error:
            self.warn_of(error.message)
            return
        if recorded.message is not None:
            self._services.arrived(recorded.message)

    async def answer(self, run: ActiveRun, text: str) -> None:
        """The first answer counts; the row knows it before the run does."""
        waiting = run.answer
        if waiting is None:
            return
        await self.note_answer(run, text)
        if not waiting.done():
            waiting.set_result(text)

    async def note_answer(self, run: ActiveRun, text: str | None) -> None:
        """The row of a run that asks no longer; ``None``: nobody has answered."""
        question = run.goes_on(text)
        try:
            await self._services.store.answered(run.task.run_id, run.task.attempt, question)
        except StoreError as error:
            self.warn_of(error.message)

    async def note_request(self, run_id: str) -> None:
        """The row of a run learns that it is asked to end."""
        try:
            await self._services.store.request_cancel(run_id, time.time())
        except StoreError as error:
            self.warn_of(error.message)

    def warn_of(self, problem: str) -> None:
        """Once; then only in the log."""
        if not problem:
            return
        log.warning("background runs: %s", problem)
        if not self._warned:
            self._warned = True
            text = f"background runs go on, but not everything about them can be stored: {problem}"
            self._services.emit(Notice(text))

    async def _loop(self) -> None:
        next_beat, pause_s = 0.0, HEARTBEAT_S
        while not self._closed and (self._active or self._unrecorded):
            has_news = self._news.is_set()
            self._news.clear()
            runs = tuple(self._active.values())
            for run in runs:
                await run.flush()
                self.warn_of(run.log.problem)
            await self._tell(runs)
            try:
                if has_news or time.monotonic() >= next_beat:
                    pause_s = HEARTBEAT_S if runs else min(2 * pause_s, MAX_RETRY_S)
                    next_beat = time.monotonic() + pause_s
                    await self._beat(runs)
                await self._read_requests()
            except StoreError as error:
                self.warn_of(error.message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S if self._active else pause_s):
                    await self._news.wait()

    async def _beat(self, runs: Sequence[ActiveRun]) -> None:
        for run in runs:
            if (pid := run.task.pid) is not None and not run.task.pid_started:
                started = await asyncio.to_thread(self._services.start_time, pid)
                run.task = replace(run.task, pid_started=started or "?")
        now = time.time()
        if runs:
            await self._services.store.beat([run.beat for run in runs], now)
        for run in runs:
            run.task = replace(run.task, heartbeat_at=now)
        await self._record_again()

    async def _read_requests(self) -> None:
        """Those of other processes, through the file (BG-6)."""
        if not self._active:
            return
        for run_id in await self._services.store.cancel_requests(tuple(self._active)):
            if run := self._active.get(run_id):
                run.stop()
        asking = [run_id for run_id, run in self._active.items() if run.answer is not None]
        if asking:
            for run_id, text in (await self._services.store.answers(asking)).items():
                if run := self._active.get(run_id):
                    await self.answer(run, text)

    async def _tell(self, runs: Sequence[ActiveRun]) -> None:
        """What runs have reported on their way, as messages of the session (BG-9)."""
        for run in runs:
            messages, run.messages = run.messages, []
            for message in messages:
                try:
                    recorded = await self._services.store.tell(
                        run.task.run_id, run.task.attempt, message
                    )
                except StoreError as error:
                    self.warn_of(error.message)
                    continue
                if recorded.message is not None:
                    self._services.arrived(recorded.message)
                    event = BackgroundChanged(len(self._active), told=run.task)
                    self._services.emit(event)

    async def _record_again(self) -> None:
        for unrecorded in tuple(self._unrecorded):  # a cancellation leaves the others
            self._unrecorded.remove(unrecorded)
            await self.record(*unrecorded)
