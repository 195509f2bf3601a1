"""``agent resume [ID]``: the chat in an earlier session (CLI-9)."""

from __future__ import annotations

from typing import Annotated

from agentcli.cli.chat import ChatOptions, chat
from agentcli.cli.options import (
    CommandSpec,
    DirectCommand,
    Option,
    OptionSet,
    PromptArgument,
    SharedOptions,
)


class ResumeArgument(OptionSet):
    """The session to resume."""

    id: Annotated[
        str | None,
        Option("", "Id, its beginning, or name; without it, choose.", "ID"),
    ] = None


class ResumeOptions(SharedOptions, PromptArgument, ResumeArgument):
    """The session, the next prompt and all shared options."""


def resume(options: ResumeOptions) -> int:
    """Open the chat on that session."""
    values = {**vars(options), "resume": options.id or options.resume or ""}
    del values["id"]
    return chat(ChatOptions(**values))


COMMAND = DirectCommand(
    CommandSpec("resume", "Resume an earlier session where it ended.", tells_codes=True),
    ResumeOptions,
    resume,
)
