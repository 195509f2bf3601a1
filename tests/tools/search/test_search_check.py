"""What a search told is told on only when it stands in the directory searched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.tools.search.search import FoundLine, changed_note, files_there, lines_there


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_text("one\ntwo\n")
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/f").write_text("one\ntwo\n")
    (tmp_path / "d/sub/f").write_text("one\ntwo\n")
    (tmp_path / "d/bom").write_bytes("\ufeffone\ntwo\n".encode())
    (tmp_path / "d/bom bad").write_bytes(b"\xef\xbb\xbfo\xff\ntwo\n")
    (tmp_path / "d/utf16").write_bytes("\ufeffon\u00e9\ntwo\n".encode("utf-16-be"))
    (tmp_path / "d/l").symlink_to("../outside")
    (tmp_path / "d/lf").symlink_to("f")
    os.mkfifo(tmp_path / "d/pipe")
    descriptor = os.open(tmp_path / "d", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def line(path: str, offset: int = 4, raw: bytes = b"two") -> FoundLine:
    return FoundLine(path, 2, raw, offset=offset)


@pytest.mark.spec("SEC-5", "TOOL-10")
def test_lines_that_stand_where_they_are_said_to(root: int) -> None:
    good = [
        line("f", 0, b"one"),
        line("f"),
        line("sub/f"),
        line("bom"),
        line("utf16", 0, "on\u00e9".encode()),
        line("utf16", 5),
    ]
    assert list(lines_there(good, root)) == good
    recoded = [line("bom bad", 0, "o\ufffd".encode()), line("bom bad", 5)]
    assert list(lines_there(recoded, root)) == recoded


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize(
    "bad",
    [
        line("l/f"),
        line("lf"),
        line("pipe"),
        line("absent"),
        line("absent/f"),
        line("../outside/f"),
        line("f", 5),
        line("f", 4, b"twi"),
        line("f", 4_000, b"two"),
        line("utf16", 5, b"twi"),
    ],
)
def test_other_lines_are_left_out(root: int, bad: FoundLine) -> None:
    assert list(lines_there([line("f"), bad, line("sub/f")], root)) == [line("f"), line("sub/f")]


@pytest.mark.spec("SEC-5")
def test_files_that_are_links_or_behind_one_are_left_out(root: int) -> None:
    names = ["bom", "f", "l/f", "lf", "pipe", "absent", "sub/f", "../outside/f"]
    found = files_there([FoundLine(name) for name in names], root)
    assert [each.path for each in found] == ["bom", "f", "sub/f"]


def test_the_note_counts() -> None:
    assert changed_note(0, "line") == ""
    assert "1 line left out" in changed_note(1, "line")
    assert "2,000 files left out" in changed_note(2_000, "file")
