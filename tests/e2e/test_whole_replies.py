"""A server that answers with one JSON document where a stream was asked for (STR-12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.security.hostile_server import JSON, hostile
from tests.support.cli import MODELS, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES

pytestmark = pytest.mark.sampled

SAID = "Whole."
DOCUMENTS: dict[str, Any] = {
    ANTHROPIC: {
        "id": "m", "type": "message", "role": "assistant", "model": "x", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": SAID}],
        "usage": {"input_tokens": 7, "output_tokens": 2},
    },
    OPENAI: {
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop",
                     "message": {"role": "assistant", "content": SAID}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    },
    RESPONSES: {
        "object": "response", "id": "r", "status": "completed",
        "output": [{"type": "message", "id": "i", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": SAID, "annotations": []}]}],
        "usage": {"input_tokens": 7, "output_tokens": 2},
    },
    GEMINI: {
        "candidates": [{"index": 0, "finishReason": "STOP",
                        "content": {"role": "model", "parts": [{"text": SAID}]}}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 2},
    },
}  # fmt: skip


@pytest.mark.spec("STR-12")
@pytest.mark.parametrize("protocol", DOCUMENTS)
def test_a_whole_reply_is_taken_on_every_protocol(tmp_path: Path, protocol: str) -> None:
    body = json.dumps(DOCUMENTS[protocol], indent=2).encode()
    with hostile(lambda: [body], headers=JSON) as server:
        keys = ("ANTHROPIC", "OPENAI", "GEMINI")
        env = agent_env(None, AGENTCLI_MODEL=MODELS[protocol])
        env |= {f"{name}_BASE_URL": server.url for name in keys}
        env |= {f"{name}_API_KEY": "k" for name in keys}
        done = run_agent("run", "-o", "json", "hi", env=env, cwd=tmp_path)
    assert (done.code, done.result["result"]) == (0, SAID), done.stderr
    assert done.result["usage"]["output_tokens"] == 2
