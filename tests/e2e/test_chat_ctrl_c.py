"""Ctrl-C and Esc in every state of the chat (CAN-13)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, call, calls, say
from tests.support.wire_facts import facts_of
from tests.support.work_processes import pids_of, wait_for_process

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


@pytest.mark.spec("CAN-4", "CAN-5", "CAN-13")
@pytest.mark.parametrize(
    ("key", "place", "protocol"),
    [
        ("ctrl-c", "connect", ANTHROPIC),
        ("ctrl-c", "start", OPENAI),
        ("ctrl-c", "text", ANTHROPIC),
        ("ctrl-c", "text", OPENAI),
        ("esc", "start", ANTHROPIC),
        ("esc", "text", OPENAI),
    ],
)
def test_a_cancel_in_mid_stream_keeps_the_chat_and_the_history_clean(
    model_server: ModelServer, chat: Chat, protocol: str, place: str, key: str
) -> None:
    model_server.add(say("Half an answer", piece=20, stall_at=place), "A whole one.")
    terminal = chat(protocol=protocol)
    terminal.line("first")
    model_server.wait_until_waiting()
    if place == "text":
        terminal.wait_for("Half an answer")
    terminal.key(key)
    terminal.wait_for(re.compile("cancelled", re.IGNORECASE))
    terminal.wait_for(IDLE)
    assert model_server.wait_until_finished().client_left
    terminal.line("second")
    terminal.wait_for("A whole one.")
    facts = facts_of(model_server.requests[1])
    assert facts.answers == [] and "\n".join(facts.prompts) == "first\nsecond"
    leave(terminal)


@pytest.mark.spec("CAN-1", "CAN-6", "CAN-10", "CAN-13")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ctrl_c_in_mid_tool_kills_it_and_tells_the_model(
    model_server: ModelServer, chat: Chat, work: Path, protocol: str
) -> None:
    model_server.add(
        calls(
            Call("bash", {"command": "echo begun; sleep 63.5 & wait"}, id="one"),
            Call("bash", {"command": "touch never"}, id="two"),
        ),
        "I see.",
    )
    terminal = chat("--yolo", protocol=protocol)
    terminal.line("run it")
    terminal.wait_for("begun")
    wait_for_process("sleep 63.5", terminal.process.pid)
    terminal.key("ctrl-c")
    terminal.wait_for(IDLE)
    terminal.line("what happened?")
    terminal.wait_for("I see.")
    told = facts_of(model_server.requests[1]).results
    assert told["one"].startswith("Cancelled by user") and "begun" in told["one"]
    assert told["two"].startswith("Cancelled by user") and "not started" in told["two"]
    leave(terminal)
    assert pids_of("sleep 63.5", work) == []
    assert not (work / "never").exists()


@pytest.mark.spec("CAN-2", "CAN-13")
def test_ctrl_c_twice_stops_a_tool_that_ignores_signals(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(call("bash", {"command": "trap '' TERM INT HUP; sleep 64.5"}), "Fine.")
    terminal = chat("--yolo")
    terminal.line("run it")
    wait_for_process("sleep 64.5", terminal.process.pid)
    terminal.key("ctrl-c")
    terminal.key("ctrl-c")
    terminal.wait_for(IDLE)
    terminal.line("on")
    terminal.wait_for("Fine.")
    assert pids_of("sleep 64.5", work) == []
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("CAN-13")
def test_ctrl_c_at_the_empty_prompt_says_how_to_leave_and_the_second_leaves(chat: Chat) -> None:
    terminal = chat()
    terminal.key("ctrl-c")
    terminal.wait_for(re.compile("leave", re.IGNORECASE))
    terminal.wait_for(IDLE)
    assert terminal.process.poll() is None
    terminal.key("ctrl-c")
    assert terminal.wait_exit() == 0
    assert terminal.restored


@pytest.mark.slow
@pytest.mark.spec("CAN-13")
def test_ctrl_c_clears_what_is_typed_and_ctrl_d_does_not_leave_from_it(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add("Yes.")
    terminal = chat()
    terminal.send("half a thought")
    terminal.wait_for("half a thought")
    terminal.key("ctrl-d")
    terminal.key("ctrl-c")
    terminal.wait_for(IDLE)
    assert "leave" not in "\n".join(terminal.screen())
    terminal.line("another")
    terminal.wait_for("Yes.")
    assert facts_of(model_server.requests[0]).prompts == ["another"]
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("CAN-9", "UI-7")
def test_ctrl_c_at_an_approval_is_no_and_cancel(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(call("bash", {"command": "touch made"}, id="one"), "All right.")
    terminal = chat()
    terminal.line("make it")
    terminal.wait_for("touch made")
    terminal.wait_for(re.compile("yes", re.IGNORECASE))
    terminal.key("ctrl-c")
    terminal.wait_for(IDLE)
    terminal.line("and now?")
    terminal.wait_for("All right.")
    assert facts_of(model_server.requests[1]).results["one"].startswith("Cancelled by user")
    assert not (work / "made").exists()
    leave(terminal)
