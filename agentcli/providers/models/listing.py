"""Asks every provider that is set up for its list of models, at once (``agent models``).

Law: who has no key, or speaks a protocol without lists, is not asked; a provider that fails
costs its own part of the answer and nothing else; the whole is over within a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import islice
from typing import NamedTuple

from agentcli.domain.errors import AgentError, ConfigError
from agentcli.domain.ports import ProviderConfig
from agentcli.providers._registry import BUILT_IN, provider_config, provider_names, with_stored_key
from agentcli.providers.models.ask import (
    FOR_KIND,
    FOR_NAME,
    MAX_MODELS,
    AskResults,
    Figures,
    ListModels,
    ServerClient,
    ask_all,
)
from agentcli.providers.models.local import local_window
from agentcli.wire.http import load_httpx

WITHIN_S = 3.0
MAX_WINDOWS = 50


class Lists(NamedTuple):
    """What the servers said of each model, by provider; and a line for each that failed."""

    models: dict[str, tuple[Figures, ...]]
    warnings: tuple[str, ...]


def list_models(
    env: Mapping[str, str],
    custom: Mapping[str, ProviderConfig],
    *,
    named: Iterable[str] = (),
    within_s: float = WITHIN_S,
) -> Lists:
    """The lists of all providers with a key or a server of the user's own. Blocks.

    A local server that nobody configured and that does not run is no news; one that the file
    or ``named`` names is.
    """
    asked, warnings = {}, []
    for config in _to_be_asked(env, custom):
        try:
            asked[config.name] = with_stored_key(config)
        except ConfigError as error:
            warnings.append(f"warning: {error}")
    load_httpx()  # once, before threads need it at the same time
    questions = {
        name: _question(config, hook, within_s)
        for name, config in asked.items()
        if (hook := _hook(config)) is not None
    }
    answers: AskResults[tuple[Figures, ...]] = ask_all(questions, within_s)
    expected = {*_set_up(custom), *named}
    warnings += [
        f"warning: {error}"
        for name, error in answers.failed.items()
        if name in expected or not _is_local(name)
    ]
    return Lists(answers.found, tuple(warnings))


def _to_be_asked(
    env: Mapping[str, str], custom: Mapping[str, ProviderConfig]
) -> Iterable[ProviderConfig]:
    seen: set[tuple[str, str]] = set()
    own = _set_up(custom)
    for name in provider_names(custom):
        try:
            config = provider_config(name, env, custom)
        except ConfigError:
            continue  # it is an error where it is used
        account = (config.base_url, config.api_key)
        if config.stored is not None:
            account = (config.base_url, str(id(config.stored)))
        elif config.needs_key and not config.api_key:
            continue
        if not config.base_url or name in own or account not in seen:
            yield config  # the same account by another name has the same list
        seen.add(account)


def _set_up(custom: Mapping[str, ProviderConfig]) -> set[str]:
    """The providers that the user's file is about; others are there for a stored key only."""
    return {name for name, own in custom.items() if own.kind or own.base_url or own.key_env}


def _hook(config: ProviderConfig) -> ListModels | None:
    """``list_models`` of the provider's own module, else the protocol's way, if it has one."""
    if config.name in FOR_NAME or config.kind in FOR_KIND:
        return FOR_NAME[config.name] if config.name in FOR_NAME else FOR_KIND[config.kind]
    module = import_module(f"agentcli.providers.{config.kind.replace('-', '_')}")
    own: ListModels | None = getattr(module, "list_models", None)
    return own


def _question(
    config: ProviderConfig, hook: ListModels, within_s: float
) -> Callable[[], tuple[Figures, ...]]:
    is_local = _is_local(config.name)

    def ask() -> tuple[Figures, ...]:
        asker = ServerClient(config, within_s, is_direct=is_local)
        try:
            listed = tuple(islice(hook(asker), MAX_MODELS))
            return _with_windows(asker, listed) if is_local else listed
        except AgentError:
            raise
        except Exception as error:  # a hook must not take the others with it
            what = f"{config.name} sent a list that cannot be read"
            raise AgentError(what, "check its base_url") from error

    return ask


def _with_windows(asker: ServerClient, listed: tuple[Figures, ...]) -> tuple[Figures, ...]:
    """``listed`` with the windows that a local server gives its models, where it says so."""
    found = []
    for index, figures in enumerate(listed):
        window = None
        if index < MAX_WINDOWS:
            with suppress(AgentError):
                window = local_window(asker, figures["name"])
        found.append({**figures, "context_tokens": window.tokens} if window else figures)
    return tuple(found)


def _is_local(name: str) -> bool:
    row = BUILT_IN.get(name)
    return row is not None and row.is_local
