"""One suite for every wire protocol of the registry, over real loopback HTTP, judged strictly."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import Effort, ModelInfo, ModelRequest, Provider, ProviderConfig
from agentcli.domain.stream import StreamEnd, StreamEvent, TextDelta
from agentcli.engine.assemble import Assembler
from agentcli.engine.context.outgoing import check_request, prepare
from agentcli.engine.sample import RetryPolicy, Sampler
from agentcli.providers._registry import BUILT_IN, create
from tests.providers.streams import BASH, READ
from tests.support.model_server import ModelServer
from tests.support.replies import (
    Call,
    Reply,
    Text,
    Thinking,
    Tokens,
    bad_gateway,
    call,
    calls,
    fails,
    rate_limited,
    say,
)

T = TypeVar("T")
PROTOCOLS = sorted({row.kind for row in BUILT_IN.values()} - {"scripted", "offline", "bedrock"})
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3.6-flash",
    "openai": "gpt-4.1",
    "openai-responses": "gpt-6-sol",
}
KEY = "sk-test-0123456789abcdefghij"
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")


class Client:
    """A provider of one protocol, talking to the loopback server; keeps a history."""

    def __init__(self, protocol: str, server: ModelServer) -> None:
        self.protocol = protocol
        config = ProviderConfig(
            protocol, protocol, server.base_url(protocol), f"{protocol.upper()}_API_KEY", KEY
        )
        self.provider: Provider = create(config)
        self.model = ModelInfo(protocol, MODELS[protocol], supports_thinking=True)
        self.history: list[Message] = []

    def request(self, **more: Any) -> ModelRequest:
        messages = prepare(self.history, self.protocol, self.model.name)
        check_request(messages)
        tools = more.pop("tools", (BASH, READ))
        return ModelRequest(self.model, "You are terse.", messages, tools, **more)

    async def events(self, **more: Any) -> list[StreamEvent]:
        stream = self.provider.stream(self.request(**more), CancelToken())
        return [event async for event in stream]

    async def ask(self, message: Message | str | None = None, **more: Any) -> AssistantMessage:
        if message is not None:
            self.history.append(user_text(message) if isinstance(message, str) else message)
        assembler = Assembler(self.protocol, self.model.name, set())
        for event in await self.events(**more):
            assembler.add(event)
        reply = assembler.message()
        self.history.append(reply)
        return reply

    def answer(self, *texts: str) -> None:
        last = self.history[-1]
        assert isinstance(last, AssistantMessage)
        for one, text in zip(last.tool_calls, texts, strict=True):
            self.history.append(ToolResult(one.id, one.name, (TextPart(text),)))


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest, model_server: ModelServer) -> Client:
    return Client(request.param, model_server)


def run(client: Client, work: Coroutine[Any, Any, T]) -> T:
    """``work`` in a loop of its own, in which the client's connections are closed as well."""

    async def main() -> T:
        try:
            return await work
        finally:
            await client.provider.aclose()

    return asyncio.run(main())


@pytest.mark.spec("LOOP-6")
def test_a_text_reply_comes_with_usage_and_ends(client: Client, model_server: ModelServer) -> None:
    tokens = Tokens(input=70, output=9, cache_read=30)
    model_server.add(say("Hello \u4e16\u754c, how are you?", tokens=tokens))
    reply = run(client, client.ask("hi"))
    assert reply.text == "Hello \u4e16\u754c, how are you?"
    assert reply.stop_reason is StopReason.END_TURN
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (70, 9)
    assert reply.usage.cache_read_tokens == 30


@pytest.mark.spec("HIS-1", "HIS-3", "HIS-5")
def test_parallel_calls_and_their_results_make_a_round_trip(
    client: Client, model_server: ModelServer
) -> None:
    pair = (Call("bash", {"command": "pwd"}), Call("read_file", {"path": "\u00e9.txt"}))
    model_server.add(calls(*pair, text="Two at once.", interleave=True), say("Done."))

    async def talk() -> AssistantMessage:
        reply = await client.ask("go")
        assert [(c.name, c.arguments) for c in reply.tool_calls] == [
            ("bash", {"command": "pwd"}),
            ("read_file", {"path": "\u00e9.txt"}),
        ]
        assert reply.stop_reason is StopReason.TOOL_USE
        client.answer("/tmp", "text")
        client.history.append(user_text("and now?"))
        return await client.ask()

    assert run(client, talk()).text == "Done."


@pytest.mark.spec("HIS-1", "CAN-4")
def test_refused_cancelled_and_failed_results_are_accepted(
    client: Client, model_server: ModelServer
) -> None:
    names = [Call("bash", {"command": str(n)}) for n in range(3)]
    model_server.add(calls(*names), say("I see."))

    async def talk() -> None:
        reply = await client.ask("go")
        statuses = (ResultStatus.CANCELLED, ResultStatus.REFUSED, ResultStatus.ERROR)
        for one, status in zip(reply.tool_calls, statuses, strict=True):
            parts = (TextPart("Cancelled by user"), TextPart("It had not started."))
            client.history.append(ToolResult(one.id, one.name, parts, status))
        await client.ask("go on")

    run(client, talk())


def test_images_of_users_and_of_results_are_accepted(
    client: Client, model_server: ModelServer
) -> None:
    model_server.add(calls(*[Call("read_file", {"path": f"{n}.png"}) for n in range(2)]))
    model_server.add(say("A dot."), say("Yes."))

    async def talk() -> None:
        image = ImagePart("image/png", PNG)
        reply = await client.ask(UserMessage((TextPart("see"), image)))
        one, two = reply.tool_calls
        client.history.append(ToolResult(one.id, one.name, (TextPart("1.png"), image)))
        client.history.append(ToolResult(two.id, two.name, (image,), ResultStatus.ERROR))
        await client.ask()
        await client.ask("sure?")

    run(client, talk())


@pytest.mark.spec("HIS-7")
def test_a_history_of_another_provider_is_accepted(
    client: Client, model_server: ModelServer
) -> None:
    odd_id = "functions.bash:0|" + "x" * 80
    foreign = AssistantMessage(
        (
            ThinkingPart("secret", signature="foreign"),
            TextPart("Looking."),
            ToolCall(odd_id, "odd name!", {"command": "\ud83d x \0"}),
        ),
        "elsewhere",
        "other",
    )
    client.history += [user_text("hi"), foreign, ToolResult(odd_id, "bash", (TextPart("x"),))]
    model_server.add(say("Fine."))
    assert run(client, client.ask("go on")).text == "Fine."


@pytest.mark.spec("HIS-4", "LOOP-7")
def test_thinking_goes_back_to_its_maker_as_it_came(
    client: Client, model_server: ModelServer
) -> None:
    first = Reply((Thinking("Let me see."), Text("Hm."), Call("bash", {"command": "ls"})))
    model_server.add(first, say("a.txt"), say("b"))

    async def talk() -> None:
        reply = await client.ask("list", effort=Effort.MEDIUM)
        assert any(isinstance(p, ThinkingPart) and p.text == "Let me see." for p in reply.parts)
        client.answer("a.txt")
        await client.ask(effort=Effort.MEDIUM)
        await client.ask("more", effort=Effort.HIGH)

    run(client, talk())


def test_malformed_argument_text_arrives_as_it_was_sent(
    client: Client, model_server: ModelServer
) -> None:
    model_server.add(call("bash", raw='{"command": "pwd', id="call_cut"), say("ok"))

    async def talk() -> None:
        reply = await client.ask("go")
        [one] = reply.tool_calls
        assert (one.arguments, one.malformed) == ({}, '{"command": "pwd')
        client.answer("invalid arguments")
        await client.ask()

    run(client, talk())


def test_a_reply_cut_by_the_limit_and_a_refusal_say_so(
    client: Client, model_server: ModelServer
) -> None:
    model_server.add(say("Half an ans", stop="max_tokens"), say("No.", stop="refusal"))

    async def talk() -> None:
        assert (await client.ask("a")).stop_reason is StopReason.MAX_TOKENS
        assert (await client.ask("b")).stop_reason is StopReason.REFUSAL

    run(client, talk())


@pytest.mark.slow
@pytest.mark.spec("STR-8")
@pytest.mark.parametrize(
    "how",
    [
        {"write_bytes": 1},
        {"write_bytes": 7},
        {"write_bytes": 100_000},
        {"transform": lambda data: data.replace(b"\n", b"\r\n")},
        {"transform": lambda data: data.replace(b"\n", b"\r")},
        {"preamble": b"\xef\xbb\xbf: hello\n\nevent: news\ndata: {}\n\n"},
        {"gzip": True},
        {"pings": 5},
    ],
    ids=["1 byte", "7 bytes", "one write", "CRLF", "CR", "preamble", "gzip", "pings"],
)
def test_the_reply_does_not_depend_on_how_it_is_sent(
    client: Client, model_server: ModelServer, how: dict[str, Any]
) -> None:
    model_server.add(
        calls(Call("bash", {"command": "echo \U0001f642"}), text="Gr\u00fc\u00dfe", **how)
    )
    reply = run(client, client.ask("go"))
    assert reply.text == "Gr\u00fc\u00dfe"
    assert reply.tool_calls[0].arguments == {"command": "echo \U0001f642"}


def test_many_chunks_of_one_read_become_few_events(
    client: Client, model_server: ModelServer
) -> None:
    text = "word " * 2000
    model_server.add(say(text, piece=5, write_bytes=1_000_000))
    client.history.append(user_text("go"))
    events = run(client, client.events())
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(texts) == text
    assert len(texts) < 1000


def test_one_connection_serves_the_whole_conversation(
    client: Client, model_server: ModelServer
) -> None:
    model_server.add(*[say(str(number)) for number in range(4)])
    arrived: list[object] = []

    async def talk() -> None:
        for number in range(4):
            await client.ask(str(number))
        http = client.provider._http
        [inner] = http._clients.values()
        arrived.extend(inner._transport._pool.connections)

    run(client, talk())
    assert len(arrived) == 1


@pytest.mark.spec("CAN-9")
def test_a_cancelled_request_leaves_at_once_and_closes_its_connection(
    client: Client, model_server: ModelServer
) -> None:
    model_server.add(say("never ending", stall_at="text"))
    client.history.append(user_text("go"))

    async def talk() -> None:
        task = asyncio.create_task(client.events())
        await model_server.holding()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(client, talk())
    assert model_server.wait_until_finished().client_left


def test_a_set_token_ends_the_stream_without_an_end(
    client: Client, model_server: ModelServer
) -> None:
    model_server.add(say("one two three", stall_at="text"))
    client.history.append(user_text("go"))
    token = CancelToken()

    async def talk() -> list[StreamEvent]:
        events = []
        async for event in client.provider.stream(client.request(), token):
            events.append(event)
            token.cancel()
        return events

    assert not any(isinstance(event, StreamEnd) for event in run(client, talk()))


# --- what goes wrong -----------------------------------------------------------------------


async def failure(client: Client) -> tuple[list[StreamEvent], ProviderError]:
    seen: list[StreamEvent] = []
    with pytest.raises(ProviderError) as caught:
        async for event in client.provider.stream(client.request(), CancelToken()):
            seen.append(event)
    error = caught.value
    assert KEY not in str(error)
    assert "\n" not in str(error)
    assert error.provider == client.protocol
    assert "127.0.0.1" in error.host
    assert error.host in error.message
    assert error.advice
    return seen, error


@pytest.mark.spec("STR-1", "STR-9", "OPS-1")
@pytest.mark.parametrize(
    ("reply", "kind", "retryable"),
    [
        (fails(400), ErrorKind.BAD_REQUEST, False),
        (fails(401), ErrorKind.AUTH, False),
        (fails(403), ErrorKind.AUTH, False),
        (fails(404), ErrorKind.BAD_REQUEST, False),
        (fails(413), ErrorKind.CONTEXT_OVERFLOW, False),
        (fails(500), ErrorKind.SERVER, True),
        (fails(529), ErrorKind.OVERLOADED, True),
        (bad_gateway(), ErrorKind.SERVER, True),
        (rate_limited(), ErrorKind.RATE_LIMIT, True),
    ],
)
def test_a_status_becomes_a_typed_error(
    client: Client, model_server: ModelServer, reply: Reply, kind: ErrorKind, retryable: bool
) -> None:
    model_server.add(replace(reply))
    client.history.append(user_text("hi"))
    seen, error = run(client, failure(client))
    assert seen == []
    assert (error.kind, error.retryable, error.status) == (kind, retryable, reply.status)


@pytest.mark.spec("STR-2")
def test_retry_after_is_passed_on(client: Client, model_server: ModelServer) -> None:
    model_server.add(rate_limited("7"))
    client.history.append(user_text("hi"))
    _, error = run(client, failure(client))
    assert error.retry_after_s == 7


@pytest.mark.spec("STR-8")
def test_an_error_inside_a_stream_comes_after_what_was_said(
    client: Client, model_server: ModelServer
) -> None:
    model_server.add(say("Once upon a time", error_at="text:1", write_bytes=1_000_000))
    client.history.append(user_text("hi"))
    seen, error = run(client, failure(client))
    assert any(isinstance(event, TextDelta) for event in seen)
    assert not any(isinstance(event, StreamEnd) for event in seen)
    assert error.kind in {ErrorKind.OVERLOADED, ErrorKind.SERVER}
    assert error.retryable


@pytest.mark.spec("STR-8")
def test_garbage_in_a_stream_is_an_error_and_no_crash(
    client: Client, model_server: ModelServer
) -> None:
    model_server.add(say("Once upon a time", garbage_at="text:1"))
    client.history.append(user_text("hi"))
    seen, error = run(client, failure(client))
    assert seen
    assert error.kind is ErrorKind.SERVER


@pytest.mark.spec("FAIL-6", "STR-1")
@pytest.mark.parametrize("place", ["connect", "headers", "start", "text:2"])
def test_a_dropped_connection_is_a_network_error(
    client: Client, model_server: ModelServer, place: str
) -> None:
    model_server.add(say("Once upon a time", drop_at=place))
    client.history.append(user_text("hi"))
    _, error = run(client, failure(client))
    assert error.kind is ErrorKind.NETWORK
    assert error.retryable


@pytest.mark.spec("STR-8", "HIS-8")
def test_a_character_that_a_gateway_has_cut_in_two_is_whole(
    client: Client, model_server: ModelServer
) -> None:
    def cut(body: bytes) -> bytes:
        return body.replace(b"<", b"\\ud83d").replace(b">", b"\\ude00")

    model_server.add(
        say("ab <> <", piece=4, transform=cut)
    )  # two pieces, and half of one at the end
    client.history.append(user_text("hi"))
    assert run(client, client.ask()).text.rstrip("\ufffd\ud83d") == "ab \U0001f600 "


@pytest.mark.spec("STR-4")
@pytest.mark.parametrize(
    "after", [{"drop_at": "end:2"}, {"drop_at": "end:3"}, {"stall_at": "end:3"}]
)
def test_a_chat_reply_that_has_given_its_finish_reason_is_whole_whatever_the_connection_does(
    model_server: ModelServer, after: dict[str, Any]
) -> None:
    model_server.add(call("bash", {"command": "pwd"}, **after))
    client = Client("openai", model_server)
    client.history.append(user_text("hi"))
    answer = run(client, client.ask())
    assert [one.arguments for one in answer.tool_calls] == [{"command": "pwd"}]


@pytest.mark.spec("STR-4")
@pytest.mark.parametrize(
    ("place", "streaming"), [("connect", False), ("headers", True), ("start", True)]
)
def test_a_drop_says_whether_the_stream_had_begun(
    client: Client, model_server: ModelServer, place: str, streaming: bool
) -> None:
    model_server.add(say("Once upon a time", drop_at=place))
    client.history.append(user_text("hi"))
    _, error = run(client, failure(client))
    assert error.streaming is streaming


@pytest.mark.spec("STR-4", "STR-1")
def test_a_compressed_stream_that_is_damaged_counts_as_a_drop(
    client: Client, model_server: ModelServer
) -> None:
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    model_server.add(Reply(body=b"\x1f\x8b no gzip at all", headers=headers))
    client.history.append(user_text("hi"))
    _, error = run(client, failure(client))
    assert (error.kind, error.streaming, error.retryable) == (ErrorKind.NETWORK, True, True)


@pytest.mark.spec("STR-9", "STR-3", "STR-5")
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(ping_only=True), ErrorKind.STALLED),
        (say("Once", stall_at="text"), ErrorKind.STALLED),
        (say("Once", close_at="headers"), ErrorKind.EMPTY),
        (say("Once", close_at="text"), ErrorKind.NETWORK),
        (Reply(), ErrorKind.EMPTY),
    ],
    ids=["pings", "stall", "empty", "cut", "nothing"],
)
def test_faults_that_the_engine_finds_name_the_host_as_well(
    client: Client, model_server: ModelServer, reply: Reply, kind: ErrorKind
) -> None:
    model_server.default = replace(reply)
    client.history.append(user_text("hi"))

    async def quick(seconds: float) -> None:
        await asyncio.sleep(0)

    sampler = Sampler(client.provider, lambda event: None, RetryPolicy(idle_s=0.05, sleep=quick))
    with pytest.raises(ProviderError) as caught:
        run(client, sampler.sample(client.request(), set(), CancelToken()))
    error = caught.value
    assert (error.kind, error.provider) == (kind, client.protocol)
    assert f"{client.protocol} at 127.0.0.1" in error.message
    assert error.host.startswith("127.0.0.1:")


@pytest.mark.spec("CAN-5")
@pytest.mark.parametrize("place", ["headers", "start", "text", "call"])
def test_a_body_that_ends_early_has_no_end(
    client: Client, model_server: ModelServer, place: str
) -> None:
    model_server.add(calls(Call("bash", {"command": "pwd"}), text="Hm", close_at=place))
    client.history.append(user_text("hi"))
    events = run(client, client.events())
    assert not any(isinstance(event, StreamEnd) for event in events)


@pytest.mark.spec("STR-3")
def test_keep_alives_are_no_events(client: Client, model_server: ModelServer) -> None:
    model_server.add(Reply(ping_only=True))
    client.history.append(user_text("hi"))

    async def talk() -> list[StreamEvent]:
        seen: list[StreamEvent] = []
        stream = client.provider.stream(client.request(), CancelToken())
        try:
            async with asyncio.timeout(0.3):
                async for event in stream:
                    seen.append(event)
        except TimeoutError:
            pass
        await stream.aclose()
        return seen

    seen = run(client, talk())
    assert not any(isinstance(event, TextDelta | StreamEnd) for event in seen)
    assert len(seen) <= 1
