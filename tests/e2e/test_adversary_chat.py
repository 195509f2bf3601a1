"""The chat against people, signals and windows at their worst moment."""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import call, say

pytestmark = pytest.mark.slow

KINDS = ("live", "dumb", "screen reader")


def begin(kind: str, chat: Chat, home: Path) -> Terminal:
    """A chat at a terminal of this kind."""
    if kind == "live":
        return chat()
    if kind == "screen reader":
        (home / "agentcli").mkdir(parents=True)
        (home / "agentcli" / "config.toml").write_text("screen_reader = true\n")
        return chat(until=re.compile("^>$", re.MULTILINE))
    return chat(until=re.compile("^>$", re.MULTILINE), TERM="dumb")


def at_the_picker(model_server: ModelServer, chat: Chat, *args: str, **env: str) -> Terminal:
    model_server.add("An earlier answer.")
    terminal = chat(*args, **env)
    terminal.line("first")
    terminal.wait_for("An earlier answer.")
    terminal.wait_until(lambda: terminal.screen()[terminal.cursor[0]].startswith(">"))
    terminal.line("/resume")
    terminal.wait_for("Number of the session:" if env else "Resume which session?")
    return terminal


@pytest.mark.spec("CAN-13", "OPS-1")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["term", "hup"]
)
def test_a_signal_ends_the_chat_while_a_session_is_being_chosen(
    model_server: ModelServer, chat: Chat, number: int, code: int
) -> None:
    terminal = at_the_picker(model_server, chat)
    terminal.kill(number)
    assert terminal.wait_exit() == code
    assert terminal.restored
    assert "agent resume" in terminal.text()


@pytest.mark.spec("CAN-13", "OPS-1")
def test_sigint_leaves_the_list_of_sessions_and_keeps_the_chat(
    model_server: ModelServer, chat: Chat
) -> None:
    terminal = at_the_picker(model_server, chat)
    terminal.kill(signal.SIGINT)
    terminal.wait_gone("Resume which session?")
    leave(terminal)


@pytest.mark.spec("CAN-13", "OPS-1")
def test_a_signal_ends_the_chat_that_begins_with_a_choice(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add("An earlier answer.")
    assert run_agent("run", "first", env=agent_env(model_server), cwd=work).code == 0
    terminal = chat("--resume", until="Resume which session?")
    assert "? for keys" not in "\n".join(terminal.screen())
    terminal.kill(signal.SIGTERM)
    assert terminal.wait_exit() == 143
    assert terminal.restored


@pytest.mark.spec("CAN-13", "OPS-1")
def test_a_window_closed_while_a_session_is_being_chosen_ends_the_chat(
    model_server: ModelServer, chat: Chat
) -> None:
    terminal = at_the_picker(model_server, chat)
    terminal.hang_up()
    assert terminal.wait_exit() == 129
    assert run_agent("sessions", "check", env=agent_env()).code == 0


@pytest.mark.spec("CAN-13", "OPS-1")
@pytest.mark.parametrize("way", ["term", "hang up"])
@pytest.mark.parametrize("question", ["reason", "ask_user"])
def test_a_line_that_is_being_typed_for_the_agent_holds_up_no_end(
    model_server: ModelServer, chat: Chat, question: str, way: str
) -> None:
    asking = call("ask_user", {"question": "Which?"}) if question == "ask_user" else None
    model_server.add(asking or call("bash", {"command": "touch made"}))
    terminal = chat()
    terminal.line("go")
    if question == "reason":
        terminal.confirm("r")
    terminal.wait_for("No, because:" if question == "reason" else "Your answer:")
    if way == "term":
        terminal.kill(signal.SIGTERM)
        assert terminal.wait_exit() == 143
        assert terminal.restored
    else:
        terminal.hang_up()
        assert terminal.wait_exit() == 129
    assert run_agent("sessions", "check", env=agent_env()).code == 0


@pytest.mark.spec("CAN-13", "OPS-1")
def test_signals_while_the_chat_is_ending_change_nothing(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add("Hello.")
    terminal = chat()
    terminal.line("hi")
    terminal.wait_for("Hello.")
    terminal.wait_for(IDLE)
    terminal.key("ctrl-d")
    terminal.wait_for("Resume with")
    while terminal.process.poll() is None:
        terminal.kill(signal.SIGINT)
        time.sleep(0.001)
    assert terminal.wait_exit() == 0
    assert "Traceback" not in terminal.text()


@pytest.mark.spec("REC-4", "REC-7")
def test_a_damaged_session_that_nobody_asked_for_is_named_and_does_not_stand_in_the_way(
    model_server: ModelServer, chat: Chat, home: Path
) -> None:
    model_server.add(say("Half", stall_at="text"))
    killed = chat()
    killed.line("go")
    killed.wait_for("Half")
    killed.kill(signal.SIGKILL)
    killed.wait_exit()
    (path,) = (home / "agentcli/sessions").glob("*.db")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE message SET body = '{'")
    model_server.restart("Here.")
    terminal = chat(cols=300, until="Start a new session")
    assert "is damaged: " in terminal.text()
    terminal.key("down")
    terminal.key("enter")
    terminal.wait_for(IDLE)
    terminal.line("hello")
    terminal.wait_for("Here.")
    leave(terminal)


@pytest.mark.spec("REC-4", "REC-6")
def test_a_second_window_begins_a_new_session_where_the_first_has_been_cancelled(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add(say("Half", stall_at="text"))
    first = chat()
    first.line("go")
    first.wait_for("Half")
    first.key("ctrl-c")
    first.wait_for(IDLE)
    second = chat()
    second.wait_for("open in another agent")
    model_server.restart("Here.", "There.")
    second.line("hello")
    second.wait_for("Here.")
    leave(second)
    first.line("on")
    first.wait_for("There.")
    leave(first)


@pytest.mark.spec("CAN-13", "OPS-1")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["term", "hup"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_terminal_that_takes_nothing_does_not_keep_the_chat_from_ending(
    model_server: ModelServer, chat: Chat, home: Path, kind: str, number: int, code: int
) -> None:
    model_server.add(say("word " * 100_000, piece=100, stall_at="end"))
    terminal = begin(kind, chat, home)
    with terminal.not_reading():
        terminal.line("go")
        model_server.wait_until_waiting()
        terminal.kill(number)
        assert terminal.process.wait(10) == code
    assert run_agent("sessions", "check", env=agent_env()).code == 0


def woken(pid: int) -> int:
    """How often the main thread has gone to sleep, and so was woken up again."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.spec("CAN-13", "OPS-1")
def test_a_flood_that_the_terminal_does_not_take_costs_no_wake_ups_and_no_time_at_the_end(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add(say("**word** `x` " * 400_000, piece=20_000, stall_at="end"))
    terminal = chat()
    pid = terminal.process.pid
    with terminal.not_reading():
        terminal.line("go")
        model_server.wait_until_waiting()
        quiet, give_up = 0, time.monotonic() + 15
        while quiet < 3:  # each for a third of a second, in which ten frames could be drawn
            assert time.monotonic() < give_up, "it goes on drawing what nobody takes"
            before = woken(pid)
            time.sleep(1 / 3)  # what is measured
            quiet = quiet + 1 if woken(pid) - before < 5 else 0
        terminal.kill(signal.SIGTERM)
        assert terminal.process.wait(10) == 143
    assert run_agent("sessions", "check", env=agent_env()).code == 0


@pytest.mark.spec("CAN-13", "OPS-1")
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_is_heard_while_the_terminal_takes_nothing(
    model_server: ModelServer, chat: Chat, home: Path, kind: str
) -> None:
    model_server.add(say("word " * 100_000, piece=100, stall_at="end"))
    terminal = begin(kind, chat, home)
    with terminal.not_reading():
        terminal.line("go")
        request = model_server.wait_until_waiting()
        terminal.key("ctrl-c")
        assert request.finished.wait(10)
    terminal.wait_for(re.compile(r"[Cc]ancelled"), 30, scrolled=True)
    terminal.wait_for(re.compile("^>", re.MULTILINE))
    terminal.key("ctrl-d")
    assert terminal.wait_exit() == 0


@pytest.mark.spec("CAN-13", "OPS-1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["term", "hup"])
@pytest.mark.parametrize("program", ["editor", "pager"])
def test_a_signal_ends_the_chat_while_a_program_has_the_terminal(
    model_server: ModelServer, chat: Chat, tmp_path: Path, program: str, number: int
) -> None:
    patient = tmp_path / "patient"
    patient.write_text("#!/bin/sh\necho it is open\nexec sleep 1000\n")
    patient.chmod(0o755)
    model_server.add(call("bash", {"command": "echo out"}), "Done.")
    terminal = chat("--yolo", EDITOR=str(patient), PAGER=str(patient))
    terminal.line("go")
    terminal.wait_for("Done.")
    terminal.wait_for(IDLE)
    terminal.key("ctrl-g" if program == "editor" else "ctrl-o")
    terminal.wait_for("it is open")
    terminal.kill(number)
    assert terminal.wait_exit() == 128 + number
    assert terminal.restored
    assert "Traceback" not in terminal.text()
