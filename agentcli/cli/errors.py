"""Errors as a person reads them: one line, what and what to do (CLI-11)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from agentcli.domain.errors import AgentError, UsageError
from agentcli.headless import errors as headless
from agentcli.headless.errors import ExitCode, exit_code_for, kind_of, log_error, one_line
from agentcli.headless.streams import write_error_line


def report(error: Exception) -> ExitCode:
    """Say ``error`` on stderr, log its traceback, and return the exit code."""
    known = as_agent_error(error)
    log_error(known, error)
    write_error_line(f"error: {said(known)[0]}")
    return exit_code_for(known)


def said(error: Exception) -> tuple[str, str]:
    """The error as one line without keys, and its kind as a word for programs."""
    from agentcli.cli.redacting import know_stored, shown

    know_stored()
    known = as_agent_error(error)
    message: str = shown(one_line(str(known)))
    return message, kind_of(known)


def as_agent_error(error: Exception) -> AgentError:
    """``error`` as one of ours, those of the parser included."""
    import typer

    if isinstance(error, typer.TyperException):
        return _usage_error(error)
    return headless.as_agent_error(error)


def _usage_error(error: Exception) -> UsageError:
    option = getattr(error, "option_name", None)
    see = f"see: {_command_path(error)} --help"
    if option is None or not hasattr(error, "possibilities"):
        message = error.format_message() if hasattr(error, "format_message") else str(error)
        return UsageError(message[:1].lower() + message[1:].rstrip("."), see)
    context: Any = getattr(error, "ctx", None)
    valid = [name for param in context.command.get_params(context) for name in param.opts]
    if option in _one_shot_options() and option not in valid:
        return UsageError(f"{option} is for one shot only", "use agent run or agent -p")
    near = get_close_matches(option, [name for name in valid if name.startswith("--")], cutoff=0.6)
    if near:
        return UsageError(f"unknown option {option}", f"did you mean {' or '.join(near[:2])}?")
    return UsageError(f"unknown option {option}", see)


def _one_shot_options() -> set[str]:
    from agentcli.cli.options import RunOptions, SharedOptions, declared

    return declared(RunOptions) - declared(SharedOptions)


def _command_path(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context is not None else "agent"
