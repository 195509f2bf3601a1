"""A second reading of plain commands, by hand: words, lists, pipes, nothing else (SEC-4).

Law: it shares no code with the syntax tree but the value of one word. What may run unasked must
be read alike by both, so that a fault in one of them is not enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentcli.domain.values import frozen

_CHARACTER = r"[^\s'\"\\$`<>|&;()#]"
_QUOTED = r"""'[^']*'|"(?:\\[^\n]|[^"\\$`])*"|\\[^\n]"""
_PART = re.compile(
    rf"""
    (?P<blank>[ \t]+)
    | (?P<comment>\#[^\n]*)
    | (?P<redirect>[0-9]?(?:>>?|<)[ \t]*(?=[\w./'"-]) | &>>?[ \t]*(?=[\w./'"-])
        | [0-9]?>&(?=[012](?:[\s|&;]|$)))
    | (?P<join>&&|\|\|?)
    | (?P<end>;|\n)
    | (?P<word>(?:{_CHARACTER}|{_QUOTED})(?:{_CHARACTER}|\#|{_QUOTED})*)
    """,
    re.VERBOSE,
)
_SEPARATING = frozenset({"join", "end"})


@frozen
class PlainCommand:
    """The words as they are written, and the redirections: operator and target as written."""

    words: tuple[str, ...]
    redirections: tuple[tuple[str, str], ...]


class _NotPlainError(Exception):
    """The text is more than lists and pipes of words."""


def read_plain(text: str) -> tuple[PlainCommand, ...] | None:
    """The commands of a plain text; ``None`` when it is anything else."""
    try:
        return tuple(_commands(text))
    except _NotPlainError:
        return None


def _commands(text: str) -> Iterator[PlainCommand]:
    parts: list[tuple[str, str]] = []
    more_must_follow = False
    for kind, part in _parts(text):
        if kind not in _SEPARATING:
            parts.append((kind, part))
            continue
        if parts:
            yield _command(parts)
            parts, more_must_follow = [], kind == "join"
        elif part != "\n":
            raise _NotPlainError
    if more_must_follow:
        raise _NotPlainError


def _parts(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None or found.lastgroup is None:
            raise _NotPlainError
        at = found.end()
        if found.lastgroup not in {"blank", "comment"}:
            yield found.lastgroup, found[0].rstrip(" \t") if found["redirect"] else found[0]
    yield "end", "\n"


def _command(parts: list[tuple[str, str]]) -> PlainCommand:
    words: list[str] = []
    redirections: list[tuple[str, str]] = []
    operator = ""
    for kind, part in parts:
        if kind == "redirect":
            if operator or not words:
                raise _NotPlainError
            operator = part
        elif operator:
            redirections.append((operator, part))
            operator = ""
        else:
            words.append(part)
    if operator:
        raise _NotPlainError
    return PlainCommand(tuple(words), tuple(redirections))
