"""What is known of a terminal before anything is written to it, and of what the chat imports."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from agentcli.repl import _in_parts
from agentcli.repl.terminal import reflows


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
