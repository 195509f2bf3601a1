"""A model service for measurements: a prepared reply, sent as fast as the socket takes it.

It notes when each request arrived. Runs in a process of its own, so that it shares no
interpreter with what is measured. Usage: service.py CHUNKS, prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

WORDS = "The quick brown fox jumps over the lazy dog and goes on its way. ".split(" ")
MARKDOWN_EVERY = 60


def chunk(index: int) -> str:
    if index and index % MARKDOWN_EVERY == 0:
        return f"\n\n## Part {index // MARKDOWN_EVERY}\n\n- **point** `code`\n\n"
    return WORDS[index % len(WORDS)] + " "


def event(name: str, data: dict[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def reply(chunks: int) -> list[bytes]:
    usage = {"input_tokens": 10, "output_tokens": chunks}
    start = {
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "content": [],
            "model": "m", "stop_reason": None, "usage": usage,
        }
    }  # fmt: skip
    deltas = [
        event(
            "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": chunk(i)}}
        )
        for i in range(chunks)
    ]
    return [
        event("message_start", start),
        event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        *deltas,
        event("content_block_stop", {"index": 0}),
        event("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": usage}),
        event("message_stop", {}),
    ]


async def main(chunks: int) -> None:
    events = reply(chunks)
    arrivals: list[float] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            at = time.time()
            if head.startswith(b"GET /arrivals"):
                body = json.dumps(arrivals).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                arrivals.clear()
            else:
                arrivals.append(at)
                size = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                await reader.readexactly(size)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                )
                for data in events:
                    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
