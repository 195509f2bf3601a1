"""A command that the user typed after "!": run at once, sent to the model with the next prompt.

Law: what the user types needs no approval and is not part of the history before that prompt; until
then it waits in the session file, so that it survives a crash (UI-4).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agentcli.domain.cancel import CancelToken
from agentcli.domain.clean import one_line
from agentcli.domain.errors import AgentError, TurnCancelled, UsageError
from agentcli.domain.events import AgentEvent, ToolProgress
from agentcli.domain.messages import TextPart, ToolCall, UserMessage
from agentcli.domain.tools import OutputKind, ToolOutput
from agentcli.engine.conversation import Conversation, Emit
from agentcli.engine.tool_calls import ToolCalls

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import SessionState

MOST_CHARS = 30_000
MOST_SHOWN = 200
_KEY = "shell_lines"


def environment_for(env: Mapping[str, str]) -> dict[str, str]:
    """``env``, which is ours, for a program of the user's: without keys of providers (SEC-8)."""
    from agentcli.process.environment import without_provider_keys

    return without_provider_keys(env)


async def run_line(
    conversation: Conversation, command: str, token: CancelToken, on_output: Callable[[str], None]
) -> ToolOutput:
    """Run ``command`` in the session's own shell; ``on_output`` gets its live output.

    Raises ``UsageError`` for an empty command and where there is no shell tool.
    """
    if not command.strip():
        raise UsageError("there is no command", "write it after the !")
    if conversation.parts.toolbox.get("bash") is None:
        raise UsageError("the shell tool is switched off", "see tools in the configuration")

    def emit(event: AgentEvent) -> None:
        if isinstance(event, ToolProgress):
            on_output(event.text)

    calls = ToolCalls(conversation.parts, conversation.history, token, emit)
    call = ToolCall(f"shell_{os.urandom(16).hex()}", "bash", {"command": command})
    try:
        return await calls.run_by_hand(call)
    except TurnCancelled:
        return ToolOutput.cancelled("")


async def run_asked(
    conversation: Conversation, command: str, token: CancelToken, emit: Emit
) -> ToolOutput:
    """Run what a file of the user's says, if it may run.

    Raises ``AgentError`` when it may not, ``UsageError`` without a shell, and ``TurnCancelled``.
    """
    if conversation.parts.toolbox.get("bash") is None:
        raise UsageError("the shell tool is switched off", "see tools in the configuration")
    calls = ToolCalls(conversation.parts, conversation.history, token, emit)
    call = ToolCall(f"shell_{os.urandom(16).hex()}", "bash", {"command": command})
    output, is_refused = await calls.run_asked(call)
    if is_refused:
        shown = one_line(command, MOST_SHOWN)
        raise AgentError(f"nothing is sent: its command may not run: {shown}")
    return output


async def remember(state: SessionState, command: str, output: ToolOutput) -> None:
    """Let the model know of it with the next prompt."""
    ended = "was cancelled" if output.kind is OutputKind.CANCELLED else "printed"
    text = "\n".join(part.text for part in output.parts if isinstance(part, TextPart))
    cut = text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}\n[cut]"
    line = f"(The user ran this command in the shell themselves: {command}\nIt {ended}:\n{cut})"
    await add_line(state, line)


async def add_line(state: SessionState, line: str) -> None:
    """Let the model know of ``line`` with the next prompt."""
    await state.set(_KEY, [*await _waiting(state), line])


async def _waiting(state: SessionState) -> list[str]:
    kept = await state.get(_KEY)
    return [line for line in kept if isinstance(line, str)] if isinstance(kept, list) else []


async def forget(state: SessionState) -> None:
    """The model knows of all that waited."""
    await state.set(_KEY, None)


async def with_lines(message: UserMessage, state: SessionState) -> UserMessage:
    """``message`` followed by what waits for the model."""
    return UserMessage((*message.parts, *map(TextPart, await _waiting(state))))
