"""What a model meant, made to fit the tool's schema before anything is recorded.

Malformed JSON is mended when the result satisfies the schema (LOOP-9), and values of the wrong
type become what the schema asks for (LOOP-10). Law: history, event and execution see the same
arguments, because this runs once, on the message, before any of them; a call that the output
limit may have cut keeps what was received and is never run (LOOP-12); what cannot be repaired
comes back as it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentcli.domain.messages import AssistantMessage, StopReason, ToolCall
from agentcli.domain.tools import ToolBox
from agentcli.engine.arguments.json_text import loads
from agentcli.engine.arguments.schema import Schema

# Replies that did not end where the model wanted: what is missing may be more than a bracket.
_CUT = frozenset({StopReason.MAX_TOKENS, StopReason.REFUSAL})


def repaired(message: AssistantMessage, toolbox: ToolBox) -> AssistantMessage:
    """``message`` with the arguments of its calls repaired; the same object when none needs it.

    Reads the definitions only: no tool is loaded.
    """
    if not message.tool_calls:
        return message
    schemas = {each.name: Schema(each.parameters) for each in toolbox.definitions}
    last = len(message.parts) - 1
    parts = tuple(
        _repaired(part, schemas.get(part.name), message.stop_reason, is_last=number == last)
        if isinstance(part, ToolCall)
        else part
        for number, part in enumerate(message.parts)
    )
    unchanged = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if unchanged else replace(message, parts=parts)


def _repaired(
    call: ToolCall, schema: Schema | None, stop: StopReason, *, is_last: bool
) -> ToolCall:
    if schema is None:
        return call
    if call.malformed is None:
        arguments = schema.coerced(call.arguments)
        return call if arguments == call.arguments else replace(call, arguments=arguments)
    if stop is StopReason.MAX_TOKENS and is_last:
        return call
    arguments = schema.coerced(_read(call.malformed, may_be_cut=stop not in _CUT))
    if not isinstance(arguments, dict) or not schema.satisfied_by(arguments):
        return call
    return replace(call, arguments=arguments, malformed=None)


def _read(text: str, *, may_be_cut: bool) -> Any:
    """The object or list that the text says, also as JSON text within JSON text; else ``None``."""
    from agentcli.engine.arguments.json_repair import mended

    try:
        value = loads(text)
    except ValueError:
        return mended(text, may_be_cut=may_be_cut)
    if not isinstance(value, str):
        return None
    try:
        return loads(value)
    except ValueError:
        return mended(value, may_be_cut=False)
