"""``/permissions``: what runs without asking, and why; change the mode (SEC-3)."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.domain.settings import PermissionMode
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import reveal
from agentcli.ui.theme import BOLD, DIM, WARNING

_MODES = {
    PermissionMode.DEFAULT: "reading in the workspace is free, everything else asks",
    PermissionMode.ACCEPT_EDITS: "edits in the workspace are free as well",
    PermissionMode.PLAN: "it reads and plans; nothing is changed",
    PermissionMode.YOLO: "everything runs without asking, except what a rule denies",
}


async def _run(chat: Chat, arguments: str) -> None:
    session, paint = chat.session, chat.theme.paint
    if arguments:
        try:
            mode = PermissionMode(arguments.strip().lower())
        except ValueError:
            names = ", ".join(mode.value for mode in PermissionMode)
            raise UsageError(f"there is no mode {arguments!r}", f"use one of: {names}") from None
        session.set_mode(mode)
        line = f"Permission mode {mode}: {_MODES[mode]}."
        chat.show([paint(line, WARNING) if mode is PermissionMode.YOLO else line])
        return
    lines = []
    for mode, what in _MODES.items():
        here = mode is session.mode
        lines.append(paint(f"{'>' if here else ' '} {mode:<13} {what}", BOLD if here else 0))
    rules = session.policy
    groups = (
        ("never run", rules.deny),
        ("always ask", rules.ask),
        ("run without asking", rules.allow),
        ("allowed for this session", rules.granted),
    )
    for name, found in groups:
        if found:
            lines += ["", paint(f"These {name}:" if name[0] != "a" else f"{name}:", BOLD)]
            lines += [f"  {reveal(str(rule))}" for rule in found]
    lines.append(paint("Change the mode with /permissions MODE or Shift-Tab.", DIM))
    chat.show(lines)


COMMAND = SlashCommand(
    "permissions", "what runs without asking; change the mode", _run, "[MODE]", while_working=True
)
