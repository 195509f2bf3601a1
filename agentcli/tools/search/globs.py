r"""Globs of the model, tried on the paths that a search finds: ``fnmatch``, name by name.

``*``, ``?``, ``[a-z]``, ``[!a]`` stay within a name, ``**`` spans directories, ``{a,b}`` and ``\x``
work as usual. Law: no glob takes more than time in proportion to its length times the path's: of
two ``**`` the first is never reconsidered, which is enough since the second can bridge whatever
lies between; ``fnmatch`` does the same within a name.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

MAX_GLOB_CHARS = 4_096
MAX_ALTERNATIVES = 256
_WILD = frozenset("*?[{\\")
_TOKEN = re.compile(r"\\(?P<escaped>.)|(?P<set>\[[!^]?\]?[^\]]*\])|[{},]|[^\\\[{},]+", re.DOTALL)
_Match = Callable[[str], object] | None  # None: any number of directories


class BadGlob(ValueError):
    """The pattern is malformed; the text says how."""


class PathFilter:
    """Which paths, relative to the place of the search, a glob selects.

    Without a slash it is tried on the name at any depth, else on the whole path. ``!`` in front
    turns it round. ``names_hidden``: a name in it begins with a dot; ``names_everything``: it goes
    through any directory (``**``). Raises ``BadGlob``.
    """

    def __init__(self, glob: str) -> None:
        self._negated = glob.startswith("!")
        glob = glob.removeprefix("!").removeprefix("./")
        self.names_everything = not self._negated and "**" in glob
        if glob.endswith("/"):
            glob += "**"
        if "/" in glob:
            glob = glob.removeprefix("/")
        elif glob != "**":
            glob = f"**/{glob}"
        self._globs = [_matches(each) for each in _expanded(glob)]
        names = re.split(r"[/{,]", "" if self._negated else glob)
        self.names_hidden = any(name.startswith(".") and name not in {".", ".."} for name in names)

    def matches(self, path: str) -> bool:
        """Whether ``path`` (with ``/``, not starting with one) is selected."""
        names = path.split("/")
        return any(_selects(glob, names) for glob in self._globs) is not self._negated


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


def _expanded(glob: str) -> list[str]:
    """What the braces stand for, in ``fnmatch``'s own words."""
    if len(glob) > MAX_GLOB_CHARS:
        raise BadGlob(f"the glob is longer than {MAX_GLOB_CHARS} characters")
    # a stack of (finished alternatives, the alternatives being read) of each open brace
    stack: list[tuple[list[str], list[str]]] = [([], [""])]
    at = 0
    while at < len(glob):
        found = _TOKEN.match(glob, at)
        if found is None:
            raise BadGlob("a [ is never closed" if glob[at] == "[" else "a \\ escapes nothing")
        at = found.end()
        finished, current = stack[-1]
        if found[0] == "{":
            stack.append(([], [""]))
        elif found[0] == "," and len(stack) > 1:
            stack[-1] = (finished + current, [""])
        elif found[0] == "}" and len(stack) > 1:
            stack.pop()
            before, choices = stack[-1][1], finished + current
            if len(before) * len(choices) > MAX_ALTERNATIVES:
                raise BadGlob(f"the braces stand for more than {MAX_ALTERNATIVES} globs")
            stack[-1] = (stack[-1][0], [left + right for left in before for right in choices])
        else:
            text = _in_fnmatch(found)
            stack[-1] = (finished, [alternative + text for alternative in current])
    if len(stack) > 1:
        raise BadGlob("a { is never closed")
    return stack[0][1]


def _in_fnmatch(token: re.Match[str]) -> str:
    if token["escaped"]:
        return f"[{token['escaped']}]" if token["escaped"] in "*?[" else token["escaped"]
    return token[0].replace("[^", "[!", 1) if token["set"] else token[0]


def _matches(glob: str) -> list[_Match]:
    """What each name of a path is tried with."""
    names = glob.split("/")
    if names[-1] == "**":
        names.append("*")  # what is below, not the directory itself
    return [None if name == "**" else re.compile(fnmatch.translate(name)).match for name in names]


def _selects(glob: list[_Match], names: list[str]) -> bool:
    at = tried = 0
    spanning, spanned = -1, 0  # the last ** and how far it reaches
    while at < len(names):
        match = glob[tried] if tried < len(glob) else _never
        if match is None:
            spanning, spanned = tried, at
            tried += 1
        elif match(names[at]):
            at, tried = at + 1, tried + 1
        elif spanning >= 0:
            spanned += 1
            at, tried = spanned, spanning + 1
        else:
            return False
    return tried == len(glob)


def _never(_name: str) -> bool:
    return False
