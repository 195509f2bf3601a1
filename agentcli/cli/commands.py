"""Typer commands that parse without a validation library.

Typer 0.29 turns every value into its type with pydantic, which alone costs more than the rest
of the start (DESIGN "Import budget"). Here options stay what the shell gave: texts, lists of
texts, flags and counts; who uses one turns it into its type and words the error. Typer
still declares, parses, and renders the help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from agentcli.cli.argv import COMMANDS
from agentcli.cli.options import CommandSpec, DirectCommand, Option, OptionSet, option_names
from agentcli.domain.errors import UsageError
from agentcli.headless.errors import epilog

__all__ = ["CommandSpec", "OptionSet", "PlainCommand", "add_command", "new_app"]
T = TypeVar("T", bound=OptionSet)
_EXAMPLES = {
    'agent "why does test_login fail?"': "open the chat with a question",
    "agent -c": "go on where you left off",
    "agent -m ollama/qwen3": "another model",
    'git diff | agent run "review this"': "answer once, for scripts",
}
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _plain(param: Any, ctx: Any, value: Any) -> Any:
    """The value as the shell gave it; raises ``UsageError`` for one that is missing."""
    missing = value is None or value in ((), [])
    if param.required and missing:
        name = param.metavar or param.name.upper()
        raise UsageError(f"{name} is missing", f"see: {ctx.command_path} --help")
    if value is None:
        value = () if param.multiple or param.nargs == -1 else None
    return param.callback(ctx, param, value) if param.callback else value


class _PlainOption(TyperOption):
    process_value = _plain


class _PlainArgument(TyperArgument):
    process_value = _plain

    def get_help_record(self, ctx: Any) -> tuple[str, str]:
        del ctx
        return self.metavar or self.name.upper(), self.help or ""


def _make_plain(params: list[Any]) -> None:
    """Give the parameters that typer has built the classes above, which only add a method."""
    for param in params:
        if type(param) is TyperOption:
            param.__class__ = _PlainOption
        elif type(param) is TyperArgument:
            param.__class__ = _PlainArgument


class PlainCommand(TyperCommand):
    """A command whose parameters are not converted."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, ``--help`` included."""
        params = super().get_params(ctx)
        _make_plain(params)
        return params


class _ProgramCommand(PlainCommand):
    """The program's own help: examples and every command, then the chat's options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Examples, commands, arguments and options."""
        with formatter.section("Examples"):
            formatter.write_dl(list(_EXAMPLES.items()), col_max=36)
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        super().format_options(ctx, formatter)


class _PlainGroup(TyperGroup):
    """A group of plain commands; without a command it runs ``default_command``."""

    default_command = ""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, ``--help`` included."""
        params = super().get_params(ctx)
        _make_plain(params)
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command where none is named."""
        is_named = bool(args) and not args[0].startswith("-")
        if not is_named and not set(ctx.help_option_names).intersection(args):
            if not self.default_command and not ctx.resilient_parsing:
                names = ", ".join(self.list_commands(ctx))
                raise UsageError(f"{ctx.command_path} needs a command", f"one of: {names}")
            args = [name for name in (self.default_command, *args) if name]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command named by ``args``, or the names that are like it."""
        if self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            near = get_close_matches(args[0], names, n=2, cutoff=0.5)
            advice = f"did you mean {' or '.join(near)}?" if near else "one of: " + ", ".join(names)
            raise UsageError(f"unknown command {ctx.command_path} {args[0]}", advice)
        return super().resolve_command(ctx, args)


def new_app(help_text: str, default: str = "") -> typer.Typer:
    """An empty group of commands in this program's style; alone it runs ``default``."""
    if default:
        first, blank, more = help_text.partition("\n\n")
        help_text = f"{first} Without a command: {default}.{blank}{more}"
    return typer.Typer(
        cls=type("Group", (_PlainGroup,), {"default_command": default}),
        help=help_text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )


def add_command(
    app: typer.Typer, spec: CommandSpec, options: type[T], handler: Callable[[T], int]
) -> None:
    """Add a command: parse into ``options``, call ``handler``, exit with the code it returns."""

    def call(**values: Any) -> int:
        return handler(options(**values))

    annotations = {name: _for_typer(each) for name, each in option_names(options).items()}
    parameters = [
        inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(options, option, inspect.Parameter.empty),
            annotation=annotation,
        )
        for option, annotation in annotations.items()
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what typer reads
    call.__annotations__ = annotations
    end = epilog() if spec.tells_codes else spec.epilog
    cls = _ProgramCommand if spec.is_program else PlainCommand
    settings = {**CONTEXT, "ignore_unknown_options": spec.takes_command}
    app.command(spec.name, cls=cls, help=spec.help, epilog=end, context_settings=settings)(call)


def app_of(command: DirectCommand) -> typer.Typer:
    """``command`` as typer knows it: for help, errors and completion."""
    app = new_app("")
    add_command(app, *command)
    return app


def _for_typer(annotation: Any) -> Any:
    """A declaration of ``options`` in typer's words; its own stay as they are."""
    declared = annotation.__metadata__[0]
    if not isinstance(declared, Option):
        return annotation
    info: Any = typer.Argument(metavar=declared.metavar, help=declared.help)
    if declared.spellings:
        info = typer.Option(
            *declared.spellings.split(),
            metavar=declared.metavar or None,
            help=declared.help,
            count=declared.counts,
            show_default=not declared.counts,
        )
    return Annotated[annotation.__origin__, info]
