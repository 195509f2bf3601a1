"""Tool calls keep their places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.domain.events import ToolAnnounced, ToolFinished, ToolProgress, ToolStarted
from agentcli.domain.messages import ResultStatus, TextPart, ToolCall, ToolResult
from agentcli.repl.turn_view import MAX_CALLS, THINKING_ROWS, CallsView, ThinkingFold
from agentcli.ui.theme import PLAIN


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def call(number: int) -> ToolCall:
    return ToolCall(f"c{number}", "read_file", {})


def finished(number: int) -> ToolFinished:
    result = ToolResult(f"c{number}", "read_file", (TextPart("x"),), ResultStatus.OK)
    return ToolFinished(call(number), result, "1 line", 0.5)


def running(*numbers: int) -> tuple[CallsView, Clock]:
    clock = Clock()
    view = CallsView(PLAIN, clock, lambda: 80)
    for number in numbers:
        view.announced(ToolAnnounced(call(number), f"Read {number}"))
    for number in numbers:
        view.started(ToolStarted(call(number), f"Read {number}"))
    return view, clock


@pytest.mark.spec("UI-2")
def test_calls_that_run_together_are_printed_in_the_order_of_the_model() -> None:
    view, _ = running(1, 2, 3)
    assert list(view.finished(finished(2))) == []
    assert list(view.finished(finished(3))) == []
    blocks = list(view.finished(finished(1)))
    assert [block[0] for block in blocks] == ["● Read 1", "● Read 2", "● Read 3"]
    assert list(view.rest()) == []


@pytest.mark.spec("UI-7", "UI-13")
def test_a_no_of_the_user_is_said_once_and_not_why_it_was_asked() -> None:
    view, _ = running(1)
    assert view.answered("c1", "no: use the other file")
    result = ToolResult("c1", "read_file", (TextPart("x"),), ResultStatus.REFUSED)
    refused = ToolFinished(call(1), result, "it runs a command", 0.0)
    assert list(view.finished(refused)) == [["✗ Read 1", "  └ you: no: use the other file"]]


@pytest.mark.spec("UI-2")
def test_a_running_call_shows_after_a_second_with_its_last_lines() -> None:
    view, clock = running(1)
    view.progress(ToolProgress("c1", "a\nb\nc\nd\n"))
    assert view.lines() == []
    assert view.next_change() == 101.0
    clock.now = 103.4
    assert view.lines() == ["● Read 1 · 3 s", "  b", "  c", "  d"]
    assert view.next_change() is None


@pytest.mark.spec("UI-2")
def test_a_finished_call_keeps_its_place_among_those_that_run() -> None:
    view, clock = running(1, 2)
    clock.now = 102.0
    list(view.finished(finished(2)))
    assert view.lines() == ["● Read 1 · 2 s", "● Read 2 · finished · 0.5 s"]


@pytest.mark.spec("UI-2")
def test_many_calls_take_few_rows() -> None:
    view, clock = running(*range(20))
    clock.now = 110.0
    assert len(view.lines()) == MAX_CALLS + 1
    assert view.lines()[-1] == "… 14 more calls"


def test_what_never_had_its_turn_is_printed_at_the_end() -> None:
    view, _ = running(1, 2)
    list(view.finished(finished(2)))
    assert [block[0] for block in view.rest()] == ["● Read 2"]


@pytest.mark.spec("UI-12")
@given(
    st.lists(st.text(alphabet="ab \n", max_size=30), max_size=30),
    st.integers(min_value=5, max_value=40),
)
def test_of_long_thinking_only_the_beginning_is_shown_and_the_rest_is_counted(
    chunks: list[str], columns: int
) -> None:
    fold, whole = ThinkingFold(), "".join(chunks)
    shown = "".join(fold.feed(chunk, columns) for chunk in chunks)
    assert whole.startswith(shown)
    if fold.hidden == 0:
        assert shown.rstrip() == whole.rstrip()
    if fold.hidden == 1:
        assert (shown + fold.rest).rstrip() == whole.rstrip()
    rows = sum(len(line) // columns + 1 for line in shown.split("\n"))
    assert rows <= THINKING_ROWS + 1


@pytest.mark.spec("UI-12")
@pytest.mark.parametrize(("words", "hidden"), [(24, 0), (28, 1), (80, 14)])
def test_thinking_of_one_long_line_is_folded_and_counted_in_rows(words: int, hidden: int) -> None:
    fold = ThinkingFold()
    text = "word " * words
    shown = "".join(fold.feed(text[at : at + 7], 20) for at in range(0, len(text), 7))
    assert fold.hidden == hidden
    if hidden < 2:
        assert (shown + fold.rest).rstrip() == text.rstrip()
    else:
        assert fold.rest == ""
