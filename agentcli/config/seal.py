"""A mark that only this home can make, for what a session file says (SEC-16).

Law: a session file may come from anybody (SECURITY.md), so what could act in it counts only with
our mark. The key is random, 0600, beside our state: a home that moves takes it along. Without it,
nothing is marked, and nothing that was marked holds.
"""

from __future__ import annotations

import contextlib
import hmac
import os
from pathlib import Path

from agentcli.config.paths import ensure_dir
from agentcli.domain.errors import PersistenceError
from agentcli.domain.files import open_regular

_KEY_BYTES = 32


class HomeSeal:
    """Makes marks with the key in ``path``, which is read, or made, with the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = b""

    def __call__(self, text: str) -> str:
        """The mark of ``text`` in hexadecimal; empty where there can be no key. Blocks."""
        if not self._key:
            self._key = _key(self._path) or _new_key(self._path)
        if len(self._key) != _KEY_BYTES:
            return ""
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hex()


def _key(path: Path) -> bytes:
    try:
        with open_regular(path, os.O_NOFOLLOW) as file:
            is_own = os.fstat(file.fileno()).st_uid == os.geteuid()
            return file.read(_KEY_BYTES + 1) if is_own else b""
    except OSError:
        return b""


def _new_key(path: Path) -> bytes:
    """A key that two processes agree on: the file appears complete, and only once."""
    temporary = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    try:
        ensure_dir(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # whatever the umask
            file.write(os.urandom(_KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    except (OSError, PersistenceError):
        return b""
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return _key(path)
