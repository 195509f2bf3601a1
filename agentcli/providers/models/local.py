"""Which model servers answer on this machine: the default for a person without a key (CLI-10).

Law: only addresses of this machine, and those that the person's own configuration or environment
names, are asked; all at once and within 200 ms; whatever does not answer like a model server is
none.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from agentcli.domain.errors import AgentError, ConfigError
from agentcli.domain.ports import ProviderConfig
from agentcli.providers._errors import host_of
from agentcli.providers._registry import BUILT_IN, provider_config

WITHIN_S = 0.2
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class LocalModel(NamedTuple):
    """The first model of a server that answered. ``model`` is ``provider/model``."""

    model: str
    host: str


def find_local_model(
    env: Mapping[str, str], custom: Mapping[str, ProviderConfig]
) -> LocalModel | None:
    """The first server, in the order of preference, that answers and has a model. Blocks."""
    from agentcli.providers.models.ask import ask_all
    from agentcli.wire.http import load_httpx

    configs = {config.name: config for config in _candidates(env, custom)}
    started_at = time.monotonic()
    doors = ask_all({name: _door(config) for name, config in configs.items()}, WITHIN_S).found
    left_s = WITHIN_S - (time.monotonic() - started_at)
    open_doors = [config for name, config in configs.items() if doors.get(name)]
    if not open_doors:
        return None
    load_httpx()  # not part of the wait: the conversation needs it as well
    answers = ask_all({c.name: _first_model(c, left_s) for c in open_doors}, left_s).found
    for config in open_doors:
        if model := answers.get(config.name):
            return LocalModel(f"{config.name}/{model}", host_of(config.base_url))
    return None


def _candidates(
    env: Mapping[str, str], custom: Mapping[str, ProviderConfig]
) -> Iterator[ProviderConfig]:
    """What the person has set up, then what servers of this kind do by default."""
    for name in dict.fromkeys((*custom, *BUILT_IN)):
        try:
            config = provider_config(name, env, custom)
        except ConfigError:
            continue
        url = urlsplit(config.base_url)
        row = BUILT_IN.get(name)
        named = name in custom or bool(row and env.get(row.base_env))
        may_ask = url.hostname in LOOPBACK or (named and bool(row and row.is_local))
        if config.kind == "openai" and url.scheme == "http" and not config.needs_key and may_ask:
            yield config


def _door(config: ProviderConfig) -> Callable[[], bool]:
    """Whether anybody listens: a refusal comes at once, and most ports refuse."""
    url: SplitResult = urlsplit(config.base_url)

    def is_open() -> bool:
        try:
            socket.create_connection((url.hostname or "", url.port or 80), WITHIN_S).close()
        except (OSError, ValueError):
            return False
        return True

    return is_open


def _first_model(config: ProviderConfig, within_s: float) -> Callable[[], str]:
    from agentcli.providers.models.ask import Asker
    from agentcli.providers.models.lists import chat_models, ollama_models

    # Ollama is asked in its own words where it does not know the others'
    ways = (chat_models, ollama_models) if config.name == "ollama" else (chat_models,)

    def first() -> str:
        ask = Asker(config, within_s, is_direct=True)
        for way in ways:
            try:
                names = [str(figures["name"]) for figures in way(ask)]
            except AgentError:
                continue
            if names:
                return next((name for name in names if "embed" not in name.lower()), names[0])
        return ""

    return first
