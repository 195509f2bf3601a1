"""Whether the provider in use can be reached: what ``agent doctor`` knocks at (OPS-3).

Law: no request is made and no key is sent; looking a name up is bounded too, although the
system's resolver cannot be interrupted.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agentcli.cli.checks import Finding, Status
from agentcli.config.settings import Settings
from agentcli.domain.errors import AgentError

REACH_S = 2.0


def check_endpoint(settings: Settings, env: Mapping[str, str]) -> list[Finding]:
    """The model in use, its key and its address."""
    from agentcli.app.models import default_model
    from agentcli.providers._registry import has_key, provider_config
    from agentcli.providers.models.table import resolve

    try:
        name, model = resolve(default_model(settings), settings.providers)
        provider = provider_config(name, settings.env, settings.providers)
    except AgentError as error:
        return [Finding("model", Status.FAIL, error.message, error.advice)]
    findings = [Finding("model", Status.OK, f"{name}/{model}")]
    if not provider.base_url.startswith("http"):
        return findings
    if provider.needs_key and not has_key(name, settings.env, settings.providers):
        detail = f"{provider.name}: {provider.key_env} is not set"
        advice = f"export {provider.key_env}=..., or: agent auth login {provider.name}"
        findings.append(Finding("key", Status.FAIL, detail, advice))
    proxy = proxy_for(provider.base_url, env)
    address = urlsplit(proxy or provider.base_url)
    host = address.hostname or ""
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        reach(host, port, REACH_S)
    except (OSError, ValueError) as error:
        advice = "check the address, the network and the proxy settings"
        through = "the proxy " if proxy else ""
        detail = f"{provider.name}: {through}{host} cannot be reached: {error}"
        return [*findings, Finding("endpoint", Status.FAIL, detail, advice)]
    return [*findings, Finding("endpoint", Status.OK, f"{provider.name}: {host}:{port} answers")]


def reach(host: str, port: int, timeout_s: float) -> None:
    """Connect and hang up, within ``timeout_s``; raises ``OSError``."""
    until = time.monotonic() + timeout_s
    found: list[Any] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:  # a label of 64 letters is a UnicodeError
            found.append(error)

    # a daemon: the process may end while the resolver still waits for its servers
    thread = threading.Thread(target=look_up, name="name-lookup", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not found:
        raise TimeoutError(f"its name was not found out within {timeout_s:g} s")
    if isinstance(found[0], UnicodeError):
        raise OSError("it is no valid name")
    if isinstance(found[0], Exception):
        raise found[0]
    failure: OSError = OSError("it has no address")
    for family, kind, protocol, _, address in found[0]:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        try:
            with socket.socket(family, kind, protocol) as connection:
                connection.settimeout(left)
                connection.connect(address)
                return
        except OSError as error:
            failure = error
    raise failure


def proxy_for(url: str, env: Mapping[str, str]) -> str:
    """The proxy that a request to ``url`` goes through, or an empty text."""
    address = urlsplit(url)
    host = address.hostname or ""
    proxies = {key.lower(): value for key, value in env.items() if key.lower().endswith("_proxy")}
    for direct in proxies.get("no_proxy", "").split(","):
        name = direct.strip().lstrip(".")
        if name in {"*", host} or (name and host.endswith("." + name)):
            return ""
    return proxies.get(f"{address.scheme}_proxy", "") or proxies.get("all_proxy", "")
