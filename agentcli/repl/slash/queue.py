"""``/queue``: what waits to be said to the agent; change it, take it back."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import QueuedInput
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean

USAGE = "/queue, /queue edit 2 TEXT, /queue drop 2, /queue clear"


def _item(chat: Chat, number: str) -> QueuedInput:
    """The item with that number of the list."""
    waiting = chat.session.queued()
    if not number.isdecimal() or not 1 <= int(number) <= len(waiting):
        raise UsageError(f"nothing queued has the number {number or '?'}", USAGE)
    return waiting[int(number) - 1]


def _lines(chat: Chat) -> list[str]:
    waiting = chat.session.queued()
    if not waiting:
        return ["Nothing is queued."]
    lines = ["Waiting to be sent, in this order:"]
    for number, item in enumerate(waiting, 1):
        first, *others = clean(item.text).split("\n")
        lines += [f"  {number}  {first}", *(f"     {line}" for line in others)]
    return [*lines, f"Change it with {USAGE}"]


async def _run(chat: Chat, arguments: str) -> None:
    verb, _, rest = arguments.partition(" ")
    number, _, text = rest.strip().partition(" ")
    session = chat.session
    if not verb:
        chat.show(_lines(chat))
    elif verb == "drop":
        await session.drop_queued(_item(chat, number).id)
        chat.show(_lines(chat))
    elif verb == "clear":
        for item in session.queued():
            await session.drop_queued(item.id)
        chat.show(_lines(chat))
    elif verb == "edit" and text.strip():
        await session.edit_queued(_item(chat, number).id, text.strip())
        chat.show(_lines(chat))
    else:
        raise UsageError(f"cannot do {arguments!r}", USAGE)


COMMAND = SlashCommand(
    "queue", "what waits to be sent", _run, "[edit|drop|clear]", while_working=True
)
