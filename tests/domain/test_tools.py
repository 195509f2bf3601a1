"""The workspace: what lies inside, whatever its links say."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.domain.tools import Workspace, real_path


@pytest.mark.spec("SEC-5")
def test_links_in_a_circle_are_judged_where_they_lie(tmp_path: Path) -> None:
    root, other = tmp_path / "work", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    (root / "loop").symlink_to("loop")
    (other / "loop").symlink_to("loop")
    (root / "out").symlink_to(other / "loop")
    workspace = Workspace(root, root)
    assert workspace.contains(root / "loop")
    assert not workspace.contains(root / "out")
    assert not workspace.contains(root / "loop" / ".." / ".." / "other")
    assert real_path(root / "loop") == root / "loop"
