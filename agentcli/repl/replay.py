"""What was said before, shown again: a resumed session's end, and all of it (UI-8, UI-12).

Law: it is drawn by what drew it live (``TurnView``, ``ui``), from the session's file alone; the
end is bounded, and of the whole only a page is ever in memory.
"""

from __future__ import annotations

import asyncio
import io
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Sequence,
)
from typing import BinaryIO

from agentcli.app.past import Past
from agentcli.domain.clean import plural
from agentcli.domain.events import (
    AgentEvent,
    Notice,
    PromptRecorded,
    TextChunk,
    ThinkingChunk,
    ToolAnnounced,
    ToolFinished,
)
from agentcli.domain.messages import (
    ResultStatus,
    TextPart,
    ThinkingPart,
    UserMessage,
)
from agentcli.domain.session import LoadedSession, SessionPage, StoredMessage
from agentcli.repl.outside import overwritten
from agentcli.repl.turn_view import TurnView
from agentcli.ui import render
from agentcli.ui.diff import diff_lines, is_diff
from agentcli.ui.sanitize import clean
from agentcli.ui.screen import Screen, Size
from agentcli.ui.session_lines import call_words
from agentcli.ui.theme import DIM, Theme

REPLAY_LINES = 120
_REPLAY_MESSAGES = 60
_REPLAY_CHARS = 60_000

# --- the end of a session, for the screen -------------------------------------------------------


def replay_lines(
    loaded: LoadedSession, theme: Theme, size: Size, *, folds: bool = True
) -> list[str]:
    """The end of the conversation as it was drawn, painted; at most ``REPLAY_LINES`` lines."""
    messages = _newest(loaded.messages)
    if not messages:
        return []
    first = messages[0].seq
    notes = [note for note in loaded.notes if note.after_seq >= first]
    buffer = io.StringIO()
    view = TurnView(Screen(buffer, theme, lambda: size), folds=folds)
    for event in Past(call_words).events(messages, notes, loaded.runs):
        view.on_event(event)
    view.finish_replay()
    lines = buffer.getvalue().strip("\n").split("\n")
    is_summary = isinstance(messages[0].message, UserMessage) and messages[0].message.is_summary
    if len(lines) > REPLAY_LINES or len(messages) < len(loaded.messages) or is_summary:
        more = "Earlier messages: Ctrl-O shows the whole session."
        lines = [theme.paint(f"{theme.symbols.more} {more}", DIM), *lines[-REPLAY_LINES:]]
    return lines


def _newest(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """The end of ``messages``, from a prompt on where one is near enough."""
    at = len(messages)
    characters = 0
    while at > 0 and len(messages) - at < _REPLAY_MESSAGES and characters < _REPLAY_CHARS:
        at -= 1
        characters += _characters(messages[at])
    chosen = messages[at:]
    prompts = [n for n, each in enumerate(chosen) if isinstance(each.message, UserMessage)]
    if at > 0 and prompts and prompts[0] < len(chosen) // 2:
        return chosen[prompts[0] :]
    return chosen


def _characters(stored: StoredMessage) -> int:
    parts = getattr(stored.message, "parts", ())
    return sum(len(part.text) for part in parts if isinstance(part, TextPart | ThinkingPart))


# --- the whole session, for a pager -------------------------------------------------------------


class Transcript:
    """The whole session as painted lines in ``file``; where they begin is all that is kept.

    ``folded`` are the places of all lines but those of folded thinking, ``whole`` of all;
    ``last_call`` is the place of the last tool call's line, or of the end. ``painted`` is false
    for a pager that may not know colours. No line is wider than ``columns``.
    """

    encoding = "utf-8"

    def __init__(self, file: BinaryIO, theme: Theme, size: Size, *, painted: bool = True) -> None:
        self.whole = array("Q", [0])
        self.folded = array("Q", [0])
        self.last_call = 0
        self.calls: set[str] = set()
        self.file = file
        self.columns = size.columns
        self._blocks = array("Q", [0])  # where something begins, the same for every width
        self._theme = theme if painted else Theme(color=False, attributes=False, live=False)
        self._place = 0
        self._in_thinking = False
        self._screen = Screen(self, self._theme, lambda: size)  # type: ignore[arg-type]  # all of a stream that it uses
        self._past = Past(call_words)
        self._lines: dict[str, str] = {}

    async def write_all(
        self,
        pages: AsyncIterator[SessionPage],
        raw_output: Callable[[str], Awaitable[bytes | None]],
    ) -> None:
        """Draw every page, in a thread; ``raw_output`` finds what is kept beside a result."""
        async for page in pages:
            drawn: list[AgentEvent] = []
            for event in self._past.events(page.messages, page.notes, page.runs):
                if not isinstance(event, ToolFinished):
                    drawn.append(event)
                    continue
                raw = await raw_output(event.call.id)
                await asyncio.to_thread(self._add_all, drawn, event, raw)
                drawn = []
            await asyncio.to_thread(self._add_all, drawn, None, None)

    def _add_all(
        self, events: Sequence[AgentEvent], call: ToolFinished | None, raw: bytes | None
    ) -> None:
        for event in events:
            self._blocks.append(self._place)
            self._add(event)
        if call is not None:
            self.add_call(call, raw)

    def _add(self, event: AgentEvent) -> None:
        screen, theme = self._screen, self._theme
        match event:
            case PromptRecorded():
                text = event.message.typed
                screen.print_block(render.prompt_lines(text, theme, screen.columns, fills=False))
            case ThinkingChunk():
                self._thinking(event.text)
            case TextChunk():
                screen.feed_text(event.text)
                screen.end_text()
            case ToolAnnounced():
                self._lines[event.call.id] = event.summary
            case Notice():
                screen.print_block([render.notice_line(event, theme)])
            case _:
                screen.end_text()

    def _thinking(self, text: str) -> None:
        """The head is a line of both views, what follows one of the whole alone."""
        lines = [line.rstrip() for line in clean(text).strip().split("\n")]
        head = f"Thinking ({plural(len(lines), 'line')})"
        self._screen.print_block([self._theme.paint(head, DIM)])
        self._in_thinking = True
        self._screen.print_block([self._theme.paint(f"  {x}", DIM) for x in lines], gap=False)
        self._in_thinking = False

    def add_call(self, event: ToolFinished, raw: bytes | None) -> None:
        """A call with all of its output."""
        self.calls.add(event.call.id)
        line = self._lines.pop(event.call.id, "") or call_words(event.call)
        head = render.call_line(line, self._theme, event.result.status)
        outcome = render.outcome_lines(event, line, self._theme)[:1]
        self._screen.gap()
        self.last_call = self._place
        self._blocks.append(self._place)
        self._screen.print_block([head, *outcome, *self._output(event, raw, line)], gap=False)

    def _output(self, event: ToolFinished, raw: bytes | None, line: str) -> list[str]:
        if event.display and is_diff(event.display):
            return diff_lines(event.display, self._theme, named=line)
        shown = overwritten(raw) if raw is not None else event.display or event.result.text
        if event.result.status is ResultStatus.REFUSED:
            return []  # what it says is for the model
        lines = clean(shown).rstrip("\n")
        return lines.split("\n") if lines else []

    # --- places that stay when it is written again for another width -------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said."""
        return len(self.whole) == 1

    def line_in_block(self, line: int, *, is_folded: bool) -> tuple[int, int]:
        """In which block a line is, and how many of its lines are before it."""
        places = self.folded if is_folded else self.whole
        block = bisect_right(self._blocks, places[line]) - 1
        return block, line - bisect_left(places, self._blocks[block])

    def line_of_block(self, block: int, line: int, *, is_folded: bool) -> int:
        """The line of the view that the same of another width is at."""
        places = self.folded if is_folded else self.whole
        first = bisect_left(places, self._blocks[block])
        return min(first + line, len(places) - 1)

    # --- what ``Screen`` uses of a stream ---------------------------------------------------

    def write(self, text: str) -> None:
        """More painted text."""
        data = text.encode("utf-8", "replace")
        self.file.write(data)
        at = data.find(b"\n")
        while at >= 0:
            place = self._place + at + 1
            self.whole.append(place)
            if self._in_thinking:
                self.folded[-1] = place
            else:
                self.folded.append(place)
            at = data.find(b"\n", at + 1)
        self._place += len(data)

    def flush(self) -> None:
        """When all is there."""
