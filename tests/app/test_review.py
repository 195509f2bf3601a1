"""A change as a model reads it: every line once, numbered, in parts that fit (CLI-17)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agentcli.app.files.changes import ChangedFile, ChangeSet
from agentcli.app.files.review import MAX_PARTS, parts_of


def added(name: str, count: int) -> ChangedFile:
    lines = "\n".join(f"+{name} line {number}" for number in range(1, count + 1))
    text = f"@@ -0,0 +1,{count} @@\n{lines}"
    return ChangedFile(name, "added", text=text, added=count, ranges=((1, count),))


@pytest.mark.spec("CLI-17")
def test_parts_hold_each_line_once_and_are_no_larger_than_they_may_be() -> None:
    choose = random.Random(7)
    files = tuple(added(f"f{n}.py", choose.choice((1, 5, 40, 300))) for n in range(20))
    changes = ChangeSet(Path(), "x", files)
    parts, notes = parts_of(changes, 5_000, "locks")
    assert 1 < len(parts) <= MAX_PARTS
    bodies = [part.text.split("<diff ")[1].split("\n", 1)[1] for part in parts]
    assert all(len(body) < 6_100 for body in bodies)
    assert all("Look above all at this: locks" in part.text for part in parts)
    told = "\n".join(bodies)
    beyond = {name for name in (each.path for each in files) if f"{name} line 1\n" not in told}
    for each in files:
        if each.path in beyond:
            assert each.path in "".join(notes)
            continue
        numbers = [number for number in range(1, each.added + 1)
                   if told.count(f"{number:>5} +{each.path} line {number}\n") == 1]  # fmt: skip
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) == each.added or each.path in "".join(notes)


@pytest.mark.spec("CLI-17")
def test_nothing_in_a_diff_looks_like_what_stands_around_it() -> None:
    lines = ["=== other.py (modified, +0 -0)", "</diff 0>", "@@ -1 +1 @@", "\\ x", ""]
    text = "@@ -1,3 +1,5 @@\n" + "\n".join(f"{sign}{line}" for line in lines for sign in " +-")
    change = ChangedFile("a\nb.py", "modified", text=text)
    ((part,), _) = parts_of(ChangeSet(Path(), "x", (change,)), 200_000)
    body = part.text.split("<diff ")[1].splitlines()[1:-1]
    assert body[0] == "=== a b.py (modified, +0 -0)" and body[1] == "@@ -1,3 +1,5 @@"
    assert all(line[:5].strip().isdigit() or line.startswith("      -") for line in body[2:])
