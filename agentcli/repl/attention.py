"""Calling the person: the window's title, a bell or a desktop notification (UI-6).

Law: what a title or notification says is sanitized (SEC-10) and short; with notifications off
nothing rings; the title that was there before is asked back at the end.

Sequences: OSC 2 and XTWINOPS 22, 23 (https://invisible-island.net/xterm/ctlseqs/ctlseqs.html),
OSC 9 (iTerm2, kitty, WezTerm, Windows Terminal, ghostty).
"""

from __future__ import annotations

from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line
from agentcli.ui.screen import Screen

MAX_TITLE = 120
_SAVE_TITLE = "\x1b[22;2t"
_RESTORE_TITLE = "\x1b[23;2t"


class Attention:
    """``how`` is ``bell``, ``desktop`` or ``off``."""

    def __init__(self, screen: Screen, how: str = "bell") -> None:
        self._screen = screen
        self._how = how
        self._title = ""

    def title(self, text: str) -> None:
        """Name the window."""
        wanted = fit(clean_line(text), MAX_TITLE)
        if wanted == self._title:
            return
        save = "" if self._title else _SAVE_TITLE
        self._title = wanted
        self._screen.send(f"{save}\x1b]2;{wanted}\x07")

    def give_title_back(self) -> None:
        """The chat ends."""
        if self._title:
            self._title = ""
            self._screen.send(_RESTORE_TITLE)

    def call(self, text: str) -> None:
        """Something waits for the person."""
        if self._how == "bell":
            self._screen.send("\x07")
        elif self._how == "desktop":
            self._screen.send(f"\x1b]9;agentcli: {fit(clean_line(text), MAX_TITLE)}\x07")
