"""Titles, bells and notifications."""

from __future__ import annotations

import io

import pytest

from agentcli.repl.open_session import Attention
from agentcli.ui.screen import Screen, Size
from agentcli.ui.theme import PLAIN, Theme

LIVE = Theme(color=True, attributes=True, live=True)


def said(how: str, theme: Theme = LIVE) -> tuple[Attention, io.StringIO]:
    stream = io.StringIO()
    return Attention(Screen(stream, theme, lambda: Size(80, 24)), how), stream


@pytest.mark.spec("UI-6", "SEC-10")
def test_the_title_is_sanitized_set_once_and_given_back() -> None:
    attention, stream = said("off")
    attention.title("my \x1b]2;evil\x07work\n")
    attention.title("my work")
    attention.give_title_back()
    attention.give_title_back()
    assert stream.getvalue() == "\x1b[22;2t\x1b]2;my work\x07\x1b[23;2t"


@pytest.mark.spec("UI-6", "SEC-10")
@pytest.mark.parametrize(
    ("how", "wanted"),
    [("bell", "\x07"), ("desktop", "\x1b]9;agentcli: Run x\x07"), ("off", "")],
)
def test_the_user_is_called_as_they_like(how: str, wanted: str) -> None:
    attention, stream = said(how)
    attention.call("Run\x07 x")
    assert stream.getvalue() == wanted


@pytest.mark.spec("UI-10")
def test_a_dumb_terminal_gets_no_sequences() -> None:
    attention, stream = said("desktop", PLAIN)
    attention.title("x")
    attention.call("x")
    attention.give_title_back()
    assert stream.getvalue() == ""
