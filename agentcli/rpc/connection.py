"""One connection to a JSON-RPC 2.0 peer, for both directions (https://www.jsonrpc.org/specification).

Laws: every request of ours ends exactly once, with the peer's first answer, an error, the end of
the connection, its time-out or its cancellation; what is answered later, twice or to nobody is
dropped. Every request of the peer gets exactly one answer, whatever its handler does. Messages
leave whole and in order. ``run`` owns every task: when it has ended nothing is left of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.values import frozen
from agentcli.rpc.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MAX_MESSAGE_BYTES,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    MalformedMessage,
    OverlongLine,
    RequestId,
    RpcError,
    TooMuch,
    beginning_of,
    decode,
    encode,
    error_of,
)

MAX_UNSENT_BYTES = 1024 * 1024
MAX_ANSWERING = 256
END_S = 1.0
_LAST_ANSWERS_S = 0.2
_MAX_BACKLOG_BYTES = 4 * MAX_MESSAGE_BYTES
_ID_CHARS = 200  # an answer repeats it
_ENTRY_BYTES = 128  # what a line costs beside its length
_THREAD_BYTES = 256 * 1024
log = logging.getLogger(__name__)

CancelNotice = Callable[[int, str], tuple[str, Mapping[str, Any]] | None]
"""What tells the peer that request ``id`` of ``method`` is given up; ``None``: nothing does."""


class ConnectionClosed(Exception):
    """The connection has ended; the text says why."""


@frozen
class IncomingRequest:
    """A request of the peer. ``params`` are by name; those by position are under ``"params"``."""

    id: RequestId
    method: str
    params: Mapping[str, Any]


class Handler(Protocol):
    """What serves the peer."""

    async def answer(self, request: IncomingRequest) -> Any:
        """The result, as JSON; raises ``RpcError`` to answer with an error.

        Each runs as a task of its own, begun in the order of arrival.
        """

    def notice(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification; called in the order of arrival, must not block."""


class Deaf:
    """Serves nothing."""

    async def answer(self, request: IncomingRequest) -> Any:
        """Refuse it."""
        raise RpcError(METHOD_NOT_FOUND, f"{request.method} is not served here")

    def notice(self, method: str, params: Mapping[str, Any]) -> None:
        """Ignore it."""


class Patience:
    """How long a request may take: ``idle_s`` since it was last ``renew``-ed, ``total_s`` in all.

    ``None`` means without limit. Serves one request.
    """

    def __init__(self, idle_s: float | None = None, total_s: float | None = None) -> None:
        self._idle_s = idle_s
        self._total_s = total_s
        self._end: float | None = None
        self._limit: asyncio.Timeout | None = None

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Raises ``TimeoutError`` when it is over."""
        loop = asyncio.get_running_loop()
        self._end = None if self._total_s is None else loop.time() + self._total_s
        try:
            async with asyncio.timeout_at(self._when()) as self._limit:
                yield
        finally:
            self._limit = None  # what is asked between two requests finds none

    def renew(self) -> None:
        """The peer is at work."""
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(self._when())

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Within the block only ``total_s`` counts: the peer waits for somebody else."""
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(self._end)
        try:
            yield
        finally:
            self.renew()

    def _when(self) -> float | None:
        now = asyncio.get_running_loop().time()
        ends = [self._end, None if self._idle_s is None else now + self._idle_s]
        return min((end for end in ends if end is not None), default=None)


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """``work`` as a task for as long as the block runs; it is cancelled and joined at its end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await uninterruptible(_joined(task))


async def _joined(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a connection failed", exc_info=error)


class Connection:
    """See the module. ``send`` takes one line (without its end) and is never called twice at once.

    ``strict`` peers are told of what is not a message; for others (a server that logs to its
    standard output) it is ignored.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        handler: Handler | None = None,
        *,
        cancel_notice: CancelNotice | None = None,
        strict: bool = False,
    ) -> None:
        self._send = send
        self._handler: Handler = handler or Deaf()
        self._cancel_notice = cancel_notice
        self._strict = strict
        self._last_id = 0
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._answering: dict[RequestId, asyncio.Task[bytes]] = {}
        self._unsent: deque[tuple[bytes, int | None]] = deque()
        self._unsent_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._closed: str | None = None
        self._ending = False
        self._stuck: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def closed(self) -> str | None:
        """Why it has ended; ``None`` while it has not."""
        return self._closed

    async def run(self, lines: AsyncIterable[bytes | OverlongLine]) -> None:
        """Serve the connection until ``lines`` end, or nothing can be sent any more.

        Handlers that still run then are cancelled, and what is unsent has ``END_S`` to leave.
        """
        why = "the connection was closed"
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(lines, tasks))
                writing = tasks.create_task(self._write())
                await asyncio.wait(
                    {reading, writing, self._stuck}, return_when=asyncio.FIRST_COMPLETED
                )
                ends = [end for end in (self._stuck, writing, reading) if end.done()]
                why = ends[0].result()
                if ends == [reading]:
                    self.close(why)
                    await self._finish(writing)
                for task in (reading, writing, *self._answering.values()):
                    task.cancel()
        finally:
            self.close(why)

    async def _finish(self, writing: asyncio.Task[str]) -> None:
        """The peer sends no more: let it have the answers that are ready."""
        if answering := tuple(self._answering.values()):
            await asyncio.wait(answering, timeout=_LAST_ANSWERS_S)
            for task in answering:
                task.cancel()
            await asyncio.wait(answering, timeout=END_S)
        self._ending = True
        self._changed.set()
        await asyncio.wait({writing}, timeout=END_S)

    def close(self, why: str) -> None:
        """End what waits for the peer; ``run`` is not ended by it. May be called again."""
        if self._closed is None:
            self._closed = why
        self._room.set()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionClosed(self._closed))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, patience: Patience | None = None
    ) -> Any:
        """The result of the peer.

        Raises ``RpcError``, ``ConnectionClosed``, and ``TimeoutError`` when ``patience`` is over.
        After that, and when the caller is cancelled, the peer is told that it is given up.
        """
        self._last_id += 1
        number = self._last_id
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method}
        if params is not None:
            message["params"] = params
        self._pending[number] = answer
        try:
            async with (patience or Patience()).limit():
                await self._put(encode(message), number)
                return await answer
        except (TimeoutError, asyncio.CancelledError):
            self._give_up(number, method)
            raise
        finally:
            del self._pending[number]
            if answer.done() and not answer.cancelled():
                answer.exception()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification; waits while too much is unsent. Raises ``ConnectionClosed``."""
        message: dict[str, Any] = {"method": method}
        if params is not None:
            message["params"] = params
        await self._put(encode(message))

    def post(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification without waiting: a peer that never reads ends the connection."""
        if self._closed is None:
            self._put_now(encode({"method": method, "params": params}))

    def after(self, request: RequestId, then: Callable[[], None]) -> None:
        """Call ``then`` when the peer's request has its answer on the way."""
        if (task := self._answering.get(request)) is not None:
            task.add_done_callback(lambda _: then())

    def fail(self, number: int, error: Exception) -> None:
        """Request ``number`` ends with ``error`` unless it has been answered."""
        answer = self._pending.get(number)
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def cancel(self, request: RequestId) -> None:
        """The peer has given its request up; it is answered with ``REQUEST_CANCELLED``."""
        if (task := self._answering.get(request)) is not None:
            task.cancel()

    # --- out -------------------------------------------------------------------------------------

    async def _put(self, line: bytes, number: int | None = None) -> None:
        while self._closed is None and self._unsent_bytes > MAX_UNSENT_BYTES:
            self._room.clear()
            await self._room.wait()
        if self._closed is not None:
            raise ConnectionClosed(self._closed)
        self._put_now(line, number)

    def _put_now(self, line: bytes, number: int | None = None) -> None:
        self._unsent.append((line, number))
        self._unsent_bytes += len(line) + _ENTRY_BYTES
        self._changed.set()
        if self._unsent_bytes > _MAX_BACKLOG_BYTES and not self._stuck.done():
            self._stuck.set_result("the other side does not read what it is sent")

    async def _write(self) -> str:
        """Send what is to be sent; returns why that has ended."""
        while True:
            while self._unsent:
                line, _ = self._unsent.popleft()
                try:
                    await self._send(line)
                except OSError as error:
                    return f"nothing can be sent: {error.strerror or error}"
                self._unsent_bytes -= len(line) + _ENTRY_BYTES
                if self._unsent_bytes <= MAX_UNSENT_BYTES:
                    self._room.set()
            if self._ending:
                return "the other side has ended"
            self._changed.clear()
            await self._changed.wait()

    def _give_up(self, number: int, method: str) -> None:
        for entry in self._unsent:
            if entry[1] == number:  # it was never sent: there is nothing to take back
                self._unsent.remove(entry)
                self._unsent_bytes -= len(entry[0]) + _ENTRY_BYTES
                return
        notice = self._cancel_notice(number, method) if self._cancel_notice else None
        if notice is not None and self._closed is None:
            self._put_now(encode({"method": notice[0], "params": notice[1]}))

    # --- in --------------------------------------------------------------------------------------

    async def _read(
        self, lines: AsyncIterable[bytes | OverlongLine], tasks: asyncio.TaskGroup
    ) -> str:
        """Take what comes; returns why no more does."""
        try:
            async for line in lines:
                await self._take_line(line, tasks)
        except OSError as error:
            return f"nothing can be read: {error.strerror or error}"
        return "the other side has ended"

    async def _take_line(self, line: bytes | OverlongLine, tasks: asyncio.TaskGroup) -> None:
        if isinstance(line, OverlongLine):
            self._take_lost(line.head, TooMuch(f"more than {MAX_MESSAGE_BYTES:,} bytes"))
            return
        batch: list[Any] = []
        try:
            if len(line) > _THREAD_BYTES:
                message = await asyncio.to_thread(decode, line)
            else:
                message = decode(line)
            # versions of MCP before 2025-06-18 had batches
            batch = message if isinstance(message, list) and not self._strict else [message]
        except TooMuch as error:
            self._take_lost(line, error)
        except MalformedMessage as error:
            self._refuse(error)
        for each in batch:
            try:
                self._take(each, tasks)
            except MalformedMessage as error:  # somebody may wait for the one beside it
                self._refuse(error)

    def _take_lost(self, line: bytes, error: TooMuch) -> None:
        """Anyone who waits for it is told, as far as its beginning says who that is."""
        number, asks = beginning_of(line)
        if asks and number is not None and number not in self._answering:
            told = {"code": INVALID_REQUEST, "message": f"the request is too large: {error}"}
            self._put_now(encode({"id": number, "error": told}))
            return
        self._refuse(error)
        if not asks:
            lost = (number,) if type(number) is int else tuple(self._pending)
            for each in lost:
                self.fail(each, RpcError(PARSE_ERROR, f"the answer was lost: {error}"))

    def _refuse(self, error: MalformedMessage) -> None:
        log.debug("not a message: %s", error)
        if self._strict:
            self._put_now(
                encode({"id": None, "error": {"code": error.code, "message": str(error)}})
            )

    def _take(self, message: Any, tasks: asyncio.TaskGroup) -> None:
        if not isinstance(message, dict):
            raise MalformedMessage("not an object", INVALID_REQUEST)
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            if "result" not in message and "error" not in message:
                raise MalformedMessage("neither a request nor an answer", INVALID_REQUEST)
            self._take_answer(number, message)
            return
        given = message.get("params")
        params = given if isinstance(given, dict) else {} if given is None else {"params": given}
        if "id" not in message:
            self._take_notice(method, params)
        elif type(number) is int or (isinstance(number, str) and len(number) <= _ID_CHARS):
            self._take_request(IncomingRequest(number, method, params), tasks)
        else:
            raise MalformedMessage("an id is an integer or a short string", INVALID_REQUEST)

    def _take_notice(self, method: str, params: Mapping[str, Any]) -> None:
        try:
            self._handler.notice(method, params)
        except Exception:
            log.exception("a handler of %s failed", method)

    def _take_answer(self, number: Any, message: dict[str, Any]) -> None:
        answer = self._pending.get(number) if type(number) is int else None
        if answer is None or answer.done():
            log.debug("an answer to nobody was dropped: id %.100r", number)
        elif message.get("error") is not None or "result" not in message:
            answer.set_exception(error_of(message.get("error")))
        else:
            answer.set_result(message["result"])

    def _take_request(self, request: IncomingRequest, tasks: asyncio.TaskGroup) -> None:
        problem = ""
        if request.id in self._answering:
            problem = "this id is in use"
        elif len(self._answering) >= MAX_ANSWERING:
            problem = f"more than {MAX_ANSWERING} requests at once"
        if problem:
            error = {"code": INVALID_REQUEST, "message": problem}
            self._put_now(encode({"id": request.id, "error": error}))
            return
        task = tasks.create_task(self._answer(request))
        self._answering[request.id] = task
        task.add_done_callback(partial(self._answered, request.id))

    async def _answer(self, request: IncomingRequest) -> bytes:
        try:
            result = await self._handler.answer(request)
            return encode({"id": request.id, "result": result})
        except RpcError as error:
            told = {"code": error.code, "message": error.message}
            if error.data is not None:
                told["data"] = error.data
            return encode({"id": request.id, "error": told})
        except Exception:
            log.exception("serving %s failed", request.method)
            told = {"code": INTERNAL_ERROR, "message": "internal error"}
            return encode({"id": request.id, "error": told})

    def _answered(self, request: RequestId, task: asyncio.Task[bytes]) -> None:
        """Also for a task that was cancelled before it began."""
        del self._answering[request]
        if task.cancelled():
            told = {"code": REQUEST_CANCELLED, "message": "the request was cancelled"}
            self._put_now(encode({"id": request, "error": told}))
        elif task.exception() is None:
            self._put_now(task.result())
