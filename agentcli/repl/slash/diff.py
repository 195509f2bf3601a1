"""``/diff``: what has changed in the workspace since the last commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agentcli.app.files.changes import open_repository
from agentcli.domain.errors import AgentError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.diff import diff_lines
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import ADDED, DIM, Theme

MAX_BYTES = 2_000_000
MAX_LINES = 1_000
MAX_NEW = 50
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"),
    *("--find-renames", "--relative", "--src-prefix=a/", "--dst-prefix=b/"),
)


def changes(cwd: Path, paths: Sequence[str]) -> tuple[str, list[str]]:
    """The diff to the last commit, and new files. Blocks. Raises ``AgentError``."""
    repository = open_repository(cwd)
    git = replace(repository.git, cwd=cwd)
    base = repository.commit("HEAD") or repository.nothing()
    with git.without_filters(repository.root) as plain:
        diff = plain.output(*_DIFF, base, "--", *paths, limit=MAX_BYTES)
    new = git.output(
        "ls-files", "-z", "--others", "--exclude-standard", "--", *paths, limit=MAX_BYTES
    )
    if diff is None or new is None:
        raise AgentError("git could not list the changes", "try: git status")
    names = [name.decode("utf-8", "replace") for name in new.split(b"\0") if name]
    return diff.decode("utf-8", "replace"), names


def shown(diff: str, new: Sequence[str], theme: Theme) -> list[str]:
    """The diff and the new files, painted, as many lines as are worth reading."""
    lines = diff_lines(diff, theme) if diff else []
    if len(lines) > MAX_LINES:
        rest = f"{theme.symbols.more} {len(lines) - MAX_LINES} more lines: git diff"
        lines = [*lines[:MAX_LINES], theme.paint(rest, DIM)]
    lines += [theme.paint(f"+ {clean_line(name)} (new)", ADDED) for name in new[:MAX_NEW]]
    if len(new) > MAX_NEW:
        lines.append(theme.paint(f"{theme.symbols.more} {len(new) - MAX_NEW} more new files", DIM))
    return lines or ["Nothing has changed since the last commit."]


async def _run(chat: Chat, arguments: str) -> None:
    paths = [arguments] if arguments else []
    diff, new = await asyncio.to_thread(changes, chat.user.cwd, paths)
    chat.show(shown(diff, new, chat.theme))


COMMAND = SlashCommand(
    "diff", "what has changed since the last commit", _run, "[PATH]", while_working=True
)
