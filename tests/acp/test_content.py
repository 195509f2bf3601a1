"""Prompts of editors read, diffs as editors show them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.acp.content import (
    bounded,
    changes_of,
    exact,
    harmless,
    path_of,
    read_prompt,
    verbatim,
)
from agentcli.app.files.mentions import find_mentions
from agentcli.rpc.messages import RpcError
from agentcli.tools.files.diff import diff_texts

CWD = Path("/work")
LINE = st.sampled_from(["a", "b", "", "--- a/x", "+++ b/x", "@@ -1 +1 @@", "\\ No newline", " c"])
TEXT = st.builds(
    lambda lines, ending: "\n".join(lines) + ending,
    st.lists(LINE, max_size=30),
    st.sampled_from(["", "\n"]),
)


@pytest.mark.spec("ACP-1")
@given(TEXT, TEXT)
def test_the_changes_of_a_diff_make_one_text_of_the_other(old: str, new: str) -> None:
    lines = new.split("\n")
    rows = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    for change in reversed(changes_of(diff_texts("a/f", "b/f", old, new).text, CWD)):
        assert change.path == "/work/f" and change.old is not None
        count = change.new.count("\n") + (change.new[-1:] not in {"", "\n"})
        assert "".join(rows[change.line - 1 : change.line - 1 + count]) == change.new
        rows[change.line - 1 : change.line - 1 + count] = [change.old]
    assert "".join(rows) == old


def test_made_deleted_and_outer_files_are_told_apart() -> None:
    made = diff_texts("/dev/null", "b/new.txt", "", "x\n").text
    gone = diff_texts("a//etc/motd", "/dev/null", "y\n", "").text
    first, second = changes_of(made + gone, CWD)
    assert (first.path, first.old, first.new) == ("/work/new.txt", None, "x\n")
    assert (second.path, second.old, second.new) == ("/etc/motd", "y\n", "")
    assert changes_of("no diff at all\n--- a\n", CWD) == []


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a%20b/c.txt#L3", "/a b/c.txt"),
        ("file://localhost/x", "/x"),
        ("/plain/path", "/plain/path"),
        ("file://elsewhere/x", ""),
        ("https://example.org/x", ""),
        ("file:relative", ""),
        ("file://[", ""),
    ],
)
def test_paths_of_uris(uri: str, path: str) -> None:
    assert path_of(uri) == path


def test_pieces_of_a_sentence_and_lines_of_files_are_put_together() -> None:
    blocks = [
        {"type": "text", "text": "Look at"},
        {"type": "resource_link", "uri": "file:///a/b.py#L3-9", "name": "b"},
        {"type": "resource_link", "uri": "file:///a/b%20c.py", "name": "c"},
        {"type": "text", "text": "and say why."},
        {"type": "text", "text": "Be short."},
    ]
    text = read_prompt(blocks).text
    assert text == 'Look at @/a/b.py:3-9 @"/a/b c.py" and say why.\nBe short.'


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "image", "data": "!!", "mimeType": "image/png"}],
        [{"type": "image", "data": "AAAA", "mimeType": "image/png"}],
        [{"type": "resource", "resource": {"uri": "file:///x", "blob": "AAAA"}}],
        [{"type": "resource", "resource": "x"}],
        [{"type": "text", "text": 3}],
        [{"type": ["text"]}],
        [None],
        {"type": "text"},
    ],
)
def test_blocks_that_cannot_be_used_are_errors(blocks: object) -> None:
    with pytest.raises(RpcError, match="prompt"):
        read_prompt(blocks)


@pytest.mark.spec("SEC-6")
def test_text_of_others_cannot_leave_its_fence_or_hide() -> None:
    shown = verbatim("a\n````\nb")["content"]["text"]
    assert shown.startswith("`````\n") and shown.endswith("\n`````")
    assert "<U+202E>" in exact("a\u202eb", "sh")["content"]["text"]


def test_long_texts_are_cut_for_showing_and_nothing_else_is() -> None:
    value = bounded({"a": "x" * 100_000, "b": [1, None, "short"]})
    assert len(value["a"]) < 21_000 and value["b"] == [1, None, "short"]


@pytest.mark.spec("ACP-1", "SEC-10")
def test_what_steers_a_terminal_reaches_no_editor() -> None:
    hostile = "a\x1b]52;c;aGk=\x07\x9b2J\x7f\b\tb\r\n\u200d"
    assert harmless(hostile) == "a\ufffd]52;c;aGk=\ufffd\ufffd2J\ufffd\ufffd\tb\r\n\u200d"
    assert "\x1b" not in str(verbatim(hostile)) and "\x9b" not in str(verbatim(hostile))


@pytest.mark.spec("SEC-3", "ACP-1")
@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource_link", "uri": "https://example.org/", "title": "see @~/.netrc or @@x"},
        {"type": "resource_link", "uri": "https://example.org/ @~/.netrc", "name": ""},
        {"type": "resource", "resource": {"uri": "file:///work/a%20@~/.netrc", "text": "t"}},
        {"type": "resource", "resource": {"uri": "other:\n@~/.netrc", "text": "t"}},
        {"type": "resource_link", "uri": "file:///work/a%09@~/.netrc#L1-3", "name": "n"},
        {"type": "resource_link", "uri": "file:///work/a%20@~/.netrc#L1-3", "name": "n"},
    ],
)
def test_the_names_of_what_is_attached_attach_nothing_else(block: object) -> None:
    text = read_prompt([{"type": "text", "text": "look at @this and "}, block]).text
    named = [mention.path for readings in find_mentions(text) for mention in readings]
    assert set(named) <= {"this", "/work/a\t@~/.netrc", "/work/a @~/.netrc"}, text
