"""As much of JSON Schema as the files of this repository use; an unknown keyword is an error."""

from __future__ import annotations

import re
from typing import Any

_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
_NOT_CHECKS = {"$schema", "$defs", "title", "description"}


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$") -> list[str]:
    """What about ``value`` breaks ``schema``."""
    found: list[str] = []
    for keyword, wanted in schema.items():
        if keyword in _NOT_CHECKS or keyword in {"required", "additionalProperties"}:
            continue
        found += _CHECKS[keyword](value, wanted, root, at)
    if isinstance(value, dict):
        found += [
            f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value
        ]
        if schema.get("additionalProperties") is False:
            extra = value.keys() - schema.get("properties", {}).keys()
            found += [f"{at}: {name} is not known" for name in sorted(extra)]
    return found


def _is(value: Any, name: str) -> bool:
    if name in {"integer", "number"}:
        numbers = int if name == "integer" else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])


def _type(value: Any, wanted: Any, root: Any, at: str) -> list[str]:
    names = wanted if isinstance(wanted, list) else [wanted]
    return [] if any(_is(value, name) for name in names) else [f"{at}: not {names}"]


def _one_of(value: Any, wanted: Any, root: Any, at: str) -> list[str]:
    results = [problems(value, option, root, at) for option in wanted]
    fits = sum(not result for result in results)
    return [] if fits == 1 else [f"{at}: fits {fits} of oneOf: {results}"]


def _properties(value: Any, wanted: Any, root: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [
        problem
        for name, schema in wanted.items()
        if name in value
        for problem in problems(value[name], schema, root, f"{at}.{name}")
    ]


def _items(value: Any, wanted: Any, root: Any, at: str) -> list[str]:
    if not isinstance(value, list):
        return []
    return [p for n, item in enumerate(value) for p in problems(item, wanted, root, f"{at}[{n}]")]


def _ref(value: Any, wanted: str, root: dict[str, Any], at: str) -> list[str]:
    return problems(value, root["$defs"][wanted.removeprefix("#/$defs/")], root, at)


_CHECKS: dict[str, Any] = {
    "type": _type,
    "oneOf": _one_of,
    "properties": _properties,
    "items": _items,
    "$ref": _ref,
    "const": lambda v, w, r, at: [] if v == w else [f"{at}: {v!r} is not {w!r}"],
    "enum": lambda v, w, r, at: [] if v in w else [f"{at}: {v!r} is none of {w}"],
    "pattern": lambda v, w, r, at: [] if re.search(w, v) else [f"{at}: {v!r} does not match"],
    "minimum": lambda v, w, r, at: [] if v is None or v >= w else [f"{at}: {v} < {w}"],
    "minItems": lambda v, w, r, at: [] if len(v) >= w else [f"{at}: fewer than {w}"],
}
