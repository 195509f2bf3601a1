"""What has changed below a directory, as Linux tells it: no look at every file for every question.

Laws: what is not certain counts as changed: a queue that ran over, too many directories, another
system, a file system on which others write unseen (a share, a mounted host). A change stays known
until the map has taken it up. https://man7.org/linux/man-pages/man7/inotify.7.html
"""

from __future__ import annotations

import os
import re
import struct
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentcli.codemap.index import IGNORE_FILES

MAX_WATCHED = 8_192
_EVENT = struct.Struct("iIII")
_MODIFIED, _ATTRIBUTES, _CLOSED, _MOVED, _CREATED, _DELETED = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
_SELF = 0x400 | 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_MASK = _MODIFIED | _ATTRIBUTES | _CLOSED | _MOVED | _CREATED | _DELETED | _SELF
_ONLY_DIRECTORIES = 0x01000000 | 0x02000000  # and no links
_NAMES_CHANGE = _MOVED | _CREATED | _DELETED | _SELF | _IGNORED
_READ_BYTES = 256 * 1024
_OCTAL = re.compile(r"\\(\d{3})")  # blanks and the like in the names of mounts
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs"})


class ChangeWatch:
    """The changes below ``root``; ``lock`` is held by one who takes them up."""

    def __init__(self, root: str) -> None:
        self.lock = threading.Lock()
        self._root = root
        self._handle = -1
        self._cannot = sys.platform != "linux"
        self._directories: dict[int, str] = {}
        self._seen: set[str] = set()

    def begin(self, directories: Sequence[str]) -> None:
        """Watch these, given relative to the root, from now on; what comes before is not known."""
        self.end()
        if self._cannot or len(directories) > MAX_WATCHED or not _is_local(self._root):
            self._cannot = True
            return
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        self._handle = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            self._cannot = True
            return
        self._close = weakref.finalize(self, os.close, self._handle)
        for path in directories:
            full = os.fsencode(f"{self._root}/{path}" if path else self._root)
            found = library.inotify_add_watch(self._handle, full, _MASK | _ONLY_DIRECTORIES)
            if found < 0:
                self._cannot = True
                self.end()
                return
            self._directories[found] = path

    def end(self) -> None:
        """Watch nothing: all may have changed."""
        if self._handle >= 0:
            self._close()
        self._handle = -1
        self._directories.clear()
        self._seen.clear()

    def seen(self) -> frozenset[str] | None:
        """Files and directories in which something has changed since ``taken``; ``None``: any."""
        if self._handle < 0:
            return None
        with suppress(BlockingIOError):
            while data := os.read(self._handle, _READ_BYTES):
                if not self._take(data):
                    self.end()
                    return None
        return frozenset(self._seen)

    def taken(self) -> None:
        """What was ``seen`` is known to the map."""
        self._seen.clear()

    def _take(self, data: bytes) -> bool:
        place = 0
        while place < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size
            name = os.fsdecode(data[place : place + length].rstrip(b"\0"))
            place += length
            directory = self._directories.get(number)
            if mask & _OVERFLOW or directory is None:
                return False
            if mask & _NAMES_CHANGE or name in IGNORE_FILES:
                self._seen.add(directory)
            if name:
                self._seen.add(f"{directory}/{name}" if directory else name)
        return True


def _is_local(root: str) -> bool:
    """Whether all who write below ``root`` go through this kernel."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    best, is_local = "", False
    for line in lines.splitlines():
        before, _, after = line.partition(" - ")
        named = before.split(" ")[4].rstrip("/")
        place = _OCTAL.sub(lambda found: chr(int(found[1], 8)), named)
        local = after.split(" ", 1)[0] in _LOCAL
        if place.startswith(f"{root}/") and not local:
            return False
        if (root == place or root.startswith(f"{place}/")) and len(place) >= len(best):
            best, is_local = place, local
    return is_local
