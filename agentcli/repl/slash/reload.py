"""``/reload``: read settings, MCP servers, skills, commands, agents and instructions again."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand, check_can_reload


async def _run(chat: Chat, _arguments: str) -> None:
    check_can_reload(chat)
    await chat.reload()
    extensions = chat.session.extensions
    counts = (
        (len(extensions.skills), "skill"),
        (sum(not each.is_skill for each in extensions.commands), "command"),
        (len(extensions.agents), "agent"),
        *(((len(extensions.servers), "MCP server"),) if extensions.servers else ()),
    )
    named = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts)
    chat.show([f"Read again: settings, {named}, and the instructions (/memory)."])


COMMAND = SlashCommand(
    "reload", "read settings, MCP servers, skills, commands and agents again", _run
)
