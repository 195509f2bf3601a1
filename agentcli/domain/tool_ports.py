"""The ports of a session: those that a tool may declare (``tools.ToolContext``), and its queue.

Law: nothing of it is loaded on the way to a request: who only names a port imports it for the type
checker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.domain.cancel import CancelToken
    from agentcli.domain.codemap import MapState, Symbol, SymbolUses
    from agentcli.domain.events import AgentEvent
    from agentcli.domain.extensions.checks import CheckReport
    from agentcli.domain.extensions.instructions import ProjectDoc
    from agentcli.domain.extensions.web import SearchAnswer
    from agentcli.domain.messages import Message, UserMessage
    from agentcli.domain.ports import QueuedInput, QueueKind
    from agentcli.domain.tools import Asker, FileLedger, ToolOutput


class SessionState(Protocol):
    """Small JSON values kept in the session file, by key."""

    async def get(self, key: str) -> Any:
        """The value, or ``None``."""

    async def set(self, key: str, value: Any) -> None:
        """Store ``value`` durably."""


class RawOutputs(Protocol):
    """The whole output of earlier calls, where the model was sent a part (TOOL-6)."""

    async def read(self, call_id: str) -> bytes | None:
        """The raw output of that call, or ``None``."""


class CodeMap(Protocol):
    """The map of the project that a session works in; each answer is of files as they are now."""

    async def symbols(
        self, query: str, kind: str, below: Path | None, cancel: CancelToken
    ) -> tuple[Sequence[Symbol], MapState]:
        """What is called like ``query``, best first; without one what is used most."""

    async def references(
        self, symbol: str, path: Path | None, line: int, cancel: CancelToken
    ) -> tuple[Sequence[SymbolUses], MapState]:
        """Who uses the name ``symbol``, or what ``path`` defines in ``line``."""


class WebSearch(Protocol):
    """Searches the web (EXT-8)."""

    @property
    def where(self) -> str:
        """Who gets the queries, for the user."""

    async def search(
        self, query: str, allowed: Sequence[str], blocked: Sequence[str]
    ) -> SearchAnswer:
        """What is found, only from hosts of ``allowed``; raises ``AgentError``."""


class Plans(Protocol):
    """Puts a plan before the user, who may approve it."""

    async def present(self, call_id: str, plan: str, cancel: CancelToken) -> ToolOutput:
        """The answer, for the model; approval ends plan mode."""


class EditChecks(Protocol):
    """Formats and checks the files that a batch of edits has changed (EXT-6).

    Neither method fails a turn; a cancellation of the calling task ends what runs.
    """

    async def before(self, paths: Sequence[Path], cancel: CancelToken) -> None:
        """These are about to be changed: learn what is wrong with them already."""

    async def after(
        self, call_id: str, paths: Sequence[Path], ledger: FileLedger, cancel: CancelToken
    ) -> CheckReport:
        """These were changed, by ``call_id`` last: format them, and tell what is wrong now.

        A formatter's work counts as that of the session: ``ledger`` and snapshots know it.
        """


@frozen
class MemoryChange:
    """What has become of a fact: what the model is ``told``; for the user a ``diff`` and a line."""

    told: str
    diff: str = ""
    summary: str = ""


class ProjectMemory(Protocol):
    """What is known of a project beyond its sessions (MEM-1)."""

    @property
    def written(self) -> Collection[Path]:
        """The files that this process may have changed, which ``/undo`` may put back."""

    async def change(self, call_id: str, action: str, text: str, topic: str) -> MemoryChange:
        """``remember``, ``correct`` or ``forget`` a fact, as far as the user has said it (MEM-2).

        Raises ``AgentError`` and ``ValueError`` where nothing was changed.
        """


class Attach(Protocol):
    """Makes a text a message, with the files that it names; maybe those of the workspace only."""

    def __call__(self, text: str, *, only_inside: bool = False) -> Awaitable[UserMessage]:
        """See ``app.files.attachments.attach``."""


class InputQueue(Protocol):
    """What waits to be said to the model, oldest first; durable, mirrored in memory."""

    @property
    def has_sources(self) -> bool:
        """Whether ``poll`` asks anybody."""

    def waiting(self, kind: QueueKind | None = None) -> Sequence[QueuedInput]:
        """What has not been delivered, of one kind or of all."""

    def delivered(self, ids: Sequence[int]) -> None:
        """The store has committed these as messages: they wait no longer."""

    async def drop(self, row_id: int) -> bool:
        """Take back what waits; false when it waits no longer."""

    async def poll(self, *kinds: QueueKind) -> None:
        """Let what the sources of these kinds have by now wait with the rest (CTRL-9)."""


class LaterInstructions(Protocol):
    """Instructions that hold for a part of the project: they come when it is touched (EXT-4)."""

    def for_files(
        self, touched: Sequence[Path], messages: Sequence[Message]
    ) -> Sequence[ProjectDoc]:
        """What holds for the files ``touched`` and is not in ``messages``, the nearest last.

        Reads files: call it in a thread. Raises nothing.
        """


# --- sub-agents ------------------------------------------------------------------------------
# Law: a sub-agent may never do more than the agent that called it: the same policy with its rules
# and grants, a part of its tools, its limits; it starts no sub-agents itself.


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
