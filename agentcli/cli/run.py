"""``agent run [PROMPT]``: one shot (CLI-2, CLI-4)."""

from __future__ import annotations

from agentcli.cli.commands import Spec, add_command, new_app
from agentcli.cli.options import PromptArgument, RunOptions
from agentcli.cli.version import print_version
from agentcli.headless.exit_codes import epilog


class RunCommand(RunOptions, PromptArgument):
    """The prompt, all shared options and those of one shot."""


def run(options: RunCommand) -> int:
    """Answer one prompt; returns the exit code of CLI-6."""
    if options.version:
        return print_version()
    if options.speaks_json and options.output_format == "stream-json":
        from agentcli.headless.stream_shot import StreamShot

        return StreamShot(options, options.prompt or ()).run()
    from agentcli.headless.one_shot import OneShot

    return OneShot(options, options.prompt or ()).run()


APP = new_app("")
add_command(
    APP,
    Spec(
        "run",
        "Answer one prompt and exit.\n\nPiped stdin is the prompt, or is added to it. Only the"
        " answer goes to stdout; progress and warnings go to stderr. Nothing is asked where"
        " there is no terminal: a call that needs an approval is refused (exit code 4).",
        epilog(),
    ),
    RunCommand,
    run,
)
