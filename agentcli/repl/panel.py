"""What takes the place of the input for a moment: choices to confirm (UI-7), lists (UI-11).

Law: nothing is answered by typing. Arrows, digits and letters move; only Enter confirms, and not
within ``GUARD_S`` of the panel's appearance, nor a yes to what the window is too small to show
(SEC-6). What is typed and is no choice belongs to the input, from its first letter on. Pure: times
are given, nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import mutable
from agentcli.ui.exact import beside
from agentcli.ui.rows import Row, columns_of, fit_row, give_way, packed, that_fits, wrap
from agentcli.ui.screen import Size
from agentcli.ui.theme import BOLD, DIM, RESET, WARNING, Theme

GUARD_S = 0.5
FLOW_S = 0.3  # letters that come faster are a word
VIEW_S = 0.4  # a letter that acts by itself does so when no other follows
MOST_TITLE = 3  # rows of a title that are always seen
LEAST_SUBJECT = 3  # rows of what is asked about that are seen beside long choices
LEAST_COLUMNS = 8  # of a window that shows anything of it
MOST_TOLD = 4  # rows of what the chosen one has no room for
MOST_HINTS = 2  # rows of what keys do
MOST_ROWS = 12  # of a list that are shown at once
WIDE = 10_000
_REVERSE = "\x1b[7m"
_TOO_SMALL = (
    "Too small to show what is asked: make the window larger, or press v",
    "Make the window larger, or press v",
    "Window: larger, or v",
    "larger!",
)
_RULE = LazyPattern(r"[\w*?-]+\(.+\)")


class Press(NamedTuple):
    """A key: ``char`` with its text, or ``up``, ``down``, ``enter``, ``tab``, ``backspace`` ..."""

    key: str
    text: str = ""


class Given(NamedTuple):
    """What a key press gives to the input: ``text`` to stand there; ``sends``: as with Enter."""

    text: str = ""
    sends: bool = False


class Panel(Protocol):
    """What the input shows in its place until ``is_answered``."""

    @property
    def is_answered(self) -> bool:
        """Whether the user is done with it."""

    @property
    def yields_to_text(self) -> bool:
        """Whether keys go to the input while there is text in it."""

    @property
    def due(self) -> float | None:
        """When ``tick`` has something to do, if no key comes before."""

    def open(self, now: float, *, has_text: bool) -> None:
        """It appears; ``has_text``: something stands in the input."""

    def press(self, press: Press, now: float, *, more: bool) -> Given:
        """A key at ``now``; ``more``: text follows it that came at the same moment."""

    def text_sent(self) -> None:
        """What stood in the input was sent."""

    def leave(self) -> bool:
        """Esc: go without an answer; false where Esc means something else."""

    def tick(self, now: float) -> None:
        """The time ``due`` has come."""

    def rows(self, size: Size, theme: Theme, now: float, *, mode: PanelMode) -> PanelRows:
        """At most ``size.lines`` rows."""

    def lines(self, theme: Theme, columns: int = WIDE) -> list[str]:
        """All of it for a terminal that is written line by line."""

    def answer_line(self, text: str) -> bool:
        """Take a line typed there as the answer; false when it is none."""


class PanelMode(NamedTuple):
    """``typing``: the input has text and the keys; ``asking``: a line is asked for below."""

    typing: bool = False
    asking: bool = False


class PanelRows(NamedTuple):
    """The rows and which of them has the cursor."""

    rows: list[Row]
    cursor: int


# --- choices ----------------------------------------------------------------------------------


@mutable
class Choice:
    """``letter`` moves to it. ``rules`` are what it would allow, of which one is offered."""

    letter: str
    text: str
    rules: tuple[str, ...] = ()
    at: int = 0

    @property
    def rule(self) -> str:
        """The rule that is offered; empty when it allows this call only."""
        return self.rules[self.at] if self.rules else ""


class PanelSubject(NamedTuple):
    """What is asked about: a title, rows for a width; ``is_cut``: they do not say all of it.

    ``size`` tells how much there is then. ``told``: rows of what is said of it, behind it.
    """

    title: str
    rows: Callable[[int], list[Row]]
    is_cut: bool = False
    size: str = ""
    told: Callable[[int], list[Row]] = lambda _: []


class Choices:
    """A question with a few answers, one of which is ``refusal``: the one that does no harm.

    ``views``: the last choice shows all of it; it is there when not all can be seen, and a pause
    after its letter is as good as Enter. ``unseen`` are more letters that do no harm.
    """

    unseen = ""
    yields_to_text = True
    leaving = "Esc stops the agent"
    with_text = "Enter queues your text; empty it to choose (Ctrl-U)."

    def __init__(
        self,
        subject: PanelSubject,
        choices: Sequence[Choice],
        *,
        refusal: str,
        views: bool = False,
        shows: Callable[[str], str] = str,
    ) -> None:
        self.choices = list(choices)
        self.answer = ""
        self.edits = False
        self._subject = subject
        self._refusal = refusal
        self._views = views
        self._shows = shows
        self._cursor = 0
        self._typed = ""
        self._visible = len(self.choices)
        self._told = self._reopened = False
        self._opened_at = self._armed_at = float("-inf")
        self._last_at = float("-inf")
        self._in_flow = False
        self._is_too_small = self._was_viewed = False
        self._is_held = False  # Enter is, since before it could be meant
        self.due: float | None = None

    @property
    def is_answered(self) -> bool:
        """Whether something was confirmed."""
        return bool(self.answer)

    @property
    def chosen(self) -> Choice:
        """Where the cursor is."""
        return self.choices[self._cursor]

    def open(self, now: float, *, has_text: bool) -> None:
        """It appears, again after something was looked at."""
        self._reopened = self._opened_at > float("-inf")
        self._opened_at, self._armed_at = now, now + GUARD_S
        self.answer, self.edits = "", False
        self._typed, self._in_flow, self.due = "", False, None
        if has_text:
            self.text_sent()

    def text_sent(self) -> None:
        """Somebody was typing: the selection is the one that does no harm."""
        self._go(self._refusal)

    def leave(self) -> bool:
        """Esc stops the agent."""
        return False

    # --- keys ------------------------------------------------------------------------------

    def press(self, press: Press, now: float, *, more: bool) -> Given:
        """Move, confirm, or give what was typed to the input."""
        self.due = None
        is_new = now < self._armed_at
        if is_new and press.key in {"char", "paste", "enter"}:  # what was begun before goes on
            self._armed_at = max(self._armed_at, now + FLOW_S)
        in_guard = is_new and not self._reopened  # a user who comes back knows it
        in_flow, self._last_at = now - self._last_at < FLOW_S, now
        if press.key in {"char", "paste"}:
            return self._type(press.text, in_guard=in_guard, in_flow=in_flow, now=now)
        if press.key == "enter":
            self._is_held = is_new or (self._is_held and in_flow)
            return self._enter(in_guard=self._is_held, more=more)
        self._is_held = False
        if press.key == "backspace":
            if self._typed:
                self._forget_typed()
                self.text_sent()
        elif not in_guard:
            self._forget_typed()
            self._move(press.key)
        return Given()

    def tick(self, now: float) -> None:
        """A letter that only shows something was pressed and nothing followed."""
        if self.due is not None and now >= self.due:
            self.due = None
            self._confirm()

    def _type(self, text: str, *, in_guard: bool, in_flow: bool, now: float) -> Given:
        at = self._meant(text)
        if in_guard or at is None:
            return self._give(text)
        self._in_flow = bool(self._typed) and (self._in_flow or in_flow)
        self._typed += text
        self._cursor = at
        if self._is_view() and len(self._typed) == 1:
            self.due = now + VIEW_S
        return Given()

    def _enter(self, *, in_guard: bool, more: bool) -> Given:
        if in_guard:
            return Given()
        if more:
            return self._give("\n")
        if self._in_flow:  # "say" is a word and no way from s to a to y
            return Given(self._give("").text, sends=True)
        if not self._is_too_small or self._does_no_harm():
            self._confirm()
        return Given()

    def _does_no_harm(self) -> bool:
        return self.chosen.letter in {self._refusal, *self.unseen} or self._is_view()

    def _is_view(self) -> bool:
        return self._views and self._cursor == len(self.choices) - 1

    def _give(self, text: str) -> Given:
        whole = self._typed + text
        self._forget_typed()
        self.text_sent()
        return Given(whole)

    def _forget_typed(self) -> None:
        self._typed, self._in_flow = "", False

    def _confirm(self) -> None:
        self._forget_typed()
        self._was_viewed |= self._is_view()
        self.answer = self.chosen.letter

    def _move(self, key: str) -> None:
        last = self._visible - 1
        moves = {"up": -1, "down": 1, "pageup": -last, "pagedown": last, "home": -last, "end": last}
        if key in moves:
            self._cursor = max(0, min(self._cursor + moves[key], last))
        elif key in {"left", "right"} and self.chosen.rules:
            by = 1 if key == "right" else -1
            self.chosen.at = (self.chosen.at + by) % len(self.chosen.rules)
        elif key == "tab" and self.chosen.rules:
            self.answer, self.edits = self.chosen.letter, True

    def _go(self, letter: str) -> None:
        self._cursor = next(at for at, each in enumerate(self.choices) if each.letter == letter)

    def _meant(self, text: str) -> int | None:
        """The choice of a letter or digit."""
        if len(text) != 1:
            return None
        if text.isdecimal() and text.isascii() and 1 <= int(text) <= self._visible:
            return int(text) - 1
        for at, choice in enumerate(self.choices[: self._visible]):
            if choice.letter == text.lower():
                return at
        return None

    # --- what is seen ----------------------------------------------------------------------

    def rows(self, size: Size, theme: Theme, now: float, *, mode: PanelMode) -> PanelRows:
        """Title and choices always; of what is asked about as much as there is room for.

        At least it is said that there is more; where there is no room for that, no yes counts.
        """
        columns = size.columns
        title = wrapped(theme.paint(self._subject.title, BOLD | WARNING), columns, exact=True)
        title, rest = title[:MOST_TITLE], title[MOST_TITLE:]
        subject, told = [*rest, *self._subject.rows(columns)], self._subject.told(columns)
        size_of_all = len(subject) + len(told)
        below: list[list[Row]] = [] if mode.asking else self._choice_rows(columns, theme, mode)
        hint = [] if mode.asking else self._hint_rows(now, columns, theme, mode)
        room = size.lines - len(title) - len(hint) - sum(map(len, below))
        self._visible = len(self.choices)
        if self._views and not self._subject.is_cut and room + len(below[-1:]) >= size_of_all:
            self._visible -= 1
            below = below[: self._visible]
            room += 1
            self._cursor = min(self._cursor, self._visible - 1)
        wanted = min(size_of_all, LEAST_SUBJECT)
        if room < wanted and len(hint) > 1:
            hint, room = hint[:1], room + len(hint) - 1
        if room < wanted:
            room += give_way(below, self._cursor, wanted - room, columns)
        if room < min(wanted, 1):
            hint, room = [], room + len(hint)
        fits = columns >= LEAST_COLUMNS and room >= min(wanted, 1)
        self._is_too_small = not (fits or self._was_viewed or mode.asking)
        if self._is_too_small:
            notice = fit_row(theme.paint(that_fits(_TOO_SMALL, columns), WARNING), columns)
            rows = [notice, *below[self._cursor]][: max(1, size.lines)]
            return PanelRows(rows, min(1, len(rows) - 1))
        rows = [*title, *beside(subject, room, columns, theme, self._subject.size, told)]
        cursor = max(0, len(rows) - 1)
        for at, each in enumerate(below):
            cursor = len(rows) if at == self._cursor else cursor
            rows += each
        rows += hint
        if len(rows) > size.lines:  # too small for all: the title and the choices from the cursor
            first = min(cursor, len(rows) - size.lines + 1)
            rows = [rows[0], *rows[first:]][: max(1, size.lines)]
            cursor = min(cursor - first + 1, len(rows) - 1)
        return PanelRows(rows, cursor)

    def _choice_rows(self, columns: int, theme: Theme, mode: PanelMode) -> list[list[Row]]:
        found = []
        for number, choice in enumerate(self.choices, 1):
            here = number - 1 == self._cursor and not mode.typing
            text = self._text(choice, number)
            mark = ">" if here else " "
            line = f"{mark} {theme.paint(text, BOLD) if here else text}"
            if len(choice.rules) > 1:
                other = choice.rules[(choice.at + 1) % len(choice.rules)]
                line += theme.paint(f"   or {self._shows(other)}", DIM)
            found.append(wrapped(line, columns, indent=7))
        return found

    def _text(self, choice: Choice, number: int) -> str:
        rule = f": {self._shows(choice.rule)}" if choice.rule else ""
        return f"{number} {choice.letter}  {choice.text}{rule}"

    def _hint_rows(self, now: float, columns: int, theme: Theme, mode: PanelMode) -> list[Row]:
        """What keys do, the important ones first; the guard leaves the rows empty."""
        rows = packed(["Enter confirms", self.leaving, *self._other_keys()], columns)
        if mode.typing:
            rows = [row.text for row in wrapped(self.with_text, columns)]
        is_guarded = now - self._opened_at < GUARD_S
        shown = ("" if is_guarded else row for row in rows[:MOST_HINTS])
        return [fit_row(theme.paint(row, DIM), columns) for row in shown]

    def _other_keys(self) -> list[str]:
        if not self.chosen.rules:
            return ["other keys are typed"]
        other = ["← → another rule"] if len(self.chosen.rules) > 1 else []
        return [*other, "Tab edits the rule"]

    def lines(self, theme: Theme, columns: int = WIDE) -> list[str]:
        """Everything, for a terminal that cannot redraw; what it is about only once."""
        about = () if self._told else (self._subject.rows, self._subject.told)
        subject = [row.text for rows in about for row in rows(columns)]
        self._told = True
        self._visible = len(self.choices) - (self._views and not self._subject.is_cut)
        rows = [f"  {self._text(c, n)}" for n, c in enumerate(self.choices[: self._visible], 1)]
        rows += [
            f"       or {each.letter} {self._shows(rule)}"
            for each in self.choices
            for rule in each.rules[1:]
        ]
        return [theme.paint(self._subject.title, BOLD | WARNING), *subject, *rows]

    def answer_line(self, text: str) -> bool:
        """A letter, a number, a word that begins a choice's text; ``tool(pattern)`` may follow."""
        word, _, rest = text.strip().partition(" ")
        at = self._meant(word)
        if at is None and word:
            begin = [n for n, c in enumerate(self.choices) if c.text.split(",")[0] == word.lower()]
            at = begin[0] if begin else None
        if at is None:
            return False
        choice, rule = self.choices[at], rest.strip()
        if rule:
            is_rule = rule in choice.rules or _RULE.fullmatch(rule)
            if not (choice.rules and is_rule):  # "a better way is to ..."
                return False
            choice.rules, choice.at = (rule, *choice.rules), 0
        self._cursor = at
        self._confirm()
        return True


def wrapped(line: str, columns: int, indent: int = 0, *, exact: bool = False) -> list[Row]:
    """A painted line as rows; those after the first begin ``indent`` columns in.

    ``exact``: see ``Wrap``.
    """
    lead = " " * indent if columns > indent * 3 else ""
    return [fit_row(row, columns) for row in wrap(line, columns, lead, exact=exact)]


def highlighted(text: str, theme: Theme) -> str:
    """``text`` as the one that is chosen, where the terminal can show that."""
    return f"{_REVERSE}{text}{RESET}" if theme.attributes else text


# --- lists ------------------------------------------------------------------------------------


class PickRow(NamedTuple):
    """``text`` is searched and shown, ``note`` stands dimmed beside it, both clean."""

    text: str
    note: str = ""


def _beside_notes(
    shown: Sequence[PickRow], here: int, columns: int, theme: Theme
) -> tuple[list[Row], list[Row]]:
    """Painted rows, the one that is chosen marked, notes below each other; and what is cut.

    The second list says in full what the chosen row has no room for; it has as many rows for each
    choice, so that the list does not move.
    """
    widths = [columns_of(row.text) for row in shown]
    most = max((width for row, width in zip(shown, widths, strict=True) if row.note), default=0)
    rows: list[Row] = []
    told: list[Row] = []
    longest = 0
    for at, (row, width) in enumerate(zip(shown, widths, strict=True)):
        gap = " " * max(2, min(most, columns // 2) - width + 2)
        aside = gap + theme.paint(row.note, DIM) if row.note else ""
        text = highlighted(row.text, theme) if at == here else row.text
        rows.append(fit_row(f"{'>' if at == here else ' '} {text}{aside}", columns))
        if 2 + width + (len(gap) + columns_of(row.note) if row.note else 0) > columns:
            whole = row.note if row.note and width + 2 < columns else f"{row.text}  {row.note}"
            lines = wrapped(f"  {theme.paint(whole.strip(), DIM)}", columns, 2)[:MOST_TOLD]
            longest = max(longest, len(lines))
            told = lines if at == here else told
    return rows, told + [Row("")] * (longest - len(told))


class Picker:
    """A list that is filtered by what is typed; ``answer`` is the index of the row chosen.

    ``free`` offers what is typed as an answer of its own (``said``); Enter of a text that was begun
    before it appeared answers nothing; without rows it is left once what is typed is for it.
    ``on_move`` gets the index of the row where the cursor is; ``subject``: lines above the list.
    """

    yields_to_text = False

    def __init__(
        self,
        title: str,
        rows: Sequence[PickRow],
        start: int = 0,
        *,
        free: str = "",
        subject: Callable[[], Sequence[str]] = tuple,
        on_move: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._title = title
        self._rows = rows
        self._free = free
        self._subject_lines = subject
        self._on_move = on_move
        self._query = ""
        self._start = max(0, min(start, len(rows) - 1))
        self._cursor = self._start
        self._most = 1
        self._armed_at = float("-inf")
        self._was_typing = False
        self._left = False
        self.answer: int | None = None
        self.said = ""

    @property
    def is_answered(self) -> bool:
        """Chosen, said, or left."""
        return self._left or self.answer is not None or bool(self.said)

    @property
    def due(self) -> float | None:
        """When Enter begins to count."""
        return self._armed_at if self._free else None

    def open(self, now: float, *, has_text: bool) -> None:
        """It appears; what stands in the input waits there."""
        self._was_typing = has_text and bool(self._free)
        self._armed_at = now + GUARD_S if self._free else now

    def text_sent(self) -> None:
        """Nothing is sent meanwhile."""

    def tick(self, now: float) -> None:
        """Nothing has come for a moment."""
        self._left |= bool(self._free) and not self._rows and now >= self._armed_at

    def leave(self) -> bool:
        """Esc: none of them; where the answer may be anything, Esc stops the agent."""
        if self._free:
            return False
        self._left = True
        return True

    def matches(self) -> list[int]:
        """The rows that hold every word that was typed, those that begin with it first."""
        words = self._query.lower().split()
        found = [
            at
            for at, row in enumerate(self._rows)
            if all(word in f"{row.text} {row.note}".lower() for word in words)
        ]
        if words:
            found.sort(key=lambda at: words[0] not in self._rows[at].text.lower())
        return found

    def press(self, press: Press, now: float, *, more: bool) -> Given:
        """Type to filter, move, choose; what is typed before it could be read is not for it."""
        key, text = press
        if now < self._armed_at:
            return self._too_early(press, now)
        was_typing, self._was_typing = self._was_typing, False
        if key == "enter":
            self._enter(now, ends_text=was_typing, more=more)
        elif key in {"char", "paste"}:
            is_number = self._free and not self._query and text.isdecimal() and text.isascii()
            if is_number and 1 <= int(text) <= len(self._rows):
                self._go(int(text) - 1)
            else:
                self._search(self._query + " ".join(text.split("\n")))
        elif key == "backspace":
            self._search(self._query[:-1])
        elif key == "erase-line":
            self._search("")
        elif key == "erase-word":
            self._search(self._query.rstrip().rpartition(" ")[0])
        else:
            last = self._count() - 1
            moves = {"up": -1, "down": 1, "pageup": -self._most, "pagedown": self._most,
                     "home": -last, "end": last}  # fmt: skip
            self._go(max(0, min(self._cursor + moves.get(key, 0), last)))
        return Given()

    def _too_early(self, press: Press, now: float) -> Given:
        """What goes to the input until nothing has come for a moment."""
        is_text = press.key in {"char", "paste"}
        if is_text or press.key == "enter":
            self._was_typing = is_text
            self._armed_at = max(self._armed_at, now + FLOW_S)
        return Given(press.text if is_text else "")

    def _enter(self, now: float, *, ends_text: bool, more: bool) -> None:
        if ends_text:  # of what was typed before
            self._armed_at = now + GUARD_S
        elif not more:
            self._choose()

    def _count(self) -> int:
        return len(self.matches()) + bool(self._free and self._query.strip())

    def _search(self, query: str) -> None:
        before = self._query
        self._query = query
        if query.strip() != before.strip():
            self._go(0 if query.strip() else self._start)

    def _go(self, at: int) -> None:
        self._cursor = at
        found = self.matches()
        if at < len(found):
            self._on_move(found[at])

    def _choose(self) -> None:
        found = self.matches()
        if self._cursor < len(found):
            self.answer = found[self._cursor]
        elif self._free:
            self.said = self._query.strip()

    # --- what is seen ----------------------------------------------------------------------

    def rows(self, size: Size, theme: Theme, now: float, *, mode: PanelMode) -> PanelRows:
        """The title, what was typed, the rows around the cursor."""
        columns = size.columns
        subject = [row for line in self._subject_lines() for row in wrapped(line, columns, 2)]
        if mode.asking:
            rows = beside(subject, size.lines, columns, theme)
            return PanelRows(rows, max(0, len(rows) - 1))
        found = self.matches()
        own = 2 if size.lines > 2 else max(0, size.lines - 1)  # noqa: PLR2004 - head and hint
        subject = beside(subject, max(0, size.lines // 2 - own), columns, theme)
        head = theme.paint(self._title, BOLD)
        if self._query or not self._free:
            head += theme.paint("  > ", DIM) + self._query
        listed = [self._shown_as(at) for at in found]
        if self._free and (said := self._query.strip()):
            listed.append(PickRow(f"{self._free}: {said}"))
        room = size.lines - own - len(subject)
        self._most = max(1, min(room, MOST_ROWS))
        first, shown, told = self._around_cursor(listed, columns, theme)
        if told and room > 2 * len(told):
            self._most = min(self._most, room - len(told))
            first, shown, told = self._around_cursor(listed, columns, theme)
        told = told[: max(0, room - len(shown))]
        rows = [*subject, fit_row(head, columns)] if own else []
        cursor = max(0, len(rows) + self._cursor - first) if shown else max(0, len(rows) - 1)
        rows += [*shown, *told]
        if own > 1:
            hint = self._hint(len(listed), len(shown), now, columns)
            rows.append(fit_row(theme.paint(hint, DIM), columns))
        return PanelRows(rows[: max(1, size.lines)], min(cursor, max(0, size.lines - 1)))

    def _around_cursor(
        self, listed: Sequence[PickRow], columns: int, theme: Theme
    ) -> tuple[int, list[Row], list[Row]]:
        """The index of the first row shown, those that are shown, what the chosen one is cut of."""
        first = max(0, min(self._cursor - self._most // 2, len(listed) - self._most))
        shown = listed[first : first + self._most]
        return first, *_beside_notes(shown, self._cursor - first, columns, theme)

    def _shown_as(self, at: int) -> PickRow:
        row = self._rows[at]
        return row._replace(text=f"{at + 1} {row.text}") if self._free else row

    def _hint(self, total: int, shown: int, now: float, columns: int) -> str:
        """What keys do; what every list has goes first where there is little room."""
        if now < self._armed_at:
            return ""
        if not total:
            return "nothing fits; Backspace takes letters back · Esc leaves"
        more = [f"{total - shown} more"] if total > shown else []
        parts = [*more, "↑↓ choose", "Enter", "type to search", "Esc leaves"]
        if self._free:
            parts = [*more, "↑↓ or a number", "Enter answers", "type another answer", "Esc stops"]
        for least in (-3, -3, 0):
            if columns_of(" · ".join(parts)) > columns:
                del parts[least]
        return " · ".join(parts)

    def lines(self, theme: Theme, columns: int = WIDE) -> list[str]:
        """Numbered rows, for a terminal that cannot redraw."""
        del columns
        rows = [
            f"{number:>3}  {row.text}" + (theme.paint(f"  {row.note}", DIM) if row.note else "")
            for number, row in enumerate(self._rows, 1)
        ]
        return [*self._subject_lines(), theme.paint(self._title, BOLD), *rows]

    def answer_line(self, text: str) -> bool:
        """A number, a row's text or a part that only one has, or anything where that is free."""
        said = text.strip()
        if said.isdecimal() and said.isascii() and 1 <= int(said) <= len(self._rows):
            self.answer = int(said) - 1
            return True
        if said and self._free:
            self.said = said
            return True
        self._query = said
        found = self.matches() if said else []
        self._query = ""
        if len(found) == 1:
            self.answer = found[0]
        return len(found) == 1
