"""The protocol on the standard streams of this process (ACP-2).

Laws: nothing but the protocol leaves on the real standard output: what anything else prints goes
to stderr, and no program that is started inherits either stream; a client that does not read
never blocks the loop; the end of stdin, a signal and a reader that left end the run alike.
https://agentclientprotocol.com/protocol/v1/transports
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from agentcli.acp.agent import EditorAgent, EditorHost
from agentcli.rpc.connection import Connection
from agentcli.rpc.messages import OverlongLine, read_lines

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_WRITE_BYTES = 1 << 18


class ClientStreams:
    """The two streams of the client, taken away from everything else of the process."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(_STDIN), os.dup(_STDOUT)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, _STDIN)
        os.close(null)
        os.dup2(_STDERR, _STDOUT)
        self._was_blocking = os.get_blocking(self._out)
        os.set_blocking(self._out, os.isatty(self._out))
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Nothing more is read."""
        self._ended.set()

    async def read(self, size: int) -> bytes:
        """What has come; nothing at the end."""
        await self._ready(self._in, is_write=False)
        if self._ended.is_set():
            return b""
        try:
            return os.read(self._in, size)
        except BlockingIOError:
            return await self.read(size)

    async def write_line(self, line: bytes) -> None:
        """Send a line; raises ``OSError`` when the reader has left."""
        left = memoryview(line + b"\n")
        while left:
            try:
                left = left[os.write(self._out, left[:_WRITE_BYTES]) :]
            except BlockingIOError:
                await self._ready(self._out, is_write=True)

    async def _ready(self, descriptor: int, *, is_write: bool) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        begin, stop = (
            (loop.add_writer, loop.remove_writer)
            if is_write
            else (loop.add_reader, loop.remove_reader)
        )
        try:
            begin(descriptor, ready.set)
        except (OSError, ValueError):  # a file is always ready
            await asyncio.sleep(0)
            return
        waits = [asyncio.ensure_future(ready.wait())]
        if not is_write:
            waits.append(asyncio.ensure_future(self._ended.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop(descriptor)
            for wait in waits:
                wait.cancel()

    def close(self) -> None:
        """Give the streams back as they were."""
        with suppress(OSError):
            os.set_blocking(self._out, self._was_blocking)
        os.dup2(self._in, _STDIN)
        os.dup2(self._out, _STDOUT)
        os.close(self._in)
        os.close(self._out)


def serve(host: EditorHost) -> int:
    """Serve the client on the standard streams until it leaves; the exit code."""
    return asyncio.run(_serve(host))


async def _serve(host: EditorHost) -> int:
    streams = ClientStreams()
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        streams.end()

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    agent = EditorAgent(host)

    async def send(line: bytes) -> None:
        await streams.write_line(host.redact(line.decode()).encode())

    agent.connection = Connection(
        send,
        agent,
        cancel_notice=lambda number, _: ("$/cancel_request", {"requestId": number}),
        strict=True,
    )
    try:
        await agent.connection.run(_until_gone(streams, agent.leave))
    finally:
        await agent.aclose()
        streams.close()
    return 128 + caught[0] if caught else 0


async def _until_gone(
    streams: ClientStreams, leave: Callable[[], None]
) -> AsyncIterator[bytes | OverlongLine]:
    """The lines of the client; ``leave`` is called when there are no more."""
    try:
        async for line in read_lines(streams.read):
            yield line
    finally:
        leave()
