"""What is set, and where each value comes from; ``keys`` has all that can be.

Law: default < user file < file of a trusted project < environment < flags; a later one wins, key
by key; rules of a project are added to the user's (SEC-1). The result is plain frozen data; no
validation library is imported on the way to the first request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.config.keys import (
    ACTION_KEYS,
    KEYS,
    TABLES,
    WAIT_KEYS,
    KeyKind,
    dotted,
    find_key,
    near_names,
    shown,
)
from agentcli.config.paths import REPAIR, Paths, read_text
from agentcli.config.redaction import address_secrets, environment_secrets
from agentcli.domain.errors import ConfigError
from agentcli.domain.ports import Effort, PermissionMode, ProviderConfig
from agentcli.domain.secrecy import is_secret, keys_within, secrets_in
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.config.credentials import Credentials
    from agentcli.config.hooks import Refuse
    from agentcli.config.project import Project
    from agentcli.config.toml_file import Mistake
    from agentcli.domain.extensions.checks import CheckConfig
    from agentcli.domain.extensions.hooks import HookConfig


_VARIABLE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"

# --- what is set ------------------------------------------------------------------------------


ENVIRONMENT: Mapping[str, str] = {
    "AGENTCLI_MODEL": "model",
    "AGENTCLI_ENABLE_TELEMETRY": "telemetry",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "telemetry_content",
}
# the last two: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
YES = frozenset({"1", "true", "yes", "on", "span_only", "span_and_event"})
_YOURS = "only your own settings can say that"
_PROVIDER_NAME = r"[a-z0-9][a-z0-9_.-]*"


@frozen
class Settings:
    """Everything that can be set. ``sources`` tells for each key where its value comes from.

    ``providers`` are those of the user's file: of their own, or changes to well-known ones (with
    an empty ``kind``); ``env`` is the environment that all of this was read from, for keys and
    addresses of providers. ``models`` overrides what the model table says: field of
    ``ModelInfo`` -> value, by model id.
    ``hooks_off``: others than those of ``config.toml`` are not wanted.
    ``warnings`` are lines for the user: keys that mean nothing. ``project`` is the root of the
    project whose own files take effect (SEC-1), ``project_places`` the directories that hold them,
    nearest first, ``project_mark`` the fingerprint of what is in them. ``mcp_servers`` are the MCP
    servers of the user's file and ``project_servers`` those of that project, by name, as they are
    written (MCP-3). ``stored`` are the keys of ``agent auth login``; ``watchers`` are told of
    secrets.
    """

    paths: Paths
    model: str | None
    small_model: str | None
    fallback_models: tuple[str, ...]
    effort: Effort | None
    permission_mode: PermissionMode
    background_reacts: bool
    keep_events: bool
    sandbox: str
    sandbox_network: bool
    sandbox_hosts: tuple[str, ...]
    sandbox_readable: tuple[str, ...]
    sandbox_variables: tuple[str, ...]
    max_steps: int
    max_output_tokens: int | None
    max_answers_without_tools: int | None
    theme: str
    thinking: str
    statusline_command: str | None
    notifications: str
    editing_mode: str
    screen_reader: bool
    chat_keys: Mapping[str, str]
    allow: tuple[str, ...]
    ask: tuple[str, ...]
    deny: tuple[str, ...]
    tools_off: tuple[str, ...]
    search_engine: str
    search_url: str | None
    search_api_key_env: str | None
    checks: str
    memory: bool
    background_map: bool
    telemetry: bool
    telemetry_content: bool
    models_url: str
    plugins: tuple[str, ...]
    own_checks: tuple[CheckConfig, ...]
    hooks: tuple[HookConfig, ...]
    hooks_off: bool
    providers: Mapping[str, ProviderConfig]
    env: Mapping[str, str] = field(repr=False)
    models: Mapping[str, Mapping[str, float]]
    values: Mapping[str, object]
    sources: Mapping[str, str]
    warnings: tuple[str, ...]
    project: Path | None
    project_places: tuple[Path, ...]
    project_mark: str
    mcp_servers: Mapping[str, Any] = field(repr=False)
    project_servers: Mapping[str, Any] = field(repr=False)
    stored: Credentials | None = field(repr=False, compare=False)
    watchers: list[Callable[[Iterable[str]], None]] = field(
        default_factory=list, repr=False, compare=False
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown or stored: keys, tokens, passwords (SEC-9)."""
        hooked = [key for hook in self.hooks for key in keys_within(hook.command)]
        if not (self.providers or self.stored or self.search_api_key_env or self.search_url):
            return (*environment_secrets(self.env, {}), *hooked)
        configs = self.providers.values()
        named = {config.key_env: config.base_url for config in configs if config.key_env}
        named |= {name: "" for name in [self.search_api_key_env] if name}
        stored = self.stored.known.values() if self.stored is not None else ()
        kept = [key for key in stored if is_secret(key)]
        addresses = (*(config.base_url for config in configs), self.search_url or "")
        in_addresses = [text for url in addresses for text in address_secrets(url)]
        sent = [
            text
            for config in configs
            for pair in (*config.headers.items(), *config.query.items())
            for text in secrets_in(*pair)  # "Bearer KEY"
        ]
        return (*environment_secrets(self.env, named), *kept, *in_addresses, *sent, *hooked)

    @property
    def sent_variables(self) -> list[str]:
        """The variables whose values go along with requests, in headers or addresses (EXT-7)."""
        return [
            name
            for key, table in self.values.items()
            if key.endswith((".headers", ".query")) and isinstance(table, dict)
            for text in table.values()
            for name in re.findall(_VARIABLE, text)
        ]

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables that the user names as those of keys, whatever they are called."""
        names = (config.key_env for config in self.providers.values())
        return tuple(filter(None, (*names, *self.sent_variables, self.search_api_key_env)))

    def watch_secrets(self, watcher: Callable[[Iterable[str]], None]) -> None:
        """Tell ``watcher`` all ``secrets``, and later each that becomes known."""
        watcher(self.secrets)
        self.watchers.append(watcher)
        if self.stored is not None:
            self.stored.watchers.append(watcher)

    def know(self, secrets: Iterable[str]) -> None:
        """Tell all that watch what else is one: the keys of MCP servers, and logins to them."""
        known = tuple(secrets)
        for watcher in self.watchers:
            watcher(known)


class _Layers:
    """Values and their sources, the later layer over the earlier."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: key.default for name, key in KEYS.items()}
        self.sources: dict[str, str] = dict.fromkeys(KEYS, "default")
        self.tables: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in TABLES}
        self.hooks: list[HookConfig] = []
        self.own_checks: list[CheckConfig] = []
        self.hooks_off = False
        self.servers: dict[str, Any] = {}
        self.warnings: list[str] = []

    def put(self, path: tuple[str, ...], value: object, source: str) -> None:
        name = dotted(path)
        if path[0] in TABLES:
            self.tables[path[0]].setdefault(path[1], {})[path[2]] = value
        self.values[name] = tuple(value) if isinstance(value, list) else value
        self.sources[name] = source

    def put_from_file(
        self, path: tuple[str, ...], value: object, source: str, *, is_project: bool
    ) -> None:
        """Of a project only what it may say; what else it says is a warning."""
        name = dotted(path)
        key = KEYS.get(name)
        if is_project and (key is None or not key.shared or value == str(PermissionMode.YOLO)):
            self.warnings.append(f"{source}: {name} is left out: {_YOURS}")
            return
        if is_project and key and key.added and isinstance(value, list) and self.values[name]:
            source = f"{self.sources[name]}, {source}"
            value = [*self.values[name], *value]
        self.put(path, value, source)


def load_settings(
    paths: Paths,
    env: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    project: Project | None = None,
) -> Settings:
    """The settings in force; ``flags`` are values of the command line by key.

    ``project`` is one that the user trusts.

    Raises ``ConfigError`` that lists all that is wrong in a file, with its lines.
    """
    layers = _Layers()
    text = read_text(paths.config_file)
    if text is not None:
        _read_file(layers, text, paths.config_file)
    if project is not None and project.text is not None:
        _read_file(layers, project.text, project.file, is_project=True)
    own = Path(env.get("HOME", "")) / ".claude" / "settings.json"
    is_there = own.is_absolute() and os.path.lexists(own)
    if is_there or (project is not None and project.claude):
        _read_claude(layers, own if is_there else None, project)
    given: list[tuple[str, object, str]] = []
    for variable, name in ENVIRONMENT.items():
        said: Any = env.get(variable) or None
        if said and KEYS[name].kind is KeyKind.FLAG:  # others give the variable more values
            said = said.strip().lower() in YES
        given.append((name, said, f"{variable} (environment)"))
    for name, flag in (flags or {}).items():
        given.append((name, flag, "command line"))
    for name, value, source in given:
        if value is None:
            continue
        listed = list(value) if isinstance(value, tuple) else value
        if problem := KEYS[name].check(listed):
            raise ConfigError(f"{source}: {name}: {problem}", "correct it or leave it out")
        layers.values[name] = tuple(listed) if isinstance(listed, list) else listed
        layers.sources[name] = source
    return _build(paths, layers, env, project)


def validate(text: str, paths: Paths) -> tuple[str, ...]:
    """Check the user's file in ``text``; returns warnings, raises ``ConfigError``."""
    layers = _Layers()
    _read_file(layers, text, paths.config_file)
    return tuple(layers.warnings)


def mistakes_in(text: str, paths: Paths) -> list[Mistake]:
    """All that is wrong in the user's file in ``text``; raises ``ConfigError`` as ``parse``."""
    return _found_mistakes(_Layers(), text, paths.config_file, is_project=False)


def _read_file(layers: _Layers, text: str, where: Path, *, is_project: bool = False) -> None:
    mistakes = _found_mistakes(layers, text, where, is_project=is_project)
    if mistakes:
        from agentcli.config.toml_file import refusal

        raise refusal(where, mistakes)


def _found_mistakes(layers: _Layers, text: str, where: Path, *, is_project: bool) -> list[Mistake]:
    """What is wrong in a file; ``layers`` gets what is right."""
    from agentcli.config.toml_file import Mistake, locate, parse_leniently

    document, mistakes, text = parse_leniently(text, where)

    def refuse(path: tuple[str, ...], problem: str, advice: str = REPAIR) -> None:
        line, column = locate(text, path)
        mistakes.append(Mistake(line, column, problem, advice, key=path))

    _put_tables(layers, text, document, (where, refuse), is_project=is_project)
    for path, value in leaves(document):
        key = find_key(path)
        name = dotted(path)
        line, column = locate(text, path)
        if key is not None:
            if problem := key.check(value):
                refuse(path, f"{name}: {problem}")
            else:
                layers.put_from_file(path, value, f"{where}:{line}", is_project=is_project)
        elif _holds_keys(path):
            refuse(path, f"{name}: expected a table, not {shown(value)}")
        elif path[0] == "providers" and path[-1] == "api_key":
            # the name last: what follows "api_key:" would be taken for a key, and taken out
            advice = "put the key into an environment variable and name it: api_key_env"
            refuse(path, f"keys do not belong in this file: {name}", advice)
        else:
            layers.warnings.append(f"{where}:{line}:{column}: unknown key {name}{_hint(path)}")
    for name in layers.tables["providers"]:
        if not re.fullmatch(_PROVIDER_NAME, name):
            path = ("providers", name)
            refuse(
                path, f"{dotted(path)}: a provider's name is made of small letters, digits, - and _"
            )
    return mistakes


def _read_claude(layers: _Layers, own: Path | None, project: Project | None) -> None:
    """What Claude Code's settings of the user and of the project add (EXT-9)."""
    from agentcli.config.claude import read_file, understood

    file = read_file(own) if own is not None else None
    yours = None if file is None else understood(file)
    theirs = [understood(each, root=project.root) for each in project.claude] if project else []
    is_off = yours is not None and yours.is_without_hooks
    layers.hooks_off = is_off
    has_none = is_off or any(each.is_without_hooks for each in theirs)
    for said, hooks_off in ((yours, is_off), *((each, has_none) for each in theirs)):
        if said is None:
            continue
        layers.warnings += said.warnings
        _add_hooks(layers, [] if hooks_off else said.hooks)
        for name, rules in (("permissions.deny", said.deny), ("permissions.ask", said.ask)):
            if rules:
                before = f"{layers.sources[name]}, " if layers.values[name] else ""
                all_rules = [*layers.values[name], *rules]
                layers.put(tuple(name.split(".")), all_rules, f"{before}{said.path}")
        if said.status_line and not is_off and not layers.values["statusline.command"]:
            layers.put(("statusline", "command"), said.status_line, str(said.path))


def _add_hooks(layers: _Layers, hooks: Iterable[HookConfig]) -> None:
    """Hooks, shown as one line each."""
    from agentcli.config.hooks import as_line

    for hook in hooks:
        layers.hooks.append(hook)
        name = f"hooks.{hook.event}"
        layers.values[name] = (*layers.values.get(name, ()), as_line(hook))
        layers.sources.setdefault(name, hook.source)


def _put_tables(
    layers: _Layers,
    text: str,
    document: dict[str, Any],
    file: tuple[Path, Refuse],
    *,
    is_project: bool,
) -> None:
    """What is written as tables of its own; taken out of ``document``."""
    if "hooks" in document:
        _put_hooks(layers, text, document.pop("hooks"), file, is_project=is_project)
    if isinstance(document.get("checks", ""), list | dict):
        _put_checks(layers, text, document.pop("checks"), file)
    if "mcp" in document:
        _put_servers(layers, document.pop("mcp"), file, is_project=is_project)


def _put_servers(
    layers: _Layers, value: object, file: tuple[Path, Refuse], *, is_project: bool
) -> None:
    """The tables of MCP servers as they are; what each means is read where they are started."""
    where, refuse = file
    servers = value.get("servers") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(servers, dict):
        refuse(("mcp",), "mcp: expected tables [mcp.servers.NAME]")
    elif is_project:
        layers.warnings.append(f"{where}: mcp is left out: a project's servers stand in .mcp.json")
    else:
        layers.servers = servers
        layers.sources |= {dotted(("mcp", "servers", name)): str(where) for name in servers}
        for name, entry in servers.items():
            says = [entry.get(key) for key in ("command", "url")] if isinstance(entry, dict) else []
            shown = next((each for each in says if isinstance(each, str)), "")
            layers.values[dotted(("mcp", "servers", name))] = shown


def _put_hooks(
    layers: _Layers, text: str, value: object, file: tuple[Path, Refuse], *, is_project: bool
) -> None:
    """The tables of hooks."""
    from agentcli.config.hooks import read_hooks

    hooks, warnings = read_hooks(text, value, *file, is_project=is_project)
    layers.warnings += warnings
    _add_hooks(layers, hooks)


def _put_checks(layers: _Layers, text: str, value: object, file: tuple[Path, Refuse]) -> None:
    """The tables of checks, those of a project after the user's; shown as one line each."""
    from agentcli.config.checks import as_line, read_checks

    found = read_checks(text, value, *file)
    layers.own_checks += found
    for check in found:
        name = f"checks.{check.globs[0]}"
        layers.values[name] = (*layers.values.get(name, ()), as_line(check))
        layers.sources.setdefault(name, check.source)


def leaves(
    table: Mapping[str, Any], prefix: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Any]]:
    """Leaves by path. An empty table is no leaf; a list is one."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in table.items():
        path = (*prefix, name)
        if isinstance(value, dict) and find_key(path) is None:
            found += leaves(value, path)
        else:
            found.append((path, value))
    return found


def _holds_keys(path: tuple[str, ...]) -> bool:
    """Whether ``path`` is where a table of known keys belongs."""
    if path[0] in TABLES:
        return len(path) <= 2  # noqa: PLR2004 - the table and the name in it
    return any(name.startswith(".".join(path) + ".") for name in KEYS)


def _hint(path: tuple[str, ...]) -> str:
    near = near_names(path)
    return f" - did you mean {' or '.join(near)}?" if near else " - see: agent config show"


def _providers(
    env: Mapping[str, str], tables: Mapping[str, Mapping[str, Any]]
) -> dict[str, ProviderConfig]:
    """A well-known provider that the file only changes has no kind: it keeps its own."""
    return {
        name: ProviderConfig(
            name=name,
            kind=table.get("kind", ""),
            base_url=table.get("base_url", "").rstrip("/"),
            key_env=table.get("api_key_env", ""),
            api_key=env.get(table.get("api_key_env", ""), "").strip(),
            needs_key=bool({"api_key_env", "api_key_command"} & table.keys())
            or "kind" not in table,
            api=table.get("api", ""),
            waits={key: table[key] for key in WAIT_KEYS if key in table},
            tool_protocol=table.get("tool_protocol", ""),
            stream=table.get("stream", True),
            headers={
                key.lower(): _filled(value, env) for key, value in table.get("headers", {}).items()
            },
            query={key: _filled(value, env) for key, value in table.get("query", {}).items()},
            auth=table.get("auth", ""),
        )
        for name, table in tables.items()
    }


def _filled(text: str, env: Mapping[str, str]) -> str:
    return re.sub(_VARIABLE, lambda found: env.get(found[1], "").strip(), text)


def _warn_of_variables(layers: _Layers, env: Mapping[str, str]) -> None:
    """A line for each variable that a header or a query names and nobody has set."""
    for name, table in layers.tables["providers"].items():
        for key in ("headers", "query"):
            for entry, text in table.get(key, {}).items():
                where = dotted(("providers", name, key, entry))
                layers.warnings += [
                    f"{where}: {variable} is not set: nothing is put in its place"
                    for variable in re.findall(_VARIABLE, text)
                    if not env.get(variable, "").strip()
                ]


def _lend_stored(
    paths: Paths, layers: _Layers, providers: dict[str, ProviderConfig]
) -> Credentials | None:
    """Stored keys join ``providers``, save where another than the user set the address."""
    if not os.path.lexists(paths.credentials_file):
        return None
    from agentcli.config.credentials import lend

    own = f"{paths.config_file}:"
    moved = {
        name
        for name, table in layers.tables["providers"].items()
        if "base_url" in table
        and not layers.sources[dotted(("providers", name, "base_url"))].startswith(own)
    }
    stored = lend(paths, providers, moved)
    layers.warnings += [stored.problem] if stored.problem else []
    return stored


def _add_commands(
    paths: Paths,
    layers: _Layers,
    providers: dict[str, ProviderConfig],
    stored: Credentials | None,
) -> Credentials | None:
    """Keys that commands print join ``providers``; they come before stored ones (EXT-7)."""
    tables = layers.tables["providers"].items()
    commands = {name: text for name, each in tables if (text := each.get("api_key_command"))}
    if not commands:
        return stored
    from agentcli.config.credentials import command_keys

    return command_keys(paths, stored, providers, commands)


def _build(
    paths: Paths, layers: _Layers, env: Mapping[str, str], project: Project | None
) -> Settings:
    values = layers.values
    tables, providers = layers.tables["providers"], dict[str, ProviderConfig]()
    if tables:
        providers = _providers(env, tables)
        _warn_of_variables(layers, env)
    stored = _lend_stored(paths, layers, providers)
    if tables:
        stored = _add_commands(paths, layers, providers, stored)
    # the user wants no checks, whatever a project brings
    is_off = values["checks"] == "off" and layers.sources["checks"] != "default"
    # a key's field: keys.ACTION -> chat_keys, permissions.allow -> allow, tools.off -> tools_off
    fields: dict[str, Any] = {
        name.removeprefix("permissions.").replace(".", "_"): values[name]
        for name in KEYS
        if not name.startswith("keys.")
    }
    fields["effort"] = Effort(values["effort"]) if values["effort"] else None
    fields["permission_mode"] = PermissionMode(values["permission_mode"])
    return Settings(
        **fields,
        paths=paths,
        chat_keys={action: values[f"keys.{action}"] for action in ACTION_KEYS},
        hooks=tuple(layers.hooks),
        hooks_off=layers.hooks_off,
        own_checks=() if is_off else tuple(layers.own_checks),
        providers=providers,
        stored=stored,
        env=env,
        models=layers.tables["models"],
        values=values,
        sources=layers.sources,
        warnings=tuple(layers.warnings),
        project=None if project is None else project.root,
        project_places=() if project is None else project.directories,
        project_mark="" if project is None else project.fingerprint,
        mcp_servers=layers.servers,
        project_servers={} if project is None else project.servers,
    )
