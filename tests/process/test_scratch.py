"""Scratch directories: private, removed, and swept when their owner was killed."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agentcli.process import scratch as _scratch


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(_scratch, "_swept", set())
    return tmp_path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.spec("SEC-9")
def test_it_is_private_and_removed(temporary: Path) -> None:
    async def body() -> None:
        scratch = await _scratch.new_scratch("echo hi")
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
        assert (scratch / "command").read_text() == "echo hi"
        await _scratch.remove_scratch(scratch)
        assert not list(temporary.iterdir())

    asyncio.run(body())


@pytest.mark.spec("SEC-9", "REC-8")
def test_what_a_killed_app_left_is_removed_and_nothing_else(temporary: Path) -> None:
    gone, alive = dead_pid(), os.getppid()
    left = temporary / f"agentcli-{gone}-abc_123"
    kept = [
        temporary / f"agentcli-{alive}-abc_123",
        temporary / "agentcli-notes",
        temporary / f"other-{gone}-abc",
    ]
    target = temporary / "target"
    for directory in (left, *kept, target):
        directory.mkdir()
        (directory / "state").write_text("SECRET=1")
    link = temporary / f"agentcli-{gone}-link"
    link.symlink_to(target)
    _scratch.sweep_once(temporary)
    assert not left.exists()
    assert all((directory / "state").exists() for directory in (*kept, target))
    assert link.is_symlink()
