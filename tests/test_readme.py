"""The README tells the truth: what it says to type works, what it lists is what there is."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcli.config.keys import KEYS, TABLES
from agentcli.config.paths import Paths
from agentcli.config.settings import validate
from agentcli.headless.exit_codes import MEANINGS
from agentcli.providers._registry import BUILT_IN
from agentcli.repl._slash_registry import helps
from agentcli.store._schema import SCHEMA_VERSION, STATEMENTS, TABLE_NAMES
from tests.support.cli import AGENT, run_agent

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, mark: str = "tested") -> list[str]:
    """The fenced blocks below ``<!-- mark -->``."""
    return re.findall(rf"<!-- {mark} -->\n```{language}\n(.*?)```", README, re.DOTALL)


def rows(heading: str) -> dict[str, str]:
    """The table whose head begins with ``heading``: first cell without ticks -> the rest."""
    lines = README[README.index(f"\n| {heading} |") :].strip().splitlines()
    found = {}
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        first, rest = line.strip("| ").split(" | ", 1)
        found[first.strip("`")] = rest
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The directory that the examples are typed in."""
    path = tmp_path / "project"
    (path / "src").mkdir(parents=True)
    (path / "notes.txt").write_text("hello from the notes\n")
    (path / "src" / "app.py").write_text("answer = 41  # TODO\n")
    return path


def shell(project: Path, home: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run ``script`` as a person types it, with ``agent`` on PATH and nobody to ask."""
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    agent = programs / "agent"
    agent.write_text(f'#!/bin/sh\nexec "{AGENT[0]}" {" ".join(AGENT[1:])} "$@"\n')
    agent.chmod(0o755)
    return subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail", "-c", script],
        cwd=project,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )


def test_there_are_blocks_to_test() -> None:
    assert len(blocks("sh")) >= 4
    assert len(blocks("sql")) >= 4
    assert len(blocks("toml")) >= 1


@pytest.mark.parametrize("number", range(len(blocks("sh"))))
def test_commands_work_as_written(project: Path, home: Path, number: int) -> None:
    done = shell(project, home, blocks("sh")[number])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("query", blocks("sql"))
def test_queries_work_on_a_real_session_file(project: Path, home: Path, query: str) -> None:
    done = run_agent("run", "--yolo", "run echo hi", env=dict(os.environ), cwd=project)
    assert done.code == 0, done.stderr
    (path,) = (home / "agentcli" / "sessions").glob("*.db")
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        found = db.execute(query).fetchall()
    finally:
        db.close()
    assert found
    assert None not in found[0][:2]


def test_the_configuration_example_is_valid(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path)
    for text in blocks("toml"):
        assert validate(text, paths) == ()


def test_the_result_object_has_the_keys_that_a_run_prints(project: Path) -> None:
    (shown,) = blocks("json", "the result object")
    done = run_agent("run", "-o", "json", "read notes.txt", env=dict(os.environ), cwd=project)
    assert _shape(json.loads(shown)) == _shape(json.loads(done.stdout))


def _shape(value: Any) -> Any:
    return {key: _shape(item) for key, item in value.items()} if isinstance(value, dict) else None


@pytest.mark.spec("CLI-6")
def test_exit_codes_are_listed() -> None:
    expected = {str(code.value): meaning for code, meaning in MEANINGS.items()}
    assert rows("exit code") == expected


def test_every_setting_is_listed_with_its_default() -> None:
    listed = rows("key")
    named = {f"{t}.NAME.{name}": key for t, keys in TABLES.items() for name, key in keys.items()}
    expected = {**KEYS, **named}
    assert list(listed) == list(expected)
    for name, key in expected.items():
        default, _, meaning = listed[name].partition("|")
        shown = {None: "", (): "[]", False: "false", True: "true"}.get(
            key.default, str(key.default)
        )  # type: ignore[call-overload]
        assert default.strip().strip("`") == shown, name
        assert key.help in meaning, name


def test_every_table_and_column_of_a_session_file_is_listed() -> None:
    db = sqlite3.connect(":memory:")
    for statement in STATEMENTS:
        db.execute(statement)
    listed = rows("table")
    assert set(listed) == set(TABLE_NAMES)
    for name in TABLE_NAMES:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
        assert re.findall(r"`(\w+)`", listed[name].split(" | ")[0]) == columns, name
    db.close()
    assert f"version {SCHEMA_VERSION}," in README


def test_every_provider_is_listed_with_its_key() -> None:
    listed = rows("provider")
    expected = {name: row for name, row in BUILT_IN.items() if name not in {"scripted", "offline"}}
    assert list(listed) == list(expected)
    for name, row in expected.items():
        key, base = (cell.strip() for cell in listed[name].split("|"))
        assert base == f"`{row.base_env}`"
        assert key == (" or ".join(f"`{env}`" for env in row.key_envs) if row.needs_key else "none")


def test_every_slash_command_is_listed() -> None:
    listed = re.findall(r"`/([a-z]+)`", README[README.index("\n| command |") :].split("\n\n")[0])
    assert sorted(listed) == sorted(helps())


def test_the_files_it_links_to_exist_and_nothing_is_fetched_for_the_pictures() -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)]+)\)|src=\"([^\"]+)\"", README)
    assert len(targets) >= 3
    for target in map("".join, targets):
        assert (ROOT / target).exists(), target
    pictures = [ROOT / "".join(target) for target in targets if "".join(target).endswith(".svg")]
    assert len(pictures) == 4
    for path in pictures:
        picture = path.read_text(encoding="utf-8")
        assert re.findall(r"https?://[^\"'\s)]+", picture) == ["http://www.w3.org/2000/svg"]


def test_the_pictures_are_what_the_program_shows(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "generate_pictures.py", "--check"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_two_commands_are_there() -> None:
    assert ".venv/bin/pip install -q . && .venv/bin/agent run" in README
    assert os.access(ROOT / ".ci" / "test", os.X_OK)
    assert shutil.which("bash")


@pytest.mark.spec("CTRL-1", "CTRL-4", "CTRL-8")
def test_the_seams_of_the_loop_are_there_under_the_names_that_the_readme_gives() -> None:
    table = README.partition("| seam | port | ours |")[2].partition("\n\n")[0]
    ports = re.findall(r"\| `([a-z]+)\.(\w+)` \|", table)
    assert len(ports) == 6
    for module, name in ports:
        assert hasattr(importlib.import_module(f"agentcli.domain.{module}"), name)
    for file in re.findall(r"`(\w+/\w+\.py)`", table):
        assert (ROOT / "agentcli" / file).is_file()
