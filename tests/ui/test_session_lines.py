"""What is said when a session is resumed, listed or left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    user_text,
)
from agentcli.domain.session import (
    LoadedSession,
    Note,
    SessionInfo,
    SessionStatus,
    StoredMessage,
)
from agentcli.ui.rows import columns_of
from agentcli.ui.session_lines import (
    Farewell,
    PickerView,
    farewell_lines,
    listed_rows,
    picker_rows,
    preview_lines,
    resume_lines,
    session_rows,
)
from agentcli.ui.theme import PLAIN

INFO = SessionInfo(
    "0190-id", "fix\x1b[31m it", "/work", 0, 1000, SessionStatus.CRASHED, 3, "p/m", cost_usd=0.5
)


def loaded(status: SessionStatus = SessionStatus.CRASHED, detail: str = "") -> LoadedSession:
    call = ToolCall("c", "bash", {"command": "make\ntest"})
    messages = (
        user_text("old question"),
        AssistantMessage((TextPart("old answer"),)),
        user_text("the question"),
        AssistantMessage((TextPart("I will run it"), call)),
        ToolResult("c", "bash", (TextPart("x"),), ResultStatus.INTERRUPTED),
    )
    stored = tuple(StoredMessage(at, 0, message) for at, message in enumerate(messages, 1))
    notes = (Note(5, 0, "partial", "half a rep"),)
    return LoadedSession(replace(INFO, status=status, detail=detail), stored, notes)


@pytest.mark.spec("UI-8", "REC-4", "CAN-5")
def test_a_resumed_session_says_what_when_why_and_what_was_pending() -> None:
    lines = resume_lines(loaded(), 8300, PLAIN, ["and\nthis"])
    assert lines[:-1] == [
        "Resumed: fix it  p/m",
        "  2 h ago, 3 turns; the program had ended in the middle of it.",
        "  Not finished: Run `make test`",
        "  Waits to be sent: and this",
    ]


@pytest.mark.spec("REC-4", "UI-8")
@pytest.mark.parametrize(
    ("detail", "why"),
    [
        ("user", "it was cancelled"),
        ("sigterm", "it was asked to end (SIGTERM)"),
        ("sighup", "its window was closed"),
        ("limit", "its time was over"),
        ("outer", "it was cancelled"),
        ("", "it was cancelled"),
    ],
)
def test_a_cancelled_session_says_what_had_stopped_it(detail: str, why: str) -> None:
    lines = resume_lines(loaded(SessionStatus.CANCELLED, detail), 8300, PLAIN)
    assert lines[1] == f"  2 h ago, 3 turns; {why}."


@pytest.mark.spec("UI-8")
def test_a_long_command_that_was_stopped_is_seen_to_be_cut() -> None:
    session = loaded()
    call = ToolCall("c", "bash", {"command": "make " * 40})
    messages = list(session.messages)
    messages[3] = StoredMessage(4, 0, AssistantMessage((call,)))
    lines = resume_lines(replace(session, messages=tuple(messages)), 8300, PLAIN)
    (line,) = [line for line in lines if "Not finished" in line]
    assert line.endswith("…`") and len(line) < 90


@pytest.mark.spec("UI-8")
def test_a_failure_is_named() -> None:
    text = "\n".join(resume_lines(loaded(SessionStatus.FAILED, "no key"), 1030, PLAIN))
    assert "just now, 3 turns; it had failed: no key." in text


@pytest.mark.spec("UI-8")
def test_a_list_has_title_age_turns_cost_state_and_directory() -> None:
    assert session_rows([INFO], 1000 + 120, PLAIN) == [
        "1  fix it · 2 min ago · 3 turns · $0.50 · crashed · /work  0190-id"
    ]


@pytest.mark.spec("UI-9")
def test_the_farewell_names_the_command_and_the_figures() -> None:
    end = Farewell("0190-id", 2, Usage(10, 20), None, 75)
    assert farewell_lines(end, PLAIN) == [
        "2 turns · 10 in, 20 out · cost unknown · 1 min 15 s",
        "Resume with: agent resume 0190-id",
    ]
    assert farewell_lines(Farewell("x", 0, Usage(), 0.0, 1), PLAIN) == []


# --- The list of sessions as rows: golden at several sizes, never too wide, noth


NOW = 1_000_000.0
LISTED = SessionInfo(
    "0190", "Mend the parser", "/home/me/work", NOW - 9e3, NOW - 7200, SessionStatus.CANCELLED, 3,
    "anthropic/claude", cost_usd=0.25,
)  # fmt: skip
OTHER = replace(LISTED, id="0191", title="日本語の題名", status=SessionStatus.DONE, cost_usd=None)
VIEW = PickerView(
    "par", [LISTED, OTHER], 0, "2 found", 0, ["> why does it fail?", "It is fixed."], NOW
)


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
        ("", "It is fixed."),
        ("italic", hint),
    ]


@pytest.mark.spec("UI-8", "OPS-1")
@pytest.mark.parametrize(
    ("columns", "facts"),
    [(40, "2 h ago"), (45, "2 h ago · 3 turns"), (60, "2 h ago · 3 turns · $0.25")],
)
def test_narrow_windows_show_the_facts_that_leave_a_title_its_room(
    columns: int, facts: str
) -> None:
    _, row, *_ = picker_rows(VIEW, columns, 24)
    assert row[1] == f"> Mend the parser{facts:>{columns - 18}}"


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
        "It is fixed.",
        "2 found. Type to s…",
    ]


@pytest.mark.spec("UI-8")
def test_nothing_found_is_said() -> None:
    rows = picker_rows(replace(VIEW, listed=[], found="0 found", preview=None), 80, 24)
    assert ("", "  No session matches.") in rows


TITLES = st.text(st.characters(), max_size=40)


@given(TITLES, TITLES, st.integers(10, 100), st.integers(3, 40))
@settings(max_examples=150, deadline=None)
def test_no_row_is_too_wide_nor_unsafe(title: str, text: str, columns: int, lines: int) -> None:
    infos = [replace(LISTED, title=title, cwd=text), OTHER][: listed_rows(lines)]
    loaded = LoadedSession(LISTED, (StoredMessage(1, 0, user_text(text or "x")),))
    view = PickerView(text, infos, 0, "9 found", 0, preview_lines(loaded, title), NOW)
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
    loaded = LoadedSession(LISTED, tuple(StoredMessage(n, 0, m) for n, m in enumerate(messages, 1)))
    assert preview_lines(loaded, "… [two] …") == [
        *("Found: … [two] …", "> second", "> line", "two", "    x")
    ]
