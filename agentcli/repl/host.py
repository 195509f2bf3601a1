"""What the chat needs of the rest of the program: one small port that ``app`` satisfies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentcli.domain.background import Background
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.events import AgentEvent, Compacted, Continue, Prompt, TurnSummary
from agentcli.domain.messages import Usage
from agentcli.domain.permissions import Explanation
from agentcli.domain.ports import (
    Approver,
    Effort,
    ModelInfo,
    PermissionMode,
    QueuedInput,
    QueueKind,
)
from agentcli.domain.rewind import RewindPoint, RewindScope, Rewound
from agentcli.domain.sandbox import Sandbox
from agentcli.domain.session import ContextReport, LoadedSession, SessionInfo
from agentcli.domain.tools import Asker, ToolOutput
from agentcli.repl.desk import Desk


@dataclass(frozen=True, slots=True)
class Preferences:
    """How a person likes the chat: values of the settings of the same names.

    ``keys``: action -> key, as people write it (see ``key_names``).
    """

    theme: str = "auto"
    notifications: str = "bell"
    editing_mode: str = "emacs"
    screen_reader: bool = False
    background_reacts: bool = True
    keys: Mapping[str, str] = field(default_factory=dict)


class Rules(Protocol):
    """Permission rules, each readable as text, as ``policy.decision.Policy`` has them."""

    @property
    def allow(self) -> Sequence[object]:
        """What runs without asking."""

    @property
    def deny(self) -> Sequence[object]:
        """What never runs."""

    @property
    def ask(self) -> Sequence[object]:
        """What always asks."""

    @property
    def granted(self) -> Sequence[object]:
        """What was allowed for this session."""

    def add_rules(self, kind: str, texts: Sequence[str], source: str = ..., /) -> None:
        """More rules of ``kind`` ("allow", "deny" or "ask"); raises ``UsageError``."""

    def remove_rule(self, text: str, /) -> bool:
        """Forget every rule that reads ``text``; false when there was none."""


class ChatSession(Protocol):
    """A conversation, as ``app.session.Session`` is."""

    @property
    def id(self) -> str:
        """The session's id."""

    @property
    def title(self) -> str:
        """Its name; empty before the first prompt."""

    @property
    def model(self) -> ModelInfo:
        """Who answers."""

    @property
    def mode(self) -> PermissionMode:
        """What runs without asking."""

    @property
    def sandbox(self) -> Sandbox | None:
        """What limits commands (SEC-7)."""

    def sandbox_changed(self) -> None:
        """Judge commands by what limits them now."""

    @property
    def usage(self) -> Usage:
        """Tokens of all turns."""

    @property
    def cost_usd(self) -> float | None:
        """Money of all turns; ``None`` where unknown."""

    @property
    def turns(self) -> int:
        """How many turns were begun."""

    @property
    def resumed(self) -> LoadedSession | None:
        """What was found when an earlier session was opened again."""

    @property
    def notices(self) -> Sequence[str]:
        """Lines for the person from the opening."""

    @property
    def background(self) -> Background | None:
        """Its background runs and schedules; ``None`` where it has none (BG-1)."""

    def move_to_background(self) -> bool:
        """Let the running command go on as a background run; false when none can (UI-3)."""

    def add_listener(self, listener: Callable[[AgentEvent], None], /) -> Callable[[], None]:
        """Send every event to ``listener``; returns a function that removes it."""

    async def run(self, op: Prompt | Continue, /) -> TurnSummary:
        """Run one turn to its end."""

    def interrupt(self, reason: CancelReason = ..., *, force: bool = ...) -> bool:
        """Cancel the running turn; false when there is none."""

    async def switch_model(self, name: str, /) -> ModelInfo:
        """Let another model answer; raises ``ConfigError``."""

    @property
    def policy(self) -> Rules:
        """The rules that decide what runs."""

    def explain(self, text: str, /) -> Explanation:
        """What would become of a command, or of the call ``TOOL name=value``.

        Raises ``UsageError``.
        """

    @property
    def effort(self) -> Effort | None:
        """How much the model is asked to reason; ``None`` leaves it to the model."""

    def set_effort(self, effort: Effort | None, /) -> None:
        """How much the model is asked to reason from now on."""

    def set_mode(self, mode: PermissionMode, /) -> None:
        """What runs without asking from now on."""

    def queued(self) -> Sequence[QueuedInput]:
        """What was typed and is not delivered yet, oldest first."""

    async def enqueue(self, text: str, kind: QueueKind = ..., /) -> QueuedInput:
        """Let ``text`` wait, durably."""

    async def edit_queued(self, row_id: int, text: str, /) -> bool:
        """Change what waits; false when it waits no longer."""

    async def drop_queued(self, row_id: int, /) -> bool:
        """Take back what waits; false when it waits no longer."""

    async def run_queued(self) -> TurnSummary | None:
        """Run a turn with what waits; ``None`` when nothing does."""

    async def compact(
        self, focus: str = ..., token: CancelToken | None = ..., /
    ) -> Compacted | None:
        """Fold what is old into a summary; ``None`` when there is nothing to fold."""

    async def undo_compaction(self) -> bool:
        """Bring back what the newest summary stands for; false when there is none."""

    def context_report(self) -> ContextReport:
        """Where the tokens of the next request go."""

    async def run_command(
        self,
        command: str,
        token: CancelToken,
        on_output: Callable[[str], None],
        /,
        *,
        tell: bool = ...,
    ) -> ToolOutput:
        """Run what the person typed, in the session's shell, without asking (UI-4)."""

    async def rewind_points(self) -> Sequence[RewindPoint]:
        """What can be gone back to, oldest first."""

    async def rewind(self, seq: int, scope: RewindScope, /) -> Rewound:
        """Go back to before the message ``seq``; raises ``AgentError``."""

    async def redo(self) -> Rewound | None:
        """Take the newest rewind back; ``None`` when that cannot be done any more."""

    async def rename(self, title: str, /) -> None:
        """Name the session."""

    async def load(self) -> LoadedSession:
        """The session as its file has it."""

    async def raw_output(self, call_id: str, /) -> bytes | None:
        """The whole output of a call, where more was kept than the model got (TOOL-3)."""

    async def todos(self) -> list[dict[str, str]]:
        """The agent's list of things to do."""

    async def memory(self) -> Mapping[str, str]:
        """What the agent has kept for this session, by key."""

    async def forget(self, key: str, /) -> bool:
        """Delete what the agent has kept as ``key``; false when there is nothing."""

    async def plan(self) -> Mapping[str, Any]:
        """The newest plan, what became of it and why; empty when there is none."""

    async def aclose(self, reason: str = "other") -> None:
        """End what runs and close the file."""


class ChatHost(Protocol):
    """Opens sessions and knows what there is. All errors are ``AgentError``."""

    @property
    def cwd(self) -> Path:
        """The directory the chat works in."""

    @property
    def desk(self) -> Desk:
        """What commands look up outside of a session."""

    @property
    def preferences(self) -> Preferences:
        """How the person likes the chat."""

    @property
    def history_file(self) -> Path | None:
        """Where typed prompts are remembered; ``None`` for nowhere."""

    async def open_first(self, approver: Approver, asker: Asker) -> ChatSession:
        """The session that the command line asks for.

        With no wish: the newest interrupted one of this directory, else a new one (REC-4).
        """

    async def open_new(self, approver: Approver, asker: Asker, model: str) -> ChatSession:
        """A new session that ``model`` (``provider/model``) answers."""

    async def open_existing(self, session_id: str, approver: Approver, asker: Asker) -> ChatSession:
        """An earlier session, by id, its beginning, or name."""

    async def list_sessions(self) -> Sequence[SessionInfo]:
        """All sessions, the most recently used first."""

    def known_models(self) -> Sequence[str]:
        """Names of models that can be chosen, as ``provider/model``."""
