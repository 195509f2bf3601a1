"""``present_plan``: a plan for the person to approve; the way out of plan mode."""

from __future__ import annotations

from pydantic import Field

from agentcli.domain.tools import Effect, ToolContext, ToolOutput
from agentcli.tools._base import Arguments, BaseTool

MAX_PLAN_CHARS = 50_000


class PlanArguments(Arguments):
    """Arguments of ``present_plan``."""

    plan: str = Field(
        min_length=1, max_length=MAX_PLAN_CHARS, description="What you will change, in Markdown"
    )


class PlanTool(BaseTool[PlanArguments]):
    """Presents, and waits as long as it takes."""

    name = "present_plan"
    display_name = "Present plan"
    description = (
        "In plan mode only: present your plan to the user for approval. When it is approved, "
        "plan mode is over and you carry it out."
    )
    params = PlanArguments
    effect = Effect.READ
    group = "plan"
    timeout_s = None

    async def run(self, args: PlanArguments, ctx: ToolContext) -> ToolOutput:
        """What the person said of it."""
        if ctx.plans is None:
            return ToolOutput.error("Nobody looks at plans in this run. Answer with the plan.")
        return await ctx.plans.present(ctx.call_id, args.plan.strip() or args.plan, ctx.cancel)


TOOL = PlanTool()
