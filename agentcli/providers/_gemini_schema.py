"""A tool's JSON schema as Gemini takes it in ``parametersJsonSchema``.

https://ai.google.dev/api/caching#FunctionDeclaration, and the list of keywords under
https://ai.google.dev/gemini-api/docs/structured-output. Law: pure; the result accepts whatever
the schema accepted (it may accept more: the tool itself checks its arguments); references are
written out, for beside one the API takes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEPT = frozenset(
    {
        "type", "title", "description", "enum", "default", "nullable", "pattern",
        "minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength",
    }
)  # fmt: skip
_FORMATS = frozenset({"date-time", "date", "time", "int32", "int64", "float", "double"})
_LIST_INSIDE = {"anyOf": "anyOf", "oneOf": "anyOf", "prefixItems": "prefixItems"}
_MAX_DEPTH = 32
# References to references multiply; a schema of a tool has some dozens of nodes.
_MAX_NODES = 5_000

Json = dict[str, Any]


def gemini_schema(schema: Mapping[str, Any]) -> Json | None:
    """``schema`` of an object; ``None`` when it has no properties: the function takes nothing."""
    plain = _Plain(schema).node(schema, (), 0)
    properties = plain.get("properties")
    if not properties and not isinstance(plain.get("additionalProperties"), dict):
        return None
    return {**plain, "type": "object"}


class _Plain:
    """Writes the schema out; ``root`` is where its references point into."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def node(self, schema: object, seen: tuple[str, ...], depth: int) -> Json:
        self._nodes += 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            if reference in seen:
                return self.node(rest, seen, depth + 1)
            target = self.node(self._find(reference), (*seen, reference), depth + 1)
            return {**target, **self.node(rest, seen, depth + 1)}
        plain: Json = {}
        for part in _list(schema.get("allOf")):
            _merge(plain, self.node(part, seen, depth + 1))
        own: Json = {}
        for key, value in schema.items():
            self._keyword(own, key, value, seen, depth + 1)
        _merge(plain, own)
        _inclusive(plain, schema)
        return plain

    def _keyword(
        self, plain: Json, key: str, value: object, seen: tuple[str, ...], depth: int
    ) -> None:
        if key in _KEPT or (key == "format" and value in _FORMATS):
            plain[key] = value
        elif key == "const":
            plain["enum"] = [value]
        elif key == "properties" and isinstance(value, Mapping):
            plain[key] = {name: self.node(item, seen, depth) for name, item in value.items()}
        elif key == "required":
            if names := [name for name in _list(value) if isinstance(name, str)]:
                plain[key] = names
        elif key == "items":
            plain[key] = self.node(value, seen, depth)
        elif key == "additionalProperties":
            plain[key] = value if isinstance(value, bool) else self.node(value, seen, depth)
        elif key in _LIST_INSIDE:
            branches = [self.node(item, seen, depth) for item in _list(value)]
            if branches:
                plain[_LIST_INSIDE[key]] = branches

    def _find(self, reference: str) -> object:
        """What ``#/$defs/Name`` points at; nothing for an address outside of the schema."""
        if not reference.startswith("#"):
            return {}
        found: object = self._root
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _merge(into: Json, other: Json) -> None:
    for key, value in other.items():
        if key == "properties":
            into[key] = {**into.get(key, {}), **value}
        elif key == "required":
            into[key] = list(dict.fromkeys([*into.get(key, []), *value]))
        else:
            into[key] = value


def _inclusive(plain: Json, schema: Mapping[str, Any]) -> None:
    """The API knows no exclusive bounds: for integers the next one, else the bound itself."""
    step = 1 if schema.get("type") == "integer" else 0
    for key, bound, sign in (
        ("exclusiveMinimum", "minimum", 1),
        ("exclusiveMaximum", "maximum", -1),
    ):
        value = schema.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            plain.setdefault(bound, value + sign * step)
