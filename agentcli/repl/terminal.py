"""The terminal of a chat: its input, its output, and who has it at the moment.

Law: outside a ``with`` block of this file the terminal is as it was found, also after an
exception. Cursor-position queries are not used: a terminal that does not answer them would
hold up every prompt.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.output.vt100 import Vt100_Output

from agentcli.repl.keys import KeyReader
from agentcli.ui.live_screen import LiveScreen
from agentcli.ui.screen import Screen, TerminalWriter
from agentcli.ui.theme import Theme, theme_for

# Shift-Enter, where the terminal tells it from Enter (kitty's protocol, xterm's modifyOtherKeys)
for _sequence in ("\x1b[13;2u", "\x1b[27;2;13~"):
    ANSI_SEQUENCES[_sequence] = Keys.ControlJ


# terminals that break lines anew when they are made narrower, by what they set
_REFLOWING = (
    "VTE_VERSION", "KITTY_WINDOW_ID", "WEZTERM_PANE", "ITERM_SESSION_ID", "WT_SESSION",
    "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID", "GHOSTTY_RESOURCES_DIR", "TMUX",
)  # fmt: skip
_PATIENCE_S = 2.0  # with a terminal that takes nothing, at the end
_REFLOWING_TERMS = (  # the one thing that is told through ssh
    "alacritty", "foot", "tmux", "vte", "wezterm", "xterm-ghostty", "xterm-kitty",
)  # fmt: skip
_REFLOWING_PROGRAMS = frozenset({"vscode", "Apple_Terminal", "iTerm.app", "WezTerm", "ghostty"})


def reflows(env: Mapping[str, str]) -> bool:
    """Whether the terminal breaks lines anew when its width changes; no when it is not known."""
    if env.get("XTERM_VERSION") or env.get("STY"):
        return False
    if env.get("TERM", "").startswith(_REFLOWING_TERMS):
        return True
    return env.get("TERM_PROGRAM") in _REFLOWING_PROGRAMS or any(map(env.get, _REFLOWING))


class Terminal:
    """Standard input and output as a chat uses them."""

    def __init__(self, theme_name: str = "auto", *, screen_reader: bool = False) -> None:
        self.theme: Theme = theme_for(sys.stdout, os.environ, theme_name)
        self.is_dumb = not self.theme.live
        self._writer = TerminalWriter(sys.stdout)
        if screen_reader:
            self.theme.live = False
        self.input: Input = create_input(sys.stdin)
        stream = sys.stdout if self.theme.live else self._writer.as_stream()
        self.output: Output = PlainTextOutput(stream) if self.is_dumb else create_output(stream)
        if isinstance(self.output, Vt100_Output):
            self.output.enable_cpr = False
        self.screen: Screen = Screen(stream, self.theme)
        if self.theme.live:
            self.screen = LiveScreen(self._writer, self.theme, reflows=reflows(os.environ))
        self.keys = KeyReader(self.input, self.output)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keys come unechoed and one by one from here on, also between two prompts.

        Prompts that are not given an output write to this terminal (they do so when dumb).
        """
        with create_app_session(self.input, self.output), self.input.raw_mode():
            self._keep_early_keys()
            loop = asyncio.get_running_loop()

            def caught_up() -> None:
                loop.call_soon_threadsafe(self.screen.request)

            self._writer.on_ready = caught_up
            try:
                yield
            finally:
                self.drain()

    def drain(self) -> None:
        """Wait until all is written, before others write to the terminal."""
        self._writer.drain(_PATIENCE_S)

    def _keep_early_keys(self) -> None:
        """What was typed before the terminal was ours is for the first prompt.

        The terminal has turned each Enter of it into a line feed.
        """
        early = [
            KeyPress(Keys.ControlM, "\r") if key.key == Keys.ControlJ else key
            for key in self.input.read_keys()
        ]
        store_typeahead(self.input, early)

    def close(self) -> None:
        """Nothing more is written; what a terminal that went away did not take is dropped."""
        try:
            sys.stdout.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)

    @property
    def color_depth(self) -> ColorDepth:
        """As many colours as the theme allows."""
        return ColorDepth.DEPTH_4_BIT if self.theme.color else ColorDepth.DEPTH_1_BIT
