"""``agent [PROMPT]``: the chat; without a terminal the same as one shot (CLI-2)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from agentcli.cli.options import (
    CommandSpec,
    DirectCommand,
    PromptArgument,
    RunOptions,
    SharedOptions,
    print_version,
)
from agentcli.domain.errors import AgentError
from agentcli.headless.errors import one_line
from agentcli.headless.streams import is_terminal, write_error_line

if TYPE_CHECKING:
    from agentcli.cli.interactive import ChatEnd


class ChatOptions(SharedOptions, PromptArgument):
    """The prompt and all shared options."""


def chat(options: ChatOptions) -> int:
    """Chat until the user leaves; returns the exit code."""
    if options.version:
        return print_version()
    options.check()
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        from agentcli.cli.run import RunCommand, run

        return run(RunCommand(**{**vars(RunOptions()), **vars(options)}))
    from agentcli.cli.interactive import talk

    prompt = " ".join(options.prompt or ())
    if options.has_own_place:
        return _chat_in_places(options, prompt)
    end = talk(options, prompt)
    return _chat_in_places(options, prompt, end) if end.leads_to else end.code


def _chat_in_places(options: ChatOptions, prompt: str, end: ChatEnd | None = None) -> int:
    """Chat in the worktree of each session that is chosen; ``end``: one has been.

    One that cannot be opened says so, and the chat is where it was before.
    """
    from agentcli.cli.fleet.stay import in_worktree
    from agentcli.cli.interactive import talk

    place, mode = options.cd, ""
    while True:
        if end is not None:
            mode = end.mode
            options.worktree, options.continue_, options.resume = None, False, None
            options.cd, options.session, prompt = place, end.leads_to, end.prompt
        try:
            with in_worktree(options):
                next_end = talk(options, prompt, mode)
        except AgentError as error:
            if end is None:
                raise
            write_error_line(one_line(f"error: {error}"))
            options.cd, options.session = place, end.came_from or None
            options.resume = None if end.has_opened else ""
            with in_worktree(options):
                next_end = talk(options, prompt, mode)
        if not next_end.leads_to:
            return next_end.code
        end = next_end


COMMAND = DirectCommand(
    CommandSpec(
        "chat",
        "A coding agent for the terminal that can be interrupted at any moment.\n\n"
        "Without a command it is a chat; PROMPT is its first message. agent run PROMPT (or"
        " agent -p PROMPT) answers once and exits. Words after -- are always the prompt.",
        tells_codes=True,
        is_program=True,
    ),
    ChatOptions,
    chat,
)
