"""What the terminal can show: colour, text attributes, symbols, cursor movement.

Law: no meaning is carried by colour alone (UI-10), so every style may be switched off. With
``NO_COLOR`` bold and italic stay; with ``TERM=dumb`` or without a terminal the text is plain.
Colours are the terminal's own sixteen, which suit light and dark backgrounds alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

BOLD = 1
ITALIC = 2
STRIKE = 4
CODE = 8
LINK = 16
HEADING = 32
DIM = 64
KEYWORD = 128
STRING = 256
COMMENT = 512
NUMBER = 1024
NAME = 2048
OK = 4096
ERROR = 8192
WARNING = 16384
ADDED = 32768
REMOVED = 65536
ACCENT = 131072

# style bit -> (attribute code, colour code); an empty one is left out
_CODES = {
    BOLD: ("1", ""),
    ITALIC: ("3", ""),
    STRIKE: ("9", ""),
    CODE: ("", "36"),
    LINK: ("4", "34"),
    HEADING: ("1", "35"),
    DIM: ("2", ""),
    KEYWORD: ("", "35"),
    STRING: ("", "32"),
    COMMENT: ("2", ""),
    NUMBER: ("", "36"),
    NAME: ("", "34"),
    OK: ("", "32"),
    ERROR: ("1", "31"),
    WARNING: ("", "33"),
    ADDED: ("", "32"),
    REMOVED: ("", "31"),
    ACCENT: ("", "36"),
}
RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Symbols:
    """The few signs used, in Unicode or in ASCII."""

    call: str = "●"
    failed: str = "✗"
    stopped: str = "■"
    branch: str = "└"
    bullet: str = "•"
    bar: str = "│"
    rule: str = "─"
    dot: str = "·"
    more: str = "…"
    cross: str = "┼"


ASCII = Symbols("*", "x", "#", "`", "*", "|", "-", "-", "...", "+")


class Theme:
    """How to show a style. ``live`` says whether lines may be redrawn."""

    __slots__ = ("_cache", "attributes", "color", "live", "symbols")

    def __init__(
        self, *, color: bool, attributes: bool, live: bool, symbols: Symbols | None = None
    ) -> None:
        self.color = color
        self.attributes = attributes
        self.live = live
        self.symbols = symbols or Symbols()
        self._cache: dict[int, str] = {0: ""}

    def start(self, style: int) -> str:
        """The sequence that switches from plain to ``style`` (bits of this module)."""
        sequence = self._cache.get(style)
        if sequence is None:
            found = [
                code
                for bit, (attribute, color) in _CODES.items()
                if style & bit
                for code in (attribute if self.attributes else "", color if self.color else "")
            ]
            codes = [code for code in dict.fromkeys(found) if code]
            sequence = f"\x1b[{';'.join(codes)}m" if codes else ""
            self._cache[style] = sequence
        return sequence

    def paint(self, text: str, style: int) -> str:
        """``text`` in ``style``, plain before and after."""
        start = self.start(style)
        return f"{start}{text}{RESET}" if start and text else text


PLAIN = Theme(color=False, attributes=False, live=False)


def theme_for(stream: TextIO, env: Mapping[str, str]) -> Theme:
    """The theme for what is written to ``stream`` in the environment ``env``.

    ``NO_COLOR``: https://no-color.org (set and not empty).
    """
    terminal = stream.isatty() and env.get("TERM", "") not in {"dumb", "unknown"}
    try:
        "●└─│•…".encode(stream.encoding or "ascii")
        symbols = Symbols()
    except (UnicodeEncodeError, LookupError):
        symbols = ASCII
    return Theme(
        color=terminal and not env.get("NO_COLOR"),
        attributes=terminal,
        live=terminal,
        symbols=symbols,
    )
