"""``agent replay``: the screen of the chat again, from its record, without a network or a tool."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.cli import AGENT, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import Call, calls, say

Start = Callable[..., Terminal]
ANSWER = """\
# What I found

Some **bold** words and `code`, long enough that the line has to be broken somewhere in the middle.

- one
- two

```python
def f(x: int) -> int:
    return x + 1
```

| a | b |
|---|---|
| 1 | 2 |

That is all of it."""


def newest() -> str:
    listed = run_agent("sessions", "list", "--format", "json", "--limit", "1", env=agent_env())
    return str(json.loads(listed.stdout)[0]["id"])


def rows(terminal: Terminal) -> list[str]:
    """From the first prompt to the end of the last answer, each time as N."""
    lines = terminal.text().split("\n")
    first = next(at for at, line in enumerate(lines) if "look at the notes" in line)
    last = max(at for at, line in enumerate(lines) if "The end of it." in line)
    return [re.sub(r"\b\d+(\.\d+)? s\b", "N s", line) for line in lines[first : last + 1]]


@pytest.fixture
def replaying() -> Iterator[Callable[..., Terminal]]:
    """Starts a replay in a terminal."""
    with ExitStack() as stack:

        def start(*args: str, cwd: Path, size: tuple[int, int] = (80, 24)) -> Terminal:
            command = [*AGENT, "replay", *args]
            return stack.enter_context(Terminal(command, agent_env(), cwd, size[1], size[0]))

        yield start


@pytest.mark.slow
@pytest.mark.spec("TT-4", "UI-8")
@pytest.mark.parametrize(
    "size", [(80, 24), pytest.param((44, 12), marks=pytest.mark.slow)], ids=str
)
def test_a_replay_paints_the_rows_that_the_chat_has_painted(
    model_server: ModelServer, chat: Chat, replaying: Start, work: Path, size: tuple[int, int]
) -> None:
    (work / "notes.txt").write_text("one\ntwo\n")
    reading = Call("read_file", {"path": "notes.txt"})
    missing = Call("read_file", {"path": "gone.txt"})
    model_server.add(
        calls(
            reading, missing, Call("list_directory", {"path": "."}), text="I look.", thinking="Hm."
        ),
        say(ANSWER, piece=7),
        say("The end of it."),
    )
    terminal = chat(cols=size[0], rows=size[1])
    terminal.line("look at the notes")
    terminal.wait_for("That is all of it.")
    terminal.wait_for(IDLE)
    terminal.line("and now?")
    terminal.wait_for("The end of it.")
    leave(terminal)
    painted = rows(terminal)
    model_server.close()
    (work / "notes.txt").unlink()
    replay = replaying(newest(), "--speed", "0", cwd=work, size=size)
    assert replay.wait_exit() == 0
    assert rows(replay) == painted
    assert replay.restored and not os.listdir(work)


def recorded(server: ModelServer, cwd: Path) -> str:
    server.add(calls(Call("list_directory", {"path": "."}), text="I look."), say("The end of it."))
    done = run_agent("run", "look at the notes", env=agent_env(server), cwd=cwd)
    assert done.code == 0, done.stderr
    return newest()


@pytest.mark.slow
@pytest.mark.spec("TT-4")
def test_steps_wait_for_a_key_and_q_ends_with_the_terminal_as_it_was(
    model_server: ModelServer, replaying: Start, tmp_path: Path
) -> None:
    session = recorded(model_server, tmp_path)
    terminal = replaying(session, "--step", cwd=tmp_path)
    terminal.wait_for("q ends.")
    assert "look at the notes" not in terminal.text()
    terminal.key("enter")
    terminal.wait_for("look at the notes")
    terminal.send(" ")
    terminal.wait_for("I look.")
    assert "The end of it." not in terminal.text()
    terminal.send("q")
    assert terminal.wait_exit() == 130
    assert terminal.restored and "Traceback" not in terminal.text()
    for number in (signal.SIGINT, signal.SIGTERM):
        again = replaying(session, "--step", cwd=tmp_path)
        again.wait_for("q ends.")
        again.kill(number)
        assert again.wait_exit() == 128 + number
        assert again.restored and "Traceback" not in again.text()


@pytest.mark.slow
@pytest.mark.spec("TT-4")
def test_it_plays_at_a_speed_and_is_held_by_space(
    model_server: ModelServer, replaying: Start, tmp_path: Path
) -> None:
    terminal = replaying(recorded(model_server, tmp_path), "--speed", "0.01", cwd=tmp_path)
    terminal.wait_for("q ends.")
    terminal.send(" ")
    terminal.send("\r")
    terminal.wait_for("look at the notes")
    terminal.send(" ")
    terminal.send("+" * 20)
    terminal.wait_for("End of look at the notes (1 turn).")
    assert terminal.wait_exit() == 0
    assert terminal.restored


@pytest.mark.slow
@pytest.mark.spec("TT-4", "CLI-11")
def test_in_a_pipe_it_is_text_at_once_and_mistakes_are_told(
    model_server: ModelServer, tmp_path: Path
) -> None:
    session = recorded(model_server, tmp_path)
    done = run_agent("replay", session, env=agent_env())
    assert (done.code, done.stderr) == (0, "")
    assert "look at the notes" in done.stdout and "The end of it." in done.stdout
    assert "\x1b" not in done.stdout
    for args in (
        (session, "--step"),
        (session, "--speed", "fast"),
        (session, "--speed", "-1"),
        ("zz",),
    ):
        done = run_agent("replay", *args, env=agent_env())
        assert done.code == 2 and len(done.stderr.splitlines()) == 1, done
