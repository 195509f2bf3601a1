"""Text from models, tools and files on its way to the terminal (SEC-10, SEC-6).

Law: what ``clean`` and ``Sanitizer`` return holds no escape sequence, no C0 control but line feed
and tab, no C1 control, no DEL, no carriage return, no lone surrogate and none of the characters
that reorder text or hide it in tags; plain text comes back unchanged. Text that is cut into
chunks anywhere gives the same result as the whole. ``reveal`` hides nothing instead: each
character that cannot be seen is spelt out.

An escape string (OSC, DCS, ...) without an end within ``MAX_STRING`` characters loses only its
introducer: what follows is shown, never swallowed.
"""

from __future__ import annotations

import json
import re
from io import StringIO

from agentcli.domain.clean import reveal
from agentcli.domain.patterns import LazyPattern

__all__ = ["Sanitizer", "clean", "clean_line", "indented", "reveal", "safe_json"]
MAX_STRING = 4096

_BIDI = "\u202a-\u202e\u2066-\u2069"
_TAGS = "\U000e0000-\U000e007f"
_SUSPECT = LazyPattern(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_BIDI}{_TAGS}]")

_STRING_START = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])"
_STRING_BODY = rf"[^\x07\x1b\x90\x98\x9b-\x9f]{{0,{MAX_STRING}}}"
_COMPLETE = "|".join(
    (
        rf"{_STRING_START}{_STRING_BODY}(?:\x07|\x1b\\|\x9c)",
        r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]",
        r"\x1b[ -/]{1,8}[0-~]",
        r"\r\n",
        "[\ud800-\udbff][\udc00-\udfff]",
    )
)
_PARTIAL = "|".join(
    (
        rf"{_STRING_START}{_STRING_BODY}\x1b?\Z",
        r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}\Z",
        r"\x1b[ -/]{0,8}\Z",
        r"\r\Z",
        r"[\ud800-\udbff]\Z",
    )
)
_REST = f"\x1b[0-~]?|{_SUSPECT.pattern}"
_WHOLE = LazyPattern(f"{_COMPLETE}|{_REST}")
_MANY_CHARS = 1_000_000
_INDENTED = json.JSONEncoder(ensure_ascii=False, indent=2)
_SPACES = (0x9, 0xA, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
_BLANKS = dict.fromkeys(_SPACES, " ")
_STREAM = LazyPattern(f"{_COMPLETE}|(?P<partial>{_PARTIAL})|{_REST}")


def clean(text: str) -> str:
    """``text`` safe to print."""
    if _SUSPECT.search(text) is None:
        return text
    return _WHOLE.sub(_replacement, text)


def clean_line(text: str) -> str:
    """``text`` safe to print in one line: runs of white space become one space."""
    line = clean(text)
    if len(line) <= _MANY_CHARS:
        return " ".join(line.split())
    line = line.translate(_BLANKS)  # its words, each by itself, take many times its size
    while "  " in line:
        line = line.replace("  ", " ")
    return line.strip()


def indented(value: object, margin: str = "\n") -> str:
    """``value`` as JSON of several lines, each begun by ``margin``; see ``safe_json``."""
    if isinstance(value, str):
        return _INDENTED.encode(value)
    out = StringIO()  # a list of all its pieces would take many times its size
    for piece in _INDENTED.iterencode(value):
        out.write(piece.replace("\n", margin))
    return out.getvalue()


def safe_json(text: str) -> str:
    """The JSON document ``text`` with all that ``clean`` takes out escaped: the same value."""
    return _SUSPECT.sub(lambda found: json.dumps(found[0])[1:-1], text)


class Sanitizer:
    """``clean`` for text that comes in chunks; a sequence split over chunks is held back."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, chunk: str) -> str:
        """What can be printed now."""
        if not self._held and _SUSPECT.search(chunk) is None:
            return chunk
        text = self._held + chunk
        self._held = ""
        out: list[str] = []
        position = 0
        for found in _STREAM.finditer(text):
            out.append(text[position : found.start()])
            position = found.end()
            if found["partial"] is not None:
                self._held = found[0]
                break
            out.append(_replacement(found))
        out.append(text[position:])
        return "".join(out)

    def finish(self) -> str:
        """What was held back, judged as it stands; ready for the next text."""
        rest, self._held = self._held, ""
        return clean(rest)


def _replacement(found: re.Match[str]) -> str:
    text = found[0]
    if text in {"\r", "\r\n", "\u2028", "\u2029"}:
        return "\n"
    if "\ud800" <= text[0] <= "\udfff":
        if len(text) == 1:
            return "\ufffd"
        high, low = ord(text[0]) - 0xD800, ord(text[1]) - 0xDC00
        return chr(0x10000 + (high << 10) + low)
    return ""
