"""Edits: the cases of others, the rules of matching, what is kept, what is refused."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentcli.domain.tools import Asks, WouldFail
from agentcli.tools.edit_file import TOOL
from agentcli.tools.read_file import TOOL as READ
from agentcli.tools.write_file import TOOL as WRITE
from tests.tools.in_a_room import Room, failed, needs_suites, ok, room, suite

__all__ = ["room"]

REPLACE = suite("edit/aider_replace.json")
KIMI = suite("edit/kimi_str_replace.json")
BLOCKS = [
    (f"{case['test']}-{number}", block)
    for case in suite("edit/aider_blocks.json")
    for number, block in enumerate(case.get("expected_blocks", []))
]


def edited(room: Room, before: str | bytes, old: str, new: str, **more: bool) -> bytes:
    path = room.write("f.txt", before)
    room.ledger.seen.clear()
    ok(room.run(TOOL, path="f.txt", old_string=old, new_string=new, **more))
    return path.read_bytes()


def refused(room: Room, before: str | bytes, old: str, new: str, **more: bool) -> str:
    path = room.write("f.txt", before)
    kept = path.read_bytes()
    message = failed(room.run(TOOL, path="f.txt", old_string=old, new_string=new, **more))
    assert room.tree() == {"f.txt": kept}
    return message


# --- the cases of others -------------------------------------------------------------------


@needs_suites
@pytest.mark.spec("TOOL-8")
@pytest.mark.parametrize("case", REPLACE, ids=[case["test"] for case in REPLACE])
def test_search_and_replace_cases(room: Room, case: dict) -> None:
    lines = [line.strip() for line in case["original"].split("\n")]
    is_ambiguous = all(lines.count(line) > 1 for line in case["search"].split())
    if "not_perfect" in case["test"] or is_ambiguous:
        refused(room, case["original"], case["search"], case["replace"])  # ours: never a guess
    elif case["disabled"]:
        pytest.skip("disabled where it comes from")
    else:
        after = edited(room, case["original"], case["search"], case["replace"])
        assert after.decode() == case["expected"]


@needs_suites
@pytest.mark.spec("TOOL-8")
@pytest.mark.parametrize("case", KIMI, ids=[case["test"] for case in KIMI])
def test_string_replace_cases(room: Room, case: dict) -> None:
    path = room.root / "f.txt"
    if case["original"] is not None:
        path.write_text(case["original"])
    elif "directory" in case["test"]:
        path.mkdir()
    for edit in case["edits"]:
        before = path.read_text() if path.is_file() else None
        output = room.run(
            TOOL,
            path="f.txt",
            old_string=edit["search"],
            new_string=edit["replace"],
            replace_all=edit["replace_all"],
        )
        if case.get("error"):
            failed(output)
        elif before is not None and before.count(edit["search"]) > 1 and not edit["replace_all"]:
            failed(output)  # ours: several candidates are an error
            assert path.read_text() == before
            return
        else:
            ok(output)
    if "expected" in case:
        assert path.read_text() == case["expected"]
    elif case["original"] is not None:
        assert path.read_text() == case["original"]


@needs_suites
@pytest.mark.spec("TOOL-8")
@pytest.mark.parametrize("block", [b for _, b in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_blocks_of_search_and_replace(room: Room, block: list[str]) -> None:
    name, search, replace = block
    if search:
        room.write(name, f"before\n{search}after\n")
        ok(room.run(TOOL, path=name, old_string=search, new_string=replace))
        assert (room.root / name).read_text() == f"before\n{replace}after\n"
        return
    ok(room.run(TOOL, path=name, old_string="", new_string=replace))
    assert (room.root / name).read_text() == replace
    assert "exists" in failed(room.run(TOOL, path=name, old_string="", new_string=replace))


# --- which place ---------------------------------------------------------------------------


@pytest.mark.spec("TOOL-8")
@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a b c", "b", "x", "a x c"),
        ("a\nb\nc\n", "b\n", "", "a\nc\n"),
        ("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\nc\r\n", "b", "x\ny", "a\r\nx\r\ny\r\nc\r\n"),
        ("if (\r\n  b) {\r\n", "(\n  b", "(\n  c\n  d", "if (\r\n  c\r\n  d) {\r\n"),
        ("a\nb\nc\n", "a\r\nb\r\n", "x\r\ny\r\n", "x\ny\nc\n"),
        ("a  \nb\t\nc\n", "a\nb\n", "x\n", "x\nc\n"),
        ("a\nb\n", "a  \nb", "x", "x\n"),
        ("a\nlast", "a\nlast\n", "b\nlast\n", "b\nlast"),
        (
            "\tdef f():\n\t\tpass\n",
            "def f():\n    pass\n",
            "def f():\n    x\n    y\n",
            "\tdef f():\n\t\tx\n\t\ty\n",
        ),
        ("\tif a:\n", "    if a:\n", "    if b:\n        c\n", "\tif b:\n\t\tc\n"),
        ("        a\n        b\n", "    a\n    b\n", "    a\nx\n", "        a\n    x\n"),
        ("a\n  b\n", "    a\n      b\n", "    a\n      c\n        d\n", "a\n  c\n    d\n"),
        ("x\n    a\n    b\ny\n", "\n\na\nb\n\n", "\n\nc\n\nd\n\n", "x\n    c\n\n    d\ny\n"),
        ("a\n\n  b\n", "  a\n\n    b", "  a\n\n    c", "a\n\n  c\n"),
    ],
)
def test_the_text_is_found_in_spite_of_white_space(
    room: Room, before: str, old: str, new: str, after: str
) -> None:
    assert edited(room, before, old, new).decode() == after


@pytest.mark.spec("TOOL-8")
def test_an_exact_match_wins_over_a_tolerant_one(room: Room) -> None:
    assert edited(room, "  a\na\n", "\na\n", "\nb\n") == b"  a\nb\n"


@pytest.mark.spec("TOOL-8")
@pytest.mark.parametrize(
    ("before", "old"),
    [
        ("one\ntwo\none\n", "one"),
        ("aaa", "aa"),
        ("  x = 1\n  y\n\tx = 1\n\ty\n", "x = 1\ny"),
        ("x \ny\nx\t\ny\n", "x\ny"),
        ("a\r\nb\r\na\r\nb\r\n", "a\nb"),
    ],
    ids=["exact", "overlapping", "indentation", "trailing space", "line ends"],
)
def test_several_candidates_are_an_error_that_shows_them(room: Room, before: str, old: str) -> None:
    message = refused(room, before, old, "new")
    assert "2 places" in message
    assert "     1\t" in message


@pytest.mark.spec("TOOL-8")
def test_candidates_are_shown_with_their_line_numbers(room: Room) -> None:
    message = refused(room, "one\ntwo\none more\n", "one", "x")
    assert "     1\tone\n     3\tone more" in message
    assert "replace_all" in message


@pytest.mark.spec("TOOL-8")
def test_replace_all_replaces_every_one(room: Room) -> None:
    assert edited(room, "foo bar foo\nfoo", "foo", "x", replace_all=True) == b"x bar x\nx"
    assert edited(room, "aaa", "aa", "b", replace_all=True) == b"ba"
    tolerant = edited(room, "  a\n  b\nz\n\ta\n\tb\n", "a\nb\n", "c\nd\n", replace_all=True)
    assert tolerant == b"  c\n  d\nz\n\tc\n\td\n"


@pytest.mark.spec("TOOL-8")
def test_text_that_is_not_there_is_answered_with_the_closest_place(room: Room) -> None:
    before = "import os\n\n\ndef total(items):\n    return sum(items)\n"
    message = refused(room, before, "def total(item):\n    return sum(item)\n", "x")
    assert "not in the file" in message
    assert "     4\tdef total(items):\n     5\t    return sum(items)" in message


@pytest.mark.spec("TOOL-8")
def test_line_numbers_copied_from_read_file_are_pointed_out(room: Room) -> None:
    assert "line numbers" in refused(room, "a\nb\n", "     1\ta\n     2\tb", "x")


@pytest.mark.spec("TOOL-8")
@pytest.mark.parametrize("old", ["  \n\n", "nowhere", "b\n\na"])
def test_a_blank_or_absent_text_never_matches_somewhere(room: Room, old: str) -> None:
    refused(room, "a\n \n\t\nb\n", old, "x")


@pytest.mark.spec("TOOL-8")
@pytest.mark.parametrize(
    ("before", "old", "new", "word"),
    [
        ("a\n", "a", "a", "identical"),
        ("a\n", "", "b", "exists"),
        ("", "", "b", "exists"),
        ("", "a", "b", "not in the file"),
        ("a\r\nb\r\n", "a\r\n", "a\n", "line ends"),
        (b"\x00\x01\x02", "a", "b", "binary"),
        ("a\n", "a", "\ud800", "U+D800"),
    ],
)
def test_edits_that_make_no_sense_are_refused(
    room: Room, before: str | bytes, old: str, new: str, word: str
) -> None:
    assert word in refused(room, before, old, new)


# --- what is kept --------------------------------------------------------------------------


@pytest.mark.spec("TOOL-8")
@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252"],
)
def test_encoding_and_byte_order_mark_are_kept(room: Room, encoding: str) -> None:
    quoted = "\u201cquoted\u201d " if encoding != "latin-1" else ""
    before = (
        f"# {quoted}caf\u00e9 au lait, s'il vous pla\u00eet\nold value here\n" + "plain text\n" * 9
    )
    after = edited(room, before.encode(encoding), "old value", "n\u00e9w value")
    assert after == before.replace("old value", "n\u00e9w value").encode(encoding)


@pytest.mark.spec("TOOL-8")
def test_a_character_that_the_encoding_lacks_is_refused_with_advice(room: Room) -> None:
    message = refused(room, "caf\u00e9\n".encode("latin-1"), "caf", "\u4e16\u754c")
    assert "Latin-1" in message
    assert "UTF-8" in message


@pytest.mark.spec("TOOL-8")
def test_invalid_bytes_elsewhere_stay_as_they_are(room: Room) -> None:
    before = "\u00e4\u00f6\u00fc ok\n".encode() + b"bad \xff byte\nchange me\n"
    assert edited(room, before, "change me", "\u00e4") == before.replace(
        b"change me", "\u00e4".encode()
    )


@pytest.mark.spec("TOOL-8")
def test_mixed_line_ends_are_kept_line_by_line(room: Room) -> None:
    before = "a\r\nb\nc\r\nd\n"
    assert edited(room, before, "a\r\nb\nc", "a\nB\nnew\nc") == b"a\r\nB\nnew\nc\r\nd\n"
    assert edited(room, before, "b", "b\nb2") == b"a\r\nb\nb2\nc\r\nd\n"


@pytest.mark.spec("TOOL-7", "TOOL-8")
def test_a_file_with_carriage_returns_alone_is_read_in_lines_and_keeps_them(room: Room) -> None:
    before = b"one\rtwo\rthree\r"
    assert edited(room, before, "one\ntwo", "1\n2\n2b") == b"1\r2\r2b\rthree\r"
    assert edited(room, before, "two\rthree", "2\r\n3") == b"one\r2\r3\r"
    shown = room.run(READ, path="f.txt")
    assert "     2\t2\n     3\t3\n[line ends are CR]" in str(ok(shown))
    written = room.run(WRITE, path="f.txt", content="a\nb\n")
    assert "Its line ends were CR and are now LF." in str(ok(written))
    assert (room.root / "f.txt").read_bytes() == b"a\nb\n"


@pytest.mark.spec("TOOL-8")
def test_mode_and_owner_are_kept(room: Room) -> None:
    path = room.write("f.txt", "a\n")
    path.chmod(0o4751)
    if os.getuid() == 0:
        os.chown(path, 12345, 23456)
        path.chmod(0o4751)
    before = path.stat()
    ok(room.run(TOOL, path="f.txt", old_string="a", new_string="b"))
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o4751
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


@pytest.mark.spec("TOOL-8")
def test_the_edit_goes_through_a_link_to_its_target(room: Room) -> None:
    room.write("real.txt", "a\n")
    (room.root / "link").symlink_to("real.txt")
    ok(room.run(TOOL, path="link", old_string="a", new_string="b"))
    assert (room.root / "link").is_symlink()
    assert (room.root / "real.txt").read_text() == "b\n"


@pytest.mark.spec("TOOL-8")
def test_a_reader_sees_the_old_or_the_new_file_and_nothing_else_is_left(room: Room) -> None:
    path = room.write("f.txt", "old\n")
    with path.open() as opened_before:
        ok(room.run(TOOL, path="f.txt", old_string="old", new_string="new"))
        assert opened_before.read() == "old\n"  # another inode: it was renamed into place
    assert room.tree() == {"f.txt": b"new\n"}


@pytest.mark.spec("TOOL-8")
def test_other_hard_links_are_mentioned(room: Room) -> None:
    path = room.write("f.txt", "a\n")
    (room.root / "g.txt").hardlink_to(path)
    assert "hard link" in ok(room.run(TOOL, path="f.txt", old_string="a", new_string="b"))
    assert room.tree() == {"f.txt": b"b\n", "g.txt": b"a\n"}


# --- changed since it was read -------------------------------------------------------------


@pytest.mark.spec("TOOL-8")
def test_a_file_that_changed_since_it_was_read_is_not_edited(room: Room) -> None:
    path = room.write("f.txt", "a\nb\n")
    ok(room.run(READ, path="f.txt"))
    path.write_text("a\nb\nand more\n")
    message = failed(room.run(TOOL, path="f.txt", old_string="a", new_string="x"))
    assert "changed since" in message
    assert path.read_text() == "a\nb\nand more\n"
    ok(room.run(READ, path="f.txt"))
    ok(room.run(TOOL, path="f.txt", old_string="a\n", new_string="x\n"))
    assert path.read_text() == "x\nb\nand more\n"


@pytest.mark.spec("TOOL-8")
def test_a_touched_file_with_the_same_content_is_no_change(room: Room) -> None:
    path = room.write("f.txt", "a\n")
    ok(room.run(READ, path="f.txt"))
    os.utime(path, (1, 1))
    ok(room.run(TOOL, path="f.txt", old_string="a", new_string="b"))
    ok(room.run(TOOL, path="f.txt", old_string="b", new_string="c"))  # our own write is known


# --- what is told --------------------------------------------------------------------------


@pytest.mark.spec("TOOL-8")
def test_a_long_diff_is_for_the_person_only(room: Room) -> None:
    room.write("f.txt", "a\n")
    output = room.run(TOOL, path="f.txt", old_string="a", new_string="b\n" * 2_000)
    assert ok(output) == "Edited f.txt at line 1 (+2001 -1)."
    assert output.display.count("\n+b") == 2_000


@pytest.mark.spec("TOOL-1", "TOOL-8")
def test_the_result_carries_the_diff_and_a_short_text(room: Room) -> None:
    room.write("src/f.py", "a\nb\nc\n")
    output = room.run(TOOL, path="src/f.py", old_string="b", new_string="B\nB2")
    diff = "--- a/src/f.py\n+++ b/src/f.py\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c\n"
    assert ok(output) == f"Edited src/f.py at line 2 (+2 -1).\n{diff.rstrip()}"
    assert output.display == diff
    assert output.summary == "+2 -1"
    args = TOOL.parse({"path": "src/f.py", "old_string": "b", "new_string": "x"})
    assert TOOL.summary(args) == "Edit src/f.py"
    assert TOOL.asks is Asks.EDIT


@pytest.mark.spec("TOOL-8")
def test_after_a_tolerant_match_the_model_sees_what_was_written(room: Room) -> None:
    room.write("f.py", "    a\n    b\n")
    output = room.run(TOOL, path="f.py", old_string="a\nb\n", new_string="c\nd\n")
    assert "overlooking indentation" in ok(output)
    assert "     1\t    c\n     2\t    d" in ok(output)


@pytest.mark.spec("UI-7")
def test_the_preview_is_the_diff_and_writes_nothing(room: Room) -> None:
    room.write("f.txt", "a\n")
    shown = room.preview(TOOL, path="f.txt", old_string="a", new_string="b")
    assert shown == "--- a/f.txt\n+++ b/f.txt\n@@ -1 +1 @@\n-a\n+b\n"
    assert room.tree() == {"f.txt": b"a\n"}
    with pytest.raises(WouldFail, match="not in the file"):
        room.preview(TOOL, path="f.txt", old_string="z", new_string="b")


def test_a_missing_file_is_answered_with_near_names(room: Room) -> None:
    room.write("src/main.py", "a\n")
    message = failed(room.run(TOOL, path="src/mian.py", old_string="a", new_string="b"))
    assert "Did you mean src/main.py?" in message


# --- properties ----------------------------------------------------------------------------

_TEXT = st.text(st.sampled_from("ab \t\n\r\u00e4\u4e16"), max_size=30)


@pytest.mark.spec("TOOL-8")
@settings(max_examples=75, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=_TEXT, middle=_TEXT, after=_TEXT, new=_TEXT)
def test_bytes_that_an_edit_does_not_touch_stay_identical(
    tmp_path_factory, before: str, middle: str, after: str, new: str
) -> None:
    room = Room(tmp_path_factory.mktemp("e").resolve())
    old = f"<{middle}>"
    assume(f"<{new}>" != old)
    path = room.write("f.txt", before + old + after)
    output = room.run(TOOL, path="f.txt", old_string=old, new_string=f"<{new}>")
    if "line ends are kept" in str(output.parts):
        return
    ok(output)
    written = path.read_bytes()
    head, tail = f"{before}<".encode(), f">{after}".encode()
    assert written.startswith(head)
    assert written.endswith(tail)
    inner = written[len(head) : len(written) - len(tail)].decode()
    has_lone = "\r" in before + old + after and "\n" not in before + old + after
    any_end = "[\r\n]+" if has_lone else "\r+\n"  # a file of carriage returns alone keeps to them
    assert re.sub(any_end, "\n", inner) == re.sub(any_end, "\n", new)


@pytest.mark.slow
@pytest.mark.spec("TOOL-8")
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lines=st.lists(st.sampled_from(["a", "b", "c", "  a", "\tb", "", " "]), min_size=1, max_size=8),
    old=st.lists(st.sampled_from(["a", "b", "c", " a", ""]), min_size=1, max_size=3),
)
def test_a_tolerant_match_never_touches_other_lines(
    tmp_path_factory, lines: list[str], old: list[str]
) -> None:
    room = Room(tmp_path_factory.mktemp("e").resolve())
    before = "\n".join(lines) + "\n"
    path = room.write("f.txt", before)
    output = room.run(TOOL, path="f.txt", old_string="\n".join(old) + "\n", new_string="NEW\n")
    written = path.read_text()
    if written == before:
        failed(output)
        return
    ok(output)
    head, _, tail = written.partition("NEW\n")
    head = head.removesuffix(head[len(head.rstrip(" \t")) :]) if not head.endswith("\n") else head
    assert before.startswith(head)
    assert before.endswith(tail)
    replaced = before[len(head) : len(before) - len(tail)].split()
    assert replaced == "\n".join(old).split()


def test_a_path_through_a_file_is_a_clear_error(room: Room, tmp_path: Path) -> None:
    room.write("f.txt", "a\n")
    message = failed(room.run(TOOL, path="f.txt/x", old_string="a", new_string="b"))
    assert "is a file, not a directory" in message
