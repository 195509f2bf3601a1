"""Start-up and one-line answers against the floor (``bare.py``), and the chat's first prompt.

Run: python -m tests.bench.bench_startup [RUNS]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.bench.bench_stream import compare
from tests.bench.measure import Sample, environment, fresh_home, in_turn, median, run_once
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT, PROMPT, FastTerminal

CHAT_FLOOR = "import prompt_toolkit, rich, httpx"


def rows(runs: int) -> Iterator[Row]:
    """The figures of starting."""
    with fresh_home() as home:
        env = environment(home, 0)

        def first_prompt() -> Sample:
            with FastTerminal([*AGENT, "--new"], env, home) as terminal:
                return Sample(terminal.wait(PROMPT) - terminal.began, None, 0.0)

        samples = in_turn(
            runs,
            version=lambda: run_once([*AGENT, "--version"], env),
            nothing=lambda: run_once([sys.executable, "-c", "pass"], env),
            chat=first_prompt,
            chat_floor=lambda: run_once([sys.executable, "-c", CHAT_FLOOR], env),
        )
    wall = {name: median(found, "wall_s") for name, found in samples.items()}
    yield Row("agent --version / python -c pass", wall["version"], "s", wall["nothing"], 2.0)
    yield Row("chat, exec to prompt / bare imports", wall["chat"], "s", wall["chat_floor"], 1.2)
    agent, bare = compare(8, runs)
    for name, field, unit, target in (
        ("agent run, exec to request / floor", "arrival_s", "s", 1.45),
        ("agent run, exec to exit, short reply / floor", "wall_s", "s", 1.3),
        ("agent run, peak memory / floor", "peak_mb", "MB", 1.6),
    ):
        yield Row(name, median(agent, field), unit, median(bare, field), target)
    yield Row("agent run, peak memory", median(agent, "peak_mb"), "MB", target=36)
    agent, bare = compare(8, runs, secure=True)
    for name, field, target in (
        ("agent run over https, exec to request / floor", "arrival_s", 1.45),
        ("agent run over https, exec to exit, short reply / floor", "wall_s", 1.3),
    ):
        yield Row(name, median(agent, field), "s", median(bare, field), target)
    agent, bare = compare(8, runs, "--delay", "0.5")
    ours, floor = (median(each, "wall_s") - 0.5 for each in (agent, bare))
    yield Row("agent run, beyond a 500 ms model / floor", ours, "s", floor, 1.3)
    agent, _ = compare(8, runs, "--shell")
    yield Row("agent run, peak memory with a shell step", median(agent, "peak_mb"), "MB", target=46)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
