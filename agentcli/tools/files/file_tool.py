"""What the file tools share: problems become results, changes are planned before they are made.

Law: ``preview`` and ``run`` make the same plan, so the user approves what will happen. A change
runs in a thread and is joined even when the call is cancelled in the middle of it: a file
is either as it was or as it should be, and no write goes on behind the turn's back. What a
change touches is what was judged, in the same place and of the same content (SEC-5, SEC-6).
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.files import size_of
from agentcli.domain.tools import Asks, FileLedger, ToolContext, ToolOutput, Workspace, WouldFail
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool
from agentcli.tools.files.diff import MAX_KEPT_CHARS, shortened
from agentcli.tools.files.disk import MAX_WHOLE_BYTES, FoundFile, Transaction, human_size, note_seen
from agentcli.tools.files.paths import FileProblem, JudgedContext, changed_meanwhile, shown
from agentcli.tools.files.text import Encoding, Text, decode

A = TypeVar("A", bound=Arguments)
R = TypeVar("R")
_LARGE_BYTES = 2 * 1024 * 1024


@frozen
class FileContext(JudgedContext):
    """Of a call that reads or changes files: what they looked like when they were last seen."""

    files: FileLedger


class FileTool(BaseTool[A]):
    """A tool that works on files. Subclasses write ``targets`` and ``work``."""

    group = "files"
    asks = Asks.NOTHING
    concurrent = True
    context: type[Any] = JudgedContext

    @abstractmethod
    def targets(self, args: A, workspace: Workspace) -> Sequence[Path]:
        """The files and directories that the call names, resolved; may raise ``FileProblem``."""

    @abstractmethod
    async def work(self, args: A, ctx: Any) -> ToolOutput:
        """Do it; ``FileProblem`` becomes an error result."""

    def paths(self, args: A, workspace: Workspace) -> tuple[Path, ...]:
        """See ``targets``; none for a call that can only fail."""
        try:
            return tuple(dict.fromkeys(self.targets(args, workspace)))
        except FileProblem:
            return ()

    async def run(self, args: A, ctx: Any) -> ToolOutput:
        """Do it."""
        try:
            return await self.work(args, ctx)
        except FileProblem as problem:
            return ToolOutput.error(str(problem))


@dataclass(frozen=True, slots=True)
class Change:
    """One file: ``before`` it is changed (``None``: absent) and ``after`` (``None``: deleted)."""

    path: Path
    before: FoundFile | None
    after: bytes | None
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes that can be made, with what to tell the model (``text``) and the user."""

    changes: tuple[Change, ...]
    text: str
    diff: str
    summary: str


class ChangeTool(FileTool[A]):
    """A file tool that changes files. Subclasses write ``targets`` and ``plan``."""

    asks = Asks.EDIT
    concurrent = False
    context = FileContext

    @abstractmethod
    def plan(self, args: A, ctx: FileContext) -> Plan:
        """What the call amounts to now, nothing written; may raise ``FileProblem``. Blocking."""

    async def preview(self, args: A, ctx: FileContext) -> str:
        """The diff that the call would make. Raises ``WouldFail``.

        What it was made from counts as seen: a file that changes before the answer comes is
        not changed unseen (TOOL-8).
        """
        found = await asyncio.to_thread(self._lightly, self._previewed, args, ctx)
        if isinstance(found, WouldFail):
            raise found
        return found

    def _previewed(self, args: A, ctx: FileContext) -> str | WouldFail:
        try:
            plan = self._judged_plan(args, ctx)
        except FileProblem as problem:  # here, since what it holds on to may be large
            return WouldFail(str(problem))
        for change in plan.changes:
            note_seen(change.path, change.before, ctx.files)
        return plan.diff

    async def work(self, args: A, ctx: FileContext) -> ToolOutput:
        """Plan and commit in one thread, joined whatever happens."""
        work = asyncio.to_thread(self._lightly, self._plan_and_commit, args, ctx)
        return await uninterruptible(work)

    def _lightly(self, work: Callable[[A, FileContext], R], args: A, ctx: FileContext) -> R:
        """``work``, which leaves no memory with this thread where the files are large (SEC-13)."""
        is_large = any(size_of(path) > _LARGE_BYTES for path in self.paths(args, ctx.workspace))
        try:
            return work(args, ctx)
        finally:
            if is_large:
                _give_memory_back()

    def _judged_plan(self, args: A, ctx: FileContext) -> Plan:
        """The plan, for the very files that were judged, in the same order (SEC-5)."""
        now = self.paths(args, ctx.workspace)
        if now and ctx.judged is not None and now != ctx.judged:
            real = next((path for path in now if path not in ctx.judged), now[0])
            was = next((path for path in ctx.judged if path not in now), real)
            raise changed_meanwhile(name_of(was, ctx), real, ctx.workspace)
        return self.plan(args, ctx)

    def _plan_and_commit(self, args: A, ctx: FileContext) -> ToolOutput:
        try:
            plan = self._judged_plan(args, ctx)
            notes = commit(plan.changes, ctx)
        except Stopped:
            return ToolOutput.cancelled("Nothing was written.")
        except FileProblem as problem:
            return ToolOutput.error(str(problem))
        text = "\n".join((plan.text, *notes))
        kept = shortened(plan.diff, MAX_KEPT_CHARS)
        return ToolOutput.text(text, display=kept, summary=plan.summary)


def _give_memory_back() -> None:
    """The C library keeps what it freed, for each thread on its own, unless it is told not to."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Stopped(Exception):
    """The turn was cancelled before anything was written."""


def commit(changes: Sequence[Change], ctx: FileContext) -> list[str]:
    """Make the changes, all or none; returns what else is worth telling. Blocking.

    Raises ``Stopped`` or ``FileProblem`` with everything as it was.
    """
    with Transaction(ctx.workspace, ctx.files) as transaction:
        for change in changes:
            if ctx.cancel.cancelled:
                raise Stopped
            if change.after is not None:
                transaction.write(change.path, change.after, change.before, change.mode)
            elif change.before is not None:
                transaction.delete(change.path, change.before)
        transaction.commit()
        return transaction.notes


def name_of(path: Path, ctx: ToolContext) -> str:
    """``path`` as the model and the user see it."""
    return shown(path, ctx.workspace)


def editable(state: FoundFile, name: str) -> Text:
    """The text of a file that is to be edited; raises ``FileProblem`` when that cannot be."""
    if state.data is None:
        raise FileProblem(
            f"{name} is too large to edit ({human_size(state.info.st_size)}, limit "
            f"{human_size(MAX_WHOLE_BYTES)}). Use bash, for example sed."
        )
    text = decode(state.data)
    if text is None:
        raise FileProblem(f"{name} is a binary file: it cannot be edited as text.")
    return text


def encoded(text: str, encoding: Encoding, name: str) -> bytes:
    """``text`` in the file's encoding; raises ``FileProblem`` naming what it lacks."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        char = error.object[error.start]
        if not encoding.label:
            raise FileProblem(
                f"The text has a character that no file can hold (U+{ord(char):04X}). "
                "Nothing was written."
            ) from None
        raise FileProblem(
            f"{name} is {encoding.label}, which cannot hold {char!r}. Nothing was written. "
            "Use other characters, or convert the file to UTF-8 first."
        ) from None
