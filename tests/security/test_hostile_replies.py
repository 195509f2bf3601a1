"""Replies that no model would make: an error in one line, bounded memory, Ctrl-C at once (SEC-13)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcli.providers._errors import status_error
from agentcli.wire.http import Endpoint
from tests.security.hostile_server import JSON, hostile
from tests.security.test_bounds import Measured, env_of, only_error, work
from tests.support.cli import MODELS
from tests.support.model_server import ANTHROPIC, GEMINI, RESPONSES

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
