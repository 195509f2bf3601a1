"""What a project holds that takes effect once its directory is trusted: ``.agents`` (SEC-1).

``config.toml`` (settings and hooks), ``commands``, ``skills`` and ``agents``. Laws: to be looked
at, nothing of it needs to be believed: reading is bounded and errors are values; what a project
may never set, whoever trusts it, is not in ``SHARED_KEYS``: where keys are sent, what code is
loaded, how the person likes the screen.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from agentcli.config.toml_file import parse
from agentcli.domain.errors import ConfigError
from agentcli.domain.values import frozen

DIRECTORY = ".agents"
CONFIG_FILE = "config.toml"
SHARED_KEYS = frozenset(
    {
        "model", "fallback_models", "effort", "permission_mode", "max_steps", "max_output_tokens",
        "max_answers_without_tools", "permissions.allow", "permissions.ask", "permissions.deny",
        "tools.off",
    }
)  # fmt: skip
MERGED_KEYS = frozenset({"permissions.allow", "permissions.ask", "permissions.deny", "tools.off"})
"""Lists to which a project adds: it takes no rule of the person's away."""
_LISTED = (("commands", ".md"), ("skills", "/SKILL.md"), ("agents", ".md"))
_MAX_BYTES = 200_000
_MAX_NAMES = 200


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
    """What ``root`` holds; ``None`` when that is nothing, or the person's own home directory."""
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
