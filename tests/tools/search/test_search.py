"""Both engines on the same trees: same files, same lines, same order (TOOL-10)."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentcli.domain.cancel import CancelToken
from agentcli.process.run import Ending, end_processes
from agentcli.tools.search import search as _search
from agentcli.tools.search.globs import PathFilter
from agentcli.tools.search.search import Found, Query, SearchFailed, search

needs_rg = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")


def both(query: Query, limit: int = 1000) -> tuple[Found, Found]:
    async def body() -> tuple[Found, Found]:
        rg = shutil.which("rg")
        assert rg is not None
        theirs = await _search._found_by_rg(rg, query, limit, CancelToken())
        ours = await _search._run(_search._own_command(query), query, limit, CancelToken())
        await end_processes()
        return theirs, ours

    return asyncio.run(body())


def alone(query: Query, limit: int = 1000, cancel: CancelToken | None = None) -> Found:
    async def body() -> Found:
        found = await search(query, limit, cancel or CancelToken(), [])
        await end_processes()
        return found

    return asyncio.run(body())


@pytest.fixture
def no_rg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    def put(name: str, data: bytes) -> None:
        path = tmp_path / os.fsdecode(name.encode("latin-1") if "\xff" in name else name.encode())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    put(".git/HEAD", b"foo\n")
    put(".gitignore", b"*.log\nignored/\n!keep.log\n")
    put(".hidden", b"foo\n")
    put(".github/ci.yml", b"foo\n")
    put("a.log", b"foo\n")
    put("keep.log", b"foo\n")
    put("ignored/x", b"foo\n")
    put("plain.txt", b"one\nfoo bar\nthree\nfour\nfive\nfoo\n")
    put("crlf.txt", b"foo\r\nbar foo\r\n\r\n")
    put("no-newline", b"x\nfoo")
    put("bom", b"\xef\xbb\xbffoo\n")
    put("utf16", "foo\nb\u00e4r\nfoo\n".encode("utf-16"))
    put("invalid", b"foo \xff\xfe\nx\xfffoo\n")
    put("binary", b"foo\n\0\nfoo\n")
    put("empty", b"")
    put("long", b"x" * 300_000 + b"foo" + b"y" * 2_000_000 + b"\nfoo\n")
    put("d/a", b"foo\n")
    put("d.txt", b"foo\n")
    put("d-x/\u00e9", b"foo\n")
    put("new\nline", b"foo\n")
    put("odd \xff", b"foo\n")
    put("sub/deep/er/file.py", b"def foo():\n    return FOO\n")
    put("sub/.gitignore", b"deep/other.py\n")
    put("sub/deep/other.py", b"foo\n")
    (tmp_path / "link").symlink_to("plain.txt")
    (tmp_path / "dirlink").symlink_to("sub")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


@pytest.mark.sampled
@needs_rg
@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize(
    "pattern",
    [
        "foo",
        "^foo$",
        r"\bfoo\b",
        "f[aeiou]{2}",
        "^$",
        r"^\s*return",
        "(?i)FOO$",
        "o+ ?b|three",
        "^x+f",
        "\u00e4",
    ],
)
@pytest.mark.parametrize("context", [0, 2])
def test_the_same_lines(tree: Path, pattern: str, context: int) -> None:
    query = Query(tree, pattern=pattern, context=context)
    theirs, ours = both(query)
    assert theirs.lines == ours.lines
    assert theirs.lines
    assert theirs.ending is ours.ending is Ending.EXITED


@pytest.mark.slow
@needs_rg
@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize(
    "glob", [None, "*.py", "sub/**", ".*", "**/.git*/**", "!*.txt", "*.{log,txt}"]
)
def test_the_same_files(tree: Path, glob: str | None) -> None:
    query = Query(tree, path_filter=PathFilter(glob) if glob else None)
    theirs, ours = both(query)
    assert theirs.lines == ours.lines
    assert theirs.lines
    assert not [line for line in ours.lines if line.path.startswith(".git/")]


@pytest.mark.slow
@needs_rg
@pytest.mark.spec("TOOL-10")
def test_the_same_for_case_single_files_and_limits(tree: Path) -> None:
    for query in (
        Query(tree, pattern="FOO", ignore_case=True),
        Query(tree, file="a.log", pattern="foo"),
        Query(tree, file="utf16", pattern="foo"),
        Query(tree / "ignored", pattern="foo"),
        Query(tree / "sub", pattern="foo", path_filter=PathFilter("*.py")),
    ):
        theirs, ours = both(query)
        assert theirs.lines == ours.lines
        assert theirs.lines
        theirs, ours = both(query, limit=1)
        assert theirs.lines == ours.lines
        assert len(ours.lines) == 1
        assert theirs.more is ours.more


NAMES = st.sampled_from(["a", "b", "a.py", "b.txt", ".h", "a b", "-x", "#c", "!d", "build"])
# without braces: to git they are themselves, and so they are to us; ripgrep expands them
LINES = st.sampled_from(
    [
        "a",
        "b.txt",
        "*.py",
        "/a",
        "b/",
        "!a",
        "!*.py",
        "a/b",
        "**/a",
        "a/**",
        "/*",
        "!/b",
        "\\#c",
        "#c",
        "*",
        ".h",
        "!.h",
        "[ab]",
        "bu*d",
        "a b ",
        "",
        "/a/*",
        "**/b/**/a",
        "?",
    ]
)


@pytest.mark.slow
@needs_rg
@pytest.mark.spec("TOOL-10")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    paths=st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), min_size=1, max_size=12),
    ignores=st.dictionaries(
        st.tuples(
            st.lists(NAMES, max_size=2).map("/".join),
            st.sampled_from([".gitignore", ".ignore", ".rgignore"]),
        ),
        st.lists(LINES, min_size=1, max_size=5).map("\n".join),
        max_size=4,
    ),
    repository=st.booleans(),
)
def test_any_tree_with_any_ignore_files_is_the_same_to_both(
    paths: list[str], ignores: dict[tuple[str, str], str], repository: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        if repository:
            (root / ".git/info").mkdir(parents=True)
            (root / ".git/info/exclude").write_text("b\n!a\n")
        for path in [*paths, *(f"{d}/{f}".removeprefix("/") for d, f in ignores)]:
            full = root / path
            try:
                full.parent.mkdir(parents=True, exist_ok=True)
                full.write_text("x\n")
            except OSError:
                continue
        for (directory, file), text in ignores.items():
            full = root / directory / file
            if full.is_file():
                full.write_text(text + "\n")
        theirs, ours = both(Query(root))
        assert theirs.lines == ours.lines


@pytest.mark.slow
@needs_rg
@pytest.mark.spec("TOOL-10")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    pattern=st.text("ab.[]^$|()*+?{}\\-dws12 &,", min_size=1, max_size=9),
    lines=st.lists(st.text("ab.[]^$|()*+?{}\\-1 2&,\u00e9", max_size=8), max_size=8),
)
def test_any_pattern_that_both_take_finds_the_same_lines(pattern: str, lines: list[str]) -> None:
    assume(not re.search(r"[*+?}]\+", pattern))  # one more repetition, or a possessive one
    with tempfile.TemporaryDirectory() as name:
        Path(name, "file").write_text("\n".join(lines))
        try:
            theirs, ours = both(Query(Path(name), pattern=pattern))
        except SearchFailed:
            return
        assert theirs.lines == ours.lines


@pytest.mark.spec("TOOL-10", "SEC-13")
@pytest.mark.usefixtures("no_rg")
def test_a_catastrophic_pattern_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_search, "TIME_LIMIT_S", 0.5)
    (tmp_path / "f").write_text("a" * 60 + "!\n")
    found = alone(Query(tmp_path, pattern="(a|a)*(a|a)*$"))
    assert found.ending is Ending.TIMED_OUT


@pytest.mark.spec("TOOL-10", "CAN-6")
@pytest.mark.usefixtures("no_rg")
def test_a_cancel_stops_a_catastrophic_pattern_at_once(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a" * 60 + "!\n")
    query = Query(tmp_path, pattern="(a|a)*(a|a)*$")

    async def body() -> Found:
        cancel = CancelToken()
        searching = asyncio.create_task(search(query, 10, cancel, []))
        asyncio.get_running_loop().call_later(0.2, cancel.cancel)
        return await searching

    assert asyncio.run(body()).ending is Ending.CANCELLED


@pytest.mark.spec("SEC-2")
@pytest.mark.parametrize("script", ["echo evil", "exit 2", "echo old >&2; exit 2", "kill -9 $$"])
def test_an_unusable_rg_is_replaced_and_one_in_the_workspace_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    work, bin_ = tmp_path / "work", tmp_path / "bin"
    for directory in (work, bin_):
        directory.mkdir()
    for directory, text in ((work, "touch ran"), (bin_, script)):
        (directory / "rg").write_text(f"#!/bin/sh\n{text}\n")
        (directory / "rg").chmod(0o755)
    (work / "f").write_text("foo\n")
    monkeypatch.setenv("PATH", f"{work}:{bin_}")

    async def body() -> Found:
        found = await search(Query(work, pattern="foo"), 10, CancelToken(), [work])
        await end_processes()
        return found

    found = asyncio.run(body())
    assert not (work / "ran").exists()
    if script not in {"echo evil", "exit 2"}:
        assert [line.path for line in found.lines] == ["f"]


@needs_rg
@pytest.mark.spec("SEC-2")
def test_a_configuration_file_for_rg_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("foo\n")
    (tmp_path / "rc").write_text("--pre=/bin/false\n--ignore-case\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    assert [line.path for line in alone(Query(tmp_path, pattern="foo")).lines] == ["f"]
    assert alone(Query(tmp_path, pattern="FOO")).lines == []


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("size", [1, 2_000_000])
def test_lines_that_come_in_pieces_are_put_together_and_bounded(size: int) -> None:
    seen: list[_search.Line] = []
    reader = _search._LineReader(lambda line: bool(seen.append(line)) or True)
    data = (
        b"rg: noise\n./p\x0012:4:" + b"x" * size + b"\n./p\x0013-9-after\n--\n./q\n1\x001:0:y\r\n"
    )
    for at in range(0, len(data), 4096):
        assert reader.feed(data[at : at + 4096])
    shown = min(size, _search.LINE_BYTES)
    assert [(line.path, line.number, line.matches) for line in seen] == [
        ("p", 12, True),
        ("p", 13, False),
        ("q\n1", 1, True),
    ]
    assert seen[0].text == "x" * shown
    assert seen[0].cut_bytes == size - shown
    assert seen[2].text == "y"
