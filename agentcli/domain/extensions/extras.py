"""An installation: how another process of it starts, its extras, and how to add one here.

Law: the command is one that works for the very installation that runs: one that uv or pipx has
made, or an environment that is not the activated one.
"""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

# the module that shows that an extra is there, and what is less good without it
EXTRAS = {
    "images": ("PIL", "images that no provider takes are left out"),
    "web": ("html_to_markdown", "web pages are bare text, without links"),
    "pdf": ("pypdf", "PDFs need pdftotext"),
    "map": ("tree_sitter_rust", "the map reads fewer languages"),
    "keyring": ("keyring", "keys are in a private file"),
}


def own_python() -> tuple[str, ...]:
    """The words that start this installation's Python for a process that imports as this one does.

    Nothing comes from the working directory, and where ``PYTHONPATH`` means nothing here, it means
    nothing there (SEC-19).
    """
    return (sys.executable, *(("-E",) if sys.flags.ignore_environment else ()), "-P")


def has_extra(name: str) -> bool:
    """Whether the extra ``name`` is installed; nothing of it is imported."""
    return find_spec(EXTRAS[name][0]) is not None


def install_command(name: str) -> str:
    """The command line that adds the extra ``name`` to this installation."""
    wanted, prefix, python = f"'agentcli[{name}]'", Path(sys.prefix), shlex.quote(sys.executable)
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx runpip {shlex.quote(prefix.name)} install {wanted}"
    if find_spec("pip") is None:  # an environment that uv has made
        return f"uv pip install --python {python} {wanted}"
    if sys.prefix in {sys.base_prefix, os.environ.get("VIRTUAL_ENV")}:
        return f"pip install {wanted}"
    return f"{python} -m pip install {wanted}"
