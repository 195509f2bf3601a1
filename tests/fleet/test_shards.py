"""A list of tasks in shards, and what comes of it as one."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from agentcli.domain.errors import UsageError
from agentcli.fleet.results import JOURNAL, Journal
from agentcli.fleet.shards import (
    SHARD,
    Merged,
    Shard,
    merge_advice,
    merge_shards,
    part_of,
)
from agentcli.fleet.tasks import BatchTask, TasksFile, read_tasks
from tests.support.batches import numbered_tasks, rows_of, write_tasks
from tests.support.cli import run_agent
from tests.support.docs import blocks, shell


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "notes.txt").write_text("hello from the notes\n")
    return path


def tasks_of(count: int, text: str = "do") -> tuple[BatchTask, ...]:
    rows = [json.dumps({"prompt": f"{text} {number}"}) for number in range(count)]
    return read_tasks(TasksFile("\n".join(rows).encode(), "t.jsonl", Path("/")))


def ran(
    directory: Path, name: str, tasks: tuple[BatchTask, ...], state: str = "done", left: int = 0
) -> Path:
    """A shard's directory as a batch leaves it; the last ``left`` tasks have not ended."""
    journal = Journal.open(directory)
    own = part_of(journal, tasks, Shard.parse(name), lambda text: text)
    for task in own[: len(own) - left]:
        known = journal.begin(task.id, task.content)
        known.cost_usd = 0.25
        journal.end(task.id, {"state": state, "exit_code": 0, "result": f"<{task.prompt}>"})
        pages = directory / "sessions"
        pages.mkdir(exist_ok=True)
        (pages / f"{known.session_id}.html").write_text(f"page of {task.prompt}")
    journal.close()
    return directory


def merged(into: Path, *parts: Path) -> Merged:
    return merge_shards(parts, into, lambda _: None, lambda text: text)


@pytest.mark.spec("SCALE-3")
def test_every_task_is_in_one_shard_whatever_the_order() -> None:
    tasks = tasks_of(300)
    for count in (1, 2, 7):
        shards = [Shard(number, count) for number in range(1, count + 1)]
        owners = {task.id: [shard for shard in shards if shard.holds(task.id)] for task in tasks}
        assert all(len(found) == 1 for found in owners.values())
        assert len({found[0] for found in owners.values()}) == count
    for wrong in ("0/3", "4/3", "1", "1/0", "-1/3", "a/b", "1/3/5", "", "1/99999", "١/٣"):
        with pytest.raises(UsageError, match="is not valid - give it as i/n"):
            Shard.parse(wrong)


@pytest.mark.spec("SCALE-3")
def test_merging_gives_each_task_one_row_in_the_order_of_the_list(tmp_path: Path) -> None:
    tasks = tasks_of(20)
    mixed = list(tasks)
    random.Random(1).shuffle(mixed)
    parts = [ran(tmp_path / f"s{number}", f"{number}/3", tasks) for number in (1, 2, 3)]
    before = {path: path.read_bytes() for part in parts for path in part.glob("*.json*")}
    found = merged(tmp_path / "all", *parts[::-1], parts[0])
    assert found.end.is_complete and found.end.spent_usd == 5.0 and not merge_advice(found)
    rows = rows_of(tmp_path / "all")
    assert [row["result"] for row in rows] == [f"<{task.prompt}>" for task in tasks]
    page = (tmp_path / "all" / "report.html").read_text()
    for row in rows:
        name = f"sessions/{row['session_id']}.html"
        assert name in page and "page of" in (tmp_path / "all" / name).read_text()
    first = (tmp_path / "all" / "results.jsonl").read_bytes()
    merged(tmp_path / "all", *parts)
    assert (tmp_path / "all" / "results.jsonl").read_bytes() == first
    assert before == {path: path.read_bytes() for part in parts for path in part.glob("*.json*")}
    ran(tmp_path / "s2", "2/3", tuple(mixed))  # the same tasks
    assert merged(tmp_path / "all", *parts).end.is_complete


@pytest.mark.spec("SCALE-3")
def test_what_does_not_fit_together_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    tasks = tasks_of(12)
    one, two = (ran(tmp_path / f"s{number}", f"{number}/2", tasks) for number in (1, 2))
    twin = ran(tmp_path / "twin", "2/2", tasks)
    other = ran(tmp_path / "other", "2/2", tasks_of(12, "else"))
    third = ran(tmp_path / "third", "3/3", tasks)
    stolen = ran(tmp_path / "stolen", "2/2", tasks)
    value = json.loads((stolen / SHARD).read_text())
    value["places"].append(json.loads((one / SHARD).read_text())["places"][0])
    (stolen / SHARD).write_text(json.dumps(value))
    broken = ran(tmp_path / "broken", "2/2", tasks)
    (broken / JOURNAL).write_text((broken / JOURNAL).read_text().replace('"state"', '"s"'))
    climber = ran(tmp_path / "climber", "2/2", tasks)
    session = json.loads((climber / JOURNAL).read_text().splitlines()[1])["session_id"]
    (climber / JOURNAL).write_text((climber / JOURNAL).read_text().replace(session, "../../x"))
    bare = tmp_path / "bare"
    bare.mkdir()
    cases: list[tuple[tuple[Path, ...], str]] = [
        ((one,), r"shard 2/2 is missing - .*--shard 2/2"),
        ((third,), r"shards 1/3, 2/3 are missing"),
        ((one, two, twin), r"shard 2/2 \(.*twin\) is there twice: .*s2"),
        ((one, other), r"had different TASKS"),
        ((one, third), r"of different splits"),
        ((one, stolen), r"the task \w+ is in shard 1/2 .* and in shard 2/2"),
        ((one, broken), r"broken/journal.jsonl is damaged"),
        ((one, climber), r"climber/journal.jsonl is damaged"),
        ((one, bare), r"bare is no shard of a batch"),
        ((one, tmp_path / "none"), r"none is no directory"),
    ]
    for parts, words in cases:
        with pytest.raises(UsageError, match=words) as caught:
            merged(tmp_path / "all", *parts)
        assert "\n" not in str(caught.value) and not (tmp_path / "all").exists()
    with pytest.raises(UsageError, match="is the directory of a batch"):
        merged(one, one, two)
    for name in ("results.jsonl", "report.html"):
        (bare / name).write_text("theirs\n")
        with pytest.raises(UsageError, match=f"bare/{name} is there, and no merge of these"):
            merged(bare, one, two)
        assert [path.name for path in bare.iterdir()] == [name]
        assert (bare / name).read_text() == "theirs\n"
        (bare / name).unlink()
    merged(bare, one, two)
    for path in (one, two):
        shutil.rmtree(path)
        ran(path, f"{path.name[-1]}/2", tasks)
    with pytest.raises(UsageError, match="no merge of these shards has written it"):
        merged(bare, one, two)  # another batch, of the same list
    journal = Journal.open(two)
    with pytest.raises(UsageError, match="another agent is at work"):
        merged(tmp_path / "all", one, two)
    journal.close()


@pytest.mark.spec("SCALE-3")
def test_a_directory_keeps_its_shard_and_what_is_left_is_named(tmp_path: Path) -> None:
    tasks = tasks_of(24)
    one = ran(tmp_path / "s1", "1/2", tasks, "failed")
    two = ran(tmp_path / "s2", "2/2", tasks, left=1)
    whole = Journal.open(tmp_path / "whole")
    whole.begin("x", "")
    keep: Callable[[str], str] = str
    journal = Journal.open(one)
    with pytest.raises(UsageError, match="holds shard 1/2 - give --shard 1/2"):
        part_of(journal, tasks, Shard(2, 2), keep)
    with pytest.raises(UsageError, match="holds shard 1/2"):
        part_of(journal, tasks, None, keep)
    with pytest.raises(UsageError, match="holds a batch without shards"):
        part_of(whole, tasks, Shard(1, 2), keep)
    journal.close()
    whole.close()
    found = merged(tmp_path / "all", one, two)
    assert merge_advice(found).startswith("tasks have not ended in shard 2/2")
    assert sorted({row["state"] for row in rows_of(tmp_path / "all")}) == [
        "done",
        "failed",
        "pending",
    ]
    ran(two, "2/2", tasks)
    assert "--retry-failed" in merge_advice(merged(tmp_path / "all", one, two))


@pytest.mark.slow
@pytest.mark.spec("SCALE-3")
def test_the_array_of_the_documentation_runs_and_is_merged(project: Path, home: Path) -> None:
    write_tasks(project / "tasks.jsonl", [{"prompt": "read notes.txt"}, {"prompt": "list files"}])
    (script,) = blocks("sh", "tested as an array")
    (after,) = blocks("sh", "tested after an array")
    for number in ("1", "2"):
        env = {**os.environ, "SLURM_ARRAY_TASK_ID": number, "SLURM_ARRAY_TASK_COUNT": "2"}
        done = shell(script, project, home, env)
        assert done.returncode == 0, done.stderr
    done = shell(after, project, home)
    assert done.returncode == 0 and done.stdout.startswith("2 tasks: 2 done"), done.stderr
    assert [row["state"] for row in rows_of(project / "out" / "all")] == ["done", "done"]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.spec("SCALE-3", "CLI-6")
def test_the_matrix_of_the_documentation_runs_and_mistakes_have_their_codes(
    project: Path, home: Path
) -> None:
    write_tasks(project / "tasks.jsonl", numbered_tasks(5))
    (text,) = blocks("yaml", "tested as a matrix")
    jobs = yaml.safe_load(text)["jobs"]

    def lines(job: str) -> list[str]:
        said = [step["run"] for step in jobs[job]["steps"] if "run" in step]
        return [line for line in said if line.startswith("agent ")]

    for number in jobs["tasks"]["strategy"]["matrix"]["shard"]:
        (line,) = lines("tasks")
        done = shell(line.replace("${{ matrix.shard }}", str(number)), project, home)
        assert done.returncode == 0, done.stderr
    (merge,) = lines("merge")
    done = shell(merge, project, home)
    assert done.returncode == 0 and len(rows_of(project / "all")) == 5, done.stderr
    for words, said in (
        (("merge", "shard-1", "-o", "new"), "shards 2/3, 3/3 are missing"),
        (("merge", "shard-1"), "needs a directory for results"),
        (("merge", "-o", "new"), "needs the directories of all shards"),
        (("merge", "shard-1", "-o", "new", "-j", "2"), "--jobs is not for batch merge"),
        (("tasks.jsonl", "--shard", "4/3"), "--shard 4/3 is not valid"),
        (("tasks.jsonl", "tasks.jsonl"), "one TASKS at a time"),
        (("run", "tasks.jsonl"), "run: agent batch tasks.jsonl"),
    ):
        wrong = run_agent("batch", *words, env=dict(os.environ), cwd=project)
        assert wrong.code == 2 and said in wrong.stderr, wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1 and not (project / "new").exists()
