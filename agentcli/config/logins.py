"""Logins to servers: a file each, 0600, or the OS keyring and a file that says so (SEC-9, MCP-5).

Laws: a login is changed under a lock that all processes heed and the kernel releases; a change is
whole or not at all; what the keyring does not take within its time goes into the file, since a
token that was given and is lost cannot be had again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentcli.config.credentials import READ_S, KeyringCall, KeyringError, read_private
from agentcli.config.paths import Paths, ensure_dir, write
from agentcli.domain.errors import ConfigError
from agentcli.domain.secrecy import is_secret

LOCK_S = 60.0
_POLL_S = 0.02
_VERSION = 1


class LoginVault:
    """The logins of one home, by the address of the server. Everything blocks.

    ``watch`` is told each secret that becomes known.
    """

    def __init__(self, paths: Paths, watch: Callable[[Iterable[str]], None]) -> None:
        self._paths = paths
        self._watch = watch

    def read(self, key: str) -> Mapping[str, Any] | None:
        """What was kept for ``key``. Raises ``ConfigError``."""
        file = self._file(key)
        try:
            text = read_private(file)
            document = None if text is None else json.loads(text)
            if document is None:
                return None
            if document.get("in") == "keyring":
                document = json.loads(self._asked(key, "get") or "{}")
            record = document["login"] if document else None
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}", "check it") from error
        except KeyringError as error:
            what = f"the login cannot be read from the keyring: {error}"
            raise ConfigError(what, "unlock it, then try again") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ConfigError(f"{file} is damaged", "remove it, then log in again") from None
        if not isinstance(record, dict):
            return None
        client = record.get("client")
        texts = (*record.values(), *(client.values() if isinstance(client, dict) else ()))
        self._watch([each for each in texts if isinstance(each, str) and is_secret(each)])
        return record

    def write(self, key: str, record: Mapping[str, Any], secrets: Iterable[str]) -> str:
        """Keep ``record``; why it is not in the keyring, or an empty text.

        Raises ``ConfigError``.
        """
        self._watch([each for each in secrets if is_secret(each)])
        whole = json.dumps({"version": _VERSION, "server": key, "login": record}, default=str)
        why, text = "", json.dumps({"version": _VERSION, "server": key, "in": "keyring"})
        try:
            self._asked(key, "set", whole)
        except KeyringError as error:
            why, text = str(error), whole
        ensure_dir(self._file(key).parent)
        write(self._file(key), text + "\n")
        return why

    def remove(self, key: str) -> bool:
        """Forget the login; false when there was none. Raises ``ConfigError``."""
        file = self._file(key)
        if not os.path.lexists(file):
            return False
        with contextlib.suppress(KeyringError, OSError, ValueError):
            if "keyring" in (read_private(file) or ""):
                self._asked(key, "delete")
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            what = f"cannot remove {file}: {error.strerror}"
            raise ConfigError(what, "remove it yourself") from error
        return True

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Nobody else changes the login meanwhile. Raises ``ConfigError`` after ``LOCK_S``."""
        import fcntl

        file = self._file(key).with_suffix(".lock")
        ensure_dir(file.parent)
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            what = f"cannot open {file}: {error.strerror}"
            raise ConfigError(what, "check the directory") from error
        try:
            until = time.monotonic() + LOCK_S
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        what = "another process has been at the same login for a minute"
                        raise ConfigError(what, f"end it, or remove {file}") from None
                    time.sleep(_POLL_S)
            yield
        finally:
            os.close(handle)

    def _file(self, key: str) -> Path:
        name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return self._paths.logins_dir / f"{name}.json"

    def _asked(self, key: str, do: str, text: str = "") -> str:
        service = f"agentcli {self._paths.config_dir}"  # two homes do not share their logins
        question = {"do": do, "service": service, "user": f"mcp {key}", "key": text}
        return KeyringCall(question, READ_S).result()
