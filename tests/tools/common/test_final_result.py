"""The schema of a result: what it takes, how it is wrapped, what is said of a wrong value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import UsageError
from agentcli.tools.common.final_result import Cost, ResultSchema, cost_of

pytestmark = pytest.mark.sampled

NAMED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TREE = {
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    "anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}],
}


@pytest.mark.spec("CTRL-5")
def test_an_object_schema_is_given_as_it_is() -> None:
    assert ResultSchema(NAMED).parameters == NAMED
    untyped = {"properties": {"n": {}}}
    assert ResultSchema(untyped).parameters == {"type": "object", **untyped}


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "array"},
        {"type": ["object", "null"]},
        {"type": "object", "oneOf": [{"required": ["a"]}]},
        {"$ref": "#/definitions/a", "definitions": {"a": {"type": "object"}}},
        TREE,
    ],
)
def test_everything_else_is_wrapped_in_an_object_that_providers_take(schema: Any) -> None:
    parameters = ResultSchema(schema).parameters
    assert (parameters["type"], parameters["required"]) == ("object", ["result"])
    assert not {"$ref", "anyOf", "oneOf", "allOf", "enum", "not"} & set(parameters)
    wrapped = ResultSchema(parameters)
    assert ResultSchema(schema).of_arguments({"result": 1}) == 1
    for value in ({}, [], None, {"next": {"next": {}}}, {"next": 3}, "x"):
        inside = wrapped.refusal({"result": value}) == ""
        assert inside == (ResultSchema(schema).refusal(value) == "")


def test_references_to_the_root_still_mean_the_whole_result() -> None:
    schema = {"type": "array", "items": {"$ref": "#"}}
    parameters = ResultSchema(schema).parameters
    assert parameters["properties"]["result"]["items"] == {"$ref": "#/properties/result"}
    assert ResultSchema(parameters).refusal({"result": [[], [[]]]}) == ""
    assert ResultSchema(parameters).refusal({"result": [[], [3]]})


def test_names_of_fields_are_not_taken_for_keywords() -> None:
    inner = {"$ref": "#/$defs/t"}
    schema = {
        "type": "array",
        "items": {"properties": {"default": inner, "$ref": {"type": "string"}, "enum": inner}},
        "$defs": {"t": {"type": "integer"}},
    }
    assert ResultSchema(schema).refusal([{"default": 1, "$ref": "x", "enum": 2}]) == ""
    assert "0.enum" in ResultSchema(schema).refusal([{"enum": "x"}])


@pytest.mark.spec("CTRL-5", "LOOP-11")
@pytest.mark.parametrize(
    ("schema", "value", "field", "word"),
    [
        (NAMED, {"n": "secret"}, "n", "type"),
        (NAMED, {}, "(all)", "'n' is a required property"),
        ({"properties": {"a": {"pattern": "^x"}}}, {"a": "secret"}, "a", "pattern"),
        ({"properties": {"a": {"format": "date"}}}, {"a": "secret"}, "a", "date"),
        ({"properties": {"a": {"multipleOf": 2}}}, {"a": 3}, "a", "multipleOf"),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, 1]}, "a", "uniqueItems"),
        ({"properties": {"a": {"not": {}}}}, {"a": "secret"}, "a", "not"),
        ({"properties": {"a": False}}, {"a": "secret"}, "(all)", "nothing is allowed"),
        ({"properties": {}, "additionalProperties": False}, {"b": 1}, "(all)", "'b'"),
        ({"properties": {"a": {"enum": ["x"]}}}, {"a": "secret"}, "a", 'enum: ["x"]'),
        ({"properties": {"a": {"anyOf": [NAMED]}}}, {"a": {"n": "secret"}}, "a.n", "integer"),
        ({"properties": {"a": {"if": {"const": 1}, "then": {"maximum": 0}}}}, {"a": 1}, "a", "maximum: 0"),
    ],
)  # fmt: skip
def test_a_problem_names_field_and_rule_and_not_the_value(
    schema: Any, value: Any, field: str, word: str
) -> None:
    (problem,) = ResultSchema(schema).problems(value)
    assert problem.field == field and word in problem.problem
    assert "secret" not in problem.problem


def test_arguments_of_a_wrapped_schema_need_the_one_field() -> None:
    schema = ResultSchema({"type": "integer"})
    assert schema.argument_problems({"result": 1}) == ()
    assert [p.field for p in schema.argument_problems({"result": "x"})] == ["result"]
    assert [p.field for p in schema.argument_problems({"n": 1})] == ["result"]
    assert [p.field for p in ResultSchema(NAMED).argument_problems({"n": "x"})] == ["n"]


@pytest.mark.spec("CTRL-5", "LOOP-10")
def test_a_result_whose_wrapper_was_left_out_is_taken_where_it_satisfies_the_schema() -> None:
    schema = ResultSchema({"oneOf": [NAMED, {"required": ["b"]}]})
    assert "result" in schema.parameters["properties"]
    assert schema.argument_problems({"n": 1}) == ()
    assert schema.of_arguments({"n": 1}) == {"n": 1}
    assert [p.field for p in schema.argument_problems({"c": 1})] == ["result"]
    assert [p.field for p in ResultSchema(True).argument_problems({})] == ["result"]


@pytest.mark.spec("SEC-13")
def test_deep_and_long_values_have_a_bounded_answer() -> None:
    tree = ResultSchema(TREE)
    deep: Any = {}
    for _ in range(2_000):
        deep = {"next": deep}
    assert "deep" in tree.refusal(deep)
    assert len(ResultSchema({"items": {"type": "null"}}).problems([1] * 10_000)) == 20
    long = {"properties": {"a": {"enum": ["x" * 10_000]}}}
    assert len(ResultSchema(long).refusal({"a": 1})) < 300


@pytest.mark.spec("SEC-12", "CLI-11")
@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ([], "an array"),
        ("x", "a text"),
        (3, "a number"),
        (None, "null"),
        ({"type": 3}, "type"),
        ({"$schema": []}, "$schema"),
        ({"items": {"$ref": "other.json"}}, "other.json"),
        ({"properties": {"enum": {"$ref": "#/gone"}}}, "/gone"),
        ({"$ref": "#"}, "itself"),
    ],
)
def test_what_is_no_schema_is_refused_in_one_line(schema: Any, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        ResultSchema(schema)
    assert part in caught.value.message and "\n" not in str(caught.value) and caught.value.advice


def test_the_draft_that_a_schema_names_rules() -> None:
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1}
    assert ResultSchema({**old, "exclusiveMinimum": True}).refusal(1)
    assert ResultSchema(old).refusal(1) == ""
    assert ResultSchema({"$schema": "https://example.invalid/unknown", "minimum": 1}).refusal(0)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([TREE, NAMED, {"enum": [1, "a", None]}, {"type": "array"}]), values)
def test_a_result_comes_out_of_its_arguments_as_it_was(schema: Any, value: Any) -> None:
    shape = ResultSchema(schema)
    is_wrapped = "result" in shape.parameters["properties"]
    arguments = {"result": value} if is_wrapped else value
    if not isinstance(arguments, dict):
        return
    sent = json.loads(json.dumps(arguments))
    assert shape.of_arguments(sent) == value
    assert (shape.argument_problems(sent) == ()) == (shape.refusal(value) == "")


def _doubling(levels: int) -> dict[str, Any]:
    """A schema whose references multiply: 2 to the power of ``levels`` ways."""
    both = {
        f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]}
        for n in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**both, f"a{levels}": {"type": "integer"}}}


@pytest.mark.slow
@pytest.mark.spec("SEC-13", "CTRL-5")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, "a" * 60 + "!"),
        ({"patternProperties": {"^(a+)+$": True}}, {"a" * 60 + "!": 1}),
        ({"unevaluatedProperties": False, "patternProperties": {"(x+x+)+y": {}}}, {"x" * 60: 1}),
        (
            {
                "type": "object",
                "properties": {"n": {"$ref": "#/$defs/a0"}},
                "$defs": _doubling(40)["$defs"],
            },
            {"n": "x"},
        ),
    ],
)
def test_a_check_that_would_take_for_ever_ends_and_says_so(schema: Any, value: Any) -> None:
    assert "could not be checked within" in ResultSchema(schema).refusal(value)


@pytest.mark.slow
@pytest.mark.spec("SEC-13", "CTRL-5")
def test_references_that_multiply_without_end_are_refused_at_the_start() -> None:
    with pytest.raises(UsageError, match="without end"):
        ResultSchema(_doubling(40))


@pytest.mark.spec("SEC-13", "CTRL-5")
def test_a_tree_is_checked_at_once_and_a_circle_that_doubles_is_not() -> None:
    pair = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    assert cost_of(pair) is cost_of(TREE) is Cost.PLAIN
    twice = {"properties": {"n": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    through = {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"properties": {"n": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}}},
            "b": {"properties": {"n": {"$ref": "#/$defs/a"}}},
        },
    }
    assert cost_of(twice) is cost_of(through) is cost_of(_doubling(20)) is Cost.ENDLESS
    assert cost_of({"items": {"pattern": "a"}}) is Cost.PATTERNS


@pytest.mark.spec("CTRL-5")
def test_a_schema_with_patterns_or_circles_says_the_same_as_any() -> None:
    dated = ResultSchema({"type": "object", "properties": {"day": {"pattern": r"^\d{4}-\d\d$"}}})
    assert dated.refusal({"day": "2026-01"}) == ""
    assert dated.refusal({"day": "soon \ud800"}).startswith("day: does not satisfy pattern: ")
    assert ResultSchema(TREE).refusal({"next": {"next": 3}})
    assert ResultSchema(_doubling(3)).refusal(1) == ""


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ({"enum": [float("nan")]}, "not JSON"),
        ({"maximum": float("inf")}, "not JSON"),
        ({"properties": {"a": {"$dynamicRef": "http://127.0.0.1:9/z"}}}, "http://127.0.0.1:9/z"),
    ],
)
def test_what_cannot_be_sent_or_is_not_in_the_schema_is_refused_at_the_start(
    schema: Any, part: str
) -> None:
    with pytest.raises(UsageError, match=part):
        ResultSchema(schema)
