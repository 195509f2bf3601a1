"""A mark that only this installation can make, for approvals that a session file repeats.

Law: a session file may come from anybody (SECURITY.md), so an approval that it speaks of counts
only with our mark on what was approved. The key is random, 0600, and never leaves the machine; what
cannot be marked is simply not approved.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from agentcli.config.paths import ensure_dir
from agentcli.domain.errors import PersistenceError

_KEY_BYTES = 32


def seal(key_file: Path, text: str) -> str:
    """The mark of ``text`` in hexadecimal; empty where there can be no key. Blocks."""
    key = _key(key_file) or _new_key(key_file)
    if len(key) != _KEY_BYTES:
        return ""
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def is_sealed(key_file: Path, text: str, mark: str) -> bool:
    """Whether ``mark`` is what ``seal`` gives for ``text``. Blocks."""
    own = seal(key_file, text)
    return bool(own) and hmac.compare_digest(own.encode(), mark.encode("utf-8", "replace"))


def _key(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return b""
        return file.read(_KEY_BYTES + 1)


def _new_key(path: Path) -> bytes:
    """A key that two processes agree on: the file appears complete, and only once."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        ensure_dir(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    except (OSError, PersistenceError):
        return b""
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return _key(path)
