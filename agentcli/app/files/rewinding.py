"""Going back: chat, files or both, to before any message of the user (TT-2).

Laws: all or nothing; a file that somebody else has changed since is not touched: the rewind is
refused and what differs is shown; nothing is deleted, so that a rewind can itself be taken back
until something new is said.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from agentcli.app.files.file_keeper import is_same, put_back, read_state
from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.rewind import (
    FileChange,
    FileKind,
    FileState,
    RewindScope,
    Rewound,
)
from agentcli.domain.tools import real_path
from agentcli.domain.values import frozen
from agentcli.engine.conversation import Conversation
from agentcli.store.sqlite import SqliteStore

Commit = Callable[[], Awaitable[int]]
MAX_DIFF_LINES = 60
MAX_COMPARED = 200_000


class RewindRefused(AgentError):
    """Somebody else has changed a file since; ``differences`` shows what, as lines of diffs."""

    def __init__(self, message: str, advice: str, differences: Sequence[str] = ()) -> None:
        super().__init__(message, advice)
        self.differences = tuple(differences)


@frozen
class _FileStep:
    """One path: what it should be now, and what it is to become."""

    expected: FileState | None
    wanted: FileState


async def rewind(
    conversation: Conversation, store: SqliteStore, seq: int, scope: RewindScope
) -> Rewound:
    """Go back to before the message ``seq``.

    Raises ``UsageError`` for a message that is no ``RewindPoint``, ``RewindRefused``, and
    ``AgentError`` when a file cannot be written: then everything is as it was.
    """
    await _settled(conversation)
    known = {point.seq: point for point in await store.rewinds.points()}
    if seq not in known:
        raise UsageError("there is no such message to go back to", "see /rewind")
    chat, files = scope is not RewindScope.FILES, scope is not RewindScope.CHAT
    changes = await store.rewinds.changes_since(seq) if files else ()
    text = known[seq].text if chat else ""

    async def commit() -> int:
        ids = [change.id for change in changes]
        return await store.rewinds.take_back(seq, text, ids, chat=chat)

    if not chat and not changes:
        return Rewound(0, ())
    hidden = await uninterruptible(_done(conversation, store, _backwards(changes), commit))
    return Rewound(hidden, tuple(_backwards(changes)), text)


async def bring_back(conversation: Conversation, store: SqliteStore) -> Rewound | None:
    """Take the newest rewind back; ``None`` when there is none or something was said since."""
    await _settled(conversation)
    record = await store.rewinds.newest()
    if record is None:
        return None

    async def commit() -> int:
        await store.rewinds.bring_back(record)
        return record.messages

    steps = _forwards(record.changes)
    shown = await uninterruptible(_done(conversation, store, steps, commit))
    return Rewound(shown, tuple(steps))


async def _settled(conversation: Conversation) -> None:
    """What calls that were stopped have changed may still be on its way into the file."""
    keeper = conversation.parts.keeper.made if conversation.parts.keeper is not None else None
    if keeper is not None:
        await keeper.settled()


async def _done(
    conversation: Conversation, store: SqliteStore, steps: Mapping[Path, _FileStep], commit: Commit
) -> int:
    """All of it; to be torn by nothing."""
    _refuse_foreign_places(conversation, steps)
    count = await _with_files(steps, commit)
    conversation.history = (await store.load()).history()
    return count


def _refuse_foreign_places(conversation: Conversation, steps: Iterable[Path]) -> None:
    """A session file says what to write: where nothing is written unasked it is not believed."""
    from agentcli.policy.decision import CallPlace
    from agentcli.policy.judge import why_not_written

    place = CallPlace(conversation.parts.workspace, conversation.parts.policy)
    memory = conversation.parts.memory.made if conversation.parts.memory is not None else None
    ours = frozenset[Path]() if memory is None else frozenset(map(real_path, memory.written))
    for path in steps:
        if path in ours:  # kept by this process, as the tool has written it (MEM-1)
            continue
        if why := why_not_written(path, place):
            raise RewindRefused(
                f"{path} is not written by going back: {why}",
                "put it back by hand, or go back in the chat only: /rewind chat",
            )


def _backwards(changes: Sequence[FileChange]) -> dict[Path, _FileStep]:
    """For each path: what the last change left, and what was there before the first.

    Where somebody else has changed it between two changes nothing is what it should be.
    """
    steps: dict[Path, _FileStep] = {}
    for change in changes:
        known = steps.get(change.path)
        if known is None:
            steps[change.path] = _FileStep(change.after, change.before)
        else:
            unbroken = known.expected == change.before
            steps[change.path] = _FileStep(change.after if unbroken else None, known.wanted)
    return steps


def _forwards(changes: Sequence[FileChange]) -> dict[Path, _FileStep]:
    steps: dict[Path, _FileStep] = {}
    for change in changes:
        before = steps[change.path].expected if change.path in steps else change.before
        unknown = FileState(FileKind.UNKEPT, why="nobody saw what became of it")
        steps[change.path] = _FileStep(before, change.after or unknown)
    return steps


async def _with_files(steps: Mapping[Path, _FileStep], commit: Commit) -> int:
    """Change the files, then ``commit``; when that fails they are put back."""
    if not steps:
        return await commit()
    now = await asyncio.to_thread(lambda: {path: read_state(path) for path in steps})
    wanted = _wanted(steps, now)
    try:
        await asyncio.to_thread(put_back, wanted, now)
    except OSError as error:
        raise AgentError(
            f"cannot write {error.filename or 'a file'}: {error.strerror}", "nothing was changed"
        ) from error
    try:
        return await commit()
    except BaseException:
        await asyncio.to_thread(put_back, {path: now[path] for path in wanted}, wanted)
        raise


def _wanted(
    steps: Mapping[Path, _FileStep], now: Mapping[Path, FileState]
) -> Mapping[Path, FileState]:
    """What has to be written. Raises ``RewindRefused``."""
    unkept = [path for path, step in steps.items() if step.wanted.kind is FileKind.UNKEPT]
    if unkept:
        why = steps[unkept[0]].wanted.why or "it was too large to keep, unreadable or held a key"
        raise RewindRefused(
            f"{unkept[0]} cannot be brought back: {why}", "/rewind chat leaves the files alone"
        )
    wanted = {}
    others = []
    for path, step in steps.items():
        if is_same(now[path], step.wanted):
            continue
        wanted[path] = step.wanted
        if step.expected is not None and step.expected.kind is FileKind.UNKEPT:
            raise RewindRefused(
                f"{path}: nobody can tell whether it is as the agent left it:"
                " it was too large to keep, unreadable or held a key",
                "move it away and try again, or go back in the chat only: /rewind chat",
            )
        if step.expected is None or now[path] != step.expected:
            others.append(path)
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise RewindRefused(
            f"{others[0]}{more} changed since, and not by the agent",
            "keep what you want of it, or go back in the chat only: /rewind chat",
            [line for path in others for line in _difference(path, steps[path], now[path])],
        )
    return wanted


def _difference(path: Path, step: _FileStep, now: FileState) -> Iterable[str]:
    """What is there now against what the agent had left."""
    old = step.expected or FileState(FileKind.UNKEPT)
    sides = [state.data[:MAX_COMPARED].decode("utf-8", "replace") for state in (old, now)]
    before, after = (side.splitlines() for side in sides)
    lines = list(
        difflib.unified_diff(before, after, f"{path} (agent)", f"{path} (now)", lineterm="")
    )
    if len(lines) > MAX_DIFF_LINES:
        return [*lines[:MAX_DIFF_LINES], f"… {len(lines) - MAX_DIFF_LINES} more lines"]
    return lines or [f"{path}: {old.kind} before, {now.kind} now"]
