"""The HTTP client: what it imports, whom it trusts, and what it says when the network fails."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path

import pytest

from agentcli.domain.errors import AgentError, ConfigError, ErrorKind, ProviderError
from agentcli.wire.http import (
    MAX_ERROR_BODY_BYTES,
    MAX_PIECE_BYTES,
    Endpoint,
    HttpClient,
    Refusal,
    read_authorities,
)

KEY = "sk-secret-0123456789"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return head[0], headers, body


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    served: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await handler(reader, writer)
        writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served[asyncio.create_task(guarded(reader, writer))] = writer

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for _ in range(10):  # what was accepted just now begins, which a closed server forbids
            await asyncio.sleep(0)
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)
        for writer in served.values():  # a goodbye in TLS that nobody answers is not waited for
            writer.transport.abort()
        await server.wait_closed()


def replying(data: bytes, seen: list[tuple[str, dict[str, str], bytes]] | None = None) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if seen is not None:
            seen.append(request)
        writer.write(data)
        await writer.drain()

    return handler


def answer(body: bytes, content_type: str = "text/event-stream", status: str = "200 OK") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


def endpoint(url: str) -> Endpoint:
    return Endpoint("test", url, "TEST_API_KEY", "TEST_BASE_URL", "m", (KEY,))


async def post(url: str) -> bytes:
    client = HttpClient()
    try:
        headers = {"x-api-key": KEY, "content-type": "application/json"}
        stream = client.post_stream(endpoint(url), headers, b'{"a": 1}')
        return b"".join([chunk async for chunk in stream])
    finally:
        await client.aclose()


async def error_of(url: str) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await post(url)
    error = caught.value
    text = str(error)
    assert KEY not in text
    assert "\n" not in text
    assert error.advice
    return error


async def refusal_of(url: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await post(url)
    return caught.value


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_the_reply_is_streamed_and_the_request_arrives_whole() -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def run() -> None:
        async with serving(replying(answer(b"data: 1\n\n"), seen)) as port:
            assert await post(f"http://127.0.0.1:{port}/v1/x") == b"data: 1\n\n"

    asyncio.run(run())
    line, headers, body = seen[0]
    assert line == "POST /v1/x HTTP/1.1"
    assert headers["x-api-key"] == KEY
    assert body == b'{"a": 1}'


@pytest.mark.spec("FAIL-6", "OPS-1")
def test_a_refused_connection_asks_whether_the_server_runs() -> None:
    error = asyncio.run(error_of(f"http://127.0.0.1:{free_port()}/v1"))
    assert isinstance(error, ProviderError)
    assert error.kind is ErrorKind.NETWORK
    assert error.retryable
    assert "refused the connection" in error.message
    assert "TEST_BASE_URL" in error.advice


@pytest.mark.spec("FAIL-6", "OPS-1")
def test_an_unknown_host_is_named() -> None:
    error = asyncio.run(error_of("http://nonexistent.invalid/v1"))
    assert isinstance(error, ProviderError)
    assert error.kind is ErrorKind.NETWORK
    assert "nonexistent.invalid" in error.message
    assert "cannot be found" in error.message


@pytest.mark.spec("FAIL-6", "OPS-1")
def test_a_plain_server_spoken_to_with_tls_is_a_tls_error() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    async def run() -> AgentError:
        async with serving(plain) as port:
            return await error_of(f"https://127.0.0.1:{port}/v1")

    error = asyncio.run(run())
    assert isinstance(error, ProviderError)
    assert error.kind is ErrorKind.NETWORK
    assert not error.retryable
    assert "http://" in error.advice
    assert "TLS" in error.message


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


def test_an_unknown_certificate_is_refused_and_ssl_cert_file_can_name_it(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")

    async def run() -> tuple[AgentError, bytes]:
        async with serving(replying(answer(b"data: ok\n\n")), context) as port:
            url = f"https://localhost:{port}/v1"
            error = await error_of(url)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
            return error, await post(url)

    error, body = asyncio.run(run())
    assert "certificate" in error.message
    assert "SSL_CERT_FILE" in error.advice
    assert body == b"data: ok\n\n"


def test_a_missing_ssl_cert_file_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/ca.pem")
    error = asyncio.run(error_of("https://localhost/v1"))
    assert isinstance(error, ConfigError)
    assert "SSL_CERT_FILE" in error.message


def test_authorities_are_read_once_for_all_clients_while_the_loop_runs(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    pipe = tmp_path / "authorities.pem"  # whoever reads it waits, and it can be read once
    os.mkfifo(pipe)
    monkeypatch.setenv("SSL_CERT_FILE", str(pipe))

    async def run() -> list[bytes]:
        async with serving(replying(answer(b"data: ok\n\n")), context) as port:
            url = f"https://localhost:{port}/v1"
            cancelled, *posts = [asyncio.create_task(post(url)) for _ in range(3)]
            await asyncio.sleep(0)
            cancelled.cancel()
            with suppress(asyncio.CancelledError):
                await cancelled
            content = (certificate / "cert.pem").read_bytes()
            await asyncio.to_thread(pipe.write_bytes, content)
            return await asyncio.gather(*posts)

    assert asyncio.run(run()) == [b"data: ok\n\n"] * 2


def test_authorities_that_could_not_be_read_are_read_again(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "authorities.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    assert isinstance(read_authorities().exception(), OSError)
    shutil.copy(certificate / "cert.pem", path)
    first = read_authorities()
    assert len(first.result().get_ca_certs()) == 1
    assert read_authorities() is first


@pytest.mark.spec("SEC-11")
def test_the_client_of_plain_addresses_trusts_no_certificate(certificate: Path) -> None:
    """A plain-http client that was led to https by a mistake would fail, not accept anything."""

    async def run() -> ssl.SSLContext:
        client = HttpClient()
        with suppress(ProviderError):
            async for _ in client.post_stream(endpoint("http://127.0.0.1:1/"), {}, b""):
                pass
        context = client._clients[False]._transport._pool._ssl_context
        await client.aclose()
        return context

    context = asyncio.run(run())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.get_ca_certs() == []


@pytest.mark.spec("CLI-10")
def test_proxies_and_their_exceptions_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def run() -> None:
        async with serving(replying(answer(b"data: p\n\n"), seen)) as port:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
            assert await post("http://model.invalid/v1/x") == b"data: p\n\n"
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            assert await post(f"http://127.0.0.1:{port}/v1/y") == b"data: p\n\n"

    asyncio.run(run())
    assert [line.split()[1] for line, _, _ in seen] == ["http://model.invalid/v1/x", "/v1/y"]


@pytest.mark.spec("FAIL-6", "OPS-1")
def test_a_proxy_that_refuses_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    for scheme in ("HTTP", "HTTPS"):
        monkeypatch.setenv(f"{scheme}_PROXY", f"http://me:hunter2@127.0.0.1:{port}")
    for url in ("http://model.invalid/v1", "https://model.invalid/v1"):
        error = asyncio.run(error_of(url))
        assert isinstance(error, ProviderError)
        assert error.kind is ErrorKind.NETWORK
        assert f"through the proxy 127.0.0.1:{port}" in error.message
        assert "hunter2" not in str(error)
        assert "HTTPS_PROXY" in error.advice


@pytest.mark.spec("FAIL-6")
def test_a_proxy_that_denies_the_tunnel_is_a_network_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> AgentError:
        denial = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"
        async with serving(replying(denial)) as port:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
            return await error_of("https://model.invalid/v1")

    error = asyncio.run(run())
    assert isinstance(error, ProviderError)
    assert error.kind is ErrorKind.NETWORK
    assert "proxy" in error.message


@pytest.mark.parametrize("value", ["nonsense://x", "socks5://127.0.0.1:1"])
def test_a_proxy_that_cannot_be_used_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", value)
    assert isinstance(asyncio.run(error_of("http://model.invalid/v1")), ConfigError)


@pytest.mark.parametrize("url", ["ftp://host/x", "http://", "http://[::1/x"])
def test_an_unusable_address_is_a_configuration_error(url: str) -> None:
    error = asyncio.run(error_of(url))
    assert isinstance(error, ConfigError)
    assert "TEST_BASE_URL" in error.advice


@pytest.mark.spec("FAIL-6")
def test_a_drop_in_mid_stream_comes_after_the_bytes_before_it() -> None:
    partial = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\nab"

    async def run() -> tuple[bytes, ProviderError]:
        got = b""
        client = HttpClient()
        async with serving(replying(partial)) as port:
            with pytest.raises(ProviderError) as caught:
                url = f"http://127.0.0.1:{port}/"
                async for chunk in client.post_stream(endpoint(url), {}, b""):
                    got += chunk
        await client.aclose()
        return got, caught.value

    got, error = asyncio.run(run())
    assert got == b"ab"
    assert error.kind is ErrorKind.NETWORK
    assert "broke off" in error.message
    assert error.streaming


@pytest.mark.spec("SEC-13", "STR-8")
def test_what_a_compressed_reply_unpacks_to_comes_in_small_pieces_with_room_between() -> None:
    body = gzip.compress(b"data: {}\n\n" * 2_000_000)
    packed = answer(body).replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n", 1)

    async def run() -> tuple[list[int], int]:
        sizes, beats = [], 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        client = HttpClient()
        async with serving(replying(packed)) as port, asyncio.TaskGroup() as group:
            heart = group.create_task(beat())
            url = f"http://127.0.0.1:{port}/"
            async for chunk in client.post_stream(endpoint(url), {}, b""):
                if len(sizes) == 1:
                    beats = 0
                sizes.append(len(chunk))
            heart.cancel()
        await client.aclose()
        return sizes, beats

    sizes, beats = asyncio.run(run())
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= MAX_PIECE_BYTES
    assert beats >= len(sizes) - 2


@pytest.mark.spec("CAN-9", "OPS-1")
def test_a_request_cancelled_at_any_moment_leaves_no_connection_open() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\n"

    async def is_open_after(ticks: int, more_ticks: int, listener: socket.socket) -> bool:
        loop = asyncio.get_running_loop()
        connections: list[socket.socket] = []

        def accept() -> None:
            with suppress(BlockingIOError):
                connections.append(listener.accept()[0])

        async def begin_an_answer() -> None:
            while not connections:
                await asyncio.sleep(0)
                accept()
            connections[0].send(head)

        client = HttpClient()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server = asyncio.create_task(begin_an_answer())
        request = asyncio.create_task(anext(client.post_stream(endpoint(url), {}, b"{}")))
        for _ in range(ticks):
            await asyncio.sleep(0)
        request.cancel()
        for _ in range(more_ticks):
            await asyncio.sleep(0)
        request.cancel()
        server.cancel()
        await asyncio.wait({request, server})
        accept()
        try:
            for connection in connections:
                connection.setblocking(False)
                with suppress(ConnectionError):
                    async with asyncio.timeout(5):
                        while await loop.sock_recv(connection, 4096):
                            pass
        except TimeoutError:
            return True
        finally:
            for connection in connections:
                connection.close()
            await client.aclose()
        return False

    async def first_left_open() -> tuple[int, int] | None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            for moment in product(range(25), range(4)):
                if await is_open_after(*moment, listener):
                    return moment
        return None

    assert asyncio.run(first_left_open()) is None


@pytest.mark.spec("CAN-11")
def test_a_cancelled_request_leaves_another_of_the_same_provider_alone() -> None:
    async def run() -> list[bytes]:
        go_on = asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            reply = answer(b"data: 1\n\ndata: 2\n\n")
            writer.write(reply[:-9])
            await go_on.wait()
            writer.write(reply[-9:])
            await writer.drain()

        client = HttpClient()
        async with serving(slow) as port:
            url = f"http://127.0.0.1:{port}/"
            stream = client.post_stream(endpoint(url), {}, b"{}")
            seen = [await anext(stream)]
            other = asyncio.create_task(anext(client.post_stream(endpoint(url), {}, b"{}")))
            for _ in range(3):
                await asyncio.sleep(0)
            other.cancel()
            await asyncio.wait({other})
            go_on.set()
            seen += [chunk async for chunk in stream]
            await client.aclose()
        return seen

    assert b"".join(asyncio.run(run())) == b"data: 1\n\ndata: 2\n\n"


def test_an_error_body_is_read_up_to_a_bound() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 500 Oops\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * MAX_ERROR_BODY_BYTES)
            await writer.drain()

    async def run() -> Refusal:
        async with serving(endless) as port:
            return await refusal_of(f"http://127.0.0.1:{port}/")

    refusal = asyncio.run(run())
    assert refusal.status == 500
    assert len(refusal.body) == MAX_ERROR_BODY_BYTES


@pytest.mark.spec("SEC-11")
def test_a_redirect_is_not_followed_with_the_key() -> None:
    other: list[tuple[str, dict[str, str], bytes]] = []

    async def run() -> Refusal:
        async with serving(replying(answer(b""), other)) as elsewhere:
            moved = (
                f"HTTP/1.1 307 Moved\r\nlocation: http://localhost:{elsewhere}/steal\r\n"
                "content-length: 0\r\n\r\n"
            )
            async with serving(replying(moved.encode())) as port:
                return await refusal_of(f"http://127.0.0.1:{port}/")

    assert asyncio.run(run()).status == 307
    assert other == []


def test_a_web_page_instead_of_a_stream_is_an_error() -> None:
    page = answer(b"\n  <!doctype html><title>Log in</title>", "text/html")

    async def run() -> AgentError:
        async with serving(replying(page)) as port:
            return await error_of(f"http://127.0.0.1:{port}/")

    assert "web page" in asyncio.run(run()).message


def test_a_json_document_becomes_one_event_and_an_untyped_stream_passes() -> None:
    async def run() -> None:
        async with serving(replying(answer(b'{\n "a": 1\n}', "application/json"))) as port:
            assert await post(f"http://127.0.0.1:{port}/") == b'data: {  "a": 1 }\n\n'
        async with serving(replying(answer(b'{"a": 1}'))) as port:  # and is called a stream
            assert await post(f"http://127.0.0.1:{port}/") == b'data: {"a": 1}\n\n'
        async with serving(replying(answer(b"\ndata: 1\n\n", "text/plain"))) as port:
            assert await post(f"http://127.0.0.1:{port}/") == b"\ndata: 1\n\n"

    asyncio.run(run())


def test_the_first_request_imports_no_command_line_of_httpx() -> None:
    program = """
import asyncio, sys
from agentcli.providers import _registry, anthropic, openai
from agentcli.providers.models import table
from agentcli.wire.http import HttpClient, load_httpx
assert "httpx" not in sys.modules, "httpx is imported before it is needed"
load_httpx()
heavy = {"click", "rich", "pygments", "pydantic", "prompt_toolkit", "httpx._main", "certifi"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
import httpx
assert callable(httpx.AsyncClient)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)
