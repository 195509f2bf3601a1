"""Malformed argument JSON repaired, or not at all."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.engine.arguments.repair import (
    MAX_CHARS,
    MAX_PIECES,
    TokenKind,
    UnreadableText,
    outline,
    repair_json,
    tokens,
    unfenced,
)

WORDS = st.text(st.sampled_from("ab \"'\\\n\t{}[]:,/#`é😀\ud800ntu1"), max_size=12) | st.text(
    max_size=12
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | WORDS | st.floats(
    allow_nan=False, allow_infinity=False
)  # fmt: skip
KEYS = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True) | WORDS
OBJECTS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


class Sloppy:
    """Writes a value as models do when they do not write JSON."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def _one_of(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def _gap(self) -> str:
        return self._one_of("", "", " ", "\n  ", '/* why, "not" {} */', "// it's\n", "# a: b\n")

    def _string(self, text: str) -> str:
        style = self._one_of("json", "raw", "single", "python")
        quoted = json.dumps(text, ensure_ascii=style == "json")
        if style == "raw":
            return (
                quoted.replace("\\\\", "\0")
                .replace("\\n", "\n")
                .replace("\\t", "\t")
                .replace("\0", "\\\\")
            )
        if style == "single":
            return "'" + quoted[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
        return quoted

    def _key(self, key: str) -> str:
        bare = key.isidentifier() and key.isascii() and self._one_of("bare", "quoted") == "bare"
        return key if bare else self._string(key)

    def write(self, value: Any) -> str:
        gap = self._gap()
        if isinstance(value, dict):
            pairs = [self._key(k) + self._gap() + ":" + self.write(v) for k, v in value.items()]
            return gap + "{" + self._joined(pairs) + "}" + self._gap()
        if isinstance(value, list):
            return (
                gap + "[" + self._joined([self.write(item) for item in value]) + "]" + self._gap()
            )
        if isinstance(value, str):
            return gap + self._string(value)
        if value is None or isinstance(value, bool):
            return gap + self._one_of(json.dumps(value), repr(value))
        return gap + json.dumps(value)

    def _joined(self, pieces: list[str]) -> str:
        return ",".join(pieces) + (self._one_of("", ",", " , ") if pieces else "")


@st.composite
def sloppy_texts(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    value = draw(OBJECTS)
    text = Sloppy(draw).write(value)
    around = ["%s", "```json\n%s\n```", "```%s```", "\ufeff %s\n", "%s}", "%s ]}", "{}%s"]
    text = draw(st.sampled_from(around)).replace("%s", text)
    return value, text


@pytest.mark.slow
@pytest.mark.spec("LOOP-9")
@settings(max_examples=300, deadline=None)
@given(sloppy_texts())
def test_what_was_written_sloppily_is_read_as_it_was_meant(
    written: tuple[dict[str, Any], str],
) -> None:
    value, text = written
    found = repair_json(text, may_be_cut=False)
    assert json.dumps(found) == json.dumps(value)


@pytest.mark.slow
@pytest.mark.spec("LOOP-9")
@settings(max_examples=200, deadline=None)
@given(OBJECTS, st.data())
def test_a_cut_text_is_completed_by_closers_alone_or_not_at_all(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=False)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    assert repair_json(cut, may_be_cut=False) is None
    found = repair_json(cut, may_be_cut=True)
    if found is None:
        return
    assert is_start_of(found, value)
    closers = next(
        tail for size in range(1, 40) for tail in [closers_for(cut)[:size]] if parses(cut + tail)
    )
    assert json.loads(cut + closers) == found


def closers_for(text: str) -> str:
    """By brute force over the strict parser's own view: brackets outside strings."""
    stack: list[str] = []
    inside = escaped = False
    for char in text:
        if inside:
            inside = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in "{[":
            stack.append({"{": "}", "[": "]"}[char])
        elif char in "}]":
            stack.pop()
    return "".join(reversed(stack))


def parses(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def is_start_of(found: Any, whole: Any) -> bool:
    """Whether every value that was found is whole in the original, in its place."""
    if isinstance(found, dict) and isinstance(whole, dict):
        return all(key in whole and is_start_of(item, whole[key]) for key, item in found.items())
    if isinstance(found, list) and isinstance(whole, list):
        return all(is_start_of(*pair) for pair in zip(found, whole, strict=False))
    return json.dumps(found) == json.dumps(whole)


@pytest.mark.spec("LOOP-9")
@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from('\\\\\\dsnt."\n/u1 '), max_size=12), st.integers(0, 3))
def test_backslashes_that_nobody_doubled_are_read_right_or_not_at_all(
    text: str, which: int
) -> None:
    quoted = json.dumps(text)
    undoubled = [
        quoted.replace("\\\\d", "\\d"), quoted.replace("\\\\s", "\\s").replace("\\\\.", "\\."),
        quoted.replace("\\\\d", "\\d").replace("\\\\n", "\\n"), quoted.replace("\\\\", "\\"),
    ][which]  # fmt: skip
    if parses(undoubled):
        return
    assert repair_json('{"pattern":' + undoubled + ",}", may_be_cut=True) in (
        None,
        {"pattern": text},
    )


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"command":"pwd"', {"command": "pwd"}), ('{"a":{"b":[1,{"c":"d"', {"a": {"b": [1, {"c": "d"}]}}),
        ('{"a":true', {"a": True}), ('{"a":12 ', {"a": 12}), ('{"a":[]', {"a": []}), ("{'a': 'b'", {"a": "b"}),
        ('{"a":"x}\\""', {"a": 'x}"'}), ('{"a":[1],', None), ('{"a":"x",', None),
        ('{"command":"echo h', None), ('{"n": 12', None), ('{"n": -', None), ('{"n": 1.', None), ('{"n": 1e', None),
        ('{"b": tru', None), ('{"b": ', None), ('{"b":', None), ('{"b"', None), ('{"b', None), ('{"', None),
        ("{", None), ('{"a": [', None), ('{"a": {', None), ('{"a": [1, ', None), ('{"a": "x\\', None),
        ('{"a": "x\\u00', None), ('{"a": ["x", "y', None), ('{"a": "x" // why', None), ("", None), (" \n", None),
        ('{"a": [{"b": "c"}, {"b"', None), ('{"a":"b"]', None),
    ],
)  # fmt: skip
def test_nothing_but_closers_may_be_missing(text: str, value: Any) -> None:
    assert repair_json(text, may_be_cut=True) == value
    assert repair_json(text, may_be_cut=False) is None


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}), ('{"a": [{"b": 1} {"c": 2}]}', {"a": [{"b": 1}, {"c": 2}]}),
        ('{"a": "x"}{"a": "x"}', {"a": "x"}), ('{"a": "x"}\n{"a": "x"}\n', {"a": "x"}), ('{}{"a": 1}', {"a": 1}),
        ('{"a": "x"}}}]', {"a": "x"}), ("[{a: 1,},]", [{"a": 1}]),
        # content that the library on its own would have changed
        ("{'a':'x, y: z {b} [c], \"d\"'}", {"a": 'x, y: z {b} [c], "d"'}),
        ('{"a":"```json\\n{}\\n```",}', {"a": "```json\n{}\n```"}), ('{"a":"  \\n","b":"x",}', {"a": "  \n", "b": "x"}),
        ('{"a":"\\ud83d\\ude00",}', {"a": "😀"}),
        ('{"a": "x"} and so on', {"a": "x"}), ("Here's the call:\n{'a': .5}\nThat is all.", {"a": 0.5}),
        ('The arguments are:\n```json\n{"a": {}}\n```', {"a": {}}), (r'{"a": "it\'s"}', {"a": "it's"}),
        (r'{"a": "say \"it\'s\""}', {"a": 'say "it\'s"'}), ('{"a": -.25e1}', {"a": -2.5}),
        # what would be a guess
        ('use {"a": 1} or {"a": 2}', None), ('my options: {"a": 1}, "b": 2', None), (r'{"a": "\d it\'s"}', None),
        ('the b: 1 is {"a": 1}', None), ('some words, {"a": 1}, b: 2', None), ('some words {"a": 1', None),
        ('"b": 1, {"a": 1}', None), ('here it is {"a": 1} b: 2', None), ('[a list {"b": 1}', None),
        ('{"a": "x"}{"a": "y"}', None), ('{"a": 1}{"a": true}', None), ("go: {}", None), ('{"a": "echo "hi""}', None), ('{"a": ["b" "c"]}', None), ('{"a": ["b": "c"]}', None),
        ('{"a": 1, "a": 2,}', None), ('{"a": [1,,2]}', None), ('{"a": [,]}', None), ('{,"a": 1}', None),
        ('{"a": }', None), ('{"a"}', None), ('{"a", "b"}', None), ("{a: b}", None), ("{'a': 'it's'}", None),
        ('"x"', None), ("12", None), ("null", None), ("}", None), (":", None),
    ],
)  # fmt: skip
def test_only_what_has_one_reading_is_mended(text: str, value: Any) -> None:
    assert repair_json(text, may_be_cut=False) == value


PLAIN = st.dictionaries(
    st.sampled_from("abcde"),
    st.recursive(
        st.integers(0, 9) | st.sampled_from(["x", "y]", "z}"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("LOOP-9")
@settings(max_examples=400, deadline=None)
@given(PLAIN, st.data())
def test_a_bracket_that_was_left_open_is_closed_in_its_place_or_nothing_is_mended(
    value: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value)
    brackets = [
        at for at in range(len(text) - 1) if text[at] in "]}" and not inside_string(text, at)
    ]
    if not brackets:
        return
    at = data.draw(st.sampled_from(brackets))
    broken = text[:at] + text[at + 1 :]
    assert repair_json(broken, may_be_cut=False) in (None, value)


def inside_string(text: str, at: int) -> bool:
    return text[:at].count('"') % 2 == 1


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": ["x", "y"}', {"a": ["x", "y"]}),
        ('{"a": [{"b": 1}, {"c": 2}}', {"a": [{"b": 1}, {"c": 2}]}), ('{"a": [{"b": 1]}', {"a": [{"b": 1}]}),
        ('{"a": [{"b": 1], "c": 2}', {"a": [{"b": 1}], "c": 2}),
        ('{"a": [[1, 2}', None), ('{"a": [[1], 2}', None), ('{"a": [{"b": {"c": 1], "d": 2}', None),
    ],
)  # fmt: skip
def test_the_library_finds_the_place_of_a_missing_bracket(text: str, value: Any) -> None:
    assert repair_json(text, may_be_cut=False) == value


@pytest.mark.sampled
@pytest.mark.spec("LOOP-9", "SEC-13")
@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000, "{" * 200 + "}" * 200, "{}" * 30_000, '{"a":' * 5_000, '{"a": "' + "x" * 3_000_000, "/*" * 500_000,
        "//" * 500_000, "`" * 1_000_000, "```" + "\n`" * 500_000, "\\" * 500_000, '"' * 500_001, "'\"" * 200_000,
        '{"a": [' + "1," * MAX_PIECES + "]}", '{"a": "' + "x" * MAX_CHARS + '",}', "\ud800", "\0" * 100_000,
    ],
    ids=lambda text: repr(text[:8]),
)  # fmt: skip
def test_hostile_texts_are_refused_in_bounded_work(text: str) -> None:
    assert repair_json(text, may_be_cut=True) is None or text.startswith("{}")


def test_a_long_value_passes_untouched_and_never_through_the_library() -> None:
    content = "line 'of' \"text\"\n" * 60_000
    assert repair_json(json.dumps({"content": content})[:-1], may_be_cut=True) == {
        "content": content
    }


def test_a_failing_library_is_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    import json_repair

    def broken(*args: Any, **settings: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(json_repair, "loads", broken)
    assert repair_json('{"a": [1}', may_be_cut=False) is None


@pytest.mark.parametrize(
    "wrong",
    [{"0": "1"}, {"0": ["1", "2"]}, {"0": [1]}, {"1": ["0"]}, {"0": ["x"]}, [], "", {"0": [["1"]]}],
)
def test_a_proposal_that_the_text_does_not_prove_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    import json_repair

    monkeypatch.setattr(json_repair, "loads", lambda *a, **k: wrong)
    assert repair_json('{"a": [1}', may_be_cut=False) is None


def test_the_library_is_loaded_only_when_it_is_needed() -> None:
    import subprocess

    code = "import sys, agentcli.engine.arguments.schema; print('json_repair' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def values(text: str) -> list[Any]:
    return [token.value for token in tokens(text) if token.kind is not TokenKind.MARK]


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\n\u00e9\ud83d\ude00"', "a\né😀"), (r"'it\'s'", "it's"), ("'say \"hi\"'", 'say "hi"'),
        (r"'a \"b\" \\'", 'a "b" \\'), ('"it\'s"', "it's"), ('"a\nb"', "a\nb"), ('" \t "', " \t "),
        (r'"\d+\.\d \"x\""', r'\d+\.\d "x"'), (r'"\(a\|b\)"', r"\(a\|b\)"), ('"// # /* x"', "// # /* x"),
        ("-1.50e+2", -150.0), ("0", 0), ("12345678901234567890", 12345678901234567890),
        ("true", True), ("True", True), ("None", None), ("null", None),
    ],
)  # fmt: skip
def test_each_piece_has_the_value_it_stands_for(text: str, value: Any) -> None:
    (found,) = values(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    "text",
    [
        r'"C:\new\data"', r'"\d\n"', r'"\\d\s"', r'"\d it\'s"', r'"\x41"', r'"\u12"', r'"\0"', r'"\e[0m"',
        '"a\\\nb"', '"open', '"open\\', "'open", "/* open", "// to the end", "nul", "ls", "01", "1.", "1.2.5",
        "+1", "1e999", "NaN", "0x10", "12ab", "“a”", "`a`", "a.b", "\x00", "=",
    ],
)  # fmt: skip
def test_what_can_be_read_in_several_ways_is_not_read(text: str) -> None:
    with pytest.raises(UnreadableText):
        list(tokens(text))


def test_a_key_is_what_stands_before_a_colon() -> None:
    found = [(token.kind, token.value) for token in tokens("{a /* x */ : 'a', \"b\": [true,]}")]
    keys = [value for kind, value in found if kind is TokenKind.KEY]
    assert keys == ["a", "b"]
    assert [value for kind, value in found if kind is TokenKind.VALUE] == ["a", True]


@pytest.mark.parametrize(
    "text", ["```json\n{}\n```", "```\n{}```\n", "```{}```", "\ufeff {}", "```json\n{}", "\n\t{}"]
)
def test_a_fence_is_taken_off(text: str) -> None:
    assert unfenced(text).strip() == "{}"


@pytest.mark.spec("LOOP-11")
def test_the_outline_of_a_broken_text_tells_its_fields_and_how_long_they_were() -> None:
    cut = '{"path": "a.py", "n": 3, "todos": [{"content": "x"}], "content": "' + "y" * 500
    assert outline(cut) == {"path": "a.py", "n": 3, "todos": list, "content": "y" * 500}
    assert outline('{"a": {"b": 1}, "c": oops, "d": 2}') == {"a": dict, "c": ...}
    assert outline("no JSON") == {}
    assert outline("[1, 2") == {}


@settings(max_examples=60)
@given(st.text(alphabet="{}[]:,\"'\\ ab1tn\n/*#`", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    outline(text)
    ends = []
    with contextlib.suppress(UnreadableText):
        for token in tokens(unfenced(text)):
            ends.append(token.end)
    assert ends == sorted(set(ends))
