"""``agent run`` with a model whose arguments are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.one_shot import one_shot, result_of
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, calls
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled

PROTOCOLS = [ANTHROPIC, OPENAI]


def exported_calls(session_id: str) -> list[dict[str, Any]]:
    done = run_agent("sessions", "export", session_id, "--format", "json", env=agent_env())
    messages = json.loads(done.stdout)["messages"]
    blocks = [block for message in messages for block in message["content"]]
    return [block["arguments"] for block in blocks if block["type"] == "tool_call"]


@pytest.mark.spec("LOOP-9", "LOOP-10")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_malformed_arguments_are_repaired_and_everybody_sees_the_repaired_ones(
    model_server: ModelServer, tmp_path: Path, protocol: str
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    model_server.add(
        calls(Call("read_file", raw="{'path': 'a.txt', 'offset': '2', 'limit': None,}")),
        calls(Call("write_todos", {"todos": '{"content": "go on", "status": "Pending"}'})),
        calls(Call("list_directory", raw='{"path": "."')),
        "Done.",
    )
    done = one_shot(model_server, "-o", "stream-json", "read it", protocol=protocol, cwd=tmp_path)
    wanted = [
        {"path": "a.txt", "offset": 2},
        {"todos": [{"content": "go on", "status": "pending"}]},
        {"path": "."},
    ]
    assert done.code == 0, done.stderr
    shown = [
        block["input"]
        for line in done.lines
        if line["type"] == "assistant"
        for block in line["message"]["content"]
        if block["type"] == "tool_use"
    ]
    assert shown == wanted
    assert exported_calls(result_of(done)["session_id"]) == wanted
    results = list(facts_of(model_server.requests[-1]).results.values())
    assert "two" in results[0] and "one" not in results[0]
    assert "1 todos" in results[1] and "a.txt" in results[2]
    sent = json.dumps(model_server.requests[-1].body)
    assert "'offset'" not in sent and "Pending" not in sent


@pytest.mark.spec("LOOP-9", "LOOP-11", "LOOP-12")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("stop", [None, "max_tokens"])
def test_a_cut_command_is_never_executed_and_the_model_is_told(
    model_server: ModelServer, tmp_path: Path, protocol: str, stop: str | None
) -> None:
    cut = Call("bash", raw='{"command":"touch made; echo h')
    closed = Call("bash", raw='{"command":"touch made"')
    reply = calls(closed if stop else cut)
    reply.stop = stop
    model_server.add(reply, "Done.")
    done = one_shot(model_server, "--yolo", "go", protocol=protocol, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert not (tmp_path / "made").exists()
    told = facts_of(model_server.requests[-1]).results.popitem()[1]
    assert "bash" in told and "not executed" in told
    assert "command: string" in told
