"""What a project holds that takes effect once its directory is trusted, and which are (SEC-1).

A project's own files stand in ``.agents`` and ``.claude`` of its root and of the directories on the
way to the working directory: ``commands``, ``skills`` and ``agents``, and at the root
``.agents/config.toml`` (settings and hooks); scripts in it that the user's own hooks run count too.
Laws: to be looked at, nothing of it needs to be believed: reading is bounded and errors are values.
A directory is trusted by its real path and with the very configuration, files and scripts that were
shown: when one changes, it is not trusted until the user was asked again. What was said of the root
holds there when a directory below it brings more, which is asked about for itself.
A book that cannot be read trusts nothing. What a project may set is said in ``keys.KEYS``.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.config.paths import Paths
from agentcli.domain.clean import as_object
from agentcli.domain.errors import ConfigError
from agentcli.domain.files import NoRegularFile, open_regular, walk
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.config.claude import ClaudeFile
    from agentcli.domain.extensions.hooks import HookConfig

DIRECTORY = ".agents"
CONFIG_FILE = "config.toml"
SERVERS_FILE = ".mcp.json"
# what is read of each directory: shown, part of the fingerprint (SEC-17)
_LISTED = (("commands", ".md"), ("skills", "/SKILL.md"), ("agents", ".md"))
SCRIPTS = "run by your hooks"
# as entries of servers have it
_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
_MAX_BYTES = 200_000
_MAX_NAMES = 200
_MAX_FILES = 2_000
_MAX_CONTENT_BYTES = 50_000_000
_MAX_DEPTH = 8
_MAX_LEVELS = 20  # of JSON
_MAX_TRUST_BYTES = 4_000_000


Names = tuple[tuple[str, tuple[str, ...]], ...]


@frozen
class Project:
    """A project's own files. ``text`` is its configuration, ``problem`` why that cannot be used.

    ``fingerprint`` stands for what the configuration says, whatever its spacing and comments, and
    for the content of commands, skills, agents and scripts that hooks run. ``names``: commands,
    skills, agents and scripts, each list under its kind. ``directories`` are those that hold them,
    nearest first; ``place`` is what the user trusts: the root, or the directory below it that
    brings more. Then ``outer`` is the same without what lies below the root. ``claude`` are the
    settings of Claude Code in it that say something that counts here, ``servers`` the MCP servers
    of ``.mcp.json`` by name, as they are written (MCP-3).
    """

    root: Path
    file: Path
    text: str | None = None
    problem: str = ""
    fingerprint: str = ""
    names: Names = ()
    directories: tuple[Path, ...] = ()
    outer: Project | None = None
    claude: tuple[ClaudeFile, ...] = ()
    servers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def servers_file(self) -> Path:
        """Where its MCP servers stand."""
        return self.root / SERVERS_FILE

    @property
    def brings_anything(self) -> bool:
        """Whether trust would change anything."""
        holds = self.text is not None or bool(self.problem or self.claude or self.servers)
        return holds or any(found for _, found in self.names)

    @property
    def place(self) -> Path:
        """The directory that is trusted or not."""
        return self.directories[0].parent if self.directories else self.root


def read_project(
    root: Path,
    home: str,
    *,
    cwd: Path | None = None,
    hooks: Sequence[HookConfig] = (),
    directories: Sequence[Path] | None = None,
) -> Project | None:
    """What ``root`` holds; ``None`` when that is nothing.

    Its configuration is none where ``root`` is the user's home directory. ``directories`` are
    looked at, nearest first; without them those of ``root``. ``hooks`` are the user's own, which
    run in ``cwd``: the scripts in ``root`` that they name count as what it brings, and commands
    that may run what is there.
    """
    is_home = bool(home) and os.path.realpath(home) == os.path.realpath(root)
    if directories is None:
        directories = () if is_home else (root / DIRECTORY, root / ".claude")
    scripts: tuple[Path, ...] = ()
    commands: tuple[str, ...] = ()
    if hooks and not is_home:
        from agentcli.config.hooks import doubted, scripts_of

        scripts = scripts_of(hooks, root, cwd or root)
        commands = doubted(hooks, root, cwd or root)
    beside = root / ".claude"
    claude = _claude_files(beside) if not is_home and os.path.isdir(beside) else ()  # noqa: PTH112 - never raises
    has_servers = not is_home and os.path.isfile(root / SERVERS_FILE)  # noqa: PTH113 - never raises
    is_there = (
        scripts or commands or claude or has_servers or any(map(os.path.isdir, directories))
    )  # never raises
    if not is_there:
        return None
    listed = {each: found for each in directories if (found := _listed(each, root))}
    names = _names_in(listed, root)
    if scripts or commands:
        shown = (os.path.relpath(path, os.path.realpath(root)) for path in scripts)
        names = (*names, (SCRIPTS, (*shown, *commands)))
    file = root / DIRECTORY / CONFIG_FILE
    below = [each for each in listed if each.parent != root]
    outer = None
    if below:
        rest = [each for each in listed if each.parent == root]
        outer = read_project(root, home, cwd=cwd, hooks=hooks, directories=[*rest, file.parent])
    project = Project(
        root, file, names=names, directories=tuple(listed), outer=outer, claude=claude
    )
    try:
        text = None if is_home else _text_of(file)
        if has_servers:
            project = replace(project, servers=read_servers(project.servers_file)[0])
        fingerprint = _fingerprint(project, cwd or root, text, scripts)
    except ConfigError as error:
        return replace(project, problem=str(error))
    project = replace(project, text=text, fingerprint=fingerprint)
    return project if project.brings_anything else None


def _claude_files(directory: Path) -> tuple[ClaudeFile, ...]:
    """Settings of Claude Code that say something that counts here, each read once."""
    from agentcli.config.claude import FILES, read_file, understood

    files = (read_file(directory / name) for name in FILES)
    return tuple(file for file in files if file and understood(file, root=directory.parent).meaning)


def _listed(directory: Path, root: Path) -> Names:
    """What ``directory`` holds; empty where nothing of it counts."""
    found = tuple((kind, _names(directory / kind, ending)) for kind, ending in _LISTED)
    if any(names for _, names in found):
        return found
    is_looked_into = directory.parent == root and any(
        os.path.isdir(directory / kind)  # noqa: PTH112 - never raises
        for kind, _ in _LISTED
    )
    return found if is_looked_into else ()


def _names_in(listed: Mapping[Path, Names], root: Path) -> Names:
    """All names under their kind; with their directory where that is not the usual one."""
    found: dict[str, list[str]] = {kind: [] for kind, _ in _LISTED}
    for directory, kinds in listed.items():
        where = "" if directory == root / DIRECTORY else f" ({os.path.relpath(directory, root)})"
        for kind, names in kinds:
            found[kind] += [f"{name}{where}" for name in names]
    return tuple((kind, tuple(names)) for kind, names in found.items())


def _fingerprint(project: Project, cwd: Path, text: str | None, scripts: Sequence[Path]) -> str:
    """Raises ``ConfigError`` for more than what is looked at."""
    import hashlib

    from agentcli.config.toml_file import parse

    root, file = project.root, project.file
    meaning = {} if text is None else parse(text, file)
    if text is not None and "hooks" in meaning:
        from agentcli.config.hooks import read_hooks, scripts_of

        hooks, _ = read_hooks(text, meaning["hooks"], file, lambda *_: None)
        scripts = (*scripts, *scripts_of(hooks, root, cwd))
    if project.claude:
        from agentcli.config.claude import understood
        from agentcli.config.hooks import scripts_of

        found = [understood(each, root=root) for each in project.claude]
        meaning = {**meaning, ".claude": [[each.path.name, each.meaning] for each in found]}
        hooks = [hook for each in found for hook in each.hooks]
        scripts = (*scripts, *scripts_of(hooks, root, cwd))
    if project.servers:
        from agentcli.config.hooks import scripts_of

        meaning = {**meaning, SERVERS_FILE: project.servers}
        scripts = (*scripts, *scripts_of(started_by(project.servers), root, root))
    if "checks" in meaning and text is not None:
        from agentcli.config.hooks import scripts_of

        scripts = (*scripts, *scripts_of(_as_hooks(text, meaning["checks"], file), root, cwd))
    whole = hashlib.sha256(json.dumps(meaning, sort_keys=True, default=str).encode())
    left = _MAX_CONTENT_BYTES
    kinds = (each / kind for each in project.directories for kind, _ in _LISTED)
    below = chain.from_iterable(map(_files_below, kinds))
    for count, path in enumerate(chain(below, scripts)):
        if path is not None:
            size, mark = _mark_of(path)
            left -= size
            said = f"{os.path.relpath(path, root)}\0{mark}\0"
            whole.update(said.encode("utf-8", "surrogateescape"))
        if count >= _MAX_FILES or left < 0:
            raise ConfigError(
                f"{file.parent} and .claude hold more than {_MAX_FILES} files and directories or "
                f"{_MAX_CONTENT_BYTES // 1_000_000} MB",
                "move what is not needed elsewhere",
            )
    return whole.hexdigest()


def _as_hooks(text: str, checks: object, file: Path) -> list[HookConfig]:
    """The commands of ``[[checks]]``: scripts of the project that they run count, too."""
    from agentcli.config.checks import read_checks
    from agentcli.domain.extensions.hooks import HookConfig, HookEvent

    found = read_checks(text, checks, file, lambda *_: None)
    commands = [command for check in found for command in check.commands]
    return [HookConfig(HookEvent.POST_TOOL_USE, command) for command in commands]


def read_servers(file: Path, *, is_given: bool = False) -> tuple[Mapping[str, Any], str]:
    """The MCP servers that a file names, as they are written, and why there are none.

    ``is_given``: the user names the file, which may be a pipe; else it is a regular one.
    """
    wait = 0 if is_given else os.O_NONBLOCK
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC | wait), "rb") as opened:
            if not is_given and not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return {}, f"{file} is no file: its MCP servers are not used"
            data = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        return {}, f"{file} cannot be read: {error.strerror or error}"
    return servers_from(data, str(file))


def servers_from(data: bytes, source: str) -> tuple[Mapping[str, Any], str]:
    """The same of what a file holds."""
    if len(data) > _MAX_BYTES:
        return {}, f"{source} has more than {_MAX_BYTES} bytes: its MCP servers are not used"
    where = ""
    try:
        document = json.loads(data.decode("utf-8-sig")) if data.strip() else {}
        is_plain = _is_plain(document)
        json.dumps(document, ensure_ascii=False).encode()  # no half of a character
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        is_plain = False
    if not is_plain:
        return {}, f"{source} is no JSON of servers{where}: its MCP servers are not used"
    servers = document.get("mcpServers", document) if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        return {}, f'{source} names no MCP servers: write {{"mcpServers": {{…}}}}'
    return servers, ""


def _is_plain(value: object, levels: int = _MAX_LEVELS) -> bool:
    """Whether nothing in ``value`` lies deeper than anybody writes."""
    if isinstance(value, dict | list):
        within = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_is_plain(each, levels - 1) for each in within)
    return True


def started_by(servers: Mapping[str, Any]) -> Iterator[HookConfig]:
    """The programs of the servers: scripts of the project that they run count, too (SEC-17).

    Every text of an entry is a word, however its key is spelled: one may be the directory that the
    program starts in, or a variable that says what else is run.
    """
    import shlex

    from agentcli.domain.extensions.hooks import HookConfig, HookEvent

    order = {"command": 0, "args": 1, "arguments": 1}
    for entry in servers.values():
        keyed = [
            (re.sub(r"[-_\s]", "", key).lower(), said) for key, said in as_object(entry).items()
        ]
        keyed.sort(key=lambda one: order.get(one[0], len(order)))
        words = [_VARIABLE.sub(_likely, word) for _, said in keyed for word in _texts_in(said)]
        if words:
            yield HookConfig(HookEvent.SESSION_START, shlex.join(words))


def _texts_in(value: object) -> Iterator[str]:
    """All texts in what was parsed; what a shell reads before all else is given to one."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from (";", "sh") if key in {"BASH_ENV", "ENV"} else ()
            yield from _texts_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each)
    elif isinstance(value, str) and "\0" not in value:
        yield value


def _likely(found: re.Match[str]) -> str:
    """What a variable of an entry stands for; the root is named as hooks name it."""
    is_root = found[1] == "workspaceFolder"
    value = os.environ.get(found[1]) or found[2] or found[0]
    return "$CLAUDE_PROJECT_DIR" if is_root else value


def _files_below(directory: Path) -> Iterator[Path | None]:
    """All files, links followed as those are that read them, in a fixed order.

    ``None`` for each directory, which the caller counts, too. Links may lead in circles: deep down
    none is followed, as none is by those that read there.
    """
    for place, directories, files in walk(directory, follow_links=True):
        directories.sort()
        if len(Path(place).relative_to(directory).parts) > _MAX_DEPTH:
            directories[:] = [each for each in directories if not os.path.islink(f"{place}/{each}")]  # noqa: PTH114 - never raises
        yield None
        yield from (Path(place, name) for name in sorted(files))


def _mark_of(path: Path) -> tuple[int, str]:
    """Size in bytes and a mark of the content; of what is no readable file, that it is none."""
    import hashlib

    try:
        opened = open_regular(path)
    except OSError:
        return 0, "none"
    with opened:
        status = os.fstat(opened.fileno())
        if status.st_size > _MAX_CONTENT_BYTES:
            return status.st_size, "large"
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return status.st_size, f"{digest} {status.st_mode & 0o111}"


def _text_of(file: Path) -> str | None:
    """The file's text, ``None`` when there is none. Raises ``ConfigError``."""
    try:
        with open_regular(file) as opened:
            data = opened.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except NoRegularFile as error:
        advice = "put the settings into a plain file"
        raise ConfigError(f"{file} is no regular file", advice) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read {file}: {reason}", "check the file") from error
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


def standing(paths: Paths, directory: Path, fingerprint: str, root: Path | None = None) -> Standing:
    """How ``directory`` stands with a configuration of this ``fingerprint``.

    Where nothing was said of it, and ``root`` is a worktree: as in its repository's own (SCALE-1).
    """
    book = _read(paths)
    entry = book.get(os.path.realpath(directory))
    if entry is None and root is not None and os.path.isfile(root / ".git"):  # noqa: PTH113 - never raises
        entry = book.get(_twin(directory, root))
    if not isinstance(entry, dict):
        return Standing.UNKNOWN
    if entry.get("trusted") is not True:
        return Standing.REFUSED
    return Standing.TRUSTED if entry.get("fingerprint") == fingerprint else Standing.CHANGED


def _twin(directory: Path, root: Path) -> str:
    """The same directory where the repository of the worktree ``root`` was made; maybe empty."""
    from agentcli.domain.worktrees import common_of_worktree, named_by

    own = named_by(root / ".git")
    common = own and common_of_worktree(root / ".git", own)
    if not common or common.name != ".git":
        return ""
    return os.path.realpath(common.parent / directory.relative_to(root))


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
    return as_object(directories)
