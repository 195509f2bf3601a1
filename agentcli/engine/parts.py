"""What a session is made of: built once, by ``app.compose``, and the same until it ends.

What changes meanwhile is in ``Conversation``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentcli.domain.ports import (
    Approver,
    ContextTransform,
    LongWait,
    ModelInfo,
    Provider,
    ReminderTexts,
    RepairImage,
    SessionStore,
    ToolGate,
    WrapUpSignal,
    contained,
)
from agentcli.domain.tools import Asks, FileLedger, RunIdentity, ToolBox, Workspace
from agentcli.domain.values import frozen
from agentcli.engine.race import Reaper
from agentcli.engine.sample import RetryPolicy
from agentcli.policy.decision import Policy

if TYPE_CHECKING:
    from pathlib import Path

    from agentcli.domain.background import Background
    from agentcli.domain.events import AgentEvent
    from agentcli.domain.extensions.hooks import Hooks
    from agentcli.domain.extensions.instructions import ProjectDoc
    from agentcli.domain.sandbox import Sandbox
    from agentcli.domain.tool_ports import (
        Attach,
        CodeMap,
        EditChecks,
        InputQueue,
        LaterInstructions,
        ProjectMemory,
        RawOutputs,
        SessionState,
        SubAgentsFor,
        WebSearch,
    )
    from agentcli.domain.tools import Asker, EditorFiles, FileKeeper, McpServers
    from agentcli.engine.background.moving import Moves
    from agentcli.engine.finishing import AnswerCheck

T_co = TypeVar("T_co", covariant=True)
Choose = Callable[[str], tuple[Provider, ModelInfo]]


class Lazy(Generic[T_co]):
    """A service that is made, and imported, when it is first asked for. ``made`` is it, or not."""

    def __init__(self, make: Callable[[], T_co]) -> None:
        self._make = make
        self.made: T_co | None = None

    def __call__(self) -> T_co:
        """The service."""
        if self.made is None:
            self.made = self._make()
        return self.made


@frozen
class SessionParts:
    """What a session works with, the same for all of its turns.

    ``outputs`` keeps what is too long for the model, ``state`` what tools remember. ``ask`` and
    ``long_wait`` ask the user; without ``long_wait`` a rate limit beyond the cap is an error.
    ``fallbacks`` are models (``provider/model``) that ``choose`` can bring in when the present
    one stays overloaded; ``small_model`` writes summaries and explores (EXT-7).
    ``max_budget_usd`` bounds one turn (COST-2); ``outside_usd`` is what others have spent of it,
    ``pause_usd`` where it stops to go on later.
    ``answer_check`` makes the check of one turn's answers (CTRL-5); with
    ``max_answers_without_tools`` a turn must use tools: so many answers in a row without a call
    are met with a reminder, one more ends the turn with an error (CTRL-6). ``attach`` adds the
    files that a typed text names. ``sandbox`` limits what commands can do (SEC-7); ``background``
    runs what outlives a turn (BG-1), ``moves`` are the running calls of a chat that can go on
    there (UI-3); ``keeper`` remembers files before they are changed (TT-1), ``checks`` look at
    them afterwards (EXT-6); ``codemap`` knows who uses what (MEM-3), ``memory`` is what is known
    of the project (MEM-1);
    ``reaper`` owns what was told to stop and has not stopped yet
    (CAN-10). ``servers`` are MCP servers (MCP-2). ``update_catalogue`` is called after each
    turn and may fail; ``on_close`` ends what
    the session's tools have left running. ``is_beside``: it works beside the user's turns.
    ``documents`` are the instructions that ``system`` holds
    (CTX-1), ``later`` gives those of directories that a call has touched (EXT-4). ``skills`` are
    the files that the model may read and then goes by (EXT-1).
    """

    store: SessionStore
    toolbox: ToolBox
    policy: Policy
    approver: Approver
    workspace: Workspace
    state: SessionState
    outputs: RawOutputs
    system: str = ""
    documents: tuple[ProjectDoc, ...] = ()
    later: Lazy[LaterInstructions] | None = None
    skills: tuple[Path, ...] = ()
    session_id: str = ""
    queue: InputQueue | None = None
    ask: Asker | None = None
    long_wait: LongWait | None = None
    attach: Attach | None = None
    choose: Choose | None = None
    fallbacks: Sequence[str] = ()
    small_model: str = ""
    repair_image: RepairImage | None = None
    max_output_tokens: int | None = None
    max_steps: int = 200
    max_budget_usd: float | None = None
    outside_usd: Callable[[], float | None] | None = None
    pause_usd: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    answer_check: Callable[[], AnswerCheck] | None = None
    max_answers_without_tools: int | None = None
    reminders: ReminderTexts = field(default_factory=ReminderTexts)
    parent_id: str = ""
    wrap_up: Sequence[WrapUpSignal] = ()
    temperature: float | None = None
    request_fields: Mapping[str, Any] = field(default_factory=dict)
    gates: Sequence[ToolGate] = ()
    transforms: Sequence[ContextTransform] = ()
    hooks: Hooks | None = None
    agents: SubAgentsFor | None = None
    sandbox: Sandbox | None = None
    background: Lazy[Background] | None = None
    search: WebSearch | None = None
    editor: EditorFiles | None = None
    servers: Lazy[McpServers] | None = None
    keeper: Lazy[FileKeeper] | None = None
    checks: Lazy[EditChecks] | None = None
    codemap: Lazy[CodeMap] | None = None
    memory: Lazy[ProjectMemory] | None = None
    update_catalogue: Callable[[], Awaitable[None]] | None = None
    on_close: Sequence[Callable[[], Awaitable[None]]] = ()
    moves: Moves | None = None
    is_beside: bool = False
    files: FileLedger = field(default_factory=FileLedger)
    reaper: Reaper = field(default_factory=Reaper)
    approval_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        for name in ("store", "state"):
            object.__setattr__(self, name, contained(getattr(self, name)))

    def port(
        self,
        name: str,
        emit: Callable[[AgentEvent], None],
        *,
        unattended: bool = False,
        ask: Asker | None = None,
    ) -> object:
        """What a call that declares ``name`` gets of it (``domain.tools.ToolContext``).

        ``None`` where the session has none. A background run, ``unattended``, asks through ``ask``
        (BG-9), has nothing approved, starts no other and remembers files for itself.
        """
        found: object = None
        match name:
            case "files" if unattended:
                found = FileLedger()
            case (
                "files" | "outputs" | "sandbox" | "session_id" | "state" | "search" | "editor"
                | "toolbox"
            ):  # fmt: skip
                found = getattr(self, name)
            case "run":
                found = RunIdentity(self.session_id, parent_id=self.parent_id)
            case "agents" if self.agents is not None:
                found = self.agents(emit, unattended=unattended, ask=ask)
            case "ask":
                found = ask if unattended else self.ask
            case "plans" if not unattended:
                from agentcli.engine.gates import PlanTable

                found = PlanTable(self.policy, self.approver, self.state, self.reaper)
            case "servers" | "codemap" | "background" | "memory":
                lazy: Lazy[object] | None = getattr(self, name)
                withheld = unattended and name in {"background", "memory"}
                found = None if lazy is None or withheld else lazy()
            case "agents" | "plans" | "to_background":
                pass
            case _:
                raise TypeError(f"there is no port {name!r}: domain.tools.ToolContext lists them")
        return found

    async def begin_sandbox(self, names: Collection[str]) -> str:
        """Know what limits commands before a call of ``names`` is judged; a line for the user.

        Does nothing where they run outside of any sandbox, and where none of the tools of that
        name runs commands unless a named sandbox holds mode ``yolo``: it limits every tool (SEC-3).
        """
        if self.sandbox is None or not self.policy.wants_boundary:
            return self.policy.take_auto_notice()
        runs = (
            tool.asks is Asks.ANYTHING and tool.name in names for tool in self.toolbox.definitions
        )
        if not (self.policy.is_held or any(runs)):
            return ""
        self.policy.limit_by(await self.sandbox.begin())
        return "; ".join(filter(None, (self.sandbox.take_notice(), self.policy.take_auto_notice())))
