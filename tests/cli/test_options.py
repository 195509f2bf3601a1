"""The line is read the same without typer as with it (DESIGN, import budget)."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.cli.acp import COMMAND as ACP
from agentcli.cli.chat import COMMAND as CHAT
from agentcli.cli.commands import app_of
from agentcli.cli.options import DirectCommand, option_names, read_values
from agentcli.cli.run import COMMAND as RUN
from agentcli.cli.sessions.resume import COMMAND as RESUME

COMMANDS = {"acp": ACP, "chat": CHAT, "run": RUN, "resume": RESUME}
SPELLINGS = sorted(
    spelling
    for annotation in option_names(RUN.options).values()
    for spelling in annotation.__metadata__[0].spellings.split()
)
WORDS = st.sampled_from(
    [*SPELLINGS, "--", "-", "", "fix", "the bug", "--resume=", "-yy", "-mx", "-m=x", "-ym", "--x", "-h",
     "--help", "--yolo=1", "--model=", "--model=a=b", "--mod", "0", "-1", "@file", "run", "ü", "\udcff"]
)  # fmt: skip


def by_typer(command: DirectCommand, line: list[str]) -> dict[str, Any] | None:
    """What typer makes of ``line``; ``None`` for an error or help."""
    from typer.main import get_command

    parser = get_command(app_of(command))
    try:
        with parser.make_context("agent", list(line)) as context:
            lists = {name: value for name, value in context.params.items() if type(value) is list}
            return context.params | {name: tuple(value) for name, value in lists.items()}
    except Exception:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@given(line=st.lists(WORDS, max_size=6))
def test_what_is_read_without_typer_is_what_typer_reads(name: str, line: list[str]) -> None:
    values = read_values(COMMANDS[name].options, line)

    if values is not None:
        assert values == by_typer(COMMANDS[name], line)


@pytest.mark.parametrize(
    "line",
    [
        ["hi"],
        ["-y", "-y", "-m", "offline", "run", "echo", "hi"],
        ["--model=offline", "--allow-tool", "bash(ls)", "--allow-tool=kv", "--", "-x"],
        ["-o", "json", "--max-turns", "3", "-"],
        [],
    ],
)
def test_a_plain_line_needs_no_typer(line: list[str]) -> None:
    values = read_values(RUN.options, line)

    assert values is not None
    assert values == by_typer(RUN, line)


@pytest.mark.parametrize("line", [["--help"], ["--nosuch"], ["--model"], ["-yy"], ["-m", "-x"]])
def test_a_doubtful_line_is_left_to_typer(line: list[str]) -> None:
    assert read_values(RUN.options, line) is None


def test_a_run_loads_no_typer() -> None:
    code = (
        "import sys; from agentcli.cli.main import main;"
        "code = main(['run', '-m', 'offline', '--no-session', 'hello']);"
        "print(code, 'typer' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.stderr.split()[-2:] == ["0", "False"]
