"""What one Gemini model takes and another refuses, told from its name.

Sources: https://ai.google.dev/gemini-api/docs/generate-content/thinking (levels by model),
/thought-signatures, /function-calling. Law: a combination that the API refuses is never sent;
a name that is not known is taken for a model of today.
"""

from __future__ import annotations

import re
from typing import Any

from agentcli.domain.ports import Effort, ModelRequest

_NAME = re.compile(r"gemini-(?:(?P<major>\d+)(?:\.(?P<minor>\d+))?(?![\d.]))?")
_UNNUMBERED = (99, 0)
_FIRST_THINKING = (2, 5)
_FIRST_LEVELS = (3, 0)
# Of the models with levels, the Flash ones of these versions also know "minimal".
_WITH_MINIMAL = frozenset({(3, 0), (3, 1), (3, 5), (3, 6)})
_BUDGETS = {
    Effort.MINIMAL: 1_024,
    Effort.LOW: 4_096,
    Effort.MEDIUM: 10_000,
    Effort.HIGH: 24_000,
}
_MIN_BUDGET = 1_024
_MIN_BUDGET_PRO = 128
# What is left for the answer where the output limit includes the thoughts.
_ROOM_TO_ANSWER = 1_024

Json = dict[str, Any]


def version_of(model: str) -> tuple[int, int] | None:
    """(3, 6) of ``gemini-3.6-flash``; above all numbers for ``gemini-flash-latest``.

    ``None`` for the name of another family.
    """
    match = _NAME.search(model.lower())
    if match is None:
        return None
    if match["major"] is None:
        return _UNNUMBERED
    return int(match["major"]), int(match["minor"] or 0)


def is_modern(model: str) -> bool:
    """Whether the model (Gemini 3 on) knows call ids and media in results, and wants signatures."""
    return (version_of(model) or _UNNUMBERED) >= _FIRST_LEVELS


def thinking_config(request: ModelRequest) -> Json | None:
    """``generationConfig.thinkingConfig``, or ``None`` where the model would refuse it."""
    model = request.model.name.lower()
    version = version_of(model)
    if version is None or version < _FIRST_THINKING:
        return None
    effort = request.effort
    if version >= _FIRST_LEVELS:
        config: Json = {"includeThoughts": True}
        if effort is not None:
            config["thinkingLevel"] = _level(model, version, effort)
        return config
    if effort is None:
        # Flash-Lite 2.5 does not think unless told to, and then has no thoughts to include.
        return None if "lite" in model else {"includeThoughts": True}
    if effort is Effort.NONE:
        return {"thinkingBudget": _MIN_BUDGET_PRO if "pro" in model else 0}
    budget = _BUDGETS[effort]
    if request.max_output_tokens is not None:
        budget = max(_MIN_BUDGET, min(budget, request.max_output_tokens - _ROOM_TO_ANSWER))
    return {"includeThoughts": True, "thinkingBudget": budget}


def _level(model: str, version: tuple[int, int], effort: Effort) -> str:
    if effort in {Effort.NONE, Effort.MINIMAL}:
        knows_minimal = "flash" in model and version in _WITH_MINIMAL
        return "minimal" if knows_minimal else "low"
    if effort is Effort.MEDIUM and version == _FIRST_LEVELS and "pro" in model:
        return "high"  # Gemini 3 Pro knows only the two ends
    return effort.value
