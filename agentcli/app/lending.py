"""What a sub-agent gets of its parent's: fewer tools, the same approver and hooks, one purse.

Law: nothing here gives more than the parent has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from agentcli.domain.cancel import CancelToken
from agentcli.domain.hooks import SILENT, HookEvent, Hooks, HookVerdict
from agentcli.domain.messages import ToolCall, ToolResult, Usage
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Approver, Verdict
from agentcli.domain.tools import Tool, ToolBox, ToolDefinition
from agentcli.engine.limits import Spending

# what belongs to the conversation with the person, and what would begin more of the same kind
WITHHELD = frozenset(
    {
        "task",
        "ask_user",
        "present_plan",
        "final_result",
        "spawn_background",
        "task_output",
        "task_cancel",
        "list_tasks",
    }
)


class Narrowed:
    """A part of a tool box: what ``only`` names by tool, group or pattern; never ``WITHHELD``.

    ``standard_name`` knows what other programs call a tool. A tool that is not in the box cannot
    be had by naming it.
    """

    def __init__(
        self, box: ToolBox, only: Sequence[str] | None, standard_name: Callable[[str], str]
    ) -> None:
        self._box = box
        names = None if only is None else {*only, *map(standard_name, only)}
        self._definitions = tuple(
            each
            for each in box.definitions
            if each.name not in WITHHELD and (names is None or _is_named(each, names))
        )
        self._names = frozenset(each.name for each in self._definitions)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """In the order of the box."""
        return self._definitions

    def get(self, name: str) -> Tool | None:
        """The tool, if it is in the part."""
        return self._box.get(name) if name in self._names else None

    def near(self, name: str) -> tuple[str, ...]:
        """Names like ``name`` in the part, best first."""
        return tuple(near for near in self._box.near(name) if near in self._names)


def _is_named(tool: ToolDefinition, names: set[str]) -> bool:
    return any(fnmatchcase(tool.name, name) or tool.group == name for name in names)


@dataclass(slots=True)
class NamedApprover:
    """Asks the parent's approver and says who wants to know."""

    approver: Approver
    name: str

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """The person's answer."""
        named = replace(request, summary=f"{self.name}: {request.summary}")
        return await self.approver.approve(named)


class Unattended:
    """For work in the background: nobody is there to be asked."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """What is not allowed already is refused."""
        del request
        return ApprovalAnswer(Verdict.UNATTENDED, "nobody can be asked from the background")


@dataclass(slots=True)
class ChildHooks:
    """The parent's hooks for a sub-agent: those around calls; prompts and ends are not its own."""

    hooks: Hooks

    async def prompt_submitted(self, prompt: str, cancel: CancelToken) -> HookVerdict:
        """No person has submitted it."""
        del prompt, cancel
        return SILENT

    async def before_tool(self, call: ToolCall, cancel: CancelToken) -> HookVerdict:
        """Before a call is judged by the policy."""
        return await self.hooks.before_tool(call, cancel)

    async def after_tool(
        self, call: ToolCall, result: ToolResult, cancel: CancelToken
    ) -> HookVerdict:
        """After a call has run."""
        return await self.hooks.after_tool(call, result, cancel)

    async def before_compaction(
        self, trigger: str, instructions: str, cancel: CancelToken
    ) -> HookVerdict:
        """Before the sub-agent's history is summarised."""
        return await self.hooks.before_compaction(trigger, instructions, cancel)

    async def stopping(self, answer: str, cancel: CancelToken, *, active: bool) -> HookVerdict:
        """The parent's turn goes on."""
        del answer, cancel, active
        return SILENT

    def listens(self, event: HookEvent) -> bool:
        """Whether there is any hook for ``event`` that a sub-agent has."""
        return event is not HookEvent.STOP and self.hooks.listens(event)


@dataclass(slots=True)
class Meter:
    """Adds what a sub-agent spends to the parent's turn, as it goes (COST-1, COST-2).

    ``usage`` and ``cost_usd`` are what was added so far.
    """

    parent: Spending
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0

    def outside(self) -> float | None:
        """What of the shared budget others have spent, in USD; ``None``: nobody knows."""
        if self.parent.cost_usd is None or self.cost_usd is None:
            return None
        return self.parent.cost_usd - self.cost_usd

    def read(self, usage: Usage, cost_usd: float | None) -> None:
        """The sub-agent's sums are now these; without any tokens known nothing was spent."""
        if not usage.is_known:
            return
        known = self.cost_usd is not None and cost_usd is not None
        more = (cost_usd or 0.0) - (self.cost_usd or 0.0) if known else None
        self.parent.add_elsewhere(_difference(usage, self.usage), more)
        self.usage, self.cost_usd = usage, cost_usd


def _difference(now: Usage, before: Usage) -> Usage:
    def field_of(name: str) -> int | None:
        value: int | None = getattr(now, name)
        return None if value is None else value - (getattr(before, name) or 0)

    names: Mapping[str, Any] = {name: field_of(name) for name in _COUNTS}
    return Usage(**names)


_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
