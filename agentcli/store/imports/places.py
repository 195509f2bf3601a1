"""Where other programs keep their sessions, and which of them belong to a directory.

Claude Code: ``projects/<path with dashes>/<id>.jsonl`` in ``$CLAUDE_CONFIG_DIR`` or ``~/.claude``.
Codex: ``sessions/YYYY/MM/DD/rollout-*.jsonl`` in ``$CODEX_HOME`` or ``~/.codex``. Law: only the
beginnings of files are read, so many and no more, and no link is followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentcli.domain.clean import one_line
from agentcli.domain.files import walk
from agentcli.domain.values import frozen
from agentcli.store.imports.reading import (
    LeftOut,
    Record,
    Source,
    dict_in,
    opened,
    records_in,
    text_in,
)

PROGRAMS = ("claude", "codex")
MAX_FILES = 20_000
_HEAD_LINES = 60
_TITLE = 100
_NOT_NAMED = re.compile(r"[^A-Za-z0-9]")
_LONGEST_NAME = 200  # what is longer is cut by Claude Code, and a digest of it added


@frozen
class FoundSession:
    """A session of another ``program``; ``updated_at`` is in seconds since 1970."""

    program: str
    path: Path
    id: str
    title: str
    updated_at: float


def found_sessions(
    cwd: Path, env: Mapping[str, str], programs: Sequence[str] = PROGRAMS
) -> list[FoundSession]:
    """The sessions of ``programs`` that were held in ``cwd``, newest first."""
    home = Path(env.get("HOME") or Path.home())
    names = {str(cwd), os.path.realpath(cwd)}
    found: list[FoundSession] = []
    if "claude" in programs:
        root = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
        found += _sessions("claude", _of_claude(root, names), names)
    if "codex" in programs:
        root = Path(env.get("CODEX_HOME") or home / ".codex")
        files = (*session_files(root / "sessions"), *session_files(root / "archived_sessions"))
        found += _sessions("codex", files, names)
    return sorted(found, key=lambda each: each.updated_at, reverse=True)


def session_files(directory: Path) -> Iterator[Path]:
    """The files below ``directory`` that may hold a session each, without those of sub-agents."""
    count = 0
    for parent, directories, names in walk(directory):
        directories[:] = sorted(name for name in directories if name != "subagents")
        for name in sorted(names):
            if name.endswith((".jsonl", ".json")) and not name.startswith("agent-"):
                path = Path(parent, name)
                count += 1
                if count > MAX_FILES:
                    return
                if _is_plain(path):
                    yield path


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _of_claude(root: Path, names: set[str]) -> Iterator[Path]:
    for name in sorted({_NOT_NAMED.sub("-", each) for each in names}):
        for place in (
            root.glob(f"{name[:_LONGEST_NAME]}*") if len(name) > _LONGEST_NAME else (name,)
        ):
            yield from (each for each in session_files(root / place) if each.suffix == ".jsonl")


def _sessions(
    program: str, paths: Sequence[Path] | Iterator[Path], cwds: set[str]
) -> Iterator[FoundSession]:
    for path in paths:
        try:
            updated_at = path.stat().st_mtime
            with opened(path) as stream:
                records = _head(Source(stream, path.name, LeftOut()))
        except Exception:  # noqa: BLE001, S112 - gone or not readable: it is not found
            continue
        known = _codex_head(records) if program == "codex" else _claude_head(records, path)
        if known is not None and known[0] in cwds:
            title = one_line(known[2], _TITLE)
            yield FoundSession(program, path, known[1], title, updated_at)


def _head(source: Source) -> list[Record]:
    return [value for value in source.peek(_HEAD_LINES) if isinstance(value, dict)]


def _claude_head(records: Sequence[Record], path: Path) -> tuple[str, str, str] | None:
    """Directory, id, and the first prompt."""
    cwd = next(filter(None, (text_in(each, "cwd") for each in records)), "")
    title = ""
    for each in records:
        if text_in(each, "type") == "user" and not each.get("isMeta") and not title:
            message = dict_in(each, "message")
            texts = [text_in(block, "text") for block in records_in(message, "content")]
            text = text_in(message, "content") or " ".join(texts)
            title = "" if text.lstrip().startswith("<") else text
        title = text_in(each, "summary", "customTitle", "aiTitle") or title
    return (cwd, path.stem, title) if cwd else None


def _codex_head(records: Sequence[Record]) -> tuple[str, str, str] | None:
    """The same; a sub-agent's rollout belongs to another."""
    meta = dict_in(records[0], "payload") if records else {}
    if not text_in(meta, "cwd") or isinstance(meta.get("source"), dict):
        return None
    prompts = (
        text
        for each in records
        for text in [text_in(dict_in(each, "payload"), "message")]
        if dict_in(each, "payload").get("type") == "user_message" and text
    )
    return text_in(meta, "cwd"), text_in(meta, "id"), next(prompts, "")
