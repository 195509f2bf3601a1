"""What the user's own programs would make of a file, before it is edited."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.app.boundary import policy_for
from agentcli.app.options import SessionOptions
from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kept", [".claude", ".qwen"])
def test_what_a_link_in_a_hidden_directory_leads_to_is_obeyed_there(
    tmp_path: Path, kept: str
) -> None:
    for name in ("conf", "mine", "other", kept):
        (tmp_path / name).mkdir()
    (tmp_path / kept / "hooks").symlink_to("../mine")
    (tmp_path / "conf/skills").symlink_to("../other")
    (tmp_path / ".goose").symlink_to("conf")
    settings = load_settings(Paths.from_env(os.environ), os.environ)
    runs = policy_for(settings, SessionOptions(cwd=tmp_path)).run_by_others
    assert runs(tmp_path / "mine/a") and runs(tmp_path / "other/a")
    assert runs(tmp_path / "conf/mcp.json") and not runs(tmp_path / "conf/x.md")
