"""Sub-agents: a task that a fresh agent does, with a history and a session file of its own.

Law: a sub-agent may never do more than the agent that called it: the same policy with its rules
and grants, a part of its tools, its limits; it starts no sub-agents itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import AgentEvent
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.domain.tools import Asker


@frozen
class SubTask:
    """What is to be done. ``agent`` is a definition's name, ``model`` is ``provider/model``."""

    description: str
    prompt: str
    agent: str = ""
    model: str = ""


@frozen
class SubTaskReport:
    """How it ended. ``text`` is the sub-agent's last word; ``problem`` is empty when it is done.

    ``session_id`` is empty where there was no session yet.
    """

    text: str = ""
    problem: str = ""
    session_id: str = ""
    is_cancelled: bool = False
    steps: int = 0


class SubAgents(Protocol):
    """Does tasks for the calls of one session."""

    async def run(
        self, task: SubTask, call_id: str, cancel: CancelToken, progress: Callable[[str], None]
    ) -> SubTaskReport:
        """Do ``task`` to its end for the call ``call_id``; ends soon after ``cancel`` is set.

        ``progress`` hears in a line each what the sub-agent does.
        """


class SubAgentsFor(Protocol):
    """Makes the port for one turn, whose events go to ``emit``.

    ``unattended``: nobody can be asked for approvals, because the work outlives the turn. It may
    put questions through ``ask`` (BG-9).
    """

    def __call__(
        self,
        emit: Callable[[AgentEvent], None],
        *,
        unattended: bool = False,
        ask: Asker | None = None,
    ) -> SubAgents:
        """The port."""
