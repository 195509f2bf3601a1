"""Figures of very many sessions (SCALE-6): by hand, ``python -m tests.bench.bench_sessions [COUNT]``.

The files are links to a few, so that a hundred thousand fit anywhere; building their catalogue takes
some minutes. Targets are those of the contract.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentcli.domain.errors import SessionNotFound
from agentcli.repl.choosing import MAX_PICKED, Selection
from agentcli.store.files import SessionFiles, new_session_id
from tests.bench.bench_store import median_ms, timed
from tests.bench.table import Row, show
from tests.store.sessions import make

TEMPLATES = 100
ROUNDS = 5


def filled(root: Path, count: int) -> SessionFiles:
    """``count`` sessions of twenty directories, without a catalogue."""
    first = SessionFiles(root / "first", root / "unused.db")
    ids = [
        make(first, f"prompt about topic{n} of many", cwd=f"/work/{n % 20}")
        for n in range(TEMPLATES)
    ]
    files = SessionFiles(root / "sessions", root / "catalogue.db")
    files.directory.mkdir()
    for number in range(count):
        template = first.path_of(ids[number % TEMPLATES])
        os.link(template, files.path_of(new_session_id()))
    return files


def rows(count: int = 100_000) -> Iterator[Row]:
    """The figures, in a directory of its own."""
    root = Path(tempfile.mkdtemp())
    try:
        files = filled(root, count)
        sessions = f"of {count:,} sessions"

        async def look_up() -> None:
            with suppress(SessionNotFound):
                await files.resolve("no session has this name")

        yield Row(
            f"-c {sessions}, catalogue lost",
            timed(lambda: asyncio.run(files.latest("/work/3"))) * 1000,
            "ms",
        )
        yield Row(
            f"the catalogue {sessions} is built", timed(lambda: asyncio.run(files.list())), "s"
        )
        yield Row(
            f"texts {sessions} are indexed", timed(lambda: asyncio.run(files.refresh_index())), "s"
        )
        for name, work in (
            ("the newest 20", lambda: files.newest(20)),
            ("-c", lambda: files.latest("/work/3")),
            ("a name is looked up", look_up),
            ("search, few hits", lambda: files.search("topic7")),
            ("search, a hit in each", lambda: files.search("prompt")),
        ):
            value = median_ms(lambda work=work: timed(lambda: asyncio.run(work())), ROUNDS)  # type: ignore[misc]
            yield Row(f"{name} {sessions}", value, "ms", target=500)
            (files.directory / "another").touch()  # somebody has been there
            (files.directory / "another").unlink()
        selection = Selection(asyncio.run(files.newest(MAX_PICKED)))
        yield Row(
            f"a key in the picker {sessions}",
            max(timed(lambda key=key: selection.type(key)) for key in "topic 7 many") * 1000,  # type: ignore[misc]
            "ms",
            target=50,
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        yield Row(f"peak memory {sessions}", peak, "MB", target=150)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
