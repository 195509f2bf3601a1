"""Which thinking options a Gemini model is sent: never one that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from agentcli.domain.ports import Effort, ModelInfo
from agentcli.providers.gemini import encode, is_modern, thinking_config, version_of
from agentcli.providers.models.table import known_models
from tests.providers.streams import request
from tests.support.strict_gemini import check_gemini

NAMES = [
    *(info.name for info in known_models() if info.provider == "gemini"),
    "gemini-1.5-pro", "gemini-2.0-flash", "gemini-3-pro-preview", "gemini-3-flash-preview",
    "gemini-3.7-flash", "gemini-3.8-flash", "gemini-4-argon", "models/gemini-2.5-pro",
]  # fmt: skip


def config(model: str, effort: Effort | None, **more: Any) -> dict[str, Any] | None:
    return thinking_config(request("hi", ModelInfo("gemini", model), effort=effort, **more))


@pytest.mark.parametrize(
    ("name", "version", "modern"),
    [
        ("gemini-2.5-flash-lite", (2, 5), False),
        ("gemini-3-pro-preview", (3, 0), True),
        ("models/gemini-3.6-flash", (3, 6), True),
        ("Gemini-4-argon", (4, 0), True),
        ("gemini-flash-latest", (99, 0), True),
        ("gemma-4-31b-it", None, True),
        ("gemini-2.0-flash-001", (2, 0), False),
    ],
)
def test_the_version_is_told_from_the_name(name: str, version: object, modern: bool) -> None:
    assert version_of(name) == version
    assert is_modern(name) is modern


@pytest.mark.parametrize("name", NAMES)
def test_no_model_is_asked_for_what_it_refuses(name: str) -> None:
    for effort in (None, *Effort):
        for limit in (None, 1, 600, 2_000, 65_536):
            asked = request("hi", ModelInfo("gemini", name), effort=effort, max_output_tokens=limit)
            refused = check_gemini(encode(asked), name.removeprefix("models/"))
            assert refused is None, (effort, limit)


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("gemini-3.6-flash", None, {"includeThoughts": True}),
        ("gemini-3.6-flash", Effort.NONE, {"includeThoughts": True, "thinkingLevel": "minimal"}),
        ("gemini-3.8-flash", Effort.MINIMAL, {"includeThoughts": True, "thinkingLevel": "low"}),
        ("gemini-3.8-flash", Effort.MEDIUM, {"includeThoughts": True, "thinkingLevel": "medium"}),
        ("gemini-3-pro-preview", Effort.MEDIUM, {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-2.5-flash", Effort.NONE, {"thinkingBudget": 0}),
        ("gemini-2.5-pro", Effort.NONE, {"thinkingBudget": 128}),
        ("gemini-3-pro-preview", Effort.MAX, {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-2.5-pro", Effort.MAX, {"includeThoughts": True, "thinkingBudget": 24_576}),
        ("gemini-2.5-pro", Effort.HIGH, {"includeThoughts": True, "thinkingBudget": 24_000}),
        ("gemini-2.5-flash-lite", None, None),
        ("gemini-2.5-flash-lite", Effort.LOW, {"includeThoughts": True, "thinkingBudget": 4_096}),
        ("gemini-2.0-flash", Effort.HIGH, None),
        ("gemma-4-31b-it", Effort.HIGH, None),
    ],
)
def test_effort_becomes_a_level_or_a_budget(
    model: str, effort: Effort | None, expected: dict[str, Any] | None
) -> None:
    assert config(model, effort) == expected


def test_a_small_output_limit_leaves_room_for_the_answer() -> None:
    asked = config("gemini-2.5-flash", Effort.HIGH, max_output_tokens=8_192)
    assert asked == {"includeThoughts": True, "thinkingBudget": 7_168}
