"""Tables: whole in a pipe, made to fit a terminal (CLI-9)."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from agentcli.cli.listing import table

HEAD = ("ID", "MODEL", "DIRECTORY", "TITLE")
ROW = (
    "01a2060a-02dd-7d0b-be33-f9b27e5ec525",
    "offline/assistant",
    "/home/ada/projects/shop",
    "fix the tests of the cart, all of them",
)


@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize(
    ("width", "line"),
    [
        (0, "  ".join(ROW)),
        (200, "  ".join(ROW)),
        (80, "f9b27e5ec525  offline/assistant  ...e/ada/projects/shop  fix the tests of th..."),
        (60, "f9b27e5ec525  ...e/ada/projects/shop  fix the tests of th..."),
        (40, "f9b27e5ec525  fix the tests of the ca..."),
        (12, "f9b27... ..."),
    ],
)
def test_a_row_fits_and_its_last_words_are_not_the_first_to_go(width: int, line: str) -> None:
    got = table(HEAD, [ROW], ("MODEL", "DIRECTORY"), width=width).splitlines()
    assert not width or max(map(len, got)) <= width
    assert got[1] == line


@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize("width", [0, 80, 40, 20])
def test_wide_characters_take_two_columns(width: int) -> None:
    wide = ("あ" * 12, "模型", "/家/測試/項目/カート", "日本語の題名がここに長く続きますよね")
    lines = table(HEAD, [ROW, wide], ("MODEL", "DIRECTORY"), width=width).splitlines()
    assert not width or max(map(cell_len, lines)) <= width
    starts = {cell_len(lines[0].partition("TITLE")[0]), cell_len(lines[2].partition("日")[0])}
    assert len(starts) == 1 or width == 20


def test_a_table_with_no_row_or_with_little_in_it_is_left_alone() -> None:
    assert table(("NAME", "STATE"), [], width=40) == "NAME  STATE\n"
    assert table(("A", "B"), [("\x1b[31mx", "")], width=4) == "A  B\nx\n"


@pytest.mark.spec("CLI-9")
def test_a_name_that_has_to_be_read_whole_outlives_the_columns_beside_it() -> None:
    rows = [("anthropic/claude-opus-4-20250514", "200k", "yes")]
    head, less = ("MODEL", "WINDOW", "READY"), ("WINDOW", "READY")
    at = {width: table(head, rows, less, width=width, readable=36) for width in (39, 40, 33)}
    assert at[39] == at[40] == "MODEL" + " " * 29 + "READY\n" + rows[0][0] + "  yes\n"
    assert at[33] == f"MODEL\n{rows[0][0]}\n"
