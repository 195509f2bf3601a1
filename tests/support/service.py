"""What a service decides about a request before it answers: refuse, name, sign, list."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from tests.support import wire_anthropic, wire_gemini, wire_openai, wire_responses
from tests.support.replies import Block, Call, Reply, Thinking
from tests.support.strict import (
    Issued,
    Problem,
    check_anthropic,
    check_gemini,
    check_openai,
    check_responses,
    parse_body,
)
from tests.support.strict_anthropic import mark_of
from tests.support.strict_gemini import mark_of_part

ANTHROPIC = "anthropic"
OPENAI = "openai"
RESPONSES = "openai-responses"
GEMINI = "gemini"
_GEMINI_PATH = re.compile(
    r"(?:/v1beta|/v1/publishers/google)/models/([^/:]+):(?:streamGenerateContent|generateContent)"
)
_REQUEST_LIMIT = 32 * 1024 * 1024


@dataclass(eq=False)
class Recorded:
    """One request as it came in, and what became of its answer."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    arrived_at: float
    protocol: str = ""
    body: Any = None
    violation: str | None = None
    reply: Reply | None = None
    waiting: threading.Event = field(default_factory=threading.Event)
    """Set when the reply has reached its hold or stall."""
    finished: threading.Event = field(default_factory=threading.Event)
    """Set when the server is done with the request."""
    client_left: bool = False
    body_bytes: int = 0

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The history that was sent: the messages, or the items of the Responses API."""
        name = {RESPONSES: "input", GEMINI: "contents"}.get(self.protocol, "messages")
        found: list[dict[str, Any]] = self.body[name]
        return found

    @property
    def model(self) -> str:
        """The model that was asked for."""
        if self.protocol == GEMINI:
            return gemini_model(self.path) or ""
        return str(self.body["model"])


def gemini_model(target: str) -> str | None:
    """The model that a path of the Gemini API names, ``None`` for any other path."""
    match = _GEMINI_PATH.fullmatch(target.partition("?")[0])
    return unquote(match[1]) if match else None


def error_body(protocol: str, kind: str, problem: str | None = None) -> dict[str, Any]:
    if protocol == ANTHROPIC:
        value = wire_anthropic.error_value(kind, problem)
        return {**value, "request_id": "req_000000000000000000000000"}
    if protocol == GEMINI:
        return wire_gemini.error_value(kind, problem)
    param = getattr(problem, "param", None)
    return wire_openai.error_value(kind, problem, param, getattr(problem, "code", None))


def model_list(protocol: str, models: list[str]) -> dict[str, Any]:
    """The answer to ``GET /v1/models``."""
    if protocol == OPENAI:
        each = [
            {"id": name, "object": "model", "created": 1_760_000_000, "owned_by": "loopback"}
            for name in models
        ]
        return {"object": "list", "data": each}
    listed = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "2025-09-29T00:00:00Z",
        }
        for name in models
    ]
    first, last = (models[0], models[-1]) if models else (None, None)
    return {"data": listed, "has_more": False, "first_id": first, "last_id": last}


def unauthorised(
    api_key: str | None, protocol: str, headers: dict[str, str]
) -> dict[str, Any] | None:
    """The body of a 401, or ``None`` when the key is right or none is wanted."""
    if api_key is None:
        return None
    is_bearer = headers.get("authorization", "").startswith("Bearer ")
    if protocol == ANTHROPIC and not is_bearer:
        key = headers.get("x-api-key")
        missing = "x-api-key header is required"
    elif protocol == GEMINI and not is_bearer:
        key = headers.get("x-goog-api-key")
        return error_body(protocol, "key" if key else "no_key") if key != api_key else None
    else:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key if scheme.lower() == "bearer" and key else None
        missing = (
            "You didn't provide an API key. You need to provide your API key in an"
            " Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
        )
    if key == api_key:
        return None
    return error_body(protocol, "auth", missing if key is None else None)


def problem_of(
    recorded: Recorded, issued: Issued, *, strict: bool, allow_reasoning: bool
) -> str | None:
    """Parse the body of ``recorded``; the first reason to answer 400, or ``None``."""
    body, broken = parse_body(recorded.raw)
    recorded.body = body
    if recorded.protocol == ANTHROPIC:
        if "anthropic-version" not in recorded.headers:
            return Problem("anthropic-version: header is required")
        if broken is not None:
            return Problem(f"The request body is not valid JSON: {broken}")
        found = check_anthropic(body, issued) if strict else None
    elif recorded.protocol == GEMINI:
        if broken is not None:
            return Problem(f"Invalid JSON payload received. {broken}")
        path, _, query = recorded.path.partition("?")
        if query != ("" if path.endswith(":generateContent") else "alt=sse"):
            return Problem("this server only streams events, and takes no key in the address")
        return check_gemini(body, recorded.model, issued) if strict else None
    else:
        if broken is not None:
            return Problem(
                "We could not parse the JSON body of your request. The OpenAI API expects a"
                f" JSON payload, but what was sent was not valid JSON. ({broken})"
            )
        if recorded.protocol == RESPONSES:
            found = check_responses(body, issued.responses) if strict else None
        else:
            found = check_openai(body, allow_reasoning=allow_reasoning) if strict else None
    if found is None and not isinstance(body.get("stream"), bool):
        found = Problem("this server wants to be told whether to stream", "stream")
    if len(recorded.raw) > _REQUEST_LIMIT:
        found = Problem("Request exceeds the maximum size")
    return found


def named(block: Block, position: tuple[int, int], model: str, protocol: str) -> Block:
    """``block`` with its id or signature; ``position`` is (reply, block in the reply)."""
    number, index = position
    if isinstance(block, Call) and block.id is None:
        prefix = "toolu" if protocol == ANTHROPIC else "call"
        return replace(block, id=f"{prefix}_{number:06d}{index:02d}")
    if isinstance(block, Thinking) and block.redacted is None and block.signature is None:
        seed = f"{model}/{number}/{index}/{block.text}".encode()
        return replace(block, signature=base64.b64encode(hashlib.sha512(seed).digest()).decode())
    return block


def remember(issued: Issued, blocks: tuple[Block, ...], body: dict[str, Any]) -> None:
    """Note what the client may send back, and must not change."""
    model = str(body["model"])
    shape = []
    for block in blocks:
        if isinstance(block, Call):
            shape.append(mark_of({"type": "tool_use", "id": block.id}))
        elif isinstance(block, Thinking) and block.redacted is not None:
            issued.redacted.add((model, block.redacted))
            shape.append(mark_of({"type": "redacted_thinking", "data": block.redacted}))
        elif isinstance(block, Thinking) and block.signature is not None:
            issued.signatures[block.signature] = (model, block.text)
            shape.append(mark_of({"type": "thinking", "signature": block.signature}))
    issued.shapes.append([mark for mark in shape if mark is not None])
    thought = any(isinstance(block, Thinking) for block in blocks)
    if (body.get("thinking") or {}).get("type") == "enabled" and not thought:
        issued.plain_calls |= {b.id for b in blocks if isinstance(b, Call) and b.id}


def remember_parts(
    issued: Issued, blocks: tuple[Block, ...], recorded: Recorded, number: int
) -> None:
    """Note which part of a Gemini reply bears which signature."""
    for part in wire_gemini.whole_parts(blocks, recorded.model, number):
        if signature := part.get("thoughtSignature"):
            issued.on_parts[signature] = (recorded.model, mark_of_part(part))


def encode(recorded: Recorded, reply: Reply, number: int) -> list[tuple[str, bytes]]:
    """The events of ``reply`` in the protocol of ``recorded``."""
    model = recorded.model
    if recorded.protocol == ANTHROPIC:
        events = wire_anthropic.encode(reply, model, number)
    elif recorded.protocol == GEMINI:
        events = wire_gemini.encode(reply, model, number)
    elif recorded.protocol == RESPONSES:
        events = wire_responses.encode(reply, recorded.body, number)
    else:
        options = recorded.body.get("stream_options") or {}
        usage = bool(options.get("include_usage"))
        events = wire_openai.encode(reply, model, number, usage=usage)
    if reply.transform is not None:
        events = [(kind, reply.transform(data)) for kind, data in events]
    return [("preamble", reply.preamble), *events] if reply.preamble else events
