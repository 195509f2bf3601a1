"""Lets what runs in the sandbox through to the hosts that the user has named (SEC-18).

A proxy as programs know it from ``HTTPS_PROXY``: ``CONNECT`` and whole URLs. Law: a connection goes
to the very address that was checked, of a host that is named, at its usual ports or the one that
is named; addresses that are not public only where the user wrote that very host, and this machine's
own only as an address. What comes from inside is hostile: heads, connections and waits are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from agentcli.domain.sandbox import is_named
from agentcli.wire.address import Address, BadAddress, Target, parse_url, why_not_public

if TYPE_CHECKING:
    from httpcore import AsyncNetworkStream

_MOST_CONNECTIONS = 64
_MAX_HEAD = 64 * 1024
_HEAD_S = 30.0
_IDLE_S = 600.0
_AGAIN_S = 0.1
_PIECE = 64 * 1024
_MOST_TOLD = 20
# RFC 9110, section 7.6.1: what concerns this connection alone
_HOP_BY_HOP = (b"proxy-", b"connection:", b"keep-alive:", b"host:", b"te:", b"upgrade:")
_TUNNEL = "CONNECT"


class HostProxy:
    """Implements ``HostGate``. ``hosts`` are as ``plain_host`` writes them."""

    def __init__(self) -> None:
        self.hosts: tuple[str, ...] = ()
        self._refused: dict[str, None] = {}
        self._failed: dict[str, str] = {}

    def take_refused(self) -> tuple[str, ...]:
        """See the port."""
        refused, self._refused = tuple(self._refused), {}
        return refused

    def take_failed(self) -> tuple[tuple[str, str], ...]:
        """See the port."""
        failed, self._failed = tuple(self._failed.items()), {}
        return failed

    async def serve(self, listener: socket.socket) -> None:
        """Answer what connects to ``listener``, until this is cancelled."""
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(_MOST_CONNECTIONS)
        async with asyncio.TaskGroup() as group:
            while True:
                await places.acquire()
                connection = await _accepted(loop, listener)
                answering = group.create_task(self._answer(connection))
                answering.add_done_callback(lambda _: places.release())

    async def _answer(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_HEAD)
        try:
            await self._talk(reader, writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()  # who does not read the rest keeps its place
        finally:
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._let_through(head, reader, writer)
        except asyncio.LimitOverrunError:
            await _refuse(writer, "431 Request Header Fields Too Large", "the head is too long")
        except BadAddress as problem:
            await _refuse(writer, "403 Forbidden", str(problem))
        except (OSError, EOFError):  # it has gone, or says nothing
            pass
        except Exception as problem:  # noqa: BLE001 - one connection ends no other
            await _refuse(writer, "502 Bad Gateway", str(problem) or "no connection")

    async def _let_through(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from agentcli.wire.pinned import AddressRules, connected

        method, target = _asked_for(head)
        is_itself = is_named(self.hosts, target.host, target.port)
        host = f"[{target.host}]" if ":" in target.host else target.host
        wanted = f"{host}:{target.port}"  # as the user would allow it
        if is_itself is None:
            if len(self._refused) < _MOST_TOLD:
                self._refused[wanted] = None
            raise BadAddress(f"{wanted} is not among the hosts that the user has allowed")
        rules = AddressRules(judge=_judge_for(target, is_itself=is_itself))
        async with contextlib.AsyncExitStack() as stack:
            try:
                there = await stack.enter_async_context(connected(target, rules))
            except Exception as problem:
                if len(self._failed) < _MOST_TOLD:
                    self._failed[wanted] = str(problem) or "no answer"
                raise
            self._failed.pop(wanted, None)
            if method == _TUNNEL:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                await there.write(_for_server(head, method, target))
            await _relay(reader, writer, there)


async def _accepted(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> socket.socket:
    while True:
        try:
            return (await loop.sock_accept(listener))[0]
        except OSError:  # too many open files, or the client has gone
            await asyncio.sleep(_AGAIN_S)


def _asked_for(head: bytes) -> tuple[str, Target]:
    """The method, and where to; raises ``BadAddress``."""
    words = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split(" ")
    is_request = len(words) == len(("method", "target", "version")) and words[0].isalpha()
    if not is_request or not words[2].startswith("HTTP/1."):
        raise BadAddress("that is no request to a proxy")
    method, text, _ = words
    target = parse_url(f"https://{text}/" if method == _TUNNEL else text)
    is_known = target.path == "/" if method == _TUNNEL else target.scheme == "http"
    if not is_known:
        raise BadAddress("that is no request to a proxy")
    return method, target


def _judge_for(target: Target, *, is_itself: bool) -> Callable[[Address], str]:
    """Which addresses the host may have; ``is_itself``: it is named, not one above it."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(target.host)
        return lambda _: ""  # the user wrote this address

    def judge(address: Address) -> str:
        kind = why_not_public(address)
        return "" if is_itself and kind == "private" else kind

    return judge


def _for_server(head: bytes, method: str, target: Target) -> bytes:
    """The head as the server itself is asked, on a connection that is used once."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
    kept = [line for line in lines if not line.lower().startswith(_HOP_BY_HOP)]
    first = [
        f"{method} {target.path} HTTP/1.1".encode("ascii"),
        f"Host: {target.authority}".encode("ascii"),
        b"Connection: close",
    ]
    return b"\r\n".join([*first, *kept, b"", b""])


async def _refuse(writer: asyncio.StreamWriter, status: str, why: str) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    with contextlib.suppress(OSError):
        writer.write(f"{head}agentcli: {why}\n".encode("utf-8", "replace"))
        await writer.drain()


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: AsyncNetworkStream
) -> None:
    """Carry bytes both ways until one side has ended, or nothing has come for long."""
    loop = asyncio.get_running_loop()

    async def drained(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    async with asyncio.timeout(_IDLE_S) as idle, asyncio.TaskGroup() as both:

        def came() -> None:
            idle.reschedule(loop.time() + _IDLE_S)

        ways = {
            both.create_task(_carry(lambda: reader.read(_PIECE), there.write, came)),
            both.create_task(_carry(lambda: there.read(_PIECE), drained, came)),
        }
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()


async def _carry(
    read: Callable[[], Awaitable[bytes]],
    write: Callable[[bytes], Awaitable[None]],
    came: Callable[[], None],
) -> None:
    from httpcore import NetworkError

    with contextlib.suppress(OSError, NetworkError):
        while data := await read():
            came()
            await write(data)
