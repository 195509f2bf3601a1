"""Completion scripts: current, right for their shell, and useful."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agentcli.cli.completions import FILE_NAMES, script
from tests.support.cli import agent_env, run_agent

FILES = Path(__file__).resolve().parents[2] / "completions"
SYNTAX = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize("shell", FILE_NAMES)
def test_the_checked_in_script_is_current(shell: str) -> None:
    assert (FILES / FILE_NAMES[shell]).read_text() == script(shell), "run .ci/generate_docs.py"


@pytest.mark.sampled
@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize("shell", FILE_NAMES)
def test_the_command_prints_the_same_script(shell: str) -> None:
    assert run_agent("completions", shell).stdout == script(shell)


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize("shell", FILE_NAMES)
def test_the_script_is_right_for_its_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [*SYNTAX[shell], str(FILES / FILE_NAMES[shell])], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def complete(*words: str) -> set[str]:
    """What bash offers for the last of ``words``."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {FILES / 'agent.bash'}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1};"
        ' _agentcli_complete; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert not done.stderr
    return set(done.stdout.split())


@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("agent", "se"), {"sessions"}),
        (("agent", "sessions", "re"), {"rename", "repair", "reindex"}),
        (("agent", "-m", "x", "se"), {"sessions"}),
        (("agent", "--mod"), {"--model"}),
        (("agent", "run", "--max"), {"--max-turns", "--max-budget-usd"}),
        (("agent", "run", "--output-format", ""), {"text", "json", "stream-json"}),
        (("agent", "--effort", "m"), {"max", "minimal", "medium"}),
        (("agent", "sessions", "export", "--format", ""), {"json", "md", "html", "atif"}),
        (("agent", "sessions", "list", "--format", ""), {"table", "json"}),
        (("agent", "-m", "offl"), {"offline/assistant"}),
        (
            ("agent", "run", "--model", "anthropic/claude-sonnet-4-5"),
            {"anthropic/claude-sonnet-4-5"},
        ),
    ],
)
def test_bash_offers_commands_options_and_values(
    words: tuple[str, ...], expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complete(*words) == expected


@pytest.mark.sampled
@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize("shell", FILE_NAMES)
def test_install_puts_it_where_the_shell_looks(shell: str, home: Path) -> None:
    done = run_agent("completions", shell, "--install", env=agent_env())
    assert done.code == 0, done
    written = [path for path in home.rglob("agent*") if path.is_file()] + list(home.rglob("_agent"))
    assert written
    assert all(path.read_text() == script(shell) for path in written)
