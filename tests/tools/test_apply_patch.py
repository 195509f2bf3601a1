"""Patches: the cases of others, the formats, all or nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcli.domain.cancel import CancelReason
from agentcli.domain.tools import OutputKind, WouldFail
from agentcli.tools.apply_patch import TOOL
from agentcli.tools.files.disk import MAX_WHOLE_BYTES
from tests.tools.in_a_room import Room, failed, needs_suites, ok, room, suite

__all__ = ["room"]

SCENARIOS = suite("apply_patch/scenarios.json")
ALL_OR_NOTHING = "015_failure_after_partial_success_leaves_changes"


def wrapped(body: str) -> str:
    return f"*** Begin Patch\n{body}\n*** End Patch"


def patched(room: Room, name: str, before: str | bytes, body: str) -> bytes:
    path = room.write(name, before)
    ok(room.run(TOOL, patch=wrapped(body)))
    return path.read_bytes()


@needs_suites
@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize("case", SCENARIOS, ids=[case["name"] for case in SCENARIOS])
def test_a_patch_does_what_the_reference_program_does(room: Room, case: dict) -> None:
    for name, content in case["input"].items():
        room.write(name, content)
    output = room.run(TOOL, patch=case["patch"])
    expected = case["input"] if case["name"] == ALL_OR_NOTHING else case["expected"]
    assert (output.kind is OutputKind.SUCCESS) == (case["codex_rc"] == 0)
    assert room.tree() == {name: content.encode() for name, content in expected.items()}


@needs_suites
@pytest.mark.parametrize("case", SCENARIOS, ids=[case["name"] for case in SCENARIOS])
def test_a_preview_writes_nothing(room: Room, case: dict) -> None:
    for name, content in case["input"].items():
        room.write(name, content)
    if case["codex_rc"]:
        with pytest.raises(WouldFail):
            room.preview(TOOL, patch=case["patch"])
    else:
        assert room.preview(TOOL, patch=case["patch"]).startswith(("---", "rename"))
    assert room.tree() == {name: text.encode() for name, text in case["input"].items()}


# --- the format ----------------------------------------------------------------------------


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize("end", ["", "\n", "\n*** End Patch\n"])
def test_a_patch_without_its_markers_is_read(room: Room, end: str) -> None:
    room.write("a.txt", "a\nb\n")
    ok(room.run(TOOL, patch=f"*** Update File: a.txt\n@@\n-b\n+B\n*** Add File: c.txt\n+c{end}"))
    assert room.tree() == {"a.txt": b"a\nB\n", "c.txt": b"c\n"}
    said = failed(room.run(TOOL, patch="*** Add File: d.txt\n+d\nno plus"))
    assert "Line 3:" in said


TWO = "class A:\n  def f():\n    pass\n\nclass B:\n  def f():\n    pass\n"


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    "hunk",
    ["@@\n-    pass\n+    return", "-    pass", "@@   def f():\n+    x()", "@@ def f():\n-pass"],
)
def test_a_hunk_that_fits_two_places_is_shown_them(room: Room, hunk: str) -> None:
    room.write("a.py", TWO)
    said = failed(room.run(TOOL, patch=wrapped(f"*** Update File: a.py\n{hunk}")))
    assert "fits 2 places, at lines 3, 7 of the file" in said and "     6\t  def f():" in said
    assert room.tree() == {"a.py": TWO.encode()}


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    ("body", "after"),
    [
        (
            "@@\n-    pass\n+    1\n@@\n-    pass\n+    2",
            TWO.replace("pass", "1", 1).replace("pass", "2"),
        ),
        (
            "@@\n-    pass\n+    1\n@@\n-class B:\n+class C:",
            TWO.replace("pass", "1", 1).replace("B", "C"),
        ),
        ("@@ class B:\n-    pass\n+    1", "1".join(TWO.rsplit("pass", 1))),
        ("@@\n-    pass\n+    1\n*** End of File", "1".join(TWO.rsplit("pass", 1))),
    ],
)
def test_equal_places_are_told_apart_by_neighbours_and_anchors(
    room: Room, body: str, after: str
) -> None:
    assert patched(room, "a.py", TWO, f"*** Update File: a.py\n{body}").decode() == after


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        ("a\nb\n", "@@\n a\n-b\n-\n+B\n+", "a\nB\n"),
        ("a\n\nb\n", "@@\n+end\n", "a\n\nb\nend\n"),
        ("a\n\nb\n", "@@\n b\n+end\n", "a\n\nb\nend\n"),
        ("a\nb", "@@\n a\n-b\n+B\n\n*** End of File\n", "a\nB\n"),
        ("a\nb\n", "@@\n b\n+end\n\n\n", "a\nb\nend\n"),
        ("a\nb\n", "@@\n-b\n+B\n \n*** End of File", "a\nB\n"),
    ],
)
def test_a_hunk_at_the_end_of_a_file_leaves_no_blank_line(
    room: Room, before: str, body: str, after: str
) -> None:
    assert patched(room, "a.txt", before, f"*** Update File: a.txt\n{body}").decode() == after


@pytest.mark.spec("TOOL-9")
def test_a_new_file_in_the_place_of_another_says_so(room: Room) -> None:
    room.write("a.txt", "old\n")
    said = ok(room.run(TOOL, patch=wrapped("*** Add File: a.txt\n+new")))
    assert "M a.txt (+1 -1; it existed and was replaced)" in said


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("<<EOF\n", "\nEOF"),
        ("<<'EOF'\n", "\nEOF\n"),
        ('<<"PATCH"\n', "\nPATCH"),
        ("cat <<'EOF'\n", "\nEOF"),
        ("apply_patch <<'EOF'\n", "\nEOF\n"),
        ("```\n", "\n```"),
        ("```diff\n", "\n```\n"),
        ("cat <<'EOF' | apply_patch\n", "\nEOF\n"),
        ("\n\n", "\n\n  \n"),
    ],
)
def test_wrappers_around_a_patch_are_overlooked(room: Room, first: str, last: str) -> None:
    ok(room.run(TOOL, patch=first + wrapped("*** Add File: a.txt\n+hi") + last))
    assert room.tree() == {"a.txt": b"hi\n"}


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    "patch",
    [
        "",
        "   \n",
        "bad",
        "*** Begin Patch\n*** Add File: x\n+cut",
        "*** Frobnicate File: x\n+no markers",
        "*** Begin Patch\n*** End Patch",
        wrapped("*** Update File: a.txt"),
        wrapped("*** Update File: a.txt\n@@"),
        wrapped("*** Update File: a.txt\n@@\nplain line\n-a"),
        wrapped("*** Update File: a.txt\n@@\n-a\n+b\nplain line"),
        wrapped("*** Update File: a.txt\n@@\n*** End of File"),
        wrapped("*** Add File: \n+x"),
        wrapped("*** Add File: x\n+x\nforgot the plus"),
        wrapped("*** Delete File: a.txt\nwords"),
        wrapped("*** Update File: a.txt\n@@ nowhere\n-a\n+b"),
        wrapped("*** Update File: a.txt\n@@\n-a\n+b\n\n-c\n+d"),
        wrapped("*** Update File: a.txt\n@@\n-a\n+A\n*** End of File"),
        wrapped("*** Update File: dir\n@@\n-a\n+b"),
        wrapped("*** Add File: a.txt/below\n+x"),
        wrapped("*** Add File: dir\n+x"),
        wrapped("*** Delete File: gone.txt"),
        wrapped("*** Delete File: dir"),
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+a.txt",
        "diff --git a/m b/m\nindex 1..2 160000\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-Sub 1\n+Sub 2",
    ],
)
def test_what_is_no_patch_or_does_not_fit_changes_nothing(room: Room, patch: str) -> None:
    room.write("a.txt", "a\nb\nc\n")
    room.write("dir/inner.txt", "x\n")
    before = room.tree()
    assert failed(room.run(TOOL, patch=patch)).strip()
    assert room.tree() == before


@pytest.mark.spec("TOOL-9")
def test_several_anchors_narrow_the_place_down_one_after_another(room: Room) -> None:
    before = "class A\n  def f():\n    pass\nclass B\n  def f():\n    pass\n"
    after = patched(
        room,
        "a.py",
        before,
        "*** Update File: a.py\n@@ class B\n@@   def f():\n-    pass\n+    return 1",
    )
    assert after == b"class A\n  def f():\n    pass\nclass B\n  def f():\n    return 1\n"


@pytest.mark.spec("TOOL-9")
def test_hunks_each_with_anchors_and_a_blank_line_between_them(room: Room) -> None:
    before = "class A\n  def s():\n    pass\n\nclass B\n  def s():\n    pass\n"
    body = (
        "*** Update File: a.py\n@@ class A\n@@   def s():\n-    pass\n+    raise E\n\n"
        "@@ class B\n@@   def s():\n-    pass\n+    raise E"
    )
    after = patched(room, "a.py", before, body)
    assert after.decode() == before.replace("pass", "raise E")


@pytest.mark.spec("TOOL-9")
def test_an_anchor_may_be_repeated_as_context(room: Room) -> None:
    body = "*** Update File: a.py\n@@ def f():\n def f():\n-    pass\n+    return 1"
    assert patched(room, "a.py", "x\ndef f():\n    pass\n", body) == b"x\ndef f():\n    return 1\n"


@pytest.mark.spec("TOOL-9")
def test_an_added_line_under_an_anchor_goes_right_after_it(room: Room) -> None:
    body = "*** Update File: a.py\n@@ def f():\n+    first()"
    assert patched(room, "a.py", "def f():\n    pass\nend\n", body) == (
        b"def f():\n    first()\n    pass\nend\n"
    )


@pytest.mark.spec("TOOL-9")
def test_a_numbered_hunk_header_inside_the_format_is_no_anchor(room: Room) -> None:
    body = "*** Update File: a.txt\n@@ -1,2 +1,2 @@ def f\n a\n-b\n+B"
    assert patched(room, "a.txt", "a\nb\n", body) == b"a\nB\n"


@pytest.mark.spec("TOOL-9")
def test_a_first_hunk_needs_no_marker(room: Room) -> None:
    body = "*** Update File: a.py\n import foo\n+bar"
    assert patched(room, "a.py", "import foo\n", body) == b"import foo\nbar\n"


@pytest.mark.spec("TOOL-9")
def test_end_of_file_finds_the_last_of_equal_places(room: Room) -> None:
    body = "*** Update File: a.txt\n@@\n-m\n-end\n+M\n+end\n*** End of File"
    assert patched(room, "a.txt", "m\nend\nm\nend\n", body) == b"m\nend\nM\nend\n"


@pytest.mark.spec("TOOL-9")
def test_an_addition_without_context_goes_to_the_end_and_later_hunks_still_fit(room: Room) -> None:
    body = (
        "*** Update File: a.txt\n@@\n+after-context\n+second-line\n@@\n line1\n-line2\n-line3\n"
        "+line2-replacement"
    )
    after = patched(room, "a.txt", "line1\nline2\nline3\n", body)
    assert after == b"line1\nline2-replacement\nafter-context\nsecond-line\n"


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        ("line1  \nline2 \n", " line1\n-line2\n+new", "line1  \nnew\n"),
        ("    one\n\ttwo\n", " one\n-two\n+2", "    one\n2\n"),
        ("a \u2013 b\u2011c \u201cq\u201d\u00a0x\n", '-a - b-c "q" x\n+y', "y\n"),
        ("a\nb\n\n", " a\n-b\n+B\n", "a\nB\n\n"),
        ("a\n", "-a\n+b\n ", "b\n"),
    ],
    ids=["trailing", "leading", "punctuation", "blank line", "blank for the end"],
)
def test_context_is_found_in_spite_of_white_space_and_punctuation_and_stays_as_it_is(
    room: Room, before: str, body: str, after: str
) -> None:
    assert patched(room, "a.txt", before, f"*** Update File: a.txt\n@@\n{body}").decode() == after


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    ("before", "body", "after"),
    [
        (
            b"one\r\ntwo\r\nthree\r\n",
            "-one\n+uno\n@@\n two\n+\n+x\n three",
            b"uno\r\ntwo\r\n\r\nx\r\nthree\r\n",
        ),
        (b"same\r\nsame\n", "-same\n same", b"same\n"),
        (
            b"one\r\ntwo\nthree\r\nfour\n",
            " one\n two\n-three\n+THREE\n four",
            b"one\r\ntwo\nTHREE\r\nfour\n",
        ),
        (b"one\r\ntwo", "-one\n+ONE", b"ONE\r\ntwo\r\n"),
        (b"a\nb\n", "-a\n-b\n+b\n+b\n+a", b"b\nb\na\n"),
        ("\ufeffone\ntwo\n".encode(), "-one\n+uno", "\ufeffuno\ntwo\n".encode()),
        (b"one\rtwo\r", " one\n-two\n+2\n+3", b"one\r2\r3\r"),
        ("één\ntwee\n".encode("latin-1"), "-twee\n+drieë", "één\ndrieë\n".encode("latin-1")),
        ("one\r\ntwo\r\n".encode("utf-16"), "-two\n+2", "one\r\n2\r\n".encode("utf-16")),
    ],
)
def test_a_patch_keeps_encoding_and_line_ends(
    room: Room, before: bytes, body: str, after: bytes
) -> None:
    assert patched(room, "a.txt", before, f"*** Update File: a.txt\n@@\n{body}") == after


@pytest.mark.spec("TOOL-9")
def test_a_patch_with_crlf_line_ends_fits_a_plain_file(room: Room) -> None:
    room.write("a.txt", "a\nb\n")
    patch = wrapped("*** Update File: a.txt\n@@\n-b\n+B\n*** Add File: n.txt\n+new")
    ok(room.run(TOOL, patch=patch.replace("\n", "\r\n")))
    assert room.tree() == {"a.txt": b"a\nB\n", "n.txt": b"new\n"}


@pytest.mark.spec("TOOL-9")
def test_one_file_may_be_changed_moved_and_replaced_in_one_patch(room: Room) -> None:
    room.write("a.txt", "1\n2\n")
    body = (
        "*** Update File: a.txt\n@@\n-1\n+one\n*** Update File: a.txt\n@@\n one\n-2\n+two\n"
        "*** Update File: a.txt\n*** Move to: b/c.txt\n*** Add File: a.txt\n+fresh"
    )
    ok(room.run(TOOL, patch=wrapped(body)))
    assert room.tree() == {"a.txt": b"fresh\n", "b/c.txt": b"one\ntwo\n"}


@pytest.mark.spec("TOOL-9")
def test_a_move_keeps_the_mode_and_says_what_it_did(room: Room) -> None:
    room.write("run.sh", "a\n").chmod(0o755)
    output = room.run(
        TOOL, patch=wrapped("*** Update File: run.sh\n*** Move to: bin/go\n@@\n-a\n+b")
    )
    assert "R run.sh -> bin/go (+1 -1)" in ok(output)
    assert (room.root / "bin/go").stat().st_mode & 0o777 == 0o755
    assert "--- a/run.sh\n+++ b/bin/go" in output.display
    assert output.summary == "1 file, +1 -1"


# --- messages ------------------------------------------------------------------------------


@pytest.mark.spec("TOOL-9")
def test_a_hunk_that_does_not_fit_is_answered_with_the_closest_lines(room: Room) -> None:
    room.write("a.py", "import os\n\ndef total(items):\n    return sum(items)\n")
    body = "*** Update File: a.py\n@@\n def total(item):\n-    return sum(item)\n+    return 0"
    message = failed(room.run(TOOL, patch=wrapped(body)))
    assert "does not fit a.py" in message
    assert "     3\tdef total(items):" in message
    assert "No file was changed." in message


@pytest.mark.spec("TOOL-9")
def test_hunks_out_of_order_are_told_so(room: Room) -> None:
    room.write("a.txt", "a\nb\nc\n")
    body = "*** Update File: a.txt\n@@\n-c\n+C\n@@\n-a\n+A"
    assert "put the hunks in the file's order" in failed(room.run(TOOL, patch=wrapped(body)))


# --- all or nothing ------------------------------------------------------------------------


@pytest.mark.spec("TOOL-9")
def test_a_write_that_fails_in_the_middle_undoes_the_earlier_ones(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt", "gone.txt"):
        room.write(name, f"{name}\n")
    before = room.tree()
    real, renames = os.rename, []

    def rename(source: str, target: str, **where: int) -> None:
        renames.append(target)
        if target == "b.txt" and not source.endswith(".old"):
            raise OSError(28, "No space left on device")
        real(source, target, **where)

    monkeypatch.setattr(os, "rename", rename)
    body = (
        "*** Add File: new/deep/n.txt\n+n\n*** Delete File: gone.txt\n"
        "*** Update File: a.txt\n@@\n-a.txt\n+A\n*** Update File: b.txt\n@@\n-b.txt\n+B"
    )
    assert "no space is left" in failed(room.run(TOOL, patch=wrapped(body)))
    assert "a.txt" in renames
    assert room.tree() == before
    assert not (room.root / "new").exists()


@pytest.mark.spec("TOOL-9")
def test_a_directory_that_cannot_be_written_fails_before_anything_changes(room: Room) -> None:
    room.write("a.txt", "a\n")
    room.write("file", "x\n")
    body = "*** Update File: a.txt\n@@\n-a\n+A\n*** Add File: file/below.txt\n+n"
    failed(room.run(TOOL, patch=wrapped(body)))
    assert room.tree() == {"a.txt": b"a\n", "file": b"x\n"}


@pytest.mark.spec("TOOL-9")
def test_a_cancelled_patch_writes_nothing(room: Room) -> None:
    room.cancel.cancel(CancelReason.USER)
    output = room.run(TOOL, patch=wrapped("*** Add File: a.txt\n+a"))
    assert output.kind is OutputKind.CANCELLED
    assert room.tree() == {}


@pytest.mark.spec("TOOL-9", "SEC-5")
def test_every_file_is_told_to_the_policy_resolved(room: Room, tmp_path_factory) -> None:
    outside = tmp_path_factory.mktemp("outside").resolve()
    (room.root / "link").symlink_to(outside)
    body = (
        "*** Update File: link/a.txt\n*** Move to: ../x/b.txt\n@@\n-a\n+b\n*** Delete File: c\n"
        "*** Add File: d/e\n+e"
    )
    paths = room.paths(TOOL, patch=wrapped(body))
    assert set(paths) >= {
        outside / "a.txt",
        room.root.parent / "x/b.txt",
        room.root / "c",
        room.root / "d/e",
    }
    assert room.paths(TOOL, patch="nonsense") == ()


@pytest.mark.spec("TOOL-8", "TOOL-9")
def test_a_file_that_changed_since_it_was_read_is_not_deleted_or_replaced(room: Room) -> None:
    from agentcli.tools.read_file import TOOL as READ

    path = room.write("a.txt", "mine\n")
    ok(room.run(READ, path="a.txt"))
    path.write_text("theirs\n")
    for body in ("*** Delete File: a.txt", "*** Add File: a.txt\n+new"):
        assert "changed since" in failed(room.run(TOOL, patch=wrapped(body)))
    assert path.read_text() == "theirs\n"


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    "patch",
    [
        "diff --git a/a.txt b/big.txt\nsimilarity index 100%\nrename from a.txt\nrename to big.txt\n",
        "--- /dev/null\n+++ b/big.txt\n@@ -0,0 +1 @@\n+hi\n",
    ],
)
def test_a_file_too_large_to_be_read_is_in_the_way_of_a_new_one_all_the_same(
    room: Room, patch: str
) -> None:
    room.write("a.txt", "a\n")
    big = room.write("big.txt", b"z" * (MAX_WHOLE_BYTES + 1))
    before = room.tree()
    assert "exists already" in failed(room.run(TOOL, patch=patch))
    assert room.tree() == before
    ok(room.run(TOOL, patch=wrapped("*** Delete File: big.txt\n*** Add File: big.txt\n+new")))
    assert big.read_text() == "new\n"


def test_a_deleted_link_leaves_its_target(room: Room) -> None:
    room.write("real.txt", "x\n")
    (room.root / "link").symlink_to("real.txt")
    ok(room.run(TOOL, patch=wrapped("*** Delete File: link")))
    assert room.tree() == {"real.txt": b"x\n"}


@pytest.mark.spec("TOOL-1")
def test_a_patch_reads_in_a_line() -> None:
    args = TOOL.parse({"patch": wrapped("*** Add File: a\n+a\n*** Delete File: b")})
    assert TOOL.summary(args) == "Patch a, b"


# --- unified diffs -------------------------------------------------------------------------

BEFORE = "".join(f"line {number}\n" for number in range(1, 21))


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize("name", ["a.txt", "dir with blank/ä.txt"])
def test_what_git_diff_prints_can_be_applied(room: Room, tmp_path_factory, name: str) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    other = tmp_path_factory.mktemp("repository")

    def run(*words: str) -> str:
        done = subprocess.run(
            [git, "-c", "user.name=t", "-c", "user.email=t@t", *words],
            cwd=other,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    files = {name: BEFORE, "gone.txt": "x\n", "old.txt": BEFORE, "noeol.txt": "a\nb", "e": ""}
    for file, text in files.items():
        room.write(file, text)
        (other / file).parent.mkdir(exist_ok=True)
        (other / file).write_text(text)
    run("init", "-q")
    run("add", ".")
    run("commit", "-qm", "x")
    (other / name).write_text(
        BEFORE.replace("line 3\n", "LINE 3\n")
        .replace("line 17\n", "")
        .replace("line 9\n", "line 9\n9b\n")
    )
    (other / "gone.txt").unlink()
    (other / "e").unlink()
    (other / "old.txt").rename(other / "new name.txt")
    (other / "new name.txt").write_text(BEFORE.replace("line 5", "five"))
    (other / "noeol.txt").write_text("a\nB")
    (other / "made.sh").write_text("#!/bin/sh\n")
    (other / "made.sh").chmod(0o755)
    (other / "empty").touch()
    run("add", "-A")
    patch = run("diff", "--cached", "-M")
    assert "rename from" in patch
    ok(room.run(TOOL, patch=patch))
    expected = {
        path.relative_to(other).as_posix(): path.read_bytes()
        for path in other.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    assert room.tree() == expected
    assert (room.root / "made.sh").stat().st_mode & 0o100


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    ("patch", "after"),
    [
        ("--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n-line 1\n+ONE\n line 2\n", "ONE"),
        ("--- a/a.txt\t2024-01-01\n+++ b/a.txt\t2024-01-02\n@@ -1 +1 @@\n-line 1\n+ONE", "ONE"),
        ("--- a.txt.orig\n+++ a.txt\n@@ -1 +1 @@\n-line 1\n+ONE\n", "ONE"),
        ("words before\n\n--- a/a.txt\n+++ b/a.txt\n@@ ... @@\n-line 1\n+ONE\n", "ONE"),
        ("--- a/a.txt\n+++ b/a.txt\n@@ -9,9 +9,9 @@\n-line 1\n+ONE\n line 2\n", "ONE"),
        ("```diff\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-line 1\n+ONE\n```", "ONE"),
        (
            "*** Begin Patch\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-line 1\n+ONE\n*** End Patch",
            "ONE",
        ),
    ],
)
def test_plain_and_careless_unified_diffs_are_understood(
    room: Room, patch: str, after: str
) -> None:
    path = room.write("a.txt", BEFORE)
    ok(room.run(TOOL, patch=patch))
    assert path.read_text() == BEFORE.replace("line 1\n", f"{after}\n", 1)


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize("version", ["2.40.1", "2.39.2 (Apple Git-143)"])
def test_a_patch_of_git_format_patch_ends_at_its_signature(room: Room, version: str) -> None:
    path = room.write("a.md", "x\n- \n-- \n9.9\n")
    head = (
        "From 1 Mon Sep 17\nSubject: [PATCH] y\n\n---\n a.md | 2 +-\n\ndiff --git a/a.md b/a.md\n"
    )
    hunk = "--- a/a.md\n+++ b/a.md\n@@ -1 +1 @@\n-x\n+y\n"
    ok(room.run(TOOL, patch=f"{head}{hunk}-- \n{version}\n\n"))
    assert path.read_text() == "y\n- \n-- \n9.9\n"
    careless = "--- a/a.md\n+++ b/a.md\n@@ -1 +1 @@\n-y\n+z\n-- \n --\x20\n"  # more than it counts
    ok(room.run(TOOL, patch=careless))
    assert path.read_text() == "z\n-- \n9.9\n"


@pytest.mark.spec("TOOL-9")
def test_equal_places_are_told_apart_by_the_line_numbers(room: Room) -> None:
    path = room.write("a.txt", "x\n" * 20)
    ok(room.run(TOOL, patch="--- a/a.txt\n+++ b/a.txt\n@@ -11 +11 @@\n-x\n+HERE\n"))
    assert path.read_text().split("\n").index("HERE") == 10


@pytest.mark.spec("TOOL-9")
def test_removed_lines_that_look_like_headers_are_removed(room: Room) -> None:
    path = room.write("a.sql", "-- one\n-- two\nselect\n")
    patch = "--- a/a.sql\n+++ b/a.sql\n@@ -1,3 +1,2 @@\n--- one\n+++ uno\n--- two\n select\n"
    ok(room.run(TOOL, patch=patch))
    assert path.read_text() == "++ uno\nselect\n"


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize(
    "patch",
    [
        "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+exists\n",
        "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-line 1\n",
        "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-nowhere\n+x\n",
        "diff --git a/x.png b/x.png\nGIT binary patch\nliteral 1\n",
        "--- a/a.txt\n+++ b/a.txt\n",
        "@@ -1 +1 @@\n-line 1\n+x\n",
    ],
)
def test_unified_diffs_that_do_not_fit_change_nothing(room: Room, patch: str) -> None:
    room.write("a.txt", BEFORE)
    failed(room.run(TOOL, patch=patch))
    assert room.tree() == {"a.txt": BEFORE.encode()}


# --- properties ----------------------------------------------------------------------------

_ENDS = st.sampled_from(["\n", "\r\n"])
_LINES = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=6), _ENDS
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.spec("TOOL-9")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines=_LINES, at=st.integers(0, 11), added=st.lists(st.text("xyz", max_size=3), max_size=3))
def test_bytes_that_a_patch_does_not_touch_stay_identical(
    tmp_path_factory, lines: list[tuple[str, str]], at: int, added: list[str]
) -> None:
    room = Room(tmp_path_factory.mktemp("p").resolve())
    at %= len(lines)
    lines[at] = ("the line 4711", lines[at][1])
    before = [(text + end).encode() for text, end in lines]
    path = room.write("a.txt", b"".join(before))
    hunk = ["-the line 4711", *(f"+{line}" for line in added)]
    ok(room.run(TOOL, patch=wrapped("*** Update File: a.txt\n@@\n" + "\n".join(hunk))))
    after = path.read_bytes()
    head, tail = b"".join(before[:at]), b"".join(before[at + 1 :])
    assert after.startswith(head)
    assert after.endswith(tail)
    middle = after[len(head) : len(after) - len(tail)]
    assert middle.replace(b"\r\n", b"\n") == "".join(f"{line}\n" for line in added).encode()


@pytest.mark.slow
@pytest.mark.spec("TOOL-9")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    old=st.lists(st.sampled_from("abc "), max_size=10),
    new=st.lists(st.sampled_from("abc "), max_size=10),
)
def test_the_diff_that_a_change_shows_makes_that_change(
    tmp_path_factory, old: list[str], new: list[str]
) -> None:
    from agentcli.tools.write_file import TOOL as WRITE

    room = Room(tmp_path_factory.mktemp("p").resolve())
    before, after = "".join(f"{x}\n" for x in old), "\n".join(new)
    path = room.write("a.txt", before)
    shown = room.run(WRITE, path="a.txt", content=after).display
    path.write_text(before)
    if shown:
        ok(room.run(TOOL, patch=shown))
        assert path.read_text() == after


def test_a_path_of_nothing_is_a_clear_error(room: Room, tmp_path: Path) -> None:
    assert "URL" in failed(room.run(TOOL, patch=wrapped(f"*** Add File: file://{tmp_path}/a\n+x")))
