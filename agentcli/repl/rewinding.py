"""What ``/undo``, ``/redo`` and ``/rewind`` share: words, and showing why files were left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentcli.app.rewinding import RewindRefused
from agentcli.domain.errors import UsageError
from agentcli.domain.rewind import RewindPoint, RewindScope, Rewound
from agentcli.domain.tools import real_path
from agentcli.repl.commands import Chat
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line

_SHOWN_CHARS = 70
_SHOWN_FILES = 5


def scope_of(text: str, usage: str) -> RewindScope:
    """What is to be taken back; both when nothing is said. Raises ``UsageError``."""
    word = text.strip().lower()
    try:
        return RewindScope(word) if word else RewindScope.BOTH
    except ValueError:
        raise UsageError(f"{word}: what is that?", f"{usage} [chat|files|both]") from None


def row_of(number: int, point: RewindPoint) -> str:
    """A prompt in a list."""
    files = f" · {wording.plural(point.files, 'file change')}" if point.files else ""
    text = _short(point.text) or "(no text)"
    return f"{number}. {text}{files}"


async def go_back(chat: Chat, point: RewindPoint, scope: RewindScope) -> None:
    """Do it and say so; the prompt stands in the input, to be said otherwise."""
    with refusals_shown(chat):
        done = await chat.session.rewind(point.seq, scope)
        chat.show([f"Taken back: {told(done, chat.user.cwd)}. /redo brings it back."])
        if done.text:
            chat.put_in_input(done.text)


def told(done: Rewound, cwd: Path) -> str:
    """What was taken or brought back, in words; files as seen from ``cwd``."""
    parts = [wording.plural(done.messages, "message")] if done.messages else []
    if done.files:
        names = [_name(path, cwd) for path in done.files[:_SHOWN_FILES]]
        more = len(done.files) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more else "")
        parts.append(f"{wording.plural(len(done.files), 'file')} ({listed})")
    return ", ".join(parts) or "nothing, there were no changes"


@contextmanager
def refusals_shown(chat: Chat) -> Iterator[None]:
    """Show what somebody else has changed before the refusal is told."""
    try:
        yield
    except RewindRefused as error:
        if error.differences:
            chat.show([clean_line(line) for line in error.differences])
        raise


def _name(path: Path, cwd: Path) -> str:
    base = real_path(cwd)
    return clean_line(str(path.relative_to(base) if path.is_relative_to(base) else path))


def _short(text: str) -> str:
    line = clean_line(text)
    return line if len(line) <= _SHOWN_CHARS else f"{line[: _SHOWN_CHARS - 1]}…"
