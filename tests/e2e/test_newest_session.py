"""The newest session of a directory cannot be read: nothing older goes on in silence (REC-4, 7)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.e2e.one_shot import assert_one_line_error, one_shot, result_of
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def overwritten(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


def of_a_later_version(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 99")


def with_a_broken_message(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE message SET body = '{'")


DAMAGES = [emptied, overwritten, of_a_later_version, with_a_broken_message]


def prompts(server: ModelServer) -> list[str]:
    return list(facts_of(server.requests[-1]).prompts)


def two_sessions(model_server: ModelServer, work: Path, home: Path) -> tuple[str, str, Path]:
    """The older one, the newer one, and its file."""
    model_server.add("one", "two")
    older, newer = (
        result_of(one_shot(model_server, "-o", "json", text, cwd=work))["session_id"]
        for text in ("the older talk", "the newer talk")
    )
    return older, newer, home / "agentcli/sessions" / f"{newer}.db"


@pytest.mark.slow
@pytest.mark.spec("REC-4", "REC-7")
@pytest.mark.parametrize("has_catalogue", [True, False])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_continue_stops_and_names_what_can_be_done(
    model_server: ModelServer,
    work: Path,
    home: Path,
    damage: Callable[[Path], None],
    has_catalogue: bool,
) -> None:
    older, newer, path = two_sessions(model_server, work, home)
    if not has_catalogue:
        for name in home.rglob("catalogue.db*"):
            name.unlink()
    damage(path)
    before = path.read_bytes()
    asked = len(model_server.requests)
    done = one_shot(model_server, "--continue", "go on", cwd=work)
    assert done.code == 74
    ways = [f"agent --session {older}", "agent --new"]
    repair = f"agent sessions repair {newer}"
    assert_one_line_error(done, str(path), *ways)
    assert (repair in done.stderr) == (damage is not of_a_later_version)
    assert len(model_server.requests) == asked
    assert path.read_bytes() == before
    model_server.add("three")
    assert one_shot(model_server, "--session", older, "go on", cwd=work).code == 0
    assert prompts(model_server) == ["the older talk", "go on"]
    model_server.add("four")
    assert one_shot(model_server, "-c", "further", cwd=work).code == 0  # the newest by now
    assert "the older talk" in prompts(model_server)


@pytest.mark.slow
@pytest.mark.spec("REC-4", "REC-7")
@pytest.mark.parametrize("options", [(), ("-c",)])
@pytest.mark.parametrize("keys", ["enter", "down enter", "down down enter", "esc"])
def test_the_chat_asks_what_to_do(
    model_server: ModelServer, work: Path, home: Path, chat: Chat, keys: str, options: tuple[str]
) -> None:
    older, newer, path = two_sessions(model_server, work, home)
    with_a_broken_message(path)
    if options == ():  # a plain start takes up what was interrupted
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE session SET status = 'cancelled'")
    model_server.add("On we go.")
    terminal = chat(*options, cols=200, until=re.compile("Start a new session"))
    assert "is damaged" in terminal.text()
    for key in keys.split():
        terminal.key(key)
    if keys == "esc":
        assert terminal.wait_exit() == 74
        assert terminal.restored
        return
    terminal.wait_for(IDLE)
    terminal.line("hello")
    terminal.wait_for("On we go.")
    leave(terminal)
    said = prompts(model_server)
    assert said[-1] == "hello"
    assert ("the older talk" in said) == (keys == "down enter")
    damaged = list(path.parent.glob(f"{newer}.damaged-*"))
    assert bool(damaged) == (keys == "enter")
    assert (home / "agentcli/sessions" / f"{older}.db").exists()


@pytest.mark.spec("REC-7")
def test_a_file_that_nobody_knows_does_not_stand_in_the_way_of_a_new_chat(
    model_server: ModelServer, work: Path, home: Path, chat: Chat
) -> None:
    sessions = home / "agentcli/sessions"
    sessions.mkdir(parents=True)
    (sessions / "0198aaaa-0000-7000-8000-00000000abcd.db").touch()
    model_server.add("Here.")
    terminal = chat()
    terminal.line("hello")
    terminal.wait_for("Here.")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("CLI-8", "REC-7")
def test_a_stray_file_misleads_no_command(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    older, newer, path = two_sessions(model_server, work, home)
    path.with_name("backup of monday.db").write_bytes(path.read_bytes())
    for command in ("check", "list", "stats"):
        done = run_agent("sessions", command, env=agent_env())
        assert done.code == 0, done.stderr
        assert "monday" not in done.stdout + done.stderr
    listed = run_agent("sessions", "list", "--format", "json", env=agent_env())
    assert [each["id"] for each in json.loads(listed.stdout)] == [newer, older]
