"""The command line opens the chat on a terminal, and one shot asks there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.cli import AGENT, agent_env
from tests.support.model_server import ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import Call, call, calls, say

OFFLINE = {"AGENTCLI_MODEL": "offline/assistant"}


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_on_a_terminal_the_prompt_is_the_chats_first_message(tmp_path: Path) -> None:
    with ModelServer(["Hello from the model."]) as server:
        with Terminal([*AGENT, "say", "hello"], env=agent_env(server), cwd=tmp_path) as terminal:
            terminal.wait_for("Hello from the model.")
            terminal.wait_for("Ask or tell it")
            terminal.line("/exit")
            assert terminal.wait_exit() == 0
        assert "say hello" in str(server.requests[0].body)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.spec("CLI-7")
@pytest.mark.parametrize(("answer", "made"), [("y", True), ("no thanks", False)])
def test_one_shot_at_a_terminal_asks_there(answer: str, *, made: bool, tmp_path: Path) -> None:
    script = [call("bash", {"command": "touch made"}), say("All finished.")]
    with ModelServer(script) as server:
        with Terminal([*AGENT, "run", "go"], env=agent_env(server), cwd=tmp_path) as terminal:
            terminal.wait_for("Allow?")
            terminal.line(answer)
            terminal.wait_for("All finished.")
            assert terminal.wait_exit() == 0
        assert ("no thanks" in str(server.requests[1].body)) is not made
    assert (tmp_path / "made").exists() is made


@pytest.mark.spec("CLI-7", "LOOP-4")
def test_one_shot_asks_about_parallel_calls_one_after_the_other(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"text {name}")
    both = calls(*(Call("read_file", {"path": f"../{name}"}) for name in ("one", "two")))
    with ModelServer([both, say("All finished.")]) as server:
        with Terminal([*AGENT, "run", "go"], env=agent_env(server), cwd=workspace) as terminal:
            terminal.wait_for("Allow?")
            assert terminal.text().count("Allow?") == 1
            terminal.line("y")
            terminal.wait_until(lambda: terminal.text().count("Allow?") == 2, what="a question")
            terminal.line("y")
            terminal.wait_for("All finished.")
            assert terminal.wait_exit() == 0
        answered = str(server.requests[1].body)
    assert "text one" in answered
    assert "text two" in answered


@pytest.mark.spec("SEC-6")
def test_what_is_asked_at_a_terminal_hides_no_character(tmp_path: Path) -> None:
    script = [call("bash", {"command": "touch a\u202eb"}), say("All finished.")]
    with ModelServer(script) as server:
        with Terminal([*AGENT, "run", "go"], env=agent_env(server), cwd=tmp_path) as terminal:
            terminal.wait_for("Allow?")
            assert "touch a<U+202E>b" in terminal.text()
            assert "touch ab" not in terminal.text()
            terminal.line("n")
            assert terminal.wait_exit() == 0


@pytest.mark.sampled
@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize(("between", "marks"), [(" ", 1), ("\n", 2)])
def test_a_line_that_goes_on_at_a_terminal_is_no_line_of_its_own(
    between: str, marks: int, tmp_path: Path
) -> None:
    command = (
        f"touch 'This clears the directory of the build as always, and'{between}rm -r a{'/x' * 9}"
    )
    script = [call("bash", {"command": command}), say("All finished.")]
    with ModelServer(script) as server:
        terminal = Terminal([*AGENT, "run", "go"], agent_env(server), tmp_path, 40, 72)
        with terminal:
            terminal.wait_for("Allow?")
            rows = terminal.text().splitlines()
            shown = [
                row for row in rows if row.startswith("| ") and ("touch" in row or "rm" in row)
            ]
            assert len(shown) == marks and any("rm -r a/x" in row for row in rows), rows
            terminal.line("n")
            assert terminal.wait_exit() == 0


@pytest.mark.spec("CLI-7", "UI-7")
def test_what_was_typed_before_the_question_is_no_answer_to_it(tmp_path: Path) -> None:
    held = call("bash", {"command": "touch made"})
    held.hold = threading.Event()
    with ModelServer([held, say("All finished.")]) as server:
        with Terminal([*AGENT, "run", "go"], env=agent_env(server), cwd=tmp_path) as terminal:
            server.wait_for_requests(1)
            terminal.line("y")
            terminal.wait_for("y")
            held.hold.set()
            terminal.wait_for("Allow?")
            terminal.line("n")
            terminal.wait_for("All finished.")
            assert terminal.wait_exit() == 0
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("typed", "code"), [("y\x04\x03", 130), ("y\x04\r", 0), ("y\x04\x04", 0)])
@pytest.mark.spec("CLI-6", "CLI-7")
def test_half_a_line_holds_nothing_up(typed: str, code: int, tmp_path: Path) -> None:
    script = [call("bash", {"command": "touch made"}), say("All finished.")]
    with ModelServer(script) as server:
        with Terminal([*AGENT, "run", "go"], env=agent_env(server), cwd=tmp_path) as terminal:
            terminal.wait_for("reads it")
            terminal.send(typed)
            assert terminal.wait_exit() == code
    assert (tmp_path / "made").exists() is (code == 0)


@pytest.mark.slow
@pytest.mark.spec("UI-5")
def test_a_new_session_keeps_the_model_that_was_chosen(tmp_path: Path) -> None:
    with ModelServer(default="answered") as server:
        with Terminal([*AGENT], env=agent_env(server), cwd=tmp_path) as terminal:
            terminal.wait_for("Ask or tell it")
            terminal.line("/model openai/gpt-4.1")
            terminal.wait_for("answers from now on")
            terminal.line("/new")
            terminal.wait_for("A new session")
            terminal.line("hello")
            terminal.wait_for("answered")
            terminal.line("/exit")
            assert terminal.wait_exit() == 0
        assert server.requests[0].body["model"] == "gpt-4.1"
