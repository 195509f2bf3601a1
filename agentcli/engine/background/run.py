"""One background run while it is alive: what it reports, how it is ended, what is said of its end.

Laws. A run that is asked to end has ended within 2 s (BG-6): its tool is asked at once, to stop
being polite after ``FORCE_S``, and left behind, owned by the reaper, after ``ABANDON_S``. What the
program says of a run stands in a block of its own, which names its source and which nothing that
the run has printed can end: it is data, not the user's word (BG-5).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentcli.domain.background import (
    BackgroundSink,
    BackgroundTask,
    Beat,
    TaskEnd,
    TaskProgress,
    TaskQuestion,
    TaskState,
)
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.clean import one_line
from agentcli.domain.events import AgentEvent, SubAgentEvent, ToolFinished
from agentcli.domain.messages import ResultStatus, TextPart
from agentcli.domain.tools import OutputKind, ToolContext, ToolOutput
from agentcli.engine.background.log import CANCELED, Redact, RunLog, write_result
from agentcli.engine.jobs import guarded
from agentcli.engine.race import Reaper

FORCE_S = 1.0
ABANDON_S = 1.6
LAST_CHANCE_S = 0.2
ENDED = "its session was closed"

Work = Callable[[ToolContext, BackgroundSink], Awaitable[ToolOutput]]


class ActiveRun:
    """Satisfies ``BackgroundSink``. ``task`` is the row as it will be written next."""

    def __init__(self, task: BackgroundTask, redact: Redact, wake: Callable[[], None]) -> None:
        self.task = task
        self.token = CancelToken()
        self.log = RunLog(Path(task.log_path), redact)
        self.flushing = asyncio.Lock()
        self.life: asyncio.Task[None] | None = None
        self.why_ended = ""
        self.cancel_requested = False
        self._redact = redact
        self._wake = wake
        self.answer: asyncio.Future[str] | None = None
        self.messages: list[str] = []
        self.news_count = 0
        self._news: set[asyncio.Future[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._abandoned: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- BackgroundSink --------------------------------------------------------------------

    def output(self, text: str) -> bool:
        """More for ``output.log``; false once that is full."""
        return self.log.add(text)

    def write(self, text: str) -> None:
        """The same for a tool's progress, which cannot do anything about a full log."""
        self.log.add(text)

    def progress(self, progress: TaskProgress) -> None:
        """How far it is."""
        self.task = replace(self.task, progress=progress)
        self.report(progress.label)

    def report(self, text: str) -> None:
        """What it says on its way: a message where the run may wake its session (BG-9)."""
        if text and self.task.wakes_on_message:
            self.messages.append(said(self.task, f"reports: {quoted(text)}"))
            self._wake()

    def detail(self, text: str) -> None:
        """What it does now, in a line."""
        self.task = replace(self.task, detail=one_line(text)[:MAX_ERROR])

    def process(self, pid: int) -> None:
        """The process that does the work; its row learns of it at once."""
        self.task = replace(self.task, pid=pid, pid_started="")
        self._wake()

    # --- from outside ----------------------------------------------------------------------

    @property
    def beat(self) -> Beat:
        """What its row learns now."""
        task = self.task
        return Beat(
            task.run_id, task.attempt, task.detail, task.progress, task.pid, task.pid_started
        )

    def stop(self, *, why: str = "") -> None:
        """Ask it to end: because of a request, or ``why``. May be called again."""
        if self.token.cancelled:
            return
        self.why_ended, self.cancel_requested = why, not why
        loop = asyncio.get_running_loop()
        reason = CancelReason.PARENT if why else CancelReason.USER
        self._timers = [
            loop.call_later(FORCE_S, lambda: self.token.cancel(reason, force=True)),
            loop.call_later(ABANDON_S, self._abandon),
        ]
        self.token.cancel(reason)

    def give_up(self, why: str) -> None:
        """It does not run and will not; it counts as interrupted."""
        self.why_ended = why
        self.token.cancel(CancelReason.PARENT)

    # --- its question (BG-9) ---------------------------------------------------------------

    def asks(self, text: str, options: Sequence[str]) -> asyncio.Future[str]:
        """It waits for an answer from now on."""
        question = TaskQuestion(
            self._redact(text), tuple(self._redact(option) for option in options)
        )
        self.task = replace(self.task, state=TaskState.NEEDS_INPUT, question=question)
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer

    def goes_on(self, answer: str | None) -> TaskQuestion:
        """It was answered, or asks no longer; the question as it is kept."""
        question = replace(self.task.question or TaskQuestion(""), answer=answer)
        self.task = replace(self.task, state=TaskState.RUNNING, question=question)
        self.answer = None
        return question

    async def flush(self) -> None:
        """Put what has come into the log."""
        async with self.flushing:
            if self.log.is_dirty:
                await asyncio.to_thread(self.log.flush)
                self.wake_readers()

    async def wait_news(self, timeout_s: float, cancel: CancelToken, seen: int) -> None:
        """Until there is more in the log, the run has ended, or there is no more time.

        ``seen`` is ``news_count`` as it was before the log was read: later news is not missed.
        """
        if self.news_count != seen:
            return
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not news.done():
                news.set_result(None)

        self._news.add(news)
        forget = cancel.add_callback(wake)
        try:
            if not cancel.cancelled:
                await asyncio.wait({news}, timeout=max(timeout_s, 0.0))
        finally:
            forget()
            self._news.discard(news)
            news.cancel()

    def wake_readers(self) -> None:
        """Wake everything that waits for more."""
        self.news_count += 1
        for news in self._news:
            if not news.done():
                news.set_result(None)

    # --- its life --------------------------------------------------------------------------

    async def perform(self, work: Work, ctx: ToolContext, reaper: Reaper) -> ToolOutput | None:
        """What ``work`` returns; ``None`` when it was asked to end and has not returned anything.

        A cancellation from outside asks it to end and is raised when it has.
        """
        job = asyncio.ensure_future(guarded(work, ctx, self))
        ends: set[asyncio.Future[Any]] = {job, self._abandoned}
        outer: asyncio.CancelledError | None = None
        while not job.done() and not self._abandoned.done():
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as error:
                outer = error
                self.stop(why=ENDED)
        for timer in self._timers:
            timer.cancel()
        if not job.done():
            job.cancel()
            await asyncio.wait({job}, timeout=LAST_CHANCE_S)
        if not job.done():
            reaper.adopt(job)
        if outer is not None:
            raise outer
        return job.result() if job.done() and not job.cancelled() else None

    def ended(self, output: ToolOutput | None) -> TaskEnd:
        """How it ended, with what the session learns of it."""
        task = self.task
        state, kind, error, summary = self._outcome(output)
        end = replace(task, state=state, summary=summary, error_kind=kind, error_message=error)
        message = self._redact(announcement(end)) if task.signals else ""
        return TaskEnd(task.run_id, task.attempt, state, summary, kind, error, message)

    def close_files(self, end: TaskEnd, output: ToolOutput | None) -> str:
        """The end of the log, and ``result.json``; what went wrong. Blocks."""
        last = {
            TaskState.CANCELLED: CANCELED,
            TaskState.INTERRUPTED: f"[system] interrupted: {end.error_message}\n",
        }
        self.log.close(last.get(end.state, ""))
        result: dict[str, object] = {"status": "interrupted", "error": end.error_message}
        if end.state is TaskState.CANCELLED:
            result = {"status": "canceled"}
        elif output is not None and end.state is not TaskState.INTERRUPTED:
            text = self._redact(text_of_output(output))
            key = "result" if end.state is TaskState.SUCCEEDED else "error"
            result = {"status": end.state.value, key: text}
        problem = write_result(Path(self.task.result_path), result)
        return self.log.problem or problem

    def _outcome(self, output: ToolOutput | None) -> tuple[TaskState, str, str, str]:
        """State, kind of error, error, summary."""
        if output is not None and output.kind is OutputKind.SUCCESS:
            return TaskState.SUCCEEDED, "", "", summary_of(output)
        if self.cancel_requested:
            return TaskState.CANCELLED, "", "", "canceled by request"
        if self.token.cancelled:
            return TaskState.INTERRUPTED, "ended", self.why_ended, ""
        if output is None:
            return TaskState.FAILED, "internal_error", "the tool cancelled itself", "failed"
        error = text_of_output(output)
        if len(error) > MAX_ERROR:
            error = f"…{error[1 - MAX_ERROR :]}"
        return TaskState.FAILED, output.kind.value, error, summary_of(output)

    def _abandon(self) -> None:
        if not self._abandoned.done():
            self._abandoned.set_result(None)


# --- what is said of a run -----------------------------------------------------------------


MAX_SUMMARY = 400
MAX_ERROR = 1_000
_PROGRESS_TOOL = "report_progress"
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
_WORDS = {TaskState.CANCELLED: "canceled"}  # as in result.json


def announcement(task: BackgroundTask) -> str:
    """What the model reads of an ended run."""
    rows = []
    if task.summary:
        rows.append(f"summary: {quoted(task.summary)}")
    if task.error_message:
        error = task.error_message
        shown = error if len(error) <= MAX_ERROR else f"{error[: MAX_ERROR - 1]}…"
        rows.append(f"error: {quoted(shown)}")
    return said(task, *rows, f"log: {task.log_path}", f"result: {task.result_path}")


def said(task: BackgroundTask, *rows: str) -> str:
    """What the model reads of a run; ``rows`` hold nothing that could end the block."""
    ids = f'run_id="{task.run_id}" task_id="{task.task_id}"'
    names = f'tool="{quoted(task.tool)}" title="{quoted(task.title)}"'
    head = f'<background-run {ids} status="{status_word(task.state)}" {names}>'
    return "\n".join((head, "(said by agentcli, not by the user)", *rows, "</background-run>"))


def unanswered(task: BackgroundTask) -> str:
    """What became of the question that a run was asking when it was cut off (BG-9)."""
    question = task.asks
    if question is None:
        return ""
    asked = f'it was asking "{one_line(question.text, MAX_SUMMARY)}"'
    if question.waiting is None:
        return f"{asked}, which nobody had answered"
    return f'{asked}, and the answer "{one_line(question.waiting, MAX_SUMMARY)}" did not reach it'


def status_word(state: TaskState) -> str:
    """The state as it is written outside."""
    return _WORDS.get(state, state.value)


def pass_report_on(event: AgentEvent, run: ActiveRun) -> None:
    """What a run's agent says of how far it is: a good ``report_progress`` (BG-3)."""
    if isinstance(event, SubAgentEvent):
        event = event.event
    if not isinstance(event, ToolFinished) or event.call.name != _PROGRESS_TOOL:
        return
    given = event.call.arguments
    current, total = _number(given.get("current")), _number(given.get("total"))
    if event.result.status is not ResultStatus.OK:
        return
    message = one_line(str(given.get("message") or ""), MAX_SUMMARY)
    if current is None:
        run.report(message)
    else:
        run.progress(TaskProgress(current, total, one_line(str(given.get("unit") or "")), message))


def text_of_output(output: ToolOutput) -> str:
    """All texts of an output."""
    return "\n".join(part.text for part in output.parts if isinstance(part, TextPart))


def summary_of(output: ToolOutput) -> str:
    """An output in a line."""
    return one_line(output.summary or text_of_output(output), MAX_SUMMARY)


def quoted(text: str) -> str:
    """``text`` with nothing in it that could end the block."""
    return "".join(_ENTITIES.get(char, char) for char in text)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
