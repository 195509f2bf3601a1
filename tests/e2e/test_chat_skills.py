"""Skills and commands of a user's in the chat: called, asked about, listed, read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.extensions.places import skill, write
from tests.support.model_server import ModelServer
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.slow


@pytest.mark.spec("EXT-3", "UI-5", "UI-7")
def test_a_command_that_runs_one_asks_first_and_a_no_sends_nothing(
    chat: Chat, work: Path, home: Path, model_server: ModelServer
) -> None:
    write(home, ".claude/commands/ship.md", "Ship $1.\nState: !`echo made > made; echo ok-$1`")
    model_server.add("Shipped.")
    terminal = chat("--sandbox", "off")
    terminal.line("/ship it")
    terminal.wait_for("echo made")
    terminal.key("ctrl-c")
    terminal.wait_for(IDLE)
    assert not (work / "made").exists() and not model_server.requests
    terminal.key("ctrl-c")
    terminal.line("/ship it")
    terminal.wait_for("echo made")
    terminal.confirm("y")
    terminal.wait_for("Shipped.")
    leave(terminal)
    assert facts_of(model_server.requests[0]).prompts == ["Ship it.\nState: ok-it"]


@pytest.mark.spec("EXT-1", "UI-5", "UI-11")
def test_skills_are_picked_and_read_again(
    chat: Chat, home: Path, model_server: ModelServer
) -> None:
    skill(home / ".claude", "brew", "Makes tea", body="Heat water.")
    model_server.add("Tea.", "Coffee.")
    terminal = chat()
    terminal.line("/skills")
    terminal.wait_for("Makes tea")
    terminal.key("enter")
    terminal.wait_for("/brew")
    terminal.line("now")
    terminal.wait_for("Tea.")
    skill(home / ".agents", "grind", "Makes coffee")
    terminal.line("/reload")
    terminal.wait_for("Read again: settings, 2 skills, 0 commands, 0 agents")
    terminal.line("go on")
    terminal.wait_for("Coffee.")
    leave(terminal)
    first, second = model_server.requests
    assert "Makes coffee" not in str(first.body["system"])
    assert "Makes coffee" in str(second.body["system"])
    assert facts_of(second).prompts[-1] == "go on" and "Heat water." in facts_of(first).prompts[0]
