"""One writer per session, between real processes (REC-6)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionLocked
from agentcli.domain.session import SessionStatus
from agentcli.store.file import name_of
from agentcli.store.files import SessionFiles, read_session
from agentcli.store.lock import WriterLock, live_owner, lock_path
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import finished_session, fresh, now, text

OWNER = """
import asyncio, sys
from pathlib import Path
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import text
async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    await store.record_prompt(text("from the owner"))
    print("ready", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return asyncio.run(finished_session(tmp_path / "sessions"))


@pytest.fixture
def owner(path: Path) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.mark.spec("REC-6")
def test_a_session_of_a_live_process_is_refused_with_its_name(
    path: Path, owner: subprocess.Popen[str]
) -> None:
    with pytest.raises(SessionLocked, match=f"process {owner.pid} on ") as caught:
        asyncio.run(SqliteStore.open(path))
    assert "\n" not in str(caught.value)
    assert "--fork" in caught.value.advice


@pytest.mark.spec("REC-6")
def test_a_session_of_a_live_process_can_be_read_and_is_listed_as_running(
    path: Path, owner: subprocess.Popen[str]
) -> None:
    loaded = read_session(path)
    assert loaded.info.status is SessionStatus.RUNNING
    assert loaded.messages[-1].message == text("from the owner")
    files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")
    assert [info.status for info in now(files.list())] == [SessionStatus.RUNNING]
    with pytest.raises(SessionLocked):
        now(files.delete(path.stem))


@pytest.mark.spec("REC-6", "REC-1")
def test_a_dead_owner_never_blocks_and_its_turn_counts_as_crashed(
    path: Path, owner: subprocess.Popen[str]
) -> None:
    files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")
    assert now(files.list())[0].status is SessionStatus.RUNNING
    owner.kill()
    owner.wait()
    assert lock_path(path).exists()
    assert live_owner(path) is None
    assert now(files.list())[0].status is SessionStatus.CRASHED
    assert read_session(path).info.status is SessionStatus.CRASHED

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        assert (await store.load()).info.status is SessionStatus.CRASHED
        await store.record_prompt(text("mine now"))
        assert (await store.load()).info.status is SessionStatus.RUNNING
        await store.aclose()

    asyncio.run(scenario())
    assert not lock_path(path).exists()


def test_one_process_cannot_open_a_session_for_writing_twice(path: Path) -> None:
    async def scenario() -> None:
        first = await SqliteStore.open(path)
        with pytest.raises(SessionLocked, match=f"process {os.getpid()} "):
            await SqliteStore.open(path)
        await first.aclose()
        second = await SqliteStore.open(path)
        await second.aclose()

    asyncio.run(scenario())


def test_a_new_session_is_locked_from_its_first_prompt_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        with pytest.raises(SessionLocked, match=r'^"hi" is open in another agent'):
            await SqliteStore.open(store.path)
        await store.aclose()

    asyncio.run(scenario())


def test_asking_for_the_owner_does_not_take_the_lock_away(path: Path) -> None:
    lock = WriterLock.acquire(path, name_of)
    assert live_owner(path) is not None
    with pytest.raises(SessionLocked):
        WriterLock.acquire(path, name_of)
    lock.release()
    lock.release()
    assert live_owner(path) is None
    WriterLock.acquire(path, name_of).release()


def test_a_link_in_place_of_the_lock_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    lock_path(path).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        WriterLock.acquire(path, name_of)
    assert not victim.exists()
