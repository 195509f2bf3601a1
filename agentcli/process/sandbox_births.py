"""What must not come into being in a workspace: set aside as soon as a command has ended (SEC-7).

A mount can protect only what is there. A command that makes ``.agents``, or a repository with
hooks, would have it take effect outside of the sandbox; so it is renamed, and the model is told
how to ask for it. Law: nothing is deleted, and only what was not there before is touched.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from agentcli.process.sandbox_places import Places, find_repositories
from agentcli.tools.files.paths import one_line

SUFFIX = ".set-aside"
_SECTION = re.compile(r"\[\s*([A-Za-z0-9.-]+)[^\]]*\]")
_HARMLESS_SECTIONS = frozenset({"user", "remote", "branch", "init", "submodule", "extensions"})
_HARMLESS_CORE = frozenset(
    {
        "repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase",
        "precomposeunicode", "symlinks", "autocrlf", "eol", "safecrlf",
    }
)  # fmt: skip
_PROGRAM_KEYS = frozenset({"receivepack", "uploadpack", "vcs", "proxy", "update"})
_MINIMAL = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
_MOST_CONFIG_BYTES = 256 * 1024


def set_aside_births(before: Places, roots: Iterable[Path]) -> tuple[str, ...]:
    """Rename what has come into being and must not; one line about each for the model."""
    told = [line for path in before.unborn if (line := _set_aside(path))]
    known = set(before.repositories)
    for root in roots:
        for entry in find_repositories(root):
            if entry not in known:
                told += _tame(entry)
    return tuple(told)


def _tame(entry: Path) -> list[str]:
    """A repository that the command has made keeps its work, but runs no program."""
    if entry.is_symlink() or not entry.is_dir():
        if entry.is_file() and _is_within(entry):
            return []
        return [line for line in (_set_aside(entry),) if line]
    told = []
    hooks = entry / "hooks"
    if hooks.is_symlink() or any(_active_hooks(hooks)):
        told.append(_set_aside(hooks))
    told.append(_set_aside(entry / "commondir"))
    config = entry / "config"
    if os.path.lexists(config) and not _is_harmless(config):
        told.append(_set_aside(config))
        with contextlib.suppress(OSError), config.open("x", encoding="utf-8") as file:
            file.write(_MINIMAL)
    return [line for line in told if line]


def _is_within(entry: Path) -> bool:
    """Whether the ``.git`` file of a submodule names a place beside or below its own tree's."""
    with contextlib.suppress(OSError, ValueError):
        line = entry.read_text(encoding="utf-8")[:4096].partition("\n")[0]
        named = entry.parent / line.removeprefix("gitdir:").strip()
        return ".git/modules/" in os.path.realpath(named) + "/"
    return False


def _active_hooks(hooks: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(hooks) if not name.endswith(".sample")]  # noqa: PTH208 - names are enough
    return []


def _is_harmless(config: Path) -> bool:
    """Whether nothing in a fresh repository's configuration names a program or another file."""
    try:
        if config.is_symlink() or config.stat().st_size > _MOST_CONFIG_BYTES:
            return False
        text = config.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line.endswith("\\"):
            return False
        if found := _SECTION.match(line):
            section = found[1].lower().partition(".")[0]
            line = line[found.end() :].strip()
        if line and not _is_harmless_key(section, re.split(r"[\s=]", line, maxsplit=1)[0].lower()):
            return False
    return True


def _is_harmless_key(section: str, key: str) -> bool:
    if section == "core":
        return key in _HARMLESS_CORE
    return section in _HARMLESS_SECTIONS and key not in _PROGRAM_KEYS


def _set_aside(path: Path) -> str:
    """Give it a name under which nothing looks for it."""
    if not os.path.lexists(path) or Path(os.path.realpath(path.parent)) != path.parent:
        return ""
    for number in range(100):
        target = path.with_name(f"{path.name}{SUFFIX}{number or ''}")
        if os.path.lexists(target):
            continue
        try:
            path.rename(target)
        except OSError as error:
            return f"[sandbox: {one_line(str(path), 200)} must not be made here: {error.strerror}]"
        shown = one_line(str(path), 200)
        return (
            f"[sandbox: {shown} would take effect outside and was renamed to {target.name}; "
            'to make it, run the command again with access "outside"]'
        )
    return ""
