"""``/rewind``, or Esc Esc: go back to before any prompt: chat, files or both (TT-2)."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.domain.rewind import RewindScope
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.rewinding import go_back, row_of, scope_of

_SCOPES = {
    RewindScope.BOTH: "chat and files",
    RewindScope.CHAT: "the chat only",
    RewindScope.FILES: "files only",
}


async def _run(chat: Chat, arguments: str) -> None:
    points = await chat.session.rewind_points()
    if not points:
        raise UsageError("there is nothing to go back to", "nothing was said in this session")
    number, _, rest = arguments.strip().partition(" ")
    if number.isdecimal():
        if not 1 <= int(number) <= len(points):
            raise UsageError(f"there is no prompt {number}", f"there are 1 to {len(points)}")
        await go_back(chat, points[int(number) - 1], scope_of(rest, "/rewind N"))
        return
    wanted = scope_of(arguments, "/rewind") if arguments.strip() else None
    rows = [row_of(number, point) for number, point in enumerate(points, 1)]
    at = await chat.choose("Go back to before", rows, len(rows) - 1)
    if at is None:
        return
    if wanted is None:
        has_files = any(point.files for point in points[at:])
        wanted = await _asked(chat) if has_files else RewindScope.BOTH
    if wanted is not None:
        await go_back(chat, points[at], wanted)


async def _asked(chat: Chat) -> RewindScope | None:
    at = await chat.choose("Take back", list(_SCOPES.values()))
    return None if at is None else list(_SCOPES)[at]


COMMAND = SlashCommand("rewind", "go back to before an earlier prompt", _run, "[N] [chat|files]")
