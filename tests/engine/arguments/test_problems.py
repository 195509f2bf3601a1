"""What the model is told when a call cannot run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.messages import ToolCall
from agentcli.domain.tools import Asks, ToolDefinition
from agentcli.engine.arguments import problems as arguments

DEFINITION = ToolDefinition(
    "write_file", "Write", "",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": True},
        "required": ["path", "content"],
    },
    Asks.EDIT, "files", timeout_s=2.5,
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


@pytest.mark.slow
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
    always = arguments.refused("bash", "each time", unattended=True, is_free_by_rule=False)
    assert "--allow-tool" not in always
    asked = arguments.refused("bash", "not now", unattended=False)
    assert "not now" in asked
    assert "ancel" not in alone + asked


@pytest.mark.spec("LOOP-5")
def test_a_time_out_says_how_long_and_what_was_printed() -> None:
    assert "2.5 s" in arguments.timed_out(DEFINITION, " ")
    assert "printed" not in arguments.timed_out(DEFINITION, " ")
    assert "half way" in arguments.timed_out(DEFINITION, "half way")


HOSTILE: dict[str, dict[str, Any]] = {
    "many fields": {f"field_{n}": n for n in range(10_000)},
    "huge keys": {"k" * 100_000 + str(n): "v" * 50_000 for n in range(30)},
    "control characters": {"\x1b[2J\r\n\x00\u202e": "x", "\ud800": 1, "a\nReceived: nothing.": 2},
    "nested": {"path": {"a": [{"b": {}}] * 50}, "content": [["x"] * 100] * 100},
}


@pytest.mark.spec("LOOP-11", "SEC-6", "SEC-13")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_fields_are_counted_escaped_and_never_echoed(name: str) -> None:
    received = HOSTILE[name]
    problems = [(field, "Extra inputs are not permitted") for field in received]
    text = invalid({**received, "mode": "m" * 9_000}, *problems)
    assert len(text) <= 2_000
    assert text.isascii() or "…" in text
    assert "mode: string (9000 chars)" in text
    assert not set(text) & set("\x1b\r\x00\u202e\ud800")
    assert text.count("\nReceived: ") == 1
    assert "vvv" not in text
    assert "mmm" not in text
    if name == "many fields":
        assert " more." in text


@pytest.mark.spec("LOOP-11")
def test_nested_fields_have_their_own_type_and_an_unknown_one_brings_the_list_of_fields() -> None:
    item = {
        "type": "object",
        "properties": {"status": {"enum": ["a", "b"]}, "n": {"type": ["integer", "null"]}},
    }
    definition = ToolDefinition(
        "plan", "Plan", "",
        {
            "type": "object",
            "properties": {
                "todos": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                "who": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
                "dotted.name": {"type": "boolean"},
            },
            "$defs": {"Item": item},
        },
        Asks.NOTHING, "test",
    )  # fmt: skip
    fields = ["todos.0.status", "todos.3.n", "todos", "who", "dotted.name", "todos.0.z", "wo"]
    error = InvalidArguments(tuple(ArgumentProblem(field, "wrong") for field in fields))
    text = arguments.invalid(ToolCall("a", "plan", {"wo": 1}), definition, error)
    assert 'todos.0.status: wrong (expected one of "a", "b")' in text
    assert "todos.3.n: wrong (expected integer or null)" in text
    assert "who: wrong (expected string or array of string)" in text
    assert "dotted.name: wrong (expected boolean)" in text
    assert "todos.0.z: wrong\n" in text
    assert "Fields of plan: todos: array" in text


@pytest.mark.slow
@pytest.mark.spec("LOOP-9", "LOOP-11")
@pytest.mark.parametrize(
    ("received", "parts"),
    [
        ('{"path": "a", "content": "say "hi""}', ["',' delimiter", "path: string (1 chars)"]),
        ('{"content": 5', ["- path: not found (expected string)", "content: integer"]),
        ("[1, 2]", ["it is array (2 items)", "Received: nothing."]),
        ('{"path": NaN}', ["a number that JSON does not have", "path: unreadable"]),
        ('{"path": {"a": 1}, "content": [', ["path: object, content: array"]),
        ("", ["Expecting value"]), ("\x1b\ud800", ["Expecting value"]),
        ("{" + ",".join(f'"{n}": 1' for n in range(9_000)), [" more."]),
        ('{"a": ' * 60_000, ["nested too deeply"]), ("\x00" * 60_000, ["60000 characters"]),
    ],
)  # fmt: skip
def test_malformed_arguments_are_told_by_flaw_fields_and_sizes(
    received: str, parts: list[str]
) -> None:
    call = ToolCall("a", "write_file", {}, malformed=received)
    text = arguments.malformed(call, DEFINITION, cut=False)
    assert len(text) <= 2_000
    for part in ["write_file", "not executed", "path: string", *parts]:
        assert part in text
    assert len(arguments.malformed(call, DEFINITION, cut=True)) <= 2_000


@pytest.mark.spec("LOOP-11", "SEC-13")
@settings(max_examples=60)
@given(
    st.dictionaries(st.text(max_size=30), st.none() | st.booleans() | st.text(max_size=9), max_size=9),
    st.text(max_size=200), st.lists(st.text(max_size=30), max_size=5),
)  # fmt: skip
def test_an_odd_schema_never_breaks_the_answer(
    properties: dict[str, Any], received: str, required: list[str]
) -> None:
    schema = {"properties": properties, "required": required}
    odd = ToolDefinition("n" * 90, "Odd", "", schema, Asks.NOTHING, "test")
    error = InvalidArguments((ArgumentProblem(received, received),))
    assert len(arguments.invalid(ToolCall("a", "n", {received: 1}), odd, error)) <= 2_000
    assert len(arguments.malformed(ToolCall("a", "n", {}, received), odd, cut=False)) <= 2_000
