"""Lists of models, as each protocol and each compatible server writes them."""

from __future__ import annotations

from typing import Any

import pytest

from agentcli.domain.ports import ProviderConfig
from agentcli.providers.models.ask import (
    MAX_PAGES,
    ServerClient,
    anthropic_models,
    chat_entries,
    chat_models,
    claude_entries,
    gemini_entries,
    gemini_models,
    models_url,
    ollama_models,
)
from tests.support.json_server import Asked, JsonServer

KEY = "sk-test-0123456789abcdefghij"


def ask(server: JsonServer, base: str = "", key: str = KEY) -> ServerClient:
    return ServerClient(ProviderConfig("p", "openai", f"{server.url}{base}", "P_KEY", key), 5.0)


def pages(asked: Asked) -> tuple[int, Any]:
    if "after_id=b%26" in asked.target:
        return 200, {"data": [{"id": "c"}], "has_more": False, "last_id": "c"}
    return 200, {"data": [{"id": "a"}, {"id": "b&"}], "has_more": True, "last_id": "b&"}


@pytest.mark.spec("CTX-3")
@pytest.mark.parametrize("base", ["", "/v1", "/v1/messages"])
def test_anthropics_list_is_read_page_by_page_with_its_own_key_header(base: str) -> None:
    with JsonServer({"GET /v1/models": pages}) as server:
        names = [entry["name"] for entry in anthropic_models(ask(server, base))]
    assert names == ["a", "b&", "c"]
    assert {asked.headers["x-api-key"] for asked in server.asked} == {KEY}
    assert all("authorization" not in asked.headers for asked in server.asked)


@pytest.mark.spec("CTX-3")
@pytest.mark.parametrize("base", ["", "/v1beta", "/v1beta/openai", "/v1beta/models"])
def test_geminis_list_is_read_page_by_page_with_its_own_key_header(base: str) -> None:
    def answer(asked: Asked) -> tuple[int, Any]:
        if "pageToken=t%2F1" in asked.target:
            return 200, {"models": [{"name": "models/gemini-b"}]}
        return 200, {"models": [{"name": "models/gemini-a"}], "nextPageToken": "t/1"}

    with JsonServer({"GET /v1beta/models": answer}) as server:
        names = [entry["name"] for entry in gemini_models(ask(server, base))]
    assert names == ["gemini-a", "gemini-b"]
    assert {asked.headers["x-goog-api-key"] for asked in server.asked} == {KEY}


@pytest.mark.spec("SEC-13")
def test_a_list_has_an_end_whatever_the_server_says() -> None:
    endless = {"data": [{"id": "a"}], "has_more": True, "last_id": "a"}
    more = {"models": [{"name": "a"}], "nextPageToken": "t"}
    routes = {"GET /v1/models": endless, "GET /v1beta/models": more}
    with JsonServer(routes) as server:
        assert len(list(anthropic_models(ask(server)))) == MAX_PAGES
        assert len(list(gemini_models(ask(server)))) == MAX_PAGES


@pytest.mark.spec("CTX-3")
def test_chat_servers_and_ollama_are_asked_where_they_are() -> None:
    routes = {
        "GET /v1/models": {"data": [{"id": "m"}]},
        "GET /api/tags": {"models": [{"name": "q"}]},
    }
    with JsonServer(routes) as server:
        for base in ("", "/v1", "/v1/chat/completions", "/v1/responses"):
            assert list(chat_models(ask(server, base))) == [{"name": "m"}]
            assert list(ollama_models(ask(server, base.removesuffix("/responses")))) == [
                {"name": "q"}
            ]
    assert models_url("https://h/api/v1/") == "https://h/api/v1/models"
    assert (
        ServerClient(ProviderConfig("x", "openai", "http://h:1/v1"), 1.0).server_root
        == "http://h:1"
    )
    assert (
        ServerClient(ProviderConfig("x", "openai", "http://h:1"), 1.0).server_root == "http://h:1"
    )
    assert (
        ServerClient(ProviderConfig("x", "openai", "http://h:1/proxy/v1/"), 1.0).server_root
        == "http://h:1/proxy"
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"id": "m", "max_model_len": 8192}, {"context_tokens": 8192}),
        (
            {"id": "m", "context_window": 131072, "max_completion_tokens": 65536},
            {"context_tokens": 131072, "max_output_tokens": 65536},
        ),
        (
            {
                "id": "m",
                "max_context_length": 262144,
                "capabilities": {"completion_chat": True, "vision": True, "reasoning": False},
            },
            {"context_tokens": 262144, "supports_images": True, "supports_thinking": False},
        ),
        (
            {
                "id": "m",
                "context_length": 200000,
                "architecture": {"input_modalities": ["text", "image"]},
                "pricing": {"prompt": "0.000003", "completion": "0.000015", "image": "x"},
                "top_provider": {"max_completion_tokens": 64000},
                "supported_parameters": ["tools", "reasoning"],
            },
            {
                "context_tokens": 200000,
                "max_output_tokens": 64000,
                "input_price": 3.0,
                "output_price": 15.0,
                "supports_images": True,
                "supports_thinking": True,
            },
        ),
        ({"id": "m", "context_length": 0, "max_model_len": True, "pricing": {"prompt": "-1"}}, {}),
    ],
    ids=["vllm", "groq", "mistral", "openrouter", "nonsense"],
)
def test_the_dialects_of_compatible_servers_are_understood(
    entry: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert list(chat_entries({"data": [entry]})) == [{"name": "m", **expected}]
    assert list(chat_entries([entry])) == [{"name": "m", **expected}]  # Together


def test_what_is_no_chat_model_is_left_out() -> None:
    rows = [
        {"id": "models/gemini-2.5-flash"},
        {"id": "e", "type": "embeddings"},
        {"id": "ocr", "capabilities": {"completion_chat": False}},
        {"id": "text-embedding-3-large"},
        {"id": "gpt-4.1"},
    ]
    names = [entry["name"] for entry in chat_entries({"data": rows})]
    assert names == ["gemini-2.5-flash", "text-embedding-3-large", "gpt-4.1"]
    names = [entry["name"] for entry in chat_entries({"data": rows}, is_openai=True)]
    assert names == ["gemini-2.5-flash", "gpt-4.1"]
    made = {"models": [
        {"name": "models/g", "supportedGenerationMethods": ["generateContent"],
         "inputTokenLimit": 1048576, "outputTokenLimit": 65536, "thinking": True},
        {"name": "models/e", "supportedGenerationMethods": ["embedContent"]},
    ]}  # fmt: skip
    assert list(gemini_entries(made)) == [
        {
            "name": "g",
            "context_tokens": 1048576,
            "max_output_tokens": 65536,
            "supports_thinking": True,
        }
    ]
    claude = {"id": "claude-x", "max_input_tokens": 200000, "max_tokens": 64000,
              "capabilities": {"image_input": {"supported": True}, "thinking": {"supported": False}}}  # fmt: skip
    assert list(claude_entries({"data": [claude]})) == [
        {
            "name": "claude-x",
            "context_tokens": 200000,
            "max_output_tokens": 64000,
            "supports_images": True,
            "supports_thinking": False,
        }
    ]


@pytest.mark.parametrize(
    "value", [None, 3, "text", [], {}, {"data": None}, {"data": [1, {}, {"id": "\x1b[2J"}]}]
)
def test_what_is_no_list_has_no_models(value: Any) -> None:
    assert list(chat_entries(value)) == []
    assert list(claude_entries(value)) == []
    assert list(gemini_entries(value)) == []
