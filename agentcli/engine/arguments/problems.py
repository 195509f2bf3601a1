"""What the model is told when a call cannot run: wrong name, wrong arguments, refused, too slow.

An invalid-arguments text names the tool, each wrong field with what was expected and the
fields received with type and size (LOOP-11). Law: no text is longer than ``MAX_CHARS``, a value
that was received is never echoed, and a name only in part and without control characters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from json import JSONDecodeError
from typing import Any

from agentcli.domain.clean import loads
from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.history import HAD_PRINTED
from agentcli.domain.messages import ToolCall
from agentcli.domain.tools import ToolDefinition
from agentcli.engine.arguments.schema import Schema, type_in_words
from agentcli.engine.gates import Passage

MAX_CHARS = 2_000
MAX_RECEIVED_CHARS = 600
_MAX_LISTED = 50
_MAX_PROBLEMS_CHARS = 1_000
_MAX_EXPECTED_CHARS = 400
_MAX_PROBLEM = 200
_MAX_NAME = 64
_MAX_DEPTH = 20
_TYPE_NAMES: dict[Any, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    ...: "unreadable",
}


def unknown_tool(name: str, near: Sequence[str], known: Sequence[str]) -> str:
    """For a tool that does not exist (TOOL-4)."""
    hint = f"Did you mean {', '.join(near)}? " if near else ""
    start = f"There is no tool named '{_short(name)}'. {hint}Tools: "
    return _bounded(f"{start}{_joined(known, MAX_CHARS - len(start) - 1) or 'none'}.")


def malformed(call: ToolCall, definition: ToolDefinition, *, cut: bool) -> str:
    """For arguments that are not a JSON object, or were cut at the output limit (LOOP-12)."""
    from agentcli.engine.arguments.repair import outline

    text = call.malformed or ""
    fields = outline(text)
    received = f"\nReceived: {_listed(fields, definition, MAX_RECEIVED_CHARS)}."
    if cut:
        return _bounded(
            f"The call of {_short(definition.name)} was cut off by the output limit after "
            f"{len(text)} characters of arguments. It was not executed. "
            f"Call again with less content at a time.{received}"
        )
    told = (
        f"Invalid arguments for {_short(definition.name)}: not a JSON object ({len(text)} "
        f"characters received; {_flaw(text)}). It was not executed. "
        f"Expected fields: {_expected(definition)}."
    )
    schema = Schema(definition.parameters)
    for name in _required(definition):
        if name not in fields:
            told += f"\n- {_short(name)}: not found (expected {_type(schema, name)})"
    return told[: MAX_CHARS - len(received)] + received


def invalid(call: ToolCall, definition: ToolDefinition, error: InvalidArguments) -> str:
    """For arguments that do not satisfy the schema (LOOP-5)."""
    schema = Schema(definition.parameters)
    text = f"Invalid arguments for {_short(definition.name)}. It was not executed."
    for number, problem in enumerate(error.problems):
        line = f"\n- {_problem(problem, schema)}"
        if len(text) + len(line) > _MAX_PROBLEMS_CHARS:
            text += f"\n- and {len(error.problems) - number} more"
            break
        text += line
    if set(call.arguments) - set(_properties(definition)):
        text += f"\nFields of {_short(definition.name)}: {_expected(definition)}."
    room = MAX_CHARS - len(text) - len("\nReceived: .")
    return f"{text}\nReceived: {_listed(call.arguments, definition, room)}."


def refused(name: str, reason: str, *, unattended: bool, is_free_by_rule: bool = True) -> str:
    """For a call that policy or the user refused (CLI-7)."""
    if unattended:
        flags = f"The user can allow it with --allow-tool '{name}' or --permission-mode. "
        return (
            f"{name} was not run: it needs approval and nobody is there to give it ({reason}). "
            f"{flags if is_free_by_rule else ''}Go on without it or say what is needed."
        )
    return f"{name} was not run: refused ({reason}). Do not try the same again."


def gated(name: str, passage: Passage) -> str:
    """For a call to a tool that this step may not use (CTRL-4)."""
    who = ", ".join(passage.gates)
    allowed = ", ".join(sorted(passage.allowed or ())) or "none: answer in words"
    return _bounded(
        f"{name} was not run: it is not allowed in this step ({who}). Allowed now: {allowed}."
    )


def timed_out(definition: ToolDefinition, tail: str) -> str:
    """For a tool that took too long."""
    text = f"{definition.name} was stopped after its time-out of {definition.timeout_s:g} s."
    return f"{text}{HAD_PRINTED}{tail}" if tail.strip() else text


def _problem(problem: ArgumentProblem, schema: Schema) -> str:
    expected = _type(schema, problem.field)
    hint = f" (expected {expected})" if expected != "any" else ""
    words = _one_line(problem.problem.partition(" or instance of ")[0], _MAX_PROBLEM)
    return f"{_short(problem.field)}: {words}{hint}"


def _flaw(text: str) -> str:
    """Why ``text`` is not a JSON object, without any of it."""
    try:
        value = loads(text)
    except JSONDecodeError as error:
        return f"{error.msg.removesuffix(' at')}, character {error.pos}"
    except ValueError:
        return "nested too deeply, or a number that JSON does not have"
    return f"it is {_size(value)}"


def _expected(definition: ToolDefinition) -> str:
    schema = Schema(definition.parameters)
    required = _required(definition)
    fields = (
        f"{_short(name)}: {_type(schema, name)}{'' if name in required else ' (optional)'}"
        for name in _properties(definition)
    )
    return _joined(list(fields), _MAX_EXPECTED_CHARS) or "none"


def _properties(definition: ToolDefinition) -> Sequence[str]:
    found = definition.parameters.get("properties")
    return list(found) if isinstance(found, dict) else []


def _required(definition: ToolDefinition) -> Sequence[str]:
    found = definition.parameters.get("required")
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _type(schema: Schema, field: str) -> str:
    """The type at a field's dotted path; a field's own name may have dots in it too."""
    node = schema.at((field,))
    if not isinstance(node, dict):
        node = schema.at(field.split(".")[:_MAX_DEPTH])
    return _one_line(type_in_words(node), _MAX_PROBLEM)


def _listed(fields: Mapping[str, Any], definition: ToolDefinition, room: int) -> str:
    """Names, types and sizes; the tool's own fields first."""
    known = [name for name in _properties(definition) if name in fields]
    own = set(known)
    others = (name for name in fields if name not in own)
    names = [*known, *islice(others, _MAX_LISTED)]
    items = [f"{_short(name)}: {_size(fields[name])}" for name in names]
    return _joined(items, room, len(fields)) or "nothing"


def _joined(items: Sequence[str], room: int, count: int | None = None) -> str:
    """As many items as fit into ``room`` characters, and how many of ``count`` are left out."""
    total = len(items) if count is None else count
    text = ""
    for shown, item in enumerate(items):
        longer = f"{text}, {item}" if text else item
        if len(longer) > room - len(f" and {total} more"):
            return f"{text} and {total - shown} more"
        text = longer
    return text if len(items) == total else f"{text} and {total - len(items)} more"


def _size(value: Any) -> str:
    if isinstance(value, str):
        return f"string ({len(value)} chars)"
    if isinstance(value, list):
        return f"array ({len(value)} items)"
    if isinstance(value, dict):
        return f"object ({len(value)} fields)"
    kind = value if value in (list, dict, ...) else type(value)
    return _TYPE_NAMES.get(kind, type(value).__name__)


def _short(name: str) -> str:
    return _one_line(name, _MAX_NAME)


def _one_line(text: str, limit: int) -> str:
    """The first ``limit`` characters; those that do not print are escaped (SEC-10)."""
    shown = text[:limit]
    if not shown.isprintable():
        shown = json.dumps(shown)[1:-1][:limit]
    return shown if len(text) <= limit else shown + "…"


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
