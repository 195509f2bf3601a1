"""The three standard streams as they really are: closed, broken, in odd encodings (CLI-12).

Law: a reader that went away (``| head -1``) ends the program quietly; a closed descriptor is
never left free for a session file to take its number.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import IO

_NARROWEST = 20  # columns of a terminal for which lines are wrapped
_STDIN_FD, _STDOUT_FD = 0, 1
_LONGEST_READ = 1 << 16


def prepare_standard_streams() -> None:
    """Make all three descriptors exist and no character unprintable. Call it first."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # the lowest free number is taken: exactly the one that is missing
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def use_utf8() -> None:
    """Make stdout UTF-8 whatever the locale, for JSON (RFC 8259, section 8.1)."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def argument_text(argument: str) -> str:
    """A command-line argument as clean text: bytes that are not UTF-8 become U+FFFD."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return os.fsencode(argument).decode("utf-8", "replace")
    return argument


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether ``stream`` is an open terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def forget_typed_ahead() -> None:
    """What was typed on the terminal and not read yet is for nobody, the user's shell least."""
    import termios

    try:
        if os.tcgetpgrp(_STDIN_FD) == os.getpgrp():  # a job in the background would be stopped
            termios.tcflush(_STDIN_FD, termios.TCIFLUSH)
    except (OSError, termios.error):
        pass  # no terminal


async def typed_line() -> str:
    """One line of the terminal; what there is of it at its end (Ctrl-D).

    Never waits for the rest of a line: half of one, which Ctrl-D sends as well, would hold up all
    that goes on, and Ctrl-C.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    typed = bytearray()
    terminal = _terminal_that_never_waits()

    def ready() -> None:
        if line.done():
            return
        try:
            data = os.read(terminal, _LONGEST_READ)
        except BlockingIOError:  # Ctrl-C has taken it back
            return
        except OSError:  # the terminal is gone
            data = b""
        typed.extend(data)
        if not data or b"\n" in data or b"\r" in data:
            line.set_result(bytes(typed))

    loop.add_reader(terminal, ready)
    try:
        return next(iter((await line).decode("utf-8", "replace").splitlines()), "")
    finally:
        loop.remove_reader(terminal)
        os.close(terminal)


def _terminal_that_never_waits() -> int:
    """A descriptor of its own: that of stdin is shared with the shell, and has to stay as it is."""
    try:
        return os.open(os.ttyname(_STDIN_FD), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # it is somebody else's, as after ``su``
        return os.dup(_STDIN_FD)


def write_out(text: str) -> None:
    """Write to stdout and flush; raises ``BrokenPipeError`` when the reader is gone."""
    write_pieces((text,))


def write_pieces(pieces: Iterable[str]) -> None:
    """The same for a text that is made while it is written."""
    try:
        _write(sys.stdout, pieces)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def write_line(text: str) -> None:
    """A line for people to stdout, on a terminal wrapped between words; raises as ``write_out``."""
    write_out(_for_width(text, sys.stdout) + "\n")


def check_reader() -> None:
    """Raise ``BrokenPipeError`` when the reader of stdout is gone; for who waits before writing."""
    poller = getattr(select, "poll", None)  # Windows has none
    if poller is None or sys.stdout is None or sys.stdout.closed:
        return
    poll = poller()
    poll.register(_STDOUT_FD, 0)
    if any(found & select.POLLERR for _, found in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "the reader of the output is gone")


def write_error_line(text: str) -> None:
    """One line to stderr, without control sequences (SEC-10).

    A stderr that is gone is nobody's problem.
    """
    if not text.isprintable():
        from agentcli.ui.sanitize import clean

        text = clean(text)
    try:
        _write(sys.stderr, (_for_width(text, sys.stderr) + "\n",))
    except OSError:
        silence(sys.stderr)


def _for_width(text: str, stream: IO[str] | None) -> str:
    """``text`` as it is, or as rows for the width of the terminal that ``stream`` is."""
    if stream is None or not is_terminal(stream):
        return text
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:  # it is gone: writing says so
        return text
    if columns < _NARROWEST or (len(text) <= columns and text.isascii()):
        return text
    from agentcli.ui.rows import wrap_line

    return "\n".join(wrap_line(text, columns))


def _write(stream: IO[str] | None, pieces: Iterable[str]) -> None:
    if stream is not None and not stream.closed:
        stream.writelines(pieces)
        stream.flush()


def silence(stream: IO[str] | None) -> None:
    """Point ``stream`` at /dev/null, so that the interpreter's last flush says nothing."""
    if stream is None:
        return
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
