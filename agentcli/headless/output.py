"""What goes to stdout and what to stderr, for each ``--output-format`` (CLI-5).

``text``: the final answer to stdout, progress to stderr. ``json``: one object. ``stream-json``: one
object per line. Laws: the answer, or the result object, comes exactly once and last; lines for the
user have no colour and move no cursor; nothing but the standard library and ``domain`` is imported
before the request has left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

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
    TextChunk,
    ThinkingChunk,
    ToolAnnounced,
    ToolFinished,
    ToolProgress,
    ToolRefused,
    ToolStarted,
    TurnStart,
)
from agentcli.domain.messages import ResultStatus
from agentcli.headless.result import RunEnd, RunFacts
from agentcli.headless.streams import is_terminal, use_utf8, write_error_line, write_out

Redact = Callable[[str], str]

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
_ANSWERED = {Outcome.DONE, Outcome.WRAPPED_UP, Outcome.MAX_STEPS}


class Output(Protocol):
    """Where events and the ending go."""

    def opened(self, facts: RunFacts) -> None:
        """The session is open."""

    def on_event(self, event: AgentEvent) -> None:
        """Something happened."""

    def ended(self, end: RunEnd, facts: RunFacts, *, more: bool = False) -> None:
        """The answer or the result object: of a turn when there may be ``more``, else the last."""


class Progress:
    """Lines about what happens, for stderr; how the turn ended is said by its end."""

    def __init__(self, write: Callable[[str], None], *, tools: bool, quiet: bool) -> None:
        self._write = write
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
                    self._write(text)
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
        timed = event.duration_s > 0 and not wording.has_duration(outcome)
        took = f" ({wording.duration(event.duration_s)})" if timed else ""
        # an outcome that does not stand right under its call says whose it is
        whose = "" if event.call.id == self._last_started else f"{summary}: "
        self._line(f"  {whose}{outcome}{took}")

    def _line(self, text: str) -> None:
        self._last_started = ""
        self._write(text)


class TextOutput:
    """The final answer on stdout. On a terminal it is shown as it comes.

    With ``only_result`` nothing goes there but a result in the shape that was asked for (CTRL-5).
    """

    def __init__(self, redact: Redact, *, quiet: bool, only_result: bool = False) -> None:
        self._redact = redact
        self._only_result = only_result
        self._live = is_terminal(sys.stdout) and not only_result
        self._progress = Progress(_to_stderr(redact), tools=not quiet, quiet=quiet)
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
        if self._sanitizer is None:
            from agentcli.ui.sanitize import Sanitizer

            self._sanitizer = Sanitizer()
        write_out(self._sanitizer.feed(text))
        self._open_line = True

    def _end_line(self) -> None:
        if self._open_line:
            write_out(self._sanitizer.finish() + "\n")
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

            if end.summary.outcome in _COMPLETE and not end.is_error:
                use_utf8()
                write_out(self._redact(dumps(end.summary.structured)) + "\n")
        elif end.summary.outcome in _ANSWERED and text:
            write_out(text if text.endswith("\n") else text + "\n")


class JsonOutput:
    """One result object, or with ``stream`` one object per event before it."""

    def __init__(self, redact: Redact, *, stream: bool, partial: bool, quiet: bool) -> None:
        from agentcli.headless.stream_json import StreamWriter

        use_utf8()
        self._stream = stream
        self.writer = StreamWriter(lambda line: write_out(redact(line)), partial)
        self._progress = Progress(_to_stderr(redact), tools=False, quiet=quiet)

    def opened(self, facts: RunFacts) -> None:
        """The ``system/init`` line."""
        if not self._stream:
            return
        from agentcli import __version__

        self.writer.init(facts, __version__)

    def on_event(self, event: AgentEvent) -> None:
        """One or more lines, and warnings to stderr."""
        if self._stream:
            self.writer.on_event(event)
        self._progress.on_event(event)

    def ended(self, end: RunEnd, facts: RunFacts, *, more: bool = False) -> None:
        """The result object."""
        from agentcli.headless.stream_json import result_object

        self.writer.result(result_object(end, facts), more=more)


def _to_stderr(redact: Redact) -> Callable[[str], None]:
    return lambda line: write_error_line(redact(line))
