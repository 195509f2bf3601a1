"""What was typed while the agent worked: durable in the session file, mirrored in memory.

Law: a text is on disk before it is said to wait (UI-3), and it leaves the queue in the commit
that makes it a message. The mirror is the only reader: one process writes a session (REC-6).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentcli.domain.errors import SourceFailed, UsageError
from agentcli.domain.ports import InputSource, QueuedInput, QueueKind, QueueSource
from agentcli.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from agentcli.domain.messages import UserMessage
    from agentcli.domain.tools import Workspace


class DurableQueue:
    """The queue of one session; satisfies ``domain.tool_ports.InputQueue``.

    With ``turns_of_their_own`` nothing is delivered within a turn: each text waits for a turn
    that begins with it (CLI-4, stream-json input: one result for each message).
    """

    def __init__(
        self,
        file: SqliteStore,
        waiting: Sequence[QueuedInput] = (),
        *,
        turns_of_their_own: bool = False,
        sources: Mapping[QueueKind, Sequence[InputSource]] | None = None,
    ) -> None:
        self._sources = sources or {}
        self._file = file
        self._items = list(waiting)
        self._turns_of_their_own = turns_of_their_own

    @classmethod
    async def load(
        cls,
        file: SqliteStore,
        *,
        turns_of_their_own: bool = False,
        sources: Mapping[QueueKind, Sequence[InputSource]] | None = None,
    ) -> DurableQueue:
        """The queue as an earlier process has left it."""
        waiting = [replace(item, is_earlier=True) for item in await file.queue_waiting()]
        return cls(file, waiting, turns_of_their_own=turns_of_their_own, sources=sources)

    @property
    def has_sources(self) -> bool:
        """Whether ``poll`` asks anybody."""
        return any(self._sources.values())

    async def poll(self, *kinds: QueueKind) -> None:
        """Let what the program's sources of these kinds have by now wait with the rest.

        Raises ``SourceFailed``.
        """
        for kind in kinds:
            for source in self._sources.get(kind, ()):
                try:
                    found = source()
                    texts = await found if isinstance(found, Awaitable) else found
                    texts = (texts,) if isinstance(texts, str) else tuple(texts or ())
                except (Exception, SystemExit) as error:
                    raise SourceFailed(
                        f"the {kind.value} source failed: {type(error).__name__}: {error}",
                        "correct the function that was given for it",
                    ) from error
                for text in texts:
                    if text.strip():
                        await self.add(kind, text)

    def waiting(self, kind: QueueKind | None = None) -> Sequence[QueuedInput]:
        """What waits, oldest first; all, or what a turn may take up of one kind.

        What is said of several background runs is one message then.
        """
        if kind is None:
            return tuple(self._items)
        if self._turns_of_their_own or not self._items:
            return ()
        return _grouped([item for item in self._items if item.kind is kind])

    def next(self) -> QueuedInput | None:
        """What a turn of its own begins with: the oldest, with what belongs to it."""
        return next(iter(_grouped(self._items)), None)

    def about_runs(self) -> QueuedInput | None:
        """What waits about background runs where each message gets a turn of its own."""
        if not self._turns_of_their_own:
            return None
        told = [item for item in self._items if item.source is QueueSource.BACKGROUND]
        return next(iter(_grouped(told)), None)

    def arrived(self, item: QueuedInput) -> None:
        """Something that waits in the file by now."""
        self._items.append(item)

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
            replace(item, text=kept, is_earlier=False) if item.id == row_id else item
            for item in self._items
        ]
        return True

    async def drop(self, row_id: int) -> bool:
        """Take back what waits; false when it waits no longer."""
        if not await self._file.queue_drop(row_id):
            return False
        self.delivered((row_id,))
        return True


def _grouped(items: Sequence[QueuedInput]) -> tuple[QueuedInput, ...]:
    """``items`` with all that is said of background runs in the place of the first of it."""
    told = [item for item in items if item.source is QueueSource.BACKGROUND]
    if len(told) <= 1:
        return tuple(items)
    text = "\n".join(item.text for item in told)
    one = replace(told[0], text=text, others=tuple(item.id for item in told[1:]))
    rest = (item for item in items if item is told[0] or item not in told)
    return tuple(one if item is told[0] else item for item in rest)


async def with_files(
    workspace: Workspace, say: Callable[[str], None], text: str, *, only_inside: bool = False
) -> UserMessage:
    """What waited, as a message with the files that it names; maybe only those of ``workspace``."""
    from agentcli.app.files.attachments import attach

    return await attach(text, workspace, say, only_inside=only_inside)
