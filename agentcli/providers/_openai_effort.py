"""How hard a model of OpenAI is asked to think, by the version in its name.

Sources: https://developers.openai.com/api/docs/guides/reasoning and /api/docs/models. Law: a
value that the model refuses is never sent; the nearest that it takes is.
"""

from __future__ import annotations

import re

from agentcli.domain.ports import Effort

# A reasoning model of OpenAI, with its version where it has one.
_MODEL = re.compile(r"(?:o\d|gpt-(?P<major>\d+)(?:\.(?P<minor>\d+))?)(?!.*chat)")
_FIRST_REASONING_GPT = (5, 0)
_FIRST_EFFORT_NONE = (5, 1)
# From GPT-6.1 on the models always think: neither "none" nor "minimal" is taken.
FIRST_ALWAYS_ON = (6, 1)
_UNNUMBERED = (0, 0)

Version = tuple[int, int]


def gpt_version(model: str) -> Version | None:
    """The version of a model that OpenAI made for chats; (0, 0) for the o-series."""
    match = _MODEL.match(model.rpartition("/")[2])
    if match is None:
        return None
    return (int(match["major"]), int(match["minor"] or 0)) if match["major"] else _UNNUMBERED


def is_reasoning_version(version: Version) -> bool:
    """Whether models of this version think before they answer."""
    return version == _UNNUMBERED or version >= _FIRST_REASONING_GPT


def effort_for(model: str, version: Version, effort: Effort) -> str | None:
    """The value that a reasoning model takes for ``effort``; ``None`` to leave it to the model."""
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
    """For models that always think."""
    return "low" if effort in {Effort.NONE, Effort.MINIMAL} else effort.value
