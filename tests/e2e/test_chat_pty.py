"""The chat as a person has it: a real terminal, a real process, both wire protocols."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.cli import AGENT, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import call, fails, say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


@pytest.mark.slow
@pytest.mark.spec("UI-1", "UI-9", "CAN-13")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_is_shown_while_it_comes_and_the_exit_says_how_to_come_back(
    model_server: ModelServer, chat: Chat, protocol: str
) -> None:
    gate = threading.Event()
    model_server.add(
        say("The first line.\n\nThe second line.", piece=20, hold=gate, hold_at="text")
    )
    terminal = chat(protocol=protocol)
    terminal.line("hello there")
    terminal.wait_for("The first line.")
    assert "The second line." not in terminal.text()
    gate.set()
    terminal.wait_for("The second line.")
    leave(terminal)
    assert re.search(r"agent resume [0-9a-f-]{8,}", terminal.text())
    assert terminal.text().count("The first line.") == 1


@pytest.mark.slow
@pytest.mark.spec("UI-1")
def test_a_long_answer_is_in_the_scrollback_once_and_in_order(
    model_server: ModelServer, chat: Chat
) -> None:
    words = [f"item{n:03d}" for n in range(150)]
    model_server.add(say("\n".join(f"- {word}" for word in words), piece=7, delay_s=0.0005))
    terminal = chat()
    terminal.line("list them")
    terminal.wait_for("item149")
    terminal.wait_for(IDLE)
    assert re.findall(r"item\d{3}", terminal.text()) == words
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-1", "OPS-1")
def test_twenty_columns_are_enough(model_server: ModelServer, chat: Chat) -> None:
    model_server.add(
        call("bash", {"command": "echo a-rather-long-line-of-output"}),
        "A sentence that is wider than the window is.",
    )
    terminal = chat("--yolo", cols=20, rows=12)
    terminal.line("please run it")
    terminal.wait_for(re.compile(r"window\s+is\.", re.DOTALL), scrolled=True)
    shown = re.sub(r"\s+", "", terminal.text())
    assert "Asentencethatiswiderthanthewindowis." in shown
    assert all(len(line) <= 20 for line in terminal.screen())
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize(("rows", "cols"), [(10, 40), (40, 132), (24, 20)])
def test_resizing_in_mid_stream_loses_no_text(
    model_server: ModelServer, chat: Chat, rows: int, cols: int
) -> None:
    gate = threading.Event()
    text = "\n\n".join(f"Paragraph {n}." for n in range(12))
    model_server.add(say(text, piece=16, hold=gate, hold_at="text:6"))
    terminal = chat()
    terminal.line("go")
    terminal.wait_for("Paragraph 4.", scrolled=True)
    terminal.resize(rows, cols)
    gate.set()
    terminal.wait_for("Paragraph 11.")
    terminal.wait_for(IDLE if cols > 20 else "> Ask")
    found = re.findall(r"Paragraph (\d+)\.", terminal.text())
    assert [int(n) for n in found] == list(range(12))


@pytest.mark.spec("SEC-10")
def test_control_sequences_of_the_model_never_reach_the_terminal(
    model_server: ModelServer, chat: Chat
) -> None:
    evil = "safe \x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b5A \x1b]52;c;aGk=\x07 end"
    model_server.add(evil)
    terminal = chat()
    terminal.line("go")
    terminal.wait_for(re.compile(r"safe.*end", re.DOTALL))
    terminal.wait_for(IDLE)
    assert terminal.title != "owned"
    assert b"\x1b]52" not in terminal.raw and b"\x1b]0;owned" not in terminal.raw
    assert terminal.screen()[0].startswith("agentcli")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_what_is_typed_while_the_agent_works_is_the_next_prompt(
    model_server: ModelServer, chat: Chat
) -> None:
    gate = threading.Event()
    model_server.add(say("One.", hold=gate), "Two.")
    terminal = chat()
    terminal.line("first")
    model_server.wait_until_waiting()
    terminal.line("second")
    gate.set()
    terminal.wait_for("Two.")
    assert "\n".join(facts_of(model_server.requests[1]).prompts) == "first\nsecond"
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-3")
def test_a_paste_of_many_lines_is_one_prompt(model_server: ModelServer, chat: Chat) -> None:
    model_server.add("Got it.")
    terminal = chat()
    terminal.paste("line one\nline two\nline three")
    terminal.wait_for("line three")
    terminal.key("enter")
    terminal.wait_for("Got it.")
    assert facts_of(model_server.requests[0]).prompts == ["line one\nline two\nline three"]
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_a_prompt_on_the_command_line_is_the_first_message(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add("Hello to you.")
    with Terminal([*AGENT, "say", "hello"], agent_env(model_server), work) as terminal:
        terminal.wait_for("Hello to you.")
        leave(terminal)
    assert facts_of(model_server.requests[0]).prompts == ["say hello"]


@pytest.mark.slow
@pytest.mark.spec("STR-9", "LOOP-5")
def test_a_failed_request_is_a_line_and_the_chat_goes_on(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add(fails(400), "Better.")
    terminal = chat()
    terminal.line("hello")
    terminal.wait_for("rejected the request")
    terminal.wait_for(IDLE)
    terminal.line("again")
    terminal.wait_for("Better.")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-10", "OPS-1")
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_or_cursor_everything_still_reads(
    model_server: ModelServer, work: Path, env: dict[str, Any]
) -> None:
    model_server.add(call("bash", {"command": "echo out"}), "The **answer**.")
    environment = agent_env(model_server, **env)
    with Terminal([*AGENT, "--yolo", "hello"], environment, work) as terminal:
        terminal.wait_for(re.compile(r"The (\*\*)?answer"))
        terminal.wait_until(lambda: terminal.screen()[terminal.cursor[0]].startswith(">"))
        colours = re.findall(rb"\x1b\[[0-9;]*3[0-7][0-9;]*m", terminal.raw)
        assert colours == []
        if "TERM" in env:
            assert b"\x1b[2J" not in terminal.raw and b"\x1b[1A" not in terminal.raw
        terminal.key("ctrl-d")
        assert terminal.wait_exit() == 0


@pytest.mark.slow
@pytest.mark.spec("UI-5")
def test_the_commands_of_this_version_work(model_server: ModelServer, chat: Chat) -> None:
    model_server.add("Hello.")
    terminal = chat()
    terminal.line("/help")
    terminal.wait_for("/resume", scrolled=True)
    terminal.wait_for(IDLE)
    terminal.line("hello")
    terminal.wait_for("Hello.")
    for command, shown in [("/cost", "$"), ("/status", "claude"), ("/sessions", "hello")]:
        terminal.wait_for(IDLE)
        terminal.line(command)
        terminal.wait_for(shown)
    terminal.wait_for(IDLE)
    terminal.line("/rename a better name")
    terminal.wait_for(IDLE)
    terminal.line("/nosuch")
    terminal.wait_for(re.compile("no command", re.IGNORECASE))
    terminal.key("ctrl-c")
    terminal.wait_for(IDLE)
    terminal.line("/exit")
    assert terminal.wait_exit() == 0
    assert terminal.restored
    listed = run_agent("sessions", "list", env=agent_env())
    assert "a better name" in listed.stdout
    assert os.environ["AGENTCLI_HOME"]
