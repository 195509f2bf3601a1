"""The real window of a model on one's own server, and the warning about a small one (CTX-3)."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from agentcli.domain.ports import ModelInfo, ProviderConfig
from agentcli.providers.models.local import (
    WITHIN_S,
    Window,
    asks_about,
    find_window,
    ollama_window,
    small_window_warning,
    with_window,
)
from agentcli.providers.models.table import model_info
from tests.support.json_server import JsonServer

pytestmark = pytest.mark.spec("CTX-3")


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not look like a server that says nothing."""
    monkeypatch.setattr("agentcli.providers.models.local.WITHIN_S", 5.0)


def shown(largest: int = 40960, parameters: str = "", **more: Any) -> dict[str, Any]:
    info = {"general.architecture": "qwen3", "qwen3.context_length": largest, "x": None}
    return {"model_info": info, "parameters": parameters, **more}


def local(name: str, url: str) -> ProviderConfig:
    return ProviderConfig(name, "openai", f"{url}/v1", needs_key=False)


@pytest.mark.parametrize(
    ("answer", "running", "is_loaded", "tokens", "is_certain", "advice"),
    [
        (shown(parameters="stop x\nnum_ctx    4096\n"), None, False, 4096, True, "Modelfile ("),
        (shown(8192, "num_ctx 65536"), None, False, 8192, True, "choose a model"),
        (shown(parameters="num_ctx 32768"), 4096, False, 32768, True, "Modelfile ("),
        (shown(parameters="num_ctx 32768"), 4096, True, 4096, True, "Modelfile ("),
        (shown(), 4096, False, 4096, False, "OLLAMA_CONTEXT_LENGTH"),
        (shown(), 4096, True, 4096, True, "OLLAMA_CONTEXT_LENGTH"),
        (shown(), 40960, True, 40960, True, "choose a model"),
        (shown(), None, False, 32768, False, "choose a model"),
        (shown(2048), None, False, 2048, False, "choose a model"),
        (shown(262144, remote_host="https://ollama.com"), None, False, 262144, True, "choose"),
    ],
)  # fmt: skip
def test_ollamas_window_is_the_one_that_our_requests_get(
    answer: dict[str, Any],
    running: int | None,
    is_loaded: bool,
    tokens: int,
    is_certain: bool,
    advice: str,
) -> None:
    window = ollama_window(answer, running, is_loaded=is_loaded)
    assert window is not None
    assert (window.tokens, window.is_certain) == (tokens, is_certain)
    assert advice in window.advice


@pytest.mark.parametrize("answer", [{}, {"model_info": 3, "parameters": 4}, shown(-1)])
def test_an_ollama_that_says_nothing_useful_has_no_window(answer: dict[str, Any]) -> None:
    assert ollama_window(answer) is None


def test_ollama_is_asked_about_the_model_by_name() -> None:
    loaded = {"models": [{"name": "other:latest", "context_length": 1}, {"name": "qwen3:latest", "context_length": 4096}]}  # fmt: skip
    with JsonServer({"POST /api/show": shown(), "GET /api/ps": loaded}) as server:
        window = find_window(local("ollama", server.url), "qwen3", is_loaded=True)
    assert window is not None and window.tokens == 4096
    assert server.asked[0].body == {"model": "qwen3"}


def test_an_old_ollama_without_ps_is_understood() -> None:
    with JsonServer({"POST /api/show": shown(parameters="num_ctx 2048")}) as server:
        window = find_window(local("ollama", server.url), "qwen3")
    assert window is not None and window.tokens == 2048


def test_llamacpp_tells_what_a_slot_has() -> None:
    props = {"default_generation_settings": {"n_ctx": 8192}, "total_slots": 4}
    with JsonServer({"GET /props": props}) as server:
        window = find_window(local("llamacpp", server.url), "any")
    assert window is not None
    assert (window.tokens, window.is_certain) == (8192, True)
    assert "-c" in window.advice


@pytest.mark.parametrize(
    ("entry", "tokens", "is_certain"),
    [
        ({"state": "loaded", "loaded_context_length": 4096, "max_context_length": 131072}, 4096, True),
        ({"state": "not-loaded", "max_context_length": 131072}, 32768, False),
        ({"state": "not-loaded", "max_context_length": 8192}, 8192, False),
    ],
)  # fmt: skip
def test_lm_studio_tells_what_is_loaded(
    entry: dict[str, Any], tokens: int, is_certain: bool
) -> None:
    rows = {"data": [{"id": "other", "max_context_length": 1}, {"id": "m", **entry}]}
    with JsonServer({"GET /api/v0/models": rows}) as server:
        window = find_window(local("lmstudio", server.url), "m")
    assert window is not None
    assert (window.tokens, window.is_certain) == (tokens, is_certain)


def test_vllm_tells_it_in_its_list() -> None:
    with JsonServer({"GET /v1/models": {"data": [{"id": "m", "max_model_len": 12000}]}}) as server:
        window = find_window(local("vllm", server.url), "m")
    assert window is not None
    assert (window.tokens, window.is_certain) == (12000, True)


@pytest.mark.parametrize(
    "routes",
    [
        {"GET /props": {"default_generation_settings": {"n_ctx": 6000}}},
        {"GET /v1/models": {"data": [{"id": "m", "max_model_len": 6000}]}},
        {"POST /api/show": shown(parameters="num_ctx 6000"), "GET /v1/models": {"data": []}},
    ],
)
def test_a_server_of_ones_own_is_asked_in_every_way(routes: dict[str, Any]) -> None:
    with JsonServer(routes) as server:
        window = find_window(local("home", server.url), "m")
    assert window is not None and window.tokens == 6000


@pytest.mark.parametrize("answer", [(404, {}), (200, []), (200, b"<html>"), (500, {})])
def test_a_server_that_does_not_know_costs_nothing_but_the_answer(answer: tuple[int, Any]) -> None:
    paths = ("POST /api/show", "GET /props", "GET /api/v0/models", "GET /v1/models")
    with JsonServer({path: lambda _: answer for path in paths}) as server:
        for name in ("ollama", "llamacpp", "lmstudio", "vllm", "home"):
            assert find_window(local(name, server.url), "m") is None


def test_a_server_that_says_nothing_does_not_hold_up_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentcli.providers.models.local.WITHIN_S", WITHIN_S)
    assert WITHIN_S <= 0.2
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert find_window(local("ollama", url), "m") is None


@pytest.mark.spec("SEC-12")
@pytest.mark.parametrize(
    ("config", "model", "expected"),
    [
        (ProviderConfig("ollama", "openai", "http://192.168.0.9:11434/v1", needs_key=False), "q", True),
        (ProviderConfig("home", "openai", "http://localhost:9/v1", needs_key=False), "q", True),
        (ProviderConfig("home", "openai", "https://models.example.com/v1"), "q", False),
        (ProviderConfig("home", "anthropic", "http://localhost:9"), "q", False),
        (ProviderConfig("openai", "openai", "http://127.0.0.1:9/v1", needs_key=False), "q", True),
        (ProviderConfig("openai", "openai", "http://127.0.0.1:9/v1", needs_key=False), "gpt-4.1", False),
        (ProviderConfig("openai", "openai", "https://api.openai.com/v1"), "q", False),
        (ProviderConfig("scripted", "scripted", "/tmp/x.json", needs_key=False), "s", False),
    ],
)  # fmt: skip
def test_only_servers_of_ones_own_are_asked(
    config: ProviderConfig, model: str, expected: bool
) -> None:
    assert asks_about(config, model) is expected


def test_the_window_that_was_found_is_used_and_leaves_room_for_the_prompt() -> None:
    info = with_window(model_info("ollama", "qwen3"), Window(4096))
    assert (info.context_tokens, info.max_output_tokens) == (4096, 2048)
    large = with_window(model_info("ollama", "qwen3"), Window(131072))
    assert (large.context_tokens, large.max_output_tokens) == (131072, 8192)


def test_a_small_window_is_one_line_with_advice() -> None:
    info = ModelInfo("ollama", "qwen3")
    window = ollama_window(shown(), 4096)
    assert window is not None
    warning = small_window_warning(info, window)
    assert "ollama/qwen3" in warning
    assert "4,096 tokens" in warning
    assert "without a word" in warning
    assert "OLLAMA_CONTEXT_LENGTH=" in warning
    assert "\n" not in warning
    assert "without a word" not in small_window_warning(info, Window(4096, advice="x"))
    assert small_window_warning(info, Window(16_384)) == ""
    assert small_window_warning(info, Window(4096, is_told=False)) == ""
