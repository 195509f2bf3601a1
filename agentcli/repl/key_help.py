"""The keys of the chat, in one list: ``?`` and ``/help`` show it."""

from __future__ import annotations

from collections.abc import Sequence

from agentcli.ui.theme import DIM, Theme

KEYS: Sequence[tuple[str, str]] = (
    ("Enter", "send; while it works: queue"),
    ("Alt-Enter, Ctrl-J", "new line; also \\ Enter"),
    ("Esc, Ctrl-C", "stop the agent; again: at once"),
    ("Ctrl-C, Ctrl-D", "when empty: leave"),
    ("Up, Down, Ctrl-R", "queued and earlier prompts"),
    ("Shift-Tab", "next permission mode"),
    ("Ctrl-O", "all output of the last tool call"),
    ("Ctrl-B", "the running command: to the background"),
    ("Ctrl-T", "the agent's list of things to do"),
    ("Ctrl-G", "write in your editor"),
    ("Ctrl-L, Ctrl-Z", "redraw, suspend"),
    ("@file, Ctrl-V", "a file; the clipboard's image"),
    ("!command", "run it and tell the model; !! only run"),
    ("?", "on an empty line: these keys"),
)


def key_lines(keys: Sequence[tuple[str, str]], theme: Theme) -> list[str]:
    """A line for each key."""
    width = max(len(key) for key, _ in keys)
    return [f"  {key:<{width}}  {theme.paint(what, DIM)}" for key, what in keys]
