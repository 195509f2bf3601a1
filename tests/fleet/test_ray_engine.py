"""``--engine ray``: the same tasks on a real Ray of this machine; one line where there is none."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from agentcli.domain.errors import UsageError
from agentcli.fleet import ray_engine
from agentcli.fleet.engine import TaskCall
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.processes import pids_in
from tests.support.replies import say


@pytest.mark.spec("SCALE-3")
def test_without_ray_the_way_to_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcli.fleet.ray_engine import RayEngine

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as caught:
        RayEngine()
    assert "which is not installed" in str(caught.value)
    assert "-m pip install 'agentcli[ray]'" in str(caught.value)


@pytest.mark.spec("SCALE-3", "SEC-1")
def test_a_call_arrives_at_a_node_as_it_was_sent(tmp_path: Path) -> None:
    sent = TaskCall("id", "a prompt", tmp_path, ("-m", "x"), 2.5, is_data=True)
    assert ray_engine._as_call(json.loads(json.dumps(ray_engine._as_plain(sent)))) == sent


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.spec("SCALE-3")
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="the extra ray is not installed"
)
def test_tasks_run_on_a_real_ray_and_end_in_the_same_files(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.default = say("done")
    rows = [{"id": f"t{n}", "prompt": f"task {n}"} for n in range(12)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = ("batch", "t.jsonl", "-o", "out", "-j", "4", "--engine", "ray")
    done = run_agent(*args, env=agent_env(model_server), cwd=tmp_path, timeout=120)
    assert done.code == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert [(row["id"], row["state"], row["result"]) for row in found] == [
        (row["id"], "done", "done") for row in rows
    ]
    assert len(model_server.requests) == len(rows)
    assert not pids_in(tmp_path)
