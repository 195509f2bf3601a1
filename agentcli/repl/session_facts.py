"""What is known of the open session, for the line at the bottom and the queue above the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentcli.app.session import Session
from agentcli.domain.events import AgentEvent, AssistantRecorded, BackgroundChanged, Compacted
from agentcli.domain.messages import AssistantMessage
from agentcli.domain.ports import QueuedInput
from agentcli.domain.sandbox import Sandbox
from agentcli.ui.status_line import Status, context_of


class SessionFacts:
    """Follows one session at a time; ``session`` is the open one."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self._context: int | None = None
        self._background = 0
        self.on_background: Callable[[], None] = lambda: None

    def adopt(self, session: Session | None) -> None:
        """Another session is open, or none."""
        self.session = session
        self._context = None
        self._background = 0
        if session is not None and session.background is not None:
            self._background = sum(task.is_active for task in session.background.tasks())
        if session is not None and session.resumed is not None:
            for stored in session.resumed.messages:
                if isinstance(stored.message, AssistantMessage):
                    self._context = context_of(stored.message.usage) or self._context

    def on_event(self, event: AgentEvent) -> None:
        """Learn from ``event``."""
        if isinstance(event, AssistantRecorded):
            self._context = context_of(event.message.usage) or self._context
        elif isinstance(event, Compacted):
            self._context = event.tokens_after
        elif isinstance(event, BackgroundChanged):
            self._background = event.active
            self.on_background()

    def status(self) -> Status:
        """For the line at the bottom."""
        session = self.session
        if session is None:
            return Status()
        return Status(
            model=session.model.id,
            mode=str(session.mode),
            context_used=self._context,
            context_size=session.model.context_tokens,
            tokens=context_of(session.usage),
            cost_usd=session.cost_usd,
            turns=session.turns,
            title=session.title,
            background=self._background,
            sandbox=_sandbox_word(session.sandbox),
        )

    def queue(self) -> Sequence[QueuedInput]:
        """What waits to be sent."""
        return self.session.queued() if self.session is not None else ()


def _sandbox_word(sandbox: Sandbox | None) -> str:
    """Whether commands are limited, where that is known (SEC-7)."""
    if sandbox is None or not sandbox.state.known:
        return ""
    return "sandbox" if sandbox.state.is_on else "no sandbox"
