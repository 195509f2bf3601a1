"""What each model behind Chat Completions takes for ``--effort``."""

from __future__ import annotations

from typing import Any

import pytest

from agentcli.domain.ports import Effort
from agentcli.providers._efforts import ROWS, effort_fields, nearest
from agentcli.providers._registry import BUILT_IN

pytestmark = pytest.mark.spec("CLI-3")


@pytest.mark.parametrize(
    ("provider", "model", "effort", "expected"),
    [
        ("xai", "grok-4.6", Effort.NONE, {"reasoning_effort": "low"}),
        ("xai", "grok-4.3", Effort.NONE, {"reasoning_effort": "none"}),
        ("xai", "grok-3-mini", Effort.MEDIUM, {"reasoning_effort": "high"}),
        ("groq", "openai/gpt-oss-120b", Effort.MAX, {"reasoning_effort": "high"}),
        ("openrouter", "any/model", Effort.MAX, {"reasoning": {"effort": "xhigh"}}),
        ("xai", "grok-build-0.1", Effort.HIGH, {}),
        ("mistral", "mistral-medium-2604", Effort.MINIMAL, {"reasoning_effort": "none"}),
        ("mistral", "mistral-small-latest", Effort.LOW, {"reasoning_effort": "high"}),
        ("mistral", "magistral-medium-latest", Effort.LOW, {}),
        ("mistral", "mistral-medium-2508", Effort.HIGH, {}),
        ("deepseek", "deepseek-v4-pro", Effort.NONE, {"thinking": {"type": "disabled"}}),
        ("deepseek", "deepseek-v4-pro", Effort.MEDIUM, {"reasoning_effort": "high"}),
        ("deepseek", "deepseek-chat", Effort.HIGH, {}),
        ("groq", "openai/gpt-oss-120b", Effort.MINIMAL, {"reasoning_effort": "low"}),
        ("groq", "qwen/qwen3-32b", Effort.HIGH, {}),
        ("gemini", "gemini-3.6-flash", Effort.NONE, {"reasoning_effort": "minimal"}),
        ("gemini", "gemini-3.1-pro-preview", Effort.NONE, {"reasoning_effort": "low"}),
        ("gemini", "gemini-2.5-flash", Effort.NONE, {"reasoning_effort": "none"}),
        ("openrouter", "any/thing", Effort.NONE, {"reasoning": {"effort": "minimal"}}),
        ("ollama", "gpt-oss:20b", Effort.HIGH, {}),
        ("vllm", "grok-4.6", Effort.HIGH, {}),
    ],
)
def test_the_nearest_value_that_is_taken_is_sent(
    provider: str, model: str, effort: Effort, expected: dict[str, Any]
) -> None:
    assert effort_fields(provider, model, effort) == expected


@pytest.mark.parametrize("effort", Effort)
def test_a_value_that_is_taken_is_not_changed(effort: Effort) -> None:
    assert nearest(effort, [str(each) for each in Effort]) == effort


def test_the_table_is_sane() -> None:
    for provider, _, values in ROWS:
        assert provider in BUILT_IN
        assert not BUILT_IN[provider].is_local
        assert set(values.split()) <= {"off", *map(str, Effort)}
