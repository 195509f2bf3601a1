"""Definitions of sub-agents: what is understood, and what hostile files come to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.ports import Effort
from agentcli.extensions.agents import (
    MAX_BYTES,
    MAX_FILES,
    AgentDefinition,
    Unusable,
    agent_of,
    load_agents,
)
from agentcli.extensions.front_matter import parse_document
from tests.extensions.places import place

HEAD = "---\nname: Reviewer\ndescription: Reviews code\n{more}---\nYou review.\n"


def parse_agent(text: str, stem: str) -> AgentDefinition:
    return agent_of(parse_document(text), stem)


def test_a_definition_says_name_tools_model_and_effort() -> None:
    more = "tools: Read, grep_files\nmodel: openai/gpt-4.1\neffort: Low\n"
    found = parse_agent(HEAD.format(more=more), "file")
    assert (found.name, found.description, found.prompt) == (
        "reviewer",
        "Reviews code",
        "You review.",
    )
    assert found.tools == ("Read", "grep_files")
    assert (found.model, found.effort) == ("openai/gpt-4.1", Effort.LOW)


@pytest.mark.parametrize(
    "tools",
    ["tools: [read_file, 'bash']", 'tools: "read_file", bash', "tools:\n  - read_file\n  - bash"],
)
def test_a_list_of_tools_may_have_any_of_the_usual_shapes(tools: str) -> None:
    assert parse_agent(HEAD.format(more=f"{tools}\n"), "x").tools == ("read_file", "bash")


@pytest.mark.parametrize("tools", ["", "tools:\n", "tools: '*'\n"])
def test_without_a_list_an_agent_has_all_that_it_may_have(tools: str) -> None:
    assert parse_agent(HEAD.format(more=tools), "x").tools is None


def test_the_file_names_an_agent_that_does_not_name_itself() -> None:
    text = "\ufeff---\r\ndescription: >\r\n  Looks\r\n  around\r\nmodel: inherit\r\n---\r\nLook."
    found = parse_agent(text, "scout")
    assert (found.name, found.description, found.model) == ("scout", "Looks around", "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no head"),
        ("You review.", "no head"),
        ("---\nname: x\ndescription: y\n", "no end"),
        ("---\nname: x\n---\nbody", "no description"),
        ("---\nname: ../../etc\ndescription: y\n---\nbody", "no name"),
        ("---\nname: a\x1b[31m\ndescription: y\n---\nbody", "no name"),
        ("---\nname: x\ndescription: y\n---\n \n", "no text"),
        ("---\nname: x\ndescription: y\neffort: huge\n---\nbody", "one of none, minimal"),
    ],
)
def test_a_definition_that_makes_no_sense_says_why(text: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        parse_agent(text, "x")


@pytest.mark.spec("SEC-10")
def test_a_description_is_one_bounded_line_without_control_characters() -> None:
    text = f"---\ndescription: red \x1b]8;;x\x07 {'long ' * 500}\n---\nbody"
    found = parse_agent(text, "x").description
    assert found.isprintable()
    assert len(found) <= 300


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_no_text_makes_the_parser_fail_in_another_way(text: str) -> None:
    for candidate in (text, f"---\n{text}\n---\nbody"):
        try:
            parse_agent(candidate, "x")
        except Unusable:
            continue


@pytest.mark.spec("SEC-13")
def test_a_hostile_directory_is_some_warnings_and_hides_no_agent(tmp_path: Path) -> None:
    tmp_path /= "agents"
    tmp_path.mkdir()
    (tmp_path / "good.md").write_text(HEAD.format(more=""))
    (tmp_path / "large.md").write_text("---\n" + "x" * MAX_BYTES)
    (tmp_path / "binary.md").write_bytes(b"---\n\0")
    (tmp_path / "latin.md").write_bytes(b"---\ndescription: caf\xe9\n---\nbody")
    (tmp_path / "dir.md").mkdir()
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / "device.md").symlink_to("/dev/zero")
    (tmp_path / "notes.txt").write_text("no agent")
    found, warnings = load_agents([place(tmp_path.parent), place(tmp_path / "missing")])
    assert set(found) == {"reviewer", "latin"}
    assert len(warnings) == 6
    assert all(line.startswith("warning: ") and "\n" not in line for line in warnings)


def test_the_first_of_a_name_wins_and_the_number_is_bounded(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "agents", tmp_path / "b" / "agents"
    first.mkdir(parents=True)
    second.mkdir(parents=True)
    (first / "x.md").write_text("---\ndescription: mine\n---\nbody")
    for number in range(MAX_FILES + 5):
        (second / f"x{number:03}.md").write_text("---\ndescription: other\n---\nbody")
    (second / "x.md").write_text("---\ndescription: theirs\n---\nbody")
    found, warnings = load_agents([place(first.parent), place(second.parent)])
    assert found["x"].description == "mine"
    assert len(found) == MAX_FILES
    assert len(warnings) == 1
