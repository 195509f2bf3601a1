"""What has changed in a repository is found whatever it holds, and nothing of it runs (SEC-2)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentcli.app.files import changes as module
from agentcli.app.files.changes import ChangedFile, ChangeSet, find_changes
from agentcli.domain.errors import UsageError


def git(cwd: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (root / "src" / "b.py").write_text("x = 1\n" * 30)
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def by_path(found: ChangeSet) -> dict[str, ChangedFile]:
    return {each.path: each for each in found.files}


@pytest.mark.spec("CLI-17")
def test_each_way_to_say_what_is_reviewed(project: Path) -> None:
    clean = find_changes(project)
    assert (clean.files, "against main" in clean.what) == ((), True)
    git(project, "checkout", "-qb", "topic")
    (project / "a.txt").write_text("one\nTWO\nthree\n")
    git(project, "commit", "-qam", "topic")
    branch = find_changes(project)  # a clean tree: all since the default branch was left
    assert list(by_path(branch)) == ["a.txt"] and "against main" in branch.what
    (change,) = branch.files
    assert (change.added, change.removed, change.ranges) == (1, 1, ((1, 3),))
    assert change.text == "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three"
    assert change.shows(3) and not change.shows(4)
    (project / "src" / "b.py").write_text("x = 2\n" + "x = 1\n" * 29)
    (project / "new.txt").write_text("new\nfile")
    (project / ".env").write_text("KEY=secret\n")
    tree = find_changes(project)
    assert list(by_path(tree)) == ["src/b.py", "new.txt"]
    assert by_path(tree)["new.txt"].text == "@@ -0,0 +1,2 @@\n+new\n+file"
    assert tree.notes == ("not sent, as it may hold keys: .env",)
    assert list(by_path(find_changes(project / "src", paths=["."]))) == ["src/b.py"]
    assert list(by_path(find_changes(project, base="main"))) == ["a.txt", "src/b.py", "new.txt"]
    git(project, "add", "new.txt")
    assert list(by_path(find_changes(project, staged=True))) == ["new.txt"]
    commit = find_changes(project, commit="HEAD~1")
    assert list(by_path(commit)) == ["a.txt", "src/b.py"]
    assert all(each.status == "added" for each in commit.files)


@pytest.mark.spec("CLI-17", "CLI-11")
def test_what_cannot_be_reviewed_says_why_and_what_to_do(project: Path, tmp_path: Path) -> None:
    shallow, unborn, outside = (tmp_path / name for name in ("shallow", "unborn", "outside"))
    git(project, "checkout", "-q", "--orphan", "other")
    git(project, "commit", "-qam", "unrelated")
    (project / "a.txt").write_text("more\n")
    git(project, "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{project}", str(shallow))
    git(shallow, "fetch", "-q", "--depth", "1", "origin", "main:main")
    unborn.mkdir()
    git(unborn, "init", "-q")
    outside.mkdir()
    cases: list[tuple[Path, dict[str, object], str]] = [
        (outside, {}, "no git repository"),
        (project, {"base": "nope"}, "no branch or commit nope"),
        (project, {"base": "--output=x"}, "no branch or commit --output=x"),
        (project, {"commit": "nope"}, "no commit nope"),
        (project, {"paths": ["../outside"]}, "outside the repository"),
        (project, {"base": "main"}, "no commit in common"),
        (shallow, {"base": "main"}, "fetch-depth: 0"),
        (shallow, {"commit": "HEAD"}, "shallow clone"),
        (unborn, {"base": "main"}, "no branch or commit main"),
    ]
    for cwd, asked, text in cases:
        with pytest.raises(UsageError) as caught:
            find_changes(cwd, **asked)  # type: ignore[arg-type]  # each case its own options
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.advice
    (unborn / "first.txt").write_text("hello\n")
    assert list(by_path(find_changes(unborn))) == ["first.txt"]
    git(unborn, "add", ".")
    assert list(by_path(find_changes(unborn, staged=True))) == ["first.txt"]


@pytest.mark.spec("CLI-17", "SEC-2")
def test_a_hostile_repository_runs_nothing_and_hides_nothing(project: Path) -> None:
    witness = project.parent / "witness"
    command = f"sh -c 'touch {witness}; cat'"
    odd = 'a "b"\n+++ fake\t\x1b[31m\\.txt'
    (project / odd).write_text("odd\n")
    (project / "old name.txt").write_text("".join(f"line {n}\n" for n in range(20)))
    (project / "bin.dat").write_bytes(b"\0\1\2" * 100)
    (project / "code.py").write_text("safe = 1\n")
    (project / "crlf.txt").write_bytes(b"a\r\nb\r\n")
    (project / "latin.txt").write_bytes(b"caf\xe9\n")
    (project / "lfs.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
    (project / "tool.sh").write_text("echo\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "odd")
    for key in ("diff.external", "diff.evil.textconv", "diff.evil.command", "core.fsmonitor"):
        git(project, "config", key, command)
    for key in ("filter.evil.clean", "filter.evil.process", "core.pager", "alias.diff"):
        git(project, "config", key, command)
    for key, value in (("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true")):
        git(project, "config", key, value)
    git(project, "config", "color.ui", "always")
    witness.unlink(missing_ok=True)
    (project / ".gitattributes").write_text("*.txt diff=evil\ncode.py -diff\n*.sh filter=evil\n")
    (project / odd).write_text("odder\ndiff --git a/x b/x\n--- a/x\n")
    (project / "old name.txt").rename(project / "new name.txt")
    git(project, "-c", "core.fsmonitor=false", "add", "-A", "--", "old name.txt", "new name.txt")
    (project / "bin.dat").write_bytes(b"\0\1\3" * 100)
    (project / "code.py").write_text("safe = 1\nimport os; os.system('evil')\n")
    (project / "crlf.txt").write_bytes(b"a\r\nc\r\n")
    (project / "latin.txt").write_bytes(b"caf\xe8\n")
    (project / "lfs.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:2\n")
    (project / "tool.sh").chmod(0o755)
    (project / "a.txt").unlink()
    os.symlink("/etc/passwd", project / "link")
    os.mkfifo(project / "pipe")
    (project / "nested").mkdir()
    git(project / "nested", "init", "-q")
    witness.unlink(missing_ok=True)
    found = by_path(find_changes(project))
    assert not witness.exists()
    assert found[odd].text.endswith("-odd\n+odder\n+diff --git a/x b/x\n+--- a/x")
    assert (found["new name.txt"].status, found["new name.txt"].old_path) == (
        "renamed",
        "old name.txt",
    )
    assert found["bin.dat"].is_binary
    assert "os.system('evil')" in found["code.py"].text  # in spite of its attribute
    assert "+c\r" in found["crlf.txt"].text and "+caf\ufffd" in found["latin.txt"].text
    assert "Git LFS" in found["lfs.bin"].details[0]
    assert found["tool.sh"].details == ("old mode 100644", "new mode 100755")
    assert found["a.txt"].status == "deleted"
    assert found["link"].text.endswith("+/etc/passwd") and found["link"].details
    assert not {"pipe", "nested", "nested/"} & set(found) and "fake" not in found


@pytest.mark.spec("CLI-17", "SEC-13")
def test_a_diff_is_bounded_and_what_is_left_out_is_counted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILE", 1_000)
    monkeypatch.setattr(module, "MAX_BYTES", 2_500)
    monkeypatch.setattr(module, "MAX_FILES", 5)
    (project / "a.txt").write_text("z" * 9_000 + "\n" + "more\n" * 1_000)
    for number in range(6):
        (project / f"n{number}.txt").write_text("word\n" * 150)
    git(project, "add", "n0.txt")
    found = find_changes(project)
    files = by_path(found)
    assert list(files) == ["a.txt", "n0.txt", "n1.txt", "n2.txt", "n3.txt"]
    assert files["a.txt"].added == 1_001 and files["a.txt"].left_out > 12_000
    assert files["a.txt"].shows(1_001) and len(files["a.txt"].text) < 1_100
    assert sum(len(each.text) for each in found.files) <= 2_500
    assert files["n3.txt"].text == "" and files["n3.txt"].left_out > 700
    assert found.notes == ("2 more changed files are not looked at",)


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
def test_fifty_megabytes_are_read_within_bounds(project: Path) -> None:
    (project / "a.txt").write_text(("y" * 49 + "\n") * 1_000_000)
    (project / "one-line.js").write_text("z" * 10_000_000)
    (project / "src" / "b.py").write_text("x = 2\n")
    git(project, "add", ".")
    found = by_path(find_changes(project))
    assert found["a.txt"].added == 1_000_000 and found["a.txt"].left_out > 49_000_000
    assert len(found["one-line.js"].text) < 3_000
    assert found["src/b.py"].text.endswith("+x = 2")


@pytest.mark.slow
@pytest.mark.spec("SEC-2")
def test_a_repository_whose_working_tree_is_elsewhere_is_refused(
    project: Path, tmp_path: Path
) -> None:
    git(project, "config", "core.worktree", str(tmp_path))
    with pytest.raises(UsageError, match="elsewhere"):
        find_changes(project)


@pytest.mark.slow
@pytest.mark.spec("SEC-2")
def test_submodules_and_conflicts_are_named(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "f").write_text("1\n")
    git(other, "add", ".")
    git(other, "commit", "-qm", "1")
    git(project, "submodule", "--quiet", "add", str(other), "sub")
    found = by_path(find_changes(project, staged=True))
    assert "Subproject commit" in found["sub"].text and "a submodule" in found["sub"].details
    git(project, "commit", "-qam", "sub")
    git(project, "checkout", "-qb", "left")
    (project / "a.txt").write_text("left\n")
    git(project, "commit", "-qam", "left")
    git(project, "checkout", "-q", "main")
    (project / "a.txt").write_text("right\n")
    git(project, "commit", "-qam", "right")
    with pytest.raises(subprocess.CalledProcessError):
        git(project, "merge", "-q", "left")
    found = by_path(find_changes(project))
    assert found["a.txt"].status == "conflict" or "<<<<" in found["a.txt"].text


@pytest.mark.spec("SEC-3", "CLI-17")
def test_what_git_knows_of_a_file_with_keys_is_not_sent(project: Path) -> None:
    (project / ".env").write_text("KEY=one\nOTHER=x\nMORE=y\n")
    (project / ".gitattributes").write_text("*.pem binary\nid_rsa -diff\n")
    (project / "id_rsa").write_text("KEY=two\n")
    git(project, "add", ".")
    staged = find_changes(project, staged=True)
    git(project, "commit", "-qm", "keys")
    (project / ".env").write_text("KEY=three\nOTHER=x\nMORE=y\n")
    tree = find_changes(project)
    git(project, "mv", ".env", "plain.txt")
    moved = find_changes(project, staged=True)
    for found in (staged, tree, moved, find_changes(project, commit="HEAD")):
        assert "KEY=" not in "".join(each.text for each in found.files)
        assert any("may hold keys" in note for note in found.notes)
    assert set(by_path(staged)) >= {".env", "id_rsa"}
