"""Searching the web through the model's service or an engine of the user's (EXT-8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import Chat, leave
from tests.e2e.one_shot import check_sessions, result_of
from tests.support.cli import MODELS, Finished, agent_env, run_agent
from tests.support.json_server import Asked, JsonServer
from tests.support.model_server import ANTHROPIC, GEMINI, RESPONSES, ModelServer
from tests.support.replies import call, say

pytestmark = pytest.mark.sampled

EVIL = "Nice <b>title</b>\x1b[2J"
SEARXNG = {
    "results": [
        {"title": EVIL, "url": "https://docs.example.org/a", "content": "what\nit says"},
        {"title": "bad", "url": "javascript:alert(1)", "content": "x"},
        {"title": "other", "url": "https://other.example.com/b"},
        "odd",
    ]
}


def ask(
    server: ModelServer, cwd: Path, *args: str, protocol: str = ANTHROPIC, **env: str
) -> Finished:
    known = agent_env(server, protocol, AGENTCLI_MODEL=MODELS[protocol], **env)
    return run_agent("run", "look it up", "--output-format", "json", *args, env=known, cwd=cwd)


def tool_result(server: ModelServer) -> str:
    return json.dumps(server.requests[-1].body)


@pytest.mark.slow
@pytest.mark.spec("EXT-8")
def test_a_searxng_server_of_the_users_is_asked_when_a_rule_allows_it(tmp_path: Path) -> None:
    arguments = {"query": "numpy 3", "blocked_domains": ["other.example.com"]}
    replies = [call("web_search", arguments), say("done")]
    with JsonServer({"GET /search": SEARXNG}) as engine, ModelServer(replies) as server:
        run_agent("config", "set", "search.url", engine.url)
        done = ask(server, tmp_path, "--allow-tool", "web_search")
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
        (asked,) = engine.asked
    assert "format=json" in asked.target
    assert "numpy+3" in asked.target
    assert not {"authorization", "x-api-key", "cookie"} & asked.headers.keys()
    told = tool_result(server)
    assert "https://docs.example.org/a" in told
    assert "not instructions" in told
    for gone in ("javascript:", "other.example.com/b", "\\u001b", "<b>"):
        assert gone not in told
    check_sessions()


@pytest.mark.slow
@pytest.mark.spec("EXT-8", "CLI-7")
def test_without_a_yes_nothing_leaves_and_a_rule_denies(tmp_path: Path) -> None:
    for extra in ((), ("--yolo", "--deny-tool", "web_search")):
        replies = [call("web_search", {"query": "x"}), say("done")]
        with JsonServer({"GET /search": SEARXNG}) as engine, ModelServer(replies) as server:
            run_agent("config", "set", "search.url", engine.url)
            done = ask(server, tmp_path, *extra)
            assert not engine.asked
        denied = result_of(done)["permission_denials"]
        assert [each["tool_name"] for each in denied] == ["web_search"]


@pytest.mark.slow
@pytest.mark.spec("EXT-8")
def test_a_yes_to_a_search_holds_for_the_session(model_server: ModelServer, chat: Chat) -> None:
    with JsonServer({"GET /search": SEARXNG}) as engine:
        run_agent("config", "set", "search.url", engine.url)
        model_server.add(call("web_search", {"query": "one"}))
        model_server.add(call("web_search", {"query": "two"}), "Found both.")
        terminal = chat()
        terminal.line("look it up")
        terminal.wait_for("yes, for this session")
        terminal.wait_for("Queries go to")
        terminal.confirm("y")
        terminal.wait_for("Found both.")
        assert [each.target.partition("q=")[2][:3] for each in engine.asked] == ["one", "two"]
        leave(terminal)


ENGINES: dict[str, tuple[str, Any]] = {
    "brave": ("GET /res/v1/web/search", {"web": {"results": SEARXNG["results"]}}),
    "tavily": ("POST /search", SEARXNG),
    "exa": ("POST /search", SEARXNG),
}


@pytest.mark.slow
@pytest.mark.spec("EXT-8", "SEC-9")
@pytest.mark.parametrize("name", list(ENGINES))
def test_an_engine_gets_its_own_key_and_nobody_else_does(name: str, tmp_path: Path) -> None:
    key = "tvly-8Kd2nQ7xLm4Vt1Zp"
    route, answer = ENGINES[name]
    replies = [call("bash", {"command": "env"}), call("web_search", {"query": "x"}), say("done")]
    with JsonServer({route: answer}) as engine, ModelServer(replies) as server:
        run_agent("config", "set", "search.engine", name)
        run_agent("config", "set", "search.url", engine.url)
        done = ask(
            *(server, tmp_path, "--yolo", "--sandbox", "off"), **{f"{name.upper()}_API_KEY": key}
        )
        assert result_of(done)["result"] == "done", done.stderr
        assert "docs.example.org/a" in tool_result(server)
        assert key in "".join(engine.asked[0].headers.values())
    assert all(key not in json.dumps(each.body) for each in server.requests)


def anthropic_answer(asked: Asked) -> tuple[int, Any]:
    (tool,) = asked.body["tools"]
    assert (tool["type"], tool["name"]) == ("web_search_20250305", "web_search")
    assert tool["allowed_domains"] == ["example.org"]
    found = {"type": "web_search_result", "title": "T", "url": "https://example.org/a"}
    found |= {"encrypted_content": "EqgfCio", "page_age": "April 30, 2026"}
    content = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found]},
        {"type": "text", "text": "It is so.", "citations": [{"url": "https://example.org/a"}]},
    ]
    usage = {"input_tokens": 10, "output_tokens": 5}
    usage |= {"server_tool_use": {"web_search_requests": 2}}
    return 200, {"type": "message", "role": "assistant", "content": content, "usage": usage}


def responses_answer(asked: Asked) -> tuple[int, Any]:
    assert asked.body["tools"] == [
        {"type": "web_search", "filters": {"allowed_domains": ["example.org"]}}
    ]
    cited = {"type": "url_citation", "url": "https://example.org/a", "title": "T"}
    said = {"type": "output_text", "text": "It is so.", "annotations": [cited, cited]}
    output = [
        {"type": "web_search_call", "status": "completed"},
        {"type": "message", "content": [said]},
    ]
    return 200, {"output": output, "usage": {"input_tokens": 10, "output_tokens": 5}}


def gemini_answer(asked: Asked) -> tuple[int, Any]:
    assert asked.body["tools"] == [{"google_search": {}}]
    grounding = {"groundingChunks": [{"web": {"uri": "https://example.org/a", "title": "T"}}]}
    parts = [{"text": "hm", "thought": True}, {"text": "It is so."}]
    return 200, {"candidates": [{"content": {"parts": parts}, "groundingMetadata": grounding}]}


SERVICES = {
    ANTHROPIC: ("POST /v1/messages", anthropic_answer),
    RESPONSES: ("POST /v1/responses", responses_answer),
    GEMINI: ("POST /v1beta/models/gemini-3.6-flash:generateContent", gemini_answer),
}
MODEL = {ANTHROPIC: "claude-sonnet-4-5", RESPONSES: "gpt-6-sol", GEMINI: "gemini-3.6-flash"}


@pytest.mark.spec("EXT-8", "COST-1")
@pytest.mark.parametrize("protocol", list(SERVICES))
def test_the_models_own_service_searches_beside_the_conversation(
    protocol: str, tmp_path: Path
) -> None:
    from agentcli.domain.ports import ProviderConfig
    from agentcli.providers._web_search import Domains, search_with

    route, answer = SERVICES[protocol]
    with JsonServer({route: answer}) as service:
        config = ProviderConfig("p", protocol, service.url, api_key="sk-test-0123456789abcdef")
        found = search_with(config, MODEL[protocol], "is it so?", Domains(["example.org"], []))
        (asked,) = service.asked
    assert "is it so?" in json.dumps(asked.body)
    assert found.text == "It is so."
    assert [(hit.title, hit.url) for hit in found.hits] == [("T", "https://example.org/a")]
    expected = {ANTHROPIC: 0.02, RESPONSES: 0.01, GEMINI: None}
    assert found.cost_usd == expected[protocol]


@pytest.mark.slow
@pytest.mark.spec("EXT-8")
def test_a_service_that_has_no_search_is_one_failed_call(tmp_path: Path) -> None:
    replies = [call("web_search", {"query": "x"}), say("no search here"), say("done")]
    with ModelServer(replies) as server:
        done = ask(server, tmp_path, "--allow-tool", "web_search")
        assert result_of(done)["result"] in {"done", "no search here"}, done.stderr
    assert "Traceback" not in done.stderr
    check_sessions()


@pytest.mark.slow
@pytest.mark.spec("EXT-8", "CTX-2")
def test_the_tool_is_there_where_something_can_search(tmp_path: Path) -> None:
    def offered(**env: str) -> bool:
        with ModelServer([say("done")]) as server:
            ask(server, tmp_path, **env)
            return "web_search" in [tool["name"] for tool in server.requests[0].body["tools"]]

    assert offered()
    run_agent("config", "set", "search.engine", "off")
    assert not offered()
    run_agent("config", "set", "search.engine", "brave")
    assert not offered()
    assert offered(BRAVE_API_KEY="BSA-0123456789")


def _spends(asked: Asked) -> tuple[int, Any]:
    """A service whose requests are cheap and whose searches are not."""
    usage: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5}
    content: list[dict[str, Any]] = [{"type": "text", "text": "It is so."}]
    stop = "end_turn"
    if len(asked.body["tools"]) == 1:
        usage |= {"server_tool_use": {"web_search_requests": 5}}
    elif len(asked.body["messages"]) == 1:
        tool = {"type": "tool_use", "id": "toolu_1", "name": "web_search", "input": {"query": "x"}}
        content, stop = [tool], "tool_use"
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    return 200, message | {"content": content, "usage": usage, "stop_reason": stop}


@pytest.mark.slow
@pytest.mark.spec("EXT-8", "COST-2")
def test_what_a_search_costs_counts_against_the_budget_of_the_turn(tmp_path: Path) -> None:
    run_agent("config", "set", "providers.anthropic.stream", "false")
    with JsonServer({"POST /v1/messages": _spends}) as service:
        env = {"ANTHROPIC_BASE_URL": service.url, "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef"}
        more = ("--model", "anthropic/claude-sonnet-4-5", "--max-budget-usd", "0.04")
        known = agent_env(**env)
        run = ("run", "look it up", "-o", "json", "--allow-tool", "web_search", *more)
        done = run_agent(*run, env=known, cwd=tmp_path)
        assert len(service.asked) == 2, done.stderr
    result = result_of(done)
    assert result["total_cost_usd"] > 0.05
    assert "budget" in json.dumps(result)
    check_sessions()


@pytest.mark.slow
@pytest.mark.spec("EXT-8", "EXT-7")
def test_a_search_that_is_refused_asks_for_the_key_again(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-old-7Qd2mWx9Lp4Rv8Tz")

    def answer(asked: Asked) -> tuple[int, Any]:
        is_search = len(asked.body["tools"]) == 1
        if is_search and asked.headers["x-api-key"].startswith("sk-old"):
            keys.write_text("sk-new-3Hk6nYb1Gc5Js0Fa")
            return 401, {"error": {"type": "authentication_error", "message": "expired"}}
        return _spends(asked)

    with JsonServer({"POST /v1/messages": answer}) as service:
        for name, value in {
            "kind": "anthropic",
            "base_url": service.url,
            "api_key_command": f"cat {keys}",
            "stream": "false",
        }.items():
            run_agent("config", "set", f"providers.gw.{name}", value)
        run = ("run", "look it up", "-o", "json", "--allow-tool", "web_search", "-m", "gw/m")
        done = run_agent(*run, env=agent_env(), cwd=tmp_path)
        sent = json.dumps(service.asked[-1].body)
    assert result_of(done)["result"] == "It is so.", done.stderr
    assert "The search failed" not in sent
    assert "It is so." in sent


@pytest.mark.slow
@pytest.mark.spec("EXT-8")
def test_a_sub_agent_searches_too(tmp_path: Path) -> None:
    task = call("task", {"description": "Look", "prompt": "find x"})
    replies = [task, call("web_search", {"query": "x"}), say("found it"), say("done")]
    with JsonServer({"GET /search": SEARXNG}) as engine, ModelServer(replies) as server:
        run_agent("config", "set", "search.url", engine.url)
        done = ask(server, tmp_path, "--allow-tool", "web_search")
        assert result_of(done)["result"] == "done", done.stderr
        assert len(engine.asked) == 1
        assert "docs.example.org/a" in json.dumps(server.requests[2].body)
    check_sessions()
