"""Choosing a session at a terminal: search in titles and texts, preview, narrow windows."""

from __future__ import annotations

import re

import pytest

from agentcli.app.library import SearchHit
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.repl.choosing import Match, Selection, by_number
from tests.repl.chat import Start, at_prompt


def info(number: int, title: str, cwd: str = "/w") -> SessionInfo:
    return SessionInfo(f"id{number}", title, cwd, 0, 0, SessionStatus.DONE, 1, "p/m")


INFOS = [info(1, "fix parser"), info(2, "write docs", "/home/me/site"), info(12, "parser docs")]


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


# --- What a list of sessions shows for what was typed


def chosen(selection: Selection) -> str | None:
    found = selection.chosen()
    return found.info.id if found else None


@pytest.mark.spec("UI-8")
def test_typing_narrows_and_moving_stays_inside() -> None:
    selection = Selection(INFOS)
    assert chosen(selection) == "id1"
    selection.move(-5)
    assert chosen(selection) == "id1"
    selection.move(50)
    assert chosen(selection) == "id12"
    for letter in "docs par":
        selection.type(letter)
    assert chosen(selection) == "id12"
    selection.type("zz")
    assert chosen(selection) is None
    selection.move(1)
    assert chosen(selection) is None
    selection.erase(6)
    assert [match.info.id for match in selection.matches()] == ["id2", "id12"]
    selection.erase(100)
    selection.type("SITE")
    assert chosen(selection) == "id2"
    selection.erase(100)
    selection.type("id12")
    assert chosen(selection) == "id12"


@pytest.mark.spec("UI-8")
def test_what_is_found_in_texts_comes_after_titles_and_never_too_late() -> None:
    selection = Selection(INFOS)
    selection.type("docs")
    selection.move(1)
    hits = [
        SearchHit("id1", 1, "the [docs] say"),
        SearchHit("id2", 1, "in [docs]"),
        SearchHit("gone", 1, "x"),
    ]
    selection.add_hits("doc", hits)
    assert len(selection) == 2
    selection.add_hits("docs", hits)
    assert chosen(selection) == "id12"  # the cursor stays where it is
    assert selection.matches() == [
        Match(INFOS[1]),
        Match(INFOS[2]),
        Match(INFOS[0], "the [docs] say"),
    ]
    selection.type("s")
    assert len(selection) == 0
