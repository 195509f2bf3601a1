"""A person without a key but with a model server on the machine gets that server (CLI-10)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentcli.domain.ports import ProviderConfig
from agentcli.providers.models.local import WITHIN_S, find_local_model
from tests.support.model_server import ModelServer

NOWHERE = {
    name: "http://127.0.0.1:9/v1"
    for name in ("OLLAMA_HOST", "LMSTUDIO_BASE_URL", "VLLM_BASE_URL", "LLAMACPP_BASE_URL")
}


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not look like one without servers; see the tests on silence."""
    monkeypatch.setattr("agentcli.providers.models.local.WITHIN_S", 1.0)


@contextmanager
def a_silent_port() -> Iterator[int]:
    """A port that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize(
    ("variable", "provider"),
    [
        ("OLLAMA_HOST", "ollama"),
        ("LMSTUDIO_BASE_URL", "lmstudio"),
        ("VLLM_BASE_URL", "vllm"),
        ("LLAMACPP_BASE_URL", "llamacpp"),
        ("OPENAI_BASE_URL", "openai"),
    ],
)
def test_the_first_model_of_a_server_that_answers_is_found(variable: str, provider: str) -> None:
    with ModelServer(models=["qwen3:8b", "other"]) as server:
        found = find_local_model({**NOWHERE, variable: server.openai_url}, {})
    assert found == (f"{provider}/qwen3:8b", f"127.0.0.1:{server.port}")


@pytest.mark.spec("CLI-10")
def test_a_configured_server_comes_first() -> None:
    with ModelServer(models=["mine"]) as server, ModelServer(models=["theirs"]) as ollama:
        own = {"home": ProviderConfig("home", "openai", server.openai_url)}
        found = find_local_model({**NOWHERE, "OLLAMA_HOST": ollama.url}, own)
    assert found is not None and found.model == "home/mine"


@pytest.mark.spec("CLI-10")
def test_ollama_is_asked_in_its_own_words_too() -> None:
    with ModelServer() as server:
        server.routes["GET", "/v1/models"] = (404, {})
        server.routes["GET", "/api/tags"] = (200, {"models": [{"name": "llama3.2:latest"}]})
        found = find_local_model({**NOWHERE, "OLLAMA_HOST": f"127.0.0.1:{server.port}"}, {})
    assert found is not None and found.model == "ollama/llama3.2:latest"


@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize("answer", [{}, [], {"data": []}, {"data": [{"id": 3}, "x"]}, "text"])
def test_what_has_no_models_is_no_model_server(answer: object) -> None:
    with ModelServer() as server:
        server.routes["GET", "/v1/models"] = (200, answer)
        assert find_local_model({**NOWHERE, "VLLM_BASE_URL": server.openai_url}, {}) is None


@pytest.mark.spec("CLI-10", "SEC-12")
def test_nobody_is_asked_who_is_neither_here_nor_a_local_server_by_name() -> None:
    with ModelServer() as server:
        elsewhere = f"http://example.invalid:{server.port}/v1"
        own = {"far": ProviderConfig("far", "openai", elsewhere)}
        assert find_local_model({**NOWHERE, "OPENAI_BASE_URL": elsewhere}, own) is None
        assert not server.others


@pytest.mark.spec("CLI-10")
def test_servers_that_say_nothing_do_not_hang_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcli.providers.models.local.WITHIN_S", WITHIN_S)
    assert WITHIN_S == 0.2
    with a_silent_port() as one, a_silent_port() as two:
        silent = {
            "VLLM_BASE_URL": f"http://127.0.0.1:{one}/v1",
            "OLLAMA_HOST": f"http://127.0.0.1:{two}/v1",
        }
        assert find_local_model({**NOWHERE, **silent}, {}) is None


@pytest.mark.spec("CLI-10")
def test_a_silent_server_does_not_hide_one_that_answers() -> None:
    with a_silent_port() as port, ModelServer(models=["m"]) as server:
        env = {
            **NOWHERE,
            "OLLAMA_HOST": f"http://127.0.0.1:{port}/v1",
            "VLLM_BASE_URL": server.openai_url,
        }
        found = find_local_model(env, {})
    assert found is not None and found.model == "vllm/m"


@pytest.mark.spec("CLI-10")
def test_a_model_that_makes_embeddings_is_not_the_first_choice() -> None:
    with ModelServer(models=["text-embedding-nomic", "qwen3"]) as server:
        found = find_local_model({**NOWHERE, "LMSTUDIO_BASE_URL": server.openai_url}, {})
    assert found is not None and found.model == "lmstudio/qwen3"
