"""``/resume``: go back to an earlier session."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand


async def _run(chat: Chat, arguments: str) -> None:
    chosen = arguments or await chat.pick_session()
    if chosen and chosen != chat.session.id:
        await chat.switch_to(chosen)


COMMAND = SlashCommand("resume", "go on with an earlier session", _run, "[ID or name]")
