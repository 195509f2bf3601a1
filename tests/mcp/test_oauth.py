"""Logins by OAuth, against a strict server on loopback (MCP-5, SEC-12)."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen

import pytest

from agentcli.app.extensions.logins import ServerLogins
from agentcli.config.logins import LoginVault
from agentcli.config.paths import Paths
from agentcli.domain.extensions.mcp import LoginRequired, McpError
from agentcli.mcp.oauth import Challenge, Login, challenge_in, log_in, probe
from agentcli.mcp.servers import McpServer, ServerPlace, ServerScope, servers_in
from agentcli.mcp.tokens import OAuthHeaders, read_login, write_login
from tests.support.oauth_server import OAuthServer

pytestmark = pytest.mark.anyio


@pytest.fixture
def remote() -> Iterator[OAuthServer]:
    with OAuthServer() as server:
        yield server


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    home = tmp_path / "home"
    return Paths(home, home, home)


@pytest.fixture
def vault(paths: Paths) -> LoginVault:
    return LoginVault(paths, lambda _: None)


def server_at(url: str, **entry: Any) -> McpServer:
    place = ServerPlace(ServerScope.USER, "config.toml", {})
    servers, lines = servers_in({"mcpServers": {"api": {"url": url, **entry}}}, place)
    assert not lines
    return servers[0]


async def logged_in(remote: OAuthServer, **entry: Any) -> Login:
    server = server_at(remote.url, **entry)
    challenge = await asyncio.to_thread(probe, server)
    assert challenge is not None
    return await log_in(server, challenge, remote.browse, None)


@pytest.mark.spec("MCP-5")
def test_a_refusal_says_what_login_is_wanted() -> None:
    header = 'Basic realm="a", Bearer error="x", scope="a b", resource_metadata="https://h/\\"m"'
    assert challenge_in(header) == Challenge('https://h/"m', "a b", "x")
    assert challenge_in("Basic realm=x") == challenge_in("") == Challenge()


@pytest.mark.spec("MCP-5")
async def test_a_login_discovers_registers_proves_itself_and_is_kept_in_private(
    remote: OAuthServer, paths: Paths, vault: LoginVault
) -> None:
    remote.scope = "read"
    login = await logged_in(remote)
    (asked,), (registered,) = remote.authorized, remote.registered
    assert asked["resource"] == remote.url and asked["scope"] == "read"
    assert (asked["code_challenge_method"], asked["response_type"]) == ("S256", "code")
    assert registered["redirect_uris"] == [asked["redirect_uri"]]
    assert registered["application_type"] == "native"
    assert "refresh_token" in registered["grant_types"]
    assert login.access_token in remote.tokens and login.access_token not in repr(login)
    write_login(vault, remote.url, login)
    (file,) = paths.logins_dir.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    headers = OAuthHeaders(server_at(remote.url), vault)
    assert (await headers.headers())["Authorization"] == f"Bearer {login.access_token}"
    other = OAuthHeaders(server_at(remote.origin + "/other"), vault)
    assert "Authorization" not in await other.headers()
    assert vault.remove(remote.url) and not vault.remove(remote.url)


@pytest.mark.spec("MCP-5", "SEC-12")
async def test_only_the_answer_that_is_waited_for_counts_and_the_socket_is_gone_after_it(
    remote: OAuthServer,
) -> None:
    seen: list[tuple[str, int]] = []

    def knocks(redirect: str) -> None:
        for tail in ("?code=x&state=wrong", "?code=x", "?state=%F0", "/../etc"):
            try:
                urlopen(redirect + tail, timeout=5)
            except OSError as error:
                seen.append((tail, getattr(error, "code", 0)))

    async def browse(url: str) -> str:
        redirect = dict(parse_qsl(urlsplit(url).query))["redirect_uri"]
        assert urlsplit(redirect).hostname == "127.0.0.1"
        await asyncio.to_thread(knocks, redirect)
        seen.append((redirect, 0))
        unused.append(await asyncio.open_connection("127.0.0.1", urlsplit(redirect).port))
        return await remote.browse(url)

    unused: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []  # as browsers open them
    login = await log_in(server_at(remote.url), Challenge(), browse, None)
    for reader, writer in unused:
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
    assert [code for _, code in seen[:-1]] == [400, 400, 400, 404] and login.access_token
    parts = urlsplit(seen[-1][0])
    with pytest.raises(OSError):
        await asyncio.open_connection(parts.hostname, parts.port)


@pytest.mark.spec("MCP-5")
async def test_what_the_browser_ended_on_can_be_brought_by_hand(remote: OAuthServer) -> None:
    async def browse(url: str) -> str:
        query = dict(parse_qsl(urlsplit(url).query))
        _, headers, _ = remote._authorize(query)
        return headers["location"]

    assert (await log_in(server_at(remote.url), Challenge(), browse, None)).access_token

    async def slips(url: str) -> str:
        return "http://[" if remote.authorized.pop() else url

    with pytest.raises(McpError, match="not the address that this login ends on"):
        await log_in(server_at(remote.url), Challenge(), slips, None)


@pytest.mark.spec("MCP-5")
@pytest.mark.parametrize(
    ("metadata", "resource", "answer"),
    [
        ({}, {}, {"iss": "https://evil.example"}),
        ({}, {}, {"iss": None}),
        ({"authorization_response_iss_parameter_supported": None}, {}, {"iss": "https://evil"}),
        ({}, {}, {"code": None}),
        ({}, {}, {"error": "access_denied", "code": None}),
        ({"issuer": "https://evil.example"}, {}, {}),
        ({"code_challenge_methods_supported": ["plain"]}, {}, {}),
        ({"authorization_endpoint": "file:///etc/passwd"}, {}, {}),
        ({"authorization_endpoint": "http://evil.example/a"}, {}, {}),
        ({"token_endpoint": "http://evil.example/t"}, {}, {}),
        ({"token_endpoint": None}, {}, {}),
        ({"registration_endpoint": None}, {}, {}),
        ({}, {"resource": "https://evil.example/mcp"}, {}),
        ({}, {"authorization_servers": ["http://evil.example"]}, {}),
        ({}, {"authorization_servers": ["ftp://x"]}, {}),
    ],
)
async def test_a_login_that_is_not_right_sends_no_code_anywhere(
    remote: OAuthServer,
    metadata: dict[str, Any],
    resource: dict[str, Any],
    answer: dict[str, str | None],
) -> None:
    remote.metadata, remote.resource, remote.answer = metadata, resource, answer
    with pytest.raises(McpError) as refused:
        await logged_in(remote)
    assert not remote.granted
    assert "\n" not in str(refused.value) and refused.value.advice


@pytest.mark.spec("MCP-5")
async def test_scopes_are_those_of_the_refusal_and_grow_with_what_is_wanted(
    remote: OAuthServer, vault: LoginVault
) -> None:
    remote.resource, remote.scope = {"scopes_supported": ["all"]}, "read"
    remote.metadata = {"scopes_supported": ["read", "offline_access"]}
    login = await logged_in(remote)
    assert remote.authorized[-1]["scope"] == "read offline_access"
    write_login(vault, remote.url, login)
    headers = OAuthHeaders(server_at(remote.url), vault)
    await headers.headers()
    with pytest.raises(LoginRequired, match="agent mcp login api"):
        await headers.refused(403, 'Bearer error="insufficient_scope", scope="write"')
    before = read_login(vault, remote.url)
    assert before is not None and before.wanted == ("write",)
    await log_in(server_at(remote.url), Challenge(scope="read"), remote.browse, before)
    assert set(remote.authorized[-1]["scope"].split()) == {"read", "offline_access", "write"}


@pytest.mark.slow
@pytest.mark.spec("MCP-5")
async def test_an_ended_token_is_renewed_before_it_is_used_and_after_a_refusal(
    remote: OAuthServer, vault: LoginVault
) -> None:
    login = await logged_in(remote)
    write_login(vault, remote.url, replace(login, expires_at=time.time() - 1))
    headers = OAuthHeaders(server_at(remote.url), vault)
    first = (await headers.headers())["Authorization"].removeprefix("Bearer ")
    assert first in remote.tokens and first != login.access_token
    remote.tokens.clear()
    assert await headers.refused(401, "Bearer")
    second = (await headers.headers())["Authorization"].removeprefix("Bearer ")
    assert second in remote.tokens
    remote.tokens.clear()
    remote.refresh_tokens.clear()
    with pytest.raises(LoginRequired, match="agent mcp login api"):
        await headers.refused(401, "Bearer")
    # the client stays known for the next login, the tokens do not
    kept = read_login(vault, remote.url)
    assert kept is not None and (kept.access_token, kept.refresh_token) == ("", "")
    assert kept.client.client_id == "client-1"


@pytest.mark.spec("MCP-5")
async def test_a_grantor_that_fails_for_now_costs_no_login(
    remote: OAuthServer, vault: LoginVault
) -> None:
    login = replace(await logged_in(remote), expires_at=time.time() - 1)
    gone = replace(login, token_url="http://127.0.0.1:9/token")
    write_login(vault, remote.url, gone)
    with pytest.raises(McpError) as failed:
        await OAuthHeaders(server_at(remote.url), vault).headers()
    assert not isinstance(failed.value, LoginRequired)
    assert login.refresh_token not in str(failed.value)
    kept = read_login(vault, remote.url)
    assert kept is not None and kept.refresh_token == login.refresh_token


_RENEW = """
import asyncio, sys
from agentcli.config.logins import LoginVault
from agentcli.config.paths import Paths
from agentcli.mcp.servers import ServerPlace, ServerScope, servers_in
from agentcli.mcp.tokens import OAuthHeaders
from pathlib import Path

home, url = Path(sys.argv[1]), sys.argv[2]
place = ServerPlace(ServerScope.USER, "", {})
server = servers_in({"mcpServers": {"api": {"url": url}}}, place)[0][0]
headers = OAuthHeaders(server, LoginVault(Paths(home, home, home), lambda _: None))
print("ready", flush=True)
sys.stdin.readline()

async def main():
    several = await asyncio.gather(*(headers.headers() for _ in range(5)))
    print({each["Authorization"] for each in several}.pop().removeprefix("Bearer "))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.spec("MCP-5")
async def test_processes_that_renew_one_rotating_token_at_once_all_go_on(
    remote: OAuthServer, paths: Paths, vault: LoginVault
) -> None:
    login = replace(await logged_in(remote), expires_at=time.time() - 1)
    write_login(vault, remote.url, login)
    command = [sys.executable, "-c", _RENEW, str(paths.config_dir), remote.url]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    tokens = {process.communicate(timeout=30)[0].strip() for process in processes}
    assert remote.reused == 0 and tokens <= remote.tokens and len(tokens) == 1
    assert [form["grant_type"] for form in remote.granted].count("refresh_token") == 1


@pytest.mark.spec("MCP-5", "SEC-9")
async def test_headers_come_from_a_command_too_and_it_is_asked_again_after_a_refusal(
    vault: LoginVault,
) -> None:
    printed = iter(['{"Authorization": "Bearer one"}', "Authorization: Bearer two\nX-A: b\n"])
    now = next(printed)

    def command(again: bool) -> str:
        nonlocal now
        now = next(printed, now) if again else now
        return now

    headers = OAuthHeaders(server_at("https://h/mcp"), vault, printed=command)
    assert (await headers.headers())["Authorization"] == "Bearer one"
    assert await headers.refused(401, "Bearer")
    assert await headers.headers() == {"Authorization": "Bearer two", "X-A": "b"}
    with pytest.raises(McpError, match="refused its Authorization header"):
        await headers.refused(401, "Bearer")
    with pytest.raises(McpError, match="printed no headers"):
        await OAuthHeaders(server_at("https://h"), vault, printed=lambda _: "no").headers()


@pytest.mark.spec("MCP-5", "SEC-1")
async def test_a_command_for_headers_sees_no_key_that_its_server_must_not_have(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PROVIDER_KEY", "k-1234567890")
    monkeypatch.setenv("OWN_TOKEN", "t-1")
    helper = 'echo "X-Told: [$SOME_PROVIDER_KEY][$OWN_TOKEN]"'
    place = ServerPlace(
        ServerScope.PROJECT, ".mcp.json", {}, withheld=frozenset({"SOME_PROVIDER_KEY"})
    )
    entry = {"url": "https://h/mcp", "headersHelper": helper}
    (server,), _ = servers_in({"mcpServers": {"api": entry}}, place)
    headers = await ServerLogins(paths, {}).authorizer(server).headers()
    assert headers["X-Told"] == "[][t-1]"


@pytest.mark.spec("MCP-5", "SEC-1")
@pytest.mark.parametrize(
    "to",
    [
        *("https://10.0.0.7/x", "https://router/x", "https://[fd00::1]", "https://0x0a.0.0.7/x"),
        *(
            "https://012.0.0.7/x",
            "https://0x7f.1",
            "https://[::ffff:a00:7]",
            "https://[64:ff9b::a00:7]",
        ),
    ],
)
async def test_a_server_on_the_internet_sends_no_login_into_a_private_network(to: str) -> None:
    with pytest.raises(McpError, match="not safe to use"):
        await log_in(server_at("https://mcp.example.org/mcp"), Challenge(to), _nobody, None)


async def _nobody(_: str) -> str:
    raise AssertionError("no login was to begin")


@pytest.mark.spec("MCP-5")
def test_a_damaged_login_is_said_and_another_homes_is_not_seen(
    paths: Paths, vault: LoginVault
) -> None:
    vault.write("https://h", {"client": {}, "access_token": "x"}, ())
    (file,) = paths.logins_dir.glob("*.json")
    assert json.loads(file.read_text())["server"] == "https://h"
    file.write_text("{")
    with pytest.raises(Exception, match="damaged"):
        vault.read("https://h")
    assert (
        LoginVault(Paths(paths.config_dir / "x", *[paths.data_dir] * 2), print).read("https://h")
        is None
    )


@pytest.mark.spec("MCP-5")
async def test_requests_that_are_refused_together_ask_the_user_once(
    remote: OAuthServer, vault: LoginVault
) -> None:
    server = server_at(remote.url)

    async def by_user(challenge: Challenge) -> Login:
        return await log_in(server, challenge, remote.browse, None)

    headers = OAuthHeaders(server, vault, log_in=by_user)

    async def ask() -> str:
        await headers.headers()
        assert await headers.refused(401, "Bearer")
        return (await headers.headers())["Authorization"]

    assert len(set(await asyncio.gather(*(ask() for _ in range(3))))) == 1
    assert len(remote.authorized) == 1
