"""Which tools a session has; a part of ``compose`` (TOOL-5, LOOP-3).

Law: the list depends on how the session was started and not on what happens in it: it is part
of the cached prefix of every request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agentcli.domain.settings import PermissionMode
from agentcli.domain.values import frozen
from agentcli.engine.plan_mode import PRESENT_PLAN
from agentcli.tools._registry import Registry

if TYPE_CHECKING:
    from agentcli.domain.finishing import AnswerCheck
    from agentcli.tools._result_schema import ResultSchema


@frozen
class Wishes:
    """What the start of a session says of its tools; ``only`` and ``off`` name tools or groups."""

    mode: PermissionMode
    only: tuple[str, ...] | None = None
    off: tuple[str, ...] = ()
    interactive: bool = False
    result: ResultSchema | None = None


def make_toolbox(wishes: Wishes) -> tuple[Registry, Callable[[], AnswerCheck] | None]:
    """The tools, and how a turn has to end when a result was asked for (CTRL-5).

    ``present_plan`` is there where plan mode may be: in every chat, whose mode can change between
    two requests, and in a run that starts in it, unless its result has another shape. Raises
    ``UsageError`` for an unknown name.
    """
    may_plan = wishes.interactive or wishes.mode is PermissionMode.PLAN
    if may_plan and wishes.result is None:
        only = None if wishes.only is None else (*wishes.only, PRESENT_PLAN)
        return Registry.builtin(only, wishes.off), None
    toolbox = Registry.builtin(wishes.only, wishes.off)
    toolbox.unregister(PRESENT_PLAN)
    if wishes.result is None:
        return toolbox, None
    from agentcli.engine.finishing import TerminalTools
    from agentcli.tools._final_result import FinalResult

    tool = FinalResult(wishes.result)
    toolbox.register(tool)
    return toolbox, TerminalTools({tool.definition.name: wishes.result}).begin
