"""Commands of the chat at a terminal, with the whole program."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.model_server import ModelServer
from tests.support.wire_facts import facts_of


@pytest.mark.slow
@pytest.mark.spec("UI-5")
def test_commands_that_look_change_nothing_and_the_chat_goes_on(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    (work / "fresh.txt").write_text("x\n")
    model_server.add("Copy *me*.")
    terminal = chat()
    terminal.line("hello")
    terminal.wait_for("Copy me.")
    for line, shown in [
        ("/copy", "Sent to the terminal's clipboard: 1 line, 10 characters"),
        ("/diff", "+ fresh.txt (new)"),
        ("/usage", "7 days"),
        ("/permissions", "> default"),
        ("/effort", "> auto  as the model does"),
        ("/config", "/config all"),
        ("/search copy", "> hello"),
        ("/doctor", "git: "),
    ]:
        terminal.wait_for(IDLE)
        terminal.line(line)
        terminal.wait_for(shown)
        if line in {"/permissions", "/effort", "/search copy"}:
            terminal.key("esc")
    encoded = base64.b64encode(b"Copy *me*.")
    assert b"\x1b]52;c;" + encoded + b"\x07" in terminal.raw
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-5")
def test_fork_and_own_commands(
    model_server: ModelServer, chat: Chat, work: Path, home: Path
) -> None:
    commands = home / "agentcli/commands"
    commands.mkdir(parents=True)
    (commands / "explain.md").write_text("---\ndescription: explain a file\n---\nExplain @$1.\n")
    (work / "a.py").write_text("answer = 42\n")
    model_server.add("Explained.", "Forked.")
    terminal = chat()
    terminal.send("/expl")
    terminal.wait_for("explain a file (yours)")
    terminal.send("\x15")
    terminal.line("/explain a.py")
    terminal.wait_for("Explained.")
    assert "answer = 42" in json.dumps(model_server.requests[0].body)
    terminal.wait_for(IDLE)
    terminal.line("/fork")
    terminal.wait_for(re.compile(r"This is the copy: /explain a\.py \(copy\)"))
    terminal.wait_for(IDLE)
    terminal.line("go on")
    terminal.wait_for("Forked.")
    assert facts_of(model_server.requests[1]).prompts[-1] == "go on"
    leave(terminal)


@pytest.mark.spec("UI-8")
def test_a_session_is_found_by_its_text_and_resumed(model_server: ModelServer, chat: Chat) -> None:
    model_server.add("The heron eats fish.", "Nothing.")
    terminal = chat()
    terminal.line("about birds")
    terminal.wait_for("The heron eats fish.")
    terminal.wait_for(IDLE)
    terminal.line("/new")
    terminal.wait_for("A new session.")
    terminal.line("something else")
    terminal.wait_for("Nothing.")
    terminal.wait_for(IDLE)
    terminal.line("/resume")
    terminal.wait_for("2 found")
    terminal.send("hero fish")
    terminal.wait_for("No session matches.")
    terminal.send("\x15heron fi")
    terminal.wait_for("Found: The [heron]")
    terminal.key("enter")
    terminal.wait_for("Resumed: about birds")
    leave(terminal)
