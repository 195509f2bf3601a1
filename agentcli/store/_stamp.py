"""What a session's files looked like from outside, to know whether they changed since."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SUFFIX = ".db"
WAL_SUFFIX = ".db-wal"


def stamp_of(path: Path) -> str:
    """Times and sizes of a session file and its write-ahead log; empty if there is no file."""
    try:
        main = _part(path.stat())
    except OSError:
        return ""
    return main + log_stamp_of(path)


def log_stamp_of(path: Path) -> str:
    """The part of ``stamp_of`` that is the write-ahead log; an empty log counts as none."""
    try:
        status = path.with_name(path.name + "-wal").stat()
    except OSError:
        return ""
    return _part(status) if status.st_size else ""


def stamps_in(directory: Path) -> Mapping[str, str]:
    """The stamp of every session file in ``directory``, by session id."""
    main: dict[str, str] = {}
    logs: dict[str, str] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                if name.endswith(SUFFIX):
                    main[name[: -len(SUFFIX)]] = _stat(entry)
                elif name.endswith(WAL_SUFFIX):
                    logs[name[: -len(WAL_SUFFIX)]] = _log_stat(entry)
    except FileNotFoundError:
        return {}
    return {name: stamp + logs.get(name, "") for name, stamp in main.items() if stamp}


def _stat(entry: os.DirEntry[str]) -> str:
    try:
        return _part(entry.stat())
    except OSError:
        return ""


def _log_stat(entry: os.DirEntry[str]) -> str:
    try:
        status = entry.stat()
    except OSError:
        return ""
    return _part(status) if status.st_size else ""


def _part(status: os.stat_result) -> str:
    return f"{status.st_ino}.{status.st_mtime_ns}.{status.st_size};"
