"""How much memory a process has held.

``ru_maxrss`` of a process begins with what its parent held when it was forked: of no use below a
test worker that has grown. On Linux the high-water mark of the address space begins with ``exec``.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak_kib(process: int | str = "self") -> int:
    """The most that a process has had resident since it was started, in KiB; of others on Linux."""
    if sys.platform == "linux":
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    unit = 1024 if sys.platform == "darwin" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


def children_peak_kib() -> int:
    """The most that one of its children has had."""
    unit = 1024 if sys.platform == "darwin" else 1
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // unit
