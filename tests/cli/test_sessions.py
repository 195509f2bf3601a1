"""``agent sessions``: the files seen from outside."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import AGENT, agent_env, run_agent
from tests.support.pty_driver import Terminal

OFFLINE = {"AGENTCLI_MODEL": "offline/assistant"}


def ask(prompt: str, cwd: Path) -> str:
    done = run_agent("run", "-o", "json", prompt, env=agent_env(**OFFLINE), cwd=cwd)
    assert done.code == 0, done
    return str(done.result["session_id"])


def listed(*args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        run_agent("sessions", "list", *args, "--format", "json").stdout
    )
    return found


def database(home: Path, session_id: str) -> Path:
    return home / "agentcli" / "sessions" / f"{session_id}.db"


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_list_as_json_has_the_agreed_fields_newest_first(tmp_path: Path) -> None:
    first = ask("first question", tmp_path)
    second = ask("second question", tmp_path)
    found = listed()
    assert [entry["id"] for entry in found] == [second, first]
    entry = found[0]
    wanted = {"id", "title", "cwd", "created_at", "updated_at", "state", "turns", "model"}
    assert wanted <= set(entry)
    assert entry["cwd"] == str(tmp_path)
    assert entry["state"] == "done"
    assert entry["turns"] == 1
    assert entry["model"] == "offline/assistant"
    assert "second question" in entry["title"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", entry["updated_at"])
    assert len(listed("--limit", "1")) == 1


@pytest.mark.spec("CLI-8", "CLI-9")
def test_no_sessions_are_an_empty_list() -> None:
    assert listed() == []
    done = run_agent("sessions")
    assert (done.code, done.stdout) == (0, "")


@pytest.mark.spec("CLI-8")
def test_the_table_has_a_line_for_each_session(tmp_path: Path) -> None:
    session_id = ask("a question", tmp_path)
    done = run_agent("sessions", "list")
    head, line = done.stdout.splitlines()
    assert head.startswith("ID")
    assert session_id in line
    assert "a question" in line


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_export_writes_every_format(tmp_path: Path) -> None:
    session_id = ask("list files", tmp_path)
    as_json = json.loads(run_agent("sessions", "export", session_id).stdout)
    assert as_json["format"] == "agentcli-session/1"
    assert [m["role"] for m in as_json["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert "list files" in run_agent("sessions", "export", session_id, "--format", "md").stdout
    page = tmp_path / "page.html"
    done = run_agent("sessions", "export", session_id, "--format", "html", "-o", str(page))
    assert done.code == 0
    assert page.read_text().lstrip().lower().startswith("<!doctype html")
    assert run_agent("sessions", "export", session_id, "--format", "pdf").code == 2


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
@pytest.mark.parametrize("is_there", [False, True])
def test_an_export_is_whole_or_not_there(tmp_path: Path, home: Path, *, is_there: bool) -> None:
    """What is damaged in the middle of a session is found while the file is being written."""
    session_id = ask("list files", tmp_path)
    page = tmp_path / "out" / "page.html"
    page.parent.mkdir()
    if is_there:
        page.write_text("of before")
        page.chmod(0o640)
    command = ("sessions", "export", session_id, "--format", "html", "--force", "-o", str(page))
    path = home / "agentcli" / "sessions" / f"{session_id}.db"
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE message SET body = '[' || body WHERE seq = 4")
    assert run_agent(*command).code == 74
    assert [each.read_text() for each in page.parent.iterdir()] == ["of before"] * is_there
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE message SET body = substr(body, 2) WHERE seq = 4")
    assert run_agent(*command).code == 0
    assert page.read_text().endswith("</html>\n")
    assert page.stat().st_mode & 0o777 == (0o640 if is_there else 0o600)
    assert list(page.parent.iterdir()) == [page]


@pytest.mark.slow
@pytest.mark.spec("CLI-8", "CLI-12", "SEC-10")
@pytest.mark.parametrize("command", ["export", "show"])
def test_json_is_utf_8_whatever_the_locale_and_without_controls(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("caf\u00e9 \u009b31m \u202e")
    session_id = ask("read note.txt", tmp_path)
    latin = agent_env(PYTHONIOENCODING="latin-1")
    done = run_agent("sessions", command, session_id, "--format", "json", env=latin)
    value = json.loads(done.stdout)
    assert "caf\u00e9 \u009b31m \u202e" in json.dumps(value, ensure_ascii=False)
    assert "caf\u00e9" in done.stdout
    assert not {"\u009b", "\u202e"} & set(done.stdout)


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_show_prints_the_conversation(tmp_path: Path) -> None:
    session_id = ask("a question", tmp_path)
    assert "a question" in run_agent("sessions", "show", session_id[-8:]).stdout
    shown = run_agent("sessions", "show", session_id, "--format", "json")
    assert json.loads(shown.stdout)["session"]["id"] == session_id


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_rename_gives_a_name_to_find_it_by(tmp_path: Path) -> None:
    session_id = ask("a question", tmp_path)
    assert run_agent("sessions", "rename", session_id, "my", "name").code == 0
    assert listed()[0]["title"] == "my name"
    assert "a question" in run_agent("sessions", "show", "my name").stdout
    assert run_agent("sessions", "rename", session_id, " ").code == 2


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_fork_prints_the_id_of_a_copy(tmp_path: Path) -> None:
    first = ask("a question", tmp_path)
    done = run_agent("sessions", "fork", first[-8:])
    assert (done.code, done.stderr) == (0, "")
    second = done.stdout.strip()
    as_json = json.loads(run_agent("sessions", "fork", second, "--format", "json").stdout)
    assert as_json["parent_id"] == second
    assert [entry["id"] for entry in listed()] == [as_json["id"], second, first]
    exports = [
        json.loads(run_agent("sessions", "export", name).stdout)["messages"]
        for name in (first, second, as_json["id"])
    ]
    assert exports[0] == exports[1] == exports[2]
    assert run_agent("sessions", "check").code == 0


@pytest.mark.spec("CLI-8", "REC-7")
def test_a_damaged_session_is_not_forked(tmp_path: Path, home: Path) -> None:
    session_id = ask("a question", tmp_path)
    file = database(home, session_id)
    file.write_bytes(file.read_bytes()[:5000])
    done = run_agent("sessions", "fork", session_id)
    assert done.code != 0
    assert done.stdout == ""
    assert f"agent sessions repair {session_id}" in done.stderr
    assert list(file.parent.glob("*.db")) == [file]


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_a_script_deletes_by_the_whole_id_or_with_yes(tmp_path: Path, home: Path) -> None:
    one, two = ask("a question", tmp_path), ask("another", tmp_path)
    for part in (one[:-1], "a question"):
        refused = run_agent("sessions", "delete", part)
        assert refused.code == 2
        assert one in refused.stderr and "--yes" in refused.stderr
    assert database(home, one).exists()
    assert run_agent("sessions", "delete", one).code == 0
    assert not database(home, one).exists()
    assert [row["id"] for row in listed()] == [two]
    assert run_agent("sessions", "delete", "--yes", "another").code == 0
    assert listed() == []


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1), ("n", 1)])
def test_a_person_is_asked_before_a_session_is_deleted(
    tmp_path: Path, home: Path, answer: str, code: int
) -> None:
    session_id = ask("a question", tmp_path)
    args = [*AGENT, "sessions", "delete", session_id]
    with Terminal(args, agent_env(), tmp_path) as terminal:
        terminal.wait_for("for good?")
        terminal.line(answer)
        assert terminal.wait_exit() == code
    assert database(home, session_id).exists() is bool(code)


@pytest.mark.slow
@pytest.mark.spec("CLI-8", "REC-7")
def test_check_names_a_damaged_file_and_repair_mends_it(tmp_path: Path, home: Path) -> None:
    sound, broken = ask("one", tmp_path), ask("two", tmp_path)
    file = database(home, broken)
    file.write_bytes(file.read_bytes()[:5000])
    done = run_agent("sessions", "check")
    assert done.code == 1
    assert f"{sound}: ok" in done.stdout
    assert f"agent sessions repair {broken}" in done.stdout
    found = json.loads(run_agent("sessions", "check", "--format", "json").stdout)
    assert {entry["id"]: entry["ok"] for entry in found} == {sound: True, broken: False}
    mended = run_agent("sessions", "repair", broken)
    assert mended.code == 0, mended
    assert "the damaged file is" in mended.stderr
    assert run_agent("sessions", "check").code == 0
    assert "nothing was wrong" in run_agent("sessions", "repair", sound).stderr


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_search_finds_text_and_reindex_makes_the_index_anew(tmp_path: Path, home: Path) -> None:
    session_id = ask("where is the marmalade", tmp_path)
    hits = json.loads(run_agent("sessions", "search", "marmalade", "--format", "json").stdout)
    assert hits[0]["id"] == session_id
    assert run_agent("sessions", "search", "nothingofthekind").code == 1
    (home / "agentcli" / "catalogue.db").unlink()
    assert "sessions indexed: 1" in run_agent("sessions", "reindex").stderr
    assert "marmalade" in run_agent("sessions", "search", "marmalade").stdout


@pytest.mark.sampled
@pytest.mark.spec("CLI-8")
@pytest.mark.parametrize("command", ["show", "export", "fork", "delete", "check", "repair"])
def test_a_session_that_is_not_there_is_one_line_and_exit_code_2(command: str) -> None:
    done = run_agent("sessions", command, "nothing")
    assert done.code == 2
    assert done.stderr.startswith("error: ")
    assert "agent sessions list" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_several_that_fit_are_listed(tmp_path: Path) -> None:
    first, second = ask("one", tmp_path), ask("two", tmp_path)
    start = first[: next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)]
    done = run_agent("sessions", "show", start)
    assert done.code == 2
    assert first in done.stderr
    assert second in done.stderr


@pytest.mark.spec("CLI-8", "REC-7")
def test_a_file_of_a_newer_version_is_not_said_to_be_mendable(tmp_path: Path, home: Path) -> None:
    session_id = ask("hello", tmp_path)
    with contextlib.closing(sqlite3.connect(database(home, session_id))) as db:
        db.execute("PRAGMA user_version = 99")
    done = run_agent("sessions", "check", session_id)
    assert done.code == 1
    assert "upgrade agentcli" in done.stdout
    assert "repair" not in done.stdout


@pytest.mark.slow
@pytest.mark.spec("TT-3", "CLI-8")
def test_a_fork_at_a_message_prints_the_id_of_a_copy(tmp_path: Path) -> None:
    original = ask("list files", tmp_path)
    done = run_agent("sessions", "fork", original, "--at", "1")
    assert done.code == 0, done.stderr
    export = run_agent("sessions", "export", done.stdout.strip()).stdout
    assert [message["role"] for message in json.loads(export)["messages"]] == ["user"]
    for wrong in ("99", "0", "x"):
        refused = run_agent("sessions", "fork", original, "--at", wrong)
        assert (refused.code, refused.stdout) == (2, ""), refused
    assert len(listed()) == 2


@pytest.mark.slow
@pytest.mark.spec("REC-7", "FAIL-3")
def test_a_bit_of_the_schema_is_seen_by_check_doctor_and_resume_and_repaired(
    tmp_path: Path, home: Path
) -> None:
    session_id = ask("remember the name Alba", tmp_path)
    path = database(home, session_id)
    path.write_bytes(path.read_bytes().replace(b"body TEXT NOT NULL,", b"bodx TEXT NOT NULL,", 1))
    checked = run_agent("sessions", "check")
    assert checked.code == 1
    assert f"agent sessions repair {session_id}" in checked.stdout
    assert "bodx TEXT" in run_agent("doctor").stdout
    env = agent_env(**OFFLINE)
    resumed = run_agent("run", "--session", session_id, "hello", env=env, cwd=tmp_path)
    assert resumed.code == 74 and f"agent sessions repair {session_id}" in resumed.stderr
    assert run_agent("sessions", "repair", session_id).code == 0
    assert run_agent("sessions", "check").code == 0
    again = run_agent("run", "--session", session_id, "hello", env=env, cwd=tmp_path)
    assert again.code == 0
    assert "remember the name Alba" in run_agent("sessions", "show", session_id).stdout
