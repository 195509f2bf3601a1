"""Painted text laid out in the rows of a screen.

Law: text breaks where a terminal breaks it, so that rows drawn one by one look as the text
printed whole does; a row is complete in itself (its style begins and ends in it); ``text_of``
gives the text back. The cost is linear in the text.

A row is ``certain`` when every terminal gives its characters the same width. Others (emoji,
combining signs, scripts that shape) may be narrower or wider than counted here.
"""

from __future__ import annotations

import copy
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from agentcli.domain.patterns import LazyPattern
from agentcli.ui.theme import RESET

# --- the width of text; wide characters take two columns --------------------------------------


_DOT = "·"  # between the parts of our own lines: the first screen needs no table of widths for it


def columns_of(text: str) -> int:
    """The width of one line of ``text`` in columns."""
    if text.isascii() or text.replace(_DOT, " ").isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, columns: int, ellipsis: str = "…") -> str:
    """``text`` cut to at most ``columns``; a cut shows."""
    if columns <= 0:
        return ""
    if len(text) <= columns and columns_of(text) <= columns:
        return text
    room = columns - columns_of(ellipsis)
    if room <= 0:
        return ellipsis[:columns]
    used = end = 0
    for end, char in enumerate(text):  # noqa: B007 - where the loop stopped
        used += columns_of(char)
        if used > room:
            break
    return text[:end] + ellipsis


# --- wrapping between words -------------------------------------------------------------------

# Law: a row ends between two words; only a word longer than the row is split, and never within
# what is one sign to a reader (accents, joined emoji, flags). Ideographs break as UAX 14 says
# (https://www.unicode.org/reports/tr14/): anywhere, but not before what closes or after an opening.
# Where a row ends depends on the text alone and not on its pieces; the cost is linear.


_STEP = 256
_LEAST_ROOM = 8
_STYLE = LazyPattern(r"\x1b\[[0-9;]*[mK]")
_IDEOGRAPH = LazyPattern(
    "[\u1100-\u115f\u2e80-\u2fff\u3001-\u303f\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf"
    "\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff60\uff66-\uff9f\U00020000-\U0003fffd]"
)
_NEVER_FIRST = LazyPattern(
    "[!\"%'),.:;?\\]}\u00a0\u00b0\u00bb\u2019\u201d\u2025\u2026\u202f\u2030\u203c"
    "\u2047-\u2049\u2060\u2103\u3001\u3002\u3005\u3009\u300b\u300d\u300f\u3011\u3015"
    "\u3017\u3019\u301b\u301c\u301e\u301f\u303b\u3041\u3043\u3045\u3047\u3049\u3063\u3083"
    "\u3085\u3087\u308e\u3095\u3096\u309d\u309e\u30a1\u30a3\u30a5\u30a7\u30a9\u30c3\u30e3"
    "\u30e5\u30e7\u30ee\u30f5\u30f6\u30fb-\u30fe\u31f0-\u31ff\uff01\uff05\uff09\uff0c"
    "\uff0e\uff1a\uff1b\uff1f\uff3d\uff5d\uff5e\uff60\uff61\uff63-\uff65\uff9e\uff9f]"
)
_NEVER_LAST = LazyPattern(
    "[\"$'(\\[{\u00a0\u00a3\u00a5\u00ab\u2018\u201c\u202f\u2060\u3008\u300a\u300c\u300e"
    "\u3010\u3014\u3016\u3018\u301a\u301d\uff04\uff08\uff3b\uff5b\uff5f\uff62\uffe1\uffe5]"
)
_JOINER = "\u200d"
_MOST_MARKS = 32  # of one sign: https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format
_MOST_IN_ROW = 1_024  # characters, where most of them take no column
_REGION = LazyPattern("[\U0001f1e6-\U0001f1ff]")
_SKIN = LazyPattern("[\U0001f3fb-\U0001f3ff]")


class Wrap:
    """Text in painted rows of at most ``columns``; ``lead`` begins the first, ``hang`` the others.

    ``rows`` are those that cannot change any more; anyone who takes them empties the list. With
    ``exact`` blanks that a break takes away are spelt where no break within a word looks otherwise.
    """

    __slots__ = ("_exact", "_gap", "_goes_on", "_is_shown", "_is_tight", "_lead", "_pieces",
                 "_plain", "columns", "hang", "rows")  # fmt: skip

    def __init__(
        self, columns: int, lead: str = "", hang: str = "", *, exact: bool = False
    ) -> None:
        self.columns = columns
        self.hang = hang
        self.rows: list[str] = []
        self._lead = lead
        self._pieces: list[tuple[str, str]] = []
        self._plain = ""
        self._exact, self._gap, self._is_tight = exact, 0, False
        self._goes_on = False
        self._is_shown = False  # what was fed stands in a row above, and may be half a word

    def copy(self) -> Wrap:
        """The same without its rows, to go on with in another way."""
        other = copy.copy(self)
        other.rows = []
        return other

    def feed(self, text: str, start: str = "") -> None:
        """More of the line, in the style that the sequence ``start`` begins; no line feed in it."""
        for at in range(0, len(text), _STEP):
            piece = text[at : at + _STEP] if len(text) > _STEP else text
            if self._is_shown:
                self._forget_shown(is_whole=piece[:1] == " ")
            if self._goes_on and not self._plain:
                self._gap += len(piece) - len(piece.lstrip(" "))
                piece = piece.lstrip(" ")
            if piece:
                piece = self._taken() + piece
                self._pieces = [*self._pieces, (piece, start)]
                self._plain += piece
                self._fill()

    @property
    def room(self) -> int:
        """The columns left after the lead."""
        return max(self.columns - _lead_columns(self._lead), min(self.columns, _LEAST_ROOM), 1)

    def end_line(self, lead: str | None = None) -> None:
        """The line is complete; what is fed next begins another, after ``lead`` (or ``hang``)."""
        self._forget_shown(is_whole=self._is_shown)
        self._fill()
        if self._plain or not self._goes_on:
            self._emit(len(self._plain))
        self._goes_on, self._gap = False, 0
        if lead is not None:
            self._lead = lead

    def break_row(self) -> None:
        """The row under way ends here; a word that grows all the same is shown again as a whole."""
        self._fill()
        if not self._plain:
            return
        pieces, words = self._pieces, self._plain
        self._emit(len(words.rstrip(" ")) or len(words))
        self._goes_on = True
        at = words.rfind(" ") + 1
        if words[at:]:
            self._plain, self._is_shown = words[at:], True
            self._pieces = [(words[at:], pieces[-1][1])]

    def _forget_shown(self, *, is_whole: bool) -> None:
        """The word that stands above already was ``is_whole``, or is shown again."""
        if is_whole:
            self._pieces, self._plain = [], ""
        self._is_shown = False

    def put(self, row: str) -> None:
        """A row that is painted and laid out already."""
        self.rows.append(_fitting(self._lead, self.columns - self.room) + row)
        self._lead = self.hang

    def _fill(self) -> None:
        while (end := _row_end(self._plain, self.room)) is not None:
            self._emit(end)
            self._goes_on = True

    def _emit(self, end: int) -> None:
        """The first ``end`` characters are a row; white space after them is gone with the break.

        None: a word does not fit behind the white space that begins the line, which is gone then.
        """
        rest = self._plain[end:].lstrip(" ")
        skip = len(self._plain) - len(rest)
        if self._exact:
            self._gap, shown = skip - end, self._plain[:end]
            is_full = most_columns(shown) + most_columns(rest[:1] or "x") > self.room
            is_full = " " not in shown and (is_full or len(shown) > self.room)
            around = shown[-_MOST_MARKS:] + rest[:1]
            self._is_tight = is_full or _IDEOGRAPH.search(around) is not None
        row, left, at = [_fitting(self._lead, self.columns - self.room)], [], 0
        style = ""
        for text, start in self._pieces:
            shown = text[: max(0, end - at)]
            if shown:
                row.append((RESET if style else "") + start + shown if start != style else shown)
                style = start
            if at + len(text) > skip:
                left.append((text[max(0, skip - at) :], start))
            at += len(text)
        if rest and end and (gap := self._taken()):
            rest, left = gap + rest, [(gap, left[0][1]), *left]
        self._pieces, self._plain = left, rest
        if end or not rest:
            self.rows.append("".join(row) + (RESET if style else ""))
            self._lead = self.hang

    def _taken(self) -> str:
        """What stands for the blanks that the last break took away; empty where that is plain."""
        gap, self._gap = self._gap, 0
        if not self._exact or gap < 1 or (gap == 1 and not self._is_tight):
            return ""
        return f"<U+0020 x {gap}>" if gap > 1 else "<U+0020>"


def wrap(line: str, columns: int, hang: str = "", *, exact: bool = False) -> list[str]:
    """The painted ``line`` in rows; ``hang`` (painted) begins all but the first.

    Control characters in it are SGR sequences, line feeds and tabs. ``exact``: see ``Wrap``.
    """
    found = Wrap(columns, "", hang, exact=exact)
    start = ""
    for piece in _TOKEN.findall(line):
        if piece[0] == "\x1b":
            start = "" if piece == RESET else piece
        elif piece == "\n":
            found.end_line()
        else:
            found.feed(piece.expandtabs(_TAB), start)
    found.end_line()
    return found.rows


def packed(parts: Sequence[str], columns: int, dot: str = "·") -> list[str]:
    """``parts`` with dots between them in rows of at most ``columns``; no row ends with a dot.

    A part that is wider than that has a row of its own.
    """
    rows: list[str] = []
    for part in filter(None, parts):
        longer = f"{rows[-1]} {dot} {part}" if rows else part
        if rows and columns_of(longer) <= columns:
            rows[-1] = longer
        else:
            rows.append(part)
    return rows


_TAB = 4
# what a line begins with that its further rows stand to the right of: white space, the signs of
# this program, a number and a sign of a diff, the number and the letter of a choice, a
# finding of the doctor, a box to tick
_HEAD = LazyPattern(
    r"\s*(?:(?P<code>\d+ [-+ ] )|\d+ [a-z]  |(?:ok  |warn|fail) |\[(?:\w+|[ >])\] +|"
    r"(?:(?:[●✗■└!>◆◇•·│▎☐☑*x#`|~$-]|\d+[.)]) +)*\s*)"
)
_NAME = LazyPattern(r"\S+(?: \S+)*(?<![.!?]) {2,}(?=\S)")  # of what stands in a column of its own


def wrap_line(line: str, columns: int, mark: str = "", *, exact: bool = False) -> list[str]:
    """The same for a line of the chat: further rows stand below its words, code behind ``mark``.

    The words of a line that begins with a name in a column are those behind it.
    """
    words = plain(line)
    if most_columns(words.expandtabs(TAB_COLUMNS)) <= columns:
        return [line]
    head = _HEAD.match(words)
    indent = columns_of(head[0]) if head else 0
    if head is not None and head["code"] is not None:
        lead = " " * max(0, indent - 2) + f"{mark} " if mark else " " * indent
        return wrap(line, columns, lead if indent <= columns // 2 else "", exact=exact)
    name = _NAME.match(words, head.end() if head else 0)
    below = columns_of(name[0]) + indent if name is not None else columns
    if name is not None and below <= columns * 3 // 5:
        least = max(map(unbreakable_columns, words[name.end() :].split(" ")))
        return wrap(line, columns, " " * (below if below + least <= columns else indent + 2))
    return wrap(line, columns, " " * indent if indent <= columns // 2 else "")


@lru_cache(256)
def _lead_columns(lead: str) -> int:
    return columns_of(plain(lead))


def _fitting(lead: str, columns: int) -> str:
    """``lead``, or the end of it where the window is too narrow for all."""
    if _lead_columns(lead) <= columns:
        return lead
    return plain(lead)[-columns:] if columns > 0 else ""


def _row_end(text: str, room: int) -> int | None:
    """Where the row that ``text`` begins with ends; ``None`` when all of it fits."""
    if not text.isascii():
        return _row_end_wide(text, room)
    if len(text) <= room:
        return None
    end = text.rfind(" ", 0, room + 1)
    return room if end < 0 else len(text[:end].rstrip(" "))


def _row_end_wide(text: str, room: int) -> int | None:
    used, best, before = 0, 0, " "
    for start, end in _clusters(text):
        first = text[start]
        if first == " ":
            if before != " ":
                best = start
        elif before == " " or _may_break(before, first):
            best = best if before == " " else start
        width = most_columns(text[start:end])
        if used + width > room or end > max(_MOST_IN_ROW, 4 * room):
            return best or (0 if text[0] == " " else start or end)
        used += width
        before = text[end - 1] if char_columns(text[end - 1]) else first
    return None


def _may_break(before: str, after: str) -> bool:
    """Whether a row may end between two characters that no space parts."""
    if _NEVER_FIRST.match(after) or _NEVER_LAST.match(before):
        return False
    return bool(_IDEOGRAPH.match(before) or _IDEOGRAPH.match(after))


def unbreakable_columns(word: str) -> int:
    """The least width in which ``word`` need not be split."""
    if word.isascii():
        return len(word)
    widest, used, before = 0, 0, ""
    for start, end in _clusters(word):
        if before and _may_break(before, word[start]):
            used = 0
        used += most_columns(word[start:end])
        widest, before = max(widest, used), word[start]
    return widest


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """The places of what is one sign each: a character and all that is drawn with it."""
    start, size = 0, len(text)
    while start < size:
        end = start + 1
        if end < size and _REGION.match(text[start]) and _REGION.match(text[end]):
            end += 1
        while end < min(size, start + _MOST_MARKS):
            is_tone = _SKIN.match(text[end]) is not None
            if is_tone and _SKIN.match(text[end - 1]):  # a second one is drawn by itself
                break
            if not is_tone and char_columns(text[end]):
                break
            end += 2 if text[end] == _JOINER and end + 1 < size else 1
        yield start, end
        start = end


# --- rows -------------------------------------------------------------------------------------


TAB_COLUMNS = 8
TO_END = "\x1b[K"
"""Gives the rest of a row the background that is on: allowed at the end of one that is not full."""
_TOKEN = LazyPattern(r"\x1b\[[0-9;]*[mK]|[\n\t]|[^\x1b\n\t]+|\x1b")
_CERTAIN = LazyPattern(
    "[ -~\xa1-\xac\xae-\u02ff\u0370-\u0373\u0376\u0377\u037b-\u037e\u0386\u0388-\u038a\u038e-\u03a1"
    "\u03a3-\u03ff\u0400-\u0481\u048a-\u052f\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2190-\u2199"
    "\u2500-\u25fc\u2713\u2717\u3001-\u303d\u3041-\u3096\u30a0-\u30ff\u4e00-\u9fff\uac00-\ud7a3"
    "\uff01-\uff60]*"
)


class Row(NamedTuple):
    """One row: painted text, the column after it, whether it goes on with the row above.

    ``start`` is the column where it begins: not 0 when what is before it on the same row of
    the screen is finished already.
    """

    text: str
    width: int = 0
    soft: bool = False
    certain: bool = True
    start: int = 0


class Rows:
    """Lays out text that comes in pieces; ``columns`` wide, by the ``measure`` of a character.

    ``soft``: the text goes on with a line that began above, at column ``start``.
    """

    def __init__(
        self,
        columns: int,
        start: int = 0,
        *,
        soft: bool = False,
        measure: Callable[[str], int] | None = None,
    ) -> None:
        self.columns = max(1, columns)
        self._measure = measure or char_columns
        self._done: list[Row] = []
        self._body: list[str] = []
        self._start = self._width = start
        self._style = ""
        self._soft = soft
        self._certain = True
        self._open = False  # the current row has begun

    def feed(self, text: str) -> None:
        """More text; its control characters are SGR sequences, ``TO_END``, line feeds and tabs."""
        for piece in _TOKEN.findall(text):
            if piece == TO_END:
                self._body.append(piece)
            elif piece[0] == "\x1b":
                self._switch(piece)
            elif piece == "\n":
                self._end(soft=False)
            elif piece == "\t":
                spaces = TAB_COLUMNS - self._width % TAB_COLUMNS
                self._add(" " * max(0, min(spaces, self.columns - self._width)))
            else:
                self._add(piece)

    @property
    def rows(self) -> list[Row]:
        """All rows; the last one may still grow."""
        return [*self._done, self._current()] if self._open else list(self._done)

    @property
    def at_line_start(self) -> bool:
        """Whether every row is complete."""
        return not self._open

    def drop(self, number: int) -> None:
        """Forget the first ``number`` rows."""
        if number > len(self._done):
            self._end(soft=False)
        del self._done[:number]

    def _switch(self, sequence: str) -> None:
        self._style = "" if sequence == RESET else sequence
        if self._body:
            self._body.append(sequence)

    def _add(self, text: str) -> None:
        if text.isascii():
            while text:
                room = self._room()
                self._put(text[:room], min(room, len(text)))
                text = text[room:]
            return
        for char in text:
            width = min(self._measure(char), self.columns)
            if width and self._room() < width:
                self._end(soft=True)
            self._put(char, width)

    def _room(self) -> int:
        """The columns left, in a new row when there are none."""
        if self._width >= self.columns:
            self._end(soft=True)
        return self.columns - self._width

    def _put(self, text: str, width: int) -> None:
        if not self._body and self._style:
            self._body.append(self._style)
        self._open = True
        self._body.append(text)
        self._width += width
        if text != _DOT and not (text.isascii() and text.isprintable()):
            self._certain = self._certain and _CERTAIN.fullmatch(text) is not None

    def _current(self) -> Row:
        end = RESET if self._style and self._body else ""
        text = "".join(self._body) + end
        return Row(text, self._width, self._soft, self._certain, self._start)

    def _end(self, *, soft: bool) -> None:
        self._done.append(self._current())
        self._body, self._width, self._start, self._certain = [], 0, 0, True
        self._soft = self._open = soft


def char_columns(char: str) -> int:
    """The columns that a character takes: 0, 1 or 2."""
    if char.isascii() or char == _DOT:
        return 1
    if _SKIN.match(char):
        return _TONE_COLUMNS
    from rich.cells import get_character_cell_size

    return get_character_cell_size(char)


# tmux draws a skin tone beside its emoji, other terminals on it
_TONE_COLUMNS = 2 if os.environ.get("TMUX") else 0


def most_columns(text: str) -> int:
    """The columns that ``text`` takes where a terminal joins nothing."""
    if text.isascii():
        return len(text)
    return sum(map(_most_columns, text))


def _most_columns(char: str) -> int:
    if char.isascii() or char == "\ufe0f":
        return 1
    kind = unicodedata.category(char)
    is_wide = kind[0] != "M" and unicodedata.east_asian_width(char) in {"W", "F"}
    if is_wide or kind == "Cn" or _REGION.match(char) or _SKIN.match(char):
        return 2  # a terminal may know characters that are none here
    return char_columns(char) or int(kind == "Mc")  # some give it its own


def cluster_before(text: str) -> int:
    """How many code points the last character that a user sees has: an emoji, a letter with marks.

    The rules are those of https://unicode.org/reports/tr29/ as far as emoji and marks need them.
    """
    at = len(text) - 1
    while at > 0:
        char, before = text[at], text[at - 1]
        if _extends(char) or before == _JOINER:
            at -= 1
        elif _is_flag_half(char) and _is_flag_half(before):
            start = at
            while start > 0 and _is_flag_half(text[start - 1]):
                start -= 1
            at -= (at - start) % 2
            break
        else:
            break
    return len(text) - max(at, 0)


def _extends(char: str) -> bool:
    """Whether it belongs to the character before it: marks, selectors, skin tones, tags."""
    if char < "\u0300":
        return False
    is_tone = "\U0001f3fb" <= char <= "\U0001f3ff"
    is_tag = "\U000e0020" <= char <= "\U000e007f"
    return is_tone or is_tag or char == _JOINER or unicodedata.category(char) in {"Mn", "Mc", "Me"}


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def text_of(rows: Sequence[Row]) -> str:
    """The text that ``rows`` were made of, without a line feed at its end."""
    parts: list[str] = []
    for at, row in enumerate(rows):
        if at and not row.soft:
            parts.append("\n")
        parts.append(row.text)
    return "".join(parts)


def fit_row(line: str, columns: int, more: str = "…") -> Row:
    """A painted line as one row, in whatever terminal; a cut shows."""
    layout = Rows(columns, measure=_most_columns)
    layout.feed(line.replace("\n", " "))
    found = layout.rows
    if not found:
        return Row("")
    if len(found) == 1:
        return found[0]
    short = Rows(max(1, columns - len(more)), measure=_most_columns)
    short.feed(line.replace("\n", " "))
    first = short.rows[0]
    if columns <= len(more):
        return Row(more[:columns], min(columns, len(more)))
    ends_styled = first.text.endswith(RESET)
    text = first.text.removesuffix(RESET) + more + (RESET if ends_styled else "")
    return Row(text, first.width + len(more), soft=False, certain=first.certain)


def plain(text: str) -> str:
    """``text`` without its styles."""
    return _STYLE.sub("", text)


class Shared(NamedTuple):
    """What two texts have in common at their beginning: where the second goes on, and how."""

    length: int
    columns: int
    style: str


def shared_start(old: Row, new: Row) -> Shared:
    """How far ``new`` may be left as ``old`` stands on the screen."""
    nothing = Shared(0, 0, "")
    if not (old.certain and new.certain):
        return nothing
    a, b = old.text, new.text
    end = min(len(a), len(b))
    length = next((at for at in range(end) if a[at] != b[at]), end)
    style = ""
    safe = columns = 0
    for found in _TOKEN.finditer(b):
        if found.start() >= length:
            break
        token = found[0]
        if token[0] == "\x1b":
            if found.end() > length or token == TO_END:
                break
            style = "" if token == RESET else token
            safe = found.end()
        else:
            piece = token[: length - found.start()]
            columns += len(piece) if piece.isascii() else sum(map(char_columns, piece))
            safe = found.start() + len(piece)
    return Shared(safe, columns, style)


# --- what a terminal makes of rows -------------------------------------------------------------


class Place(NamedTuple):
    """A row and a column of the region, both from 0."""

    row: int
    column: int


def last_character(row: Row) -> tuple[str, int]:
    """The last character of a certain row, painted, and its width."""
    text = row.text.removesuffix(RESET)
    style = _style_at_end(text) if text != row.text else ""
    return f"{style}{text[-1]}{RESET if style else ''}", char_columns(text[-1])


def _style_at_end(text: str) -> str:
    found = text.rpartition("\x1b[")
    return f"\x1b[{found[2].partition('m')[0]}m" if found[1] else ""


def reflowed(rows: Sequence[Row], cursor: Place, columns: int, start: int) -> Place:
    """Where the cursor comes to stand when the lines of ``rows`` are wrapped again."""
    inside = min(max(0, cursor.row), len(rows) - 1)
    if beyond := cursor.row - inside:
        moved = reflowed(rows, Place(inside, cursor.column), columns, start)
        return Place(moved.row + beyond, moved.column)
    at = rows[cursor.row]
    head = Rows(columns, start, soft=rows[0].soft)
    if cursor.row:
        head.feed(text_of(rows[: cursor.row]) + ("" if at.soft else "\n"))
    body = plain(at.text)
    before = Rows(max(1, cursor.column - at.start))
    before.feed(body)
    begun = before.rows[0].text if before.rows and cursor.column > at.start else ""
    head.feed(begun + " " * (cursor.column - max(at.start, at.width)))
    found = head.rows
    if head.at_line_start:
        return Place(len(found), start if not cursor.row else 0)
    if found[-1].width >= columns and cursor.column < at.width:
        return Place(len(found), 0)
    return Place(len(found) - 1, found[-1].width)


def differing(old: Sequence[Row], new: Sequence[Row]) -> tuple[int, int]:
    """How many rows are the same at the start, and how many of the rest at the end."""
    most = min(len(old), len(new))
    start = 0
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    while end and new[-end].soft:  # drawn through the margin of the row above, not moved below it
        end -= 1
    return start, end


def that_fits(texts: Sequence[str], columns: int) -> str:
    """The first of them that a row has room for, or the last."""
    return next((text for text in texts if columns_of(text) <= columns), texts[-1])


def give_way(below: list[list[Row]], cursor: int, wanted: int, columns: int) -> int:
    """Make room for ``wanted`` rows: other choices are one row each, then the farthest go.

    Returns how many rows became free; the choice at ``cursor`` stays whole.
    """
    before = sum(map(len, below))
    others = sorted(
        (at for at in range(len(below)) if at != cursor), key=lambda at: -abs(at - cursor)
    )
    for at in others:
        if before - sum(map(len, below)) < wanted and len(below[at]) > 1:
            first = below[at][0].text
            below[at] = [fit_row(f"{first} …", columns)]
    for at in others:
        if before - sum(map(len, below)) < wanted:
            below[at] = []
    return before - sum(map(len, below))
