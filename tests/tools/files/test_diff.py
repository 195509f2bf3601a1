"""Unified diffs."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentcli.tools.files.diff import diff_bytes

_TEXT = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n", "d"]), max_size=25).map("".join)


@settings(max_examples=200, deadline=None)
@given(old=_TEXT, new=_TEXT)
def test_counts_and_lines_of_a_diff_agree_and_nothing_equal_gives_nothing(
    old: str, new: str
) -> None:
    diff = diff_bytes("f", "f", old.encode(), new.encode())
    body = diff.text.split("\n")[2:]
    assert sum(line.startswith("+") for line in body) == diff.added
    assert sum(line.startswith("-") for line in body) == diff.removed
    assert (diff.text == "") == (old == new)
    assert diff.added - diff.removed == len(re.findall("[^\n]*\n|[^\n]+", new)) - len(
        re.findall("[^\n]*\n|[^\n]+", old)
    )


@pytest.mark.skipif(shutil.which("patch") is None, reason="the patch program is not installed")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@example(old="b\nb\nb\na\na\na\n", new="b\nb\nb\nb\na\na\na\n")  # like its surroundings
@example(old="a\n", new="xa\n")
@example(old="x\nb\nb\nb\nb\nb\nc\n", new="x\nb\nb\nb\nb\nc\n")
@given(
    old=_TEXT.filter(bool).map(lambda t: t.replace("\r", "")),
    new=_TEXT.map(lambda t: t.replace("\r", "")),
)
def test_the_patch_program_understands_a_diff(tmp_path_factory, old: str, new: str) -> None:
    room = tmp_path_factory.mktemp("d")
    (room / "f").write_text(old)
    diff = diff_bytes("f", "f", old.encode(), new.encode())
    if diff.text:
        subprocess.run(
            ["patch", "-p1", "-s", "--fuzz=0"],
            input=diff.text,
            text=True,
            cwd=room,
            check=True,
            capture_output=True,
        )
    assert ((room / "f").read_text() if (room / "f").exists() else "") == new


def test_a_change_far_down_a_long_file_has_its_line_numbers() -> None:
    old = "".join(f"{n}\n" for n in range(1, 100_001))
    new = old.replace("\n70000\n", "\nseventy\n")
    assert diff_bytes("f", "f", old.encode(), new.encode()).text == (
        "--- a/f\n+++ b/f\n@@ -69997,7 +69997,7 @@\n 69997\n 69998\n 69999\n-70000\n+seventy\n"
        " 70001\n 70002\n 70003\n"
    )


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_diff_that_is_too_long_keeps_its_tail(end: str) -> None:
    for unit in ("x", "x\n"):
        text = diff_bytes("n", "n", None, f"{unit * 2_000_000}tail{end}".encode()).text
        assert text.startswith("--- /dev/null") and "more characters of the diff\n" in text
        assert "tail\n" in text[-60:] and len(text) < 2_000_200


@pytest.mark.spec("SEC-6", "UI-2")
@pytest.mark.parametrize(
    ("before", "after", "put_in"),
    [
        (b"#!/bin/sh\n", b"\xef\xbb\xbf#!/bin/sh\n", "+\ufeff#!/bin/sh"),
        (None, b"\xef\xbb\xbf.env\n", "+\ufeff.env"),
        (None, b".env\r*.key", "+.env\r*.key"),
        (b".env\n*.key\n", b".env\r*.key\r", "+.env\r*.key\r"),
        (b"\xff\x00", b"\xef\xbb\xbfx\n", "+\ufeffx"),
    ],
)
def test_a_mark_and_line_ends_that_are_put_in_are_in_the_diff(
    before: bytes | None, after: bytes, put_in: str
) -> None:
    assert put_in in diff_bytes("f", "f", before, after).text


@pytest.mark.spec("UI-2")
def test_a_mark_that_stays_is_no_change() -> None:
    diff = diff_bytes("f", "f", b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\nc\n")
    assert diff.text.endswith("@@ -1,2 +1,2 @@\n a\n-b\n+c\n")
