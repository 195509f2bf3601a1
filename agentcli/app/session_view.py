"""What can be seen of an open session, at any time and from anywhere: nothing here changes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentcli.app import context
from agentcli.app.surroundings import Surroundings
from agentcli.app.totals import Totals
from agentcli.domain.cancel import CancelToken
from agentcli.domain.history import History
from agentcli.domain.messages import Usage
from agentcli.domain.ports import Effort, ModelInfo, PermissionMode
from agentcli.domain.session import LoadedSession, SessionInfo
from agentcli.engine.conversation import Conversation
from agentcli.policy.decision import Policy

if TYPE_CHECKING:
    from agentcli.domain.background import Background
    from agentcli.domain.permissions import Explanation
    from agentcli.domain.sandbox import Sandbox
    from agentcli.domain.session import ContextReport


class SessionView:
    """The part of ``Session`` that only tells."""

    def __init__(self, info: SessionInfo, conversation: Conversation, around: Surroundings) -> None:
        self._info = info
        self._conversation = conversation
        self._around = around
        self._token: CancelToken | None = None
        self._totals = Totals.of(info)

    @property
    def id(self) -> str:
        """The session's id (UUIDv7)."""
        return self._info.id

    @property
    def info(self) -> SessionInfo:
        """The session as it was when it was opened."""
        return self._info

    @property
    def title(self) -> str:
        """Its name, or the first line of its first prompt."""
        return self._totals.title

    @property
    def model(self) -> ModelInfo:
        """Who answers."""
        return self._conversation.model

    @property
    def mode(self) -> PermissionMode:
        """What runs without asking."""
        return self._conversation.kit.policy.mode

    @property
    def history(self) -> History:
        """The messages, as stored."""
        return self._conversation.history

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools that the model has."""
        return tuple(tool.name for tool in self._conversation.kit.toolbox.definitions)

    @property
    def usage(self) -> Usage:
        """Tokens of all turns."""
        return self._totals.usage

    @property
    def cost_usd(self) -> float | None:
        """Money of all turns; ``None`` when a part of it is unknown."""
        return self._totals.cost_usd

    @property
    def turns(self) -> int:
        """How many turns were begun."""
        return self._totals.turns

    @property
    def resumed(self) -> LoadedSession | None:
        """What was found in the file when an earlier session was opened again."""
        return self._around.resumed

    @property
    def notices(self) -> Sequence[str]:
        """Lines for the person from the opening of the session."""
        return self._around.notices

    @property
    def is_running(self) -> bool:
        """Whether a turn is under way."""
        return self._token is not None

    @property
    def effort(self) -> Effort | None:
        """How much the model is asked to reason; ``None`` leaves it to the model."""
        return self._conversation.effort

    @property
    def policy(self) -> Policy:
        """The rules that decide what runs (SEC-3)."""
        return self._conversation.kit.policy

    def explain(self, text: str) -> Explanation:
        """What would become of the command, or of the call ``TOOL name=value``; see there."""
        from agentcli.app.permissions import explain, read_call

        kit = self._conversation.kit
        name, arguments = read_call(kit.toolbox, text)
        return explain(kit.toolbox, kit.workspace, kit.policy, name, arguments)

    @property
    def sandbox(self) -> Sandbox | None:
        """What limits commands (SEC-7)."""
        return self._conversation.kit.sandbox

    def sandbox_changed(self) -> None:
        """Judge commands by what limits them now."""
        sandbox = self._conversation.kit.sandbox
        self.policy.contained = sandbox is not None and sandbox.state.is_on

    @property
    def background(self) -> Background | None:
        """The session's background runs; ``None`` where it has none (BG-1)."""
        return self._conversation.kit.background

    def context_report(self) -> ContextReport:
        """Where the tokens of the next request go (CMP-5)."""
        return context.report(self._conversation)
