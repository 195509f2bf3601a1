"""What a bash text would run, as values, and the value of one word (SEC-4).

Law: a word is text only when bash would certainly pass exactly that text, in every directory and
with every environment; expansions, globs, braces and tildes make it ``None``.
"""

from __future__ import annotations

import re
from dataclasses import field

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen

_SPECIAL = frozenset("$`*?[{()<>|&;~#!} \t\n\r")
_SPECIAL_AT_START = frozenset("~#!")  # elsewhere in a word they stand for themselves
_WHOLE_WORDS = frozenset({"[", "]", "[[", "]]", "{", "}", "!"})  # never expanded when alone
_TILDE_AFTER = frozenset("=:")
_PAST_ASCII = 0x80
_ANSI_C = LazyPattern(r"\$'((?:[^'\\]|\\.)*+)'", re.DOTALL)
_ANSI_ESCAPE = LazyPattern(
    r"\\(?:([0-7]{1,3})|(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8}))|c([A-Za-z])|(.))",
    re.DOTALL,
)
_ANSI_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_ESCAPED_IN_DOUBLE_QUOTES = frozenset('$`"\\')


@frozen
class Redirection:
    """One redirection: ``target`` is ``None`` when it is not statically known.

    A duplication such as ``2>&1`` has the operator ``>&``, a number as its target, and writes
    nothing by itself. Heredocs and here-strings have no target, but the ``text`` that they give
    to read, as it is written.
    """

    operator: str
    target: str | None
    writes: bool
    text: str | None = None


GIVE_WORDS = frozenset({"xargs", "gxargs", "parallel"})
"""Programs that give another one the words that they read."""


@frozen
class SimpleCommand:
    """One program call with all that bash would do around it.

    ``words`` are the arguments as the program sees them (``None``: not statically known), empty
    for a bare assignment or redirection. ``text`` is its source without redirections.
    ``wrappers`` are the programs looked through to reach it, the outermost first; each of those
    calls is listed as a command of its own. ``sources`` are the words as they are written. ``at``
    is the byte where it starts (-1: it is a part of another one's words); ``upstream`` is where
    each earlier stage of its pipeline does, ``None`` outside of one.
    """

    words: tuple[str | None, ...]
    text: str
    assignments: tuple[str, ...] = ()
    redirections: tuple[Redirection, ...] = ()
    wrappers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    at: int = field(default=-1, compare=False)
    upstream: tuple[int, ...] | None = field(default=None, compare=False)

    @property
    def fed(self) -> tuple[str, ...]:
        """What here-documents, of what encloses it, too, may give it to read."""
        return tuple(each.text for each in self.redirections if each.text is not None)

    @property
    def program(self) -> str:
        """The name of the program, without its directory; empty where there is or is known none."""
        return (self.words[0] or "").rpartition("/")[2] if self.words else ""


@frozen
class Loop:
    """``for variable in sources``, from one byte to another."""

    variable: str
    sources: tuple[str, ...]
    start: int
    end: int


@frozen
class ParsedCommand:
    """Every simple command that the text holds, in source order.

    ``understood`` is false when bash may do something that is not listed: then the user must be
    asked, and ``why_not`` says why. The list is still as full as can be, for deny rules.
    ``plain`` means: nothing but lists and pipes of commands whose words are all known; ``kinds``
    are the kinds of syntax beyond that, and ``loops`` give names to words. ``subshells`` are where
    each starts and ends, in the text's bytes: a directory that is changed there counts there alone.
    """

    commands: tuple[SimpleCommand, ...]
    understood: bool
    why_not: str = ""
    plain: bool = False
    kinds: frozenset[str] = frozenset()
    loops: tuple[Loop, ...] = ()
    subshells: tuple[tuple[int, int], ...] = ()


def unquote(source: str) -> str | None:
    """The value of the word written as ``source``, or ``None`` when it is not certain."""
    if source in _WHOLE_WORDS:
        return source
    out: list[str] = []
    at, end = 0, len(source)
    while at < end:
        char = source[at]
        if char in "'\"\\$":
            piece = _quoted(source, at)
            if piece is None:
                return None
            out.append(piece[0])
            at = piece[1]
        elif char in _SPECIAL and not _stands_for_itself(source, at):
            return None
        else:
            out.append(char)
            at += 1
    return "".join(out)


def within_quotes(source: str) -> str:
    """What double quotes hold, with what the shell would expand in it as it is written."""
    return re.sub(r'\\([$`"\\])|"', r"\1", source)


def _quoted(source: str, at: int) -> tuple[str, int] | None:
    """The text of what is quoted at ``at``, and where to go on."""
    if source[at] == '"':
        return _double_quoted(source, at + 1)
    if source[at] == "\\":
        return None if source[at + 1 : at + 2] in {"", "\n"} else (source[at + 1], at + 2)
    if source[at] == "'":
        close = source.find("'", at + 1)
        return None if close < 0 else (source[at + 1 : close], close + 1)
    found = _ANSI_C.match(source, at)
    text = _ANSI_ESCAPE.sub(_ansi_c, found[1]) if found else "\0"
    return None if found is None or "\0" in text else (text, found.end())


def _double_quoted(source: str, at: int) -> tuple[str, int] | None:
    """The text from ``at`` to the closing quote, and where to go on."""
    out: list[str] = []
    end = len(source)
    while at < end:
        char = source[at]
        if char == '"':
            return "".join(out), at + 1
        if char in "$`":
            return None
        if char == "\\":
            if at + 1 >= end or source[at + 1] == "\n":
                return None
            escaped = source[at + 1] in _ESCAPED_IN_DOUBLE_QUOTES
            out.append(source[at + 1] if escaped else source[at : at + 2])
            at += 2
            continue
        out.append(char)
        at += 1
    return None


def _ansi_c(found: re.Match[str]) -> str:
    """What an escape in ``$'…'`` stands for: bash(1), "ANSI-C Quoting"; NUL: it is not there."""
    octal, *hexadecimals, control, letter = found.groups()
    hexadecimal = next(filter(None, hexadecimals), "")
    if octal or hexadecimal:
        code = int(octal, 8) if octal else int(hexadecimal, 16)
        return chr(code) if code < _PAST_ASCII else "\0"  # bytes that may be no character
    if control:
        return chr(ord(control) & 0x1F)
    return _ANSI_LETTERS.get(letter, "\0")  # bash reads "\\x{2f}" as "/"


def _stands_for_itself(source: str, at: int) -> bool:
    if source[at] in "{}":  # expanded only with a list or a range inside
        inside = source[source.find("{") : source.rfind("}") + 1]
        return "," not in inside and ".." not in inside
    if source[at] not in _SPECIAL_AT_START or at == 0:
        return False
    return source[at] != "~" or source[at - 1] not in _TILDE_AFTER
