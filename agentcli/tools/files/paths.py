r"""Paths that a model gives: made absolute, judged resolved, shown so that they can be typed back.

Law: what ``paths()`` tells the policy and what ``run`` opens come from the same functions
here, ``resolve`` (every link followed) and ``resolve_entry`` (the last component is the entry
itself, for deleting a link). ``run`` gets them by ``located``, which refuses what is not the
path that was judged (SEC-5). Names that are no clean text are shown with ``\xNN`` escapes, and
such an escaped name is understood when no file of that literal name exists.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from agentcli.domain.files import is_directory, lstat_of, opened_directory
from agentcli.domain.tools import ToolContext, Workspace
from agentcli.domain.values import frozen
from agentcli.tools.common.base import escaped, one_line

_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})|\\([nrt\\])")
_NAMED_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\"}
_MAX_NAMES_COMPARED = 5_000
_MAX_NEAR = 3


@frozen
class JudgedContext(ToolContext):
    """Of a call that opens files: those that the policy has judged."""

    judged: tuple[Path, ...] | None


@frozen
class FinderContext(JudgedContext):
    """Of a call that finds files by itself; ``kept_back`` are those that a rule is about."""

    kept_back: Callable[[Path], bool] | None


class FileProblem(Exception):
    """An expected failure with a file; the text is for the model: what happened, what to do."""


def resolve(workspace: Workspace, path: str) -> Path:
    """``path`` as the file that it means: absolute, all links followed (SEC-5).

    Raises ``FileProblem`` for what can be no path and when a relative path has no directory
    to start from.
    """
    return _real(_absolute(workspace, path))


def resolve_entry(workspace: Workspace, path: str) -> Path:
    """Like ``resolve``, but a link in the last component stands for itself."""
    absolute = _absolute(workspace, path)
    if absolute.name in {"", ".", ".."} or path.endswith("/"):
        return _real(absolute)
    return _real(absolute.parent) / absolute.name


def located(path: str, ctx: JudgedContext) -> Path:
    """``resolve`` at the moment of use: the very path that the policy judged, or a problem."""
    return require_judged(resolve(ctx.workspace, path), path, ctx)


def located_entry(path: str, ctx: JudgedContext) -> Path:
    """``resolve_entry`` at the moment of use."""
    return require_judged(resolve_entry(ctx.workspace, path), path, ctx)


def require_judged(real: Path, path: str, ctx: JudgedContext) -> Path:
    """``real``, which ``path`` means now, if it was judged (SEC-5); raises ``FileProblem``."""
    if ctx.judged is not None and real not in ctx.judged:
        raise changed_meanwhile(one_line(path), real, ctx.workspace)
    return real


def changed_meanwhile(name: str, real: Path, workspace: Workspace) -> FileProblem:
    """The problem that ``name`` has come to mean ``real`` since it was judged."""
    return FileProblem(
        f"{name} was changed while it was being judged: it now leads to {shown(real, workspace)}. "
        "Nothing was done. Repeat the call if that is meant."
    )


def shown(path: Path, workspace: Workspace) -> str:
    """``path`` for the user or a model: relative where it lies in ``cwd``, on one line."""
    for base in (workspace.cwd, _real(workspace.cwd)):
        if path.is_relative_to(base):
            return escaped(str(path.relative_to(base)))
    return escaped(str(path))


def not_found(path: Path, workspace: Workspace) -> FileProblem:
    """The problem that ``path`` does not exist, with near names."""
    name = shown(path, workspace)
    parent = path.parent
    if not is_directory(parent):
        if _stands(parent):
            return FileProblem(f"{name}: {shown(parent, workspace)} is a file, not a directory.")
        return FileProblem(
            f"{name} does not exist, nor does its directory. Use list_directory or glob_files."
        )
    near = _near_names(path)
    if near:
        names = ", ".join(shown(parent / other, workspace) for other in near)
        return FileProblem(f"{name} does not exist. Did you mean {names}?")
    return FileProblem(f"{name} does not exist. Use list_directory or glob_files to find it.")


_ADVICE = {
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "no space is left on the device; the file is as it was",
    errno.EDQUOT: "the disk quota is used up; the file is as it was",
    errno.ELOOP: "its symbolic links go in a circle, or were changed just now",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "it is a directory",
}


def os_problem(error: OSError, action: str, name: str) -> FileProblem:
    """``error`` in words: "Cannot write a.py: permission denied."."""
    reason = _ADVICE.get(error.errno or 0) or error.strerror or str(error)
    return FileProblem(f"Cannot {action} {name}: {reason}.")


def _require_encodable(path: str) -> None:
    """A name that the system, or this process in its locale (LC_ALL=C), has no bytes for."""
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise FileProblem("The path contains characters that no file name can have.") from None
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        raise FileProblem(
            f"{one_line(path)} cannot be named here: the locale's encoding is {encoding}. The user"
            " can start agentcli with PYTHONUTF8=1, or use bash."
        ) from None


def _absolute(workspace: Workspace, path: str) -> Path:
    if not path.strip():
        raise FileProblem("The path is empty.")
    if "\0" in path:
        raise FileProblem("The path contains a NUL character.")
    if path.startswith("file://"):
        raise FileProblem(f"{one_line(path)} is a URL: give the plain path, without file://.")
    _require_encodable(path)
    try:
        absolute = workspace.resolve(path)
    except RuntimeError:
        raise FileProblem(f"{one_line(path)}: there is no such home directory.") from None
    # only a path that hangs on the working directory needs it to be there
    if absolute.is_relative_to(workspace.cwd) and not Path(path).is_absolute():
        _require_cwd(workspace)
    if "\\" in path and not os.path.lexists(absolute):
        literal = Path(os.fsdecode(_ESCAPE.sub(_unescape, os.fsencode(absolute))))
        if "\0" not in str(literal) and os.path.lexists(literal):
            return literal
    return absolute


def _require_cwd(workspace: Workspace) -> None:
    if not workspace.cwd.is_dir():
        raise FileProblem(
            f"The working directory {escaped(str(workspace.cwd))} no longer exists. "
            "Use absolute paths, or ask the user to start in another directory."
        )


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except OSError as error:
        if error.errno == errno.EINVAL:  # what was a link is none any more
            raise FileProblem(
                f"{escaped(str(path))} was changed while it was being judged. Repeat the call."
            ) from error
        raise os_problem(error, "resolve", escaped(str(path))) from error


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes([int(match[1], 16)])
    return _NAMED_ESCAPES[match[2]]


def _stands(path: Path) -> bool:
    try:
        lstat_of(path)
    except (OSError, ValueError):
        return False
    return True


def _near_names(path: Path) -> list[str]:
    try:
        with opened_directory(path.parent) as directory, os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MAX_NAMES_COMPARED)]
    except OSError:
        return []
    same = [name for name in names if name.casefold() == path.name.casefold()]
    close = difflib.get_close_matches(path.name, names, n=_MAX_NEAR, cutoff=0.6)
    return list(dict.fromkeys(same + close))[:_MAX_NEAR]
