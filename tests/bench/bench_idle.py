"""What an idle chat does: how often its process is woken, by /proc (Linux only).

Run: python -m tests.bench.bench_idle [SECONDS]
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.measure import environment, fresh_home
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT, PROMPT, FastTerminal

SECONDS = 10
SETTLE_S = 2.0


def switches(pid: int) -> int:
    """How often the threads of a process have given up the processor so far."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read_text(), re.MULTILINE)
        total += int(found[1]) if found else 0
    return total


def rows(seconds: int = SECONDS) -> Iterator[Row]:
    """Wake-ups in ``seconds`` of an idle chat: new, and after a turn."""
    if not Path("/proc/self/task").exists():
        return
    with fresh_home() as home:
        env = environment(home, 0) | {"ANTHROPIC_API_KEY": ""}
        with FastTerminal(
            [*AGENT, "--new", "-m", "offline/assistant", "--yolo"], env, home
        ) as terminal:
            terminal.wait(PROMPT)
            yield _row("idle chat", terminal, seconds)
            terminal.send(b"run sleep 0.1\r")
            terminal.wait(b"exit code 0")
            terminal.wait(PROMPT)
            yield _row("idle chat after a turn", terminal, seconds)


def _row(name: str, terminal: FastTerminal, seconds: int) -> Row:
    terminal.settle(SETTLE_S)
    before = switches(terminal.pid)
    time.sleep(seconds)
    return Row(f"wake-ups in {seconds} s: {name}", switches(terminal.pid) - before, "", target=0)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
