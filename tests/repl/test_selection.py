"""What a list of sessions shows for what was typed."""

from __future__ import annotations

import pytest

from agentcli.app.library import SearchHit
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.repl.selection import Match, Selection


def info(number: int, title: str, cwd: str = "/w") -> SessionInfo:
    return SessionInfo(f"id{number}", title, cwd, 0, 0, SessionStatus.DONE, 1, "p/m")


INFOS = [info(1, "fix parser"), info(2, "write docs", "/home/me/site"), info(12, "parser docs")]


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
