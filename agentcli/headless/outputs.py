"""What a one-shot run writes where (CLI-5).

``text``: the answer to stdout, progress to stderr. ``json``: one object. ``stream-json``: one
object per line. Law: the answer, or the result object, comes exactly once and last.
"""

from __future__ import annotations

import sys
from dataclasses import field
from typing import Any, Protocol

from agentcli.cli.logging_setup import REDACTOR
from agentcli.cli.streams import is_terminal, use_utf8, write_error_line, write_out
from agentcli.domain.events import (
    AgentEvent,
    ApprovalWaiting,
    AssistantRecorded,
    CallForming,
    Cancelled,
    Done,
    Failed,
    Outcome,
    PromptRecorded,
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
from agentcli.domain.values import mutable
from agentcli.headless.ending import Ending

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


@mutable
class SessionFacts:
    """What is known of the run beside its ending; filled as it becomes known."""

    session_id: str = ""
    model: str = ""
    cwd: str = ""
    tools: tuple[str, ...] = ()
    permission_mode: str = ""
    duration_s: float = 0.0
    refused: list[ToolRefused] = field(default_factory=list)


class Output(Protocol):
    """Where events and the ending go."""

    def opened(self, facts: SessionFacts) -> None:
        """The session is open."""

    def on_event(self, event: AgentEvent) -> None:
        """Something happened."""

    def ended(self, ending: Ending, facts: SessionFacts, *, more: bool = False) -> None:
        """The answer or the result object: of a turn when there may be ``more``, else the last."""


class Progress:
    """Lines on stderr about what happens. How the turn ended is the ending's business."""

    def __init__(self, *, tools: bool, quiet: bool) -> None:
        self._tools = tools
        self._quiet = quiet
        self._renderer: Any = None

    def on_event(self, event: AgentEvent) -> None:
        """Say it, if it is worth a line."""
        if self._quiet or isinstance(event, _SILENT):
            return
        if not self._tools and isinstance(event, _OF_TOOLS):
            return
        if self._renderer is None:
            from agentcli.headless.plain import PlainRenderer

            self._renderer = PlainRenderer(
                lambda line: write_error_line(REDACTOR.redact_known(line.rstrip("\n")))
            )
        if isinstance(event, AssistantRecorded) and event.message.tool_calls:
            from agentcli.ui.sanitize import clean

            if text := clean(event.message.text).strip():
                write_error_line(REDACTOR.redact_known(text))
        self._renderer.on_event(event)


class TextOutput:
    """The final answer on stdout. On a terminal it is shown as it comes.

    With ``only_result`` nothing goes there but a result in the shape that was asked for (CTRL-5).
    """

    def __init__(self, *, quiet: bool, only_result: bool = False) -> None:
        self._only_result = only_result
        self._live = is_terminal(sys.stdout) and not only_result
        self._progress = Progress(tools=not quiet, quiet=quiet)
        self._sanitizer: Any = None
        self._open_line = False

    def opened(self, facts: SessionFacts) -> None:
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

    def ended(self, ending: Ending, facts: SessionFacts, *, more: bool = False) -> None:
        """The answer, unless it stands on the terminal already."""
        del facts, more
        if self._live:
            self._end_line()
            return
        text = REDACTOR.redact_known(ending.summary.text)
        if self._only_result:
            from agentcli.headless.stream_objects import dumps

            if ending.summary.outcome in _COMPLETE and not ending.is_error:
                use_utf8()
                write_out(REDACTOR.redact_known(dumps(ending.summary.structured)) + "\n")
        elif ending.summary.outcome in _ANSWERED and text:
            write_out(text if text.endswith("\n") else text + "\n")


class JsonOutput:
    """One result object, or with ``stream`` one object per event before it."""

    def __init__(self, *, stream: bool, partial: bool, quiet: bool) -> None:
        from agentcli.headless.jsonl import JsonlWriter

        use_utf8()
        self._stream = stream
        self.writer = JsonlWriter(lambda line: write_out(REDACTOR.redact_known(line)), partial)
        self._progress = Progress(tools=False, quiet=quiet)

    def opened(self, facts: SessionFacts) -> None:
        """The ``system/init`` line."""
        if not self._stream:
            return
        from agentcli import __version__
        from agentcli.headless.jsonl import InitInfo

        self.writer.init(
            InitInfo(
                session_id=facts.session_id,
                cwd=facts.cwd,
                model=facts.model,
                permission_mode=facts.permission_mode,
                tools=facts.tools,
                version=__version__,
            )
        )

    def on_event(self, event: AgentEvent) -> None:
        """One or more lines, and warnings to stderr."""
        if self._stream:
            self.writer.on_event(event)
        self._progress.on_event(event)

    def ended(self, ending: Ending, facts: SessionFacts, *, more: bool = False) -> None:
        """The result object."""
        from agentcli.headless.jsonl import RunFacts, build_result, denial

        run = RunFacts(
            session_id=facts.session_id,
            denials=[denial(event) for event in facts.refused],
            subtype=str(ending.subtype),
            terminal_reason=ending.terminal_reason,
            error=ending.message if ending.is_error else "",
            duration_ms=round(facts.duration_s * 1000),
            retry_after_s=ending.retry_after_s,
            structured_output=ending.summary.structured,
            summary=ending.summary,
        )
        self.writer.result(build_result(None, run), more=more)


def make_output(
    output_format: str, *, partial: bool, quiet: bool, only_result: bool = False
) -> Output:
    """The output for ``--output-format``; text for a format that is none, which is an error."""
    if output_format in {"json", "stream-json"}:
        return JsonOutput(stream=output_format == "stream-json", partial=partial, quiet=quiet)
    return TextOutput(quiet=quiet, only_result=only_result)
