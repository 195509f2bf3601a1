"""The line at the bottom of the chat: model, mode, context, tokens, cost, session (UI-6).

Law: one row, whatever the width: what matters least (see ``Rank``) is left out first; unknown is
not 0.
"""

from __future__ import annotations

from enum import IntEnum, auto

from agentcli.domain.messages import Usage
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen
from agentcli.ui import wording
from agentcli.ui.rows import Row, columns_of, fit, fit_row
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.theme import DIM, RESET, WARNING, Theme

TITLE_COLUMNS = 30
MOST_LINES = 3
MOST_CHARS = 20_000
# ECMA-48 8.3.117, SGR: https://ecma-international.org/publications-and-standards/standards/ecma-48/
_COLOURS = LazyPattern(r"\x1b\[[0-9;]{0,40}m")
_FULL = 0.8


class Rank(IntEnum):
    """How much a part matters: the least is left out first."""

    KEYS = auto()
    TITLE = auto()
    TOKENS = auto()
    BACKGROUND = auto()
    COST = auto()
    CONTEXT = auto()
    RUNS = auto()  # in the background, while there are any
    MODE = auto()
    MODEL = auto()
    LAX = auto()  # a mode that asks less than usual
    HINT = auto()


@frozen
class StatusLine:
    """What the line says. Tokens are ``None`` while nothing is known.

    ``context_used`` of ``context_size`` are in the window now, ``tokens`` were used in all.
    """

    model: str = ""
    mode: str = ""
    context_used: int | None = None
    context_size: int = 0
    tokens: int | None = None
    cost_usd: float | None = 0.0
    turns: int = 0
    title: str = ""
    waiting: int = 0
    background: int = 0
    asking: int = 0
    sandbox: str = ""
    hint: str = ""


def painted_lines(text: str, theme: Theme) -> list[str]:
    """What a program of the user's has printed for the line: its colours, and text (SEC-10).

    At most ``MOST_LINES``; colours only where the theme has some.
    """
    lines = []
    for line in text[:MOST_CHARS].splitlines():
        parts = _COLOURS.split(line)
        styles = _COLOURS.findall(line) if theme.color else [""] * (len(parts) - 1)
        texts = [clean(part).replace("\n", " ").expandtabs(1) for part in parts]
        painted = "".join(each for pair in zip(texts, [*styles, ""], strict=True) for each in pair)
        if any(part.strip() for part in texts):
            lines.append(f"{painted}{RESET}" if any(styles) else painted)
    return lines[:MOST_LINES]


def context_of(usage: Usage) -> int | None:
    """The tokens that a request and its reply took of the window."""
    parts = (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
    )
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def status_row(status: StatusLine, columns: int, theme: Theme) -> Row:
    """The line, at most ``columns`` wide."""
    parts = _parts(status)
    dot = f" {theme.symbols.dot} "

    def is_short(found: list[tuple[Rank, str]]) -> bool:
        return columns_of(dot.join(text for _, text in found)) < columns

    while not is_short(parts):
        least = min(parts)
        if least[0] >= Rank.CONTEXT and is_short(_short_model(parts)):
            parts = _short_model(parts)
        elif len(parts) > 1:
            parts.remove(least)
        else:
            parts = _short_model(parts)
            break
    text = fit(dot.join(text for _, text in parts), max(1, columns - 1), theme.symbols.more)
    style = WARNING if _is_full(status) else DIM
    return fit_row(theme.paint(text, style), columns, theme.symbols.more)


def title_of(status: StatusLine, place: str, theme: Theme) -> str:
    """The same for the window's title: the session, or ``place``, first."""
    name = fit(clean_line(status.title) or place, TITLE_COLUMNS)
    shown = [text for rank, text in _parts(status) if rank > Rank.TOKENS]
    return f" {theme.symbols.dot} ".join([f"agentcli: {name}", *shown])


def _runs(status: StatusLine) -> str:
    """The background runs; those that wait for an answer are said apart."""
    asking = f" ({status.asking} asking)" if status.asking else ""
    return f"{status.background} in the background{asking}" if status.background else ""


def _parts(status: StatusLine) -> list[tuple[Rank, str]]:
    """What there is to say, in the order in which it is shown; nothing before the session."""
    title = clean_line(status.title)
    found = [
        (Rank.HINT, status.hint),
        (Rank.MODEL, clean_line(status.model)),
        (Rank.LAX, f"{status.mode} mode")
        if status.mode not in {"", "default"}
        else (Rank.MODE, status.mode),
        (Rank.MODE if status.sandbox.startswith("no ") else Rank.BACKGROUND, status.sandbox),
        (Rank.CONTEXT, _context(status)),
        (Rank.TOKENS, f"{wording.count(status.tokens)} tokens" if status.tokens else ""),
        (Rank.COST, _cost(status)),
        (Rank.RUNS, _runs(status)),
        (Rank.TITLE, fit(title, TITLE_COLUMNS)),
        (Rank.KEYS, "? for keys" if status.mode else ""),
    ]
    return [(rank, text) for rank, text in found if text]


def _short_model(parts: list[tuple[Rank, str]]) -> list[tuple[Rank, str]]:
    """``parts`` without the model's provider, which goes before what matters more."""
    return [(rank, text.rpartition("/")[2] if rank is Rank.MODEL else text) for rank, text in parts]


def _cost(status: StatusLine) -> str:
    """Nothing before the first turn (COST-1, UI-13)."""
    if not status.turns:
        return ""
    return wording.cost(status.cost_usd) if status.cost_usd else wording.cost_said(status.cost_usd)


def _context(status: StatusLine) -> str:
    used, size = status.context_used, status.context_size
    if used is None or size <= 0:
        return ""
    percent = min(999, round(100 * used / size))
    return f"{percent}% of {wording.count(size)} context"


def _is_full(status: StatusLine) -> bool:
    used, size = status.context_used, status.context_size
    return used is not None and size > 0 and used >= _FULL * size
