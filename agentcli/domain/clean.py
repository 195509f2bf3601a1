"""Texts, names, ids and JSON values as every provider takes them (HIS-1, HIS-5, HIS-8).

And the few forms of words that several rooms use.

Law: pure; the same input always gives the same output, and a second cleaning changes nothing; a
value that needs no cleaning comes back as the same object.
"""

from __future__ import annotations

import json
import math
import operator
from itertools import islice
from typing import Any

from agentcli.domain.patterns import LazyPattern

# Gemini reads arguments into nested protocol messages, three to a level, of which it takes 100.
MAX_DEPTH = 30
# https://platform.openai.com/docs/api-reference: "string too long ... maximum length 1048576"
MAX_TEXT_BYTES = 1_000_000
MAX_ARGUMENT_BYTES = 500_000
_MAX_INTEGER = 2**63
_TODO_MARKS = {"completed": "[x]", "in_progress": "[>]"}
_ID = LazyPattern(r"[A-Za-z0-9_-]+")
_BAD_IN_NAME = LazyPattern(r"[^A-Za-z0-9_-]")
_NAME_LENGTH = 64
_CUT_NOTE = 100
_SIGNS = r'(?s)[\[{,]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_TOKENS, _BYTE_TOKENS = LazyPattern(_SIGNS), LazyPattern(_SIGNS.encode())
_UNUSUAL = LazyPattern(
    r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff"
    r"\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]|<\|[^|<>\n]{1,40}\|>"
)

_INVISIBLE = LazyPattern(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0e\ufeff\uffa0"
    "\ufff0-\ufffb\ud800-\udfff\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    # which has an emoji in colour, and nothing else
    "|(?<![\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934"
    "\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])\ufe0f"
)


def clean_text(text: str) -> str:
    """``text`` without what no provider takes: lone surrogates and NUL become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def one_line(text: str, limit: int | None = None) -> str:
    """``text`` without line breaks and runs of blanks, in at most ``limit`` characters."""
    line = " ".join(text.split(None, -1 if limit is None else limit))
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def plural(number: int, noun: str) -> str:
    """``1 line``, ``2,000 lines``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def todo_line(status: object, content: str) -> str:
    """A thing to do of the session's list (``write_todos``) in one line."""
    return f"{_TODO_MARKS.get(str(status), '[ ]')} {content}"


def plain_text(text: str) -> str:
    """``text`` without control and format characters and marks of chat templates.

    Most providers take them; this is for the one that does not.
    """
    return _UNUSUAL.sub("\ufffd", text)


def reveal(text: str) -> str:
    """``text`` with each character that cannot be seen spelt out as ``<U+202E>`` (SEC-6).

    Line feeds and tabs stay.
    """
    return _INVISIBLE.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def clean_name(name: str) -> str:
    """``name`` as every provider takes the name of a tool: ``^[a-zA-Z0-9_-]{1,64}$``."""
    return _BAD_IN_NAME.sub("_", name)[:_NAME_LENGTH] or "unknown"


def clean_id(call_id: str, max_length: int = 64) -> str:
    """``call_id`` itself where it is ``^[A-Za-z0-9_-]{1,64}$``, else one that stands for it."""
    is_clean = len(call_id) <= max_length and _ID.fullmatch(call_id)
    return call_id if is_clean else f"call_{digest(call_id)}"


def digest(text: str | bytes, length: int = 24) -> str:
    """Hexadecimal digits that stand for ``text``."""
    from hashlib import sha256

    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return sha256(data).hexdigest()[:length]


def cut_text(text: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """``text`` in at most ``max_bytes`` of UTF-8: head and tail, and between them what was cut."""
    if len(text) * 4 <= max_bytes:
        return text
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size <= max_bytes:
        return text
    half = max(max_bytes - _CUT_NOTE, 0) // 2
    head = _within(text[:half], half)
    tail = _within(text[-half:][::-1], half)[::-1] if half else ""
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[{left_out:,} of {len(text):,} characters are left out here]\n{tail}"


def _within(text: str, max_bytes: int) -> str:
    """The longest beginning of ``text`` that fits."""
    if text.isascii():
        return text[:max_bytes]
    data = text.encode("utf-8", "surrogatepass")[:max_bytes]
    while data and data[-1] & 0xC0 == 0x80:  # noqa: PLR2004 - a byte that continues a character
        data = data[:-1]
    return data[:-1].decode("utf-8", "surrogatepass") if data else ""


def clean_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call as every provider takes them back; an object, whatever they were."""
    cleaned: dict[str, Any] = clean_value(arguments)
    size = len(json.dumps(cleaned, ensure_ascii=False))
    return cleaned if size <= MAX_TEXT_BYTES else {"left_out": f"{size:,} characters of arguments"}


def clean_value(value: Any, depth: int = 0) -> Any:
    """A JSON value: texts cleaned and bounded, numbers of usual size, of at most 30 levels."""
    if isinstance(value, str):
        return cut_text(clean_text(value), MAX_ARGUMENT_BYTES)
    if isinstance(value, dict | list) and depth >= MAX_DEPTH and value:
        return "[left out: nested too deeply]"
    if isinstance(value, dict):
        pairs: dict[str, Any] = {}
        is_clean = True
        for key, item in value.items():
            pairs[clean_text(key)] = cleaned = clean_value(item, depth + 1)
            is_clean = is_clean and cleaned is item and key in pairs
        return value if is_clean else pairs
    if isinstance(value, list):
        items = [clean_value(item, depth + 1) for item in value]
        return value if all(map(operator.is_, items, value)) else items
    return _clean_number(value)


def _clean_number(value: Any) -> Any:
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER:
        return f"[left out: an integer of {value.bit_length()} bits]"
    return value


# --- JSON from outside (HIS-5, HIS-8) ------------------------------------------------------------

MAX_JSON_DEPTH = 100
MAX_VALUES = 500_000
"""Names and values in one JSON text, about: each costs 100 bytes of memory however short it is."""
FEW_VALUES_CHARS = 100_000
"""A text that is no longer holds no more values than that; the others are counted first."""


def read_json(text: str | bytes, *, most: int = MAX_VALUES, **options: Any) -> Any:
    """``json.loads`` in memory of a bound (SEC-13); raises ``ValueError`` for all that is wrong."""
    if holds_too_many(text, most):
        raise ValueError(f"more than {most:,} values")
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def holds_too_many(text: str | bytes, most: int = MAX_VALUES) -> bool:
    """Whether a JSON text holds more than ``most`` names and values, about."""
    if len(text) <= FEW_VALUES_CHARS:
        return False
    names = text.count(":") if isinstance(text, str) else text.count(b":")
    if count_values(text) + names <= most:
        return False
    # a long one may have as many of these signs in what it says
    tokens = _TOKENS.finditer(text) if isinstance(text, str) else _BYTE_TOKENS.finditer(text)
    return any(islice(tokens, 3 * most // 2, None))  # of a name and its text there are three


def count_values(text: str | bytes) -> int:
    """How many values a JSON text holds at most."""
    if isinstance(text, str):
        return text.count("[") + text.count("{") + text.count(",")
    return text.count(b"[") + text.count(b"{") + text.count(b",")


def loads(text: str, *, raw_controls: bool = False) -> Any:
    """The value of a JSON text; raises ``ValueError`` for anything else.

    It survives ``json.dumps(..., allow_nan=False)``: it holds no NaN, no infinite number, no
    integer too long to print, no nesting deeper than ``MAX_JSON_DEPTH`` levels.
    ``raw_controls`` lets line ends and other control characters stand unescaped in strings.
    """
    value = read_json(text, strict=not raw_controls, parse_constant=_not_json, parse_float=_finite)
    if is_deep(value, MAX_JSON_DEPTH):
        raise ValueError("nested too deeply")
    return value


def _not_json(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def as_object(value: object) -> dict[str, Any]:
    """``value``, when it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """``value``, when it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """``value``, when it is a text; else an empty one."""
    return value if isinstance(value, str) else ""


def is_deep(value: object, most: int) -> bool:
    """Whether more than ``most`` lists and objects of a JSON value stand within each other."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(most):
        if not level:
            return False
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
    return bool(level)
