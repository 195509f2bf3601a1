"""``agent resume [ID]``: the chat in an earlier session (CLI-9)."""

from __future__ import annotations

from typing import Annotated

import typer

from agentcli.cli.chat import ChatOptions, chat
from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.options import PromptArgument, SharedOptions
from agentcli.headless.errors import epilog


class ResumeArgument(OptionSet):
    """The session to resume."""

    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Id, its beginning, or name; without it, choose."),
    ] = None


class ResumeOptions(SharedOptions, PromptArgument, ResumeArgument):
    """The session, the next prompt and all shared options."""


def resume(options: ResumeOptions) -> int:
    """Open the chat on that session."""
    values = {**vars(options), "resume": options.id or options.resume or ""}
    del values["id"]
    return chat(ChatOptions(**values))


APP = new_app("")
add_command(
    APP,
    CommandSpec("resume", "Resume an earlier session where it ended.", epilog()),
    ResumeOptions,
    resume,
)
