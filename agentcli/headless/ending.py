"""How a one-shot run ended: one value from which the result line and the exit code follow.

Law: every path makes exactly one ``Ending`` (CLI-5), and subtype and exit code are decided here
and nowhere else (CLI-6).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from agentcli.cli.logging_setup import REDACTOR
from agentcli.domain.errors import AgentError, NoStructuredOutput, ProviderError
from agentcli.domain.events import Cancelled, Done, Failed, Outcome, TerminalEvent, TurnSummary
from agentcli.domain.values import frozen
from agentcli.headless.exit_codes import ExitCode, exit_code_for


class Subtype(StrEnum):
    """``subtype`` of the result line."""

    SUCCESS = "success"
    ERROR = "error_during_execution"
    MAX_TURNS = "error_max_turns"
    MAX_BUDGET = "error_max_budget_usd"
    TIMEOUT = "error_timeout"
    OUTPUT_SCHEMA = "error_max_structured_output_retries"
    CANCELLED = "cancelled"


@frozen
class Ending:
    """``terminal_reason`` is a word for programs; ``message`` a line for people, maybe empty.

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
    def is_error(self) -> bool:
        """Whether the run did not do what it was asked for."""
        return self.subtype is not Subtype.SUCCESS


def ended_by(terminal: TerminalEvent, *, unattended: int) -> Ending:
    """The ending that a turn's terminal event amounts to.

    ``unattended`` calls were refused because nobody could be asked.
    """
    summary = terminal.summary
    match terminal:
        case Failed(error=error):
            is_about_shape = isinstance(error, NoStructuredOutput)
            return Ending(
                Subtype.OUTPUT_SCHEMA if is_about_shape else Subtype.ERROR,
                exit_code_for(error),
                "max_structured_output_retries" if is_about_shape else kind_of(error),
                summary,
                _said(error),
                terminal.unsaved,
                _retry_after_s(error),
            )
        case Cancelled(reason=reason):
            return Ending(Subtype.CANCELLED, ExitCode.FAILED, f"cancelled_{reason}", summary)
        case Done() if summary.outcome is Outcome.MAX_STEPS:
            limit = _LIMITS.get(summary.limit, _LIMITS["steps"])
            return Ending(limit.subtype, ExitCode.LIMIT, limit.reason, summary, limit.message)
        case Done():
            if unattended:
                return Ending(Subtype.SUCCESS, ExitCode.APPROVAL, "approval_needed", summary)
            reason = "wrapped_up" if summary.outcome is Outcome.WRAPPED_UP else "completed"
            return Ending(Subtype.SUCCESS, ExitCode.OK, reason, summary)


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


def timed_out(summary: TurnSummary, timeout_s: float) -> Ending:
    """The run was stopped by ``--timeout``."""
    message = f"stopped after {timeout_s:g} s - give --timeout more seconds"
    return Ending(Subtype.TIMEOUT, ExitCode.LIMIT, "timeout", summary, message)


def signalled(summary: TurnSummary, code: ExitCode) -> Ending:
    """The run was stopped by a signal."""
    return Ending(Subtype.CANCELLED, code, code.name.lower(), summary, "cancelled")


def failed(error: AgentError) -> Ending:
    """The run ended before or outside a turn."""
    summary = TurnSummary(Outcome.ERROR)
    return Ending(Subtype.ERROR, exit_code_for(error), kind_of(error), summary, _said(error))


def _retry_after_s(error: AgentError) -> float | None:
    """When it is worth trying again; nothing for a limit that does not pass by itself."""
    return error.retry_after_s if isinstance(error, ProviderError) and error.retryable else None


def _said(error: AgentError) -> str:
    """The error in words, without keys (SEC-9)."""
    return REDACTOR.redact(str(error))


def kind_of(error: AgentError) -> str:
    """A word for programs: the kind of a ``ProviderError``, else the class's name in snake case."""
    kind = getattr(error, "kind", None)
    if kind is not None:
        return str(kind)
    name = type(error).__name__
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
