"""Where everything we keep lives (CLI-10), and how it is made: private, whole, on demand (SEC-9).

``AGENTCLI_HOME`` moves all of it into one directory; without it the XDG base directories are
used. Nothing is created by asking for a path.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from agentcli.domain.errors import ConfigError, PersistenceError
from agentcli.domain.files import make_private_directory
from agentcli.domain.values import frozen

MAX_BYTES = 4_000_000
REPAIR = 'correct the line, or run "agent config edit"'

_CLOSED = (".agentcli", ".agents")  # for every tool (SEC-3)
_ADVICE = "set AGENTCLI_HOME to a directory that you can write to"


class _OwnFile:
    """What stands in one of the directories of ``Paths``, under a name of its own."""

    __slots__ = ("_directory", "_name")

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._name = name

    def __get__(self, paths: Paths, owner: object = None) -> Path:
        directory: Path = getattr(paths, self._directory)
        return directory / self._name


@frozen
class Paths:
    """The directories of one installation, absolute."""

    config_dir: Path
    data_dir: Path
    state_dir: Path

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Paths:
        """Paths as ``env`` says; raises ``ConfigError`` when there is no home of any kind."""
        own = env.get("AGENTCLI_HOME")
        if own:
            home = _absolute(own)
            return cls(home, home, home)
        return cls(
            config_dir=_xdg(env, "XDG_CONFIG_HOME", ".config"),
            data_dir=_xdg(env, "XDG_DATA_HOME", ".local/share"),
            state_dir=_xdg(env, "XDG_STATE_HOME", ".local/state"),
        )

    config_file = _OwnFile("config_dir", "config.toml")
    """The user's settings."""
    trust_file = _OwnFile("config_dir", "trust.json")
    """Which directories the user trusts."""
    credentials_file = _OwnFile("config_dir", "credentials.json")
    """The keys that were stored with ``agent auth login``."""
    servers_file = _OwnFile("config_dir", "mcp.json")
    """MCP servers of single projects, and which are switched off where."""
    logins_dir = _OwnFile("config_dir", "mcp-logins")
    """Logins to MCP servers (``logins``)."""
    instructions_file = _OwnFile("config_dir", "AGENTS.md")
    """The user's own AGENTS.md, read in every project (CTX-1)."""
    sessions_dir = _OwnFile("data_dir", "sessions")
    """One SQLite file per session."""
    catalogue_file = _OwnFile("data_dir", "catalogue.db")
    """The index over all sessions; can be rebuilt."""
    memory_dir = _OwnFile("data_dir", "memory")
    """What is known of projects (MEM-1)."""
    journals_dir = _OwnFile("data_dir", "changes")
    """Notes of changes to files that are under way; empty when none is."""
    maps_dir = _OwnFile("data_dir", "maps")
    """The maps of projects; can be made again."""
    plugins_file = _OwnFile("data_dir", "plugins/plugins.json")
    """The plugins that were added; their files are beside it."""
    log_file = _OwnFile("state_dir", "agentcli.log")
    """What the program has to say to its developers."""
    seal_file = _OwnFile("state_dir", "seal.key")
    """The key of the marks in session files (``seal``)."""
    heads_file = _OwnFile("state_dir", "heads.json")
    """The heads of skills, commands and agents, parsed; can be thrown away."""
    history_file = _OwnFile("state_dir", "history")
    """What was typed in the chat."""
    models_file = _OwnFile("state_dir", "models.txt")
    """What ``agent models --refresh`` has fetched."""
    windows_file = _OwnFile("state_dir", "windows.json")
    """What local servers said of their models' windows; can be thrown away."""

    unsettled_dir = _OwnFile("state_dir", "unsettled")
    """What was known before the commands that run now (``process.unsettled``)."""
    worktree_records_dir = _OwnFile("state_dir", "worktree-records")
    """What is written down of worktrees, and their locks."""

    @property
    def worktrees_dir(self) -> Path:
        """The worktrees of agents (SCALE-1), in which they work: what is in one is not ours.

        Beside a directory in which no tool may write because of its name.
        """
        parts = self.state_dir.parts
        closed = next((at for at, name in enumerate(parts) if name in _CLOSED), 0)
        return (
            Path(*parts[:closed], "agentcli-worktrees") if closed else self.state_dir / "worktrees"
        )

    def own_places(self, workspace: Path) -> tuple[Path, ...]:
        """What no tool writes without asking (SEC-3), for a session that works in ``workspace``.

        Our directories, whole (``policy.places`` knows what in them is a worktree); where the
        workspace lies inside one and is none, what in it is ours.
        """
        real = Path(os.path.realpath(workspace))
        directories = dict.fromkeys((self.config_dir, self.data_dir, self.state_dir))
        is_worktree = real.is_relative_to(os.path.realpath(self.worktrees_dir))
        whole = [
            own
            for own in directories
            if is_worktree or not real.is_relative_to(os.path.realpath(own))
        ]
        files = (file for file in vars(type(self)).values() if isinstance(file, _OwnFile))
        return (*whole, *(file.__get__(self) for file in files))


def ensure_dir(path: Path) -> Path:
    """Create ``path`` (0700) and its parents if need be; raises ``PersistenceError``."""
    try:
        if not path.is_dir():
            make_private_directory(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PersistenceError(f"cannot create {path}: {reason}", _ADVICE) from error
    return path


def read_text(path: Path) -> str | None:
    """The file's text, or ``None`` when there is no such file; raises ``ConfigError``."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ConfigError(f"{path} is no regular file", "put the settings into a plain file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB", REPAIR)
        return data.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - (error.object.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError(f"{path}:{line}:{column}: not UTF-8 text", REPAIR) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read {path}: {reason}", "check its permissions") from error


def write(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` at once: a reader sees the old file or the new, never a part.

    It is 0600, whatever the umask; a symbolic link is kept and its target replaced. Raises
    ``ConfigError``.
    """
    import tempfile

    target = Path(os.path.realpath(path))
    ensure_dir(target.parent)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.stem}-", suffix=".tmp"
        )
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            os.fchmod(handle, 0o600)  # the umask may have taken more away
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot write {path}: {reason}", "nothing was changed") from error


def _xdg(env: Mapping[str, str], variable: str, default: str) -> Path:
    base = env.get(variable, "")
    # the XDG base directory specification: relative paths are invalid and ignored
    if base.startswith("/"):
        return Path(base) / "agentcli"
    return _home(env) / default / "agentcli"


def _home(env: Mapping[str, str]) -> Path:
    home = env.get("HOME", "")
    if home.startswith("/"):
        return Path(home)
    try:
        import pwd

        entry = pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        entry = ""
    if not entry.startswith("/"):
        raise ConfigError("there is no home directory: HOME is not set", _ADVICE)
    return Path(entry)


def _absolute(value: str) -> Path:
    try:
        return Path(value).expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ConfigError(f"AGENTCLI_HOME={value} cannot be resolved: {error}", _ADVICE) from error
