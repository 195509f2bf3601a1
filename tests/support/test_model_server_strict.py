"""The loopback model server refuses what the real services refuse, and remembers it."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import (
    Call,
    Reply,
    calls,
    say,
)
from tests.support.test_model_server import PATH, PROTOCOLS, body_for, data_of, post


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_malformed_history_is_refused_recorded_and_costs_no_reply(protocol: str) -> None:
    with ModelServer(["fine"]) as server:
        bad = body_for(protocol, [{"role": "user", "content": ""}])
        refused = post(server, protocol, bad)
        assert refused.status_code == 400
        assert refused.json()["error"]["type"] == "invalid_request_error"
        assert server.violations == [refused.json()["error"]["message"]]
        assert server.requests[0].violation is not None and server.left_to_say == 1
        assert post(server, protocol).status_code == 200
        assert len(server.violations) == 1


def test_a_script_that_is_over_or_raises_is_a_violation() -> None:
    def broken(request: Any) -> Reply:
        raise KeyError(request.path)

    with ModelServer([broken, say("x", hold=threading.Event(), hold_at="call")]) as server:
        assert [post(server, OPENAI).status_code for _ in range(3)] == [400, 400, 400]
        assert [text.split(":")[0] for text in server.violations] == [
            "script",
            "script",
            "the script has no reply left",
        ]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_or_missing_key_is_unauthorised(protocol: str) -> None:
    with ModelServer(["a"], api_key="right") as server:
        assert post(server, protocol).status_code == 401
        missing = httpx.post(server.url + PATH[protocol], json=body_for(protocol))
        assert "header" in missing.json()["error"]["message"]
        right = post(server, protocol, x_api_key="right", authorization="Bearer right")
        assert right.status_code == 200
        assert not server.violations


def test_lone_surrogates_and_a_missing_version_are_refused() -> None:
    with ModelServer() as server:
        raw = json.dumps(body_for(OPENAI, [{"role": "user", "content": "\ud800"}]))
        bad = httpx.post(server.openai_url + "/chat/completions", content=raw)
        assert "not valid JSON" in bad.json()["error"]["message"]
        bad = httpx.post(server.url + "/v1/messages", json=body_for(ANTHROPIC))
        assert bad.json()["error"]["message"] == "anthropic-version: header is required"


def test_thinking_must_come_back_as_the_server_issued_it() -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with ModelServer([calls(Call("bash"), thinking="hm"), "done"]) as server:
        events = data_of(post(server, ANTHROPIC, body_for(ANTHROPIC, thinking=thinking)))
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
        signature = next(d["signature"] for d in deltas if d["type"] == "signature_delta")
        starts = [e["content_block"] for e in events if e["type"] == "content_block_start"]
        use = {**starts[1], "input": {}}

        def again(text: str) -> int:
            block = {"type": "thinking", "thinking": text, "signature": signature}
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": "ok"}
            messages = [
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": [block, use]},
                {"role": "user", "content": [result]},
            ]
            return post(
                server, ANTHROPIC, body_for(ANTHROPIC, messages, thinking=thinking)
            ).status_code

        assert again("hm!") == 400
        assert again("hm") == 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_models_are_listed_in_the_services_shape(protocol: str) -> None:
    with ModelServer(models=["a", "b"], api_key="k") as server:
        headers = {"anthropic-version": "2023-06-01"} if protocol == ANTHROPIC else {}
        assert httpx.get(server.url + "/v1/models", headers=headers).status_code == 401
        keys = {"x-api-key": "k", "authorization": "Bearer k"}
        listed = httpx.get(server.url + "/v1/models", headers=headers | keys).json()
        assert [model["id"] for model in listed["data"]] == ["a", "b"]
        assert ("has_more" in listed) == (protocol == ANTHROPIC)
        assert httpx.get(server.url + "/nothing").status_code == 404
        server.routes["GET", "/props"] = (200, {"n_ctx": 4096})
        assert httpx.get(server.url + "/props").json() == {"n_ctx": 4096}
