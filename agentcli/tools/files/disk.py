"""Files on disk: read as they are now, changed one by one atomically, together all or none.

Only regular files are read, bounded, never blocking (SEC-13). ::

    with Transaction(workspace, ledger) as change:  staged: temporary files written and synced
        change.write(path, data, before)            nothing visible yet
        change.delete(path, before)
        change.commit()                             renames; on a failure earlier ones are undone

Law: a path is opened without following a link (``domain.files``), so that one put in between the
judgement of the path and its use is refused (SEC-5). A file is known by a fingerprint of its
content; one that was read in this session and differs now is not changed unseen (TOOL-8). What is
replaced must be, at that moment, the very file (inode, size, time) whose content the change was
made from. New content has no name before it takes its place, where the system can do that; else
its name cannot be guessed and is gone when the ``with`` ends. What a kill leaves is in a journal,
by which the next start clears it away (``sweep``). A replaced file keeps its mode, its owner and
its extended attributes where the system lets it (TOOL-9).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from agentcli.domain.files import (
    directory_of,
    lstat_at,
    lstat_of,
    make_private_directory,
    open_at,
)
from agentcli.domain.tools import FileLedger, Workspace
from agentcli.tools.files.paths import FileProblem, not_found, os_problem, shown

MAX_WHOLE_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_ABSENT = "absent"
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE = 0o600
_NEW_FILE = 0o666  # less the umask
_MAX_UNNAMED = 64  # each holds a descriptor
_DESCRIPTORS = "/proc/self/fd/"
_COMMITTED = "committed"
_JOURNAL_ATTEMPTS = 3
_TEMPORARY_NAME = re.compile(r"\.agentcli-[0-9a-f]{16}\.(tmp|old)")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file as it was at one moment. ``data`` is ``None`` when it is too large."""

    path: Path
    info: os.stat_result
    data: bytes | None
    fingerprint: str


def kind_of(mode: int) -> str:
    """``a regular file``, ``a directory``, ``a named pipe`` and so on."""
    return next((name for test, name in _KINDS if test(mode)), "a regular file")


def human_size(size_bytes: int) -> str:
    """``512 bytes``, ``1.5 KB``, ``10.0 GB``."""
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024:  # noqa: PLR2004 - the size of the next unit
            return f"{size_bytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def look(path: Path, workspace: Workspace) -> os.stat_result | None:
    """What stands at the resolved ``path``, links not followed; ``None`` when there is nothing.

    Raises ``FileProblem`` when that cannot be told.
    """
    try:
        return lstat_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise os_problem(error, "look at", shown(path, workspace)) from error


@contextmanager
def opened(path: Path, workspace: Workspace) -> Iterator[int]:
    """A descriptor of the regular file at the resolved ``path``, for reading.

    Raises ``FileProblem`` for what is missing, forbidden or no regular file; a pipe or a device
    is not opened at all.
    """
    name = shown(path, workspace)
    try:
        if not path.name:
            raise IsADirectoryError(errno.EISDIR, "")
        with directory_of(path) as directory:
            before = lstat_at(path.name, directory)
            _require_regular(before, name)
            descriptor = open_at(path.name, directory)
    except (FileNotFoundError, NotADirectoryError):
        raise not_found(path, workspace) from None
    except OSError as error:
        raise os_problem(error, "open", name) from error
    try:
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
            raise FileProblem(f"{name} was replaced while it was being opened. Try again.")
        yield descriptor
    except OSError as error:
        raise os_problem(error, "read", name) from error
    finally:
        os.close(descriptor)


def _require_regular(info: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise FileProblem(f"{name} is a directory, not a file. Use list_directory to see inside.")
    if stat.S_ISLNK(info.st_mode):
        raise FileProblem(
            f"{name} is a symbolic link that goes in a circle or was put there just now."
        )
    if not stat.S_ISREG(info.st_mode):
        raise FileProblem(f"{name} is {kind_of(info.st_mode)}, not a file that can be read.")


def chunks(descriptor: int, limit: int | None = None) -> Iterator[bytes]:
    """The file's bytes from its beginning, ``limit`` of them at most."""
    position = 0
    while limit is None or position < limit:
        wanted = _CHUNK_BYTES if limit is None else min(_CHUNK_BYTES, limit - position)
        chunk = os.pread(descriptor, wanted, position)
        if not chunk:
            return
        position += len(chunk)
        yield chunk


def read_state(path: Path, workspace: Workspace) -> FoundFile:
    """The regular file at the resolved ``path`` with its content, if that is not too large."""
    with opened(path, workspace) as descriptor:
        info = os.fstat(descriptor)
        data = b"".join(chunks(descriptor, MAX_WHOLE_BYTES + 1))
    if len(data) > MAX_WHOLE_BYTES:
        return FoundFile(path, info, None, _stat_fingerprint(info))
    return FoundFile(path, info, data, fingerprint_of(data))


def state_if_any(path: Path, workspace: Workspace) -> FoundFile | None:
    """Like ``read_state``, but ``None`` when nothing is there."""
    return None if look(path, workspace) is None else read_state(path, workspace)


# --- what was seen of a file ---


def fingerprint_of(data: bytes) -> str:
    """What a file of this content is recorded as in the ledger."""
    if len(data) > MAX_WHOLE_BYTES:
        return ""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def fingerprint(descriptor: int) -> str:
    """The same for an open file, without holding its content; by its times when it is large."""
    info = os.fstat(descriptor)
    if info.st_size > MAX_WHOLE_BYTES:
        return _stat_fingerprint(info)
    digest, size = hashlib.sha256(), 0
    for chunk in chunks(descriptor, MAX_WHOLE_BYTES + 1):
        digest.update(chunk)
        size += len(chunk)
    return _stat_fingerprint(info) if size > MAX_WHOLE_BYTES else f"sha256:{digest.hexdigest()}"


def _stat_fingerprint(info: os.stat_result) -> str:
    return f"stat:{info.st_mtime_ns}:{info.st_size}:{info.st_ino}"


def note_seen(path: Path, state: FoundFile | None, ledger: FileLedger) -> None:
    """What stands at ``path`` was shown to the user, or that nothing does (``None``)."""
    mark = state.fingerprint if state is not None else _ABSENT
    if mark:
        ledger.seen.setdefault(path, mark)


def require_unchanged(state: FoundFile, ledger: FileLedger, workspace: Workspace) -> None:
    """Raises ``FileProblem`` when the file was seen in this session and differs now (TOOL-8)."""
    seen = ledger.seen.get(state.path)
    if seen == _ABSENT:
        name = shown(state.path, workspace)
        raise FileProblem(
            f"{name} did not exist when it was to be written and does now. Nothing was written. "
            "Read it with read_file first."
        )
    if seen is not None and seen != state.fingerprint:
        name = shown(state.path, workspace)
        raise FileProblem(
            f"{name} changed since it was last read in this session, by the user or a command. "
            "Nothing was written. Read it again with read_file, then repeat the change."
        )


# --- changes ---


@dataclass(slots=True)
class _Step:
    """One target: ``data`` to be there afterwards, or ``None`` for a deletion."""

    path: Path
    data: bytes | None
    before: FoundFile | os.stat_result | None
    mode: int | None
    temporary: str = ""
    backup: str = ""
    unnamed: int = -1  # a descriptor of the new content, which has no name yet
    in_place: bool = False
    done: bool = False
    info: os.stat_result | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.info = self.before.info if isinstance(self.before, FoundFile) else self.before


class Transaction:
    """A set of changes to different files; see the module. Blocking: run it in a thread."""

    def __init__(self, workspace: Workspace, ledger: FileLedger) -> None:
        self._workspace = workspace
        self._ledger = ledger
        self._steps: list[_Step] = []
        self._made: list[Path] = []
        self._committed = False
        self._journal = _Journal(workspace.journals)
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for step in self._steps:
            self._drop_unnamed(step)
            with suppress(OSError), directory_of(step.path) as directory:
                for name in (step.temporary, step.backup):
                    if name:
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=directory)
        if not self._committed:
            for made in reversed(self._made):
                with suppress(OSError), directory_of(made) as directory:
                    os.rmdir(made.name, dir_fd=directory)
        self._journal.end()

    def write(
        self,
        path: Path,
        data: bytes,
        before: FoundFile | os.stat_result | None,
        mode: int | None = None,
    ) -> None:
        """Stage ``data`` for the resolved ``path``, which is ``before`` now (``None``: absent).

        ``mode`` are permission bits that differ from those of ``before`` or of a new file.
        Raises ``FileProblem``.
        """
        step = _Step(path, data, before, mode)
        self._steps.append(step)
        self._attempt("write", step, lambda: self._stage(step))

    def delete(self, path: Path, before: FoundFile | os.stat_result) -> None:
        """Stage the deletion of the entry at ``path``; a link is deleted, not what it means."""
        step = _Step(path, None, before, None)
        self._steps.append(step)
        self._attempt("delete", step, lambda: self._check(step))

    def commit(self) -> None:
        """Make the staged changes visible; raises ``FileProblem`` with all of them undone."""
        keep_backups = len(self._steps) > 1
        try:
            for step in self._steps:
                verb = "write" if step.data is not None else "delete"
                self._attempt(verb, step, lambda step=step: self._apply(step, keep_backups))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        except BaseException:
            self._undo()
            raise
        self._committed = True
        self._journal.note(_COMMITTED)
        for step in self._steps:
            self._record(step)

    def _attempt(self, verb: str, step: _Step, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            raise os_problem(error, verb, shown(step.path, self._workspace)) from error

    def _stage(self, step: _Step) -> None:
        assert step.data is not None  # noqa: S101 - callers stage writes only
        with directory_of(step.path, self._made) as directory:
            self._check_at(step, directory)
            if step.info is not None and not _is_writable(step.path.name, directory):
                name = shown(step.path, self._workspace)
                raise FileProblem(f"{name} is read-only. Change its mode first if that is meant.")
            try:
                if len(self._steps) <= _MAX_UNNAMED:
                    step.unnamed = _open_unnamed(step, directory)
                if step.unnamed >= 0:
                    self._fill(step, step.unnamed, directory)
                else:
                    self._stage_named(step, directory)
            except PermissionError:
                if step.info is None or step.unnamed >= 0 or step.temporary:
                    raise
                step.in_place = True  # the file may be written although its directory may not

    def _stage_named(self, step: _Step, directory: int) -> None:
        temporary = self._name(step, ".tmp")
        mode = _NEW_FILE if step.info is None else _PRIVATE
        descriptor = os.open(temporary, _CREATE, mode, dir_fd=directory)
        step.temporary = temporary
        try:
            self._fill(step, descriptor, directory)
        finally:
            os.close(descriptor)

    def _fill(self, step: _Step, descriptor: int, directory: int) -> None:
        _write_all(descriptor, step.data or b"")
        _keep_attributes(descriptor, step, directory)
        os.fsync(descriptor)

    def _name(self, step: _Step, suffix: str) -> str:
        """A name beside the target that nobody can guess, noted before there is such a file."""
        name = f".agentcli-{secrets.token_hex(8)}{suffix}"
        self._journal.note([str(step.path), name])
        return name

    def _drop_unnamed(self, step: _Step) -> None:
        if step.unnamed >= 0:
            os.close(step.unnamed)
            step.unnamed = -1

    def _check(self, step: _Step) -> None:
        with directory_of(step.path) as directory:
            self._check_at(step, directory)

    def _check_at(self, step: _Step, directory: int) -> None:
        """The target must still be what the change was made from (SEC-5)."""
        name = shown(step.path, self._workspace)
        try:
            now = os.stat(step.path.name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            now = None
        if step.info is None:
            if now is not None:
                raise FileProblem(f"{name} has just been created by someone else. Read it first.")
            return
        if now is None or _identity(now) != _identity(step.info):
            raise FileProblem(
                f"{name} changed while the change was being made. Read it again and repeat."
            )

    def _apply(self, step: _Step, keep_backup: bool) -> None:  # noqa: FBT001 - private
        with directory_of(step.path) as directory:
            self._check_at(step, directory)
            name = step.path.name
            if step.in_place:
                self._overwrite(step, directory)
                return
            backup = self._name(step, ".old") if keep_backup else ""
            if step.data is not None:
                if keep_backup and step.info is not None and _link(name, backup, directory):
                    step.backup = backup
                self._place(step, directory)
            elif keep_backup:
                os.rename(name, backup, src_dir_fd=directory, dst_dir_fd=directory)
                step.backup = backup
            else:
                os.unlink(name, dir_fd=directory)
            step.done = True
            _sync_directory(directory)

    def _place(self, step: _Step, directory: int) -> None:
        name = step.path.name
        if step.unnamed >= 0:
            to = name if step.info is None else self._name(step, ".tmp")
            if _link_unnamed(step.unnamed, to, directory):
                if step.info is None:
                    return
                step.temporary = to
            else:
                self._stage_named(step, directory)
        if step.info is None and _link(step.temporary, name, directory):  # never clobbers
            return
        os.rename(step.temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        if step.info is not None and step.info.st_nlink > 1:
            other = step.info.st_nlink - 1
            self.notes.append(
                f"{shown(step.path, self._workspace)} had {other} more hard "
                f"link{'s' if other > 1 else ''}, which keep the old content."
            )

    def _overwrite(self, step: _Step, directory: int) -> None:
        """Write into the file itself: its directory admits no new entry. Not atomic, said so."""
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(step.path.name, flags, dir_fd=directory)
        try:
            step.done = True
            _write_all(descriptor, step.data or b"")
            os.ftruncate(descriptor, len(step.data or b""))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        name = shown(step.path, self._workspace)
        self.notes.append(f"{name} was written in place, since its directory is not writable.")

    def _undo(self) -> None:
        lost = []
        for step in reversed(self._steps):
            if step.done or step.backup:
                try:
                    with directory_of(step.path) as directory:
                        self._put_back(step, directory)
                except OSError:
                    lost.append(shown(step.path, self._workspace))
        if lost:
            raise FileProblem(
                f"The change failed and {', '.join(lost)} could not be put back. "
                "Tell the user to look at it."
            )

    def _put_back(self, step: _Step, directory: int) -> None:
        name = step.path.name
        if step.backup:
            backup, step.backup = step.backup, ""  # kept for the user should this fail
            os.rename(backup, name, src_dir_fd=directory, dst_dir_fd=directory)
            step.backup = backup  # two names of one file: the rename left both
        elif step.info is None:
            os.unlink(name, dir_fd=directory)
        elif isinstance(step.before, FoundFile) and step.before.data is not None:
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=directory)
            try:
                _write_all(descriptor, step.before.data)
                os.ftruncate(descriptor, len(step.before.data))
            finally:
                os.close(descriptor)

    def _record(self, step: _Step) -> None:
        mark = "" if step.data is None else fingerprint_of(step.data)
        if mark:
            self._ledger.seen[step.path] = mark
        else:
            self._ledger.seen.pop(step.path, None)


def _is_writable(name: str, directory: int) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(name, os.W_OK, dir_fd=directory, effective_ids=effective)


def _identity(info: os.stat_result) -> tuple[int, int, int, int, int]:
    kind = stat.S_IFMT(info.st_mode)
    return (kind, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _open_unnamed(step: _Step, directory: int) -> int:
    """A descriptor of a file without a name in ``directory``; -1 where there is no such thing."""
    flags = getattr(os, "O_TMPFILE", 0)
    if not flags:
        return -1
    mode = _NEW_FILE if step.info is None else _PRIVATE
    try:
        descriptor = os.open(".", flags | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=directory)
    except PermissionError:
        raise
    except OSError:
        return -1
    if os.path.exists(f"{_DESCRIPTORS}{descriptor}"):  # noqa: PTH110 - a link of the system
        return descriptor
    os.close(descriptor)
    return -1


def _link_unnamed(descriptor: int, name: str, directory: int) -> bool:
    """Give the file its name (https://man7.org/linux/man-pages/man2/open.2.html, O_TMPFILE)."""
    try:
        os.link(f"{_DESCRIPTORS}{descriptor}", name, dst_dir_fd=directory, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _link(source: str, target: str, directory: int) -> bool:
    """A second name for a file; ``False`` where the file system has none."""
    try:
        os.link(source, target, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _keep_attributes(descriptor: int, step: _Step, directory: int) -> None:
    if step.info is not None:
        mine = os.fstat(descriptor)
        mode = stat.S_IMODE(step.info.st_mode)
        if (mine.st_uid, mine.st_gid) != (step.info.st_uid, step.info.st_gid):
            try:
                os.fchown(descriptor, step.info.st_uid, step.info.st_gid)
            except OSError:
                mode &= ~(stat.S_ISUID | stat.S_ISGID)  # never lend another owner's rights
        _copy_extended_attributes(step.path.name, directory, descriptor)
        os.fchmod(descriptor, mode)
    if step.mode is not None:
        os.fchmod(descriptor, step.mode)


def _copy_extended_attributes(name: str, directory: int, descriptor: int) -> None:
    if not hasattr(os, "listxattr"):
        return
    with suppress(OSError):
        source = os.open(
            name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory
        )
        try:
            for attribute in os.listxattr(source):
                with suppress(OSError):
                    os.setxattr(descriptor, attribute, os.getxattr(source, attribute))
        finally:
            os.close(source)


def _sync_directory(directory: int) -> None:
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- what a kill leaves ----------------------------------------------------------------------

# Law: a name stands in a journal before there is such a file. A journal is locked by its process
# for as long as that lives, and removed by it. Failing to write one stops no change.


class _Journal:
    """The names of one transaction, a line of JSON each, in a file of ``directory``."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._path: Path | None = None
        self._descriptor = -1

    def note(self, line: object) -> None:
        """Add a line; the first one makes the file."""
        if self._directory is None or (line == _COMMITTED and self._descriptor < 0):
            return
        with suppress(OSError):
            if self._descriptor < 0:
                self._begin(self._directory)
            if self._descriptor >= 0:
                os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def _begin(self, directory: Path) -> None:
        make_private_directory(directory)
        for _ in range(_JOURNAL_ATTEMPTS):
            self._path = directory / secrets.token_hex(8)
            self._descriptor = os.open(self._path, _CREATE, _PRIVATE)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if os.fstat(self._descriptor).st_nlink:
                return
            os.close(self._descriptor)  # swept before it was locked
            self._descriptor = -1

    def end(self) -> None:
        """There is nothing left to be cleared away."""
        if self._descriptor >= 0:
            with suppress(OSError):
                (self._path or Path()).unlink()
            os.close(self._descriptor)
            self._descriptor = -1


def sweep(journals: Path) -> list[str]:
    """Clear away what killed processes left beside files they were changing; lines about it."""
    lines: list[str] = []
    for path in journals.iterdir():
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else its process lives
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    lines += _swept(file.read(_CHUNK_BYTES).splitlines())
                path.unlink()
            finally:
                os.close(descriptor)
    return lines


def _swept(notes: Sequence[bytes]) -> Iterator[str]:
    is_committed = json.dumps(_COMMITTED).encode() in notes
    for note in notes:
        try:
            target, name = map(str, json.loads(note))
        except ValueError:
            continue
        path = Path(target)
        if not path.is_absolute() or not _TEMPORARY_NAME.fullmatch(name):
            continue
        with suppress(OSError), directory_of(path) as directory:
            info = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISREG(info.st_mode):
                continue
            if name.endswith(".old") and not is_committed and not _is_there(path.name, directory):
                os.rename(name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
                yield f"a change that was killed had moved {path} away: it is back"
            else:
                os.unlink(name, dir_fd=directory)


def _is_there(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
