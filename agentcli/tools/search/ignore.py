"""Walk a directory the way ripgrep does, leaving out what the ignore files say.

Honoured, nearest directory first: ``.rgignore``, then ``.ignore``, then ``.gitignore`` up to the
root of the repository (or the file system, outside of one), then ``.git/info/exclude``. Hidden
entries are left out unless an ignore file names them with ``!``. Links are not followed. The
order is that of the names' bytes, directory by directory. Only the standard library.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from agentcli.tools.search.globs import BadGlob, glob_regex

_MAX_IGNORE_FILE_BYTES = 1024 * 1024
_CUSTOM, _PLAIN, _GIT, _EXCLUDE = range(4)
_FILES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file."""

    regex: re.Pattern[str]
    whitelists: bool
    only_directories: bool


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules of an ignore file; lines that make no sense are passed over."""
    found = []
    for line in text.removeprefix("\ufeff").split("\n"):
        rule = _parse_line(line.removesuffix("\r"))
        if rule is not None:
            found.append(rule)
    return tuple(found)


def _parse_line(line: str) -> Rule | None:
    if line.startswith("#"):
        return None
    if not line.endswith("\\ "):
        line = line.rstrip()
    whitelists = anchored = False
    if line.startswith(("\\!", "\\#")):
        line = line[1:]
    else:
        whitelists = line.startswith("!")
        line = line.removeprefix("!")
        anchored = line.startswith("/")
        line = line.removeprefix("/")
    only_directories = line.endswith("/")
    line = line.removesuffix("/")
    if not line:
        return None
    if not anchored and "/" not in line:
        line = f"**/{line}"
    if line.endswith("/**"):
        line += "/*"
    try:
        return Rule(glob_regex(line), whitelists, only_directories)
    except BadGlob:
        return None


def verdict(rules: tuple[Rule, ...], path: str, *, is_dir: bool) -> bool | None:
    """Whether ``path``, relative to the rules' directory, is ignored; ``None``: not mentioned."""
    for rule in reversed(rules):
        if (is_dir or not rule.only_directories) and rule.regex.fullmatch(path):
            return not rule.whitelists
    return None


class Directory:
    """A directory's ignore files, linked to those above."""

    def __init__(self, path: str, above: Directory | None) -> None:
        self.above = above
        self.prefix = path.rstrip("/") + "/"
        self.is_repository = os.path.lexists(f"{self.prefix}.git")
        self.rules = tuple(_read_rules(self.prefix + name) for name in _FILES)
        self.has_rules = any(self.rules)

    @classmethod
    def chain(cls, path: str) -> Directory:
        """The directory with all those above it."""
        parent = os.path.dirname(path)  # noqa: PTH120 - texts throughout: this is the hot path
        return cls(path, cls.chain(parent) if parent != path else None)

    def ignores(self, path: str, *, is_dir: bool) -> bool | None:
        """Whether the absolute ``path`` below this directory is ignored; ``None``: no rule."""
        verdicts: list[bool | None] = [None] * len(_FILES)
        here: Directory | None = self
        in_repository = True
        while here is not None:
            if here.has_rules:
                relative = path[len(here.prefix) :]
                for kind, rules in enumerate(here.rules):
                    if verdicts[kind] is None and rules and (in_repository or kind < _GIT):
                        verdicts[kind] = verdict(rules, relative, is_dir=is_dir)
            in_repository = in_repository and not here.is_repository
            here = here.above
        return next((found for found in verdicts if found is not None), None)


def _read_rules(path: str) -> tuple[Rule, ...]:
    data = read_regular(path, _MAX_IGNORE_FILE_BYTES)
    return parse_rules(data.decode("utf-8", "surrogateescape")) if data else ()


def read_regular(path: str, limit: int) -> bytes:
    """The first ``limit`` bytes of a regular file; nothing for whatever else has that name."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        return file.read(limit) if stat.S_ISREG(os.fstat(handle).st_mode) else b""


def walk(root: str, *, hidden: bool = False) -> Iterator[str]:
    """The files below ``root``, relative to it; with ``hidden`` all but those of ``.git``."""
    root = os.path.realpath(root)
    skip = len(root.rstrip("/")) + 1
    todo: list[tuple[str, Directory | None]] = list(_entries(Directory.chain(root), hidden=hidden))
    while todo:
        path, above = todo.pop()
        if above is None:
            yield path[skip:]
        else:
            todo += _entries(Directory(path, above), hidden=hidden)


def _entries(here: Directory, *, hidden: bool) -> list[tuple[str, Directory | None]]:
    """What is in a directory, last first; directories with that directory, files without."""
    try:
        with os.scandir(here.prefix) as scan:
            entries = sorted(scan, key=lambda entry: os.fsencode(entry.name), reverse=True)
    except OSError:
        return []
    found: list[tuple[str, Directory | None]] = []
    for entry in entries:
        try:
            is_dir = entry.is_dir(follow_symlinks=False)
            if not is_dir and not entry.is_file(follow_symlinks=False):
                continue
        except OSError:
            continue
        if hidden and entry.name == ".git":
            continue
        path = here.prefix + entry.name
        ignored = here.ignores(path, is_dir=is_dir)
        if ignored or (ignored is None and not hidden and entry.name.startswith(".")):
            continue
        found.append((path, here if is_dir else None))
    return found
