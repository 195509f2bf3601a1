"""``/memory``: what the agent keeps for this session, and your own instructions for every one."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.open_session import name_of
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import BOLD, DIM

_SHOWN_COLUMNS = 100


async def _run(chat: Chat, arguments: str) -> None:
    word, _, rest = arguments.strip().partition(" ")
    match word:
        case "":
            chat.show(await _overview(chat))
        case "edit":
            await _edit(chat)
        case "forget" if rest.strip():
            if not await chat.session.forget(rest.strip()):
                raise UsageError(f"nothing is kept as {rest.strip()!r}", "/memory shows the keys")
            chat.show([f"{clean_line(rest.strip())} is forgotten."])
        case _:
            raise UsageError(f"cannot do /memory {arguments}", "use /memory [edit | forget KEY]")


async def _overview(chat: Chat) -> list[str]:
    kept = await chat.session.memory()
    text = await chat.user.instructions()
    file = clean_line(str(chat.user.instructions_file))
    lines = [chat.theme.paint("Instructions that the model has read", BOLD)]
    lines += [
        f"  {clean_line(name_of(doc.path, chat.user.cwd))}"
        f"  {len(doc.text.encode()):,} bytes{', cut' if doc.cut else ''}"
        for doc in chat.session.documents
    ]
    lines += [] if chat.session.documents else ["  none"]
    lines += [chat.theme.paint("Kept by the agent for this session", BOLD)]
    lines += [
        f"  {clean_line(key)}: {fit(clean_line(value), _SHOWN_COLUMNS)}"
        for key, value in kept.items()
    ]
    lines += [] if kept else ["  nothing"]
    lines.append(chat.theme.paint("Your instructions for every session", BOLD))
    lines += [f"  {clean_line(line)}" for line in text.splitlines()] or ["  none"]
    lines.append(chat.theme.paint(f"{file} - change: /memory edit", DIM))
    return lines


async def _edit(chat: Chat) -> None:
    user = chat.user
    before = await user.instructions()
    after = await chat.edit(before)
    if after == before:
        chat.show(["Nothing was changed."])
        return
    await user.set_instructions(after)
    chat.show(["Saved. New sessions read it; this one goes on with what it read at its start."])


COMMAND = SlashCommand(
    "memory", "what the agent keeps; your own instructions", _run, "[edit|forget KEY]"
)
