"""What happened, as painted lines for the chat. Pure: the same event gives the same lines.

Law: every text that comes from a model, a tool or a file passes ``sanitize``; signs and words
carry the meaning, colour only repeats it (UI-10).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentcli.domain.events import (
    AgentEvent,
    Cancelled,
    Failed,
    ModelFellBack,
    Notice,
    Outcome,
    RetryWait,
    ToolFinished,
    TurnSummary,
    WrappingUp,
)
from agentcli.domain.messages import ResultStatus
from agentcli.ui import wording
from agentcli.ui.diff import diff_lines, is_diff
from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.sanitize import clean, clean_line, reveal
from agentcli.ui.theme import BOLD, DIM, ERROR, OK, WARNING, Theme

PREVIEW_LINES = 5
DIFF_LINES = 60
PROMPT_LINES = 20
MAX_LINE = 400
MAX_ERROR = 160

# what these return is for the model to read; their outcome line says enough
_NO_PREVIEW = frozenset(
    {
        "read_file", "list_directory", "glob_files", "grep_files", "stat_file", "web_fetch",
        "get_current_time",
    }
)  # fmt: skip
NO_OUTPUT = "(no output)"
_EXIT_LINE = re.compile(r"\n?\[exit code [^\n]*\]\s*\Z")
_CANCEL_WORDS = {
    "user": "Cancelled.",
    "sigterm": "Cancelled: the program was asked to stop (SIGTERM).",
    "sighup": "Cancelled: the terminal went away (SIGHUP).",
    "limit": "Stopped: a limit was reached.",
}


def call_line(summary: str, theme: Theme, status: ResultStatus | None = None) -> str:
    """``● Read src/app.py:1-80``; the sign tells how it ended, ``None`` while it runs."""
    symbols = theme.symbols
    sign, style = {
        None: (symbols.call, DIM),
        ResultStatus.OK: (symbols.call, OK),
        ResultStatus.CANCELLED: (symbols.stopped, WARNING),
        ResultStatus.INTERRUPTED: (symbols.stopped, WARNING),
    }.get(status, (symbols.failed, ERROR))
    return f"{theme.paint(sign, style)} {theme.paint(clean_line(summary), BOLD)}"


def tool_lines(event: ToolFinished, summary: str, theme: Theme) -> list[str]:
    """A finished call: what it did, its outcome and duration, a short preview (UI-2)."""
    return [call_line(summary, theme, event.result.status), *outcome_lines(event, summary, theme)]


def outcome_lines(event: ToolFinished, summary: str, theme: Theme) -> list[str]:
    """The lines below the call's own."""
    status = event.result.status
    text = wording.outcome(event, clean_line(summary))
    took = (
        f" {theme.symbols.dot} {wording.duration(event.duration_s)}"
        if event.duration_s > 0 and not wording.has_duration(text)
        else ""
    )
    good = status is ResultStatus.OK
    style = DIM if good else WARNING if status is not ResultStatus.ERROR else ERROR
    branch = theme.paint(f"  {theme.symbols.branch} ", DIM)
    return [
        f"{branch}{theme.paint(_cut(text, theme, MAX_ERROR), style)}{theme.paint(took, DIM)}"
    ] + [f"    {line}" for line in preview(event, theme)]


def preview(event: ToolFinished, theme: Theme) -> list[str]:
    """The part of a result worth seeing at once."""
    if event.display and is_diff(event.display):
        return _bounded(diff_lines(event.display, theme), DIFF_LINES, theme)
    if event.display:
        return _bounded(clean(event.display).rstrip().split("\n"), DIFF_LINES, theme)
    status = event.result.status
    if status not in {ResultStatus.OK, ResultStatus.ERROR} or event.call.name in _NO_PREVIEW:
        return []
    text = _EXIT_LINE.sub("", clean(event.result.text))
    lines = [line for line in text.rstrip().split("\n") if line.strip() and line != NO_OUTPUT]
    shown = wording.outcome(event)
    if len(lines) == 1 and lines[0].strip() in shown:
        return []
    hidden = len(lines) - PREVIEW_LINES
    tail = [theme.paint(_cut(line, theme), DIM) for line in lines[-PREVIEW_LINES:]]
    if status is ResultStatus.ERROR and 0 < len(lines) <= PREVIEW_LINES:
        tail = tail[lines[0].strip()[:MAX_ERROR] in shown :]
    if hidden > 0:
        more = f"{theme.symbols.more} {wording.plural(hidden, 'earlier line')}"
        return [theme.paint(more, DIM), *tail]
    return tail


def retry_line(event: RetryWait, theme: Theme, left_s: float | None = None) -> str:
    """``Retrying in 4 s (2/3) · overloaded · Ctrl-C to stop``; ``left_s`` counts down."""
    dot = theme.symbols.dot
    said = wording.retry(event, left_s, short=True).replace("·", dot)
    said = said.replace("…", theme.symbols.more)
    return theme.paint(f"{said} {dot} Ctrl-C to stop", WARNING)


def prompt_lines(text: str, theme: Theme) -> list[str]:
    """A message of the user, as it stands in the scrollback."""
    sign = theme.paint("> ", BOLD)
    first, *others = clean(text).strip().split("\n")
    hidden = len(others) + 1 - PROMPT_LINES
    if hidden > 0:
        more = f"  {theme.symbols.more} {wording.plural(hidden, 'more line')}"
        others = [*others[: PROMPT_LINES - 1], theme.paint(more, DIM)]
        return [f"{sign}{first}", *(f"  {line}" for line in others[:-1]), others[-1]]
    return [f"{sign}{first}", *(f"  {line}" for line in others)]


def news_line(event: AgentEvent, theme: Theme) -> str | None:
    """What the engine did by itself; ``None`` for what is no news."""
    text = wording.news(event)
    if text is None:
        return None
    warns = isinstance(event, ModelFellBack | WrappingUp)
    return theme.paint(f"! {text}", WARNING) if warns else theme.paint(text, DIM)


def notice_line(event: Notice, theme: Theme) -> str:
    """One line of news or warning."""
    text = clean_line(event.text)
    return theme.paint(f"! {text}", WARNING) if event.is_warning else theme.paint(text, DIM)


def failed_lines(event: Failed, theme: Theme) -> list[str]:
    """What failed and what to do about it."""
    message, advice = wording.failure(event)
    lines = [theme.paint(f"{theme.symbols.failed} {message}", ERROR)]
    if advice:
        lines.append(f"  {advice}")
    unsaved = event.unsaved
    if unsaved:
        lines += ["  This could not be saved anywhere:", *clean(unsaved).split("\n")]
    return lines


def cancelled_line(event: Cancelled, theme: Theme) -> str:
    """Says that the turn was cancelled and that nothing was lost."""
    words = _CANCEL_WORDS.get(event.reason, "Cancelled.")
    return theme.paint(f"{theme.symbols.stopped} {words} What was done so far is saved.", WARNING)


def limit_line(summary: TurnSummary, theme: Theme) -> str | None:
    """Why a turn that is not an error stopped early."""
    if summary.outcome is Outcome.WRAPPED_UP:
        return theme.paint('! Finished early: a limit was near. Say "continue" to go on.', WARNING)
    if summary.outcome in {Outcome.MAX_STEPS, Outcome.TIMED_OUT}:
        return theme.paint('! Stopped at a limit. Say "continue" to go on.', WARNING)
    return None


def turn_line(summary: TurnSummary, theme: Theme) -> str:
    """``12 s · 12.3k in, 400 out · $0.0021``."""
    parts = [wording.duration(summary.duration_s)]
    if summary.usage.is_known:
        parts.append(wording.tokens(summary.usage))
    if summary.cost_usd is not None:
        parts.append(wording.cost(summary.cost_usd))
    return theme.paint(f" {theme.symbols.dot} ".join(parts), DIM)


def _bounded(lines: list[str], most: int, theme: Theme) -> list[str]:
    if len(lines) <= most:
        return lines
    more = f"{theme.symbols.more} {wording.plural(len(lines) - most, 'more line')}"
    return [*lines[:most], theme.paint(more, DIM)]


def _cut(line: str, theme: Theme, most: int = MAX_LINE) -> str:
    return line if len(line) <= most else line[:most] + theme.symbols.more


# --- a plan of the model: Markdown, with every invisible character spelt out ------------------


_STATES = {
    "presented": "not answered yet",
    "approved": "approved",
    "refused": "not approved",
    "handed over": "not approved yet",
}


def plan_lines(text: str, theme: Theme, columns: int) -> list[str]:
    """The plan itself, indented."""
    stream = MarkdownStream(theme, lambda: columns - 2)
    rows = stream.feed(reveal(text.strip()) + "\n") + stream.finish()
    return [f"  {row}" if row else "" for row in rows]


def kept_plan_lines(kept: Mapping[str, Any], theme: Theme, columns: int) -> list[str]:
    """The plan that a session keeps, and what became of it."""
    state = _STATES.get(str(kept.get("status", "")), "")
    lines = [theme.paint(f"The plan ({state}):" if state else "The plan:", BOLD)]
    lines += plan_lines(str(kept.get("text", "")), theme, columns)
    if reason := clean_line(str(kept.get("reason", ""))):
        lines.append(theme.paint(f"  The reason you gave: {reason}", DIM))
    return lines
