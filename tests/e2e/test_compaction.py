"""Long sessions with the whole program: every wire protocol, a strict service, a real session file."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import IDLE, Chat
from tests.e2e.one_shot import check_sessions, one_shot, result_of
from tests.support.cli import MODELS, Finished, agent_env, run_agent, spawn_agent
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer, Recorded
from tests.support.replies import Call, Reply, Tokens, calls, fails, say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.slow

PROTOCOLS = [ANTHROPIC, OPENAI, RESPONSES, GEMINI]
WINDOW = 20_000
KILLED = -signal.SIGKILL


def set_window(protocol: str, tokens: int = WINDOW) -> None:
    key = f'models."{MODELS[protocol]}".context_tokens'
    done = run_agent("config", "set", key, str(tokens), env=agent_env())
    assert done.code == 0, done.stderr


def is_asking_for_summary(request: Recorded) -> bool:
    return any(prompt.startswith("<transcript>") for prompt in facts_of(request).prompts)


def prompts(request: Recorded) -> str:
    return "\n".join(facts_of(request).prompts)


def boundaries(done: Finished) -> list[dict[str, Any]]:
    return [line for line in done.lines if line.get("subtype") == "compact_boundary"]


def session_file() -> Path:
    (path,) = (Path(os.environ["AGENTCLI_HOME"]) / "sessions").glob("*.db")
    return path


def session() -> str:
    return session_file().stem


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (path / "notes.txt").write_text("a note\n")
    (path / "AGENTS.md").write_text("Always whisper.\n")
    return path


@pytest.mark.spec("CMP-1", "CMP-2", "CMP-3", "CMP-4", "CTX-1", "LOOP-6")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_session_that_fills_its_window_is_folded_and_goes_on(
    model_server: ModelServer, work: Path, protocol: str
) -> None:
    set_window(protocol)
    model_server.add(
        calls(Call("read_file", {"path": "notes.txt"}, id="read-1"), thinking="hm"),
        say("It says: a note."),
        say("Fine.", tokens=Tokens(input=17_000)),
        say("SUMMARY: the note was read", tokens=Tokens(input=3_000, output=300)),
        say("We had read the note."),
    )
    run = {"protocol": protocol, "cwd": work}
    assert one_shot(model_server, "read notes.txt, never write", **run).code == 0
    assert one_shot(model_server, "--continue", "good", **run).code == 0
    done = one_shot(model_server, "--continue", "-o", "stream-json", "what did we do", **run)
    assert (done.code, result_of(done)["result"]) == (0, "We had read the note.")
    (boundary,) = boundaries(done)
    metadata = boundary["compact_metadata"]
    assert metadata["trigger"] == "auto"
    assert metadata["pre_tokens"] >= 0.8 * WINDOW > metadata["post_tokens"] > 0
    assert result_of(done)["compaction_usage"]["input_tokens"] == 3_000
    assert result_of(done)["usage"]["input_tokens"] == 3_100
    asked, answered = model_server.requests[-2:]
    assert is_asking_for_summary(asked) and not asked.body.get("tools")
    told = prompts(answered)
    assert "SUMMARY: the note was read" in told and told.endswith("what did we do")
    assert "read notes.txt, never write" in told and 'Files read: ["notes.txt"]' in told
    assert facts_of(answered).calls == []
    assert "Always whisper." in answered.raw.decode()
    assert "Always whisper." not in prompts(asked)
    check_sessions()
    shown = run_agent("sessions", "export", session(), env=agent_env()).stdout
    messages = json.loads(shown)["messages"]
    assert [m["seq"] for m in messages] == list(range(1, len(messages) + 1))
    assert [m["seq"] for m in messages if m.get("is_summary")] == [8]
    assert {m.get("hidden_by") for m in messages[:4]} == {8}
    found = run_agent("sessions", "search", "a note", env=agent_env())
    assert session()[-12:] in found.stdout or session() in found.stdout


@pytest.mark.spec("CMP-4")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("refusal", [fails(400, "context"), fails(413)], ids=["400", "413"])
def test_a_request_that_is_too_long_is_folded_and_asked_again(
    model_server: ModelServer, work: Path, protocol: str, refusal: Reply
) -> None:
    model_server.add("one", "two", "three", refusal, "SUMMARY", "four")
    run = {"protocol": protocol, "cwd": work}
    for text in ("first", "second", "third"):
        assert (
            one_shot(model_server, "--continue" if text != "first" else "--quiet", text, **run).code
            == 0
        )
    done = one_shot(model_server, "--continue", "-o", "stream-json", "fourth", **run)
    assert (done.code, result_of(done)["result"]) == (0, "four"), done.stderr
    assert len(boundaries(done)) == 1
    assert result_of(done)["num_turns"] == 1
    last = prompts(model_server.requests[-1])
    assert "SUMMARY" in last and last.endswith("fourth") and "third" in last
    check_sessions()


@pytest.mark.spec("CMP-1")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_a_summary_that_is_refused_changes_nothing_and_says_so(
    model_server: ModelServer, work: Path, protocol: str
) -> None:
    set_window(protocol)
    model_server.add("one", say("two", tokens=Tokens(input=17_000)), fails(403), "three")
    run = {"protocol": protocol, "cwd": work}
    one_shot(model_server, "first", **run)
    one_shot(model_server, "--continue", "second", **run)
    done = one_shot(model_server, "--continue", "third", **run)
    assert (done.code, done.stdout) == (0, "three\n")
    assert "could not be compacted" in done.stderr and "Traceback" not in done.stderr
    told = facts_of(model_server.requests[-1])
    assert told.answers == ["one", "two"]
    check_sessions()


@pytest.mark.spec("CAN-9", "CMP-1")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
@pytest.mark.parametrize("place", ["connect", "text"])
def test_a_cancel_in_the_middle_of_a_summary_leaves_the_history_as_it_was(
    model_server: ModelServer, work: Path, protocol: str, place: str
) -> None:
    set_window(protocol)
    model_server.add(
        "one", say("two", tokens=Tokens(input=17_000)), say("SUMMARY never ends", stall_at=place)
    )
    run = {"protocol": protocol, "cwd": work}
    one_shot(model_server, "first", **run)
    one_shot(model_server, "--continue", "second", **run)
    args = ("run", "--continue", "-o", "stream-json", "third")
    with spawn_agent(*args, env=agent_env(model_server, protocol), cwd=work) as running:
        model_server.wait_until_waiting(3)
        running.signal(signal.SIGINT)
        done = running.wait()
    assert done.code == 130 and result_of(done)["subtype"] == "cancelled"
    assert boundaries(done) == []
    assert "SUMMARY" not in json.dumps(done.lines)
    rows = sqlite3.connect(session_file()).execute("SELECT role, hidden_by FROM message").fetchall()
    assert rows == [(role, None) for role in ("user", "assistant", "user", "assistant", "user")]
    check_sessions()


@pytest.mark.spec("REC-3", "CMP-3")
@pytest.mark.parametrize("point", range(4, 10))
def test_a_run_killed_around_the_write_of_a_summary_goes_on_with_all_or_nothing_of_it(
    model_server: ModelServer, work: Path, point: int
) -> None:
    set_window(ANTHROPIC)
    model_server.add("one", say("two", tokens=Tokens(input=17_000)), "SUMMARY", "three")
    one_shot(model_server, "first", cwd=work)
    one_shot(model_server, "--continue", "second", cwd=work)
    killed = one_shot(
        model_server, "--continue", "third", cwd=work, AGENTCLI_TEST_KILL_AT_WRITE=str(point)
    )
    assert killed.code == KILLED
    check_sessions()
    model_server.restart("SUMMARY", "done", "done")
    done = one_shot(model_server, "--continue", "-o", "json", "fourth", cwd=work)
    assert done.code == 0, done.stderr
    last = prompts(model_server.requests[-1])
    assert "third" in last and last.endswith("fourth") and last.count("SUMMARY") <= 1
    check_sessions()


# --- in the chat ---------------------------------------------------------------------------


@pytest.mark.spec("CMP-3", "CMP-4", "CMP-5", "UI-5")
def test_in_the_chat_it_is_done_by_hand_looked_at_and_taken_back(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add("answer one", "answer two", "answer three", "THE SUMMARY", "answer four")
    terminal = chat()
    for word in ("one", "two", "three"):
        terminal.line(f"question {word}")
        terminal.wait_for(f"answer {word}")
        terminal.wait_for(IDLE)
    terminal.line("/context")
    terminal.wait_for("system prompt")
    terminal.wait_for("your messages")
    terminal.wait_for("free")
    terminal.wait_for(IDLE)
    terminal.line("/compact the colours")
    terminal.wait_for("Kept:")
    terminal.wait_for("Folded:")
    terminal.wait_for(IDLE)
    assert "above all: the colours" in prompts(model_server.requests[-1])
    terminal.line("question four")
    terminal.wait_for("answer four")
    terminal.wait_for(IDLE)
    assert "THE SUMMARY" in prompts(model_server.requests[-1])
    assert facts_of(model_server.requests[-1]).answers == ["answer three"]
    terminal.line("/compact undo")
    terminal.wait_for("The summary was taken back")
    terminal.wait_for(IDLE)
    model_server.add("answer five")
    terminal.line("question five")
    terminal.wait_for("answer five")
    facts = facts_of(model_server.requests[-1])
    assert facts.answers == [f"answer {word}" for word in ("one", "two", "three", "four")]
    assert "THE SUMMARY" not in prompts(model_server.requests[-1])
    terminal.wait_for(IDLE)
    terminal.line("/compact undo")
    terminal.wait_for("There is no summary to take back")
    check_sessions()


@pytest.mark.spec("CAN-9", "CAN-13")
def test_ctrl_c_stops_a_summary_that_was_asked_for_by_hand(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add("answer one", "answer two", "answer three", say("SUMMARY", stall_at="text"))
    terminal = chat()
    for word in ("one", "two", "three"):
        terminal.line(f"question {word}")
        terminal.wait_for(f"answer {word}")
        terminal.wait_for(IDLE)
    terminal.line("/compact")
    model_server.wait_until_waiting(4)
    terminal.key("ctrl-c")
    terminal.wait_for("Cancelled.")
    terminal.wait_for(IDLE)
    model_server.restart("answer four")
    terminal.line("question four")
    terminal.wait_for("answer four")
    assert len(facts_of(model_server.requests[-1]).answers) == 3
    check_sessions()


def test_there_may_be_nothing_to_summarise(model_server: ModelServer, chat: Chat) -> None:
    terminal = chat()
    terminal.line("/compact")
    terminal.wait_for("There is nothing to summarise yet")
    assert model_server.requests == []
