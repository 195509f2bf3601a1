"""What is said when a session is resumed, listed or left."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from agentcli.ui.session_lines import Farewell, farewell_lines, resume_lines, session_rows
from agentcli.ui.theme import PLAIN

INFO = SessionInfo(
    "0190-id", "mend\x1b[31m it", "/work", 0, 1000, SessionStatus.CRASHED, 3, "p/m", cost_usd=0.5
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
    lines = resume_lines(loaded(), 8300, PLAIN)
    assert lines[:7] == [
        "Resumed: mend it",
        "  2 h ago, 3 turns; the program had ended in the middle of it.",
        "  > the question",
        "    I will run it",
        "  The reply had begun (not sent to the model again):",
        "    half a rep",
        "  Not finished: bash make test",
    ]
    assert "old question" not in "\n".join(lines)


@pytest.mark.spec("REC-4", "UI-8")
@pytest.mark.parametrize(
    ("detail", "why"),
    [
        ("user", "it was cancelled"),
        ("sigterm", "it was told to end (SIGTERM)"),
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
    assert line.endswith("…") and len(line) < 90


@pytest.mark.spec("UI-8")
def test_a_failure_is_named() -> None:
    text = "\n".join(resume_lines(loaded(SessionStatus.FAILED, "no key"), 1030, PLAIN))
    assert "just now, 3 turns; it had failed: no key." in text


@pytest.mark.spec("UI-8")
def test_a_list_has_title_age_turns_cost_state_and_directory() -> None:
    assert session_rows([INFO], 1000 + 120, PLAIN) == [
        "1  mend it · 2 min ago · 3 turns · $0.50 · crashed · /work  0190-id"
    ]


@pytest.mark.spec("UI-9")
def test_the_farewell_names_the_command_and_the_figures() -> None:
    end = Farewell("0190-id", 2, Usage(10, 20), None, 75)
    assert farewell_lines(end, PLAIN) == [
        "2 turns · 10 in, 20 out · cost unknown · 1 min 15 s",
        "Resume with: agent resume 0190-id",
    ]
    assert farewell_lines(Farewell("x", 0, Usage(), 0.0, 1), PLAIN) == []


@pytest.mark.spec("UI-8", "CMP-3")
def test_a_summary_is_not_shown_as_something_that_was_said() -> None:
    whole = loaded()
    summary = UserMessage((TextPart("what came before"),), is_summary=True)
    tail = (StoredMessage(6, 0, summary), *whole.messages[3:])
    text = "\n".join(resume_lines(replace(whole, messages=tail), 8300, PLAIN))
    assert "what came before" not in text
    assert "I will run it" in text and "half a rep" in text and "bash make test" in text


@pytest.mark.spec("UI-8", "BG-5")
def test_what_the_program_said_of_a_run_is_not_shown_as_words_of_the_person() -> None:
    whole = loaded()
    told = user_text('<background-run run_id="bg_1" status="succeeded">\n</background-run>')
    messages = (*whole.messages, StoredMessage(6, 0, told))
    text = "\n".join(resume_lines(replace(whole, messages=messages), 8300, PLAIN))
    assert "> (what became of a background run)" in text and "bg_1" not in text
