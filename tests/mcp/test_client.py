"""The client against servers of the official SDK, in both eras and over both transports."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.extensions.mcp import McpError
from agentcli.domain.messages import ImagePart, TextPart
from agentcli.domain.tools import OutputKind, ToolOutput
from agentcli.mcp import http
from agentcli.mcp.client import McpClient, answer_question, connected
from agentcli.mcp.http import MIN_RETRY_S, PlainHeaders, _retry_s, http_channel, sse_channel
from agentcli.mcp.protocol import LEGACY, MODERN, output_of
from agentcli.mcp.servers import McpServer, Transport
from agentcli.tools.common.server_tool import ServedTool, ServerContext
from agentcli.wire.sse import SseDecoder
from tests.mcp.servers import SUPPORT, Answers, hostile, hub_of, sdk_server, server, setup
from tests.security.hostile_server import STREAM
from tests.security.hostile_server import hostile as hostile_reply
from tests.support.json_server import Asked, JsonServer

pytestmark = pytest.mark.spec("MCP-1")
ERAS = [pytest.param("", MODERN, id="2026"), pytest.param("2025", LEGACY, id="2025")]


def text_of(output: ToolOutput) -> str:
    return "\n".join(part.text for part in output.parts if isinstance(part, TextPart))


@pytest.fixture(scope="module")
def http_url() -> Iterator[str]:
    pytest.importorskip("mcp_types")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(SUPPORT / "mcp_sdk_server.py"), "http", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        for _ in range(400):
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


async def _use(configured: McpServer, cwd: Path, era: str, version: str) -> None:
    user = Answers("Answer", "Joe", "(leave it out)")
    progress: list[str] = []
    async with connected(configured, setup(cwd, user), era) as client:
        assert (client.agreement.version, client.agreement.server) == (version, "Example 1.2")
        assert client.agreement.instructions == "Adds numbers. And more."
        tools = {tool.name: tool for tool in await client.tools()}
        assert tools["add"].full_name == "mcp__ex__add"
        assert tools["add"].reads and not tools["fail"].reads
        assert tools["add"].parameters["required"] == ["a", "b"]
        assert text_of(await client.call("add", {"a": 1, "b": 2}, progress.append)) == "3"
        failed = await client.call("fail", {}, progress.append)
        assert failed.kind is OutputKind.TOOL_ERROR
        picture = await client.call("picture", {}, progress.append)
        assert [type(part) for part in picture.parts] == [TextPart, ImagePart]
        assert progress == []
        await client.call("slow", {"steps": 2}, progress.append)
        assert progress == ["1/2 step 1\n", "2/2 step 2\n"]
        assert {each.uri for each in await client.resources()} == {"text://readme", "note://{name}"}
        (prompt,) = await client.prompts()
        assert prompt.arguments == (("code", "", True),)
        assert await client.read("note://mine") == [TextPart("the note mine")]
        assert await client.prompt("review", {"code": "x"}) == [TextPart("Please review: x")]
        with pytest.raises(McpError, match="answered"):
            await client.read("no://such")
        if version == LEGACY:  # the SDK's helper for the other era has another shape
            assert text_of(await client.call("ask", {}, progress.append)).startswith("accept name=")
            assert text_of(await client.call("roots", {}, progress.append)) == cwd.as_uri()
            assert "The MCP server ex asks: Who are you?" in user.asked[0][0]


@pytest.mark.slow
@pytest.mark.parametrize(("era", "version"), ERAS)
def test_a_server_of_the_sdk_is_used_over_stdio(tmp_path: Path, era: str, version: str) -> None:
    pytest.importorskip("mcp_types")
    asyncio.run(_use(sdk_server(), tmp_path, era, version))


@pytest.mark.sampled
@pytest.mark.parametrize(("era", "version"), ERAS)
def test_a_server_of_the_sdk_is_used_over_http(
    tmp_path: Path, http_url: str, era: str, version: str
) -> None:
    asyncio.run(_use(server("ex", {"url": http_url}), tmp_path, era, version))


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize("transport", [pytest.param("stdio", marks=pytest.mark.slow), "http"])
def test_a_tool_that_comes_while_a_server_of_2026_is_up_is_heard_of(
    tmp_path: Path, http_url: str, transport: str
) -> None:
    configured = sdk_server() if transport == "stdio" else server("ex", {"url": http_url})

    async def play() -> None:
        async with hub_of(tmp_path, configured) as hub:
            grow = hub.tool("mcp__ex__grow")
            assert grow is not None
            await hub.call(grow, {"name": f"by_{transport}"}, CancelToken(), lambda _: None)
            for _ in range(1_000):  # the list is asked for again after a notice alone
                assert await hub.tools(CancelToken(), lambda _: None) == []
                (facts,) = hub.facts()
                if f"by_{transport}" in {tool.name for tool in facts.tools}:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError("nothing was heard of it")

    asyncio.run(play())


def with_client(
    configured: McpServer, cwd: Path, era: str = ""
) -> Callable[[Callable[[McpClient], object]], None]:
    def run(scene: Callable[[McpClient], object]) -> None:
        async def play() -> None:
            async with connected(configured, setup(cwd), era) as client:
                await scene(client)  # type: ignore[misc]  # a coroutine function

        asyncio.run(play())

    return run


@pytest.mark.parametrize("mode", ["echo", "strict"])
def test_an_old_server_is_asked_in_the_old_way_even_if_the_probe_ends_it(
    tmp_path: Path, mode: str
) -> None:
    async def scene(client: McpClient) -> None:
        assert client.agreement.version == "2025-06-18"
        assert client.agreement.server == f"{mode} 1"
        output = await client.call("echo", {"a": 1}, lambda _: None)
        assert text_of(output) == '{"a": 1}'

    with_client(hostile(mode), tmp_path)(scene)


@pytest.mark.spec("MCP-6")
def test_hostile_names_texts_and_schemas_come_in_clean(tmp_path: Path) -> None:
    async def scene(client: McpClient) -> None:
        tools = await client.tools()
        assert [tool.name for tool in tools] == [
            *("bash", "loop", "list", "huge", "with.dots/and slash", "n" * 80),
            "needs",
        ]
        assert tools[0].full_name == "mcp__odd__bash"
        assert tools[0].description == "red evil"
        shown = await ServedTool(tools[0]).preview({"x": "y"}, cast("ServerContext", None))
        assert shown.splitlines()[-1] == "The server says of it: red evil", "in its own words"
        assert tools[0].parameters["properties"] == {"x": {"type": "string"}}
        assert all(tool.parameters["type"] == "object" for tool in tools)
        assert all(len(str(tool.parameters)) < 40_000 for tool in tools)
        assert tools[4].full_name == "mcp__odd__with_dots_and_slash"
        assert len(tools[5].full_name) == 64
        assert ServedTool(tools[6]).parse({"a": 1}) == {"a": 1}

    with_client(hostile("odd"), tmp_path)(scene)


@pytest.mark.spec("MCP-6")
def test_of_ten_thousand_tools_a_bounded_number_is_used(tmp_path: Path) -> None:
    async def scene(client: McpClient) -> None:
        assert len(await client.tools()) == 2_000

    with_client(hostile("many"), tmp_path)(scene)


@pytest.mark.spec("MCP-6")
def test_lies_about_ids_change_no_answer(tmp_path: Path) -> None:
    async def scene(client: McpClient) -> None:
        for number in range(3):
            output = await client.call("echo", {"n": number}, lambda _: None)
            assert text_of(output) == f'{{"n": {number}}}'

    with_client(hostile("lies"), tmp_path)(scene)


@pytest.mark.spec("MCP-6")
def test_an_answer_of_100_mb_is_an_error_and_the_server_is_used_on(tmp_path: Path) -> None:
    async def scene(client: McpClient) -> None:
        with pytest.raises(McpError, match="more than 16,777,216 bytes"):
            await client.call("echo", {}, lambda _: None)
        assert len(await client.tools()) == 1

    with_client(hostile("floods"), tmp_path)(scene)


@pytest.mark.spec("MCP-6", "SEC-13")
def test_of_very_many_parts_of_an_output_a_bounded_number_is_read() -> None:
    output = output_of({"content": [{"type": "text", "text": "x"}] * 5_000})
    assert text_of(output).splitlines() == ["x"] * 2_000 + ["[3,000 more parts were left out]"]


@pytest.mark.spec("MCP-6", "SEC-13")
def test_a_swarm_of_messages_in_one_hides_no_answer_or_is_an_error(tmp_path: Path) -> None:
    async def scene(client: McpClient) -> None:
        assert text_of(await client.call("echo", {"n": 1}, lambda _: None)) == '{"n": 1}'
        with pytest.raises(McpError, match="more than 1,000 messages"):
            await client.call("echo", {"all": 1}, lambda _: None)
        assert len(await client.tools()) == 1

    with_client(hostile("swarms"), tmp_path)(scene)


@pytest.mark.spec("MCP-2")
def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    configured = hostile("silent", startupTimeout=300)

    async def play() -> None:
        with pytest.raises(McpError, match=r"did not answer within 0\.3 s"):
            async with connected(configured, setup(tmp_path), "2025"):
                pass

    asyncio.run(play())


@pytest.mark.spec("MCP-2")
@pytest.mark.parametrize("command", ["no-such-program-at-all", "./not-here"])
def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, command: str) -> None:
    async def play() -> None:
        with pytest.raises(McpError, match="cannot be started"):
            async with connected(server("x", {"command": command}), setup(tmp_path)):
                pass

    asyncio.run(play())


class _Leaves:
    async def ask(self, question: str, options: Sequence[str]) -> str:
        return ""


@pytest.mark.slow
@pytest.mark.spec("MCP-6", "UI-7")
@pytest.mark.parametrize("kind", ["boolean", "string", "integer"])
def test_a_user_who_does_not_answer_has_not_agreed_to_what_the_server_would_like(kind: str) -> None:
    wished = {"properties": {"go": {"type": kind, "default": True}}}
    asked = {"message": "Deploy?", "requestedSchema": wished}
    answered = asyncio.run(answer_question("x", asked, _Leaves()))
    assert answered == {"action": "decline"}


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
def test_a_server_does_not_decide_that_it_is_called_without_a_pause() -> None:
    decoder = SseDecoder()
    decoder.feed(b"retry: 0\n\n")
    assert decoder.retry_ms == 0 and _retry_s(decoder) >= MIN_RETRY_S


@pytest.mark.spec("SEC-13", "CAN-1")
@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
def test_a_flood_of_small_events_lets_others_have_a_turn(
    monkeypatch: pytest.MonkeyPatch, transport: Transport
) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(b"data: 1\n\n" * 20_000) + packer.flush()
    read, together = 0, 0
    real = http._json

    def counted(body: bytes) -> object:
        nonlocal read, together
        read, together = read + 1, together + 1
        most.append(together)
        return real(body)

    most = [0]
    monkeypatch.setattr(http, "_json", counted)

    async def others() -> None:
        nonlocal together
        while True:
            together = 0
            await asyncio.sleep(0)

    async def ask(url: str) -> None:
        configured = server("f", {"type": str(transport), "url": url})
        waiting = asyncio.create_task(others())
        channel_of = http_channel if transport is Transport.HTTP else sse_channel
        with suppress(McpError):
            async with channel_of(configured, PlainHeaders(configured)) as channel:
                await channel.send(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
                await anext(aiter(channel.lines()))
        waiting.cancel()

    with hostile_reply(lambda: [packed], headers=STREAM + b"content-encoding: gzip\r\n") as flood:
        asyncio.run(ask(flood.url))
    assert read >= 20_000
    assert max(most) <= 2 * http.EVENTS_TOGETHER


@pytest.mark.spec("MCP-6", "SEC-13")
@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
def test_an_event_beyond_our_bounds_costs_the_answer_that_it_is_and_no_other(
    transport: Transport,
) -> None:
    deep = b"[" * 300 + b"]" * 300
    events = [
        b"event: endpoint\ndata: /\n\n" if transport is Transport.SSE else b"",
        b'data: {"method":"notifications/message","params":%b}\n\n' % deep,
        b'data: {"id":2,"result":%b}\n\n' % deep,
        b'data: {"id":1,"result":"whole"}\n\n',
    ]

    async def ask(url: str) -> list[str]:
        configured = server("f", {"type": str(transport), "url": url})
        channel_of = http_channel if transport is Transport.HTTP else sse_channel
        async with channel_of(configured, PlainHeaders(configured)) as channel:
            await channel.send(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
            lines = aiter(channel.lines())
            return [str(await anext(lines)) for _ in range(2)]

    with hostile_reply(lambda: events, headers=STREAM) as reply:
        lost, answer = asyncio.run(ask(reply.url))
    assert '"id":2,"error"' in lost and "nested more than 200 deep" in lost
    assert '"id":1,"result":"whole"' in answer


@pytest.mark.spec("MCP-6", "SEC-13")
def test_nothing_is_read_ahead_of_a_large_message_that_is_not_served_yet() -> None:
    large = "\U0001f600" + "x" * http.LARGE_BYTES
    notice = json.dumps({"method": "notifications/message", "params": {"data": large}})
    came = [f"data: {notice}\n\n".encode()] * 8
    took = []

    async def ask(url: str) -> None:
        configured = server("f", {"type": "http", "url": url})
        async with http_channel(configured, PlainHeaders(configured)) as channel:
            assert isinstance(channel, http._Http)
            await channel.send(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
            async for line in channel.lines():
                for _ in range(50):
                    await asyncio.sleep(0)
                took.append((line == notice.encode(), channel._came.qsize()))
                if len(took) == len(came):
                    return

    with hostile_reply(lambda: came, headers=STREAM) as reply:
        asyncio.run(ask(reply.url))
    assert took == [(True, 0)] * len(came)


@pytest.mark.spec("MCP-6", "SEC-13")
def test_over_http_too_many_messages_in_one_are_an_error_and_few_answers_leave_at_once() -> None:
    held = threading.Event()

    def told(asked: Asked) -> tuple[int, object]:
        if asked.body["method"] == "ask":
            return 200, [{}] * 2_000
        return 202, held.wait(10)

    async def ask(url: str) -> None:
        configured = server("f", {"type": "http", "url": url})
        async with http_channel(configured, PlainHeaders(configured)) as channel:
            await channel.send(b'{"id":1,"method":"ask"}')
            assert "more than 1,000 messages" in str(await anext(aiter(channel.lines())))
            for _ in range(http.MAX_TELLING):
                await channel.send(b'{"method":"notice"}')
            one_more = asyncio.create_task(channel.send(b'{"method":"notice"}'))
            await asyncio.sleep(0)
            assert not one_more.done()
            held.set()
            await one_more

    with JsonServer({"POST /": told}) as served:
        asyncio.run(ask(f"{served.url}/"))
