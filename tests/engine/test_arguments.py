"""What the model is told when a call cannot run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.messages import ToolCall
from agentcli.domain.tools import Effect, ToolDefinition
from agentcli.engine import arguments

DEFINITION = ToolDefinition(
    "write_file", "Write", "",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": True},
        "required": ["path", "content"],
    },
    Effect.WRITE, "files", timeout_s=2.5,
)  # fmt: skip


def invalid(received: dict[str, Any], *problems: tuple[str, str]) -> str:
    error = InvalidArguments(tuple(ArgumentProblem(*problem) for problem in problems))
    return arguments.invalid(ToolCall("a", "write_file", received), DEFINITION, error)


@pytest.mark.spec("LOOP-11")
def test_invalid_arguments_name_the_tool_the_fields_and_what_was_received() -> None:
    received = {
        "content": "x" * 20_000, "n": 1, "f": 1.5, "b": True, "none": None, "l": [1, 2], "o": {"a": 1},
    }  # fmt: skip
    text = invalid(received, ("path", "Field required"), ("content.0", "wrong"), ("mode", "odd"))
    assert "write_file" in text
    assert "not executed" in text
    assert "path: Field required (expected string)" in text
    assert "content.0: wrong (expected string)" in text
    assert "mode: odd\n" in text
    assert "content: string (20000 chars)" in text
    assert "n: integer, f: number, b: boolean, none: null" in text
    assert "l: array (2 items), o: object (1 fields)" in text
    assert "xxx" not in text
    assert "nothing" in invalid({}, ("path", "Field required"))


@pytest.mark.spec("LOOP-11")
@settings(max_examples=60)
@given(
    st.dictionaries(st.text(max_size=300), st.text(max_size=50), max_size=60),
    st.lists(st.tuples(st.text(max_size=300), st.text(max_size=600)), min_size=1, max_size=60),
)
def test_never_more_than_two_thousand_characters_and_never_without_what_was_received(
    received: dict[str, str], problems: list[tuple[str, str]]
) -> None:
    text = invalid(received, *problems)
    assert len(text) <= 2_000
    assert "\nReceived: " in text


@pytest.mark.spec("LOOP-11")
def test_a_hundred_problems_are_counted() -> None:
    text = invalid({}, *[(f"todos.{n}.status", "Input should be 'pending'") for n in range(100)])
    assert " more" in text
    assert text.endswith("Received: nothing.")


@pytest.mark.spec("LOOP-9", "LOOP-11", "LOOP-12")
def test_malformed_arguments_are_not_echoed_and_a_cut_says_what_to_do() -> None:
    call = ToolCall("a", "write_file", {}, malformed='{"content": "' + "z" * 9_000)
    text = arguments.malformed(call, DEFINITION, cut=False)
    assert "9013 characters" in text
    assert "path: string, content: string, mode: any (optional)" in text
    assert "zzz" not in text
    cut = arguments.malformed(call, DEFINITION, cut=True)
    assert "cut off by the output limit" in cut
    assert "not executed" in cut


@pytest.mark.spec("TOOL-4", "LOOP-11")
def test_an_unknown_name_is_answered_with_near_ones_and_bounded() -> None:
    text = arguments.unknown_tool("reed_file", ["read_file"], ["read_file", "bash"])
    assert "'reed_file'" in text
    assert "Did you mean read_file?" in text
    assert len(arguments.unknown_tool("x" * 9_000, [], ["t" * 60] * 100)) <= 2_000


@pytest.mark.spec("CLI-7", "CAN-1")
def test_a_refusal_says_why_and_which_flag_and_never_cancelled() -> None:
    alone = arguments.refused("bash", "it runs a command", unattended=True)
    assert "--allow-tool 'bash'" in alone
    asked = arguments.refused("bash", "not now", unattended=False)
    assert "not now" in asked
    assert "ancel" not in alone + asked


@pytest.mark.spec("LOOP-5")
def test_a_time_out_says_how_long_and_what_was_printed() -> None:
    assert "2.5 s" in arguments.timed_out(DEFINITION, " ")
    assert "printed" not in arguments.timed_out(DEFINITION, " ")
    assert "half way" in arguments.timed_out(DEFINITION, "half way")
