"""``agent pipeline show|run FILE.toml``: steps that use what earlier ones found (SCALE-5)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.fleet.batch import ManyOptions, checked, make_report, print_end, run_all
from agentcli.cli.listing import print_json, print_table
from agentcli.cli.options import choice
from agentcli.cli.session_request import known_names
from agentcli.cli.switching.exports import session_page
from agentcli.domain.errors import UsageError
from agentcli.fleet.results import STEPS, Journal, write_json
from agentcli.headless.errors import ExitCode
from agentcli.headless.streams import write_error_line, write_line

if TYPE_CHECKING:
    from agentcli.fleet.pipeline.file import Check, StepPipeline

_SHAPES = ("tree", "json")


class FileOptions(OptionSet):
    """What every command of a pipeline takes."""

    file: Annotated[str, typer.Argument(metavar="FILE", help="A TOML file of steps.")]
    input: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            "--input",
            metavar="NAME=VALUE",
            help="A value for an input of the file; repeatable.",
        ),
    ] = None

    def pipeline(self, check: Check | None = None) -> StepPipeline:
        """The file, checked; raises ``AgentError``."""
        from agentcli.fleet.pipeline.file import read_pipeline

        given: dict[str, str] = {}
        for text in self.input or ():
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"--input {text} is not valid", "give it as NAME=VALUE")
            given[name.strip()] = value
        return read_pipeline(Path(self.file).expanduser(), given, check)


class ShowOptions(FileOptions):
    """Options of ``show``."""

    format: Annotated[
        str, typer.Option("--format", metavar="|".join(_SHAPES), help="How to print it.")
    ] = "tree"


def show(options: ShowOptions) -> int:
    """Check the file, and draw it."""
    from agentcli.fleet.pipeline.tree import as_json, tree_lines

    choice("--format", options.format, _SHAPES)
    pipeline = options.pipeline()
    if options.format == "json":
        print_json(as_json(pipeline))
    else:
        for line in tree_lines(pipeline):
            write_line(line)
    return 0


class PipelineRunOptions(ManyOptions, FileOptions):
    """Options of ``run``."""


def run_pipeline(options: PipelineRunOptions) -> int:
    """Run the steps; returns the exit code."""
    from agentcli.fleet.pipeline.progress import PipelineProgress, PipelineTasks

    place = _StartPlace(options)
    plan = options.batch_plan(place.names.settings.model)
    pipeline = options.pipeline(place.problem)
    directory = options.directory(f"{Path(options.file).stem}.pipeline")
    journal = Journal.open(directory)

    def say(text: str) -> None:
        if not options.quiet:
            write_error_line(text)

    try:
        tasks = PipelineTasks(PipelineProgress(pipeline, place.limits), journal.tasks, say)
        plan = replace(plan, tasks=tasks.first(), follow=tasks.follow, waiting=tasks.waiting)
        end, code = run_all(plan, journal, options, pipeline.max_budget_usd)
        make_report(journal, tasks.tasks, session_page)
        found = tasks.as_json(journal.rows([task.id for task in tasks.tasks]))
        write_json(directory / STEPS, found)
    finally:
        journal.close()
    report = tasks.report()
    if code == ExitCode.OK and not {each.state for each in report} <= {"done", "skipped"}:
        code = ExitCode.FAILED
    if options.format == "json":
        print_json(found)
        return code
    print_table(
        ("STEP", "STATE", "RUNS", "WHY"),
        [(each.name, each.state, f"{each.done}/{len(each.tasks)}", each.reason) for each in report],
    )
    print_end(end, directory, options, "FILE")
    return code


class _StartPlace:
    """What a file may name where it is started, and whether it may reach beyond that place."""

    def __init__(self, options: PipelineRunOptions) -> None:
        from agentcli.fleet.pipeline.progress import StepLimits

        self.names = known_names(checked(options))
        settings = self.names.settings
        self._folder = Path(options.file).expanduser().absolute().parent
        # to trust a directory says nothing of a file that any command in it may have written
        self._is_here = options.engine == "local"  # else the nodes know what they have
        self._may_leave = options.trust or settings.permission_mode == "yolo"
        model = options.model
        self.limits = StepLimits(
            Path.cwd(), options.trust, lambda name: self.names.prompt_room(name or model)
        )

    def problem(self, key: str, value: str) -> str:
        """What is wrong with ``value`` for that key of a step; empty: nothing."""
        from agentcli.fleet.pipeline.progress import TRUST_ADVICE, CannotRun

        if key == "schema":
            return self._schema_problem(value)
        if key == "cwd":
            try:
                self.limits.directory(value)
            except CannotRun as error:
                return str(error) if self._is_here else ""
        elif (self._is_here or key == "allow_tools") and (
            problem := self.names.problem(key, value)
        ):
            return problem
        if (key == "allow_tools" or value == "yolo") and not self._may_leave:
            return f"{value} is for you to allow: {TRUST_ADVICE}"
        return ""

    def _schema_problem(self, name: str) -> str:
        from agentcli.fleet.pipeline.progress import TRUST_ADVICE

        if self.limits.is_trusted:
            return ""
        with suppress(OSError, RuntimeError, ValueError):
            if (self._folder / name).resolve().is_relative_to(self._folder.resolve()):
                return ""
        return f"{name} is outside of {self._folder}: {TRUST_ADVICE}"


APP = new_app("Run steps that use what earlier ones found, from a TOML file.")
add_command(APP, CommandSpec("show", "Check a pipeline, and draw it as a tree."), ShowOptions, show)
add_command(
    APP,
    CommandSpec(
        "run",
        "Run a pipeline, a step as soon as all that it needs is done.\n\nStarted again, it goes on"
        " where it was stopped: what has ended is not run again unless its step was changed, or one"
        " that it needs. Ctrl-C lets running steps end, again stops them.",
    ),
    PipelineRunOptions,
    run_pipeline,
)
