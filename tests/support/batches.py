"""What tests of batches share: tasks, what is left of them, their rows, a service with faults."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.model_server import ModelServer, Recorded
from tests.support.replies import Call, Reply, calls, fails, say

_NUMBER = re.compile(r"task number (\d+)\b")


def write_tasks(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """The rows of ``results.jsonl``."""
    return [json.loads(line) for line in (directory / "results.jsonl").read_text().splitlines()]


def processes_of(home: Path) -> list[int]:
    """Every process that works for this test's home, this one left out."""
    mark = f"AGENTCLI_HOME={home}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


class Service:
    """Answers numbered tasks: for some a command that leaves a mark, then the end; some fail.

    Numbers that ``command_each`` divides have a command, every ``fault_each`` th request fails.
    """

    def __init__(self, server: ModelServer, *, fault_each: int = 0, command_each: int = 1) -> None:
        self._command_each = command_each
        self._fault_each = fault_each
        self._asked = 0
        server.default = self._reply

    def _reply(self, request: Recorded) -> Reply:
        self._asked += 1
        if self._fault_each and not self._asked % self._fault_each:
            return fails(529, "overloaded")
        number = number_of(request)
        if len(request.messages) == 1 and not number % self._command_each:
            line = f"echo {number} >> marks-{number}.txt"
            return calls(Call("bash", {"command": line}, id=f"call_{number}_{self._asked}"))
        return say(f"done with {number}")


def answers_in(home: Path) -> Counter[str]:
    """How many answers without a call each session of this test's home holds."""
    found: Counter[str] = Counter()
    for path in (home / "agentcli" / "sessions").glob("*.db"):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT body FROM message WHERE role = 'assistant'").fetchall()
        found[path.stem] = sum("tool_call" not in body for (body,) in rows)
    return found


def number_of(request: Recorded) -> int:
    """Which task asks."""
    found = _NUMBER.search(json.dumps(request.messages[0]))
    assert found is not None
    return int(found[1])


def numbered_tasks(count: int) -> Sequence[dict[str, Any]]:
    return [
        {"id": f"t{number}", "prompt": f"this is task number {number}"} for number in range(count)
    ]
