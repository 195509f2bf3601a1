"""``/sessions``: the newest sessions."""

from __future__ import annotations

import time

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.session_lines import session_rows

SHOWN = 20


async def _run(chat: Chat, _arguments: str) -> None:
    infos = await chat.sessions.newest(SHOWN + 1)
    if not infos:
        chat.show(["There is no session yet."])
        return
    lines = session_rows(infos[:SHOWN], time.time(), chat.theme)
    if len(infos) > SHOWN:
        lines.append("Older ones: agent sessions list")
    chat.show([*lines, "Open one with /resume ID"])


COMMAND = SlashCommand("sessions", "the newest sessions", _run)
