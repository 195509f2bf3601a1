"""``agent pipeline show|run FILE.toml``: steps that use what earlier ones found (SCALE-5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.listing import print_json
from agentcli.cli.options import choice
from agentcli.domain.errors import UsageError
from agentcli.headless.streams import write_out

if TYPE_CHECKING:
    from agentcli.fleet.pipeline.file import StepPipeline

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


APP = new_app("Run steps that use what earlier ones found, from a TOML file.")
add_command(APP, CommandSpec("show", "Check a pipeline, and draw it as a tree."), ShowOptions, show)


@APP.callback()
def _is_group() -> None:
    """Run steps that use what earlier ones found, from a TOML file."""
