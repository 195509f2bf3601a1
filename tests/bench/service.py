"""A model service for measurements: a prepared reply, sent as fast as the socket takes it.

It notes when each request arrived. Runs in a process of its own, so that it shares no
interpreter with what is measured. It speaks Anthropic's Messages and OpenAI's Responses, by the
path of the request.

Usage: service.py CHUNKS [--delay SECONDS] [--shell] [--tls CERTIFICATE KEY], prints its port, and
with a certificate a second one, of the same over TLS. ``--shell``: the model first asks for
``echo hi`` in a shell.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import time
from typing import Any

WORDS = "The quick brown fox jumps over the lazy dog and goes on its way. ".split(" ")
MARKDOWN_EVERY = 60
SHELLS: dict[str, dict[str, Any]] = {
    "bash": {"command": "echo hi"},
    "exec_command": {"cmd": "echo hi"},
    "shell_command": {"command": "echo hi"},
    "shell": {"command": ["bash", "-lc", "echo hi"]},
}


def chunk(index: int) -> str:
    if index and index % MARKDOWN_EVERY == 0:
        return f"\n\n## Part {index // MARKDOWN_EVERY}\n\n- **point** `code`\n\n"
    return WORDS[index % len(WORDS)] + " "


def event(name: str, data: dict[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def messages(texts: list[str], call: tuple[str, dict[str, Any]] | None) -> list[bytes]:
    """A reply of https://platform.claude.com/docs/en/build-with-claude/streaming."""
    usage = {"input_tokens": 10, "output_tokens": len(texts)}
    start = {
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "content": [],
            "model": "m", "stop_reason": None, "usage": usage,
        }
    }  # fmt: skip
    if call is None:
        block: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": text} for text in texts]
    else:
        block = {"type": "tool_use", "id": "toolu_1", "name": call[0], "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(call[1])}]
    stop = "end_turn" if call is None else "tool_use"
    return [
        event("message_start", start),
        event("content_block_start", {"index": 0, "content_block": block}),
        *(event("content_block_delta", {"index": 0, "delta": delta}) for delta in deltas),
        event("content_block_stop", {"index": 0}),
        event("message_delta", {"delta": {"stop_reason": stop}, "usage": usage}),
        event("message_stop", {}),
    ]


def responses(texts: list[str], call: tuple[str, dict[str, Any]] | None) -> list[bytes]:
    """A reply of https://platform.openai.com/docs/api-reference/responses-streaming."""
    response: dict[str, Any] = {"id": "resp_1", "object": "response", "model": "m", "output": []}
    if call is None:
        whole = "".join(texts)
        part = {"type": "output_text", "text": whole, "annotations": []}
        item: dict[str, Any] = {"type": "message", "id": "item_1", "role": "assistant"}
        item |= {"content": [part], "status": "completed"}
        place = {"item_id": "item_1", "output_index": 0, "content_index": 0}
        inner = [
            event(
                "response.output_item.added", {"output_index": 0, "item": {**item, "content": []}}
            ),
            event("response.content_part.added", {**place, "part": {**part, "text": ""}}),
            *(event("response.output_text.delta", {**place, "delta": text}) for text in texts),
            event("response.output_text.done", {**place, "text": whole}),
            event("response.content_part.done", {**place, "part": part}),
        ]
    else:
        item = {"type": "function_call", "id": "item_1", "call_id": "call_1", "name": call[0]}
        item |= {"arguments": json.dumps(call[1]), "status": "completed"}
        inner = [event("response.output_item.added", {"output_index": 0, "item": item})]
    usage = {"input_tokens": 10, "output_tokens": len(texts), "total_tokens": 10 + len(texts)}
    usage |= {"input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    ended = {**response, "status": "completed", "output": [item], "usage": usage}
    return [
        event("response.created", {"response": {**response, "status": "in_progress"}}),
        *inner,
        event("response.output_item.done", {"output_index": 0, "item": item}),
        event("response.completed", {"response": ended}),
    ]


def wanted_call(body: bytes) -> tuple[str, dict[str, Any]] | None:
    """The shell call that the model asks for, unless its result is there already."""
    if b'"tool_result"' in body or b'"function_call_output"' in body:
        return None
    offered = {tool.get("name") for tool in json.loads(body).get("tools", [])}
    return next(((name, values) for name, values in SHELLS.items() if name in offered), None)


class Service:
    """The replies, and when requests arrived."""

    def __init__(self, chunks: int, delay_s: float, *, asks_for_shell: bool) -> None:
        texts = [chunk(i) for i in range(chunks)]
        self._prepared = {False: messages(texts, None), True: responses(texts, None)}
        self._delay_s = delay_s
        self._asks_for_shell = asks_for_shell
        self._arrivals: list[float] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its answer."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = time.time()
            if head.startswith(b"get /arrivals"):
                said = json.dumps(self._arrivals).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
                self._arrivals.clear()
            elif not head.startswith(b"post"):  # a list of models, for example
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            else:
                self._arrivals.append(at)
                lines = head.split(b"\r\n")
                sizes = (
                    int(each.split(b":")[1]) for each in lines if each[:15] == b"content-length:"
                )
                await self._reply(writer, head, await reader.readexactly(next(sizes)))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def _reply(self, writer: asyncio.StreamWriter, head: bytes, body: bytes) -> None:
        speaks_responses = b"/responses " in head.split(b"\r\n")[0]
        call = wanted_call(body) if self._asks_for_shell else None
        encode = responses if speaks_responses else messages
        events = encode([], call) if call else self._prepared[speaks_responses]
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        for data in events:
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("chunks", type=int)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--shell", action="store_true")
    parser.add_argument("--tls", nargs=2)
    given = parser.parse_args()
    service = Service(given.chunks, given.delay, asks_for_shell=given.shell)
    server = await asyncio.start_server(service.handle, "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1]]
    if given.tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*given.tls)
        secure = await asyncio.start_server(service.handle, "127.0.0.1", 0, ssl=context)
        ports.append(secure.sockets[0].getsockname()[1])
    print(*ports, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
