"""How a session comes by its keeper of files; a part of ``compose`` (TT-1).

Law: nothing of it is imported before the first call that may change a file (the import budget).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.domain.tools import Effect, Workspace

if TYPE_CHECKING:
    from agentcli.app.file_keeper import Keeper
    from agentcli.store.sqlite import SqliteStore


class LazyKeeper:
    """Satisfies ``domain.tools.FileKeeper``. ``tell`` says a line to the person; set it later."""

    def __init__(
        self, store: SqliteStore, workspace: Workspace, secrets: Callable[[], Iterable[str]]
    ) -> None:
        self._store = store
        self._workspace = workspace
        self._secrets = secrets
        self._keeper: Keeper | None = None
        self.tell: Callable[[str], None] = lambda _: None

    async def begin(self, call_id: str, effect: Effect, paths: Sequence[Path]) -> None:
        """A call that is no READ is about to run."""
        await self._made().begin(call_id, effect, paths)

    async def end(self, call_id: str) -> None:
        """It has run, or was stopped."""
        await self._made().end(call_id)

    async def settled(self) -> None:
        """Return when all that has ended by now is stored."""
        if self._keeper is not None:
            await self._keeper.settled()

    def _made(self) -> Keeper:
        if self._keeper is None:
            from agentcli.app.file_keeper import Keeper

            self._keeper = Keeper(self._store.rewinds, self._workspace, self.tell, self._secrets)
        return self._keeper
