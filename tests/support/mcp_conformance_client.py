"""What the official conformance suite runs as the client: the real one, a scenario, then its end.

``MCP_CONFORMANCE_SCENARIO`` names the scenario, ``MCP_CONFORMANCE_CONTEXT`` has what it gives
along; the last argument is the address of the suite's server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from agentcli.config.logins import LoginVault
from agentcli.config.paths import Paths
from agentcli.domain.extensions.mcp import McpError
from agentcli.mcp.client import ANSWER, DECLINE, ClientSetup, McpClient, connected
from agentcli.mcp.oauth import Challenge, Login, log_in
from agentcli.mcp.servers import McpServer, ServerPlace, ServerScope, read_server
from agentcli.mcp.stdio import StdioPlace
from agentcli.mcp.tokens import OAuthHeaders, read_login, write_login

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
ERA = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
DOCUMENT = "https://conformance-test.local/client-metadata.json"


class Answers:
    """A user who takes what is offered."""

    async def ask(self, question: str, options: Any = ()) -> str:
        """Yes, and then what the server has as its default."""
        print("asked:", question, list(options), file=sys.stderr)
        wanted = [
            each for each in (ANSWER, *map(str, options)) if each in options and each != DECLINE
        ]
        if ANSWER in options:
            return ANSWER
        return wanted[-1] if wanted else ""


async def browse(url: str) -> str:
    """A browser whose user says yes."""
    await asyncio.to_thread(lambda: urlopen(url, timeout=10).read())
    return ""


def configured(url: str) -> McpServer:
    """The server as a user would write it."""
    entry: dict[str, Any] = {"url": url, "oauth": {"clientMetadataUrl": DOCUMENT}}
    if "client_id" in CONTEXT:
        entry["oauth"] |= {"clientId": CONTEXT["client_id"], "clientSecretEnv": "SECRET"}
    if "client-credentials" in SCENARIO:
        entry["oauth"]["grantType"] = "client_credentials"
    return read_server("suite", entry, ServerPlace(ServerScope.USER, "suite", dict(os.environ)))


async def main(url: str, home: Path) -> None:
    """Connect, list, call each tool."""
    server = configured(url)
    vault = LoginVault(Paths(home, home, home), lambda _: None)
    secret = CONTEXT.get("client_secret", "")

    async def by_user(challenge: Challenge) -> Login:
        before = await asyncio.to_thread(read_login, vault, url)
        login = await log_in(server, challenge, browse, before, secret)
        await asyncio.to_thread(write_login, vault, url, login)
        return login

    def authorizer(_: McpServer) -> OAuthHeaders:
        return OAuthHeaders(server, vault, log_in=by_user, secret=secret)

    setup = ClientSetup(StdioPlace(home, "suite", None), (home,), Answers(), authorizer)
    async with connected(server, setup) as client:
        await use(client)


async def use(client: McpClient) -> None:
    """Everything that a session could do with the server."""
    tools = await client.tools()
    for tool in tools:
        print("tool:", tool.name, file=sys.stderr)
        arguments = arguments_for(tool.name, tool.parameters)
        if "schema" in arguments:  # it wants to see what was understood of the other one
            arguments["schema"] = dict(tools[0].parameters)
        try:
            output = await client.call(tool.name, arguments, lambda _: None)
            print("output:", output, file=sys.stderr)
        except McpError as error:
            print("error:", error, file=sys.stderr)


def arguments_for(name: str, schema: Any) -> dict[str, Any]:
    """What the scenario wants said, else something of the right type."""
    for call in CONTEXT.get("toolCalls", ()):
        if call.get("name") == name:
            return dict(call.get("arguments", {}))
    examples = {
        "string": "x",
        "number": 2,
        "integer": 2,
        "boolean": True,
        "array": [],
        "object": {},
    }
    properties = schema.get("properties", {})
    return {
        key: examples.get(each.get("type"), "x")
        for key, each in properties.items()
        if key in schema.get("required", ())
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        try:
            asyncio.run(main(sys.argv[-1], Path(directory)))
        except McpError as refused:
            sys.exit(f"error: {refused}")
