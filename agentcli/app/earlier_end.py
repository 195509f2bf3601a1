"""What a run that is begun again came to before, read from its session (SCALE-2).

Law: a prompt that was answered is not asked again, even if nobody has heard the answer; one that
was not goes on where it stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentcli.domain.clean import read_json
from agentcli.domain.errors import AgentError
from agentcli.domain.events import Done, Outcome, TurnSummary
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ResultStatus,
    TextPart,
    ToolResult,
    UserMessage,
)
from agentcli.domain.session import SessionStatus
from agentcli.domain.values import frozen
from agentcli.tools.common.final_result import NAME, WRAPPER

if TYPE_CHECKING:
    from agentcli.app.session import Session

_UNATTENDED = "nobody is there to give it"  # as engine.arguments.problems says it


@frozen
class EarlierEnd:
    """How the last turn ended; ``unattended`` calls were refused as nobody could be asked."""

    event: Done
    unattended: int


def can_continue(session: Session) -> bool:
    """Whether a request can be made without new input (REC-5)."""
    last = session.history.last
    return last is not None and not isinstance(last, AssistantMessage)


def earlier_end(session: Session, *, wants_result: bool) -> EarlierEnd | None:
    """How the last turn of a session that was taken up ended by itself; ``None``: it did not.

    ``wants_result``: an answer without a result is none (CTRL-5).
    """
    status = session.info.status
    turn = _last_turn(session.history.messages)
    text, value, has_value = _answer(turn)
    if status is SessionStatus.CRASHED:  # it may have been killed just before it ended by itself
        last = turn[-1] if turn else None
        is_done = isinstance(last, AssistantMessage) and not last.tool_calls
    else:
        is_done = status is SessionStatus.DONE
    if not is_done or (wants_result and not has_value):
        return None
    summary = TurnSummary(
        Outcome.DONE,
        steps=sum(isinstance(message, AssistantMessage) for message in turn),
        text=json.dumps(value, ensure_ascii=False) if wants_result else text,
        cost_usd=session.cost_usd,
        structured=value if wants_result else None,
    )
    return EarlierEnd(Done(summary), sum(map(_is_unattended, turn)))


def _last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    for at in range(len(messages) - 1, -1, -1):
        if isinstance(messages[at], UserMessage):
            return messages[at + 1 :]
    return messages


def _answer(turn: Sequence[Message]) -> tuple[str, Any, bool]:
    """The last words; and the result, by its tool or in those words."""
    results = {each.call_id: each for each in turn if isinstance(each, ToolResult)}
    text = ""
    for message in reversed(turn):
        if not isinstance(message, AssistantMessage):
            continue
        for call in message.tool_calls:
            done = results.get(call.id)
            if call.name == NAME and done is not None and done.status is ResultStatus.OK:
                arguments = dict(call.arguments)
                value = arguments[WRAPPER] if set(arguments) == {WRAPPER} else arguments
                return message.text, value, True
        text = text or message.text
    try:
        return text, read_json(text), True
    except ValueError:
        return text, None, False


def _is_unattended(message: Message) -> bool:
    return (
        isinstance(message, ToolResult)
        and message.status is ResultStatus.REFUSED
        and any(isinstance(part, TextPart) and _UNATTENDED in part.text for part in message.parts)
    )


def spent_in(sessions: Sequence[str]) -> Mapping[str, float | None]:
    """What each of ``sessions`` of this home has cost by now, in USD; ``None``: unknown.

    One that is not there, or cannot be read, is left out. Blocks.
    """
    from agentcli.config.paths import Paths
    from agentcli.store.disk import SUFFIX
    from agentcli.store.files import read_info

    directory = Paths.from_env(os.environ).sessions_dir
    found: dict[str, float | None] = {}
    for name in sessions:
        with suppress(AgentError):
            info = read_info(directory / f"{name}{SUFFIX}")
            found[name] = info.cost_usd if info.turns else 0.0
    return found
