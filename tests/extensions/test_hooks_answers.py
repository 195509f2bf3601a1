"""What hooks may answer, and what is made of every answer that they should not give."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.extensions.hooks import (
    SILENT,
    HookConfig,
    HookEvent,
    HookVerdict,
    Permission,
)
from agentcli.extensions.hooks import MAX_CHARS, merged, verdict_of
from agentcli.process.program import ProgramResult

PRE, POST, STOP = HookEvent.PRE_TOOL_USE, HookEvent.POST_TOOL_USE, HookEvent.STOP
PROMPT, START, END = (
    HookEvent.USER_PROMPT_SUBMIT, HookEvent.SESSION_START, HookEvent.SESSION_END,
)  # fmt: skip


def said(
    event: HookEvent, answer: Any = "", *, code: int | None = 0, stderr: str = ""
) -> HookVerdict:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    result = ProgramResult(code, text.encode(), stderr.encode(), "took longer than 60 s")
    return verdict_of(HookConfig(event, "my-hook --now\nsecond line"), result)


def own(event: HookEvent, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": str(event), **fields}}


# --- exit codes -----------------------------------------------------------------------------


@pytest.mark.parametrize("event", list(HookEvent))
def test_silence_and_success_say_nothing(event: HookEvent) -> None:
    assert said(event) == SILENT
    assert said(event, "{}") == SILENT


@pytest.mark.parametrize("event", [PRE, POST, STOP, PROMPT, HookEvent.PRE_COMPACT])
def test_two_refuses_with_standard_error_as_the_reason(event: HookEvent) -> None:
    verdict = said(event, "ignored", code=2, stderr="not on a Friday\n")
    assert verdict == HookVerdict(blocked="not on a Friday")
    assert "my-hook --now" in said(event, code=2).blocked


@pytest.mark.parametrize("event", [START, END, HookEvent.NOTIFICATION])
def test_what_cannot_be_refused_is_only_warned_about(event: HookEvent) -> None:
    verdict = said(event, code=2, stderr="no")
    assert not verdict.blocked and "no" in verdict.notices[0]


@pytest.mark.parametrize("code", [1, 3, 126, 127, 137])
def test_any_other_code_is_a_warning_and_refuses_nothing(code: int) -> None:
    verdict = said(PRE, own(PRE, permissionDecision="deny"), code=code, stderr="boom\nmore")
    assert not verdict.blocked and verdict.permission is None
    (notice,) = verdict.notices
    assert f"exit code {code}: boom" in notice and "\n" not in notice


def test_one_that_did_not_end_by_itself_is_a_warning() -> None:
    assert "took longer than 60 s" in said(PRE, code=None).notices[0]


# --- plain text -----------------------------------------------------------------------------


@pytest.mark.parametrize("event", list(HookEvent))
def test_plain_text_is_for_the_model_where_a_session_or_a_prompt_begins(event: HookEvent) -> None:
    expected = ("The branch is main.",) if event in {START, PROMPT} else ()
    assert said(event, "The branch is main.\n").context == expected


def test_json_that_is_none_is_warned_about_where_it_would_have_decided() -> None:
    assert "not valid JSON" in said(PRE, '{"decision": "block"').notices[0]
    assert said(PROMPT, '{"decision": ').context == ('{"decision":',)
    deep = '{"a":' * 100_000
    assert "not valid JSON" in said(PRE, deep).notices[0]


def test_context_is_bounded_and_the_cut_is_stated() -> None:
    (text,) = said(PROMPT, "x" * 50_000).context
    assert len(text) < MAX_CHARS + 100 and text.endswith("[cut: 50000 characters]")


# --- the JSON answer ------------------------------------------------------------------------


def test_a_decision_to_block_refuses_with_its_reason() -> None:
    assert said(STOP, {"decision": "block", "reason": "tests fail"}).blocked == "tests fail"
    assert said(PRE, {"decision": "block"}).blocked
    assert said(STOP, {"decision": "approve"}) == SILENT


@pytest.mark.parametrize(
    ("answer", "permission"),
    [
        ({"decision": "approve"}, Permission.ALLOW),
        (own(PRE, permissionDecision="allow"), Permission.ALLOW),
        (own(PRE, permissionDecision="ask", permissionDecisionReason="why"), Permission.ASK),
        (own(PRE, permissionDecision="defer"), None),
        (own(PRE, permissionDecision="maybe"), Permission.ASK),
        (own(PRE, permissionDecision=["allow"]), Permission.ASK),
    ],
)
def test_a_call_can_be_allowed_or_asked_about(
    answer: dict[str, Any], permission: Permission | None
) -> None:
    verdict = said(PRE, answer)
    assert verdict.permission is permission and not verdict.blocked


def test_a_call_can_be_denied_and_its_arguments_changed() -> None:
    denied = said(PRE, own(PRE, permissionDecision="deny", permissionDecisionReason="no"))
    assert denied.blocked == "no"
    changed = said(PRE, own(PRE, permissionDecision="allow", updatedInput={"command": "ls"}))
    assert changed.updated_input == {"command": "ls"}
    assert said(PRE, own(PRE, updatedInput="ls")).blocked


def test_only_calls_are_allowed_or_changed() -> None:
    verdict = said(POST, own(POST, permissionDecision="allow", updatedInput={"a": 1}))
    assert (verdict.permission, verdict.updated_input) == (None, None)


def test_an_answer_for_another_event_is_not_taken() -> None:
    verdict = said(POST, own(PRE, additionalContext="x"))
    assert verdict.context == () and "another event, PreToolUse" in verdict.notices[0]


def test_the_fields_that_all_events_share() -> None:
    answer = {"continue": False, "stopReason": "enough", "systemMessage": "Look.", **own(POST)}
    verdict = said(POST, {**answer, "suppressOutput": True})
    assert (verdict.stopped, verdict.notices) == ("enough", ("Look.",))
    assert "my-hook" in said(POST, {"continue": False}).stopped
    assert not said(POST, {"continue": "false"}).stopped


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)
KEYS = (
    "continue", "stopReason", "systemMessage", "decision", "reason", "hookSpecificOutput",
    "hookEventName", "permissionDecision", "permissionDecisionReason", "updatedInput",
    "additionalContext",
)  # fmt: skip
ANSWER = st.dictionaries(
    st.sampled_from(KEYS), JSON | st.dictionaries(st.sampled_from(KEYS), JSON), max_size=6
)


@pytest.mark.slow
@settings(max_examples=80)
@given(event=st.sampled_from(list(HookEvent)), answer=ANSWER)
def test_no_answer_is_a_fault_of_ours(event: HookEvent, answer: dict[str, Any]) -> None:
    verdict = said(event, answer)
    assert isinstance(verdict.blocked, str) and isinstance(verdict.stopped, str)
    assert all(isinstance(text, str) for text in (*verdict.context, *verdict.notices))


# --- several hooks --------------------------------------------------------------------------


def test_of_several_hooks_every_refusal_counts_asking_wins_and_the_last_change_holds() -> None:
    verdict = merged(
        [
            HookVerdict(permission=Permission.ALLOW, reason="fine", updated_input={"a": 1}),
            HookVerdict(permission=Permission.ASK, reason="careful", context=("one",)),
            HookVerdict(blocked="no", notices=("n",), updated_input={"a": 2}),
            HookVerdict(blocked="never", context=("two",), stopped="enough"),
        ]
    )
    assert verdict == HookVerdict(
        blocked="no\nnever",
        stopped="enough",
        context=("one", "two"),
        notices=("n",),
        permission=Permission.ASK,
        reason="careful",
        updated_input={"a": 2},
    )
