"""Globs as .gitignore and ripgrep mean them, in linear time."""

from __future__ import annotations

import pytest

from agentcli.tools.search.globs import BadGlob, PathFilter, split_base


@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize(
    ("glob", "selected", "others"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/b"]),
        ("./*.py", ["a.py", "x/a.py"], ["b"]),
        ("/*.py", ["a.py"], ["x/a.py"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py"]),
        ("**/test_*", ["test_a", "x/test_b"], ["x/atest_"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "asrc/x"]),
        ("src/", ["src/a", "src/x/y"], ["src"]),
        ("**", ["a", "x/y"], []),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/z/c"], ["a/c", "a/b"]),
        ("*.{ts,tsx}", ["a.ts", "x/a.tsx"], ["a.t"]),
        ("{src,test}/**/*.{a,b{c,d}}", ["src/x.a", "test/y/x.bd"], ["src/x.b", "x/src/x.a"]),
        ("[!a-c]?", ["d1", "x/zz"], ["a1", "d"]),
        ("[]x]", ["]", "x"], ["a"]),
        (r"\*\?\[\{", ["*?[{"], ["a"]),
        ("a**b", ["ab", "axxb"], ["a/b"]),
        ("a,b}", ["a,b}"], ["a"]),
        ("*a*b*c", ["abc", "xaabxbcc"], ["acb", "a/bc"]),
        ("!*.py", ["a.c"], ["a.py"]),
        ("sp ace (1)+.txt", ["sp ace (1)+.txt"], ["sp ace (1).txt"]),
    ],
)
def test_paths_are_selected(glob: str, selected: list[str], others: list[str]) -> None:
    path_filter = PathFilter(glob)
    assert [path for path in selected if not path_filter.matches(path)] == []
    assert [path for path in others if path_filter.matches(path)] == []


@pytest.mark.parametrize("glob", ["[a", "{a", "{a,{b}", "a\\", "x" * 5_000, "{a,b}" * 10])
def test_malformed_and_oversized_globs_are_refused(glob: str) -> None:
    with pytest.raises(BadGlob):
        PathFilter(glob)


@pytest.mark.spec("TOOL-10", "SEC-13")
@pytest.mark.parametrize(
    "glob",
    ["*a" * 40 + "*b", "**/a/" * 40 + "b", "?*" * 60 + "x", "[a-z]*" * 60, "**/*a*a*a/" * 9 + "b"],
)
def test_no_glob_takes_for_ever(glob: str) -> None:
    path_filter = PathFilter(glob)
    for path in ("a" * 255, "a/" * 2_000 + "c", ("a" * 200 + "/") * 20 + "c"):
        path_filter.matches(path)


@pytest.mark.parametrize(
    ("glob", "parts"),
    [
        ("*.py", ("", "*.py")),
        ("src/app/**/*.py", ("src/app", "**/*.py")),
        ("/etc/*.conf", ("/etc", "*.conf")),
        ("/x", ("/", "x")),
        ("../a", ("..", "a")),
        ("a/{b,c}/d", ("a", "{b,c}/d")),
    ],
)
def test_the_directory_in_front_of_the_first_wildcard_is_split_off(
    glob: str, parts: tuple[str, str]
) -> None:
    assert split_base(glob) == parts


@pytest.mark.parametrize(
    ("glob", "hidden"),
    [
        ("**/.env", True),
        (".github/**", True),
        ("{.a,b}", True),
        ("*.py", False),
        ("./a", False),
        ("!.git", False),
    ],
)
def test_hidden_files_are_wanted_when_they_are_named(glob: str, hidden: bool) -> None:
    assert PathFilter(glob).names_hidden is hidden
