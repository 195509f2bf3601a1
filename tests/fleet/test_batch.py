"""Who runs when, and what becomes of it: batches on an engine that only says how runs end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import PersistenceError, UsageError
from agentcli.fleet import batch as batches
from agentcli.fleet.batch import Batch, BatchEnd, BatchPlan, BatchView
from agentcli.fleet.engine import Engine, TaskCall, TaskResult
from agentcli.fleet.limits import Purse
from agentcli.fleet.results import JOURNAL, BatchState, Journal, TaskStanding
from agentcli.fleet.tasks import BatchTask, TasksFile, read_tasks
from tests.support.batches import rows_of

HEAD = '{"format": "agentcli-batch/1", "batch": "x", "created_ms": 1}'
DONE = (
    '{"end": {"id": "a", "session_id": "s", "state": "done", "exit_code": 0, "cost_usd": 0.1,'
    ' "duration_ms": 1, "attempts": 1, "result": "said"}}'
)
Script = Callable[[TaskCall, int], TaskResult | None]


def ended(code: int, text: str = "said", cost: float | None = 0.01, **more: Any) -> TaskResult:
    end = {"type": "result", "result": text, "total_cost_usd": cost, "num_turns": 1, **more}
    return TaskResult(code, end, duration_ms=5)


class Played(Engine):
    """Runs end as ``script`` says for the call and how often its prompt was begun; no: when told."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[TaskCall] = []
        self.began: dict[str, list[float]] = defaultdict(list)
        self.running = self.most = 0
        self.together = 1
        self.met = asyncio.Event()

    async def run(self, call: TaskCall, cancel: CancelToken) -> TaskResult:
        self.calls.append(call)
        self.began[call.prompt].append(time.monotonic())
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running >= self.together:
            self.met.set()
        await self.met.wait()
        result = self.script(call, len(self.began[call.prompt]))
        if result is None:
            await cancel.wait()
            result = ended(143, "cancelled")
        self.running -= 1
        return result

    async def aclose(self) -> None:
        """Nothing is open."""

    @property
    def prompts(self) -> list[str]:
        return [call.prompt for call in self.calls]


class Heard(BatchView):
    """Keeps what is said; ``on_start`` is told of each start."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.on_start: Callable[[BatchTask], None] = lambda _: None

    def grows(self, tasks: Sequence[BatchTask], known: Mapping[str, TaskStanding]) -> None:
        """Nothing."""

    def started(self, task: BatchTask, known: TaskStanding) -> None:
        self.on_start(task)

    def ended(
        self, task: BatchTask, known: TaskStanding, result: str, *, again: bool = False
    ) -> None:
        """Nothing."""

    def says(self, text: str) -> None:
        self.said.append(text)


def tasks_of(base: Path, rows: Sequence[str]) -> tuple[BatchTask, ...]:
    return read_tasks(TasksFile("\n".join(rows).encode(), "t.jsonl", base))


def prompts(base: Path, names: str) -> tuple[BatchTask, ...]:
    return tasks_of(base, [f'{{"id": "{name}", "prompt": "{name}"}}' for name in names])


def go(
    base: Path,
    tasks: Sequence[BatchTask],
    engine: Engine,
    heard: Heard | None = None,
    *,
    budget: float | None = None,
    act: Callable[[Batch], None] = lambda _: None,
    **plan: Any,
) -> BatchEnd:
    async def main() -> BatchEnd:
        journal = Journal.open(base / "out")
        try:
            wanted = BatchPlan(tasks, **{"jobs": 3, **plan})
            running = Batch(wanted, journal, engine, heard or Heard(), Purse(budget))
            act(running)
            return await running.run()
        finally:
            journal.close()

    return asyncio.run(main())


def states(base: Path) -> dict[str, str]:
    return {row["id"]: row["state"] for row in rows_of(base / "out")}


@pytest.mark.spec("SCALE-2")
def test_each_task_runs_once_and_no_more_at_a_time_than_allowed(tmp_path: Path) -> None:
    codes = {"a": 0, "b": 1, "c": 3, "d": 4, "e": 78}
    engine = Played(lambda call, _: ended(codes.get(call.prompt, 0)))
    engine.together = 3
    tasks = prompts(tmp_path, "abcdefg")
    end = go(tmp_path, tasks, engine, arguments=("--effort=low",), model="m/n", timeout_s=9.0)
    assert engine.prompts == list("abcdefg") and engine.most == 3
    assert states(tmp_path) == {
        **dict.fromkeys("afg", "done"), "b": "failed", "c": "limit", "d": "refused", "e": "failed",
    }  # fmt: skip
    assert engine.calls[0].arguments == ("--effort=low", "--model", "m/n")
    assert engine.calls[0].timeout_s == 9.0 and not end.is_complete and end.reason == ""
    first = {call.prompt: call.session_id for call in engine.calls}
    again = Played(lambda *_: ended(0))
    assert go(tmp_path, tasks, again).skipped == 7 and not again.calls
    assert go(tmp_path, tasks, again, retry_failed=True).is_complete
    assert sorted(again.prompts) == list("bcde")
    sessions = {call.prompt: call.session_id for call in again.calls}
    assert {name for name in sessions if sessions[name] != first[name]} == {"d"}
    assert {row["attempts"] for row in rows_of(tmp_path / "out")} == {1, 2}


def test_a_provider_that_refuses_is_left_alone_and_others_go_on(tmp_path: Path) -> None:
    rows = [f'{{"prompt": "x{n}", "model": "x/1"}}' for n in range(4)]
    rows += [f'{{"prompt": "y{n}", "model": "y/1"}}' for n in range(4)]

    def script(call: TaskCall, times: int) -> TaskResult:
        is_first = call.prompt == "x0" and times == 1
        return ended(75, retry_after_s=0.3) if is_first else ended(0)

    engine, heard = Played(script), Heard()
    end = go(tmp_path, tasks_of(tmp_path, rows), engine, heard, jobs=1)
    assert end.is_complete and "x asks for a pause" in heard.said[0]
    assert engine.prompts[:5] == ["x0", "y0", "y1", "y2", "y3"]
    assert engine.began["x0"][1] - engine.began["x0"][0] >= 0.3


def test_a_task_that_waits_for_its_next_try_holds_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LOCKED_S", 1000.0)
    drain: list[Callable[[], None]] = []

    def script(call: TaskCall, _: int) -> TaskResult:
        if call.prompt == "c":
            drain[0]()
        return ended(2, terminal_reason="tree_in_use") if call.prompt == "a" else ended(0)

    engine = Played(script)
    tasks = prompts(tmp_path, "abc")
    end = go(tmp_path, tasks, engine, jobs=1, act=lambda batch: drain.append(batch.drain))
    assert (engine.prompts, end.reason) == (["a", "b", "c"], "drained")
    assert states(tmp_path) == {"a": "interrupted", "b": "done", "c": "done"}


def test_what_is_killed_or_refused_again_and_again_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "KILLED_S", 0.001)
    monkeypatch.setattr(batches, "LOCKED_S", 0.001)

    def script(call: TaskCall, times: int) -> TaskResult:
        if call.prompt == "l" and times < 20:
            return ended(74, terminal_reason="session_locked")
        if call.prompt == "w" and times < 20:
            return ended(2, terminal_reason="tree_in_use")
        if call.prompt == "k":
            return TaskResult(None, problem="killed by signal 9")
        if call.prompt in "gd" and times < 3:
            code, kind = (78, "git_busy") if call.prompt == "g" else (74, "persistence_error")
            return ended(code, terminal_reason=kind)
        if call.prompt == "b":
            return ended(78, terminal_reason="git_busy")
        if call.prompt == "n" and times < 9:
            return ended(75, retry_after_s=0.001)
        return ended(75, retry_after_s=0.0) if call.prompt == "r" else ended(0)

    engine, heard = Played(script), Heard()
    go(tmp_path, prompts(tmp_path, "klnrwgdb"), engine, heard)
    times = {"k": 5, "r": 5, "l": 20, "n": 9, "w": 20, "g": 3, "d": 3, "b": 5}
    assert Counter(engine.prompts) == times
    assert states(tmp_path) == dict.fromkeys("lnwgd", "done") | dict.fromkeys("krb", "failed")
    row = rows_of(tmp_path / "out")[0]
    assert (row["result"], row["exit_code"], row["attempts"]) == ("killed by signal 9", None, 5)
    assert len({call.session_id for call in engine.calls}) == 8
    told = Counter(line.split(":")[0] for line in heard.said)
    assert told["l waits"] == told["w waits"] == 1
    assert told["k is tried again in 0 s"] == told["b is tried again in 0 s"] == 4


@pytest.mark.spec("SCALE-2")
def test_a_refused_key_stops_the_tasks_of_its_model_and_loses_none(tmp_path: Path) -> None:
    rows = [f'{{"id": "{name}", "prompt": "{name}", "model": "x/1"}}' for name in "abcd"]
    rows += [f'{{"id": "{name}", "prompt": "{name}", "model": "x/2"}}' for name in "efg"]
    said = "x refused access (401) - check X_KEY"
    bad = ended(78, said, terminal_reason="auth")
    engine, heard = Played(lambda call, _: bad if call.prompt in "abcd" else ended(0)), Heard()
    engine.together = 2
    end = go(tmp_path, tasks_of(tmp_path, rows), engine, heard, jobs=2)
    assert engine.prompts == list("abefg") and end.reason == "provider"
    assert states(tmp_path) == {
        **dict.fromkeys("ab", "interrupted"), **dict.fromkeys("cd", "pending"),
        **dict.fromkeys("efg", "done"),
    }  # fmt: skip
    assert heard.said == [f"no more tasks of x/1 are started: {said}"]
    later = Played(lambda *_: ended(0))
    assert go(tmp_path, tasks_of(tmp_path, rows), later, jobs=1).is_complete
    assert later.prompts == list("abcd")
    assert later.calls[0].session_id == engine.calls[0].session_id


@pytest.mark.spec("SCALE-2")
def test_a_disk_that_stays_full_stops_the_batch_and_loses_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "KILLED_S", 0.001)
    full = ended(74, "cannot write s.db: disk full", terminal_reason="persistence_error")
    engine, heard = Played(lambda *_: full), Heard()
    end = go(tmp_path, prompts(tmp_path, "abcd"), engine, heard, jobs=2)
    assert end.reason == "disk" and "d" not in engine.prompts
    assert set(states(tmp_path).values()) == {"interrupted", "pending"}
    assert heard.said[0].startswith("a is tried again in 0 s: cannot write s.db: disk full")
    assert [text for text in heard.said if "no more tasks" in text] == [
        "no more tasks are started: cannot write s.db: disk full"
    ]
    assert go(tmp_path, prompts(tmp_path, "abcd"), Played(lambda *_: ended(0))).is_complete


@pytest.mark.parametrize("how", ["drain", "stop"])
def test_a_stopped_batch_goes_on_with_what_was_begun(how: str, tmp_path: Path) -> None:
    tasks, heard = prompts(tmp_path, "abcdef"), Heard()
    engine = Played(lambda call, _: None if call.prompt == "b" and how == "stop" else ended(0))

    def act(running: Batch) -> None:
        heard.on_start = lambda task: getattr(running, how)() if task.id == "b" else None

    end = go(tmp_path, tasks, engine, heard, act=act, jobs=2)
    assert end.reason == {"drain": "drained", "stop": "stopped"}[how]
    assert engine.prompts == ["a", "b"]
    unfinished = {"b": "interrupted"} if how == "stop" else {"b": "done"}
    assert states(tmp_path) == {"a": "done", **unfinished, **dict.fromkeys("cdef", "pending")}
    later = Played(lambda *_: ended(0))
    assert go(tmp_path, tasks[::-1], later).is_complete
    assert later.prompts == [*(["b"] if how == "stop" else []), *"fedc"]
    if how == "stop":
        assert later.calls[0].session_id == engine.calls[1].session_id


def test_a_list_that_has_changed_goes_by_the_names_of_its_tasks(tmp_path: Path) -> None:
    engine, heard = Played(lambda *_: ended(0)), Heard()
    go(tmp_path, prompts(tmp_path, "abc"), engine)
    changed = tasks_of(tmp_path, ['{"id": "c", "prompt": "new"}', '{"prompt": "d"}'])
    assert go(tmp_path, changed, engine, heard).is_complete
    assert engine.prompts == [*"abc", "d"] and len(rows_of(tmp_path / "out")) == 2
    assert "2 tasks of earlier starts" in heard.said[0]
    assert "1 task changed" in heard.said[1] and "(c)" in heard.said[1]


def test_the_budget_is_that_of_all_tasks_and_all_starts(tmp_path: Path) -> None:
    spent: dict[str, float] = defaultdict(float)

    def script(call: TaskCall, _times: int) -> TaskResult:
        """A task of four requests, which stops where it is told to."""
        given = dict(zip(call.arguments[::2], call.arguments[1::2], strict=True))
        stop = float(given.get("--pause-usd", given["--max-budget-usd"]))
        here = requests = 0
        while here < stop and spent[call.session_id] < 0.4 - 1e-9:
            here, requests = here + 0.1, requests + 1
            spent[call.session_id] += 0.1
        more = {"num_turns": requests, "cost": spent[call.session_id]}
        if spent[call.session_id] > 0.4 - 1e-9:
            return ended(0, **more)
        reason = "paused" if "--pause-usd" in given else "max_budget_usd"
        return ended(3, terminal_reason=reason, **more)

    tasks = prompts(tmp_path, "abcdefgh")
    end = go(tmp_path, tasks, Played(script), budget=1.5, jobs=8)
    assert end.reason == "budget" and 1.4 < sum(spent.values()) <= 1.6 + 1e-9
    assert end.spent_usd == pytest.approx(sum(spent.values()))
    idle = Played(script)
    assert go(tmp_path, tasks, idle, budget=1.5).reason == "budget" and not idle.calls
    assert go(tmp_path, tasks, Played(script), budget=9.0).is_complete
    assert sum(spent.values()) == pytest.approx(8 * 0.4)
    assert sum(row["cost_usd"] for row in rows_of(tmp_path / "out")) == pytest.approx(8 * 0.4)


@pytest.mark.parametrize("name", ["results.jsonl", "report.html", "steps.json"])
def test_what_another_program_has_written_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("theirs\n")
    for _ in range(2):
        with pytest.raises(UsageError, match=f"{name} is there, and no journal"):
            Journal.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "theirs\n"


def test_a_directory_that_cannot_be_written_stops_the_batch(tmp_path: Path) -> None:
    heard = Heard()
    with pytest.raises(UsageError, match="cannot write to"):
        Journal.open(Path("/proc/no/such"))
    engine = Played(lambda *_: ended(0))

    def act(running: Batch) -> None:
        def fail(*_: object, **__: object) -> int:
            raise PersistenceError("cannot write journal.jsonl: no space left", "make room")

        heard.on_start = lambda task: (
            setattr(running._journal, "_write", fail) if task.id == "b" else None
        )

    with pytest.raises(PersistenceError, match="no space left"):
        go(tmp_path, prompts(tmp_path, "abcdef"), engine, heard, act=act, jobs=1)
    assert engine.prompts == ["a", "b"]
    assert go(tmp_path, prompts(tmp_path, "abcdef"), engine).is_complete


def test_what_a_kill_left_half_written_is_gone_after_the_next_start(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "sessions").mkdir(parents=True)
    left = [".results.jsonl.123", ".report.html.9", ".steps.json.77", "sessions/.a-b.html.4"]
    kept = [".mine.txt.1", "results.jsonl.1", "sessions/.a.html", "notes"]
    for name in (*left, *kept):
        (out / name).touch()
    Journal.open(out).close()
    found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert found == {JOURNAL, *kept}


def test_one_process_at_a_time_has_a_directory(tmp_path: Path) -> None:
    first = Journal.open(tmp_path / "out")
    with pytest.raises(UsageError, match="another agent is at work"):
        Journal.open(tmp_path / "out")
    first.close()
    Journal.open(tmp_path / "out").close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / JOURNAL).write_text('{"format": "else"}\n')
    with pytest.raises(UsageError, match="not the journal of a batch"):
        Journal.open(tmp_path / "other")


@pytest.mark.spec("SCALE-2")
@pytest.mark.parametrize(
    "text",
    [
        "notes of mine\nand more\n",
        "notes of mine",
        "[]\n",
        '{"format": "agentcli-batch/1"}\n',
        f"{HEAD}\nscribbled\n{DONE}\n",
        f'{HEAD}\n{{"end": {{"id": "a", "state": "odd"}}}}\n',
        f'{HEAD}\n{{"begin": "a"}}\n{DONE}\n',
        f"{HEAD}\n{DONE.replace('0.1', '[]')}\n",
        *(f"{HEAD}\n{DONE.replace('0.1', cost)}\n" for cost in ("NaN", "Infinity", "-5", "1e999")),
        '{"format": "agentcli-batch/1", "batch": "x", "created_ms": 1e999}\n',
        f'{HEAD}\n{{"begin": "a", "session_id": "../x", "attempts": 1, "afresh": 0}}\n{DONE}\n',
    ],
)
def test_nothing_is_thrown_away_of_a_journal_that_is_not_torn(text: str, tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    path.write_text(text)
    with pytest.raises(UsageError, match=r"not the journal of a batch|damaged at byte"):
        Journal.open(tmp_path)
    assert path.read_text() == text
    for torn in ("", HEAD[:5], HEAD[:40], f"{HEAD}\n{DONE}"):
        path.write_text(torn)
        journal = Journal.open(tmp_path)
        assert journal.tasks == {}
        journal.close()


def test_tasks_whose_ids_look_alike_have_a_worktree_each(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    ids = [f"{'x' * 60}{number}" for number in range(2_000)]
    assert len({journal.worktree_of(each) for each in ids}) == len(ids)
    journal.close()


def test_a_journal_cut_at_any_byte_is_that_of_a_moment_before(tmp_path: Path) -> None:
    engine = Played(lambda call, _: ended(0 if call.prompt == "a" else 1, "é\u2028\x1b[31m"))
    go(tmp_path, prompts(tmp_path, "ab"), engine, jobs=1)
    path = tmp_path / "out" / JOURNAL
    whole = path.read_bytes()
    assert b"\x1b" not in whole
    sessions = {call.prompt: call.session_id for call in engine.calls}
    for size in range(whole.index(b"\n") + 1, len(whole), 7):
        path.write_bytes(whole[:size])
        journal = Journal.open(tmp_path / "out")
        lines = whole[:size].count(b"\n")
        assert journal.tasks.keys() == {1: set(), 2: {"a"}, 3: {"a"}}.get(lines, {"a", "b"})
        ends = [known.state for known in journal.tasks.values()]
        assert sum(state.has_ended for state in ends) == {1: 0, 2: 0, 5: 2}.get(lines, 1)
        assert {name: journal.session_of(name) for name in "ab"} == sessions
        journal.begin("a", "x")
        journal.close()
        assert path.read_bytes().endswith(b"}\n")
        journal = Journal.open(tmp_path / "out")
        assert journal.tasks["a"].state is BatchState.INTERRUPTED
        journal.close()
