"""What the policy would say of a call, in lines for a person (SEC-3)."""

from __future__ import annotations

from agentcli.domain.permissions import Explanation
from agentcli.ui.exact import exact_line, rule_text
from agentcli.ui.theme import BOLD, Theme

_ANSWERS = {
    "allow": "It runs without asking",
    "ask": "It asks",
    "deny": "It does not run",
}


def explanation_lines(told: Explanation, theme: Theme) -> list[str]:
    """The answer, why, what of it, by which rule, and what an approval would offer."""
    lines = [theme.paint(f"{_ANSWERS[told.answer]}: {exact_line(told.reason)}", BOLD)]
    if told.part:
        lines.append(f"  because of  {exact_line(told.part)}")
    if told.rule:
        where = f"  ({exact_line(told.source)})" if told.source else ""
        lines.append(f"  rule        {rule_text(told.rule)}{where}")
    lines.append(
        f"  mode        {told.mode}; it counts as {_EFFECTS.get(told.effect, told.effect)}"
    )
    if told.answer == "ask":
        offered = (
            rule_text(told.session_rule) if told.session_rule else "nothing: it asks each time"
        )
        lines.append(f"  session     {offered}")
        if told.lasting_rule:
            lines.append(f"  always      {rule_text(told.lasting_rule)}")
    return lines


_EFFECTS = {"read": "reading", "write": "changing files", "exec": "running a command"}
