"""prompt-toolkit's renderer, replaced: it says when to draw, ``LiveScreen`` knows how.

Law: the terminal's modes (marked pastes) are on exactly while the region is shown.
"""

from __future__ import annotations

from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import BaseStyle

from agentcli.ui.live_screen import Compose, LiveScreen

_PASTE_ON = "\x1b[?2004h"
_PASTE_OFF = "\x1b[?2004l"
_PATIENCE_S = 0.5  # with a terminal that takes nothing, before others write to it


class LiveRenderer(Renderer):
    """Draws rows by ``compose`` on ``screen``; the application's layout serves the keys only."""

    def __init__(
        self, style: BaseStyle, output: Output, screen: LiveScreen, compose: Compose
    ) -> None:
        self._screen = screen
        self._compose = compose
        super().__init__(style, output)

    def reset(
        self,
        _scroll: bool = False,  # noqa: FBT001, FBT002 - the signature of the base class
        leave_alternate_screen: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        """Somebody else has the terminal."""
        del _scroll, leave_alternate_screen

    def request_absolute_cursor_position(self) -> None:
        """Not asked for a frame: it knows where it stands by itself, but after a resize."""

    def report_absolute_cursor_row(self, row: int) -> None:
        """The answer to what the screen asks after a resize; ``row`` counts from 1."""
        self._screen.cursor_is_at(row - 1)

    def render(
        self,
        app: Application[Any],
        layout: Layout,
        is_done: bool = False,  # noqa: FBT001, FBT002 - the signature of the base class
    ) -> None:
        """Draw a frame; when done, take the region away."""
        del app, layout
        if is_done:
            self.erase()
        elif self._screen.is_shown:
            self._screen.paint()
        else:
            self._screen.send(_PASTE_ON)
            self._screen.show(self._compose)

    def erase(
        self,
        leave_alternate_screen: bool = True,  # noqa: FBT001, FBT002 - as in the base class
    ) -> None:
        """Take the region away, for something else to be written there.

        prompt-toolkit leaves the alternate screen but when the terminal was resized.
        """
        if not leave_alternate_screen:
            self._screen.resized()
        elif self._screen.is_shown:
            self._screen.hide()
            self._screen.send(_PASTE_OFF)
            self._screen.drain(_PATIENCE_S)

    def clear(self) -> None:
        """Ctrl-L."""
        self._screen.clear()
