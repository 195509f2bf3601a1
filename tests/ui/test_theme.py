"""Which terminal gets what."""

from __future__ import annotations

import io

import pytest

from agentcli.config import keys
from agentcli.ui.theme import ADDED, BOLD, DIM, OK, REMOVED, THEMES, TINT, Theme, theme_for


class Stream(io.TextIOWrapper):
    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.spec("UI-10")
@pytest.mark.parametrize(
    ("terminal", "env", "expected"),
    [
        (True, {"TERM": "xterm"}, (True, True, True)),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, (False, True, True)),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, (True, True, True)),
        (True, {"TERM": "dumb"}, (False, False, False)),
        (False, {"TERM": "xterm"}, (False, False, False)),
    ],
)
def test_colour_needs_a_terminal_that_wants_it(
    terminal: bool, env: dict[str, str], expected: tuple[bool, bool, bool]
) -> None:
    theme = theme_for(Stream(terminal=terminal), env)
    assert (theme.color, theme.attributes, theme.live) == expected


def test_an_old_encoding_gets_ascii_signs() -> None:
    assert theme_for(Stream(terminal=True, encoding="latin-1"), {}).symbols.call == "*"


@pytest.mark.spec("UI-10")
def test_without_colour_bold_stays() -> None:
    theme = Theme(color=False, attributes=True, live=True)
    assert theme.paint("x", BOLD | ADDED) == "\x1b[1mx\x1b[0m"
    assert theme.paint("x", ADDED) == "x"


@pytest.mark.spec("UI-10")
@pytest.mark.parametrize("name", THEMES)
def test_every_theme_tells_added_from_removed_or_uses_no_colour(name: str) -> None:
    theme = theme_for(Stream(terminal=True), {"TERM": "xterm"}, name)
    assert theme.name == name
    added, removed = theme.start(ADDED), theme.start(REMOVED)
    assert (added != removed) or name == "none"
    assert ("3" in theme.start(OK)) is (name != "none") or name == "high-contrast"


@pytest.mark.spec("UI-10")
def test_a_theme_changes_what_is_painted_later_and_no_color_still_wins() -> None:
    theme = theme_for(Stream(terminal=True), {"TERM": "xterm", "NO_COLOR": "1"}, "daltonized")
    assert theme.paint("x", ADDED) == "x"
    theme = theme_for(Stream(terminal=True), {"TERM": "xterm"})
    assert theme.paint("x", DIM) != "x"
    theme.use("high-contrast")
    assert theme.paint("x", DIM) == "x"
    with pytest.raises(ValueError, match="no theme"):
        theme.use("nosuch")


def test_the_settings_know_the_same_themes() -> None:
    assert keys.THEMES == THEMES


@pytest.mark.spec("UI-10")
@pytest.mark.parametrize(
    ("env", "codes"),
    [
        ({"TERM": "xterm-256color"}, "48;5;237"),
        ({"TERM": "xterm-256color", "COLORFGBG": "0;15"}, "48;5;254"),
        ({"TERM": "xterm"}, "97;100"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, ""),
    ],
)
def test_the_tint_suits_what_the_terminal_can_show(env: dict[str, str], codes: str) -> None:
    assert codes in theme_for(Stream(terminal=True), env).start(TINT)
    if not codes:
        assert not theme_for(Stream(terminal=True), env).start(TINT)
