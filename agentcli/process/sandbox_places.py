"""Which places a command may write, only read, or not see at all (SEC-7).

Law: paths are real ones, links followed; a place is judged against directories, not prefixes.
What lies in the workspace and takes effect outside of the sandbox is read-only: git's hooks and
configuration, our project directory, the start-up files of shells. What would take effect once it
came into being is named too, and set aside as soon as a command has ended.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agentcli.domain.tools import real_path
from agentcli.process.sandbox_home import homes, seen

_SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".npmrc",
    ".pypirc", ".pgpass", ".my.cnf", ".vault-token", ".password-store", ".terraform.d", ".mozilla",
    ".thunderbird", ".bash_history", ".zsh_history", ".python_history", ".psql_history",
    ".config/gh", ".config/hub", ".config/gcloud", ".config/op", ".config/git/credentials",
    ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
    ".config/containers/auth.json", ".config/rclone", ".local/share/keyrings", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".claude/.credentials.json", ".codex/auth.json",
    ".gemini/oauth_creds.json", ".local/share/kwalletd", "snap/firefox", "snap/chromium",
    ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".boto", ".s3cfg",
    ".claude.json", ".1password", ".config/1Password", ".composer/auth.json", ".hex/hex.config",
    ".config/composer/auth.json", ".nuget/NuGet/NuGet.Config", ".config/pypoetry/auth.toml",
    ".cache/huggingface/token", ".huggingface/token", ".kaggle", ".oci", ".config/doctl",
    ".config/heroku", ".config/netlify", ".config/fly", ".fly", ".wrangler", ".config/stripe",
    ".config/sops", ".age", ".passage", ".electrum", ".bitcoin", ".ethereum", ".putty", ".vnc",
)  # fmt: skip
_START_UP = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc",
    ".login", ".xprofile", ".xinitrc", ".xsessionrc", ".pam_environment", ".inputrc", ".gitconfig",
    ".config/git", ".config/fish", ".config/autostart", ".config/systemd", ".local/bin",
)  # fmt: skip
_PROJECT = (".agents", ".agentcli")
_MOST_DIRECTORIES = 300
_DEPTH = 2
_SKIPPED = frozenset({"node_modules", ".venv", "venv", "__pycache__", "target", ".tox", ".cache"})


@dataclass(frozen=True, slots=True)
class Places:
    """Absolute real paths. Of ``homes`` no more is seen than the rest, ``seen`` to begin with.

    ``pinned`` are writable directories that cannot be moved away.
    ``empty`` are directories that are to be seen as empty and read-only, whether they exist or
    not; ``hidden`` what exists and is not to be read; ``unborn`` what must not come into being;
    ``repositories`` the ``.git`` of each repository that is known.
    """

    writable: tuple[Path, ...]
    pinned: tuple[Path, ...]
    read_only: tuple[Path, ...]
    empty: tuple[Path, ...]
    hidden: tuple[Path, ...]
    unborn: tuple[Path, ...]
    repositories: tuple[Path, ...]
    homes: tuple[Path, ...] = ()
    seen: tuple[Path, ...] = ()

    def frozen(self) -> Places:
        """The same with nothing to write to."""
        seen = (*self.seen, *self.writable)
        return replace(self, writable=(), pinned=(), read_only=(), empty=(), seen=seen)


@dataclass(frozen=True, slots=True)
class OwnPlaces:
    """Our files: what no command writes, and what no command reads.

    ``seen`` is what they may read in the home directory beside toolchains.
    """

    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    seen: tuple[Path, ...] = ()


class _Collector:
    def __init__(self, roots: Iterable[Path]) -> None:
        self.writable = list(dict.fromkeys(map(real_path, roots)))
        self.pinned: list[Path] = []
        self.read_only: list[Path] = []
        self.empty: list[Path] = []
        self.hidden: list[Path] = []
        self.unborn: list[Path] = []
        self.repositories: list[Path] = []
        self.homes: tuple[Path, ...] = ()
        self.seen: tuple[Path, ...] = ()

    def is_writable(self, path: Path) -> bool:
        return _is_below(path, self.writable)

    def is_seen(self, path: Path) -> bool:
        """Whether a command could read it; of a home directory it sees a list alone."""
        return not _is_below(path, self.homes) or _is_below(path, (*self.writable, *self.seen))

    def keep(self, path: Path, *, may_be_born: bool = False) -> None:
        """No command changes ``path``; if it is not there, none makes it."""
        real = real_path(path)
        if not self.is_writable(real) or real in self.writable:
            return
        if _exists(real):
            self.read_only.append(real)
        elif not may_be_born:
            self.unborn.append(path)

    def hide(self, path: Path) -> None:
        """No command reads ``path``, unless the workspace is in it."""
        real = real_path(path)
        if any(root.is_relative_to(real) for root in self.writable) or not self.is_seen(real):
            return
        if _exists(real):
            self.hidden.append(real)
        elif self.is_writable(real):
            self.unborn.append(path)

    # --- git -----------------------------------------------------------------------------

    def repository(self, entry: Path) -> None:
        """``entry`` is the ``.git`` of a working tree: a directory, or a file that names one."""
        self.repositories.append(entry)
        if entry.is_symlink() or entry.is_dir():
            if (real := real_path(entry)).is_dir() and self.is_writable(real):
                self.git_directory(real)
            return
        self.keep(entry)
        directory = _named_by(entry)
        if directory is None:
            return
        if self.is_writable(directory):
            self.git_directory(directory)
        elif (common := _common_of_worktree(entry, directory)) is not None:
            self.writable.append(common)
            self.git_directory(common)

    def git_directory(self, git: Path) -> None:
        """What is in ``git`` and decides which programs git runs is read-only."""
        if git in self.pinned:
            return
        self.pinned.append(git)
        hooks = git / "hooks"
        if hooks.is_dir() and not hooks.is_symlink():
            self.read_only.append(hooks)
        elif not os.path.lexists(hooks):
            self.empty.append(hooks)
        for name in ("config", "commondir"):
            self.keep(git / name)
        self.keep(git / "config.worktree", may_be_born=True)
        for tree in _entries(git / "worktrees"):
            for name in ("commondir", "gitdir", "config.worktree"):
                self.keep(tree / name, may_be_born=True)
        for module in _git_directories_below(git / "modules"):
            self.git_directory(module)

    def places(self) -> Places:
        """All of it, without what is said twice."""
        return Places(
            writable=tuple(dict.fromkeys(self.writable)),
            pinned=tuple(dict.fromkeys(self.pinned)),
            read_only=tuple(dict.fromkeys(self.read_only)),
            empty=tuple(dict.fromkeys(self.empty)),
            hidden=tuple(dict.fromkeys(self.hidden)),
            unborn=tuple(dict.fromkeys(self.unborn)),
            repositories=tuple(self.repositories),
            homes=self.homes,
            seen=self.seen,
        )


def find_places(roots: Iterable[Path], home: Path, own: OwnPlaces) -> Places:
    """The places of a session that works in ``roots``; looks at the disk, changes nothing."""
    found = _Collector(roots)
    for root in tuple(found.writable):
        for entry in find_repositories(root):
            found.repository(entry)
        for name in _PROJECT:
            found.keep(root / name)
    found.homes = homes(home, found.writable)
    found.seen = seen(found.homes, os.environ, own.seen)
    for path in own.hidden:
        found.hide(path)
    for path in (home / name for name in _SECRETS):
        if found.is_seen(path) or _exists(path):
            found.hide(path)
    for path in (*own.read_only, *(home / name for name in _START_UP)):
        found.keep(path)
    return found.places()


def find_repositories(root: Path) -> Iterator[Path]:
    """The ``.git`` entries at and a little below ``root``; bounded."""
    waiting = [(root, 0)]
    looked_at = 0
    while waiting and looked_at < _MOST_DIRECTORIES:
        directory, depth = waiting.pop(0)
        looked_at += 1
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name == ".git":
                yield directory / ".git"
                continue
            may_hold_one = depth < _DEPTH and entry.name not in _SKIPPED
            if may_hold_one and entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), depth + 1))


def _is_below(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _exists(path: Path) -> bool:
    """False where it may not be looked at, which ``pathlib`` raises for."""
    return os.path.exists(path)  # noqa: PTH110 - see above


def _entries(directory: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(directory) if entry.is_dir()]
    except OSError:
        return []


def _git_directories_below(directory: Path, depth: int = 3) -> Iterator[Path]:
    """Git directories of submodules, whose names may hold slashes."""
    for entry in _entries(directory):
        # a command may have removed some of it, but not what is read-only
        if any(_exists(entry / name) for name in ("HEAD", "config", "hooks")):
            yield entry
        elif depth:
            yield from _git_directories_below(entry, depth - 1)


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(4096)).partition("\n")[0].strip()
    except OSError:
        return ""


def _named_by(entry: Path) -> Path | None:
    """The directory that a ``.git`` file names."""
    line = _first_line(entry)
    if not line.startswith("gitdir:"):
        return None
    return real_path(entry.parent / line.removeprefix("gitdir:").strip())


def _common_of_worktree(entry: Path, directory: Path) -> Path | None:
    """The repository of a linked working tree; ``None`` unless it knows of that tree.

    A ``.git`` file is the workspace's word alone; what it names must name it in return, which no
    command inside can bring about.
    """
    back = _first_line(directory / "gitdir")
    if not back or real_path(directory / back) != real_path(entry):
        return None
    common = real_path(directory / _first_line(directory / "commondir"))
    is_repository = _exists(common / "HEAD") and _exists(common / "objects")
    return common if is_repository and directory.parent == common / "worktrees" else None


# --- what must not come into being ----------------------------------------------------------------
# A mount can protect only what is there. A command that makes .agents, or a repository with hooks,
# would have it take effect outside of the sandbox; so it is renamed as soon as the command has
# ended, and the model is told how to ask for it. Nothing is deleted, and only what was not there
# before is touched.

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
    lines = [line for path in before.unborn if (line := _set_aside(path))]
    known = set(before.repositories)
    for root in roots:
        for entry in find_repositories(root):
            if entry not in known:
                lines += _tame(entry)
    return tuple(lines)


def _tame(entry: Path) -> list[str]:
    """A repository that the command has made keeps its work, but runs no program."""
    if entry.is_symlink() or not entry.is_dir():
        if entry.is_file() and _is_within(entry):
            return []
        return [line for line in (_set_aside(entry),) if line]
    lines = []
    hooks = entry / "hooks"
    if hooks.is_symlink() or any(_active_hooks(hooks)):
        lines.append(_set_aside(hooks))
    lines.append(_set_aside(entry / "commondir"))
    config = entry / "config"
    if os.path.lexists(config) and not _is_harmless(config):
        lines.append(_set_aside(config))
        with contextlib.suppress(OSError), config.open("x", encoding="utf-8") as file:
            file.write(_MINIMAL)
    return [line for line in lines if line]


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
    shown = str(path) if str(path).isprintable() else ascii(str(path))
    for number in range(100):
        target = path.with_name(f"{path.name}{SUFFIX}{number or ''}")
        if os.path.lexists(target):
            continue
        try:
            path.rename(target)
        except OSError as error:
            return f"[sandbox: {shown} must not be made here: {error.strerror}]"
        return (
            f"[sandbox: {shown} would take effect outside and was renamed to {target.name}; "
            'to make it, run the command again with access "outside"]'
        )
    return ""
