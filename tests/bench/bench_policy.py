"""What the policy costs: one decision about a command (SEC-3, SEC-4).

Run: python -m tests.bench.bench_policy [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agentcli.domain.settings import PermissionMode
from agentcli.domain.tools import Effect, ToolDefinition, Workspace
from agentcli.engine.approval import CallFacts, Policy, decide
from tests.bench.table import Row, show

TYPICAL_MS = 1.0
MEGABYTE_MS = 1_000.0
TOOL = ToolDefinition("bash", "bash", "", {"type": "object"}, Effect.EXEC, "shell")
MEGABYTES = {
    "one word": "echo " + "x" * 1_000_000,
    "a list": "rm x; " * 170_000,
    "words": "git diff " + "a " * 500_000,
    "10,000 parentheses": "(" * 10_000 + "make" + ")" * 10_000,
}


def rows(runs: int) -> Iterator[Row]:
    """Milliseconds for each decision; every typical command is a new one, parsed anew."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / ".git").mkdir()
        workspace = Workspace(root, root)
        policy = Policy.from_texts(
            PermissionMode.DEFAULT, ["bash(git diff *)", "bash(npm test *)"], ["bash(rm *)"]
        )

        def measured(command: str) -> float:
            facts = CallFacts(TOOL, {"command": command}, (), workspace)
            started = time.perf_counter()
            decide(facts, policy)
            return (time.perf_counter() - started) * 1_000

        measured("ls")
        times = [measured(f"cd . && git diff HEAD~{n} | head -{n}") for n in range(runs * 20)]
        yield Row("decision, a typical command", statistics.median(times), "ms", target=TYPICAL_MS)
        for name, command in MEGABYTES.items():
            yield Row(f"decision, 1 MB: {name}", measured(command), "ms", target=MEGABYTE_MS)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
