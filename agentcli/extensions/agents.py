"""Sub-agents that users describe in files: ``agents/NAME.md``, a head and a text (EXT-3).

::

    ---
    name: reviewer
    description: Reviews a change for bugs.
    tools: read_file, grep_files, bash
    disallowedTools: bash(git push *)
    skills: code-style
    model: haiku
    effort: low
    ---
    You review code. Report bugs only, each with file and line.

The fields are those of https://code.claude.com/docs/en/sub-agents. Laws: only the places that the
caller trusts are read; a file is data: it can take tools and never give any; a file that makes no
sense is one warning and hides no other. The nearest of a name wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from agentcli.domain.clean import one_line
from agentcli.domain.ports import Effort
from agentcli.domain.values import frozen
from agentcli.extensions.front_matter import (
    Document,
    Heads,
    Unusable,
    read_placed,
)
from agentcli.extensions.places import ExtensionPlace

MAX_FILES = 50
MAX_LOOKED_AT = 10_000
MAX_BYTES = 100_000
MAX_DESCRIPTION = 300
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_INHERIT = frozenset({"", "inherit", "default", "null", "~"})


@frozen
class AgentDefinition:
    """``tools`` of ``None``: all that it may have; ``not_tools`` are taken from these.

    An empty ``model``: the caller's. ``skills`` are those whose text it begins with.
    ``isolation`` is "worktree", or empty.
    """

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: str = ""
    effort: Effort | None = None
    not_tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    isolation: str = ""


def load_agents(
    places: Iterable[ExtensionPlace], heads: Heads | None = None
) -> tuple[dict[str, AgentDefinition], tuple[str, ...]]:
    """The definitions by name, and warnings about the files that are none. Blocks."""
    found: dict[str, AgentDefinition] = {}
    warnings: list[str] = []
    for place in places:
        for path in _files(place.path / "agents", warnings):
            if len(found) >= MAX_FILES:
                warnings.append(f"warning: more than {MAX_FILES} agents: the rest is left out")
                return found, tuple(warnings)
            try:
                definition = agent_of(read_placed(place, path, MAX_BYTES, heads), path.stem)
            except Unusable as error:
                warnings.append(f"warning: the agent file {_shown(str(path))}: {error}")
                continue
            found.setdefault(definition.name, definition)
    return found, tuple(warnings)


def agent_of(document: Document, stem: str) -> AgentDefinition:
    """What a file defines; ``stem`` names one that has no name. Raises ``Unusable``."""
    if document.fields is None:
        raise Unusable("it has no head: name and description between lines of ---")
    name = document.text("name") or stem
    if not _NAME.fullmatch(name.lower()):
        raise Unusable(f"{_shown(name)!r} is no name: use letters, digits and hyphens")
    description = _shown(document.text("description"))
    if not description:
        raise Unusable("it has no description, which says when to use the agent")
    if not document.body:
        raise Unusable("it has no text after its head")
    tools = document.names("tools")
    model = document.text("model")
    return AgentDefinition(
        name=name.lower(),
        description=description,
        prompt=document.body,
        tools=None if not tools or "*" in tools else tools,
        model="" if model.lower() in _INHERIT else model,
        effort=_effort(document.text("effort").lower()),
        not_tools=document.names("disallowedtools") or (),
        skills=document.names("skills") or (),
        isolation="worktree" if document.text("isolation").lower() == "worktree" else "",
    )


def _files(directory: Path, warnings: list[str]) -> list[Path]:
    names: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_LOOKED_AT:
                    break
                if entry.name.endswith(".md"):
                    names.append(entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        warnings.append(f"warning: {_shown(str(directory))} cannot be read: {error.strerror}")
    return [directory / name for name in sorted(names)[: 2 * MAX_FILES]]


def _effort(value: str) -> Effort | None:
    if value in _INHERIT:
        return None
    try:
        return Effort(value)
    except ValueError:
        known = ", ".join(Effort)
        raise Unusable(f"effort is {_shown(value)!r}: it should be one of {known}") from None


def _shown(text: str) -> str:
    """One line without control characters, of bounded length."""
    return one_line("".join(c if c.isprintable() else " " for c in text), MAX_DESCRIPTION)
