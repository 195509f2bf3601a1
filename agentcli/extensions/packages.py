"""Plugins that are directories of files: what one brings, read as data and within its own root.

Two layouts are known: Agent Plugins 1.0 (``plugin.json``, ``skills/``, ``mcp.json``; the rules are
those of https://github.com/agentplugins/agent-plugins-spec, ``spec/1.0.0.md``) and that of Claude
Code (``.claude-plugin/plugin.json``, also ``commands``, ``agents``, ``hooks/hooks.json`` and
``.mcp.json``; https://code.claude.com/docs/en/plugins-reference). Laws: nothing is run or fetched;
a manifest that breaks the schema rejects all of the plugin, anything else only itself; a plugin is
looked at in a copy without links (``write_files``), so that nothing outside of its root is ever
read. Objects that other Python distributions bring are another thing: ``plugins``.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.errors import ConfigError
from agentcli.domain.files import make_private_directory, open_regular, walk
from agentcli.domain.values import frozen

SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
MCP_SCHEMA = "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"
PORTABLE = "plugin.json"
CLAUDE = ".claude-plugin/plugin.json"
MARKETPLACE = ".claude-plugin/marketplace.json"
MANIFESTS = (PORTABLE, CLAUDE, MARKETPLACE)
MAX_FILES = 2_000
MAX_BYTES = 50_000_000
MAX_DEPTH = 12
MAX_JSON_BYTES = 1_000_000
_MAX_NAME = 64
_NAME = re.compile(r"(?!.*(?:--|\.\.))[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_TEXTS = ("version", "description", "homepage", "repository", "license")
_FIELDS = frozenset({"$schema", "name", "author", "keywords", "extensions", *_TEXTS})
_AUTHOR = frozenset({"name", "email", "url"})
_CLAUDE_ELSEWHERE = ("commands", "agents", "skills", "hooks", "mcpServers", "lspServers")
_LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".DS_Store"})


@frozen
class PluginPackage:
    """What a plugin brings. ``notices`` are lines about what of it is left out.

    ``shown`` are the files that take effect, relative to ``root``, in the order in which the user
    is shown them; ``servers`` the MCP servers that are sound, as they are written; ``hooks`` what
    ``hooks/hooks.json`` holds.
    """

    root: Path
    name: str
    version: str = ""
    description: str = ""
    layout: str = "Agent Plugins 1.0"
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    servers: Mapping[str, Any] = field(default_factory=dict)
    hooks: Mapping[str, Any] | None = None
    shown: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


def read_package(root: Path, name: str = "") -> PluginPackage:
    """The plugin in ``root``, a copy without links; raises ``ConfigError`` for what is none.

    ``name`` stands in for the manifest where a marketplace lists a plugin without one.
    """
    notices: list[str] = []
    portable, claude = _read_json(root, PORTABLE), _read_json(root, CLAUDE)
    schema = portable.get("$schema") if isinstance(portable, dict) else None
    is_portable = portable is not None and (claude is None or isinstance(schema, str))
    if is_portable:
        fields = _portable(portable, notices)
    elif claude is not None:
        fields = _claude(claude, notices)
    elif name and is_name(name):
        fields = {"name": name}
    else:
        raise ConfigError("there is no plugin in it", f"it needs {PORTABLE} or {CLAUDE}")
    hooks_file, hooks = "hooks/hooks.json", None
    if (root / hooks_file).is_file():
        hooks = _hooks(root, hooks_file, notices)
    servers_file = "mcp.json" if is_portable else ".mcp.json"
    servers = _servers(root, servers_file, notices, is_portable=is_portable)
    skills = tuple(_children(root, "skills", "SKILL.md"))
    commands, agents = tuple(_markdown(root, "commands")), tuple(_markdown(root, "agents"))
    shown = (PORTABLE if is_portable else CLAUDE, *skills, *commands, *agents)
    shown += (hooks_file,) if hooks is not None else ()
    shown += (servers_file,) if servers else ()
    return PluginPackage(
        root,
        str(fields["name"]),
        _text(fields, "version"),
        _text(fields, "description"),
        "Agent Plugins 1.0" if is_portable else "Claude Code",
        tuple(path.split("/")[-2] for path in skills),
        tuple(_called(path) for path in commands),
        tuple(Path(path).stem for path in agents),
        servers,
        hooks,
        tuple(path for path in shown if (root / path).is_file()),
        tuple(notices),
    )


def marketplace(root: Path) -> Mapping[str, Mapping[str, Any]] | None:
    """The plugins that a marketplace in ``root`` lists, by name; ``None``: it is none."""
    listed = _read_json(root, MARKETPLACE)
    if listed is None:
        return None
    plugins = listed.get("plugins") if isinstance(listed, dict) else None
    entries = plugins if isinstance(plugins, list) else []
    return {
        each["name"]: each
        for each in entries
        if isinstance(each, dict) and isinstance(each.get("name"), str) and each["name"]
    }


# --- the manifests -----------------------------------------------------------------------------


def _portable(manifest: object, notices: list[str]) -> Mapping[str, Any]:
    """The fields of ``plugin.json``; raises ``ConfigError`` for what its schema does not take."""
    if not isinstance(manifest, dict):
        raise _rejected(PORTABLE, "it is no object")
    schema = manifest.get("$schema")
    if schema != SCHEMA:
        what = (
            "has no $schema" if schema is None else f"is of a version that is not known: {schema}"
        )
        raise _rejected(PORTABLE, f"it {what}", f"supported is {SCHEMA}")
    known = dict(manifest)
    for extra in sorted(set(manifest) - _FIELDS):
        notices.append(f"{PORTABLE}: the field {extra} is unknown and ignored")
        del known[extra]
    if not is_name(known.get("name")):
        raise _rejected(PORTABLE, "its name is not 1-64 small letters, digits, - and .")
    for name in _TEXTS:
        if not isinstance(known.get(name, ""), str):
            raise _rejected(PORTABLE, f"its {name} is no text")
    author, keywords = known.get("author", {}), known.get("keywords", [])
    if not _is_texts(author) or set(author) - _AUTHOR:
        raise _rejected(PORTABLE, "its author has only the texts name, email and url")
    if not isinstance(keywords, list) or not all(isinstance(each, str) for each in keywords):
        raise _rejected(PORTABLE, "its keywords are no list of texts")
    if not isinstance(known.get("extensions", {}), dict):
        notices.append(f"{PORTABLE}: extensions is no object and is ignored")
    return known


def _claude(manifest: object, notices: list[str]) -> Mapping[str, Any]:
    if not isinstance(manifest, dict):
        raise _rejected(CLAUDE, "it is no object")
    if not is_name(manifest.get("name")):
        raise _rejected(CLAUDE, "its name is not 1-64 small letters, digits, - and .")
    elsewhere = [field for field in _CLAUDE_ELSEWHERE if field in manifest]
    if elsewhere:
        what = ", ".join(elsewhere)
        notices.append(f"{CLAUDE}: {what}: only the usual places in the plugin are read")
    return manifest


def is_name(name: object) -> bool:
    """Whether a plugin may be called so (Agent Plugins 1.0, 5.5)."""
    return isinstance(name, str) and len(name) <= _MAX_NAME and bool(_NAME.fullmatch(name))


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _rejected(file: str, why: str, advice: str = "nothing of this plugin is used") -> ConfigError:
    return ConfigError(f"{file} is refused: {why}", advice)


def _read_json(root: Path, name: str) -> Any:
    """A JSON file of a plugin; ``None`` when there is none. Raises ``ConfigError``."""
    path = root / name
    if not os.path.lexists(path):
        return None
    try:
        with path.open("rb") as file:
            data = file.read(MAX_JSON_BYTES + 1)
        if len(data) > MAX_JSON_BYTES:
            raise _rejected(name, f"it is larger than {MAX_JSON_BYTES} bytes")
        return json.loads(data.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise _rejected(name, f"it is no JSON file ({type(error).__name__})") from error


# --- what stands in it -------------------------------------------------------------------------


def _children(root: Path, directory: str, file: str) -> Iterator[str]:
    """Immediate children of a directory that hold ``file``, in order."""
    try:
        names = sorted(os.listdir(root / directory))  # noqa: PTH208 - names, not paths
    except OSError:
        return
    for name in names:
        if (root / directory / name / file).is_file():
            yield f"{directory}/{name}/{file}"


def _markdown(root: Path, directory: str) -> Iterator[str]:
    for place, below, files in walk(root / directory):
        below.sort()
        for name in sorted(files):
            if name.endswith(".md"):
                yield Path(place, name).relative_to(root).as_posix()


def _called(path: str) -> str:
    return ":".join(Path(path).with_suffix("").parts[1:])


def _hooks(root: Path, name: str, notices: list[str]) -> Mapping[str, Any] | None:
    try:
        found = _read_json(root, name)
    except ConfigError as error:
        notices.append(error.message)
        return None
    hooks = found.get("hooks", found) if isinstance(found, dict) else None
    if not isinstance(hooks, dict):
        notices.append(f"{name} holds no hooks")
        return None
    return hooks


def _servers(root: Path, name: str, notices: list[str], *, is_portable: bool) -> dict[str, Any]:
    """The MCP servers that are sound, as they are written (Agent Plugins 1.0, 7.2)."""
    try:
        found = _read_json(root, name)
    except ConfigError as error:
        notices.append(error.message)
        return {}
    if found is None:
        return {}
    servers = (
        found.get("mcpServers", {} if is_portable else found) if isinstance(found, dict) else 0
    )
    strict = (
        is_portable
        and isinstance(found, dict)
        and (found.get("$schema") != MCP_SCHEMA or set(found) != {"$schema", "mcpServers"})
    )
    if not isinstance(servers, dict) or strict:
        notices.append(f"{name} is left out: it is not of the schema {MCP_SCHEMA}")
        return {}
    sound: dict[str, Any] = {}
    for server, entry in servers.items():
        problem = _server_problem(root, entry) if is_portable else _loose_problem(entry)
        if problem:
            notices.append(f"{name}: the server {server} is left out: {problem}")
        else:
            sound[server] = entry
    return sound


def _loose_problem(entry: object) -> str:
    """As Claude Code takes them: a command, or an address."""
    if isinstance(entry, dict) and any(isinstance(entry.get(k), str) for k in ("command", "url")):
        return ""
    return "it has neither a command nor a url"


def _server_problem(root: Path, entry: object) -> str:
    """Why an entry of ``mcp.json`` is none (7.2.1); empty when it is one."""
    if not isinstance(entry, dict):
        return "it is no object"
    kind = entry.get("type")
    if kind == "stdio":
        return _stdio_problem(root, entry)
    if kind not in {"streamable-http", "sse"}:
        return f"the type {kind!r} is unknown"
    if unknown := sorted(set(entry) - {"type", "url", "headers"}):
        return f"the field {unknown[0]} does not belong to {kind}"
    headers = entry.get("headers", {})
    if not _is_texts(headers) or len({each.lower() for each in headers}) < len(headers):
        return "its headers are not texts with a name each"
    return _url_problem(entry.get("url"))


def _stdio_problem(root: Path, entry: Mapping[str, Any]) -> str:
    command, cwd, env = entry.get("command"), entry.get("cwd", "./"), entry.get("env", {})
    arguments = entry.get("args", [])
    problem = ""
    if unknown := sorted(set(entry) - {"type", "command", "args", "env", "cwd"}):
        problem = f"the field {unknown[0]} does not belong to stdio"
    elif not isinstance(command, str) or not command:
        problem = "it has no command"
    elif command.startswith("./") and not _is_inside(root, command):
        problem = "its command leads out of the plugin"
    elif not command.startswith("./") and ("/" in command or "\\" in command):
        problem = "its command is neither a plain name nor a path that begins with ./"
    elif not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        problem = "its args are no list of texts"
    elif not _is_texts(env) or {"PLUGIN_ROOT", "PLUGIN_DATA"} & set(env):
        problem = "its env is no table of texts, or sets PLUGIN_ROOT or PLUGIN_DATA"
    elif not isinstance(cwd, str) or not _is_working_directory(root, cwd):
        problem = "its cwd leads out of the plugin"
    return problem


def _is_working_directory(root: Path, cwd: str) -> bool:
    for start in ("${PLUGIN_ROOT}", "${PLUGIN_DATA}"):
        if cwd == start or cwd.startswith(f"{start}/"):
            return _is_inside(root, f".{cwd.removeprefix(start)}")
    return cwd.startswith("./") and _is_inside(root, cwd)


def _is_inside(root: Path, path: str) -> bool:
    return Path(os.path.normpath(root / path)).is_relative_to(root)


def _url_problem(url: object) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host = parts.hostname or ""
    except ValueError:
        return "its url is none"
    if parts.scheme not in {"http", "https"} or not host:
        return "its url is no http or https address"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "its url holds a user or a fragment"
    return "" if parts.scheme == "https" or _is_here(host) else "its url is not https"


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


# --- its files ---------------------------------------------------------------------------------


@frozen
class PluginFile:
    """A regular file of a plugin, by its path below the root."""

    path: str
    data: bytes
    is_program: bool = False


def too_large() -> ConfigError:
    """What there is to say of a plugin that is no reasonable one."""
    most = f"{MAX_FILES} files, {MAX_BYTES // 1_000_000} MB or {MAX_DEPTH} directories in a row"
    return ConfigError(f"the plugin has more than {most}", "nothing was added")


def write_files(files: Iterable[PluginFile], target: Path) -> None:
    """Put ``files`` into the new directory ``target``, private. Raises ``ConfigError``."""
    left, count = MAX_BYTES, 0
    make_private_directory(target.parent)
    target.mkdir(mode=0o700)
    for file in files:
        left, count = left - len(file.data), count + 1
        if left < 0 or count > MAX_FILES or file.path.count("/") > MAX_DEPTH + 1:
            raise too_large()
        path = target / file.path
        if ".." in Path(file.path).parts or not path.is_relative_to(target):
            raise ConfigError(f"the plugin holds a path that leads out of it: {file.path!r}")
        make_private_directory(path.parent)
        handle = os.open(
            path,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o700 if file.is_program else 0o600,
        )
        with os.fdopen(handle, "wb") as opened:
            opened.write(file.data)


def files_below(root: Path, notices: list[str]) -> Iterator[PluginFile]:
    """The files of a plugin in a directory of the user's; links lead nowhere but inside it.

    Raises ``ConfigError`` where it is too deep or has too many entries.
    """
    real = os.path.realpath(root)
    count = 0
    waiting = [("", 0)]
    while waiting:
        place, depth = waiting.pop()
        try:
            with os.scandir(os.path.join(real, place)) as entries:  # noqa: PTH118 - texts
                names = sorted(entry.name for entry in entries if entry.name not in _LEFT_OUT)
        except OSError as error:
            raise ConfigError(f"cannot read {root / place}: {error.strerror}") from error
        for name in names:
            count += 1
            if count > 2 * MAX_FILES or depth > MAX_DEPTH:
                raise too_large()
            path = f"{place}/{name}" if place else name
            found = os.path.realpath(os.path.join(real, path))  # noqa: PTH118 - texts
            if not found.startswith(f"{real}/"):
                notices.append(f"{path} leads out of the plugin and is left out")
            elif os.path.isdir(found):  # noqa: PTH112 - never raises
                waiting.append((path, depth + 1))
            elif (file := _file(found, path)) is not None:
                yield file
            else:
                notices.append(f"{path} is no file that can be read and is left out")


def file_in(root: Path, path: str) -> PluginFile | None:
    """A file below ``root``, if it is there; no link leads out of it. Blocks."""
    real = os.path.realpath(root / path)
    return _file(real, path) if real.startswith(f"{os.path.realpath(root)}/") else None


def _file(found: str, path: str) -> PluginFile | None:
    try:
        with open_regular(found, os.O_NOFOLLOW) as file:
            status, data = os.fstat(file.fileno()), file.read(MAX_BYTES + 1)
    except OSError:
        return None
    return PluginFile(path, data, bool(status.st_mode & 0o111))


def content_mark(root: Path) -> str:
    """What stands for the content of all files in a copy: names, bytes, which are programs."""
    whole = hashlib.sha256()
    for place, below, files in walk(root):
        below.sort()
        for name in sorted(files):
            path = Path(place, name)
            status = path.lstat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            said = f"{path.relative_to(root)}\0{digest}\0{status.st_mode & 0o100}\0"
            whole.update(said.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def looks_of(root: Path) -> str:
    """A cheap mark of a directory that was copied: it changes when somebody edits a file there."""
    whole = hashlib.sha256()
    count = 0
    for place, below, files in walk(root):
        below[:] = sorted(set(below) - _LEFT_OUT)
        count += len(files) + len(below)
        if count > 2 * MAX_FILES:
            break
        for name in sorted(set(files) - _LEFT_OUT):
            try:
                status = os.stat(os.path.join(place, name))  # noqa: PTH116, PTH118 - many
            except OSError:
                continue
            said = f"{place}/{name}\0{status.st_size}\0{status.st_mtime_ns}\0"
            whole.update(said.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()
