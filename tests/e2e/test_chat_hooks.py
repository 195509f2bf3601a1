"""Hooks in the chat: what a hook refuses comes back to the person; what waits is asked about too."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.e2e.chat import Chat, leave
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.processes import wait_until
from tests.support.replies import say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.slow


def configure(home: Path, text: str) -> None:
    file = home / "agentcli" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


GUARD = """
[[hooks.UserPromptSubmit]]
command = 'grep -q secret && { echo "keep that to yourself" >&2; exit 2; }; exit 0'
"""


@pytest.mark.spec("UI-3")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_a_refused_prompt_comes_back_to_be_edited(
    model_server: ModelServer, chat: Chat, home: Path, protocol: str
) -> None:
    configure(home, GUARD)
    model_server.add("Hello.")
    terminal = chat(protocol=protocol)
    terminal.line("my secret is 42")
    terminal.wait_for("keep that to yourself")
    terminal.wait_for("> my secret is 42")
    assert model_server.requests == []
    terminal.key("ctrl-c")
    terminal.line("good morning")
    terminal.wait_for("Hello.")
    assert facts_of(model_server.requests[0]).prompts == ["good morning"]
    leave(terminal)


@pytest.mark.spec("CTRL-1")
def test_a_refused_text_that_was_queued_is_shown_and_not_sent(
    model_server: ModelServer, chat: Chat, home: Path
) -> None:
    configure(home, GUARD)
    gate = threading.Event()
    model_server.add(say("The first answer.", hold=gate, hold_at="text"), "The second answer.")
    terminal = chat()
    terminal.line("go")
    model_server.wait_until_waiting()
    terminal.line("my secret is 42")
    terminal.wait_for("Queued")  # lines that come at once are one text
    terminal.line("and then this")
    terminal.wait_for("and then this")
    gate.set()
    terminal.wait_for("The second answer.")
    assert "a hook refused what waited (my secret is 42)" in terminal.text().replace("\n", " ")
    assert "secret" not in "".join(facts_of(model_server.requests[1]).prompts)
    leave(terminal)


@pytest.mark.spec("UI-6")
def test_the_end_of_the_chat_is_told_and_so_is_its_beginning(
    model_server: ModelServer, chat: Chat, home: Path, tmp_path: Path
) -> None:
    start, end = tmp_path / "start", tmp_path / "end"
    configure(
        home,
        f'[[hooks.SessionStart]]\ncommand = "touch {start}"\n'
        f'[[hooks.SessionEnd]]\ncommand = "touch {end}"\n',
    )
    terminal = chat()
    wait_until(start.exists, "the beginning was not told")
    assert not end.exists()
    leave(terminal)
    assert end.exists()


def test_hooks_are_told_how_each_session_begins_and_why_it_ends(
    model_server: ModelServer, chat: Chat, home: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    configure(
        home,
        f"""
[[hooks.SessionStart]]
command = "grep -o '\\"source\\": *\\"[a-z]*' >> {said}"
[[hooks.SessionEnd]]
command = "grep -o '\\"reason\\": *\\"[a-z_]*' >> {said}"
""",
    )

    def told() -> list[str]:
        lines = said.read_text().splitlines() if said.exists() else []
        return [line.rpartition('"')[2] for line in lines]

    terminal = chat()
    wait_until(lambda: told() == ["startup"], "the beginning was not told")
    terminal.line("/new")
    wait_until(lambda: len(told()) == 3, "the new session was not told")
    leave(terminal)
    assert sorted(told()[1:3]) == ["clear", "clear"]
    assert told()[3:] == ["prompt_input_exit"]


@pytest.mark.spec("CMP-4")
def test_a_summary_can_be_refused(model_server: ModelServer, chat: Chat, home: Path) -> None:
    configure(
        home, '[[hooks.PreCompact]]\nmatcher = "manual"\ncommand = "echo not now >&2; exit 2"\n'
    )
    model_server.add(*(f"Answer {n}." for n in range(4)))
    terminal = chat()
    for n in range(4):
        terminal.line(f"question {n}")
        terminal.wait_for(f"Answer {n}.")
    terminal.line("/compact")
    terminal.wait_for("a hook refused it: not now")
    assert len(model_server.requests) == 4
    leave(terminal)
