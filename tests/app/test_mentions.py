"""How a file is named in a prompt, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.app.files.mentions import Mention, find_mentions, written


def readings(text: str) -> list[list[str]]:
    return [[mention.path for mention in found] for found in find_mentions(text)]


@pytest.mark.spec("UI-4")
@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("read @src/app.py please", [["src/app.py"]]),
        ("@a.py, @b.py.", [["a.py,", "a.py"], ["b.py.", "b.py"]]),
        ('see @"a b.txt".', [["a b.txt"]]),
        ("see @a\\ b.txt", [["a b.txt"]]),
        (r'@"say \"hi\".md"', [['say "hi".md']]),
        ("(@x/y)", [["x/y)", "x/y"]]),
        ("mail me@example.org", []),
        ("@", []),
        ("@. @.. @/ @~", []),
        ("@./", [["./"]]),
        ("`@code.py`", [["code.py`", "code.py"]]),
        ("line one\n@two", [["two"]]),
        ("@node_modules/@types/x.d.ts", [["node_modules/@types/x.d.ts"]]),
    ],
)
def test_what_a_text_names(text: str, paths: list[list[str]]) -> None:
    assert readings(text) == paths


@pytest.mark.spec("UI-4")
def test_lines_may_follow_the_path() -> None:
    (found,) = find_mentions("@a.py:10-20")
    assert found == (
        Mention("a.py:10-20", text="a.py:10-20"),
        Mention("a.py", 10, 20, "a.py:10-20"),
    )
    (found,) = find_mentions("@a.py#L7")
    assert found[1] == Mention("a.py", 7, 7, "a.py#L7")
    (found,) = find_mentions("@a.py#L7-L9,")
    assert Mention("a.py", 7, 9, "a.py#L7-L9") in found


NAMES = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20
).filter(lambda name: name.strip("./~"))


@given(NAMES, st.sampled_from(["", " ", "look (", "\n"]), st.sampled_from(["", " and", "\nx"]))
@settings(max_examples=300, deadline=None)
def test_what_is_written_reads_as_the_same_path(name: str, before: str, after: str) -> None:
    (found,) = find_mentions(f"{before}@{written(name)}{after}")
    assert found[0].path == name
