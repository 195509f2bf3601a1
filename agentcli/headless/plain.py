"""Progress of ``agent run`` in words, line by line, for stderr (CLI-5).

Law: no colour, no cursor movement, nothing imported beyond the standard library and ``domain``:
this is on the path to the first request.
"""

from __future__ import annotations

from collections.abc import Callable

from agentcli.domain.events import (
    AgentEvent,
    Cancelled,
    Failed,
    Notice,
    RetryWait,
    ToolAnnounced,
    ToolFinished,
    ToolRefused,
    ToolStarted,
)
from agentcli.domain.messages import ResultStatus
from agentcli.ui import wording
from agentcli.ui.sanitize import clean, clean_line


class PlainRenderer:
    """Writes a line for each event worth one. ``write`` gets whole lines with their line feed."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._summaries: dict[str, str] = {}
        self._last_started = ""

    def on_event(self, event: AgentEvent) -> None:  # noqa: C901 - one arm per event
        """Show ``event``."""
        match event:
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
            case Failed():
                message, advice = wording.failure(event)
                self._line(f"error: {message}" + (f" - {advice}" if advice else ""))
                if event.unsaved:
                    self._line(f"this could not be saved anywhere:\n{clean(event.unsaved)}")
            case Cancelled():
                self._line("cancelled; what was done so far is saved")
            case _:
                if line := wording.news(event):
                    self._line(line)

    def _finished(self, event: ToolFinished) -> None:
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
        self._write(f"{text}\n")
