"""What ``agent doctor`` looks at (OPS-3): each check is a function that returns its findings.

Law: a check never raises, changes nothing that matters, and is bounded in time; a finding that
is not ``ok`` says how to mend it. Keys are named, never shown.
"""

from __future__ import annotations

import contextlib
import locale
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from agentcli.cli.streams import is_terminal
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings
from agentcli.domain.errors import AgentError

REACH_S = 2.0
_LOW_DISK_BYTES = 500_000_000
_NO_DISK_BYTES = 20_000_000
_NARROW = 40


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """One line of the report. ``advice`` says how to mend it."""

    name: str
    status: Status
    detail: str
    advice: str = ""


def check_python() -> list[Finding]:
    """The interpreter and this program's version."""
    from agentcli import __version__

    detail = f"agentcli {__version__}, Python {platform.python_version()}, {sys.platform}"
    return [Finding("program", Status.OK, detail)]


def check_terminal(env: Mapping[str, str]) -> list[Finding]:
    """TERM, size and character encoding."""
    findings = []
    term = env.get("TERM", "")
    if not is_terminal(sys.stdout):
        findings.append(Finding("terminal", Status.OK, "the output is no terminal"))
    elif term in {"", "dumb"}:
        advice = "set TERM, e.g. TERM=xterm-256color; without it the chat is plain"
        findings.append(Finding("terminal", Status.WARN, f"TERM={term or '(not set)'}", advice))
    else:
        size = shutil.get_terminal_size()
        narrow = size.columns < _NARROW
        findings.append(
            Finding(
                "terminal",
                Status.WARN if narrow else Status.OK,
                f"TERM={term}, {size.columns}x{size.lines}",
                f"make it at least {_NARROW} columns wide" if narrow else "",
            )
        )
    encoding = (getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding()).lower()
    if encoding.replace("-", "") == "utf8":
        findings.append(Finding("encoding", Status.OK, encoding))
    else:
        advice = "use a UTF-8 locale, e.g. LC_ALL=C.UTF-8"
        findings.append(Finding("encoding", Status.WARN, encoding, advice))
    return findings


def check_keys(settings: Settings) -> list[Finding]:
    """Which providers have their key; names only."""
    from agentcli.providers._registry import has_key, provider_config, provider_names

    try:
        found = [
            provider_config(name, settings.env, settings.providers)
            for name in provider_names(settings.providers)
            if has_key(name, settings.env, settings.providers)
        ]
    except AgentError as error:
        return [Finding("keys", Status.FAIL, error.message, error.advice)]
    if found:
        names = ", ".join(f"{config.name} ({config.key_env})" for config in found)
        return [Finding("keys", Status.OK, names)]
    advice = "set ANTHROPIC_API_KEY or OPENAI_API_KEY, or use a local server: --model ollama/NAME"
    return [Finding("keys", Status.WARN, "no provider has a key", advice)]


def check_endpoint(settings: Settings, env: Mapping[str, str]) -> list[Finding]:
    """Whether the provider in use can be reached; no request is made."""
    from agentcli.app.models import default_model
    from agentcli.providers._models import resolve
    from agentcli.providers._registry import provider_config

    try:
        name, model = resolve(default_model(settings), settings.providers)
        provider = provider_config(name, settings.env, settings.providers)
    except AgentError as error:
        return [Finding("model", Status.FAIL, error.message, error.advice)]
    findings = [Finding("model", Status.OK, f"{name}/{model}")]
    if not provider.base_url.startswith("http"):
        return findings
    if provider.needs_key and not provider.api_key:
        detail = f"{provider.name}: {provider.key_env} is not set"
        findings.append(Finding("key", Status.FAIL, detail, f"export {provider.key_env}=..."))
    address = urlsplit(_proxy_for(provider.base_url, env) or provider.base_url)
    host = address.hostname or ""
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((host, port), timeout=REACH_S).close()
    except (OSError, ValueError) as error:
        advice = "check the address, the network and the proxy settings"
        detail = f"{provider.name}: {host} cannot be reached: {error}"
        return [*findings, Finding("endpoint", Status.FAIL, detail, advice)]
    return [*findings, Finding("endpoint", Status.OK, f"{provider.name}: {host}:{port} answers")]


def _proxy_for(url: str, env: Mapping[str, str]) -> str:
    address = urlsplit(url)
    host = address.hostname or ""
    proxies = {key.lower(): value for key, value in env.items() if key.lower().endswith("_proxy")}
    for direct in proxies.get("no_proxy", "").split(","):
        name = direct.strip().lstrip(".")
        if name in {"*", host} or (name and host.endswith("." + name)):
            return ""
    return proxies.get(f"{address.scheme}_proxy", "") or proxies.get("all_proxy", "")


_PROGRAMS = {
    "bash": (Status.FAIL, "the bash tool cannot run; install bash"),
    "git": (Status.WARN, "install git: diffs and project roots need it"),
    "rg": (Status.WARN, "install ripgrep: searching is much faster with it"),
}


def check_programs() -> list[Finding]:
    """Programs that the tools use."""
    findings = []
    for name, (status, advice) in _PROGRAMS.items():
        path = shutil.which(name)
        found = Finding(name, Status.OK, path) if path else None
        findings.append(found or Finding(name, status, "not found", advice))
    return findings


def check_sandbox(settings: Settings | None = None) -> list[Finding]:
    """What limits commands here, by a real run (SEC-7)."""
    from agentcli.tools._sandbox_check import look_for_sandbox

    try:
        root = Path.cwd()
    except OSError:
        root = Path("/")
    state = look_for_sandbox(root, settings.sandbox if settings is not None else "auto")
    if state.wanted == "off":
        advice = "commands have all of your rights: agent config set sandbox auto"
        return [Finding("sandbox", Status.WARN, "switched off in the settings", advice)]
    if not state.is_on:
        advice = state.advice or "commands have all of your rights"
        return [Finding("sandbox", Status.WARN, state.problem, advice)]
    network = ", with the network" if settings is not None and settings.sandbox_network else ""
    detail = f"{state.kind} works{network}" + (f": {state.problem}" if state.problem else "")
    return [Finding("sandbox", Status.WARN if state.problem else Status.OK, detail, state.advice)]


def check_home(paths: Paths) -> list[Finding]:
    """Whether our directories can be written, and how much room is left."""
    findings = []
    for directory in dict.fromkeys((paths.data_dir, paths.config_dir, paths.state_dir)):
        existing = _nearest_existing(directory)
        try:
            with tempfile.TemporaryFile(dir=existing):
                pass
            findings.append(Finding("home", Status.OK, f"{directory} can be written"))
        except OSError as error:
            advice = "set AGENTCLI_HOME to a directory that you can write to"
            detail = f"{directory} cannot be written: {error.strerror}"
            findings.append(Finding("home", Status.FAIL, detail, advice))
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(_nearest_existing(paths.data_dir)).free
        status = Status.OK
        if free < _LOW_DISK_BYTES:
            status = Status.FAIL if free < _NO_DISK_BYTES else Status.WARN
        advice = "" if status is Status.OK else "free some space: sessions are written at each step"
        findings.append(Finding("disk", status, f"{free / 1e9:.1f} GB free", advice))
    return findings


def _nearest_existing(path: Path) -> Path:
    for candidate in (path, *path.parents):
        if os.path.isdir(candidate):  # noqa: PTH112 - no error where looking is forbidden
            return candidate
    return Path("/")


def check_other_agents(env: Mapping[str, str]) -> list[Finding]:
    """Every ``agent`` on PATH: other products install one too (CLI-1)."""
    found = []
    for directory in dict.fromkeys(env.get("PATH", "").split(os.pathsep)):
        candidate = Path(directory or ".") / "agent"
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113 - as above
            found.append(candidate)
    if not found:
        detail = "no agent on PATH"
        return [Finding("agent", Status.OK, detail, "start it as: python -P -m agentcli")]
    ours = [path for path in found if _is_ours(path)]
    listed = ", ".join(f"{path}{' (ours)' if path in ours else ''}" for path in found)
    if ours and found[0] not in ours:
        advice = "another program comes first: use agentcli, or put our directory first in PATH"
        return [Finding("agent", Status.WARN, listed, advice)]
    return [Finding("agent", Status.OK, listed)]


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b"agentcli" in file.read(4096)
    except OSError:
        return False


def check_configuration(paths: Paths, env: Mapping[str, str]) -> tuple[Settings, list[Finding]]:
    """The settings, or the defaults when the file is broken, and what is wrong with it."""
    from agentcli.config.settings import load_settings

    try:
        settings = load_settings(paths, env)
    except AgentError as error:
        fallback = load_settings(Paths(Path("/nowhere"), paths.data_dir, paths.state_dir), {})
        return fallback, [Finding("settings", Status.FAIL, error.message, error.advice)]
    if settings.warnings:
        what, _, advice = settings.warnings[0].partition(" - ")
        return settings, [Finding("settings", Status.WARN, what, advice)]
    exists = paths.config_file.exists()
    detail = str(paths.config_file) if exists else f"{paths.config_file} (not there: defaults)"
    return settings, [Finding("settings", Status.OK, detail)]
