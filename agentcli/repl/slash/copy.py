"""``/copy``: the last answer, or its code, to the clipboard."""

from __future__ import annotations

import asyncio
import os
import re

from agentcli.domain.clean import plural
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.messages import AssistantMessage
from agentcli.domain.session import LoadedSession
from agentcli.repl.clipboard import copy_by_program, osc_52
from agentcli.repl.commands import Chat, SlashCommand

_FENCED = re.compile(
    r"^ {0,3}(`{3,}+|~{3,}+)[^\n]*\n(.*?)^ {0,3}\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE
)


def last_answer(loaded: LoadedSession) -> str:
    """The text of the newest reply that has any. Raises ``UsageError``."""
    for stored in reversed(loaded.messages):
        if isinstance(stored.message, AssistantMessage) and stored.message.text.strip():
            return stored.message.text.strip("\n")
    raise UsageError("there is no answer to copy yet", "ask something first")


def code_of(text: str) -> str:
    """All fenced code in ``text``. Raises ``UsageError``."""
    blocks = [found[2] for found in _FENCED.finditer(text)]
    if not blocks:
        raise UsageError("the last answer holds no code block", "/copy copies the whole answer")
    return "\n".join(blocks)


async def _run(chat: Chat, arguments: str) -> None:
    if arguments not in {"", "code"}:
        raise UsageError(f"cannot copy {arguments!r}", "use /copy or /copy code")
    text = last_answer(await chat.session.load())
    if arguments:
        text = code_of(text)
    done = await asyncio.to_thread(copy_by_program, text, chat.user.cwd, os.environ)
    if not done and not chat.send_to_terminal(osc_52(text)):
        raise AgentError("this terminal has no clipboard", "/export writes a file")
    size = f"{plural(len(text.splitlines()), 'line')}, {plural(len(text), 'character')}"
    chat.show([f"Copied: {size}" if done else f"Sent to the terminal's clipboard: {size}"])


COMMAND = SlashCommand(
    "copy", "the last answer to the clipboard", _run, "[code]", while_working=True
)
