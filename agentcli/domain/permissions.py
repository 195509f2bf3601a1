"""What is told of a permission: values for people and programs."""

from __future__ import annotations

from agentcli.domain.values import frozen


@frozen
class Explanation:
    """What would become of a call, and why (SEC-3).

    ``answer`` is "allow", "ask" or "deny"; ``part`` the command in a longer one that decided it;
    ``rule`` the rule that did, ``source`` where that is written. ``session_rule`` and
    ``lasting_rule`` are what "for this session" and "always" would allow; empty where they are
    not offered.
    """

    tool: str
    answer: str
    reason: str
    part: str
    rule: str
    source: str
    effect: str
    mode: str
    session_rule: str
    lasting_rule: str
