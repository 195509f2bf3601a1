"""Commands and skills that a person keeps in files (UI-5).

``commands/NAME.md`` is a prompt that ``/NAME`` sends; in a directory below it is ``/DIR:NAME``.
``skills/NAME/SKILL.md`` is a description of how to do something, with files beside it; ``/NAME``
tells the agent to follow it. Law: only the directories that the caller trusts are read; a file
is data: nothing in it runs, permits or changes anything by itself, or attaches what lies outside of
the workspace; a name of the program's own commands stays the program's; files that cannot be read
are passed over.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentcli.app.mentions import find_mentions
from agentcli.domain.errors import AgentError
from agentcli.domain.tools import Workspace
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line

MAX_FILES = 500
MAX_BYTES = 200_000
MAX_HELP = 100
_MAX_PASSES = 5
_NAME = re.compile(r"[a-z][a-z0-9-]*(?::[a-z0-9][a-z0-9-]*)*")
_HEAD = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*?)[ \t]*")
_ARGUMENT = re.compile(r"\$(ARGUMENTS\b|[1-9])")


@dataclass(frozen=True, slots=True)
class Template:
    """A file's text, and what its head says."""

    body: str
    description: str = ""
    hint: str = ""


def load_commands(directories: Sequence[Path]) -> list[SlashCommand]:
    """The commands and skills in ``directories``; the first of a name wins. Blocks."""
    found: dict[str, SlashCommand] = {}
    for directory in directories:
        for name, path in (*_commands(directory / "commands"), *_skills(directory / "skills")):
            if name not in found and len(found) < MAX_FILES and (command := _command(name, path)):
                found[name] = command
    return list(found.values())


def _commands(directory: Path) -> Iterator[tuple[str, Path]]:
    seen = 0
    for above, below, files in os.walk(directory):
        below.sort()
        for file in sorted(files):
            seen += 1
            if seen > MAX_FILES:
                return
            path = Path(above) / file
            name = ":".join(path.relative_to(directory).with_suffix("").parts).lower()
            if file.endswith(".md") and _NAME.fullmatch(name):
                yield name, path


def _skills(directory: Path) -> Iterator[tuple[str, Path]]:
    try:
        names = sorted(entry.name for entry in directory.iterdir())[:MAX_FILES]
    except OSError:
        return
    for name in names:
        path = directory / name / "SKILL.md"
        if _NAME.fullmatch(name.lower()) and path.is_file():
            yield name.lower(), path


def _command(name: str, path: Path) -> SlashCommand | None:
    template = read_template(path)
    if template is None:
        return None
    is_skill = path.name == "SKILL.md"
    first = next((line.strip("# ") for line in template.body.split("\n") if line.strip()), "")
    help_text = clean_line(template.description or first)
    kind = "skill" if is_skill else "yours"

    async def run(chat: Chat, arguments: str) -> None:
        now = read_template(path)  # as it is by now
        if now is None:
            raise AgentError(f"{path} cannot be read any more", "look at the file")
        workspace = Workspace(chat.host.cwd, chat.host.cwd)
        text = naming_only_inside(filled(now.body, arguments), arguments, workspace)
        await chat.say(_skill_prompt(name, path, text) if is_skill else text)

    short = help_text if len(help_text) <= MAX_HELP else f"{help_text[: MAX_HELP - 1]}…"
    return SlashCommand(name, f"{short} ({kind})".strip(), run, clean_line(template.hint))


def _skill_prompt(name: str, path: Path, text: str) -> str:
    return f"Follow the skill {name}. Its files are in {path.parent}.\n\n{text}"


def read_template(path: Path) -> Template | None:
    """What is in the file; ``None`` when it is no readable text of a sensible size."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    if len(data) > MAX_BYTES or b"\0" in data:
        return None
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    head = _HEAD.match(text)
    fields = _fields(head[1]) if head else {}
    body = text[head.end() :] if head else text
    if not body.strip():
        return None
    return Template(body.strip(), fields.get("description", ""), fields.get("argument-hint", ""))


def _fields(head: str) -> dict[str, str]:
    """``name: value`` lines; quotes around a value are taken off."""
    found: dict[str, str] = {}
    for line in head.split("\n"):
        if field := _FIELD.fullmatch(line):
            value = field[2]
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            found[field[1].lower()] = value
    return found


def naming_only_inside(text: str, typed: str, workspace: Workspace) -> str:
    """``text`` in which only what a person has ``typed`` attaches files from elsewhere (SEC-1).

    Another file that it names by ``@`` stays named, without the ``@``.
    """
    for _ in range(_MAX_PASSES):
        before = text
        for mention in {one for readings in find_mentions(text) for one in readings}:
            if f"@{mention.text}" not in typed and not _is_inside(mention.path, workspace):
                text = text.replace(f"@{mention.text}", mention.text)
        if text == before:
            return text
    return text.replace("@", " ")


def _is_inside(path: str, workspace: Workspace) -> bool:
    try:
        return workspace.contains(workspace.resolve(path))
    except (OSError, RuntimeError, ValueError):  # names no file
        return True


def filled(body: str, arguments: str) -> str:
    """``body`` with ``$ARGUMENTS`` and ``$1`` to ``$9`` put in; without them they follow it."""
    if not _ARGUMENT.search(body):
        return f"{body}\n\n{arguments}".strip() if arguments else body
    words = arguments.split()

    def value(found: re.Match[str]) -> str:
        if found[1] == "ARGUMENTS":
            return arguments
        at = int(found[1]) - 1
        return words[at] if at < len(words) else ""

    return _ARGUMENT.sub(value, body)
