"""Long replies: to a pipe and to the chat's Markdown, cost per chunk, memory.

Run: python -m tests.bench.bench_stream [RUNS]
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from tests.bench.measure import (
    HERE,
    Sample,
    environment,
    fresh_home,
    in_turn,
    median,
    reached,
    run_once,
)
from tests.bench.measure import service as model_service
from tests.bench.service import MARKDOWN_EVERY, chunk
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT, PROMPT, FastTerminal

_numbers = itertools.count()


def compare(
    chunks: int, runs: int, *options: str, secure: bool = False
) -> tuple[list[Sample], list[Sample]]:
    """The same reply by the agent and by the floor, to a pipe, in turn."""
    with fresh_home() as home, reached(home, chunks, *options, secure=secure) as (port, env):
        url = env["ANTHROPIC_BASE_URL"]

        def bare() -> Sample:
            db = home / f"bare{next(_numbers)}.db"
            return run_once([sys.executable, str(HERE / "bare.py"), url, str(db)], env, port=port)

        def agent() -> Sample:
            return run_once([*AGENT, "run", "--yolo", "hi"], env, port=port)

        samples = in_turn(runs, agent=agent, bare=bare)
    return samples["agent"], samples["bare"]


def _in_chat(runs: int, chunks: int) -> tuple[float, float]:
    """Seconds from exec to the end of the reply at a PTY: the chat, the floor."""
    chat, bare = [], []
    last_heading = f"Part {(chunks - 1) // MARKDOWN_EVERY}".encode()
    with model_service(chunks) as port, fresh_home() as home:
        env = environment(home, port)
        url = f"http://127.0.0.1:{port}"
        for _ in range(runs):
            with FastTerminal([*AGENT, "--new", "hi"], env, home) as terminal:
                terminal.wait(last_heading)
                chat.append(terminal.wait(PROMPT) - terminal.began)
            db = home / f"bare{next(_numbers)}.db"
            began = time.perf_counter()
            run_once([sys.executable, str(HERE / "bare.py"), url, str(db)], env, tty=True)
            bare.append(time.perf_counter() - began)
    return statistics.median(chat), statistics.median(bare)


def rows(runs: int) -> Iterator[Row]:
    """The figures of long replies."""
    agent, bare = compare(20_000, runs)
    wall = median(agent, "wall_s")
    yield Row("20,000 chunks to a pipe / floor", wall, "s", median(bare, "wall_s"), 1.0)
    chat, floor = _in_chat(runs, 20_000)
    yield Row("20,000 chunks as Markdown in the chat / floor", chat, "s", floor, 0.9)
    short_chat, short_floor = _in_chat(runs, MARKDOWN_EVERY + 1)
    name = "the same without the start of either"
    yield Row(name, chat - short_chat, "s", floor - short_floor, 1.0)
    yield from _growth(runs)


def _growth(runs: int) -> Iterator[Row]:
    """How cost and memory grow with the reply; in processor time, which neighbours blur less."""
    sizes = (8, 10_000, 100_000)
    with ExitStack() as stack:
        home = stack.enter_context(fresh_home())
        argv = [*AGENT, "run", "hi"]

        def runner(size: int) -> Callable[[], Sample]:
            port = stack.enter_context(model_service(size))
            env = environment(home, port)
            return lambda: run_once(argv, env, port=port)

        found = in_turn(runs, **{f"chunks_{size}": runner(size) for size in sizes})
    none, few, many = (found[f"chunks_{size}"] for size in sizes)
    start = median(none, "cpu_s")
    cost_few = (median(few, "cpu_s") - start) / 10_000 * 1e6
    cost_many = (median(many, "cpu_s") - start) / 100_000 * 1e6
    yield Row("cost per chunk, 100,000 / 10,000", cost_many, "us", cost_few, 1.2)
    floor_few, floor_many = (compare(size, runs)[1] for size in (8, 100_000))
    floor = median(floor_many, "peak_mb") - median(floor_few, "peak_mb")
    grown = median(many, "peak_mb") - median(none, "peak_mb")
    text_mb = sum(len(chunk(n)) for n in range(100_000)) / 2**20
    yield Row("memory growth at 100,000 chunks / text", grown, "MB", text_mb, 3.0)
    yield Row("memory growth at 100,000 chunks / floor's", grown, "MB", floor, 1.0)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
