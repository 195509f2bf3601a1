"""The terminal of a chat: its input, its output, and who has it at the moment.

Law: outside a ``with`` block of this file the terminal is as it was found, also after an
exception. Cursor-position queries are not used: a terminal that does not answer them would
hold up every prompt.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.output.vt100 import Vt100_Output

from agentcli.ui.frame import ALL_ROWS
from agentcli.ui.live_screen import LiveScreen
from agentcli.ui.rows import Rows
from agentcli.ui.sanitize import reveal
from agentcli.ui.screen import Screen, TerminalWriter
from agentcli.ui.theme import SPOKEN, Theme, theme_for

# --- keys while the agent works ---------------------------------------------------------------

# How long the rest of an escape sequence may take until a lone Esc is the key (UI-3). Terminals
# send a sequence in one piece; a network may break it in two.
ESCAPE_S = 0.05 if os.environ.get("SSH_CONNECTION") else 0.015

_IGNORED = frozenset(
    {Keys.CPRResponse, Keys.Vt100MouseEvent, Keys.WindowsMouseEvent, Keys.Ignore, Keys.ControlZ}
)


class KeyReader:
    """Owns the terminal's input between two prompts.

    Law: Ctrl-C and Esc act at once; everything else that is typed is kept, in order, for the next
    prompt and never echoed. What was typed before a cancel comes back as text to edit, not as a
    message that is sent.
    """

    def __init__(self, source: Input, output: Output) -> None:
        self._source = source
        self._output = output
        self._on_interrupt: Callable[[], None] = lambda: None
        self._on_background: Callable[[], None] = lambda: None
        self._typed: list[KeyPress] = []
        self._escape: asyncio.TimerHandle | None = None
        self._paused = False

    @contextmanager
    def reading(
        self,
        on_interrupt: Callable[[], None],
        on_background: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Read keys, unechoed, until the block ends; typed text then goes to the next prompt.

        ``on_interrupt`` is called for each Ctrl-C or Esc, ``on_background`` for each Ctrl-B.
        """
        self._on_interrupt, self._on_background = on_interrupt, on_background
        self._typed = get_typeahead(self._source)
        try:
            with self._source.raw_mode(), self._source.attach(self._ready):
                self._marked_pastes(on=True)
                try:
                    yield
                finally:
                    self._drain()
                    self._marked_pastes(on=False)
        finally:
            if self._escape is not None:
                self._escape.cancel()
                self._escape = None
            store_typeahead(self._source, self._typed)
            self._typed = []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let something else (a prompt for a line) have the terminal meanwhile."""
        self._drain()
        kept, self._typed = self._typed, []
        self._paused = True
        try:
            with self._source.detach():
                yield
        finally:
            self._paused = False
            self._typed = kept + get_typeahead(self._source)
            self._marked_pastes(on=True)

    def cancelled(self) -> None:
        """A cancel was asked for: Enter typed before it no longer sends anything."""
        self._typed = [
            KeyPress(Keys.ControlJ, "\n") if key.key == Keys.ControlM else key
            for key in self._typed
        ]

    # --- keys ------------------------------------------------------------------------------

    def _marked_pastes(self, *, on: bool) -> None:
        with suppress(OSError):
            if on:
                self._output.enable_bracketed_paste()
            else:
                self._output.disable_bracketed_paste()
            self._output.flush()

    def _drain(self) -> None:
        """Take what the terminal has and was not read yet."""
        if not self._paused and not self._source.closed:
            self._take(self._source.read_keys())

    def _ready(self) -> None:
        self._take(self._source.read_keys())
        if self._escape is not None:
            self._escape.cancel()
        loop = asyncio.get_running_loop()
        self._escape = loop.call_later(ESCAPE_S, self._flush_escape)

    def _flush_escape(self) -> None:
        """No more came after an Esc: it was the key itself."""
        self._escape = None
        keys = self._source.flush_keys()
        if [key.key for key in keys] == [Keys.Escape]:
            self._interrupt()
        else:
            self._take(keys)

    def _take(self, keys: list[KeyPress]) -> None:
        for key in keys:
            if key.key in {Keys.ControlC, Keys.SIGINT}:
                self._interrupt()
            elif key.key == Keys.ControlB:
                self._on_background()
            elif key.key == Keys.ControlZ:
                self._suspend()
            elif key.key not in _IGNORED:
                self._typed.append(key)

    def _interrupt(self) -> None:
        self.cancelled()
        self._on_interrupt()

    def _suspend(self) -> None:
        """Ctrl-Z: stop the program with the terminal as the shell wants it."""
        self._marked_pastes(on=False)
        with self._source.cooked_mode():
            os.kill(0, signal.SIGTSTP)
        self._marked_pastes(on=True)


# --- what the terminal says by itself ---------------------------------------------------------

# Control sequences and strings (ECMA-48): answers to what other programs have asked, reports of
# focus, keys in protocols that nobody has switched on here
_SEQUENCE = re.compile(
    r"\x1b(?:\[(?:M(?s:.{3})|\[[A-E]|(?![M[])[0-?]*[ -/]*[@-~])"
    r"|[]PX^_][^\x00-\x1f\x7f]{0,4096}(?:\x07|\x1b\\))"
)
_UNENDED = re.compile(
    r"\x1b(?:\[(?:M(?s:.{0,2})|\[|[0-?]*[ -/]*)?|[]PX^_][^\x00-\x1f\x7f]{0,4096}\x1b?)?\Z"
)
# what nobody types: its rest may take its time
_REPORT = re.compile(r"\x1b(?:\[[<-?]|\]\d+;|P[\d>!][$+|])")
_PASTE = "\x1b[200~"


class KeyParser(Vt100Parser):
    """Keys out of what a terminal sends, and nothing else: a report is not typed (UI-7)."""

    _held = ""

    def feed(self, data: str) -> None:
        """More that the terminal has sent."""
        if self._in_bracketed_paste:
            super().feed(data)
            return
        text, self._held = self._held + data, ""
        at = 0
        while (escape := text.find("\x1b", at)) >= 0:
            super().feed(text[at:escape])
            found = _SEQUENCE.match(text, escape)
            if found is not None and found[0] == _PASTE:
                super().feed(text[escape:])
                return
            if found is None and _UNENDED.match(text, escape):
                self._held = text[escape:]
                return
            at = escape + 1 if found is None else found.end()
            if found is None or self._get_match(found[0]):
                super().feed(text[escape:at])
        super().feed(text[at:])

    def flush(self) -> None:
        """No more has come for a while: what was begun is keys by itself."""
        if not _REPORT.match(self._held):
            held, self._held = self._held, ""
            super().feed(held)
        super().flush()


# --- the terminal -----------------------------------------------------------------------------


# Shift-Enter, where the terminal tells it from Enter (kitty's protocol, xterm's modifyOtherKeys)
for _sequence in ("\x1b[13;2u", "\x1b[27;2;13~"):
    ANSI_SEQUENCES[_sequence] = Keys.ControlJ


# terminals that wrap lines again when they are made narrower, by what they set
_REFLOWING = (
    "VTE_VERSION", "KITTY_WINDOW_ID", "WEZTERM_PANE", "ITERM_SESSION_ID", "WT_SESSION",
    "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID", "GHOSTTY_RESOURCES_DIR", "TMUX",
)  # fmt: skip
_PATIENCE_S = 2.0  # with a terminal that takes nothing, at the end
_IN_FRONT_S = 0.3  # how often it is looked for after "bg"
_REFLOWING_TERMS = (  # the one thing that ssh passes on
    "alacritty", "foot", "tmux", "vte", "wezterm", "xterm-ghostty", "xterm-kitty",
)  # fmt: skip
_REFLOWING_PROGRAMS = frozenset({"vscode", "Apple_Terminal", "iTerm.app", "WezTerm", "ghostty"})


def reflows(env: Mapping[str, str]) -> bool:
    """Whether the terminal wraps lines again when its width changes; no when it is not known."""
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
            self.theme.symbols = SPOKEN
        self.input: Input = create_input(sys.stdin)
        if isinstance(self.input, Vt100Input):
            self.input.vt100_parser = KeyParser(self.input.vt100_parser.feed_key_callback)
        stream = sys.stdout if self.theme.live else self._writer.as_stream()
        self.output: Output = PlainTextOutput(stream) if self.is_dumb else create_output(stream)
        if isinstance(self.output, Vt100_Output):
            self.output.enable_cpr = False
        self.screen: Screen = Screen(stream, self.theme)
        if self.theme.live:
            self.screen = LiveScreen(self._writer, self.theme, reflows=reflows(os.environ))
        self.keys = KeyReader(self.input, self.output)
        self._waiting: asyncio.TimerHandle | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keys come unechoed and one by one from here on, also between two prompts.

        Prompts that are not given an output write to this terminal (they do so when dumb).
        """
        with create_app_session(self.input, self.output), ExitStack() as modes:
            modes.enter_context(self.input.raw_mode())
            self._keep_early_keys()
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGCONT, self._go_on, modes)

            def caught_up() -> None:
                loop.call_soon_threadsafe(self.screen.request)

            self._writer.on_ready = caught_up
            try:
                yield
            finally:
                loop.remove_signal_handler(signal.SIGCONT)
                self._stop_waiting()
                self.drain()

    def _go_on(self, modes: ExitStack) -> None:
        """After a stop the terminal is ours again, at once or later: "bg", then "fg"."""
        self._stop_waiting()
        with suppress(OSError):
            if os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp():
                self._take_again(modes)
            else:  # a shell tells nobody who runs already that it is in front now
                loop = asyncio.get_running_loop()
                self._waiting = loop.call_later(_IN_FRONT_S, self._go_on, modes)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _take_again(self, modes: ExitStack) -> None:
        """Go on after a stop by another program (SIGSTOP): the shell has set the terminal since."""
        screen, terminal = self.screen, sys.stdin.fileno()
        if not isinstance(screen, LiveScreen) or not screen.is_shown:
            return
        with suppress(OSError, termios.error):
            if termios.tcgetattr(terminal)[tty.LFLAG] & termios.ICANON:
                modes.enter_context(self.input.raw_mode())
                self.output.enable_bracketed_paste()
                screen.written_over()

    def drain(self) -> None:
        """Wait until all is written, before others write to the terminal."""
        self._writer.drain(_PATIENCE_S)

    def _keep_early_keys(self) -> None:
        """What was typed before the terminal was ours is for the first prompt.

        The terminal has turned each Enter of it into a line feed, and has shown it.
        """
        early = [
            KeyPress(Keys.ControlM, "\r") if key.key == Keys.ControlJ else key
            for key in self.input.read_keys()
        ]
        store_typeahead(self.input, early)
        if early and self.theme.live:
            self._take_back(early)

    def give_up_typed(self) -> None:
        """Say what was typed for a chat that does not begin; the shell does not get it."""
        keys = get_typeahead(self.input) + self.input.read_keys()
        text = "".join("\n" if key.key == Keys.ControlM else key.data for key in keys)
        for line in filter(None, text.splitlines()):
            self.screen.print_block([f"Not sent: {reveal(line)}"], gap=False)

    def _take_back(self, echoed: list[KeyPress]) -> None:
        """Erase what the terminal has echoed: it will stand in the input."""
        rows = Rows(self.screen.size.columns)
        rows.feed("".join("\n" if key.key == Keys.ControlM else key.data for key in echoed))
        up = len(rows.rows) - (not rows.at_line_start)
        self.screen.send((f"\x1b[{up}A" if up else "") + f"\r{ALL_ROWS}")

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
