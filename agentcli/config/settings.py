"""``Settings``: what is set, and where each value comes from.

Law: default < user file < file of a trusted project < environment < flags; a later one wins, key
by key; rules of a project are added to the person's (SEC-1). The result is plain frozen data; no
validation library is imported on the way to the first request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from agentcli.config.keys import ACTION_KEYS, KEYS, TABLES, Key, all_names, find_key, near_names
from agentcli.config.paths import Paths
from agentcli.config.project import MERGED_KEYS, SHARED_KEYS
from agentcli.config.redaction import address_secrets, environment_secrets
from agentcli.config.toml_file import MEND, locate, parse, read_text
from agentcli.domain.errors import ConfigError
from agentcli.domain.ports import Effort, PermissionMode, ProviderConfig
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from pathlib import Path

    from agentcli.config.credentials import Credentials
    from agentcli.config.hooks import Refuse
    from agentcli.config.project import Project
    from agentcli.domain.hooks import HookConfig

ENVIRONMENT: Mapping[str, str] = {"AGENTCLI_MODEL": "model"}
_YOURS = "only your own settings can say that"
_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


@frozen
class Settings:
    """Everything that can be set. ``sources`` tells for each key where its value comes from.

    ``providers`` are those of the user's file: of their own, or changes to well-known ones (with
    an empty ``kind``); ``env`` is the environment that all of this was read from, for keys and
    addresses of providers. ``models`` overrides what the model table says: field of
    ``ModelInfo`` -> value, by model id.
    ``warnings`` are lines for the person: keys that mean nothing. ``project`` is the root of the
    project whose own files take effect (SEC-1). ``stored`` are the keys of ``agent auth login``.
    """

    paths: Paths
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    effort: Effort | None = None
    permission_mode: PermissionMode = PermissionMode.DEFAULT
    background_reacts: bool = True
    sandbox: str = "auto"
    sandbox_network: bool = False
    max_steps: int = 200
    max_output_tokens: int | None = None
    max_answers_without_tools: int | None = None
    theme: str = "auto"
    notifications: str = "bell"
    editing_mode: str = "emacs"
    screen_reader: bool = False
    chat_keys: Mapping[str, str] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    tools_off: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    hooks: tuple[HookConfig, ...] = ()
    providers: Mapping[str, ProviderConfig] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    models: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    project: Path | None = None
    stored: Credentials | None = field(default=None, repr=False, compare=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown or stored: keys, tokens, passwords (SEC-9)."""
        configs = self.providers.values()
        named = {config.key_env for config in configs if config.key_env}
        kept = self.stored.known.values() if self.stored is not None else ()
        in_addresses = [text for config in configs for text in address_secrets(config.base_url)]
        return (*environment_secrets(self.env, named), *kept, *in_addresses)

    def watch_secrets(self, watcher: Callable[[Iterable[str]], None]) -> None:
        """Tell ``watcher`` all ``secrets``, and later each that becomes known."""
        watcher(self.secrets)
        if self.stored is not None:
            self.stored.watchers.append(watcher)


class _Layers:
    """Values and their sources, the later layer over the earlier."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: key.default for name, key in KEYS.items()}
        self.sources: dict[str, str] = dict.fromkeys(KEYS, "default")
        self.tables: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in TABLES}
        self.hooks: list[HookConfig] = []
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
        if is_project and (name not in SHARED_KEYS or value == str(PermissionMode.YOLO)):
            self.warnings.append(f"{source}: {name} is left out: {_YOURS}")
            return
        if is_project and name in MERGED_KEYS and isinstance(value, list) and self.values[name]:
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

    ``project`` is one that the person trusts.

    Raises ``ConfigError`` naming file, line and column of what is wrong.
    """
    layers = _Layers()
    text = read_text(paths.config_file)
    if text is not None:
        _read_file(layers, text, paths.config_file)
    if project is not None and project.text is not None:
        _read_file(layers, project.text, project.file, is_project=True)
    for variable, name in ENVIRONMENT.items():
        if value := env.get(variable, ""):
            _put_checked(layers, name, value, f"{variable} (environment)")
    for name, flag in (flags or {}).items():
        if flag is not None:
            _put_checked(layers, name, flag, "command line")
    return _build(paths, layers, env, None if project is None else project.root)


def validate(text: str, paths: Paths) -> tuple[str, ...]:
    """Check the user's file in ``text``; returns warnings, raises ``ConfigError``."""
    layers = _Layers()
    _read_file(layers, text, paths.config_file)
    return tuple(layers.warnings)


def dotted(path: tuple[str, ...]) -> str:
    """``path`` as it is written: parts that are not plain words are quoted."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in path)


def _put_checked(layers: _Layers, name: str, value: object, source: str) -> None:
    listed = list(value) if isinstance(value, tuple) else value
    problem = KEYS[name].check(listed)
    if problem:
        raise ConfigError(f"{source}: {name}: {problem}", "correct it or leave it out")
    layers.put(tuple(name.split(".")), listed, source)


def _read_file(layers: _Layers, text: str, where: Path, *, is_project: bool = False) -> None:
    def refuse(path: tuple[str, ...], problem: str, advice: str = MEND) -> ConfigError:
        line, column = locate(text, path)
        return ConfigError(f"{where}:{line}:{column}: {dotted(path)}: {problem}", advice)

    document = parse(text, where)
    if "hooks" in document:
        _put_hooks(layers, text, document.pop("hooks"), (where, refuse))
    for path, value in _flatten(document):
        key = find_key(path)
        if key is None:
            if _holds_keys(path):
                raise refuse(path, f"expected a table, not {_type_name(value)}")
            if path[0] == "providers" and path[-1] == "api_key":
                advice = "put the key into an environment variable and name it: api_key_env"
                raise refuse(path, "keys do not belong into this file", advice)
            line, column = locate(text, path)
            layers.warnings.append(
                f"{where}:{line}:{column}: unknown key {dotted(path)}{_hint(path)}"
            )
            continue
        if problem := key.check(value):
            raise refuse(path, problem)
        layers.put_from_file(path, value, f"{where}:{locate(text, path)[0]}", is_project=is_project)
    for name in layers.tables["providers"]:
        if not _PROVIDER_NAME.fullmatch(name):
            problem = "a provider's name is made of small letters, digits, - and _"
            raise refuse(("providers", name), problem)


def _put_hooks(layers: _Layers, text: str, value: object, file: tuple[Path, Refuse]) -> None:
    """The tables of hooks; shown as one line each."""
    from agentcli.config.hooks import as_line, read_hooks

    hooks, warnings = read_hooks(text, value, *file)
    layers.warnings += warnings
    layers.hooks += hooks
    for hook in hooks:
        name = f"hooks.{hook.event}"
        layers.values[name] = (*layers.values.get(name, ()), as_line(hook))
        layers.sources.setdefault(name, hook.source)


def _flatten(
    table: Mapping[str, Any], prefix: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Any]]:
    """Leaves by path. An empty table is no leaf; a list is one."""
    leaves: list[tuple[tuple[str, ...], Any]] = []
    for name, value in table.items():
        path = (*prefix, name)
        if isinstance(value, dict) and find_key(path) is None:
            leaves += _flatten(value, path)
        else:
            leaves.append((path, value))
    return leaves


def _holds_keys(path: tuple[str, ...]) -> bool:
    """Whether ``path`` is where a table of known keys belongs."""
    if path[0] in TABLES:
        return len(path) <= 2  # noqa: PLR2004 - the table and the name in it
    return any(name.startswith(".".join(path) + ".") for name in KEYS)


def _hint(path: tuple[str, ...]) -> str:
    near = near_names(path)
    return f" - did you mean {' or '.join(near)}?" if near else " - see: agent config show"


def _type_name(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return names.get(type(value), "a list")


def _providers(
    env: Mapping[str, str], tables: Mapping[str, Mapping[str, str]]
) -> dict[str, ProviderConfig]:
    """A well-known provider that the file only changes has no kind: it keeps its own."""
    return {
        name: ProviderConfig(
            name=name,
            kind=table.get("kind", ""),
            base_url=table.get("base_url", "").rstrip("/"),
            key_env=table.get("api_key_env", ""),
            api_key=env.get(table.get("api_key_env", ""), "").strip(),
            needs_key="api_key_env" in table or "kind" not in table,
            api=table.get("api", ""),
        )
        for name, table in tables.items()
    }


def _lend_stored(
    paths: Paths, layers: _Layers, providers: dict[str, ProviderConfig]
) -> Credentials | None:
    """Stored keys join ``providers``, save where another than the person set the address."""
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


def _build(paths: Paths, layers: _Layers, env: Mapping[str, str], project: Path | None) -> Settings:
    values = layers.values
    effort = values["effort"]
    providers = _providers(env, layers.tables["providers"])
    return Settings(
        paths=paths,
        model=values["model"],
        fallback_models=values["fallback_models"],
        effort=Effort(effort) if effort else None,
        permission_mode=PermissionMode(values["permission_mode"]),
        background_reacts=values["background_reacts"],
        sandbox=values["sandbox"],
        sandbox_network=values["sandbox_network"],
        max_steps=values["max_steps"],
        max_output_tokens=values["max_output_tokens"],
        max_answers_without_tools=values["max_answers_without_tools"],
        theme=values["theme"],
        notifications=values["notifications"],
        editing_mode=values["editing_mode"],
        screen_reader=values["screen_reader"],
        chat_keys={action: values[f"keys.{action}"] for action in ACTION_KEYS},
        allow=values["permissions.allow"],
        ask=values["permissions.ask"],
        deny=values["permissions.deny"],
        tools_off=values["tools.off"],
        plugins=values["plugins"],
        hooks=tuple(layers.hooks),
        providers=providers,
        stored=_lend_stored(paths, layers, providers),
        env=env,
        models=layers.tables["models"],
        values=values,
        sources=layers.sources,
        warnings=tuple(layers.warnings),
        project=project,
    )


__all__ = [
    "Key",
    "Settings",
    "all_names",
    "dotted",
    "load_settings",
    "validate",
]
