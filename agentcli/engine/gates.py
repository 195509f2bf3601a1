"""Which tools a step may call: the answers of all gates made one (CTRL-4); and plan mode.

Laws: gates fail closed. The answers are intersected; an empty one lets nothing through; a gate
that raises ends the turn. Where lists that are not empty exclude each other, the gate of the
highest priority wins (ties: required before advisory, the shorter list, the name) and that is
reported. In plan mode nothing is changed before the user has said yes to a plan; only that
yes, or the user's own hand, ends the mode. What ``PlanGate`` lets through the policy still
judges. A plan is durable before anybody is asked about it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import AgentError, GateFailed, TurnCancelled
from agentcli.domain.events import GateList
from agentcli.domain.messages import TextPart, ToolCall
from agentcli.domain.ports import (
    ApprovalRequest,
    Approver,
    GateAnswer,
    GrantOffer,
    PermissionMode,
    StepFacts,
    ToolGate,
    Verdict,
)
from agentcli.domain.tools import OutputKind, ToolBox, ToolOutput
from agentcli.domain.values import frozen, mutable
from agentcli.engine.race import Reaper, race
from agentcli.policy.decision import Policy

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import SessionState


@frozen
class Passage:
    """``allowed`` is ``None`` without a restriction; ``gates`` name who restricts.

    ``lists`` has the answer of every gate that has one, ``winner`` the gate that decided where
    they excluded each other.
    """

    allowed: frozenset[str] | None = None
    gates: tuple[str, ...] = ()
    lists: tuple[GateList, ...] = ()
    winner: str = ""


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
    """What all ``gates`` together let through in the step of ``facts``.

    Raises ``GateFailed``, or the ``AgentError`` of a gate.
    """
    answers = [(gate, found) for gate in gates if (found := _answer(gate, facts)) is not None]
    if not answers:
        return OPEN
    bars = [gate.priority for gate, answer in answers if answer.required and answer.outranks]
    heard = [
        GateList(
            gate.name,
            gate.priority,
            answer.required,
            tuple(sorted(set(answer.allow))),
            set_aside=not answer.required and gate.priority < max(bars, default=gate.priority),
        )
        for gate, answer in answers
    ]
    counted = [each for each in heard if not each.set_aside]
    allowed = frozenset.intersection(*(frozenset(each.allowed) for each in counted))
    names, lists = tuple(each.gate for each in counted), tuple(heard)
    if allowed or not all(each.allowed for each in counted):
        return Passage(allowed, names, lists)
    first = min(counted, key=_rank)
    return Passage(frozenset(first.allowed), (first.gate,), lists, first.gate)


def _answer(gate: ToolGate, facts: StepFacts) -> GateAnswer | None:
    name = getattr(gate, "name", type(gate).__name__)
    try:
        answer = gate.allow(facts)
        _check(gate, answer)
    except AgentError:
        raise
    except (Exception, SystemExit) as error:
        raise GateFailed(
            f"the gate {name} failed: {type(error).__name__}: {error}",
            "nothing was run; correct the gate, or start without it",
        ) from error
    return answer


def _check(gate: ToolGate, answer: object) -> None:
    if not isinstance(gate.name, str) or not isinstance(gate.priority, int):
        raise TypeError("its name is no text, or its priority no whole number")
    if answer is None:
        return
    if not isinstance(answer, GateAnswer):
        raise TypeError(f"it returned {type(answer).__name__}, not GateAnswer or None")
    names = answer.allow
    is_list = isinstance(names, Collection) and not isinstance(names, str)
    if not is_list or not all(isinstance(name, str) for name in names):
        raise TypeError("its list is no collection of tool names")


def _rank(heard: GateList) -> tuple[int, bool, int, str]:
    return -heard.priority, not heard.required, len(heard.allowed), heard.gate


# --- plan mode ------------------------------------------------------------------------------------


PLAN_KEY = "plan"
PRESENT_PLAN = "present_plan"
# what a yes turns on, by the answer
_MODES = {Verdict.ONCE: PermissionMode.DEFAULT, Verdict.SESSION: PermissionMode.ACCEPT_EDITS}
_MAX_TITLE = 60
# judged call by call: a command that only reads is let through
_JUDGED_LATER = frozenset({"bash", "spawn_background", "mcp_call"})


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
            offers=(GrantOffer("edits in the workspace run without asking"),),
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
