r"""The regular expressions of ``grep_files``: what Rust's and Python's have in common.

Law: a pattern that ``normalized`` returns means the same to ripgrep and to Python's ``re`` when
it is tried line by line, and whatever it cannot promise that for is refused with advice. On the
way it takes what people write without thinking: a literal ``{``, ``\"``, ``\/``, ``\<``.
Groups lose their names and numbers, since only the line matters.
"""

from __future__ import annotations

import re

MAX_PATTERN_CHARS = 10_000
MAX_REPEAT = 1_000
_SPECIAL = frozenset("\\.+*?()|[]{}^$#&-~")
_CLASS_ESCAPES = frozenset("dDwWsS")
_CONTROL = {"t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_REPEAT = re.compile(r"\{(\d*)(,?)(\d*)\}")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])")
_NAMED = re.compile(r"\(\?P?<\w+>")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-\\~",
    "lower": "a-z",
    "print": " -\\~",
    "punct": "!-/:-@\\[-`\\{-\\~",
    "space": "\\t\\x0b\\x0c\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_ONE_LINE = "a match lies within one line: search for a part of it, or use context"


class BadPattern(ValueError):
    """The pattern cannot be used; the text says why and what to do."""


def normalized(pattern: str) -> str:
    """``pattern`` in the common dialect; raises ``BadPattern``."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"the pattern is longer than {MAX_PATTERN_CHARS} characters")
    if "\0" in pattern or any("\ud800" <= char <= "\udfff" for char in pattern):
        raise BadPattern("the pattern contains characters that cannot be searched for")
    result = _Reader(pattern).read()
    try:
        re.compile(result)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"{error}; escape special characters with a backslash") from None
    return result


class _Reader:
    """Reads a pattern once, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._out: list[str] = []
        self._depth = 0
        self._repeatable = False

    def read(self) -> str:
        self._leading_flags()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\\":
                self._escape()
            elif char == "[":
                self._class()
            elif char == "(":
                self._group()
            elif char in "*+?{":
                self._repeat(char)
            else:
                self._plain(char)
        if self._depth:
            raise BadPattern("a ( is never closed; write \\( for a literal one")
        return "".join(self._out)

    def _put(self, text: str, *, repeatable: bool = True) -> None:
        self._out.append(text)
        self._repeatable = repeatable

    def _plain(self, char: str) -> None:
        self._at += 1
        if char == "\n":
            raise BadPattern(_ONE_LINE)
        if char == ")":
            if not self._depth:
                raise BadPattern("a ) closes nothing; write \\) for a literal one")
            self._depth -= 1
            self._put(char)
        elif char in "^$|":
            self._put(char, repeatable=False)
        else:
            self._put("\\" + char if char in "]}" else char)

    def _leading_flags(self) -> None:
        flags = ""
        while match := _FLAGS.match(self._text, self._at):
            if match[3] != ")":
                break
            if match[2]:
                raise BadPattern("flags can only be set at the start, as in (?i)")
            flags += _known_flags(match[1])
            self._at = match.end()
        if flags:
            self._put(f"(?{''.join(sorted(set(flags)))})", repeatable=False)

    def _group(self) -> None:
        match = _FLAGS.match(self._text, self._at)
        named = _NAMED.match(self._text, self._at)
        opening, end = "(?:", self._at + 1
        if match is not None:
            if match[3] == ")":
                raise BadPattern("put (?i) at the start of the pattern, or write (?i:...)")
            flags = _known_flags(match[1])
            off = "".join(flag for flag in _known_flags((match[2] or "-")[1:]) if flag not in flags)
            opening = f"(?{flags}{'-' if off else ''}{off}:"
            end = match.end()
        elif named is not None:
            end = named.end()
        elif self._text.startswith("(?", self._at):
            raise BadPattern("look-around, atomic groups and conditions are not supported")
        self._depth += 1
        self._at = end
        self._put(opening, repeatable=False)

    def _repeat(self, char: str) -> None:
        match = _REPEAT.match(self._text, self._at)
        if char == "{" and (match is None or not (match[1] or match[3])):
            self._at += 1
            self._put("\\{")
            return
        if not self._repeatable:
            raise BadPattern(f"{char} has nothing to repeat; write \\{char} for a literal one")
        self._at += 1
        operator = char
        if match is not None and char == "{":
            low, comma, high = match.groups()
            if max(int(low or 0), int(high or 0)) > MAX_REPEAT:
                raise BadPattern(f"a repetition is limited to {MAX_REPEAT}")
            self._at = match.end()
            operator = f"{{{low or 0}{comma}{high}}}"
        if self._text.startswith("?", self._at):
            self._at += 1
            operator += "?"
        self._put(operator, repeatable=False)

    def _escape(self) -> None:
        char = self._text[self._at + 1 : self._at + 2]
        if char and char in _CLASS_ESCAPES:
            self._at += 2
            self._put("\\" + char)
        elif char and char in "bBAzZ":
            self._at += 2
            anchors = {"A": "^", "z": "$", "Z": "$"}
            self._put(anchors.get(char, "\\" + char), repeatable=False)
        else:
            self._put(_literal(self._escaped_char()))

    def _escaped_char(self) -> str:
        """The one character that the escape at this place stands for."""
        char = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if not char:
            raise BadPattern("a \\ at the end escapes nothing; write \\\\ for a literal one")
        if char in _HEX_DIGITS:
            return self._code_point(char)
        if char in _CONTROL:
            return _CONTROL[char]
        if char in "n\n":
            raise BadPattern(_ONE_LINE)
        if char.isdigit():
            raise BadPattern("back-references are not supported")
        if char in "pP":
            raise BadPattern("\\p{...} is not supported; use \\w, \\d, \\s or list the characters")
        if char.isascii() and char.isalpha():
            raise BadPattern(f"\\{char} is not supported")
        return char

    def _code_point(self, kind: str) -> str:
        match = re.compile(
            rf"\{{([0-9a-fA-F]{{1,8}})\}}|([0-9a-fA-F]{{{_HEX_DIGITS[kind]}}})"
        ).match(self._text, self._at)
        if match is None:
            raise BadPattern(f"\\{kind} needs {_HEX_DIGITS[kind]} hexadecimal digits, or {{...}}")
        self._at = match.end()
        number = int(match[1] or match[2], 16)
        if number == ord("\n"):
            raise BadPattern(_ONE_LINE)
        if not number or number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:  # noqa: PLR2004 - Unicode
            raise BadPattern(f"there is no text with the character {number:#x}")
        return chr(number)

    def _class(self) -> None:
        self._at += 1
        items: list[str] = []
        opening = "["
        if self._text.startswith("^", self._at):
            opening = "[^"
            self._at += 1
        while not items or not self._text.startswith("]", self._at):
            items.append(self._class_item())
        self._at += 1
        self._put(opening + "".join(items) + "]")

    def _class_item(self) -> str:
        posix = _POSIX_CLASS.match(self._text, self._at)
        if posix is not None:
            if posix[1] or posix[2] not in _POSIX:
                raise BadPattern(f"{posix[0]} is not supported")
            self._at = posix.end()
            return _POSIX[posix[2]]
        if self._text[self._at : self._at + 1] == "\\":
            char = self._text[self._at + 1 : self._at + 2]
            if char and char in _CLASS_ESCAPES:
                self._at += 2
                return "\\" + char
        first = self._class_char()
        after = self._text[self._at + 1 : self._at + 2]
        is_range = self._text.startswith("-", self._at) and after not in {"]", ""}
        if not is_range:
            return _literal(first)
        self._at += 1
        if after == "[" or (after == "\\" and self._text[self._at + 1 :][:1] in _CLASS_ESCAPES):
            return f"{_literal(first)}\\-"
        last = self._class_char()
        if first > last:
            raise BadPattern(f"the range {first}-{last} is empty")
        return f"{_literal(first)}-{_literal(last)}"

    def _class_char(self) -> str:
        if self._at >= len(self._text):
            raise BadPattern("a [ is never closed; write \\[ for a literal one")
        if self._text[self._at] == "\\":
            if self._text.startswith("\\b", self._at):
                raise BadPattern("\\b has no meaning inside [...]")
            return self._escaped_char()
        char = self._text[self._at]
        if char == "\n":
            raise BadPattern(_ONE_LINE)
        self._at += 1
        return char


def _known_flags(flags: str) -> str:
    """The flags that matter line by line; raises for those that only one of the two knows."""
    for flag in flags:
        if flag not in "ims":
            raise BadPattern(f"the flag {flag} is not supported, only i is of use here")
    return "".join(sorted(set(flags) & {"i"}))


def _literal(char: str) -> str:
    if char in _SPECIAL:
        return "\\" + char
    return char if char.isprintable() else f"\\x{ord(char):02x}" if ord(char) <= 0xFF else char  # noqa: PLR2004 - two digits
