"""Editors and pagers are looked up outside the workspace."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import AgentError
from agentcli.repl.outside import (
    command_for,
    edit_text,
    end_programs,
    find_program,
    needs_terminal,
    page_text,
)


def script(directory: Path, name: str, body: str = "exit 0") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.spec("SEC-2")
def test_a_program_of_the_workspace_is_not_found(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "bin"
    script(work, "less")
    good = script(outside, "less")
    env = {"PATH": f"{work}:.:{outside}"}
    assert find_program("less", work, env) == str(good)
    assert find_program("less", work, {"PATH": str(work)}) is None
    assert find_program(str(work / "less"), work, env) is None
    assert find_program("./less", work, env) is None
    assert find_program(str(good), work, env) == str(good)


def test_the_persons_wish_comes_first_with_its_options(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "bin"
    script(outside, "code")
    nano = script(outside, "nano")
    env = {"PATH": str(outside), "EDITOR": "code --wait"}
    known = ("nano",)
    assert command_for(("VISUAL", "EDITOR"), known, work, env) == [f"{outside}/code", "--wait"]
    broken = {**env, "EDITOR": "code 'unclosed"}
    assert command_for(("VISUAL", "EDITOR"), known, work, broken) == [str(nano)]
    assert command_for(("EDITOR",), (), work, {"PATH": ""}) is None


@pytest.mark.spec("UI-3", "SEC-9")
def test_the_edited_text_comes_back_and_the_file_was_private(tmp_path: Path) -> None:
    work = tmp_path / "work"
    seen = tmp_path / "seen"
    editor = script(tmp_path / "bin", "ed", f'stat -c %a "$1" > {seen}; echo more >> "$1"')
    env = {"PATH": "/usr/bin:/bin", "EDITOR": str(editor)}
    assert edit_text("text\n", work, env) == "text\nmore"
    assert seen.read_text().strip() == "600"


@pytest.mark.spec("SEC-2")
def test_editor_and_pager_start_where_no_settings_of_the_workspace_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``.exrc`` (Vim with ``exrc``) and ``.helix/languages.toml``, which run programs."""
    seen, work = tmp_path / "seen", tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    program = script(tmp_path / "bin", "ed", f"pwd -P >> {seen}")
    env = {"PATH": "/usr/bin:/bin", "EDITOR": str(program), "PAGER": str(program)}
    edit_text("text\n", work, env)
    assert page_text("text\n", work, env)
    assert len(places := seen.read_text().split()) == 2 and str(work) not in places


def test_an_editor_that_fails_leaves_the_text(tmp_path: Path) -> None:
    editor = script(tmp_path / "bin", "ed", "exit 3")
    with pytest.raises(AgentError, match="ended with 3"):
        edit_text("text", tmp_path / "work", {"PATH": "/bin", "EDITOR": str(editor)})


def test_without_a_pager_it_says_so_and_lessopen_is_not_passed_on(tmp_path: Path) -> None:
    work, seen = tmp_path / "work", tmp_path / "seen"
    assert not page_text("x", work, {"PATH": ""})
    pager = script(tmp_path / "bin", "pager", f"env > {seen}; cat > {seen}.text")
    env = {"PATH": "/usr/bin:/bin", "PAGER": str(pager), "LESSOPEN": "|evil %s"}
    assert page_text("the text", work, env)
    assert "evil" not in seen.read_text()
    assert "LESSSECURE=1" in seen.read_text()
    assert Path(f"{seen}.text").read_text() == "the text"


@pytest.mark.spec("CAN-13", "OPS-1")
def test_a_program_that_is_just_being_started_is_ended_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = script(tmp_path / "bin", "patient", "exec sleep 1000")
    spawned, go_on = threading.Event(), threading.Event()
    start = subprocess.Popen

    def slow_start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **options)
        spawned.set()
        assert go_on.wait(10)
        return process

    monkeypatch.setattr(subprocess, "Popen", slow_start)
    told: list[str] = []

    def edit() -> None:
        try:
            edit_text("text", tmp_path / "work", {"EDITOR": str(patient)})
        except AgentError as error:
            told.append(str(error))

    editing, ending = threading.Thread(target=edit), threading.Thread(target=end_programs)
    editing.start()
    assert spawned.wait(10)
    ending.start()
    ending.join(0.2)
    go_on.set()
    editing.join(10)
    assert not editing.is_alive() and "ended with -15" in told[0]
    ending.join(10)


@pytest.mark.spec("UI-4")
@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("vim x", "vim"), ("sudo /usr/bin/nano a", "nano"), ("A=1 top", "top"), ("vim --version", ""),
        ("top -b -n1", ""), ("ls vim", ""), ("echo 'x", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_program_that_draws_on_a_terminal_of_its_own_is_known(command: str, program: str) -> None:
    assert needs_terminal(command) == program
