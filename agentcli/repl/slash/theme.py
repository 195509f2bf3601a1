"""``/theme``: the colours of this chat."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.theme import ADDED, DIM, ERROR, HEADING, KEYWORD, OK, REMOVED, THEMES, WARNING

_SAMPLE = (
    ("done", OK), ("failed", ERROR), ("warning", WARNING), ("+ added", ADDED),
    ("- removed", REMOVED), ("heading", HEADING), ("keyword", KEYWORD), ("aside", DIM),
)  # fmt: skip


async def _run(chat: Chat, arguments: str) -> None:
    theme = chat.theme
    if arguments and arguments not in THEMES:
        raise UsageError(f"there is no theme {arguments}", f"use one of: {', '.join(THEMES)}")
    if arguments:
        theme.use(arguments)
    sample = "  ".join(theme.paint(text, style) for text, style in _SAMPLE)
    keep = f"Keep it with: agent config set theme {theme.name}"
    chat.show(
        [f"Theme {theme.name}: {sample}", keep if arguments else f"There are: {', '.join(THEMES)}"]
    )


COMMAND = SlashCommand("theme", "the colours", _run, "[NAME]", while_working=True)
