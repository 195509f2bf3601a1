"""A person at a terminal: a program in a real PTY, and what its screen shows.

A thread reads what the program writes, keeps it, feeds it to a terminal emulator and answers
the questions that programs ask of terminals (the cursor's place) with the emulator's truth.
Every wait is for a condition. The program is the leader of a session of its own with the PTY
as its controlling terminal, so keys become signals where the program lets them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

_KEYS = {
    "enter": "\r", "tab": "\t", "esc": "\x1b", "space": " ", "backspace": "\x7f",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
    "home": "\x1b[H", "end": "\x1b[F", "delete": "\x1b[3~", "shift-tab": "\x1b[Z",
    "page-up": "\x1b[5~", "page-down": "\x1b[6~", "alt-enter": "\x1b\r",
}  # fmt: skip
# pyte knows neither the kitty keyboard protocol nor xterm's modifyOtherKeys and would print them
_UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]")
_BRACKETED_PASTE = 2004 << 5
_HISTORY_LINES = 20_000
_PATIENCE_S = 0.5  # with a program that shows nothing of what it reads
_ACQUIRE = 'tty=$1; shift; exec "$@" 0<>"$tty" 1>&0 2>&0'


class _Screen(pyte.HistoryScreen):
    """The emulator's screen; answers go back to the program."""

    def __init__(self, columns: int, lines: int, answer: Callable[[bytes], None]) -> None:
        super().__init__(columns, lines, history=_HISTORY_LINES)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data.encode())

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """As terminals do it: what does not fit goes to the scrollback, from the top."""
        wanted = lines or self.lines
        surplus = self.lines - wanted
        below = self.lines - 1 - self.cursor.y
        scrolled = max(0, surplus - below)
        row, column = self.cursor.y, self.cursor.x
        for y in range(scrolled):
            self.history.top.append(self.buffer[y])
        if scrolled:
            self.cursor_position(1, 1)
            self.delete_lines(scrolled)
        self.lines = wanted
        super().resize(wanted, columns)
        if columns is not None and columns < self.columns:
            self.columns = columns
        self.cursor.y = min(row - scrolled, self.lines - 1)
        self.cursor.x = min(column, self.columns - 1)
        self.set_margins()


class Terminal:
    """``argv`` at a terminal of ``rows`` x ``cols``. A context manager that leaves no process."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        rows: int = 24,
        cols: int = 80,
    ) -> None:
        self._master, self._slave = os.openpty()
        self._lock = threading.Condition()
        self._screen = _Screen(cols, rows, self._write)
        self._stream = pyte.ByteStream(self._screen)
        self._raw = bytearray()
        self._tail = b""
        self._reads = 0
        self._read_to_end = False
        self._wake_read, self._wake_write = os.pipe()
        self._closed = False
        self._line_at: int | None = None
        self._set_size(rows, cols)
        self.modes_at_start = self.modes()
        environment = {**(os.environ if env is None else env), "TERM": "xterm-256color"}
        if env is not None and "TERM" in env:
            environment["TERM"] = env["TERM"]
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", _ACQUIRE, "sh", os.ttyname(self._slave), *argv],
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_all, name="pty-reader", daemon=True)
        self._reader.start()

    # --- life ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill what still runs and give everything back."""
        if self._closed:
            return
        self._closed = True
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        os.write(self._wake_write, b"q")
        self._reader.join(10)
        for fd in (self._master, self._slave, self._wake_read, self._wake_write):
            with contextlib.suppress(OSError):
                os.close(fd)

    # --- what a person does ----------------------------------------------------------------

    def send(self, text: str) -> None:
        """Type ``text`` as it is."""
        self._write(text.encode())

    def key(self, name: str) -> None:
        """Press ``ctrl-c``, ``enter``, ``up``, ``alt-x`` ...."""
        self.send(_key_text(name))

    def line(self, text: str) -> None:
        """Type ``text`` and press Enter, when the line before has been read and something shown.

        Lines that are read together are one input (UI-13).
        """
        if self._line_at is not None:
            with contextlib.suppress(AssertionError):
                self.wait_until(self._took_line, _PATIENCE_S)
        with self._lock:
            self._line_at = len(self._raw)
        self.send(text)
        self.key("enter")

    def _took_line(self) -> bool:
        return len(self._raw) > (self._line_at or 0) and not self._unread()

    def _unread(self) -> int:
        """How many bytes wait for the program."""
        if self._slave < 0:
            return 0
        with contextlib.suppress(OSError):
            found = fcntl.ioctl(self._slave, termios.FIONREAD, b"\0" * 4)
            return int.from_bytes(found, "little")
        return 0

    def confirm(self, letter: str) -> None:
        """Answer the question that waits: move to the choice of ``letter`` and press Enter."""
        self.wait_for("Enter confirms")
        self.line(letter)

    def paste(self, text: str) -> None:
        """Paste as terminals do when bracketed paste is on."""
        self.send(f"\x1b[200~{text}\x1b[201~" if self.bracketed_paste else text)

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of the window; the program gets SIGWINCH."""
        with self._lock:
            self._screen.resize(rows, cols)
        self._set_size(rows, cols)

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the program itself."""
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the window: the program loses its terminal and gets SIGHUP."""
        os.write(self._wake_write, b"q")
        self._reader.join(10)
        os.close(self._slave)
        os.close(self._master)
        self._slave = self._master = -1

    @contextlib.contextmanager
    def not_reading(self) -> Iterator[None]:
        """The terminal takes nothing more than one buffer full until the block ends."""
        with self._lock:
            yield

    # --- what a person sees ----------------------------------------------------------------

    @property
    def raw(self) -> bytes:
        """Everything the program has written so far."""
        with self._lock:
            return bytes(self._raw)

    def screen(self) -> list[str]:
        """The lines on screen, without trailing spaces."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def scrollback(self) -> list[str]:
        """The lines that have scrolled off, oldest first."""
        with self._lock:
            width = self._screen.columns
            return [_text_of(line, width) for line in self._screen.history.top]

    def text(self) -> str:
        """Scrollback and screen as one text."""
        with self._lock:
            return "\n".join([*self.scrollback(), *self.screen()]).rstrip()

    @property
    def columns(self) -> int:
        """The width of the window."""
        return int(self._screen.columns)

    @property
    def cursor(self) -> tuple[int, int]:
        """(row, column), both from 0."""
        with self._lock:
            return self._screen.cursor.y, self._screen.cursor.x

    @property
    def cursor_visible(self) -> bool:
        """Whether the cursor is shown."""
        with self._lock:
            return not self._screen.cursor.hidden

    @property
    def bracketed_paste(self) -> bool:
        """Whether the program has asked for pastes to be marked."""
        with self._lock:
            return _BRACKETED_PASTE in self._screen.mode

    @property
    def title(self) -> str:
        """The window's title."""
        with self._lock:
            return str(self._screen.title)

    def modes(self) -> list[Any]:
        """The line discipline's settings, as ``termios`` gives them."""
        return termios.tcgetattr(self._slave)

    @property
    def restored(self) -> bool:
        """Whether the terminal is as it was before the program: modes, cursor, paste."""
        return (
            self.modes() == self.modes_at_start and self.cursor_visible and not self.bracketed_paste
        )

    # --- waiting ---------------------------------------------------------------------------

    def wait_until(
        self, condition: Callable[[], Any], timeout: float = 10.0, what: str = "it"
    ) -> Any:
        """The first true value of ``condition``, looked at whenever something was written."""
        deadline = time.monotonic() + timeout
        with self._lock:
            while True:
                found = condition()
                if found:
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"{what} did not come in {timeout} s\n{self.dump()}")
                if self.process.poll() is not None and not self._lock.wait(min(left, 0.3)):
                    found = condition()
                    if found:
                        return found
                    code = self.process.returncode
                    raise AssertionError(f"the program ended ({code}) before {what}\n{self.dump()}")
                self._lock.wait(min(left, 0.1))

    def wait_for(
        self, wanted: str | re.Pattern[str], timeout: float = 10.0, *, scrolled: bool = False
    ) -> re.Match[str]:
        """Wait for a text or pattern on the screen; with ``scrolled`` in the scrollback too.

        Lines have no trailing spaces.
        """
        pattern = re.compile(re.escape(wanted)) if isinstance(wanted, str) else wanted

        def seen() -> re.Match[str] | None:
            return pattern.search(self.text() if scrolled else "\n".join(self.screen()))

        found: re.Match[str] = self.wait_until(seen, timeout, f"{pattern.pattern!r}")
        return found

    def wait_gone(self, text: str, timeout: float = 10.0) -> None:
        """Wait until ``text`` is no longer on the screen."""
        self.wait_until(lambda: text not in "\n".join(self.screen()), timeout, f"no {text!r}")

    def wait_raw(self, wanted: bytes, timeout: float = 10.0, *, start: int = 0) -> int:
        """Wait for bytes in the output from ``start`` on; their offset."""
        self.wait_until(lambda: self._raw.find(wanted, start) >= 0, timeout, repr(wanted))
        return self._raw.find(wanted, start)

    def wait_exit(self, timeout: float = 10.0) -> int:
        """The exit code (negative for a signal), once all output has been read."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s\n{self.dump()}") from None
        if self._master >= 0:
            with self._lock:
                reads = self._reads
                os.write(self._wake_write, b"s")
                self._lock.wait_for(lambda: self._reads > reads or self._read_to_end, timeout)
        return code

    def dump(self) -> str:
        """The screen and the last bytes, for a failure message."""
        lines = [f"|{line}" for line in self.screen()]
        while lines and lines[-1] == "|":
            lines.pop()
        return "\n".join([*lines, f"cursor {self.cursor}, last bytes {bytes(self._raw[-300:])!r}"])

    # --- machinery -------------------------------------------------------------------------

    def _set_size(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._master, data)

    def _read_all(self) -> None:
        while True:
            ready, _, _ = select.select([self._master, self._wake_read], [], [])
            if self._master in ready:
                try:
                    data = os.read(self._master, 65_536)
                except OSError:
                    with self._lock:
                        self._read_to_end = True
                        self._lock.notify_all()
                    return
                with self._lock:
                    self._feed(data)
                    self._lock.notify_all()
                continue
            if os.read(self._wake_read, 1) == b"q":
                return
            with self._lock:
                self._reads += 1
                self._lock.notify_all()

    def _feed(self, data: bytes) -> None:
        self._raw += data
        data = self._tail + data
        cut = data.rfind(b"\x1b")
        # a sequence may be split over two reads: keep its beginning for the next one
        incomplete = cut >= 0 and re.fullmatch(rb"\x1b(\[[<>=?0-9;]*)?", data[cut:]) is not None
        self._tail = data[cut:] if incomplete else b""
        whole = data[:cut] if incomplete else data
        self._stream.feed(_UNKNOWN_TO_PYTE.sub(b"", whole))


def _text_of(line: Mapping[int, Any], width: int) -> str:
    return "".join(line[x].data for x in range(width)).rstrip()


def _key_text(name: str) -> str:
    if name in _KEYS:
        return _KEYS[name]
    prefix, _, rest = name.rpartition("-")
    if prefix == "ctrl" and len(rest) == 1:
        return chr(ord(rest.upper()) ^ 0x40)
    if prefix == "alt":
        return "\x1b" + rest
    raise ValueError(f"no key {name!r}")
