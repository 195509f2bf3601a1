"""How long ``agent doctor`` takes in a home of hundreds of sessions (OPS-3).

Run: python -m tests.bench.bench_doctor [RUNS]
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

from agentcli.store.files import SessionFiles
from tests.bench.measure import environment, fresh_home, in_turn, median, run_once
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT
from tests.store.sessions import make

SESSIONS = 300
TARGET_S = 1.0


def rows(runs: int) -> Iterator[Row]:
    """The whole of it, with an address that answers."""
    with fresh_home() as home, socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        ours = home / "agentcli"
        files = SessionFiles(ours / "sessions", ours / "catalogue.db")
        for number in range(SESSIONS):
            make(files, f"prompt {number}")
        env = environment(home, server.getsockname()[1])
        samples = in_turn(runs, doctor=lambda: run_once([*AGENT, "doctor"], env))
    wall = median(samples["doctor"], "wall_s")
    yield Row(f"agent doctor, {SESSIONS} sessions", wall, "s", target=TARGET_S)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
