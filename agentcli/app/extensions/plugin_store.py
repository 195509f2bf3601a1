"""The plugins that the user has added: fetched, shown, kept as they were shown (EXT-5).

A plugin is copied into our data directory, from a directory or from one commit of a git
repository, and that copy is what takes effect: what the user has said yes to, whatever becomes of
its source. Laws: git runs nothing that a repository names (no checkout: files are read as git
keeps them, so neither hooks, filters, LFS nor submodules have a part in it), speaks only the
protocols that it may, to the address that the user gave, for a limited time and size; the book is
written at once or not at all; a copy that was not said yes to is removed.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agentcli.config.paths import Paths, ensure_dir, write
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.domain.extensions.hooks import HookConfig
from agentcli.domain.files import walk
from agentcli.domain.values import frozen
from agentcli.extensions.packages import (
    MANIFESTS,
    MAX_BYTES,
    MAX_FILES,
    MAX_JSON_BYTES,
    PluginFile,
    PluginPackage,
    content_mark,
    file_in,
    files_below,
    is_name,
    looks_of,
    marketplace,
    read_package,
    too_large,
    write_files,
)

FETCH_S = 120.0
_DAY_S = 86_400.0
_SHOWN_COMMIT = 12
_MAX_BOOK_BYTES = 1_000_000
_MAX_SHOWN_CHARS = 200_000
_MACHINE_CODE = b"\x7fELF"
_MOST_SAID = 500
_MAX_LISTED = 100_000
_MAX_AIM_BYTES = 4_096
_MARK = re.compile(r"[0-9a-f]{64}")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_GITHUB = re.compile(r"github:(?P<repo>[\w.-]+/[\w.-]+?)(?:\.git)?(?:@(?P<ref>[^@\s]+))?")
_URL = re.compile(
    r"(?P<url>(?:https|ssh|file)://[^\s]+?|[\w.-]+@[\w.-]+:[^\s@]+?)(?:[@#](?P<ref>[^@#/\s][^@#\s]*))?"
)
_LINK, _PROGRAM, _SUBMODULE = "120000", "100755", "160000"
_PROTOCOLS = ("https", "ssh", "file")
_ENVIRONMENT = (
    *("HOME", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "GIT_SSL_CAINFO", "NO_PROXY"),
    *("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "no_proxy"),
)
_GONE = "has lost its files"


@frozen
class AddedPlugin:
    """A plugin of the book. ``source`` is what the user gave; ``commit`` is empty for a directory.

    ``mark`` stands for the content that the user has seen, ``looks`` for how the directory that it
    was copied from looked then.
    """

    name: str
    source: str
    mark: str
    version: str = ""
    commit: str = ""
    looks: str = ""
    within: str = ""
    added_at: int = 0

    def root(self, paths: Paths) -> Path:
        """Where its files are."""
        return _copies_of(paths, self.name) / self.mark[:16]

    def is_kept_as(self, new: AddedPlugin, paths: Paths) -> bool:
        """Whether its copy is there and has the content of ``new``."""
        return self.mark == new.mark and self.root(paths).is_dir()


@frozen
class StagedPlugin:
    """A copy that waits for the user's yes, with what it would become."""

    place: Path
    package: PluginPackage
    added: AddedPlugin
    notices: tuple[str, ...] = ()


def plugins_dir(paths: Paths) -> Path:
    """Where the book, the copies and what plugins keep are, whatever one of them is called."""
    return paths.plugins_file.parent


def _copies_of(paths: Paths, name: str) -> Path:
    return plugins_dir(paths) / "copies" / name


def _data_of(paths: Paths, name: str) -> Path:
    return plugins_dir(paths) / "data" / name


def added_plugins(paths: Paths) -> list[AddedPlugin]:
    """The book, by name; empty when it cannot be read."""
    try:
        with paths.plugins_file.open("rb") as file:
            book = json.loads(file.read(_MAX_BOOK_BYTES))
        listed = [each for each in book["plugins"] if isinstance(each, dict)]
        found = [AddedPlugin(**{key: each[key] for key in _KEYS if key in each}) for each in listed]
        found = [each for each in found if is_name(each.name) and _MARK.fullmatch(each.mark)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
    return sorted(found, key=lambda each: each.name)


_KEYS = ("name", "source", "mark", "version", "commit", "looks", "within", "added_at")


def plugin_places(paths: Paths) -> list[tuple[str, Path]]:
    """The name and root of each plugin that takes effect."""
    return [(each.name, each.root(paths)) for each in added_plugins(paths)]


def plugin_hooks(paths: Paths) -> tuple[HookConfig, ...]:
    """The hooks of the plugins: they run in the sandbox, as those of a project do (SEC-17)."""
    found: list[HookConfig] = []
    for name, root in plugin_places(paths):
        with contextlib.suppress(ConfigError):
            hooks, _ = hooks_of(read_package(root, name), _data_of(paths, name))
            found += hooks
    return tuple(found)


def plugin_servers(paths: Paths) -> Iterator[tuple[str, Path, Path, Mapping[str, Any]]]:
    """The MCP servers of each plugin that has some: its name, root and data directory, and them."""
    for name, root in plugin_places(paths):
        with contextlib.suppress(ConfigError):
            servers = read_package(root, name).servers
            if servers:
                yield name, root, _data_of(paths, name), servers


def hooks_of(package: PluginPackage, data: Path) -> tuple[list[HookConfig], list[str]]:
    """The hooks of a package and what of them is left out."""
    if package.hooks is None:
        return [], []
    from agentcli.config.claude import ClaudeFile, understood

    text = json.dumps({"hooks": package.hooks})
    said = understood(ClaudeFile(Path("hooks/hooks.json"), text), root=package.root)
    root = str(package.root)
    variables = (("CLAUDE_PLUGIN_ROOT", root), ("PLUGIN_ROOT", root), ("PLUGIN_DATA", str(data)))
    mine = [
        replace(hook, variables=variables, source=f"plugin {package.name}") for hook in said.hooks
    ]
    return mine, said.warnings


def changed_sources(paths: Paths) -> tuple[str, ...]:
    """A line for each plugin whose directory was edited meanwhile, or whose copy is gone."""
    if not plugin_places(paths):
        return ()
    lines = []
    for each in added_plugins(paths):
        directory = Path(each.source)
        if not each.root(paths).is_dir():
            how = f'"agent plugin update {each.name}" fetches them again'
            lines.append(f"warning: the plugin {each.name} {_GONE}: {how}")
        elif each.looks and directory.is_dir() and looks_of(directory / each.within) != each.looks:
            how = f'"agent plugin update {each.name}" shows what is new and asks'
            lines.append(
                f"the plugin {each.name} is as you added it; {directory} has changed: {how}"
            )
    return tuple(lines)


def plugin_rows(paths: Paths) -> list[dict[str, str]]:
    """The plugins that take effect, for a list. Blocks."""
    rows = []
    for each in added_plugins(paths):
        try:
            brings = summary(read_package(each.root(paths), each.name)) or "nothing"
            brings = brings if each.root(paths).is_dir() else _GONE
        except ConfigError as error:
            brings = f"cannot be read: {error.message}"
        rows.append(
            {
                "name": each.name,
                "version": each.version,
                "source": each.source,
                "commit": each.commit[:_SHOWN_COMMIT],
                "brings": brings,
            }
        )
    return rows


# --- adding ------------------------------------------------------------------------------------


@contextlib.contextmanager
def staged(paths: Paths, source: str, wanted: str = "") -> Iterator[StagedPlugin]:
    """A copy of what ``source`` names, gone afterwards unless it was kept (``keep``).

    ``wanted`` is the plugin of a marketplace. Raises ``UsageError`` or ``ConfigError``. Blocks.
    """
    whole = ensure_dir(plugins_dir(paths)) / f".new-{secrets.token_hex(8)}"
    _sweep(whole.parent)
    notices: list[str] = []
    try:
        with _opened(source, whole) as opened:
            write_files(filter(None, map(opened.manifest, MANIFESTS)), whole / "manifests")
            within, name, skills = _chosen(whole / "manifests", wanted)
            place, given, commit = whole / "plugin", opened.given, opened.commit
            files = opened.files(within, notices)
            write_files((each for each in files if _is_listed(each.path, skills)), place)
        package = read_package(place, name)
        looks = looks_of(Path(given) / within) if not commit else ""
        added = AddedPlugin(
            package.name,
            given,
            content_mark(place),
            package.version,
            commit,
            looks,
            within,
            round(time.time()),
        )
        notices += [*package.notices, *_unusable(package)]
        yield StagedPlugin(place, package, added, tuple(notices))
    except OSError as error:
        raise ConfigError(f"the plugin could not be copied: {error.strerror or error}") from error
    finally:
        shutil.rmtree(whole, ignore_errors=True)


def _unusable(package: PluginPackage) -> list[str]:
    """A line for each part of a package that makes no sense."""
    from agentcli.extensions.agents import load_agents
    from agentcli.extensions.commands import find_commands
    from agentcli.extensions.places import ExtensionPlace
    from agentcli.extensions.skills import find_skills

    places = (ExtensionPlace(package.root, f"plugin {package.name}", plugin=package.name),)
    skills, of_skills = find_skills(places)
    _, of_commands = find_commands(places, skills)
    _, of_agents = load_agents(places)
    _, of_hooks = hooks_of(package, Path())
    lines = (*of_skills, *of_commands, *of_agents, *of_hooks)
    return [line.removeprefix("warning: ").replace(f"{package.root}/", "") for line in lines]


def _sweep(directory: Path) -> None:
    """Remove what an addition has left that was killed a day ago or earlier."""
    for left in directory.glob(".new-*"):
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < time.time() - _DAY_S:
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _opened(source: str, beside: Path) -> Iterator[_Directory | _Commit]:
    """Where the files of a source are read. Raises ``UsageError`` or ``ConfigError``."""
    if found := _GITHUB.fullmatch(source):
        url, ref = f"https://github.com/{found['repo']}.git", found["ref"] or ""
    elif found := _URL.fullmatch(source):
        url, ref = found["url"], found["ref"] or ""
    else:
        directory = Path(source).expanduser()
        if not source.strip() or "://" in source or not directory.is_dir():
            raise UsageError(
                f"{source} is no directory and no git address",
                "give a directory, github:OWNER/REPO, or an https, ssh or file address",
            )
        yield _Directory(Path(os.path.realpath(directory)))
        return
    if url.startswith("-") or ref.startswith("-"):
        raise UsageError(f"{source} is no git address")
    repository = beside.with_name(f"{beside.name}.git")
    try:
        yield _Commit(source, url, ref, repository)
    finally:
        shutil.rmtree(repository, ignore_errors=True)


class _Directory:
    """A directory of the user's."""

    commit = ""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.given = str(root)

    def manifest(self, path: str) -> PluginFile | None:
        """One file, if it is there and in the directory."""
        return file_in(self._root, path)

    def files(self, within: str, notices: list[str]) -> Iterator[PluginFile]:
        """Those of the plugin in the directory ``within``."""
        place = Path(os.path.realpath(self._root / within))
        if not place.is_relative_to(self._root) or not place.is_dir():
            raise ConfigError(f"the plugin is not in its marketplace: {within}")
        return files_below(place, notices)


def _chosen(manifests: Path, wanted: str) -> tuple[str, str, Sequence[str] | None]:
    """Where the plugin is in its marketplace, its name there, and the skills that are listed."""
    listed = marketplace(manifests)
    is_plugin = any((manifests / name).is_file() for name in MANIFESTS[:-1])
    if listed is None or (is_plugin and not wanted):
        if wanted:
            raise UsageError("this is no marketplace", "leave --plugin out")
        return "", "", None
    names = ", ".join(listed) or "none"
    name = wanted or (next(iter(listed)) if len(listed) == 1 else "")
    if name not in listed:
        raise UsageError(
            f"this is a marketplace of plugins: {names}", "name one of them: --plugin NAME"
        )
    inside, skills = listed[name].get("source"), listed[name].get("skills")
    if not isinstance(inside, str):
        what = json.dumps(inside)[:200]
        raise ConfigError(f"the plugin {name} is kept elsewhere: {what}", "add it from there")
    within = os.path.normpath(inside)
    if within.startswith(("..", "/")):
        raise ConfigError(f"the plugin {name} is not in its marketplace: {inside[:200]}")
    is_list = isinstance(skills, list) and all(isinstance(each, str) for each in skills)
    places = [os.path.normpath(each) for each in skills] if is_list and skills else None
    return "" if within == "." else within, name, places


def _is_listed(path: str, skills: Sequence[str] | None) -> bool:
    """Whether a file is part of a plugin of which a marketplace lists these skills alone."""
    if skills is None or not path.startswith("skills/"):
        return True
    return any(path.startswith(f"{each}/") for each in skills)


def collisions(new: PluginPackage, places: Sequence[tuple[str, Path]]) -> list[str]:
    """A line for each name that something else has already; ``places`` are named directories."""
    lines = []
    for origin, place in places:
        for kind, names, path in (
            ("skill", new.skills, "skills/{}/SKILL.md"),
            ("command", new.commands, "commands/{}.md"),
            ("agent", new.agents, "agents/{}.md"),
        ):
            lines += [
                f"the {kind} {name} is hidden by that of {origin}"
                for name in names
                if (place / path.format(name.replace(":", "/"))).is_file()
            ]
    return list(dict.fromkeys(lines))


def keep(paths: Paths, new: StagedPlugin) -> None:
    """The user has said yes: from now on it takes effect. Raises ``ConfigError``."""
    target = new.added.root(paths)
    try:
        ensure_dir(target.parent)
        shutil.rmtree(target, ignore_errors=True)
        new.place.rename(target)
    except OSError as error:
        raise ConfigError(f"the plugin could not be kept: {error.strerror or error}") from error
    known = {each.name: each for each in added_plugins(paths)}
    # sessions that are open go on with the copy that they have begun with
    kept = {target, *([known[new.added.name].root(paths)] if new.added.name in known else [])}
    _write(paths, [*({**known, new.added.name: new.added}).values()])
    ensure_dir(_data_of(paths, new.added.name))
    for old in target.parent.iterdir():
        if old not in kept:
            shutil.rmtree(old, ignore_errors=True)


def remove(paths: Paths, name: str) -> AddedPlugin:
    """Forget a plugin, its files and what it kept. Raises ``UsageError``."""
    found = named(paths, name)
    _write(paths, [each for each in added_plugins(paths) if each.name != name])
    for place in (_copies_of(paths, name), _data_of(paths, name)):
        shutil.rmtree(place, ignore_errors=True)
    return found


def named(paths: Paths, name: str) -> AddedPlugin:
    """The plugin of the book; raises ``UsageError`` that names those there are."""
    known = {each.name: each for each in added_plugins(paths)}
    if name not in known:
        there = f"there are: {', '.join(known)}" if known else "none was added"
        raise UsageError(f"there is no plugin {name!r}", there)
    return known[name]


def _write(paths: Paths, plugins: Sequence[AddedPlugin]) -> None:
    listed = [asdict(each) for each in sorted(plugins, key=lambda each: each.name)]
    text = json.dumps({"plugins": listed}, indent=1) + "\n"
    write(paths.plugins_file, text)


# --- what the user is shown --------------------------------------------------------------------


def shown_lines(new: StagedPlugin, before: Path | None = None) -> list[str]:
    """All that a plugin brings, each text in full; with ``before``, what has changed."""
    package, added = new.package, new.added
    commit = f", commit {added.commit}" if added.commit else ""
    version = f" {package.version}" if package.version else ""
    lines = [f"{package.name}{version} ({package.layout}) from {added.source}{commit}"]
    lines += [f"  {line}" for line in package.description.splitlines()]
    counted = summary(package)
    lines.append(f"It brings {counted}." if counted else "It brings nothing that takes effect.")
    lines += [f"  note: {notice}" for notice in new.notices]
    lines = list(map(_in_one_line, lines))
    hooks, _ = hooks_of(package, Path())
    first = [*package.shown, *_scripts(package, hooks)]
    if before is not None:
        return [*lines, *_changes(before, package.root, first)]
    for path in dict.fromkeys((*first, *_all(package.root))):
        text = _text_of(package.root / path, is_text=path in first)
        lines += ["", _in_one_line(f"--- {path}"), *text.splitlines()]
    return lines


def _in_one_line(text: str) -> str:
    """``text`` that begins no line of its own: it would be taken for one of ours (SEC-6)."""
    return text.replace("\n", "<U+000A>")


def summary(package: PluginPackage) -> str:
    """What a plugin brings, in one line."""
    hooks, _ = hooks_of(package, Path())
    servers = list(package.servers)
    kinds: Mapping[str, Sequence[str]] = {
        "skills": package.skills,
        "commands": [f"/{package.name}:{name}" for name in package.commands],
        "agents": package.agents,
        "hooks": list(dict.fromkeys(str(hook.event) for hook in hooks)),
        "MCP servers": servers,
    }
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)


def _scripts(package: PluginPackage, hooks: Sequence[HookConfig]) -> list[str]:
    """The files that hooks run."""
    from agentcli.config.hooks import scripts_of

    found = [path for path in scripts_of(hooks, package.root, package.root) if path.is_file()]
    real = Path(os.path.realpath(package.root))
    return list(dict.fromkeys(os.path.relpath(path, real) for path in found))


def _changes(before: Path, after: Path, first: Sequence[str]) -> list[str]:
    lines: list[str] = []
    old, new = set(_all(before)), set(_all(after))
    for path in sorted(old | new):
        one, other = ((place / path) for place in (before, after))
        data = [each.read_bytes() if each.is_file() else b"" for each in (one, other)]
        runs = [os.access(each, os.X_OK) for each in (one, other)]
        if data[0] == data[1] and (path in old) == (path in new) and runs[0] == runs[1]:
            continue
        word = "changed" if path in old and path in new else "new" if path in new else "gone"
        word += ", a program by now" if runs[1] and path in old and not runs[0] else ""
        lines += ["", _in_one_line(f"--- {path} ({word})")]
        texts = [
            _text_of(each, is_text=path in first).splitlines() if each.is_file() else []
            for each in (one, other)
        ]
        shown = list(difflib.unified_diff(texts[0], texts[1], lineterm="", n=2))[2:]
        lines += shown or texts[1]
    return lines or ["Nothing in it has changed."]


def _all(root: Path) -> list[str]:
    return sorted(
        Path(place, name).relative_to(root).as_posix()
        for place, _, files in walk(root)
        for name in files
    )


def _text_of(path: Path, *, is_text: bool) -> str:
    """What a file holds; where it takes effect, a NUL does not make it one that is not shown."""
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    if b"\0" in data and (not is_text or data.startswith(_MACHINE_CODE)):
        return f"(binary, {len(data):,} bytes)"
    text = data[: 4 * _MAX_SHOWN_CHARS].decode("utf-8", "replace")
    is_whole = len(data) <= 4 * _MAX_SHOWN_CHARS and len(text) <= _MAX_SHOWN_CHARS
    cut = "" if is_whole else f"\n(cut: {len(data):,} bytes)"
    return text[:_MAX_SHOWN_CHARS] + cut


# --- git ---------------------------------------------------------------------------------------


class _Commit:
    """One commit, whose files are read as git keeps them: nothing is converted or checked out."""

    def __init__(self, given: str, url: str, ref: str, repository: Path) -> None:
        self.given = given
        self._git = git = _Git(repository)
        git.run(
            "init", "--quiet", "--bare", "--template=", str(repository), within=repository.parent
        )
        only = ("--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
        git.run("fetch", *only, "--", url, ref or "HEAD")
        self.commit = git.run("rev-parse", "FETCH_HEAD^{commit}").decode().strip()
        if not _SHA.fullmatch(self.commit):
            raise ConfigError(f"{url} has no commit {ref or 'HEAD'}")
        listed = git.run("ls-tree", "-r", "-z", "-l", "--full-tree", self.commit)
        if listed.count(b"\0") > _MAX_LISTED:
            raise too_large()
        self._rows = {}
        for entry in filter(None, listed.split(b"\0")):
            head, _, path = os.fsdecode(entry).partition("\t")
            mode, kind, name, size = head.split()
            self._rows[path] = mode if kind == "blob" else _SUBMODULE, name, size

    def manifest(self, path: str) -> PluginFile | None:
        """One file, if it is there."""
        found = self._rows.get(path)
        if found is None or found[0] in {_LINK, _SUBMODULE} or int(found[2]) > MAX_JSON_BYTES:
            return None
        return PluginFile(path, self._git.run("cat-file", "blob", found[1]))

    def files(self, within: str, notices: list[str]) -> Iterator[PluginFile]:
        """Those of the plugin in the directory ``within``; links lead nowhere but inside it."""
        start = f"{within}/" if within else ""
        rows = {p.removeprefix(start): row for p, row in self._rows.items() if p.startswith(start)}
        if not rows:
            raise ConfigError(f"the plugin is not in its marketplace: {within}")
        if len(rows) > MAX_FILES:
            raise too_large()
        chosen = {}
        for path, row in rows.items():
            if row[0] == _SUBMODULE:
                notices.append(f"{path} is a submodule and is left out")
            elif row[0] != _LINK:
                chosen[path] = row
            elif (aim := self._aim_of(path, rows)) is not None:
                chosen[path] = aim
            else:
                what = "is a link that leads to no file of the plugin and is left out"
                notices.append(f"{path} {what}")
        if sum(int(row[2]) for row in chosen.values()) > MAX_BYTES:
            raise too_large()  # a file counts by each of its names, as it is copied
        asked = "".join(f"{row[1]}\n" for row in chosen.values())
        whole = self._git.run("cat-file", "--batch", stdin=asked.encode())
        at = 0
        for path, (mode, _, _) in chosen.items():
            begin = whole.index(b"\n", at) + 1
            end = begin + int(whole[at : begin - 1].split()[-1])
            yield PluginFile(path, whole[begin:end], mode == _PROGRAM)
            at = end + 1

    def _aim_of(self, path: str, rows: Mapping[str, _Row]) -> _Row | None:
        """The file of the commit that a link leads to."""
        if int(rows[path][2]) > _MAX_AIM_BYTES:
            return None
        aim = os.fsdecode(self._git.run("cat-file", "blob", rows[path][1]))
        if aim.startswith("/"):
            return None
        row = rows.get(os.path.normpath(f"{path.rpartition('/')[0] or '.'}/{aim}"))
        return row if row is not None and row[0] not in {_LINK, _SUBMODULE} else None


_Row = tuple[str, str, str]


class _Git:
    """Git in a bare repository of ours, told nothing but what is here."""

    def __init__(self, repository: Path) -> None:
        from agentcli.app.files.safe_git import find_git

        found = find_git(Path.cwd())
        if found is None:
            raise ConfigError("git is not installed", "install git, or add a directory")
        self._repository = repository
        self._program = found.program
        kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._env = {
            **found.env,
            **kept,
            "GIT_ALLOW_PROTOCOL": ":".join(_PROTOCOLS),
            "GIT_ASKPASS": "",
            "SSH_ASKPASS": "",
            "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
            "GIT_LFS_SKIP_SMUDGE": "1",
        }
        self._options = (
            *("--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
            *("-c", "fetch.fsckObjects=true", "-c", "transfer.bundleURI=false"),
            *("-c", "protocol.version=2", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
        )

    def run(self, *arguments: str, within: Path | None = None, stdin: bytes = b"") -> bytes:
        """What it prints. Raises ``ConfigError`` with what it says, or when it takes too long."""
        # no file that it writes may become larger than a plugin: blocks of 512 bytes (POSIX);
        # what it prints and says goes into such: a tree of trees, or a remote, may have no end
        bound = f'ulimit -f {4 * MAX_BYTES // 512} 2>/dev/null; exec "$@"'
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
            process = subprocess.Popen(  # noqa: S603 - git from outside of the workspace
                ["/bin/sh", "-c", bound, "sh", self._program, *self._options, *arguments],
                cwd=within or self._repository,
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=complained,
                start_new_session=True,
            )
            try:
                process.communicate(stdin, timeout=FETCH_S)
            except subprocess.TimeoutExpired:
                why = f"git took longer than {FETCH_S:g} s"
                raise ConfigError(why, "try again later") from None
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if printed.tell() > 2 * MAX_BYTES:
                raise too_large()
            if process.returncode:
                complained.seek(max(0, complained.tell() - _MOST_SAID))
                text = " ".join(complained.read(_MOST_SAID).decode("utf-8", "replace").split())
                raise ConfigError(f"git {arguments[0]} failed: {text or process.returncode}")
            printed.seek(0)
            return printed.read()
