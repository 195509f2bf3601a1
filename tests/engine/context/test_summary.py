"""What a summary is asked with and stored as: cut to any window, with the facts written down."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.engine.context import summary
from agentcli.engine.context.tokens import of_text


def step(
    call_id: str, name: str, status: ResultStatus = ResultStatus.OK, **arguments: object
) -> list[Message]:
    call = ToolCall(call_id, name, dict(arguments))
    result = ToolResult(call_id, name, (TextPart(f"output of {call_id}"),), status)
    return [AssistantMessage((TextPart("I do it."), call)), result]


CONVERSATION: list[Message] = [
    user_text("Rename the parser, never touch the docs"),
    *step("a", "read_file", path="src/a.py"),
    *step("b", "edit_file", path="src/a.py", old_string="x", new_string="y"),
    *step("c", "write_file", ResultStatus.ERROR, path="src/refused.py", content="z"),
    *step("d", "apply_patch", patch="*** Begin Patch\n*** Add File: src/new.py\n+x\n*** End Patch"),
    *step("e", "read_file", path="README.md"),
    user_text("and run the tests"),
    *step("f", "bash", command="pytest -q"),
]
TODOS = [
    {"content": "rename", "status": "completed"},
    {"content": "test", "status": "in_progress"},
    {"content": "release", "status": "pending"},
]


def parts(record: UserMessage) -> tuple[str, str]:
    first, second = (part.text for part in record.parts if isinstance(part, TextPart))
    return first, second


def test_the_transcript_tells_who_said_and_did_what_in_order() -> None:
    text = summary.transcript(CONVERSATION, 10_000)
    wanted = [
        "USER: Rename the parser, never touch the docs",
        'CALL of read_file: {"path": "src/a.py"}',
        "RESULT of read_file: output of a",
        "RESULT of write_file (error): output of c",
        "USER: and run the tests",
        'CALL of bash: {"command": "pytest -q"}',
        "RESULT of bash: output of f",
    ]
    places = [text.index(words) for words in wanted]
    assert places == sorted(places)


def test_thinking_is_left_out_and_images_are_named() -> None:
    messages = [
        UserMessage((TextPart("see"), ImagePart("image/png", b"x"))),
        AssistantMessage((ThinkingPart("secret thoughts", "s"), TextPart("I see."))),
        AssistantMessage((ThinkingPart("more", "s"),)),
    ]
    text = summary.transcript(messages, 1_000)
    assert "secret" not in text and "[1 image(s)]" in text and "AGENT: (nothing)" in text


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 60_000), min_size=1, max_size=60),
    st.integers(300, 50_000),
)
def test_a_transcript_fits_into_any_window(sizes: list[int], limit: int) -> None:
    messages = [
        user_text("u" * size) if number % 2 else AssistantMessage((TextPart("a" * size),))
        for number, size in enumerate(sizes)
    ]
    assert of_text(summary.transcript(messages, limit)) <= limit * 1.1 + 30


def test_what_is_cut_first_is_output_and_what_is_left_out_is_the_middle() -> None:
    big = [user_text("the goal"), *step("a", "bash", command="make")]
    big[2] = ToolResult("a", "bash", (TextPart("x" * 100_000),))
    text = summary.transcript(big, 700)
    assert "the goal" in text and "[… 98,800 characters …]" in text
    many = [user_text(f"message {number} " + "y" * 300) for number in range(200)]
    text = summary.transcript(many, 1_000)
    assert "message 0 " in text and "message 199 " in text and "message 100 " not in text
    assert "messages are left out here]" in text


@pytest.mark.spec("CMP-4")
def test_the_request_asks_for_all_that_matters_and_for_the_users_focus() -> None:
    text = summary.request_text(CONVERSATION, "  the API  ", 10_000)
    for word in ("instructions", "path", "Decisions", "Errors", "Open tasks", "next step"):
        assert word in text
    assert "above all: the API" in text
    assert "above all" not in summary.request_text(CONVERSATION, " ", 10_000)


def test_the_record_says_what_it_is_and_holds_what_the_program_knows() -> None:
    record = summary.record("## Goal\nrename", CONVERSATION, 12, TODOS)
    assert record.is_summary
    told, facts = parts(record)
    assert "12 older messages" in told and "AGENTS.md" in told and told.endswith("rename")
    assert "<said>\nRename the parser, never touch the docs\n</said>" in facts
    assert "<said>\nand run the tests\n</said>" in facts
    assert 'Files changed: ["src/a.py", "src/new.py"]' in facts
    assert 'Files read: ["README.md"]' in facts
    assert "[x] rename" in facts and "[>] test" in facts and "[ ] release" in facts
    assert summary.told_of(record) == "## Goal\nrename"
    assert summary.stands_for(record) == 12


def test_a_record_of_nothing_in_particular_is_short() -> None:
    _, facts = parts(summary.record("text", [AssistantMessage((TextPart("x"),))], 1, []))
    assert "Files" not in facts and "said" not in facts and "To-do" not in facts


@pytest.mark.spec("CMP-3")
def test_words_and_files_of_an_earlier_summary_are_carried_on() -> None:
    first = summary.record("one", CONVERSATION, 12, TODOS)
    later = [first, user_text("third wish </said>"), *step("z", "write_file", path="z.py")]
    _, facts = parts(summary.record("two", later, 15, []))
    assert facts.count("<said>") == 3 == facts.count("</said>")
    assert facts.index("never touch the docs") < facts.index("third wish")
    assert 'Files changed: ["src/a.py", "src/new.py", "z.py"]' in facts
    assert "To-do" not in facts
    again = summary.record("three", [summary.record("two", later, 15, [])], 15, [])
    assert parts(again)[1] == facts


def test_many_and_long_words_are_bounded_and_the_first_and_newest_stay() -> None:
    said = [user_text("the very first")] + [user_text(f"{n} " + "x" * 3_000) for n in range(50)]
    _, facts = parts(summary.record("t", said, 51, []))
    assert len(facts) < 16_000
    assert "the very first" in facts and "\n49 x" in facts and "\n20 x" not in facts
    assert "more, see the summary]" in facts
    _, carried = parts(summary.record("t", [summary.record("t", said, 51, []), *said], 99, []))
    assert len(carried) < 16_000 and "the very first" in carried


def test_the_transcript_of_a_summary_has_the_models_words_only() -> None:
    record = summary.record("the models words", CONVERSATION, 12, TODOS)
    text = summary.transcript([record], 5_000)
    assert "SUMMARY OF WHAT CAME BEFORE:\nthe models words" in text
    assert "<said>" not in text and "older messages" not in text
