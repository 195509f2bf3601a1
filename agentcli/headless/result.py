"""How a run ends and what it writes: the answer, the result object, the exit code (CLI-5, CLI-6).

``text``: the final answer to stdout, progress to stderr. ``json``: one object. ``stream-json``: one
object per line. Laws: every path makes exactly one ``RunEnd``; subtype and exit code are decided
here and nowhere else; the answer, or the result object, comes exactly once and last; lines for the
user have no colour and move no cursor; nothing but the standard library and ``domain`` is imported
before the request has left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from agentcli.domain.errors import AgentError, NoStructuredOutput, ProviderError, kind_of
from agentcli.domain.events import (
    AgentEvent,
    ApprovalWaiting,
    AssistantRecorded,
    CallForming,
    Cancelled,
    Done,
    Failed,
    Notice,
    Outcome,
    PromptRecorded,
    RetryWait,
    StepStart,
    TerminalEvent,
    TextChunk,
    ThinkingChunk,
    ToolAnnounced,
    ToolFinished,
    ToolProgress,
    ToolRefused,
    ToolStarted,
    TurnStart,
    TurnSummary,
)
from agentcli.domain.messages import ResultStatus
from agentcli.domain.values import frozen, mutable
from agentcli.headless.errors import ExitCode, exit_code_for, one_line
from agentcli.headless.streams import is_terminal, use_utf8, write_error_line, write_out

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundTask

Redact = Callable[[str], str]

_LONGEST_LINE = 8_000  # characters
# worth no line: what is shown otherwise, and what comes before the request (import budget)
_SILENT = (
    TextChunk,
    TurnStart,
    PromptRecorded,
    StepStart,
    ThinkingChunk,
    CallForming,
    Done,
    Cancelled,
    Failed,
)
_OF_TOOLS = (
    AssistantRecorded,
    ToolAnnounced,
    ApprovalWaiting,
    ToolRefused,
    ToolStarted,
    ToolProgress,
    ToolFinished,
)
_COMPLETE = {Outcome.DONE, Outcome.WRAPPED_UP}
_ANSWERED = {*_COMPLETE, Outcome.MAX_TOKENS}
_MOST_SAID = 10_000  # characters on stderr; the session and the other formats have all of it
_CUT = {Outcome.MAX_STEPS, Outcome.TIMED_OUT}


class Subtype(StrEnum):
    """``subtype`` of the result line."""

    SUCCESS = "success"
    ERROR = "error_during_execution"
    MAX_TURNS = "error_max_turns"
    MAX_BUDGET = "error_max_budget_usd"
    TIMEOUT = "error_timeout"
    OUTPUT_SCHEMA = "error_max_structured_output_retries"
    MAX_TOKENS = "error_max_tokens"
    APPROVAL = "error_approval_needed"
    CANCELLED = "cancelled"


_WITH_RESULT = {Subtype.SUCCESS, Subtype.APPROVAL}


@mutable
class RunFacts:
    """What is known of a run beside its end; filled as it becomes known."""

    session_id: str = ""
    model: str = ""
    cwd: str = ""
    tools: tuple[str, ...] = ()
    permission_mode: str = ""
    duration_s: float = 0.0
    extensions: Mapping[str, Sequence[str]] = field(default_factory=dict)
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
        case Done() if summary.outcome in {Outcome.MAX_STEPS, Outcome.TIMED_OUT}:
            subtype, reason, message = _LIMITS.get(summary.limit, _LIMITS["steps"])
            return RunEnd(subtype, ExitCode.LIMIT, reason, summary, message)
        case Done() if summary.outcome is Outcome.MAX_TOKENS:
            message = (
                "the answer was cut at the model's output limit - raise max_output_tokens, or go on"
                " with --continue"
            )
            return RunEnd(Subtype.MAX_TOKENS, ExitCode.LIMIT, "max_tokens", summary, message)
        case Done():
            if unattended:
                calls = "1 call" if unattended == 1 else f"{unattended} calls"
                message = (
                    f"{calls} needed an approval and nobody could give it - allow them with"
                    " --allow-tool RULE, or all but protected places with --yolo"
                )
                code = ExitCode.APPROVAL
                return RunEnd(Subtype.APPROVAL, code, "approval_needed", summary, message)
            reason = "wrapped_up" if summary.outcome is Outcome.WRAPPED_UP else "completed"
            return RunEnd(Subtype.SUCCESS, ExitCode.OK, reason, summary)


_LIMITS = {
    "steps": (
        Subtype.MAX_TURNS,
        "max_turns",
        "stopped at the limit of model requests - give --max-turns more, or go on with --continue",
    ),
    "budget": (
        Subtype.MAX_BUDGET,
        "max_budget_usd",
        "stopped at the budget - give --max-budget-usd more, or go on with --continue",
    ),
    "pause": (
        Subtype.MAX_BUDGET,
        "paused",
        "paused at --pause-usd - run it again with the same --session-id, or with --continue",
    ),
    "time": (
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


def result_object(end: RunEnd, facts: RunFacts) -> dict[str, Any]:
    """The last line of stream-json, and all of ``--output-format json``."""
    from agentcli.headless.stream_json import denial, new_uuid, usage_object

    summary = end.summary
    errors = [end.message or end.terminal_reason] if end.is_error else []
    result = {
        "type": "result",
        "subtype": str(end.subtype),
        "is_error": end.is_error,
        "result": summary.text or "".join(errors),
        "session_id": facts.session_id,
        "num_turns": summary.steps,
        "duration_ms": round(facts.duration_s * 1000),
        "duration_api_ms": round(summary.api_duration_s * 1000),
        "total_cost_usd": summary.cost_usd,
        "usage": usage_object(summary.usage),
        "permission_denials": [denial(event) for event in facts.refused],
        "structured_output": summary.structured,
        "terminal_reason": end.terminal_reason,
        "stop_reason": summary.stop_reason or None,
        "errors": errors,
        "uuid": new_uuid(),
    }
    if summary.truncated:
        result["truncated"] = list(summary.truncated)
    if summary.compaction.is_known:
        result["compaction_usage"] = usage_object(summary.compaction)
    if end.retry_after_s is not None:
        result["retry_after_s"] = round(end.retry_after_s, 3)
    return result


def write_failure(message: str, reason: str, *, subtype: str = "", session_id: str = "") -> None:
    """The result of a run that has no other (CLI-5); a reader that has gone misses it."""
    end = RunEnd(
        Subtype(subtype or Subtype.ERROR),
        ExitCode.FAILED,
        reason,
        TurnSummary(Outcome.ERROR),
        message,
    )
    from agentcli.headless.stream_json import dumps

    use_utf8()
    with suppress(OSError):
        write_out(dumps(result_object(end, RunFacts(session_id))) + "\n")


# --- what is written while it runs, and at its end -----------------------------------------


class Progress:
    """Lines about what happens, for stderr; how the turn ended is said by its end."""

    def __init__(self, redact: Redact, *, tools: bool, quiet: bool) -> None:
        self._redact = redact
        self._silent = (*_SILENT, *(() if tools else _OF_TOOLS))
        self._quiet = quiet
        self._summaries: dict[str, str] = {}
        self._last_started = ""

    def on_event(self, event: AgentEvent) -> None:  # noqa: C901 - one arm per event
        """Write a line, if the event is worth one."""
        if self._quiet or isinstance(event, self._silent):
            return
        from agentcli.ui import wording
        from agentcli.ui.sanitize import clean, clean_line

        match event:
            case AssistantRecorded():
                if event.message.tool_calls and (text := clean(event.message.text).strip()):
                    write_error_line(self._redact(text))
            case ToolAnnounced():
                self._summaries[event.call.id] = clean_line(event.summary)
            case ToolStarted():
                self._summaries[event.call.id] = clean_line(event.summary)
                self._line(f"* {clean_line(event.summary)}")
                self._last_started = event.call.id
            case ToolRefused():
                how = "nobody could be asked" if event.unattended else "refused"
                summary = self._summaries.get(event.call.id, clean_line(event.call.name))
                self._line(f"! {summary}: {how}: {clean_line(event.reason)}")
            case ToolFinished():
                self._finished(event)
            case RetryWait():
                self._line(wording.retry(event))
            case Notice():
                self._line(f"{'! ' if event.is_warning else ''}{clean_line(event.text)}")
            case _:
                if line := wording.news(event):
                    self._line(line)

    def _finished(self, event: ToolFinished) -> None:
        from agentcli.ui import wording
        from agentcli.ui.sanitize import clean_line

        summary = self._summaries.pop(event.call.id, clean_line(event.call.name))
        if event.result.status is ResultStatus.REFUSED:
            return
        outcome = wording.outcome(event, summary)
        timed = event.duration_s >= wording.FELT_S and not wording.has_duration(outcome)
        took = f" ({wording.duration(event.duration_s)})" if timed else ""
        # an outcome that does not stand right under its call says whose it is
        whose = "" if event.call.id == self._last_started else f"{summary}: "
        self._line(f"  {whose}{outcome}{took}")

    def _line(self, text: str) -> None:
        self._last_started = ""
        line = self._redact(text)
        write_error_line(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…")


class TextOutput:
    """The final answer on stdout. On a terminal it is shown as it comes.

    What a run had said when it was stopped at a limit is no answer and goes to stderr (CLI-5).
    With ``only_result`` nothing goes there but a result in the shape that was asked for (CTRL-5).
    Control sequences of the answer stay out, in a pipe too, unless ``is_raw``: a pipe may end at a
    terminal (SEC-10, CLI-4).
    """

    def __init__(
        self, redact: Redact, *, quiet: bool, only_result: bool = False, is_raw: bool = False
    ) -> None:
        self._redact = redact
        self._is_raw = is_raw
        self._is_quiet = quiet
        self._only_result = only_result
        self._live = is_terminal(sys.stdout) and not only_result
        self._progress = Progress(redact, tools=not quiet, quiet=quiet)
        self._sanitizer: Any = None
        self._open_line = False

    def opened(self, facts: RunFacts) -> None:
        """Nothing to say yet."""

    def on_event(self, event: AgentEvent) -> None:
        """Progress to stderr; on a terminal, text as it comes."""
        if not self._live:
            self._progress.on_event(event)
        elif isinstance(event, TextChunk):
            self._show(event.text)
        else:
            self._end_line()
            if not isinstance(event, AssistantRecorded):
                self._progress.on_event(event)

    def _show(self, text: str) -> None:
        self._open_line = True
        if self._is_raw:
            write_out(text)
            return
        if self._sanitizer is None:
            from agentcli.ui.sanitize import Sanitizer

            self._sanitizer = Sanitizer()
        write_out(self._sanitizer.feed(text))

    def _end_line(self) -> None:
        if self._open_line:
            write_out((self._sanitizer.finish() if self._sanitizer else "") + "\n")
            self._open_line = False

    def ended(self, end: RunEnd, facts: RunFacts, *, more: bool = False) -> None:
        """The answer, unless it stands on the terminal already."""
        del facts, more
        if self._live:
            self._end_line()
            return
        text = self._redact(end.summary.text)
        if self._only_result:
            from agentcli.headless.stream_json import dumps

            if end.summary.outcome in _COMPLETE and end.subtype in _WITH_RESULT:
                use_utf8()
                write_out(dumps(end.summary.structured) + "\n")  # as it was asked for (SEC-9)
        elif end.summary.outcome in _ANSWERED and text:
            if not self._is_raw:
                from agentcli.ui.sanitize import clean

                text = clean(text)
            write_out(text)
            if not text.endswith("\n"):
                write_out("\n")
        elif end.summary.outcome in _CUT and text and not self._is_quiet:
            before = len(text) - _MOST_SAID
            cut = f" (without the first {before:,} characters)" if before > 0 else ""
            write_error_line(f"it had said so far, which is no answer{cut}:\n{text[-_MOST_SAID:]}")


class JsonOutput:
    """One result object, or with ``stream`` one object per event before it."""

    def __init__(self, redact: Redact, *, stream: bool, partial: bool, quiet: bool) -> None:
        from agentcli.headless.stream_json import StreamWriter

        use_utf8()
        self._stream = stream
        self.writer = StreamWriter(write_out, partial, redact)
        self._progress = Progress(redact, tools=False, quiet=quiet)

    def opened(self, facts: RunFacts) -> None:
        """The ``system/init`` line."""
        if not self._stream:
            return
        self.writer.init(
            facts.session_id,
            facts.model,
            facts.cwd,
            facts.tools,
            facts.permission_mode,
            facts.extensions,
        )

    def on_event(self, event: AgentEvent) -> None:
        """One or more lines, and warnings to stderr."""
        if self._stream:
            self.writer.on_event(event)
        self._progress.on_event(event)

    def ended(self, end: RunEnd, facts: RunFacts, *, more: bool = False) -> None:
        """The result object."""
        self.writer.result(result_object(end, facts), more=more)


Output = TextOutput | JsonOutput


def report_end(end: RunEnd, facts: RunFacts, *, verbose: bool) -> None:
    """What the user has to know on stderr: one line, if there is anything."""
    if verbose:
        from agentcli.domain.clean import plural
        from agentcli.ui.wording import cost, duration, tokens

        summary = end.summary
        requests, took = plural(summary.steps, "request"), duration(facts.duration_s)
        spent = f"{tokens(summary.usage)}, {took}, cost {cost(summary.cost_usd)}"
        write_error_line(f"{requests}, {spent}")
    if end.message:
        prefix = "error: " if end.is_error else ""
        write_error_line(prefix + one_line(end.message))
    if end.unsaved:
        from agentcli.ui.sanitize import clean

        write_error_line(f"this could not be saved anywhere:\n{clean(end.unsaved)}")


def report_background(task: BackgroundTask) -> None:
    """A background run was ended with the program (BG-7)."""
    from agentcli.ui.wording import background_ended

    write_error_line(background_ended(task))
