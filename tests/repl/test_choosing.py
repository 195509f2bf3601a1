"""Choosing a session at a terminal: search in titles and texts, preview, narrow windows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentcli.app.library import SearchHit
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.repl.choosing import MAX_PICKED, Match, Selection, SessionPicker, by_number
from agentcli.repl.panel import PanelMode
from agentcli.ui.rows import plain
from agentcli.ui.screen import Size
from agentcli.ui.theme import PLAIN
from tests.repl.chat import Start, at_prompt
from tests.repl.direct_chat import DirectChat


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


@pytest.mark.slow
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


@pytest.mark.slow
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


# --- What is chosen with slash commands


@pytest.mark.slow
@pytest.mark.spec("UI-11")
def test_a_model_is_found_by_a_part_of_its_name_with_price_and_window(start: Start) -> None:
    terminal = start()
    terminal.line("/model")
    terminal.wait_for("Which model answers?")
    terminal.wait_for(re.compile(r"\d more · ↑↓ choose"))
    terminal.send("sonnet-4-5")
    terminal.wait_for(
        re.compile(r"> anthropic/claude-sonnet-4-5 +no key · \$3/\$15 per M · 200.0k window")
    )
    terminal.key("enter")
    terminal.wait_for("anthropic has no key here")
    terminal.line("/model haiku-4-5")
    terminal.wait_until(lambda: terminal.text().count("anthropic has no key here") == 2)
    terminal.line("/model sonnet")
    terminal.wait_for("Which model answers?")
    assert "haiku-5" not in "\n".join(terminal.screen()[-14:])
    terminal.key("esc")
    at_prompt(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-11")
def test_a_theme_is_previewed_and_leaving_takes_it_back(start: Start) -> None:
    terminal = start(PLAY_THEME="dark")
    terminal.line("/theme")
    terminal.wait_for("> dark")
    before = len(terminal.raw)
    terminal.key("down")
    terminal.wait_for("> light")
    assert b"38;5;130" in terminal.raw[before:]
    terminal.key("esc")
    at_prompt(terminal)
    terminal.line("/theme")
    terminal.wait_for("> dark")
    terminal.key("up")
    terminal.key("enter")
    terminal.wait_for("Theme auto")


@pytest.mark.slow
@pytest.mark.spec("UI-11")
@pytest.mark.parametrize(
    ("command", "typed", "shown"),
    [
        ("/effort", "max", "Reasoning effort: max"),
        ("/permissions", "plan", "Permission mode plan"),
        ("/search zebra", "docs", "How?"),
    ],
)
def test_what_is_chosen_is_filtered_by_typing(
    start: Start, command: str, typed: str, shown: str
) -> None:
    terminal = start()
    terminal.line(command)
    terminal.wait_for("type to search")
    terminal.send(typed)
    terminal.wait_for(f"> {typed}")
    terminal.key("enter")
    terminal.wait_for(shown)


@pytest.mark.slow
@pytest.mark.spec("UI-11")
def test_arguments_of_a_command_are_completed(start: Start) -> None:
    terminal = start()
    terminal.send("/effort h")
    terminal.wait_for("\n  high")
    terminal.key("tab")
    terminal.wait_for("> /effort high")
    terminal.key("enter")
    terminal.wait_for("Reasoning effort: high")


@pytest.mark.spec("UI-8", "SCALE-6")
@pytest.mark.parametrize(
    ("known", "said", "listed"),
    [
        (40, "40 found.", "10 more: find them with /search"),
        (MAX_PICKED, "at least 2,000 found.", "at least 1,970 more: find them with /search"),
    ],
)
def test_a_list_that_is_cut_says_that_there_may_be_more(
    known: int, said: str, listed: str, tmp_path: Path
) -> None:
    sessions = DirectChat(tmp_path).sessions
    picker = SessionPicker([info(at, "t") for at in range(known)], sessions, lambda: None)
    rows = picker.rows(Size(80, 24), PLAIN, 0.0, mode=PanelMode()).rows
    assert plain(rows[-1].text).startswith(said)
    assert picker.lines(PLAIN)[-2] == listed
