"""Five background runs: key press to echo and memory while they flood, the cost of heartbeats.

Run: python -m tests.bench.bench_background [KEYS]
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench_screen import KEYS, echo_ms
from tests.bench.measure import environment, fresh_home
from tests.bench.table import Row, show
from tests.bench.terminal import AGENT, PROMPT, FastTerminal
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.replies import Call, Reply

RUNS = 5
SILENT_S = 10
# ten megabytes a second
FLOOD = (
    f"{sys.executable} -c 'import os, time\n"
    'line = b"x" * 79 + b"\\n"\n'
    "while True: os.write(1, line * 6250); time.sleep(0.05)'"
)


def memory_mb(pid: int) -> float:
    """What a process has in memory now."""
    found = re.search(r"^VmRSS:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def processor_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spawn(command: str) -> Reply:
    """What makes the agent start ``RUNS`` runs."""
    arguments = {"tool": "bash", "args": {"command": command}, "title": "run"}
    return Reply(blocks=tuple(Call("spawn_background", arguments) for _ in range(RUNS)))


def rows(keys: int = KEYS) -> Iterator[Row]:
    """Echoes and memory beside floods, and what silent runs cost."""
    if not Path("/proc/self/stat").exists():
        return
    for name, command in (("floods", FLOOD), ("silence", "sleep 600")):
        with ModelServer([spawn(command), "Begun."]) as server, fresh_home() as home:
            env = environment(home, 0) | {
                "ANTHROPIC_API_KEY": "sk-bench",
                "ANTHROPIC_BASE_URL": server.base_url(ANTHROPIC),
                "TERM": "xterm-256color",
            }
            argv = [*AGENT, "--new", "--yolo", "--sandbox", "off"]
            argv += ["-m", "anthropic/claude-sonnet-4-5"]
            with FastTerminal(argv, env, home) as terminal:
                terminal.wait(PROMPT)
                yield from (_floods if name == "floods" else _silence)(terminal, keys)


def _floods(terminal: FastTerminal, keys: int) -> Iterator[Row]:
    idle = echo_ms(terminal, keys)
    terminal.send(b"\x15")
    terminal.settle()
    terminal.send(b"go\r")
    terminal.wait(b"Begun.")
    terminal.settle(2.0)
    before = memory_mb(terminal.pid)
    busy = echo_ms(terminal, keys)
    yield Row(f"key to echo (95 %) beside {RUNS} runs of 10 MB/s / idle", busy, "ms", idle, 2)
    grown = memory_mb(terminal.pid) - before
    yield Row("memory that they add while they print", max(grown, 0.0), "MB", target=5)


def _silence(terminal: FastTerminal, keys: int) -> Iterator[Row]:
    del keys
    terminal.send(b"go\r")
    terminal.wait(b"Begun.")
    terminal.settle(2.0)
    before, began = processor_s(terminal.pid), time.monotonic()
    time.sleep(SILENT_S)
    used = (processor_s(terminal.pid) - before) / (time.monotonic() - began)
    yield Row(f"processor for {RUNS} silent runs, of a core", used * 100, "%", target=1)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else KEYS))
