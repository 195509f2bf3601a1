"""The topic ``commands`` is what ``--help`` says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.cli.completions import all_commands, help_text
from agentcli.cli.help import topic_text

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spec("CLI-11")
def test_the_reference_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "generate_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.spec("CLI-6", "CLI-11")
def test_every_command_is_in_the_reference() -> None:
    text = topic_text("commands")
    for command in all_commands():
        assert help_text(command.words) in text
