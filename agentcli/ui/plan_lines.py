"""A plan of the model as painted lines: Markdown, with every invisible character spelt out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.sanitize import clean_line, reveal
from agentcli.ui.theme import BOLD, DIM, Theme

_STATES = {
    "presented": "not answered yet",
    "approved": "approved",
    "refused": "not approved",
    "handed over": "not approved yet",
}


def plan_lines(text: str, theme: Theme, columns: int) -> list[str]:
    """The plan itself, indented."""
    stream = MarkdownStream(theme, lambda: columns - 2)
    painted = stream.feed(reveal(text.strip()) + "\n") + stream.finish()
    return [f"  {line}".rstrip(" ") for line in painted.rstrip("\n").split("\n")]


def kept_plan_lines(kept: Mapping[str, Any], theme: Theme, columns: int) -> list[str]:
    """The plan that a session keeps, and what became of it."""
    state = _STATES.get(str(kept.get("status", "")), "")
    lines = [theme.paint(f"The plan ({state}):" if state else "The plan:", BOLD)]
    lines += plan_lines(str(kept.get("text", "")), theme, columns)
    if reason := clean_line(str(kept.get("reason", ""))):
        lines.append(theme.paint(f"  The reason you gave: {reason}", DIM))
    return lines
