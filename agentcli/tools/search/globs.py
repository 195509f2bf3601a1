r"""Glob patterns as .gitignore files and ripgrep mean them, made into regular expressions.

``*`` and ``?`` stay within a directory, ``**`` spans them, ``[a-z]``, ``[!a]``, ``{a,b}`` and
``\x`` work as usual. Law: no glob takes more than time in proportion to its length times the
path's: of two wildcards on one level the first takes the nearest match and never reconsiders it
(an atomic group), which is enough since the second can bridge whatever lies between.
Only the standard library: the search worker runs without site-packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

MAX_GLOB_CHARS = 4_096
MAX_ALTERNATIVES = 256
_WILD = frozenset("*?[{\\")
_STAR = "[^/]*"
_DIRECTORIES = "(?:[^/]*/)*"


class BadGlob(ValueError):
    """The pattern is malformed; the text says how."""


@lru_cache(maxsize=1024)
def glob_regex(glob: str) -> re.Pattern[str]:
    """A pattern for ``fullmatch`` on a path with ``/`` between its parts; raises ``BadGlob``."""
    if len(glob) > MAX_GLOB_CHARS:
        raise BadGlob(f"the glob is longer than {MAX_GLOB_CHARS} characters")
    alternatives = [_regex_of_parts(list(_parts(tokens))) for tokens in _expanded(glob)]
    try:
        return re.compile("|".join(f"(?:{each})" for each in alternatives), re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadGlob(str(error)) from None


def _tokens(glob: str) -> Iterator[str]:
    """``/``, ``*`` (any number of stars is kept together), ``{``, ``,``, ``}`` or a regex."""
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "[":
            piece, at = _char_class(glob, at)
            yield piece
            continue
        at += 1
        if char == "*":
            stars = len(glob) - at - len(glob[at:].lstrip("*"))
            at += stars
            yield char * (stars + 1)
        elif char == "\\":
            if at == len(glob):
                raise BadGlob("a \\ at the end escapes nothing")
            yield "/" if glob[at] == "/" else _literal(glob[at])
            at += 1
        elif char == "?":
            yield "[^/]"
        else:
            yield char if char in "/{,}" else _literal(char)


def _literal(char: str) -> str:
    """``char`` as a regex, unlike every token that has a meaning of its own."""
    return f"[{char}]" if char in "*{,}" else re.escape(char)


def _expanded(glob: str) -> list[list[str]]:
    """The token lists that the braces stand for."""
    # a stack of (finished alternatives, the alternative being read) of each open brace
    stack: list[tuple[list[list[str]], list[list[str]]]] = [([], [[]])]
    for item in _tokens(glob):
        finished, current = stack[-1]
        nested = len(stack) > 1
        if item == "{":
            stack.append(([], [[]]))
        elif item == "," and nested:
            stack[-1] = (finished + current, [[]])
        elif item == "}" and nested:
            stack.pop()
            outer_finished, outer = stack[-1]
            choices = finished + current
            if len(outer) * len(choices) > MAX_ALTERNATIVES:
                raise BadGlob(f"the braces stand for more than {MAX_ALTERNATIVES} globs")
            stack[-1] = (outer_finished, [left + right for left in outer for right in choices])
        else:
            piece = _literal(item) if item in {",", "}"} else item
            for alternative in current:
                alternative.append(piece)
    if len(stack) > 1:
        raise BadGlob("a { is never closed")
    return stack[0][1]


def _parts(tokens: list[str]) -> Iterator[list[str]]:
    """The tokens between slashes."""
    part: list[str] = []
    for item in tokens:
        if item == "/":
            yield part
            part = []
        else:
            part.append(item)
    yield part


def _regex_of_parts(parts: list[list[str]]) -> str:
    """Parts between ``**`` are found one group after the other."""
    groups: list[list[list[str]]] = [[]]
    for part in parts:
        if part == ["**"]:
            groups.append([])
        else:
            groups[-1].append(part)
    first, *others = ["/".join(map(_regex_of_part, group)) for group in groups]
    if not others:
        return first
    out = first + "/" if groups[0] else ""
    for regex, group in zip(others[:-1], groups[1:-1], strict=True):
        if group:
            out += f"(?>(?:[^/]*/)*?{regex}/)"
    return out + (f"{_DIRECTORIES}{others[-1]}" if groups[-1] else ".*")


def _regex_of_part(part: list[str]) -> str:
    """One name: what stands before the first star, between stars, after the last."""
    runs: list[str] = [""]
    for token in part:
        if token.startswith("*"):
            runs.append("")
        else:
            runs[-1] += token
    first, *others = runs
    if not others:
        return first
    middle = "".join(f"(?>[^/]*?{run})" for run in others[:-1] if run)
    return f"{first}{middle}{_STAR}{others[-1]}"


def _char_class(glob: str, at: int) -> tuple[str, int]:
    at += 1
    negated = glob[at : at + 1] in {"!", "^"}
    at += negated
    start = at
    items: list[str] = []
    while glob[at : at + 1] != "]" or at == start:
        first, at = _class_char(glob, at)
        last = first
        if glob[at : at + 1] == "-" and glob[at + 1 : at + 2] not in {"]", ""}:
            last, at = _class_char(glob, at + 1)
        if first > last:
            raise BadGlob(f"the range {first}-{last} is empty")
        items.append(f"{re.escape(first)}-{re.escape(last)}")
    return f"(?!/)[{'^' if negated else ''}{''.join(items)}]", at + 1


def _class_char(glob: str, at: int) -> tuple[str, int]:
    if glob[at : at + 1] == "\\":
        at += 1
    if at >= len(glob):
        raise BadGlob("a [ is never closed")
    return glob[at], at + 1


def split_base(glob: str) -> tuple[str, str]:
    """The directory that a glob names before its first wildcard, and the rest, which is anchored.

    ``("src/app", "**/*.py")`` of ``src/app/**/*.py``; ``("", "*.py")`` where there is none.
    """
    parts = glob.split("/")
    count = 0
    while count < len(parts) - 1 and not _WILD & set(parts[count]):
        count += 1
    base = "/".join(parts[:count])
    return ("/" if count and not base else base), "/".join(parts[count:])


class PathFilter:
    """Which paths, relative to the place of the search, a person's glob selects.

    Without a slash it is tried on the name at any depth, else on the whole path. ``!`` in front
    turns it round. Raises ``BadGlob``.
    """

    def __init__(self, glob: str) -> None:
        self._negated = glob.startswith("!")
        glob = glob.removeprefix("!").removeprefix("./")
        if glob.endswith("/"):
            glob += "**"
        if "/" in glob:
            glob = glob.removeprefix("/")
        elif glob != "**":
            glob = f"**/{glob}"
        self._regex = glob_regex(glob)
        names = re.split(r"[/{,]", "" if self._negated else glob)
        self.names_hidden = any(name.startswith(".") and name not in {".", ".."} for name in names)

    def matches(self, path: str) -> bool:
        """Whether ``path`` (with ``/``, not starting with one) is selected."""
        return (self._regex.fullmatch(path) is not None) is not self._negated
