"""How a failure is reported: exit code (CLI-6), line for the user, word for programs (CLI-11).

Law: this is the only place that says which failure ends with which number.
"""

from __future__ import annotations

from enum import IntEnum

from agentcli.domain.errors import (
    AgentError,
    CannotContinue,
    ConfigError,
    ErrorKind,
    NoStructuredOutput,
    ProviderError,
    SessionNotFound,
    StoreError,
    UsageError,
)


class ExitCode(IntEnum):
    """What the shell gets."""

    OK = 0
    FAILED = 1
    USAGE = 2
    LIMIT = 3
    APPROVAL = 4
    STORE = 74
    TEMPORARY = 75
    CONFIG = 78
    SIGHUP = 129
    SIGINT = 130
    SIGTERM = 143


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "the run failed",
    ExitCode.USAGE: "usage: a wrong flag, name or missing prompt",
    ExitCode.LIMIT: "a limit was reached: turns, budget, time, output schema",
    ExitCode.APPROVAL: "an approval was needed and nobody could give it",
    ExitCode.STORE: "the session could not be read or written",
    ExitCode.TEMPORARY: "the provider failed in a way that may pass; retry later",
    ExitCode.CONFIG: "configuration or credentials",
    ExitCode.SIGHUP: "SIGHUP",
    ExitCode.SIGINT: "SIGINT (Ctrl-C)",
    ExitCode.SIGTERM: "SIGTERM",
}


def exit_code_for(error: BaseException) -> ExitCode:
    """The code of an error that ended the program."""
    code = ExitCode.FAILED
    match error:
        case UsageError() | SessionNotFound() | CannotContinue():
            code = ExitCode.USAGE
        case ConfigError() | ProviderError(kind=ErrorKind.AUTH):
            code = ExitCode.CONFIG
        case NoStructuredOutput():
            code = ExitCode.LIMIT
        case StoreError():
            code = ExitCode.STORE
        case ProviderError(retryable=True):
            code = ExitCode.TEMPORARY
    return code


def epilog() -> str:
    """The codes as a paragraph for ``--help``; the leading mark keeps the lines as they are."""
    lines = [f"{code.value:>4}  {meaning}" for code, meaning in MEANINGS.items()]
    return "\b\nExit codes:\n" + "\n".join(lines)


def as_agent_error(error: Exception) -> AgentError:
    """``error`` as one of ours: with advice, and without the wording of a library."""
    if isinstance(error, AgentError):
        return error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return AgentError(f"{where}{error.strerror or error}", "check the path and its permissions")
    if isinstance(error, RecursionError | MemoryError):
        return AgentError(f"out of resources: {type(error).__name__}", "start again")
    return AgentError(
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug; run again with --debug FILE and report it with that file",
    )


def log_error(known: AgentError, error: Exception) -> None:
    """To the log with its traceback: a bug always, an expected error for debugging only."""
    import logging

    log = logging.getLogger("agentcli")
    if not logging.getLogger().handlers:
        log.addHandler(logging.NullHandler())
    level = logging.DEBUG if known is error else logging.ERROR
    log.log(level, "%s", known, exc_info=error)


def one_line(text: str) -> str:
    """``text`` in one line, without control characters."""
    joined = " ".join(text.split())
    return "".join(char if char.isprintable() else "\ufffd" for char in joined)
