"""The law of the core: every request gets one answer; nothing grows, nothing is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.rpc.connection import Connection, ConnectionClosed, IncomingRequest, Patience
from agentcli.rpc.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    OverlongLine,
    RpcError,
)

pytestmark = pytest.mark.spec("ACP-3")


class Peer:
    """The other end, in the test's hands."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._lines: asyncio.Queue[bytes | OverlongLine | None] = asyncio.Queue()
        self.reads = asyncio.Event()
        self.reads.set()

    async def send(self, line: bytes) -> None:
        await self.reads.wait()
        self.sent.put_nowait(json.loads(line))

    async def lines(self) -> AsyncIterator[bytes | OverlongLine]:
        while (line := await self._lines.get()) is not None:
            yield line

    def says(self, message: object) -> None:
        raw = message if isinstance(message, bytes | OverlongLine) else json.dumps(message).encode()
        self._lines.put_nowait(raw)

    def ends(self) -> None:
        self._lines.put_nowait(None)


class Serves:
    """Answers with what its function returns."""

    def __init__(self, function: Callable[[IncomingRequest], Awaitable[Any]]) -> None:
        self.function = function
        self.notices: list[tuple[str, Mapping[str, Any]]] = []

    async def answer(self, request: IncomingRequest) -> Any:
        return await self.function(request)

    def notice(self, method: str, params: Mapping[str, Any]) -> None:
        self.notices.append((method, params))


Talk = Callable[[Connection, Peer], Awaitable[None]]


def talk(scene: Talk, serves: Serves | None = None, *, strict: bool = False) -> None:
    """Play ``scene`` on a running connection; nothing may be left of it."""

    async def play() -> None:
        peer = Peer()
        connection = Connection(
            peer.send,
            serves,
            cancel_notice=lambda number, method: ("gone", {"id": number, "method": method}),
            strict=strict,
        )
        running = asyncio.create_task(connection.run(peer.lines()))
        await scene(connection, peer)
        peer.ends()
        await running
        assert connection.closed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_request_ends_once_with_its_own_first_answer(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    answer = st.tuples(
        st.one_of(st.integers(-1, count + 1), st.booleans(), st.text(max_size=2), st.floats(1, 3)),
        st.sampled_from(["result", "error", "both", "neither", "nonsense"]),
    )
    answers = data.draw(st.lists(answer, max_size=25))
    expected: dict[int, object] = {}

    async def scene(connection: Connection, peer: Peer) -> None:
        calls = [asyncio.create_task(connection.request("work")) for _ in range(count)]
        for _ in range(count):
            await peer.sent.get()
        for place, (number, shape) in enumerate(answers):
            message: dict[str, Any] = {"id": number}
            if shape in {"result", "both"}:
                message["result"] = place
            if shape in {"error", "both"}:
                message["error"] = {"code": place, "message": "no"}
            peer.says(b"}{" if shape == "nonsense" else message)
            counts = shape in {"result", "error", "both"} and type(number) is int
            if counts and 1 <= int(number) <= count:
                expected.setdefault(int(number), (shape == "result", place))
        peer.ends()
        for number, call in enumerate(calls, 1):
            got: object
            try:
                got = (True, await call)
            except RpcError as error:
                got = (False, error.code)
            except ConnectionClosed:
                got = None
            assert got == expected.get(number)

    talk(scene)


@given(
    requests=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 5), st.text(max_size=2)),
            st.sampled_from(["ok", "refuse", "crash", "hang", "unencodable"]),
        ),
        max_size=20,
    )
)
@settings(max_examples=40, deadline=None)
def test_every_request_of_the_peer_gets_exactly_one_answer(
    requests: list[tuple[int | str, str]],
) -> None:
    async def serve(request: IncomingRequest) -> Any:
        if request.method == "refuse":
            raise RpcError(7, "no", {"why": 1})
        if request.method == "crash":
            raise ZeroDivisionError
        if request.method == "hang":
            await asyncio.Event().wait()
        return object() if request.method == "unencodable" else {"of": request.id}

    async def scene(connection: Connection, peer: Peer) -> None:
        for number, method in requests:
            peer.says({"id": number, "method": method})
        for number in {number for number, method in requests if method == "hang"}:
            peer.says({"id": "last", "method": "ok"})
            while not [m async for m in taken(peer) if m["id"] == "last"]:
                await asyncio.sleep(0)
            connection.cancel(number)

    seen: list[dict[str, Any]] = []

    async def taken(peer: Peer) -> AsyncIterator[dict[str, Any]]:
        while not peer.sent.empty():
            message = peer.sent.get_nowait()
            seen.append(message)
            yield message

    async def to_the_end(connection: Connection, peer: Peer) -> None:
        await scene(connection, peer)
        for _ in range(3):
            peer.says({"id": "last", "method": "ok"})
            while not [m async for m in taken(peer) if m["id"] == "last"]:
                await asyncio.sleep(0)

    talk(to_the_end, Serves(serve))
    answered = [message["id"] for message in seen if message["id"] != "last"]
    asked = [number for number, _ in requests if number != "last"]
    assert sorted(map(repr, answered)) == sorted(map(repr, asked))
    codes = {"crash": INTERNAL_ERROR, "unencodable": INTERNAL_ERROR, "hang": REQUEST_CANCELLED}
    for message in seen:
        assert ("result" in message) != ("error" in message)
        code = message.get("error", {}).get("code")
        assert code in {None, 7, INVALID_REQUEST, *codes.values()}


def test_a_cancelled_request_is_given_up_and_its_late_answer_is_dropped() -> None:
    async def scene(connection: Connection, peer: Peer) -> None:
        call = asyncio.create_task(connection.request("slow"))
        assert (await peer.sent.get())["id"] == 1
        call.cancel()
        assert await peer.sent.get() == {
            "jsonrpc": "2.0",
            "method": "gone",
            "params": {"id": 1, "method": "slow"},
        }
        peer.says({"id": 1, "result": "late"})
        again = asyncio.create_task(connection.request("slow"))
        assert (await peer.sent.get())["id"] == 2
        peer.says({"id": 2, "result": "mine"})
        assert await again == "mine"

    talk(scene)


def test_what_was_not_sent_yet_is_not_taken_back() -> None:
    async def scene(connection: Connection, peer: Peer) -> None:
        peer.reads.clear()
        first = asyncio.create_task(connection.request("first"))
        second = asyncio.create_task(connection.request("second"))
        for _ in range(5):
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second})
        peer.reads.set()
        assert (await peer.sent.get())["method"] == "first"
        peer.says({"id": 1, "result": None})
        assert await first is None
        assert peer.sent.empty()

    talk(scene)


def test_a_request_ends_when_its_time_is_over_unless_the_peer_is_at_work() -> None:
    async def scene(connection: Connection, peer: Peer) -> None:
        with pytest.raises(TimeoutError):
            await connection.request("slow", patience=Patience(idle_s=0.01))
        assert (await peer.sent.get())["method"] == "slow"
        assert (await peer.sent.get())["method"] == "gone"
        patience = Patience(idle_s=30, total_s=0.01)
        call = asyncio.create_task(connection.request("slow", patience=patience))
        await peer.sent.get()
        patience.renew()
        with pytest.raises(TimeoutError):
            await call

    talk(scene)


def test_the_end_of_the_peer_ends_what_waits_for_it_and_what_comes_after() -> None:
    async def scene(connection: Connection, peer: Peer) -> None:
        call = asyncio.create_task(connection.request("work"))
        await peer.sent.get()
        peer.ends()
        with pytest.raises(ConnectionClosed, match="ended"):
            await call
        with pytest.raises(ConnectionClosed):
            await connection.request("more")

    talk(scene)


def test_a_line_that_is_too_long_fails_the_request_that_it_answers_and_no_other() -> None:
    async def scene(connection: Connection, peer: Peer) -> None:
        calls = [asyncio.create_task(connection.request("work")) for _ in range(2)]
        await peer.sent.get()
        await peer.sent.get()
        peer.says(OverlongLine(b'{"jsonrpc":"2.0","id": 2,"result":{"text":"aaaa'))
        with pytest.raises(RpcError, match="16,777,216 bytes"):
            await calls[1]
        peer.says({"id": 1, "result": "fine"})
        assert await calls[0] == "fine"
        nameless = asyncio.create_task(connection.request("work"))
        await peer.sent.get()
        peer.says(OverlongLine(b'{"result":{"text":"aaaa'))
        with pytest.raises(RpcError) as caught:
            await nameless
        assert caught.value.code == PARSE_ERROR

    talk(scene)


@pytest.mark.parametrize("number", [1, 70, "seventy"])
def test_a_request_that_is_too_large_is_answered_and_no_request_of_ours_fails(
    number: int | str,
) -> None:
    async def scene(connection: Connection, peer: Peer) -> None:
        asking = asyncio.create_task(connection.request("ask"))
        await peer.sent.get()
        head = {"jsonrpc": "2.0", "id": number, "method": "x", "params": {"id": 1, "result": "a"}}
        peer.says(OverlongLine(json.dumps(head).encode()[:-3]))
        answer = await peer.sent.get()
        assert answer["id"] == number and "too large" in answer["error"]["message"]
        deep = b'{"jsonrpc":"2.0","id":8,"method":"x","params":' + b"[" * 300 + b"]" * 300 + b"}"
        peer.says(deep)
        assert (await peer.sent.get())["id"] == 8
        peer.says(OverlongLine(b'{"jsonrpc":"2.0","id":44,"result":"late'))
        peer.says({"id": 1, "result": "fine"})
        assert await asking == "fine"

    talk(scene)


def test_a_strict_connection_says_what_is_wrong_and_another_ignores_it() -> None:
    wrong: list[object] = [
        b"hello",
        [],
        [{}, 5, {"id": 1, "method": "x"}],
        7,
        {"id": 1},
        {"jsonrpc": 2},
    ]
    wrong += [{"id": None, "method": "x"}, {"id": True, "method": "x"}, OverlongLine(b"")]

    async def strict(connection: Connection, peer: Peer) -> None:
        del connection
        for message in wrong:
            peer.says(message)
            answer = await peer.sent.get()
            assert answer["id"] is None
            assert answer["error"]["code"] in {PARSE_ERROR, INVALID_REQUEST}

    async def lenient(connection: Connection, peer: Peer) -> None:
        del connection
        for message in wrong:
            peer.says(message)
        peer.says({"id": "a", "method": "x"})
        answers = [await peer.sent.get() for _ in range(2)]
        # a batch was taken apart
        assert [answer["id"] for answer in answers] == [1, "a"]
        assert answers[0]["error"]["code"] == METHOD_NOT_FOUND

    talk(strict, strict=True)
    talk(lenient)


def test_notices_come_in_order_and_one_that_fails_ends_nothing() -> None:
    async def serve(request: IncomingRequest) -> Any:
        return len(handler.notices) + len(request.params)

    class Fails(Serves):
        def notice(self, method: str, params: Mapping[str, Any]) -> None:
            super().notice(method, params)
            raise ZeroDivisionError

    handler = Fails(serve)

    async def scene(connection: Connection, peer: Peer) -> None:
        del connection
        peer.says({"method": "one", "params": {"a": 1}})
        peer.says({"method": "two", "params": [1]})
        peer.says({"id": 1, "method": "count"})
        assert (await peer.sent.get())["result"] == 2

    talk(scene, handler)
    assert handler.notices == [("one", {"a": 1}), ("two", {"params": [1]})]


def test_a_peer_that_asks_without_reading_is_left() -> None:
    async def serve(request: IncomingRequest) -> Any:
        del request
        return "x" * (8 * 1024 * 1024)

    async def scene(connection: Connection, peer: Peer) -> None:
        peer.reads.clear()
        for number in range(20):
            peer.says({"id": number, "method": "big"})
        with pytest.raises(ConnectionClosed):
            await connection.request("work")
        assert connection.closed == "the other side does not read what it is sent"

    talk(scene, Serves(serve))


def test_answers_that_are_ready_still_leave_when_the_peer_sends_no_more() -> None:
    async def serve(request: IncomingRequest) -> Any:
        if request.method == "hang":
            await asyncio.Event().wait()
        return "pong"

    async def scene(connection: Connection, peer: Peer) -> None:
        del connection
        peer.says({"id": 1, "method": "ping"})
        peer.says({"id": 2, "method": "hang"})
        peer.ends()
        assert (await peer.sent.get())["result"] == "pong"
        assert (await peer.sent.get())["error"]["code"] == REQUEST_CANCELLED

    talk(scene, Serves(serve))


def test_what_is_posted_leaves_at_once_and_after_an_answer_what_was_to_follow_it() -> None:
    async def scene(connection: Connection, peer: Peer) -> None:
        async def answer(request: IncomingRequest) -> str:
            connection.after(request.id, lambda: connection.post("then", {}))
            connection.post("before", {})
            return "done"

        serves.function = answer
        peer.says({"id": "a", "method": "x"})
        told = [await peer.sent.get() for _ in range(3)]
        assert [each.get("method", each.get("result")) for each in told] == [
            "before",
            "done",
            "then",
        ]
        connection.close("enough")
        connection.post("late", {})
        connection.after("nobody", lambda: None)
        assert peer.sent.empty()

    serves = Serves(lambda _: asyncio.sleep(0))
    talk(scene, serves)
