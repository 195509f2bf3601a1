"""The language of pipelines: what it reads, what it comes to, that it always comes to something."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.fleet.pipeline.expressions import (
    Reference,
    WrongExpression,
    parse,
    parse_template,
    problems,
    references,
    shape,
    value_of,
)
from agentcli.fleet.pipeline.shapes import ValueShape

VALUES: dict[str, Any] = {
    "inputs": {"dry": False, "files": ["a", "b"], "limit": 3, "a-b": "hyphen"},
    "steps": {
        "find": {
            "state": "done",
            "result": {"count": 4, "kind": "bug", "mods": [{"path": "x.py"}, {"path": "y.py"}]},
        }
    },
    "item": {"path": "x.py", "odd key": 1, "one": 1, "yes": True},
    "index": 0,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inputs.limit", 3),
        ("inputs.a-b == 'hyphen'", True),
        ("steps.find.result.mods[1].path", "y.py"),
        ("steps.find.result.mods[-1].path", "y.py"),
        ("steps.find.result.mods[9].path", None),
        ("item['odd key']", 1),
        ("nobody.knows[3].it", None),
        ("steps.find.result.count>3", True),
        ("steps.find.result.count > 3 and not inputs.dry", True),
        ("not not inputs.limit", True),
        ("not not not inputs.limit", False),
        ("inputs.dry or index == 0", True),
        ("false or true and false", False),
        ("(true or true) and false", False),
        ("item.one == true", False),
        ("item.one == 1.0", True),
        ("item.yes == 1", False),
        ("'3' < 4", False),
        ("'a' < \"b\"", True),
        ("null < null", False),
        ("null == inputs.nothing", True),
        ("'a' in inputs.files", True),
        ("'path' in item", True),
        ("'x' in item.path", True),
        ("1 in item.path", False),
        ("item.path not in ['x.py', 'z.py']", False),
        ("length(inputs.files) == 2", True),
        ("length(inputs.limit)", 0),
        ("[1, [2], 'three', []]", [1, [2], "three", []]),
        (r'"a\"\u00e4"', 'a"ä'),
        ("-1.5e1 <= -15", True),
        ("steps.find.result.mods == steps.find.result.mods", True),
    ],
)
def test_an_expression_comes_to_its_value(text: str, expected: Any) -> None:
    found = value_of(parse(text), VALUES)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ends where a value was expected"),
        ("a b", "has b where nothing was expected"),
        ("a = 1", "has = 1 where"),
        ("a == 1 == 2", "has == 2 where nothing"),
        ("a.", "ends where a name after the dot"),
        ("a.'b'", "where a name was expected"),
        ("a[1.5]", "give a whole number"),
        ("a[1", "lacks a ]"),
        ("(a", "lacks a )"),
        ("[1 2]", "without a comma"),
        ("007", "no number of JSON"),
        ("9" * 5000, "no number of JSON"),
        ("and", "has and where a value was expected"),
        ("__import__('os')", "where nothing was expected"),
        ("a + 1", "has + 1"),
        ("(" * 5000 + "a", "nested too deeply"),
        ("[" * 5000, "nested too deeply"),
        ("not " * 20000 + "é", "where a value was expected"),
        (r'"\x"', "not one of JSON"),
        ("a" * 200_000, "too long"),
    ],
)
def test_what_is_no_expression_is_told(text: str, said: str) -> None:
    with pytest.raises(WrongExpression) as caught:
        parse(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 120


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
ATOMS = st.sampled_from(["a", "b.c", "c[0].a", "1", "'t'", "null", "true", "[]", "[a, 2]"])
OPERATORS = ["and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]
TEXTS = st.recursive(
    ATOMS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda t: f"({' '.join(t)})")
        | inner.map(lambda t: f"(not {t})")
        | inner.map(lambda t: f"length({t})")
    ),
    max_leaves=6,
)


@given(TEXTS, st.dictionaries(st.sampled_from("abc"), JSON))
def test_every_expression_has_a_value_and_says_the_same_twice(
    text: str, values: dict[str, Any]
) -> None:
    expression = parse(text)
    first = value_of(expression, values)
    json.dumps(first)
    assert json.dumps(value_of(expression, values)) == json.dumps(first)
    shapes = {each: ValueShape() for each in references(expression)}
    list(problems(expression, shapes))
    assert shape(expression, shapes).types()


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_told_not_to_be(text: str) -> None:
    for read in (parse, parse_template):
        with suppress(WrongExpression):
            read(text)


def test_a_template_is_filled() -> None:
    text = "{{ item.path }}: {{inputs.files}} {{nothing}}{{inputs.dry}} {{'{{'}} } }} {"
    assert parse_template(text).fill(VALUES) == 'x.py: ["a", "b"] false {{ } }} {'
    assert list(parse_template("a {{b.c}} {{d[0]}}").references()) == [
        Reference(("b", "c")),
        Reference(("d", 0)),
    ]


def test_a_result_is_never_read_as_a_template() -> None:
    values = {"a": "{{b}} \ud800", "b": "secret"}
    assert parse_template("{{a}}").fill(values) == "{{b}} ?"


def test_open_braces_are_told_with_their_line() -> None:
    with pytest.raises(WrongExpression, match=r"without \}\} after it in line 2 of the text"):
        parse_template("one\ntwo {{ a, b }}")
