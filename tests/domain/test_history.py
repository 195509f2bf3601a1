"""The law about calls and results: every append, every repair, every request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import CannotContinue, HistoryViolation
from agentcli.domain.history import (
    CANCELLED_TEXT,
    CRASHED_TEXT,
    History,
    RepairReason,
    RunDetail,
    repair_results,
)
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import RunStatus, ToolRun
from tests.support.histories import balanced, calls_of


def is_balanced(messages: Sequence[Message]) -> bool:
    """The law, said once more and in another way than the code says it."""
    seen: set[str] = set()
    open_ids: list[str] = []
    for message in messages:
        if isinstance(message, ToolResult):
            if message.call_id not in open_ids:
                return False
            open_ids.remove(message.call_id)
            continue
        if open_ids:
            return False
        if isinstance(message, AssistantMessage):
            ids = [call.id for call in message.tool_calls]
            if "" in ids or max(Counter(ids).values(), default=0) > 1 or seen & set(ids):
                return False
            seen |= set(ids)
            open_ids = ids
    return True


any_message = st.one_of(
    st.just(user_text("hi")),
    st.builds(
        lambda ids: AssistantMessage(tuple(ToolCall(i, "look", {}) for i in ids)),
        st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=2),
    ),
    st.builds(lambda i: ToolResult(i, "look", (TextPart("x"),)), st.sampled_from("abc")),
)


@pytest.mark.spec("HIS-1")
@settings(max_examples=200)
@given(st.lists(any_message, max_size=8))
def test_an_append_is_accepted_exactly_when_the_law_allows_it(messages: list[Message]) -> None:
    history = History()
    for message in messages:
        wanted = [*history.messages, message]
        if is_balanced(wanted):
            history.append(message)
            assert list(history.messages) == wanted
        else:
            before = history.messages
            with pytest.raises(HistoryViolation):
                history.append(message)
            assert history.messages == before
    answered = {m.call_id for m in history.messages if isinstance(m, ToolResult)}
    assert [c.id for c in history.pending] == [
        c.id for c in calls_of(history.messages) if c.id not in answered
    ]
    assert history.call_ids == {c.id for c in calls_of(history.messages)}
    assert len(history) == len(history.messages)


@pytest.mark.spec("HIS-1", "REC-1", "CAN-1")
@settings(max_examples=60)
@given(balanced(), st.data(), st.sampled_from(list(RepairReason)))
def test_repair_balances_any_cut_of_any_history(
    messages: list[Message], data: st.DataObject, reason: RepairReason
) -> None:
    cut = messages[: data.draw(st.integers(1, len(messages)))]
    history = History(cut)
    pending = history.pending
    truth = ToolResult("", "", (TextPart("parked"),))
    runs = {}
    for call in pending:
        kind = data.draw(st.sampled_from(["none", "pending", "running", "parked"]))
        if kind != "none":
            result = replace(truth, call_id=call.id, name=call.name) if kind == "parked" else None
            status = RunStatus.FINISHED if kind == "parked" else RunStatus(kind)
            runs[call.id] = ToolRun(call.id, call.name, status, result=result)
    results = repair_results(pending, runs, reason)
    assert [result.call_id for result in results] == [call.id for call in pending]
    for result in results:
        history.append(result)
        run = runs.get(result.call_id)
        if run is not None and run.result is not None:
            assert result.text == "parked"
            continue
        assert result.is_error
        first, second = result.parts
        cancelled = reason is RepairReason.CANCELLED
        assert first == TextPart(CANCELLED_TEXT if cancelled else CRASHED_TEXT)
        assert isinstance(second, TextPart)
        assert ("had not started" in second.text) is (
            run is not None and run.status is RunStatus.PENDING
        )
    assert not history.pending


@pytest.mark.spec("CAN-1", "REC-1")
def test_the_texts_of_a_repair_are_exactly_those_of_the_contract() -> None:
    assert CANCELLED_TEXT == "Cancelled by user"
    assert CRASHED_TEXT == "Tool execution was interrupted by a crash. Please retry."


@pytest.mark.spec("CAN-1")
def test_the_second_block_says_how_long_it_ran_and_what_it_had_printed() -> None:
    call = ToolCall("a", "bash", {})
    runs = {"a": ToolRun("a", "bash", RunStatus.RUNNING)}
    details = {"a": RunDetail(3.21, "building…")}
    (result,) = repair_results([call], runs, RepairReason.CANCELLED, details)
    assert result.status is ResultStatus.CANCELLED
    assert "3.2 s" in result.text
    assert "side effects are possible" in result.text
    assert "building…" in result.text


@pytest.mark.spec("CAN-1")
def test_a_cancel_between_intent_and_run_says_that_nothing_was_done() -> None:
    call = ToolCall("a", "bash", {})
    runs = {"a": ToolRun("a", "bash", RunStatus.RUNNING)}
    details = {"a": RunDetail(0.0, started=False)}
    (result,) = repair_results([call], runs, RepairReason.CANCELLED, details)
    assert "had not started" in result.text


@pytest.mark.spec("REC-1")
def test_a_call_without_a_row_is_never_said_not_to_have_run() -> None:
    (result,) = repair_results([ToolCall("a", "bash", {})], {}, RepairReason.CRASHED)
    assert "outcome is unknown" in result.text
    assert result.status is ResultStatus.INTERRUPTED


@pytest.mark.spec("REC-5")
def test_going_on_needs_a_last_message_that_is_not_the_assistants() -> None:
    with pytest.raises(CannotContinue, match="empty"):
        History().require_continuable()
    with pytest.raises(CannotContinue, match="assistant"):
        History([user_text("x"), AssistantMessage((TextPart("y"),))]).require_continuable()
    History([user_text("x")]).require_continuable()


# --- folding -------------------------------------------------------------------------------


def _summary() -> UserMessage:
    return UserMessage((TextPart("what came before"),), is_summary=True)


@pytest.mark.spec("CMP-3", "CMP-4")
def test_a_fold_puts_the_summary_first_and_keeps_the_ids_taken() -> None:
    call = ToolCall("a", "bash", {})
    history = History(
        [
            user_text("one"),
            AssistantMessage((call,)),
            ToolResult("a", "bash", (TextPart("x"),)),
            user_text("two"),
        ]
    )
    history.fold(_summary(), [0, 1, 2])
    assert history.messages == (_summary(), user_text("two"))
    assert history.call_ids == {"a"}
    assert (history.folds, history.unlike_before) == (1, 2)
    with pytest.raises(HistoryViolation):
        history.append(AssistantMessage((call,)))


@pytest.mark.spec("CMP-4", "HIS-1")
@pytest.mark.parametrize("folded", [[1], [2], [0, 1], [0, 2]])
def test_a_fold_that_parts_a_call_from_its_result_is_refused_and_changes_nothing(
    folded: list[int],
) -> None:
    messages = (
        user_text("one"),
        AssistantMessage((ToolCall("a", "bash", {}),)),
        ToolResult("a", "bash", (TextPart("x"),)),
        user_text("two"),
    )
    history = History(messages)
    with pytest.raises(HistoryViolation):
        history.fold(_summary(), folded)
    assert (history.messages, history.folds) == (messages, 0)


@pytest.mark.spec("CMP-4")
def test_nothing_is_folded_while_a_call_waits_for_its_result() -> None:
    history = History([user_text("one"), AssistantMessage((ToolCall("a", "bash", {}),))])
    with pytest.raises(HistoryViolation):
        history.fold(_summary(), [0])


def test_ids_of_messages_that_were_folded_earlier_stay_taken() -> None:
    history = History([user_text("one")], used_ids=["a"])
    with pytest.raises(HistoryViolation):
        history.append(AssistantMessage((ToolCall("a", "bash", {}),)))
