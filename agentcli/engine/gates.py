"""Which tools a step may call: the answers of all gates made one (CTRL-4). Pure.

Law: the answers are intersected; where nothing is left, the gate of the highest priority wins
(ties: the shorter list, then the name) and that is reported; when every list is empty there is
no restriction.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcli.domain.events import GatesConflicted
from agentcli.domain.ports import GateAnswer, StepFacts, ToolGate
from agentcli.domain.values import frozen


@frozen
class Passage:
    """``allowed`` is ``None`` without a restriction; ``gates`` name who restricts."""

    allowed: frozenset[str] | None = None
    gates: tuple[str, ...] = ()
    conflict: GatesConflicted | None = None


OPEN = Passage()
_NEW_WORK = frozenset({"task", "spawn_background"})


class WrapUpGate:
    """Near a limit nothing big is begun any more (CTRL-7)."""

    name = "wrap-up"
    priority = 90

    def allow(self, facts: StepFacts) -> GateAnswer | None:
        """Everything but what starts new work; ``None`` while no limit is near."""
        if not facts.wrapping_up or not facts.tools & _NEW_WORK:
            return None
        return GateAnswer(facts.tools - _NEW_WORK, required=True)


def resolve(gates: Sequence[ToolGate], facts: StepFacts) -> Passage:
    """What all ``gates`` together let through in the step of ``facts``."""
    heard = [(gate, answer) for gate in gates if (answer := gate.allow(facts)) is not None]
    if any(answer.required and answer.outranks for _, answer in heard):
        heard = [(gate, answer) for gate, answer in heard if answer.required]
    if not any(answer.allow for _, answer in heard):
        return OPEN
    names = tuple(gate.name for gate, _ in heard)
    allowed = frozenset.intersection(*(answer.allow for _, answer in heard))
    if allowed:
        return Passage(allowed, names)
    gate, answer = min(heard, key=_rank)
    conflict = GatesConflicted(gate.name, names, tuple(sorted(answer.allow)))
    return Passage(answer.allow, (gate.name,), conflict)


def _rank(heard: tuple[ToolGate, GateAnswer]) -> tuple[int, int, str]:
    gate, answer = heard
    return -gate.priority, len(answer.allow), gate.name
