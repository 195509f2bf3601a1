"""``present_plan``: a plan for the user to approve; the way out of plan mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import Plans

MAX_PLAN_CHARS = 50_000


class PlanArguments(Arguments):
    """Arguments of ``present_plan``."""

    plan: str = Field(
        min_length=1, max_length=MAX_PLAN_CHARS, description="What you will change, in Markdown"
    )


@frozen
class PlanContext(ToolContext):
    """The user, who looks at plans."""

    plans: Plans


class PlanTool(BaseTool[PlanArguments]):
    """Presents, and waits as long as it takes."""

    name = "present_plan"
    display_name = "Present plan"
    description = (
        "In plan mode only: present your plan to the user for approval. When it is approved, "
        "plan mode is over and you carry it out."
    )
    params = PlanArguments
    asks = Asks.NOTHING
    context = PlanContext
    group = "plan"
    timeout_s = None

    async def run(self, args: PlanArguments, ctx: PlanContext) -> ToolOutput:
        """What the user said of it."""
        return await ctx.plans.present(ctx.call_id, args.plan.strip() or args.plan, ctx.cancel)


TOOL = PlanTool()
