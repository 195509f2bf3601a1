"""``/fork``: go on in a copy of this session; the original stays as it is (TT-3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentcli.domain.errors import UsageError
from agentcli.domain.messages import AssistantMessage, Message, ToolResult
from agentcli.domain.session import StoredMessage
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui.entries import remark_of, speaker_of
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line

_SHOWN_COLUMNS = 70


async def _run(chat: Chat, arguments: str) -> None:
    session = chat.session
    if not session.turns:
        raise UsageError("there is nothing to copy yet", "say something first, or use /new")
    word, _, rest = arguments.strip().partition(" ")
    seq, name, original = None, arguments, session.id
    if word == "at":
        number, _, name = rest.strip().partition(" ")
        if number and not number.isdecimal():
            raise UsageError(f"there is no message {number!r}", "use /fork at, and choose one")
        seq = int(number) if number else await _chosen(chat)
        if seq is None:
            return
    title = session.title or "untitled"
    copy = await chat.sessions.fork(original, seq)
    await chat.switch_to(copy)
    given = f"{title} (copy)" if seq is None else f"{title} (from message {seq})"
    await chat.session.rename(name.strip() or given)
    name = clean_line(chat.session.title)
    chat.show([f"This is the copy: {name}", f"Back to the original: /resume {original}"])


async def _chosen(chat: Chat) -> int | None:
    """The message after which the copy goes on."""
    messages = (await chat.sessions.load(chat.session.id, hidden=True)).messages
    rows = list(_rows(messages))
    at = await chat.choose("Go on in a copy, right after", rows, start=len(rows) - 1)
    return None if at is None else messages[at].seq


def _rows(messages: Sequence[StoredMessage]) -> Iterator[PickRow]:
    for stored in messages:
        text = fit(clean_line(_said(stored.message)), _SHOWN_COLUMNS)
        yield PickRow(f"{stored.seq}. {text}", remark_of(stored))


def _said(message: Message) -> str:
    if isinstance(message, ToolResult):
        return f"{message.name}: {message.text}"
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    said = " · ".join(filter(None, (message.text, ", ".join(call.name for call in calls))))
    return f"{speaker_of(message)}: {said}"


COMMAND = SlashCommand(
    "fork", "go on in a copy of this session, or of what it was", _run, "[NAME | at [SEQ]]"
)
