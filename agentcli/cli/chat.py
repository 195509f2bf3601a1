"""``agent [PROMPT]``: the chat; without a terminal the same as one shot (CLI-2)."""

from __future__ import annotations

import sys

from agentcli.cli.options import (
    CommandSpec,
    DirectCommand,
    PromptArgument,
    RunOptions,
    SharedOptions,
    print_version,
)
from agentcli.headless.errors import epilog
from agentcli.headless.streams import is_terminal


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
    if not options.has_own_place:
        code, leads_to, prompt = talk(options, prompt)
        if not leads_to:
            return code
        options.resume, options.session = None, leads_to
    from agentcli.cli.fleet.stay import in_worktree

    place = options.cd
    while True:
        with in_worktree(options):
            code, leads_to, prompt = talk(options, prompt)
        if not leads_to:
            return code
        options.cd, options.worktree, options.continue_, options.resume = place, None, False, None
        options.session = leads_to


COMMAND = DirectCommand(
    CommandSpec(
        "chat",
        "A coding agent for the terminal that can be interrupted at any moment.\n\n"
        "Without a command it is a chat; PROMPT is its first message. agent run PROMPT (or"
        " agent -p PROMPT) answers once and exits. Words after -- are always the prompt.",
        epilog(),
        is_program=True,
    ),
    ChatOptions,
    chat,
)
