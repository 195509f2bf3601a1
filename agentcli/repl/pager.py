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
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import chain
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
from agentcli.ui.rows import fit, packed
from agentcli.ui.sanitize import clean_line

_SGR = re.compile(rb"\x1b\[[0-9;]*m")
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
        self._is_stopped = False

    async def show(self, session: Session, newest: ToolFinished | None) -> bool:
        """The whole session at its last call; false when there is nothing to show.

        ``newest`` is a call that the session's file may not hold: the user's own.
        """
        if self._is_stopped:
            return True
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
        """The chat ends, or the user does not want to see it after all."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def _shown(self, session: Session, newest: ToolFinished | None) -> bool:
        terminal, cwd = self._terminal, self._cwd
        chosen = command_for(("PAGER",), (), cwd, os.environ)
        is_painted = chosen is None or is_less(chosen)

        async def write() -> Transcript:
            file = await asyncio.to_thread(TemporaryFile, "w+b", prefix="agentcli-")
            try:
                made = Transcript(file, terminal.theme, terminal.screen.size, painted=is_painted)
                await made.write_all(session.pages(), session.raw_output)
                if newest is not None and newest.call.id not in made.calls:
                    raw = await session.raw_output(newest.call.id)
                    await asyncio.to_thread(made.add_call, newest, raw)
                await asyncio.to_thread(file.flush)
            except BaseException:
                file.close()
                raise
            return made

        transcript = await write()
        with transcript.file as file:
            if transcript.is_empty:
                return False
            async with self._aside():
                if chosen is not None:
                    line = bisect_right(transcript.whole, transcript.last_call)
                    await asyncio.to_thread(page_file, file, line, cwd, os.environ)
                elif terminal.theme.live:
                    await Pager(terminal, transcript, write).run()
                else:
                    await asyncio.to_thread(_print_all, file)
        return True


class Pager:
    """The pager while it is open; ``write`` lays the session out for the window as it is then."""

    def __init__(
        self,
        terminal: Terminal,
        transcript: Transcript,
        write: Callable[[], Awaitable[Transcript]],
    ) -> None:
        self._terminal = terminal
        self._transcript = transcript
        self._write = write
        self._laid_out = transcript.columns  # or is being
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
        try:
            await self._application.run_async(handle_sigint=False, set_exception_handler=False)
        finally:
            self._transcript.file.close()

    async def _lay_out(self) -> None:
        """Write it again for the width that the window has now; what is seen stays in sight."""
        new = await self._write()
        old = self._transcript
        if new.columns != self._laid_out:  # it has changed again
            new.file.close()
            return
        self._transcript = new
        old.file.close()
        block, line = old.line_in_block(self._top, is_folded=self._is_folded)
        self._top = new.line_of_block(block, line, is_folded=self._is_folded)
        self._move(0)
        self._application.invalidate()

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
        file = self._transcript.file
        file.seek(self._places[number])
        return file.readline(_MAX_LINE_BYTES).rstrip(b"\n")

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
        """The next line that holds what is looked for; after the last one comes the first."""
        wanted = self._query.casefold()
        for number in chain(range(begin, self._count()), range(begin)):
            text = _SGR.sub(b"", self._line(number)).decode("utf-8", "replace")
            if wanted in text.casefold():
                self._top = max(0, min(number, self._count() - 1))
                self._said = "" if number >= begin else "from the beginning"
                return
        self._said = f"{clean_line(self._query)} is not found"

    # --- what is seen ----------------------------------------------------------------------

    def _shown(self) -> StyleAndTextTuples:
        columns, room = self._terminal.screen.size.columns, self._room()
        if columns != self._laid_out:
            self._laid_out = columns
            self._application.create_background_task(self._lay_out())
        last = min(self._top + room, self._count())
        rows = [self._line(number).decode("utf-8", "replace") for number in range(self._top, last)]
        tuples: StyleAndTextTuples = []
        for row in [*rows, *[""] * (room - len(rows))]:
            tuples += [*to_formatted_text(ANSI(row)), ("", "\n")]
        return [*tuples, ("reverse", fit(self._status(last, columns), columns).ljust(columns))]

    def _status(self, last: int, columns: int) -> str:
        """Where it is and what can be done; the most important as far as there is room."""
        if self._is_typing:
            return f"/{clean_line(self._query)}"
        how = "folded" if self._is_folded else "shown"
        lines = f"lines {self._top + 1}-{max(last, 1)} of {max(self._count(), 1)}"
        keys = ("q closes", f"t thinking ({how})", "/ search", *(["n next"] if self._query else ()))
        row = packed((self._said, lines, *keys), columns)[0]
        return row if keys[0] in row else packed((*keys[:1], self._said), columns)[0]

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
