"""The index of a project's files: what is in it, that nobody's code runs, that nobody waits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path

import pytest

from agentcli.repl import file_index
from agentcli.repl.file_index import FileIndex, make, project_files


def git(cwd: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True)


def files_of(cwd: Path) -> list[str]:
    return sorted(project_files(cwd, threading.Event()))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("src/app.py", "src/deep/util.py", "ignored/x.py", "a b.txt", "bad\nname"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    (tmp_path / os.fsdecode(b"bad\xff")).touch()
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    return tmp_path


@pytest.mark.spec("UI-4")
def test_files_are_those_that_git_would_add_and_a_person_can_type(project: Path) -> None:
    assert files_of(project) == [".gitignore", "a b.txt", "src/app.py", "src/deep/util.py"]
    assert {"src/", "src/deep/"} <= set(make(project, threading.Event()).paths)


@pytest.mark.spec("UI-4")
def test_a_deleted_file_is_not_offered(project: Path) -> None:
    git(project, "add", "src")
    (project / "src/app.py").unlink()
    assert "src/app.py" not in files_of(project)
    assert "src/deep/util.py" in files_of(project)


@pytest.mark.spec("UI-4")
def test_without_git_the_directories_are_walked_and_ignore_files_honoured(tmp_path: Path) -> None:
    for name in ("a/b.txt", "node_modules/x.js", "out/c.o", ".github/ci.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.o\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert files_of(tmp_path) == [
        *(".github/", ".github/ci.yml", ".gitignore", "a/", "a/b.txt", "loop", "out/")
    ]


@pytest.mark.spec("UI-4")
def test_a_deleted_directory_has_no_files(tmp_path: Path) -> None:
    assert files_of(tmp_path / "gone") == []


@pytest.mark.spec("SEC-2")
def test_making_the_index_runs_none_of_the_repositorys_code(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = project.parent / "witness"
    for name in ("evil.sh", "git"):
        (project / name).write_text(f"#!/bin/sh\ntouch {witness}\n")
        (project / name).chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.sshCommand", "alias.ls-files"):
        git(project, "config", key, str(project / "evil.sh"))
    (project / ".git/hooks").mkdir(exist_ok=True)
    (project / "evil.sh").rename(project / ".git/hooks/post-index-change")
    git(project, "config", "core.fsmonitor", str(project / ".git/hooks/post-index-change"))
    monkeypatch.setenv("PATH", f".:{project}:{os.environ['PATH']}")
    monkeypatch.chdir(project)
    assert "src/app.py" in files_of(project)
    link = project.parent / "bin"
    link.mkdir()
    (link / "git").symlink_to(project / "git")
    monkeypatch.setenv("PATH", str(link))
    assert "src/app.py" in files_of(project)
    assert not witness.exists()


async def _searches(project: Path) -> None:
    index = FileIndex(project)
    assert (await index.search("app", 5))[0] == "src/app.py"
    index.use("src/deep/util.py")
    assert (await index.search("", 5))[0] == "src/deep/util.py"
    index.close()


@pytest.mark.spec("UI-4")
def test_the_first_search_waits_for_the_index_and_use_is_remembered(project: Path) -> None:
    asyncio.run(_searches(project))


@pytest.mark.spec("UI-4")
def test_the_loop_goes_on_while_the_index_is_made(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    really = file_index.make

    def slow(cwd: Path, stop: threading.Event) -> object:
        assert may_end.wait(10)
        return really(cwd, stop)

    monkeypatch.setattr(file_index, "make", slow)

    async def main() -> list[str]:
        index = FileIndex(project)
        search = asyncio.ensure_future(index.search("app", 5))
        for _ in range(5):  # the loop runs although the index cannot be made yet
            await asyncio.sleep(0)
        assert not search.done()
        may_end.set()
        return await search

    assert asyncio.run(main())[0] == "src/app.py"


@pytest.mark.spec("UI-4")
def test_a_new_file_is_found_when_the_index_is_old(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_index, "FRESH_S", 0.0)
    monkeypatch.setattr(file_index, "_PATIENCE", 0)
    monkeypatch.setattr(file_index, "WAIT_S", 10.0)

    async def main() -> None:
        index = FileIndex(project)
        assert await index.search("brandnew", 5) == []
        (project / "brandnew.py").touch()
        assert await index.search("brandnew", 5) == ["brandnew.py"]
        monkeypatch.setattr(file_index, "FRESH_S", 1e9)
        (project / "brandnew2.py").touch()
        assert await index.search("brandnew", 5) == ["brandnew.py"]

    asyncio.run(main())


@pytest.mark.spec("SEC-13")
def test_the_index_is_bounded(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_index, "MAX_FILES", 2)
    assert len(files_of(project)) == 2
