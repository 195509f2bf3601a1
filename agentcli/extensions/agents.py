"""Sub-agents that a person describes in files: ``agents/NAME.md``, a head and a text.

::

    ---
    name: reviewer
    description: Reviews a change for bugs.
    tools: read_file, grep_files, bash
    model: anthropic/claude-haiku-4-5
    effort: low
    ---
    You review code. Report bugs only, each with file and line.

Laws: only the person's own directories are read, and a project's where it is trusted (SEC-1); a
file is data: it can take tools and never give any; a file that makes no sense is one warning and
hides no other; everything read is bounded. The first of a name wins.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from agentcli.domain.ports import Effort
from agentcli.domain.values import frozen

MAX_FILES = 50
MAX_BYTES = 100_000
MAX_DESCRIPTION = 300
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FIELD = re.compile(r"([A-Za-z][\w-]{0,40}):[ \t]*(.*)")
_ITEM = re.compile(r"[ \t]+-[ \t]+(.*)|-[ \t]+(.*)")
_INHERIT = frozenset({"", "inherit", "default"})


@frozen
class AgentDefinition:
    """``tools`` of ``None``: all that it may have; an empty ``model``: the caller's."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: str = ""
    effort: Effort | None = None


class Unusable(ValueError):
    """A definition that makes no sense; the text says why."""


def load_agents(
    directories: Sequence[Path],
) -> tuple[dict[str, AgentDefinition], tuple[str, ...]]:
    """The definitions by name, and warnings about the files that are none. Blocks."""
    found: dict[str, AgentDefinition] = {}
    warnings: list[str] = []
    for directory in directories:
        for path in _files(directory):
            if len(found) >= MAX_FILES:
                warnings.append(f"warning: more than {MAX_FILES} agents: the rest is left out")
                return found, tuple(warnings)
            try:
                definition = parse_agent(_read(path), path.stem)
            except Unusable as error:
                warnings.append(f"warning: the agent file {_shown(str(path))}: {error}")
                continue
            found.setdefault(definition.name, definition)
    return found, tuple(warnings)


def parse_agent(text: str, stem: str) -> AgentDefinition:
    """One file's text; ``stem`` names the agent that does not name itself. Raises ``Unusable``."""
    fields, body = _split(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    name = " ".join(fields.get("name", [])).strip() or stem
    if not _NAME.fullmatch(name.lower()):
        raise Unusable(f"{_shown(name)!r} is no name: use letters, digits and hyphens")
    description = _shown(" ".join(fields.get("description", [])))
    if not description:
        raise Unusable("it has no description, which says when to use the agent")
    if not body.strip():
        raise Unusable("it has no text after its head")
    return AgentDefinition(
        name=name.lower(),
        description=description,
        prompt=body.strip(),
        tools=_tools(fields.get("tools")),
        model=_model(fields.get("model", [])),
        effort=_effort(fields.get("effort", [])),
    )


def _files(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".md"))
    except OSError:
        return []
    return [directory / name for name in names[: 2 * MAX_FILES]]


def _read(path: Path) -> str:
    """The file's text; never waits for a pipe or a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unusable("it is no regular file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unusable(f"it cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise Unusable(f"it is larger than {MAX_BYTES:,} bytes")
    if b"\0" in data:
        raise Unusable("it is no text")
    return data.decode("utf-8", "replace")


def _split(text: str) -> tuple[dict[str, list[str]], str]:
    """The head's fields, each a list of lines, and what follows the head."""
    lines = text.split("\n")
    if not lines or lines[0].rstrip() != "---":
        raise Unusable("it has no head: name and description between lines of ---")
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise Unusable("its head has no end: a line of ---")
    fields: dict[str, list[str]] = {}
    last: list[str] = []
    for line in lines[1:end]:
        item = _ITEM.fullmatch(line)
        if field := None if item else _FIELD.fullmatch(line):
            last = fields.setdefault(field[1].lower(), [])
            value = _unquoted(field[2].strip())
            last += [value] if value and value not in {">", "|", ">-", "|-"} else []
        elif line.strip() and not line.lstrip().startswith("#"):
            last.append(_unquoted((item[1] or item[2] or "") if item else line.strip()))
    return fields, "\n".join(lines[end + 1 :])


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _tools(lines: Sequence[str] | None) -> tuple[str, ...] | None:
    if lines is None:
        return None
    text = ",".join(lines).strip().removeprefix("[").removesuffix("]")
    names = (_unquoted(name.strip()) for name in text.split(","))
    found = tuple(dict.fromkeys(name for name in names if name))
    return None if not found or "*" in found else found


def _model(lines: Sequence[str]) -> str:
    value = " ".join(lines).strip()
    return "" if value.lower() in _INHERIT else value


def _effort(lines: Sequence[str]) -> Effort | None:
    value = " ".join(lines).strip().lower()
    if value in _INHERIT:
        return None
    try:
        return Effort(value)
    except ValueError:
        known = ", ".join(Effort)
        raise Unusable(f"effort is {_shown(value)!r}: it should be one of {known}") from None


def _shown(text: str) -> str:
    """One line without control characters, of bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= MAX_DESCRIPTION else f"{line[: MAX_DESCRIPTION - 1]}…"
