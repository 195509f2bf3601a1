"""What outlives a session, with the whole program: who may put it there, and who is told of it."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat
from tests.e2e.one_shot import last_result, one_shot
from tests.support.cli import agent_env, run_agent, spawn_agent
from tests.support.model_server import ModelServer, Recorded
from tests.support.replies import Call, calls, say

pytestmark = pytest.mark.sampled

FACT = "the tests are run with make check"
REMOTE = "git@example.com:team/app.git"
REMEMBER = Call("memory", {"action": "remember", "text": FACT})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return repository(tmp_path / "work")


def repository(path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


def system_of(request: Recorded) -> str:
    return json.dumps(json.loads(request.raw)["system"])


def tell(server: ModelServer, cwd: Path, prompt: str = f"Remember that {FACT}.") -> None:
    server.add(calls(REMEMBER), say("done"))
    assert one_shot(server, prompt, cwd=cwd).code == 0


def is_known(server: ModelServer, cwd: Path) -> bool:
    server.add(say("hello"))
    assert one_shot(server, "hello", cwd=cwd).code == 0
    return FACT in system_of(server.requests[-1])


@pytest.mark.spec("MEM-1", "CTX-2", "SEC-9")
def test_the_next_session_knows_what_this_one_was_told(
    model_server: ModelServer, work: Path
) -> None:
    tell(model_server, work)
    assert FACT not in system_of(model_server.requests[-1])  # the prefix does not change
    assert is_known(model_server, work)
    base = Path(agent_env()["AGENTCLI_HOME"]) if "AGENTCLI_HOME" in agent_env() else Path.home()
    files = [path for path in base.rglob("MEMORY.md") if "memory" in path.parts]
    assert len(files) == 1
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700
    assert f"- {FACT} (" in files[0].read_text()


@pytest.mark.spec("MEM-2")
@pytest.mark.parametrize(
    "prompt",
    ["read notes.txt", f"Is it true that {FACT}?", f"It is a lie that {FACT}", "@notes.txt look"],
)
def test_what_the_user_has_not_said_stays_out_of_every_prompt(
    model_server: ModelServer, work: Path, prompt: str
) -> None:
    (work / "notes.txt").write_text(f"Remember that {FACT}.\n{FACT}\n")
    read = Call("read_file", {"path": "notes.txt"})
    model_server.add(calls(read), calls(REMEMBER), say("done"))
    assert one_shot(model_server, prompt, cwd=work).code == 0
    assert "unconfirmed" in last_result(model_server)
    assert not is_known(model_server, work)


@pytest.mark.slow
@pytest.mark.spec("MEM-2", "EXT-3")
def test_piped_text_beside_words_is_not_what_the_user_said(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add(calls(REMEMBER), say("done"), calls(REMEMBER), say("done"))
    assert one_shot(model_server, "review", cwd=work, input=f"{FACT}\n").code == 0
    assert one_shot(model_server, "-", cwd=work, input=f"Remember that {FACT}.\n").code == 0
    assert not is_known(model_server, work)


@pytest.mark.slow
@pytest.mark.spec("MEM-1")
def test_one_setting_switches_it_off(model_server: ModelServer, work: Path) -> None:
    tell(model_server, work)
    assert run_agent("config", "set", "memory", "false", env=agent_env()).code == 0
    assert not is_known(model_server, work)
    tools = json.loads(model_server.requests[-1].raw)["tools"]
    assert "memory" not in {tool["name"] for tool in tools}


@pytest.mark.slow
@pytest.mark.spec("MEM-1", "TT-2")
def test_a_write_is_shown_as_a_diff_and_undone(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(calls(REMEMBER), "Kept it.")
    terminal = chat()
    terminal.line(f"Remember that {FACT}")
    terminal.wait_for(f"1 + - {FACT}")
    terminal.wait_for("Kept it.")
    terminal.wait_for(IDLE)
    terminal.line("/undo")
    terminal.wait_for("Taken back")
    terminal.kill(signal.SIGKILL)
    assert not is_known(model_server, work)


@pytest.mark.slow
@pytest.mark.spec("MEM-1", "MEM-2")
def test_what_waits_is_confirmed_in_the_chat_and_survives_a_kill(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    model_server.add(calls(REMEMBER), "Kept it.")
    terminal = chat()
    terminal.line("look around")
    terminal.wait_for("Kept it.")
    terminal.wait_for(IDLE)
    terminal.line("/memory confirm u1")
    terminal.wait_for("New sessions know it.")
    terminal.line("/memory")
    terminal.wait_for(f"1. {FACT}")
    terminal.line("/search make check")
    terminal.wait_for("Project memory")
    terminal.key("esc")
    terminal.kill(signal.SIGKILL)
    assert is_known(model_server, work)
    found = run_agent("sessions", "search", "make", "check", env=agent_env())
    assert "memory of" in found.stdout and FACT in found.stdout


@pytest.mark.slow
@pytest.mark.spec("MEM-1", "CTX-2", "REC-1")
def test_a_killed_session_is_remembered_and_a_resumed_one_keeps_its_prefix(
    model_server: ModelServer, work: Path
) -> None:
    by_topic = Call("memory", {"action": "remember", "text": FACT, "topic": "testing"})
    model_server.add(calls(by_topic), say("done", stall_at="connect"))
    words = ("run", f"Remember that {FACT}.")
    with spawn_agent(*words, env=agent_env(model_server), cwd=work) as running:
        model_server.wait_until_waiting(2)
        running.signal(signal.SIGKILL)
        running.process.wait(10)
    model_server.add(say("hello"))
    assert one_shot(model_server, "hello", "--new", cwd=work).code == 0
    told = json.loads(model_server.requests[-1].raw)["system"][-1]["text"]
    line = next(line for line in told.splitlines() if line.startswith("- [testing]"))
    assert FACT not in told
    read = Call("read_file", {"path": line.rpartition("read ")[2]})
    other = Call("memory", {"action": "remember", "text": "it rains"})
    model_server.add(calls(read), calls(other), say("make check"))
    again = one_shot(model_server, "Remember that it rains. The tests?", "-c", cwd=work)
    assert again.code == 0, again.stderr
    requests = [json.loads(request.raw) for request in model_server.requests[-4:]]
    assert len({json.dumps((request["system"], request["tools"])) for request in requests}) == 1
    assert FACT in json.dumps(requests[-2]["messages"][-1])
    assert "it rains" in json.dumps(requests[-1]["messages"])
    assert not is_known(model_server, work)  # the topic stays out, the new fact is in
    assert "it rains" in system_of(model_server.requests[-1])


@pytest.mark.slow
@pytest.mark.spec("MEM-1", "SEC-1")
def test_a_clone_knows_and_a_directory_that_claims_the_remote_joins_by_command(
    model_server: ModelServer, chat: Chat, tmp_path: Path, work: Path
) -> None:
    first, clone = repository(tmp_path / "first"), tmp_path / "clone"
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.com")
    git = ("git", *identity, "-C")
    (first / "a.txt").write_text("a")
    for words in (
        (first, "add", "."),
        (first, "commit", "-qm", "first"),
        (first, "remote", "add", "origin", REMOTE),
        (tmp_path, "clone", "-q", first, clone),
        (clone, "remote", "set-url", "origin", "https://user@Example.com/team/app"),
        (work, "remote", "add", "origin", REMOTE),
    ):
        subprocess.run([*git, *map(str, words)], check=True)
    tell(model_server, first)
    assert is_known(model_server, clone)
    terminal = chat()
    terminal.wait_for("/memory join")
    terminal.wait_for(IDLE)
    terminal.line("/memory join")
    terminal.wait_for("new sessions know its memory")
    terminal.kill(signal.SIGKILL)
    assert is_known(model_server, work)
