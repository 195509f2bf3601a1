"""kill -9 at every write to the session file, and at moments nobody chose (REC-1 to REC-3).

After each: the session opens and is sound, whatever had been shown is in it, no tool has run
twice, and the next request is one that the strict server accepts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Finished, agent_env, run_agent, spawn_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, Reply, calls, say
from tests.support.wire_facts import WireFacts, facts_of

pytestmark = pytest.mark.sampled

# three points for each transaction: the file with the prompt, the calls, intent and result of
# each call, what stood at the paths that a call changes before and after it, the second answer
POINTS = 48
KILLED = -signal.SIGKILL
CRASHED = "Tool execution was interrupted by a crash. Please retry."
CALL_IDS = {"read-1", "read-2", "write-1", "bash-1"}


def script() -> list[Reply]:
    """Two reads that run together, a write and a command that each leave a mark, an answer."""
    return [
        calls(
            Call("read_file", {"path": "one.txt"}, id="read-1"),
            Call("read_file", {"path": "two.txt"}, id="read-2"),
            Call("write_file", {"path": "made.txt", "content": "made\n"}, id="write-1"),
            Call("bash", {"command": "echo ran >> marks.txt && echo printed"}, id="bash-1"),
            text="Looking at both files.",
        ),
        say("All is done."),
    ]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (path / "one.txt").write_text("first file\n")
    (path / "two.txt").write_text("second file\n")
    return path


def run(server: ModelServer, protocol: str, work: Path, *args: str, **env: str) -> Finished:
    return run_agent(
        "run",
        "--yolo",
        "-o",
        "stream-json",
        *args,
        env=agent_env(server, protocol, **env),
        cwd=work,
    )


def lines_of(done: Finished) -> list[dict[str, Any]]:
    """The lines that came out whole before the kill."""
    whole = done.stdout[: done.stdout.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines()]


def sessions() -> list[Path]:
    return sorted((Path(os.environ["AGENTCLI_HOME"]) / "sessions").glob("*.db"))


def assert_sound(path: Path) -> None:
    """Our own look at the file: whole, and no call with two results."""
    db = sqlite3.connect(path)
    try:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        rows = [json.loads(body) for (body,) in db.execute("SELECT body FROM message")]
    finally:
        db.close()
    ids = [row.get("call_id") for row in rows if row.get("call_id")]
    assert len(ids) == len(set(ids))


def assert_nothing_lost(shown: list[dict[str, Any]], facts: WireFacts) -> None:
    """What the run had shown before it died is what the model is told now."""
    for line in shown:
        for block in line.get("message", {}).get("content", ()):
            if block["type"] == "text":
                assert block["text"] in facts.answers
            elif block["type"] == "tool_use":
                assert block["id"] in facts.calls
            elif block["type"] == "tool_result":
                text = block["content"]
                if not isinstance(text, str):
                    text = "\n".join(part["text"] for part in text)
                assert facts.results[block["tool_use_id"]] == text


def assert_effects_once(work: Path) -> None:
    marks = work / "marks.txt"
    assert not marks.exists() or marks.read_text() == "ran\n"


def resume(
    server: ModelServer, protocol: str, work: Path, shown: list[dict[str, Any]], *, form: int = 0
) -> Finished:
    """Take the session up again with a new prompt, and check all that must hold."""
    files = sessions()
    if not files:
        assert not server.requests, "a request was sent before the prompt was safe"
        assert all(line["type"] == "system" for line in shown)
        server.restart("Fresh.")
        done = run(server, protocol, work, "go on")
        assert (done.code, done.result["result"]) == (0, "Fresh.")
        return done
    assert_sound(files[0])
    server.restart("Resumed.")
    args = ["--continue", "go on"] if form % 2 else ["--session", files[0].stem, "go on"]
    done = run(server, protocol, work, *args)
    assert (done.code, done.result["subtype"]) == (0, "success"), done.stderr
    assert done.result["result"] == "Resumed."
    assert sessions() == files
    facts = facts_of(server.requests[-1])
    prompts = "\n".join(facts.prompts)  # neighbours may have been merged
    assert prompts.startswith("begin") and prompts.endswith("go on")
    assert_nothing_lost(shown, facts)
    assert set(facts.results) == set(facts.calls)
    for text in facts.results.values():
        assert text.startswith(CRASHED) or "Cancelled" not in text
    assert_effects_once(work)
    assert_sound(files[0])
    return done


@pytest.mark.spec("REC-3", "FAIL-5")
def test_a_run_passes_exactly_the_points_that_are_killed_at_below(
    model_server: ModelServer, work: Path, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    model_server.add(*script())
    done = run(model_server, ANTHROPIC, work, "begin", AGENTCLI_TEST_COUNT_WRITES=str(count))
    assert done.code == 0, done.stderr
    assert int(count.read_text().split()[-1]) == POINTS
    assert (work / "marks.txt").read_text() == "ran\n"


def points() -> list[Any]:
    every = [pytest.param(ANTHROPIC, n, id=f"anthropic-{n}") for n in range(1, POINTS + 1)]
    some = [pytest.param(OPENAI, n, id=f"openai-{n}") for n in range(3, POINTS + 1, 4)]
    return every + some


@pytest.mark.spec("REC-1", "REC-2", "REC-3")
@pytest.mark.parametrize(("protocol", "point"), points())
def test_a_run_killed_at_a_write_loses_nothing_and_can_be_resumed(
    model_server: ModelServer, work: Path, protocol: str, point: int
) -> None:
    model_server.add(*script())
    killed = run(model_server, protocol, work, "begin", AGENTCLI_TEST_KILL_AT_WRITE=str(point))
    assert killed.code == KILLED
    if point % 6 == 0:
        checked = run_agent("sessions", "check", env=agent_env())
        assert checked.code == 0, checked.stdout
    resume(model_server, protocol, work, lines_of(killed), form=point)


@pytest.mark.slow
@pytest.mark.spec("REC-1", "REC-3")
@pytest.mark.parametrize("point", range(1, 7))
def test_a_resume_that_is_killed_can_be_resumed(
    model_server: ModelServer, work: Path, point: int
) -> None:
    """The repair itself dies: at the balancing write, at the new prompt."""
    model_server.add(*script())
    first = run(model_server, ANTHROPIC, work, "begin", AGENTCLI_TEST_KILL_AT_WRITE="6:after")
    assert first.code == KILLED
    model_server.restart("Not to be seen.")
    second = run(
        model_server, ANTHROPIC, work, "--continue", "once more",
        AGENTCLI_TEST_KILL_AT_WRITE=str(point),
    )  # fmt: skip
    assert second.code == KILLED
    shown = [*lines_of(first), *lines_of(second)]
    resume(model_server, ANTHROPIC, work, shown, form=point)


def held_at(place: str) -> Callable[[ModelServer, str], None]:
    def arrange(server: ModelServer, protocol: str) -> None:
        first, second = script()
        first.stall_at = place
        server.add(first, second)

    return arrange


@pytest.mark.spec("REC-3", "CAN-5")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
@pytest.mark.parametrize("place", ["connect", "text", "call", "call:6"])
def test_a_run_killed_while_the_model_speaks_keeps_no_half_of_it(
    model_server: ModelServer, work: Path, protocol: str, place: str
) -> None:
    held_at(place)(model_server, protocol)
    env = agent_env(model_server, protocol)
    with spawn_agent("run", "--yolo", "-o", "stream-json", "begin", env=env, cwd=work) as running:
        model_server.wait_until_waiting()
        running.signal(signal.SIGKILL)
        killed = running.wait()
    resume(model_server, protocol, work, lines_of(killed))
    facts = facts_of(model_server.requests[-1])
    assert facts.calls == [] and facts.answers == []


@pytest.mark.spec("REC-1")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_a_run_killed_in_mid_tool_tells_the_model_which_calls_had_started(
    model_server: ModelServer, work: Path, protocol: str
) -> None:
    command = "echo ran >> marks.txt; mkfifo gate; read line < gate"
    model_server.add(
        calls(
            Call("read_file", {"path": "one.txt"}, id="read-1"),
            Call("bash", {"command": command}, id="bash-1"),
            Call("bash", {"command": "echo never >> marks.txt"}, id="bash-2"),
        )
    )
    env = agent_env(model_server, protocol)
    with spawn_agent("run", "--yolo", "-o", "stream-json", "begin", env=env, cwd=work) as running:
        running.wait_for(lambda line: line["type"] == "user")
        # a writer can open the pipe only when the command reads from it
        gate = open_when_there(work / "gate")
        running.signal(signal.SIGKILL)
        killed = running.wait()
        os.close(gate)
    resume(model_server, protocol, work, lines_of(killed))
    results = facts_of(model_server.requests[-1]).results
    assert "first file" in results["read-1"]
    assert results["bash-1"].startswith(CRASHED) and "unknown" in results["bash-1"]
    assert results["bash-2"].startswith(CRASHED) and "not started" in results["bash-2"]


def open_when_there(path: Path) -> int:
    """Open a named pipe for writing once somebody reads from it."""
    import time

    deadline = time.monotonic() + 10
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline, "the command never came to its pipe"
            time.sleep(0.005)


@pytest.mark.spec("REC-3")
@pytest.mark.parametrize("seed", range(6))
def test_a_run_killed_at_a_random_moment_can_be_resumed(
    model_server: ModelServer, work: Path, seed: int
) -> None:
    rng = random.Random(seed)
    protocol = rng.choice([ANTHROPIC, OPENAI])
    first, second = script()
    first.delay_s = second.delay_s = 0.004
    model_server.add(first, second)
    env = agent_env(model_server, protocol)
    with spawn_agent("run", "--yolo", "-o", "stream-json", "begin", env=env, cwd=work) as running:
        try:
            running.process.wait(rng.uniform(0.05, 0.8))
        except Exception:
            running.signal(signal.SIGKILL)
        killed = running.wait()
    assert killed.code in {KILLED, 0}
    resume(model_server, protocol, work, lines_of(killed), form=seed)


# --- in the middle of a change to a file ---------------------------------------------------------

_KILL_IN_CHANGE = """
import os, signal, sys
def hook(event, args):
    if event == "os.rename" and ".agentcli-" in str(args[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""


@pytest.mark.spec("REC-8", "TOOL-9")
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_a_kill_in_the_middle_of_a_change_leaves_nothing_in_the_workspace(
    model_server: ModelServer, work: Path, tmp_path: Path, tool: str
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(_KILL_IN_CHANGE)
    given = {
        "write_file": {"content": "new\n"},
        "edit_file": {"old_string": "first", "new_string": "new"},
    }[tool]
    model_server.add(calls(Call("read_file", {"path": "one.txt"}, id="r")))
    model_server.add(calls(Call(tool, {"path": "one.txt", **given}, id="w")))
    killed = run(model_server, ANTHROPIC, work, "go", PYTHONPATH=str(hooks))
    assert killed.code == KILLED, killed.stderr
    assert (work / "one.txt").read_text() == "first file\n"
    model_server.add(say("Later."))
    assert run(model_server, ANTHROPIC, work, "hello").code == 0
    assert sorted(path.name for path in work.iterdir()) == ["one.txt", "two.txt"]
