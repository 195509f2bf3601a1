"""Our own pager: a transcript over the whole screen, thinking folded away or not (UI-12).

Law: what is on the screen is read from the file, line by line; the terminal is given back as it
was, also when a signal ends the chat.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from agentcli.app.session import Session
from agentcli.domain.events import ToolFinished
from agentcli.repl.outside import command_for, is_less, page_file
from agentcli.repl.replay import Transcript
from agentcli.repl.terminal import ESCAPE_S, Terminal
from agentcli.ui.rows import fit, wrap
from agentcli.ui.sanitize import clean_line

_SGR = re.compile(rb"\x1b\[[0-9;]*m")
_KEYS = "t thinking · / search · n next · q closes"
_MAX_LINE_BYTES = 100_000


def _print_all(file: BinaryIO) -> None:
    """For a terminal that is written line by line."""
    file.seek(0)
    shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.flush()


class Paging:
    """Shows a transcript, one at a time: in ``$PAGER`` where that is set, else in our own.

    ``aside`` gives the terminal away until its block ends, ``gone`` is called when the window was
    closed meanwhile.
    """

    def __init__(
        self,
        terminal: Terminal,
        cwd: Path,
        aside: Callable[[], AbstractAsyncContextManager[None]],
        gone: Callable[[], None],
    ) -> None:
        self._terminal = terminal
        self._cwd = cwd
        self._aside = aside
        self._gone = gone
        self._task: asyncio.Future[bool] | None = None

    async def show(self, session: Session, newest: ToolFinished | None) -> bool:
        """The whole session at its last call; false when there is nothing to show.

        ``newest`` is a call that the session's file may not hold: the user's own.
        """
        task = self._task = asyncio.ensure_future(self._shown(session, newest))
        try:
            await asyncio.wait({task})
            return task.cancelled() or task.result()
        except EOFError:
            self._gone()
            return True
        finally:
            task.cancel()

    def stop(self) -> None:
        """The chat ends."""
        if self._task is not None:
            self._task.cancel()

    async def _shown(self, session: Session, newest: ToolFinished | None) -> bool:
        terminal, cwd = self._terminal, self._cwd
        chosen = command_for(("PAGER",), (), cwd, os.environ)
        is_painted = chosen is None or is_less(chosen)
        with await asyncio.to_thread(lambda: TemporaryFile("w+b", prefix="agentcli-")) as file:
            transcript = Transcript(file, terminal.theme, terminal.screen.size, painted=is_painted)
            await transcript.write_all(session.pages(), session.raw_output)
            if newest is not None and newest.call.id not in transcript.calls:
                raw = await session.raw_output(newest.call.id)
                await asyncio.to_thread(transcript.add_call, newest, raw)
            if len(transcript.whole) == 1:
                return False
            await asyncio.to_thread(file.flush)
            async with self._aside():
                if chosen is None and not terminal.theme.live:
                    await asyncio.to_thread(_print_all, file)
                elif chosen is None:
                    await Pager(terminal, transcript, file).run()
                else:
                    line = bisect_right(transcript.whole, transcript.last_call)
                    await asyncio.to_thread(page_file, file, line, cwd, os.environ)
        return True


class Pager:
    """The pager while it is open."""

    def __init__(self, terminal: Terminal, transcript: Transcript, file: BinaryIO) -> None:
        self._terminal = terminal
        self._transcript = transcript
        self._file = file
        self._is_folded = True
        self._top = 0
        self._query = ""
        self._is_typing = False
        self._said = ""
        self._go_to(transcript.last_call)
        self._application: Application[None] = Application(
            layout=Layout(Window(FormattedTextControl(self._shown), wrap_lines=False)),
            key_bindings=self._bindings(),
            color_depth=terminal.color_depth,
            input=terminal.input,
            output=terminal.output,
            full_screen=True,
            terminal_size_polling_interval=None,
        )
        self._application.ttimeoutlen = ESCAPE_S

    async def run(self) -> None:
        """Until the user has seen enough."""
        await self._application.run_async(handle_sigint=False, set_exception_handler=False)

    # --- lines -----------------------------------------------------------------------------

    @property
    def _places(self) -> array[int]:
        return self._transcript.folded if self._is_folded else self._transcript.whole

    def _count(self) -> int:
        """How many lines there are; the last place is the end."""
        return len(self._places) - 1

    def _room(self) -> int:
        return max(1, self._terminal.screen.size.lines - 1)

    def _line(self, number: int) -> bytes:
        self._file.seek(self._places[number])
        return self._file.readline(_MAX_LINE_BYTES).rstrip(b"\n")

    def _go_to(self, place: int) -> None:
        """The line that holds ``place`` is the first on the screen, as far as there are lines."""
        self._top = 0
        self._move(bisect_right(self._places, place) - 1)

    def _move(self, by: int) -> None:
        self._top = max(0, min(self._top + by, self._count() - self._room()))

    def _toggle(self) -> None:
        place = self._places[self._top]
        self._is_folded = not self._is_folded
        self._go_to(place)

    def _find(self, begin: int) -> None:
        wanted = self._query.casefold()
        for number in range(begin, self._count()):
            text = _SGR.sub(b"", self._line(number)).decode("utf-8", "replace")
            if wanted in text.casefold():
                self._top = max(0, min(number, self._count() - 1))
                self._said = ""
                return
        self._said = f"{clean_line(self._query)} is not found below"

    # --- what is seen ----------------------------------------------------------------------

    def _shown(self) -> StyleAndTextTuples:
        size = self._terminal.screen.size
        columns, room = max(1, size.columns - 1), self._room()
        rows: list[str] = []
        number = self._top
        while len(rows) < room and number < self._count():
            rows += wrap(self._line(number).decode("utf-8", "replace"), columns) or [""]
            number += 1
        rows = [*rows[:room], *[""] * (room - len(rows))]
        tuples: StyleAndTextTuples = []
        for row in rows:
            tuples += [*to_formatted_text(ANSI(row)), ("", "\n")]
        return [*tuples, ("reverse", fit(self._status(number), columns).ljust(columns))]

    def _status(self, last: int) -> str:
        if self._is_typing:
            return f"/{clean_line(self._query)}"
        how = "folded" if self._is_folded else "shown"
        where = f"lines {self._top + 1}-{max(last, 1)} of {max(self._count(), 1)}"
        said = f"{self._said} · " if self._said else ""
        return f"{said}{where} · {_KEYS.replace('thinking', f'thinking ({how})')}"

    # --- keys ------------------------------------------------------------------------------

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        for key, by in {"up": -1, "down": 1}.items():
            bindings.add(key)(lambda _, by=by: self._move(by))
        for key, pages in {"pageup": -1, "pagedown": 1}.items():
            bindings.add(key)(lambda _, pages=pages: self._move(pages * self._room()))
        bindings.add("home")(lambda _: self._move(-self._count()))
        bindings.add("end")(lambda _: self._move(self._count()))
        bindings.add("c-z")(lambda event: event.app.suspend_to_background())
        for key in ("c-c", "c-d", "c-o", "<sigint>"):
            bindings.add(key)(lambda event: event.app.exit())
        bindings.add("escape", eager=True)(lambda event: event.app.exit())

        @bindings.add("enter")
        def _enter(_event: KeyPressEvent) -> None:
            if self._is_typing:
                self._is_typing = False
                self._find(self._top)
            else:
                self._move(1)

        @bindings.add("backspace")
        def _backspace(_event: KeyPressEvent) -> None:
            self._query = self._query[:-1] if self._is_typing else self._query

        @bindings.add(Keys.Any)
        def _key(event: KeyPressEvent) -> None:
            if self._is_typing:
                self._query += event.data if event.data.isprintable() else ""
            else:
                self._pressed(event)

        return bindings

    def _pressed(self, event: KeyPressEvent) -> None:
        page = self._room()
        steps = {"j": 1, "k": -1, " ": page, "f": page, "b": -page, "d": page // 2, "u": -page // 2}
        key = event.data
        if key in steps:
            self._move(steps[key])
        elif key in "gG":
            self._move(-self._count() if key == "g" else self._count())
        elif key == "t":
            self._toggle()
        elif key == "/":
            self._is_typing, self._query = True, ""
        elif key == "n" and self._query:
            self._find(self._top + 1)
        elif key == "q":
            event.app.exit()
