"""A person without a key starts the chat for the first time, talks, stops and comes back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from tests.support.pty_driver import Terminal

# forking a process that has threads warns from Python 3.12 on; the child only calls exec
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

KEY = "sk-ant-0123456789-abcdefghij"
PROMPT = "Ask or tell it what to do"


def chat(cwd: Path, *args: str) -> pexpect.spawn:
    env = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    return pexpect.spawn(
        sys.executable,
        ["-m", "agentcli", *args],
        cwd=str(cwd),
        env=env,
        encoding="utf-8",
        timeout=20,
        dimensions=(24, 80),
    )


@pytest.mark.spec("CLI-10", "UI-9", "CAN-13")
def test_without_a_key_it_says_what_it_is_reads_a_file_and_leaves(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("the cat sat on the mat\n")
    person = chat(tmp_path)
    person.expect(PROMPT)
    person.send("who are you?\r")
    person.expect("not a language model")
    person.expect(PROMPT)
    person.send("read note.txt\r")
    person.expect("the cat sat on the mat")
    person.expect(PROMPT)
    person.sendcontrol("c")
    person.expect("To leave")
    person.sendcontrol("c")
    person.expect(re.compile(r"agent resume [0-9a-f-]+"))
    person.expect(pexpect.EOF)
    person.close()
    assert person.exitstatus == 0


@pytest.mark.slow
@pytest.mark.spec("REC-4", "REC-1", "UI-8")
def test_killed_in_the_middle_of_a_command_it_comes_back_and_says_so(tmp_path: Path) -> None:
    person = chat(tmp_path)
    person.expect(PROMPT)
    person.send("run touch here; sleep 60\r")
    person.expect("Allow this")
    person.expect("Enter confirms")
    person.send("y\r")
    person.expect(r"sleep 60.* \d")
    person.kill(signal.SIGKILL)
    person.expect(pexpect.EOF)
    person.close()
    again = chat(tmp_path)
    again.expect("Resumed")
    again.expect("Not finished")
    again.expect(PROMPT)
    again.send("read nothing.txt\r")
    again.expect(PROMPT)
    again.sendeof()
    again.expect(pexpect.EOF)
    again.close()
    assert again.exitstatus == 0


@pytest.mark.spec("UI-6", "CTX-1", "SEC-9")
def test_the_start_says_where_one_is_and_which_instructions_were_read(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    subprocess.run(["git", "init", "-q", "-b", "topic", str(tmp_path)], check=True)
    person = chat(tmp_path)
    person.expect(f"{re.escape(tmp_path.name)}.*branch topic")
    person.expect("Project instructions: AGENTS.md")
    person.expect("No model yet: answers come from a small offline demo.")
    person.expect(PROMPT)
    person.send("please refactor everything\r")
    person.expect('I did not understand "please refactor everything"')
    person.expect(PROMPT)
    person.send("/login anthropic\r")
    person.expect(r"Key of anthropic \(not shown\):")
    person.sendcontrol("c")  # nothing is stored, and the chat goes on
    person.expect(PROMPT)
    person.send("/login anthropic\r")
    person.expect(r"Key of anthropic \(not shown\):")
    person.send(f"{KEY}\r")
    person.expect("the key of anthropic is in")
    person.expect(r"anthropic/claude-\S+ answers from now on")
    person.expect(PROMPT)
    person.sendcontrol("d")


@pytest.mark.spec("UI-3", "OPS-1")
@pytest.mark.parametrize("wrong", ["-m sonet", "-C nowhere"])
def test_what_is_typed_for_a_chat_that_does_not_begin_is_not_run_by_the_shell(
    tmp_path: Path, wrong: str
) -> None:
    script = (
        f"read go; '{sys.executable}' -m agentcli {wrong}; echo it has ended;"
        ' read -r line; echo "the shell has read <$line>"'
    )
    with Terminal(["/bin/sh", "-c", script], {**os.environ, "NO_COLOR": "1"}, tmp_path) as shell:
        shell.send("go\rdelete the old logs\r")
        shell.wait_for(re.compile(r"(?s)error: .*it has ended"))
        assert shell.text().count("delete the old logs") == 1  # nothing that was typed is lost
        shell.line("ls")
        shell.wait_for("the shell has read <ls>")
