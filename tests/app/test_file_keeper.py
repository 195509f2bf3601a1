"""Snapshots around calls, also of calls beside each other: a real session file, real files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from agentcli.app.files.file_keeper import Keeper
from agentcli.domain.errors import PersistenceError
from agentcli.domain.messages import user_text
from agentcli.domain.rewind import FileChange, FileKind
from agentcli.domain.tools import Workspace
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import fresh


class Told:
    def __init__(self, root: Path, store: SqliteStore) -> None:
        self.lines: list[str] = []
        self.root, self.store = root, store
        workspace = Workspace(root, root)
        self.keeper = Keeper(
            store.rewinds, workspace, self.lines.append, lambda data: b"top-secret" in data
        )

    async def command(self, call_id: str) -> None:
        await self.keeper.begin(call_id, ())

    async def write(self, call_id: str, path: Path, text: str) -> None:
        await self.keeper.begin(call_id, (path,))
        path.write_text(text)
        await self.keeper.end(call_id)

    async def changes(self) -> list[tuple[str, bytes, bytes]]:
        found: Sequence[FileChange] = await self.store.rewinds.changes_since(0)
        return [(c.path.name, c.before.data, c.after.data if c.after else b"?") for c in found]


def keep(tmp_path: Path, body: Callable[[Told], Awaitable[None]]) -> None:
    async def run() -> None:
        root = tmp_path / "work"
        root.mkdir()
        store = fresh(tmp_path)
        await store.record_prompt(user_text("go"))
        try:
            await body(Told(root, store))
        finally:
            await store.aclose()

    asyncio.run(run())


@pytest.mark.spec("TT-1")
def test_of_calls_beside_each_other_each_change_is_kept_once_in_its_order(tmp_path: Path) -> None:
    async def body(it: Told) -> None:
        file = it.root / "a"
        file.write_text("1")
        await it.command("one")
        file.write_text("2")
        await it.command("two")
        file.write_text("3")
        await it.write("three", file, "4")
        file.write_text("5")
        await it.keeper.end("one")
        file.write_text("6")
        await it.keeper.end("two")
        file.write_text("7")  # nobody's
        steps = [("a", str(n).encode(), str(n + 1).encode()) for n in range(1, 6)]
        assert await it.changes() == steps

    keep(tmp_path, body)


@pytest.mark.spec("FAIL-5", "TT-1")
def test_a_call_that_changes_files_costs_two_commits_more_and_one_that_does_not_none(
    tmp_path: Path,
) -> None:
    async def body(it: Told) -> None:
        counts = []
        for text in ("one", "one"):
            before = it.store.commits
            await it.write("w", it.root / "a", text)
            counts.append(it.store.commits - before)
        for text in ("two", "two"):
            before = it.store.commits
            await it.command("c")
            (it.root / "a").write_text(text)
            await it.keeper.end("c")
            counts.append(it.store.commits - before)
        assert counts == [2, 2, 2, 0]

    keep(tmp_path, body)


@pytest.mark.spec("TT-1", "CAN-9")
def test_a_call_that_was_cancelled_before_it_ran_leaves_nothing(tmp_path: Path) -> None:
    async def body(it: Told) -> None:
        file = it.root / "a"
        file.write_text("1")
        for paths in ((file,), ()):
            for steps in range(12):
                task = asyncio.ensure_future(it.keeper.begin("x", paths))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
                await it.keeper.end("x")
        await it.keeper.settled()
        assert await it.changes() == []
        await it.command("one")
        file.write_text("2")
        await it.keeper.end("one")
        assert await it.changes() == [("a", b"1", b"2")]

    keep(tmp_path, body)


@pytest.mark.spec("FAIL-2", "TT-1")
def test_a_store_that_fails_holds_up_no_call_and_is_told_once(tmp_path: Path) -> None:
    class Broken:
        async def keep(self, *_: object) -> object:
            raise PersistenceError("disk full")

    class Worse:
        async def keep(self, *_: object) -> object:
            raise RuntimeError("a fault")

    async def body(it: Told) -> None:
        for store in (Broken(), Worse()):
            it.lines.clear()
            it.keeper.store = store  # type: ignore[assignment]
            for text in ("one", "two"):
                await it.write("w", it.root / "a", text)
            assert len(it.lines) == 1 and "could not be kept" in it.lines[0]

    keep(tmp_path, body)


@pytest.mark.spec("SEC-13", "TT-1")
def test_what_one_call_may_keep_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcli.app.files import file_keeper

    monkeypatch.setattr(file_keeper, "MAX_CALL_BYTES", 10)

    async def body(it: Told) -> None:
        paths = [it.root / name for name in "abc"]
        for path in paths:
            path.write_text("x" * 8)
        await it.keeper.begin("w", (*paths, paths[0]))
        paths[0].write_text("y")
        paths[2].write_text("y")
        await it.keeper.end("w")
        found = await it.store.rewinds.changes_since(0)
        kinds = [(c.path.name, c.before.kind) for c in found]
        assert kinds == [("a", FileKind.FILE), ("c", FileKind.UNKEPT)]
        assert any("too much at once" in line for line in it.lines)

    keep(tmp_path, body)


@pytest.mark.spec("TT-1", "SEC-9")
def test_a_call_that_changed_nothing_of_what_is_not_kept_leaves_nothing(tmp_path: Path) -> None:
    async def body(it: Told) -> None:
        file = it.root / "a"
        file.write_text("top-secret")
        await it.keeper.begin("w", (file,))
        await it.keeper.end("w")
        assert await it.changes() == []
        await it.write("w", file, "top-secret, changed")
        assert len(await it.changes()) == 1
        assert b"top-secret" not in it.store.path.read_bytes()

    keep(tmp_path, body)
