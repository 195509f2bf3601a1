"""``/doctor``: everything that can be checked, and how to fix it (OPS-3)."""

from __future__ import annotations

from collections.abc import Sequence

from agentcli.app.user_files import Finding
from agentcli.domain.cancel import CancelToken
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import ERROR, OK, WARNING

_STYLES = {"ok": OK, "warn": WARNING, "fail": ERROR}


async def _run(chat: Chat, _arguments: str) -> None:
    async def check(_token: CancelToken) -> Sequence[Finding]:
        return await chat.user.findings()

    found = await chat.work(check, "Checking")
    lines: list[str] = []
    for each in found or ():
        mark = chat.theme.paint(f"{each.status:<4}", _STYLES.get(each.status, 0))
        lines.append(f"{mark} {each.name}: {clean_line(each.detail)}")
        if each.advice and each.status != "ok":
            lines.append(f"     -> {clean_line(each.advice)}")
    if lines:
        chat.show(lines)


COMMAND = SlashCommand("doctor", "check the installation", _run)
