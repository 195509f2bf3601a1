"""The chat in a terminal that breaks lines anew when it is resized: tmux, where there is one."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import document, numbers_of

REPOSITORY = Path(__file__).resolve().parents[2]
TMUX = shutil.which("tmux")
pytestmark = [pytest.mark.skipif(TMUX is None, reason="there is no tmux"), pytest.mark.slow]


class Pane:
    """One pane of a tmux server of its own."""

    def __init__(self, directory: Path) -> None:
        self._tmux = [str(TMUX), "-S", str(directory / "socket"), "-f", "/dev/null"]
        self._env = {"PATH": os.environ["PATH"], "HOME": str(directory), "LANG": "C.UTF-8"}
        program = f"{sys.executable} -m tests.repl.chat_program"
        command = f"env PYTHONPATH={REPOSITORY} {program}"
        size = ["-x", "80", "-y", "24"]
        self.run("new-session", "-d", "-c", str(directory), *size, command)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._tmux, *arguments], env=self._env, capture_output=True, text=True, check=True
        )
        return done.stdout

    def text(self) -> str:
        """Scrollback and screen; a line that the terminal has wrapped is one line."""
        return self.run("capture-pane", "-p", "-J", "-S", "-6000")

    def wait_for(self, wanted: str) -> None:
        deadline = time.monotonic() + 15
        while wanted not in self.text():
            assert time.monotonic() < deadline, f"no {wanted!r}:\n{self.text()}"
            time.sleep(0.02)


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    found = Pane(tmp_path)
    try:
        found.wait_for("Ask or tell")
        yield found
    finally:
        found.run("kill-server")


def words(text: str) -> list[str]:
    return re.findall(r"word(\d)", re.sub(r" *\n", "", text))


def numbers(chunks: int) -> list[str]:
    """The words of the text that ``flood`` streams."""
    return [str(n % 7) for n in range(chunks) if n % 90 != 89]


@pytest.mark.spec("UI-1")
def test_each_row_ends_between_two_words(pane: Pane) -> None:
    pane.run("send-keys", "flood 1500", "Enter")
    pane.wait_for("The end.")
    rows = [row for row in pane.text().split("\n") if "word" in row]
    assert words("\n".join(rows)) == numbers(1500)
    assert rows[0].startswith("◆ word0 word1")
    assert all(re.fullmatch(r"[◆ ] word\d(?: word\d)* *", row) for row in rows)
    assert {len(row.rstrip()) for row in rows if len(row) > 73} == {79}


@pytest.mark.spec("UI-1", "OPS-1")
def test_resizing_in_mid_stream_loses_and_doubles_no_word_and_leaves_nothing_behind(
    pane: Pane,
) -> None:
    pane.run("send-keys", "flood 3000", "Enter")
    for columns, lines, seen in ((60, 20, 300), (100, 30, 1000), (47, 17, 1700), (71, 24, 2300)):
        while len(words(pane.text())) < seen:
            time.sleep(0.02)
        pane.run("resize-window", "-x", str(columns), "-y", str(lines))
    pane.wait_for("The end.")
    pane.wait_for("Ask or tell")
    assert words(pane.text()) == numbers(3000)
    assert pane.text().count("Ask or tell") == 1
    assert "Working" not in pane.text()


@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_document_that_is_resized_between_its_pieces_stands_there_once(
    pane: Pane, tmp_path: Path, seed: int
) -> None:
    """Quotes, lists, tables, code, wide and right-to-left text; rows may stand split by tmux."""
    chance, pieces, wanted = random.Random(seed), 8, numbers_of(document(seed))
    pane.run("send-keys", f"document {seed} {pieces}", "Enter")
    seen = ""
    for number in range(pieces):
        (tmp_path / str(number)).touch()
        while (now := pane.text()) != seen or numbers_of(now) == []:
            seen = now
            time.sleep(0.15)  # until nothing is drawn any more
        columns, lines = chance.randint(40, 110), chance.randint(10, 40)
        pane.run("resize-window", "-x", str(columns), "-y", str(lines))
    pane.wait_for("The end.")
    pane.wait_for("Ask or tell")
    assert numbers_of(pane.text()) == wanted
    assert "Working" not in pane.text()


@pytest.mark.spec("UI-1", "OPS-1")
def test_a_window_that_is_dragged_in_mid_stream_loses_no_word(pane: Pane) -> None:
    pane.run("send-keys", "flood 6000", "Enter")
    pane.wait_for("word3")
    for step in range(14):
        columns = 50 + 7 * (step % 9)
        pane.run("resize-window", "-x", str(columns), "-y", str(18 + step % 8))
        time.sleep(0.12)  # how a hand drags: it is the rate of the changes that is tested
    pane.wait_for("The end.")
    pane.wait_for("Ask or tell")
    assert words(pane.text()) == numbers(6000)
    assert pane.text().count("Ask or tell") == 1


@pytest.mark.spec("UI-13")
def test_what_is_typed_before_the_chat_has_begun_stands_in_the_input_alone(tmp_path: Path) -> None:
    """On an empty screen: there tmux keeps what is erased from its first place on."""
    pane = Pane(tmp_path)
    try:
        pane.run("send-keys", "-l", "typed early")
        pane.wait_for("> typed early")
        assert pane.text().count("typed early") == 1
    finally:
        pane.run("kill-server")
