"""Commands and skills that users keep in files (UI-5), as values.

``commands/NAME.md`` is a prompt that ``/NAME`` sends; in a directory below it is ``/DIR:NAME``.
``skills/NAME/SKILL.md`` is a description of how to do something, with files beside it; ``/NAME``
tells the agent to follow it. Laws: only the directories that the caller trusts are read; a file is
data: nothing in it runs, permits or changes anything by itself; one that makes no sense is one
warning and hides no other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcli.domain.errors import AgentError
from agentcli.domain.values import frozen
from agentcli.extensions.front_matter import Unusable, read_document

MAX_FILES = 500
MAX_BYTES = 200_000
_NAME = re.compile(r"[a-z][a-z0-9-]*(?::[a-z0-9][a-z0-9-]*)*")
_ARGUMENT = re.compile(r"\$(ARGUMENTS\b|[1-9])")


@frozen
class CustomCommand:
    """A command or skill; ``hint`` says what arguments it takes."""

    name: str
    path: Path
    description: str = ""
    hint: str = ""
    is_skill: bool = False

    def prompt(self, arguments: str) -> str:
        """What is sent for ``/NAME arguments``: the file as it is by now. Raises ``AgentError``."""
        try:
            body = read_document(self.path, MAX_BYTES).body
        except Unusable as error:
            raise AgentError(f"{self.path}: {error}", "look at the file") from error
        text = substitute(body, arguments)
        if not self.is_skill:
            return text
        return f"Follow the skill {self.name}. Its files are in {self.path.parent}.\n\n{text}"


def find_commands(directories: Sequence[Path]) -> tuple[list[CustomCommand], tuple[str, ...]]:
    """The commands and skills in ``directories``, the first of a name; and warnings. Blocks."""
    found: dict[str, CustomCommand] = {}
    warnings: list[str] = []
    for directory in directories:
        for name, path in (*_commands(directory / "commands"), *_skills(directory / "skills")):
            if name in found or len(found) >= MAX_FILES:
                continue
            try:
                found[name] = _read(name, path)
            except Unusable as error:
                warnings.append(f"warning: the command file {str(path)!r}: {error}")
    return list(found.values()), tuple(warnings)


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


def _read(name: str, path: Path) -> CustomCommand:
    document = read_document(path, MAX_BYTES)
    if not document.body:
        raise Unusable("it has no text")
    first_line = document.body.partition("\n")[0].strip("# ")
    return CustomCommand(
        name,
        path,
        description=document.text("description") or first_line,
        hint=document.text("argument-hint"),
        is_skill=path.name == "SKILL.md",
    )


def substitute(body: str, arguments: str) -> str:
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
