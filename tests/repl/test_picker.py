"""Choosing a session at a terminal: search in titles and texts, preview, narrow windows."""

from __future__ import annotations

import re

import pytest

from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.repl.picker import by_number
from tests.repl.chat import Start, at_prompt


def info(number: int, title: str) -> SessionInfo:
    return SessionInfo(f"id{number}", title, "/w", 0, 0, SessionStatus.DONE, 1, "p/m")


INFOS = [info(1, "fix parser"), info(2, "write docs"), info(12, "parser docs")]


@pytest.mark.spec("UI-8")
@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ("1", "id1"),
        (" 3 ", "id12"),
        ("0", None),
        ("4", None),
        ("id2", "id2"),
        ("id", None),
        ("", None),
    ],
)
def test_a_number_or_an_id_names_a_session(answer: str, chosen: str | None) -> None:
    assert by_number(answer, INFOS) == chosen


@pytest.mark.spec("UI-8")
def test_texts_are_searched_and_the_chosen_one_is_previewed(start: Start) -> None:
    terminal = start()
    terminal.line("/resume")
    terminal.wait_for("> about fix the parser")
    terminal.key("down")
    terminal.wait_for("> about write the docs")
    terminal.send("zebra")
    terminal.wait_for("Found: where [zebra] stands")
    terminal.wait_for("1 found")
    terminal.send("\x15")
    terminal.wait_for("2 found")
    terminal.key("end")
    terminal.send("\x17")
    terminal.key("home")
    terminal.wait_for("> about fix the parser")
    terminal.key("enter")
    terminal.wait_for("Resumed: fix the parser")
    at_prompt(terminal)


@pytest.mark.spec("UI-8", "OPS-1")
@pytest.mark.parametrize(("rows", "cols"), [("12", "20"), ("6", "30"), ("40", "120")])
def test_every_window_has_room_for_the_choice(start: Start, rows: str, cols: str) -> None:
    terminal = start(ROWS=rows, COLS=cols, ready="> Ask")
    terminal.line("/resume")
    terminal.wait_for("2 found")
    terminal.wait_for(re.compile("> fix the pars"))
    assert all(len(line.rstrip()) <= int(cols) for line in terminal.screen())
    terminal.key("down")
    terminal.wait_for(re.compile("> write the d"))
    terminal.key("esc")
    terminal.wait_gone("found.")
    terminal.wait_for("> Ask")
