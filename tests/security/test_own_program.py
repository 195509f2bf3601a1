"""A program that runs from the workspace's virtual environment: nothing inside changes it."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import agentcli
from agentcli.process.environment import own_program
from tests.support.cli import agent_env
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.sandboxes import needs

pytestmark = pytest.mark.spec("SEC-7", "SEC-3")
_FALSE = r"""printf '#!/bin/sh\n: > ran\nexec python3 "$@"\n' > .venv/bin/python; echo tried"""
_COMMANDS = (f"rm -f .venv/bin/python; {_FALSE}", f"mv .venv moved; mkdir -p .venv/bin; {_FALSE}")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    venv.create(tmp_path / "environment", symlinks=True)
    (packages,) = (tmp_path / "environment/lib").glob("python3*/site-packages")
    places = [str(Path(agentcli.__file__).parents[1]), *site.getsitepackages()]
    (packages / "agentcli.pth").write_text("\n".join(places))
    return root


def run(work: Path, server: ModelServer, *args: str) -> subprocess.CompletedProcess[str]:
    argv = (str(work / ".venv/bin/python"), "-P", "-m", "agentcli", "run", *args, "hi")
    return subprocess.run(
        argv, cwd=work, env=agent_env(server), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=30, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", _COMMANDS, ids=["replaced", "moved"])
@pytest.mark.parametrize("kind", ["bwrap", "landlock"])
@pytest.mark.parametrize("is_link", [False, True], ids=["there", "link"])
def test_no_command_inside_has_the_program_run_what_it_made(
    work: Path, kind: str, command: str, is_link: bool
) -> None:
    needs(kind)
    environment = work.with_name("environment")
    if is_link:
        (work / ".venv").symlink_to(environment)
    else:
        environment.rename(work / ".venv")
    steps = [call("bash", {"command": command}), call("bash", {"command": "true"}), say("done")]
    with ModelServer(steps, strict=False) as server:
        done = run(work, server, "--permission-mode", "auto", "--sandbox", kind)
    if kind == "landlock" and not is_link:  # which cannot take a part out of the workspace
        assert done.returncode == 78 and "installed outside" in done.stderr
    else:
        assert done.stdout == "done\n", done.stderr
    assert not (work / "ran").exists()
    left = work / ".venv/bin/python"
    assert is_link or Path(os.readlink(left)).name.startswith("python")
    assert not left.is_file() or left.is_symlink()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [("--permission-mode", "auto"), ("--yolo",)])
def test_a_file_of_it_is_edited_by_asking_alone(work: Path, mode: tuple[str, ...]) -> None:
    work.with_name("environment").rename(work / ".venv")
    file = "lib/evil.py"
    steps = [call("write_file", {"path": f".venv/{file}", "content": "x"}), say("done")]
    with ModelServer(steps, strict=False) as server:
        done = run(work, server, *mode)
    assert "agentcli runs from there" in done.stderr
    assert not (work / ".venv" / file).exists()


def test_it_is_what_lies_in_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(os.path.realpath(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", "/usr")
    assert list(own_program([root])) == []
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    assert list(own_program([root])) == [root / ".venv"]
    assert list(own_program([root / "src"])) == []
    monkeypatch.setattr(sys, "prefix", str(root))
    parts = {root / name for name in ("bin", "lib", "lib64", "pyvenv.cfg")}
    assert set(own_program([root])) == parts
