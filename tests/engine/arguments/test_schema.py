"""A tool's JSON schema as a guide: does a value satisfy it, and which one was meant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.engine.arguments.schema import Schema

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
@pytest.mark.parametrize("value", ["x", "1", {"a": "1", "b": [1]}, ["1", ["2", "x"]], None, 3])
def test_an_odd_or_endless_schema_costs_bounded_work(schema: dict[str, Any], value: Any) -> None:
    checked = Schema(schema)
    checked.satisfied_by(value)
    found = checked.coerced(value)
    assert found == value or checked.satisfied_by(found)


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
