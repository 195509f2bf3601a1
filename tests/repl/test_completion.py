"""Completion: commands at the start, files after an @, and nobody's code is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from agentcli.repl.completion import ChatCompleter, best_matches, project_files


def offered(completer: ChatCompleter, text: str) -> list[str]:
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]


def git(cwd: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("src/app.py", "src/util.py", "docs/app.md", "ignored/x.py", "odd\u202ename"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    return tmp_path


@pytest.mark.spec("UI-4")
def test_commands_come_with_their_help_and_only_at_the_start(tmp_path: Path) -> None:
    completer = ChatCompleter(lambda: {"help": "keys", "model": "m"}, tmp_path)
    found = list(completer.get_completions(Document("/he"), CompleteEvent()))
    assert [(item.text, item.display_meta_text) for item in found] == [("/help", "keys")]
    assert offered(completer, "/") == ["/help", "/model"]
    assert offered(completer, "say /he") == []
    assert offered(completer, "/help me") == []


@pytest.mark.spec("UI-4")
def test_files_are_those_that_git_would_add(project: Path) -> None:
    completer = ChatCompleter(dict, project)
    assert offered(completer, "look at @app") == ["src/app.py", "docs/app.md"]
    assert offered(completer, "@ignored") == []
    assert offered(completer, "@sr")[0] == "src/"
    assert offered(completer, "mail@app") == []


@pytest.mark.spec("UI-4")
def test_without_git_the_directories_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.txt").touch()
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/x.js").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert project_files(tmp_path) == ["a/", "loop", "a/b.txt"]


@pytest.mark.spec("UI-4")
def test_a_deleted_directory_has_no_files(tmp_path: Path) -> None:
    assert project_files(tmp_path / "gone") == []


@pytest.mark.spec("SEC-2")
def test_completing_runs_none_of_the_repositorys_code(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = project.parent / "witness"
    script = project / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {witness}\n")
    script.chmod(0o755)
    git(project, "config", "core.fsmonitor", str(script))
    fake = project / "git"
    fake.write_text(f"#!/bin/sh\ntouch {witness}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{project}:{os.environ['PATH']}")
    monkeypatch.chdir(project)
    assert "src/app.py" in project_files(project)
    assert not witness.exists()


@pytest.mark.spec("UI-4")
def test_better_matches_come_first() -> None:
    paths = [
        "x/deep/config.py",
        "config.py",
        "my_config.py",
        "c/o/n/f.i.g",
        "src/config/a.py",
        "zzz",
    ]
    assert best_matches("config", paths) == [
        "config.py", "x/deep/config.py", "my_config.py", "src/config/a.py", "c/o/n/f.i.g",
    ]  # fmt: skip
