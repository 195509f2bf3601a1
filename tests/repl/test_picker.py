"""Choosing a session: narrowing, moving, numbers."""

from __future__ import annotations

import pytest

from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.repl.picker import Selection, by_number


def info(number: int, title: str) -> SessionInfo:
    return SessionInfo(f"id{number}", title, "/w", 0, 0, SessionStatus.DONE, 1, "p/m")


INFOS = [info(1, "mend parser"), info(2, "write docs"), info(12, "parser docs")]


@pytest.mark.spec("UI-8")
def test_typing_narrows_and_moving_stays_inside() -> None:
    selection = Selection(INFOS, 10)
    assert selection.chosen() == "id1"
    selection.move(-5)
    assert selection.chosen() == "id1"
    selection.move(50)
    assert selection.chosen() == "id12"
    for letter in "docs par":
        selection.type(letter)
    assert selection.chosen() == "id12"
    selection.type("zz")
    assert selection.chosen() is None
    selection.move(1)
    assert selection.chosen() is None
    for _ in range(6):
        selection.erase()
    assert [found.id for found, _ in selection.matches()] == ["id2", "id12"]


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
