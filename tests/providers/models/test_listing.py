"""Every provider that is set up is asked for its models, at once; failures cost only themselves."""

from __future__ import annotations

import socket
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from agentcli.domain.ports import ProviderConfig
from agentcli.providers import _registry
from agentcli.providers.models.listing import list_models
from tests.support.json_server import JsonServer
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.spec("CTX-3")
KEY = "sk-test-0123456789abcdefghij"
NOWHERE = {
    name: "http://127.0.0.1:9/v1"
    for name in ("OLLAMA_HOST", "LMSTUDIO_BASE_URL", "VLLM_BASE_URL", "LLAMACPP_BASE_URL")
}
LONG_S = 8.0


def names(models: Mapping[str, tuple[dict[str, Any], ...]]) -> dict[str, list[str]]:
    return {provider: [entry["name"] for entry in entries] for provider, entries in models.items()}


def test_each_is_asked_in_its_own_protocol_with_its_own_key_only() -> None:
    google = {"models": [{"name": "models/gemini-x"}]}
    with (
        ModelServer(models=["claude-x"], api_key="key-a") as claude,
        ModelServer(models=["gpt-x"], api_key="key-o") as gpt,
        JsonServer({"GET /v1beta/models": google}) as gemini,
    ):
        env = {
            **NOWHERE,
            "ANTHROPIC_API_KEY": "key-a",
            "ANTHROPIC_BASE_URL": claude.url,
            "OPENAI_API_KEY": "key-o",
            "OPENAI_BASE_URL": gpt.openai_url,
            "GEMINI_API_KEY": "key-g",
            "GEMINI_BASE_URL": gemini.url,
        }
        found, warnings = list_models(env, {}, within_s=LONG_S)
    assert names(found) == {"anthropic": ["claude-x"], "openai": ["gpt-x"], "gemini": ["gemini-x"]}
    assert not warnings
    for recorded, key in ((claude.others, "key-a"), (gpt.others, "key-o"), (gemini.asked, "key-g")):
        sent = str([asked.headers for asked in recorded])
        assert key in sent
        assert not any(other in sent for other in {"key-a", "key-o", "key-g"} - {key})


@pytest.mark.spec("SEC-12")
def test_who_has_no_key_is_not_asked() -> None:
    with ModelServer() as server:
        env = {**NOWHERE, "ANTHROPIC_BASE_URL": server.url}
        found, warnings = list_models(env, {}, within_s=LONG_S)
        assert (found, warnings) == ({}, ())
        assert not server.others


def test_one_that_fails_is_a_line_and_the_others_are_there() -> None:
    with ModelServer(models=["m"]) as good, ModelServer(api_key="other") as bad:
        own = {
            "good": ProviderConfig("good", "openai", good.openai_url, needs_key=False),
            "bad": ProviderConfig("bad", "openai", bad.openai_url, "BAD_KEY", KEY),
            "down": ProviderConfig("down", "openai", "http://127.0.0.1:9/v1", needs_key=False),
        }
        found, warnings = list_models(NOWHERE, own, within_s=LONG_S)
    assert names(found) == {"good": ["m"]}
    assert len(warnings) == 2
    assert all(line.startswith("warning: ") and "\n" not in line for line in warnings)
    assert any("BAD_KEY" in line for line in warnings)
    assert any("down at 127.0.0.1:9 refused" in line for line in warnings)
    assert KEY not in str(warnings)


def test_a_local_server_that_does_not_run_is_news_only_to_who_uses_it() -> None:
    assert list_models(NOWHERE, {}, within_s=LONG_S) == ({}, ())
    _, warnings = list_models(NOWHERE, {}, named=["ollama"], within_s=LONG_S)
    assert len(warnings) == 1
    assert "ollama" in warnings[0]


def test_the_whole_is_bounded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        own = {"slow": ProviderConfig("slow", "openai", url, needs_key=False)}
        found, warnings = list_models(NOWHERE, own, within_s=0.1)
    assert found == {}
    assert len(warnings) == 1
    assert "slow" in warnings[0]


def test_local_models_come_with_their_windows() -> None:
    routes = {
        "GET /api/tags": {"models": [{"name": "qwen3:latest"}, {"name": "odd"}]},
        "POST /api/show": lambda asked: (
            (200, {"parameters": "num_ctx 8192"})
            if asked.body == {"model": "qwen3:latest"}
            else (404, {})
        ),
    }
    with JsonServer(routes) as server:
        found, _ = list_models({**NOWHERE, "OLLAMA_HOST": server.url}, {}, within_s=LONG_S)
    assert found["ollama"] == (
        {"name": "qwen3:latest", "context_tokens": 8192},
        {"name": "odd"},
    )


def test_one_account_by_two_names_is_asked_once() -> None:
    with ModelServer(models=["gpt-x"]) as server:
        env = {**NOWHERE, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.openai_url}
        found, _ = list_models(env, {}, within_s=LONG_S)
        assert names(found) == {"openai": ["gpt-x"]}
        assert len(server.others) == 1


def test_a_new_provider_brings_its_list_in_its_own_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def own_list(ask: Any) -> Iterator[dict[str, Any]]:
        yield {"name": "polly", "context_tokens": 4096}

    parrot = types.ModuleType("agentcli.providers.parrot")
    parrot.list_models = own_list  # type: ignore[attr-defined]  # what the file would define
    monkeypatch.setitem(sys.modules, "agentcli.providers.parrot", parrot)
    known = _registry.module_names() | {"parrot"}
    monkeypatch.setattr(_registry, "module_names", lambda: known)
    found, _ = list_models(NOWHERE, {}, within_s=LONG_S)
    assert found == {"parrot": ({"name": "polly", "context_tokens": 4096},)}


def test_a_hook_that_breaks_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ask: Any) -> Iterator[dict[str, Any]]:
        raise KeyError("models")

    parrot = types.ModuleType("agentcli.providers.parrot")
    parrot.list_models = broken  # type: ignore[attr-defined]  # what the file would define
    monkeypatch.setitem(sys.modules, "agentcli.providers.parrot", parrot)
    known = _registry.module_names() | {"parrot"}
    monkeypatch.setattr(_registry, "module_names", lambda: known)
    assert list_models(NOWHERE, {}, within_s=LONG_S).warnings == (
        "warning: parrot sent a list that cannot be read - check its base_url",
    )
