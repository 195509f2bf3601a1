"""What the model is told when a call cannot run: wrong name, wrong arguments, refused, too slow.

An invalid-arguments text names the tool, each wrong field with what was expected and the
fields received with type and size; it never echoes more than 2,000 characters (LOOP-11).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.messages import ToolCall
from agentcli.domain.tools import ToolDefinition
from agentcli.engine.gates import Passage

MAX_CHARS = 2_000
_MAX_LISTED = 20
_MAX_PROBLEMS_CHARS = 1_200
_MAX_NAME = 60


def unknown_tool(name: str, near: Sequence[str], known: Sequence[str]) -> str:
    """For a tool that does not exist (TOOL-4)."""
    hint = f"Did you mean {', '.join(near)}? " if near else ""
    return _bounded(f"There is no tool named {name[:100]!r}. {hint}Tools: {', '.join(known)}.")


def malformed(call: ToolCall, definition: ToolDefinition, *, cut: bool) -> str:
    """For arguments that are not a JSON object, or were cut at the output limit (LOOP-12)."""
    received = call.malformed or ""
    if cut:
        return (
            f"The call of {definition.name} was cut off by the output limit after "
            f"{len(received)} characters of arguments. It was not executed. "
            "Call again with less content at a time."
        )
    return _bounded(
        f"Invalid arguments for {definition.name}: not a JSON object ({len(received)} characters "
        f"received). It was not executed. Expected fields: {_expected(definition)}."
    )


def invalid(call: ToolCall, definition: ToolDefinition, error: InvalidArguments) -> str:
    """For arguments that do not satisfy the schema (LOOP-5)."""
    text = f"Invalid arguments for {definition.name}. It was not executed."
    for number, problem in enumerate(error.problems):
        line = f"\n- {_problem(problem, definition)}"
        if len(text) + len(line) > _MAX_PROBLEMS_CHARS:
            text += f"\n- and {len(error.problems) - number} more"
            break
        text += line
    received = [f"{_short(name)}: {_size(value)}" for name, value in call.arguments.items()]
    listed = ", ".join(received[:_MAX_LISTED]) or "nothing"
    more = f" and {len(received) - _MAX_LISTED} more" if len(received) > _MAX_LISTED else ""
    return _bounded(f"{text}\nReceived: {listed}{more}.")


def refused(name: str, reason: str, *, unattended: bool) -> str:
    """For a call that policy or a person refused (CLI-7)."""
    if unattended:
        return (
            f"{name} was not run: it needs approval and nobody is there to give it ({reason}). "
            f"The user can allow it with --allow-tool '{name}' or --permission-mode. "
            "Go on without it or say what is needed."
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
    return f"{text} It had printed:\n{tail}" if tail.strip() else text


def _problem(problem: ArgumentProblem, definition: ToolDefinition) -> str:
    properties = definition.parameters.get("properties", {})
    expected = _type(properties.get(problem.field.partition(".")[0]))
    hint = f" (expected {expected})" if expected != "any" else ""
    return f"{_short(problem.field)}: {problem.problem[:200]}{hint}"


def _expected(definition: ToolDefinition) -> str:
    properties = definition.parameters.get("properties", {})
    required = definition.parameters.get("required", ())
    return ", ".join(
        f"{name}: {_type(schema)}{'' if name in required else ' (optional)'}"
        for name, schema in properties.items()
    )


def _type(schema: Any) -> str:
    """The type that a property's schema names; a schema may also be ``true`` or a choice."""
    return str(schema.get("type", "any")) if isinstance(schema, dict) else "any"


def _size(value: Any) -> str:
    if isinstance(value, str):
        return f"string ({len(value)} chars)"
    if isinstance(value, list):
        return f"array ({len(value)} items)"
    if isinstance(value, dict):
        return f"object ({len(value)} fields)"
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), type(value).__name__)


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "…"


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
