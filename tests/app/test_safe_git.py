"""Git is asked without running the repository's code, within bounds."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest

from agentcli.app.files.changes import find_changes
from agentcli.app.files.safe_git import GitBusy, find_git, read_bounded
from agentcli.domain.errors import ConfigError, UsageError


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
