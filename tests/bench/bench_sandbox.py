"""What the sandbox adds to a command: run by hand, ``python -m tests.bench.bench_sandbox [RUNS]``."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agentcli.domain.sandbox import Access
from agentcli.domain.tools import ToolContext, Workspace
from agentcli.process.run import end_processes
from agentcli.process.sandbox import SessionSandbox
from agentcli.process.sandbox_places import OwnPlaces
from agentcli.tools.bash import TOOL
from tests.bench.table import Row, show
from tests.support.tool_context import tool_context

ADDED_MS = {None: 25.0, Access.READ_ONLY: 8.0}
KINDS = ("bwrap", "landlock")


async def true_ms(ctx: ToolContext) -> float:
    """One ``true`` through the tool."""
    began = time.perf_counter()
    await TOOL.run(TOOL.parse({"command": "true"}), ctx)
    return (time.perf_counter() - began) * 1000


async def measure(root: Path, runs: int) -> Iterator[Row]:
    ctx = tool_context(root)
    rows = []
    for kind in KINDS:
        sandbox = SessionSandbox(Workspace(root, root), OwnPlaces, kind)
        try:
            if (await sandbox.begin()).is_on:
                plain: list[float] = []
                inside: dict[Access | None, list[float]] = {access: [] for access in ADDED_MS}
                for _ in range(runs + 2):  # in turn, so that all see the same machine
                    ctx.sandbox, ctx.access = None, None
                    plain.append(await true_ms(ctx))
                    for access, found in inside.items():
                        ctx.sandbox, ctx.access = sandbox, access
                        found.append(await true_ms(ctx))
                for access, found in inside.items():
                    added = statistics.median(found[2:]) - statistics.median(plain[2:])
                    name = f"`true` in {kind}{', read-only' if access else ''}, added"
                    rows.append(Row(name, added, "ms", target=ADDED_MS[access]))
        finally:
            await end_processes(grace_s=0.1)
            await sandbox.aclose()
    return iter(rows)


def rows(runs: int) -> Iterator[Row]:
    """A row for each sandbox that works on this machine."""
    with tempfile.TemporaryDirectory() as name:
        yield from asyncio.run(measure(Path(os.path.realpath(name)), runs))


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
