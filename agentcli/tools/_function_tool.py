"""A typed function as a tool of the model.

Law: the signature is the schema (types, defaults, required fields), the docstring's first
paragraph the description. Arguments are validated before the function sees them; what it raises
as ``ValueError`` or ``OSError`` is a result for the model, anything else is a bug of its author
that goes to the log (LOOP-5).
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter, create_model

from agentcli.domain.errors import UsageError
from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.tools._base import Arguments, BaseTool, bounded

_ASKS = {"read": Asks.NOTHING, "write": Asks.EDIT, "exec": Asks.ANYTHING}


class FunctionTool(BaseTool[Arguments]):
    """A function of the embedding program. Coroutines run on the loop, the rest in a thread.

    ``options`` are those of ``agentcli.tool``. Raises ``UsageError`` for a signature or an option
    that no tool can have.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        name = options.get("name") or function.__name__
        if not name.isidentifier():
            raise UsageError(f"{name!r} is no name for a tool", 'give one: @tool(name="…")')
        self.name = name
        self.display_name = name.replace("_", " ").capitalize()
        self.description = options.get("description") or _first_paragraph(function)
        if not self.description:
            raise UsageError(
                f"the tool {name} has no description", "write a docstring that says what it does"
            )
        effect = options.get("effect", "write")
        if effect not in _ASKS:
            raise UsageError(f"effect cannot be {effect!r}", f"one of: {', '.join(_ASKS)}")
        self.asks, self.concurrent = _ASKS[effect], effect == "read"
        self.group = "custom"
        self.timeout_s = options.get("timeout_s", 60.0)
        self.always_ask = bool(options.get("ask", False))
        self.params, (self._takes_context, self.context) = _params_of(function, name)
        self._function = function

    async def run(self, args: Arguments, ctx: ToolContext) -> ToolOutput:
        """Call the function; what it returns is text, or becomes JSON."""
        values: dict[str, Any] = {field: getattr(args, field) for field in type(args).model_fields}
        if self._takes_context:
            values[self._takes_context] = ctx
        try:
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(**values)
            else:
                value = await asyncio.to_thread(self._function, **values)
                if isinstance(value, Awaitable):
                    value = await value
        except (ValueError, OSError) as error:
            return ToolOutput.error(f"{type(error).__name__}: {error}")
        return _output(value, ctx.call_id)


def _output(value: Any, call_id: str) -> ToolOutput:
    if isinstance(value, ToolOutput):
        return value
    if value is None:
        return ToolOutput.text("done")
    if isinstance(value, str):
        text = value
    elif isinstance(value, BaseModel):
        text = value.model_dump_json()
    else:
        text = json.dumps(TypeAdapter(Any).dump_python(value, mode="json"), ensure_ascii=False)
    short, raw = bounded(text, call_id)
    return ToolOutput.text(short, raw=raw)


def _params_of(
    function: Callable[..., Any], name: str
) -> tuple[type[Arguments], tuple[str, type[ToolContext]]]:
    """The model of the arguments; the parameter that wants the ``ToolContext``, and which."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise UsageError(f"the types of tool {name} cannot be read: {error}") from None
    fields: dict[str, Any] = {}
    context: tuple[str, type[ToolContext]] = ("", ToolContext)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise UsageError(f"tool {name} takes *{parameter.name}", "name each argument")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"tool {name} takes {parameter.name} only by position")
        if parameter.name not in hints:
            raise UsageError(f"argument {parameter.name} of tool {name} has no type")
        hint = hints[parameter.name]
        if isinstance(hint, type) and issubclass(hint, ToolContext):
            context = (parameter.name, hint)
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    try:
        return create_model(f"{name}_arguments", __base__=Arguments, **fields), context
    except (TypeError, ValueError) as error:
        raise UsageError(f"tool {name} cannot be offered to a model: {error}") from None


def _first_paragraph(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    return " ".join(text.split("\n\n", 1)[0].split())
