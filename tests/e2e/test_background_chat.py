"""Ctrl-B, ``/tasks``, schedules and ``agent tasks`` beside a chat at a terminal (UI-3, UI-6)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.domain.background import TaskState
from agentcli.store.tasks import leave_answer, read_registry
from tests.e2e.chat import IDLE, Chat, leave
from tests.support.cli import agent_env
from tests.support.model_server import ANTHROPIC, ModelServer, Recorded
from tests.support.processes import alive, wait_until
from tests.support.pty_driver import Terminal
from tests.support.replies import Call, Reply, call, say

pytestmark = pytest.mark.slow

OFF = ("--sandbox", "off")
LOOP = "echo $$ > pid; echo be''gun; until [ -e go ]; do sleep 0.02; done; echo finish''ed"


def session_file() -> Path:
    (path,) = (Path(os.environ["AGENTCLI_HOME"]) / "sessions").glob("*.db")
    return path


def run_of(terminal: Terminal) -> None:
    """Press Ctrl-B while the command runs."""
    terminal.wait_for("begun")
    terminal.key("ctrl-b")
    terminal.wait_for("moved to the background")


@pytest.mark.spec("UI-3", "UI-10")
def test_ctrl_b_works_line_by_line_too(model_server: ModelServer, chat: Chat, work: Path) -> None:
    home = Path(os.environ["AGENTCLI_HOME"])
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text("screen_reader = true\n")
    model_server.add(call("bash", {"command": LOOP}), "It goes on.", "It is done now.")
    terminal = chat("--yolo", *OFF, until=re.compile(r"^>\s*$", re.MULTILINE))
    terminal.line("build it")
    wait_until(lambda: (work / "pid").exists(), "the command")

    def is_moved() -> bool:  # the command may have written before the chat knows that it runs
        terminal.key("ctrl-b")
        return "moved to the background" in terminal.text()

    wait_until(is_moved, "the move to the background")
    terminal.wait_for("It goes on.")
    (work / "go").touch()
    terminal.wait_for("It is done now.")


@pytest.mark.spec("UI-3", "BG-5", "UI-6")
def test_ctrl_b_moves_the_command_and_its_end_is_told(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(call("bash", {"command": LOOP}), "It goes on.", "It is done now.")
    terminal = chat("--yolo", *OFF)
    terminal.line("build it")
    run_of(terminal)
    terminal.wait_for("It goes on.")
    terminal.wait_for("1 in the background")
    terminal.wait_for(IDLE)
    (work / "go").touch()
    terminal.wait_for("Background run succeeded")
    terminal.wait_for("It is done now.")
    (task,) = read_registry(session_file())[0]
    assert task.state is TaskState.SUCCEEDED
    assert Path(task.log_path).read_text() == "begun\nfinished\n"
    leave(terminal)


@pytest.mark.spec("UI-3")
def test_ctrl_b_moves_the_cursor_at_the_prompt_and_hints_where_nothing_runs(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add("Seen.")
    terminal = chat("--yolo", *OFF)
    terminal.send("ac")
    terminal.key("ctrl-b")
    terminal.send("b")
    terminal.key("enter")
    terminal.wait_for("Seen.")
    assert "> abc" in terminal.text()
    leave(terminal)


@pytest.mark.spec("UI-5", "UI-6", "BG-6")
def test_tasks_are_listed_shown_and_ended_in_the_chat(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(call("bash", {"command": LOOP}), "It goes on.", "I see it ended.")
    terminal = chat("--yolo", *OFF)
    terminal.line("/tasks")
    terminal.wait_for("No background runs")
    terminal.line("build it")
    run_of(terminal)
    terminal.wait_for("It goes on.")
    terminal.wait_for(IDLE)
    terminal.line("/tasks")
    terminal.wait_for(re.compile(r"1\s+running\s+echo"))
    terminal.line("/tasks 1")
    # a long path is wrapped, wherever that is
    terminal.wait_for(re.compile(r"\s*".join(map(re.escape, "output.log"))))
    terminal.line("/tasks cancel 1")
    terminal.wait_for("Background run cancelled")
    terminal.wait_for("I see it ended.")
    assert not alive(int((work / "pid").read_text()))
    leave(terminal)


@pytest.mark.spec("CLI-9", "UI-3")
def test_another_terminal_follows_what_was_moved(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(call("bash", {"command": LOOP}), "It goes on.", "It is done now.")
    terminal = chat("--yolo", *OFF)
    terminal.line("build it")
    run_of(terminal)
    terminal.wait_for(IDLE)
    (task,) = read_registry(session_file())[0]
    follower = subprocess.Popen(
        [sys.executable, "-m", "agentcli", "tasks", "logs", "-f", task.run_id[-6:]],
        cwd=work,
        env=agent_env(model_server, ANTHROPIC),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == "begun\n"
    (work / "go").touch()
    rest, _ = follower.communicate(timeout=20)
    assert (rest, follower.returncode) == ("finished\n", 0)
    terminal.wait_for("It is done now.")
    leave(terminal)


@pytest.mark.spec("BG-7", "UI-3", "REC-8")
def test_kill_9_of_the_chat_leaves_nothing_of_a_moved_command(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(call("bash", {"command": f"sleep 77 & {LOOP}"}), "It goes on.", "I see.")
    terminal = chat("--yolo", *OFF)
    terminal.line("build it")
    run_of(terminal)
    terminal.wait_for(IDLE)
    pid = int((work / "pid").read_text())
    assert alive(pid)
    terminal.kill(signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the end of the command")
    terminal = chat("--yolo", *OFF, "--continue")
    terminal.wait_for("was interrupted")
    (task,) = read_registry(session_file())[0]
    assert task.state is TaskState.INTERRUPTED


@pytest.mark.spec("BG-8", "BG-5")
def test_an_idle_chat_starts_what_is_due_and_the_agent_reacts(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    from datetime import UTC, datetime

    spawn = Call(
        "spawn_background",
        {
            "tool": "bash",
            "args": {"command": "echo made > made"},
            "title": "make it",
            "schedule": {"scheduled_at": datetime.now(UTC).isoformat()},
        },
    )
    model_server.add(Reply(blocks=(spawn,)), "It is planned.", "It was made.", "It was made.")
    terminal = chat("--yolo", *OFF)
    terminal.line("plan it")
    terminal.wait_for("Background run succeeded: make it")
    terminal.wait_for("It was made.")
    assert (work / "made").read_text() == "made\n"
    leave(terminal)


@pytest.mark.spec("SEC-6", "BG-8")
def test_the_question_about_a_schedule_shows_all_of_when_it_starts(
    model_server: ModelServer, chat: Chat
) -> None:
    often = ",".join(["0"] * 40) + ",* 1-23 * * *"
    spawn = {"tool": "bash", "args": {"command": "touch made"}}
    spawn["schedule"] = {"cron_expression": often}
    model_server.add(call("spawn_background", spawn), "As you like.")
    terminal = chat(cols=140)
    terminal.line("plan it")
    terminal.wait_for("yes, once")
    terminal.wait_for("0,0,* 1-23 * * *")
    terminal.confirm("n")
    leave(terminal)


def asks_once(request: Recorded) -> Reply:
    """A session that starts a sub-agent in the background, which asks; then what each is told."""
    body = json.dumps(request.body)
    last = json.dumps(request.body["messages"][-1])
    if "You are a sub-agent" in body:
        question = {"question": "Which port?", "options": ["80", "8080"]}
        return say("port taken") if "tool_result" in body else call("ask_user", question)
    if "background-run" in last:
        return say("I see the port.")
    if "tool_result" in last:
        return say("It goes on.")
    task = {"description": "open a port", "prompt": "open it"}
    return call("spawn_background", {"tool": "task", "args": task})


@pytest.mark.spec("BG-9", "UI-6")
def test_a_sub_agent_that_asks_is_answered_in_the_chat(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.default = asks_once
    terminal = chat("--yolo", *OFF)
    terminal.line("open it")
    terminal.wait_for("Background run asks: ")
    terminal.wait_for("Which port? [80 | 8080]")
    terminal.wait_for("1 in the background (1 asking)")
    terminal.wait_for(IDLE)
    terminal.line("/tasks answer 1 8080")
    terminal.wait_for("goes on.")
    terminal.wait_for("I see the port.")
    leave(terminal)


@pytest.mark.spec("BG-9", "REC-3")
def test_a_killed_chat_says_what_was_being_asked(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.default = asks_once
    terminal = chat("--yolo", *OFF)
    terminal.line("open it")
    terminal.wait_for("1 in the background (1 asking)")
    terminal.kill(signal.SIGKILL)
    terminal.wait_exit()
    (path,) = (
        path
        for path in (Path(os.environ["AGENTCLI_HOME"]) / "sessions").glob("*.db")
        if read_registry(path)[0]
    )
    (task,) = read_registry(path)[0]
    assert leave_answer(path, task.run_id, "8080")
    again = chat("-c", *OFF)
    again.wait_for('asking "Which port?"')
    again.wait_for(re.compile(r'the answer\s+"8080"\s+did not\s+reach it'))
    leave(again)
