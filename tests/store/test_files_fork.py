"""A copy of a session: complete, of one moment, free of the original."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentcli.domain.errors import PersistenceError, SessionDamaged, SessionNotFound
from agentcli.domain.events import Outcome
from agentcli.domain.history import CRASHED_TEXT, History
from agentcli.domain.messages import ToolResult
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import LoadedSession, SessionStatus
from agentcli.engine.context.outgoing import check_request
from agentcli.store.files import CUT_DETAIL, SessionFiles, read_session
from agentcli.store.reads import CRASH_DETAIL
from agentcli.store.repair.check import check
from agentcli.store.sqlite import SqliteStore, recover
from tests.store.sessions import (
    asking,
    call,
    change,
    finished_session,
    fresh,
    one_turn,
    result,
    run_child,
    text,
)
from tests.support.databases import opened


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path / "sessions", tmp_path / "catalogue.db")


@pytest.fixture
def path(files: SessionFiles) -> Path:
    return asyncio.run(finished_session(files.directory, turns=3))


async def open_and_recover(path: Path) -> tuple[LoadedSession, tuple[ToolResult, ...]]:
    store = await SqliteStore.open(path)
    try:
        loaded, results = await recover(store)
        await store.record_prompt(text("on"))
        check_request([stored.message for stored in (await store.load()).messages])
        await store.record_end((), Outcome.DONE, "", "")
    finally:
        await store.aclose()
    return loaded, results


@pytest.mark.spec("CLI-3", "REC-6")
def test_a_fork_is_a_complete_session_of_its_own(files: SessionFiles, path: Path) -> None:
    before = path.read_bytes()
    names = {item.name for item in path.parent.iterdir()}
    original = read_session(path)
    copy = files.path_of(files.fork(path.stem))
    loaded = read_session(copy)
    assert path.read_bytes() == before
    assert {item.name for item in path.parent.iterdir()} == names | {copy.name}
    assert copy.stat().st_mode & 0o777 == 0o600
    assert check(copy) == []
    assert loaded == replace(original, info=loaded.info)
    assert loaded.info == replace(
        original.info,
        id=copy.stem,
        parent_id=path.stem,
        created_at=loaded.info.created_at,
        updated_at=loaded.info.updated_at,
    )
    assert loaded.info.created_at >= original.info.updated_at
    assert loaded.info.updated_at == loaded.info.created_at
    with opened(copy) as one, opened(path) as other:
        assert one.execute("SELECT id FROM session").fetchone() == (copy.stem,)
        for table in ("message", "tool_run", "blob", "usage", "note", "kv"):
            query = f"SELECT * FROM {table}"
            assert one.execute(query).fetchall() == other.execute(query).fetchall()
    one.close()
    other.close()


@pytest.mark.spec("CLI-3")
def test_what_goes_on_in_one_does_not_go_on_in_the_other(files: SessionFiles, path: Path) -> None:
    copy = files.path_of(files.fork(path.stem))
    asyncio.run(open_and_recover(copy))
    assert len(read_session(copy).messages) == 16
    assert len(read_session(path).messages) == 15
    again = files.path_of(files.fork(copy.stem))
    assert read_session(again).info.parent_id == copy.stem


OWNER = """
import asyncio, sys
from pathlib import Path
from agentcli.domain.ports import RecordedResult
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import asking, call, result, text
async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    calls = [call("x"), call("y"), call("z")]
    await store.record_prompt(text("from the owner"))
    await store.record_assistant(asking(*calls), calls, final=None)
    await store.record_running(calls[1])
    await store.record_result(RecordedResult(result("y", "Y")), [])
    await store.record_running(calls[0])
    print("ready", flush=True)
    sys.stdin.readline()
    both = [result("x", "X"), result("y", "Y")]
    await store.record_result(RecordedResult(both[0]), both)
    await store.aclose()
    print("closed", flush=True)
asyncio.run(main())
"""


@pytest.fixture
def owner(path: Path) -> Iterator[subprocess.Popen[str]]:
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
    process.communicate()


@pytest.mark.spec("REC-6", "REC-1")
def test_a_session_in_use_can_be_forked_and_the_copy_is_balanced(
    files: SessionFiles, path: Path, owner: subprocess.Popen[str]
) -> None:
    copy = files.path_of(files.fork(path.stem))
    assert check(copy) == []
    info = read_session(copy).info
    assert (info.status, info.detail) == (SessionStatus.CRASHED, CUT_DETAIL)
    loaded, results = asyncio.run(open_and_recover(copy))
    assert [(item.call_id, item.parts[0].text) for item in results] == [
        ("x", CRASHED_TEXT),
        ("y", "Y"),
        ("z", CRASHED_TEXT),
    ]
    assert not History(stored.message for stored in loaded.messages).pending
    assert loaded.info.detail == CUT_DETAIL
    assert owner.communicate("\n", timeout=10)[0] == "closed\n"
    assert [s.message.text for s in read_session(path).messages[-2:]] == ["X", "Y"]


@pytest.mark.spec("REC-6")
def test_a_fork_while_this_process_writes_is_of_one_moment(files: SessionFiles, path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        forks = []
        for number in range(8):
            _, new_id = await asyncio.gather(
                one_turn(store, f"turn {number}", suffix=f"w{number}"),
                asyncio.to_thread(files.fork, path.stem),
            )
            forks.append(files.path_of(new_id))
        await store.aclose()
        for copy in forks:
            assert check(copy) == []
            await open_and_recover(copy)

    asyncio.run(scenario())


@pytest.mark.spec("REC-1")
def test_a_crashed_session_is_forked_as_it_is(files: SessionFiles) -> None:
    async def crash() -> Path:
        store = fresh(files.directory)
        await store.record_prompt(text("hi"))
        await store.record_assistant(asking(call("a")), [call("a")], final=None)
        await store.record_running(call("a"))
        await store.aclose()
        return store.path

    copy = files.path_of(files.fork(asyncio.run(crash()).stem))
    assert read_session(copy).info.detail == CRASH_DETAIL
    loaded, results = asyncio.run(open_and_recover(copy))
    assert [item.parts[0].text for item in results] == [CRASHED_TEXT]
    assert loaded.info.status is SessionStatus.CRASHED


def test_what_a_log_alone_holds_is_copied(files: SessionFiles, path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await store.record_prompt(text("in the log only"))
        await store.record_end((), Outcome.DONE, "", "")
        copy = files.path_of(files.fork(path.stem))
        assert read_session(copy).messages[-1].message == text("in the log only")
        assert read_session(copy).info.status is SessionStatus.DONE
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["nothing", "../x", ""])
def test_what_is_not_there_is_not_found(files: SessionFiles, name: str) -> None:
    with pytest.raises(SessionNotFound):
        files.fork(name)


@pytest.mark.spec("REC-7")
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(os.urandom(20_000)),
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: change(path, "UPDATE message SET body = '{}' WHERE seq = 3"),
        lambda path: change(path, "UPDATE session SET status = 'odd'"),
        lambda path: change(
            path, "PRAGMA foreign_keys = OFF", "DELETE FROM message WHERE seq IN (2, 3)"
        ),
    ],
    ids=["empty", "garbage", "truncated", "message", "state", "law"],
)
def test_a_damaged_session_is_not_forked_and_leaves_nothing(
    files: SessionFiles, path: Path, damage: object
) -> None:
    damage(path)
    with pytest.raises(SessionDamaged) as caught:
        files.fork(path.stem)
    assert str(path) in caught.value.message
    assert caught.value.advice == f"run: agent sessions repair {path.stem}"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.spec("FAIL-1")
def test_a_full_disk_leaves_no_copy_and_one_clear_error(files: SessionFiles, path: Path) -> None:
    child = run_child(
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from agentcli.domain.errors import PersistenceError\n"
        "from agentcli.store import tasks  # compiled before the limit\n"
        "from agentcli.store.files import SessionFiles\n"
        "files = SessionFiles(Path(sys.argv[1]), Path(sys.argv[1]) / 'c.db')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    files.fork(sys.argv[2])\n"
        "except PersistenceError as error:\n"
        "    print(error)\n",
        files.directory,
        path.stem,
    )
    assert child.stderr == ""
    assert child.stdout.startswith(f"cannot write session file {files.directory}")
    assert list(files.directory.iterdir()) == [path]


@pytest.mark.spec("REC-3")
@pytest.mark.parametrize("point", [1, 2, 3])
def test_killed_at_any_point_the_copy_is_whole_or_absent(
    files: SessionFiles, path: Path, point: int
) -> None:
    before = path.read_bytes()
    child = run_child(
        "import sys\n"
        "from pathlib import Path\n"
        "from agentcli.store.files import SessionFiles\n"
        "SessionFiles(Path(sys.argv[1]), Path(sys.argv[1]) / 'c.db').fork(sys.argv[2])\n",
        files.directory,
        path.stem,
        AGENTCLI_TEST_KILL_AT_WRITE=str(point),
    )
    assert (child.returncode, child.stderr) == (-signal.SIGKILL, "")
    assert path.read_bytes() == before
    copies = set(files.directory.glob("*.db")) - {path}
    assert len(copies) == (1 if point == 3 else 0)
    for copy in copies:
        assert check(copy) == []


def test_a_read_only_directory_is_a_persistence_error(files: SessionFiles, path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("permissions do not bind root")
    files.directory.chmod(0o500)
    try:
        with pytest.raises(PersistenceError, match="permission denied"):
            files.fork(path.stem)
    finally:
        files.directory.chmod(0o700)


def test_a_result_that_waits_for_its_turn_comes_along(files: SessionFiles) -> None:
    async def scenario() -> Path:
        store = fresh(files.directory)
        calls = [call("a"), call("b")]
        await store.record_prompt(text("hi"))
        await store.record_assistant(asking(*calls), calls, final=None)
        await store.record_running(calls[1])
        await store.record_result(RecordedResult(result("b", "B"), b"raw"), [])
        await store.aclose()
        return store.path

    copy = files.path_of(files.fork(asyncio.run(scenario()).stem))
    _, results = asyncio.run(open_and_recover(copy))
    assert results[1] == result("b", "B")
