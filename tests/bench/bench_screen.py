"""The screen while an answer comes: key press to echo, bytes written, at 1,000 chunks a second.

Run: python -m tests.bench.bench_screen [KEYS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

from tests.bench.measure import environment, fresh_home
from tests.bench.table import Row, show
from tests.bench.terminal import PROMPT, FastTerminal

KEYS = 150
CHUNKS = 12_000
ROOT = Path(__file__).resolve().parents[2]
LETTERS = b"QXZJKVWHYU"
# what the words of the flood and the empty lines between its paragraphs come to
ANSWER_BYTES = sum(2 if n % 90 == 89 else 6 for n in range(CHUNKS))


def echo_ms(terminal: FastTerminal, keys: int) -> float:
    """The 95th percentile of the time from a key press to its echo."""
    took = []
    for number in range(keys):
        pause(terminal, 0.02 + number % 7 * 0.003)
        letter = LETTERS[number % 10 : number % 10 + 1]
        began = terminal.send(letter)
        took.append((terminal.wait(letter) - began) * 1000)
    return quantiles(took, n=20)[-1]


def pause(terminal: FastTerminal, seconds: float) -> None:
    """Read what comes meanwhile and forget it."""
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        terminal.drain(left)
    terminal.seen.clear()


def rows(keys: int = KEYS) -> Iterator[Row]:
    """Echoes idle and busy, and the bytes of a streamed answer."""
    with fresh_home() as home, tempfile.TemporaryDirectory() as work:
        env = {**environment(home, 0), "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
        argv = [sys.executable, "-m", "tests.repl.chat_program"]
        with FastTerminal(argv, env, Path(work)) as terminal:
            terminal.wait(PROMPT)
            idle = echo_ms(terminal, keys)
            terminal.send(b"\x15")
            terminal.settle()
            terminal.send(b"flood %d\r" % CHUNKS)
            terminal.wait(b"Working")
            busy = echo_ms(terminal, keys)
            yield Row("key to echo (95 %) while it streams / idle", busy, "ms", idle, 2)
            terminal.send(b"\x15")
            terminal.wait(b"The end")
            terminal.settle()
            terminal.send(b"flood %d\r" % CHUNKS)
            before = terminal.received
            terminal.wait(b"The end")
            written = terminal.received - before
            yield Row("bytes written for an answer / its own", written, "B", ANSWER_BYTES, 3)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else KEYS))
