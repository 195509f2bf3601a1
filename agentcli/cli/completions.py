"""``agent completions bash|zsh|fish [--install]`` (CLI-9)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from agentcli.cli.commands import OptionSet, Spec, add_command, new_app
from agentcli.cli.options import choice
from agentcli.domain.errors import AgentError
from agentcli.headless.streams import write_error_line, write_out

SHELLS = ("bash", "zsh", "fish")


class CompletionOptions(OptionSet):
    """The shell, and whether to install."""

    shell: Annotated[
        str,
        typer.Argument(
            metavar="bash|zsh|fish", help="Your shell.", autocompletion=lambda: list(SHELLS)
        ),
    ]
    install: Annotated[
        bool, typer.Option("--install", help="Put the script where the shell looks for it.")
    ] = False


def completions(options: CompletionOptions) -> int:
    """Print the script, or install it."""
    from agentcli.cli.completion_scripts import script

    choice("SHELL", options.shell, SHELLS)
    text = script(options.shell)
    if not options.install:
        write_out(text)
        return 0
    for path in install_paths(options.shell):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            advice = f"agent completions {options.shell} > FILE puts it elsewhere"
            raise AgentError(f"cannot write {path}: {error.strerror}", advice) from error
        write_error_line(f"written: {path}")
    if options.shell == "zsh":
        write_error_line(
            "add to ~/.zshrc, before compinit: fpath=(~/.local/share/zsh/site-functions $fpath)"
        )
    write_error_line("it works in the next shell that you start")
    return 0


def install_paths(shell: str) -> list[Path]:
    """Where the user's shell looks for completion scripts, one file per name of the program."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    match shell:
        case "bash":
            directory = data / "bash-completion/completions"
            return [directory / "agent", directory / "agentcli"]
        case "zsh":
            return [data / "zsh/site-functions/_agent"]
        case _:
            directory = config / "fish/completions"
            return [directory / "agent.fish", directory / "agentcli.fish"]


APP = new_app("")
add_command(
    APP,
    Spec("completions", "Print the completion script of your shell, or install it."),
    CompletionOptions,
    completions,
)
