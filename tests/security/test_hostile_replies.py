"""Replies that no model would make: an error in one line, bounded memory, Ctrl-C at once (SEC-13)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest

from agentcli.providers._base import StreamDecoder
from agentcli.providers._errors import status_error
from agentcli.providers._responses_reply import ResponsesDecoder
from agentcli.providers.anthropic import MessagesDecoder
from agentcli.providers.openai import ChatDecoder
from agentcli.wire.http import Endpoint
from tests.security.hostile_server import JSON, STREAM, Body, hostile
from tests.security.test_bounds import Measured, env_of, only_error, work
from tests.support.cli import MODELS, agent_env
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.processes import wait_until
from tests.support.replies import Call, calls, say

__all__ = ["work"]
pytestmark = [pytest.mark.spec("SEC-13"), pytest.mark.timeout(60)]
Json = dict[str, Any]


def event(value: Json) -> bytes:
    return b"data: %s\n\n" % json.dumps(value).encode()


def env_for(protocol: str, url: str) -> dict[str, str]:
    more = {f"{name}_{end}": value for name in ("OPENAI", "GEMINI")
            for end, value in (("API_KEY", "k"), ("BASE_URL", url))}  # fmt: skip
    return env_of(url) | more | {"AGENTCLI_MODEL": MODELS[protocol]}


# --- values of types that the protocols do not have ----------------------------------------------

REASON = {"@type": "google.rpc.ErrorInfo", "reason": []}
EXHAUSTED = {"error": {"message": "m", "status": "RESOURCE_EXHAUSTED", "details": [REASON]}}
USE = {"type": "tool_use", "id": "a", "name": "n", "input": {}}
ODD: dict[str, tuple[str, list[Json]]] = {
    "code": (ANTHROPIC, [{"type": "error", "error": {"message": "x", "code": "²³¹"}}]),
    "reason": (GEMINI, [EXHAUSTED]),
    "type": (RESPONSES, [{"type": []}]),
    "item type": (RESPONSES, [{"type": "response.output_item.added", "output_index": 0,
                               "item": {"type": kind}} for kind in ([], {})]),
    "status": (RESPONSES, [{"type": "response.completed", "response": {"status": {}}}]),
    "block": (ANTHROPIC, [
        {"type": "content_block_start", "index": 0, "content_block": {**USE, "type": ""}},
        {"type": "content_block_start", "index": 1, "content_block": USE},
        {"type": "content_block_start", "index": 2, "content_block": USE},
        {"type": "content_block_stop", "index": 2}]),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.spec("SEC-13", "STR-8")
@pytest.mark.parametrize("odd", ODD)
def test_a_value_of_an_impossible_type_is_a_garbled_reply(work: Path, odd: str) -> None:
    protocol, events = ODD[odd]
    with hostile(lambda: map(event, events)) as server:
        env = env_for(protocol, server.url)
        done = Measured("run", "--timeout", "1", "go", env=env, cwd=work).ended()
    assert done.code in {1, 3, 75}
    assert "internal error" not in only_error(done)


@pytest.mark.spec("SEC-13", "STR-8")
def test_an_error_body_of_odd_values_or_of_any_depth_is_read(work: Path) -> None:
    endpoint = Endpoint("p", "http://host")
    assert status_error(endpoint, 429, {}, json.dumps(EXHAUSTED).encode())
    for depth in range(800, 1000):
        deep = b"[" * depth + b"]" * depth
        assert status_error(endpoint, 400, {}, b'{"error":{"message":%s}}' % deep)
    with hostile(lambda: [json.dumps(EXHAUSTED).encode()], status=429, headers=JSON) as server:
        env = env_for(GEMINI, server.url)
        done = Measured("run", "--timeout", "1", "go", env=env, cwd=work).ended()
    assert "internal error" not in only_error(done)


# --- more than is said ---------------------------------------------------------------------------

MANY = range(40_000)
PIECE = "z" * 20_000
START = event({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}})


def chat(*calls: Json) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]})


def block(index: int, **fields: object) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": fields})


def gemini(*calls: Json) -> bytes:
    content = {"parts": [{"functionCall": call} for call in calls]}
    return event({"candidates": [{"content": content, "finishReason": "STOP"}]})


def item(**fields: object) -> Json:
    return {"type": "function_call", "name": "n", "arguments": "{}", **fields}


def endlessly(head: bytes, piece: Callable[[int], bytes]) -> Body:
    return lambda: chain([head], map(piece, count()))


LARGE: dict[str, tuple[str, Callable[[], Body]]] = {
    "arguments of no call": (OPENAI, lambda: endlessly(
        b"", lambda _: chat({"index": 0, "function": {"arguments": PIECE}}))),
    "calls without a name": (OPENAI, lambda: lambda: [chat(*({"index": each} for each in MANY))]),
    "calls": (OPENAI, lambda: lambda: [chat(
        *({"index": each, "id": f"c{each}", "function": {"name": "n"}} for each in MANY))]),
    "one call over and over": (OPENAI, lambda: endlessly(
        chat({"index": 0, "id": "a", "function": {"name": "n", "arguments": '{"a":"' + PIECE * 99}}),
        lambda _: chat({"index": 0, "id": "a", "function": {"name": "n", "arguments": "{"}}))),
    "blocks of no known kind": (ANTHROPIC, lambda: endlessly(
        START, lambda number: block(number, type="x", id=PIECE + str(number)))),
    "input of a call said twice": (ANTHROPIC, lambda: endlessly(
        START + block(0, **USE) + block(1, **USE),
        lambda _: event({"type": "content_block_delta", "index": 1,
                         "delta": {"type": "input_json_delta", "partial_json": PIECE}}))),
    "whole blocks": (ANTHROPIC, lambda: lambda: [json.dumps(
        {"type": "message", "content": [{**USE, "id": f"c{each}"} for each in MANY]}).encode()]),
    "short calls": (GEMINI, lambda: lambda: [gemini(*[{"name": "list_directory"}] * 10_000)]),
    "signed parts": (GEMINI, lambda: lambda: [event(
        {"candidates": [{"content": {"parts": [{"thoughtSignature": "a"}] * len(MANY)}}]})]),
    "items without a place": (RESPONSES, lambda: endlessly(b"", lambda number: event(
        {"type": "response.output_item.added", "item": item(id=f"i{number}")}))),
    "items of no known kind": (RESPONSES, lambda: endlessly(b"", lambda number: event(
        {"type": "response.output_item.added", "output_index": 0, "item": item(type=PIECE)}))),
    "parts of a thought": (RESPONSES, lambda: endlessly(b"", lambda number: event(
        {"type": "response.reasoning_summary_text.delta", "output_index": 0,
         "summary_index": number, "delta": "a"}))),
    "arguments of no item": (RESPONSES, lambda: endlessly(b"", lambda _: event(
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": PIECE}))),
    "items at the end": (RESPONSES, lambda: lambda: [event(
        {"type": "response.completed", "response": {"output": [
            item(id=f"i{each}", call_id=f"c{each}") for each in MANY]}})]),
    "a thought over and over": (RESPONSES, lambda: endlessly(
        event({"type": "response.reasoning_text.delta", "output_index": 0, "delta": "a b " * 10**6}),
        lambda _: event({"type": "response.reasoning_text.done", "output_index": 0,
                         "text": "ac"}))),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("large", LARGE)
def test_a_reply_that_is_more_than_it_says_is_given_up(work: Path, large: str) -> None:
    protocol, make = LARGE[large]
    with hostile(make(), headers=JSON if large == "whole blocks" else STREAM) as server:
        env = env_for(protocol, server.url)
        done = Measured("run", "go", env=env, cwd=work).ended(15)
    assert done.code == 1
    assert "was given up" in only_error(done)


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
def test_a_document_of_short_lines_is_held_in_bounded_memory(work: Path) -> None:
    with hostile(lambda: [b"{" + b"ab\n" * 5_500_000 + b"}"], headers=JSON) as server:
        done = Measured("run", "--timeout", "4", "go", env=env_of(server.url), cwd=work).ended()
    assert done.code in {1, 3, 75}
    only_error(done)


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("protocol", [ANTHROPIC, GEMINI])
def test_a_call_of_one_wide_text_is_held_in_bounded_memory(work: Path, protocol: str) -> None:
    wide = {"command": "y" * 16_000_000 + "\U0001f600"}
    if protocol == GEMINI:
        content = {"parts": [{"functionCall": {"name": "bash", "args": wide}}]}
        reply: Json = {"candidates": [{"content": content, "finishReason": "STOP"}]}
    else:
        reply = {"type": "message", "content": [{**USE, "name": "bash", "input": wide}]}
    body = json.dumps(reply, ensure_ascii=False).encode()
    with hostile(lambda: [body], headers=JSON) as server:
        done = Measured("run", "go", env=env_for(protocol, server.url), cwd=work).ended()
    assert done.code == 1
    assert "was given up" in only_error(done) or "use another model" in only_error(done)


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("kind", ["call", "thought"])
def test_steps_of_wide_texts_end_the_turn_in_bounded_memory(work: Path, kind: str) -> None:
    number = count()

    def reply() -> list[bytes]:
        wide, at = "y" * 3_900_000 + "\U0001f600", f"t{next(number)}"
        use = {**USE, "id": at, "name": "list_directory", "input": {"path": at}}
        content: list[Json] = [{"type": "thinking", "thinking": wide, "signature": "x"}, use]
        if kind == "call":
            content = [{**use, "name": "read_file", "input": {"path": at + wide}}]
        body = {"type": "message", "role": "assistant", "stop_reason": "tool_use"}
        return [json.dumps({**body, "content": content}, ensure_ascii=False).encode()]

    with hostile(reply, headers=JSON) as server:
        done = Measured("run", "go", env=env_for(ANTHROPIC, server.url), cwd=work).ended()
    assert done.code == 1 and "too long to send" in done.stderr, done.stderr[-2000:]
    assert next(number) < 9


@pytest.mark.slow
@pytest.mark.spec("SEC-13", "LOOP-9")
def test_calls_that_hold_millions_of_values_together_go_back_to_the_model(
    model_server: ModelServer, work: Path
) -> None:
    wide = '{"path": ".", "more": [' + ",".join(['{"":1}'] * 160_000) + "]}"
    model_server.add(calls(*[Call("stat_file", raw=wide)] * 14, piece=60_000), say("Well."))
    env = agent_env(model_server, OPENAI)
    done = Measured("run", "go", env=env, cwd=work).ended()
    assert (done.code, done.stdout) == (0, "Well.\n"), done.stderr[-2000:]
    assert "Invalid arguments" in done.stderr


CALL = {"type": "function_call", "name": "n", "call_id": "c"}
PIECES: dict[str, tuple[type[StreamDecoder], bytes, Json]] = {
    "input": (MessagesDecoder, START + block(0, **USE),
              {"type": "content_block_delta", "index": 0,
               "delta": {"type": "input_json_delta", "partial_json": "123"}}),
    "call": (ChatDecoder, chat({"index": 0, "id": "c", "function": {"name": "n"}}),
             {"choices": [{"delta": {"tool_calls": [
                 {"index": 0, "function": {"arguments": "123"}}]}}]}),
    "arguments": (ResponsesDecoder,
                  event({"type": "response.output_item.added", "output_index": 0, "item": CALL}),
                  {"type": "response.function_call_arguments.delta", "output_index": 0,
                   "delta": "123"}),
    "text": (ResponsesDecoder, b"",
             {"type": "response.output_text.delta", "output_index": 0, "delta": "123"}),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("kind", PIECES)
def test_a_reply_in_very_small_pieces_takes_no_more_than_it_says(kind: str) -> None:
    make, head, value = PIECES[kind]
    decoder = make(Endpoint("p", "http://x"))
    decoder.feed(head)
    some = event(value) * 1_000
    tracemalloc.start()
    try:
        for _ in range(100):
            assert decoder.feed(some)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.failure is None
    assert held < 2_000_000  # of 300,000 characters


@pytest.mark.spec("SEC-13", "CAN-9")
def test_ctrl_c_does_not_wait_until_all_calls_are_judged(work: Path, home: Path) -> None:
    def are_recorded() -> bool:
        with suppress(sqlite3.Error):
            for path in (home / "agentcli" / "sessions").glob("*.db"):
                with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                    return bool(db.execute("SELECT 1 FROM tool_run LIMIT 1").fetchone())
        return False

    command = "echo a; " * 3_000
    calls = [{"name": "bash", "args": {"command": f"{command}{each}"}} for each in range(300)]
    with hostile(lambda: [gemini(*calls)]) as server:
        run = Measured("run", "go", env=env_for(GEMINI, server.url), cwd=work)
        wait_until(are_recorded, "the calls are recorded")
        os.kill(run.pid, signal.SIGINT)
        assert run.ended(4).code == 130
