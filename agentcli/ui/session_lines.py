"""Sessions as painted lines: what was resumed, lists to choose from, the farewell (UI-8, UI-9).

And the context of one: a bar for each part, and what weighs most (CMP-5).
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcli.domain.cancel import CancelReason
from agentcli.domain.clean import plural
from agentcli.domain.events import Compacted
from agentcli.domain.messages import (
    ABOUT_CHECKS,
    ABOUT_RUNS,
    AssistantMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.reports import ContextReport, HeavyResult
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus
from agentcli.domain.values import frozen
from agentcli.ui import wording
from agentcli.ui.rows import columns_of, fit, packed
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.theme import ACCENT, BOLD, DIM, SPOKEN, WARNING, Theme

_TITLE_COLUMNS = 60
_ABOUT_RUNS = "(the result of a background run)"

MOST_LISTED = 12
_TITLE_COLUMNS = 20  # no fact takes them from a title
_ANSWER_CHARS = 4_000
_WHY = {
    SessionStatus.NEW: "nothing was asked yet",
    SessionStatus.RUNNING: "it was still running",
    SessionStatus.DONE: "it was finished",
    SessionStatus.LIMIT: "it had reached a limit",
    SessionStatus.CANCELLED: "it was cancelled",
    SessionStatus.FAILED: "it had failed",
    SessionStatus.CRASHED: "the program had ended in the middle of it",
}
BAR_CELLS = 24
_FULL_PERCENT = 80
_FREE = "free"
_NAME_COLUMNS = 21
_ABOUT_COLUMNS = 44
_WIDE_COLUMNS = 80
_NARROW_NAME = 18
_SEEN_USD = 0.0001
_FIGURES = 17  # what stands behind a bar, and the last column
_CANCELLED_BY: dict[str, str] = {
    CancelReason.SIGTERM: "it was asked to end (SIGTERM)",
    CancelReason.SIGHUP: "its window was closed",
    CancelReason.LIMIT: "its time was over",
}


def resume_lines(
    loaded: LoadedSession, now: float, theme: Theme, waiting: Sequence[str] = ()
) -> list[str]:
    """What was resumed, who answered, when and why it had stopped, and what was pending.

    ``waiting`` was typed and not sent yet. The conversation itself stands above (UI-8).
    """
    info = loaded.info
    title = clean_line(info.title) or "untitled"
    why = _WHY[info.status]
    detail = clean_line(info.detail)
    if detail and info.status is SessionStatus.FAILED:
        why += f": {detail}"
    elif info.status is SessionStatus.CANCELLED:
        why = _CANCELLED_BY.get(info.detail, why)
    model = clean_line(info.model)
    who = theme.paint(f"  {model}", DIM) if model else ""
    lines = [
        f"{theme.paint(f'Resumed: {title}', BOLD)}{who}",
        theme.paint(
            f"  {wording.age(now - info.updated_at)}, {plural(info.turns, 'turn')}; {why}.",
            WARNING if info.status.interrupted else DIM,
        ),
    ]
    stopped = _stopped_calls(loaded)
    if stopped:
        lines.append(theme.paint(f"  Not finished: {', '.join(stopped)}", WARNING))
    for text in waiting:
        said = fit(clean_line(text), _TITLE_COLUMNS)
        lines.append(theme.paint(f"  Waits to be sent: {said}", WARNING))
    hint = '  Type what to do next ("continue" goes on), or /new for a new session.'
    return [*lines, theme.paint(hint, DIM)]


def _last_exchange(loaded: LoadedSession) -> tuple[str, str]:
    """The newest prompt and the answer to it, as far as there are any."""
    prompt = answer = ""
    for stored in loaded.messages:
        message = stored.message
        if isinstance(message, UserMessage) and not message.is_summary:
            if message.is_instructions or message.typed.startswith(ABOUT_CHECKS):
                continue
            is_ours = message.typed.startswith(ABOUT_RUNS)
            prompt, answer = _ABOUT_RUNS if is_ours else message.typed, ""
        elif isinstance(message, AssistantMessage) and message.text.strip():
            answer = message.text
    return prompt, answer


def _stopped_calls(loaded: LoadedSession) -> list[str]:
    """The calls of the last turn that were stopped, by name."""
    calls: dict[str, ToolCall] = {}
    stopped: list[str] = []
    for stored in loaded.messages:
        message = stored.message
        if isinstance(message, UserMessage):
            calls.clear()
            stopped.clear()
        elif isinstance(message, AssistantMessage):
            calls.update({call.id: call for call in message.tool_calls})
        elif isinstance(message, ToolResult) and message.status in {"cancelled", "interrupted"}:
            call = calls.get(message.call_id)
            stopped.append(call_words(call) if call else clean_line(message.name))
    return stopped


_VERBS = {"edit_file": "Edit", "read_file": "Read", "write_file": "Write"}


def call_words(call: ToolCall) -> str:
    """A call of which nothing better is known: what it does, and its first short argument."""
    values = [value for value in call.arguments.values() if isinstance(value, str)]
    first = fit(clean_line(values[0]), _TITLE_COLUMNS) if values else ""
    if call.name == "bash" and first:
        return f"Run `{first}`"
    return f"{_VERBS.get(call.name) or clean_line(call.name)} {first}".strip()


def session_row(info: SessionInfo, now: float) -> str:
    """One line of a list of sessions, plain: title, age, turns, cost, state, directory."""
    title = clean_line(info.title) or "untitled"
    return " · ".join((fit(title, _TITLE_COLUMNS), *_figures(info, now), clean_line(info.cwd)))


def _figures(info: SessionInfo, now: float) -> list[str]:
    """How old a session is, its turns, what it has cost where that is known, its state."""
    return [
        wording.age(now - info.updated_at),
        plural(info.turns, "turn"),
        *([wording.cost(info.cost_usd)] if info.cost_usd else []),
        str(info.status),
    ]


def session_rows(infos: Sequence[SessionInfo], now: float, theme: Theme) -> list[str]:
    """A numbered list of sessions, newest first."""
    digits = len(str(len(infos)))
    return [
        f"{theme.paint(f'{at:>{digits}}', DIM)}  {session_row(info, now)}  "
        f"{theme.paint(info.id, DIM)}"
        for at, info in enumerate(infos, 1)
    ]


@frozen
class Farewell:
    """What to say when a chat ends (UI-9). ``duration_s``: how long it was open."""

    session_id: str
    turns: int
    usage: Usage
    cost_usd: float | None
    duration_s: float


def farewell_lines(end: Farewell, theme: Theme) -> list[str]:
    """The resume command, turns, tokens, cost, duration; only the last without any turn."""
    if end.turns == 0:
        return []
    dot = f" {theme.symbols.dot} "
    figures = dot.join(
        (
            plural(end.turns, "turn"),
            wording.tokens(end.usage),
            wording.cost_said(end.cost_usd),
            wording.duration(end.duration_s),
        )
    )
    return [theme.paint(figures, DIM), f"Resume with: agent resume {end.session_id}"]


# --- a list to choose from, with a preview (UI-8) ---------------------------------------------

# Law: no row is wider than the screen, down to 20 columns and 6 rows; what is chosen is marked by a
# sign, not only by its look (UI-10); what comes from sessions is sanitized (SEC-10).


PickerRow = tuple[str, str]
"""A style of prompt-toolkit (``bold``, ``reverse``, ``italic``, or none) and the text."""


@frozen
class PickerView:
    """What is to be seen. ``listed`` are the sessions around the chosen one.

    ``above`` is how many there are before the first of them; ``found`` says how many there are in
    all. ``preview`` are lines about the
    chosen one, or ``None`` while they are fetched; ``progress`` is what still goes on.
    """

    query: str
    listed: Sequence[SessionInfo]
    above: int
    found: str
    cursor: int
    preview: Sequence[str] | None
    now: float
    progress: str = ""


def listed_rows(lines: int) -> int:
    """How many sessions are listed on a screen of so many lines."""
    return max(2, min(MOST_LISTED, (lines - 4) // 2))


def picker_rows(view: PickerView, columns: int, lines: int) -> list[PickerRow]:
    """The rows, at most ``lines`` of them, each narrower than ``columns``."""
    room = max(4, columns - 1)
    rows: list[PickerRow] = [("bold", fit(f"Resume which session? {clean_line(view.query)}", room))]
    for at, info in enumerate(view.listed, view.above):
        here = at == view.cursor
        row = f"{'>' if here else ' '} {_row(info, view.now, room - 2)}"
        rows.append(("reverse" if here else "", row))
    if not view.listed:
        rows.append(("", fit("  No session matches.", room)))
    hint = f"{view.found}. Type to search, arrows to move, Enter opens, Esc leaves."
    if columns_of(hint) > room:
        hint = f"{view.found}. Type to search, Esc leaves."
    hint += view.progress
    below = lines - len(rows) - 1
    if view.listed and below > 2:  # noqa: PLR2004 - an empty row and one that says something
        info = view.listed[view.cursor - view.above]
        about = [*_facts(info, view.now, room), *(view.preview or ())]
        rows.append(("", ""))
        rows += [("", fit(line, room)) for line in about[: below - 1]]
    return [*rows[: lines - 1], ("italic", fit(hint, room))]


def _row(info: SessionInfo, now: float, columns: int) -> str:
    """The title, and facts at the right where there is room for both."""
    title = clean_line(info.title) or "untitled"
    figures = _figures(info, now)
    while figures and columns_of(" · ".join(figures)) > columns - 2 - _TITLE_COLUMNS:
        figures.pop()
    if not figures:
        return fit(title, columns)
    facts = " · ".join(figures)
    room = columns - columns_of(facts) - 2
    title = fit(title, room)
    return f"{title}{' ' * (room - columns_of(title))}  {facts}"


def _facts(info: SessionInfo, now: float, columns: int) -> list[str]:
    """What the list has no room for: where, when, how much, how it stands."""
    facts = (
        clean_line(info.cwd),
        wording.age(now - info.updated_at),
        plural(info.turns, "turn"),
        wording.cost_said(info.cost_usd),
        str(info.status),
        clean_line(info.model),
    )
    return packed(facts, columns)


def preview_lines(loaded: LoadedSession, excerpt: str = "") -> list[str]:
    """Where the words were found, and the last exchange."""
    prompt, answer = _last_exchange(loaded)
    lines = [f"Found: {clean_line(excerpt)}"] if excerpt else []
    lines += [f"> {line}" for line in _lines(prompt)]
    lines += _lines(answer)
    return lines


def _lines(text: str) -> list[str]:
    cleaned = clean(text[:_ANSWER_CHARS]).expandtabs(4).strip()
    return [line.rstrip() for line in cleaned.split("\n") if line.strip()]


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
    used_row = theme.paint(used, WARNING) if is_full else used
    is_one = columns_of(f"{clean_line(report.model)}  {used}") <= columns
    lines = [
        *([f"{model}  {used_row}"] if is_one else [model, used_row]),
        "",
        *(
            _part_row(part.name, part.tokens, report, theme, columns, part.count)
            for part in report.parts
            if part.tokens
        ),
        _part_row(_FREE, report.free, report, theme, columns),
        "",
    ]
    left = report.compacts_at - report.used
    if left > 0:
        more = f"after {wording.count(left)} more tokens"
        lines.append(f"Old messages are summarised {more}; /compact does it now.")
    else:
        lines.append("Old messages are summarised with the next step; /compact does it now.")
    if report.left_out:
        what = plural(report.left_out, "old tool result")
        lines.append(theme.paint(f"{what} left out of requests; the session keeps them.", DIM))
    if report.instructions:
        lines += ["", theme.paint("Instructions, sent with every request:", BOLD)]
        lines += [_instruction(*each, theme, columns) for each in report.instructions]
    if report.heaviest:
        lines += ["", theme.paint("Largest tool results, sent again with every request:", BOLD)]
        lines += [_heavy(result, theme, columns) for result in report.heaviest]
    return lines


def _part_row(
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
