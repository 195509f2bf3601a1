"""The terminal driver shows what a person sees, and sends what a person types."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from tests.support.pty_driver import Terminal


def python(code: str, **options: int) -> Terminal:
    return Terminal([sys.executable, "-c", code], **options)  # type: ignore[arg-type]


def test_text_colours_and_cursor_moves_end_as_lines_on_the_screen() -> None:
    with python(r"print('\x1b[31mred\x1b[0m one\n\x1b[>1utwo\x1b[A\x1b[3Gthree')") as terminal:
        assert terminal.wait_exit() == 0
        assert terminal.screen()[:2] == ["rethree", "two"]
        assert b"\x1b[31mred" in terminal.raw


def test_lines_that_scroll_off_are_kept() -> None:
    with python("for i in range(100): print('line', i)", rows=10) as terminal:
        assert terminal.wait_exit() == 0
        assert terminal.scrollback()[0] == "line 0"
        assert terminal.screen()[-2] == "line 99"
        assert [f"line {i}" for i in range(100)] == terminal.text().split("\n")
        assert terminal.wait_for("line 5\n", scrolled=True)


def test_the_cursors_place_is_answered_with_the_truth() -> None:
    code = (
        "import sys, tty, termios; old = termios.tcgetattr(0); tty.setcbreak(0);"
        "print('abc', end='\\x1b[6n', flush=True); reply = '';\n"
        "while not reply.endswith('R'): reply += sys.stdin.read(1)\n"
        "termios.tcsetattr(0, 0, old); print(repr(reply))"
    )
    with python(code) as terminal:
        assert terminal.wait_for(re.compile(r"'\\x1b\[1;4R'"))
        assert terminal.wait_exit() == 0 and terminal.restored


def test_typed_text_keys_and_lines_arrive() -> None:
    with python("print('>', input('? ').upper()); input('more')") as terminal:
        terminal.wait_for("?")
        terminal.line("hello")
        terminal.wait_for("> HELLO")
        terminal.wait_for("more")
        terminal.key("ctrl-d")
        terminal.wait_for("EOFError")
        assert terminal.wait_exit() == 1


def test_ctrl_c_is_a_signal_where_the_program_lets_it() -> None:
    code = "import time; print('ready', flush=True); time.sleep(60)"
    with python(code) as terminal:
        terminal.wait_for("ready")
        terminal.key("ctrl-c")
        assert terminal.wait_exit() == -signal.SIGINT
        assert "KeyboardInterrupt" in terminal.text()


def test_a_changed_size_reaches_the_program_and_the_screen() -> None:
    code = (
        "import os, signal; print('start', os.get_terminal_size(), flush=True)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})\n"
        "print('ready', flush=True)\nsignal.sigwait({signal.SIGWINCH})\n"
        "print('now', os.get_terminal_size(), flush=True)"
    )
    with python(code, rows=24, cols=80) as terminal:
        terminal.wait_for("columns=80, lines=24")
        terminal.wait_for("ready")
        terminal.resize(10, 60)
        terminal.wait_for("now os.terminal_size(columns=60, lines=10)")
        assert terminal.wait_exit() == 0
        assert len(terminal.screen()) == 10


def test_a_smaller_window_keeps_its_last_lines_and_scrolls_the_rest() -> None:
    code = "for i in range(24): print('line', i)\ninput('prompt')"
    with python(code) as terminal:
        terminal.wait_for("prompt")
        terminal.resize(5, 40)
        assert terminal.screen() == [*(f"line {i}" for i in range(20, 24)), "prompt"]
        assert terminal.cursor == (4, 6)
        assert [f"line {i}" for i in range(20)] == terminal.scrollback()
        terminal.resize(8, 40)
        terminal.send("x")
        terminal.wait_for("promptx")


@pytest.mark.slow
def test_a_closed_window_hangs_the_program_up() -> None:
    with python("import time; print('ready', flush=True); time.sleep(60)") as terminal:
        terminal.wait_for("ready")
        terminal.hang_up()
        assert terminal.wait_exit() == -signal.SIGHUP


def test_a_terminal_left_raw_is_noticed() -> None:
    with python("import tty; tty.setraw(0); print('\\x1b[?25l')") as terminal:
        terminal.wait_exit()
        assert not terminal.restored


def test_waiting_for_what_never_comes_fails_with_the_screen() -> None:
    with python("print('something else'); input()") as terminal:
        terminal.wait_for("something")
        with pytest.raises(AssertionError, match="something else"):
            terminal.wait_for("nothing", timeout=0.1)
        terminal.kill(signal.SIGKILL)
        with pytest.raises(AssertionError, match="ended"):
            terminal.wait_for("nothing")


def test_closing_leaves_no_process() -> None:
    with python("import time; time.sleep(60)") as terminal:
        process = terminal.process
    assert process.returncode == -signal.SIGKILL
