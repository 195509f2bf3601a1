"""Which tools a session has; a part of ``compose`` (TOOL-5, LOOP-3).

Law: the list depends on how the session was started and not on what happens in it: it is part
of the cached prefix of every request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import PermissionMode
from agentcli.domain.values import frozen
from agentcli.engine.gates import PRESENT_PLAN
from agentcli.tools._registry import Registry

if TYPE_CHECKING:
    from agentcli.domain.tools import Tool
    from agentcli.engine.finishing import AnswerCheck, ResultShape
    from agentcli.tools._final_result import ResultSchema


@frozen
class Wishes:
    """What the start of a session says of its tools; ``only`` and ``off`` name tools or groups.

    ``own`` are tools of an embedding program. ``terminal`` are the names of tools that end the
    turn, ``fallback`` what words are worth then (``engine.finishing.Fallback``).
    """

    mode: PermissionMode
    only: tuple[str, ...] | None = None
    off: tuple[str, ...] = ()
    interactive: bool = False
    result: ResultSchema | None = None
    own: tuple[Tool, ...] = ()
    terminal: tuple[str, ...] = ()
    fallback: str = "narrowed"


def make_toolbox(wishes: Wishes) -> tuple[Registry, Callable[[], AnswerCheck] | None]:
    """The tools, and how a turn has to end when a result was asked for (CTRL-5).

    ``present_plan`` is there where plan mode may be: in every chat, whose mode can change between
    two requests, and in a run that starts in it, unless its result has another shape. Raises
    ``UsageError`` for an unknown name and for one that is taken.
    """
    may_plan = wishes.interactive or wishes.mode is PermissionMode.PLAN
    plans = may_plan and wishes.result is None and not wishes.terminal
    only = wishes.only
    if plans and only is not None:
        only = (*only, PRESENT_PLAN)
    toolbox = Registry.builtin(only, wishes.off)
    if not plans:
        toolbox.unregister(PRESENT_PLAN)
    try:
        for tool in wishes.own:
            toolbox.register(tool)
    except ValueError as error:
        raise UsageError(str(error), "give yours another name") from None
    if wishes.result is None and not wishes.terminal:
        return toolbox, None
    return toolbox, _terminal_tools(toolbox, wishes)


def _terminal_tools(toolbox: Registry, wishes: Wishes) -> Callable[[], AnswerCheck]:
    """What has to end a turn. Raises ``UsageError`` for an unknown tool or fallback."""
    from agentcli.engine.finishing import Fallback, ParametersShape, TerminalTools

    try:
        fallback = Fallback(wishes.fallback)
    except ValueError:
        known = ", ".join(item.value for item in Fallback)
        raise UsageError(f"fallback cannot be {wishes.fallback!r}", f"one of: {known}") from None
    shapes: dict[str, ResultShape] = {}
    definitions = {definition.name: definition for definition in toolbox.definitions}
    for name in wishes.terminal:
        if name not in definitions:
            known = ", ".join(sorted(definitions)) or "none"
            raise UsageError(f"there is no tool {name!r} to end a turn", f"there are: {known}")
        shapes[name] = ParametersShape(
            definitions[name].parameters, takes_words=fallback is Fallback.EAGER
        )
    if wishes.result is not None:
        from agentcli.tools._final_result import FinalResult

        tool = FinalResult(wishes.result)
        try:
            toolbox.register(tool)
        except ValueError as error:
            raise UsageError(str(error), "give yours another name") from None
        shapes[tool.definition.name] = wishes.result
    return TerminalTools(shapes, fallback).begin
