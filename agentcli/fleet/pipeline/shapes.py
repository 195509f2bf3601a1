"""What a value may be, as far as its JSON schema says: types, fields and elements.

A shape is a part of a schema with the schema that it belongs to, for its references. What a schema
leaves open is allowed here; what it rules out is found before anything runs. A field that no schema
names is refused, unless ``additionalProperties`` lets it in by name: a mistyped one would be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

TYPES = ("null", "boolean", "number", "string", "array", "object")
_UNIONS = ("anyOf", "oneOf", "allOf")
_MAX_REFERENCES = 50
_MAX_VALUES = 100


class ValueShape(NamedTuple):
    """``part`` of the schema ``root``; ``True`` is anything."""

    part: Any = True
    root: Any = True

    def _readings(self) -> Iterator[Mapping[str, Any]]:
        """The parts that it may be read as, references followed; an empty one: anything."""
        todo, left = [self.part], _MAX_REFERENCES
        while todo:
            part = todo.pop()
            if not isinstance(part, Mapping) or left < 0:
                yield {}
                continue
            more = [part[key] for key in _UNIONS if isinstance(part.get(key), list)]
            reference = part.get("$ref")
            if isinstance(reference, str):
                left -= 1
                todo.append(self._found(reference))
            for each in more:
                left -= len(each)
                todo.extend(each)
            if "properties" in part or "type" in part or not (more or reference):
                yield part

    def _found(self, reference: str) -> Any:
        node = self.root
        if reference != "#" and not reference.startswith("#/"):
            return True
        for step in reference.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node:
                return True
            node = node[key]
        return node

    def types(self) -> frozenset[str]:
        """The types that it may have, of ``TYPES``."""
        found: set[str] = set()
        for part in self._readings():
            named = part.get("type")
            listed = [named] if isinstance(named, str) else named
            if isinstance(listed, list):
                found.update("number" if each == "integer" else str(each) for each in listed)
            elif (values := _values(part)) is not None:
                found.update(map(type_of, values))
            elif "properties" in part:
                found.add("object")
            elif "items" in part:
                found.add("array")
            else:
                return frozenset(TYPES)
        return frozenset(found)

    def values(self) -> list[Any] | None:
        """All that it may be, where it is one of a few; ``None``: more than that."""
        found: list[Any] = []
        for part in self._readings():
            values = _values(part)
            if values is None:
                return None
            found += values
        return found if len(found) <= _MAX_VALUES else None

    def fields(self) -> list[str]:
        """The fields that its schema names."""
        return [name for part in self._readings() for name in _mapping(part.get("properties"))]

    def field(self, name: str) -> ValueShape | None:
        """The value of the field ``name``; ``None`` where there can be none."""
        found = []
        for part in self._readings():
            named = _mapping(part.get("properties"))
            others = part.get("additionalProperties", "properties" not in part)
            if name in named:
                found.append(named[name])
            elif part.get("patternProperties"):
                found.append(True)
            elif others is not False and ValueShape(part, self.root).may_be("object"):
                found.append(others)
        return self._any_of(found)

    def element(self) -> ValueShape | None:
        """An element of the list; ``None`` where it is none."""
        lists = [part for part in self._readings() if ValueShape(part, self.root).may_be("array")]
        return self._any_of(
            [True if "prefixItems" in part else part.get("items", True) for part in lists]
        )

    def may_be(self, *types: str) -> bool:
        """Whether it may have one of ``types``."""
        return not self.types().isdisjoint(types)

    def _any_of(self, parts: list[Any]) -> ValueShape | None:
        if not parts:
            return None
        return ValueShape(parts[0] if len(parts) == 1 else {"anyOf": parts}, self.root)


TEXT = ValueShape({"type": "string"})
NUMBER = ValueShape({"type": "number"})
TRUTH = ValueShape({"type": "boolean"})


def type_of(value: Any) -> str:
    """Which of ``TYPES`` a JSON value is."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"


def shape_of(value: Any) -> ValueShape:
    """The shape that a given value has; elements of a list may be any of those in it."""
    return ValueShape(_schema_of(value))


def list_of(element: ValueShape) -> ValueShape:
    """A list of such elements."""
    return ValueShape({"type": "array", "items": element.part}, element.root)


def _schema_of(value: Any) -> dict[str, Any]:
    kind = type_of(value)
    if kind == "object":
        return {"type": kind, "properties": {key: _schema_of(each) for key, each in value.items()}}
    if kind == "array":
        parts: list[dict[str, Any]] = []
        for each in value:
            if (part := _schema_of(each)) not in parts:
                parts.append(part)
        return {"type": kind, "items": {"anyOf": parts} if parts else True}
    return {"type": kind}


def _values(part: Mapping[str, Any]) -> list[Any] | None:
    if "const" in part:
        return [part["const"]]
    return part["enum"] if isinstance(part.get("enum"), list) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
