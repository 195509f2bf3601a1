"""What happened, as painted lines for the chat. Pure: the same event gives the same lines.

Law: every text that comes from a model, a tool or a file passes ``sanitize``; signs and words
carry the meaning, colour only repeats it (UI-10).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentcli.domain.clean import plural
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
from agentcli.domain.history import HAD_PRINTED
from agentcli.domain.messages import ResultStatus
from agentcli.domain.patterns import LazyPattern
from agentcli.ui import wording
from agentcli.ui.diff import diff_lines, is_diff
from agentcli.ui.highlight import Highlighter, Span
from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.rows import TO_END, Wrap, columns_of, plain
from agentcli.ui.sanitize import clean, clean_line, reveal
from agentcli.ui.theme import BOLD, DIM, ERROR, OK, RESET, TINT, WARNING, Theme

PREVIEW_LINES = 5
DIFF_LINES = 40
DIFF_TAIL = 12
PROMPT_LINES = 20
MAX_LINE = 400
MAX_ERROR = 160
_NO_TIME = " · 0.0 s"

# what these return is for the model to read; their outcome line says enough
_NO_PREVIEW = frozenset(
    {
        "read_file", "list_directory", "glob_files", "grep_files", "stat_file", "web_fetch",
        "get_current_time", "present_plan",
    }
)  # fmt: skip
_SUB_AGENT, _PLAN = "task", "present_plan"
NO_OUTPUT = "(no output)"
_COMMAND = LazyPattern(r"(Run `)(.+)(`[^`]*)")
# where a sub-agent's session is: for the model, and in what Ctrl-O shows
_TRANSCRIPT = LazyPattern(
    r"\n?\[transcript: agent sessions show [^\n]*\]\s*\Z|\Asession [0-9a-f-]{36}\n"
)
_LEFT_OUT = LazyPattern(r"(?m)^\[[\d,]{1,15} characters \(([\d,]{1,15}) lines\) cut\. ")
_EXIT_LINE = LazyPattern(r"\n?\[exit code [^\n]*\]\s*\Z")
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
        ResultStatus.REFUSED: (symbols.refused or symbols.failed, ERROR),
        ResultStatus.CANCELLED: (symbols.stopped, WARNING),
        ResultStatus.INTERRUPTED: (symbols.stopped, WARNING),
    }.get(status, (symbols.failed, ERROR))
    return f"{theme.paint(sign, style)} {_summary(clean_line(summary), theme)}"


def _summary(text: str, theme: Theme) -> str:
    """What the call does; a command in the colours of the shell."""
    found = _COMMAND.fullmatch(text) if theme.color else None
    if found is None:
        return theme.paint(text, BOLD)
    command = "".join(theme.paint(part, style) for part, style in _shell_spans(found[2]))
    return theme.paint("Run ", BOLD) + theme.paint("`", DIM) + command + theme.paint(found[3], DIM)


@lru_cache(64)
def _shell_spans(command: str) -> tuple[Span, ...]:
    return tuple(Highlighter("bash").line(command))


def tool_lines(
    event: ToolFinished, summary: str, theme: Theme, columns: int = MAX_LINE
) -> list[str]:
    """A finished call: what it did, its outcome and duration, a short preview (UI-2)."""
    head = call_line(summary, theme, event.result.status)
    return [head, *outcome_lines(event, summary, theme, columns)]


def outcome_lines(
    event: ToolFinished, summary: str, theme: Theme, columns: int = MAX_LINE
) -> list[str]:
    """The lines below the call's own; Markdown is laid out for ``columns``."""
    status = event.result.status
    text = wording.outcome(event, clean_line(summary))
    took = (
        f" {theme.symbols.dot} {wording.duration(event.duration_s)}"
        if event.duration_s >= wording.FELT_S and not wording.has_duration(text)
        else ""
    )
    text = text.removesuffix(_NO_TIME)
    good = status is ResultStatus.OK
    style = DIM if good else WARNING if status is not ResultStatus.ERROR else ERROR
    branch = theme.paint(f"  {theme.symbols.branch} ", DIM)
    return [
        f"{branch}{theme.paint(_cut(text, theme, MAX_ERROR), style)}{theme.paint(took, DIM)}"
    ] + [f"    {line}" for line in preview(event, theme, clean_line(summary), columns - 4)]


def preview(
    event: ToolFinished, theme: Theme, named: str = "", columns: int = MAX_LINE
) -> list[str]:
    """The part of a result worth seeing at once, below a line that says ``named``."""
    if event.display:
        return _head_and_tail(_display_lines(event, theme, named, columns), theme)
    status = event.result.status
    # what went wrong stands in the outcome; the rest of such a result is advice for the model
    text = event.result.text
    if status is not ResultStatus.OK and not (status is ResultStatus.ERROR and event.summary):
        text = text.partition(HAD_PRINTED)[2]
    if event.call.name in _NO_PREVIEW:
        return []
    if event.call.name == _SUB_AGENT:
        text = _TRANSCRIPT.sub("", text)
        if status is ResultStatus.OK:
            return _answer_head(text, theme, columns)
    text = _EXIT_LINE.sub("", clean(text))
    lines = [line for line in text.rstrip().split("\n") if line.strip() and line != NO_OUTPUT]
    shown = wording.outcome(event)
    if len(lines) == 1 and lines[0].strip() in shown:
        return []
    left_out = _LEFT_OUT.search(text)
    hidden = len(lines) - PREVIEW_LINES
    hidden += int(left_out[1].replace(",", "")) - 1 if left_out else 0
    tail = [theme.paint(_cut(line, theme), DIM) for line in lines[-PREVIEW_LINES:]]
    if status is ResultStatus.ERROR and 0 < len(lines) <= PREVIEW_LINES:
        tail = tail[lines[0].strip()[:MAX_ERROR] in shown :]
    if hidden > 0:
        more = f"{theme.symbols.more} {plural(hidden, 'earlier line')}"
        return [theme.paint(more, DIM), *tail]
    return tail


def _display_lines(event: ToolFinished, theme: Theme, named: str, columns: int) -> list[str]:
    """What a tool has made for the user: a plan, a change, a text."""
    if event.call.name == _PLAN:
        return _plan_rows(event.display, theme, columns)
    if is_diff(event.display):
        return diff_lines(event.display, theme, named=named)
    return clean(event.display).rstrip().split("\n")


def _answer_head(text: str, theme: Theme, columns: int) -> list[str]:
    """How a sub-agent's answer begins, its Markdown read; Ctrl-O names its session, too."""
    rows = _markdown_rows(clean(text), theme, columns)
    lines = [line for row in rows if (line := plain(row).rstrip())]
    head = [theme.paint(line, DIM) for line in lines[:PREVIEW_LINES]]
    return [*head, *_hidden(len(lines) - PREVIEW_LINES, theme)]


def retry_line(event: RetryWait, theme: Theme, left_s: float | None = None) -> str:
    """``Retrying in 4 s (2/3) · overloaded · Ctrl-C to stop``; ``left_s`` counts down."""
    dot = theme.symbols.dot
    said = wording.retry(event, left_s, short=True).replace("·", dot)
    said = said.replace("…", theme.symbols.more)
    return theme.paint(f"{said} {dot} Ctrl-C to stop", WARNING)


def prompt_lines(text: str, theme: Theme, columns: int, *, fills: bool = True) -> list[str]:
    """A message of the user, as it stands in the scrollback: set off by its background.

    ``fills``: over the full width, by a sequence that pagers may not know.
    """
    lines = clean(text).strip().split("\n")
    hidden = len(lines) - PROMPT_LINES
    if hidden > 0:
        more = f"{theme.symbols.more} {plural(hidden + 1, 'more line')}"
        lines = [*lines[: PROMPT_LINES - 1], more]
    rows: list[str] = []
    for at, line in enumerate(lines):
        sign = theme.paint("> ", BOLD | TINT) if at == 0 else theme.paint("  ", TINT)
        wrap = Wrap(columns if theme.live else sys.maxsize, sign, theme.paint("  ", TINT))
        wrap.feed(line.expandtabs(4), theme.start(TINT))
        wrap.end_line()
        rows += wrap.rows
    tint = theme.start(TINT) if theme.live else ""
    if not tint or not fills:
        return [row.rstrip(" ") for row in rows]
    full = f"{tint}{TO_END}{RESET}"
    return [row if columns_of(plain(row)) >= columns else row + full for row in rows]


def news_line(event: AgentEvent, theme: Theme) -> str | None:
    """What the engine did by itself; ``None`` for what is no news."""
    text = wording.news(event)
    if text is None:
        return None
    warns = isinstance(event, ModelFellBack | WrappingUp)
    return _said(text, theme, warns=warns)


def notice_line(event: Notice, theme: Theme) -> str:
    """One line of news or warning."""
    text = clean_line(event.text)
    return _said(text, theme, warns=event.is_warning)


def _said(text: str, theme: Theme, *, warns: bool) -> str:
    """What the program says, with its sign in the gutter."""
    if warns:
        return theme.paint(f"! {text.removeprefix('warning: ')}", WARNING)
    return theme.paint(f"{theme.symbols.dot} {text}" if theme.live else text, DIM)


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
    """``12 s · 12.3k in, 400 out · $0.0021``.

    The time alone where no model was asked, nothing when that was short.
    """
    usage, cost = summary.usage, summary.cost_usd
    parts = [wording.duration(summary.duration_s)] if summary.duration_s >= wording.FELT_S else []
    if cost != 0 or usage.input_tokens or usage.output_tokens:
        parts += [wording.tokens(usage)] if usage.is_known else []
        parts += [wording.cost(cost)] if cost else []
    if not parts:
        return ""
    gutter = "  " if theme.live else ""
    return theme.paint(gutter + f" {theme.symbols.dot} ".join(parts), DIM)


def _head_and_tail(lines: list[str], theme: Theme) -> list[str]:
    """The beginning and the end of what is long."""
    if len(lines) <= DIFF_LINES + 1:
        return lines
    hidden = _hidden(len(lines) - DIFF_LINES, theme)
    return [*lines[: DIFF_LINES - DIFF_TAIL], *hidden, *lines[-DIFF_TAIL:]]


def _hidden(number: int, theme: Theme) -> list[str]:
    """Says that more could be seen, if there is more."""
    more = f"{theme.symbols.more} {plural(number, 'more line')} (Ctrl-O shows all)"
    return [theme.paint(more, DIM)] if number > 0 else []


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
    return [f"  {row}" if row else "" for row in _plan_rows(text, theme, columns - 2)]


def _plan_rows(text: str, theme: Theme, columns: int) -> list[str]:
    return _markdown_rows(reveal(text.strip()), theme, columns)


def _markdown_rows(text: str, theme: Theme, columns: int) -> list[str]:
    """``text``, which is safe to print, at once."""
    stream = MarkdownStream(theme, lambda: columns)
    return stream.feed(f"{text}\n") + stream.finish()


def kept_plan_lines(kept: Mapping[str, Any], theme: Theme, columns: int) -> list[str]:
    """The plan that a session keeps, and what became of it."""
    state = _STATES.get(str(kept.get("status", "")), "")
    lines = [theme.paint(f"The plan ({state}):" if state else "The plan:", BOLD)]
    lines += plan_lines(str(kept.get("text", "")), theme, columns)
    if reason := clean_line(str(kept.get("reason", ""))):
        lines.append(theme.paint(f"  The reason you gave: {reason}", DIM))
    return lines
