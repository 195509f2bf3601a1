"""The prompt: words of the command line, piped stdin, or both (CLI-2).

Law: a terminal is never read here, and a pipe that nobody writes to never hangs a run that
already has its prompt.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from agentcli.cli.streams import is_terminal, write_error_line
from agentcli.domain.errors import UsageError
from agentcli.domain.messages import TextPart, UserMessage
from agentcli.domain.tools import Workspace

MAX_STDIN_BYTES = 10_000_000
IDLE_S = 3.0
_CHUNK = 1 << 16


def read_prompt(words: Sequence[str] | None) -> UserMessage | None:
    """The user's message, or ``None`` when there is neither a word nor piped text.

    A lone ``-`` stands for stdin, as elsewhere.
    """
    typed = " ".join(words or ()).strip()
    typed = "" if typed == "-" else typed
    piped = read_stdin(patient=not typed)
    parts = tuple(TextPart(text) for text in (typed, piped) if text.strip())
    return UserMessage(parts) if parts else None


async def with_attachments(message: UserMessage, words: Sequence[str], cwd: Path) -> UserMessage:
    """``message`` with the files that the words of the command line name (UI-4).

    What came on stdin names none: a program wrote it, not a person.
    """
    typed = " ".join(words).strip()
    if "@" not in typed or message.parts[0] != TextPart(typed):
        return message
    from agentcli.app.attachments import attach

    attached = await attach(typed, Workspace(cwd, cwd))
    return UserMessage((*message.parts, *attached.parts[1:]))


def read_stdin(*, patient: bool) -> str:
    """All of stdin as text, empty when it is a terminal, closed or /dev/null.

    Unless ``patient``, a pipe that stays silent for ``IDLE_S`` seconds is left alone, with a
    warning: programs that start others often leave an open pipe behind.
    """
    if sys.stdin is None or is_terminal(sys.stdin):
        return ""
    try:
        descriptor = sys.stdin.fileno()
        if not patient and _may_stay_silent(descriptor):
            ready, _, _ = select.select([descriptor], [], [], IDLE_S)
            if not ready:
                write_error_line(
                    f"warning: nothing came on stdin within {IDLE_S:.0f} s, going on without it"
                    " - end it, or start with < /dev/null"
                )
                return ""
        return _read_all(descriptor)
    except (OSError, ValueError):
        return ""


def _may_stay_silent(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read_all(descriptor: int) -> str:
    data = bytearray()
    while chunk := os.read(descriptor, _CHUNK):
        data += chunk
        if len(data) > MAX_STDIN_BYTES:
            raise UsageError(
                f"stdin holds more than {MAX_STDIN_BYTES // 1_000_000} MB",
                "save it to a file and name the file in the prompt",
            )
    return data.decode("utf-8-sig", "replace").rstrip("\r\n")
