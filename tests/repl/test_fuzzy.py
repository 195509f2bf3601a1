"""Fuzzy search: what matches, in which order, and that narrowing changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.repl import fuzzy
from agentcli.repl.fuzzy import PathList

PATHS = [
    "x/deep/config.py",
    "config.py",
    "my_config.py",
    "reconfigure.py",
    "src/config/a.py",
    "c/o/n/f.i.g",
    "zzz",
]


@pytest.mark.spec("UI-4")
def test_better_kinds_of_match_come_first() -> None:
    assert PathList(PATHS).search("config", 9) == [
        "config.py",
        "x/deep/config.py",
        "my_config.py",
        "reconfigure.py",
        "src/config/a.py",
        "c/o/n/f.i.g",
    ]


@pytest.mark.spec("UI-4")
@pytest.mark.parametrize(
    ("typed", "best"),
    [
        ("fb", "src/foo_bar.py"),
        ("cc", "src/ChatCompleter.py"),
        ("chatc", "src/ChatCompleter.py"),
        ("s/f", "src/foo_bar.py"),
        ("srcfoo", "src/foo_bar.py"),
        ("SRC/", "src/"),
        ("foo_bar", "src/foo_bar.py"),
        ("v2", "docs/api_v2.md"),
        ("é", "docs/été.md"),
    ],
)
def test_words_and_capitals_are_what_people_abbreviate(typed: str, best: str) -> None:
    paths = [
        *("src/", "src/foo_bar.py", "src/ChatCompleter.py", "docs/fabric.md", "docs/api_v2.md"),
        *("docs/accc.md", "a/s/d/f.py", "docs/été.md", "docs/chat_x.c"),
    ]
    assert PathList(paths).search(typed, 3)[0] == best


@pytest.mark.spec("UI-4")
def test_what_was_used_last_comes_first_among_equals() -> None:
    paths = PathList(["a/test_a.py", "b/test_bbb.py", "c/test_cccccc.py", "latest.py"])
    used = {"c/test_cccccc.py": 2, "b/test_bbb.py": 1, "latest.py": 3}
    assert paths.search("test", 4, used) == [
        *("c/test_cccccc.py", "b/test_bbb.py", "a/test_a.py", "latest.py")
    ]
    assert paths.search("", 2, used) == ["latest.py", "c/test_cccccc.py"]


@pytest.mark.spec("UI-4")
def test_before_anything_is_typed_the_upper_level_is_offered() -> None:
    paths = PathList(["src/", "src/a.py", "README.md", ".env", "docs/", "docs/x/y.md"])
    assert paths.search("", 4) == ["docs/", "src/", "README.md", ".env"]


@pytest.mark.spec("UI-4")
def test_many_shorter_paths_do_not_hide_a_better_match() -> None:
    crowd = [f"a{n:04}p.x" for n in range(2000)]
    paths = PathList([*crowd, "some/long/directory/app.py"])
    assert paths.search("app", 1) == ["some/long/directory/app.py"]


LETTERS = st.text(alphabet="abA/_.-é", min_size=1, max_size=8)


@given(st.lists(LETTERS, max_size=20), st.text(alphabet="abA/_é", max_size=5))
@settings(max_examples=150, deadline=None)
def test_typing_on_finds_the_same_as_searching_anew(paths: list[str], typed: str) -> None:
    kept = PathList(paths)
    for end in range(len(typed) + 1):
        found = kept.search(typed[:end], 50)
        assert found == PathList(paths).search(typed[:end], 50)
    letters = typed.lower()
    assert all(fuzzy.subsequence(letters).match(path.lower()) for path in found)
    if typed:
        matching = {path for path in paths if fuzzy.subsequence(letters).match(path.lower())}
        assert set(found) == matching
