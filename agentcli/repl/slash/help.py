"""``/help``: the commands and the keys."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.keys import KEYS
from agentcli.ui.theme import BOLD, DIM


async def _run(chat: Chat, _arguments: str) -> None:
    paint = chat.theme.paint
    names = {
        command: " ".join(filter(None, (f"/{command.name}", command.usage)))
        for command in chat.commands()
    }
    width = max(*map(len, names.values()), *(len(keys) for keys, _ in KEYS))
    lines = [paint("Commands", BOLD)]
    for command, name in names.items():
        also = ", ".join(f"/{alias}" for alias in command.aliases)
        note = paint(f" (also {also})", DIM) if also else ""
        lines.append(f"  {name:<{width}}  {command.help}{note}")
    lines += ["", paint("Keys", BOLD)]
    lines += [f"  {keys:<{width}}  {what}" for keys, what in KEYS]
    chat.show(lines)


COMMAND = SlashCommand("help", "the commands and the keys", _run, while_working=True)
