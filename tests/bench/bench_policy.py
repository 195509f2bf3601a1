"""What it costs to judge a shell command by its syntax (SEC-4).

Run: python -m tests.bench.bench_policy [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from agentcli.domain.tools import Workspace
from tests.bench.table import Row, show
from tests.support.reads import is_read_only

TYPICAL_TARGET_MS = 1.0
HUGE_TARGET_S = 1.0
TYPICAL = (
    "ls -la src",
    "grep -rn 'def main' . --include=*.py | head -20",
    "git diff --stat && sudo -u me rm -rf build",
    "cd sub && timeout 60 pytest -q tests 2>&1 | tail -5",
)
HUGE = {
    "1 MB of commands": "ls; " * 250_000,
    "1 MB of sudo": "sudo --x " * 111_111,
    "10,000 nested parentheses": "(" * 10_000 + "ls" + ")" * 10_000,
    "20,000 characters of faults": "`>=" * 6_666,
}


def rows(runs: int) -> Iterator[Row]:
    """Milliseconds for everyday commands, seconds for absurd ones; no answer is remembered."""
    here = Path.cwd()
    workspace = Workspace(here, here)
    is_read_only("ls", workspace)
    fresh = count()
    times = []
    for _ in range(max(runs, 1) * 5):
        for text in TYPICAL:
            times.append(_seconds(f"{text} # {next(fresh)}", workspace) * 1_000)
    name = "policy: a typical bash command judged"
    yield Row(name, statistics.median(times), "ms", target=TYPICAL_TARGET_MS)
    for name, text in HUGE.items():
        worst = max(_seconds(text, workspace) for _ in range(3))
        yield Row(f"policy: {name} judged", worst, "s", target=HUGE_TARGET_S)


def _seconds(text: str, workspace: Workspace) -> float:
    started = time.perf_counter()
    is_read_only(text, workspace)
    return time.perf_counter() - started


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
