"""The documentation as data: the README and the topics of ``agent help``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentcli.cli.help import DOCS
from tests.support.cli import AGENT

ROOT = Path(__file__).resolve().parents[2]
# by path from the root
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
}
README = DOCUMENTS["README.md"]


def topic(name: str) -> str:
    """The text of a topic."""
    return DOCUMENTS[f"agentcli/docs/{name}.md"]


def blocks(language: str, mark: str = "tested") -> list[str]:
    """The fenced blocks below ``<!-- mark -->``, of all documents."""
    pattern = rf"<!-- {mark} -->\n```{language}\n(.*?)```"
    return [found for text in DOCUMENTS.values() for found in re.findall(pattern, text, re.DOTALL)]


def rows(name: str, heading: str) -> dict[str, str]:
    """The table of a topic whose head begins with ``heading``: first cell without ticks -> rest."""
    text = topic(name)
    lines = text[text.index(f"\n| {heading} |") :].strip().splitlines()
    found = {}
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        first, rest = line.strip("| ").split(" | ", 1)
        found[first.strip("`")] = rest
    return found


def shell(
    script: str, project: Path, home: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``script`` as a user types it, with ``agent`` on PATH and nobody to ask."""
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    agent = programs / "agent"
    agent.write_text(f'#!/bin/sh\nexec "{AGENT[0]}" {" ".join(AGENT[1:])} "$@"\n')
    agent.chmod(0o755)
    return subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail", "-c", script],
        cwd=project,
        env={**(env or os.environ), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )


def anchors(text: str) -> set[str]:
    """What links to headings may name, as GitHub makes it."""
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", without_code(text), re.MULTILINE)
    }


def without_code(text: str) -> str:
    """The text without fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def links(text: str) -> Iterator[tuple[str, str]]:
    """Each link within the repository: the file (empty: this one) and the heading."""
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", without_code(text)):
        path, _, heading = target.partition("#")
        yield path, heading


def ticked(text: str) -> list[str]:
    """What stands between back-ticks."""
    return re.findall(r"`([^`\n]+)`", without_code(text))
