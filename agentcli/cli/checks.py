"""What ``agent doctor`` looks at (OPS-3): each check is a function that returns its findings.

Law: a check never raises, changes nothing that matters, and is bounded in time; a finding that
is not ``ok`` says how to mend it. Keys are named, never shown.
"""

from __future__ import annotations

import locale
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from agentcli.config.paths import Paths
from agentcli.config.settings import Settings
from agentcli.domain.errors import AgentError
from agentcli.domain.ports import ProviderConfig
from agentcli.headless.streams import is_terminal

KEYRING_S = 2.0
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
    """Which providers have their key, and from where; names only."""
    from agentcli.providers._registry import has_key, provider_config, provider_names

    stored = settings.stored
    problem = stored.problem if stored is not None else ""
    findings = []
    if problem:
        what, _, advice = problem.partition(" - ")
        findings.append(Finding("stored keys", Status.WARN, what, advice or "agent auth login"))
    try:
        found = [
            provider_config(name, settings.env, settings.providers)
            for name in provider_names(settings.providers)
            if has_key(name, settings.env, settings.providers)
        ]
    except AgentError as error:
        return [*findings, Finding("keys", Status.FAIL, error.message, error.advice)]
    if found:
        names = ", ".join(f"{config.name} ({_source(config)})" for config in found)
        return [*findings, Finding("keys", Status.OK, names)]
    advice = (
        "set ANTHROPIC_API_KEY or OPENAI_API_KEY, store one with: agent auth login,"
        " or use a local server: --model ollama/NAME"
    )
    return [*findings, Finding("keys", Status.WARN, "no provider has a key", advice)]


def _source(config: ProviderConfig) -> str:
    if config.stored is not None and not config.api_key:
        return config.stored.place
    return config.key_env


def check_keyring(settings: Settings) -> list[Finding]:
    """Whether this system can keep keys, and whether those that it should keep can be read."""
    from importlib.util import find_spec

    from agentcli.config.credentials import KEYRING
    from agentcli.config.keyring_access import INSTALL, KeyringCall, KeyringError

    entries = settings.stored.entries if settings.stored is not None else {}
    kept = [name for name, entry in entries.items() if entry.place == KEYRING]
    file = settings.paths.credentials_file
    place = why = ""
    try:
        if find_spec("keyring") is None:
            why = "the package keyring is not installed"
        else:
            place = KeyringCall({"do": "look", "service": "", "user": ""}, KEYRING_S).result()
    except (KeyringError, ImportError, ValueError) as error:
        why = str(error)
    if not why:
        return [Finding("keyring", Status.OK, place)]
    if kept:
        detail = f"the keys of {', '.join(kept)} are in a keyring, but {why}"
        advice = f"agent auth login {kept[0]}" if "installed" not in why else INSTALL
        return [Finding("keyring", Status.WARN, detail, advice)]
    return [Finding("keyring", Status.OK, f"not used ({why}): keys would be kept in {file}, 0600")]


def check_trust(paths: Paths, env: Mapping[str, str]) -> list[Finding]:
    """Whether what this directory holds for an agent takes effect (SEC-1)."""
    from agentcli.app.trust import find_project
    from agentcli.config.trust import Standing, standing

    try:
        project = find_project(Path.cwd(), env)
    except OSError as error:
        detail = f"this directory cannot be looked at: {error.strerror}"
        return [Finding("trust", Status.WARN, detail, "go to a directory that exists")]
    if project is None:
        return [Finding("trust", Status.OK, "this directory brings nothing that needs trust")]
    if project.problem:
        return [Finding("trust", Status.WARN, project.problem, "mend it, or it stays ignored")]
    said = standing(paths, project.root, project.fingerprint)
    if said in {Standing.TRUSTED, Standing.REFUSED}:
        return [Finding("trust", Status.OK, f"{project.root} is {said}")]
    what = "has changed since you trusted it" if said is Standing.CHANGED else "is not decided yet"
    advice = "start agent there and answer the question; until then its .agents is ignored"
    return [Finding("trust", Status.WARN, f"{project.root} {what}", advice)]


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
    from agentcli.process.sandbox_check import look_for_sandbox

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
