"""What a model meant, made to fit the tool's schema before anything is recorded (LOOP-9, LOOP-10).

``repaired`` runs once, on the message: malformed JSON counts when the result satisfies the schema,
values of the wrong type become what the schema asks for. Laws: history, event and execution see the
same arguments; a value that satisfies its schema is never changed, and another one only where it
can be read in one way; a call that the output limit may have cut keeps what was received and is
never run (LOOP-12); what cannot be repaired comes back as it was.

``Schema`` refuses no call: the tool has the last word (pydantic, for ours). It is a guide, by hand
because it runs before any tool is loaded and choosing between readings needs an answer for every
part of a value, not an error for the whole. It covers what tools' schemas are made of: types,
fields, items, enumerations, bounds, choices and references. A keyword not known here (``pattern``,
``format``, ``if``) forbids nothing. Schemas come from MCP servers too: one that is odd, endless or
huge costs a bounded amount of work and then changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any

from agentcli.domain.clean import loads
from agentcli.domain.messages import AssistantMessage, StopReason, ToolCall
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.tools import ToolBox

MAX_STEPS = 100_000
_MAX_REFERENCES = 16
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
_NUMBER = LazyPattern(r"\s*\+?(-?[0-9][0-9.eE+-]{0,40})\s*")
_WORDS: dict[str, dict[str, Any]] = {
    "boolean": {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False},
    "null": {"null": None, "none": None},
}
_STARTS = {"array": ("[", "```"), "object": ("{", "```")}


# what a schema may say where a look at the types is enough
_OF_PLAIN_OBJECTS = {"type", "properties", "required", "additionalProperties", "description"}
_OF_PLAIN_FIELDS = {"type", "description", "title", "default", "minLength"}
_PLAIN_TYPES = {str: "string", int: "integer", bool: "boolean"}


# Replies that did not end where the model wanted: what is missing may be more than a bracket.
_CUT = frozenset({StopReason.MAX_TOKENS, StopReason.REFUSAL})


def repaired(message: AssistantMessage, toolbox: ToolBox) -> AssistantMessage:
    """``message`` with the arguments of its calls repaired; the same object when none needs it.

    Reads the definitions only: no tool is loaded.
    """
    parameters = {each.name: each.parameters for each in toolbox.definitions}
    parts = list(message.parts)
    for index, part in enumerate(parts):
        if isinstance(part, ToolCall) and part.name in parameters:
            if part.malformed is None and _are_plain(part.arguments, parameters[part.name]):
                continue
            schema, is_last = Schema(parameters[part.name]), index == len(parts) - 1
            parts[index] = _repaired(part, schema, message.stop_reason, is_last=is_last)
    unchanged = all(map(is_, parts, message.parts))
    return message if unchanged else replace(message, parts=tuple(parts))


def _are_plain(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Whether a look shows that there is nothing to repair: all there, of plain types."""
    fields = parameters.get("properties")
    if not isinstance(fields, dict) or not parameters.keys() <= _OF_PLAIN_OBJECTS:
        return False
    if parameters.get("type", "object") != "object":
        return False
    for name, value in arguments.items():
        field = fields.get(name)
        if not isinstance(field, dict) or not field.keys() <= _OF_PLAIN_FIELDS:
            return False
        if _PLAIN_TYPES.get(type(value)) != field.get("type"):
            return False
        if field.get("minLength", 1) != 1 or value == "":
            return False
    required = parameters.get("required", ())
    return isinstance(required, list | tuple) and set(map(str, required)) <= arguments.keys()


def _repaired(call: ToolCall, schema: Schema, stop: StopReason, *, is_last: bool) -> ToolCall:
    if call.malformed is None:
        arguments = schema.coerced(call.arguments)
        return call if arguments == call.arguments else replace(call, arguments=arguments)
    if stop is StopReason.MAX_TOKENS and is_last:
        return call
    value = _value_of(call.malformed, may_be_cut=stop not in _CUT)
    if isinstance(value, str):  # JSON text within JSON text
        value = _value_of(value)
    arguments = schema.coerced(value)
    if not isinstance(arguments, dict) or not schema.satisfied_by(arguments):
        return call
    return replace(call, arguments=arguments, malformed=None)


def _value_of(text: str, *, may_be_cut: bool = False) -> Any:
    """What a JSON text says, repaired where that is possible in one way; else ``None``."""
    try:
        return loads(text)
    except ValueError:
        from agentcli.engine.arguments.repair import repair_json

        return repair_json(text, may_be_cut=may_be_cut)


class _TooMuchWork(Exception):
    pass


class Schema:
    """One JSON schema; ``root`` is also where its references lead."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0

    def satisfied_by(self, value: Any) -> bool:
        """Whether ``value`` satisfies the schema; ``False`` also when that takes too long."""
        self._steps = 0
        try:
            return self._allows(self._root, value)
        except (_TooMuchWork, RecursionError):
            return False

    def coerced(self, value: Any) -> Any:
        """``value`` nearer to the schema, field by field, or as it is."""
        self._steps = 0
        try:
            return self._coerced(self._root, value)
        except (_TooMuchWork, RecursionError):
            return value

    def at(self, path: Sequence[str]) -> Any:
        """The part that rules the value at ``path``, as far down as it is known; else ``True``."""
        self._steps = 0
        node = self._resolved(self._root)
        for part in path:
            inner = self._below(node, part) if isinstance(node, Mapping) else True
            if not isinstance(inner, Mapping):
                return node if part.isdecimal() else inner
            node = inner
        return node

    def _below(self, node: Mapping[str, Any], part: str) -> Any:
        for choice in (node, *_list(node.get("anyOf")), *_list(node.get("oneOf"))):
            each = self._resolved(choice)
            if isinstance(each, Mapping):
                by_number = part.isdecimal() and "items" in each
                inner = each["items"] if by_number else _field_schema(each, part)
                if isinstance(inner, Mapping):
                    return self._resolved(inner)
        return True

    # --- does it satisfy -------------------------------------------------------------------

    def _allows(self, schema: Any, value: Any) -> bool:
        node = self._resolved(schema)
        if not isinstance(node, Mapping):
            return node is not False
        names = _type_names(node)
        if names and not _is_type(value, *names):
            return False
        if "enum" in node and not any(_same(value, each) for each in _list(node["enum"])):
            return False
        if "const" in node and not _same(value, node["const"]):
            return False
        if isinstance(value, str):
            allowed = _between(node, len(value), "minLength", "maxLength")
        elif isinstance(value, list):
            allowed = self._allows_items(node, value)
        elif isinstance(value, dict):
            allowed = self._allows_fields(node, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            allowed = _allows_number(node, value)
        else:
            allowed = True
        return allowed and self._allows_choice(node, value)

    def _allows_items(self, node: Mapping[str, Any], value: list[Any]) -> bool:
        return _between(node, len(value), "minItems", "maxItems") and all(
            self._allows(_item_schema(node, number), item) for number, item in enumerate(value)
        )

    def _allows_fields(self, node: Mapping[str, Any], value: dict[str, Any]) -> bool:
        if not _between(node, len(value), "minProperties", "maxProperties"):
            return False
        for name in _list(node.get("required")):
            if isinstance(name, str) and name not in value:
                return False
        return all(self._allows(_field_schema(node, name), item) for name, item in value.items())

    def _allows_choice(self, node: Mapping[str, Any], value: Any) -> bool:
        for part in _list(node.get("allOf")):
            if not self._allows(part, value):
                return False
        for key in ("anyOf", "oneOf"):
            if key in node and not any(self._allows(each, value) for each in _list(node[key])):
                return False
        return True

    # --- what was meant --------------------------------------------------------------------

    def _coerced(self, schema: Any, value: Any) -> Any:
        node = self._resolved(schema)
        if not isinstance(node, Mapping) or self._allows(node, value):
            return value
        for part in _list(node.get("allOf")):
            value = self._coerced(part, value)
        for key in ("anyOf", "oneOf"):
            value = self._coerced_choice(node, _list(node.get(key)), value)
        if self._allows(node, value):
            return value
        names = _type_names(node) or _implied_types(node)
        for name in names:
            candidate = self._as_type(node, name, value)
            if candidate is not value and (len(names) == 1 or self._allows(node, candidate)):
                return candidate
        return value

    def _coerced_choice(self, node: Mapping[str, Any], choices: Sequence[Any], value: Any) -> Any:
        """By the first choice that helps; by the only real one also when it does not wholly."""
        for choice in choices:
            candidate = self._coerced(choice, value)
            if self._allows(node, candidate):
                return candidate
        real = [choice for choice in choices if choice != {"type": "null"}]
        return self._coerced(real[0], value) if len(real) == 1 else value

    def _as_type(self, node: Mapping[str, Any], name: str, value: Any) -> Any:
        """``value`` as the type ``name`` of ``node``; the same object when it cannot be."""
        if name == "object":
            fields = _read(value, name)
            return self._with_fields(node, fields) if isinstance(fields, dict) else value
        if name == "array":
            items = _read(value, name)
            return (
                self._with_items(node, items)
                if isinstance(items, list)
                else (self._in_list(node, value))
            )
        if not isinstance(value, str):
            return value
        if name in {"integer", "number"}:
            return _as_number(value, name)
        if name == "string":
            return _as_option(node, value)
        return _WORDS.get(name, {}).get(value.strip().casefold(), value)

    def _with_fields(self, node: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
        """Each field coerced. A null where only absence is allowed is absence."""
        required = _texts(node.get("required"))
        known = node.get("properties")
        optional = {
            name for name in (known if isinstance(known, Mapping) else ()) if name not in required
        }
        return {
            name: self._coerced(_field_schema(node, name), value)
            for name, value in fields.items()
            if value is not None
            or name not in optional
            or self._allows(_field_schema(node, name), None)
        }

    def _with_items(self, node: Mapping[str, Any], items: list[Any]) -> list[Any]:
        return [
            self._coerced(_item_schema(node, number), item) for number, item in enumerate(items)
        ]

    def _in_list(self, node: Mapping[str, Any], value: Any) -> Any:
        """A lone value in a list of its own; not what may be a broken list, and not nothing."""
        if value in (None, "", {}) or (isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}):
            lone = _read(value, "object")
            if not isinstance(lone, dict) or not lone:
                return value
        wrapped = self._with_items(node, [value])
        return wrapped if self._allows(node, wrapped) else value

    def _resolved(self, schema: Any) -> Any:
        """Where references lead; one that leads nowhere allows anything."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _TooMuchWork
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
                return schema
            target = self._target(schema["$ref"])
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**target, **beside} if isinstance(target, Mapping) else target
        return True

    def _target(self, reference: str) -> Any:
        node: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node:
                return True
            node = node[key]
        return node if reference.startswith("#") else True


def type_in_words(node: Any, depth: int = 2) -> str:
    """``string``, ``array of integer``, ``one of "a", "b"``, ``integer or null``; else ``any``."""
    if not isinstance(node, Mapping):
        return "any"
    if "enum" in node:
        return "one of " + ", ".join(json.dumps(each) for each in _list(node["enum"]))
    names = _type_names(node)
    if not names:
        choices = (*_list(node.get("anyOf")), *_list(node.get("oneOf"))) if depth else ()
        return " or ".join(type_in_words(each, depth - 1) for each in choices) or "any"
    words = " or ".join(names)
    if depth and names == ("array",) and "items" in node:
        items = type_in_words(node["items"], depth - 1)
        return words if items == "any" else f"array of {items}"
    return words


def _type_names(node: Mapping[str, Any]) -> tuple[str, ...]:
    names = node.get("type")
    return (names,) if isinstance(names, str) else _texts(names)


def _implied_types(node: Mapping[str, Any]) -> tuple[str, ...]:
    if "properties" in node:
        return ("object",)
    if "items" in node:
        return ("array",)
    return ("string",) if "enum" in node or "const" in node else ()


def _is_type(value: Any, *names: str) -> bool:
    """Whether it has one of these types; one that is not known is any."""
    for name in names:
        if name not in {"integer", "number"}:
            fits = name not in _TYPES or isinstance(value, _TYPES[name])
        elif isinstance(value, bool) or not isinstance(value, int | float):
            fits = False
        else:
            fits = name == "number" or isinstance(value, int) or value.is_integer()
        if fits:
            return True
    return False


def _same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _field_schema(node: Mapping[str, Any], name: str) -> Any:
    known = node.get("properties")
    if isinstance(known, Mapping) and name in known:
        return known[name]
    return True if "patternProperties" in node else node.get("additionalProperties", True)


def _item_schema(node: Mapping[str, Any], number: int) -> Any:
    first = _list(node.get("prefixItems"))
    return first[number] if number < len(first) else node.get("items", True)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(each for each in _list(value) if isinstance(each, str))


def _between(node: Mapping[str, Any], size: float, least: str, most: str) -> bool:
    low, high = _bound(node, least), _bound(node, most)
    return (low is None or size >= low) and (high is None or size <= high)


def _allows_number(node: Mapping[str, Any], value: float) -> bool:
    above, below = _bound(node, "exclusiveMinimum"), _bound(node, "exclusiveMaximum")
    return (
        _between(node, value, "minimum", "maximum")
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _bound(node: Mapping[str, Any], key: str) -> float | None:
    found = node.get(key)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _read(value: Any, name: str) -> Any:
    """JSON text of an array or object as what it says; anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(_STARTS[name]):
        return value
    return _value_of(value)


def _as_number(value: str, name: str) -> Any:
    match = _NUMBER.fullmatch(value)
    try:
        number = loads(match[1]) if match else value
    except ValueError:
        return value
    if not _is_type(number, name):
        return value
    return int(number) if name == "integer" else number


def _as_option(node: Mapping[str, Any], value: str) -> str:
    """The one option that differs in case, or in how its words are joined, only."""
    options = _list(node["enum"]) if "enum" in node else (node.get("const"),)
    alike = [each for each in options if isinstance(each, str) and _plain(each) == _plain(value)]
    return alike[0] if len(alike) == 1 else value


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", "_", text.strip()).casefold()
