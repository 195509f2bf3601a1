"""Background runs as a stranger would test them who has read the contract only (BG-1 to BG-7).

Everything goes over the wire and through the files that the program names: the calls of a model,
the results that it is sent, ``output.log``, ``result.json``, the processes of the machine.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.store.tasks import read_registry
from tests.support.cli import Finished, Running, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, ModelServer, Recorded, Scripted
from tests.support.processes import wait_until
from tests.support.replies import Call, Reply, call, calls
from tests.support.wire_facts import facts_of
from tests.support.work_processes import commands_below

pytestmark = pytest.mark.slow

RUN_ID = re.compile(r"bg_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")
CUT = "[system] background output truncated at 262144 characters"


def spawn(command: str, id: str, **more: Any) -> Call:  # noqa: A002 - the call's id
    arguments = {"tool": "bash", "args": {"command": command}, **more}
    return Call("spawn_background", arguments, id=id)


def until_ended(*ids: str) -> Callable[[Recorded], Reply]:
    """A step that waits, without an end of its own, for the results of the runs ``ids``."""

    def step(request: Recorded) -> Reply:
        results = [spawned(request, id)["result_path"] for id in ids]  # noqa: A001
        waits = "; ".join(f"until [ -e {path} ]; do sleep 0.02; done" for path in results)
        return call("bash", {"command": f"{waits}; sleep 0.2"}, id=f"wait-{'-'.join(ids)}")

    return step


def about(name: str, id: str, new: str, **more: Any) -> Callable[[Recorded], Reply]:  # noqa: A002
    """A step that calls ``name`` with the run that the call ``id`` has started."""
    return lambda request: call(name, {"run_id": spawned(request, id)["run_id"], **more}, id=new)


def spawned(request: Recorded, id: str) -> dict[str, str]:  # noqa: A002
    found: dict[str, str] = json.loads(facts_of(request).results[id])
    return found


def run(server: ModelServer, work: Path, *script: Scripted, args: tuple[str, ...] = ()) -> Finished:
    server.add(*script)
    env = agent_env(server, ANTHROPIC)
    done = run_agent("run", "--yolo", "--sandbox", "off", *args, "go", env=env, cwd=work)
    assert "Traceback" not in done.stderr and not server.violations
    return done


def session_file() -> Path:
    (path,) = (Path(os.environ["AGENTCLI_HOME"]) / "sessions").glob("*.db")
    return path


def told_of(request: Recorded, id: str) -> str:  # noqa: A002
    """What the model was told of the end of a run."""
    run_id = spawned(request, id)["run_id"]
    (said,) = (text for text in facts_of(request).prompts if run_id in text)
    return said


@pytest.mark.spec("BG-1", "BG-3", "BG-4", "BG-5")
def test_success_failure_and_cancel_each_with_its_row_its_files_and_its_message(
    model_server: ModelServer, work: Path
) -> None:
    stubborn = "trap '' TERM INT HUP; echo up; while :; do sleep 60; done"
    flood = "head -c 600000 /dev/zero | tr '\\0' x"
    done = run(
        model_server,
        work,
        calls(
            spawn("echo good", "good", title="the good one"),
            spawn("echo bad; exit 7", "bad"),
            spawn(stubborn, "stubborn"),
            spawn(flood, "flood", signal_on_completion=False),
        ),
        about("task_output", "stubborn", "seen", wait_s=60),
        about("task_cancel", "stubborn", "cancelled"),
        until_ended("good", "bad", "stubborn", "flood"),
        "Waiting.",
        "Over.",
    )
    assert (done.code, done.stdout) == (0, "Over.\n")
    last = model_server.requests[-1]
    ids = ("good", "bad", "stubborn", "flood")
    for id_ in ids:
        names = spawned(last, id_)
        assert set(names) == {"run_id", "task_id", "log_path", "result_path"}
        assert RUN_ID.fullmatch(names["run_id"])
        assert Path(names["log_path"]).name == "output.log"
        assert Path(names["result_path"]).name == "result.json"
    assert len({spawned(last, id_)["run_id"] for id_ in ids}) == 4

    logs = {id_: Path(spawned(last, id_)["log_path"]).read_text() for id_ in ids}
    assert logs["good"] == "good\n" and logs["bad"] == "bad\n"
    assert logs["stubborn"] == "up\nCanceled by request."
    assert logs["flood"] == f"{'x' * 262_144}\n{CUT}\n"
    ends = {id_: json.loads(Path(spawned(last, id_)["result_path"]).read_text()) for id_ in ids}
    assert ends["stubborn"] == {"status": "canceled"}
    assert ends["good"]["status"] == "succeeded" and "good" in ends["good"]["result"]
    assert set(ends["bad"]) == {"status", "error"} and ends["bad"]["status"] == "failed"
    assert "7" in ends["bad"]["error"]

    rows = {task.run_id: task for task in read_registry(session_file())[0]}
    states = {id_: str(rows[spawned(last, id_)["run_id"]].state) for id_ in ids}
    assert states == {
        "good": "succeeded",
        "bad": "failed",
        "stubborn": "cancelled",
        "flood": "succeeded",
    }
    assert rows[spawned(last, "stubborn")["run_id"]].cancel_requested_at is not None
    assert rows[spawned(last, "bad")["run_id"]].error_kind
    for id_, word in (("good", "succeeded"), ("bad", "failed"), ("stubborn", "canceled")):
        said = told_of(last, id_)
        for part in (word, "bash", *spawned(last, id_).values()):
            assert part in said
    assert "the good one" in told_of(last, "good")
    everything = "\n".join(facts_of(last).prompts)
    assert spawned(last, "flood")["run_id"] not in everything
    assert not commands_below(work)


@pytest.mark.spec("BG-5")
def test_ends_that_come_together_are_one_message(model_server: ModelServer, work: Path) -> None:
    ids = ("a", "b", "c")
    run(
        model_server,
        work,
        calls(*(spawn(f"echo {id_}", id_) for id_ in ids)),
        until_ended(*ids),
        "Waiting.",
        "Over.",
    )
    assert len(model_server.requests) == 4
    assert len({told_of(model_server.requests[-1], id_) for id_ in ids}) == 1


@pytest.mark.spec("BG-1")
def test_each_mistake_has_its_own_clear_text(model_server: ModelServer, work: Path) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "no_tool": {"args": {"command": "touch made"}},
        "empty_tool": {"tool": "", "args": {"command": "touch made"}},
        "no_args": {"tool": "bash"},
        "null_args": {"tool": "bash", "args": None},
        "unknown": {"tool": "brew", "args": {}},
        "front": {"tool": "read_file", "args": {"path": "a"}},
        "itself": {"tool": "spawn_background", "args": {"tool": "bash", "args": {}}},
        "unfit": {"tool": "bash", "args": {"nothing": 1}},
        "no_object": {"tool": "bash", "args": [1]},
    }
    asked = (Call("spawn_background", given, id=id_) for id_, given in wrong.items())
    run(model_server, work, calls(*asked), "So be it.")
    facts = facts_of(model_server.requests[-1])
    assert facts.errors == set(wrong)
    says = {
        "no_tool": "tool",
        "empty_tool": "tool",
        "no_args": "args",
        "null_args": "args",
        "unknown": "brew",
        "front": "cannot run in the background",
        "itself": "itself",
        "unfit": "command",
        "no_object": "args",
    }
    for id_, part in says.items():
        assert part in facts.results[id_], (id_, facts.results[id_])
    different = ("no_tool", "no_args", "unknown", "front", "itself", "unfit", "no_object")
    assert len({facts.results[id_] for id_ in different}) == len(different)
    assert not (work / "made").exists() and not read_registry(session_file())[0]


@pytest.mark.spec("BG-2", "BG-6", "BG-7")
def test_the_sixth_is_refused_until_one_has_ended_and_all_end_with_the_program(
    model_server: ModelServer, work: Path
) -> None:
    many = [spawn(f"setsid -f sleep 30{n}; exec sleep 30{n}", f"{n}") for n in range(6)]
    done = run(
        model_server,
        work,
        calls(*many),
        about("task_cancel", "2", "freed"),
        calls(spawn("exec sleep 309", "again"), spawn("exec sleep 310", "too_many")),
        call("list_tasks", {}, id="rows"),
        "Waiting.",
        "Enough.",
        args=("-o", "json"),
    )
    facts = facts_of(model_server.requests[-1])
    assert facts.errors == {"5", "too_many"}
    for id_ in facts.errors:
        assert "5 background runs are active" in facts.results[id_]
    rows = json.loads(facts.results["rows"])
    assert len(rows["active"]) == 5 and [row["status"] for row in rows["ended"]] == ["canceled"]
    assert done.code == 0 and done.result["result"] == "Enough."
    assert done.result["is_error"] is False and done.stdout.count("\n") == 1
    assert done.stderr.count("Background run interrupted: ") == 5
    assert not commands_below(work)
    assert {str(task.state) for task in read_registry(session_file())[0]} == {
        "interrupted",
        "cancelled",
    }


@pytest.mark.spec("BG-7", "REC-8", "CAN-10")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
)
def test_however_the_program_ends_it_leaves_no_process_and_the_next_start_tells(
    model_server: ModelServer, work: Path, number: signal.Signals, code: int
) -> None:
    stubborn = "trap '' TERM INT HUP; (setsid sleep 301 &); sleep 302 & touch up; sleep 303"
    model_server.add(
        Reply(blocks=(spawn(stubborn, "run"),)), call("bash", {"command": "sleep 304"})
    )
    env = agent_env(model_server, ANTHROPIC)
    with Running("run", "--yolo", "--sandbox", "off", "go", env=env, cwd=work) as running:
        wait_until((work / "up").exists, "the command")
        wait_until(lambda: "sleep 304" in commands_below(work).values(), "the other command")
        running.process.send_signal(number)
        assert running.process.wait(15) == code
    wait_until(lambda: not commands_below(work), "the end of all commands")
    model_server.restart("Well.", "I see.")
    args = ("run", "--yolo", "--continue", "and?")
    done = run_agent(*args, env=env, cwd=work)
    assert (done.code, done.stdout) == (0, "I see.\n"), done.stderr
    (task,) = read_registry(session_file())[0]
    assert str(task.state) == "interrupted" and task.error_message
    assert json.loads(Path(task.result_path).read_text())["status"] == "interrupted"
    said = "\n".join(facts_of(model_server.requests[-1]).prompts)
    assert said.count(f'run_id="{task.run_id}"') == 1 and "interrupted" in said
    if number is signal.SIGKILL:
        assert "interrupted" in done.stderr
