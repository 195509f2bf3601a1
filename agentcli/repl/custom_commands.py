"""Commands and skills of the user's files as slash commands (UI-5).

Law: a file attaches nothing that lies outside of the workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentcli.app.mentions import naming_only_inside
from agentcli.domain.tools import Workspace
from agentcli.extensions.commands import CustomCommand, find_commands
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line

MAX_HELP = 100


def load_custom(directories: Sequence[Path]) -> tuple[list[SlashCommand], tuple[str, ...]]:
    """The commands in ``directories``, and warnings about files that are none. Blocks."""
    found, warnings = find_commands(directories)
    return [_slash_command(command) for command in found], warnings


def _slash_command(command: CustomCommand) -> SlashCommand:
    async def run(chat: Chat, arguments: str) -> None:
        workspace = Workspace(chat.host.cwd, chat.host.cwd)
        await chat.say(naming_only_inside(command.prompt(arguments), arguments, workspace))

    help_text = clean_line(command.description)
    if len(help_text) > MAX_HELP:
        help_text = f"{help_text[: MAX_HELP - 1]}…"
    kind = "skill" if command.is_skill else "yours"
    return SlashCommand(
        command.name, f"{help_text} ({kind})".strip(), run, clean_line(command.hint)
    )
