"""The README: what a newcomer reads first stays short, and works as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.cli.help import topics
from tests.support.docs import README, ROOT, anchors

MOST_LINES = 300


def test_it_is_short_and_has_a_table_of_contents() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    contents = README.partition("## Contents\n\n")[2].partition("\n\n")[0]
    listed = re.findall(r"\]\(#([\w-]+)\)", contents)
    assert {*listed, "agentcli", "contents"} == anchors(README)


def test_every_topic_is_listed() -> None:
    table = README.partition("| topic |")[2].partition("\n\n")[0]
    assert set(re.findall(r"\[`([\w-]+)`\]", table)) == set(topics())


def test_the_pictures_are_there_and_fetch_nothing() -> None:
    pictures = re.findall(r"src=\"([^\"]+)\"", README)
    assert len(pictures) == 4
    for name in pictures:
        picture = (ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r"https?://[^\"'\s)]+", picture) == ["http://www.w3.org/2000/svg"]


@pytest.mark.slow
def test_the_pictures_are_what_the_program_shows(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "generate_pictures.py", "--check"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_two_commands_are_there() -> None:
    assert ".venv/bin/pip install -q . && .venv/bin/agent run" in README
    assert os.access(ROOT / ".ci" / "test", os.X_OK)
    assert shutil.which("bash")
