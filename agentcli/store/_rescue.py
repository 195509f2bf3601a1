"""A recovery file beside a session that can no longer be written (FAIL-1)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from agentcli.store import _private
from agentcli.store._worker import Worker

TIMEOUT_S = 3.0


def recovery_path(session_path: Path) -> Path:
    """Where the rescued text of a session goes."""
    return session_path.with_suffix(".recovery.txt")


async def rescue(session_path: Path, text: str) -> str | None:
    """Append ``text`` to the recovery file, durably; its path, or ``None`` within 3 s."""
    path = recovery_path(session_path)
    worker = Worker(lambda: None)  # its thread ends with the job, however long a disk hangs
    saved = worker.submit(lambda: _append(path, text))
    await asyncio.wait({saved}, timeout=TIMEOUT_S)
    return saved.result() if saved.done() else None


def _append(path: Path, text: str) -> str | None:
    data = text.encode(errors="backslashreplace")
    if not data.endswith(b"\n"):
        data += b"\n"
    try:
        _private.ensure_directory(path.parent)
        descriptor = _private.open_or_create(path, os.O_APPEND)
    except OSError:
        return None
    before = os.fstat(descriptor).st_size
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        _withdraw(descriptor, path, before)
        return None
    finally:
        os.close(descriptor)
    return str(path)


def _withdraw(descriptor: int, path: Path, size: int) -> None:
    """Leave no half of a text behind: whoever gets no path shows the whole elsewhere."""
    try:
        os.ftruncate(descriptor, size)
        if size == 0:
            path.unlink()
    except OSError:
        return
