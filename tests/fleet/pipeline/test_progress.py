"""What may run next: a function of the file and of the results so far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentcli.fleet.pipeline.file import read_pipeline
from agentcli.fleet.pipeline.progress import (
    PipelineProgress,
    PipelineTasks,
    StepLimits,
    StepTask,
    TaskOutcome,
)
from agentcli.fleet.results import TaskStanding

TEXT = """
[inputs]
limit = 2
[steps.find]
prompt = "Find {{inputs.limit}}"
schema = { type = "object", properties = { mods = { type = "array", items = { type = "object" } } } }
[steps.change]
for_each = "steps.find.result.mods"
when = "item.path != 'skip'"
prompt = "Change {{item.path}}"
retry = 1
[steps.test]
needs = ["change"]
prompt = "Test"
[steps.notify]
when = "steps.test.state != 'done'"
prompt = "It ended {{steps.test.state}}: {{steps.test.error}}"
[steps.other]
prompt = "Beside the rest"
[steps.never]
when = "inputs.limit > 5"
prompt = "Never"
[steps.after]
needs = ["never"]
prompt = "After never"
[steps.join]
prompt = "{{steps.never.state}}/{{steps.never.result}}/{{steps.other.result}}"
"""


def begin(tmp_path: Path, text: str = TEXT, **given: str) -> PipelineProgress:
    path = tmp_path / "p.toml"
    path.write_text(text)
    return PipelineProgress(read_pipeline(path, given), StepLimits(tmp_path))


def done(result: Any = "ok") -> TaskOutcome:
    return TaskOutcome(is_done=True, result=result)


FAILED = TaskOutcome(is_done=False, error="it broke")
FOUND = done({"mods": [{"path": "a"}, {"path": "skip"}, {"path": "b"}, {"path": "a"}]})


def play(progress: PipelineProgress, outcomes: Mapping[str, TaskOutcome]) -> list[StepTask]:
    """Run all there is to run; the tasks, in their order."""
    ran: list[StepTask] = []
    while tasks := progress.ready():
        for task in tasks:
            progress.record(task.key, outcomes.get(task.name, done()))
        ran += tasks
    return ran


def tasks_of(progress: PipelineProgress) -> list[StepTask]:
    return [task for report in progress.report() for task in report.tasks]


def states(progress: PipelineProgress) -> dict[str, str]:
    return {report.name: report.state for report in progress.report()}


def test_steps_run_when_what_they_need_is_done(tmp_path: Path) -> None:
    progress = begin(tmp_path)
    assert states(progress)["change"] == ""
    assert [task.name for task in tasks_of(progress)] == ["find", "other"]
    ran = play(progress, {"find": FOUND})
    assert [(task.name, task.prompt) for task in ran] == [
        ("find", "Find 2"),
        ("other", "Beside the rest"),
        ("change[0]", "Change a"),
        ("change[2]", "Change b"),
        ("change[3]", "Change a"),
        ("join", "skipped//ok"),
        ("test", "Test"),
    ]
    assert len({task.key for task in ran}) == 7
    assert states(progress) == {
        "find": "done",
        "change": "done",
        "test": "done",
        "notify": "skipped",
        "other": "done",
        "never": "skipped",
        "after": "skipped",
        "join": "done",
    }


def test_a_failure_stops_what_needs_it_and_the_rest_goes_on(tmp_path: Path) -> None:
    progress = begin(tmp_path)
    ran = [task.name for task in play(progress, {"find": FOUND, "change[2]": FAILED})]
    assert "change[3]" in ran
    assert "test" not in ran
    found = {report.name: report for report in progress.report()}
    assert (found["change"].state, found["change"].reason) == ("failed", "1 of 3: it broke")
    assert (found["change"].done, len(found["change"].tasks)) == (2, 3)
    assert (found["test"].state, found["test"].reason) == ("blocked", "change failed")
    assert found["other"].state == "done"
    assert found["notify"].tasks[0].prompt == "It ended blocked: change failed"


def test_it_stands_where_it_stood_with_the_same_results(tmp_path: Path) -> None:
    first = begin(tmp_path)
    kept: dict[str, TaskOutcome] = {}
    for expected in (2, 4, 1, 0):
        again, waiting = begin(tmp_path), list[StepTask]()
        while tasks := again.ready():
            waiting += [task for task in tasks if task.key not in kept]
            for task in tasks:
                if task.key in kept:
                    again.record(task.key, kept[task.key])
        assert len(waiting) == expected
        assert {task.key for task in waiting} == {task.key for task in first.ready()}
        for task in waiting:
            outcome = FOUND if task.name == "find" else done()
            kept[task.key] = outcome
            first.record(task.key, outcome)


def keys(progress: PipelineProgress) -> dict[str, str]:
    play(progress, {"find": FOUND})
    return {task.name: task.key for task in tasks_of(progress)}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("retry = 1", "retry = 2\ntimeout_s = 5\nmax_budget_usd = 1", set()),
        ('"Beside', '"Right beside', {"other", "join"}),
        ('"Test"', '"Test"\nmodel = "openai/gpt-4.1"', {"test"}),
        (
            '"Change',
            '"Now change',
            {"change[0]", "change[2]", "change[3]", "test"},
        ),
        (
            "limit = 2",
            "limit = 3",
            {"find", "change[0]", "change[2]", "change[3]", "test"},
        ),
        ("# nothing", "# a comment", set()),
    ],
)
def test_a_changed_step_and_all_that_needs_it_are_other_tasks(
    tmp_path: Path, old: str, new: str, changed: set[str]
) -> None:
    before = keys(begin(tmp_path))
    after = keys(begin(tmp_path, TEXT.replace(old, new)))
    assert {name for name in after if before.get(name) != after[name]} == changed


def test_what_has_not_ended_is_interrupted_or_pending(tmp_path: Path) -> None:
    text = (
        '[steps.a]\nprompt = "x"\n[steps.b]\nprompt = "y"\n[steps.c]\nneeds = ["a"]\nprompt = "z"\n'
    )
    known: dict[str, TaskStanding] = {}
    tasks = PipelineTasks(begin(tmp_path, text), known, lambda _: None)
    first, second = tasks.first()
    known[first.id] = TaskStanding(attempts=1)
    assert [each.state for each in tasks.report()] == ["interrupted", "pending", "pending"]
    rows = [{"id": first.id, "attempts": 1}, {"id": second.id, "attempts": 0}]
    steps = tasks.as_json(rows)["steps"]
    assert [len(step["runs"]) for step in steps] == [1, 0, 0]


def test_a_list_that_moved_names_the_same_work(tmp_path: Path) -> None:
    text = '[steps.a]\nfor_each = {}\nprompt = "Do {{{{item}}}}"\n'

    def work(items: list[str]) -> dict[str, str]:
        progress = begin(tmp_path, text.format(json.dumps(items)))
        return {task.prompt: task.key for task in tasks_of(progress)}

    before, after = work(["x", "y"]), work(["new", "y", "x"])
    assert {prompt: after[prompt] for prompt in before} == before
    twice = begin(tmp_path, text.format('["x", "x"]') + '[steps.b]\nprompt = "Do x"\n')
    assert len({task.key for task in tasks_of(twice)}) == 3


def test_an_empty_list_is_done_and_what_is_none_fails(tmp_path: Path) -> None:
    progress = begin(tmp_path)
    play(progress, {"find": done({})})
    assert states(progress)["change"] == "done"
    assert states(progress)["test"] == "done"
    progress = begin(tmp_path)
    play(progress, {"find": done({"mods": "a lie"})})
    assert states(progress)["change"] == "failed"
    progress = begin(tmp_path)
    play(progress, {"find": done({"mods": [{}] * 10_001})})
    (change,) = [report for report in progress.report() if report.name == "change"]
    assert change.reason == "for_each has more than 10,000 values"


def test_a_prompt_that_would_be_cut_is_not_sent(tmp_path: Path) -> None:
    text = '[inputs]\nlong = ""\n[steps.a]\nmodel = "small"\nprompt = "See {{inputs.long}}"\n'
    (tmp_path / "p.toml").write_text(text)
    pipeline = read_pipeline(tmp_path / "p.toml", {"long": "é" * 100})
    limits = StepLimits(tmp_path, most_bytes=lambda name: 100 if name == "small" else 1000)
    (report,) = PipelineProgress(pipeline, limits).report()
    assert report.state == "failed"
    assert "has 204 bytes, and its model is sent 100 at most" in report.reason


def test_a_directory_that_a_model_names_is_inside(tmp_path: Path) -> None:
    (tmp_path / "work" / "in").mkdir(parents=True)
    text = """
[inputs]
place = "in"
[steps.find]
prompt = "x"
schema = { type = "object", properties = { dir = { type = "string" } } }
[steps.there]
cwd = "{{steps.find.result.dir}}"
prompt = "y"
[steps.each]
for_each = ["in", ".."]
cwd = "{{item}}"
prompt = "z"
[steps.given]
cwd = "{{inputs.place}}"
prompt = "z"
"""

    def standing(found: str, **given: str) -> dict[str, tuple[str, str]]:
        path = tmp_path / "p.toml"
        path.write_text(text)
        limits = StepLimits(tmp_path / "work", is_trusted="place" in given)
        progress = PipelineProgress(read_pipeline(path, given), limits)
        play(progress, {"find": done({"dir": found})})
        assert {str(task.cwd.relative_to(tmp_path)) for task in tasks_of(progress)} <= {
            "work",
            "work/in",
            ".",
        }
        return {report.name: (report.state, report.reason) for report in progress.report()}

    assert standing("in")["there"] == ("done", "")
    for outside in ("..", "/", "~", str(tmp_path), "in/../.."):
        assert standing(outside)["there"][0] == "failed"
    assert "is no directory" in standing("missing\n\x1b[31m")["there"][1]
    assert "outside" in standing("in")["each"][1]
    trusted = standing("..", place=str(tmp_path))
    assert (trusted["each"], trusted["given"]) == (("done", ""), ("done", ""))
    assert trusted["there"][0] == "failed"
