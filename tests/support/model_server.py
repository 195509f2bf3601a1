"""A model service on the loopback interface that speaks the real protocols, and means it.

``ModelServer`` runs in a thread with a loop of its own, so that a test of any kind, a child
process and a terminal can all talk to it. It plays a script of replies, records every request
and refuses a malformed history as the real services do; what it refused is in ``violations``.
Law: a request that was refused uses up no reply.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

from tests.support import wire_anthropic, wire_gemini, wire_openai, wire_responses
from tests.support.playback import ClientLeft, Connection, Dropped, Event, marks_of, steps_of
from tests.support.replies import Reply, say
from tests.support.service import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    RESPONSES,
    Recorded,
    encode,
    error_body,
    gemini_model,
    model_list,
    named,
    problem_of,
    remember,
    remember_parts,
    unauthorised,
)
from tests.support.strict import Issued, Problem

__all__ = ["ANTHROPIC", "GEMINI", "OPENAI", "RESPONSES", "ModelServer", "Recorded", "Scripted"]

_PING_S = 0.02
_WIRES: dict[str, Any] = {
    ANTHROPIC: wire_anthropic,
    OPENAI: wire_openai,
    RESPONSES: wire_responses,
    GEMINI: wire_gemini,
}

Scripted = Reply | str | Callable[[Recorded], Reply | str]


class ModelServer:
    """See the module. ``script`` may grow while the server runs; after it, ``default`` answers."""

    def __init__(
        self,
        script: Iterable[Scripted] = (),
        *,
        default: Scripted | None = None,
        api_key: str | None = None,
        strict: bool = True,
        models: Iterable[str] = ("claude-sonnet-4-5", "gpt-4.1"),
    ) -> None:
        self._script: list[Scripted] = list(script)
        self.default = default
        self.api_key = api_key
        self.strict = strict
        self.models = list(models)
        self.allow_reasoning = False
        """Whether ``reasoning_content`` may come back, as some compatible servers want it."""
        self.routes: dict[tuple[str, str], tuple[int, Any]] = {}
        """(method, path) -> (status, JSON value) of anything else that should answer."""
        self.issued = Issued()
        self.requests: list[Recorded] = []
        """Requests for a reply, in order of arrival; see ``others`` for the rest."""
        self.others: list[Recorded] = []
        self.violations: list[str] = []
        self._changed = threading.Condition()
        self._number = 0
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.port = 0

    # --- life ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="model-server")
        self._thread.start()
        if not ready.wait(10):
            raise TimeoutError("the model server did not start")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; replies that are held are abandoned."""
        if self._thread is None or self._loop is None:
            return
        self._closing = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._thread = None

    def _run(self, ready: threading.Event) -> None:
        asyncio.run(self._main(ready))

    async def _main(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await self._listen()
        ready.set()
        await self._stop.wait()
        await self._stop_listening()
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            writer.transport.abort()  # a task that had not begun did not
        await self._some_ticks()

    async def _some_ticks(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _listen(self) -> None:
        """Accept connections, at the same port as before if there was one."""
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, limit=2**20
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener.fileno())
        await self._some_ticks()  # what was accepted just now begins, which a closed server forbids
        self._server.close()

    @property
    def url(self) -> str:
        """Scheme, host and port; also the base URL for Anthropic."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The base URL for Chat Completions and for the Responses API."""
        return f"{self.url}/v1"

    def base_url(self, protocol: str) -> str:
        """The base URL for a protocol, by the name of its kind."""
        return self.url if protocol in {ANTHROPIC, GEMINI} else self.openai_url

    # --- what tests ask ----------------------------------------------------------------------

    def add(self, *replies: Scripted) -> None:
        """Append to the script."""
        with self._changed:
            self._script.extend(replies)

    def restart(self, *replies: Scripted) -> None:
        """Forget what is left of the script and begin another."""
        with self._changed:
            self._script[:] = replies

    @property
    def left_to_say(self) -> int:
        """Replies of the script that nobody has asked for yet."""
        return len(self._script)

    def wait_for_requests(self, count: int, timeout: float = 10.0) -> Recorded:
        """Block until ``count`` requests have arrived; returns the last of them."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, timeout):
                raise AssertionError(
                    f"{len(self.requests)} of {count} requests within {timeout} s;"
                    f" violations: {self.violations}"
                )
            return self.requests[count - 1]

    def wait_until_waiting(self, count: int = 1, timeout: float = 10.0) -> Recorded:
        """Block until request ``count`` (from 1) has reached its hold or stall."""
        request = self.wait_for_requests(count, timeout)
        deadline = time.monotonic() + timeout
        while not request.waiting.wait(0.02):
            assert not request.finished.is_set(), f"request {count} ended before its hold"
            assert time.monotonic() < deadline, f"request {count} never came to its hold"
        return request

    def wait_until_finished(self, count: int = 1, timeout: float = 10.0) -> Recorded:
        """Block until the server is done with request ``count`` (from 1)."""
        request = self.wait_for_requests(count, timeout)
        assert request.finished.wait(timeout), f"request {count} is still being served"
        return request

    async def arrived(self, count: int, timeout: float = 10.0) -> Recorded:
        """``wait_for_requests`` for a test that runs in a loop."""
        return await asyncio.to_thread(self.wait_for_requests, count, timeout)

    async def holding(self, count: int = 1, timeout: float = 10.0) -> Recorded:
        """``wait_until_waiting`` for a test that runs in a loop."""
        return await asyncio.to_thread(self.wait_until_waiting, count, timeout)

    # --- one connection ------------------------------------------------------------------------

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            while (request := await connection.read_request()) is not None:
                await self._answer(connection, request)
        except (ClientLeft, Dropped, ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            if not self._closing:
                raise
        finally:
            writer.transport.abort()

    async def _answer(
        self, connection: Connection, request: tuple[str, str, dict[str, str], bytes]
    ) -> None:
        method, target, headers, raw = request
        path = target.partition("?")[0]
        recorded = Recorded(method, target, headers, raw, time.monotonic())
        plain = path.removeprefix("/anthropic").removeprefix("/openai")  # as clouds have them
        if (method, plain) == ("POST", "/v1/messages"):
            recorded.protocol = ANTHROPIC
        elif (method, plain) == ("POST", "/v1/chat/completions"):
            recorded.protocol = OPENAI
        elif (method, plain) == ("POST", "/v1/responses"):
            recorded.protocol = RESPONSES
        elif method == "POST" and gemini_model(path) is not None:
            recorded.protocol = GEMINI
        else:
            self.others.append(recorded)
            await self._other(connection, method, path, headers)
            return
        with self._changed:
            self.requests.append(recorded)
            self._changed.notify_all()
        try:
            await self._reply_to(connection, recorded)
        except (ClientLeft, ConnectionError, asyncio.IncompleteReadError):
            recorded.client_left = True
            raise
        finally:
            recorded.body_bytes = connection.body_bytes
            recorded.finished.set()

    async def _other(
        self, connection: Connection, method: str, path: str, headers: dict[str, str]
    ) -> None:
        protocol = ANTHROPIC if "anthropic-version" in headers else OPENAI
        route = self.routes.get((method, path))
        if route is not None:
            await connection.send_json(*route)
        elif (method, path) != ("GET", "/v1/models"):
            message = f"Not found: {method} {path}"
            await connection.send_json(404, error_body(protocol, "not_found", message))
        elif (refusal := unauthorised(self.api_key, protocol, headers)) is not None:
            await connection.send_json(401, refusal)
        else:
            await connection.send_json(200, model_list(protocol, self.models))

    # --- one request ----------------------------------------------------------------------------

    async def _reply_to(self, connection: Connection, recorded: Recorded) -> None:
        protocol = recorded.protocol
        refusal = unauthorised(self.api_key, protocol, recorded.headers)
        if refusal is not None:
            status = refusal["error"]["code"] if protocol == GEMINI else 401
            await connection.send_json(status, refusal)
            return
        problem = problem_of(
            recorded, self.issued, strict=self.strict, allow_reasoning=self.allow_reasoning
        )
        events: list[Event] = []
        if problem is None:
            try:
                recorded.reply, events = self._next(recorded)
            except Exception as error:  # the script's own fault: the test shall see it
                problem = Problem(f"script: {error!r}")
        if problem is not None or recorded.reply is None:
            recorded.violation = problem or Problem("the script has no reply left")
            self.violations.append(recorded.violation)
            body = error_body(protocol, "bad_request", recorded.violation)
            await connection.send_json(400, body)
            return
        await self._play(connection, recorded, recorded.reply, events)

    def _next(self, recorded: Recorded) -> tuple[Reply | None, list[Event]]:
        with self._changed:
            chosen = self._script.pop(0) if self._script else self.default
        if chosen is None:
            return None, []
        if callable(chosen):
            chosen = chosen(recorded)
        reply = say(chosen) if isinstance(chosen, str) else chosen
        self._number += 1
        model = recorded.model
        blocks = tuple(
            named(block, (self._number, index), model, recorded.protocol)
            for index, block in enumerate(reply.blocks)
        )
        reply = replace(reply, blocks=blocks)
        if recorded.protocol == RESPONSES:
            output = wire_responses.output_of(reply, recorded.body, self._number)
            self.issued.responses.remember(model, output)
        elif recorded.protocol == GEMINI:
            remember_parts(self.issued, blocks, recorded, self._number)
        else:
            remember(self.issued, blocks, recorded.body)
        events = encode(recorded, reply, self._number)
        marks_of(reply, events)
        return reply, events

    # --- the answer -----------------------------------------------------------------------------

    async def _play(
        self, connection: Connection, recorded: Recorded, reply: Reply, events: list[Event]
    ) -> None:
        wire = _WIRES[recorded.protocol]
        id_header = "request-id" if recorded.protocol == ANTHROPIC else "x-request-id"
        headers = {id_header: f"req_{self._number:024d}"}
        marks = marks_of(reply, events)
        for _, action in [mark for mark in marks if mark[0] < 0]:
            await self._act(action, connection, recorded, b"")
        if reply.body is not None:
            await connection.send_whole(reply.status, reply.body, {**headers, **reply.headers})
            return
        if reply.error is not None:
            value = error_body(recorded.protocol, reply.error)
            await connection.send_json(reply.status, value, **headers, **reply.headers)
            return
        await connection.start_stream(reply, headers)
        if reply.ping_only:
            recorded.waiting.set()
            while True:
                await connection.send(wire.PING)
                await asyncio.sleep(reply.delay_s or _PING_S)
        for step in steps_of(reply, events, marks):
            if isinstance(step, bytes):
                await connection.send(step)
                if reply.delay_s:
                    await asyncio.sleep(reply.delay_s)
            elif await self._act(step, connection, recorded, wire.error_event(reply.error_kind)):
                break
        await connection.end_stream()

    async def _act(
        self, action: str, connection: Connection, recorded: Recorded, error: bytes
    ) -> bool:
        """Do one fault; True when the stream ends with it."""
        reply = recorded.reply
        assert reply is not None
        if action in {"hold", "stall"}:
            gate = reply.hold if action == "hold" else None
            recorded.waiting.set()
            await connection.wait_while(lambda: gate is None or not gate.is_set())
        elif action == "garbage":
            await connection.send(reply.garbage)
        elif action == "drop":
            await connection.wait_while(connection.unsent)
            connection.reset()
            raise Dropped
        else:
            if action == "error":
                await connection.send(error)
            return True
        return False
