"""How hard a model behind Chat Completions is asked to think, where it is not OpenAI's: data.

Law: a value that a model refuses is never sent; a model that is not in the table, a local server
included, is asked for nothing. Sources, read on 2026-11-20: docs.x.ai (reasoning, effort levels),
docs.mistral.ai (reasoning), api-docs.deepseek.com/guides/thinking_mode, console.groq.com/docs/
reasoning, inference-docs.cerebras.ai (reasoning), ai.google.dev/gemini-api/docs/openai,
openrouter.ai/docs (reasoning tokens), and the public models.dev catalogue.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from agentcli.domain.ports import Effort

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
    ("openrouter", "*", "minimal low medium high"),
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
