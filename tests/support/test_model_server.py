"""The loopback model server says what it was told, goes wrong where it was told, and is strict."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
from typing import Any

import httpx
import pytest

from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import (
    Call,
    Reply,
    Text,
    Thinking,
    Tokens,
    bad_gateway,
    call,
    fails,
    rate_limited,
    say,
)

PROTOCOLS = [ANTHROPIC, OPENAI]
TOOLS = {
    ANTHROPIC: [{"name": "bash", "input_schema": {"type": "object"}}],
    OPENAI: [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
}
PATH = {ANTHROPIC: "/v1/messages", OPENAI: "/v1/chat/completions"}


def body_for(protocol: str, messages: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    body = {
        "model": "m",
        "stream": True,
        "messages": messages or [{"role": "user", "content": "hello"}],
        "tools": TOOLS[protocol],
        **more,
    }
    return body | ({"max_tokens": 4000} if protocol == ANTHROPIC else {})


def post(server: ModelServer, protocol: str, body: Any = None, **headers: str) -> httpx.Response:
    sent = {"anthropic-version": "2023-06-01", "x-api-key": "key", "authorization": "Bearer key"}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(
        server.url + PATH[protocol],
        json=body or body_for(protocol),
        headers={**sent, **names},
        timeout=10,
    )


def data_of(response: httpx.Response) -> list[Any]:
    lines = [line[6:] for line in response.text.split("\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_an_anthropic_reply_is_the_services_event_sequence(model_server: ModelServer) -> None:
    model_server.add(
        Reply(
            (
                Thinking("let me see"),
                Thinking(redacted="b64"),
                Text("Reading both."),
                Call("bash", {"command": "ls"}, id="toolu_1"),
                Call("bash"),
            ),
            tokens=Tokens(input=7, output=9, cache_read=3, cache_write=2),
            piece=4,
        )
    )
    response = post(model_server, ANTHROPIC)
    assert response.headers["content-type"].startswith("text/event-stream")
    names = [line[7:] for line in response.text.split("\n") if line.startswith("event: ")]
    events = data_of(response)
    assert names == [event["type"] for event in events]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-2:] == ["message_delta", "message_stop"]
    usage = events[0]["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (7, 3)
    starts = [e["content_block"]["type"] for e in events if e["type"] == "content_block_start"]
    assert starts == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    deltas = [e for e in events if e["type"] == "content_block_delta"]
    text = "".join(d["delta"].get("text", "") for d in deltas)
    arguments = [
        d["delta"]["partial_json"]
        for d in deltas
        if d["index"] == 3 and d["delta"]["type"] == "input_json_delta"
    ]
    assert text == "Reading both."
    assert arguments[0] == "" and len(arguments) > 3
    assert json.loads("".join(arguments)) == {"command": "ls"}
    assert [d["delta"]["type"] for d in deltas if d["index"] == 0][-1] == "signature_delta"
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"] == {"output_tokens": 9}


def test_an_openai_reply_is_the_services_chunk_sequence(model_server: ModelServer) -> None:
    model_server.add(
        Reply(
            (
                Thinking("let me see"),
                Text("Reading."),
                Call("bash", {"command": "ls"}, id="call_1"),
                Call("bash", {"command": "pwd"}),
            ),
            piece=5,
            interleave=True,
        )
    )
    body = body_for(OPENAI, stream_options={"include_usage": True})
    events = data_of(post(model_server, OPENAI, body))
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert chunks[0]["choices"][0]["delta"] == {
        "role": "assistant",
        "content": "",
        "refusal": None,
    }
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(d.get("content") or "" for d in deltas) == "Reading."
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "let me see"
    parts = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert [part["index"] for part in parts[:4]] == [0, 1, 0, 1]
    assert parts[0]["id"] == "call_1" and parts[1]["id"] != parts[0]["id"]
    second = "".join(p["function"]["arguments"] for p in parts if p["index"] == 1)
    assert json.loads(second) == {"command": "pwd"}
    finishes = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
    assert finishes[-1] == "tool_calls" and not any(finishes[:-1])
    assert chunks[-1]["usage"]["prompt_tokens"] == 100
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_no_usage_is_sent_that_was_not_asked_for(model_server: ModelServer) -> None:
    model_server.add("hi")
    assert '"usage"' not in post(model_server, OPENAI).text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_are_recorded_and_connections_kept(
    model_server: ModelServer, protocol: str
) -> None:
    model_server.add("one", lambda request: f"two: {request.messages[0]['content']}")
    headers = {"anthropic-version": "2023-06-01"}
    with httpx.Client() as client:
        for _ in range(2):
            last = client.post(
                model_server.url + PATH[protocol], json=body_for(protocol), headers=headers
            )
    assert "two: hello" in "".join(
        piece
        for event in data_of(last)
        if event != "[DONE]"
        for piece in [
            event.get("delta", {}).get("text", "")
            if protocol == ANTHROPIC
            else (event["choices"][0]["delta"].get("content") or "")
        ]
    )
    first, second = model_server.requests
    assert first.protocol == protocol and first.body["stream"] is True
    assert first.arrived_at < second.arrived_at
    assert model_server.wait_until_finished(2).reply is not None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("place", "has_text", "has_end"),
    [("headers", False, False), ("start", False, False), ("text", True, False), ("end", True, False), ("last", True, True)],
)  # fmt: skip
def test_a_hold_stops_at_its_place_until_it_is_released(
    model_server: ModelServer, protocol: str, place: str, has_text: bool, has_end: bool
) -> None:
    gate = threading.Event()
    model_server.add(say("hello world", hold=gate, hold_at=place, pings=0))
    headers = {"anthropic-version": "2023-06-01"}
    url = model_server.url + PATH[protocol]
    seen = ""
    end = "message_stop" if protocol == ANTHROPIC else "[DONE]"
    with httpx.stream("POST", url, json=body_for(protocol), headers=headers) as response:
        lines = response.iter_text()
        while (has_text and "hello world" not in seen) or (has_end and end not in seen):
            seen += next(lines)
        model_server.wait_until_waiting()
        assert end in seen if has_end else end not in seen
        gate.set()
        seen += "".join(lines)
    assert "hello world" in seen and end in seen


def test_a_hold_before_the_response_shows_nothing_at_all(model_server: ModelServer) -> None:
    gate = threading.Event()
    model_server.add(say("x", hold=gate))
    raw = json.dumps(body_for(OPENAI)).encode()
    with socket.create_connection(("127.0.0.1", model_server.port)) as sock:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n"
        sock.sendall(head.encode() + b"\r\n" + raw)
        request = model_server.wait_until_waiting()
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
    assert request.finished.wait(5) and request.client_left


def test_the_server_sees_that_the_client_has_left(model_server: ModelServer) -> None:
    model_server.add(say("some text", stall_at="text"))
    url = model_server.url + PATH[OPENAI]
    with httpx.stream("POST", url, json=body_for(OPENAI)) as response:
        pieces = response.iter_text()
        next(pieces)
        model_server.wait_until_waiting()
    assert model_server.wait_until_finished().client_left


@pytest.mark.parametrize("place", ["connect", "headers", "text", 300])
def test_a_dropped_connection_is_a_network_error(model_server: ModelServer, place: Any) -> None:
    model_server.add(say("some text", drop_at=place))
    with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
        post(model_server, ANTHROPIC)
    request = model_server.wait_until_finished()
    assert request.body_bytes == 300 if place == 300 else True


def test_a_closed_body_ends_early_in_good_order(model_server: ModelServer) -> None:
    model_server.add(say("text", close_at="end"), say("text", close_at="headers"))
    assert "message_stop" not in post(model_server, ANTHROPIC).text
    assert post(model_server, ANTHROPIC).text == ""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_errors_and_garbage_inside_a_stream(model_server: ModelServer, protocol: str) -> None:
    model_server.add(say("text", error_at="text"), say("text", garbage_at="start"))
    error = data_of(post(model_server, protocol))[-1]
    assert "verloaded" in error["error"]["message"]
    assert b"\xff\xfe not json" in post(model_server, protocol).content


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_status_replies_have_the_services_error_bodies(
    model_server: ModelServer, protocol: str
) -> None:
    model_server.add(
        rate_limited("7"), fails(529), fails(500), bad_gateway(), fails(400, "context")
    )
    limited = post(model_server, protocol)
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "7")
    assert limited.json()["error"]["type"] in {"rate_limit_error", "requests"}
    assert post(model_server, protocol).status_code == 529
    assert post(model_server, protocol).status_code == 500
    assert post(model_server, protocol).text.startswith("<html>")
    assert "too long" in (text := post(model_server, protocol).text) or "maximum context" in text


def test_raw_arguments_and_stop_reason_for_a_cut_call(model_server: ModelServer) -> None:
    model_server.add(call("bash", raw='{"command": "ec', stop="max_tokens"))
    events = data_of(post(model_server, ANTHROPIC))
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"
    text = "".join(e.get("delta", {}).get("partial_json", "") for e in events)
    assert text == '{"command": "ec'


def test_line_ends_sizes_and_gzip_do_not_change_the_content(model_server: ModelServer) -> None:
    model_server.add(
        say("hello world"),
        say("hello world", transform=lambda data: data.replace(b"\n", b"\r\n")),
        say("hello world", write_bytes=1, gzip=True),
    )
    plain, crlf, zipped = (post(model_server, OPENAI) for _ in range(3))

    def deltas(response: httpx.Response) -> list[Any]:
        text = response.text.replace("\r\n", "\n")
        events = [line[6:] for line in text.split("\n") if line.startswith("data: {")]
        return [json.loads(event)["choices"][0]["delta"] for event in events]

    assert deltas(plain) == deltas(crlf) == deltas(zipped)
    assert "\r\n\r\n" in crlf.text
    assert zipped.headers["content-encoding"] == "gzip"


def test_gzip_is_one_member_that_any_client_can_read(model_server: ModelServer) -> None:
    model_server.add(say("hello", gzip=True))
    connection = http.client.HTTPConnection("127.0.0.1", model_server.port, timeout=10)
    connection.request("POST", PATH[OPENAI], json.dumps(body_for(OPENAI)))
    assert b"[DONE]" in gzip.decompress(connection.getresponse().read())
    connection.close()


@pytest.mark.slow
def test_twenty_thousand_pieces_arrive_whole(model_server: ModelServer) -> None:
    model_server.add(say("x" * 20_000, piece=1))
    events = data_of(post(model_server, OPENAI))
    assert sum(e != "[DONE]" and e["choices"][0]["delta"].get("content") == "x" for e in events) == 20_000  # fmt: skip


def test_pings_only_goes_on_until_the_client_leaves(model_server: ModelServer) -> None:
    model_server.add(Reply(ping_only=True, delay_s=0.001))
    url = model_server.url + PATH[ANTHROPIC]
    seen = ""
    with httpx.stream(
        "POST", url, json=body_for(ANTHROPIC), headers={"anthropic-version": "2023-06-01"}
    ) as response:
        for text in response.iter_text():
            seen += text
            if seen.count("event: ping") >= 5:
                break
    assert "message_start" not in seen
    assert model_server.wait_until_finished().client_left


async def async_client(server: ModelServer) -> None:
    gate = threading.Event()
    server.add(say("x", hold=gate))
    async with httpx.AsyncClient() as client:
        import asyncio

        async with asyncio.TaskGroup() as group:
            url = server.openai_url + "/chat/completions"
            task = group.create_task(client.post(url, json=body_for(OPENAI)))
            await server.arrived(1)
            await server.holding(1)
            assert not task.done()
            gate.set()
        assert task.result().status_code == 200


def test_a_test_that_runs_in_a_loop_can_use_it(model_server: ModelServer) -> None:
    import asyncio

    asyncio.run(async_client(model_server))
