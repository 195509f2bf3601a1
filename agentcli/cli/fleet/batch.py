"""``agent batch TASKS``: many tasks, each once, in a session of its own (SCALE-2, SCALE-3)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.options import (
    RunOptions,
    choice,
    in_words,
    number,
    take_over,
)
from agentcli.cli.redacting import exported
from agentcli.cli.session_request import known_names
from agentcli.cli.switching.exports import session_page
from agentcli.domain.errors import AgentError, UsageError
from agentcli.fleet.batch import Batch, BatchEnd, BatchPlan, Engine, Journal, LocalEngine
from agentcli.fleet.limits import Purse
from agentcli.fleet.report import BatchProgress, advice, summary, write_report
from agentcli.fleet.shards import Shard, merge_advice, merge_shards, part_of
from agentcli.fleet.tasks import (
    MAX_TASKS_BYTES,
    BatchTask,
    TasksFile,
    check_template,
    read_tasks,
    tasks_data,
)
from agentcli.headless.errors import ExitCode
from agentcli.headless.streams import is_terminal, use_utf8, write_error_line, write_out

FORMATS = ("text", "json")
ENGINES = ("local", "ray")
MERGE = "merge"
_OF_MERGE = frozenset({"tasks", "output", "format", "quiet"})
DEFAULT_JOBS = 4
MOST_JOBS = 1000
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
    signal.SIGINT: ExitCode.SIGINT,
    signal.SIGTERM: ExitCode.SIGTERM,
    signal.SIGHUP: ExitCode.SIGHUP,
}
_CODES = {"provider": ExitCode.CONFIG, "disk": ExitCode.STORE}
_Shared: Any = take_over(RunOptions, (*_PASSED_ON, *_OWN))


class ManyOptions(_Shared):  # type: ignore[misc] # made of the declarations of RunOptions
    """What batch and pipeline take beside the options of every run."""

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
            help="Where results go, and where it goes on when it was stopped;"
            " by default a directory named after the file.",
        ),
    ] = None
    worktree: Annotated[
        bool,
        typer.Option("-w", "--worktree", help="Give each task a git worktree of its own."),
    ] = False
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also run again what has failed.")
    ] = False
    format: Annotated[
        str,
        typer.Option("--format", metavar="|".join(FORMATS), help="How to print the outcome."),
    ] = "text"
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="|".join(ENGINES), help="Where tasks run: here, or on a cluster."
        ),
    ] = "local"

    def batch_plan(self, default_model: str | None) -> BatchPlan:
        """What is to be done with each task; raises ``UsageError`` for what is not valid."""
        choice("--format", self.format, FORMATS)
        choice("--engine", self.engine, ENGINES)
        jobs = number("--jobs", self.jobs, int)
        jobs = DEFAULT_JOBS if jobs is None else jobs
        if not 1 <= jobs <= MOST_JOBS:
            raise UsageError(f"--jobs {jobs} is not valid", f"give a number from 1 to {MOST_JOBS}")
        common = checked(self)
        return BatchPlan(
            (),
            jobs,
            (*in_words(common, _PASSED_ON), *_with_paths(self)),
            model=self.model,
            permission_mode=str(mode) if (mode := common.mode()) is not None else None,
            is_fearless=common.yolo > 1,
            timeout_s=common.timeout_s(),
            worktrees=self.worktree,
            schema=_schema_of(self),
            retry_failed=self.retry_failed,
            default_model=default_model or "",
        )

    def directory(self, default: str) -> Path:
        """Where results go, a real path: no link is followed, which a task may have made."""
        if self.output is not None and not self.output.strip():
            raise UsageError("--output is empty", "name a directory, for example -o out")
        named = Path(default) if self.output is None else Path(self.output).expanduser()
        return Journal.place(named)

    def budget_usd(self) -> float | None:
        """What all tasks together may cost."""
        return number("--max-budget-usd", self.max_budget_usd, float)

    def make_engine(self) -> Engine:
        """Where tasks run; blocks. Raises ``UsageError`` where it cannot be had."""
        if self.engine == "local":
            return LocalEngine()
        from agentcli.fleet.ray_engine import RayEngine

        return RayEngine(_nothing if self.quiet else write_error_line)


class BatchOptions(ManyOptions):
    """Options of ``batch``."""

    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASKS",
            help="A file of JSON Lines or CSV, a task in each line; -: stdin. Or: merge DIR...,"
            " with the directories of all shards, and -o DIR.",
        ),
    ]
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", metavar="TEXT", help="The prompt of each row, with {column} filled in."
        ),
    ] = None
    cwd_field: Annotated[
        str | None,
        typer.Option(
            "--cwd-field",
            metavar="NAME",
            help="The column with a task's directory; default: cwd, with --prompt within this one.",
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="i/n",
            help="Run only the i-th of n parts, i from 1 to n; each has its own -o and budget.",
        ),
    ] = None


def batch(options: BatchOptions) -> int:
    """Run the tasks, or merge shards; returns the exit code."""
    if options.tasks[0] == MERGE:
        return _merge(options)
    if len(options.tasks) > 1:
        first, second = options.tasks[:2]
        if not Path(first).exists():  # "run", as other programs have it
            raise UsageError(f"{first} is no file of tasks", f"run: agent batch {second}")
        what = f"one TASKS at a time: {second} is one too many"
        raise UsageError(what, "start a batch for each")
    name = options.tasks[0]
    shard = None if options.shard is None else Shard.parse(options.shard)
    if options.prompt is not None:
        check_template(options.prompt)
    known = known_names(checked(options))
    plan = options.batch_plan(known.settings.model)
    directory = _directory(options, name, shard)
    say = _nothing if options.quiet else write_error_line
    named = (options.prompt, options.cwd_field)
    mode = str(known.settings.permission_mode)
    source = TasksFile(_data(name), _name(name), Path.cwd(), *named, mode, say)
    tasks = read_tasks(source)
    if options.engine == "local":  # elsewhere the nodes know
        known.check_models(
            source.name, {task.model: task.line for task in reversed(tasks)}, plan.model
        )
    journal = Journal.open(directory)
    try:
        tasks = part_of(journal, tasks, shard, exported)
        end, code = run_all(replace(plan, tasks=tasks), journal, options)
        make_report(journal, tasks, session_page)
    finally:
        journal.close()
    print_end(end, directory, options)
    return code


def _merge(options: BatchOptions) -> int:
    """Put the shards together; returns the exit code."""
    choice("--format", options.format, FORMATS)
    for name, value in vars(BatchOptions(tasks=[])).items():
        if name not in _OF_MERGE and (given := getattr(options, name)) and given != value:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} is not for batch merge", "it takes -o, --format, --quiet")
    if options.output is None or not options.output.strip():
        raise UsageError("batch merge needs a directory for results", "add -o DIR")
    if not options.tasks[1:]:
        raise UsageError("batch merge needs the directories of all shards", "name them")
    into = options.directory("")
    shards = [Path(text).expanduser() for text in options.tasks[1:]]
    merged = merge_shards(shards, into, session_page, exported)
    _print(merged.end, into, merge_advice(merged), options)
    return ExitCode.OK if merged.end.is_complete else ExitCode.FAILED


def print_end(end: BatchEnd, directory: Path, options: ManyOptions, what: str = "TASKS") -> None:
    """Say how it ended, and what to do next with ``what``."""
    _print(end, directory, advice(end, what), options)


def _print(end: BatchEnd, directory: Path, line: str, options: ManyOptions) -> None:
    if options.format == "json":
        use_utf8()
    write_out(summary(end, directory, as_json=options.format == "json"))
    if line and not options.quiet:
        write_error_line(line)


# --- what is asked for ---------------------------------------------------------------------------


def checked(options: ManyOptions) -> RunOptions:
    """What every task gets, checked as ``agent run`` would."""
    common = RunOptions(**{name: getattr(options, name) for name in (*_PASSED_ON, *_OWN)})
    common.check()
    return common


def _schema_of(options: ManyOptions) -> str | None:
    """What results must satisfy: read once, as it may come from a pipe, and nodes lack its file."""
    if options.json_schema is None:
        return None
    from agentcli.cli.run import read_output_schema

    return json.dumps(read_output_schema(options.json_schema).schema)


def _with_paths(options: ManyOptions) -> Iterator[str]:
    """The options that name files: tasks may work in other directories."""
    for name in options.add_dir or ():
        yield f"--add-dir={Path(name).expanduser().absolute()}"
    for text in options.mcp_config or ():
        is_inline = text.lstrip().startswith("{")
        yield f"--mcp-config={text if is_inline else Path(text).expanduser().absolute()}"


def _directory(options: BatchOptions, tasks: str, shard: Shard | None) -> Path:
    if options.output is None and tasks == "-":
        raise UsageError("tasks from stdin need a directory for results", "add -o DIR")
    part = "" if shard is None else f".shard-{shard.number}-of-{shard.count}"
    return options.directory(f"{Path(tasks).stem}{part}.batch")


def _name(tasks: str) -> str:
    return "stdin" if tasks == "-" else tasks


def _data(tasks: str) -> bytes:
    if tasks == "-":
        if is_terminal(sys.stdin):
            raise UsageError("the tasks are to come from stdin, which is a terminal", "pipe them")
        return sys.stdin.buffer.read(MAX_TASKS_BYTES + 1)
    try:
        return tasks_data(Path(tasks).expanduser())
    except (OSError, RuntimeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        advice = "name a file of tasks: agent batch FILE.jsonl"
        raise UsageError(f"cannot read {tasks}: {reason}", advice) from error


# --- what happens meanwhile ----------------------------------------------------------------------


def make_report(
    journal: Journal, tasks: Sequence[BatchTask], page_of: Callable[[str], str | None]
) -> None:
    """Write the page of all tasks, and those of the sessions that ``page_of`` knows; no keys."""
    write_report(journal, tasks, page_of, exported)


def run_all(
    plan: BatchPlan, journal: Journal, options: ManyOptions, budget_usd: float | None = None
) -> tuple[BatchEnd, int]:
    """Run what ``plan`` says; how it ended, and the exit code.

    ``budget_usd`` is the most that it may cost where the options do not say.
    """
    given = options.budget_usd()
    purse = Purse(budget_usd if given is None else given)
    engine = options.make_engine()
    return asyncio.run(_run(plan, journal, engine, purse, quiet=options.quiet))


async def _run(
    plan: BatchPlan, journal: Journal, engine: Engine, purse: Purse, *, quiet: bool
) -> tuple[BatchEnd, int]:
    shown = BatchProgress(plan, _nothing if quiet else write_error_line)
    batch_ = Batch(plan, journal, engine, shown, purse)
    table = nullcontext() if quiet else shown.drawn_on(sys.stderr, os.environ)
    fault: AgentError | None = None
    with table, _signals(batch_, shown) as signals:
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(shown.tick())
            try:
                end = await batch_.run()
            except AgentError as error:  # the group would hide it
                fault = error
            finally:
                ticking.cancel()
                await engine.aclose()
    if fault is not None:
        raise fault
    if signals and end.reason:
        return end, signals[0]
    if end.reason:
        return end, _CODES.get(end.reason, ExitCode.LIMIT)
    return end, ExitCode.OK if end.is_complete else ExitCode.FAILED


def _nothing(_: str) -> None:
    """Nobody is to be told."""


@contextmanager
def _signals(batch_: Batch, shown: BatchProgress) -> Iterator[list[int]]:
    """The codes of the signals that came, in their order."""
    loop = asyncio.get_running_loop()
    came: list[int] = []

    def on_signal(number_: signal.Signals) -> None:
        came.append(_SIGNALS[number_])
        if number_ == signal.SIGINT and len(came) == 1:
            batch_.drain()
            shown.says("no more tasks are started; again: stop those that run")
            return
        is_third = len(came) > (2 if came[0] == ExitCode.SIGINT else 1)
        if not is_third:
            shown.says("stopping; what runs can go on later")
        batch_.stop(force=is_third)

    taken = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    for each in taken:
        loop.add_signal_handler(each, on_signal, each)
    try:
        yield came
    finally:
        for each in taken:
            loop.remove_signal_handler(each)


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
