"""Colours for code, one line at a time; the lexers are those of Rich's ``Syntax``.

Law: the line's characters come back unchanged and in order, only coloured; the cost is linear in
the text. Lexers know no pause between lines, so the lines of an open string or comment are read
again with each further line, at most ``MAX_REREAD`` of them.
"""

from __future__ import annotations

from typing import Any

from agentcli.ui.theme import (
    ADDED,
    BOLD,
    COMMENT,
    DIM,
    KEYWORD,
    NAME,
    NUMBER,
    REMOVED,
    STRING,
)

Span = tuple[str, int]

MAX_COLORED_CHARS = 2000
MAX_REREAD = 40

_STYLES = (
    ("Token.Comment", COMMENT),
    ("Token.Keyword", KEYWORD),
    ("Token.Operator.Word", KEYWORD),
    ("Token.Name.Tag", KEYWORD),
    ("Token.Literal.String", STRING),
    ("Token.Literal.Number", NUMBER),
    ("Token.Name.Function", NAME),
    ("Token.Name.Class", NAME),
    ("Token.Name.Decorator", NAME),
    ("Token.Name.Builtin", NAME),
    ("Token.Name.Attribute", NAME),
    ("Token.Generic.Inserted", ADDED),
    ("Token.Generic.Deleted", REMOVED),
    ("Token.Generic.Heading", BOLD),
    ("Token.Generic.Subheading", DIM),
)


class Highlighter:
    """Colours the lines of one code block in ``language``; plain when it is not known."""

    __slots__ = ("_lexer", "_open", "_styles")

    def __init__(self, language: str) -> None:
        self._lexer = _lexer(language)
        self._open: list[str] = []
        self._styles: dict[Any, int] = {}

    def line(self, line: str) -> list[Span]:
        """The spans of the next line (without its line feed)."""
        if self._lexer is None or len(line) > MAX_COLORED_CHARS or not line.strip():
            return [(line, 0)]
        before = "".join(f"{earlier}\n" for earlier in self._open)
        skip = len(before)
        out: list[Span] = []
        style = 0
        for start, kind, value in self._lexer.get_tokens_unprocessed(f"{before}{line}\n"):
            style = self._style(kind)
            shown = value[max(0, skip - start) :].rstrip("\n")
            if shown:
                out.append((shown, style))
        inside = style in {STRING, COMMENT} and self._ends_inside(before, line)
        self._open = [*self._open, line][-MAX_REREAD:] if inside else []
        if "".join(text for text, _ in out) != line:
            return [(line, 0)]
        return out

    def _ends_inside(self, before: str, line: str) -> bool:
        """Whether a string or comment goes on after the line: a probe letter takes its style."""
        if self._lexer is None:
            return False
        text = f"{before}{line}\nx"
        last = 0
        for start, kind, value in self._lexer.get_tokens_unprocessed(text):
            if start + len(value) >= len(text):
                last = self._style(kind)
        return last in {STRING, COMMENT}

    def _style(self, kind: Any) -> int:
        style = self._styles.get(kind)
        if style is None:
            name = str(kind)
            style = next((bits for prefix, bits in _STYLES if name.startswith(prefix)), 0)
            self._styles[kind] = style
        return style


def _lexer(language: str) -> Any:
    if not language or language.lower() in {"text", "txt", "plain", "plaintext", "console"}:
        return None
    from rich.syntax import Syntax

    return Syntax("", language).lexer


def language_of(path: str) -> str:
    """The language of the file ``path``, by its name; empty when it is not known."""
    if "." not in path.rpartition("/")[2].lstrip("."):
        return ""
    from rich.syntax import Syntax

    found = Syntax.guess_lexer(path)
    return "" if found in {"default", "text"} else found
