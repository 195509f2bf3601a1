"""The chat is ended from outside: killed, told to, its window closed (REC-4, CAN-13)."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.cli import AGENT, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import call, say
from tests.support.wire_facts import facts_of
from tests.support.work_processes import pids_of, wait_for_process

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


@pytest.mark.slow
@pytest.mark.spec("REC-3", "REC-4", "UI-8")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_chat_killed_in_mid_stream_is_resumed_by_the_next_one(
    model_server: ModelServer, chat: Chat, protocol: str
) -> None:
    model_server.add("An earlier answer.", say("Half", piece=20, stall_at="text"))
    terminal = chat(protocol=protocol)
    terminal.line("first question")
    terminal.wait_for("An earlier answer.")
    terminal.wait_for(IDLE)
    terminal.line("second question")
    terminal.wait_for("Half")
    terminal.kill(signal.SIGKILL)
    assert terminal.wait_exit() == -signal.SIGKILL

    model_server.add("Here again.")
    again = chat(protocol=protocol)
    shown = again.text()
    assert "second question" in shown
    assert re.search("resum", shown, re.IGNORECASE)
    assert re.search("crash|killed|interrupted|in the middle", shown, re.IGNORECASE)
    again.line("third")
    again.wait_for("Here again.")
    prompts = "\n".join(facts_of(model_server.requests[-1]).prompts)
    assert prompts == "first question\nsecond question\nthird"
    leave(again)


@pytest.mark.slow
@pytest.mark.spec("REC-1", "REC-4", "REC-8")
def test_a_chat_killed_in_mid_tool_is_resumed_with_the_calls_closed(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(call("bash", {"command": "echo begun; sleep 65.5"}, id="one"))
    terminal = chat("--yolo")
    terminal.line("run it")
    terminal.wait_for("begun")
    wait_for_process("sleep 65.5", terminal.process.pid)
    terminal.kill(signal.SIGKILL)
    terminal.wait_exit()
    gone = lambda: pids_of("sleep 65.5", work) == []  # noqa: E731 - a condition to wait for

    model_server.add("I know.")
    again = chat("--yolo")
    again.wait_until(gone, what="the end of the tool's process")
    again.line("what now?")
    again.wait_for("I know.")
    told = facts_of(model_server.requests[-1]).results["one"]
    assert told.startswith("Tool execution was interrupted by a crash. Please retry.")
    leave(again)


@pytest.mark.slow
@pytest.mark.spec("REC-4")
def test_a_chat_that_ended_well_is_not_resumed_unasked(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add("One.", "Two.", "Three.")
    terminal = chat()
    terminal.line("first")
    terminal.wait_for("One.")
    leave(terminal)
    fresh = chat()
    assert "first" not in fresh.text()
    fresh.line("second")
    fresh.wait_for("Two.")
    assert facts_of(model_server.requests[1]).prompts == ["second"]
    leave(fresh)
    taken_up = chat("--continue")
    taken_up.line("third")
    taken_up.wait_for("Three.")
    assert "\n".join(facts_of(model_server.requests[2]).prompts) == "second\nthird"
    leave(taken_up)


@pytest.mark.spec("CAN-13", "CAN-7", "OPS-1")
@pytest.mark.parametrize("working", [False, True])
def test_sigterm_ends_the_chat_with_143_and_the_terminal_restored(
    model_server: ModelServer, chat: Chat, working: bool
) -> None:
    terminal = chat()
    if working:
        model_server.add(say("Half", stall_at="text"))
        terminal.line("go")
        terminal.wait_for("Half")
    terminal.kill(signal.SIGTERM)
    assert terminal.wait_exit() == 143
    assert terminal.restored
    assert run_agent("sessions", "check", env=agent_env()).code == 0


@pytest.mark.spec("CAN-10", "CAN-13", "OPS-1")
@pytest.mark.parametrize("state", ["idle", "stream", "tool", "approval"])
def test_a_closed_window_ends_the_chat_and_everything_it_runs(
    model_server: ModelServer, chat: Chat, work: Path, state: str
) -> None:
    terminal = chat(*(["--yolo"] if state == "tool" else []))
    if state == "stream":
        model_server.add(say("Half", stall_at="text"))
        terminal.line("go")
        terminal.wait_for("Half")
    elif state != "idle":
        model_server.add(call("bash", {"command": "sleep 66.5"}, id="one"))
        terminal.line("go")
        terminal.wait_for("sleep 66.5")
        if state == "tool":
            wait_for_process("sleep 66.5", terminal.process.pid)
    terminal.hang_up()
    assert terminal.wait_exit() == 129
    assert pids_of("sleep 66.5", work) == []
    assert run_agent("sessions", "check", env=agent_env()).code == 0
    model_server.restart("Again.")
    if state != "idle":
        done = run_agent("run", "--continue", "on", env=agent_env(model_server), cwd=work)
        assert (done.code, done.stdout) == (0, "Again.\n"), done.stderr


@pytest.mark.slow
@pytest.mark.spec("OPS-1")
@pytest.mark.parametrize("how", ["ctrl-z", "SIGSTOP", "bg"])
def test_suspend_and_resume_give_the_terminal_back_and_take_it_again(
    model_server: ModelServer, work: Path, how: str
) -> None:
    model_server.add("Still here.")
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    env = {**agent_env(model_server), "PS1": "shell$ "}
    with Terminal(shell, env, work) as terminal:
        terminal.wait_for("shell$")
        terminal.line(f"{AGENT[0]} -m agentcli")
        terminal.wait_for(IDLE)
        if how == "ctrl-z":
            terminal.key("ctrl-z")
        else:
            pid = terminal.process.pid
            (agent,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            os.kill(int(agent), signal.SIGSTOP)
        terminal.wait_for(re.compile(r"Stopped.*shell\$", re.DOTALL))
        if how == "bg":
            terminal.line("bg")
            terminal.wait_for(re.compile(r"&\n.*shell\$", re.DOTALL))
        terminal.line("fg")
        terminal.wait_until(
            lambda: IDLE.search("\n".join(terminal.screen()[terminal.cursor[0] - 1 :])),
            what="the prompt",
        )
        terminal.line("hello")
        terminal.wait_for("Still here.")
        terminal.wait_for(IDLE)
        terminal.key("ctrl-d")
        terminal.wait_until(
            lambda: terminal.screen()[terminal.cursor[0]].startswith("shell$"), what="the shell"
        )
        terminal.line("exit")
        terminal.wait_exit()
