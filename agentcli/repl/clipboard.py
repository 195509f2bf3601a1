"""The clipboard: a program of the desktop where there is one, else the terminal itself.

Law: only what the person asked for is put there; a program is looked up outside the workspace
(SEC-2) and never waited for longer than ``TIMEOUT_S``.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Mapping
from pathlib import Path

from agentcli.domain.errors import UsageError
from agentcli.repl.outside import find_program

TIMEOUT_S = 3.0
MAX_OSC_52 = 74_994
"""Bytes of base64 that every terminal with OSC 52 takes (xterm's limit)."""

# a variable that must be set, empty for none -> the command
_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-in")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("WSL_DISTRO_NAME", ("clip.exe",)),
    ("", ("pbcopy",)),
    ("", ("termux-clipboard-set",)),
)


def copy_by_program(text: str, cwd: Path, env: Mapping[str, str]) -> bool:
    """Copy with a program; false when none could. Blocks.

    Over SSH the terminal's clipboard is the one the person has at hand.
    """
    if env.get("SSH_CONNECTION") or env.get("SSH_TTY"):
        return False
    return any(
        (not variable or bool(env.get(variable))) and _run(command, text, cwd, env)
        for variable, command in _PROGRAMS
    )


def _run(command: tuple[str, ...], text: str, cwd: Path, env: Mapping[str, str]) -> bool:
    program = find_program(command[0], cwd, env)
    if program is None:
        return False
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, a program outside the workspace
            [program, *command[1:]],
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def osc_52(text: str) -> str:
    """The sequence that puts ``text`` on the terminal's clipboard. Raises ``UsageError``.

    https://invisible-island.net/xterm/ctlseqs/ctlseqs.html, "Manipulate Selection Data".
    """
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    if len(encoded) > MAX_OSC_52:
        raise UsageError("that is too long for the terminal's clipboard", "/export writes a file")
    return f"\x1b]52;c;{encoded}\x07"
