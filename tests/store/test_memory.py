"""The files of a project's memory: whose they are, what of them is told, who writes (MEM-1)."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.domain.errors import PersistenceError
from agentcli.store.memory import (
    MAX_CHARS,
    MAX_FACTS,
    MAX_FILE_BYTES,
    MAX_LINES,
    Fact,
    MemoryFiles,
    read_file,
    search_memory,
    topic_name,
    write_files,
)

REMOTE = "git@example.com:team/app.git"


def git(place: Path, *words: str) -> None:
    who = (
        "-c",
        "user.name=n",
        "-c",
        "user.email=e@example.com",
        "-c",
        "protocol.file.allow=always",
    )
    subprocess.run(("git", *who, "-C", str(place), *words), check=True, capture_output=True)


def repository(path: Path, remote: str = REMOTE, *, commit: str = "one") -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q")
    if commit:
        (path / "a.txt").write_text(commit)
        git(path, "add", ".")
        git(path, "commit", "-qm", commit)
    if remote:
        git(path, "remote", "add", "origin", remote)
    return path


class Memories:
    def __init__(self, base: Path) -> None:
        self.base = base

    def at(self, place: Path) -> MemoryFiles:
        return MemoryFiles(self.base, place)

    def tell(self, place: Path, text: str = "fact") -> MemoryFiles:
        files = self.at(place)
        handle = files.try_lock()
        assert handle is not None
        files.change(new=[Fact(text, "2026-01-01", "s1")])
        os.close(handle)
        return files

    def knows(self, place: Path) -> bool:
        return bool(self.at(place).prompt())


@pytest.fixture
def memories(tmp_path: Path) -> Memories:
    return Memories(tmp_path / "memory")


@pytest.mark.spec("MEM-1")
def test_a_clone_is_believed_for_a_commit_that_it_holds(memories: Memories, tmp_path: Path) -> None:
    first = repository(tmp_path / "first")
    memories.tell(first)
    for name, options in (("clone", ()), ("shallow", ("--depth", "1"))):
        place = tmp_path / name
        git(tmp_path, "clone", "-q", *options, f"file://{first}", str(place))
        git(place, "remote", "set-url", "origin", "https://user@Example.com/team/app")
        assert memories.at(place).name == memories.at(first).name, name
    git(first, "gc", "-q")
    packed = tmp_path / "packed"
    git(tmp_path, "clone", "-q", str(first), str(packed))
    git(packed, "remote", "set-url", "origin", REMOTE)
    assert memories.knows(packed)


@pytest.mark.spec("MEM-1")
def test_a_directory_that_only_claims_the_remote_is_told_nothing_until_the_user_says_so(
    memories: Memories, tmp_path: Path
) -> None:
    first = repository(tmp_path / "first")
    known = memories.tell(first)
    other = repository(tmp_path / "other", commit="another one")
    found = memories.at(other)
    assert (found.claimed, found.prompt(), found.name == known.name) == (known.name, "", False)
    memories.tell(other, "of its own")
    assert memories.at(other).claimed == ""
    assert "of its own" not in memories.at(first).prompt()
    third = repository(tmp_path / "third", commit="and another")
    assert memories.at(third).join() == known.name
    assert memories.at(third).prompt() == memories.at(first).prompt()


@pytest.mark.spec("MEM-1", "SEC-2")
@pytest.mark.parametrize(
    "way", ["alternates", "objects", "pack", "git", "file", "worktree", "forged"]
)
def test_objects_of_another_repository_prove_nothing(
    memories: Memories, tmp_path: Path, way: str
) -> None:
    first = repository(tmp_path / "first")
    git(first, "gc", "-q")
    memories.tell(first)
    other = repository(tmp_path / "other", commit="another one")
    objects, own = first / ".git/objects", other / ".git/objects"
    if way == "alternates":
        (own / "info").mkdir(exist_ok=True)
        (own / "info/alternates").write_text(f"{objects}\n")
    elif way == "objects":
        shutil.rmtree(own)
        own.symlink_to(objects)
    elif way == "pack":
        shutil.rmtree(own / "pack")
        (own / "pack").symlink_to(objects / "pack")
    else:
        shutil.rmtree(other / ".git")
        if way == "git":
            (other / ".git").symlink_to(first / ".git")
        elif way == "file":
            (other / ".git").write_text(f"gitdir: {first / '.git'}\n")
        elif way == "forged":  # what came with the directory says that it is a worktree
            (other / "meta").mkdir()
            (other / "meta/commondir").write_text(f"{first / '.git'}\n")
            (other / "meta/gitdir").write_text(f"{other / '.git'}\n")
            (other / ".git").write_text("gitdir: meta\n")
        else:
            git(first, "worktree", "add", "-q", str(tmp_path / "tree"))
            (other / ".git").write_text(f"gitdir: {first / '.git/worktrees/tree'}\n")
            assert memories.knows(tmp_path / "tree")
    assert not memories.knows(other)


@pytest.mark.spec("MEM-1")
def test_a_moved_directory_is_found_again_and_a_copy_is_another(
    memories: Memories, tmp_path: Path
) -> None:
    plain, local = tmp_path / "plain", repository(tmp_path / "local", "")
    plain.mkdir()
    (plain / "notes.txt").write_text("x")
    for place in (plain, local):
        memories.tell(place)
        shutil.copytree(place, tmp_path / "copy")
        moved = place.rename(tmp_path / f"moved-{place.name}")
        assert memories.knows(moved)
        assert not memories.knows(tmp_path / "copy")
        shutil.rmtree(tmp_path / "copy")
        memories.tell(moved)
        place.mkdir()  # what is made in the old place later is another
    assert memories.knows(tmp_path / "moved-plain")


@pytest.mark.spec("MEM-1")
def test_what_becomes_of_a_directory_does_not_lose_its_memory(
    memories: Memories, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    memories.tell(place)
    git(place, "init", "-q")
    assert memories.knows(place)
    memories.tell(place, "second")
    git(place, "remote", "add", "origin", REMOTE)
    assert memories.knows(place)
    memories.tell(place, "third")
    git(place, "remote", "set-url", "origin", "https://elsewhere.example.com/app.git")
    assert memories.knows(place)
    (memories.base / "projects.json").write_text("[" * 100_000)
    assert not memories.at(place).claimed


@pytest.mark.spec("MEM-1", "CTX-2")
def test_the_index_in_the_prompt_is_bounded_and_says_what_is_missing(
    memories: Memories, tmp_path: Path
) -> None:
    files = memories.tell(tmp_path)
    rest = f"more lines: read_file {files.index})"
    for line, count in (("- short", 250), ("- " + "x" * 78, 150), ("- " + "\u00e9" * 9_000, 3)):
        files.index.write_text("\n".join([line] * count))
        text = files.prompt()
        kept = text.splitlines()
        assert len(kept) <= MAX_LINES
        assert len(text) <= MAX_CHARS
        assert kept[-1] == f"({count - len(kept) + 1} {rest}"
    files.index.write_text("- fits\n" * MAX_LINES)
    assert files.prompt() == "\n".join(["- fits"] * MAX_LINES)


@pytest.mark.spec("MEM-1", "SEC-13")
def test_hostile_files_are_bounded_cleaned_and_not_followed(
    memories: Memories, tmp_path: Path
) -> None:
    files = memories.tell(tmp_path)
    files.index.write_bytes(b"- red \x1b[31m \xff \x9b \xe2\x80\xae end\n" + b"\0" * 50)
    assert "\x1b" not in files.prompt()
    assert "\u202e" not in files.prompt()
    with files.index.open("wb") as file:
        file.truncate(1 << 40)  # sparse
    assert len(files.prompt()) <= MAX_CHARS
    secret = tmp_path / "secret"
    secret.write_text("- stolen\n")
    for make in (lambda: files.index.symlink_to(secret), lambda: os.mkfifo(files.index)):
        files.index.unlink()
        make()
        assert files.prompt() == ""
    files.index.unlink()
    files.index.symlink_to(secret)
    with pytest.raises(PersistenceError, match="it is a link"):
        files.change(new=[Fact("more")])
    assert secret.read_text() == "- stolen\n"
    files.path_of("loop").symlink_to("loop.md")
    assert read_file(files.path_of("loop")) == ""
    assert files.facts() == []


@pytest.mark.spec("MEM-1", "MEM-2")
def test_topics_stand_in_the_index_and_are_searched_with_all_projects(
    memories: Memories, tmp_path: Path
) -> None:
    files = memories.tell(tmp_path)
    files.change(new=[Fact("deploys on Mondays", "2026-01-02", "s2", "release-plan")])
    files.change(waiting=[Fact("deploys on Sundays", "2026-01-03", "s3", "release-plan")])
    assert "- [release-plan](release-plan.md): 1 fact, read " in files.prompt()
    assert "Monday" not in files.prompt()
    assert [fact.topic for fact in files.facts()] == ["", "release-plan"]
    found = search_memory(memories.base, "DEPLOYS s", 10)
    assert [(text[:17], holds) for _, text, holds in found] == [
        ("deploys on Monday", True), ("deploys on Sunday", False),
    ]  # fmt: skip
    files.confirm(files.waiting())
    assert (files.waiting(), len(files.facts())) == ([], 3)
    files.change(files.facts()[1:])
    assert "release-plan" not in files.prompt()
    assert topic_name("../../Etc/passwd") == "etc-passwd"


@pytest.mark.spec("MEM-1")
def test_deleting_the_data_loses_nothing_but_the_data(memories: Memories, tmp_path: Path) -> None:
    memories.tell(tmp_path)
    shutil.rmtree(memories.base)
    assert not memories.knows(tmp_path)
    memories.tell(tmp_path, "again")
    assert "again" in memories.at(tmp_path).prompt()
    rows = json.loads((memories.base / "projects.json").read_text())
    assert len(rows) == 1


@pytest.mark.spec("MEM-1", "OPS-1")
def test_a_change_is_made_whole_or_not_at_all(memories: Memories, tmp_path: Path) -> None:
    """On a disk that takes small files but no large one, as a full one does."""
    files = memories.tell(tmp_path)
    old = Fact("old " * 100, "2026-01-01", "s1", "topic")
    files.change(new=[old])
    files.change(waiting=[Fact("new", "2026-01-01", "s1", "other", old.text)])
    before = _contents(memories.base)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (30, 100, files.index.stat().st_size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
        try:
            with pytest.raises(PersistenceError, match="File too large"):
                files.confirm(files.waiting())
            with pytest.raises(PersistenceError, match="File too large"):
                files.change([old], [Fact("more " * 100, "2026-01-01", "s1")])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert _contents(memories.base) == before
    files.confirm(files.waiting())
    assert [fact.text for fact in files.facts()] == ["fact", "new"]
    assert "topic.md" not in files.prompt()


def _contents(base: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in base.rglob("*") if path.is_file()}


KILLED = """
import os, sys
from pathlib import Path
from agentcli.store.memory import Fact, MemoryFiles
files, at = MemoryFiles(Path(sys.argv[1]), Path(sys.argv[2])), int(sys.argv[3])
plain = Path.replace
def replace(self, target):
    global at
    if not at:
        os.kill(os.getpid(), 9)
    at -= 1
    return plain(self, target)
Path.replace = replace
assert files.try_lock() is not None
files.confirm(files.waiting())
"""


@pytest.mark.slow
@pytest.mark.spec("MEM-1", "REC-3")
def test_a_kill_at_every_write_loses_no_fact_and_leaves_no_file(
    memories: Memories, tmp_path: Path
) -> None:
    files = memories.tell(tmp_path)
    old = Fact("old", "2026-01-01", "s1", "topic")
    files.change(new=[old], waiting=[Fact("new", "2026-01-01", "s1", "other", "old")])
    words = (sys.executable, "-c", KILLED, str(memories.base), str(tmp_path))
    for number in range(10):
        done = subprocess.run((*words, str(number)), check=False)
        known = [fact.text for fact in files.facts()]
        assert {"fact"} < {*known} <= {"fact", "old", "new"}
        assert "new" in known or files.waiting()
        if not done.returncode:
            break
        assert done.returncode == -9
    assert (known, files.waiting()) == (["fact", "new"], [])
    assert not [path for path in memories.base.rglob(".memory-*")]
    assert "other.md" in files.prompt()
    assert "topic.md" not in files.prompt()


@pytest.mark.spec("MEM-1", "OPS-1")
def test_what_cannot_be_read_whole_is_not_replaced(memories: Memories, tmp_path: Path) -> None:
    files = memories.tell(tmp_path)
    kept = files.index.read_bytes()
    files.index.write_bytes(kept.replace(b"\n", b"\r\n") + b"- caf\xe9\r\n- my\x0bown\r\n")
    files.change(new=[Fact("more", "2026-01-02", "s2")])
    assert b"- caf\xe9\r\n- my\x0bown\n- more (" in files.index.read_bytes()
    files.change([fact for fact in files.facts() if fact.text in {"fact", "caf\ufffd"}])
    assert [fact.text for fact in files.facts()] == ["my", "more"]
    files.index.write_text("- by hand (2026-01-01, session s; topic x)\n")
    files.change(files.facts())
    assert files.facts() == []
    files.index.write_bytes(b"- line\n" * (MAX_FILE_BYTES // 7 + 1))
    with pytest.raises(PersistenceError, match=r"larger than 1,048,576 bytes"):
        files.change(new=[Fact("more")])
    assert len(files.prompt()) <= MAX_CHARS
    files.index.unlink()
    for full in (b"x" * (MAX_FILE_BYTES - 9), b"\n- x" * MAX_FACTS):
        files.path_of("full").write_bytes(full)
        with pytest.raises(ValueError, match="forget what no longer holds"):
            files.change(new=[Fact("more", "2026-01-02", "s2", "full")])
        assert files.path_of("full").read_bytes() == full
    assert not files.index.exists()
    files.index.mkdir()
    with pytest.raises(PersistenceError, match="cannot read"):
        files.change(new=[Fact("more")])
    assert files.prompt() == ""


@pytest.mark.spec("MEM-1", "OPS-1")
@pytest.mark.parametrize("damage", [b"{", b"[]", b"\xff" * 9, b"[" * 100_000])
def test_a_damaged_list_of_projects_is_kept_aside(
    memories: Memories, tmp_path: Path, damage: bytes
) -> None:
    memories.tell(tmp_path)
    projects = memories.base / "projects.json"
    projects.write_bytes(damage)
    assert memories.knows(tmp_path)
    memories.tell(tmp_path, "again")
    assert (memories.base / "projects.damaged").read_bytes() == damage
    assert len(json.loads(projects.read_text())) == 1


@pytest.mark.spec("MEM-1", "OPS-1")
def test_a_repository_that_may_not_be_read_is_one_without_commits(
    memories: Memories, tmp_path: Path
) -> None:
    place = repository(tmp_path / "place")
    memories.tell(place)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(place), str(clone))
    git(clone, "remote", "set-url", "origin", REMOTE)
    assert memories.knows(clone)
    closed = [clone / ".git" / name for name in ("refs/remotes/origin", "objects", "objects/pack")]
    for path in reversed(closed):
        path.chmod(0)
    try:
        if os.access(closed[0], os.R_OK):
            pytest.skip("root may read everything")
        assert not memories.knows(clone)
    finally:
        for path in closed:
            path.chmod(0o700)


@pytest.mark.slow
@pytest.mark.spec("MEM-1")
def test_thousands_of_projects_are_all_found_again(memories: Memories, tmp_path: Path) -> None:
    memories.tell(tmp_path)
    projects = memories.base / "projects.json"
    (row,) = json.loads(projects.read_text()).values()
    rows = {f"p{n}": {**row, "key": f"dir:/{n}", "places": {}} for n in range(20_000)}
    projects.write_text(json.dumps({**rows, **json.loads(projects.read_text())}))
    assert projects.stat().st_size > MAX_FILE_BYTES
    assert memories.knows(tmp_path)


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "full"
    place.mkdir(mode=0o500)
    if os.access(place, os.W_OK):
        place = tmp_path / "missing"
    with pytest.raises(PersistenceError, match="cannot write"):
        write_files({place / "x.md": "text"})
