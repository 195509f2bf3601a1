"""What a project holds that takes effect once its directory is trusted, and which are (SEC-1).

A project's own files stand in ``.agents``: ``config.toml`` (settings and hooks), ``commands``,
``skills`` and ``agents``. Laws: to be looked at, nothing of it needs to be believed: reading is
bounded and errors are values. A directory is trusted by its real path and with the very
configuration that was shown: when that changes, it is not trusted until the user was asked again.
A book that cannot be read trusts nothing. What a project may set is said in ``settings.KEYS``.
"""

from __future__ import annotations

import json
import os
import stat
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentcli.config.paths import Paths
from agentcli.config.toml_file import parse
from agentcli.domain.errors import ConfigError
from agentcli.domain.values import frozen

DIRECTORY = ".agents"
CONFIG_FILE = "config.toml"
_LISTED = (("commands", ".md"), ("skills", "/SKILL.md"), ("agents", ".md"))
_MAX_BYTES = 200_000
_MAX_NAMES = 200
_MAX_TRUST_BYTES = 4_000_000


@frozen
class Project:
    """A project's own files. ``text`` is its configuration, ``problem`` why that cannot be used.

    ``fingerprint`` stands for what the configuration says, whatever its spacing and comments.
    ``names``: commands, skills and agents, each list under its kind.
    """

    root: Path
    file: Path
    text: str | None = None
    problem: str = ""
    fingerprint: str = ""
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def brings_anything(self) -> bool:
        """Whether trust would change anything."""
        return self.text is not None or bool(self.problem) or any(found for _, found in self.names)


def read_project(root: Path, home: str) -> Project | None:
    """What ``root`` holds; ``None`` when that is nothing, or the user's own home directory."""
    directory = root / DIRECTORY
    if not os.path.isdir(directory) or (home and os.path.realpath(home) == os.path.realpath(root)):  # noqa: PTH112 - never raises
        return None
    file = directory / CONFIG_FILE
    names = tuple((kind, _names(directory / kind, ending)) for kind, ending in _LISTED)
    try:
        text = _text_of(file)
        fingerprint = "" if text is None else _fingerprint(text, file)
    except ConfigError as error:
        return Project(root, file, problem=str(error), names=names)
    project = Project(root, file, text, fingerprint=fingerprint, names=names)
    return project if project.brings_anything else None


def _fingerprint(text: str, file: Path) -> str:
    import hashlib

    meaning = json.dumps(parse(text, file), sort_keys=True, default=str)
    return hashlib.sha256(meaning.encode()).hexdigest()


def _text_of(file: Path) -> str | None:
    """The file's text, ``None`` when there is none. Raises ``ConfigError``."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read {file}: {reason}", "check the file") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ConfigError(f"{file} is no regular file", "put the settings into a plain file")
    with os.fdopen(handle, "rb") as opened:
        data = opened.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{file} is larger than {_MAX_BYTES} bytes", "make it smaller")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text", "save it as UTF-8") from error


def _names(directory: Path, ending: str) -> tuple[str, ...]:
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for _, entry in zip(range(_MAX_NAMES), entries, strict=False))
    except OSError:
        return ()
    if ending.startswith("/"):
        return tuple(name for name in names if os.path.isfile(f"{directory / name}{ending}"))  # noqa: PTH113 - never raises
    files = (name.removesuffix(ending) for name in names if name.endswith(ending))
    below = (f"{name}/" for name in names if os.path.isdir(directory / name))  # noqa: PTH112 - never raises
    return (*files, *below)


# --- trust -----------------------------------------------------------------------------------


class Standing(StrEnum):
    """What the user has said of a directory. ``CHANGED``: trusted, with something else in it."""

    UNKNOWN = "unknown"
    TRUSTED = "trusted"
    CHANGED = "changed"
    REFUSED = "refused"


def standing(paths: Paths, directory: Path, fingerprint: str) -> Standing:
    """How ``directory`` stands with a configuration of this ``fingerprint``."""
    entry = _read(paths).get(os.path.realpath(directory))
    if not isinstance(entry, dict):
        return Standing.UNKNOWN
    if entry.get("trusted") is not True:
        return Standing.REFUSED
    return Standing.TRUSTED if entry.get("fingerprint") == fingerprint else Standing.CHANGED


def decide(paths: Paths, directory: Path, fingerprint: str, *, trusted: bool) -> None:
    """Write down what the user has said. Raises ``ConfigError``."""
    from agentcli.config.paths import write

    book = _read(paths)
    book[os.path.realpath(directory)] = {
        "trusted": trusted,
        "fingerprint": fingerprint,
        "decided_at": round(time.time()),
    }
    write(paths.trust_file, json.dumps({"directories": book}, indent=1, sort_keys=True) + "\n")


def _read(paths: Paths) -> dict[str, Any]:
    try:
        with paths.trust_file.open("rb") as file:
            book = json.loads(file.read(_MAX_TRUST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    directories = book.get("directories") if isinstance(book, dict) else None
    return directories if isinstance(directories, dict) else {}
