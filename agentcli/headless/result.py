"""How a run ended: one value from which the result object and the exit code follow.

Law: every path makes exactly one ``RunEnd`` (CLI-5), and subtype and exit code are decided here and
nowhere else (CLI-6).
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from agentcli.domain.errors import AgentError, NoStructuredOutput, ProviderError
from agentcli.domain.events import (
    Cancelled,
    Done,
    Failed,
    Outcome,
    TerminalEvent,
    ToolRefused,
    TurnSummary,
)
from agentcli.domain.values import frozen, mutable
from agentcli.headless.errors import ExitCode, exit_code_for, kind_of


class Subtype(StrEnum):
    """``subtype`` of the result line."""

    SUCCESS = "success"
    ERROR = "error_during_execution"
    MAX_TURNS = "error_max_turns"
    MAX_BUDGET = "error_max_budget_usd"
    TIMEOUT = "error_timeout"
    OUTPUT_SCHEMA = "error_max_structured_output_retries"
    CANCELLED = "cancelled"


@mutable
class RunFacts:
    """What is known of a run beside its end; filled as it becomes known."""

    session_id: str = ""
    model: str = ""
    cwd: str = ""
    tools: tuple[str, ...] = ()
    permission_mode: str = ""
    duration_s: float = 0.0
    refused: list[ToolRefused] = field(default_factory=list)


@frozen
class RunEnd:
    """``terminal_reason`` is a word for programs; ``message`` a line for the user, maybe empty.

    ``unsaved`` is text that could be written nowhere and would be lost if it were not shown.
    ``retry_after_s`` is when the provider wants to be asked again, in seconds, where it said so.
    """

    subtype: Subtype
    code: ExitCode
    terminal_reason: str
    summary: TurnSummary
    message: str = ""
    unsaved: str = ""
    retry_after_s: float | None = None

    @property
    def is_stop(self) -> bool:
        """Whether somebody stopped it, or the time limit."""
        return self.subtype in {Subtype.CANCELLED, Subtype.TIMEOUT}

    @property
    def is_error(self) -> bool:
        """Whether the run did not do what it was asked for."""
        return self.subtype is not Subtype.SUCCESS


def ended_by(terminal: TerminalEvent, *, unattended: int) -> RunEnd:
    """The ending that a turn's terminal event amounts to.

    ``unattended`` calls were refused because nobody could be asked.
    """
    summary = terminal.summary
    match terminal:
        case Failed(error=error):
            is_about_shape = isinstance(error, NoStructuredOutput)
            return RunEnd(
                Subtype.OUTPUT_SCHEMA if is_about_shape else Subtype.ERROR,
                exit_code_for(error),
                "max_structured_output_retries" if is_about_shape else kind_of(error),
                summary,
                str(error),
                terminal.unsaved,
                _retry_after_s(error),
            )
        case Cancelled(reason=reason):
            return RunEnd(Subtype.CANCELLED, ExitCode.FAILED, f"cancelled_{reason}", summary)
        case Done() if summary.outcome is Outcome.MAX_STEPS:
            limit = _LIMITS.get(summary.limit, _LIMITS["steps"])
            return RunEnd(limit.subtype, ExitCode.LIMIT, limit.reason, summary, limit.message)
        case Done():
            if unattended:
                return RunEnd(Subtype.SUCCESS, ExitCode.APPROVAL, "approval_needed", summary)
            reason = "wrapped_up" if summary.outcome is Outcome.WRAPPED_UP else "completed"
            return RunEnd(Subtype.SUCCESS, ExitCode.OK, reason, summary)


class _Limit(NamedTuple):
    subtype: Subtype
    reason: str
    message: str


_LIMITS = {
    "steps": _Limit(
        Subtype.MAX_TURNS,
        "max_turns",
        "stopped at the limit of model requests - give --max-turns more, or go on with --continue",
    ),
    "budget": _Limit(
        Subtype.MAX_BUDGET,
        "max_budget_usd",
        "stopped at the budget - give --max-budget-usd more, or go on with --continue",
    ),
    "time": _Limit(
        Subtype.TIMEOUT,
        "timeout",
        "stopped at the time limit - give --timeout more seconds, or go on with --continue",
    ),
}


def timed_out(summary: TurnSummary, timeout_s: float) -> RunEnd:
    """The run was stopped by ``--timeout``."""
    message = f"stopped after {timeout_s:g} s - give --timeout more seconds"
    return RunEnd(Subtype.TIMEOUT, ExitCode.LIMIT, "timeout", summary, message)


def signalled(summary: TurnSummary, code: ExitCode) -> RunEnd:
    """The run was stopped by a signal."""
    return RunEnd(Subtype.CANCELLED, code, code.name.lower(), summary, "cancelled")


def failed(error: AgentError) -> RunEnd:
    """The run ended before or outside a turn."""
    summary = TurnSummary(Outcome.ERROR)
    return RunEnd(Subtype.ERROR, exit_code_for(error), kind_of(error), summary, str(error))


def _retry_after_s(error: AgentError) -> float | None:
    """When it is worth trying again; nothing for a limit that does not pass by itself."""
    return error.retry_after_s if isinstance(error, ProviderError) and error.retryable else None
