"""What SQLite and the system say, as one of our errors: the file, the cause, the way out."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from agentcli.domain.errors import PersistenceError, SessionDamaged, SessionTooNew, StoreError
from agentcli.store.codec import MalformedBody, NewerBody

_FREE_SPACE = "free some disk space, then continue the session"
_MAKE_WRITABLE = (
    "make the file and its directory writable, or set AGENTCLI_HOME to a directory that is"
)
_TRY_AGAIN = "close the other program that uses the file and try again"
_CHECK_DISK = "check the disk: it may be full, over quota or failing"

_SQLITE_CAUSES = (
    ("SQLITE_FULL", "the disk is full", _FREE_SPACE),
    ("SQLITE_READONLY", "it is read-only", _MAKE_WRITABLE),
    ("SQLITE_PERM", "permission denied", _MAKE_WRITABLE),
    ("SQLITE_AUTH", "permission denied", _MAKE_WRITABLE),
    ("SQLITE_CANTOPEN", "it cannot be opened", _MAKE_WRITABLE),
    ("SQLITE_BUSY", "it is locked", _TRY_AGAIN),
    ("SQLITE_LOCKED", "it is locked", _TRY_AGAIN),
    ("SQLITE_IOERR", "input/output error", _CHECK_DISK),
    ("SQLITE_NOMEM", "out of memory", "close other programs and try again"),
    ("SQLITE_TOOBIG", "a value is too large", "start a new session"),
)
_SYSTEM_CAUSES = {
    errno.ENOSPC: ("the disk is full", _FREE_SPACE),
    errno.EDQUOT: ("the disk quota is used up", _FREE_SPACE),
    errno.EFBIG: ("the file size limit is reached", "raise the limit (ulimit -f)"),
    errno.EROFS: ("the file system is read-only", _MAKE_WRITABLE),
    errno.EACCES: ("permission denied", _MAKE_WRITABLE),
    errno.EPERM: ("permission denied", _MAKE_WRITABLE),
    errno.EMFILE: ("too many open files", "raise the limit (ulimit -n)"),
    errno.ENFILE: ("too many open files", "raise the limit (ulimit -n)"),
    errno.ENAMETOOLONG: ("its path is too long", "set AGENTCLI_HOME to a shorter one"),
}
NOT_UTF_8 = "a text in it is not UTF-8 any more"
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_SCHEMA", "SQLITE_MISMATCH", "SQLITE_FORMAT")


def damaged(path: Path, cause: str) -> SessionDamaged:
    """The error for a file that is not readable as a session (REC-7)."""
    return SessionDamaged(
        f"session file {path} is damaged: {cause}", f"run: agent sessions repair {path.stem}"
    )


def too_new(path: Path, what: str) -> SessionTooNew:
    """The error for a file of a newer version; the file is left as it is."""
    return SessionTooNew(
        f"session file {path} was written by a newer version ({what})",
        "upgrade agentcli to open it",
    )


def fault(error: BaseException, path: Path, *, writing: bool) -> StoreError:
    """The error of ours that ``error`` amounts to; whatever it is, it becomes one (FAIL-4)."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, NewerBody):
        return too_new(path, str(error))
    if isinstance(error, MalformedBody | UnicodeDecodeError):
        return damaged(path, str(error) if isinstance(error, MalformedBody) else NOT_UTF_8)
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "")
        text = str(error)
        no_such = name == "SQLITE_ERROR" and "no such" in text
        if name == "SQLITE_TOOBIG" and not writing:
            return damaged(path, "a value in it is larger than any that is written")
        if "Could not decode" in text:
            text, no_such = NOT_UTF_8, True  # it has the whole text
        if text == "integer overflow":
            no_such = True  # a number in it is none that is written
        if name.startswith(_DAMAGE) or no_such:
            return damaged(path, text)
    cause, advice = _cause(error, path)
    verb = "write" if writing else "read"
    return PersistenceError(f"cannot {verb} session file {path}: {cause}", advice)


def _cause(error: BaseException, path: Path) -> tuple[str, str]:
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith("SQLITE_IOERR") and _is_full(path):
            name = "SQLITE_FULL"
        for prefix, cause, advice in _SQLITE_CAUSES:
            if name.startswith(prefix):
                return cause, advice
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        return _SYSTEM_CAUSES.get(error.errno or 0, (text, _CHECK_DISK))
    return f"{type(error).__name__}: {error}", "this is a fault of agentcli; please report it"


def _is_full(path: Path) -> bool:
    try:
        usage = os.statvfs(path.parent)
    except OSError:
        return False
    return usage.f_bavail == 0
