"""A process that puts a link in the place of a directory and back, as fast as it can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """
import ctypes, os, sys
one, other, spare = map(os.fsencode, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
exchange = getattr(libc, "renameat2", None)
def swap():
    if exchange is None or exchange(-100, one, -100, other, 2):
        os.rename(one, spare)
        os.rename(other, one)
        os.rename(spare, other)
swap()
swap()
print("ready", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100):
        swap()
"""


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """While the block runs, ``one`` and ``other`` change places without end."""
    arguments = [str(path) for path in (one, other, one.with_name("spare"))]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, *arguments], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()
