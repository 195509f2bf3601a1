"""One bash word as the program would see it (SEC-4).

Law: ``unquote`` answers with text only when bash passes exactly that text, in every directory
and with every environment; expansions, globs, braces and tildes make it ``None``.
"""

from __future__ import annotations

_SPECIAL = frozenset("$`*?[{()<>|&;~#!} \t\n\r")
_SPECIAL_AT_START = frozenset("~#!")  # elsewhere in a word they stand for themselves
_WHOLE_WORDS = frozenset({"[", "]", "[[", "]]", "{", "}", "!"})  # never expanded when alone
_TILDE_AFTER = frozenset("=:")
_ESCAPED_IN_DOUBLE_QUOTES = frozenset('$`"\\')


def unquote(source: str) -> str | None:
    """The value of the word written as ``source``, or ``None`` when it is not certain."""
    if source in _WHOLE_WORDS:
        return source
    out: list[str] = []
    at, end = 0, len(source)
    while at < end:
        char = source[at]
        if char == "'":
            close = source.find("'", at + 1)
            if close < 0:
                return None
            out.append(source[at + 1 : close])
            at = close + 1
        elif char == '"':
            piece = _double_quoted(source, at + 1)
            if piece is None:
                return None
            text, at = piece
            out.append(text)
        elif char == "\\":
            if at + 1 >= end or source[at + 1] == "\n":
                return None
            out.append(source[at + 1])
            at += 2
        elif char in _SPECIAL and not _stands_for_itself(source, at):
            return None
        else:
            out.append(char)
            at += 1
    return "".join(out)


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


def _stands_for_itself(source: str, at: int) -> bool:
    if source[at] in "{}":  # expanded only with a list or a range inside
        return "," not in source and ".." not in source
    if source[at] not in _SPECIAL_AT_START or at == 0:
        return False
    return source[at] != "~" or source[at - 1] not in _TILDE_AFTER
