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
import warnings
from collections.abc import Awaitable, Callable, Mapping
from operator import is_
from types import UnionType
from typing import (
    Annotated,
    Any,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import typing_extensions
from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, create_model

from agentcli.domain.errors import UsageError
from agentcli.domain.tools import Asks, ToolContext, ToolHints, ToolOutput
from agentcli.tools.common.base import BaseTool, bounded

_ASKS = {"read": Asks.NOTHING, "write": Asks.EDIT, "exec": Asks.ANYTHING}


class FunctionArguments(BaseModel):
    """Base of a function's arguments: read as JSON, strictly, whatever their types (TOOL-15).

    What JSON has no type for comes as pydantic writes it: a date, a path or a member of an
    enumeration is a text, a set or a tuple a list.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class FunctionTool(BaseTool[FunctionArguments]):
    """A function of the embedding program. Coroutines run on the loop, the rest in a thread.

    ``options`` are those of ``agentcli.tool``. Raises ``UsageError`` for a signature or an option
    that no tool can have.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        name: str = options.get("name") or getattr(function, "__name__", "") or ""
        if not name.isidentifier():
            what = repr(name or type(function).__name__)
            raise UsageError(f"{what} is no name for a tool", 'give one: @tool(name="…")')
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
        self.hints = ToolHints(
            idempotent=bool(options.get("idempotent", False)),
            background=bool(options.get("background", False)),
        )
        self.params, (self._takes_context, self.context) = _params_of(function, name)
        self._function = function

    def parse(self, arguments: Mapping[str, Any]) -> FunctionArguments:
        """Validated arguments; raises ``InvalidArguments`` naming each wrong field."""
        text = json.dumps(_whole_numbers(dict(arguments)))
        return self.validated(lambda: self.params.model_validate_json(text))

    async def run(self, args: FunctionArguments, ctx: ToolContext) -> ToolOutput:
        """Call the function; what it returns is text, or becomes JSON."""
        values: dict[str, Any] = {field: getattr(args, field) for field in type(args).model_fields}
        if self._takes_context:
            values[self._takes_context] = ctx
        try:
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(**values)
            else:
                value = await asyncio.to_thread(_called, self._function, values)
                if isinstance(value, Awaitable):
                    value = await value
        except (ValueError, OSError) as error:
            return ToolOutput.error(f"{type(error).__name__}: {error}")
        return _output(value, ctx.call_id)


def _called(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    try:
        return function(**values)
    except StopIteration as error:  # no future can carry it: the turn would wait for ever
        raise RuntimeError("the function raised StopIteration") from error


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


def _readable(hint: Any) -> Any:
    """``hint`` as pydantic reads it: before Python 3.12 not the ``TypedDict`` of ``typing``.

    https://docs.pydantic.dev/latest/errors/usage_errors/#typed-dict-version
    """
    if is_typeddict(hint) and type(hint).__module__ == "typing":
        known = get_type_hints(hint, include_extras=True)
        fields = {name: _readable(each) for name, each in known.items()}
        optional = {
            name: typing_extensions.NotRequired[fields[name]] for name in hint.__optional_keys__
        }
        return typing_extensions.TypedDict(hint.__name__, {**fields, **optional})  # type: ignore[operator]  # made at run time
    inner = get_args(hint)
    changed = tuple(map(_readable, inner))
    if all(map(is_, inner, changed)):
        return hint
    if isinstance(hint, UnionType):
        return Union[changed]  # noqa: UP007 - of types that are known at run time only
    origin = get_origin(hint)
    if origin is Annotated:
        return Annotated[(changed[0], *hint.__metadata__)]
    return hint.copy_with(changed) if hasattr(hint, "copy_with") else origin[changed]


def _whole_numbers(value: Any) -> Any:
    """``30.0`` is the integer that it is, as in the arguments of our own tools."""
    if isinstance(value, dict):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _params_of(
    function: Callable[..., Any], name: str
) -> tuple[type[FunctionArguments], tuple[str, type[ToolContext]]]:
    """The model of the arguments; the parameter that wants the ``ToolContext``, and which."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise UsageError(f"the types of tool {name} cannot be read: {error}") from None
    fields: dict[str, Any] = {}
    context: tuple[str, type[ToolContext]] = ("", ToolContext)
    for parameter in parameters:
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
        fields[parameter.name] = (_readable(hint), default)
    try:
        with warnings.catch_warnings():  # an argument may have the name of a method of the model
            warnings.simplefilter("ignore", UserWarning)
            return create_model(f"{name}_arguments", __base__=FunctionArguments, **fields), context
    except (PydanticUserError, TypeError, ValueError) as error:
        raise UsageError(f"tool {name} cannot be offered to a model: {error}") from None


def _first_paragraph(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    return " ".join(text.split("\n\n", 1)[0].split())
