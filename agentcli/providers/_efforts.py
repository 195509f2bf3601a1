"""How hard a model is asked to think: OpenAI's by the version in its name, others by a table.

Law: a value that the model refuses is never sent; the nearest that it takes is. A model that is
not in the table, a local server included, is asked for nothing. Sources, read on 2026-11-20:
https://developers.openai.com/api/docs/guides/reasoning and /api/docs/models; docs.x.ai (reasoning,
effort levels), docs.mistral.ai (reasoning), api-docs.deepseek.com/guides/thinking_mode,
console.groq.com/docs/reasoning, inference-docs.cerebras.ai (reasoning),
ai.google.dev/gemini-api/docs/openai, openrouter.ai/docs (reasoning tokens), and the public
models.dev catalogue. "xhigh" at OpenAI: developers.openai.com/api/docs/guides/reasoning (all models
after gpt-5.1-codex-max).
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

from agentcli.domain.ports import Effort

# A reasoning model of OpenAI, with its version where it has one.
_MODEL = re.compile(r"(?:o\d|gpt-(?P<major>\d+)(?:\.(?P<minor>\d+))?)(?!.*chat)")
_FIRST_REASONING_GPT = (5, 0)
_FIRST_EFFORT_NONE = (5, 1)
# From GPT-6.1 on the models always think: neither "none" nor "minimal" is taken.
FIRST_ALWAYS_ON = (6, 1)
# What thinks hardest is called "xhigh" from here on; before, "high" does.
_FIRST_XHIGH = (5, 2)
_FIRST_XHIGH_CODEX = "gpt-5.1-codex-max"
_UNNUMBERED = (0, 0)

Version = tuple[int, int]


def gpt_version(model: str) -> Version | None:
    """The version of a model that OpenAI made for chats; (0, 0) for the o-series."""
    match = _MODEL.match(model.rpartition("/")[2].removeprefix("openai."))  # Bedrock's prefix
    if match is None:
        return None
    return (int(match["major"]), int(match["minor"] or 0)) if match["major"] else _UNNUMBERED


def is_reasoning_version(version: Version) -> bool:
    """Whether models of this version think before they answer."""
    return version == _UNNUMBERED or version >= _FIRST_REASONING_GPT


def effort_for(model: str, version: Version, effort: Effort) -> str | None:
    """The value that a reasoning model takes for ``effort``; ``None`` to leave it to the model."""
    if effort in {Effort.XHIGH, Effort.MAX}:
        if version >= _FIRST_XHIGH or _FIRST_XHIGH_CODEX in model:
            return "xhigh"
        effort = Effort.HIGH
    if version == _UNNUMBERED or "codex" in model:
        return at_least_low(effort)
    if "-pro" in model:
        return _pro_effort(version, effort)
    if effort in {Effort.NONE, Effort.MINIMAL} and version < _FIRST_EFFORT_NONE:
        return "minimal"
    can_be_off = version < FIRST_ALWAYS_ON
    return "none" if effort is Effort.NONE and can_be_off else at_least_low(effort)


def _pro_effort(version: Version, effort: Effort) -> str | None:
    """The pro models think long: the first one knows "high" only, the later ones no "low"."""
    if effort is Effort.HIGH:
        return "high"
    return "medium" if effort is Effort.MEDIUM and version > _FIRST_REASONING_GPT else None


def at_least_low(effort: Effort) -> str:
    """For models that always think, of which no more is known."""
    return nearest(effort, ["low", "medium", "high"])


# --- behind Chat Completions, where it is not OpenAI --------------------------------------

# Provider, pattern of the model's name, the values it takes; the first row that fits counts.
ROWS: tuple[tuple[str, str, str], ...] = (
    ("xai", "grok-4.3*", "none low medium high"),
    ("xai", "grok-4.[5-9]*", "low medium high"),
    ("xai", "grok-3-mini*", "low high"),
    ("mistral", "mistral-small-latest", "none high"),
    ("mistral", "mistral-small-26*", "none high"),
    ("mistral", "mistral-medium-2604", "none high"),
    ("mistral", "mistral-medium-3[.-]5*", "none high"),
    ("deepseek", "deepseek-v4*", "off high"),
    ("groq", "openai/gpt-oss*", "low medium high"),
    ("cerebras", "gpt-oss*", "low medium high"),
    ("together", "openai/gpt-oss*", "low medium high"),
    ("gemini", "gemini-2.5-flash*", "none low medium high"),
    ("gemini", "gemini-2.5-pro*", "low medium high"),
    ("gemini", "gemini-3*flash*", "minimal low medium high"),
    ("gemini", "gemini-3*", "low high"),
    ("openrouter", "*", "minimal low medium high xhigh"),
)
_ORDER = tuple(str(effort) for effort in Effort)
# DeepSeek switches thinking off with a field of its own.
_OFF = "off"


def effort_fields(provider: str, model: str, effort: Effort) -> dict[str, Any]:
    """The fields of the body that ask ``model`` for ``effort``, or for the nearest it knows."""
    values = next(
        (row[2].split() for row in ROWS if row[0] == provider and fnmatchcase(model, row[1])), []
    )
    if not values:
        return {}
    value = nearest(effort, values)
    if value == _OFF:
        return {"thinking": {"type": "disabled"}}
    if provider == "openrouter":
        return {"reasoning": {"effort": value}}
    return {"reasoning_effort": value}


def nearest(effort: Effort, values: list[str]) -> str:
    """The one of ``values`` that is closest to ``effort``; of two, the one that thinks more."""
    wanted = _ORDER.index(effort)

    def distance(value: str) -> tuple[int, int]:
        place = 0 if value == _OFF else _ORDER.index(value)
        return abs(place - wanted), -place

    return min(values, key=distance)
