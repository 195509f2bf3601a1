"""Which tools a step may call: the answers of all gates made one (CTRL-4); and plan mode.

Laws: the answers are intersected; where nothing is left, the gate of the highest priority wins
(ties: the shorter list, then the name) and that is reported; when every list is empty there is
no restriction. In plan mode nothing is changed before the user has said yes to a plan; only that
yes, or the user's own hand, ends the mode. What ``PlanGate`` lets through the policy still
judges. A plan is durable before anybody is asked about it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import TurnCancelled
from agentcli.domain.events import GatesConflicted
from agentcli.domain.messages import TextPart, ToolCall
from agentcli.domain.ports import (
    ApprovalRequest,
    Approver,
    GateAnswer,
    PermissionMode,
    StepFacts,
    ToolGate,
    Verdict,
)
from agentcli.domain.tools import OutputKind, SessionState, ToolBox, ToolOutput
from agentcli.domain.values import frozen, mutable
from agentcli.engine.race import Reaper, race
from agentcli.policy.decision import Policy


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
    if not heard:
        return OPEN
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


# --- plan mode ------------------------------------------------------------------------------------


PLAN_KEY = "plan"
PRESENT_PLAN = "present_plan"
# what a yes turns on, by the answer
_MODES = {Verdict.ONCE: PermissionMode.DEFAULT, Verdict.SESSION: PermissionMode.ACCEPT_EDITS}
_MAX_TITLE = 60
# judged call by call: a command that only reads is let through
_JUDGED_LATER = frozenset({"bash", "spawn_background"})


async def plan_notice(state: SessionState) -> tuple[str, ...]:
    """What a user who takes up the session should know of its plan; nothing when there is none."""
    kept = await state.get(PLAN_KEY)
    if not isinstance(kept, dict) or not str(kept.get("text", "")).strip():
        return ()
    was = "an approved" if kept.get("status") == "approved" else "a"
    title = str(kept["text"]).strip().splitlines()[0].lstrip("# ")[:_MAX_TITLE]
    return (f'the session has {was} plan, "{title}": /plan show',)


class PlanGate:
    """Reads only, while the mode is ``plan``."""

    name = "plan mode"
    priority = 100

    def __init__(self, policy: Policy, toolbox: ToolBox) -> None:
        self._policy = policy
        self._toolbox = toolbox

    def allow(self, facts: StepFacts) -> GateAnswer | None:
        """The tools that read; ``None`` in another mode."""
        if self._policy.mode is not PermissionMode.PLAN:
            return None
        reads = {each.name for each in self._toolbox.definitions if each.only_reads}
        return GateAnswer(facts.tools & (reads | _JUDGED_LATER), required=True)


def plan_note(policy: Policy, toolbox: ToolBox) -> str:
    """What a request in plan mode says beside the history; empty in another mode."""
    if policy.mode is not PermissionMode.PLAN:
        return ""
    start = "(Plan mode: read and search; change nothing."
    if all(each.name != PRESENT_PLAN for each in toolbox.definitions):
        return f"{start})"
    return (
        f"{start} When you know what is to be done, call {PRESENT_PLAN} with the plan. Carry it"
        " out only after it was approved.)"
    )


@mutable
class PlanTable:
    """``Plans``: asks the user, switches the mode, keeps the newest plan with the session."""

    policy: Policy
    approver: Approver
    state: SessionState
    reaper: Reaper

    async def present(self, call_id: str, plan: str, cancel: CancelToken) -> ToolOutput:
        """What the model is told. With nobody to ask, the plan is what the turn answers."""
        if self.policy.mode is not PermissionMode.PLAN:
            return ToolOutput.text(
                "Plan mode is off: no plan has to be approved. Go on with the work."
            )
        await self._keep(plan, "presented")
        request = ApprovalRequest(
            call=ToolCall(call_id, PRESENT_PLAN, {"plan": plan}),
            summary="Carry out this plan",
            detail=plan,
            reason="plan mode ends with your approval",
            session_rule="edits in the workspace run without asking",
            is_plan=True,
        )
        try:
            answer = await race(self.approver.approve(request), cancel, self.reaper)
        except TurnCancelled:
            return ToolOutput.cancelled("The plan was not answered.")
        if answer.verdict is Verdict.UNATTENDED:
            return await self._handed_over(plan)
        mode = _MODES.get(answer.verdict)
        if mode is None:
            return await self._refused(plan, answer.reason)
        self.policy.mode = mode
        await self._keep(plan, "approved")
        edits = "edits in the workspace run at once" if answer.verdict is Verdict.SESSION else ""
        return ToolOutput.text(
            f"The user approved the plan. Plan mode is off (permission mode: {mode}"
            f"{', ' + edits if edits else ''}). Carry it out.",
            display=plan,
            summary=f"approved, permission mode {mode}",
        )

    async def _handed_over(self, plan: str) -> ToolOutput:
        await self._keep(plan, "handed over")
        text = "Nobody can approve the plan in this run: it is handed over as the answer."
        return ToolOutput(
            OutputKind.SUCCESS,
            (TextPart(text),),
            summary="handed over",
            ends_turn=True,
            answer=plan,
        )

    async def _refused(self, plan: str, reason: str) -> ToolOutput:
        await self._keep(plan, "refused", reason)
        why = f": {reason}" if reason else " and gave no reason"
        return ToolOutput.error(
            f"The user did not approve the plan{why}. Plan mode stays on: change the plan and"
            f" call {PRESENT_PLAN} again, or ask what is wanted.",
            display=plan,
            summary="not approved",
        )

    async def _keep(self, plan: str, status: str, reason: str = "") -> None:
        kept = {"text": plan, "status": status, "reason": reason, "at": time.time()}
        await self.state.set(PLAN_KEY, kept)
