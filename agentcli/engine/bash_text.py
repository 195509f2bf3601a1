r"""Looks at a bash text before it is parsed, and roughly when it cannot be (SEC-4).

Law: ``why_unreadable`` names every character that a person would not see, or that bash and the
parser may read differently; ``joined`` changes nothing about what bash runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MAX_CHARS = 100_000
_MAX_HEREDOCS = 40
_MAX_DEPTH = 2_000
_MAX_SEGMENTS = 5_000
_ORDINARY = re.compile(r"[\t\n -~]*")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
# what ``joined`` follows: comments, quotes without expansions, escapes, harmless characters
_PIECE = re.compile(
    r"""(?<![^\s;&|()])\#[^\n]* | '[^']*' | "(?:\\.|[^"\\`$])*" | \\. | \$(?=\w)
    | <(?!<) | \[(?!\[) | [^'"\\`$<\[]""",
    re.DOTALL | re.VERBOSE,
)
_SEPARATORS = re.compile(r"[;&|\n(){}`<>]+|\$\(")
_QUOTING = str.maketrans("", "", "'\"\\")
_SKIPPED = frozenset(
    {
        "then", "do", "else", "elif", "if", "while", "until", "!", "time", "coproc", "function",
        "in", "case", "for", "select",
    }
)  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")


def why_unreadable(text: str) -> str:
    """Why this text is not judged by its syntax; empty when it is."""
    if len(text) > MAX_CHARS:
        return f"it is longer than {MAX_CHARS} characters"
    if not _ORDINARY.fullmatch(text):
        for char in text:
            if char not in "\t\n " and unicodedata.category(char) in _HIDDEN:
                return f"it holds the invisible character U+{ord(char):04X}"
    if text.count("<<") > _MAX_HEREDOCS:
        return "it holds too many here-documents"
    if text.count("(") + text.count("{") + text.count("`") > _MAX_DEPTH:
        return "it is nested too deeply"
    return ""


def joined(text: str) -> str:
    r"""``text`` without the line continuations (``\`` at a line's end) that bash removes.

    Stops at what it does not follow: substitutions, here-documents, tests and ``$'…'``.
    """
    if "\\\n" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            break
        if piece[0] != "\\\n":
            inside = piece[0].replace("\\\\", "\0").replace("\\\n", "").replace("\0", "\\\\")
            out.append(inside if piece[0].startswith('"') else piece[0])
        at = piece.end()
    return "".join(out) + text[at:]


def rough_commands(text: str) -> Iterator[tuple[str, ...]]:
    """What may be commands in a text that has no syntax tree: words with the quotes taken off.

    Over-generous on purpose and bounded: for rules that forbid, never for what may run.
    """
    seen: set[str] = set()
    for segment in _segments(text):
        if segment in seen:
            continue
        seen.add(segment)
        if len(seen) > _MAX_SEGMENTS:
            return
        words = segment.translate(_QUOTING).split()
        while words and (words[0] in _SKIPPED or _ASSIGNMENT.match(words[0])):
            del words[0]
        if words:
            yield tuple(words)


def _segments(text: str) -> Iterator[str]:
    at = 0
    for found in _SEPARATORS.finditer(text):
        yield text[at : found.start()].strip()
        at = found.end()
    yield text[at:].strip()
