r"""Looks at a bash text before it is parsed, and roughly when it cannot be (SEC-4).

Law: ``why_unreadable`` names every character that a person would not see, or that bash and the
parser may read differently; ``joined`` changes nothing about what bash runs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

MAX_CHARS = 100_000
MAX_TOKENS = 1_500
_EXPANDING = re.compile(r"[$`\\]")
_MAX_HEREDOCS = 40
_MAX_SEGMENTS = 5_000
_ORDINARY = re.compile(r"[\t\n -~]*")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
# what ``joined`` follows: comments, quotes without expansions, escapes, harmless characters
_PIECE = re.compile(
    r"""(?<![^\s;&|()])\#[^\n]* | '[^']*' | "(?:\\.|[^"\\`$])*" | \\. | \$(?=\w)
    | <(?!<) | \[(?!\[) | [^'"\\`$<\[]""",
    re.DOTALL | re.VERBOSE,
)
# what the parser reads as one: quoted texts, comments and the bodies of here-documents
_LUMP = re.compile(
    r"""(?P<quoted>'[^']*' | "(?:\\.|[^"\\`$])*") | (?P<comment>(?<![^\s;&|()])\#[^\n]*)
    | <<-?[ ]*(?P<quote>['"]?)(?P<end>[A-Za-z_]\w*)(?P=quote)[^\n'"\\`$<#]*\n
      (?P<body>(?:(?!\t*(?P=end)(?:\n|\Z)).*\n)*)\t*(?P=end)(?=\n|\Z)
    | \\. | (?<![$<])[^'"\\`<\[(] | <(?!<) | \[(?!\[) | (?<![(@?*+!])\((?!\()""",
    re.VERBOSE,
)
_TOKEN = re.compile(r"\w+|[^\w\s]")
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
    return ""


def tokens(text: str) -> int:
    """About how many tokens the parser makes of it: a faulty text costs it their square."""
    return len(text) if len(text) < MAX_TOKENS else len(_TOKEN.findall(text))


def skeleton(text: str) -> str:
    """``text`` with its long quoted parts emptied: short, and no less faulty than the whole."""
    out: list[str] = []
    at = 0
    while at < len(text):
        found = _LUMP.match(text, at)
        if found is None:
            break
        at = found.end()
        body = found["body"]
        if found["quoted"]:
            out.append(found[0][0] + "x" + found[0][0])
        elif body and (found["quote"] or not _EXPANDING.search(body)):
            out.append(found[0].replace(body, "x\n", 1))
        elif not found["comment"]:
            out.append(found[0])
    return "".join(out) + text[at:]


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
        start = 0
        while start < len(words) and (words[start] in _SKIPPED or _ASSIGNMENT.match(words[start])):
            start += 1
        if start < len(words):
            yield tuple(words[start:])


def _segments(text: str) -> Iterator[str]:
    at = 0
    for found in _SEPARATORS.finditer(text):
        yield text[at : found.start()].strip()
        at = found.end()
    yield text[at:].strip()
