"""``--engine ray``: the same tasks on a real Ray of this machine; one line where there is none.

Ray is an extra of 80 MB that ``.ci/setup`` does not install, for the sake of the time that a check
may take; ``pip install 'agentcli[ray]'`` in the environment of the tests lets them run it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentcli.domain.errors import UsageError
from agentcli.fleet import ray_engine
from agentcli.fleet.engine import TaskCall
from tests.support.batches import (
    answers_in,
    number_of,
    numbered_tasks,
    processes_of,
    rows_of,
    write_tasks,
)
from tests.support.cli import Running, agent_env, run_agent
from tests.support.docs import blocks, shell
from tests.support.model_server import ModelServer, Recorded
from tests.support.processes import pids_in, wait_until
from tests.support.replies import Reply, say

WITHIN_S = 60.0
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="the extra ray is not installed"
)


@pytest.mark.slow
@pytest.mark.spec("SCALE-3")
def test_ray_is_imported_for_its_engine_alone_and_without_it_the_way_is_one_line(
    tmp_path: Path,
) -> None:
    script = """
import sys
from agentcli.cli.main import main
words = ["batch", "t.jsonl", "-o", "out"]
assert main(words) == 0
assert not [name for name in sys.modules if name.split(".")[0] == "ray" or "ray_engine" in name]
sys.modules["ray"] = None
assert main([*words, "--engine=ray"]) == 2
"""
    write_tasks(tmp_path / "t.jsonl", [{"prompt": "list files"}])
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, refused = done.stderr.splitlines()  # the first is that of the task
    assert "--engine ray needs Ray, which is not installed" in refused
    assert refused.endswith("-m pip install 'agentcli[ray]'")


@pytest.mark.spec("SCALE-3", "SEC-1")
def test_a_call_arrives_at_a_node_as_it_was_sent(tmp_path: Path) -> None:
    sent = TaskCall("id", "a prompt", tmp_path, ("-m", "x"), "{}", 2.5, is_data=True)
    assert ray_engine._as_call(json.loads(json.dumps(ray_engine._as_plain(sent)))) == sent


@pytest.mark.spec("SEC-19")
def test_ray_begins_outside_of_the_working_directory_where_its_workers_import_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[tuple[Path, str | None]] = []
    hook = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"

    def init(**_: object) -> None:
        began.append((Path.cwd(), os.environ.get(hook)))

    fake = SimpleNamespace(init=init, remote=lambda **_: lambda run: run)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.chdir(tmp_path)
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED", hook):
        monkeypatch.setenv(name, "")
    ray_engine.RayEngine(print)
    assert began == [(Path("/"), "0")] and Path.cwd() == tmp_path


@pytest.mark.spec("SEC-3", "SEC-12")
@pytest.mark.parametrize(
    ("address", "mode"), [("", "token"), ("local", "token"), ("auto", "disabled")]
)
def test_a_ray_of_this_machine_alone_takes_work_from_its_own_batch_alone(
    monkeypatch: pytest.MonkeyPatch, address: str, mode: str
) -> None:
    seen: list[str | None] = []

    def init(**_: object) -> None:
        seen.append(os.environ.get("RAY_AUTH_MODE"))

    fake = SimpleNamespace(init=init, remote=lambda **_: lambda run: run)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    hook = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
    for name in ("RAY_USAGE_STATS_ENABLED", hook, *ray_engine._PATIENCE):
        monkeypatch.setenv(name, "")
    ray_engine.RayEngine(print)
    assert seen == [mode]


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.spec("SCALE-3", "SEC-19")
@needs_ray
def test_workers_of_ray_import_nothing_from_the_working_directory(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.default = say("done")
    for name in ("agentcli", "asyncio", "json", "httpx"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    write_tasks(tmp_path / "t.jsonl", numbered_tasks(1))
    args = ("batch", "t.jsonl", "-o", "out", "--engine", "ray")
    env = agent_env(model_server, PYTHONSAFEPATH="1")
    done = run_agent(*args, env=env, cwd=tmp_path, timeout=80)
    assert done.code == 0, done.stderr


@pytest.mark.spec("SCALE-3")
def test_an_address_where_nobody_listens_is_told_before_ray_tries_for_minutes() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # nobody else gets that port
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for gone in (address, f"ray://{address}", "127.0.0.1:99999999"):
            with pytest.raises(UsageError, match=r"no Ray cluster at .* correct RAY_ADDRESS"):
                ray_engine._look_for(gone)
        server.listen()
        for fine in (address, f"ray://{address}", "auto", "local", ""):
            ray_engine._look_for(fine)


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.spec("SCALE-3")
@needs_ray
def test_a_cluster_that_does_not_answer_is_given_up_and_it_is_said_what_is_awaited(
    tmp_path: Path,
) -> None:
    write_tasks(tmp_path / "t.jsonl", numbered_tasks(1))
    words = ("batch", "t.jsonl", "-o", "out", "-m", "offline", "--engine", "ray")
    with socket.create_server(("0.0.0.0", 0)) as server:  # Ray takes the machine's own address
        address = f"127.0.0.1:{server.getsockname()[1]}"
        done = run_agent(*words, env=agent_env(RAY_ADDRESS=address), cwd=tmp_path, timeout=80)
    first, *_, last = done.stderr.splitlines()
    assert done.code == 2 and first == f"waiting for the Ray cluster at {address}"
    assert last.startswith("error: Ray does not start: ") and "RAY_ADDRESS" in last


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.spec("SCALE-3")
@needs_ray
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


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.spec("SCALE-3", "SCALE-5")
@needs_ray
def test_the_example_in_the_topic_runs(tmp_path: Path, home: Path) -> None:
    (tour,) = (text for text in blocks("sh") if "tour.toml" in text)
    (far,) = blocks("sh", "tested with Ray")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/app.py").write_text("x = 1  # TODO\n")
    (tmp_path / "notes.txt").write_text("hello\n")
    done = shell(f"{tour}{far}", tmp_path, home)
    assert done.returncode == 0, done.stdout + done.stderr
    states = [json.loads((tmp_path / name / "steps.json").read_text()) for name in ("out", "far")]
    assert [[step["state"] for step in each["steps"]] for each in states] == [["done"] * 3] * 2


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("SCALE-3")
@needs_ray
def test_a_killed_driver_goes_on_and_ctrl_c_leaves_nothing_not_even_a_ray(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    held = threading.Event()

    def reply(request: Recorded) -> Reply:
        return say(f"done with {number_of(request)}", hold=None if held.is_set() else held)

    def is_over() -> bool:
        return not processes_of(home)

    work = tmp_path / "work"
    work.mkdir()
    write_tasks(work / "tasks.jsonl", numbered_tasks(12))
    words = ("batch", "tasks.jsonl", "-o", "out", "-j", "4", "--engine", "ray")
    env = agent_env(model_server)
    model_server.default = reply
    with Running(*words, env=env, cwd=work) as running:
        model_server.wait_for_requests(4, timeout=90)
        running.process.kill()
        running.process.wait()
    wait_until(is_over, "what the driver has begun to end with it", WITHIN_S)
    with Running(*words, env=env, cwd=work) as running:
        model_server.wait_for_requests(8, timeout=90)
        names = [Path(f"/proc/{pid}/cmdline").read_text() for pid in processes_of(home)]
        assert any("raylet" in name for name in names)
        running.signal(signal.SIGINT)
        wait_until(lambda: "no more tasks are started" in running.stderr, "the first Ctrl-C")
        running.signal(signal.SIGINT)
        assert running.wait(60).code == 130, running.stderr
    wait_until(is_over, "no process of Ray is left", WITHIN_S)
    assert [row["state"] for row in rows_of(work / "out")].count("done") == 0
    held.set()
    done = run_agent(*words, env=env, cwd=work, timeout=120)
    assert done.code == 0, done.stderr
    rows = rows_of(work / "out")
    assert [(row["id"], row["result"]) for row in rows] == [
        (f"t{number}", f"done with {number}") for number in range(12)
    ]
    assert answers_in(home) == {row["session_id"]: 1 for row in rows}
    assert len(model_server.requests) == 4 + 4 + 12
    wait_until(is_over, "no process of Ray is left", WITHIN_S)
