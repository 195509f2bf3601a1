"""What ``agent doctor`` looks at (OPS-3): each check is a function that returns its findings.

Laws: a check never raises, changes nothing that matters, and is bounded in time; a finding that is
not ``ok`` says how to fix it. Keys are named, never shown; a session that was not looked at is
counted and said; no request is made to a provider, and looking its name up is bounded too, although
the system's resolver cannot be interrupted.
"""

from __future__ import annotations

import contextlib
import locale
import os
import platform
import shutil
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentcli.app.user_files import Finding, Status, of_rules
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings
from agentcli.domain.errors import AgentError
from agentcli.domain.ports import ProviderConfig
from agentcli.headless.streams import is_terminal

REACH_S = 2.0
SESSIONS_S = 0.5
MAX_FILES = 20_000
MAX_PROOF_BYTES = 50_000_000  # a larger file takes longer to prove than the whole report may
_LOW_DISK_BYTES = 500_000_000
_NO_DISK_BYTES = 20_000_000
_MAX_TOLD = 20
_MAGIC = b"SQLite format 3\0"
_HEAD_BYTES = 100
_LARGEST_PAGE = 65_536
_NARROW = 40
_PROGRAMS = {
    "bash": (Status.FAIL, "the bash tool cannot run; install bash"),
    "git": (Status.WARN, "install git: diffs and project roots need it"),
    "rg": (Status.WARN, "install ripgrep: searching is much faster with it"),
}


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
    found = []
    for name in provider_names(settings.providers):
        if has_key(name, settings.env, settings.providers):
            try:
                found.append(provider_config(name, settings.env, settings.providers))
            except AgentError as error:
                findings.append(Finding("keys", Status.FAIL, error.message, error.advice))
    if findings and findings[-1].status is Status.FAIL and not found:
        return findings
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


def check_trust(paths: Paths, env: Mapping[str, str]) -> list[Finding]:
    """Whether what this directory holds for an agent takes effect (SEC-1)."""
    from agentcli.app.trust import find_project
    from agentcli.config.project import Standing, standing
    from agentcli.config.settings import load_settings
    from agentcli.domain.errors import ConfigError

    try:
        project = find_project(Path.cwd(), env, load_settings(paths, env).hooks)
    except ConfigError:
        return []  # the settings have a finding of their own
    except OSError as error:
        detail = f"this directory cannot be looked at: {error.strerror}"
        return [Finding("trust", Status.WARN, detail, "go to a directory that exists")]
    if project is None:
        return [Finding("trust", Status.OK, "this directory brings nothing that needs trust")]
    if project.problem:
        return [Finding("trust", Status.WARN, project.problem, "fix it, or it stays ignored")]
    said = standing(paths, project.place, project.fingerprint)
    if said in {Standing.TRUSTED, Standing.REFUSED}:
        return [Finding("trust", Status.OK, f"{project.place} is {said}")]
    what = "has changed since you trusted it" if said is Standing.CHANGED else "is not decided yet"
    advice = "start agent there and answer the question; until then its own files are ignored"
    return [Finding("trust", Status.WARN, f"{project.place} {what}", advice)]


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
    from agentcli.app.boundary import look_for_sandbox

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
    sockets = "" if state.sockets.startswith("those") else f"; Unix sockets: {state.sockets}"
    problem = f": {state.problem}" if state.problem else ""
    detail = f"{state.kind} works{network}, read-only too{sockets}{problem}"
    return [Finding("sandbox", Status.WARN if state.problem else Status.OK, detail, state.advice)]


def check_other_agents(env: Mapping[str, str]) -> list[Finding]:
    """Every ``agent`` on PATH: other products install one too (CLI-1)."""
    found = []
    for directory in dict.fromkeys(env.get("PATH", "").split(os.pathsep)):
        candidate = Path(directory or ".") / "agent"
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113 - as above
            found.append(candidate)
    own = Path(sys.executable).with_name("agent")
    advice = f"add its directory to PATH: {own.parent}"
    if not own.exists():
        advice = "start it as: python -P -m agentcli"
    if not found:
        return [Finding("agent", Status.WARN, "no agent on PATH", advice)]
    ours = [path for path in found if _is_ours(path)]
    listed = ", ".join(f"{path}{' (this program)' if path in ours else ''}" for path in found)
    if ours and found[0] not in ours:
        advice = "another program comes first: use agentcli, or put our directory first in PATH"
        return [Finding("agent", Status.WARN, listed, advice)]
    if not ours:
        return [Finding("agent", Status.WARN, f"{listed}: none of them is this program", advice)]
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
    if (wrong := of_rules(settings)) is not None:
        return settings, [wrong]
    if settings.warnings:
        what, _, advice = settings.warnings[0].partition(" - ")
        return settings, [Finding("settings", Status.WARN, what, advice)]
    exists = paths.config_file.exists()
    detail = str(paths.config_file) if exists else f"{paths.config_file} (not there: defaults)"
    return settings, [Finding("settings", Status.OK, detail)]


# --- on disk: our directories, the sessions, what was left behind --------------------------


def check_home(paths: Paths) -> list[Finding]:
    """Whether our directories can be written, and how much room is left."""
    findings = []
    for directory in _directories(paths):
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


def check_privacy(paths: Paths) -> list[Finding]:
    """Whether anybody else could read what is ours (SEC-9)."""
    wanted = [(directory, 0o700) for directory in (*_directories(paths), paths.sessions_dir)]
    wanted += [(paths.credentials_file, 0o600), (paths.trust_file, 0o600)]
    findings = []
    for path, mode in dict(wanted).items():
        try:
            status = path.stat()
        except OSError:
            continue
        if status.st_uid not in {os.getuid(), 0}:
            detail = f"{path} belongs to another user ({status.st_uid})"
            advice = f"sudo chown -R {os.getuid()} {path}"
            findings.append(Finding("private", Status.WARN, detail, advice))
        elif status.st_mode & 0o077:
            detail = f"{path} is open to others ({stat.S_IMODE(status.st_mode):04o})"
            advice = f"chmod {mode:o} {path}"
            findings.append(Finding("private", Status.WARN, detail, advice))
    return findings or [Finding("private", Status.OK, "only you can read what we keep")]


def check_leftovers(paths: Paths) -> list[Finding]:
    """Texts that were rescued, and copies that a repair or an upgrade has kept."""
    rescued, copies, size = [], 0, 0
    try:
        with os.scandir(paths.sessions_dir) as entries:
            for count, entry in enumerate(entries):
                if count == MAX_FILES:
                    break
                name = entry.name
                if name.endswith(".recovery.txt"):
                    rescued.append(name)
                elif name.endswith(".backup") or ".damaged-" in name:
                    copies += 1
                    with contextlib.suppress(OSError):
                        size += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return []
    findings = []
    for name in sorted(rescued)[:_MAX_TOLD]:
        detail = f"{paths.sessions_dir / name} holds what a session could not store"
        findings.append(Finding("rescued", Status.WARN, detail, "read it, then remove it"))
    if copies:
        detail = (
            f"{copies} older {'copy' if copies == 1 else 'copies'} of sessions, {size / 1e6:.1f} MB"
        )
        findings.append(Finding("copies", Status.OK, f"{detail}, in {paths.sessions_dir}"))
    return findings


def check_sessions(paths: Paths) -> list[Finding]:
    """The integrity of the session files: each one's outline, and for a while their whole.

    Files whose outline is wrong are proved first, then the newest.
    """
    from agentcli.store.repair.check import check, newest_files

    until = time.monotonic() + SESSIONS_S
    try:
        files = newest_files(paths.sessions_dir)
    except OSError as error:
        detail = f"{paths.sessions_dir} cannot be read: {error.strerror}"
        advice = f"chmod 700 {paths.sessions_dir}, or set AGENTCLI_HOME to another directory"
        return [Finding("sessions", Status.FAIL, detail, advice)]
    suspects = {file for file, size in files.items() if not _looks_whole(file, size)}
    findings: list[Finding] = []
    checked = 0
    for file in sorted(files, key=lambda file: file not in suspects):
        late = time.monotonic() > until
        if (late and file not in suspects) or len(findings) >= _MAX_TOLD:
            break
        if files[file] > MAX_PROOF_BYTES and file not in suspects:
            continue
        checked += 1
        if problems := check(file):
            advice = f"agent sessions repair {file.stem}"
            detail = problems[0] if str(file) in problems[0] else f"{file}: {problems[0]}"
            if "newer version" in problems[0]:
                advice = "open it with the version that made it, or upgrade this one"
            findings.append(Finding("session", Status.FAIL, detail, advice))
    rest = len(files) - checked
    detail = f"{checked - len(findings)} of {checked} sound"
    if rest:
        detail += f", {rest} not proved here (prove them with: agent sessions check)"
    if findings:
        more = ", and: agent sessions check" if len(findings) == _MAX_TOLD else ""
        return [Finding("sessions", Status.FAIL, detail, f"see below{more}"), *findings]
    return [Finding("sessions", Status.OK, detail)]


def _looks_whole(file: Path, size: int) -> bool:
    """Whether the head is SQLite's and no page is missing (sqlite.org/fileformat.html, 1.3).

    Pages that stand in the write-ahead log only are not missing.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        head = os.read(descriptor, _HEAD_BYTES)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    if len(head) < _HEAD_BYTES or not head.startswith(_MAGIC):
        return False
    page = int.from_bytes(head[16:18], "big")
    page = _LARGEST_PAGE if page == 1 else page
    is_current = head[24:28] == head[92:96]
    return not is_current or page * int.from_bytes(head[28:32], "big") <= size or _has_log(file)


def _has_log(file: Path) -> bool:
    try:
        return file.with_name(file.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def _directories(paths: Paths) -> Sequence[Path]:
    return list(dict.fromkeys((paths.data_dir, paths.config_dir, paths.state_dir)))


def _nearest_existing(path: Path) -> Path:
    for candidate in (path, *path.parents):
        if os.path.isdir(candidate):  # noqa: PTH112 - no error where looking is forbidden
            return candidate
    return Path("/")


# --- the provider in use -------------------------------------------------------------------


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
    findings += _check_command(provider)
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


def _check_command(provider: ProviderConfig) -> list[Finding]:
    """Whether the command of the provider in use prints a key (EXT-7)."""
    from agentcli.config.credentials import COMMAND

    if provider.stored is None or provider.stored.place != COMMAND:
        return []
    try:
        provider.stored.get()
    except AgentError as error:
        return [Finding("key", Status.FAIL, error.message, error.advice)]
    return [Finding("key", Status.OK, f"{provider.name}: {COMMAND} prints one")]


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
