"""Where a run of lines stands in a list of lines, in time linear in both (SEC-13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def runs(lines: Sequence[str], wanted: Sequence[str], start: int = 0) -> Iterator[int]:
    """Every place, overlapping ones included, from ``start`` on; ``wanted`` is not empty.

    Knuth, Morris and Pratt's search: a long run of equal lines costs no more than any other.
    """
    fallback = [0] * len(wanted)
    length = 0
    for at in range(1, len(wanted)):
        while length and wanted[at] != wanted[length]:
            length = fallback[length - 1]
        length += wanted[at] == wanted[length]
        fallback[at] = length
    matched = 0
    for at in range(start, len(lines)):
        line = lines[at]
        while matched and (matched == len(wanted) or line != wanted[matched]):
            matched = fallback[matched - 1]
        matched += line == wanted[matched]
        if matched == len(wanted):
            yield at - matched + 1
