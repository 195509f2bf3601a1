"""How a turn may have to end: with a result in a given shape instead of words (CTRL-5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentcli.domain.errors import AgentError
from agentcli.domain.messages import ToolCall, ToolResult
from agentcli.domain.ports import ToolGate
from agentcli.domain.values import frozen


@frozen
class Accept:
    """The turn is complete; ``value`` is what it amounts to, any JSON value."""

    value: Any


@frozen
class Remind:
    """The turn goes on; ``text`` is recorded as a message to the model."""

    text: str


@frozen
class GiveUp:
    """The turn fails."""

    error: AgentError


AnswerVerdict = Accept | Remind | GiveUp


class AnswerCheck(ToolGate, Protocol):
    """Decides how one turn may end; made anew for each turn. It is one of the turn's gates too."""

    def answered(self, text: str, allowed: frozenset[str]) -> AnswerVerdict:
        """Judge an answer without calls; ``allowed`` are the tools that its step could call."""

    def called(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> Accept | GiveUp | None:
        """Judge a batch that has run; ``None`` lets the turn go on."""

    def last_resort(self) -> Accept | None:
        """What the turn can still amount to when it may not go on."""


class ResultShape(Protocol):
    """What a result must look like, and how it travels as a tool's arguments."""

    def refusal(self, value: Any) -> str:
        """Why ``value`` is no such result, in a line or more; empty when it is one."""

    def of_arguments(self, arguments: Mapping[str, Any]) -> Any:
        """The result that the arguments of a call carry."""
