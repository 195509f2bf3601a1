"""The command line: sorts the arguments, imports the one command that is meant, reports errors.

Law: every error is one line to stderr, "error: what - what to do" (several mistakes of one file
are a line each below it), with an exit code of CLI-6;
a traceback goes nowhere but the debug file. Importing this module imports no other room.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from agentcli.cli.argv import (
    COMMANDS,
    PROMPT_COMMANDS,
    first_word,
    sort_arguments,
    wants_result,
)
from agentcli.headless.signals import StoppedEarly, raise_on_signals
from agentcli.headless.streams import (
    argument_text,
    forget_typed_ahead,
    prepare_standard_streams,
    silence,
    write_error_line,
)

if TYPE_CHECKING:
    import typer

    from agentcli.cli.options import DirectCommand
    from agentcli.domain.errors import UsageError

PROGRAM = "agent"
# the commands that do not live beside this file
FOLDERS = {
    "fleet": ("batch", "pipeline", "review", "worktrees"),
    "sessions": ("replay", "resume", "sessions", "stats"),
    "setup": ("auth", "config", "doctor", "mcp", "permissions", "plugin"),
}
# command -> the module whose ``APP`` is its typer app, or whose ``COMMAND`` makes one
MODULES = {name: f"agentcli.cli.{name}" for name in ("chat", *COMMANDS)} | {
    name: f"agentcli.cli.{folder}.{name}" for folder, names in FOLDERS.items() for name in names
}
_NEAR = 0.8
_FEW_WORDS = 3


def run_app() -> NoReturn:
    """Run the program with ``sys.argv`` and exit with its code."""
    # Pydantic would look for plugins in all that is installed: 10 ms and 1 MB, and code of others
    loader: Any = ModuleType("pydantic.plugin._loader")
    loader.get_plugins = tuple
    sys.modules[loader.__name__] = loader
    prepare_standard_streams()
    _leave(main(list(map(argument_text, sys.argv[1:]))))


def _leave(code: int) -> NoReturn:
    """Exit once all is written, without taking the interpreter apart: that takes 20 to 40 ms.

    What is registered for the exit still runs; a thread that is still at work is waited for.
    """
    _flush(sys.stdout)
    if any(not thread.daemon for thread in threading.enumerate()[1:]):
        sys.exit(code)
    atexit._run_exitfuncs()  # noqa: SLF001 - the handlers that os._exit leaves out
    _flush(sys.stdout)
    _flush(sys.stderr)
    os._exit(code)


def _flush(stream: TextIO | None) -> None:
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except OSError:
        silence(stream)


def main(argv: list[str]) -> int:
    """Run the command in ``argv``; returns the exit code."""
    try:
        give_back = raise_on_signals()
        asked = sort_arguments(argv)
        if asked.command != "run":  # which owes a result, also this early
            give_back()
        if asked.command == "chat":
            _refuse_near_command(argv)
        if asked.command not in PROMPT_COMMANDS:
            _apply_front(asked.command, asked.front)
        return invoke(asked.command, asked.args)
    except StoppedEarly as stop:
        return _stopped(argv, stop)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        silence(sys.stdout)
        return 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except Exception as error:  # noqa: BLE001 - the one place where every error ends
        return _failed(argv, error)


def _failed(argv: list[str], error: Exception) -> int:
    """Say ``error`` on stderr, log its traceback; the exit code."""
    from agentcli.cli.redacting import know_stored, shown
    from agentcli.domain.errors import ConfigError, kind_of
    from agentcli.headless.errors import as_agent_error, exit_code_for, log_error, one_line

    known = _parse_error(error, argv) or as_agent_error(error)
    log_error(known, error)
    know_stored()
    if sort_arguments(argv).command in {"chat", "resume"}:
        forget_typed_ahead()
    message = shown(one_line(str(known)))
    if wants_result(argv):
        from agentcli.headless.result import write_failure

        write_failure(message, kind_of(known))
    if isinstance(known, ConfigError) and known.details:
        write_error_line(shown(one_line(f"error: {known.headline} - {known.advice}")))
        for line in known.details:
            write_error_line(f"  {shown(one_line(line))}")
    else:
        write_error_line(f"error: {message}")
    return exit_code_for(known)


def _parse_error(error: Exception, argv: list[str]) -> UsageError | None:
    """What the parser says, in this program's words; ``None`` for any other error."""
    import typer

    from agentcli.domain.errors import UsageError

    if not isinstance(error, typer.TyperException):
        return None
    context: Any = getattr(error, "ctx", None)
    path = _label(sort_arguments(argv).command) if context is None else context.command_path
    see = f"see: {path} --help"
    option = getattr(error, "option_name", None)
    if option is not None and "requires an argument" in str(error):
        return UsageError(f"{option} needs a value", see)
    if option is None or not hasattr(error, "possibilities"):
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        return UsageError(message[:1].lower() + message[1:].rstrip("."), see)
    from difflib import get_close_matches

    from agentcli.cli.options import RunOptions, SharedOptions, spellings

    valid = [name for param in context.command.get_params(context) for name in param.opts]
    if option in spellings(RunOptions) - spellings(SharedOptions) and option not in valid:
        return UsageError(f"{option} is for one shot only", "use agent run or agent -p")
    words = [name.removeprefix("--") for name in valid if name.startswith("--")]
    typed = option.lstrip("-")
    parts = [name for name in words if typed in name.split("-")]
    near = dict.fromkeys([*parts[:2], *get_close_matches(typed, words, n=2, cutoff=0.6)])
    advice = f"did you mean --{' or --'.join(near)}?" if near else see
    return UsageError(f"unknown option {option}", advice)


def _stopped(argv: list[str], stop: StoppedEarly) -> int:
    if wants_result(argv):
        from agentcli.headless.result import write_failure

        write_failure("cancelled", stop.name.lower(), subtype="cancelled")
    write_error_line("error: cancelled")
    return stop.code


def invoke(name: str, args: list[str]) -> int:
    """Parse ``args`` and run the command ``name``; typer is loaded where it has a say."""
    if name in PROMPT_COMMANDS:
        from agentcli.cli.options import read_values

        command: DirectCommand = import_module(MODULES[name]).COMMAND
        values = read_values(command.options, args)
        if values is not None:
            return command.handler(command.options(**values))
    return _invoke_by_typer(name, args)


def _invoke_by_typer(name: str, args: list[str]) -> int:
    import typer

    command = load(name)
    try:
        with command.make_context(_label(name), list(args)) as context:
            result = command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    return result if isinstance(result, int) else 0


def _label(command: str) -> str:
    return PROGRAM if command == "chat" else f"{PROGRAM} {command}"


def load(name: str) -> typer.core.TyperCommand | typer.core.TyperGroup:
    """The command ``name``, imported now."""
    from typer.main import get_command

    from agentcli.cli.commands import app_of

    module = import_module(MODULES[name])
    command = get_command(app_of(module.COMMAND) if name in PROMPT_COMMANDS else module.APP)
    command.name = name
    return command  # type: ignore[return-value] # typer's own type for both is not public


def _refuse_near_command(argv: list[str]) -> None:
    """A mistyped command is not sent to a model as a prompt."""
    word = first_word(argv)
    words = [argument for argument in argv if not argument.startswith("-")]
    if word is None or " " in word or len(words) > _FEW_WORDS or "--" in argv:
        return
    from difflib import get_close_matches

    from agentcli.domain.errors import UsageError

    near = get_close_matches(word, list(COMMANDS), n=1, cutoff=_NEAR)
    if near:
        raise UsageError(
            f"unknown command {word}",
            f"did you mean {near[0]}? If it is a prompt: agent -- {' '.join(words)}",
        )


def _apply_front(command: str, options: list[str]) -> None:
    """Obey ``-C``, ``--debug`` and ``--verbose`` before ``command``; refuse the rest."""
    from agentcli.domain.errors import UsageError

    values: dict[str, str] = {}
    rest = list(options)
    while rest:
        name, given, value = rest.pop(0).partition("=")
        if name in {"-C", "--cd", "--debug"} and (given or rest):
            value = value if given else rest.pop(0)
        elif name != "--verbose":
            raise UsageError(
                f"{name} cannot stand before {command}", f"see: {PROGRAM} {command} --help"
            )
        values["--cd" if name == "-C" else name] = value
    if (directory := values.get("--cd")) is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"cannot work in {directory}: {reason}", "give an existing directory"
            ) from error
    if "--debug" in values or "--verbose" in values:
        from agentcli.cli.logging_setup import start_logging

        start_logging(debug_file=values.get("--debug"), verbose="--verbose" in values)
