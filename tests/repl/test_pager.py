"""The session in a pager of our own, over the chat that goes on (UI-12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repl.conftest import Start

CLOSES = "q closes"


@pytest.mark.spec("UI-12", "UI-7", "SEC-7")
def test_what_comes_while_the_pager_is_open_waits_below_it_and_no_sandbox_is_waited_for(
    start: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    terminal = start("--interrupted", "--looking", ready="Resumed", PAGER="")
    terminal.line(f"busyapprove {gate}")
    terminal.wait_for("busy")
    terminal.send("\x0f\x0f")  # the second closes what the first has begun to open
    terminal.key("ctrl-o")
    terminal.wait_for(CLOSES)
    before = terminal.screen()
    bells = len(terminal.raw)
    gate.touch()
    terminal.wait_raw(b"\x07", start=bells)
    assert terminal.screen() == before
    terminal.resize(24, 30)
    terminal.wait_until(lambda: "q closes" in terminal.text(), what="a narrow one")
    terminal.send("q")
    terminal.wait_for("Allow this?")
    terminal.wait_for("Enter confirms")
    terminal.confirm("n")
    terminal.wait_for("verdict")
