"""Start-up, one-line answers and long replies against the floor (``bare.py``).

Run: python -m tests.bench.bench_startup [RUNS]
"""

from __future__ import annotations

import itertools
import sys

from tests.bench.measure import (
    HERE,
    Sample,
    environment,
    fresh_home,
    in_turn,
    median,
    run_once,
    service,
)

AGENT = [sys.executable, "-m", "agentcli"]
_numbers = itertools.count()


def row(name: str, value: float, base: float, target: float, unit: str) -> None:
    ratio = value / base
    mark = "ok" if ratio <= target else "OVER"
    print(
        f"{name:44} {value:9.3f} {base:9.3f} {unit:3} {ratio:6.2f}x  target {target:.1f}x  {mark}"
    )


def compare(chunks: int, runs: int, *, tty: bool = False) -> tuple[list[Sample], list[Sample]]:
    """The same reply by the agent and by the floor, in turn."""
    with service(chunks) as port, fresh_home() as home:
        env = environment(home, port)
        url = f"http://127.0.0.1:{port}"

        def bare() -> Sample:
            db = home / f"bare{next(_numbers)}.db"
            argv = [sys.executable, str(HERE / "bare.py"), url, str(db)]
            return run_once(argv, env, port=port, tty=tty)

        def agent() -> Sample:
            return run_once([*AGENT, "run", "hi"], env, port=port, tty=tty)

        samples = in_turn(runs, agent=agent, bare=bare)
    return samples["agent"], samples["bare"]


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    print(f"{'':44} {'agent':>9} {'base':>9}      ratio")
    with fresh_home() as home:
        env = environment(home, 0)
        samples = in_turn(
            runs,
            version=lambda: run_once([*AGENT, "--version"], env),
            nothing=lambda: run_once([sys.executable, "-c", "pass"], env),
            chat=lambda: run_once([sys.executable, "-c", CHAT], env),
            chat_floor=lambda: run_once([sys.executable, "-c", CHAT_FLOOR], env),
        )
    wall = {name: median(found, "wall_s") for name, found in samples.items()}
    row("agent --version / python -c pass", wall["version"], wall["nothing"], 4.0, "s")
    row("chat imports / prompt-toolkit, rich, httpx", wall["chat"], wall["chat_floor"], 1.3, "s")
    agent, bare = compare(8, runs)
    row("run: exec to request", median(agent, "arrival_s"), median(bare, "arrival_s"), 1.5, "s")
    row("run: exec to exit, short reply", median(agent, "wall_s"), median(bare, "wall_s"), 1.6, "s")
    row("run: peak memory", median(agent, "peak_mb"), median(bare, "peak_mb"), 1.6, "MB")
    agent, bare = compare(20_000, runs)
    row("run: 20,000 chunks to a pipe", median(agent, "wall_s"), median(bare, "wall_s"), 1.4, "s")
    agent, bare = compare(20_000, max(3, runs // 3), tty=True)
    row(
        "run: 20,000 chunks to a terminal",
        median(agent, "wall_s"),
        median(bare, "wall_s"),
        3.0,
        "s",
    )


CHAT_FLOOR = (
    "import sys; sys.modules['httpx._main'] = None\nimport prompt_toolkit, rich.console, httpx"
)
CHAT = (
    "import sys; sys.modules['httpx._main'] = None\n"
    "import prompt_toolkit, rich.console, httpx\n"
    "import agentcli.cli.main, agentcli.app.compose"
)

if __name__ == "__main__":
    main()
