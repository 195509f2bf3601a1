"""A tool call on its way from the model's message to its result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentcli.domain.messages import ResultStatus, TextPart, ToolCall
from agentcli.domain.tools import Tool, ToolOutput
from agentcli.domain.values import mutable
from agentcli.policy.decision import CallFacts, CallPlace, Effect

if TYPE_CHECKING:
    from agentcli.domain.hooks import HookVerdict
    from agentcli.engine.background.launch import Launch


@mutable
class Job:
    """One call on its way. ``output`` is set when there is an answer to record.

    ``hook`` is what the user's hooks have said of it; ``None`` before they were asked.
    ``launch`` is what the call has run in its place: it is judged as that. ``is_free`` from the
    sandbox is what the user has typed.
    """

    call: ToolCall
    tool: Tool | None = None
    args: Any = None
    summary: str = ""
    effect: Effect = Effect.READ
    is_concurrent: bool = True
    facts: CallFacts | None = None
    place: CallPlace | None = None
    output: ToolOutput | None = None
    status: ResultStatus | None = None
    started_at: float | None = None
    tail: str = ""
    is_heard: bool = True
    is_free: bool = False
    hook: HookVerdict | None = None
    launch: Launch | None = None

    def acting(self, tool: Tool) -> tuple[Tool, Any, Mapping[str, Any], str]:
        """What the call is judged as: tool, arguments (both ways), the tool that it came by."""
        if self.launch is None:
            return tool, self.args, self.call.arguments, ""
        return self.launch.tool, self.launch.args, self.launch.arguments, self.call.name

    @property
    def elapsed_s(self) -> float:
        """Seconds since it started to run; 0 when it has not."""
        return 0.0 if self.started_at is None else time.monotonic() - self.started_at


def text_of(output: ToolOutput) -> str:
    """The first text of an output."""
    with contextlib.suppress(StopIteration):
        return next(part.text for part in output.parts if isinstance(part, TextPart))
    return ""
