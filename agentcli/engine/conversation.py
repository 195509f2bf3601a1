"""What a session lends to its turns: the one value that the parts of the engine share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from agentcli.domain.events import AgentEvent
from agentcli.domain.history import History, RepairReason
from agentcli.domain.messages import UserMessage, user_text
from agentcli.domain.ports import (
    ContextTransform,
    Effort,
    InputQueue,
    LongWait,
    ModelInfo,
    Provider,
    QueuedInput,
    QueueSource,
    RepairImage,
    SessionStore,
    ToolGate,
)
from agentcli.domain.values import mutable
from agentcli.engine.context.outgoing import Outgoing, TransformChain
from agentcli.engine.context.window import Context
from agentcli.engine.limits import Limits, Spending
from agentcli.engine.sample import RetryPolicy
from agentcli.engine.toolkit import Toolkit

if TYPE_CHECKING:
    from agentcli.engine.finishing import AnswerCheck

Emit = Callable[[AgentEvent], None]
Choose = Callable[[str], tuple[Provider, ModelInfo]]


class Attach(Protocol):
    """Makes a text a message, with the files that it names; maybe those of the workspace only."""

    def __call__(self, text: str, *, only_inside: bool = False) -> Awaitable[UserMessage]:
        """See ``app.attachments.attach``."""


@mutable
class Conversation:
    """``history`` mirrors ``store`` at every moment.

    ``unbalanced`` says why calls are without results when even the repair could not be stored.
    ``fallbacks`` are models (``provider/model``) that ``choose`` can bring in when the present
    one stays overloaded. ``max_budget_usd`` bounds one turn (COST-2). ``long_wait`` asks a
    person whether to wait for a rate limit beyond the cap; without it such a wait is an error.
    ``answer_check`` makes the check of one turn's answers (CTRL-5). With
    ``max_answers_without_tools`` a turn must use tools: so many answers in a row without a call
    are met with a reminder, one more ends the turn with an error (CTRL-6). ``attach`` adds the
    files that a typed text names. ``limits`` and ``spent`` are those of the newest turn;
    ``outside_usd`` is what others have spent of its budget.
    """

    history: History
    store: SessionStore
    provider: Provider
    model: ModelInfo
    system: str
    kit: Toolkit
    effort: Effort | None = None
    max_output_tokens: int | None = None
    max_steps: int = 200
    max_budget_usd: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    turns: int = 0
    unbalanced: RepairReason = RepairReason.CRASHED
    queue: InputQueue | None = None
    fallbacks: Sequence[str] = ()
    choose: Choose | None = None
    long_wait: LongWait | None = None
    gates: Sequence[ToolGate] = ()
    answer_check: Callable[[], AnswerCheck] | None = None
    max_answers_without_tools: int | None = None
    transforms: Sequence[ContextTransform] = ()
    chain: TransformChain = field(default_factory=TransformChain)
    context: Context = field(default_factory=Context)
    repair_image: RepairImage | None = None
    attach: Attach | None = None
    outside_usd: Callable[[], float | None] | None = None
    limits: Limits = field(default_factory=Limits)
    spent: Spending = field(default_factory=Spending)
    outgoing: Outgoing = field(init=False)

    def __post_init__(self) -> None:
        self.outgoing = Outgoing(self.kit.state, self.repair_image)

    async def message_of(self, text: str) -> UserMessage:
        """What was typed, as a message, with the files that it names (UI-4)."""
        return await self.attach(text) if self.attach is not None else user_text(text)

    async def message_for(self, item: QueuedInput) -> UserMessage:
        """What waited, as a message; of what the program says nothing is looked up (BG-5).

        What only the session file says that a person has typed names files of the workspace.
        """
        if item.source is QueueSource.BACKGROUND:
            return user_text(item.text)
        if item.is_earlier and self.attach is not None:
            return await self.attach(item.text, only_inside=True)
        return await self.message_of(item.text)
