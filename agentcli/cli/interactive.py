"""The chat's start: options become the sessions and files that the loop of ``repl`` works on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from agentcli.app.library import SessionLibrary
from agentcli.app.options import SessionOptions
from agentcli.app.trust import project_lines
from agentcli.app.user_files import Finding, UserFiles
from agentcli.cli.logging_setup import REDACTOR
from agentcli.cli.session_request import prepare_settings, session_options, settings_in_force
from agentcli.config.project import Project, Standing
from agentcli.config.settings import Settings
from agentcli.ui.sanitize import reveal
from agentcli.ui.theme import theme_for

_CHOICES = {
    "y": "yes, they take effect",
    "n": "no, and do not ask again; /trust changes that",
    "l": "later: ignore them now, ask at the next start",
}
_SAID = {
    "y": "Trusted",
    "n": "Not trusted, so its own files are ignored (/trust yes changes that)",
    "l": "Not decided, so its own files are ignored this time",
}
_MEANWHILE = "Without your trust they are ignored; AGENTS.md is read as text in any case."

if TYPE_CHECKING:
    from agentcli.cli.options import SharedOptions


class ChatEnd(NamedTuple):
    """How a chat was left: for which session in a worktree of its own, maybe none, and from which.

    ``prompt`` is what is still to be said, ``has_opened`` whether there was a session at all;
    ``mode`` is that of the one it was left from.
    """

    code: int
    leads_to: str
    came_from: str
    prompt: str
    has_opened: bool
    mode: str


def talk(options: SharedOptions, first_prompt: str, before: str = "") -> ChatEnd:
    """Run the chat, in no freer mode than ``before``.

    Raises ``AgentError`` where nothing can be opened.
    """
    from agentcli.repl.loop import run_chat

    settings = prepare_settings(options, ask=ask_for_trust)
    wanted = session_options(options, interactive=True)
    library = SessionLibrary(settings, wanted, partial(settings_in_force, options))
    library.mode_before = before
    code = asyncio.run(
        run_chat(
            library,
            user_files(settings, wanted),
            first_prompt or None,
            pick_first=options.resume == "",
        )
    )
    opened = library.has_opened
    prompt = "" if opened else first_prompt
    mode = library.mode_before
    return ChatEnd(code, library.leads_to, library.came_from, prompt, opened, mode)


def user_files(settings: Settings, options: SessionOptions) -> UserFiles:
    """The user's own files; what only other commands know is imported when it is looked up."""
    return UserFiles(settings, options, REDACTOR, _setting_rows, _findings)


def _setting_rows() -> Iterable[tuple[str, str, str]]:
    from agentcli.cli.setup.config import setting_rows

    return setting_rows()


def _findings() -> Sequence[Finding]:
    from agentcli.cli.setup.doctor import all_findings

    return all_findings()


def ask_for_trust(settings: Settings, project: Project, said: Standing) -> bool | None:
    """Show what the directory would bring and ask; ``None``: not answered, ask again next time."""
    changed = said is Standing.CHANGED
    what = "What it wants to do here has changed" if changed else "It brings files of its own"
    head = f"Do you trust this directory? {what}: {project.place}"
    if theme_for(sys.stdout, os.environ).live and not settings.screen_reader:
        from agentcli.repl.question import Question, ask

        question = Question(
            head,
            _CHOICES,
            "l",
            "Esc decides later",
            [*project_lines(project), _MEANWHILE],
            {letter: f"{said}: {project.place}" for letter, said in _SAID.items()},
            is_before_chat=True,
        )
        return {"y": True, "n": False}.get(ask(question, project.place, settings.theme))
    return _ask_in_lines([head, *project_lines(project), _MEANWHILE])


def _ask_in_lines(lines: Sequence[str]) -> bool | None:
    say = sys.stdout.write
    for line in lines:
        say(f"{reveal(line)}\n")
    while True:
        say("Your answer, [y]es / [n]o: ")
        sys.stdout.flush()
        answer = sys.stdin.readline()
        word = answer.strip().lower()
        if word in {"y", "yes"}:
            return True
        if word in {"n", "no"}:
            return False
        if not answer:
            say("\n")
            return None
        say("Please answer y or n.\n")
