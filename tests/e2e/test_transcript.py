"""Ctrl-O and resuming in the real chat: the whole session, and its end, from its file."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.pty_driver import Terminal

THOUGHT = "".join(f"thought {n}\n" for n in range(12))
SCRIPT = [
    [
        {"thinking": THOUGHT, "signature": "s"},
        {"text": "I **look** first."},
        {"tool": "bash", "arguments": {"command": "seq 100 160"}},
    ],
    [{"text": "All is counted."}],
]


def counted(chat: Chat, tmp_path: Path, **env: str) -> Terminal:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    more = {"PAGER": "", **env, "AGENTCLI_SCRIPT": str(script)}
    terminal = chat("--yolo", "--new", "-m", "scripted/script", **more)
    terminal.line("count")
    terminal.wait_for("All is counted.")
    terminal.wait_for(IDLE)
    return terminal


@pytest.mark.slow
@pytest.mark.spec("UI-12", "UI-2")
def test_ctrl_o_shows_the_session_at_its_last_call_and_unfolds_thinking(
    chat: Chat, tmp_path: Path
) -> None:
    terminal = counted(chat, tmp_path)
    assert "thought 5" in terminal.text() and "thought 6" not in terminal.text()
    assert "6 more lines of thinking (Ctrl-O shows all)" in terminal.text()
    terminal.key("ctrl-o")
    terminal.wait_for("t thinking (folded)")
    assert re.search("^100$", terminal.text(), re.MULTILINE)  # the output, from its beginning
    terminal.send("g")
    terminal.wait_for("Thinking (12 lines)")
    assert "thought 3" not in "\n".join(terminal.screen())
    terminal.send("t")
    terminal.wait_for("t thinking (shown)")
    assert "thought 3" in "\n".join(terminal.screen())
    terminal.send("/155\r")
    terminal.wait_for(re.compile("^155$", re.MULTILINE))
    terminal.send("G/thought 1\r")  # it is above
    terminal.wait_for("from the beginning")
    assert "thought 1" in terminal.screen()[0]
    terminal.send("q")
    terminal.wait_for(IDLE)
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-12")
def test_the_pager_of_the_user_gets_all_of_it(chat: Chat, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/seen\necho it was seen\n")
    pager.chmod(0o755)
    terminal = counted(chat, tmp_path, PAGER=str(pager))
    terminal.key("ctrl-o")
    terminal.wait_for("it was seen")
    seen = (tmp_path / "seen").read_text()
    assert "\x1b" not in seen
    assert all(f"\n{number}\n" in seen for number in range(100, 161))
    assert "thought 11" in seen and "> count" in seen and "All is counted." in seen
    leave(terminal)


@pytest.mark.sampled
@pytest.mark.spec("UI-12", "SEC-8")
@pytest.mark.parametrize(("key", "variable"), [("ctrl-o", "PAGER"), ("ctrl-g", "VISUAL")])
def test_pager_and_editor_have_no_key_of_a_providers(
    chat: Chat, tmp_path: Path, key: str, variable: str
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho it was seen\n")
    program.chmod(0o755)
    keys = {"COHERE_API_KEY": "coh-5Lk9Xz4Pv8Nb1Mt6Rj3aa", "ALIAS": "coh-5Lk9Xz4Pv8Nb1Mt6Rj3aa"}
    terminal = counted(chat, tmp_path, **keys, MINE="blue", **{variable: str(program)})
    terminal.key(key)
    terminal.wait_for("it was seen")
    seen = (tmp_path / "seen").read_text()
    assert "MINE=blue" in seen and "TERM=" in seen
    assert keys["ALIAS"] not in seen and "_API_KEY=" not in seen
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("UI-12", "CAN-13")
def test_a_signal_ends_the_chat_while_its_own_pager_is_open(chat: Chat, tmp_path: Path) -> None:
    terminal = counted(chat, tmp_path)
    terminal.key("ctrl-o")
    terminal.wait_for("t thinking (folded)")
    terminal.kill(signal.SIGTERM)
    assert terminal.wait_exit() == 143
    assert terminal.restored


@pytest.mark.slow
@pytest.mark.spec("UI-8", "REC-4")
def test_a_resumed_chat_shows_the_conversation_as_it_was(chat: Chat, tmp_path: Path) -> None:
    terminal = counted(chat, tmp_path)
    terminal.key("ctrl-d")
    assert terminal.wait_exit() == 0
    again = chat("--yolo", "-c", "-m", "scripted/script", rows=60, AGENTCLI_SCRIPT="")
    text = again.text()
    assert "I look first." in text and "Run `seq 100 160`" in text and "exit 0" in text
    assert text.index("All is counted.") < text.index("Resumed: count")
    assert "1 turn; it was finished." in text
    leave(again)
