"""``agent batch TASKS``: many tasks, each once, in a session of its own (SCALE-2)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.options import (
    RunOptions,
    choice,
    in_words,
    number,
    take_over,
)
from agentcli.domain.cancel import CancelReason
from agentcli.domain.errors import AgentError, UsageError
from agentcli.fleet.batch import Batch, BatchEnd, BatchPlan, BatchView
from agentcli.fleet.engine import LocalEngine
from agentcli.fleet.results import REPORT, RESULTS, BatchState, Journal, TaskStanding, write_whole
from agentcli.fleet.tasks import BatchTask, TasksFile, check_template, read_tasks
from agentcli.headless.errors import ExitCode
from agentcli.headless.streams import is_terminal, use_utf8, write_error_line, write_out
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line, safe_json

if TYPE_CHECKING:
    from agentcli.ui.batch_table import LiveTable

FORMATS = ("text", "json")
DEFAULT_JOBS = 4
MOST_JOBS = 1000
_TICK_S = 0.5
_TEXT_CHARS = 100
# options of one shot that every task gets as they are; and those that a row may overrule
_PASSED_ON = (
    "fallback_model", "allow_tool", "deny_tool", "trust", "tools", "effort", "system_prompt",
    "append_system_prompt", "strict_mcp_config", "sandbox", "max_turns",
)  # fmt: skip
_OWN = (
    "model", "permission_mode", "plan", "yolo", "add_dir", "mcp_config", "json_schema", "timeout",
    "max_budget_usd", "quiet",
)  # fmt: skip
_SIGNALS = {
    signal.SIGINT: (CancelReason.USER, ExitCode.SIGINT),
    signal.SIGTERM: (CancelReason.SIGTERM, ExitCode.SIGTERM),
    signal.SIGHUP: (CancelReason.SIGHUP, ExitCode.SIGHUP),
}
_Shared: Any = take_over(RunOptions, (*_PASSED_ON, *_OWN))


class BatchOptions(_Shared):  # type: ignore[misc] # made of the declarations of RunOptions
    """Options of ``batch``."""

    tasks: Annotated[
        str,
        typer.Argument(
            metavar="TASKS", help="A file of JSON Lines or CSV, a task in each line; -: stdin."
        ),
    ]
    jobs: Annotated[
        str | None,
        typer.Option(
            "-j", "--jobs", metavar="N", help=f"Run N tasks at a time; default: {DEFAULT_JOBS}."
        ),
    ] = None
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Where results go, and where a batch goes on that was stopped;"
            " default: the name of TASKS with .batch.",
        ),
    ] = None
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", metavar="TEXT", help="The prompt of each row, with {column} filled in."
        ),
    ] = None
    cwd_field: Annotated[
        str,
        typer.Option("--cwd-field", metavar="NAME", help="The column with a task's directory."),
    ] = "cwd"
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also run again what has failed.")
    ] = False
    format: Annotated[
        str,
        typer.Option("--format", metavar="|".join(FORMATS), help="How to print what came of it."),
    ] = "text"


def batch(options: BatchOptions) -> int:
    """Run the tasks; returns the exit code."""
    choice("--format", options.format, FORMATS)
    jobs = number("--jobs", options.jobs, int)
    jobs = DEFAULT_JOBS if jobs is None else jobs
    if not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"--jobs {jobs} is not valid", f"give a number from 1 to {MOST_JOBS}")
    if options.prompt is not None:
        check_template(options.prompt)
    common = _checked(options)
    directory = _directory(options)
    base = Path.cwd()
    data = _data(options.tasks)
    source = TasksFile(data, _name(options.tasks), base, options.prompt, options.cwd_field)
    tasks = read_tasks(source)
    plan = BatchPlan(
        tasks,
        jobs,
        (*in_words(common, _PASSED_ON), *_with_paths(options)),
        model=options.model,
        permission_mode=str(mode) if (mode := common.mode()) is not None else None,
        is_fearless=common.yolo > 1,
        timeout_s=common.timeout_s(),
        max_budget_usd=number("--max-budget-usd", options.max_budget_usd, float),
        retry_failed=options.retry_failed,
        default_model=_default_model(),
    )
    journal = Journal.open(directory)
    try:
        end, code = asyncio.run(_run(plan, journal, quiet=options.quiet))
        _write_report(plan, journal)
        _tell(end, directory, as_json=options.format == "json")
    finally:
        journal.close()
    return code


# --- what is asked for ---------------------------------------------------------------------------


def _checked(options: BatchOptions) -> RunOptions:
    """What every task gets, checked as ``agent run`` would."""
    common = RunOptions(**{name: getattr(options, name) for name in (*_PASSED_ON, *_OWN)})
    common.check()
    return common


def _with_paths(options: BatchOptions) -> Iterator[str]:
    """The options that name files: tasks may work in other directories."""
    for name in options.add_dir or ():
        yield f"--add-dir={Path(name).expanduser().absolute()}"
    for text in options.mcp_config or ():
        is_inline = text.lstrip().startswith("{")
        yield f"--mcp-config={text if is_inline else Path(text).expanduser().absolute()}"
    if (given := options.json_schema) is not None:
        from agentcli.cli.run import read_output_schema

        read_output_schema(given)
        is_inline = given.lstrip().startswith(("{", "[")) or given.strip() in {"true", "false"}
        yield f"--json-schema={given if is_inline else Path(given).expanduser().absolute()}"


def _directory(options: BatchOptions) -> Path:
    if options.output is not None:
        if not options.output.strip():
            raise UsageError("--output is empty", "name a directory, for example -o out")
        return Path(options.output).expanduser().absolute()
    if options.tasks == "-":
        raise UsageError("tasks from stdin need a directory for results", "add -o DIR")
    return Path.cwd() / f"{Path(options.tasks).stem}.batch"


def _name(tasks: str) -> str:
    return "stdin" if tasks == "-" else tasks


def _data(tasks: str) -> bytes:
    if tasks == "-":
        if is_terminal(sys.stdin):
            raise UsageError("the tasks are to come from stdin, which is a terminal", "pipe them")
        return sys.stdin.buffer.read()
    try:
        return Path(tasks).expanduser().read_bytes()
    except (OSError, RuntimeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UsageError(f"cannot read {clean_line(tasks)}: {reason}", "name a file") from error


def _default_model() -> str:
    """Who answers where nobody is named: that is one provider for all of these tasks."""
    from agentcli.cli.session_request import settings_here

    settings, _ = settings_here()
    return settings.model or ""


# --- what happens meanwhile ----------------------------------------------------------------------


async def _run(plan: BatchPlan, journal: Journal, *, quiet: bool) -> tuple[BatchEnd, int]:
    engine = LocalEngine()
    with ExitStack() as stack:
        shown = _Shown(plan, stack, quiet=quiet)
        batch_ = Batch(plan, journal, engine, shown)
        signals = stack.enter_context(_signals(batch_, shown))
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(shown.tick())
            try:
                end = await batch_.run()
            finally:
                ticking.cancel()
                await engine.aclose()
    if signals and end.reason:
        return end, signals[0]
    if end.reason:
        return end, ExitCode.LIMIT
    return end, ExitCode.OK if end.is_complete else ExitCode.FAILED


@contextmanager
def _signals(batch_: Batch, shown: _Shown) -> Iterator[list[int]]:
    """The codes of the signals that came, in their order."""
    loop = asyncio.get_running_loop()
    came: list[int] = []

    def on_signal(number_: signal.Signals) -> None:
        reason, code = _SIGNALS[number_]
        came.append(code)
        if number_ == signal.SIGINT and len(came) == 1:
            batch_.drain()
            shown.says("no more tasks are started; again: stop those that run")
            return
        is_third = len(came) > (2 if came[0] == ExitCode.SIGINT else 1)
        if not is_third:
            shown.says("stopping; what runs can go on later")
        batch_.stop(reason, force=is_third)

    taken = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    for each in taken:
        loop.add_signal_handler(each, on_signal, each)
    try:
        yield came
    finally:
        for each in taken:
            loop.remove_signal_handler(each)


class _Shown(BatchView):
    """A live table on a terminal, else a line for each task that ends; all of it on stderr."""

    def __init__(self, plan: BatchPlan, stack: ExitStack, *, quiet: bool) -> None:
        self._tasks = {task.id for task in plan.tasks}
        self._quiet = quiet
        self._total = len(plan.tasks)
        self._states: dict[str, BatchState] = {}
        self._costs: dict[str, float | None] = {}
        self._ended = 0
        self._table: LiveTable | None = None
        if not quiet and is_terminal(sys.stderr) and os.environ.get("TERM") not in {"dumb", None}:
            from agentcli.ui.batch_table import LiveTable

            self._table = stack.enter_context(LiveTable(sys.stderr, self._total, os.environ))

    def begins(self, skipped: int) -> None:
        """See ``BatchView``."""
        self._ended = skipped
        if skipped:
            self.says(f"{wording.plural(skipped, 'task')} of {self._total} ended before")

    def started(self, task: BatchTask, known: TaskStanding) -> None:
        """See ``BatchView``."""
        self._note(task, known)
        if self._table is not None:
            self._table.started(task.id, task.prompt[:_TEXT_CHARS])

    def ended(self, task: BatchTask, known: TaskStanding, result: str) -> None:
        """See ``BatchView``."""
        self._note(task, known)
        self._ended += known.state.has_ended
        if self._table is not None:
            self._table.ended(task.id, str(known.state), known.cost_usd)
        elif not self._quiet:
            place = f"{self._ended}/{self._total}" if known.state.has_ended else "again"
            cost = wording.cost(known.cost_usd)
            took = wording.duration(known.duration_ms / 1000)
            line = f"{place} {known.state}: {clean_line(task.id)} ({took}, {cost})"
            is_fault = known.state.has_ended and known.state is not BatchState.DONE
            write_error_line(f"{line}: {clean_line(result)[:300]}" if is_fault else line)

    def says(self, text: str) -> None:
        """See ``BatchView``."""
        if self._table is not None:
            self._table.says(text)
        elif not self._quiet:
            write_error_line(clean_line(text))

    def _note(self, task: BatchTask, known: TaskStanding) -> None:
        self._states[task.id] = known.state
        self._costs[task.id] = known.cost_usd

    async def tick(self) -> None:
        """Draw the table from time to time."""
        while self._table is not None:
            self._table.counts = _counts(self._states.values())
            self._table.spent_usd = sum(cost or 0.0 for cost in self._costs.values())
            self._table.refresh()
            await asyncio.sleep(_TICK_S)


def _counts(states: Sequence[BatchState] | Any) -> dict[str, int]:
    found = dict.fromkeys(map(str, BatchState), 0)
    for state in states:
        found[str(state)] += 1
    return found


def _write_report(plan: BatchPlan, journal: Journal) -> None:
    """``report.html``, and a page for the session of each task at its top."""
    from agentcli.cli.listing import session_files
    from agentcli.cli.redacting import exported, know_secrets
    from agentcli.cli.switching.exports import exported_text
    from agentcli.fleet.report import MOST_PAGES, SESSIONS, report, report_rows

    know_secrets()
    rows = report_rows(
        journal.rows([task.id for task in plan.tasks]),
        {task.id: task.prompt for task in plan.tasks},
    )
    files, folder = session_files(), journal.directory / SESSIONS
    pages: set[str] = set()
    for row in rows[:MOST_PAGES]:
        if not row.session_id or not files.path_of(row.session_id).exists():
            continue
        path = folder / f"{row.session_id}.html"
        with suppress(AgentError):
            folder.mkdir(mode=0o700, exist_ok=True)
            page = exported_text(files, row.session_id, "html")
            write_whole(path, iter([page.encode("utf-8", "replace")]))
            pages.add(row.session_id)
    name = clean_line(journal.directory.name)
    text: str = exported(report(name, rows, frozenset(pages)))
    write_whole(journal.directory / REPORT, iter([text.encode("utf-8", "replace")]))


def _tell(end: BatchEnd, directory: Path, *, as_json: bool) -> None:
    """What came of it, on stdout."""
    counts = {str(state): count for state in BatchState if (count := end.states.get(state, 0))}
    if as_json:
        value = {
            "type": "batch",
            "tasks": sum(counts.values()),
            "states": counts,
            "skipped": end.skipped,
            "spent_usd": round(end.spent_usd, 6),
            "stopped_by": end.reason or None,
            "results": str(directory / RESULTS),
            "report": str(directory / REPORT),
        }
        use_utf8()
        write_out(safe_json(json.dumps(value, ensure_ascii=False)) + "\n")
        return
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    skipped = f", {end.skipped} of them before" if end.skipped else ""
    total = wording.plural(sum(counts.values()), "task")
    write_out(f"{total}: {words}{skipped}; cost {wording.cost(end.spent_usd)}\n")
    write_out(f"{directory / RESULTS}\n{directory / REPORT}\n")
    if end.reason == "budget":
        write_error_line("the budget is spent - start again with a larger --max-budget-usd")
    elif end.reason:
        write_error_line("start again with the same TASKS and -o to go on")
    elif not end.is_complete:
        write_error_line("run what has failed again with --retry-failed")


APP = new_app("")
add_command(
    APP,
    CommandSpec(
        "batch",
        "Run many tasks, each in a session of its own.\n\nA row of TASKS has a prompt, and may have"
        " id, cwd, model, permission_mode, max_budget_usd and timeout_s. Started again, a batch"
        " goes on where it was stopped: what has ended is skipped, what was begun goes on in its"
        " session. Ctrl-C lets running tasks end, again stops them.",
    ),
    BatchOptions,
    batch,
)
