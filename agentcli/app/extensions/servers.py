"""The MCP servers of a session: the user's, the project's, those of plugins and of the start.

Law (MCP-3): of a repository only what the user trusts, as it was then: its servers are a part of
what the trust question shows, word for word, and of the fingerprint that a yes is given for. Of
one name the first holds, also one that cannot be used: the command line, this project in the user's
home, the user's settings, ``.mcp.json``, plugins; so a rule for a server of the user's frees none
of a repository's. Servers of projects and what is switched off stand in ``mcp.json`` of the
configuration directory. What a directory holds that nobody trusts decides not what runs: no server
starts there unless it says ``cwd``; what it names by a path is still what the user has named
(SEC-1).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.app.trust import installed_plugins, is_changed
from agentcli.config.paths import Paths, write
from agentcli.config.project import SERVERS_FILE, read_servers, servers_from
from agentcli.domain.clean import as_object
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.domain.values import frozen
from agentcli.engine.context.system_prompt import project_root
from agentcli.mcp.remembered import Remembered
from agentcli.mcp.servers import (
    McpServer,
    ServerPlace,
    ServerScope,
    called,
    servers_in,
    usable_name,
)

if TYPE_CHECKING:
    from agentcli.config.settings import Settings

root_of = project_root
GivenServers = tuple[str, Mapping[str, Any]]
"""Where servers of the start come from, and the parsed file."""
EDITOR = "the editor"
_MAX_KEPT_BYTES = 8_000_000
# words that are a path whatever program gets them; of a line, what a file's name comes behind: an
# interpreter and its options that take no word
_PATH = re.compile(r"(--?[\w-]+=)?(\.\.?(?:/.*)?)", re.DOTALL)
_BEFORE_FILE = re.compile(
    r"(?:[^\0]*/)?(?:(?:python|pypy)[\d.]*|node|nodejs|ruby|perl|php|lua|(?:ba|da|z|k)?sh)"
    r"(?:\0-[BEIOPSbqsu]+)*\0(?![-~]|\Z)"
)


@frozen
class ConfiguredServers:
    """``servers`` in force, switched off ones too (``enabled``); ``notices`` for the user."""

    servers: tuple[McpServer, ...] = ()
    notices: tuple[str, ...] = ()


def find_servers(
    settings: Settings, cwd: Path, given: Sequence[GivenServers] = (), *, is_strict: bool = False
) -> ConfiguredServers:
    """All servers of a session in ``cwd``; ``is_strict``: only ``given`` ones. Blocks."""
    root = project_root(cwd)
    notices: list[str] = []
    found: dict[str, McpServer] = {}
    named: dict[str, str] = {}  # where each name stands first
    book = _read_book(settings.paths, notices)
    places = list(_of_start(settings, cwd, given))
    if not is_strict:
        places += _configured(settings, root, book, notices)
    for place, document in places:
        servers, lines = servers_in({"mcpServers": document}, place)
        notices += lines
        for each in servers:
            server = each if place.cwd or each.cwd else _at_home(each, settings, place)
            name = called(server.name)
            near = found.get(name)
            if near is None and name not in named:
                found[name] = server
            elif near is None or server.mark != near.mark:
                first = near.source if near else named[name]
                notices.append(
                    f"the MCP server {server.name} of {place.source} is hidden by that of {first}"
                )
        for name in map(called, document):
            named.setdefault(name, place.source)
    off = _texts(_of_project(book, root).get("off"))
    in_force = tuple(_off(each) if each.name in off else each for each in found.values())
    return ConfiguredServers(in_force, tuple(notices))


def _of_start(
    settings: Settings, cwd: Path, given: Sequence[GivenServers]
) -> Iterator[tuple[ServerPlace, Mapping[str, Any]]]:
    for source, table in given:
        scope = ServerScope.CLIENT if source == EDITOR else ServerScope.OPTION
        yield _where_trusted(_place(settings, scope, source, str(cwd)), settings, cwd), table


def _configured(
    settings: Settings, root: Path, book: Mapping[str, Any], notices: list[str]
) -> Iterator[tuple[ServerPlace, Mapping[str, Any]]]:
    local = as_object(_of_project(book, root).get("mcpServers"))
    source = f"{settings.paths.servers_file} ({root})"
    if local:
        place = _place(settings, ServerScope.LOCAL, source, str(root))
        yield _where_trusted(place, settings, root), local
    file = str(settings.paths.config_file)
    yield _place(settings, ServerScope.USER, file, _home(settings)), settings.mcp_servers
    yield from _of_repository(settings, root, notices)
    if installed_plugins(settings.paths):
        yield from _of_plugins(settings, root)


def _of_repository(
    settings: Settings, root: Path, notices: list[str]
) -> Iterator[tuple[ServerPlace, Mapping[str, Any]]]:
    file = root / SERVERS_FILE
    if settings.project_servers:
        if is_changed(settings, root):
            notices.append(f"{file} has changed since you trusted it: its servers are not used")
            return
        place = _place(settings, ServerScope.PROJECT, str(file), str(root))
        yield place, settings.project_servers
    elif os.path.isfile(file):  # noqa: PTH113 - never raises
        _, problem = read_servers(file)
        notices += [problem] if problem else []


def _of_plugins(settings: Settings, root: Path) -> Iterator[tuple[ServerPlace, Mapping[str, Any]]]:
    from agentcli.app.extensions.plugin_store import plugin_servers

    for name, place, data, servers in plugin_servers(settings.paths):
        own = {
            **dict.fromkeys(("CLAUDE_PLUGIN_ROOT", "PLUGIN_ROOT"), str(place)),
            **dict.fromkeys(("CLAUDE_PLUGIN_DATA", "PLUGIN_DATA"), str(data)),
        }
        yield (
            ServerPlace(
                ServerScope.PLUGIN,
                f"the plugin {name}",
                settings.env,
                str(place),
                {**_variables(root), **own},
                tuple(own.items()),
                _provider_keys(settings),
            ),
            servers,
        )


def _place(settings: Settings, scope: ServerScope, source: str, cwd: str) -> ServerPlace:
    is_foreign = scope is ServerScope.PROJECT
    withheld = _provider_keys(settings) if is_foreign else frozenset[str]()
    return ServerPlace(scope, source, settings.env, cwd, _variables(Path(cwd)), withheld=withheld)


def _home(settings: Settings) -> str:
    return settings.env.get("HOME", "") or str(settings.paths.config_dir)


def _where_trusted(place: ServerPlace, settings: Settings, cwd: Path) -> ServerPlace:
    """``place``, without its directory where nobody has trusted that."""
    is_home = os.path.realpath(project_root(cwd)) == os.path.realpath(_home(settings))
    is_trusted = settings.project is not None and not is_changed(settings, cwd)
    return place if is_home or is_trusted else replace(place, cwd="")


def _at_home(server: McpServer, settings: Settings, place: ServerPlace) -> McpServer:
    """The server as it starts in the user's home, with paths of the directory that it is for."""
    if server.is_remote:
        return server
    base = place.variables["AGENTCLI_PROJECT_DIR"]
    words = [server.command, *(_path_in(base, word) for word in server.args)]
    files = [0] if "/" in server.command and not server.command.startswith("~") else []
    if before := _BEFORE_FILE.match("\0".join(words)):
        files.append(before[0].count("\0"))
    for at in files:
        words[at] = os.path.join(base, words[at])  # noqa: PTH118 - a text, as it is written
    return replace(server, command=words[0], args=tuple(words[1:]), cwd=_home(settings))


def _path_in(base: str, word: str) -> str:
    found = _PATH.fullmatch(word)
    return f"{found[1] or ''}{os.path.normpath(f'{base}/{found[2]}')}" if found else word


def _variables(root: Path) -> dict[str, str]:
    named = ("CLAUDE_PROJECT_DIR", "AGENTCLI_PROJECT_DIR", "workspaceFolder")
    return dict.fromkeys(named, str(root))


def _provider_keys(settings: Settings) -> frozenset[str]:
    """The variables that hold keys of the user's providers: no command has them (SEC-1, SEC-8)."""
    from agentcli.process.environment import provider_keys
    from agentcli.providers._registry import key_variables, provider_names, spec_of

    own = settings.providers
    names = provider_names(own)
    known = (key for each in names for key in key_variables(own.get(each), spec_of(each)))
    return provider_keys(settings.env, (*known, *settings.key_variables))


def _off(server: McpServer) -> McpServer:
    return replace(server, enabled=False)


# --- given at the start ---------------------------------------------------------------------


def waiting_servers(settings: Settings, cwd: Path) -> tuple[tuple[McpServer, ...], tuple[str, ...]]:
    """The servers of a repository that is not trusted, to be shown and never started. Blocks."""
    root = project_root(cwd)
    if settings.project_servers:
        return (), ()
    table, _ = read_servers(root / SERVERS_FILE)
    place = _place(settings, ServerScope.PROJECT, str(root / SERVERS_FILE), str(root))
    servers, lines = servers_in({"mcpServers": table}, place)
    return tuple(servers), tuple(lines)


def given_servers(texts: Iterable[str]) -> tuple[GivenServers, ...]:
    """What ``--mcp-config`` names: files, or JSON itself. Raises ``UsageError``."""
    return tuple(map(_given, texts))


def _given(text: str) -> GivenServers:
    option = "--mcp-config"
    if text.lstrip().startswith("{"):
        table, problem = servers_from(text.encode("utf-8", "replace"), option)
        if problem:
            raise UsageError(problem, 'write {"mcpServers": {…}}, or give a file')
        return option, table
    path = Path(text).expanduser()
    table, problem = read_servers(path, is_given=True)
    if problem:
        raise UsageError(f"{option} {problem}", "give a file like .mcp.json")
    return str(path.absolute()), table


def given_by_editor(listed: Sequence[Mapping[str, Any]]) -> GivenServers:
    """The servers that an editor passes in ``session/new`` of ACP.

    They are a list, ``env`` and ``headers`` lists of names and values
    (https://agentclientprotocol.com/protocol/v1/session-setup).
    """
    table: dict[str, Any] = {}
    for number, entry in enumerate(listed, 1):
        said = {key: each for key, each in entry.items() if key not in {"name", "_meta"}}
        for key in ("env", "headers"):
            if isinstance(said.get(key), list):
                said[key] = {
                    each.get("name"): each.get("value")
                    for each in said[key]
                    if isinstance(each, dict)
                }
        name = usable_name(str(entry.get("name", ""))) or "server"
        table[name if name not in table else f"{name}-{number}"] = said
    return EDITOR, table


def write_project_servers(settings: Settings, root: Path, servers: Mapping[str, Any]) -> None:
    """Replace the servers of the project's own ``.mcp.json``; the rest of the file stays.

    What the user writes there needs no new yes where all else was trusted. Raises ``ConfigError``.
    """
    from agentcli.app.trust import find_project
    from agentcli.config.project import Standing, decide, standing

    file = root / SERVERS_FILE
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
        raise ConfigError(f"{file} is a link that leads elsewhere", "make it a file of its own")
    before = find_project(root, settings.env, settings.hooks)
    was_trusted = before is None or (
        standing(settings.paths, before.place, before.fingerprint) is Standing.TRUSTED
    )
    document: Any = {}
    if os.path.lexists(file):
        document = json.loads(file.read_text("utf-8-sig") or "{}")
    is_bare = bool(document) and "mcpServers" not in document
    after = dict(servers) if is_bare else {**document, "mcpServers": dict(servers)}
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    write(file, json.dumps(after, indent=2, ensure_ascii=False) + "\n")
    file.chmod(mode)  # it is the project's, not ours alone
    now = find_project(root, settings.env, settings.hooks)
    if was_trusted and now is not None:
        decide(settings.paths, now.place, now.fingerprint, trusted=True)


# --- the book of single projects -------------------------------------------------------------


def _read_book(paths: Paths, notices: list[str]) -> Mapping[str, Any]:
    file = paths.servers_file
    if not os.path.lexists(file):
        return {}
    try:
        document = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        notices.append(f"{file} is damaged: its servers are not used; repair or remove it")
        return {}
    return as_object(document)


def _of_project(book: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    return as_object(as_object(book.get("projects")).get(os.path.realpath(root)))


def change_project(paths: Paths, root: Path, key: str, value: object) -> None:
    """Keep ``value`` under ``key`` (``mcpServers`` or ``off``) for the project at ``root``.

    Raises ``ConfigError``; a damaged book is not written over.
    """
    problems: list[str] = []
    book = dict(_read_book(paths, problems))
    if problems:
        raise ConfigError(f"{paths.servers_file} is damaged", "repair or remove it, then try again")
    projects = dict(as_object(book.get("projects")))
    mine = {**_of_project(book, root), key: value}
    projects[os.path.realpath(root)] = {name: each for name, each in mine.items() if each}
    book["projects"] = {name: each for name, each in projects.items() if each}
    write(paths.servers_file, json.dumps(book, indent=2, ensure_ascii=False) + "\n")


def project_entries(paths: Paths, root: Path) -> dict[str, Any]:
    """The servers that the user has for the project at ``root`` alone, as they are written."""
    return dict(as_object(_of_project(_read_book(paths, []), root).get("mcpServers")))


def switch(paths: Paths, root: Path, name: str, *, on: bool) -> None:
    """Switch the server ``name`` on or off for the project at ``root``. Raises ``ConfigError``."""
    off = set(_texts(_of_project(_read_book(paths, []), root).get("off")))
    change_project(paths, root, "off", sorted(off - {name} if on else off | {name}))


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def server_files(
    settings: Settings, given: Sequence[GivenServers], places: Sequence[Path], *, is_strict: bool
) -> tuple[Path, ...]:
    """The files of ``--mcp-config``, and what servers of the user's run of ``places``.

    The first is the session's. ``given`` are servers of the start, ``is_strict``: there are no
    others. All of that is run outside of the sandbox, also later. What a project's own servers run
    is looked at before they are started: see ``trust.is_changed``. Blocks.
    """
    files = (Path(source) for source, _ in given if source.startswith("/"))
    near = [table for _, table in given]
    if not is_strict:
        near.append(project_entries(settings.paths, project_root(places[0])))
    return (*files, *_run_by(near, {} if is_strict else settings.mcp_servers, places))


def _run_by(
    near: Sequence[Mapping[str, Any]], far: Mapping[str, Any], places: Iterable[Path]
) -> Iterator[Path]:
    """What servers run of ``places``: those that start there, and those that do at home."""
    if not (far or any(near)):
        return
    from agentcli.config.hooks import scripts_of
    from agentcli.config.project import started_by

    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - never raises
    for place in places:
        root = project_root(place)
        # these start at home: a plain name there is no file of the project
        marks = (str(place), os.path.realpath(place), os.path.relpath(root, home), "$", "~")
        for table, start in (*((each, place) for each in near), (far, home)):
            programs = {
                name: each
                for name, each in table.items()
                if isinstance(each, Mapping)
                and "command" in each
                and (start is not home or any(mark in str(each) for mark in marks))
            }
            yield from scripts_of(started_by(programs), root, start)


# --- what is written where ------------------------------------------------------------------------


def entries_of(settings: Settings, scope: str, root: Path) -> Mapping[str, Any]:
    """The servers of a scope, as they are written."""
    if scope == "user":
        return settings.mcp_servers
    if scope == "local":
        return project_entries(settings.paths, root)
    file = root / SERVERS_FILE
    if not os.path.lexists(file):
        return {}
    table, problem = read_servers(file)
    if problem:
        raise ConfigError(problem, "repair it first")
    return table


def put_entries(
    settings: Settings, scope: str, root: Path, changes: Mapping[str, Mapping[str, Any] | None]
) -> None:
    """Write servers, or take them out (``None``). Raises ``ConfigError``."""
    if scope == "user":
        from agentcli.config.edit import put_server

        for name, entry in changes.items():
            put_server(settings.paths, name, entry)
        return
    after = {**entries_of(settings, scope, root), **changes}
    kept = {name: entry for name, entry in after.items() if entry is not None}
    if scope == "local":
        change_project(settings.paths, root, "mcpServers", kept)
    else:
        write_project_servers(settings, root, kept)


def kept_by(paths: Paths, redact: Callable[[str], str] = str) -> Remembered:
    """What servers have said, in files of ours; it can all be thrown away."""
    directory: Path = paths.state_dir / "mcp"

    def load(key: str) -> str | None:
        try:
            with (directory / f"{key}.json").open(encoding="utf-8") as file:
                return file.read(_MAX_KEPT_BYTES)
        except (OSError, UnicodeDecodeError):
            return None

    def save(key: str, text: str) -> None:
        with suppress(ConfigError, UnicodeEncodeError):
            write(directory / f"{key}.json", text)

    return Remembered(load, save, redact)
