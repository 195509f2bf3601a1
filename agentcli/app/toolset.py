"""Which tools a session has; a part of ``compose`` (TOOL-5, LOOP-3).

Law: the list depends on how the session was started and not on what happens in it: it is part
of the cached prefix of every request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agentcli.app.options import SessionOptions
from agentcli.config.settings import Settings
from agentcli.domain.errors import UsageError
from agentcli.domain.ports import PermissionMode, ReminderTexts
from agentcli.engine.gates import PRESENT_PLAN
from agentcli.tools._registry import Registry

if TYPE_CHECKING:
    from agentcli.engine.finishing import AnswerCheck, ResultShape
    from agentcli.extensions.agents import AgentDefinition


TASK = "task"
MAX_LISTED_CHARS = 4_000


def make_toolbox(
    settings: Settings, options: SessionOptions
) -> tuple[Registry, Callable[[], AnswerCheck] | None]:
    """The tools, and how a turn has to end when a result was asked for (CTRL-5).

    ``present_plan`` is there where plan mode may be: in every chat, whose mode can change between
    two requests, and in a run that starts in it, unless its result has another shape. Raises
    ``UsageError`` for an unknown name and for one that is taken.
    """
    mode = options.mode or settings.permission_mode
    may_plan = options.interactive or mode is PermissionMode.PLAN
    plans = may_plan and options.result is None and not options.terminal
    only = options.tools
    if plans and only is not None:
        only = (*only, PRESENT_PLAN)
    toolbox = Registry.builtin(only, settings.tools_off)
    if not plans:
        toolbox.unregister(PRESENT_PLAN)
    try:
        for tool in options.own_tools:
            toolbox.register(tool)
    except ValueError as error:
        raise UsageError(str(error), "give yours another name") from None
    if options.result is None and not options.terminal:
        return toolbox, None
    return toolbox, _terminal_tools(toolbox, options)


def _terminal_tools(toolbox: Registry, options: SessionOptions) -> Callable[[], AnswerCheck]:
    """What has to end a turn. Raises ``UsageError`` for an unknown tool or fallback."""
    from agentcli.engine.finishing import Fallback, ParametersShape, TerminalTools

    try:
        fallback = Fallback(options.fallback)
    except ValueError:
        known = ", ".join(item.value for item in Fallback)
        raise UsageError(f"fallback cannot be {options.fallback!r}", f"one of: {known}") from None
    shapes: dict[str, ResultShape] = {}
    definitions = {definition.name: definition for definition in toolbox.definitions}
    for name in options.terminal:
        if name not in definitions:
            known = ", ".join(sorted(definitions)) or "none"
            raise UsageError(f"there is no tool {name!r} to end a turn", f"there are: {known}")
        shapes[name] = ParametersShape(
            definitions[name].parameters, takes_words=fallback is Fallback.EAGER
        )
    if options.result is not None:
        from agentcli.tools._final_result import FinalResult

        tool = FinalResult(options.result)
        try:
            toolbox.register(tool)
        except ValueError as error:
            raise UsageError(str(error), "give yours another name") from None
        shapes[tool.definition.name] = options.result
    reminders = options.seams.reminders or ReminderTexts()
    return TerminalTools(shapes, fallback, reminders=reminders).begin


# --- sub-agents ----------------------------------------------------------------------------


def offer_agents(definitions: Mapping[str, AgentDefinition], toolbox: Registry) -> None:
    """Tell the model of the agents that the user has defined, in the description of the tool.

    Settled when the session is opened (CTX-2).
    """
    if definitions and TASK in {tool.name for tool in toolbox.definitions}:
        toolbox.describe(TASK, listing(definitions))


def listing(definitions: Mapping[str, AgentDefinition]) -> str:
    """The agents as the model is told of them, in a bounded text."""
    lines = ["Agents:"]
    left = MAX_LISTED_CHARS
    for definition in definitions.values():
        line = f"- {definition.name}: {definition.description}"
        left -= len(line)
        if left < 0:
            line = f"- {definition.name}"
        lines.append(line)
    return "\n".join(lines)
