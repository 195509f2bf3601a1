"""Rows of figures: as lines while they are measured, as a Markdown table for the documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Rows = Callable[[int], Iterator["Row"]]


@dataclass(frozen=True)
class Row:
    """One figure. ``value`` is ours; with a ``base`` it is judged by the ratio to it.

    ``target`` bounds the ratio, or without a base the value itself; ``None``: no target.
    """

    name: str
    value: float
    unit: str
    base: float | None = None
    target: float | None = None
    base_name: str = ""

    @property
    def judged(self) -> float:
        return self.value if self.base is None else self.value / self.base

    @property
    def kept(self) -> bool:
        return self.target is None or self.judged <= self.target

    def cells(self) -> tuple[str, str, str, str]:
        base = "" if self.base is None else f" / {_shown(self.base)}"
        measured = f"{_shown(self.value)}{base} {self.unit}".rstrip()
        ratio = "" if self.base is None else f"{self.judged:.2f}"
        unit = f" {self.unit}" if self.base is None and self.unit else ""
        target = "" if self.target is None else f"≤ {self.target:g}{unit}"
        if not self.kept:
            target += " **missed**"
        return self.name, measured, ratio, target


def _shown(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.0f}"


def show(rows: Iterable[Row]) -> list[Row]:
    """Print each row as it comes; all of them."""
    found = []
    for row in rows:
        name, measured, ratio, target = row.cells()
        print(f"{name:58} {measured:>22} {ratio:>6}  {target}", flush=True)
        found.append(row)
    return found


def markdown(rows: Iterable[Row]) -> str:
    lines = ["| figure | measured | ratio | target |", "|---|---:|---:|---:|"]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines)
