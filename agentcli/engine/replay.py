"""What was shown is never shown twice, also when a step is asked again (STR-6, STR-7).

The first reply of a step is shown as it comes. Of the next one only what is new is passed on:

- while its text repeats an earlier reply from its beginning, it is swallowed;
- where it goes on after the end of what is on the screen, it is passed on without a seam;
- where it takes another way, a line break comes first (``Piece.turns_off``), then the new text
  from the first word that differs. The part before that word is on the screen already; what
  follows it is another answer and is shown whole.

Law: pure; the cost is linear in the text; of a text that an earlier reply began with, no word
is passed on again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_WORD_END = re.compile(r"(?<!\w)\w{1,24}\Z")
# from here on are the scripts that put no space between words
_NO_SPACES = "\u2e80"


class Piece(NamedTuple):
    """Text to show; ``turns_off`` when it does not go on where the screen ends."""

    text: str
    turns_off: bool = False


@dataclass(slots=True)
class Lane:
    """One kind of text, visible or thinking, over the replies of a step.

    ``earlier`` ends with the reply that stands at the end of ``screen``, which is what was
    shown in all.
    """

    earlier: list[str] = field(default_factory=list)
    screen: str = ""

    def add(self, text: str, new: str) -> None:
        """A reply has ended: its whole text, and what of it was new on the screen."""
        self.earlier.insert(len(self.earlier) if new else 0, text)
        self.screen += new


@dataclass(slots=True)
class Shown:
    """What the replies of a step have shown so far; ``calls`` are the names announced."""

    text: Lane = field(default_factory=Lane)
    thinking: Lane = field(default_factory=Lane)
    calls: list[str] = field(default_factory=list)


class Replay:
    """Filters one more reply to a step against what was shown."""

    def __init__(self, shown: Shown) -> None:
        self._text = _Track(shown.text)
        self._thinking = _Track(shown.thinking)
        self._announced = shown.calls
        self._calls = 0

    def text(self, piece: str) -> Piece:
        """What of ``piece`` is to be shown."""
        return self._text.feed(piece)

    def thinking(self, piece: str) -> Piece:
        """What of ``piece`` is to be shown."""
        return self._thinking.feed(piece)

    def is_new_call(self, name: str) -> bool:
        """Whether the next call was not announced at this place by an earlier reply."""
        at, self._calls = self._calls, self._calls + 1
        if self._announced[at : at + 1] == [name]:
            return False
        self._announced[at:] = [name]
        return True

    @property
    def new_text(self) -> str:
        """All of this reply's text that was passed on."""
        return "".join(self._text.passed)

    @property
    def new_thinking(self) -> str:
        """All of this reply's thinking that was passed on."""
        return "".join(self._thinking.passed)


class _Track:
    __slots__ = ("_best", "_best_text", "_earlier", "_open", "_position", "_swallows", "passed")

    def __init__(self, lane: Lane) -> None:
        self._earlier = lane.earlier
        self._open = [text for text in lane.earlier if text]
        self._swallows = bool(self._open)
        self._position = 0
        self._best = 0
        self._best_text = ""
        self.passed: list[str] = []

    def feed(self, piece: str) -> Piece:
        new = self._new_of(piece) if self._swallows and piece else Piece(piece)
        if new.text:
            self.passed.append(new.text)
        return new

    def _new_of(self, piece: str) -> Piece:
        position, still_open = self._position, []
        for text in self._open:
            expected = text[position : position + len(piece)]
            same = _same(piece, expected)
            if position + same >= self._best:
                self._best, self._best_text = position + same, text
            if same == len(piece) and position + same < len(text):
                still_open.append(text)
        self._open = still_open
        self._position = position + len(piece)
        new = "" if still_open else piece[self._best - position :]
        if not new:
            return Piece("")
        self._swallows = False
        if self._best_text == self._earlier[-1] and self._best == len(self._best_text):
            return Piece(new)
        before, after = self._best_text[: self._best], self._best_text[self._best :]
        # both go on with a letter: the words differ, and half a word cannot be read
        word = _WORD_END.search(before) if new[0].isalnum() and after[:1].isalnum() else None
        if word is not None and max(word[0] + new[0]) < _NO_SPACES:
            new = word[0] + new
        return Piece("\n" + new, turns_off=True)


def _same(one: str, other: str) -> int:
    """How many characters both begin with."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(at for at in range(length) if one[at] != other[at])
