"""``/undo``: take the newest prompt back, with all that came of it (TT-2)."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.domain.rewind import RewindScope
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.slash.rewind import go_back, scope_of


async def _run(chat: Chat, arguments: str) -> None:
    scope = scope_of(arguments, "/undo")
    points = await chat.session.rewind_points()
    if not points:
        raise UsageError("there is nothing to take back", "nothing was said in this session")
    if scope is RewindScope.FILES:
        points = [point for point in points if point.files]
        if not points:
            raise UsageError("there is nothing to take back", "no file is known to have changed")
    await go_back(chat, points[-1], scope)


COMMAND = SlashCommand("undo", "take the last prompt and its changes back", _run, "[chat|files]")
