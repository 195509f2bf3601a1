"""What the lists to choose from share: their application, the keys that move and leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from agentcli.repl.keys import ESCAPE_S
from agentcli.repl.terminal import Terminal

_MOVES = {"up": -1, "c-p": -1, "down": 1, "c-n": 1}
_PAGES = {"pageup": -1, "pagedown": 1}


def list_application(
    terminal: Terminal, shown: Callable[[], StyleAndTextTuples], bindings: KeyBindings
) -> Application[Any]:
    """A list below what was printed, gone when it is done; no timers."""
    application: Application[Any] = Application(
        layout=Layout(Window(FormattedTextControl(shown))),
        key_bindings=bindings,
        color_depth=terminal.color_depth,
        input=terminal.input,
        output=terminal.output,
        erase_when_done=True,
        terminal_size_polling_interval=None,
    )
    application.ttimeoutlen = ESCAPE_S
    return application


def bind_moves(
    bindings: KeyBindings,
    move: Callable[[int], None],
    page: Callable[[], int],
    total: Callable[[], int],
) -> None:
    """Arrows, pages, both ends: ``move`` gets how many rows; it knows where the ends are."""
    for key, by in _MOVES.items():
        bindings.add(key)(lambda _, by=by: move(by))
    for key, by in _PAGES.items():
        bindings.add(key)(lambda _, by=by: move(by * page()))
    bindings.add("home")(lambda _: move(-total()))
    bindings.add("end")(lambda _: move(total()))


def bind_leaving(bindings: KeyBindings) -> None:
    """Esc, Ctrl-C and Ctrl-D end the application with ``None``; Ctrl-Z suspends it."""

    @bindings.add("c-z")
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @bindings.add("escape", eager=True)
    @bindings.add("c-c")
    @bindings.add("c-d")
    @bindings.add("<sigint>")
    def _leave(event: KeyPressEvent) -> None:
        event.app.exit(result=None)
