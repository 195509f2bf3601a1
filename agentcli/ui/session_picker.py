"""A list of sessions to choose from, with a preview, as rows of the screen (UI-8).

Law: no row is wider than the screen, down to 20 columns and 6 rows; what is chosen is marked by a
sign, not only by its look (UI-10); what comes from sessions is sanitized (SEC-10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentcli.domain.messages import AssistantMessage, UserMessage
from agentcli.domain.session import LoadedSession, SessionInfo
from agentcli.ui import wording
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.width import columns_of, fit

Row = tuple[str, str]
"""A style of prompt-toolkit (``bold``, ``reverse``, ``italic``, or none) and the text."""

MOST_LISTED = 12
_FACTS_COLUMNS = 60
_ANSWER_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class View:
    """What is to be seen. ``listed`` are the sessions around the chosen one, ``total`` of them.

    ``above`` is how many there are before the first of them. ``preview`` are lines about the
    chosen one, or ``None`` while they are fetched.
    """

    query: str
    listed: Sequence[SessionInfo]
    above: int
    total: int
    cursor: int
    preview: Sequence[str] | None
    now: float


def listed_rows(lines: int) -> int:
    """How many sessions are listed on a screen of so many lines."""
    return max(2, min(MOST_LISTED, (lines - 4) // 2))


def picker_rows(view: View, columns: int, lines: int) -> list[Row]:
    """The rows, at most ``lines`` of them, each narrower than ``columns``."""
    room = max(4, columns - 1)
    rows: list[Row] = [("bold", fit(f"Resume which session? {clean_line(view.query)}", room))]
    for at, info in enumerate(view.listed, view.above):
        here = at == view.cursor
        row = f"{'>' if here else ' '} {_row(info, view.now, room - 2)}"
        rows.append(("reverse" if here else "", row))
    if not view.listed:
        rows.append(("", fit("  No session matches.", room)))
    hint = f"{view.total} found. Type to search, arrows to move, Enter opens, Esc leaves."
    below = lines - len(rows) - 1
    if view.listed and below > 2:  # noqa: PLR2004 - an empty row and one that tells something
        info = view.listed[view.cursor - view.above]
        about = [*_facts(info, view.now, room), *(view.preview or ())]
        rows.append(("", ""))
        rows += [("", fit(line, room)) for line in about[: below - 1]]
    return [*rows[: lines - 1], ("italic", fit(hint, room))]


def _row(info: SessionInfo, now: float, columns: int) -> str:
    """The title, and facts at the right where there is room for both."""
    title = clean_line(info.title) or "untitled"
    if columns < _FACTS_COLUMNS:
        return fit(title, columns)
    facts = " · ".join(
        (
            wording.age(now - info.updated_at),
            wording.plural(info.turns, "turn"),
            *([wording.cost(info.cost_usd)] if info.cost_usd is not None else []),
            str(info.status),
        )
    )
    room = columns - columns_of(facts) - 2
    title = fit(title, room)
    return f"{title}{' ' * (room - columns_of(title))}  {facts}"


def _facts(info: SessionInfo, now: float, columns: int) -> list[str]:
    """What the list has no room for: where, when, how much, how it stands."""
    facts = [
        clean_line(info.cwd),
        wording.age(now - info.updated_at),
        wording.plural(info.turns, "turn"),
        f"cost {wording.cost(info.cost_usd)}",
        str(info.status),
        clean_line(info.model),
    ]
    lines, line = [], ""
    for fact in facts:
        if not fact:
            continue
        longer = f"{line} · {fact}" if line else fact
        if line and columns_of(longer) > columns:
            lines.append(line)
            line = fact
        else:
            line = longer
    return [*lines, line]


def preview_lines(loaded: LoadedSession, excerpt: str = "") -> list[str]:
    """Where the words were found, and the last exchange."""
    user = answer = ""
    for stored in loaded.messages:
        message = stored.message
        if isinstance(message, UserMessage) and not message.is_summary:
            user, answer = message.typed, ""
        elif isinstance(message, AssistantMessage) and message.text.strip():
            answer = message.text
    lines = [f"Found: {clean_line(excerpt)}"] if excerpt else []
    lines += [f"> {line}" for line in _lines(user)]
    lines += _lines(answer)
    return lines


def _lines(text: str) -> list[str]:
    cleaned = clean(text[:_ANSWER_CHARS]).expandtabs(4).strip()
    return [line.rstrip() for line in cleaned.split("\n") if line.strip()]
