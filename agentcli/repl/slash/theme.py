"""``/theme``: the colours of this chat and of those to come."""

from __future__ import annotations

from agentcli.domain.errors import AgentError, UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import (
    ADDED,
    DIM,
    ERROR,
    HEADING,
    KEYWORD,
    OK,
    REMOVED,
    THEMES,
    WARNING,
    Theme,
)

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
    elif theme.live:
        arguments = await _chosen(chat)
        if not arguments:
            return
    sample = _sample(theme)
    if arguments:
        chat.show([f"Theme {theme.name}: {sample}", await _keep(chat, arguments)])
        return
    names = [f"{'> ' if name == theme.name else '  '}{name}" for name in THEMES]
    chat.show([sample, *names, theme.paint("Choose one with /theme NAME", DIM)])


def _sample(theme: Theme) -> str:
    return "  ".join(theme.paint(text, style) for text, style in _SAMPLE)


async def _chosen(chat: Chat) -> str:
    """The theme that the user picks, each shown in its colours; as before when none is."""
    theme, before = chat.theme, chat.theme.name
    rows = [PickRow(name) for name in THEMES]
    at = await chat.choose(
        "Which theme?",
        rows,
        THEMES.index(before),
        lambda row: theme.use(THEMES[row]),
        lambda: [_sample(theme)],
    )
    theme.use(before if at is None else THEMES[at])
    return "" if at is None else THEMES[at]


async def _keep(chat: Chat, name: str) -> str:
    """Write the choice to the user's settings; the outcome as a line."""
    try:
        return f"Saved: {clean_line((await chat.user.set('theme', name))[0])}"
    except (AgentError, OSError) as error:
        return f"For this chat only; it could not be saved: {clean_line(str(error))}"


COMMAND = SlashCommand(
    "theme", "the colours", _run, "[NAME]", while_working=True, completes=lambda _: THEMES
)
