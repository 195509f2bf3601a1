"""Replies that come whole: asked for with ``stream = false``, or from a server that does not stream."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings
from agentcli.domain.messages import StopReason
from agentcli.providers._registry import create
from tests.providers.test_conformance import Client
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.replies import Reply

CALL = {"path": "a.txt"}
USAGE = {"input_tokens": 7, "output_tokens": 3}
WHOLE: dict[str, Any] = {
    ANTHROPIC: {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "c1", "name": "read_file", "input": CALL},
        ],
        "stop_reason": "tool_use",
        "usage": USAGE,
    },
    OPENAI: {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Let me look.",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "read_file", "arguments": '{"path":"a.txt"}'},
                        }
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    },
    RESPONSES: {
        "object": "response",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "m1",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Let me look."}],
            },
            {
                "type": "function_call",
                "id": "f1",
                "call_id": "c1",
                "name": "read_file",
                "arguments": '{"path":"a.txt"}',
            },
        ],
        "usage": USAGE,
    },
    GEMINI: {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "Let me look."},
                        {"functionCall": {"name": "read_file", "args": CALL}},
                    ],
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3},
    },
}


@pytest.mark.spec("STR-8", "CTRL-9")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", WHOLE)
def test_a_whole_reply_is_the_message_that_a_stream_would_have_been(
    protocol: str, *, stream: bool
) -> None:
    whole = json.dumps(WHOLE[protocol], indent=1).encode()
    with ModelServer([Reply(body=whole, headers={"content-type": "application/json"})]) as server:
        client = Client(protocol, server)
        client.provider = create(replace(client.provider.config, stream=stream))  # type: ignore[attr-defined]  # of HTTP

        async def ask() -> Any:
            try:
                return await client.ask("go")
            finally:
                await client.provider.aclose()

        message = asyncio.run(ask())
    assert message.text == "Let me look." and message.stop_reason is StopReason.TOOL_USE
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("read_file", CALL)]
    assert message.usage.output_tokens == 3
    (request,) = server.requests
    if protocol != GEMINI:
        assert request.body["stream"] is stream
    elif not stream:
        assert request.path.endswith(":generateContent")
    assert stream or "stream_options" not in request.body


@pytest.mark.spec("CTRL-9")
def test_it_is_a_setting_of_each_provider(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[providers.anthropic]\nstream = false\n")
    settings = load_settings(Paths(tmp_path, tmp_path, tmp_path), {})
    assert not settings.providers["anthropic"].stream
