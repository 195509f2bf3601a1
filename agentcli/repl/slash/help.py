"""``/help``: the commands and the keys."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.keys import shown_keys
from agentcli.ui.theme import BOLD, DIM


async def _run(chat: Chat, _arguments: str) -> None:
    paint = chat.theme.paint
    keys_of_user = shown_keys(chat.user.settings.chat_keys, chat.user.default_keys)
    names = {
        command: " ".join(filter(None, (f"/{command.name}", command.usage)))
        for command in chat.commands()
    }
    width = max(*map(len, names.values()), *(len(keys) for keys, _ in keys_of_user))
    lines = [paint("Commands", BOLD)]
    for command, name in names.items():
        also = ", ".join(f"/{alias}" for alias in command.aliases)
        note = paint(f" (also {also})", DIM) if also else ""
        lines.append(f"  {name:<{width}}  {command.help}{note}")
    lines += ["", paint("Keys", BOLD)]
    lines += [f"  {keys:<{width}}  {what}" for keys, what in keys_of_user]
    chat.show(lines)


COMMAND = SlashCommand("help", "the commands and the keys", _run, while_working=True)
