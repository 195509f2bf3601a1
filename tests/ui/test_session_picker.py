"""The list of sessions as rows: golden at several sizes, never too wide, nothing unsafe."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.messages import AssistantMessage, TextPart, UserMessage, user_text
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus, StoredMessage
from agentcli.ui.session_picker import View, listed_rows, picker_rows, preview_lines
from agentcli.ui.width import columns_of

NOW = 1_000_000.0
INFO = SessionInfo(
    "0190", "Mend the parser", "/home/me/work", NOW - 9e3, NOW - 7200, SessionStatus.CANCELLED, 3,
    "anthropic/claude", cost_usd=0.25,
)  # fmt: skip
OTHER = replace(INFO, id="0191", title="日本語の題名", status=SessionStatus.DONE, cost_usd=None)
VIEW = View("par", [INFO, OTHER], 0, 2, 0, ["> why does it fail?", "It is mended."], NOW)


@pytest.mark.spec("UI-8")
def test_eighty_columns_show_facts_and_a_preview() -> None:
    hint = "2 found. Type to search, arrows to move, Enter opens, Esc leaves."
    assert picker_rows(VIEW, 80, 24) == [
        ("bold", "Resume which session? par"),
        ("reverse", f"> Mend the parser{'':25}2 h ago · 3 turns · $0.25 · cancelled"),
        ("", f"  日本語の題名{'':41}2 h ago · 3 turns · done"),
        ("", ""),
        ("", "/home/me/work · 2 h ago · 3 turns · cost $0.25 · cancelled · anthropic/claude"),
        ("", "> why does it fail?"),
        ("", "It is mended."),
        ("italic", hint),
    ]


@pytest.mark.spec("UI-8", "OPS-1")
def test_twenty_columns_show_titles_and_the_facts_below() -> None:
    assert [text for _, text in picker_rows(VIEW, 20, 12)] == [
        "Resume which sessi…",
        "> Mend the parser",
        "  日本語の題名",
        "",
        "/home/me/work",
        "2 h ago · 3 turns",
        "cost $0.25",
        "cancelled",
        "anthropic/claude",
        "> why does it fail?",
        "It is mended.",
        "2 found. Type to s…",
    ]


@pytest.mark.spec("UI-8")
def test_nothing_found_is_said() -> None:
    rows = picker_rows(replace(VIEW, listed=[], total=0, preview=None), 80, 24)
    assert ("", "  No session matches.") in rows


TITLES = st.text(st.characters(), max_size=40)


@given(TITLES, TITLES, st.integers(10, 100), st.integers(3, 40))
@settings(max_examples=150, deadline=None)
def test_no_row_is_too_wide_nor_unsafe(title: str, text: str, columns: int, lines: int) -> None:
    infos = [replace(INFO, title=title, cwd=text), OTHER][: listed_rows(lines)]
    loaded = LoadedSession(INFO, (StoredMessage(1, 0, user_text(text or "x")),))
    view = View(text, infos, 0, 9, 0, preview_lines(loaded, title), NOW)
    rows = picker_rows(view, columns, lines)
    assert len(rows) <= lines
    assert all(columns_of(row) < columns for _, row in rows)
    assert not any(char < " " or "\x7f" <= char < "\xa0" for _, row in rows for char in row)


@pytest.mark.spec("UI-8")
def test_the_preview_is_the_last_exchange_and_where_the_words_stand() -> None:
    messages = (
        user_text("first"),
        AssistantMessage((TextPart("one"),)),
        user_text("second\n\n\x1b[2Jline"),
        AssistantMessage((TextPart("two\n\tx"),)),
        UserMessage((TextPart("a summary"),), is_summary=True),
    )
    loaded = LoadedSession(INFO, tuple(StoredMessage(n, 0, m) for n, m in enumerate(messages, 1)))
    assert preview_lines(loaded, "… [two] …") == [
        *("Found: … [two] …", "> second", "> line", "two", "    x")
    ]
