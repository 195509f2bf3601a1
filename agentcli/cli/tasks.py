"""``agent tasks ...``: background runs and schedules, from another terminal (CLI-9, BG-6, BG-9).

Law: a session file is only read here, and may be open elsewhere; a run is asked to end, and
answered, through it, by its owner. Waiting looks at the file a few times a second and ends with
the run.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.listing import (
    FormatOption,
    print_json,
    print_table,
    session_files,
    wait,
)
from agentcli.domain.errors import SessionNotFound, StoreError, UsageError
from agentcli.headless.streams import check_reader, use_utf8, write_error_line, write_out
from agentcli.ui.sanitize import clean

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundTask, Schedule
    from agentcli.store.files import SessionFiles

POLL_S = 0.25
CANCEL_WAIT_S = 5.0
_READ_BYTES = 64 * 1024
_SESSION_HELP = "The session: id, its beginning or end, or name; default: newest here."


class SessionOption(OptionSet):
    """Which session."""

    session: Annotated[str | None, typer.Option("--session", metavar="ID", help=_SESSION_HELP)] = (
        None
    )


class DaemonOptions(SessionOption):
    """Options of ``daemon``."""

    permission_mode: Annotated[
        str | None,
        typer.Option("--permission-mode", metavar="MODE", help="What starts unasked."),
    ] = None


class TaskListOptions(FormatOption, SessionOption):
    """Options of ``list``."""

    all: Annotated[bool, typer.Option("--all", help="Runs of all sessions.")] = False


class RunOption(SessionOption):
    """One run."""

    run: Annotated[str, typer.Argument(metavar="RUN", help="Its id, or the end of it.")]


class RunShowOptions(FormatOption, RunOption):
    """Options of ``show``."""


class AnswerOptions(RunOption):
    """An answer to one run."""

    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer.")]


class LogsOptions(RunOption):
    """Options of ``logs``."""

    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")
    ] = False


class SessionRuns(NamedTuple):
    """The runs and schedules of one session; ``is_open``: a process has it open."""

    path: Path
    tasks: Sequence[BackgroundTask]
    schedules: Sequence[Schedule]
    is_open: bool

    def state(self, task: BackgroundTask) -> str:
        """How a run stands; one that nobody looks after does not run."""
        from agentcli.ui.task_lines import state_word

        return "abandoned" if task.is_active and not self.is_open else state_word(task)


def list_(options: TaskListOptions) -> int:
    """Runs, newest last, then schedules."""
    from agentcli.ui.task_lines import next_time, took, when

    as_json = options.as_json
    found = [_read(path, may_fail=options.all) for path in _paths(options)]
    if as_json:
        print_json(
            [
                *(_run_object(each, task) for each in found for task in each.tasks),
                *(_schedule_object(each, row) for each in found for row in each.schedules),
            ]
        )
        return 0
    now = time.time()
    rows = [
        (
            task.run_id,
            each.state(task),
            took(task, now),
            task.tool,
            task.title,
            _how_far(task),
        )
        for each in found
        for task in each.tasks
    ]
    plans = [
        (row.id, next_time(row, now), when(row), row.tool, row.title)
        for each in found
        for row in each.schedules
    ]
    if rows:
        print_table(("RUN", "STATE", "WHEN", "TOOL", "TITLE", "PROGRESS"), rows)
    if plans:
        print_table(("SCHEDULE", "NEXT", "RULE", "TOOL", "TITLE"), plans)
    if not rows and not plans:
        write_error_line("no background runs and no schedules")
    return 0


def show(options: RunShowOptions) -> int:
    """One run, with the end of its output."""
    from agentcli.engine.background.log import read_log
    from agentcli.ui.task_lines import details
    from agentcli.ui.theme import PLAIN

    as_json = options.as_json
    found, task = _find_run(options)
    if as_json:
        print_json(_run_object(found, task))
        return 0
    text = read_log(Path(task.log_path))
    write_out("\n".join(details(task, text, time.time(), PLAIN)) + "\n")
    return 0


def logs(options: LogsOptions) -> int:
    """What a run has printed; with ``-f`` until it ends."""
    found, task = _find_run(options)
    use_utf8()
    pieces = _Pieces(Path(task.log_path))
    while True:
        is_over = not options.follow or not task.is_active or not found.is_open
        for text in pieces.more():
            write_out(text)
        if is_over:
            break
        time.sleep(POLL_S)
        check_reader()
        found = _read(found.path)
        task = next((each for each in found.tasks if each.run_id == task.run_id), task)
    write_out(pieces.rest())
    if options.follow and task.is_active:
        write_error_line("nobody runs it any more: its session is not open")
    return 0


def cancel(options: RunOption) -> int:
    """Ask a run to end and wait for that; or end a schedule."""
    from agentcli.store.tasks import ask_to_cancel, end_schedule

    found, meant = _find(options)
    if isinstance(meant, str):
        ended = end_schedule(found.path, meant)
        write_error_line(f"ended: {meant}" if ended else f"{meant} has ended already")
        return 0 if ended else 1
    if not ask_to_cancel(found.path, meant.run_id):
        write_error_line(f"{meant.run_id} has ended already: {found.state(meant)}")
        return 1
    if not found.is_open:
        write_error_line(
            f"noted: the session of {meant.run_id} is not open, so nothing runs now, and it will"
            " not start again when the session is opened"
        )
        return 0
    deadline = time.monotonic() + CANCEL_WAIT_S
    task = meant
    while task.is_active and time.monotonic() < deadline:
        time.sleep(POLL_S)
        task = _now(found, meant)
    if task.is_active:
        write_error_line(f"{meant.run_id} was asked to end and has not ended yet")
        return 1
    write_error_line(f"{meant.run_id}: {task.state.value}")
    return 0


def answer(options: AnswerOptions) -> int:
    """Answer what a run asks, and wait until it has the answer."""
    from agentcli.cli.redacting import exported, know_secrets
    from agentcli.store.tasks import leave_answer

    found, task = _find_run(options)
    text = options.text.strip()
    if not text:
        raise UsageError(
            "the answer is empty", "write it after the run: agent tasks answer RUN TEXT"
        )
    if task.asks is None:
        write_error_line(f"{task.run_id} asks nothing: it is {found.state(task)}")
        return 1
    if not found.is_open:
        write_error_line(
            f"{task.run_id} was asking in a session that is not open any more, so nobody would get"
            f" the answer - resume it: agent resume {found.path.stem}"
        )
        return 1
    know_secrets()
    if exported(text) != text:
        raise UsageError(
            "the answer holds a key, which is not written to the session file",
            "answer in the chat itself: /tasks answer N TEXT",
        )
    if not leave_answer(found.path, task.run_id, text):
        write_error_line(f"{task.run_id} has been answered already")
        return 1
    deadline = time.monotonic() + CANCEL_WAIT_S
    while (now := _now(found, task)).asks and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if now.asks:
        write_error_line(
            f"{task.run_id} has not taken the answer yet: it waits in the session file"
        )
        return 1
    write_error_line(f"{task.run_id}: answered")
    return 0


def daemon(options: DaemonOptions) -> int:
    """Start what is due in a session that no chat has open, until a signal comes."""
    from agentcli.cli.task_daemon import run_daemon

    files = session_files()
    path = files.path_of(_session_id(files, options.session))
    return run_daemon(path, options.permission_mode)


# --- which ---------------------------------------------------------------------------------


def _session_id(files: SessionFiles, wanted: str | None) -> str:
    if wanted is not None:
        return wait(files.resolve(wanted))
    advice = "name one with --session, or add --all to list"
    try:
        here = Path.cwd()
    except OSError as error:
        raise UsageError("the working directory no longer exists", advice) from error
    latest = wait(files.latest(str(here)))
    if latest is None:
        raise SessionNotFound(f"there is no session in {here}", advice)
    return latest.id


def _paths(options: TaskListOptions) -> list[Path]:
    files = session_files()
    if not options.all:
        return [files.path_of(_session_id(files, options.session))]
    if options.session is not None:
        raise UsageError("--all and --session exclude each other", "give one of them")
    return [files.path_of(info.id) for info in reversed(wait(files.list()))]


def _read(path: Path, *, may_fail: bool = False) -> SessionRuns:
    """Of one session; with ``may_fail`` a file that cannot be read is a warning and empty."""
    from agentcli.engine.background.log import with_own_files
    from agentcli.store.disk import runs_directory
    from agentcli.store.tasks import is_looked_after, read_registry

    try:
        rows, schedules = read_registry(path)
    except StoreError as error:
        if not may_fail:
            raise
        write_error_line(f"warning: {error.message}")
        return SessionRuns(path, (), (), is_open=False)
    active = [each for each in schedules if each.is_active]
    tasks = [with_own_files(each, runs_directory(path)) for each in rows]
    return SessionRuns(path, tasks, active, is_open=is_looked_after(path))


def _find(options: RunOption) -> tuple[SessionRuns, BackgroundTask | str]:
    """The run, or the id of the schedule, that is meant: in the session, else in any."""
    files, text = session_files(), options.run.strip()
    first: list[str] = []
    if options.session is not None:
        first = [_session_id(files, options.session)]
    else:
        with suppress(SessionNotFound):
            first = [_session_id(files, None)]
    for registry in _registries(files, first, only=options.session is not None):
        runs = [task for task in registry.tasks if text and task.run_id.endswith(text)]
        plans = [each.id for each in registry.schedules if text and each.id.endswith(text)]
        named: list[BackgroundTask | str] = [*runs, *plans]
        if len(named) > 1:
            raise UsageError(f"{text!r} names several runs", "give more of the end of the id")
        if named:
            return registry, named[0]
    raise UsageError(f"there is no background run {text!r}", "see: agent tasks list --all")


def _now(registry: SessionRuns, task: BackgroundTask) -> BackgroundTask:
    """The run as the file has it by now."""
    return next((each for each in _read(registry.path).tasks if each.run_id == task.run_id), task)


def _registries(files: SessionFiles, first: Sequence[str], *, only: bool) -> Iterator[SessionRuns]:
    for session_id in first:
        yield _read(files.path_of(session_id), may_fail=not only)
    if not only:
        for info in wait(files.list()):
            if info.id not in first:
                yield _read(files.path_of(info.id), may_fail=True)


def _find_run(options: RunOption) -> tuple[SessionRuns, BackgroundTask]:
    found, meant = _find(options)
    if isinstance(meant, str):
        raise UsageError(f"{meant} is a schedule", "its runs are in: agent tasks list")
    return found, meant


# --- what is printed -----------------------------------------------------------------------


class _Pieces:
    """A log as it grows, cleaned; a line is only passed on when it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def more(self) -> Iterator[str]:
        """What has come since the last time."""
        from agentcli.engine.background.log import open_log

        try:
            with open_log(self._path) as file:
                file.seek(self._offset)
                while data := file.read(_READ_BYTES):
                    self._offset += len(data)
                    yield self._lines(self._decoder.decode(data))
        except OSError:
            return

    def rest(self) -> str:
        """The last line, if it has no end."""
        held, self._held = self._held, ""
        return f"{clean(held)}\n" if held else ""

    def _lines(self, text: str) -> str:
        whole, end, self._held = (self._held + text).rpartition("\n")
        return clean(whole + end)


def _how_far(task: BackgroundTask) -> str:
    from agentcli.ui.task_lines import bar

    if task.asks is not None:
        return f"? {task.asks.text}"
    return bar(task.progress) if task.progress and task.is_active else task.summary or "-"


def _run_object(registry: SessionRuns, task: BackgroundTask) -> dict[str, Any]:
    progress = task.progress
    return {
        "kind": "run",
        "session_id": registry.path.stem,
        "run_id": task.run_id,
        "task_id": task.task_id,
        "tool": task.tool,
        "title": task.title,
        "state": registry.state(task).replace(" ", "_"),
        "attempt": task.attempt,
        "detail": task.detail,
        "question": None if task.asks is None else task.asks.text,
        "options": [] if task.asks is None else list(task.asks.options),
        "wake": task.wake.value,
        "progress": None
        if progress is None
        else {
            "current": progress.current,
            "total": progress.total,
            "unit": progress.unit,
            "label": progress.label,
        },
        "summary": task.summary,
        "error_kind": task.error_kind,
        "error_message": task.error_message,
        "created_at": _time(task.created_at),
        "heartbeat_at": _time(task.heartbeat_at),
        "finished_at": _time(task.finished_at),
        "cancel_requested_at": _time(task.cancel_requested_at),
        "schedule_id": task.schedule_id or None,
        "log_path": task.log_path,
        "result_path": task.result_path,
    }


def _schedule_object(registry: SessionRuns, schedule: Schedule) -> dict[str, Any]:
    return {
        "kind": "schedule",
        "session_id": registry.path.stem,
        "schedule_id": schedule.id,
        "tool": schedule.tool,
        "title": schedule.title,
        "cron_expression": schedule.cron_expression,
        "scheduled_at": schedule.scheduled_at,
        "time_zone": schedule.time_zone,
        "next_at": _time(schedule.next_at),
        "created_at": _time(schedule.created_at),
    }


def _time(at: float | None) -> str | None:
    from agentcli.ui.export import iso_time

    return None if at is None else iso_time(at)


APP = new_app("Background runs and schedules, from any terminal.", "list")
add_command(APP, CommandSpec("list", "Runs and schedules of a session."), TaskListOptions, list_)
add_command(APP, CommandSpec("show", "One run, with the end of its output."), RunShowOptions, show)
add_command(APP, CommandSpec("logs", "Print what a run has printed."), LogsOptions, logs)
add_command(APP, CommandSpec("answer", "Answer what a run asks."), AnswerOptions, answer)
add_command(APP, CommandSpec("cancel", "End a run, or a schedule."), RunOption, cancel)
add_command(
    APP,
    CommandSpec("daemon", "Start what is due in a session that no chat has open."),
    DaemonOptions,
    daemon,
)
