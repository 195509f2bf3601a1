"""``agent help [TOPIC]``: the documentation in the terminal (CLI-16).

Law: a topic is a Markdown file of ``agentcli/docs``, read as data; nothing else knows which there
are. A pipe gets the Markdown; a terminal gets it laid out for its width, in the user's pager.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from agentcli.cli.argv import COMMANDS
from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.main import invoke
from agentcli.domain.errors import UsageError
from agentcli.headless.streams import is_terminal, write_error_line, write_out

DOCS = Path(__file__).parent.parent / "docs"
# at the end of the list: for those who work on the program
_FOR_DEVELOPERS = ("figures", "architecture", "contract")
_MARK = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)]*)\)")


def topics() -> dict[str, str]:
    """Every topic and its title, those for users first."""
    found = {}
    for path in sorted(DOCS.glob("*.md"), key=lambda path: (path.stem in _FOR_DEVELOPERS, path)):
        with path.open(encoding="utf-8") as file:
            found[path.stem] = file.readline().lstrip("#").strip()
    return found


def topic_text(name: str) -> str:
    """A topic as Markdown; links to other files say what to type instead."""
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    return _LINK.sub(_said, _MARK.sub("", text))


def _said(link: re.Match[str]) -> str:
    label, target = link.groups()
    topic = re.fullmatch(r"([\w-]+)\.md(#.*)?", target)
    return f"{label} (`agent help {topic[1]}`)" if topic else label


class HelpOptions(OptionSet):
    """Which topic."""

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="What to read about; without it, all topics.",
            autocompletion=lambda: list(topics()),
        ),
    ] = None


def show_help(options: HelpOptions) -> int:
    """The topics, a topic, or the help of a command."""
    known = topics()
    words = list(options.words or ())
    if not words:
        write_out(_overview(known))
        return 0
    if len(words) == 1 and words[0] in known:
        _show(topic_text(words[0]))
        return 0
    if words[0] in COMMANDS:
        write_error_line(f"no topic, but a command: agent {' '.join(words)} --help")
        return invoke(words[0], [*words[1:], "--help"])
    if len(words) > 1:
        advice = f"agent help lists them; if it is a prompt: agent -- help {' '.join(words)}"
    else:
        near = get_close_matches(words[0], [*known, *COMMANDS], n=2, cutoff=0.5)
        advice = f"did you mean {' or '.join(near)}?" if near else "agent help lists them"
    raise UsageError(f"unknown topic {words[0]}", advice)


def _overview(known: dict[str, str]) -> str:
    width = max(map(len, known))
    lines = "".join(f"  {name:{width}}  {title}\n" for name, title in known.items())
    return (
        f"Topics:\n{lines}\nagent help TOPIC shows one, agent --help lists the commands,\n"
        "agent COMMAND --help the options of one.\n"
    )


def _show(text: str) -> None:
    if not is_terminal(sys.stdout) or os.environ.get("TERM") == "dumb":
        write_out(text)
        return
    from agentcli.repl.outside import page_text
    from agentcli.ui.page import painted_page

    page = painted_page(text, shutil.get_terminal_size().columns)
    # Ctrl-C belongs to the pager while it runs; a handler, because "ignored" would be inherited
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        # less: leave at the end of what fits the screen, show colours, leave the text there
        shown = page_text(page, Path.cwd(), os.environ, less="FRX")
    finally:
        signal.signal(signal.SIGINT, before)
    if not shown:
        write_out(page)


APP = new_app("")
add_command(
    APP,
    CommandSpec("help", "Read the documentation: the list of topics, or one of them."),
    HelpOptions,
    show_help,
)
