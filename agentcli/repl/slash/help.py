"""``/help``: the commands by what they are for, and the keys, as wide as the window."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.keys import shown_keys
from agentcli.ui.rows import wrap
from agentcli.ui.screen import size_of
from agentcli.ui.theme import BOLD, DIM

GROUPS = {
    "Sessions": "new resume sessions search rename fork export exit",
    "This conversation": "undo redo rewind compact copy transcript queue todos",
    "The model": "model login effort plan context cost usage",
    "The project": "init memory mcp skills reload diff review",
    "What it may do": "permissions sandbox trust",
    "In the background": "tasks tail",
    "The program": "config plugins theme status doctor help",
}
"""Which command stands where; the others are the user's own, or are shown as such."""
_WIDEST_NAME = 28
_LEAST_HELP = 24


async def _run(chat: Chat, arguments: str) -> None:
    if arguments.strip() == "keys":
        chat.show(_key_names(chat))
        return
    columns = max(20, size_of(sys.stdout).columns - 1)
    commands = {command.name: command for command in chat.commands()}
    paint = chat.theme.paint
    rows = [(name, [_row(c) for c in found]) for name, found in _grouped(commands)]
    keys = shown_keys(chat.user.settings.chat_keys, chat.user.default_keys)
    rows.append(("Keys", list(keys)))
    lines: list[str] = []
    for title, listed in rows:
        lines += [*([""] if lines else []), paint(title, BOLD), *help_lines(listed, columns)]
    chat.show(lines)


def _key_names(chat: Chat) -> list[str]:
    """Each key that can be changed, by the name of its setting."""
    user = chat.user
    names = [f"keys.{name}" for name in user.key_actions]
    keys = [user.settings.chat_keys.get(name, "") for name in user.key_actions]
    width, wide = max(map(len, names)), max(map(len, keys))
    rows = zip(names, keys, user.key_actions.values(), strict=True)
    how = "Change one: /config set keys.NAME KEY, for example alt-x; Ctrl-C and Esc always stop."
    lines = [f"  {name:<{width}}  {key:<{wide}}  {what}" for name, key, what in rows]
    return [*lines, chat.theme.paint(how, DIM)]


def _grouped(commands: dict[str, SlashCommand]) -> list[tuple[str, list[SlashCommand]]]:
    left = dict(commands)
    groups = [
        (title, [left.pop(name) for name in names.split() if name in left])
        for title, names in GROUPS.items()
    ]
    return [*groups, *([("Yours", list(left.values()))] if left else [])]


def _row(command: SlashCommand) -> tuple[str, str]:
    also = ", ".join(f"/{alias}" for alias in command.aliases)
    name = " ".join(filter(None, (f"/{command.name}", command.usage)))
    return name, f"{command.help} (also {also})" if also else command.help


def help_lines(rows: Sequence[tuple[str, str]], columns: int) -> list[str]:
    """Names and what they do, side by side where the window has room for it."""
    width = min(_WIDEST_NAME, max(len(name) for name, _ in rows))
    if columns - width - 4 < _LEAST_HELP:
        width = 0
    hang = " " * (width + 4)
    lines: list[str] = []
    for name, text in rows:
        if width and len(name) <= width:
            lines += wrap(f"  {name:<{width}}  {text}", columns, hang)
        else:
            lines += [*wrap(f"  {name}", columns, "    "), *wrap(f"{hang}{text}", columns, hang)]
    return lines


COMMAND = SlashCommand("help", "the commands and the keys", _run, "[keys]", while_working=True)
