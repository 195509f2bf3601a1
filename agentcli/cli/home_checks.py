"""What ``agent doctor`` looks at on disk (OPS-3): our directories, the sessions, what was left.

Law: as for ``checks``: nothing raises, nothing is changed, all is bounded; a session that was not
looked at is counted and said.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentcli.cli.checks import Finding, Status
from agentcli.config.paths import Paths

SESSIONS_S = 0.5
MAX_FILES = 20_000
MAX_PROOF_BYTES = 50_000_000  # a larger file takes longer to prove than the whole report may
_LOW_DISK_BYTES = 500_000_000
_NO_DISK_BYTES = 20_000_000
_MAX_TOLD = 20
_MAGIC = b"SQLite format 3\0"
_HEAD_BYTES = 100
_LARGEST_PAGE = 65_536


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
        detail = f"{copies} older {_of(copies, 'copy', 'copies')} of sessions, {size / 1e6:.1f} MB"
        findings.append(Finding("copies", Status.OK, f"{detail}, in {paths.sessions_dir}"))
    return findings


def check_sessions(paths: Paths) -> list[Finding]:
    """The integrity of the session files: each one's outline, and for a while their whole.

    Files whose outline is wrong are proved first, then the newest.
    """
    from agentcli.store.repair.check import check

    until = time.monotonic() + SESSIONS_S
    try:
        files = _session_files(paths.sessions_dir)
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


def _session_files(directory: Path) -> Mapping[Path, int]:
    """The newest files with their sizes, the newest first."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".db") and not entry.name.startswith("."):
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        found.append((status.st_mtime, Path(entry.path), status.st_size))
    except FileNotFoundError:
        return {}
    found.sort(key=lambda row: row[0], reverse=True)
    return {path: size for _, path, size in found}


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


def _of(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
