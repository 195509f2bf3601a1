"""A call with the workspace that it is made in, a policy, and the judge asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentcli.domain.ports import GrantOffer, PermissionMode
from agentcli.domain.tools import Workspace
from agentcli.policy import grants, judge
from agentcli.policy.decision import CallFacts, CallPlace, Decision, Effect, Policy, Rule
from agentcli.policy.rules import Subject


@dataclass(frozen=True)
class Asked:
    """A call and where it is made."""

    call: CallFacts
    workspace: Workspace
    policy: Policy = field(default_factory=Policy)

    @property
    def place(self) -> CallPlace:
        """The place under the policy that nobody has changed."""
        return CallPlace(self.workspace, self.policy)


def policy_of(
    mode: PermissionMode,
    allow: Sequence[str],
    deny: Sequence[str],
    ask: Sequence[str] = (),
    source: str = "",
) -> Policy:
    """A policy of rules as a user writes them."""
    policy = Policy(mode)
    for kind, texts in (("allow", allow), ("deny", deny), ("ask", ask)):
        policy.add_rules(kind, texts, source)
    return policy


def judged(asked: Asked, policy: Policy) -> Decision:
    """What the judge says under ``policy``."""
    return judge.judge(asked.call, CallPlace(asked.workspace, policy))


def effect_of(asked: Asked) -> Effect:
    """The effect of this call."""
    return judge.effect_of(asked.call, asked.place)


def subject_of(asked: Asked) -> Subject:
    """What rules are matched with."""
    return judge.subject_of(asked.call, asked.place)


def session_rule(asked: Asked, policy: Policy) -> Rule:
    """What "for this session" would allow."""
    return grants.session_rule(asked.call, CallPlace(asked.workspace, policy))


def offers_of(asked: Asked, policy: Policy, decision: Decision) -> tuple[GrantOffer, ...]:
    """The rules that are offered."""
    found = grants.offers_of(asked.call, CallPlace(asked.workspace, policy), decision)
    return tuple(offer for offer, _ in found)
