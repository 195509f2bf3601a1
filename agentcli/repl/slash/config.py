"""``/config``: the settings, where each comes from; change one in the user's own file."""

from __future__ import annotations

from collections.abc import Sequence

from agentcli.app.user_files import SettingRow
from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.keys import check_key_setting
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import DIM

DEFAULT = "default"


async def _run(chat: Chat, arguments: str) -> None:
    user = chat.user
    key, _, value = arguments.partition(" ")
    if value.strip():
        check_key_setting(key, value.strip())
        lines = await user.set(key, value.strip())
        chat.show([*map(clean_line, lines), "It takes effect at the next start."])
        return
    rows = await user.setting_rows()
    if key and key != "all":
        rows = [row for row in rows if row.key == key or row.key.startswith(f"{key}.")]
        if not rows:
            raise UsageError(f"there is no setting {key!r}", "/config all shows them")
        chat.show(_lines(rows, chat))
        return
    chosen = [row for row in rows if key == "all" or row.source != DEFAULT]
    left = len(rows) - len(chosen)
    lines = _lines(chosen, chat) if chosen else ["All settings have their defaults."]
    if left:
        lines.append(f"{left} more have their defaults: /config all")
    file = clean_line(str(user.config_file))
    chat.show([*lines, chat.theme.paint(f"Your file: {file}. Change: /config KEY VALUE", DIM)])


def _lines(rows: Sequence[SettingRow], chat: Chat) -> list[str]:
    width = max(len(row.key) for row in rows)
    paint = chat.theme.paint
    return [
        f"{row.key:<{width}}  {clean_line(row.value)}  {paint(clean_line(row.source), DIM)}"
        for row in rows
    ]


COMMAND = SlashCommand(
    "config", "see and change settings", _run, "[all|KEY [VALUE]]", while_working=True
)
