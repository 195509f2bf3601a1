"""Tool schemas as Gemini takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentcli
from agentcli.providers.gemini import gemini_schema
from tests.support.strict_gemini import _schema

DEFINITIONS = Path(agentcli.__file__).parent / "tools/common/definitions.json"
TOOLS = json.loads(DEFINITIONS.read_text())


def complaints(schema: dict[str, Any]) -> list[str]:
    return list(_schema("tool", schema))


def properties(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def only(schema: Any) -> Any:
    """What becomes of one property."""
    plain = gemini_schema(properties(x=schema))
    assert plain is not None
    assert complaints(plain) == []
    return plain["properties"]["x"]


@pytest.mark.parametrize("tool", TOOLS, ids=[tool["name"] for tool in TOOLS])
def test_every_tool_of_ours_is_accepted_and_keeps_its_arguments(tool: dict[str, Any]) -> None:
    before = json.dumps(tool["parameters"])
    plain = gemini_schema(tool["parameters"])
    assert json.dumps(tool["parameters"]) == before
    if not tool["parameters"].get("properties"):
        assert plain is None
        return
    assert plain is not None
    assert complaints(plain) == []
    assert list(plain["properties"]) == list(tool["parameters"]["properties"])
    assert plain.get("required") == tool["parameters"].get("required")
    for name, field in tool["parameters"]["properties"].items():
        assert plain["properties"][name].get("description") == field.get("description")


def test_references_are_written_out() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "todo": {"$ref": "#/$defs/Todo", "description": "one"},
            "all": {"type": "array", "items": {"$ref": "#/$defs/Todo"}},
        },
        "$defs": {
            "Todo": {"type": "object", "properties": {"s": {"$ref": "#/$defs/State"}}},
            "State": {"enum": ["open", "done"], "type": "string"},
        },
    }
    todo = {
        "type": "object",
        "properties": {"s": {"enum": ["open", "done"], "type": "string"}},
    }
    assert gemini_schema(schema) == {
        "type": "object",
        "properties": {
            "todo": {**todo, "description": "one"},
            "all": {"type": "array", "items": todo},
        },
    }


def test_a_schema_that_holds_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {**properties(tree={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}
    plain = gemini_schema(schema)
    assert plain is not None
    assert plain["properties"]["tree"]["properties"]["next"] == {}
    assert complaints(plain) == []


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"const": "a"}, {"enum": ["a"]}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "string", "format": "uri"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": "number", "exclusiveMaximum": 1.5}, {"type": "number", "maximum": 1.5}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "array", "items": True}, {"type": "array", "items": {}}),
        ({"type": "string", "required": True}, {"type": "string"}),
        ({"type": "array", "uniqueItems": True, "contains": {}}, {"type": "array"}),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"type": "string", "maxLength": 3}),
        ({"$ref": "https://elsewhere/x", "description": "d"}, {"description": "d"}),
        ({"$ref": "#/$defs/Missing"}, {}),
        (True, {}),
        ({"type": "object", "additionalProperties": {"type": "string", "$comment": "c"}},
         {"type": "object", "additionalProperties": {"type": "string"}}),
    ],
)  # fmt: skip
def test_what_the_api_does_not_know_is_said_in_its_words_or_left_out(
    given_: Any, expected: Any
) -> None:
    assert only(given_) == expected


@pytest.mark.spec("SEC-13")
def test_references_that_multiply_end() -> None:
    defs = {
        f"D{n}": properties(a={"$ref": f"#/$defs/D{n + 1}"}, b={"$ref": f"#/$defs/D{n + 1}"})
        for n in range(40)
    }
    plain = gemini_schema({**properties(x={"$ref": "#/$defs/D0"}), "$defs": defs})
    assert len(json.dumps(plain)) < 1_000_000


def test_a_property_may_be_called_like_a_keyword() -> None:
    plain = gemini_schema(properties(**{"$ref": {"type": "string"}, "const": {"type": "string"}}))
    assert plain is not None
    assert list(plain["properties"]) == ["$ref", "const"]


def test_a_root_that_is_no_object_becomes_one() -> None:
    assert gemini_schema({"properties": {"a": {}}}) == {"type": "object", "properties": {"a": {}}}
    assert gemini_schema({}) is None
    assert gemini_schema({"type": "object", "additionalProperties": False}) is None


_LEAF = st.one_of(st.booleans(), st.integers(-3, 3), st.text(max_size=3), st.none())
_KEYS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "const", "enum",
     "exclusiveMinimum", "required", "additionalProperties", "not", "a"]
)  # fmt: skip
_ANY = st.recursive(
    _LEAF,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(_KEYS, _ANY, max_size=5))
def test_no_schema_however_odd_is_a_crash(schema: dict[str, Any]) -> None:
    plain = gemini_schema(schema)
    assert plain is None or plain["type"] == "object"
