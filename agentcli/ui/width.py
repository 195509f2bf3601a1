"""How many columns text takes on the screen; wide characters take two."""

from __future__ import annotations


def columns_of(text: str) -> int:
    """The width of one line of ``text`` in columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, columns: int, ellipsis: str = "…") -> str:
    """``text`` cut to at most ``columns``; a cut shows."""
    if columns <= 0:
        return ""
    if len(text) <= columns and columns_of(text) <= columns:
        return text
    room = columns - columns_of(ellipsis)
    if room <= 0:
        return ellipsis[:columns]
    used = end = 0
    for end, char in enumerate(text):  # noqa: B007 - where the loop stopped
        used += columns_of(char)
        if used > room:
            break
    return text[:end] + ellipsis
