"""Esc Esc, /undo and /redo as a person uses them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.model_server import ModelServer
from tests.support.processes import wait_until
from tests.support.replies import Call, calls, say

IN_INPUT = re.compile(r"^> make a file\n[^\n]*accept-edits", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.spec("UI-3", "TT-2")
def test_esc_esc_goes_back_to_before_a_prompt_which_stands_in_the_input_again(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    write = Call("write_file", {"path": "made.txt", "content": "x"})
    model_server.add("First answer.", calls(write), "Made it.", say("Other answer."))
    terminal = chat("--permission-mode", "accept-edits")
    terminal.line("the first question")
    terminal.wait_for("First answer.")
    terminal.wait_for(IDLE)
    terminal.line("make a file")
    terminal.wait_for("Made it.")
    terminal.wait_for(IDLE)
    assert (work / "made.txt").exists()
    terminal.key("esc")
    terminal.key("esc")
    terminal.wait_for("Go back to before")
    terminal.wait_for(re.compile("2. make a file .*1 file change"))
    terminal.key("enter")
    terminal.wait_for("chat and files")
    terminal.key("enter")
    terminal.wait_for("Taken back: 4 messages, 1 file (made.txt)")
    terminal.wait_for(IN_INPUT)
    assert not (work / "made.txt").exists()
    for _ in range(len("make a file")):
        terminal.key("backspace")
    terminal.wait_for(IDLE)
    terminal.line("/redo")
    terminal.wait_for("Brought back")
    wait_until((work / "made.txt").exists, "the file is not back")
    terminal.line("/undo")
    terminal.wait_for(IN_INPUT)
    terminal.line(" again")
    terminal.wait_for("Other answer.")
    sent = str(model_server.requests[-1].body)
    assert "the first question" in sent and "Made it." not in sent
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("TT-2", "CAN-13")
@pytest.mark.parametrize("key", ["esc", "ctrl-c"])
def test_leaving_the_menu_changes_nothing(model_server: ModelServer, chat: Chat, key: str) -> None:
    model_server.add("First answer.")
    terminal = chat()
    terminal.line("the first question")
    terminal.wait_for("First answer.")
    terminal.wait_for(IDLE)
    terminal.line("/rewind")
    terminal.wait_for("Go back to before")
    terminal.key(key)
    terminal.wait_for(IDLE)
    assert "Taken back" not in terminal.text()
    terminal.line("/rewind 7")
    terminal.wait_for("there is no prompt 7")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("TT-2")
def test_what_somebody_else_has_changed_is_shown_and_kept(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(calls(Call("write_file", {"path": "made.txt", "content": "x\n"})), "Made it.")
    terminal = chat("--permission-mode", "accept-edits")
    terminal.line("make a file")
    terminal.wait_for("Made it.")
    terminal.wait_for(IDLE)
    (work / "made.txt").write_text("x\nmine\n")
    terminal.line("/undo")
    terminal.wait_for("+mine")
    terminal.wait_for("not by the agent")
    assert (work / "made.txt").read_text() == "x\nmine\n"
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("TT-2", "UI-5")
def test_undo_twice_in_a_row_and_a_wrong_command_need_no_clearing(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add("First answer.", "Second answer.")
    terminal = chat()
    for prompt, answer in (("one question", "First answer."), ("two questions", "Second answer.")):
        terminal.line(prompt)
        terminal.wait_for(answer)
        terminal.wait_for(IDLE)
    terminal.line("/undo")
    terminal.wait_for('from "two questions" on')
    terminal.wait_for(re.compile("^> two questions", re.MULTILINE))
    terminal.line("/undo")
    terminal.wait_for('from "one question" on')
    terminal.wait_for(re.compile("^> one question", re.MULTILINE))
    terminal.line("/udno")
    terminal.wait_for("Did you mean /undo?")
    terminal.line("/redo")
    terminal.wait_for("Brought back")
    terminal.line("exit")
    terminal.wait_for("To leave: /exit")
    assert len(model_server.requests) == 2
    leave(terminal)
