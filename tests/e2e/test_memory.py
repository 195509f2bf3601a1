"""What outlives a session, with the whole program: who may put it there, and who is told of it."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat
from tests.e2e.one_shot import last_result, one_shot
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer, Recorded
from tests.support.replies import Call, calls, say

pytestmark = pytest.mark.sampled

FACT = "the tests are run with make check"
REMEMBER = Call("memory", {"action": "remember", "text": FACT})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return repository(tmp_path / "work")


def repository(path: Path, remote: str = "") -> Path:
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    if remote:
        subprocess.run(["git", "-C", str(path), "remote", "add", "origin", remote], check=True)
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


@pytest.mark.spec("MEM-2", "EXT-3")
def test_piped_text_beside_words_is_not_what_the_user_said(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add(calls(REMEMBER), say("done"))
    assert one_shot(model_server, "review", cwd=work, input=f"{FACT}\n").code == 0
    assert not is_known(model_server, work)


@pytest.mark.slow
@pytest.mark.spec("MEM-1")
def test_clones_and_moved_repositories_find_it_and_others_do_not(
    model_server: ModelServer, tmp_path: Path
) -> None:
    cloned = repository(tmp_path / "one", "git@example.com:team/app.git")
    tell(model_server, cloned)
    other = repository(tmp_path / "two", "https://user@Example.com/team/app")
    assert is_known(model_server, other)
    local = repository(tmp_path / "local")
    assert not is_known(model_server, local)
    tell(model_server, local)
    shutil.move(local, tmp_path / "moved")
    assert is_known(model_server, tmp_path / "moved")


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
    terminal.kill(signal.SIGKILL)
    assert is_known(model_server, work)
    found = run_agent("sessions", "search", "make", "check", env=agent_env())
    assert "memory of" in found.stdout and FACT in found.stdout
