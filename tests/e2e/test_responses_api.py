"""``agent run`` over the Responses API: text, tools, reasoning carried, a cancel, a resumed session."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.one_shot import check_sessions, one_shot, result_of
from tests.support.cli import MODELS, Running, agent_env
from tests.support.model_server import OPENAI, RESPONSES, ModelServer
from tests.support.replies import Call, Reply, Text, Thinking, Tokens, call, say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.slow


def kinds(server: ModelServer, number: int) -> list[str]:
    return [item["type"] for item in server.requests[number].messages]


@pytest.mark.spec("HIS-4", "HIS-7", "LOOP-6")
def test_reasoning_goes_back_before_its_call_and_the_tool_runs(
    model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("content\n")
    (tmp_path / "b.txt").write_text("more\n")
    reads = (Call("read_file", {"path": "a.txt"}), Call("read_file", {"path": "b.txt"}))
    model_server.add(
        Reply((Thinking("I must look.\n\nBoth."), *reads), tokens=Tokens(reasoning=5)),
        Reply((Thinking("Clear."), Text("It says: content."))),
        say("Still so."),
    )
    done = one_shot(
        model_server, "-o", "json", "what is in them?", protocol=RESPONSES, cwd=tmp_path
    )
    assert result_of(done)["result"] == "It says: content."
    assert kinds(model_server, 1)[-5:] == [
        "reasoning", "function_call", "function_call", "function_call_output",
        "function_call_output",
    ]  # fmt: skip
    facts = facts_of(model_server.requests[1])
    assert [
        name in text for name, text in zip(("content", "more"), facts.results.values(), strict=True)
    ]
    more = one_shot(model_server, "--continue", "sure?", protocol=RESPONSES, cwd=tmp_path)
    assert (more.code, more.stdout) == (0, "Still so.\n")
    assert kinds(model_server, 2)[-3:] == ["reasoning", "message", "message"]
    first, second = (
        r.messages[: len(model_server.requests[1].messages)] for r in model_server.requests[1:]
    )
    assert second == first
    answer = model_server.requests[2].messages[-2]
    assert answer["phase"] == "final_answer"
    assert answer["id"].startswith("msg_0")
    check_sessions()


@pytest.mark.spec("CAN-4", "CAN-5", "CAN-13")
def test_a_cancelled_call_is_balanced_in_the_next_request(
    model_server: ModelServer, tmp_path: Path
) -> None:
    slow = call("bash", {"command": "echo begun; sleep 60"}, thinking="Long.")
    model_server.add(slow, say("I see."))
    env = agent_env(model_server, RESPONSES)
    with Running("run", "--yolo", "-o", "stream-json", "go", env=env, cwd=tmp_path) as running:
        running.wait_for(lambda line: line["type"] == "assistant")
        running.signal(signal.SIGINT)
        assert running.wait(15).code == 130
    done = one_shot(model_server, "--continue", "what now?", protocol=RESPONSES, cwd=tmp_path)
    assert (done.code, done.stdout) == (0, "I see.\n")
    assert kinds(model_server, 1)[-4:] == [
        "reasoning", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    [result] = facts_of(model_server.requests[1]).results.values()
    assert result.startswith("Cancelled by user")


@pytest.mark.spec("CAN-5", "CAN-9")
def test_a_stream_cut_by_a_cancel_leaves_no_trace_in_the_history(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(say("Once upon a time", thinking="Hm.", stall_at="text:1"), say("Yes."))
    env = agent_env(model_server, RESPONSES)
    with Running("run", "tell", env=env, cwd=tmp_path) as running:
        model_server.wait_until_waiting()
        running.signal(signal.SIGINT)
        assert running.wait(15).code == 130
    done = one_shot(model_server, "--continue", "again", protocol=RESPONSES, cwd=tmp_path)
    assert done.stdout == "Yes.\n"
    assert kinds(model_server, 1) == ["message", "message"]


@pytest.mark.spec("HIS-7")
def test_a_session_may_change_between_the_two_apis(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(
        call("list_directory", {}, thinking="Look."), say("Empty."), say("Yes."), say("Sure.")
    )
    one_shot(model_server, "what is here?", protocol=RESPONSES, cwd=tmp_path)
    ask = partial(one_shot, model_server, "--continue", cwd=tmp_path)
    chat = ask("--model", MODELS[OPENAI], "sure?")
    back = ask("--model", MODELS[RESPONSES], "really?")
    assert (chat.stdout, back.stdout) == ("Yes.\n", "Sure.\n")
    assert [request.protocol for request in model_server.requests] == [
        RESPONSES, RESPONSES, OPENAI, RESPONSES,
    ]  # fmt: skip
    assert "reasoning" in kinds(model_server, 3)


def test_the_configuration_chooses_the_api(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    config = home / "agentcli" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[providers.openai]\napi = "responses"\n')
    model_server.add(say("Hello."))
    done = one_shot(model_server, "hi", protocol=OPENAI, cwd=tmp_path)
    assert (done.code, done.stdout) == (0, "Hello.\n")
    assert model_server.requests[0].protocol == RESPONSES
    config.write_text('[providers.openai]\napi = "rest"\n')
    done = one_shot(model_server, "hi", protocol=OPENAI, cwd=tmp_path)
    assert done.code == 78
    assert "expected one of chat, responses" in done.stderr
