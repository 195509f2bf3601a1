"""Which providers there are, how they are configured, and what is imported for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError
from agentcli.domain.ports import ProviderConfig
from agentcli.providers import _registry
from agentcli.providers._registry import (
    BUILT_IN,
    create,
    default_model,
    has_key,
    ollama_url,
    provider_config,
    provider_names,
)
from tests.providers.streams import request

KEY = "sk-abcdefghijklmnop"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_built_in_provider_can_be_made(name: str) -> None:
    env = {"AWS_REGION": "eu-west-1", "AZURE_RESOURCE_NAME": "ours"}
    config = provider_config(name, env, {})
    provider = create(config)
    assert provider.name == name
    assert config.name == name


@pytest.mark.spec("CLI-10")
def test_keys_and_addresses_come_from_the_environment() -> None:
    env = {"ANTHROPIC_API_KEY": f" {KEY}\n", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    config = provider_config("anthropic", env, {})
    assert (config.api_key, config.key_env) == (KEY, "ANTHROPIC_API_KEY")
    assert config.base_url == "http://127.0.0.1:9"
    assert KEY not in repr(config)
    gemini = provider_config("gemini", {"GOOGLE_API_KEY": KEY}, {})
    assert (gemini.api_key, gemini.key_env) == (KEY, "GOOGLE_API_KEY")
    assert gemini.kind == "gemini"
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_API_KEY": "other", "GEMINI_BASE_URL": "http://h:1"}
    gemini = provider_config("gemini", env, {})
    assert (gemini.api_key, gemini.base_url) == (KEY, "http://h:1")


def test_a_configured_provider_wins_over_the_environment_and_the_built_in_row() -> None:
    own = ProviderConfig("work", "openai", "https://llm.example.com/v1", "WORK_KEY")
    custom = {"work": own, "openai": ProviderConfig("openai", "openai", "http://127.0.0.1:1")}
    config = provider_config("work", {"WORK_KEY": KEY}, custom)
    assert (config.base_url, config.api_key) == ("https://llm.example.com/v1", KEY)
    assert provider_config("work", {}, custom).needs_key
    env = {"OPENAI_BASE_URL": "http://other", "OPENAI_API_KEY": KEY}
    openai = provider_config("openai", env, custom)
    assert (openai.base_url, openai.api_key) == ("http://127.0.0.1:1", KEY)


def test_a_compatible_server_may_need_no_key() -> None:
    assert provider_config("openai", {}, {}).needs_key
    assert not provider_config("openai", {"OPENAI_BASE_URL": "http://localhost:1"}, {}).needs_key
    assert provider_config("anthropic", {"ANTHROPIC_BASE_URL": "http://h"}, {}).needs_key
    keyless = {"mine": ProviderConfig("mine", "openai", "http://localhost:1/v1")}
    assert not provider_config("mine", {}, keyless).needs_key
    assert not provider_config("ollama", {}, {}).needs_key


@pytest.mark.spec("STR-9", "OPS-1")
@pytest.mark.parametrize("name", ["anthropic", "openai", "mistral"])
def test_a_request_without_a_key_says_which_variable_to_set(name: str) -> None:
    async def run() -> ProviderError:
        provider = create(provider_config(name, {}, {}))
        with pytest.raises(ProviderError) as caught:
            async for _ in provider.stream(request(), CancelToken()):
                pass
        return caught.value

    error = asyncio.run(run())
    assert error.kind is ErrorKind.AUTH
    assert not error.retryable
    assert str(error).startswith(f"{BUILT_IN[name].key_envs[0]} is not set - ")


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("key", ["sk-a\nb-secret", "sk-\u00e9-secret", "sk a-secret"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    async def run() -> ProviderError:
        provider = create(provider_config("anthropic", {"ANTHROPIC_API_KEY": key}, {}))
        with pytest.raises(ProviderError) as caught:
            async for _ in provider.stream(request(), CancelToken()):
                pass
        return caught.value

    error = asyncio.run(run())
    assert error.kind is ErrorKind.AUTH
    assert "secret" not in str(error)
    assert "ANTHROPIC_API_KEY" in str(error)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("box:1234", "http://box:1234/v1"),
        (":1234", "http://127.0.0.1:1234/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:80", "http://127.0.0.1:80/v1"),
        ("http://box", "http://box/v1"),
        ("https://box:8443/", "https://box:8443/v1"),
        ("https://box/v1", "https://box/v1"),
        ("[::1]:9", "http://[::1]:9/v1"),
    ],
)
@pytest.mark.spec("CLI-10")
def test_ollama_host_in_all_its_spellings(value: str, expected: str) -> None:
    assert ollama_url(value) == expected
    assert provider_config("ollama", {"OLLAMA_HOST": value}, {}).base_url == expected


def test_an_unknown_provider_names_those_spelled_alike() -> None:
    with pytest.raises(ConfigError, match="did you mean anthropic"):
        provider_config("antropic", {}, {})
    mine = {"zebra": ProviderConfig("zebra", "openai", "http://h")}
    with pytest.raises(ConfigError, match="zebra"):
        provider_config("zebar", {}, mine)
    with pytest.raises(ConfigError, match="known: anthropic"):
        provider_config("qqqqqq", {}, {})


def test_an_unknown_kind_and_an_unusable_address_say_what_to_do() -> None:
    odd = {"mine": ProviderConfig("mine", "telepathy", "http://h")}
    with pytest.raises(ConfigError, match=r"telepathy.*anthropic"):
        provider_config("mine", {}, odd)
    for url in ("localhost:11434", "ftp://h", "http://", "http://h:99999", "http://[::1"):
        with pytest.raises(ConfigError, match="OPENAI_BASE_URL"):
            provider_config("openai", {"OPENAI_BASE_URL": url}, {})
    for value in ("[::1", "box:99999", "ftp://box"):
        with pytest.raises(ConfigError, match="OLLAMA_HOST"):
            provider_config("ollama", {"OLLAMA_HOST": value}, {})
    with pytest.raises(ConfigError, match="has no base_url"):
        provider_config("mine", {}, {"mine": ProviderConfig("mine", "openai")})


@pytest.mark.spec("CLI-10")
def test_the_default_model_is_of_the_first_provider_with_a_key() -> None:
    assert default_model({}, {}) == "offline/assistant"
    assert default_model({"OPENAI_API_KEY": KEY}, {}).startswith("openai/")
    both = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    assert default_model(both, {}).startswith("anthropic/")
    assert default_model({"ANTHROPIC_API_KEY": "  "}, {}) == "offline/assistant"
    assert default_model({"AGENTCLI_SCRIPT": "x.json"}, {}) == "scripted/script"
    own = {"mistral": ProviderConfig("mistral", "openai", api_key=KEY)}
    assert default_model({}, own).startswith("mistral/")
    assert has_key("mistral", {}, own)
    assert not has_key("openai", {}, own)


def test_a_new_provider_is_one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "parrot.py").write_text(
        "from agentcli.providers._registry import ProviderSpec\n"
        "from agentcli.providers.offline import OfflineProvider\n"
        "SPEC = ProviderSpec('parrot', needs_key=False, default_model='polly')\n"
        "PROVIDER = OfflineProvider\n"
    )
    import agentcli.providers

    monkeypatch.setattr(
        agentcli.providers, "__path__", [*agentcli.providers.__path__, str(tmp_path)]
    )
    monkeypatch.setattr(_registry, "_HERE", tmp_path)
    assert "parrot" in provider_names()
    assert create(provider_config("parrot", {}, {})).name == "parrot"
    sys.modules.pop("agentcli.providers.parrot", None)


def test_only_the_chosen_provider_is_imported() -> None:
    program = """
import sys
from agentcli.providers import _registry
from agentcli.providers.models import table
table.resolve("claude-sonnet-4-5"); table.model_info("anthropic", "x")
_registry.create(_registry.provider_config("anthropic", {}, {}))
loaded = {name for name in sys.modules if name.startswith("agentcli.providers.")}
assert not loaded & {"agentcli.providers.openai", "agentcli.providers.offline"}, loaded
heavy = {"pydantic", "rich", "pygments", "click", "httpx", "difflib", "prompt_toolkit"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)


@pytest.mark.parametrize(
    ("env", "own", "kind"),
    [
        ({}, None, "openai-responses"),
        ({"OPENAI_BASE_URL": "https://api.openai.com/v1/"}, None, "openai-responses"),
        ({"OPENAI_BASE_URL": "https://eu.api.openai.com/v1"}, None, "openai-responses"),
        ({"OPENAI_BASE_URL": "https://notapi.openai.com.example/v1"}, None, "openai"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, None, "openai"),
        ({}, ProviderConfig("openai", "", "http://127.0.0.1:1/v1"), "openai"),
        ({}, ProviderConfig("openai", "", key_env="WORK_KEY"), "openai-responses"),
        ({}, ProviderConfig("openai", "", api="chat"), "openai"),
        (
            {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"},
            ProviderConfig("openai", "", api="responses"),
            "openai-responses",
        ),
    ],
)
def test_openai_speaks_responses_at_its_own_address_and_chat_elsewhere(
    env: dict[str, str], own: ProviderConfig | None, kind: str
) -> None:
    config = provider_config("openai", env, {"openai": own} if own else {})
    assert config.kind == kind
    assert type(create(config)).__module__.endswith(kind.replace("-", "_"))


def test_any_openai_like_provider_can_be_told_which_api_to_speak() -> None:
    mine = ProviderConfig("mine", "openai", "http://h/v1", api="responses")
    assert provider_config("mine", {}, {"mine": mine}).kind == "openai-responses"
    by_kind = ProviderConfig("mine", "openai-responses", "http://h/v1")
    assert provider_config("mine", {}, {"mine": by_kind}).kind == "openai-responses"
    xai = ProviderConfig("xai", "", api="responses")
    assert provider_config("xai", {}, {"xai": xai}).kind == "openai-responses"
    claude = ProviderConfig("anthropic", "", api="chat")
    with pytest.raises(ConfigError, match="has an api, but its kind is 'anthropic'"):
        provider_config("anthropic", {}, {"anthropic": claude})


def test_the_responses_row_always_speaks_responses() -> None:
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": KEY}
    config = provider_config("openai-responses", env, {})
    assert (config.kind, config.base_url) == ("openai-responses", "http://127.0.0.1:1/v1")
    assert (config.api_key, config.needs_key) == (KEY, False)
    assert "openai_responses" not in provider_names()
