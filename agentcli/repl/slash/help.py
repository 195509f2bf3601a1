"""``/help``: the commands and the keys."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.theme import BOLD, DIM

_KEYS = (
    ("Enter", "send"),
    ("Alt-Enter, Ctrl-J, \\ Enter", "new line"),
    ("Ctrl-C, Esc", "stop the agent; again: stop at once"),
    ("Ctrl-C", "at the prompt: clear it; when empty, twice: leave"),
    ("Ctrl-D", "leave, when the prompt is empty"),
    ("Up, Down, Ctrl-R", "earlier prompts"),
    ("@", "complete a file's name"),
)


async def _run(chat: Chat, arguments: str) -> None:
    del arguments
    paint = chat.theme.paint
    names = {
        command: " ".join(filter(None, (f"/{command.name}", command.usage)))
        for command in chat.commands()
    }
    width = max(*map(len, names.values()), *(len(keys) for keys, _ in _KEYS))
    lines = [paint("Commands", BOLD)]
    for command, name in names.items():
        also = ", ".join(f"/{alias}" for alias in command.aliases)
        note = paint(f" (also {also})", DIM) if also else ""
        lines.append(f"  {name:<{width}}  {command.help}{note}")
    lines += ["", paint("Keys", BOLD)]
    lines += [f"  {keys:<{width}}  {what}" for keys, what in _KEYS]
    chat.show(lines)


COMMAND = SlashCommand("help", "the commands and the keys", _run)
