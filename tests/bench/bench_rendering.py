"""What the chat does between a key or a chunk and the screen, without a terminal or a network.

Processor time, so that other work on the machine does not count.

Run: python -m tests.bench.bench_rendering [RUNS]
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator

from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.repl.choosing import Selection
from agentcli.repl.completion import PathList
from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.theme import Theme
from tests.bench.table import Row, show

FILES = 100_000
SESSIONS = 5_000
MARKDOWN_BYTES = 1_000_000
CHUNK = 4
TYPED = ("a", "app", "appconf", "usersess", "etaoin", "src/", "rep/comp", "zzz", "ttttt", "main.py")
WORDS = (
    "app main util config parser test widget render model view data service handler client server"
    " page index types auth user order payment report stream buffer cache session store queue task"
).split()
BLOCKS = (
    "# A heading with *emphasis*\n\n",
    "Some **bold text**, `code`, a [link](https://e.org/a), and\nit goes *on over\nthe end*.\n\n",
    "- an item\n  - one below it\n- [ ] a task\n\n",
    "1. first\n\n   ```sh\n   ls -l\n   ```\n2. second\n\n",
    "> a quote\n> > in a quote\n\n",
    '```python\ndef f(x: int) -> str:\n    """Doc."""\n    return f"{x}"  # done\n```\n\n',
    "| name | size |\n|:-----|-----:|\n| a.py | 120 |\n| 日本 | 7 |\n\n",
)


def _paths(generator: random.Random) -> list[str]:
    def word() -> str:
        return generator.choice(WORDS)

    return [
        "/".join(word() for _ in range(generator.randint(1, 6)))
        + f"/{word()}_{word()}{number}.{generator.choice(('py', 'ts', 'md'))}"
        for number in range(FILES)
    ]


def _slowest_key(paths: list[str]) -> float:
    """Milliseconds of the slowest key press, each letter typed on from the one before."""
    listed = PathList(paths)
    slowest = 0.0
    for typed in TYPED:
        listed.search("", 50)
        for end in range(1, len(typed) + 1):
            begun = time.thread_time()
            listed.search(typed[:end], 50)
            slowest = max(slowest, time.thread_time() - begun)
    return slowest * 1000


def _stream(text: str) -> float:
    """Seconds to render ``text`` in chunks of ``CHUNK`` characters."""
    stream = MarkdownStream(Theme(color=True, attributes=True, live=True), lambda: 80)
    begun = time.thread_time()
    for at in range(0, len(text), CHUNK):
        stream.feed(text[at : at + CHUNK])
    stream.finish()
    return time.thread_time() - begun


def _picker_key() -> float:
    """Milliseconds of the slowest letter typed over all sessions."""
    infos = [
        SessionInfo(
            f"{n:08x}", f"mend the parser number {n}", f"/home/me/project{n % 50}", 0.0, 0.0,
            SessionStatus.DONE, n % 9, "anthropic/claude",
        )
        for n in range(SESSIONS)
    ]  # fmt: skip
    selection = Selection(infos)
    slowest = 0.0
    for letter in "parser 12 project":
        begun = time.thread_time()
        selection.type(letter)
        selection.matches()
        slowest = max(slowest, time.thread_time() - begun)
    return slowest * 1000


def rows(runs: int) -> Iterator[Row]:
    """Medians of ``runs``."""
    paths = _paths(random.Random(1))
    key = statistics.median(_slowest_key(paths) for _ in range(runs))
    yield Row(f"slowest key of an @path in {FILES:,} files", key, "ms", target=50)
    unit = "".join(BLOCKS)
    text = unit * (MARKDOWN_BYTES // len(unit))
    whole, tenth = [], []
    for _ in range(runs):
        whole.append(_stream(text))
        tenth.append(_stream(unit * (MARKDOWN_BYTES // 10 // len(unit))) * 10)
    yield Row(
        f"1 MB of Markdown in {CHUNK}-byte chunks against ten times 100 KB",
        statistics.median(whole), "s", statistics.median(tenth), 1.3,
    )  # fmt: skip
    picker = statistics.median(_picker_key() for _ in range(runs))
    yield Row(f"slowest key of the picker over {SESSIONS:,} sessions", picker, "ms", target=50)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
