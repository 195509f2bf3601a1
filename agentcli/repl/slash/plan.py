"""``/plan``: plan mode on or off, and the plan that the session keeps."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import PermissionMode
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.render import kept_plan_lines

_COLUMNS = 80
_ON = "Plan mode is on: the agent reads and plans, and changes nothing before you approve its plan."


async def _run(chat: Chat, arguments: str) -> None:
    session, word = chat.session, arguments.strip().lower()
    if word not in {"", "on", "off", "show"}:
        raise UsageError(f"cannot do /plan {word}", "use /plan, /plan off or /plan show")
    is_on = session.mode is PermissionMode.PLAN
    if word == "off":
        if is_on:
            session.set_mode(PermissionMode.DEFAULT)
        chat.show(["Plan mode is off: what changes something asks."])
        return
    lines: list[str] = []
    if word != "show":
        session.set_mode(PermissionMode.PLAN)
        lines.append(_ON)
    if kept := await session.plan():
        lines += kept_plan_lines(kept, chat.theme, _COLUMNS)
    elif word == "show":
        lines.append("No plan was made in this session.")
    chat.show(lines)


COMMAND = SlashCommand(
    "plan",
    "plan first, change nothing; show the plan",
    _run,
    "[off|show]",
    while_working=True,
    completes=lambda _: ("off", "show"),
)
