"""How thinking is asked for, by model version, in the Messages API.

Sources: https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting and
/extended-thinking. Law: a combination that the API refuses is never sent; where thinking cannot
be had as asked, the nearest that is accepted is sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agentcli.domain.messages import AssistantMessage, Message, ThinkingPart, UserMessage
from agentcli.domain.ports import Effort, ModelRequest

MIN_BUDGET = 1_024
_BUDGETS = {
    Effort.MINIMAL: MIN_BUDGET,
    Effort.LOW: 4_096,
    Effort.MEDIUM: 10_000,
    Effort.HIGH: 24_000,
}
_EFFORT_NAMES = {
    Effort.MINIMAL: "low",
    Effort.LOW: "low",
    Effort.MEDIUM: "medium",
    Effort.HIGH: "high",
}
_CLAUDE = re.compile(
    r"claude-(?:(?P<family>[a-z]+)-)?(?:(?P<major>\d{1,2})(?!\d)(?:[-.](?P<minor>\d{1,2})(?!\d))?)?"
)
# First versions with: thinking at all, adaptive thinking, text left out unless asked for,
# thinking unless told otherwise, thinking that cannot be switched off.
_FIRST_THINKING = (3, 7)
_FIRST_ADAPTIVE = (4, 6)
_FIRST_HIDDEN = (4, 7)
_FIRST_DEFAULT_ON = (5, 0)
_FIRST_PRESERVED = (5, 5)
_UNNUMBERED = (99, 0)

Json = dict[str, Any]


def _version(model: str) -> tuple[str, tuple[int, int] | None]:
    """Family and version of a Claude model in any provider's spelling."""
    match = _CLAUDE.search(model)
    if match is None:
        return "", None
    family = match["family"] or ""
    if match["major"] is None:
        return family, _UNNUMBERED
    return family, (int(match["major"]), int(match["minor"] or 0))


def thinking_fields(request: ModelRequest, limit: int) -> Json:
    """The fields that ask for thinking; may raise ``max_tokens`` above the budget."""
    effort = request.effort
    family, version = _version(request.model.name)
    if version is not None and version >= _FIRST_ADAPTIVE:
        return _adaptive_thinking(family, version, effort)
    knows_thinking = request.model.supports_thinking if version is None else True
    if version is not None and version < _FIRST_THINKING:
        knows_thinking = False
    if effort in {None, Effort.NONE} or not knows_thinking:
        return {}
    if not _loop_has_thinking(request.messages):
        return {}
    ceiling = request.max_output_tokens or max(limit, request.model.max_output_tokens)
    budget = min(_BUDGETS[effort or Effort.LOW], ceiling - MIN_BUDGET)
    if budget < MIN_BUDGET:
        return {}
    return {
        "thinking": {"type": "enabled", "budget_tokens": budget},
        "max_tokens": min(max(limit, budget + 4 * MIN_BUDGET), ceiling),
    }


def _adaptive_thinking(family: str, version: tuple[int, int], effort: Effort | None) -> Json:
    always_on = family in {"fable", "mythos"} or (family == "opus" and version >= _FIRST_PRESERVED)
    adaptive: Json = {"type": "adaptive"}
    if version >= _FIRST_HIDDEN:
        adaptive["display"] = "summarized"
    if effort is None:
        return {"thinking": adaptive} if version >= _FIRST_DEFAULT_ON else {}
    if effort is not Effort.NONE:
        return {"thinking": adaptive, "output_config": {"effort": _EFFORT_NAMES[effort]}}
    if always_on:
        return {"thinking": adaptive, "output_config": {"effort": "low"}}
    if family == "sonnet" and version >= _FIRST_PRESERVED:
        return {"thinking": {"type": "between_tools"}}
    return {"thinking": {"type": "disabled"}}


def _loop_has_thinking(messages: Sequence[Message]) -> bool:
    """Whether every assistant message since the last user message begins with thinking.

    With a budget, the API refuses a tool loop that was begun without thinking.
    """
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return True
        if isinstance(message, AssistantMessage):
            first = message.parts[0] if message.parts else None
            if not isinstance(first, ThinkingPart):
                return False
            if first.signature is None and first.redacted is None:
                return False
    return True
