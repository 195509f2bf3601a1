"""Every known wording of "the conversation does not fit" (STR-13), and what only sounds like one."""

from __future__ import annotations

import json
import re

import pytest

from agentcli.domain.errors import ErrorKind
from agentcli.providers._errors import OVERFLOWS, status_error
from agentcli.wire.http import Endpoint

ENDPOINT = Endpoint("test", "https://api.example/v1", model="m")
WORDINGS = {
    "openai": "This model's maximum context length is 8192 tokens. However, your messages resulted in"
    " 9000 tokens. Please reduce the length of the messages.",
    "openai-limit": "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted"
    " in 300000 tokens.",
    "responses": "Your input exceeds the context window of this model. Please adjust your input.",
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "anthropic-sum": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "gemini-size": "Request payload size exceeds the limit: 20971520 bytes.",
    "bedrock": "Input is too long for requested model.",
    "bedrock-tokens": "Too many input tokens. Max input tokens: 128000, request input token count: 9",
    "vllm": "The decoder prompt (length 5951) is longer than the maximum model length of 4096. Make"
    " sure that `max_model_len` is no smaller than the number of text tokens.",
    "vllm-older": "The prompt (total length 5951) is too long to fit into the model (context length"
    " 4096).",
    "sglang": "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8200"
    " `inputs` tokens and 512 `max_new_tokens`",
    "tgi-inputs": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1500",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "llama.cpp-figures": "request (5000 tokens) exceeds the available context size (4096 tokens)",
    "ollama": "prompt too long; exceeded max context length by 4 tokens",
    "ollama-input": "the input length exceeds the context length",
    "lmstudio": "Trying to keep the first 5000 tokens when context the overflows. However, the model is"
    " loaded with context length of only 4096 tokens, which is not enough.",
    "lmstudio-keep": "The number of tokens to keep from the initial prompt is greater than the context"
    " length.",
    "tabbyapi": "Prompt length 5000 is greater than max_seq_len 4096",
    "moonshot": "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
    "mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum"
    " context length",
    "openrouter": "This endpoint's maximum context length is 32768 tokens. However, you requested about"
    " 40000 tokens.",
    "groq": "Please reduce the length of the messages or completion.",
    "cerebras": "Please reduce the length of the messages or completion. Current length is 9000 while"
    " limit is 8192",
    "xai": "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "minimax": "invalid params, context window exceeds limit",
    "zai": "Prompt exceeds max length",
    "qwen": "Range of input length should be [1, 30720]",
    "github": "prompt token count of 5000 exceeds the limit of 4096",
    "cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "docker": "Prompt has 5000 tokens, but the configured context size is 4096 tokens",
    "other": "Context size exceeded",
    "other-input": "the prompt exceeds the model's maximum input size",
    "other-many": "too many tokens in the prompt",
}  # fmt: skip
OTHERS = (
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "max_tokens exceeds the limit of 8192",
    "messages: text content blocks must be non-empty",
    "Invalid schema for function 'bash': the name is too long",
)


def kind_of(status: int, text: str) -> ErrorKind:
    body = json.dumps({"error": {"message": text, "type": "invalid_request_error"}}).encode()
    return status_error(ENDPOINT, status, {}, body).kind


@pytest.mark.spec("STR-13")
@pytest.mark.parametrize("who", WORDINGS)
def test_each_wording_is_an_overflow(who: str) -> None:
    assert kind_of(400, WORDINGS[who]) is ErrorKind.CONTEXT_OVERFLOW
    plain = json.dumps({"error": WORDINGS[who], "error_type": "validation"}).encode()
    assert status_error(ENDPOINT, 422, {}, plain).kind is ErrorKind.CONTEXT_OVERFLOW
    assert kind_of(401, WORDINGS[who]) is ErrorKind.AUTH


@pytest.mark.spec("STR-13")
@pytest.mark.parametrize("text", OTHERS)
def test_what_is_about_the_output_or_something_else_is_none(text: str) -> None:
    assert kind_of(400, text) is ErrorKind.BAD_REQUEST


@pytest.mark.spec("STR-13")
@pytest.mark.parametrize("row", OVERFLOWS, ids=lambda row: row[1])
def test_each_row_has_a_wording(row: tuple[str, str]) -> None:
    known = [*WORDINGS.values(), "context_length_exceeded", "model_context_window_exceeded"]
    assert any(re.search(row[1], text, re.IGNORECASE) for text in known), row
