"""The bound on what the model is sent of a tool's output (TOOL-6).

Law: at most ``MAX_CHARS`` characters go to the model; what is cut from the middle, or from an
over-long line, is stated with its size; then the whole is returned beside it as raw output,
which the model can page through with ``read_file`` at ``output://<call id>``.
"""

from __future__ import annotations

MAX_CHARS = 30_000
MAX_LINE_CHARS = 10_000
OUTPUT_SCHEME = "output://"

_NOTE_ROOM = 300
# a cut is moved to the end of a line when that costs no more than this share of the text kept
_LINE_SEARCH_SHARE = 4


def bounded(
    text: str, call_id: str, *, max_chars: int = MAX_CHARS, line_chars: int = MAX_LINE_CHARS
) -> tuple[str, bytes | None]:
    """``text`` cut to size for the model, and the whole as bytes when something was cut."""
    if len(text) <= max_chars and longest_line(text) <= line_chars:
        return text, None
    short = text
    if longest_line(text) > line_chars:
        short = "\n".join(clip_line(line, line_chars) for line in text.split("\n"))
    if len(short) > max_chars:
        short = _cut_middle(short, call_id, max_chars)
    else:
        short += f"\n[Long lines were cut. {page_hint(call_id)}]"
        if len(short) > max_chars:
            short = _cut_middle(short, call_id, max_chars)
    return short, text.encode("utf-8", "replace")


def page_hint(call_id: str) -> str:
    """How the model gets at the whole."""
    return f'Whole output: read_file with path "{OUTPUT_SCHEME}{call_id}", offset and limit.'


def clip_line(line: str, limit: int = MAX_LINE_CHARS) -> str:
    """``line``, or its beginning with the number of characters that were cut."""
    if len(line) <= limit:
        return line
    return f"{line[:limit]}… [{len(line) - limit:,} more characters in this line]"


def longest_line(text: str) -> int:
    """Characters in the longest line of ``text``."""
    longest, start = 0, 0
    while (end := text.find("\n", start)) != -1:
        longest, start = max(longest, end - start), end + 1
    return max(longest, len(text) - start)


def _cut_middle(text: str, call_id: str, max_chars: int) -> str:
    room = max(max_chars - _NOTE_ROOM, 0) // 2
    slack = room // _LINE_SEARCH_SHARE
    head_end = text.rfind("\n", room - slack, room) + 1 or room
    tail_start = len(text) - room
    line_start = text.find("\n", tail_start, tail_start + slack) + 1
    tail_start = line_start or tail_start
    cut = text[head_end:tail_start]
    glue = "" if text[:head_end].endswith("\n") else "\n"
    note = f"[{len(cut):,} characters ({cut.count(chr(10)):,} lines) cut. {page_hint(call_id)}]"
    return f"{text[:head_end]}{glue}{note}\n{text[tail_start:]}"
