"""Directories deeper than Python calls itself, and than the longest path."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def deep_directory(top: Path, levels: int = 1_200, leaf: str = "leaf") -> Iterator[Path]:
    """``top``, in which ``d`` holds another ``d`` and so on; the last one holds a file ``leaf``.

    It is removed afterwards, which what clears up after tests cannot do.
    """
    top.mkdir(parents=True, exist_ok=True)
    handle = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open(leaf, os.O_WRONLY | os.O_CREAT, dir_fd=handle))
    os.close(handle)
    try:
        yield top
    finally:
        subprocess.run(["/bin/rm", "-rf", str(top / "d")], check=True)
