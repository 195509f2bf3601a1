"""Git is asked without running the repository's code, within bounds."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from agentcli.app.files.changes import find_changes
from agentcli.app.files.safe_git import GitBusy, find_git, read_bounded
from agentcli.domain.errors import AgentError, ConfigError, UsageError
from agentcli.repl.slash.diff import changes


def git(cwd: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    subprocess.run(["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    (root / "a.txt").write_text("two\n")
    return root


@pytest.mark.spec("SEC-2")
def test_content_filters_are_off(project: Path) -> None:
    witness = project.parent / "witness"
    (project / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    command = f"sh -c 'touch {witness}; cat'"
    for key in ("filter.evil.clean", "filter.evil.process", "filter.a.b c.clean"):
        git(project, "config", key, command)
    git(project, "config", "filter.evil.required", "true")
    git(project, "config", "diff.evil.textconv", command)
    git(project, "config", "diff.external", command)
    witness.unlink(missing_ok=True)
    found = find_git(project)
    assert found is not None
    with found.without_filters(project) as safe:
        assert safe is not None
        shown = safe.output("diff", "--no-ext-diff", "--no-textconv", limit=10_000)
    assert shown is not None
    assert b"-one\n+two" in shown
    assert not witness.exists()


@pytest.mark.spec("SEC-2")
def test_a_filter_behind_any_number_of_settings_is_off(project: Path) -> None:
    witness = project.parent / "witness"
    (project / ".gitattributes").write_text("*.txt filter=evil\n")
    with (project / ".git/config").open("a") as config:
        config.write('[filter "a"]\n' + "\tx = 1\n" * 120_000)
        config.write(f'[filter "evil"]\n\tclean = "touch {witness}; cat"\n')
    changed, _ = find_changes(project).files
    assert "-one\n+two" in changed.text
    assert not witness.exists()


@pytest.mark.spec("SEC-2")
def test_hooks_of_the_configuration_are_off(project: Path) -> None:
    git(project, "config", "hook.any name.event", "post-checkout")
    git(project, "config", "hook.any name.command", "false")
    found = find_git(project)
    assert found is not None and "hook.any name.enabled=false" in found.without_hooks().options
    git(project, "config", "hook.x=y.command", "false")
    with pytest.raises(UsageError, match="cannot read the configuration"):
        found.without_hooks()


@pytest.mark.spec("SEC-2", "SEC-17")
def test_what_is_written_into_the_configuration_meanwhile_runs_nothing(project: Path) -> None:
    witness = project.parent / "witness"
    (project / ".gitattributes").write_text("*.txt filter=evil\n")
    found = find_git(project)
    assert found is not None
    with found.without_filters(project) as safe:
        git(project, "config", "filter.evil.clean", f"sh -c 'touch {witness}; cat'")
        git(project, "config", "core.worktree", "/")
        assert safe.output("diff", "--name-only", "HEAD", limit=10_000) == b"a.txt\n"
        assert safe.output("status", "--short", limit=10_000) is not None
    assert not witness.exists()


def _meanwhile(monkeypatch: pytest.MonkeyPatch, where: Path, script: str) -> None:
    """Have git be one that does ``script``, as a process left running may; ``$git`` is git."""
    where.mkdir()
    program = where / "git"
    program.write_text(f"#!/bin/sh\ngit={shutil.which('git')}\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{where}:{os.environ['PATH']}")


@pytest.fixture
def private(project: Path) -> Path:
    """Another repository of the user's, whose objects ``project`` borrows."""
    root = project.parent / "private"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "plan.txt").write_text("alpha\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "plan")
    (project / ".git/objects/info").mkdir(exist_ok=True)
    (project / ".git/objects/info/alternates").write_text(f"{root}/.git/objects\n")
    return root


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("where", ["refs/heads/main", "packed-refs"])
def test_no_link_that_comes_up_meanwhile_names_what_another_repository_holds(
    project: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    git(project, "branch", "-M", "main")
    for root in (project, private):
        git(root, "pack-refs", "--all") if where == "packed-refs" else None
    script = f"""
case $* in *{{commit}}*) ln -sf {private}/.git/{where} {project}/.git/{where} ;; esac
exec $git "$@"
"""
    _meanwhile(monkeypatch, tmp_path / "bin", script)
    try:
        found = [change.path for change in find_changes(project).files]
    except UsageError:  # where it had come up before
        found = []
    assert found in ([], ["a.txt"])
    assert (project / ".git" / where).is_symlink()


@pytest.mark.spec("SEC-3", "SEC-5")
def test_no_link_that_comes_up_meanwhile_has_another_repositorys_index_shown(
    project: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (private / "plan.txt").write_text("staged\n")
    git(private, "add", ".")
    script = f"""
case $* in *--no-textconv*) ln -sf {private}/.git/index {project}/.git/index ;; esac
exec $git "$@"
"""
    _meanwhile(monkeypatch, tmp_path / "bin", script)
    assert not find_changes(project, staged=True).files
    assert (project / ".git/index").is_symlink()


@pytest.mark.spec("SEC-3", "SEC-5")
def test_nothing_is_shown_that_git_read_elsewhere_by_a_link_that_came_up_meanwhile(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for place, text in ((project / "sub", "one\n"), (elsewhere, "private\n")):
        place.mkdir()
        (place / "plan.txt").write_text(text)
    (project / "b.txt").write_text("")
    git(project, "add", ".")
    git(project, "commit", "-qm", "more")
    (project / "b.txt").write_text("more than a pipe holds\n" * 20_000)
    (project / "sub/plan.txt").write_text("two\n")
    script = f"""
case $* in
  *--no-textconv*) $git "$@" | (head -c 1; mv sub real; ln -s {elsewhere} sub; cat) ;;
  *) exec $git "$@" ;;
esac
"""
    _meanwhile(monkeypatch, tmp_path / "bin", script)
    monkeypatch.setattr("agentcli.app.files.changes.MAX_FILE", 10_000)
    found = {change.path: change for change in find_changes(project).files}
    assert (project / "sub").is_symlink() and found["b.txt"].text
    assert "private" not in str(found)
    assert "does not hold it now" in str(found["sub/plan.txt"].details)


@pytest.mark.spec("SEC-3", "SEC-5")
def test_what_git_converts_is_shown(project: Path) -> None:
    """Ends of lines, UTF-16, ``$Id$``, links, a submodule; a long line, a name that is no UTF-8."""
    git(project, "config", "core.autocrlf", "input")
    attributes = "i.txt ident\nu.txt text working-tree-encoding=UTF-16\n"
    (project / ".gitattributes").write_text(attributes)
    (project / "u.txt").write_text("old\n", "utf-16")
    (project / "link").symlink_to("a.txt")
    odd = project / os.fsdecode(b"o\xff.txt")
    for place in (odd, *(project / name for name in ("c.txt", "i.txt", "l.txt"))):
        place.write_text("old\n")
    git(project, "add", ".")
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "./", "sub")
    git(project, "commit", "-qm", "more")
    (project / "c.txt").write_bytes(b"new\r\n")
    (project / "i.txt").write_text("$Id: 1234 $ new\n")
    (project / "l.txt").write_text("é" * 5_000 + "\n")
    odd.write_text("new\n")
    (project / "u.txt").write_text("нет\n", "utf-16")
    (project / "link").unlink()
    (project / "link").symlink_to("c.txt")
    git(project / "sub", "commit", "--allow-empty", "-qm", "second")
    found = {change.path: change for change in find_changes(project).files}
    assert set(found) == {"c.txt", "i.txt", "l.txt", "link", "o\ufffd.txt", "sub", "u.txt"}
    assert found.pop("sub").details == ("a submodule at another commit",)
    assert all(change.text for change in found.values())


@pytest.mark.spec("SEC-13", "FAIL-2")
def test_new_files_that_git_cannot_list_are_not_taken_for_none(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where ``.gitignore`` is a named pipe, on which git waits until it is stopped."""
    (project / "new.txt").write_text("new\n")
    script = 'case $* in *ls-files*) exit 1 ;; esac; exec $git "$@"'
    _meanwhile(monkeypatch, tmp_path / "bin", script)
    found = find_changes(project)
    assert [change.path for change in found.files] == ["a.txt"]
    assert "git could not list them" in str(found.notes)
    with pytest.raises(AgentError, match="could not list"):
        changes(project, [])


@pytest.mark.spec("SEC-2", "SEC-13")
def test_output_is_bounded_and_failure_is_none(project: Path, tmp_path: Path) -> None:
    found = find_git(project)
    assert found is not None
    assert found.output("log", "--format=%s", limit=3) == b"fir"
    assert found.output("no-such-command", limit=10) is None
    outside = find_git(tmp_path)
    assert outside is not None
    assert outside.output("rev-parse", "HEAD", limit=100) is None


@pytest.mark.spec("SCALE-2")
def test_what_passes_is_told_from_what_does_not(project: Path) -> None:
    found = find_git(project)
    assert found is not None
    (project / ".git/index.lock").touch()
    with pytest.raises(GitBusy, match=r"index\.lock"):
        found.change("add", "a.txt")
    with pytest.raises(GitBusy, match="was stopped"):
        found.change("cat-file", "--batch", timeout_s=0.0)
    with pytest.raises(ConfigError) as caught:
        found.change("branch", "-D", "nowhere")
    assert not isinstance(caught.value, GitBusy)


@pytest.mark.spec("SEC-13")
def test_a_program_that_says_nothing_is_stopped_at_once() -> None:
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    began = time.monotonic()
    with subprocess.Popen(["sleep", "5"], stdout=subprocess.PIPE) as process:
        assert read_bounded(process, 10, stop) == b""
    assert time.monotonic() - began < 2
