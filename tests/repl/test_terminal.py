"""What is known of a terminal before anything is written to it, and of what the chat imports."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

from agentcli.repl import _in_parts
from agentcli.repl.terminal import KeyParser, reflows


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("env", "answer"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, True),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, True),
        ({"TERM": "xterm-kitty", "SSH_TTY": "/dev/pts/1"}, True),
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/t,1,0"}, True),
        ({"TERM": "screen-256color", "STY": "1.host", "VTE_VERSION": "7600"}, False),
        ({"TERM": "xterm", "XTERM_VERSION": "XTerm(390)"}, False),
        ({}, False),
    ],
)
def test_lines_are_taken_to_be_broken_anew_where_that_is_known(
    env: dict[str, str], answer: bool
) -> None:
    assert reflows(env) is answer


def test_a_package_in_parts_is_whole_for_those_who_ask_and_has_nothing_that_it_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "manyparts"
    package.mkdir()
    (package / "__init__.py").write_text("from .small import SIZE\nWHOLE = True\n")
    (package / "small.py").write_text("SIZE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("manyparts", "manyparts.small"):
        monkeypatch.setitem(sys.modules, name, sys)  # to be taken away at the end
        del sys.modules[name]

    _in_parts("manyparts")
    assert import_module("manyparts.small").SIZE == 1
    made = sys.modules["manyparts"]
    assert "WHOLE" not in vars(made)
    assert not hasattr(made, "__warningregistry__")  # as unittest asks every module
    assert made.WHOLE and made.SIZE == 1


EACH_ALONE = """
import pkgutil, sys
from importlib import import_module
import agentcli.repl as chat
for found in [*pkgutil.walk_packages(chat.__path__, "agentcli.repl.")]:
    for name in [name for name in sys.modules if name.startswith(("prompt_toolkit", "agentcli.repl"))]:
        del sys.modules[name]
    import_module(found.name)
"""


@pytest.mark.slow
def test_each_module_of_the_chat_can_be_imported_first() -> None:
    subprocess.run([sys.executable, "-c", EACH_ALONE], check=True, cwd=Path(__file__).parents[2])


def keys(parser: type[Vt100Parser], *pieces: str) -> list[KeyPress]:
    """What is pressed where ``pieces`` come one by one, and then nothing for a while."""
    found: list[KeyPress] = []
    parsing = parser(found.append)
    for piece in pieces:
        parsing.feed(piece)
    parsing.flush()
    return found


REPORTS = [
    "\x1b[I", "\x1b[O",  # focus
    "\x1b]11;rgb:1e1e/1e1e/1e1e\x07", "\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\",  # the background
    "\x1b[?62;4;22c", "\x1b[>41;354;0c", "\x1bP>|XTerm(390)\x1b\\", "\x1b[?997;1n", "\x1b[8;24;80t",
    "\x1b[97;5u", "\x1b[27;6;97~",  # keys in protocols that were not asked for
]  # fmt: skip


@pytest.mark.spec("UI-7", "SEC-10")
@pytest.mark.parametrize("report", REPORTS)
def test_what_a_terminal_says_by_itself_is_not_typed(report: str) -> None:
    assert [key.data for key in keys(KeyParser, f"a{report}y")] == ["a", "y"]
    assert [key.data for key in keys(KeyParser, "a", *report, "y")] == ["a", "y"]
    (pasted,) = keys(KeyParser, f"\x1b[200~a{report}\x1b[201~")
    assert pasted.data == f"a{report}"


@pytest.mark.spec("UI-7")
def test_the_rest_of_a_report_may_take_its_time_and_ctrl_c_is_heard_meanwhile() -> None:
    found: list[KeyPress] = []
    parsing = KeyParser(found.append)
    for piece in ("\x1b]11;rgb:1e1e", "/1e1e/1e1e\x07"):
        parsing.feed(piece)
        parsing.flush()
    assert not found
    assert keys(KeyParser, "\x1b]11;rgb", "\x03")[-1].data == "\x03"


@pytest.mark.spec("UI-3")
@pytest.mark.parametrize("follows", ["", "y"])
def test_keys_are_what_they_were(follows: str) -> None:
    begun = () if follows else ("\x1b[",)
    others = ("\x1b", "\x1bx", "\x1b]", "\x1b[<0;3;4M", "\x1b[M !!", *begun)
    for sequence in (*ANSI_SEQUENCES, *others):
        wanted = keys(Vt100Parser, sequence + follows)
        assert keys(KeyParser, sequence + follows) == wanted
        assert keys(KeyParser, *sequence, *follows) == wanted
