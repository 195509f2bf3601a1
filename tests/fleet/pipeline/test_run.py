"""``agent pipeline run`` as users meet it: in order, resumed, changed, failed, killed."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import answers_in, processes_of
from tests.support.cli import AGENT, agent_env, run_agent, spawn_agent
from tests.support.model_server import ModelServer, Recorded
from tests.support.processes import pids_in, wait_until
from tests.support.pty_driver import Terminal
from tests.support.replies import Call, Reply, call, calls, fails, say
from tests.support.repositories import make_repository

FILE = """
[inputs]
place = "src"
[defaults]
retry = 1
[steps.find]
prompt = "Find it in {{inputs.place}}"
[steps.find.schema]
type = "object"
properties.mods = { type = "array", items = { type = "string" } }
required = ["mods"]
[steps.change]
for_each = "steps.find.result.mods"
when = "item != 'skip'"
prompt = "/nocommand @secret.txt Change {{item}}"
[steps.sum]
prompt = "Sum {{steps.change.results}}"
[steps.broken]
prompt = "Break"
[steps.blocked]
needs = ["broken"]
prompt = "Never said"
[steps.told]
prompt = "It is {{steps.broken.state}}"
"""


def words_of(request: Recorded) -> str:
    """The first words of the user in a request."""
    content = request.messages[0]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


class Steps:
    """Answers each step by its first words; keeps how often each was asked."""

    def __init__(self, server: ModelServer) -> None:
        self.asked: Counter[str] = Counter()
        server.default = self._reply

    def _reply(self, request: Recorded) -> Reply:
        words = words_of(request)
        self.asked[words] += 1
        if words.startswith("Find"):
            return call("final_result", {"mods": ["a.py", "skip", "{{steps.told.result}}"]})
        if words.startswith("Break"):
            return fails(400)
        return say(f"<{words}>")


def pipeline(server: ModelServer, work: Path, *more: str, given: str | None = None) -> Any:
    args = ("pipeline", "run", "p.toml", "-o", "out", "-j", "4", *more)
    return run_agent(*args, env=agent_env(server), cwd=work, input=given)


def steps_of(work: Path) -> dict[str, Any]:
    found = json.loads((work / "out" / "steps.json").read_text())
    return {step["name"]: step for step in found["steps"]}


@pytest.mark.slow
@pytest.mark.spec("SCALE-5")
def test_steps_run_with_what_they_need_and_run_again_only_when_changed(
    model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "p.toml").write_text(FILE)
    (tmp_path / "secret.txt").write_text("never attached")
    steps = Steps(model_server)
    done = pipeline(model_server, tmp_path)
    assert done.code == 1, done.stderr
    found = steps_of(tmp_path)
    assert {name: step["state"] for name, step in found.items()} == {
        "find": "done",
        "change": "done",
        "sum": "done",
        "broken": "failed",
        "blocked": "blocked",
        "told": "done",
    }
    assert found["find"]["runs"][0]["structured_output"]["mods"][0] == "a.py"
    assert [run["name"] for run in found["change"]["runs"]] == ["change[0]", "change[2]"]
    first = "/nocommand @secret.txt Change a.py"
    second = "/nocommand @secret.txt Change {{steps.told.result}}"
    assert steps.asked[first] == steps.asked[second] == 1
    assert steps.asked[f"Sum {json.dumps([f'<{first}>', f'<{second}>'])}"] == 1
    assert steps.asked["It is failed"] == 1
    assert steps.asked["Break"] == 2 and found["broken"]["runs"][0]["attempts"] == 2
    assert not any("never attached" in str(request.body) for request in model_server.requests)
    assert "blocked  blocked  0/0   broken failed" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert len(rows) == 6 and (tmp_path / "out/report.html").exists()

    asked = Counter(steps.asked)
    (tmp_path / "p.toml").write_text(FILE.replace("Sum {{", "Add up {{"))
    again = pipeline(model_server, tmp_path, "--format", "json")
    assert next(each["name"] for each in json.loads(again.stdout)["steps"]) == "find"
    new = steps.asked - asked
    assert list(new.values()) == [1] and next(iter(new)).startswith("Add up")
    assert "sum is not what it was when it ran: it runs again" in again.stderr


TEN = """
[steps.list]
prompt = "step list"
schema = { type = "object", properties = { n = { type = "array", items = { type = "integer" } } }, required = ["n"] }
[steps.fan]
for_each = "steps.list.result.n"
prompt = "step fan {{item}}"
""" + "".join(
    f'[steps.s{n}]\nprompt = "step s{n}"\nneeds = ["{"fan" if n == 1 else f"s{n - 1}"}"]\n'
    for n in range(1, 9)
)
NAMES = ["list", *(f"fan {n}" for n in range(10)), *(f"s{n}" for n in range(1, 9))]


class Kills:
    """Each step runs a command that leaves a mark; the next kill comes within a chosen step."""

    def __init__(self, server: ModelServer, at: set[str]) -> None:
        self.at = at
        self.reached = threading.Event()
        self.ends: Counter[str] = Counter()
        self.held = threading.Event()
        server.default = self._reply

    def _reply(self, request: Recorded) -> Reply:
        name = words_of(request).removeprefix("step ")
        if name in self.at:
            self.at.discard(name)
            self.reached.set()
            return say("too late", hold=self.held)
        if len(request.messages) == 1:
            line = f"echo x >> 'mark {name}'"
            return calls(Call("bash", {"command": line}, id=f"c_{random.getrandbits(60)}"))
        self.ends[name] += 1
        if name == "list":
            return call("final_result", {"n": list(range(10))})
        return say(f"done {name}")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("SCALE-5")
def test_ten_steps_with_a_fan_killed_at_every_step_go_on(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "p.toml").write_text(TEN)
    kills = Kills(model_server, set())
    args = ("pipeline", "run", "p.toml", "-o", "out", "-j", "3", "--yolo", "--sandbox", "off")
    for name in ["list", "fan 0", "fan 5", "fan 9", *(f"s{n}" for n in range(1, 9))]:
        kills.reached.clear()
        kills.at.add(name)
        with spawn_agent(*args, env=agent_env(model_server), cwd=work) as running:
            assert kills.reached.wait(60), running.stderr
            running.signal(signal.SIGKILL)
            running.wait()
        wait_until(lambda: not pids_in(work), "the processes of a killed pipeline to end")
    done = run_agent(*args, env=agent_env(model_server), cwd=work, timeout=60)
    assert done.code == 0, done.stderr
    rows = [json.loads(line) for line in (work / "out/results.jsonl").read_text().splitlines()]
    assert Counter(row["state"] for row in rows) == {"done": len(NAMES)}
    assert set(kills.ends) == set(NAMES)
    assert set(answers_in(home).values()) <= {0, 1}  # 0: its result was a call
    assert steps_of(work)["s8"]["runs"][0]["result"] == "done s8"
    for name in NAMES:
        mark = work / f"mark {name}"  # a command that had not started when it was killed is not run
        assert not mark.exists() or mark.read_text() == "x\n", name


@pytest.mark.slow
@pytest.mark.spec("SCALE-5")
def test_a_list_that_has_moved_or_grown_runs_only_what_is_new(
    model_server: ModelServer, tmp_path: Path
) -> None:
    text = '[steps.fan]\nfor_each = {}\nprompt = "Do {{{{item}}}}"\n'
    steps = Steps(model_server)
    (tmp_path / "p.toml").write_text(text.format('["a", "b"]'))
    assert pipeline(model_server, tmp_path).code == 0
    (tmp_path / "p.toml").write_text(text.format('["new", "b", "a"]'))
    again = pipeline(model_server, tmp_path)
    assert again.code == 0 and "runs again" not in again.stderr
    assert steps.asked == {"Do a": 1, "Do b": 1, "Do new": 1}
    assert [run["result"] for run in steps_of(tmp_path)["fan"]["runs"]] == [
        *("<Do new>", "<Do b>", "<Do a>"),
    ]


@pytest.mark.slow
@pytest.mark.spec("SCALE-5")
def test_failed_steps_run_again_are_counted_once_and_say_what_they_failed_at(
    model_server: ModelServer, tmp_path: Path
) -> None:
    long = "x" * 200_000  # more than a command line takes
    schema = "schema = { type = 'object', required = ['n'], properties.n = { type = 'integer' }"
    schema += f", description = '{long}' }}"
    text = f'[steps.one]\nprompt = "Say no"\nworktree = true\n{schema}\n'
    (tmp_path / "p.toml").write_text(text)
    make_repository(tmp_path)
    Steps(model_server)
    assert pipeline(model_server, tmp_path).code == 1
    assert long in json.dumps(model_server.requests[0].body)
    # that of the step counts, not one for all, which may come from a pipe
    for_all = ("--json-schema", "/dev/stdin", "--retry-failed")
    again = pipeline(model_server, tmp_path, *for_all, given='{"title": "for all"}')
    assert again.code == 1 and long in json.dumps(model_server.requests[-1].body)
    assert "1/1 limit: one-" in again.stderr and "ended before" not in again.stderr
    (run,) = steps_of(tmp_path)["one"]["runs"]
    assert run["state"] == "limit" and run["worktree"].startswith("batch-")
    assert "a limit was reached" in again.stdout


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.spec("SCALE-5")
def test_ctrl_c_in_a_terminal_stops_a_pipeline_that_goes_on_in_worktrees(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    steps = [f'[steps.s{n}]\nprompt = "step s{n}"\nworktree = true\n' for n in range(2)]
    steps.append('[steps.last]\nneeds = ["s0", "s1"]\nprompt = "step last"\n')
    (work / "p.toml").write_text("".join(steps))
    make_repository(work)
    held = threading.Event()
    model_server.default = say("never said", hold=held)
    args = ("pipeline", "run", "p.toml", "-o", "../out", "--yolo", "--sandbox", "off")
    with Terminal([*AGENT, *args], agent_env(model_server), work, cols=40) as terminal:
        model_server.wait_for_requests(2, timeout=20)
        terminal.wait_for("2 running")
        assert [line.split() for line in terminal.screen() if "waiting" in line] == [
            ["waiting", "last"]
        ]
        terminal.send("\x03")
        terminal.wait_for("no more tasks are started")
        terminal.send("\x03")
        assert terminal.wait_exit(20) == 130
        assert "running  " not in terminal.text()  # what the echo of ^C would have left
        assert "start again with the same FILE" in " ".join(terminal.text().split())
    wait_until(lambda: not processes_of(home), "the steps end with their pipeline")
    found = json.loads((tmp_path / "out" / "steps.json").read_text())["steps"]
    states = {step["name"]: (step["state"], len(step["runs"])) for step in found}
    assert states == {"s0": ("interrupted", 1), "s1": ("interrupted", 1), "last": ("pending", 0)}
    kills = Kills(model_server, set())
    held.set()
    done = run_agent(*args, env=agent_env(model_server), cwd=work, timeout=40)
    assert done.code == 0, done.stderr
    assert kills.ends == {"s0": 1, "s1": 1, "last": 1}
    assert [path.name for path in work.glob("mark*")] == ["mark last"]
    rows = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    names = {row["worktree"] for row in rows if "worktree" in row}
    assert len(rows) == 3 and len(names) == 2 and not processes_of(home)
    listed = run_agent("worktrees", "--format=json", env=agent_env(model_server), cwd=work)
    trees = {tree["name"]: Path(tree["path"]) for tree in json.loads(listed.stdout)}
    assert trees.keys() == names
    marks = [path.name for tree in trees.values() for path in tree.glob("mark*")]
    assert sorted(marks) == ["mark s0", "mark s1"]


@pytest.mark.spec("SCALE-5", "SEC-1")
def test_what_is_not_there_or_not_allowed_is_told_at_once_before_anything_runs(
    model_server: ModelServer, tmp_path: Path
) -> None:
    agents = tmp_path / "home" / ".agents" / "agents"
    agents.mkdir(parents=True)
    (agents / "writer.md").write_text("---\ndescription: x\n---\nWrite.\n")
    good = """[steps.a]
prompt = "A"
agent = "writer"
allow_tools = ["bash(ls *)"]
[steps.b]
needs = ["a"]
prompt = "B"
permission_mode = "yolo"
"""
    wrong = """agent = "wirter"
modell = "nobody/x"
[steps.c]
prompt = "C"
cwd = "gone"
[steps.d]
needs = ["a"]
prompt = "D"
cwd = "made by a"
[steps.e]
prompt = "E"
cwd = ".."
allow_tools = ["bash("]
[steps.f]
prompt = "F"
schema = "../keys.json"
"""
    (tmp_path / "p.toml").write_text(good + wrong)
    model_server.default = lambda _: say("Done.")
    args = ("pipeline", "run", "p.toml", "-o", "out")
    env = agent_env(model_server, HOME=str(tmp_path / "home"))
    done = run_agent(*args, env=env, cwd=tmp_path)
    assert done.code == 78 and not model_server.requests
    trust = "is for you to allow: if the file is yours, or you have read it, start it with --trust"
    told = [line.strip().replace(str(tmp_path), "DIR") for line in done.stderr.splitlines()]
    expected = [
        "error: p.toml cannot run - correct it; nothing has run",
        f"line 4: steps.a.allow_tools: bash(ls *) {trust}",
        f"line 8: steps.b.permission_mode: yolo {trust}",
        "line 9: steps.b.agent: there is no agent wirter (there are: writer)",
        "line 10: steps.b.modell: is unknown (did you mean model?)",
        "line 10: steps.b.model: there is no provider 'nobody'",
        "line 13: steps.c.cwd: cwd 'gone' is no directory",
        f"line 20: steps.e.cwd: cwd '..' is outside of DIR: {trust.partition(': ')[2]}",
        "line 21: steps.e.allow_tools: not a permission rule: 'bash('",
        f"line 24: steps.f.schema: ../keys.json is outside of DIR: {trust.partition(': ')[2]}",
    ]
    assert [line[: len(start)] for line, start in zip(told, expected, strict=True)] == expected
    (tmp_path / "p.toml").write_text(good)
    (tmp_path / ".agents").mkdir()
    (tmp_path / ".agents" / "config.toml").write_text("max_steps = 9\n")
    assert run_agent("run", "go", "--trust", env=env, cwd=tmp_path).code == 0
    # a command may have changed it since: to trust its directory says nothing of the file
    done = run_agent(*args, env=env, cwd=tmp_path)
    assert done.code == 78 and f"permission_mode: yolo {trust}" in done.stderr
    assert run_agent(*args, "--trust", env=env, cwd=tmp_path).code == 0
