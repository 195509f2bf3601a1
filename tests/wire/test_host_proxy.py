"""What the proxy of the sandbox lets through, and what it does not (SEC-18)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterable

import pytest

from agentcli.domain.sandbox import is_named, plain_host
from agentcli.wire.host_proxy import HostProxy

pytestmark = pytest.mark.spec("SEC-18")


@contextlib.asynccontextmanager
async def proxy(hosts: Iterable[str]) -> AsyncIterator[tuple[HostProxy, int]]:
    """A proxy that listens here, and its port."""
    gate = HostProxy()
    gate.hosts = tuple(hosts)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    port = listener.getsockname()[1]
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(gate.serve(listener))
        try:
            yield gate, port
        finally:
            serving.cancel()
            await asyncio.wait({serving})
            listener.close()


@contextlib.asynccontextmanager
async def server(heads: list[bytes]) -> AsyncIterator[int]:
    """A web server that keeps what it was asked, and says "here"; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere")
            await writer.drain()
        writer.close()

    serving = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with serving:
        yield serving.sockets[0].getsockname()[1]


async def said(port: int, *texts: bytes) -> bytes:
    """What the proxy answers to ``texts``, one after the other has been answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    for text in texts:
        writer.write(text)
        await writer.drain()
        answer += await reader.read(4096)
    with contextlib.suppress(ConnectionError):
        answer += await reader.read()
    writer.close()
    return answer


def test_what_a_name_covers() -> None:
    names = ("npmjs.org", "example.com:8443", "registry", "127.0.0.1", "[2001:db8::1]:444")
    covered = {
        ("npmjs.org", 443): True, ("npmjs.org", 80): True, ("registry.npmjs.org", 443): False,
        ("npmjs.org", 8080): None, ("evilnpmjs.org", 443): None, ("npmjs.org.evil.com", 443): None,
        ("example.com", 8443): True, ("example.com", 443): None, ("a.example.com", 8443): False,
        ("registry", 443): True, ("x.registry", 443): None, ("127.0.0.1", 443): True,
        ("2001:db8::1", 444): True, ("2001:db8::1", 443): None,
    }  # fmt: skip
    assert {row: is_named(names, *row) for row in covered} == covered
    assert is_named(("x.org", "a.x.org"), "a.x.org", 443) is True
    assert is_named((), "npmjs.org", 443) is None


def test_what_is_a_host() -> None:
    good = {
        " NPMJS.org ": "npmjs.org", "example.com:8443": "example.com:8443", "x": "x",
        "10.0.0.1": "10.0.0.1", "[::1]:80": "[::1]:80", "[0:0::0:1]:80": "[::1]:80",
        "v1.2.x3": "v1.2.x3", "a_b.c-d.e.": "a_b.c-d.e",
    }  # fmt: skip
    assert {text: plain_host(text) for text in good} == good
    bad = ("", "*", "*.org", "https://x.org", "x.org/", "x..org", "x.org:0", "x.org:99999", "a b",
           "-x.org", "x@y.org", "::1", "x.org:", "é.org", "x" * 254, "a\n.org",
           "0.0.1", "127.1", "2130706433", "[1:2]", "[::g]")  # fmt: skip
    assert [text for text in bad if plain_host(text)] == []


async def _to_a_named_host() -> None:
    heads: list[bytes] = []
    async with server(heads) as port, proxy([f"127.0.0.1:{port}"]) as (gate, door):
        there = f"127.0.0.1:{port}".encode()
        whole = b"GET http://%s/a?b HTTP/1.1\r\nHost: elsewhere.org\r\nProxy-X: y\r\nX: z\r\n\r\n"
        assert (await said(door, whole % there)).endswith(b"\r\n\r\nhere")
        assert heads == [
            b"GET /a?b HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nX: z\r\n\r\n" % there
        ]
        tunnel = b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n" % there
        answer = await said(door, tunnel, b"GET /t HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"here")
        assert heads[1:] == [b"GET /t HTTP/1.1\r\n\r\n"]
        assert gate.take_refused() == ()


def test_a_named_host_is_reached_and_told_its_own_name() -> None:
    asyncio.run(_to_a_named_host())


def test_this_machine_is_not_looked_for_behind_the_users_own_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    asyncio.run(_to_a_named_host())


REFUSED = {
    "another port": (b"CONNECT 127.0.0.1:1 HTTP/1.1", "127.0.0.1:1"),
    "another host": (b"CONNECT example.org:443 HTTP/1.1", "example.org:443"),
    "another address": (b"CONNECT [0::1]:1 HTTP/1.1", "[::1]:1"),
    "another host, plainly": (b"GET http://example.org/ HTTP/1.1", "example.org:80"),
    "a user's name": (b"GET http://127.0.0.1@example.org/ HTTP/1.1", ""),
    "an address in disguise": (b"CONNECT 2130706433:1 HTTP/1.1", "127.0.0.1:1"),
    "a path in a tunnel": (b"CONNECT 127.0.0.1:%d/x HTTP/1.1", ""),
    "TLS without a tunnel": (b"GET https://127.0.0.1:%d/ HTTP/1.1", ""),
    "no URL": (b"GET / HTTP/1.1", ""),
    "no HTTP": (b"\x16\x03\x01", ""),
    "no known version": (b"CONNECT 127.0.0.1:%d HTTP/2", ""),
    "a method of no letters": (b"G\xc3\x89T http://127.0.0.1:%d/ HTTP/1.1", ""),
}


@pytest.mark.parametrize(("line", "told"), REFUSED.values(), ids=REFUSED)
def test_nothing_else_is_reached(line: bytes, told: str) -> None:
    async def ask() -> None:
        heads: list[bytes] = []
        async with server(heads) as port, proxy([f"127.0.0.1:{port}"]) as (gate, door):
            asked = line.replace(b"%d", str(port).encode())
            answer = await said(door, asked + b"\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert gate.take_refused() == ((told,) if told else ())
            assert heads == []

    asyncio.run(ask())


def test_no_name_leads_to_this_machine() -> None:
    async def ask() -> None:
        heads: list[bytes] = []
        async with server(heads) as port, proxy([f"localhost:{port}"]) as (_, door):
            answer = await said(door, b"CONNECT localhost:%d HTTP/1.1\r\n\r\n" % port)
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert b"loopback" in answer
            assert heads == []

    asyncio.run(ask())


def test_what_one_connection_does_ends_no_other() -> None:
    async def ask() -> None:
        heads: list[bytes] = []
        async with server(heads) as port, proxy([f"127.0.0.1:{port}", "127.0.0.1:1"]) as (_, door):
            silent = await asyncio.open_connection("127.0.0.1", door)
            assert (await said(door, b"x" * 70_000)).startswith(b"HTTP/1.1 431 ")
            refused = await said(door, b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n")
            assert refused.startswith(b"HTTP/1.1 502 ")
            gone = await asyncio.open_connection("127.0.0.1", door)
            gone[1].transport.abort()
            text = b"GET http://127.0.0.1:%d/ HTTP/1.0\r\n\r\n" % port
            assert (await said(door, text)).endswith(b"here")
            silent[1].close()

    asyncio.run(ask())


@pytest.mark.spec("SEC-13")
def test_answers_that_nobody_reads_are_a_bounded_number_and_end_with_the_proxy() -> None:
    most, attempts = 8, 40

    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 8_000_000)
            await writer.drain()
        writer.close()

    async def ask() -> None:
        before = opened()
        serving = await asyncio.start_server(much, "127.0.0.1", 0)
        port = serving.sockets[0].getsockname()[1]
        clients: list[socket.socket] = []
        async with serving, proxy([f"127.0.0.1:{port}"]) as (_, door):
            for _ in range(attempts):
                client = socket.create_connection(("127.0.0.1", door))
                clients.append(client)
                client.sendall(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n\r\n" % port)
                await asyncio.sleep(0.05)
                client.shutdown(socket.SHUT_WR)  # and never reads
            await asyncio.sleep(0.3)
            assert opened() - before - len(clients) < 3 * most
        assert opened() - before <= len(clients) + 1
        for client in clients:
            client.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentcli.wire.host_proxy._MOST_CONNECTIONS", most)
        asyncio.run(ask())


@pytest.mark.spec("SEC-13")
def test_a_connection_in_which_nothing_comes_any_more_ends() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def ask() -> None:
        serving = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = serving.sockets[0].getsockname()[1]
        async with serving, proxy([f"127.0.0.1:{port}"]) as (_, door):
            answer = await said(door, b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
            assert answer.startswith(b"HTTP/1.1 200 ")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentcli.wire.host_proxy._IDLE_S", 0.2)
        asyncio.run(ask())


def test_a_named_host_that_cannot_be_reached_is_told_until_it_is() -> None:
    async def ask() -> None:
        gone = socket.create_server(("127.0.0.1", 0))
        port = gone.getsockname()[1]
        gone.close()
        name, here = "no.such.host.invalid:443", f"127.0.0.1:{port}"
        async with proxy([name, here]) as (gate, door):
            await said(door, b"CONNECT %b HTTP/1.1\r\n\r\n" % name.encode())
            await said(door, b"CONNECT %b HTTP/1.1\r\n\r\n" % here.encode())
            (first, why), (second, _) = gate.take_failed()
            assert (first, second) == (name, here)
            assert "cannot be resolved (DNS)" in why
            assert gate.take_failed() == ()
            assert gate.take_refused() == ()
            await said(door, b"CONNECT %b HTTP/1.1\r\n\r\n" % here.encode())
            serving = await asyncio.start_server(lambda _, there: there.close(), "127.0.0.1", port)
            async with serving:
                await said(door, b"CONNECT %b HTTP/1.1\r\n\r\n" % here.encode())
            assert gate.take_failed() == ()

    asyncio.run(ask())
