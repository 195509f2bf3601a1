"""kill -9 at every write point of a real process: nothing acknowledged is lost (REC-1, REC-3)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from agentcli.domain.history import CRASHED_TEXT, History
from agentcli.domain.messages import AssistantMessage, ToolResult
from agentcli.domain.session import LoadedSession, SessionStatus
from agentcli.engine.context.outgoing import check_request
from agentcli.store.files import SessionFiles
from agentcli.store.repair.check import check
from agentcli.store.sqlite import SqliteStore, recover
from tests.store.sessions import now, run_child, text

# Says on stdout what the store has acknowledged, then goes on.
CHILD = """
import asyncio, sys
from pathlib import Path
from agentcli.domain.events import Outcome
from agentcli.domain.ports import RecordedResult
from tests.store.sessions import answer, asking, call, fresh, result, text

async def main():
    store = fresh(Path(sys.argv[1]))
    def said(word):
        print(word, flush=True)
    calls = (call("a"), call("b"), call("c"))
    await store.record_prompt(text("hello")); said("message 1")
    await store.record_assistant(asking(*calls), calls, final=None); said("message 2")
    await store.record_running(calls[1]); said("running b")
    await store.record_result(RecordedResult(result("b", "B"), b"raw"), []); said("parked b")
    await store.record_running(calls[0]); said("running a")
    both = [result("a", "A"), result("b", "B")]
    await store.record_result(RecordedResult(both[0]), both); said("message 3"); said("message 4")
    await store.record_running(calls[2]); said("running c")
    await store.record_end([result("c", "C")], Outcome.DONE, "", ""); said("message 5")
    await store.record_prompt(text("again")); said("message 6")
    await store.record_assistant(answer(), (), final=Outcome.DONE); said("message 7")
    await store.aclose()
asyncio.run(main())
"""
WRITES = 10


async def _open_and_recover(path: Path) -> tuple[LoadedSession, int]:
    store = await SqliteStore.open(path)
    loaded, results = await recover(store)
    again, none = await recover(store)
    assert (again, none) == (loaded, ())
    commits = store.commits
    await store.record_prompt(text("go on"))
    check_request([stored.message for stored in (await store.load()).messages])
    await store.aclose()
    assert commits == (1 if loaded.info.status is SessionStatus.CRASHED else 0)
    return loaded, len(results)


@pytest.mark.spec("FAIL-5")
def test_points_are_three_per_write_and_can_be_counted(tmp_path: Path) -> None:
    count = tmp_path / "count"
    child = run_child(CHILD, tmp_path / "sessions", AGENTCLI_TEST_COUNT_WRITES=str(count))
    assert (child.returncode, child.stderr) == (0, "")
    assert count.read_text().split() == [str(3 * WRITES)]


@pytest.mark.sampled
@pytest.mark.spec("REC-1", "REC-2", "REC-3", "CAN-8")
@pytest.mark.parametrize("point", range(1, 3 * WRITES + 1))
def test_killed_at_any_write_the_session_opens_balanced_with_all_that_was_said(
    tmp_path: Path, point: int
) -> None:
    directory = tmp_path / "sessions"
    child = run_child(CHILD, directory, AGENTCLI_TEST_KILL_AT_WRITE=str(point))
    assert (child.returncode, child.stderr) == (-signal.SIGKILL, "")
    said = child.stdout.splitlines()
    files = SessionFiles(directory, tmp_path / "catalogue.db")
    infos = now(files.list())
    if not infos:
        assert said == []
        return
    (info,) = infos
    path = files.path_of(info.id)
    assert info.status in {SessionStatus.CRASHED, SessionStatus.DONE}
    assert check(path) == []
    loaded, _ = asyncio.run(_open_and_recover(path))
    messages = [stored.message for stored in loaded.messages]
    assert len(messages) >= sum(word.startswith("message") for word in said)
    assert not History(messages).pending
    results = {m.call_id: m for m in messages if isinstance(m, ToolResult)}
    if any(isinstance(m, AssistantMessage) for m in messages):
        assert set(results) == {"a", "b", "c"}
    for call_id, result in results.items():
        true = result.text == call_id.upper()
        assert true or result.parts[0].text == CRASHED_TEXT
        if f"running {call_id}" in said and not true:
            assert "outcome is unknown" in result.parts[1].text
    if "parked b" in said:
        assert results["b"].text == "B"
    assert check(path) == []


def test_a_killed_creation_leaves_nothing_that_is_listed_or_in_the_way(tmp_path: Path) -> None:
    for point in (1, 2):
        child = run_child(CHILD, tmp_path, AGENTCLI_TEST_KILL_AT_WRITE=str(point))
        assert child.returncode == -signal.SIGKILL
    assert now(SessionFiles(tmp_path, tmp_path / "catalogue.db").list()) == []


@pytest.mark.parametrize(
    ("value", "expected"), [("1:before", []), ("1:after", []), ("2:before", ["message 1"])]
)
def test_a_point_can_be_named_by_its_write(tmp_path: Path, value: str, expected: list[str]) -> None:
    child = run_child(CHILD, tmp_path, AGENTCLI_TEST_KILL_AT_WRITE=value)
    assert child.returncode == -signal.SIGKILL
    assert child.stdout.splitlines() == expected
    files = list(tmp_path.glob("*.db"))
    assert len(files) == (0 if value == "1:before" else 1)
