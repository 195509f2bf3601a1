"""Which kind of line: thematic breaks, whatever their length."""

from __future__ import annotations

import tracemalloc

import pytest

from agentcli.ui.blocks import Kind, classify


def kind_of(line: str) -> Kind | None:
    start = classify(line, complete=True, code_from=4)
    return start.kind if start else None


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("***", Kind.RULE), ("- - -", Kind.RULE), ("_\t_ _  ", Kind.RULE), ("**", Kind.TEXT),
        ("- -", Kind.BULLET), ("+ + +", Kind.BULLET), ("*-*", Kind.TEXT), ("--- x", Kind.TEXT),
        ("-", Kind.BULLET), ("* * a", Kind.BULLET), ("    ***", Kind.INDENTED),
    ],
)  # fmt: skip
def test_a_thematic_break_is_three_or_more_of_one_mark(line: str, kind: Kind) -> None:
    assert kind_of(line) is kind


@pytest.mark.spec("SEC-13", "UI-1")
@pytest.mark.parametrize("mark", ["*", "-", "_", "* ", "`", "#", ">", "1", "|"])
def test_a_very_long_line_of_marks_is_classified_in_little_memory(mark: str) -> None:
    line = mark * (400_000 // len(mark))
    tracemalloc.start()
    try:
        kind_of(line)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(line)
