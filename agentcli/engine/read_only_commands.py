"""Shell commands that are known to change nothing (LOOP-4, SEC-3).

Conservative on purpose: one simple command of plain words, a known program, known flags, and
operands that stay in the workspace. Whatever is not certain is not read-only.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from agentcli.domain.tools import Workspace

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./ -]+")

# program -> flags that keep it read-only; operands are files unless the program is in _NO_FILES
_FLAGS: dict[str, frozenset[str]] = {
    "pwd": frozenset({"-L", "-P"}),
    "true": frozenset(),
    "false": frozenset(),
    "whoami": frozenset(),
    "uname": frozenset({"-a", "-s", "-r", "-m", "-n", "-p", "-o"}),
    "echo": frozenset({"-n", "-e", "-E"}),
    "ls": frozenset(
        {"-l", "-a", "-A", "-la", "-al", "-lah", "-alh", "-lh", "-R", "-1", "-t", "-lt", "-ltr",
         "-h", "-d", "-S", "-r", "-F"}
    ),
    "cat": frozenset({"-n", "-b", "-A", "-s", "-E", "-T"}),
    "head": frozenset({"-n", "-c", "-q", "-v"}),
    "tail": frozenset({"-n", "-c", "-q", "-v"}),
    "wc": frozenset({"-l", "-w", "-c", "-m", "-L"}),
    "stat": frozenset(),
    "basename": frozenset(),
    "dirname": frozenset(),
}  # fmt: skip
_NO_FILES = frozenset({"echo", "uname", "true", "false", "whoami", "pwd"})
_BUILT_IN = frozenset({"pwd", "true", "false", "echo"})
_NUMBER_FLAG = re.compile(r"-[0-9]+")


def is_read_only(command: str, workspace: Workspace, search_path: str | None = None) -> bool:
    """Whether ``command`` certainly changes nothing and reads only the workspace.

    ``workspace.cwd`` is the shell's directory: it must be there and in the workspace as well,
    since commands without operands read it. ``search_path`` is the shell's ``PATH`` (by default
    our own): a program that it finds inside the workspace is the repository's (SEC-2).
    """
    text = command.strip(" \t\n")
    if not _PLAIN.fullmatch(text):
        return False
    if not workspace.cwd.is_dir() or not workspace.contains(workspace.cwd):
        return False
    program, *words = text.split()
    flags = _FLAGS.get(program)
    if flags is None or not (program in _BUILT_IN or _is_foreign(program, workspace, search_path)):
        return False
    for word in words:
        if word.startswith("-"):
            counted = program in {"head", "tail"} and _NUMBER_FLAG.fullmatch(word)
            if word not in flags and not counted:
                return False
        elif program not in _NO_FILES and not workspace.contains(workspace.resolve(word)):
            return False
    return True


def _is_foreign(program: str, workspace: Workspace, search_path: str | None) -> bool:
    """Whether the program is found, and not in a directory that the repository could fill."""
    found = shutil.which(program, path=search_path)
    if found is None or not Path(found).is_absolute():
        return False
    return not workspace.contains(Path(found).parent) and not workspace.contains(Path(found))
