"""The plugin of the documentation, installed and used by a real ``agent run``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.one_shot import one_shot, result_of
from tests.support.cli import agent_env, run_agent
from tests.support.docs import blocks
from tests.support.model_server import ModelServer
from tests.support.replies import Call, calls
from tests.support.wire_facts import facts_of


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where the example is installed."""
    path = tmp_path / "site"
    info = path / "careful-1.0.dist-info"
    info.mkdir(parents=True)
    (code,) = blocks("python", "plugin")
    assert len(code.strip().splitlines()) <= 25
    (path / "careful.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: careful\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agentcli.plugins]\ncareful = careful:Plugin\n")
    return path


@pytest.mark.slow
@pytest.mark.spec("CTRL-4")
def test_the_example_of_the_documentation_works(
    model_server: ModelServer, site: Path, tmp_path: Path, home: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("content")
    done = run_agent("config", "set", "plugins", "careful", env=agent_env())
    assert done.code == 0, done.stderr
    model_server.add(
        calls(
            Call("read_file", {"path": "a.txt"}, id="read"),
            Call("delete_file", {"path": "a.txt"}, id="delete"),
        ),
        "Done.",
    )
    ran = one_shot(model_server, "--yolo", "go", cwd=work, PYTHONPATH=str(site))
    assert (ran.code, ran.stdout) == (0, "Done.\n"), ran.stderr
    assert (work / "a.txt").exists()
    told = facts_of(model_server.requests[1]).results
    assert "not allowed in this step (no-deleting)" in told["delete"]
    assert "content" in told["read"]
    assert (home / "calls.log").read_text().splitlines() == ["Read a.txt"]


@pytest.mark.slow
def test_a_plugin_that_is_not_installed_is_one_line(model_server: ModelServer) -> None:
    assert run_agent("config", "set", "plugins", "gone", env=agent_env()).code == 0
    model_server.add("Done.")
    done = one_shot(model_server, "go")
    assert (done.code, done.stdout) == (0, "Done.\n")
    assert [line for line in done.stderr.splitlines() if "plugin" in line] == [
        "! there is no plugin 'gone' - there are: none is installed"
    ]


@pytest.mark.spec("CTRL-4", "CLI-5")
def test_what_a_gate_refuses_is_in_the_result(
    model_server: ModelServer, site: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("content")
    assert run_agent("config", "set", "plugins", "careful", env=agent_env()).code == 0
    model_server.add(calls(Call("delete_file", {"path": "a.txt"}, id="delete")), "Done.")
    options = ("--yolo", "--tools", "delete_file", "-o", "json", "go")
    ran = one_shot(model_server, *options, cwd=work, PYTHONPATH=str(site))
    (denied,) = result_of(ran)["permission_denials"]
    assert (denied["tool_name"], denied["tool_use_id"]) == ("delete_file", "delete")
    assert (ran.code, (work / "a.txt").exists()) == (0, True)
