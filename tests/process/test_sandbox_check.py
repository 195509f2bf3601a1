"""What ``agent doctor`` learns of the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.domain.sandbox import SandboxKind
from agentcli.process.sandbox_check import look_for_sandbox
from tests.support.sandboxes import needs


@pytest.mark.spec("SEC-7", "OPS-3")
def test_it_is_looked_for_and_taken_down_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("bwrap")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert look_for_sandbox(tmp_path, "auto").kind is SandboxKind.BWRAP
    assert list(scratch.iterdir()) == []
    assert not look_for_sandbox(tmp_path, "off").is_on
