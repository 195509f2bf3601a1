"""Ends of background runs in the chat: said at once; an idle agent reacts to them (BG-5).

Law: nothing that is being typed is sent or lost by it, what the person has queued is not sent by
it, and an agent that only answers its own runs comes to rest: after ``MAX_REACTIONS`` in a row the
person has to say something.
"""

from __future__ import annotations

from collections.abc import Callable

from agentcli.domain.background import BackgroundTask
from agentcli.domain.events import AgentEvent, BackgroundChanged
from agentcli.domain.ports import QueueSource
from agentcli.repl.front import Front
from agentcli.repl.session_facts import SessionFacts
from agentcli.ui import wording
from agentcli.ui.screen import Screen
from agentcli.ui.theme import DIM

MAX_REACTIONS = 20


class BackgroundNews:
    """Follows the open session. ``reacts``: an idle agent is told at once."""

    def __init__(
        self, facts: SessionFacts, screen: Screen, is_working: Callable[[], bool], *, reacts: bool
    ) -> None:
        self._facts = facts
        self._screen = screen
        self._is_working = is_working
        self._reacts = reacts
        self._reactions = 0
        self.front: Front | None = None

    def said(self, text: str) -> None:
        """The person has said something, or (an empty text) the chat goes on by itself."""
        if text.strip():
            self._reactions = 0

    def on_event(self, event: AgentEvent) -> None:
        """A listener of the session."""
        if isinstance(event, BackgroundChanged) and event.ended is not None:
            self._tell(event.ended)
            self._react()

    def _tell(self, task: BackgroundTask) -> None:
        line = self._screen.theme.paint(wording.background_ended(task), DIM)
        tell = getattr(self.front, "tell", None)  # of one that cannot be printed above
        if tell is not None:
            tell(line)
        else:
            self._screen.print_block([line], gap=False)

    def _react(self) -> None:
        session, front = self._facts.session, self.front
        if session is None or front is None or self._is_working() or not self._reacts:
            return
        waiting = session.queued()
        only_runs = all(item.source is QueueSource.BACKGROUND for item in waiting)
        if waiting and only_runs and self._reactions < MAX_REACTIONS:
            self._reactions += 1
            front.send("")
