"""Keys that are fetched: stored with ``agent auth login`` (SEC-9), or printed by a command (EXT-7).

``credentials.json`` in the configuration directory (0600) lists them; a key itself stands in the
OS keyring, or in that file where there is no keyring. Laws: reading the list never asks the
keyring; the keyring is asked through a process that can be given up, since the ``keyring`` library
costs more than a whole start and its daemons hang; a stored key is lent only to an address that
the user's own configuration or environment names (SEC-1), which is the business of ``settings``;
what a command prints is kept in memory only.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from agentcli.config.paths import Paths
from agentcli.domain.errors import ConfigError
from agentcli.domain.ports import ProviderConfig
from agentcli.domain.secrecy import is_secret
from agentcli.domain.values import frozen, mutable

KEYRING, FILE, COMMAND = "keyring", "file", "api_key_command"
# two names of one account: a key stored for the second serves the first
SAME_ACCOUNT: Mapping[str, str] = {"openai-responses": "openai"}
_MAX_BYTES = 1_000_000
_VERSION = 1

Watcher = Callable[[Iterable[str]], None]
READ_S = 10.0
WRITE_S = 60.0  # the user may have to unlock it
COMMAND_S = 60.0
_MAX_PRINTED = 64 * 1024
_WORKER = Path(__file__).with_name("keyring_worker.py")


@frozen
class CredentialEntry:
    """One stored key. ``key`` is empty where it stands in the keyring.

    ``is_custom``: it is for a provider of the user's own configuration.
    """

    key: str = field(default="", repr=False)
    is_custom: bool = False

    @property
    def place(self) -> str:
        """``keyring`` or ``file``."""
        return FILE if self.key else KEYRING


@mutable
class Credentials:
    """The stored keys by provider. ``watchers`` are told of each key that becomes known."""

    paths: Paths
    entries: dict[str, CredentialEntry] = field(default_factory=dict, repr=False)
    problem: str = ""
    watchers: list[Watcher] = field(default_factory=list, repr=False)
    known: dict[str, str] = field(default_factory=dict, repr=False)

    def learn(self, provider: str, key: str) -> None:
        """The key of ``provider`` has been fetched."""
        self.known[provider] = key
        if not is_secret(key):
            return
        for watcher in self.watchers:
            watcher((key,))


class KeyringKey:
    """The key of one provider: at hand, or to be fetched (``domain.ports.StoredKey``)."""

    def __init__(self, credentials: Credentials, provider: str) -> None:
        self._credentials = credentials
        self._provider = provider
        self._call: KeyringCall | None = None

    @property
    def place(self) -> str:
        """``keyring`` or ``file``."""
        return self._credentials.entries[self._provider].place

    @property
    def at_hand(self) -> bool:
        """Whether ``get`` answers at once."""
        return self._provider in self._credentials.known

    def get(self) -> str:
        """The key. May wait ``READ_S``, so not for an event loop; raises ``ConfigError``."""
        if self.at_hand:
            return self._credentials.known[self._provider]
        login = f"agent auth login {self._provider}"
        self._call = KeyringCall(_question(self._credentials.paths, self._provider, "get"), READ_S)
        try:
            key = self._call.result().strip()
        except KeyringError as error:
            raise ConfigError(
                f"the key of {self._provider} cannot be read from the keyring: {error}",
                f"unlock it, set the key's environment variable, or run: {login}",
            ) from None
        if not key:
            raise ConfigError(f"the keyring has no key of {self._provider} any more", login)
        self._credentials.learn(self._provider, key)
        return key

    def stop(self) -> None:
        """End a ``get`` that waits in another thread."""
        if self._call is not None:
            self._call.stop()

    def renew(self, refused: str) -> bool:
        """What is stored stays what it is."""
        del refused
        return False


def read_credentials(paths: Paths) -> Credentials:
    """The list of stored keys; what is wrong with its file is told in ``problem``."""
    found = Credentials(paths)
    path = paths.credentials_file
    try:
        text = read_private(path)
        entries = _entries(json.loads(text)) if text is not None else {}
    except OSError as error:
        found.problem = f"cannot read {path}: {error.strerror or error}"
        return found
    except (ValueError, TypeError, RecursionError):
        found.problem = f"{path} is damaged: its keys are not used - run: agent auth login"
        return found
    found.entries = entries
    found.known = {name: entry.key for name, entry in entries.items() if entry.key}
    return found


def lend(paths: Paths, providers: dict[str, ProviderConfig], moved: Collection[str]) -> Credentials:
    """Give each provider its stored key; those in ``moved`` get none (SEC-1)."""
    stored = read_credentials(paths)
    for name, entry in stored.entries.items():
        key = KeyringKey(stored, name)
        others = [n for n, of in SAME_ACCOUNT.items() if of == name and n not in stored.entries]
        for each in (name, *others):
            own = providers.get(each)
            if each not in moved and (own is not None or not entry.is_custom):
                providers[each] = replace(own or ProviderConfig(each, ""), stored=key)
    return stored


def store_key(paths: Paths, provider: str, entry: CredentialEntry, *, keyring: bool = True) -> str:
    """Keep ``entry.key``, in the keyring where there is one; returns why it is not there.

    An empty text means that the keyring has it. Raises ``ConfigError``.
    """
    why = "it was not asked"
    kept = entry
    if keyring:
        try:
            KeyringCall(_question(paths, provider, "set", entry.key), WRITE_S).result()
        except KeyringError as error:
            why = str(error)
        else:
            why, kept = "", CredentialEntry(is_custom=entry.is_custom)
    _write(paths, {**_present(paths), provider: kept})
    return why


def remove_key(paths: Paths, provider: str) -> str:
    """Forget the key; returns why it may still stand in the keyring, or an empty text."""
    entries = _present(paths)
    entry = entries.pop(provider, None)
    why = ""
    if entry is not None and entry.place == KEYRING:
        try:
            KeyringCall(_question(paths, provider, "delete"), WRITE_S).result()
        except KeyringError as error:
            why = str(error)
    _write(paths, entries)
    return why


def _question(paths: Paths, provider: str, do: str, key: str = "") -> dict[str, str]:
    service = f"agentcli {paths.config_dir}"  # two homes do not share their keys
    return {"do": do, "service": service, "user": provider, "key": key}


def _present(paths: Paths) -> dict[str, CredentialEntry]:
    """What is stored, to be changed; a damaged file is not written over in silence."""
    found = read_credentials(paths)
    if found.problem:
        advice = f"repair or remove {paths.credentials_file}, then try again"
        raise ConfigError(found.problem.partition(" - ")[0], advice)
    return dict(found.entries)


def read_private(path: Path) -> str | None:
    """The file's text, its permissions tightened; ``None`` when there is no such file."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError
        if mode & 0o077:
            with contextlib.suppress(OSError):  # another's file is read as it is
                os.fchmod(descriptor, 0o600)
        return file.read(_MAX_BYTES).decode("utf-8")


def _entries(document: Any) -> dict[str, CredentialEntry]:
    """What the file says; raises ``TypeError`` for what it cannot say."""
    found = {}
    for name, row in _table(_table(document).get("providers")).items():
        key = _table(row).get("key", "")
        if not isinstance(key, str):
            raise TypeError
        found[name] = CredentialEntry(key.strip(), is_custom=row.get("custom") is True)
    return found


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _write(paths: Paths, entries: Mapping[str, CredentialEntry]) -> None:
    from agentcli.config.paths import write

    rows: dict[str, dict[str, Any]] = {}
    for name, entry in sorted(entries.items()):
        row: dict[str, Any] = {"in": entry.place}
        if entry.key:
            row["key"] = entry.key
        if entry.is_custom:
            row["custom"] = True
        rows[name] = row
    if not rows:
        try:
            paths.credentials_file.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"cannot remove {paths.credentials_file}: {reason}", "remove it yourself"
            ) from error
        return
    document = {"version": _VERSION, "providers": rows}
    write(paths.credentials_file, json.dumps(document, indent=2) + "\n")


# --- the OS keyring --------------------------------------------------------------------------


class KeyringError(Exception):
    """The keyring is not there, refused, or did not answer; the text says which."""


class KeyringCall:
    """One question to the keyring under way. ``stop`` ends it from any thread."""

    def __init__(self, question: dict[str, str], timeout_s: float) -> None:
        self._question = question
        self._timeout_s = timeout_s
        self._process: Any = None
        self._stopped = False

    def result(self) -> str:
        """The key that was asked for, or an empty text. Blocks; raises ``KeyringError``."""
        import subprocess

        from agentcli.domain.extensions.extras import own_python

        try:
            process = subprocess.Popen(  # noqa: S603 - our own file
                [*own_python(), str(_WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise KeyringError(f"it cannot be asked: {error.strerror}") from error
        self._process = process
        if self._stopped:
            self.stop()
        with process:
            try:
                out, _ = process.communicate(json.dumps(self._question).encode(), self._timeout_s)
            except subprocess.TimeoutExpired:
                self.stop()
                raise KeyringError(f"it did not answer within {self._timeout_s:g} s") from None
            except BaseException:
                self.stop()
                raise
        return _key_in(out)

    def stop(self) -> None:
        """End the question; ``result`` then raises."""
        import os
        import signal

        self._stopped = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """Ours, where ``PYTHONPATH`` leads to no working directory (SEC-19)."""
    named = map(Path, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    here = Path(os.path.realpath("."))
    kept = (p for p in named if p.is_absolute())
    kept = (p for p in kept if not Path(os.path.realpath(p)).is_relative_to(here))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, kept))}


def _key_in(out: bytes) -> str:
    try:
        reply = json.loads(out)
        ok, key, why = bool(reply["ok"]), reply.get("key", ""), reply.get("why", "")
    except (ValueError, KeyError, TypeError):
        raise KeyringError("it ended without an answer") from None
    if not ok:
        raise KeyringError(str(why))
    return key if isinstance(key, str) else ""


# --- a command that prints a key (EXT-7) -------------------------------------------------------


class CommandKey:
    """The key that a command of the user's prints; asked for once, and again after a refusal.

    Law: the command runs outside of the workspace and finds no program there, has no terminal, and
    is ended after ``COMMAND_S``; what it prints is never shown or stored.
    """

    place = COMMAND

    def __init__(
        self,
        credentials: Credentials,
        provider: str,
        command: str,
        *,
        label: str = "",
        variables: Mapping[str, str] | None = None,
        withheld: AbstractSet[str] = frozenset(),
    ) -> None:
        """``variables`` are set for the command, those of our own that are ``withheld`` are not."""
        self._credentials = credentials
        self._provider = provider
        self._command = command
        self._label = label or f"the api_key_command of provider {provider}"
        self._variables = variables or {}
        self._withheld = withheld
        self._lock = threading.Lock()
        self._process: Any = None
        self._stopped = False

    @property
    def at_hand(self) -> bool:
        """Whether ``get`` answers at once."""
        return self._provider in self._credentials.known

    def get(self) -> str:
        """The key. May wait ``COMMAND_S``, so not for an event loop; raises ``ConfigError``."""
        with self._lock:  # sub-agents ask at the same time
            if not self.at_hand:
                self._stopped = False
                self._credentials.learn(self._provider, self._asked())
            return self._credentials.known[self._provider]

    def renew(self, refused: str) -> bool:
        """The command is asked again, unless that has happened since ``refused`` was had."""
        with self._lock:
            if self._credentials.known.get(self._provider) == refused:
                del self._credentials.known[self._provider]
        return True

    def stop(self) -> None:
        """End a ``get`` that waits in another thread."""
        import signal

        self._stopped = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _asked(self) -> str:
        import subprocess

        seen = {name: text for name, text in os.environ.items() if name not in self._withheld}
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                ["/bin/sh", "-c", self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**_outside(seen), **self._variables},
                start_new_session=True,
            )
        except OSError as error:
            raise self._failed(f"cannot be run: {error.strerror}") from error
        self._process = process
        timer = threading.Timer(COMMAND_S, self.stop)
        timer.daemon = True
        timer.start()
        try:
            with process:
                printed = process.stdout.read(_MAX_PRINTED + 1) if process.stdout else b""
                if len(printed) > _MAX_PRINTED:
                    self.stop()
                code = process.wait()
        finally:
            timer.cancel()
        if len(printed) > _MAX_PRINTED:
            raise self._failed("printed more than a key")
        if self._stopped:
            raise self._failed(f"did not end within {COMMAND_S:g} s")
        if code != 0:
            raise self._failed(f"failed (exit code {code})")
        key = printed.decode("utf-8", "replace").strip()
        if not key:
            raise self._failed("printed nothing")
        return key

    def _failed(self, what: str) -> ConfigError:
        return ConfigError(
            f"{self._label} {what}",
            "run it in a shell to see why; nothing else may be on its standard output",
        )


def command_keys(
    paths: Paths,
    stored: Credentials | None,
    providers: dict[str, ProviderConfig],
    commands: Mapping[str, str],
) -> Credentials:
    """Give each provider in ``commands`` the key that its command prints."""
    stored = stored or Credentials(paths)
    for name, command in commands.items():
        providers[name] = replace(providers[name], stored=CommandKey(stored, name, command))
    return stored


def _outside(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` with no program of the workspace on its PATH (SEC-2)."""
    kept = {name: value for name, value in env.items() if name not in {"PWD", "OLDPWD"}}
    roots = _workspace_roots(env.get("HOME", ""))
    kept["PATH"] = os.pathsep.join(
        each
        for each in env.get("PATH", os.defpath).split(os.pathsep)
        if Path(each).is_absolute()
        and not any(Path(os.path.realpath(each)).is_relative_to(root) for root in roots)
    )
    return kept


def _workspace_roots(home: str) -> list[Path]:
    """The working directory and the repository around it; not what the home lies in."""
    try:
        here = Path.cwd().resolve()
    except OSError:
        return []
    around = next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
    own = Path(os.path.realpath(home)) if home else Path("/")
    return [root for root in {here, around} if not own.is_relative_to(root)]
