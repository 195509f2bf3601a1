"""The context of a session as painted lines: a bar for each part, and what weighs most (CMP-5)."""

from __future__ import annotations

from agentcli.domain.events import Compacted
from agentcli.domain.reports import ContextReport, HeavyResult
from agentcli.ui import wording
from agentcli.ui.rows import columns_of, fit
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import ACCENT, BOLD, DIM, SPOKEN, WARNING, Theme

BAR_CELLS = 24
_FULL_PERCENT = 80
_FREE = "free"
_NAME_COLUMNS = 21
_ABOUT_COLUMNS = 44
_WIDE_COLUMNS = 80
_NARROW_NAME = 18
_SEEN_USD = 0.0001
_FIGURES = 17  # what stands behind a bar, and the last column


def context_lines(report: ContextReport, theme: Theme, columns: int = 80) -> list[str]:
    """``/context``: how full the window is, where the tokens go, what to do about it.

    No row is wider than ``columns``, down to 40; a screen reader gets no bars.
    """
    model = theme.paint(clean_line(report.model), BOLD)
    how = "measured" if report.is_measured else "estimated"
    used = (
        f"{wording.count(report.used)} of {wording.count(report.window)} tokens"
        f" ({report.percent:.0f} %, {how})"
    )
    is_full = report.percent >= _FULL_PERCENT
    lines = [
        f"{model}  {theme.paint(used, WARNING) if is_full else used}",
        "",
        *(
            _row(part.name, part.tokens, report, theme, columns, part.count)
            for part in report.parts
            if part.tokens
        ),
        _row(_FREE, report.free, report, theme, columns),
        "",
    ]
    left = report.compacts_at - report.used
    if left > 0:
        more = f"after {wording.count(left)} more tokens"
        lines.append(f"Old messages are summarised {more}; /compact does it now.")
    else:
        lines.append("Old messages are summarised with the next step; /compact does it now.")
    if report.left_out:
        what = wording.plural(report.left_out, "old tool result")
        lines.append(theme.paint(f"{what} left out of requests; the session keeps them.", DIM))
    if report.instructions:
        lines += ["", theme.paint("Instructions, sent with every request:", BOLD)]
        lines += [_instruction(*each, theme, columns) for each in report.instructions]
    if report.heaviest:
        lines += ["", theme.paint("Largest tool results, sent again with every request:", BOLD)]
        lines += [_heavy(result, theme, columns) for result in report.heaviest]
    return lines


def _row(
    name: str,
    tokens: int,
    report: ContextReport,
    theme: Theme,
    columns: int,
    count: int | None = None,
) -> str:
    share = tokens / report.window if report.window else 0.0
    wide = columns >= _WIDE_COLUMNS
    name_columns = _NAME_COLUMNS if wide else _NARROW_NAME
    cells = BAR_CELLS if wide else max(0, columns - name_columns - _FIGURES)
    cells = 0 if theme.symbols is SPOKEN else cells
    filled = min(cells, round(share * cells)) or int(tokens > 0 and cells > 0)
    symbols = theme.symbols
    bar = theme.paint(symbols.call * filled, DIM if name == _FREE else ACCENT) + theme.paint(
        symbols.dot * (cells - filled), DIM
    )
    of_them = f"  ({count})" if wide and count is not None and count > 1 else ""
    return f"{name:<{name_columns}}{bar} {wording.count(tokens):>7} {share:>6.1%}{of_them}"


def _instruction(name: str, tokens: int, theme: Theme, columns: int) -> str:
    room = _ABOUT_COLUMNS if columns >= _WIDE_COLUMNS else max(8, columns - _FIGURES - 6)
    shown = clean_line(name)
    if columns_of(shown) > room:  # the end says more than the beginning
        shown = fit(f"{theme.symbols.more}{shown[-room + 2 :]}", room)
    return theme.paint(f"  {shown:<{room}} {wording.count(tokens):>7}", DIM)


def _heavy(result: HeavyResult, theme: Theme, columns: int) -> str:
    wide = columns >= _WIDE_COLUMNS
    room = _ABOUT_COLUMNS if wide else max(8, columns - _FIGURES - 6)
    what = fit(f"{clean_line(result.name)} {clean_line(result.about)}".strip(), room)
    each = " each time" if wide else ""
    usd = result.again_usd or 0.0
    cost = f"  {wording.cost(usd)}{each}" if usd >= _SEEN_USD else ""
    note = "  (left out)" if result.left_out else ""
    line = f"  {what:<{room}} {wording.count(result.tokens):>7}{cost}{note}"
    return theme.paint(line, DIM)


def compacted_lines(event: Compacted, theme: Theme) -> list[str]:
    """What a compaction kept and folded, and the way back (CMP-2, CMP-3)."""
    lines = [
        f"Kept:   {clean_line(event.kept)}",
        f"Folded: {clean_line(event.folded)}",
    ]
    if event.usage.is_known:
        lines.append(f"The summary took {wording.tokens(event.usage)}.")
    lines.append("Nothing is lost: /compact undo brings it back, /export shows all of it.")
    return [theme.paint(line, DIM) for line in lines]
