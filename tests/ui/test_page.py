"""A Markdown document laid out for a terminal."""

from __future__ import annotations

import re

import pytest

from agentcli.ui.page import painted_page

TEXT = """\
# A title

Words that do not all fit into one of the lines of a window as narrow as this one is.

## A part

| name | what it is |
|---|---|
| `one` | the first of the rows, whose words wrap in their own column |

- an item that is long enough to be wrapped as well, under its own beginning
"""


def plain(text: str) -> str:
    """The text without styles and blanks at line ends."""
    return "\n".join(
        line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    ).strip()


def shown(text: str, columns: int, monkeypatch: pytest.MonkeyPatch, **variables: str | None) -> str:
    for name, value in {"TERM": "xterm-256color", "NO_COLOR": None, **variables}.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    return painted_page(text, columns)


@pytest.mark.spec("CLI-16", "UI-1")
def test_words_stay_whole_and_columns_stay_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = plain(shown(TEXT, 40, monkeypatch)).splitlines()
    assert lines[0] == "A title"
    assert max(map(len, lines)) <= 40
    assert "A part" in lines
    words = re.findall(r"[a-z]+", " ".join(lines))
    assert sorted(words) == sorted(re.findall(r"[a-z]+", TEXT))
    assert any(re.fullmatch(r" one +the first of .*", line) for line in lines)


@pytest.mark.spec("UI-10")
def test_a_page_is_never_wider_than_is_good_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(map(len, plain(shown(TEXT * 3, 300, monkeypatch)).splitlines())) <= 100


@pytest.mark.spec("SEC-10")
def test_control_sequences_in_the_text_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    page = shown("a \x1b]0;title\x07 b \x1b[2J c \x9b5n", 40, monkeypatch)
    assert not re.search(r"\x1b(?!\[[0-9;]*m)|[\x07\x9b]", page)


@pytest.mark.spec("UI-10")
def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.search(r"\x1b\[[0-9;]*3[0-7]", shown(TEXT, 60, monkeypatch))
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown(TEXT, 60, monkeypatch, NO_COLOR="1"))
