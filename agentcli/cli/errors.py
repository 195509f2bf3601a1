"""Errors as a person reads them: one line, what and what to do (CLI-11)."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import Any

from agentcli.cli.streams import write_error_line
from agentcli.domain.errors import AgentError, UsageError
from agentcli.headless.exit_codes import ExitCode, exit_code_for

_log = logging.getLogger("agentcli")


def report(error: Exception) -> ExitCode:
    """Say ``error`` on stderr, log its traceback, and return the exit code."""
    known = as_agent_error(error)
    log_error(known, error)
    write_error_line(f"error: {said(known)[0]}")
    return exit_code_for(known)


def said(error: Exception) -> tuple[str, str]:
    """The error as one line without keys, and its kind as a word for programs."""
    from agentcli.cli.redacting import know_stored, shown
    from agentcli.headless.ending import kind_of

    know_stored()
    known = as_agent_error(error)
    message: str = shown(one_line(str(known)))
    return message, kind_of(known)


def log_error(known: AgentError, error: Exception) -> None:
    """To the log with its traceback: a bug always, an expected error for debugging only."""
    if not logging.getLogger().handlers:
        _log.addHandler(logging.NullHandler())
    level = logging.DEBUG if known is error else logging.ERROR
    _log.log(level, "%s", known, exc_info=error)


def as_agent_error(error: Exception) -> AgentError:
    """``error`` as one of ours: with advice, and without the wording of a library."""
    import typer

    if isinstance(error, AgentError):
        return error
    if isinstance(error, typer.TyperException):
        return _usage_error(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return AgentError(f"{where}{error.strerror or error}", "check the path and its permissions")
    if isinstance(error, RecursionError | MemoryError):
        return AgentError(f"out of resources: {type(error).__name__}", "start again")
    return AgentError(
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug; run again with --debug FILE and report it with that file",
    )


def one_line(text: str) -> str:
    """``text`` in one line, without control characters."""
    joined = " ".join(text.split())
    return "".join(char if char.isprintable() else "\ufffd" for char in joined)


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
