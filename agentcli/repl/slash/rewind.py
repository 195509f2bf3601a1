"""``/rewind``, or Esc Esc: go back to before any prompt: chat, files or both (TT-2).

The words that ``/undo`` and ``/redo`` share with it are here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentcli.app.files.rewinding import RewindRefused
from agentcli.domain.clean import plural
from agentcli.domain.errors import UsageError
from agentcli.domain.rewind import RewindPoint, RewindScope, Rewound
from agentcli.domain.tools import real_path
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line

_SHOWN_COLUMNS = 70
_NAMED_COLUMNS = 40
_SHOWN_FILES = 5


def scope_of(text: str, usage: str) -> RewindScope:
    """What is to be taken back; both when nothing is said. Raises ``UsageError``."""
    word = text.strip().lower()
    try:
        return RewindScope(word) if word else RewindScope.BOTH
    except ValueError:
        raise UsageError(f"cannot take back {word!r}", f"use {usage} [chat|files|both]") from None


def row_of(number: int, point: RewindPoint) -> PickRow:
    """A prompt in a list."""
    files = f" · {plural(point.files, 'file change')}" if point.files else ""
    text = fit(clean_line(point.text), _SHOWN_COLUMNS) or "(no text)"
    return PickRow(f"{number}. {text}{files}")


async def go_back(chat: Chat, point: RewindPoint, scope: RewindScope) -> None:
    """Do it and say so; the prompt stands in the input, to be said otherwise."""
    with refusals_shown(chat):
        done = await chat.session.rewind(point.seq, scope)
        prompt = fit(clean_line(done.text), _NAMED_COLUMNS)
        named = f', from "{prompt}" on' if prompt else ""
        what = f"Taken back: {summary_of(done, chat.user.cwd)}{named}."
        chat.show([f"{what} /redo brings it back."])
        if done.text:
            chat.put_in_input(done.text)


def summary_of(done: Rewound, cwd: Path) -> str:
    """What was taken or brought back, in words; files as seen from ``cwd``."""
    parts = [plural(done.messages, "message")] if done.messages else []
    if done.files:
        names = [_name(path, cwd) for path in done.files[:_SHOWN_FILES]]
        more = len(done.files) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more else "")
        parts.append(f"{plural(len(done.files), 'file')} ({listed})")
    return ", ".join(parts) or "nothing, there were no changes"


@contextmanager
def refusals_shown(chat: Chat) -> Iterator[None]:
    """Show what others have changed before the refusal is shown."""
    try:
        yield
    except RewindRefused as error:
        if error.differences:
            chat.show([clean_line(line) for line in error.differences])
        raise


def _name(path: Path, cwd: Path) -> str:
    base = real_path(cwd)
    return clean_line(str(path.relative_to(base) if path.is_relative_to(base) else path))


# --- the command ------------------------------------------------------------------------------


_SCOPES = {
    RewindScope.BOTH: "chat and files",
    RewindScope.CHAT: "the chat only",
    RewindScope.FILES: "files only",
}


async def _run(chat: Chat, arguments: str) -> None:
    points = await chat.session.rewind_points()
    if not points:
        raise UsageError("there is nothing to go back to", "nothing was said in this session")
    number, _, rest = arguments.strip().partition(" ")
    if number.isdecimal():
        if not 1 <= int(number) <= len(points):
            raise UsageError(f"there is no prompt {number}", f"there are 1 to {len(points)}")
        await go_back(chat, points[int(number) - 1], scope_of(rest, "/rewind N"))
        return
    wanted = scope_of(arguments, "/rewind") if arguments.strip() else None
    rows = [row_of(number, point) for number, point in enumerate(points, 1)]
    at = await chat.choose("Go back to before", rows, len(rows) - 1)
    if at is None:
        return
    if wanted is None:
        has_files = any(point.files for point in points[at:])
        wanted = await _asked(chat) if has_files else RewindScope.BOTH
    if wanted is not None:
        await go_back(chat, points[at], wanted)


async def _asked(chat: Chat) -> RewindScope | None:
    at = await chat.choose("Take back", [PickRow(scope) for scope in _SCOPES.values()])
    return None if at is None else list(_SCOPES)[at]


COMMAND = SlashCommand("rewind", "go back to before an earlier prompt", _run, "[N] [chat|files]")
