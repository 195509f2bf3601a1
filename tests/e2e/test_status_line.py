"""A status line command as users of Claude Code have one, at the bottom of a real chat."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.model_server import ModelServer
from tests.support.processes import alive, wait_until

SCRIPT = r"""
import json, os, sys
told = json.load(sys.stdin)
with open(os.environ["HOME"] + "/told", "a") as log:
    log.write(json.dumps(told) + "\n")
used = told["context_window"]["used_percentage"]
name = told["model"]["display_name"]
print(f"\x1b[31m<{name}>\x1b[0m used {used}\x1b]2;evil\x07\x1b[2J" + "x" * 200)
print("second \x1b[9999Hrow")
"""


def home() -> Path:
    return Path(os.environ["HOME"])


def use(command: str) -> None:
    (home() / ".claude").mkdir(parents=True, exist_ok=True)
    document = {"statusLine": {"type": "command", "command": command, "padding": 0}}
    (home() / ".claude/settings.json").write_text(json.dumps(document))
    (home() / "line.py").write_text(SCRIPT)


@pytest.mark.slow
@pytest.mark.spec("EXT-10", "SEC-10")
def test_what_the_command_prints_stands_at_the_bottom(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    use(f"python3 {home() / 'line.py'}")
    model_server.add("Hello.")
    terminal = chat()
    terminal.wait_for("<claude-sonnet-4-5> used None")
    terminal.wait_for("second row")
    assert "evil" not in terminal.text() and "? for keys" not in terminal.text()
    terminal.line("hi")
    terminal.wait_for("used 0.1")
    told = [json.loads(line) for line in (home() / "told").read_text().splitlines()]
    assert told[-1]["workspace"] == {
        "current_dir": str(work),
        "project_dir": str(work),
        "added_dirs": [],
    }
    assert told[-1]["session_id"] in told[-1]["transcript_path"]
    assert told[-1]["cost"]["total_cost_usd"] > 0 and told[-1]["version"]
    assert told[-1]["context_window"]["current_usage"]["output_tokens"] > 0
    assert any(row.endswith("…") and "used" in row for row in terminal.screen())
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("EXT-10")
def test_one_that_fails_or_hangs_leaves_our_own_line_and_nothing_behind(
    model_server: ModelServer, chat: Chat
) -> None:
    use(f"echo $$ > {home() / 'pid'}; sleep 600")
    terminal = chat()
    wait_until((home() / "pid").exists, "the command never ran")
    assert "? for keys" in terminal.text()
    model_server.add("Hello.")
    terminal.line("hi")
    terminal.wait_for("Hello.")
    terminal.wait_for(IDLE)
    leave(terminal)
    pid = int((home() / "pid").read_text())
    wait_until(lambda: not alive(pid), "the command outlived the chat")


@pytest.mark.slow
@pytest.mark.spec("EXT-10", "UI-3")
def test_every_action_can_have_another_key_and_ctrl_c_stays(
    model_server: ModelServer, chat: Chat
) -> None:
    config = Path(os.environ["AGENTCLI_HOME"], "config.toml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        '[keys]\nhelp = "f1"\nmode = "alt-m"\nsearch = "f3"\nleave = "alt-q"\nrewind = "alt-r"\n'
        'todos = "ctrl-c"\noutput = "ctrl-g"\nnosuch = "f9"\n'
    )
    model_server.add("Hello.")
    terminal = chat(rows=40, cols=160)
    for part in ("unknown key keys.nosuch", "keys.todos: ctrl-c cannot", "the key of editor"):
        assert part in terminal.text()
    terminal.send("\x1bOP")
    terminal.wait_for("Alt-M")
    terminal.send("\x1bm")
    terminal.wait_for("accept-edits")
    terminal.line("first words")
    terminal.wait_for("Hello.")
    terminal.wait_for(IDLE)
    terminal.send("\x1bOR")
    terminal.wait_for("search:")
    terminal.key("ctrl-c")
    terminal.wait_gone("search:")
    terminal.send("\x1bq")
    assert terminal.wait_exit() == 0


@pytest.mark.spec("EXT-10", "SEC-1")
def test_it_runs_nothing_of_a_directory_that_is_not_trusted(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    (work / "Makefile").write_text("line:\n\ttouch evil\n")
    use(f"make -s line; echo in $PWD; touch {home()}/ran")
    terminal = chat()
    terminal.wait_for(f"in {home()}")
    assert (home() / "ran").exists() and not (work / "evil").exists()
    leave(terminal)
