"""What is typed while the agent works: delivered in order, kept through cancel, crash and restart."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.extensions.places import write
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import call, say
from tests.support.wire_facts import facts_of
from tests.support.work_processes import wait_for_process

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


@pytest.mark.slow
@pytest.mark.spec("UI-3", "CTRL-1")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_sent_while_a_tool_runs_reaches_the_model_after_it(
    model_server: ModelServer, chat: Chat, work: Path, protocol: str
) -> None:
    model_server.add(
        call("bash", {"command": "echo begun; while [ ! -e go ]; do sleep 0.05; done"}, id="one"),
        "I have read both.",
    )
    terminal = chat("--yolo", protocol=protocol)
    terminal.line("first")
    terminal.wait_for("begun")
    terminal.line("look at a")
    terminal.line("and at b")
    terminal.wait_for(re.compile("└ look at a\n.*└ and at b"))
    (work / "go").touch()
    terminal.wait_for("I have read both.")
    terminal.wait_for(IDLE)
    assert len(model_server.requests) == 2
    facts = facts_of(model_server.requests[1])
    assert "begun" in facts.results["one"]
    assert "\n".join(facts.prompts).split("\n") == ["first", "look at a", "and at b"]
    text = terminal.text()
    assert text.index("> first") < text.index("> look at a") < text.index("> and at b")
    assert "Queued" not in text
    leave(terminal)


@pytest.mark.spec("UI-3", "CAN-4", "CAN-13")
def test_what_waits_survives_a_cancel_and_goes_first(model_server: ModelServer, chat: Chat) -> None:
    model_server.add(say("Half", piece=20, stall_at="text"), "All done.")
    terminal = chat()
    terminal.line("first")
    terminal.wait_for("Half")
    terminal.line("second")
    terminal.wait_for("└ second")
    terminal.key("ctrl-c")
    terminal.wait_for("sent with the next Enter")
    terminal.wait_for(IDLE)
    assert len(model_server.requests) == 1
    terminal.line("third")
    terminal.wait_for("All done.")
    terminal.wait_for(IDLE)
    prompts = "\n".join(facts_of(model_server.requests[1]).prompts).split("\n")
    assert prompts == ["first", "second", "third"]
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "EXT-3", "UI-3")
def test_what_a_command_permits_is_not_for_what_waited_before_it(
    model_server: ModelServer, chat: Chat, work: Path, home: Path
) -> None:
    head = "---\nallowed-tools: bash(mkdir *)\n---\n"
    write(home, ".agents/commands/deploy.md", f"{head}Deploy it.\n")
    make = [call("bash", {"command": f"mkdir {name}"}) for name in ("waited", "called")]
    model_server.add(say("Half", piece=20, stall_at="text"), make[0], "No.", make[1], "Deployed.")
    terminal = chat()
    terminal.line("first")
    terminal.wait_for("Half")
    terminal.line("second")
    terminal.wait_for("└ second")
    terminal.key("ctrl-c")
    terminal.wait_for("sent with the next Enter")
    terminal.wait_for(IDLE)
    terminal.line("/deploy")
    terminal.wait_for("Allow this?")
    terminal.confirm("n")
    terminal.wait_for("Deployed.")
    assert (work / "called").exists() and not (work / "waited").exists()
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-3", "REC-3")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_waits_survives_the_end_of_the_program(
    model_server: ModelServer, chat: Chat, number: int
) -> None:
    model_server.add(say("Half", piece=20, stall_at="text"))
    terminal = chat()
    terminal.line("first")
    terminal.wait_for("Half")
    terminal.line("second")
    terminal.line("third")
    terminal.wait_for("└ third")
    terminal.kill(number)
    terminal.wait_exit()
    model_server.restart("Here again.")
    again = chat()
    again.wait_for(re.compile("with the next Enter.*\n.*└ second\n.*└ third"))
    again.key("enter")
    again.wait_for("Here again.")
    again.wait_for(IDLE)
    prompts = "\n".join(facts_of(model_server.requests[-1]).prompts).split("\n")
    assert prompts == ["first", "second", "third"]
    leave(again)


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_what_waits_can_be_taken_back_before_it_is_sent(
    model_server: ModelServer, chat: Chat
) -> None:
    gate = threading.Event()
    model_server.add(say("One.", hold=gate), "Two.")
    terminal = chat()
    terminal.line("first")
    model_server.wait_until_waiting()
    terminal.line("wrong")
    terminal.wait_for("└ wrong")
    terminal.key("up")
    terminal.wait_for("> wrong")
    terminal.key("ctrl-u")
    terminal.line("right")
    terminal.wait_for("└ right")
    gate.set()
    terminal.wait_for("Two.")
    assert "\n".join(facts_of(model_server.requests[1]).prompts) == "first\nright"
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-4")
def test_a_command_typed_after_an_exclamation_mark_is_told_to_the_model(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add("I see.")
    terminal = chat()
    terminal.line("!echo made > made; echo it is made")
    terminal.wait_for("with your next message")
    assert (work / "made").exists()
    terminal.line("!!echo a secret")
    terminal.wait_for("the agent does not see it")
    terminal.wait_for(IDLE)
    terminal.line("so?")
    terminal.wait_for("I see.")
    told = "\n".join(facts_of(model_server.requests[0]).prompts)
    assert "it is made" in told
    assert "a secret" not in told
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-3", "CAN-10")
def test_ctrl_z_while_the_agent_works_gives_the_terminal_back_and_takes_it_again(
    model_server: ModelServer, work: Path
) -> None:
    from tests.support.cli import AGENT, agent_env
    from tests.support.pty_driver import Terminal

    model_server.add(call("bash", {"command": "sleep 67.5"}), "Fine.")
    env = {**agent_env(model_server), "PS1": "shell$ "}
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    with Terminal(shell, env, work) as terminal:
        terminal.wait_for("shell$")
        terminal.line(f"{AGENT[0]} -m agentcli --yolo")
        terminal.wait_for(IDLE)
        terminal.line("run it")
        wait_for_process("sleep 67.5", terminal.process.pid)
        terminal.send("a draft")
        terminal.wait_for("> a draft")
        terminal.key("ctrl-z")
        terminal.wait_for(re.compile(r"Stopped.*shell\$", re.DOTALL))
        terminal.line("fg")
        terminal.wait_until(
            lambda: terminal.screen()[terminal.cursor[0]] == "> a draft", what="the draft"
        )
        terminal.key("ctrl-c")
        terminal.wait_for("Cancelled.")
        terminal.key("ctrl-u")
        terminal.wait_for(IDLE)
        terminal.key("ctrl-d")
        terminal.wait_until(
            lambda: terminal.screen()[terminal.cursor[0]].startswith("shell$"), what="the shell"
        )
        terminal.line("exit")
        terminal.wait_exit()
