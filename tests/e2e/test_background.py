"""Background runs in the installed program: an idle chat, one-shot runs, kill -9 (BG-5 to BG-7)."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
from pathlib import Path

import pytest

from agentcli.domain.background import TaskState
from agentcli.store.repair.check import check
from agentcli.store.tasks import read_registry
from tests.e2e.chat import IDLE, Chat, leave
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.processes import alive, wait_until
from tests.support.replies import Call, Reply, call
from tests.support.wire_facts import facts_of
from tests.support.work_processes import commands_below

pytestmark = pytest.mark.slow

OFF = ("--sandbox", "off")


def spawn(command: str, **more: object) -> Reply:
    arguments = {"tool": "bash", "args": {"command": command}, **more}
    return Reply(blocks=(Call("spawn_background", arguments),))


def session_file() -> Path:
    (path,) = (Path(os.environ["AGENTCLI_HOME"]) / "sessions").glob("*.db")
    return path


@pytest.mark.spec("BG-5")
@pytest.mark.parametrize("how", [(), ("screen_reader",)])
def test_an_idle_chat_tells_of_the_end_and_lets_the_agent_react(
    model_server: ModelServer, chat: Chat, work: Path, how: tuple[str, ...]
) -> None:
    if how:
        home = Path(os.environ["AGENTCLI_HOME"])
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text("screen_reader = true\n")
    wait = "until [ -e go ]; do sleep 0.02; done; echo made"
    model_server.add(spawn(wait, title="the build"), "It is under way.", "The build is done.")
    idle = re.compile(r"^>\s*$", re.MULTILINE) if how else IDLE
    terminal = chat("--yolo", *OFF, until=idle)
    terminal.line("build it")
    terminal.wait_for("It is under way.")
    terminal.wait_for(idle)
    assert len(model_server.requests) == 2
    (work / "go").touch()
    terminal.wait_for("Background run succeeded: the build")
    terminal.wait_for("The build is done.")
    prompt = facts_of(model_server.requests[2]).prompts[-1]
    assert 'status="succeeded"' in prompt and 'title="the build"' in prompt
    assert "<background-run" not in terminal.text()
    if not how:
        leave(terminal)


@pytest.mark.spec("BG-5")
def test_a_chat_that_is_told_not_to_waits_for_the_person(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    home = Path(os.environ["AGENTCLI_HOME"])
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text("background_reacts = false\n")
    model_server.add(spawn("until [ -e go ]; do sleep 0.02; done", title="it"), "Begun.", "Seen.")
    terminal = chat("--yolo", *OFF)
    terminal.line("go")
    terminal.wait_for("Begun.")
    terminal.wait_for(IDLE)
    (work / "go").touch()
    terminal.wait_for("Background run succeeded: it")
    terminal.wait_for("the result of a background run")
    terminal.key("up")
    terminal.line("and?")
    terminal.wait_for("Seen.")
    prompts = "\n".join(facts_of(model_server.requests[2]).prompts)
    assert prompts.index("<background-run") < prompts.index("and?")
    leave(terminal)


@pytest.mark.spec("BG-7", "BG-5")
def test_a_one_shot_run_ends_what_is_active_and_says_so(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add(spawn("echo $$ > pid; sleep 60", title="sleeper"), "Done here.")
    env = agent_env(model_server, ANTHROPIC)
    done = run_agent("run", "--yolo", *OFF, "go", env=env, cwd=work)
    assert (done.code, done.stdout) == (0, "Done here.\n")
    assert "Background run interrupted: sleeper (its session was closed)" in done.stderr
    pid = work / "pid"
    assert not pid.exists() or not pid.read_text() or not alive(int(pid.read_text()))
    (task,) = read_registry(session_file())[0]
    assert task.state is TaskState.INTERRUPTED


@pytest.mark.spec("BG-5", "CLI-4")
def test_with_messages_on_stdin_an_end_comes_with_the_next_message(
    model_server: ModelServer, work: Path
) -> None:
    wait = "until [ -e ../ended ]; do sleep 0.02; done"
    model_server.add(
        spawn("touch ../ended", title="quick"),
        call("bash", {"command": f"{wait}; sleep 0.5"}, id="wait"),
        "One.",
        "Two.",
    )
    lines = [
        json.dumps({"type": "user", "message": {"role": "user", "content": text}})
        for text in ("first", "second")
    ]
    done = run_agent(
        *("run", "--yolo", *OFF, "--input-format", "stream-json", "-o", "stream-json"),
        input="\n".join(lines) + "\n",
        env=agent_env(model_server, ANTHROPIC),
        cwd=work,
    )
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["result"] for each in objects if each["type"] == "result"] == ["One.", "Two."]
    assert objects[-1]["type"] == "result"
    last = "\n".join(facts_of(model_server.requests[-1]).prompts)
    assert last.count("<background-run ") == 1 and last.endswith("second")


@pytest.mark.spec("BG-7", "REC-8")
def test_kill_9_of_the_chat_leaves_no_process_and_the_next_start_says_what_became_of_it(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    command = "echo $$ > pid; setsid sleep 61 & sleep 60"
    model_server.add(spawn(command, title="the server"), "Begun.", "I see.")
    terminal = chat("--yolo", *OFF)
    terminal.line("go")
    terminal.wait_for("Begun.")
    wait_until(lambda: bool((work / "pid").exists() and (work / "pid").read_text()), "its pid")
    pid = int((work / "pid").read_text())
    assert alive(pid)
    terminal.kill(signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the end of the command")
    terminal = chat("--yolo", *OFF, "--continue")
    terminal.wait_for(re.compile(r"run .the server. was interrupted: what bash does is\s+not done"))
    (task,) = read_registry(session_file())[0]
    assert task.state is TaskState.INTERRUPTED and "agentcli was stopped" in task.error_message
    assert json.loads(Path(task.result_path).read_text())["status"] == "interrupted"
    terminal.wait_for(IDLE)
    terminal.line("well?")
    terminal.wait_for("I see.")
    assert task.run_id in "\n".join(facts_of(model_server.requests[-1]).prompts)
    leave(terminal)


@pytest.mark.spec("BG-1", "SEC-3", "SEC-7")
def test_a_person_is_shown_what_will_run_and_a_no_starts_nothing(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(spawn("touch made", title="harmless"), "Then not.")
    model_server.add(spawn("touch made; echo $$ > pid; sleep 60"), "Begun.")
    terminal = chat()
    terminal.line("go")
    terminal.wait_for("yes, once")
    assert "touch made" in terminal.text() and "In the background" in terminal.text()
    terminal.confirm("n")
    terminal.wait_for("Then not.")
    terminal.wait_for(IDLE)
    assert not (work / "made").exists()
    terminal.line("again")
    terminal.wait_for(re.compile(r"> again\s[\s\S]*yes, once"))
    terminal.confirm("y")
    terminal.wait_for("Begun.")
    wait_until((work / "pid").exists, "the command")
    terminal.wait_for(IDLE)
    terminal.key("ctrl-d")
    assert terminal.wait_exit() == 0
    wait_until(lambda: not commands_below(work), "the end of all commands")


@pytest.mark.spec("BG-5", "BG-7")
@pytest.mark.parametrize("point", [12, 18, 24, 27, 29, 31, 33, 36])
def test_killed_at_any_write_the_end_of_a_run_is_told_once(
    model_server: ModelServer, work: Path, point: int
) -> None:
    home = os.environ["AGENTCLI_HOME"]
    wait = f"until ls {home}/sessions/*.runs/*/result.json; do sleep 0.02; done; sleep 0.1"
    model_server.add(spawn("true"), call("bash", {"command": wait}, id="wait"), *["Seen."] * 6)
    env = agent_env(model_server, ANTHROPIC)
    args = ("run", "--yolo", *OFF)
    run_agent(*args, "go", env={**env, "AGENTCLI_TEST_KILL_AT_WRITE": str(point)}, cwd=work)
    model_server.restart(*["Seen."] * 6)
    done = run_agent(*args, "--continue", "and?", env=env, cwd=work)
    assert done.code == 0, done.stderr
    path = session_file()
    db = sqlite3.connect(path)
    bodies = [row[0] for row in db.execute("SELECT body FROM message WHERE role = 'user'")]
    waiting = db.execute("SELECT count(*) FROM input_queue WHERE state = 'queued'").fetchone()[0]
    db.close()
    for task in read_registry(path)[0]:
        assert not task.is_active
        assert sum(body.count("<background-run") for body in bodies) == 1
    assert waiting == 0
    assert check(path) == []
