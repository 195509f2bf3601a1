"""The whole program with Gemini: answers, tools, signatures, cancel, switching."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.one_shot import check_sessions, one_shot, result_of
from tests.support.cli import KEY, Running, agent_env, run_agent
from tests.support.model_server import GEMINI, ModelServer, Recorded
from tests.support.replies import Call, Tokens, calls, fails, say
from tests.support.strict_gemini import DUMMIES

pytestmark = pytest.mark.slow


def parts_of(request: Recorded, index: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = request.messages[index]["parts"]
    return parts


def signatures(request: Recorded) -> list[str]:
    """Every signature of a request, in order."""
    each = (part for content in request.messages for part in content["parts"])
    return [part["thoughtSignature"] for part in each if "thoughtSignature" in part]


def run(server: ModelServer, *args: str, cwd: Path, **env: str | None) -> Any:
    return one_shot(server, *args, protocol=GEMINI, cwd=cwd, **env)


@pytest.mark.spec("HIS-1", "HIS-4", "LOOP-6")
def test_text_a_batch_of_calls_and_the_signatures_of_every_step_over_two_turns(
    model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("content\n")
    read = Call("read_file", {"path": "a.txt"})
    model_server.add(
        calls(read, Call("list_directory", {}), text="Let me look.", thinking="Where is it?"),
        calls(read),
        say("It says: content.", tokens=Tokens(input=10, output=3, cache_read=5)),
        "Yes.",
    )
    done = run(model_server, "-o", "json", "what is in a.txt?", cwd=tmp_path)
    result = result_of(done)
    assert (done.code, result["result"]) == (0, "It says: content.")
    assert result["usage"]["cache_read_input_tokens"] == 5
    again = run(model_server, "--continue", "sure?", cwd=tmp_path)
    assert (again.code, again.stdout) == (0, "Yes.\n")
    requests = model_server.requests
    assert [len(signatures(request)) for request in requests] == [0, 1, 2, 3]
    assert signatures(requests[3])[:2] == signatures(requests[2])
    assert not DUMMIES & set(signatures(requests[3]))
    assert set(signatures(requests[3])) <= set(model_server.issued.on_parts)
    results = [part["functionResponse"]["name"] for part in parts_of(requests[1], 2)]
    assert results == ["read_file", "list_directory"]
    for request in requests:
        assert request.headers["x-goog-api-key"] == KEY
        assert KEY not in request.path
        assert b'thought":true' not in request.raw.replace(b" ", b"")
    assert model_server.violations == []


@pytest.mark.spec("CAN-5", "CAN-4", "CLI-6")
def test_a_cancel_in_mid_call_and_the_next_message(
    model_server: ModelServer, tmp_path: Path
) -> None:
    slow = Call("bash", {"command": "echo begun; sleep 60"})
    model_server.add(calls(slow, thinking="hm"), "Never mind.")
    env = agent_env(model_server, GEMINI)
    args = ("run", "--yolo", "-o", "stream-json", "go")
    with Running(*args, env=env, cwd=tmp_path) as running:
        running.wait_for(lambda line: line["type"] == "assistant")
        running.signal(signal.SIGINT)
        done = running.wait()
    assert done.code == 130
    again = run(model_server, "--continue", "stop it", cwd=tmp_path)
    assert (again.code, again.stdout) == (0, "Never mind.\n")
    sent = model_server.requests[-1]
    [answer] = parts_of(sent, 2)
    assert answer["functionResponse"]["response"]["error"].startswith("Cancelled by user")
    assert [content["role"] for content in sent.messages[3:]] == ["model", "user"]
    assert model_server.violations == []
    check_sessions()


def test_a_stream_that_is_cancelled_leaves_no_call_behind(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(calls(Call("bash", {"command": "x"}), text="Hm", stall_at="text"), "Fine.")
    with Running("run", "go", env=agent_env(model_server, GEMINI), cwd=tmp_path) as running:
        model_server.wait_until_waiting()
        running.signal(signal.SIGINT)
        assert running.wait().code == 130
    assert run(model_server, "-c", "again", cwd=tmp_path).stdout == "Fine.\n"
    assert len(model_server.requests[-1].messages) == 1


@pytest.mark.spec("HIS-4", "HIS-7")
def test_a_session_moves_to_gemini_between_its_models_and_away(
    model_server: ModelServer, tmp_path: Path
) -> None:
    reply = calls(Call("list_directory", {}), thinking="hm", text="Looking.")
    models = [
        "anthropic/claude-sonnet-4-5", "gemini/gemini-3.6-flash", "gemini/gemini-2.5-pro",
        "openai/gpt-4.1", "gemini/gemini-3.1-pro-preview", "gemini/gemini-3.6-flash",
    ]  # fmt: skip
    for number, model in enumerate(models):
        model_server.add(reply, f"{number}.")
        args = ("-c", "-m", model) if number else ("-m", model)
        done = run(model_server, *args, "--effort", "high", "go", cwd=tmp_path)
        assert (done.code, done.stdout) == (0, f"{number}.\n"), done.stderr
    assert model_server.violations == []
    last = signatures(model_server.requests[-1])
    assert len(DUMMIES & set(last)) == 1
    own = [found for found in last if found not in DUMMIES]
    assert len(own) == 3  # both steps of its first turn, and the call of this one


@pytest.mark.spec("STR-2", "STR-9")
def test_errors_name_the_service_and_what_to_do(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add(fails(400, "key"))
    done = run(model_server, "hi", cwd=tmp_path)
    assert done.code == 78
    assert "GEMINI_API_KEY" in done.stderr and KEY not in done.stderr
    model_server.add(fails(429, "quota"))
    done = run(model_server, "hi", cwd=tmp_path)
    assert "quota of the day" in done.stderr
    assert len(model_server.requests) == 2


def test_the_transcript_shows_no_signatures(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add(calls(Call("list_directory", {})), "Done.")
    assert run(model_server, "go", cwd=tmp_path).code == 0
    env = agent_env()
    listed = run_agent("sessions", "list", "--format", "json", env=env, cwd=tmp_path)
    [session] = json.loads(listed.stdout)
    for form in ("md", "html"):
        shown = run_agent("sessions", "export", session["id"], "--format", form, env=env).stdout
        assert "Done." in shown
        assert not any(found in shown for found in model_server.issued.on_parts)
