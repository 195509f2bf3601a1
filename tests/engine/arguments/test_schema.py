"""A tool's JSON schema as a guide: does a value satisfy it, and which one was meant."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import InvalidArguments
from agentcli.domain.events import AssistantRecorded, Outcome, ToolAnnounced
from agentcli.domain.messages import AssistantMessage, StopReason, TextPart, ToolCall
from agentcli.domain.ports import ModelRequest
from agentcli.domain.stream import StreamEnd, StreamEvent, TextDelta, ToolCallDelta, ToolCallStart
from agentcli.domain.tools import Asks, ToolContext, ToolDefinition, ToolOutput
from agentcli.engine.arguments import problems as wording
from agentcli.engine.arguments.schema import Schema, repaired
from agentcli.engine.assemble import read_arguments
from agentcli.providers.anthropic import MessagesDecoder
from agentcli.tools.common.base import BaseTool
from agentcli.tools.common.registry import Registry
from agentcli.wire.http import Endpoint
from tests.providers.streams import decode, fold, suite
from tests.support.turns import Box, FakeTool, PlayedProvider, World, calls, says

TODOS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "content": {"type": "string"},
            "status": {"enum": ["pending", "in_progress"]},
        },
        "required": ["content", "status"],
        "additionalProperties": False,
    },
}
TREE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
        }
    },
}


@pytest.mark.spec("LOOP-10")
@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        ({"type": "boolean"}, "true", True), ({"type": "boolean"}, " False ", False),
        ({"type": "boolean"}, "Yes", True), ({"type": "boolean"}, "off", False),
        ({"type": "integer"}, "30", 30), ({"type": "integer"}, "-7", -7), ({"type": "integer"}, "+5", 5),
        ({"type": "integer"}, "30.0", 30), ({"type": "integer", "maximum": 20}, "30", 30),
        ({"type": "number"}, "1.5", 1.5), ({"type": "number"}, "30", 30), ({"type": "number"}, "-2e3", -2000.0),
        ({"type": "array", "items": {"type": "string"}}, "a", ["a"]),
        ({"type": "array", "items": {"type": "string"}}, '["a", "b"]', ["a", "b"]),
        ({"type": "array", "items": {"type": "integer"}}, "3", [3]),
        ({"type": "array", "items": {"type": "integer"}}, ["3", 4], [3, 4]), ({"type": "array"}, 3, [3]),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}, ["1", "true"], [1, True]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}), ({"type": "object"}, "{'a': 1,}", {"a": 1}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n": "3", "x": "4"}', {"n": 3, "x": "4"}),
        ({"additionalProperties": {"type": "integer"}, "type": "object"}, {"x": "4"}, {"x": 4}),
        (TODOS, {"content": "a", "status": "pending"}, [{"content": "a", "status": "pending"}]),
        (TODOS, '[{"content": "a", "status": "In Progress"}]', [{"content": "a", "status": "in_progress"}]),
        (TODOS, '{"content": "a", "status": "PENDING"}', [{"content": "a", "status": "pending"}]),
        (TODOS, "```json\n[{'content': 'a', 'status': 'pending'}]\n```", [{"content": "a", "status": "pending"}]),
        ({"enum": ["fast", "slow"]}, " Fast", "fast"), ({"type": "string", "const": "x-y"}, "X_Y", "x-y"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "30", 30),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "boolean"}]}, "true", True),
        ({"oneOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}, ["1"], [1]),
        ({"type": ["integer", "null"]}, "30", 30), ({"type": ["null", "integer"]}, "none", None),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "30", 30),
        (TREE, {"size": "1", "children": [{"size": "2"}]}, {"size": 1, "children": [{"size": 2}]}),
        (TREE, {"children": {"size": "2"}}, {"children": [{"size": 2}]}),
        # null where only absence is allowed
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": None, "x": None}, {"x": None}),
        # each field for itself
        (
            {"type": "object", "properties": {"n": {"type": "integer"}, "b": {"type": "boolean"}}},
            {"n": "many", "b": "true"}, {"n": "many", "b": True},
        ),
    ],
)  # fmt: skip
def test_what_was_meant_is_found(schema: dict[str, Any], value: Any, wanted: Any) -> None:
    found = Schema(schema).coerced(value)
    assert json.dumps(found) == json.dumps(wanted)


@pytest.mark.spec("LOOP-10")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "true"), ({"type": "string"}, "30"), ({"type": "string"}, '{"a": 1}'),
        ({"type": "string"}, 5), ({"type": "string"}, ["a"]), ({"type": "string"}, None),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "30"), ({"type": ["string", "boolean"]}, "true"),
        ({"type": "boolean"}, "yes please"), ({"type": "boolean"}, 1), ({"type": "boolean"}, ""),
        ({"type": "integer"}, "1.5"), ({"type": "integer"}, "ten"), ({"type": "integer"}, "0x10"),
        ({"type": "integer"}, "1,000"), ({"type": "integer"}, "007"), ({"type": "integer"}, 1.5),
        ({"type": "integer"}, True), ({"type": "integer"}, "9" * 400), ({"type": "number"}, "1e999"),
        ({"type": "number"}, "NaN"), ({"type": "number"}, "120s"), ({"type": "integer"}, "٣"),
        ({"type": "array", "items": {"type": "integer"}}, "x"), ({"type": "array"}, None), ({"type": "array"}, ""),
        ({"type": "array", "items": {"type": "string"}}, '["a", "b'), ({"type": "array", "items": {"type": "string"}}, "[a"),
        ({"type": "object"}, "a"), ({"type": "object"}, "[1]"), ({"type": "object"}, '{"a": '), ({"type": "object"}, [1]),
        ({"enum": ["a", "A"]}, " a"), ({"enum": ["a"]}, "b"), ({"type": "integer", "enum": [1]}, "x"),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": None}),
        ({"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}, {"n": None}),
        ({}, "true"), ({"type": "mystery"}, "true"), (True, "x"), ({"$ref": "#/nowhere"}, "true"),
        ({"$ref": "https://example.org/x.json"}, "true"), ({"$ref": "#"}, "true"), ({"anyOf": []}, "true"),
    ],
)  # fmt: skip
def test_what_is_right_or_could_mean_anything_stays_as_it_is(schema: Any, value: Any) -> None:
    before = json.dumps(value)
    assert json.dumps(Schema(schema).coerced(value)) == before


@pytest.mark.spec("LOOP-9", "LOOP-10")
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 3}, [1, 3, 2.0], [0, 4, 1.5, True, "1", None]),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2}, [1, 0.1], [0, 2, "1"]),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ["a", "ab"], ["", "abc", 1]),
        ({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "null"}}, [[None]], [[], [1], [None] * 3]),
        ({"type": "object", "required": ["a"], "minProperties": 1, "maxProperties": 2}, [{"a": 1}], [{}, {"b": 1}]),
        ({"properties": {"a": True}, "additionalProperties": False}, [{"a": 1}, 5], [{"b": 1}]),
        ({"properties": {"a": False}}, [{}], [{"a": 1}]), ({"patternProperties": {"x": {}}}, [{"x1": 1}], []),
        ({"enum": [1, "a", None]}, [1, "a", None], [True, "b", 2]), ({"const": True}, [True], [1, "true"]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["a", None], [1]),
        ({"oneOf": [{"type": "string"}], "anyOf": [{"const": "a"}]}, ["a"], ["b", 1]),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2, "x"], [0, 3]),
        ({"type": ["string", "null"]}, ["a", None], [1]), (TODOS, [[]], [[{}], [{"content": "a", "status": "x"}]]),
        (TREE, [{"children": [{"children": []}]}], [{"children": [{"size": "x"}]}, []]),
    ],
)  # fmt: skip
def test_satisfaction_is_exact(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not Schema(schema).satisfied_by(value)] == []
    assert [value for value in bad if Schema(schema).satisfied_by(value)] == []


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5}, {"type": [None, 3]}, {"type": {}}, {"properties": []}, {"required": "abc"}, {"required": [[]]},
        {"items": "x"}, {"enum": 5}, {"minLength": "3", "minimum": [], "minItems": {}}, {"anyOf": {}}, {"allOf": 3},
        {"$ref": 5}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {"$ref": "#/~0~1/x/0"},
        {"prefixItems": "ab"}, {"properties": {"a": 3, "b": None}}, {"additionalProperties": "x"}, {"type": []},
        {"anyOf": [{"$ref": "#"}] * 8, "type": "integer"}, {"allOf": [{"$ref": "#"}] * 3, "type": "integer"},
        {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "integer"}]}},
    ],
    ids=str,
)  # fmt: skip
def test_an_odd_or_endless_schema_costs_bounded_work(schema: dict[str, Any]) -> None:
    for value in ("x", "1", {"a": "1", "b": [1]}, ["1", ["2", "x"]], None, 3):
        checked = Schema(schema)
        checked.satisfied_by(value)
        found = checked.coerced(value)
        assert found == value or checked.satisfied_by(found), value


@pytest.mark.slow
def test_a_huge_value_is_left_alone() -> None:
    value = ["1"] * 200_000
    assert Schema({"type": "array", "items": {"type": "integer"}}).coerced(value) is value
    deep: Any = "1"
    for _ in range(100):
        deep = [deep]
    nest = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]}
    assert Schema(nest).coerced(deep) is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["true", "3", "1.5", "[1]", "a", '{"n": "1"}']),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("nab"), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip
SCHEMAS = st.recursive(
    st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda name: {"type": name}),
    lambda inner: inner.map(lambda items: {"type": "array", "items": items})
    | inner.map(lambda field: {"type": "object", "properties": {"n": field}, "required": ["n"]})
    | st.lists(inner, min_size=1, max_size=2).map(lambda some: {"anyOf": some}),
    max_leaves=4,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("LOOP-10")
@settings(max_examples=300)
@given(SCHEMAS, JSON)
def test_what_satisfies_is_never_touched_and_coercing_twice_is_coercing_once(
    schema: dict[str, Any], value: Any
) -> None:
    checked = Schema(schema)
    once = checked.coerced(value)
    if checked.satisfied_by(value):
        assert once is value
    assert json.dumps(checked.coerced(once)) == json.dumps(once)


TOOLS = Registry.builtin()
DEFINITIONS = {definition.name: definition for definition in TOOLS.definitions}
FIELDS = [
    (name, field)
    for name, definition in DEFINITIONS.items()
    for field in definition.parameters["properties"]
]
every_tool = pytest.mark.parametrize("name", DEFINITIONS)
every_field = pytest.mark.parametrize(("name", "field"), FIELDS)


def sample(schema: Mapping[str, Any]) -> Any:
    """A value that satisfies the schema."""
    if "enum" in schema:
        return schema["enum"][-1]
    kind = schema.get("type")
    if kind == "object":
        found = {key: sample(each) for key, each in schema.get("properties", {}).items()}
        return found | ({"url": "https://example.com/"} if "url" in found else {})
    if kind == "array":
        return [sample(schema["items"])]
    if kind in {"integer", "number"}:
        return max(schema.get("minimum", 1), 1)
    return {"boolean": True, "string": "true"}.get(str(kind), "30")


def _is_typed(schema: Mapping[str, Any]) -> bool:
    return "type" in schema or "enum" in schema


def arguments_of(name: str) -> dict[str, Any]:
    made: dict[str, Any] = sample(DEFINITIONS[name].parameters)
    return made


def repaired_call(
    name: str, call: dict[str, Any] | str, stop: StopReason = StopReason.TOOL_USE
) -> ToolCall:
    """The call of tool ``name`` after assembling and repair."""
    text = call if isinstance(call, str) else json.dumps(call)
    arguments, malformed = read_arguments(text, cut=stop is StopReason.MAX_TOKENS)
    message = AssistantMessage((ToolCall("a", name, arguments, malformed),), stop_reason=stop)
    return repaired(message, TOOLS).tool_calls[0]


def invalid_text(name: str, call: ToolCall) -> str:
    """What the model is told; the call must not be acceptable to the tool."""
    tool = TOOLS.get(name)
    assert tool is not None
    if call.malformed is not None:
        return wording.malformed(call, tool.definition, cut=False)
    with pytest.raises(InvalidArguments) as refusal:
        tool.parse(call.arguments)
    return wording.invalid(call, tool.definition, refusal.value)


# --- every tool, every field --------------------------------------------------------------------


@pytest.mark.spec("LOOP-10")
@every_tool
def test_sound_arguments_are_the_same_object_afterwards(name: str) -> None:
    message = AssistantMessage((TextPart("so"), ToolCall("a", name, arguments_of(name))))
    assert repaired(message, TOOLS) is message


@pytest.mark.spec("LOOP-10")
@every_field
def test_a_value_written_as_text_or_alone_becomes_what_the_schema_asks_for(
    name: str, field: str
) -> None:
    wanted = arguments_of(name)
    value = wanted[field]
    variants: list[Any] = []
    if isinstance(value, list | dict):
        variants = [
            json.dumps(value),
            f" {json.dumps(value)}\n",
            f"```json\n{json.dumps(value)}\n```",
            repr(value),
        ]
    if isinstance(value, list):
        variants += [value[0], *([json.dumps(value[0])] if isinstance(value[0], dict) else [])]
    elif isinstance(value, bool):
        variants = ["true", "True", " TRUE "]
    elif isinstance(value, int | float):
        whole = DEFINITIONS[name].parameters["properties"][field]["type"] == "integer"
        variants = [str(value), f" {value} ", *([f"{value}.0"] if whole else [])]
    for variant in variants:
        call = repaired_call(name, {**wanted, field: variant})
        assert call.malformed is None
        assert json.dumps(call.arguments) == json.dumps(wanted)


@pytest.mark.spec("LOOP-10")
@every_field
def test_text_for_a_text_field_is_never_anything_else(name: str, field: str) -> None:
    schema = DEFINITIONS[name].parameters["properties"][field]
    if schema.get("type") != "string" or "enum" in schema:
        return
    for text in ["true", "30", "null", "[]", '{"a": 1}', "x\n ", "'x'"]:
        wanted = {**arguments_of(name), field: text}
        assert repaired_call(name, wanted).arguments == wanted


@pytest.mark.spec("LOOP-10")
@every_field
def test_what_runs_is_what_the_history_says(name: str, field: str) -> None:
    tool = TOOLS.get(name)
    assert isinstance(tool, BaseTool)
    ran = 0
    odd = [True, False, 0, 1, 1.0, 2.5, "yes", "off", "1_0", "1", "1.0", "t", "inf", [1], None]
    for value in [*odd, arguments_of(name)[field]]:
        call = repaired_call(name, {**arguments_of(name), field: value})
        try:
            args = tool.parse(call.arguments)
        except InvalidArguments:
            continue
        ran += 1
        run = args.model_dump(mode="json", exclude_unset=True)
        assert run == call.arguments
        assert isinstance(run.get(field), bool) == isinstance(call.arguments.get(field), bool)
    assert ran


@pytest.mark.spec("LOOP-10")
@every_field
def test_null_for_an_optional_field_is_its_absence(name: str, field: str) -> None:
    wanted = arguments_of(name)
    call = repaired_call(name, {**wanted, field: None})
    schema = DEFINITIONS[name].parameters["properties"][field]
    if field in DEFINITIONS[name].parameters.get("required", ()) or not _is_typed(schema):
        assert call.arguments[field] is None
    else:
        assert call.arguments == {key: value for key, value in wanted.items() if key != field}


@pytest.mark.spec("LOOP-5", "LOOP-11")
@every_field
def test_a_wrong_or_missing_value_is_told_by_field_type_and_size(name: str, field: str) -> None:
    wanted = arguments_of(name)
    schema = DEFINITIONS[name].parameters["properties"][field]
    if not _is_typed(schema):
        pytest.skip("it takes any value; the tool itself says what is wrong with one")
    wrong: Any = 5 if schema.get("type") in {"string", "object"} else {"an": "object"}
    text = invalid_text(name, repaired_call(name, {**wanted, field: wrong}))
    assert name in text
    assert "not executed" in text
    assert f"- {field}" in text
    kind = "one of" if "enum" in schema else schema["type"]
    assert f"(expected {kind}" in text
    assert f"{field}: {'integer' if wrong == 5 else 'object (1 fields)'}" in text
    if field in DEFINITIONS[name].parameters.get("required", ()):
        del wanted[field]
        missing = invalid_text(name, repaired_call(name, wanted))
        assert re.search(rf"- {field}: (Field required \(expected |is missing: )", missing)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.spec("LOOP-11", "SEC-13")
@every_tool
def test_hostile_arguments_of_any_tool_are_answered_in_two_thousand_characters(name: str) -> None:
    hostile: list[dict[str, Any]] = [
        {f"field_{n}": n for n in range(10_000)},
        {"k" * 100_000: "v" * 100_000, "\x1b[2J\n\u202e": [[[{}]]]},
        {field: {"deep": [[[[1] * 50] * 3]]} for _, field in FIELDS},
        {field: ["x" * 30_000] for _, field in FIELDS},
    ]
    for received in hostile:
        text = invalid_text(name, repaired_call(name, received))
        assert len(text) <= 2_000
        assert name in text
        assert "\nReceived: " in text
        assert "\x1b" not in text
        assert "xxxx" not in text


@pytest.mark.slow
@pytest.mark.spec("LOOP-9")
@every_tool
def test_python_and_javascript_for_arguments_are_read(name: str) -> None:
    wanted = arguments_of(name)
    for text in [
        repr(wanted),
        json.dumps(wanted)[:-1] + (",}" if wanted else "}"),
        f"```json\n{json.dumps(wanted, indent=1)}\n```",
        json.dumps(json.dumps(wanted)),
        json.dumps(wanted) * 2,
        "{}" + json.dumps(wanted),
        json.dumps(wanted) + "}",
    ]:
        call = repaired_call(name, text)
        assert (call.malformed, call.arguments) == (None, wanted)


@pytest.mark.spec("LOOP-9", "LOOP-11")
@every_tool
def test_a_cut_call_runs_only_when_closers_alone_are_missing_and_the_schema_is_satisfied(
    name: str,
) -> None:
    wanted = arguments_of(name)
    text = json.dumps(wanted)
    for size in range(1, len(text)):
        call = repaired_call(name, text[:size])
        if call.malformed is None:
            closed = text[:size] + "".join(
                closer for closer in ("]}", "}", "}]}") if _parses(text[:size] + closer)
            )
            assert call.arguments == json.loads(closed)
            assert set(DEFINITIONS[name].parameters.get("required", ())) <= set(call.arguments)
        else:
            assert call.arguments == {}
            assert name in invalid_text(name, call)
        assert repaired_call(name, text[:size], StopReason.MAX_TOKENS).malformed == text[:size]


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# --- the rules ----------------------------------------------------------------------------------


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"command":"pwd"', {"command": "pwd"}), ('{"command": "pwd", "timeout_s": "5"', {"command": "pwd", "timeout_s": 5}),
        ("", {}), ('{"command":"echo h', None), ('{"command":"pwd", "timeout_s": 1', None), ('{"command":"pwd",', None),
        ("{'cmd': 'pwd'}", None), ("{'command': 5}", None), ("{}}", None), ("['pwd']", None), ('"pwd"', None),
        ('{"command": "pwd", "extra": 1,}', None), ('{"timeout_s": 5', None), ('"{\\"command\\": \\"pw', None),
        ('"{\\"command\\": \\"pwd\\""', None),
    ],
)  # fmt: skip
def test_a_repair_counts_only_when_the_schema_is_satisfied(text: str, arguments: Any) -> None:
    call = repaired_call("bash", text)
    if arguments is None:
        assert (call.arguments, call.malformed) == ({}, text)
    else:
        assert (call.arguments, call.malformed) == (arguments, None)


def test_fields_that_the_schema_does_not_know_stay_for_the_tool_to_judge() -> None:
    call = repaired_call("read_file", {"path": "a", "limit": "3", "extra": "true"})
    assert call.arguments == {"path": "a", "limit": 3, "extra": "true"}


def test_a_call_of_an_unknown_tool_is_left_alone() -> None:
    message = AssistantMessage(
        (ToolCall("a", "nope", {"n": "1"}), ToolCall("b", "nope", {}, "{'a': 1}"))
    )
    assert repaired(message, TOOLS) is message


def test_id_name_place_and_everything_else_of_the_message_stay() -> None:
    parts = (
        TextPart("so"), ToolCall("a", "read_file", {"path": "x", "limit": "3"}), TextPart("and"),
        ToolCall("b", "bash", {}, "{'command': 'pwd'}"),
    )  # fmt: skip
    message = AssistantMessage(parts, "p", "m", StopReason.TOOL_USE)
    assert repaired(message, TOOLS) == AssistantMessage(
        (
            TextPart("so"), ToolCall("a", "read_file", {"path": "x", "limit": 3}), TextPart("and"),
            ToolCall("b", "bash", {"command": "pwd"}),
        ),
        "p", "m", StopReason.TOOL_USE,
    )  # fmt: skip


@pytest.mark.spec("LOOP-12")
@pytest.mark.parametrize(
    "text", ['{"command": "pwd"', "{'command': 'pwd'}", '{"command": "pw', "", "{}}"]
)
def test_the_last_call_of_a_reply_cut_by_the_output_limit_is_never_repaired(text: str) -> None:
    cut = ToolCall("b", "bash", {}, text)
    earlier = ToolCall("a", "bash", {}, "{'command': 'ls'}")
    message = AssistantMessage((earlier, cut), stop_reason=StopReason.MAX_TOKENS)
    first, last = repaired(message, TOOLS).tool_calls
    assert first == ToolCall("a", "bash", {"command": "ls"})
    assert last is cut


@pytest.mark.spec("LOOP-9", "LOOP-12")
@pytest.mark.parametrize("stop", [StopReason.MAX_TOKENS, StopReason.REFUSAL])
def test_no_closers_are_added_to_a_reply_that_somebody_cut(stop: StopReason) -> None:
    parts = (ToolCall("a", "bash", {}, '{"command": "pwd"'), TextPart("and"))
    message = AssistantMessage(parts, stop_reason=stop)
    assert repaired(message, TOOLS) is message


@pytest.mark.spec("LOOP-9", "LOOP-10")
@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(DEFINITIONS)),
    st.text(alphabet="{}[]:,\"' \n\\abpth019truecomand", max_size=40),
)
def test_any_text_is_repaired_once_and_for_all_or_left_alone(name: str, text: str) -> None:
    call = repaired_call(name, text)
    assert call.malformed in {None, text}
    again = AssistantMessage((call,))
    assert repaired(again, TOOLS) is again
    json.dumps(call.arguments, allow_nan=False)


# --- history, event and execution ---------------------------------------------------------------


@dataclass
class SchemaTool(FakeTool):
    """A fake tool with the schema of a real one."""

    like: str = "read_file"

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(
            self.name,
            self.name,
            "for tests",
            DEFINITIONS[self.like].parameters,
            self.asks,
            "test",
        )


def world_of(*replies: Any, name: str, like: str) -> tuple[World, list[Any]]:
    executed: list[Any] = []

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        executed.append((ctx.call_id, args))
        return ToolOutput.text("done")

    return World(
        PlayedProvider(*replies), [SchemaTool(name, work, Asks.NOTHING, like=like)]
    ), executed


@pytest.mark.spec("LOOP-9", "LOOP-10")
@pytest.mark.parametrize(
    ("like", "text", "arguments"),
    [
        ("read_file", "{'path': 'a.py', 'limit': '30',}", {"path": "a.py", "limit": 30}),
        ("grep_files", '{"pattern": "x", "ignore_case": "true"', {"pattern": "x", "ignore_case": True}),
        ("ask_user", '{"question": "a", "options": "yes"}', {"question": "a", "options": ["yes"]}),
        (
            "write_todos", '{"todos": "[{\\"content\\": \\"a\\", \\"status\\": \\"Pending\\"}]"}',
            {"todos": [{"content": "a", "status": "pending"}]},
        ),
    ],
)  # fmt: skip
def test_history_event_store_request_and_execution_see_the_same_arguments(
    like: str, text: str, arguments: dict[str, Any]
) -> None:
    requests: list[ModelRequest] = []

    def note(request: ModelRequest) -> list[StreamEvent]:
        requests.append(request)
        return says("x")

    world, executed = world_of(calls(("a", "work", text)), note, name="work", like=like)
    assert asyncio.run(world.run()).outcome is Outcome.DONE
    announced = [event.call for event in world.events if isinstance(event, ToolAnnounced)]
    recorded = [event.message for event in world.events if isinstance(event, AssistantRecorded)]
    seen = {
        "execution": executed[0][1],
        "announcement": announced[0].arguments,
        "record event": recorded[0].tool_calls[0].arguments,
        "history": _first_call(world.history.messages).arguments,
        "disk": _first_call(world.store.disk).arguments,
        "next request": _first_call(requests[0].messages).arguments,
    }
    assert {where: json.dumps(what) for where, what in seen.items()} == dict.fromkeys(
        seen, json.dumps(arguments)
    )


def _first_call(messages: Any) -> ToolCall:
    return next(m for m in messages if isinstance(m, AssistantMessage)).tool_calls[0]


@pytest.mark.spec("LOOP-5", "LOOP-9")
def test_what_cannot_be_repaired_is_answered_and_the_model_may_try_again() -> None:
    world, executed = world_of(
        calls(("a", "work", '{"command":"echo h')), calls(("b", "work", '{"command":"echo h"')), says("x"),
        name="work", like="bash",
    )  # fmt: skip
    assert asyncio.run(world.run()).outcome is Outcome.DONE
    assert executed == [("b", {"command": "echo h"})]
    assert "Unterminated string" in world.results[0].text
    assert "command: string (6 chars)" in world.results[0].text


@pytest.mark.spec("LOOP-12")
@pytest.mark.parametrize("cut", ["", '{"path": "b', '{"path": "b"', '{"path": "b"}'])
def test_calls_before_the_cut_run_and_the_cut_one_only_when_it_was_complete(cut: str) -> None:
    reply = [
        TextDelta(0, "so"),
        ToolCallStart(1, "a", "work"), ToolCallDelta(1, '{"path": "a"}'),
        ToolCallStart(2, "b", "work"), ToolCallDelta(2, cut),
        StreamEnd(StopReason.MAX_TOKENS),
    ]  # fmt: skip
    world, executed = world_of(reply, says("x"), name="work", like="stat_file")
    assert asyncio.run(world.run()).outcome is Outcome.DONE
    complete = cut == '{"path": "b"}'
    assert [call_id for call_id, _ in executed] == (["a", "b"] if complete else ["a"])
    assert [result.call_id for result in world.results] == ["a", "b"]
    assert ("output limit" in world.results[1].text) is not complete


@pytest.mark.spec("LOOP-9", "LOOP-12")
def test_a_call_without_arguments_before_the_cut_has_none() -> None:
    reply = [
        ToolCallStart(0, "a", "work"), ToolCallStart(1, "b", "work"), ToolCallDelta(1, '{"path'),
        StreamEnd(StopReason.MAX_TOKENS),
    ]  # fmt: skip
    world, executed = world_of(reply, says("x"), name="work", like="list_directory")
    asyncio.run(world.run())
    assert executed == [("a", {})]


@pytest.mark.spec("LOOP-12", "STR-8")
@pytest.mark.parametrize("stop", list(StopReason))
def test_a_recorded_call_that_was_cut_inside_a_list_of_lines_is_never_executed(
    stop: StopReason,
) -> None:
    data = suite("streams/anthropic_sdk/incomplete_partial_json_response.sse").read_bytes()
    message = fold(decode(MessagesDecoder(Endpoint("p", "http://host")), [data]))
    assert message is not None
    assert message.stop_reason is StopReason.MAX_TOKENS

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        raise AssertionError

    box = Box(FakeTool("make_file", work))
    message = replace(message, stop_reason=stop)
    assert repaired(message, box) is message
    assert "taxes.txt" in str(message.tool_calls[0].malformed)
