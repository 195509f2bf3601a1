"""MCP servers in the chat: a login that is offered, a start that is waited for."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.e2e.test_mcp import hostile, results_of
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.oauth_server import OAuthServer
from tests.support.replies import call, say


def given(**servers: Any) -> tuple[str, str]:
    return "--mcp-config", json.dumps({"mcpServers": servers})


@pytest.mark.slow
@pytest.mark.spec("MCP-5")
def test_a_call_that_needs_a_login_offers_it_and_goes_on(
    chat: Chat, model_server: ModelServer
) -> None:
    wanted = {"server": "api", "tool": "hi", "arguments": {}}
    model_server.add(call("mcp_call", wanted), say("first"), call("mcp_call", wanted), say("more"))
    with OAuthServer() as server:
        terminal = chat("--yolo", *given(api={"url": server.url}), cols=400)
        terminal.line("go")
        terminal.wait_for("The MCP server api needs a login")
        terminal.wait_for("Enter answers")
        terminal.line("1")
        address = terminal.wait_for(re.compile(r"http://\S+authorize\S+"))
        urlopen(address[0], timeout=5).read()
        terminal.wait_for("first")
        server.tokens.clear()
        server.refresh_tokens.clear()
        terminal.line("again")
        terminal.wait_for("needs a login")
        terminal.wait_for("Enter answers")
        terminal.line("2")
        terminal.wait_for("more")
        leave(terminal)
    assert "needs a connection" not in results_of(model_server.requests[1].body)[0]
    assert "agent mcp login api" in results_of(model_server.requests[-1].body)[-1]


@pytest.mark.slow
@pytest.mark.spec("MCP-2", "CAN-6")
def test_a_server_that_does_not_come_up_is_not_waited_for_after_ctrl_c(
    chat: Chat, model_server: ModelServer
) -> None:
    terminal = chat(*given(silent=hostile("silent")))
    terminal.line("/mcp restart silent")
    terminal.wait_for("starting silent")
    terminal.key("ctrl-c")
    terminal.wait_for("Cancelled")
    terminal.wait_for(IDLE)
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("MCP-6", "CAN-6")
def test_questions_of_a_server_end_with_the_call_that_they_belong_to(
    chat: Chat, model_server: ModelServer
) -> None:
    wanted = {"server": "asks", "tool": "echo", "arguments": {}}
    model_server.add(call("mcp_call", wanted), say("second"))
    terminal = chat("--yolo", *given(asks=hostile("asks")))
    terminal.line("go")
    terminal.wait_for("The MCP server asks asks: Q0?")
    terminal.key("ctrl-c")
    terminal.wait_for("Cancelled")
    terminal.wait_for(IDLE)
    terminal.line("go on")
    terminal.wait_for("second")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("MCP-1", "SEC-1")
def test_reload_sees_servers_that_were_added_meanwhile(
    chat: Chat, model_server: ModelServer, work: Path
) -> None:
    model_server.add(say("first"), say("second"))
    terminal = chat()
    terminal.line("hello")
    terminal.wait_for("first")
    added = run_agent(
        "mcp", "add", "late", "--", sys.executable, "-c", "", env=agent_env(), cwd=work
    )
    assert added.code == 0, added.stderr
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": hostile("silent")}}))
    terminal.line("/reload")
    terminal.wait_for("1 MCP server")
    terminal.line("/trust")
    terminal.wait_for("theirs")
    terminal.line("/trust yes")
    terminal.wait_for("Trusted, from /reload")
    terminal.line("/reload")
    terminal.wait_for("2 MCP servers")
    terminal.line("go on")
    terminal.wait_for("second")
    leave(terminal)
    assert len(model_server.requests[1].body["messages"]) == 3  # the same session


@pytest.mark.slow
@pytest.mark.spec("MCP-1", "UI-4")
def test_a_resource_is_completed_and_attached(chat: Chat, model_server: ModelServer) -> None:
    pytest.importorskip("mcp_types")
    script = Path(__file__).parents[1] / "support" / "mcp_sdk_server.py"
    model_server.add(call("tool_search", {"query": "add"}), say("first"), say("second"))
    terminal = chat(*given(ex={"command": sys.executable, "args": [str(script)]}))
    terminal.line("find it")  # waits for the server
    terminal.wait_for("first")
    terminal.wait_for(IDLE)
    terminal.send("what is @ex:te")
    terminal.wait_for("ex:text://readme")
    terminal.key("tab")
    terminal.wait_for("@ex:text://readme")
    terminal.line(" please")
    terminal.wait_for("second")
    leave(terminal)
    prompts = json.dumps(model_server.requests[-1].body["messages"][-1])
    assert "what is @ex:text://readme please" in prompts
    assert "[Resource text://readme of the MCP server ex]" in prompts


@pytest.mark.slow
@pytest.mark.spec("MCP-1", "SEC-3")
def test_a_tool_that_says_it_only_reads_can_be_allowed_once(
    chat: Chat, model_server: ModelServer
) -> None:
    pytest.importorskip("mcp_types")
    script = Path(__file__).parents[1] / "support" / "mcp_sdk_server.py"
    wanted = {"server": "ex", "tool": "add", "arguments": {"a": 1, "b": 2}}
    model_server.add(call("mcp_call", wanted), call("mcp_call", wanted), "Both done.")
    terminal = chat(*given(ex={"command": sys.executable, "args": [str(script)]}))
    terminal.line("add twice")
    for answer in ("y", "s"):
        terminal.wait_for("yes, for this session")
        assert "yes, once" in "\n".join(terminal.screen())
        terminal.confirm(answer)
        terminal.wait_gone("Enter confirms")
    terminal.wait_for("Both done.")
    leave(terminal)
    assert len(results_of(model_server.requests[-1].body)) == 2
