"""A configured server is read leniently, and what cannot be used is one line (MCP-1, MCP-3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentcli.mcp.servers import (
    McpServer,
    ServerPlace,
    ServerScope,
    Transport,
    servers_in,
    usable_name,
)
from agentcli.mcp.stdio import clean_environment

ENV = {"TOKEN": "t-1", "HOME": "/home/u", "OPENAI_API_KEY": "sk-1"}
PLACE = ServerPlace(ServerScope.USER, "config.toml", ENV, "/home/u", {"workspaceFolder": "/work"})
FOREIGN = ServerPlace(
    ServerScope.PROJECT, ".mcp.json", ENV, "/work", withheld=frozenset({"OPENAI_API_KEY"})
)


def one(place: ServerPlace = PLACE, /, **entry: Any) -> McpServer:
    servers, lines = servers_in({"mcpServers": {"x": entry}}, place)
    assert not lines, lines
    return servers[0]


def problem(place: ServerPlace = PLACE, /, **entry: Any) -> str:
    servers, lines = servers_in({"mcpServers": {"x": entry}}, place)
    assert not servers
    assert len(lines) == 1 and "\n" not in lines[0]
    return lines[0]


@pytest.mark.spec("MCP-1")
def test_a_url_without_a_type_is_http_and_a_command_is_stdio() -> None:
    assert one(url="https://h/mcp").transport is Transport.HTTP
    assert one(url="https://h/mcp", type="sse").transport is Transport.SSE
    assert one(url="https://h/mcp", type="streamable-http").transport is Transport.HTTP
    assert one(httpUrl="https://h/mcp").url == "https://h/mcp"
    assert one(command="npx", args=["-y", "s"]).args == ("-y", "s")
    opencode = one(type="local", command=["npx", "-y", "s"], environment={"A": "b"})
    assert (opencode.command, opencode.args, opencode.env) == ("npx", ("-y", "s"), (("A", "b"),))


@pytest.mark.spec("MCP-1")
def test_variables_are_filled_in_with_defaults_and_the_mark_stands_for_what_is_written() -> None:
    server = one(
        command="${HOME}/bin/s",
        args=["${MISSING:-a b}", "${env:TOKEN}", "${workspaceFolder}"],
        env={"N": 3, "F": True},
    )
    assert (server.command, server.args) == ("/home/u/bin/s", ("a b", "t-1", "/work"))
    assert server.env == (("N", "3"), ("F", "true"))
    assert "${MISSING} is not set" in problem(command="${MISSING}")
    other = ServerPlace(ServerScope.USER, "config.toml", {**ENV, "TOKEN": "t-2"}, "/home/u")
    written = {"url": "https://h", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    mine, theirs = one(**written), one(other, **written)
    assert mine.headers != theirs.headers and mine.mark == theirs.mark


@pytest.mark.spec("MCP-3", "SEC-1")
@pytest.mark.parametrize(
    "change", [{"command": "b"}, {"args": ["2"]}, {"env": {"A": "2"}}, {"sandbox": True}]
)
def test_the_mark_changes_with_what_runs_and_with_nothing_else(change: dict[str, Any]) -> None:
    before = {"command": "a", "args": ["1"], "env": {"A": "1"}}
    assert one(**before).mark != one(**{**before, **change}).mark
    assert one(**before).mark == one(**before, timeout=5, alwaysLoad=True).mark
    assert one(url="https://a").mark != one(url="https://b").mark


@pytest.mark.spec("SEC-1")
def test_a_providers_key_goes_to_no_address_that_a_repository_names() -> None:
    headers = {"Authorization": "Bearer ${OPENAI_API_KEY}"}
    assert one(url="https://h", headers=headers).headers[0][1] == "Bearer sk-1"
    assert "OPENAI_API_KEY" in problem(FOREIGN, url="https://h", headers=headers)
    assert "OPENAI_API_KEY" in problem(FOREIGN, url="https://h/${OPENAI_API_KEY}")
    assert "OPENAI_API_KEY" in problem(
        FOREIGN, url="https://h", bearer_token_env_var="OPENAI_API_KEY"
    )
    login = {
        "clientId": "c",
        "clientSecretEnv": "OPENAI_API_KEY",
        "grantType": "client_credentials",
    }
    assert one(url="https://h", oauth=login).oauth.secret_variable == "OPENAI_API_KEY"
    assert "OPENAI_API_KEY" in problem(FOREIGN, url="https://h", oauth=login)
    named = {"clientId": "${OPENAI_API_KEY}"}
    assert "OPENAI_API_KEY" in problem(FOREIGN, url="https://h", oauth=named)
    program = {"command": "s", "env": {"OPENAI_API_KEY": "${OPENAI_API_KEY}"}}
    assert "OPENAI_API_KEY" in problem(FOREIGN, **program)
    installed = replace(FOREIGN, scope=ServerScope.PLUGIN)
    assert one(installed, **program).env == one(**program).env == (("OPENAI_API_KEY", "sk-1"),)


@pytest.mark.spec("MCP-1")
def test_what_else_can_be_said_in_any_spelling() -> None:
    server = one(
        url="https://h",
        timeout=2500,
        startup_timeout_sec=10,
        alwaysLoad=True,
        disabled=True,
        includeTools=["a", "b"],
        disabled_tools=["b"],
        oauth={"clientId": "${TOKEN}", "callbackPort": 9000, "scopes": "a b"},
    )
    assert (server.timeout_s, server.startup_timeout_s) == (2.5, 10.0)
    assert server.pinned and not server.enabled
    assert server.offers("a") and not server.offers("b") and not server.offers("c")
    assert (server.oauth.client_id, server.oauth.scopes) == ("t-1", ("a", "b"))


@pytest.mark.spec("MCP-1", "SEC-13")
@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"command": 3},
        {"command": ""},
        {"command": "a", "args": "b"},
        {"command": "a", "args": [1]},
        {"command": "a", "env": {"A": []}},
        {"command": "a", "env": ["A=1"]},
        {"command": "a\0b"},
        {"command": "a", "url": "https://h"},
        {"type": "carrier-pigeon", "url": "https://h"},
        {"type": "http", "command": "a"},
        {"url": "ftp://h"},
        {"url": "https://"},
        {"url": "https://user:secret@h"},
        {"url": "https://h:99999"},
        {"url": "https://[h"},
        {"url": "https://h", "headers": {"A B": "c"}},
        {"url": "https://h", "headers": {"A": "b\r\nC: d"}},
        {"command": "a", "timeout": -1},
        {"command": "a", "timeout": "soon"},
        {"command": "a", "enabled": "perhaps"},
        {"command": "a", "enabledTools": "all"},
        {"url": "https://h", "oauth": {"callbackPort": 70_000}},
        {"url": "https://h", "oauth": {"scopes": [1]}},
    ],
)
def test_an_entry_that_cannot_be_used_is_one_line_and_takes_no_other_along(
    entry: dict[str, Any],
) -> None:
    assert "secret" not in problem(**entry)
    servers, lines = servers_in({"mcpServers": {"bad": entry, "good": {"command": "g"}}}, PLACE)
    assert [each.name for each in servers] == ["good"] and len(lines) == 1


@pytest.mark.spec("MCP-1", "SEC-13")
@pytest.mark.parametrize("name", ["", "a/b", "\x1b[31m", "x" * 65, "a b", "-x"])
def test_a_name_is_plain(name: str) -> None:
    servers, lines = servers_in({"mcpServers": {name: {"command": "a"}}}, PLACE)
    assert not servers and len(lines) == 1 and "\x1b" not in lines[0]


@pytest.mark.spec("MCP-1", "SEC-13")
@pytest.mark.parametrize("document", [None, 3, [], "x", {"mcpServers": 3}, {"a": 1}])
def test_a_file_that_holds_no_servers_says_so(document: object) -> None:
    servers, lines = servers_in(document, PLACE)
    assert not servers and len(lines) == 1


@pytest.mark.spec("MCP-1", "SEC-13")
def test_ten_thousand_entries_are_a_hundred_servers_and_a_line() -> None:
    table = {f"s{number}": {"command": "a"} for number in range(10_000)}
    servers, lines = servers_in({"mcpServers": table}, PLACE)
    assert len(servers) == 100 and len(lines) == 1


@pytest.mark.spec("SEC-9")
def test_a_server_shows_no_secret() -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2"
    server = one(url="https://h", headers={"Authorization": f"Bearer {key}"})
    assert key in server.secrets
    assert key not in repr(server)
    assert key not in one(command="s", args=["--token", key]).shown


@pytest.mark.spec("SEC-3", "MCP-6")
@pytest.mark.parametrize("name", ["github__x", "a..b", "a._b", "a_.b"])
def test_no_server_is_called_so_that_a_rule_for_another_frees_its_tools(name: str) -> None:
    servers, lines = servers_in({"mcpServers": {name: {"command": "s"}}}, FOREIGN)
    assert not servers
    assert "side by side" in lines[0]
    assert servers_in({"mcpServers": {usable_name(name): {"command": "s"}}}, FOREIGN)[0]


@pytest.mark.spec("MCP-3", "SEC-8")
def test_a_server_gets_settings_of_package_managers_and_none_of_their_keys() -> None:
    kept = {"UV_CACHE_DIR": "/x", "PIP_INDEX_URL": "https://pypi.shop.com/simple", "HOME": "/h"}
    proxy = {"HTTPS_PROXY": "http://me:Zk29sQpLmX77@proxy.shop.com:3128"}
    keys = {
        "NPM_CONFIG__AUTH": "bWU6cHc=", "npm_config__authtoken": "hunter2", "UV_PUBLISH_TOKEN": "pypi-1a",
        "UV_INDEX_SHOP_PASSWORD": "hunter2", "PIP_EXTRA_INDEX_URL": "https://me:pw@pypi.shop.com/simple",
    }  # fmt: skip
    given = clean_environment({**kept, **proxy, **keys, "GITHUB_TOKEN": "x"})
    assert given.items() >= {**kept, **proxy}.items()
    assert not given.keys() & {*keys, "GITHUB_TOKEN"}
