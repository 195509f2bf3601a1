"""What a batch adds to each of its tasks, and how much memory one of 10,000 takes (SCALE-2).

Run: python -m tests.bench.bench_batch [TASKS]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.measure import environment, fresh_home, service
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT

MANY = 10_000
# the parent alone: its tasks end at once, each with an answer of 2 kB
_PARENT = """
import asyncio, json, re, sys, time
from pathlib import Path
from agentcli.domain.cancel import CancelToken
from agentcli.fleet.batch import Batch, BatchPlan
from agentcli.fleet.engine import TaskResult
from agentcli.fleet.limits import Purse
from agentcli.fleet.report import BatchProgress, write_report
from agentcli.fleet.results import Journal
from agentcli.fleet.tasks import TasksFile, read_tasks

class Nothing:
    async def run(self, call, cancel):
        end = {"type": "result", "result": "x" * 2000, "total_cost_usd": 0.01, "num_turns": 1}
        return TaskResult(0, end, duration_ms=1)
    async def aclose(self): pass

base = Path(sys.argv[1])
tasks = read_tasks(TasksFile((base / "tasks.jsonl").read_bytes(), "tasks.jsonl", base))
journal = Journal.open(base / "out")
plan = BatchPlan(tasks, 8)
async def main():
    await Batch(plan, journal, Nothing(), BatchProgress(plan, lambda _: None), Purse(None)).run()
began = time.monotonic()
asyncio.run(main())
write_report(journal, tasks, lambda _: None, str)
status = Path("/proc/self/status").read_text()  # its own: getrusage has its parent's, too
peak = int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024
print(json.dumps([peak, (time.monotonic() - began) / len(tasks)]))
"""


def rows(count: int = 60) -> Iterator[Row]:
    """The figures of batches; about ``count`` tasks are run, and as many runs alone."""
    with fresh_home() as home, service(8) as port:
        env = environment(home, port)
        each = max(count // 3, 1)
        alone, first, whole = 0.0, 0.0, 0.0
        for turn in range(3):
            began = time.monotonic()
            for _ in range(each):
                _run([*AGENT, "run", "-o", "json", "hello"], env, home)
            alone += time.monotonic() - began
            first += _batch_s(1, f"one{turn}", env, home)
            whole += _batch_s(1 + each, f"many{turn}", env, home)
        alone_s, each_s = alone / (3 * each), (whole - first) / (3 * each)
        yield Row("agent batch -j 1, one more task / agent run", each_s, "s", alone_s, 1.1)
        yield Row("agent batch of one task / agent run", first / 3, "s", alone_s)
        tasks = [{"id": f"t{number}", "prompt": "hello " * 50} for number in range(MANY)]
        (home / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
        found = _run([sys.executable, "-c", _PARENT, str(home)], env, home)
        peak_mb, step_s = json.loads(found)
        yield Row(f"agent batch, peak memory with {MANY:,} tasks", peak_mb, "MB", target=150)
        yield Row("agent batch, the parent's own time for a task", step_s, "s")


def _batch_s(count: int, out: str, env: dict[str, str], home: Path) -> float:
    tasks = [{"id": f"t{number}", "prompt": "hello"} for number in range(count)]
    (home / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    began = time.monotonic()
    _run([*AGENT, "batch", "tasks.jsonl", "-j", "1", "-o", out], env, home)
    return time.monotonic() - began


def _run(argv: list[str], env: dict[str, str], home: Path) -> str:
    done = subprocess.run(argv, env=env, cwd=home, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
