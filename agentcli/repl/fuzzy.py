"""Fuzzy search in a long list of paths: typed letters in order, the best match first.

Law: what is found holds the typed letters in this order, whatever their case. Better kinds of
match come first (``Kind``); within a kind what was used last, then the match with the fewest
gaps, then the short path. A search looks closely at a bounded number of paths, so that a key
press costs little more in 100,000 files than in 1,000.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

LOOKED_AT = 300
"""How many paths of each sort, the shortest, are ranked."""

_BIT = {char: 1 << at for at, char in enumerate("abcdefghijklmnopqrstuvwxyz0123456789._-/")}
_OTHER = 1 << len(_BIT)
_BREAKS = frozenset("/\\_-. ,()[]{}@+=:~'\"")


class Kind(IntEnum):
    """How a path matches, best first."""

    WHOLE = 0  # the path, its name, or its name without the ending
    NAME_START = 1  # the name begins so; with a slash typed: a part of the path does
    NAME_WORD = 2  # a word of the name begins so
    NAME_WORDS = 3  # beginnings of words of the name
    IN_NAME = 4  # with a slash typed: beginnings of the path's parts
    IN_PATH = 5
    PATH_WORDS = 6  # beginnings of words of the path
    NAME_LETTERS = 7
    PATH_LETTERS = 8


class PathList:
    """Paths with ``/``; a directory ends in one. Made once, searched often.

    At most ``len(paths)`` times the length of a path, twice, is kept in memory.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = sorted(dict.fromkeys(paths))
        self.paths.sort(key=len)
        self._lowered = [_lowered(path) for path in self.paths]
        self._names = [name_of(path) for path in self._lowered]
        self._masks = [_mask(path) for path in self._lowered]
        self._everything = range(len(self.paths))
        self._narrowed: tuple[str, Sequence[int]] = ("", self._everything)

    def search(self, typed: str, limit: int, used: Mapping[str, int] | None = None) -> list[str]:
        """At most ``limit`` paths that match, best first.

        ``used`` gives a rank to paths that were used lately, the higher the later.
        """
        wanted = typed.lower()
        ranks = used or {}
        if not wanted:
            return self._top(limit, ranks)
        mask = _mask(wanted)
        scope = self._scope(wanted)
        some = [at for at in scope if self._masks[at] & mask == mask]
        self._narrowed = (wanted, some)
        found = {self.paths[at] for at in self._worth_a_look(wanted, some)}
        if ranks:
            letters = subsequence(wanted)
            found |= {path for path in ranks if letters.match(path.lower())}
        ranked = [(*rank(wanted, path, ranks), path) for path in found]
        ranked.sort()
        return [each[-1] for each in ranked[:limit]]

    def _top(self, limit: int, ranks: Mapping[str, int]) -> list[str]:
        """What to offer before anything is typed: used lately, then the uppermost level."""
        lately = sorted(ranks, key=lambda path: -ranks[path])[:limit]
        top: list[str] = []
        deeper: list[str] = []
        for path in self.paths:
            if "/" not in path[:-1]:
                top.append(path)
            elif len(deeper) < limit:
                deeper.append(path)
        top.sort(key=lambda path: (not path.endswith("/"), path.startswith("."), path.lower()))
        return list(dict.fromkeys([*lately, *top, *deeper]))[:limit]

    def _scope(self, wanted: str) -> Sequence[int]:
        """Where to look: what was left for the letters typed before, if these go on from them."""
        before, left = self._narrowed
        return left if wanted.startswith(before) else self._everything

    def _worth_a_look(self, wanted: str, some: Sequence[int]) -> set[int]:
        """The shortest paths of each sort of match."""
        names, lowered = self._names, self._lowered
        found: set[int] = set()
        if "/" not in wanted:
            inside = [at for at in some if wanted in names[at]]
            found.update([at for at in inside if names[at].startswith(wanted)][:LOOKED_AT])
            found.update(inside[:LOOKED_AT])
            if len(wanted) > 1:
                found.update(_first(names, some, wanted))
        found.update([at for at in some if wanted in lowered[at]][:LOOKED_AT])
        if len(wanted) > 1:
            found.update(_first(lowered, some, wanted))
        return found


def rank(wanted: str, path: str, used: Mapping[str, int]) -> tuple[int, int, int, int]:
    """Sorts ``path``, which holds the letters of ``wanted`` (in lower case) in order."""
    lowered = path.lower()
    name = name_of(lowered)
    start = len(path) - len(name) if len(lowered) == len(path) else len(path)
    kind, gaps = _kind(wanted, lowered, name, path[start:])
    return kind, -used.get(path, 0), gaps, len(path)


def _kind(wanted: str, lowered: str, name: str, shown: str) -> tuple[Kind, int]:
    """How the path matches and how many letters stand between those that do."""
    bare = name.rstrip("/")
    kind, gaps = Kind.PATH_LETTERS, 0
    if wanted in {lowered, name, bare, bare.rpartition(".")[0]}:
        kind = Kind.WHOLE
    elif name.startswith(wanted) or ("/" in wanted and f"/{wanted}" in f"/{lowered}"):
        kind = Kind.NAME_START
    elif _begins_word(wanted, name, shown):
        kind = Kind.NAME_WORD
    elif (found := _by_words(wanted, name, shown)) is not None:
        kind, gaps = Kind.NAME_WORDS, found
    elif wanted in name:
        kind = Kind.IN_NAME
    elif "/" in wanted and (found := _by_words(wanted, lowered, "")) is not None:
        kind, gaps = Kind.IN_NAME, found
    elif wanted in lowered:
        kind = Kind.IN_PATH
    elif (found := _by_words(wanted, lowered, "")) is not None:
        kind, gaps = Kind.PATH_WORDS, found
    elif (found := _spread(wanted, name)) is not None:
        kind, gaps = Kind.NAME_LETTERS, found
    else:
        gaps = _spread(wanted, lowered) or 0
    return kind, gaps


def _begins_word(wanted: str, text: str, shown: str) -> bool:
    at = text.find(wanted)
    while at >= 0:
        if _is_start(text, shown, at):
            return True
        at = text.find(wanted, at + 1)
    return False


def _is_start(text: str, shown: str, at: int) -> bool:
    """Whether a word begins at ``at``; ``shown`` is ``text`` with its capitals, or empty."""
    if at == 0 or text[at - 1] in _BREAKS:
        return True
    if len(shown) == len(text) and shown[at].isupper() and not shown[at - 1].isupper():
        return True
    return text[at].isdigit() and not text[at - 1].isdigit()


def _by_words(wanted: str, text: str, shown: str) -> int | None:
    """Letters passed over when each one typed goes on with a word or begins one; else ``None``.

    A slash stands for the end of a part; what comes after it begins the next part.
    """
    at, first = -2, -1
    for letter in wanted:
        if text[at + 1 : at + 2] == letter and at >= 0:
            at += 1
            continue
        if at >= 0 and text[at] == "/" and "/" in wanted:
            return None
        if letter == "/" and first >= 0:
            at = text.find("/", at)
            if at < 0:
                return None
            continue
        at = text.find(letter, max(at + 1, 0))
        while at >= 0 and not _is_start(text, shown, at):
            at = text.find(letter, at + 1)
        if at < 0:
            return None
        first = at if first < 0 else first
    return at + 1 - first - len(wanted)


def _spread(wanted: str, text: str) -> int | None:
    """The fewest letters passed over that a look forward and back finds; ``None``: no match."""
    at = -1
    for letter in wanted:
        at = text.find(letter, at + 1)
        if at < 0:
            return None
    end = at + 1
    first = end
    for letter in reversed(wanted):
        first = text.rfind(letter, 0, first)
    return end - first - len(wanted)


def _first(texts: Sequence[str], some: Sequence[int], wanted: str) -> list[int]:
    """The first of ``some`` whose text holds the letters in order."""
    matches = subsequence(wanted).match
    found: list[int] = []
    for at in some:
        if matches(texts[at]):
            found.append(at)
            if len(found) == LOOKED_AT:
                break
    return found


def subsequence(wanted: str) -> re.Pattern[str]:
    """Matches texts with the letters of ``wanted`` in order, in time linear in the text."""
    steps = (f"[^{re.escape(letter)}]*+{re.escape(letter)}" for letter in wanted)
    return re.compile("".join(steps), re.DOTALL)


def name_of(path: str) -> str:
    """The last part of a path; of a directory with its slash."""
    return path[path.rfind("/", 0, len(path) - 1) + 1 :]


def _lowered(path: str) -> str:
    lowered = path.lower()
    return path if lowered == path else lowered


def _mask(text: str) -> int:
    """A bit for each letter that ``text`` holds."""
    mask = 0
    for char in set(text):
        mask |= _BIT.get(char, _OTHER)
    return mask
