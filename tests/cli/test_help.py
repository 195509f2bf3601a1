"""``agent help``: the topics, as Markdown in a pipe and laid out at a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.cli.help import DOCS, topic_text, topics
from tests.support.cli import AGENT, agent_env, run_agent
from tests.support.pty_driver import Terminal


@pytest.mark.spec("CLI-16")
def test_without_a_topic_each_is_listed_in_a_line() -> None:
    done = run_agent("help")
    assert (done.code, done.stderr) == (0, "")
    for name, title in topics().items():
        assert any(line.split(maxsplit=1) == [name, title] for line in done.stdout.splitlines())
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.spec("CLI-16")
def test_the_topics_are_the_files_with_those_for_developers_last() -> None:
    assert set(topics()) == {path.stem for path in DOCS.glob("*.md")}
    assert list(topics())[-3:] == ["architecture", "contract", "figures"]


@pytest.mark.sampled
@pytest.mark.spec("CLI-6", "CLI-16")
@pytest.mark.parametrize("name", topics())
def test_a_pipe_gets_the_markdown_without_marks_and_paths(name: str) -> None:
    text = topic_text(name)
    assert run_agent("help", name).stdout == text
    assert text.startswith(f"# {topics()[name]}\n")
    assert "<!--" not in text
    assert ".md)" not in text


@pytest.mark.spec("CLI-16")
def test_links_to_other_topics_say_what_to_type() -> None:
    assert "`agent help safety`" in topic_text("chat")


@pytest.mark.sampled
@pytest.mark.spec("CLI-16")
@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("safetyy",), "did you mean safety?"),
        (("xyzzy",), "agent help lists them"),
        (("me", "fix", "it"), "if it is a prompt: agent -- help me fix it"),
        (("\x1b]0;title\x07safety",), "did you mean safety?"),
        (("../SECURITY",), "agent help lists them"),
    ],
)
def test_an_unknown_topic_is_a_usage_error_with_near_names(
    words: tuple[str, ...], advice: str
) -> None:
    done = run_agent("help", *words)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown topic ")
    assert advice in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.sampled
@pytest.mark.spec("CLI-16")
@pytest.mark.parametrize("words", [("run",), ("models",), ("sessions", "list")], ids=" ".join)
def test_a_command_that_is_no_topic_shows_its_own_help(words: tuple[str, ...]) -> None:
    done = run_agent("help", *words)
    assert done.stdout == run_agent(*words, "--help").stdout
    assert f"agent {' '.join(words)} --help" in done.stderr


@pytest.mark.spec("CLI-12", "CLI-16")
def test_a_reader_that_leaves_ends_it_quietly() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(AGENT)} help commands | head -1; echo ${{PIPESTATUS[0]}}"],
        env=agent_env(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["# Every command and its options", "0"]
    assert done.stderr == ""


@pytest.mark.spec("CLI-11", "CLI-16")
def test_no_rich_in_a_pipe(tmp_path: Path) -> None:
    code = (
        "import sys; from agentcli.cli.main import main; main(['help', 'chat']);"
        "sys.exit(bool({'rich', 'asyncio', 'pydantic', 'httpx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert done.returncode == 0


# --- at a terminal -------------------------------------------------------------------------


def pager(tmp_path: Path, script: str) -> str:
    """A pager of the user's own."""
    path = tmp_path / "pager"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.spec("CLI-16")
def test_a_terminal_gets_the_topic_laid_out_in_the_pager(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    env = agent_env(PAGER=pager(tmp_path, f"cat > {tmp_path}/shown; echo it was the pager"))
    with Terminal([*AGENT, "help", "safety"], env=env, cwd=work, cols=60) as terminal:
        assert terminal.wait_exit() == 0
        assert "it was the pager" in terminal.text()
    shown = (tmp_path / "shown").read_text()
    assert "\x1b[1" in shown
    assert "## " not in shown
    assert "| default |" not in shown
    assert "](" not in shown


@pytest.mark.spec("CLI-16", "UI-10")
def test_without_colour_or_a_pager_it_is_printed(tmp_path: Path) -> None:
    env = agent_env(PAGER="cat", NO_COLOR="1")
    with Terminal([*AGENT, "help", "exit-codes"], env=env, cwd=tmp_path, rows=60) as terminal:
        assert terminal.wait_exit() == 0
        assert "an approval was needed and nobody could give it" in terminal.text()
        assert b"\x1b[3" not in terminal.raw


@pytest.mark.spec("CLI-12", "CLI-16")
def test_a_dumb_terminal_gets_the_markdown(tmp_path: Path) -> None:
    env = agent_env(TERM="dumb", PAGER="false")
    with Terminal([*AGENT, "help", "exit-codes"], env=env, cwd=tmp_path, rows=60) as terminal:
        assert terminal.wait_exit() == 0
        assert "| 130 | SIGINT (Ctrl-C) |" in terminal.text()
        assert b"\x1b[" not in terminal.raw


@pytest.mark.spec("CLI-16")
def test_ctrl_c_belongs_to_the_pager(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    script = "trap 'echo interrupted; exit 0' INT; echo paging; cat > /dev/null; sleep 20 & wait"
    env = agent_env(PAGER=pager(tmp_path, script))
    with Terminal([*AGENT, "help", "chat"], env=env, cwd=work) as terminal:
        terminal.wait_for("paging")
        terminal.send("\x03")
        assert terminal.wait_exit() == 0
        assert "interrupted" in terminal.text()
