"""Text as an approval shows it: exactly what will run or change, within a bound (SEC-6).

Law: every character that cannot be seen is spelt out, blanks at the ends of lines and
long runs of blanks included; what is too long keeps its head and its tail, and what stands
between them is counted, never dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentcli.domain.clean import plural
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import ApprovalRequest
from agentcli.domain.reports import Explanation
from agentcli.domain.values import frozen
from agentcli.ui.rows import Row, fit_row, that_fits, wrap
from agentcli.ui.sanitize import reveal
from agentcli.ui.theme import BOLD, DIM, Theme

MAX_LINES = 200
MAX_LINE_CHARS = 6_000
MAX_CHARS = 20_000
MAX_RULE_CHARS = 200
_LONG_RUN = 40
_MAX_EMPTY = 3
_RUNS = LazyPattern(rf"(?<=\S) {{{_LONG_RUN},}}|\t{{9,}}")
_END = LazyPattern(r"(?<![ \t])[ \t]+\Z")
_WIDE = LazyPattern(r" {80,}|\t{20,}")
_TABS = LazyPattern(r"\t+")
_START = LazyPattern(rf"\A[ \t]{{{_LONG_RUN},}}")


@frozen
class ExactText:
    """The lines to show; ``is_cut``: ``whole`` has more than they say."""

    lines: tuple[str, ...]
    whole: str
    is_cut: bool = False

    @property
    def size(self) -> str:
        """How much there is in all where ``lines`` do not say it."""
        lines, characters = self.whole.count("\n") + 1, len(self.whole)
        counted = plural(lines, "line") if lines > MAX_LINES else plural(characters, "character")
        return counted if self.is_cut else ""


def exact_lines(text: str) -> list[str]:
    """``text`` line by line, with all that cannot be seen spelt out."""
    is_told = "<<-" in text  # what ends that is a word behind tabs, not behind blanks
    lines = [_exact(line, indent=is_told) for line in reveal(text).split("\n")]
    return _with_counted_gaps(lines)


def exact_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """``text`` in one line: line breaks are spelt out as well."""
    return cut_line(_exact(reveal(text).replace("\n", "<U+000A>"), indent=True), limit)


def detail_of(request: ApprovalRequest) -> ExactText:
    """What is asked about: the command as it is, then the tool's preview or its arguments."""
    command = request.call.arguments.get("command")
    whole = exact_lines(command) if isinstance(command, str) else []
    if rest := request.beside_command.strip("\n"):
        whole += ["", *exact_lines(rest)] if whole else exact_lines(rest)
    return bounded(whole)


def rule_text(rule: str) -> str:
    """A rule in one line, or what it comes to where it is too long to read.

    One that covers more than a call is never told as one call.
    """
    if rule.endswith("*)"):
        return exact_line(rule, MAX_RULE_CHARS)
    if len(rule) > MAX_RULE_CHARS or "\n" in rule:
        return f"{rule.partition('(')[0]}: this very call"
    return exact_line(rule)


def bounded(lines: Sequence[str], max_line: int = MAX_LINE_CHARS) -> ExactText:
    """``lines`` as far as they can be read on a screen: head and tail."""
    whole = "\n".join(lines)
    cut = [cut_line(line, max_line) for line in lines]
    if len(cut) > MAX_LINES or sum(map(len, cut)) > MAX_CHARS:
        head, tail = _fitting(cut), _fitting(cut[::-1])[::-1]
        left_out = len(cut) - len(head) - len(tail)
        if left_out > 0:
            cut = [*head, f"<{left_out:,} lines are not shown here>", *tail]
    return ExactText(tuple(cut), whole, is_cut=cut != list(lines))


def marked(line: str, columns: int, theme: Theme) -> list[str]:
    """The painted ``line`` in rows; that it goes on is seen: another line is another command.

    The mark stands to the left of where lines begin: no text of theirs looks like it.
    """
    mark = theme.symbols.wrap
    return wrap(line, columns, f"{mark} " if mark else "", exact=True)


def beside(
    rows: list[Row],
    room: int,
    columns: int,
    theme: Theme,
    size: str = "",
    told: Sequence[Row] = (),
) -> list[Row]:
    """As many rows as there is room for: the head, the tail, and how many are between them.

    ``size`` tells of how much, where ``rows`` are not all. ``told`` is what is said of them, behind
    them: where not all of both fits, it never takes the place of their tail.
    """
    if len(rows) + len(told) <= room:
        return [*rows, *told]
    if room <= 0:
        return []
    if told and len(rows) < room:
        return [*rows, *beside([*told], room - len(rows), columns, theme)]
    if room == 1:
        return [_left_out(len(rows) + len(told), columns, theme, size)]
    tail = (room - 1) // 2
    head = room - 1 - tail
    kept = [*told[: tail // 2]]
    tail -= len(kept)
    if kept and len(kept) < len(told):
        kept[-1] = fit_row(f"{kept[-1].text} {theme.symbols.more}", columns)
    left_out = len(rows) - head - tail + len(told) - len(kept)
    left = _left_out(left_out, columns, theme, size)
    return [*rows[:head], left, *(rows[-tail:] if tail else ()), *kept]


def _left_out(number: int, columns: int, theme: Theme, size: str) -> Row:
    more = theme.symbols.more
    if size:
        texts = (f"  {more} of {size}; v shows all", f"{more} of {size}; v", f"{more} v")
    else:
        short = f"{more} {number}"
        texts = (f"  {short} more rows; v shows all", f"{short} more; v", short)
    text = that_fits(texts, columns)
    return fit_row(theme.paint(text, DIM), columns)


def with_counted_runs(line: str) -> str:
    """A line of a diff with the runs of blanks that would push its rest away spelt out.

    So are blanks at the end of a line that is put in.
    """
    line = _END.sub(_counted, line) if line.startswith("+") else line
    return _WIDE.sub(_counted, line)


def cut_line(line: str, limit: int = MAX_LINE_CHARS) -> str:
    """A long line's head and tail, and how much stands between."""
    if len(line) <= limit:
        return line
    half = limit // 2
    return f"{line[:half]}<{len(line) - 2 * half:,} characters are not shown here>{line[-half:]}"


def _fitting(lines: Sequence[str]) -> list[str]:
    """Lines from the start, for one half of the room; at least one."""
    room = MAX_CHARS // 2
    found: list[str] = []
    for line in lines[: MAX_LINES // 2]:
        room -= len(line)
        if room < 0 and found:
            break
        found.append(line)
    return found


def _exact(line: str, *, indent: bool) -> str:
    """``indent``: tabs that begin the line are spelt, too."""
    line = _END.sub(_counted, line)
    line = _RUNS.sub(_counted, line)
    line = _START.sub(_counted, line)
    start = 0 if indent else len(line) - len(line.lstrip(" \t"))
    return line[:start] + _TABS.sub(_counted, line[start:])


def _counted(found: re.Match[str]) -> str:
    """Blanks as they are spelt: ``<U+0020>``, or ``<U+0020 x 80>``."""
    pieces = []
    for run in re.finditer(r" +|\t+", found[0]):
        count = len(run[0])
        pieces.append(f"<U+{ord(run[0][0]):04X}{f' x {count}' if count > 1 else ''}>")
    return "".join(pieces)


def _with_counted_gaps(lines: list[str]) -> list[str]:
    """Empty lines at the ends and many in a row are counted, so that nothing is pushed away."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        end = at
        while end < len(lines) and not lines[end]:
            end += 1
        count = end - at
        at_an_end = at == 0 or end == len(lines)
        if count > _MAX_EMPTY or (count and at_an_end and len(lines) > count):
            out.append(f"<{count} empty line{'s' if count > 1 else ''}>")
        else:
            out += [""] * count
        if end < len(lines):
            out.append(lines[end])
        at = end + 1
    return out


# --- what the policy says of a call (SEC-3) ---------------------------------------------------


_ANSWERS = {
    "allow": "It runs without asking",
    "ask": "It asks",
    "deny": "It does not run",
}


def explanation_lines(found: Explanation, theme: Theme) -> list[str]:
    """The answer, why, what of it, by which rule, and what an approval would offer."""
    lines = [theme.paint(f"{_ANSWERS[found.answer]}: {exact_line(found.reason)}", BOLD)]
    if found.part:
        lines.append(f"  because of  {exact_line(found.part)}")
    if found.rule:
        where = f"  ({exact_line(found.source)})" if found.source else ""
        lines.append(f"  rule        {rule_text(found.rule)}{where}")
    lines.append(
        f"  mode        {found.mode}; it counts as {_EFFECTS.get(found.effect, found.effect)}"
    )
    if found.where:
        lines.append(f"  runs        {found.where}")
    for each in found.modes:
        where = f", {each.where}" if each.where and each.answer != "deny" else ""
        lines.append(f"  {each.mode:<13} {_BRIEFLY[each.answer]}{where}")
    if found.answer == "ask" and not found.offers:
        lines.append("  session     nothing: it asks each time")
    for offer in found.offers:
        kinds = [kind for kind in ("session", "always") if getattr(offer, kind)]
        lines.append(f"  {', '.join(kinds):<15} {rule_text(offer.rule)}")
    return lines


_BRIEFLY = {"allow": "runs", "ask": "asks", "deny": "refused"}
_EFFECTS = {"read": "reading", "write": "changing files", "exec": "running a command"}
