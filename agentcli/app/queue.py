"""What was typed while the agent worked: durable in the session file, mirrored in memory.

Law: a text is on disk before it is said to wait (UI-3), and it leaves the queue in the commit
that makes it a message. The mirror is the only reader: one process writes a session (REC-6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import QueuedInput, QueueKind


class QueueFile(Protocol):
    """The queue's rows."""

    async def queue_add(self, kind: QueueKind, text: str) -> QueuedInput:
        """Let ``text`` wait."""

    async def queue_edit(self, row_id: int, text: str) -> str | None:
        """Change what waits; the text as stored, ``None`` when it waits no longer."""

    async def queue_drop(self, row_id: int) -> bool:
        """Take back what waits; false when it waits no longer."""

    async def queue_waiting(self) -> Sequence[QueuedInput]:
        """What waits, oldest first."""


class DurableQueue:
    """The queue of one session; satisfies ``domain.ports.InputQueue``.

    With ``turns_of_their_own`` nothing is delivered within a turn: each text waits for whoever
    begins a turn with it (CLI-4, stream-json input: one result for each message).
    """

    def __init__(
        self,
        file: QueueFile,
        waiting: Sequence[QueuedInput] = (),
        *,
        turns_of_their_own: bool = False,
    ) -> None:
        self._file = file
        self._items = list(waiting)
        self._turns_of_their_own = turns_of_their_own

    @classmethod
    async def load(cls, file: QueueFile, *, turns_of_their_own: bool = False) -> DurableQueue:
        """The queue as an earlier process has left it."""
        waiting = await file.queue_waiting()
        return cls(file, waiting, turns_of_their_own=turns_of_their_own)

    def waiting(self, kind: QueueKind | None = None) -> Sequence[QueuedInput]:
        """What waits, oldest first; all, or what a turn may take up of one kind."""
        if kind is not None and self._turns_of_their_own:
            return ()
        return tuple(item for item in self._items if kind is None or item.kind is kind)

    def delivered(self, ids: Sequence[int]) -> None:
        """These have become messages."""
        self._items = [item for item in self._items if item.id not in ids]

    async def add(self, kind: QueueKind, text: str) -> QueuedInput:
        """Let ``text`` wait, durably. Raises ``UsageError`` for an empty one."""
        if not text.strip():
            raise UsageError("the message is empty", "say what you want")
        item = await self._file.queue_add(kind, text)
        self._items.append(item)
        return item

    async def edit(self, row_id: int, text: str) -> bool:
        """Change what waits; false when it waits no longer. An empty text takes it back."""
        if not text.strip():
            return await self.drop(row_id)
        kept = await self._file.queue_edit(row_id, text)
        if kept is None:
            return False
        self._items = [
            replace(item, text=kept) if item.id == row_id else item for item in self._items
        ]
        return True

    async def drop(self, row_id: int) -> bool:
        """Take back what waits; false when it waits no longer."""
        if not await self._file.queue_drop(row_id):
            return False
        self.delivered((row_id,))
        return True
