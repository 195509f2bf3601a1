"""Skills in folders: which are found, how the model is told of them, within which bounds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentcli.extensions import front_matter
from agentcli.extensions.agents import load_agents
from agentcli.extensions.commands import find_commands
from agentcli.extensions.front_matter import Heads
from agentcli.extensions.skills import MAX_CATALOGUE, catalogue, find_skills
from tests.extensions.places import place, skill, write


@pytest.mark.spec("EXT-1")
def test_the_nearest_of_a_name_wins_and_a_notice_names_what_it_hides(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    winner, loser = skill(near, "pdf", "near"), skill(far, "pdf", "far")
    other = skill(far, "xlsx")
    (near / "skills" / "linked").symlink_to(other.parent)  # installed into both, as many do
    found, notices = find_skills([place(near), place(far)])
    assert [(each.name, each.description) for each in found] == [("pdf", "near"), ("xlsx", "d")]
    assert len(notices) == 1
    assert str(winner.parent) in notices[0] and str(loser.parent) in notices[0]


@pytest.mark.spec("EXT-1", "EXT-2")
def test_broken_ones_are_named_once_and_hide_no_other(tmp_path: Path) -> None:
    skill(tmp_path, "good")
    write(tmp_path, "skills/empty/SKILL.md", "---\nname: empty\ndescription: d\n---\n")
    write(tmp_path, "skills/open/SKILL.md", "---\nname: open\n")
    write(tmp_path, "skills/large/SKILL.md", "x" * 300_000)
    write(tmp_path, "skills/README.md", "no skill")
    for name in ("pipe", "loop", "bin", "bomb"):
        (tmp_path / "skills" / name).mkdir()
    os.mkfifo(tmp_path / "skills/pipe/SKILL.md")
    (tmp_path / "skills/loop/SKILL.md").symlink_to("SKILL.md")
    (tmp_path / "skills/bin/SKILL.md").write_bytes(b"---\n\0")
    deep = "---\nname: bomb\na:\n  " + "[" * 3_000 + "\n---\nx"
    (tmp_path / "skills/bomb/SKILL.md").write_text(deep)
    found, notices = find_skills([place(tmp_path)])
    assert [each.name for each in found] == ["good"]
    assert len(notices) == 7
    for name in ("empty", "open", "large", "pipe", "loop", "bin", "bomb"):
        assert sum(f"skills/{name}" in line for line in notices) == 1


@pytest.mark.spec("EXT-1", "EXT-2")
def test_links_that_lead_nowhere_or_in_circles_hide_no_other(tmp_path: Path) -> None:
    skill(tmp_path, "good")
    (tmp_path / "skills/circle").symlink_to("circle")
    (tmp_path / "skills/dead").symlink_to("../gone")
    other = tmp_path / "other"
    other.mkdir()
    for kind in ("skills", "commands", "agents"):
        (other / kind).symlink_to(kind)
    found, notices = find_skills([place(other), place(tmp_path)])
    assert [each.name for each in found] == ["good"]
    for name in ("circle", "dead"):
        assert sum(f"skills/{name}" in line for line in notices) == 1
    assert len(notices) == 3
    assert len(find_commands([place(other)])[1]) == 1
    assert len(load_agents([place(other)])[1]) == 1


MORE = """license: MIT
unknown: [1, {a: b}]
compatibility: Requires Python 3.11+
metadata:
  author: Test
  version: 1.0
allowed-tools: Bash(jq:*) Bash(git:*)"""


# facts of https://github.com/agentskills/agentskills (skills-ref/tests), read leniently as
# https://agentskills.io/client-implementation/adding-skills-support advises
@pytest.mark.spec("EXT-1", "EXT-2")
@pytest.mark.parametrize(
    ("folder", "head", "name"),
    [
        ("my-skill", "name: my-skill\ndescription: A test skill", "my-skill"),
        ("my-skill", "description: A test skill", "my-skill"),
        ("wrong-name", "name: correct-name\ndescription: A test skill", "correct-name"),
        ("x", "name: MySkill\ndescription: A test skill", "myskill"),
        ("x", "name: my_skill\ndescription: A test skill", "my_skill"),
        ("long", f"name: {'a' * 70}\ndescription: A test skill", "long"),
        ("技能", "name: 技能\ndescription: A test skill", "技能"),
        ("мой-навык", "name: мой-навык\ndescription: A test skill", "мой-навык"),
        ("café", "name: cafe\u0301\ndescription: A test skill", "café"),
        ("x", f"name: my-skill\ndescription: A test skill\n{MORE}", "my-skill"),
        ("x", "name: my-skill\ndescription: >\n  A test\n  skill", "my-skill"),
        ("x", "name: my-skill\ndescription: 'A test skill'", "my-skill"),
        ("x", "name: [invalid\ndescription: A test skill", "x"),
    ],
)  # fmt: skip
def test_the_fixtures_of_the_open_standard(
    tmp_path: Path, folder: str, head: str, name: str
) -> None:
    write(tmp_path, f"skills/{folder}/SKILL.md", f"---\n{head}\n---\n# My Skill\n\nInstructions.")
    (found,), notices = find_skills([place(tmp_path)])
    assert (found.name, found.description) == (name, "A test skill")
    assert not notices


@pytest.mark.spec("EXT-1")
def test_a_small_file_name_counts_where_there_is_no_other(tmp_path: Path) -> None:
    write(tmp_path, "skills/a/skill.md", "---\ndescription: small\n---\nx")
    write(tmp_path, "skills/b/skill.md", "---\ndescription: small\n---\nx")
    write(tmp_path, "skills/b/SKILL.md", "---\ndescription: large\n---\nx")
    found, _ = find_skills([place(tmp_path)])
    assert [(each.name, each.description) for each in found] == [("a", "small"), ("b", "large")]


@pytest.mark.spec("EXT-1", "CTX-2")
def test_the_longest_descriptions_are_shortened_first_and_none_is_left_out(tmp_path: Path) -> None:
    for number in range(19):
        skill(tmp_path, f"s{number:02}", f"short {number}")
    skill(tmp_path, "long", "word " * 3_000)
    skill(tmp_path, "hidden", "of no model", more="disable-model-invocation: true\n")
    found, _ = find_skills([place(tmp_path)])
    text, notice = catalogue(found)
    assert len(text) <= MAX_CATALOGUE and not notice
    for number in range(19):
        path = tmp_path / f"skills/s{number:02}/SKILL.md"
        assert f"- s{number:02}: short {number} ({path})" in text
    assert "word word" in text and "…" in text and "hidden" not in text
    assert text == catalogue(tuple(find_skills([place(tmp_path)])[0]))[0]


@pytest.mark.spec("EXT-1", "CTX-2")
@pytest.mark.parametrize("limit", [8_000, 2_600, 600])
def test_a_small_budget_keeps_the_names(tmp_path: Path, limit: int) -> None:
    for number in range(150 if limit > 1_000 else 20):
        skill(tmp_path, f"n{number}", "text " * 100)
    found, _ = find_skills([place(tmp_path)])
    text, notice = catalogue(found, limit)
    assert len(text) <= limit
    if limit == MAX_CATALOGUE:
        assert all(f"- {each.name}" in text for each in found) and not notice
    listed = sum(f"- {each.name}" in text for each in found)
    if "more: list" in text:
        assert "do not fit" in notice
    else:
        assert listed == len(found) and not notice


@pytest.mark.spec("EXT-2")
def test_heads_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        skill(tmp_path, f"s{number}", f"number {number}")
    heads = Heads()
    first, _ = find_skills([place(tmp_path)], heads)
    assert heads.has_news
    kept = heads.text()
    monkeypatch.setattr(front_matter, "_yaml", None)  # raises when it is called
    again = Heads(kept)
    assert find_skills([place(tmp_path)], again)[0] == first
    assert not again.has_news
    monkeypatch.undo()
    changed = skill(tmp_path, "s1", "number 9")
    found, _ = find_skills([place(tmp_path)], Heads(kept))
    assert [each.description for each in found if each.path == changed] == ["number 9"]


@pytest.mark.spec("EXT-2", "SEC-13")
@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"version": 1}', '{"version": 1, "heads": {"/x": 3}}',
     '{"version": 99, "heads": {}}', "[" * 100_000, "\0"],
)  # fmt: skip
def test_what_was_kept_may_be_anything(tmp_path: Path, text: str) -> None:
    skill(tmp_path, "a")
    assert len(find_skills([place(tmp_path)], Heads(text))[0]) == 1


@pytest.mark.spec("EXT-2", "SEC-13")
def test_references_that_grow_are_not_kept(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    write(tmp_path, "skills/bomb/SKILL.md", "---\n" + "\n".join(lines) + "\n---\nx")
    heads = Heads()
    assert len(find_skills([place(tmp_path)], heads)[0]) == 1
    assert json.loads(heads.text())["heads"] == {}
