"""Lines for people at a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
from collections.abc import Iterator

import pytest

from agentcli.headless.streams import write_error_line, write_line

LONG = "error: the directory has no tasks that can be run - name a file of tasks"


@pytest.fixture
def narrow() -> Iterator[tuple[int, str]]:
    """A terminal of 40 columns: who reads it, and its name."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
    yield master, os.ttyname(slave)
    os.close(master)
    os.close(slave)


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_line_is_wrapped_between_words_on_a_terminal_and_nowhere_else(
    name: str,
    narrow: tuple[int, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write = write_line if name == "stdout" else write_error_line
    write(LONG)
    assert LONG + "\n" in capfd.readouterr()
    master, terminal = narrow
    with open(terminal, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, name, stream)
        write(LONG)
        write("[ok]   home: /home/somebody/.config can be written")
        monkeypatch.undo()
    read = b""
    while not read.endswith(b"be written\r\n"):
        read += os.read(master, 4096)
    assert read.decode().split("\r\n")[:-1] == [
        "error: the directory has no tasks that",
        "can be run - name a file of tasks",
        "[ok]   home: /home/somebody/.config can",
        "       be written",
    ]
