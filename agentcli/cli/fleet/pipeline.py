"""``agent pipeline show|run FILE.toml``: steps that use what earlier ones found (SCALE-5)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.fleet.batch import ManyOptions, checked, make_report, run_all
from agentcli.cli.listing import print_json, print_table
from agentcli.cli.options import choice
from agentcli.cli.session_request import settings_in_force
from agentcli.cli.switching.exports import session_page
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.fleet.report import advice, summary
from agentcli.fleet.results import Journal, write_whole
from agentcli.headless.errors import ExitCode
from agentcli.headless.streams import write_error_line, write_out

if TYPE_CHECKING:
    from agentcli.fleet.pipeline.file import StepPipeline

STEPS = "steps.json"
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

    def pipeline(self) -> StepPipeline:
        """The file, checked; raises ``AgentError``."""
        from agentcli.fleet.pipeline.file import read_pipeline

        given: dict[str, str] = {}
        for text in self.input or ():
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"--input {text} is not valid", "give it as NAME=VALUE")
            given[name.strip()] = value
        return read_pipeline(Path(self.file).expanduser(), given)


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
        write_out("".join(f"{line}\n" for line in tree_lines(pipeline)))
    return 0


class PipelineRunOptions(ManyOptions, FileOptions):
    """Options of ``run``."""


def run_pipeline(options: PipelineRunOptions) -> int:
    """Run the steps; returns the exit code."""
    from agentcli.fleet.pipeline.progress import PipelineProgress, PipelineTasks, steps_json

    pipeline = options.pipeline()
    plan = options.batch_plan(())
    _check_agents(pipeline, options)
    directory = Path(options.output or f"{Path(options.file).stem}.pipeline").expanduser()
    journal = Journal.open(directory.absolute())

    def say(text: str) -> None:
        if not options.quiet:
            write_error_line(text)

    try:
        progress = PipelineProgress(pipeline, Path.cwd())
        tasks = PipelineTasks(progress, journal.tasks.keys(), say)
        plan = replace(plan, tasks=tasks.first(), follow=tasks.follow)
        end, code = run_all(plan, journal, options, pipeline.max_budget_usd)
        make_report(journal, tasks.tasks, session_page)
        write_whole(directory.absolute() / STEPS, iter([steps_json(tasks)]))
    finally:
        journal.close()
    ended = {report.state for report in progress.report()}
    if code == ExitCode.OK and not ended <= {"done", "skipped"}:
        code = ExitCode.FAILED
    if options.format == "json":
        print_json(json.loads(steps_json(tasks)))
        return code
    print_table(
        ("STEP", "STATE", "RUNS", "WHY"),
        [
            (each.name, each.state, f"{each.done}/{len(each.tasks)}", each.reason)
            for each in progress.report()
        ],
    )
    write_out(summary(end, directory.absolute(), as_json=False))
    if (line := advice(end)) and not options.quiet:
        write_error_line(line)
    return code


def _check_agents(pipeline: StepPipeline, options: PipelineRunOptions) -> None:
    """Raise ``ConfigError`` if a step that works here names an agent that is not there."""
    steps = [step for step in pipeline.steps if step.settings.agent and step.cwd is None]
    if not steps or options.engine != "local":
        return
    from agentcli.app.extensions.found import find_extensions

    settings, _ = settings_in_force(checked(options))
    known = asyncio.run(find_extensions(settings, Path.cwd())).agents
    listed = ", ".join(sorted(known)) or "none"
    wrong = tuple(
        f"line {step.line}: steps.{step.name}.agent: there is no agent {step.settings.agent}"
        f" (there are: {listed})"
        for step in steps
        if (step.settings.agent or "").strip().lower() not in known
    )
    if wrong:
        raise ConfigError(f"{options.file} cannot run", "correct it; nothing has run", wrong)


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
