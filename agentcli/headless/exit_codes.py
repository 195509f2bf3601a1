"""Exit codes (CLI-6): the one place that says which failure ends with which number."""

from __future__ import annotations

from enum import IntEnum

from agentcli.domain.errors import (
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
    """What the shell is told."""

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
