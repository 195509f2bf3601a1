"""The language of ``when``, ``for_each`` and ``{{ … }}``: small, and every expression has a value.

::

    steps.find.result.count > 3 and not (inputs.dry or item.kind in ["docs", "tests"])

Literals are JSON's, texts also in single quotes; ``and or not == != < <= > >= in``, parentheses and
``length(…)`` are all there is: nothing calls, loops, raises or reads anything but the values it is
given. What is missing is ``null``. Two values of different types are unequal, and neither is
less. False are ``null``, ``false``, 0 and what is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

from agentcli.domain.values import frozen
from agentcli.fleet.pipeline.shapes import NUMBER, TRUTH, ValueShape, shape_of, type_of

MAX_CHARS = 100_000
_MAX_DEPTH = 40
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'[^']*')|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"""
    r"""|(?P<name>[A-Za-z_][\w-]*)|(?P<mark>==|!=|<=|>=|[<>().,\[\]]))""",
)
_COMPARES = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
_LITERALS = {"true": True, "false": False, "null": None}
_WORDS = frozenset({"and", "or", "not", "in", "length", *_LITERALS})
_ORDERED = ("number", "string")
_SIZED = ("string", "array", "object")


class WrongExpression(ValueError):
    """A text is no expression; the message says what is wrong with it."""


@frozen
class Literal:
    """A value that stands in the text."""

    value: Any


@frozen
class Reference:
    """A value by its path: names, and places in a list counted from 0."""

    path: tuple[str | int, ...]

    def __str__(self) -> str:
        steps = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in self.path)
        return "".join(steps).removeprefix(".")


@frozen
class Operation:
    """``name`` is ``and``, ``or``, ``not``, ``length``, ``list`` or a comparison."""

    name: str
    parts: tuple[Expression, ...]


Expression = Literal | Reference | Operation


class Template(NamedTuple):
    """A text with expressions in it, in their order."""

    pieces: tuple[str | Expression, ...]

    def fill(self, values: Mapping[str, Any]) -> str:
        """The text with what the expressions come to: texts as they are, the rest as JSON."""
        shown = (
            piece if isinstance(piece, str) else _as_text(value_of(piece, values))
            for piece in self.pieces
        )
        return "".join(shown).encode("utf-8", "replace").decode()  # no half of a surrogate pair

    def references(self) -> Iterator[Reference]:
        """What it refers to."""
        for piece in self.pieces:
            if not isinstance(piece, str):
                yield from references(piece)


def parse(text: str) -> Expression:
    """The expression that ``text`` is; raises ``WrongExpression``."""
    if len(text) > MAX_CHARS:
        raise WrongExpression("is too long")
    return _ExpressionReader(text).whole()


def parse_template(text: str) -> Template:
    """``text`` with its ``{{ … }}`` read; a pair of braces itself is ``{{ "{{" }}``.

    Raises ``WrongExpression``.
    """
    pieces: list[str | Expression] = []
    at = 0
    while (start := text.find("{{", at)) >= 0:
        reader = _ExpressionReader(text, start + 2)
        expression = reader.expression()
        end = reader.after_space()
        if text[end : end + 2] != "}}":
            line = text.count("\n", 0, start) + 1
            place = f" in line {line} of the text" if "\n" in text.strip() else ""
            raise WrongExpression(f"has {_cut(text[start:])} without }}}} after it{place}")
        pieces += [text[at:start], expression]
        at = end + 2
    return Template(tuple(piece for piece in (*pieces, text[at:]) if piece != ""))


def references(expression: Expression) -> Iterator[Reference]:
    """What ``expression`` refers to."""
    if isinstance(expression, Reference):
        yield expression
    elif isinstance(expression, Operation):
        for part in expression.parts:
            yield from references(part)


def value_of(expression: Expression, values: Mapping[str, Any]) -> Any:
    """What ``expression`` comes to; never raises for one that ``parse`` made."""
    if isinstance(expression, Literal):
        return expression.value
    if isinstance(expression, Reference):
        return _at(values, expression.path)
    found = (value_of(part, values) for part in expression.parts)
    match expression.name:
        case "and":
            return all(found)
        case "or":
            return any(found)
        case "list":
            return list(found)
        case name:
            return _applied(name, *found)


def _applied(name: str, value: Any, other: Any = None) -> Any:
    if name == "not":
        return not value
    if name == "length":
        return len(value) if type_of(value) in _SIZED else 0
    if name in {"in", "not in"}:
        return _contains(other, value) == (name == "in")
    if name in {"==", "!="}:
        return _same(value, other) == (name == "==")
    if type_of(value) != type_of(other) or type_of(value) not in _ORDERED:
        return False
    return {"<": lt, "<=": le, ">": gt, ">=": ge}[name](value, other)


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: ``true`` is not 1, and 1.0 is."""
    todo = [(left, right)]
    while todo:
        one, other = todo.pop()
        if type_of(one) != type_of(other):
            return False
        if isinstance(one, Mapping):
            if one.keys() != other.keys():
                return False
            todo += [(one[key], other[key]) for key in one]
        elif isinstance(one, list):
            if len(one) != len(other):
                return False
            todo += zip(one, other, strict=True)
        elif one != other:
            return False
    return True


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if isinstance(whole, Mapping):
        return isinstance(part, str) and part in whole
    return isinstance(whole, list) and any(_same(each, part) for each in whole)


def _at(values: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(step, int):
            known = isinstance(values, list) and -len(values) <= step < len(values)
        else:
            known = isinstance(values, Mapping) and step in values
        if not known:
            return None
        values = values[step]
    return values


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- before anything runs: can it be meant so? -----------------------------------------------


def shape(expression: Expression, shapes: Mapping[Reference, ValueShape]) -> ValueShape:
    """What ``expression`` may come to; a reference that is not in ``shapes`` may be anything."""
    match expression:
        case Literal(value):
            return shape_of(value)
        case Reference():
            return shapes.get(expression, ValueShape())
        case Operation("length", _):
            return NUMBER
        case Operation("list", parts):
            found = [shape(part, shapes) for part in parts]
            return ValueShape({"type": "array", "items": {"anyOf": [each.part for each in found]}})
        case _:
            return TRUTH


def problems(expression: Expression, shapes: Mapping[Reference, ValueShape]) -> Iterator[str]:
    """What in ``expression`` cannot be meant: comparisons that never hold, lengths of no list."""
    if not isinstance(expression, Operation):
        return
    for part in expression.parts:
        yield from problems(part, shapes)
    name, found = expression.name, [shape(part, shapes) for part in expression.parts]
    if name == "length" and not found[0].may_be(*_SIZED):
        yield f"length of {_kinds(found[0])}"
    elif name in _COMPARES:
        left, right = found
        if name in {"in", "not in"}:
            fits = right.may_be(*_SIZED)
        elif name in {"==", "!="}:
            fits = left.may_be(*right.types())
        else:
            fits = any(left.may_be(kind) and right.may_be(kind) for kind in _ORDERED)
        if not fits:
            yield f'"{name}" cannot hold between {_kinds(left)} and {_kinds(right)}'
        elif name in {"==", "!="}:
            yield from _unknown_values(expression.parts, found)


def _unknown_values(parts: Sequence[Expression], found: Sequence[ValueShape]) -> Iterator[str]:
    """``state == "finished"`` where there is no such state."""
    for given, other in ((0, 1), (1, 0)):
        part, values = parts[given], found[other].values()
        if isinstance(part, Literal) and values and not any(_same(part.value, v) for v in values):
            listed = ", ".join(json.dumps(each, ensure_ascii=False) for each in values)
            yield f"{parts[other]} is never {json.dumps(part.value)}; it is one of: {listed}"


def _kinds(found: ValueShape) -> str:
    names = sorted(found.types()) or ["nothing"]
    return " or ".join({"string": "text", "array": "list"}.get(each, each) for each in names)


# --- reading ---------------------------------------------------------------------------------


class _ExpressionReader:
    """Reads one expression, by recursive descent, no deeper than ``_MAX_DEPTH``."""

    def __init__(self, text: str, at: int = 0) -> None:
        self._text = text
        self._at = at
        self._depth = 0

    def whole(self) -> Expression:
        """An expression with nothing after it."""
        found = self.expression()
        if self.after_space() < len(self._text):
            raise WrongExpression(f"has {_cut(self._text[self._at :])} where nothing was expected")
        return found

    def after_space(self) -> int:
        """Where the next thing begins."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at

    def expression(self) -> Expression:
        """``a or b``."""
        parts = [self._all_of()]
        while self._takes("or"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else Operation("or", tuple(parts))

    def _all_of(self) -> Expression:
        parts = [self._negated()]
        while self._takes("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else Operation("and", tuple(parts))

    def _negated(self) -> Expression:
        count = 0
        while self._takes("not"):
            count += 1
        found = self._compared()
        for _ in range(min(count, 2 - count % 2)):
            found = Operation("not", (found,))
        return found

    def _compared(self) -> Expression:
        left = self._value()
        for name in _COMPARES:
            first, _, second = name.partition(" ")
            before = self._at
            if self._takes(first):
                if not second or self._takes(second):
                    return Operation(name, (left, self._value()))
                self._at = before
        return left

    def _value(self) -> Expression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise WrongExpression("is nested too deeply")
        found = self._one_value()
        self._depth -= 1
        return found

    def _one_value(self) -> Expression:
        kind, word = self._next("a value")
        match kind, word:
            case "text", _:
                found: Expression = Literal(_unquoted(word))
            case "number", _:
                found = Literal(_number(word))
            case _, "(":
                found = self.expression()
                self._close(")")
            case _, "[":
                found = self._list()
            case _, "true" | "false" | "null":
                found = Literal(_LITERALS[word])
            case _, "length" if self._takes("("):
                found = Operation("length", (self.expression(),))
                self._close(")")
            case "name", _ if word not in _WORDS:
                found = self._reference(word)
            case _:
                raise WrongExpression(f"has {_cut(word)} where a value was expected")
        return found

    def _list(self) -> Expression:
        parts: list[Expression] = []
        while not self._takes("]"):
            if parts and not self._takes(","):
                self._next("a comma or ]")
                raise WrongExpression("has a list without a comma between its values")
            parts.append(self._value())
        return Operation("list", tuple(parts))

    def _reference(self, name: str) -> Reference:
        path: list[str | int] = [name]
        while True:
            if self._takes("."):
                kind, word = self._next("a name after the dot")
                if kind != "name":
                    raise WrongExpression(f"has {_cut(word)} where a name was expected")
                path.append(word)
            elif self._takes("["):
                kind, word = self._next("a number or a name in quotes")
                if kind == "text":
                    path.append(_unquoted(word))
                elif kind == "number" and word.lstrip("-").isdigit():
                    path.append(int(word))
                else:
                    raise WrongExpression(f"has [{_cut(word)}]: give a whole number")
                self._close("]")
            else:
                return Reference(tuple(path))

    def _close(self, mark: str) -> None:
        if not self._takes(mark):
            raise WrongExpression(f"lacks a {mark}")

    def _next(self, expected: str) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            rest = self._text[self.after_space() :]
            what = f"has {_cut(rest)}" if rest else "ends"
            raise WrongExpression(f"{what} where {expected} was expected")
        self._at = found.end()
        return found.lastgroup, found[found.lastgroup]

    def _takes(self, wanted: str) -> bool:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found["text"] is not None:
            return False
        if found[found.lastgroup or "mark"] != wanted:
            return False
        self._at = found.end()
        return True


def _number(word: str) -> float:
    try:
        value: float = json.loads(word)
    except ValueError:
        raise WrongExpression(f"has {_cut(word)}, which is no number of JSON") from None
    return value


def _unquoted(word: str) -> str:
    if word.startswith("'"):
        return word[1:-1]
    try:
        return str(json.loads(word, strict=False))
    except ValueError:
        raise WrongExpression(f"has a text that is not one of JSON: {_cut(word)}") from None


def _cut(text: str, most: int = 30) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + "…"
