"""What the terminal can show: colour, text attributes, symbols, cursor movement.

Law: no meaning is carried by colour alone (UI-10), so every style may be switched off. With
``NO_COLOR`` bold and italic stay; with ``TERM=dumb`` or without a terminal the text is plain.
By default colours are the terminal's own sixteen, which suit light and dark backgrounds alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from agentcli.domain.values import frozen

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
ADDED_WORD = 262144
REMOVED_WORD = 524288
MARKER = 1048576
TINT = 2097152

# style bit -> (attribute code, colour code); an empty one is left out
_CODES: Mapping[int, tuple[str, str]] = {
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
    ADDED_WORD: ("4", ""),
    REMOVED_WORD: ("4", ""),
    MARKER: ("", "36"),
    TINT: ("", "97;100"),
}
# what a theme changes; the rest are the terminal's own sixteen colours
_PALETTES: Mapping[str, Mapping[int, str]] = {
    "dark": {LINK: "94", HEADING: "95", KEYWORD: "95", NAME: "94", ERROR: "91"},
    "light": {WARNING: "38;5;130", STRING: "38;5;28", CODE: "38;5;24", ADDED: "38;5;28",
              OK: "38;5;28", NUMBER: "38;5;24", ACCENT: "38;5;24"},
    "high-contrast": dict.fromkeys(
        (CODE, LINK, HEADING, KEYWORD, STRING, NUMBER, NAME, ACCENT), ""
    ) | {OK: "92", ERROR: "91", WARNING: "93", ADDED: "92", REMOVED: "91"},
    # blue and orange instead of green and red: told apart by all kinds of colour blindness
    "daltonized": {OK: "38;5;33", ADDED: "38;5;33", STRING: "38;5;33", ERROR: "38;5;208",
                   REMOVED: "38;5;208", WARNING: "38;5;220"},
}  # fmt: skip
# soft backgrounds, with letters that can be read on them, where the terminal has 256 colours; with
# all colours the two of a diff are softer still
_SOFT: Mapping[str, Mapping[int, tuple[str, str]]] = {
    "dark": {TINT: ("", "38;5;255;48;5;237"), ADDED_WORD: ("", "48;5;22"),
             REMOVED_WORD: ("", "48;5;52")},
    "light": {TINT: ("", "38;5;16;48;5;254"), ADDED_WORD: ("", "48;5;194"),
              REMOVED_WORD: ("", "48;5;224")},
    "daltonized": {TINT: ("", "38;5;255;48;5;237"), ADDED_WORD: ("", "48;5;17"),
                   REMOVED_WORD: ("", "48;5;94")},
    "high-contrast": {TINT: ("1", ""), ADDED_WORD: ("7", ""), REMOVED_WORD: ("7", "")},
    "none": {},
}  # fmt: skip
_SOFTEST: Mapping[str, Mapping[int, tuple[str, str]]] = {
    "dark": {ADDED_WORD: ("", "48;2;33;66;42"), REMOVED_WORD: ("", "48;2;84;38;42")},
    "light": {ADDED_WORD: ("", "48;2;205;240;210"), REMOVED_WORD: ("", "48;2;255;218;216")},
}
THEMES = ("auto", *_PALETTES, "none")
RESET = "\x1b[0m"


@frozen
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
    todo: str = "☐"
    done: str = "☑"
    code: str = "▎"
    wrap: str = "↪"
    answer: str = "◆"
    thinking: str = "◇"
    refused: str = ""  # a call that was; empty: as one that failed
    you: str = ""  # before an answer of the user; empty: below the branch


SPOKEN = Symbols(
    call="Tool:",
    failed="Failed:",
    stopped="Stopped:",
    branch="Result:",
    bullet="-",
    bar=">",
    rule="",
    dot="-",
    more="...",
    cross="",
    todo="to do:",
    done="done:",
    code="",
    wrap="",
    answer="",
    thinking="",
    refused="Refused:",
    you="You:",
)
"""Words in place of signs, no lines and no boxes: for what is read aloud (UI-10).

A table without a ``cross`` is not drawn: each cell is a line of its own.
"""

ASCII = Symbols(
    "*", "x", "#", "`", "*", "|", "-", "-", "...", "+", "[ ]", "[x]", "|", ">", "*", "~"
)


class Theme:
    """How to show a style. ``live`` says whether lines may be redrawn.

    ``soft`` names the backgrounds of the theme ``auto``: of ``dark`` or ``light``, or none where
    the terminal has sixteen colours; ``deep``: it has all.
    """

    __slots__ = (
        "_cache",
        "_codes",
        "_deep",
        "_soft",
        "attributes",
        "color",
        "live",
        "name",
        "symbols",
    )

    def __init__(
        self,
        *,
        color: bool,
        attributes: bool,
        live: bool,
        symbols: Symbols | None = None,
        soft: str = "",
        deep: bool = False,
    ) -> None:
        self.color = color
        self.attributes = attributes
        self.live = live
        self.symbols = symbols or Symbols()
        self._soft, self._deep = soft if color else "", deep
        self.use("auto")

    def use(self, name: str) -> None:
        """Take the colours of the theme ``name``; what is painted later has them."""
        if name not in THEMES:
            raise ValueError(f"no theme {name}")
        colors = _PALETTES.get(name, {})
        self.name = name
        self._codes = {
            bit: (
                "" if bit in {DIM, COMMENT} and name == "high-contrast" else attribute,
                "" if name == "none" else colors.get(bit, color),
            )
            for bit, (attribute, color) in _CODES.items()
        }
        if self._soft or name == "high-contrast":
            kind = name if name in _SOFT else self._soft
            self._codes |= {**_SOFT[kind], **(_SOFTEST.get(kind, {}) if self._deep else {})}
        self._cache: dict[int, str] = {0: ""}

    def start(self, style: int) -> str:
        """The sequence that switches from plain to ``style`` (bits of this module)."""
        sequence = self._cache.get(style)
        if sequence is None:
            found = [
                code
                for bit, (attribute, color) in self._codes.items()
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


def theme_for(stream: TextIO, env: Mapping[str, str], name: str = "auto") -> Theme:
    """The theme ``name`` for what is written to ``stream`` in the environment ``env``.

    ``NO_COLOR``: https://no-color.org (set and not empty).
    """
    terminal = stream.isatty() and env.get("TERM", "") not in {"dumb", "unknown"}
    try:
        "●└─│•…".encode(stream.encoding or "ascii")
        symbols = Symbols()
    except (UnicodeEncodeError, LookupError):
        symbols = ASCII
    theme = Theme(
        color=terminal and not env.get("NO_COLOR"),
        attributes=terminal,
        live=terminal,
        symbols=symbols,
        soft=_soft(env),
        deep=env.get("COLORTERM") in _ALL_COLORS,
    )
    if name != "auto":
        theme.use(name)
    return theme


_ALL_COLORS = frozenset({"truecolor", "24bit"})


def _soft(env: Mapping[str, str]) -> str:
    """The backgrounds for a terminal with 256 colours; rxvt, konsole and others tell theirs."""
    deep = "256color" in env.get("TERM", "") or env.get("COLORTERM") in _ALL_COLORS
    background = env.get("COLORFGBG", "").rpartition(";")[2]
    return "" if not deep else "light" if background in {"7", "15"} else "dark"
