"""What a person sees, whole screens, in three sizes (``tests/snapshots``)."""

from __future__ import annotations

import pytest

from tests.repl.chat import Start, at_prompt
from tests.support.pty_driver import Terminal
from tests.support.screens import SIZES, golden, matches_snapshot

pytestmark = [
    pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}"),
    pytest.mark.sampled,
]
Size = tuple[int, int]


def begin(start: Start, size: Size, *arguments: str) -> Terminal:
    return start(*arguments, COLS=str(size[0]), ROWS=str(size[1]), PLAY_CWD="/work")


def check(terminal: Terminal, scene: str, size: Size) -> None:
    assert matches_snapshot(f"{scene}-{size[0]}x{size[1]}", golden(terminal))


@pytest.mark.spec("UI-1", "UI-6")
def test_an_answer(start: Start, size: Size) -> None:
    terminal = begin(start, size)
    terminal.line("markdown")
    terminal.wait_for("That is all.")
    at_prompt(terminal)
    check(terminal, "answer", size)


@pytest.mark.slow
@pytest.mark.spec("UI-1", "UI-3")
def test_a_stream_with_something_queued_and_something_typed(start: Start, size: Size) -> None:
    terminal = begin(start, size)
    terminal.line("hang")
    terminal.wait_for("thinking about it")
    terminal.line("say next")
    terminal.wait_for("└ say next")
    terminal.send("and then")
    terminal.wait_for("> and then")
    terminal.wait_for("Working · 1 s")
    check(terminal, "streaming", size)


@pytest.mark.slow
@pytest.mark.spec("UI-2")
def test_a_running_command(start: Start, size: Size) -> None:
    terminal = begin(start, size)
    terminal.line("tool wait")
    terminal.wait_for("second line")
    check(terminal, "running", size)


@pytest.mark.slow
@pytest.mark.spec("UI-7", "UI-2")
def test_an_approval_of_a_change(start: Start, size: Size) -> None:
    terminal = begin(start, size)
    terminal.line("edit")
    terminal.wait_for("Enter confirms")
    check(terminal, "approval", size)


@pytest.mark.spec("CAN-13", "UI-2")
def test_a_cancel(start: Start, size: Size) -> None:
    terminal = begin(start, size)
    terminal.line("tool ls")
    terminal.wait_for("exit 0")
    at_prompt(terminal)
    terminal.line("hang")
    terminal.wait_for("thinking about it")
    terminal.key("ctrl-c")
    terminal.wait_for("Cancelled.")
    at_prompt(terminal)
    check(terminal, "cancel", size)


@pytest.mark.spec("UI-8")
def test_a_resumed_session(start: Start, size: Size) -> None:
    terminal = begin(start, size, "--interrupted")
    check(terminal, "resume", size)


@pytest.mark.spec("UI-4")
def test_the_keys(start: Start, size: Size) -> None:
    terminal = begin(start, size)
    terminal.send("?")
    terminal.wait_for("new line")
    check(terminal, "keys", size)


@pytest.mark.spec("UI-4")
def test_commands_are_completed(start: Start, size: Size) -> None:
    terminal = begin(start, size)
    terminal.send("/st")
    terminal.wait_for("/status")
    check(terminal, "completion", size)
