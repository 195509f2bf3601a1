"""Which model servers answer on this machine: the default for a person without a key (CLI-10).

Law: only addresses of this machine, and those that the person's own configuration or environment
names, are asked; every wait is bounded; whatever does not answer like a model server is none.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from agentcli.domain.errors import ConfigError
from agentcli.domain.settings import ProviderConfig
from agentcli.providers._registry import BUILT_IN, provider_config

CONNECT_S = 0.3
ANSWER_S = 1.0
_MAX_BYTES = 1_000_000
_OK = 200
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class LocalModel(NamedTuple):
    """The first model of a server that answered. ``model`` is ``provider/model``."""

    model: str
    host: str


def find_local_model(
    env: Mapping[str, str], custom: Mapping[str, ProviderConfig]
) -> LocalModel | None:
    """The first server that answers and has a model. Blocks for about a second at most each."""
    for name, url in _candidates(env, custom):
        for model in _models_at(name, url):
            return LocalModel(f"{name}/{model}", url.netloc)
    return None


def _candidates(
    env: Mapping[str, str], custom: Mapping[str, ProviderConfig]
) -> Iterator[tuple[str, SplitResult]]:
    """What the person has set up, then what servers of this kind do by default."""
    for name in dict.fromkeys((*custom, *BUILT_IN)):
        try:
            config = provider_config(name, env, custom)
        except ConfigError:
            continue
        url = urlsplit(config.base_url)
        row = BUILT_IN.get(name)
        named = name in custom or bool(row and env.get(row.base_env))
        may_ask = url.hostname in _LOOPBACK or (named and bool(row and row.is_local))
        if config.kind == "openai" and url.scheme == "http" and not config.needs_key and may_ask:
            yield name, url


def _models_at(name: str, url: SplitResult) -> Iterator[str]:
    """The names of the models at ``url``; ``name`` ollama is asked in its own words too."""
    try:
        socket.create_connection((url.hostname or "", url.port or 80), CONNECT_S).close()
    except (OSError, ValueError):
        return
    yield from _named(_json_at(url, f"{url.path}/models"), "data", "id")
    if name == "ollama":
        yield from _named(_json_at(url, "/api/tags"), "models", "name")


def _named(value: Any, key: str, field: str) -> Iterator[str]:
    rows = value.get(key) if isinstance(value, dict) else None
    for row in rows if isinstance(rows, list) else ():
        name = row.get(field) if isinstance(row, dict) else None
        if isinstance(name, str) and name.isprintable() and name.strip():
            yield name


def _json_at(url: SplitResult, path: str) -> Any:
    """The JSON value that a GET of ``path`` gives, or ``None``. Goes through no proxy."""
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(url.hostname or "", url.port or 80, timeout=ANSWER_S)
    try:
        connection.request("GET", path, headers={"accept": "application/json"})
        answer = connection.getresponse()
        return json.loads(answer.read(_MAX_BYTES)) if answer.status == _OK else None
    except (OSError, HTTPException, ValueError, RecursionError):
        return None
    finally:
        connection.close()
