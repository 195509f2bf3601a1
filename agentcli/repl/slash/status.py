"""``/status``: what is open, where, with which model and permissions."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line


async def _run(chat: Chat, _arguments: str) -> None:
    session = chat.session
    is_new = not session.turns and not session.usage.is_known
    rows = (
        ("session", session.id),
        ("title", clean_line(session.title) or "untitled"),
        ("directory", clean_line(str(chat.user.cwd))),
        ("model", clean_line(session.model.id)),
        ("permissions", str(session.mode)),
        ("turns", str(session.turns)),
        ("tokens", "none yet" if is_new else wording.tokens(session.usage)),
        ("cost", "none yet" if is_new else wording.cost(session.cost_usd)),
    )
    chat.show([f"{name:<12} {value}" for name, value in rows])


COMMAND = SlashCommand("status", "session, directory, model, permissions", _run, while_working=True)
