"""The directory of session files: names, lists, search and removal.

Laws: a list is true (a file that changed since the catalogue saw it is read again); one
damaged session never hides the others, it is listed as damaged (REC-7). What is a coroutine
reads files in threads, and can be cancelled between any two of them; ``fork`` blocks, and so
do the functions at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentcli.domain.errors import (
    HistoryViolation,
    SessionDamaged,
    SessionNotFound,
    SessionTooNew,
    StoreError,
    UsageError,
)
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.session import (
    AFTER_ALL,
    KeptEvent,
    LoadedSession,
    NewestUnreadable,
    SessionInfo,
    SessionStatus,
    session_id_at,
)
from agentcli.store import disk, reads, seals
from agentcli.store.catalogue.catalogue import (
    Catalogue,
    CatalogueEntry,
    IndexedText,
    SearchHit,
)
from agentcli.store.codec import MalformedBody, NewerBody, to_column
from agentcli.store.disk import (
    SESSION_ID,
    SUFFIX,
    recovery_path,
    runs_directory,
    stamp_of,
    stamps_in,
)
from agentcli.store.file import (
    SessionFile,
    connect_unseen,
    damaged,
    fault,
    name_of,
    publish,
    read_names,
    read_with,
    unmark_wal,
)
from agentcli.store.lock import WriterLock, live_owner, lock_path
from agentcli.store.reads import with_true_status
from agentcli.store.seals import Seal

if TYPE_CHECKING:
    from agentcli.domain.accounts import Ledger

T = TypeVar("T")

MIN_SUFFIX_LENGTH = 4
MAX_CANDIDATES = 5
VERY_MANY = 2_000  # files that are looked at in a hundredth of a second
MAX_CORRECTIONS = 5
TOUCH_TIMEOUT_S = 5.0
FILES_PER_JOB = 100  # between two of which a cancelled list stops
SESSIONS_PER_INDEXING = 20
_EVENTS_AT_ONCE = 1_000_000  # characters
FILES_PER_UPDATE = 1_000  # of so many nothing is read again after a cancel
LEFTOVER_AGE_S = 24 * 3600.0
CUT_DETAIL = "it was copied in the middle of a turn, which went on in the original"
_OWN_ID = LazyPattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_session_id() -> str:
    """An id of this moment that no other session has."""
    return session_id_at(time.time_ns() // 1_000_000, os.urandom(10))


def _below(ids: Collection[str], parents: Mapping[str, str]) -> set[str]:
    """Those that one of ``ids`` is above, by the ``parents`` of each; none of ``ids`` itself."""
    level = seen = {*ids}
    while level := {name for name in parents.keys() - seen if parents[name] in level}:
        seen = seen | level
    return seen.difference(ids)


class SessionFiles:
    """The sessions in ``directory``, with the catalogue at ``catalogue_path`` as a cache.

    ``seal`` marks what could act in a session of this home (``seals``).
    """

    def __init__(self, directory: Path, catalogue_path: Path, seal: Seal | None = None) -> None:
        self.directory = directory
        self.seal = seal
        self.catalogue = Catalogue(catalogue_path)

    def path_of(self, session_id: str) -> Path:
        """The file of a session, whether it exists or not; raises ``SessionNotFound``."""
        if not SESSION_ID.fullmatch(session_id):
            raise SessionNotFound(f"{session_id!r} is not a session id", "see: agent sessions list")
        return self.directory / f"{session_id}{SUFFIX}"

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, the most recently used first."""
        await self.catalogue.verify(texts=False)
        known = await self.catalogue.entries()
        stamps, entries = await asyncio.to_thread(self._match, known)
        old = [session_id for session_id in stamps if session_id not in entries]
        changed: dict[str, CatalogueEntry] = {}
        lasting: dict[str, CatalogueEntry] = {}
        for start in range(0, len(old), FILES_PER_JOB):
            batch = {name: stamps[name] for name in old[start : start + FILES_PER_JOB]}
            read = await asyncio.to_thread(self._read_entries, batch, known)
            changed |= read
            lasting |= {name: entry for name, entry in read.items() if entry.stamp}
            if len(lasting) >= FILES_PER_UPDATE:
                await self.catalogue.update(lasting)
                lasting = {}
        gone = known.keys() - stamps.keys()
        if lasting or gone:
            await self.catalogue.update(lasting, gone)
        return await asyncio.to_thread(self._in_order, {**entries, **changed})

    async def newest(
        self,
        limit: int,
        places: Iterable[str] = (),
        *,
        agents: bool = False,
        before: tuple[float, str] = AFTER_ALL,
    ) -> Sequence[SessionInfo]:
        """The ``limit`` sessions used last, with ``places`` those of one of these directories.

        ``agents`` includes those of sub-agents and batches; with ``before`` they come after a
        session of that time and id.
        """
        names = tuple(places)
        known = await self._newest_known(limit, names, agents=agents, before=before)
        if known is None:
            known = await self._read_newest(
                lambda info: (
                    (agents or not info.agent)
                    and (not names or info.cwd in names)
                    and (info.updated_at, info.id) < before
                ),
                limit,
                names,
            )
        return known[:limit]

    async def agents_of(self, ids: Collection[str]) -> Sequence[SessionInfo]:
        """The sessions of their sub-agents, and of theirs, the oldest first."""
        if await self._catch_up():
            parents = await self.catalogue.parents()
        else:
            parents = {info.id: info.parent_id or "" for info in await self.list() if info.agent}
        infos = await self.infos_of(sorted(_below(ids, parents)))
        # as their files say it, whatever was known of them
        parents = {info.id: info.parent_id or "" for info in infos.values() if info.agent}
        mine = (infos[name] for name in _below(ids, parents))
        return sorted(mine, key=lambda info: (info.created_at, info.id))

    async def infos_of(self, ids: Sequence[str]) -> Mapping[str, SessionInfo]:
        """The lines of these sessions, of which those are left out that are not there."""
        found = await self._current(ids)
        infos = await asyncio.to_thread(self._in_order, found)
        return {info.id: info for info in infos}

    # --- very many sessions (SCALE-6) -------------------------------------------------------

    # Laws. Where the catalogue knows very many sessions, not every file is looked at for an answer:
    # names tell of what is new and gone, a lock or a log of what is or was left open, and whatever
    # is answered with is as its file is. A session that ends has its line from ``touch``.

    async def _newest_known(
        self,
        limit: int,
        names: Sequence[str],
        *,
        agents: bool = False,
        before: tuple[float, str] = AFTER_ALL,
    ) -> Sequence[SessionInfo] | None:
        """The newest sessions by the catalogue; ``None``: it cannot tell, look at the files."""
        if not await self._catch_up():
            return None
        losses = self.catalogue.losses
        for _ in range(MAX_CORRECTIONS):
            entries = await self.catalogue.newest(limit, names, agents=agents, before=before)
            if entries is None or self.catalogue.losses != losses:
                return None
            shown = {entry.info.id: entry for entry in entries}
            current = await self._current(tuple(shown), shown)
            if current == shown:
                break
        return await asyncio.to_thread(self._in_order, current)

    async def _catch_up(self) -> bool:
        """Let the catalogue know what is new; false where it is to be asked in another way."""
        await self.catalogue.verify(texts=False)
        seen = await self.catalogue.seen()
        if seen.count < VERY_MANY:
            return False
        mark = await asyncio.to_thread(disk.mark_of, self.directory)
        suspects = set(seen.busy)
        if not mark or mark != seen.mark:
            ids, busy = await asyncio.to_thread(disk.names_in, self.directory)
            known = await self.catalogue.ids()
            new = ids - known
            if len(new) > VERY_MANY:
                return False
            suspects |= new | busy | (known - ids)
            if suspects:
                await self._current(tuple(suspects))
            await self.catalogue.note_seen(mark, busy)
        elif suspects:
            await self._current(tuple(suspects))
        return True

    async def _current(
        self, ids: Sequence[str], known: Mapping[str, CatalogueEntry] | None = None
    ) -> Mapping[str, CatalogueEntry]:
        """The entries of ``ids`` as their files are now; the catalogue learns of them."""
        if known is None:
            known = await self.catalogue.entries_of(ids)
        found: dict[str, CatalogueEntry] = {}
        changed: dict[str, CatalogueEntry] = {}
        for start in range(0, len(ids), FILES_PER_JOB):
            some = ids[start : start + FILES_PER_JOB]
            stamps = await asyncio.to_thread(self._stamps_of, some)
            fresh = {name: known[name] for name in some if self._is_fresh(known, stamps, name)}
            old = {name: stamp for name, stamp in stamps.items() if stamp and name not in fresh}
            read = await asyncio.to_thread(self._read_entries, old, known)
            changed |= {name: entry for name, entry in read.items() if entry.stamp}
            found |= fresh | read
        gone = known.keys() - found.keys()
        if changed or gone:
            await self.catalogue.update(changed, gone)
        return found

    def _stamps_of(self, ids: Sequence[str]) -> Mapping[str, str]:
        return {name: stamp_of(self.directory / f"{name}{SUFFIX}") for name in ids}

    @staticmethod
    def _is_fresh(
        known: Mapping[str, CatalogueEntry], stamps: Mapping[str, str], name: str
    ) -> bool:
        return bool(stamps[name]) and name in known and known[name].stamp == stamps[name]

    async def latest(self, cwd: str) -> SessionInfo | None:
        """The session last used in ``cwd``; those of sub-agents and batches do not.

        Raises ``NewestUnreadable`` when that cannot be read, also when its directory is unknown.
        """
        newest = next(iter(await self._used_in(cwd)), None)
        if newest is not None and newest.status is SessionStatus.DAMAGED:
            raise await self.unreadable(newest.id, cwd, is_known_here=bool(newest.cwd))
        return newest

    async def unreadable(
        self,
        session_id: str,
        cwd: str,
        cause: StoreError | None = None,
        *,
        is_known_here: bool = True,
    ) -> NewestUnreadable:
        """The error for ``cwd``'s newest session, which ``cause`` keeps from being opened."""
        path = self.path_of(session_id)
        if cause is None:
            try:
                await asyncio.to_thread(read_info, path)
                cause = damaged(path, "it could not be read")
            except StoreError as error:
                cause = error
        older = (
            info
            for info in await self._used_in(cwd)
            if info.status is not SessionStatus.DAMAGED and info.id != session_id
        )
        return NewestUnreadable(session_id, cause, next(older, None), is_known_here=is_known_here)

    async def _used_in(self, cwd: str) -> Sequence[SessionInfo]:
        """The user's sessions of ``cwd``, newest first, and those that may be of it."""
        names = {cwd, await asyncio.to_thread(os.path.realpath, cwd)}
        if (sure := await self._newest_known(MAX_CANDIDATES, (*names, ""))) is not None:
            return [info for info in sure if info.cwd in names or _is_of_unknown_place(info)]
        return await self._read_newest(
            lambda info: not info.agent and (info.cwd in names or _is_of_unknown_place(info)),
            1,
            tuple(names),
        )

    async def _read_newest(
        self, fits: Callable[[SessionInfo], bool], most: int, places: Sequence[str]
    ) -> Sequence[SessionInfo]:
        """The sessions that fit, newest first; at least the ``most`` sound ones used last.

        What the catalogue does not know is read, the newest files first, and no more than it takes;
        with ``places`` not what is surely of other directories.
        """
        await self.catalogue.verify(texts=False)
        known = await self.catalogue.entries()
        stamps, entries = await asyncio.to_thread(self._match, known)
        rest = sorted(
            (name for name in stamps if name not in entries),
            key=lambda name: disk.written_at(stamps[name]),
            reverse=True,
        )
        found = [info for info in await asyncio.to_thread(self._in_order, entries) if fits(info)]
        for start in range(0, len(rest), FILES_PER_JOB):
            sound = [info for info in found if info.status is not SessionStatus.DAMAGED]
            if len(sound) >= most and sound[most - 1].updated_at > disk.written_at(
                stamps[rest[start]]
            ):
                break  # what was not read is older than what was found
            some = {name: stamps[name] for name in rest[start : start + FILES_PER_JOB]}
            if places:
                some = await asyncio.to_thread(self._perhaps_of, some, places)
            if some:
                changed = await asyncio.to_thread(self._read_entries, some, known)
                lasting = {name: entry for name, entry in changed.items() if entry.stamp}
                await self.catalogue.update(lasting)
                new = await asyncio.to_thread(self._in_order, changed)
                found += [info for info in new if fits(info)]
                found.sort(key=lambda info: (info.updated_at, info.id), reverse=True)
        return found

    def _perhaps_of(self, stamps: Mapping[str, str], places: Sequence[str]) -> dict[str, str]:
        """Those of ``stamps`` whose sessions may be of one of ``places``."""
        names = [place.encode("utf-8", "surrogatepass") for place in places]
        return {
            name: stamp
            for name, stamp in stamps.items()
            if disk.may_name(self.directory / f"{name}{SUFFIX}", stamp, names)
        }

    async def resolve(self, text: str) -> str:
        """The id meant by ``text``: an id, the start or end of one, or a title.

        Raises ``SessionNotFound`` when that is none, or several, which the error then lists.
        """
        wanted = text.strip()
        if SESSION_ID.fullmatch(wanted) and (self.directory / f"{wanted}{SUFFIX}").exists():
            return wanted
        if await self._catch_up():
            titles = await self.catalogue.called(wanted)
        else:
            titles = {info.id: info.title for info in await self.list()}
        folded = wanted.casefold()
        ways: tuple[Callable[[str, str], bool], ...] = (
            lambda _, title: title == wanted,
            lambda _, title: title.casefold() == folded,
            lambda name, _: name.startswith(folded),
            lambda name, _: len(folded) >= MIN_SUFFIX_LENGTH and name.endswith(folded),
        )
        for fits in ways if wanted else ():
            found = [name for name, title in titles.items() if fits(name, title)]
            if len(found) == 1:
                return found[0]
            if found:
                raise _ambiguous(wanted, [(name, titles[name]) for name in found])
        raise SessionNotFound(f"no session is called {wanted!r}", "see: agent sessions list")

    def fork(self, session_id: str, at: int | None = None) -> str:
        """A complete copy of a session, also of one that is in use; the id of the copy.

        ``at``: as it was right after the message of that seq (TT-3). Raises ``SessionNotFound``,
        ``SessionDamaged``, ``SessionTooNew``, ``PersistenceError``, or ``UsageError`` for a message
        that is not there.
        """
        source, new_id = self.path_of(session_id), new_session_id()
        copy_session(source, self.path_of(new_id), self.seal, at)
        return new_id

    def is_own(self, session_id: str) -> bool:
        """Whether a session was begun, or taken up before, in this home. Blocks."""
        file = SessionFile(self.path_of(session_id), writable=False, seal=self.seal)
        try:
            return file.look(seals.is_own)
        except StoreError:
            return False

    async def delete(self, session_id: str) -> None:
        """Remove a session with everything beside it; raises ``SessionLocked`` while it is open."""
        await asyncio.to_thread(_delete, self.path_of(session_id))
        await self.catalogue.update({}, [session_id])

    async def search(
        self, text: str, limit: int = 50, on_progress: Callable[[int, int], None] | None = None
    ) -> Sequence[SearchHit]:
        """Where ``text`` was said or printed, best first; indexes what is new before.

        A damaged index is built again. ``on_progress`` is told, of so many sessions that are to be
        indexed, how many have been.
        """
        await self.catalogue.verify()
        for _ in range(2):
            await self._index(on_progress)
            losses = self.catalogue.losses
            hits = await self.catalogue.search(text, limit)
            if self.catalogue.losses == losses:
                break
        return hits

    async def search_sessions(self, text: str, limit: int = 50) -> Sequence[SearchHit]:
        """The sessions that hold ``text``, each once; of what ``refresh_index`` has seen."""
        return await self.catalogue.search_sessions(text, limit)

    async def refresh_index(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Let the full-text index know of what is new; may be cancelled at any moment."""
        await self.catalogue.verify()
        await self._index(on_progress)

    async def reindex(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Build the catalogue again from the session files; how many sessions it now holds.

        Also clears away what killed processes left half made.
        """
        await asyncio.to_thread(self._sweep)
        await self.catalogue.clear()
        count = len(await self.list())
        await self._index(on_progress)
        return count

    async def touch(self, stamp: str, info: SessionInfo) -> str | None:
        """Bring the catalogue's line of a session up to date; a warning if that failed (FAIL-2).

        ``stamp`` is that of the file before ``info`` was read in it (``SqliteStore.stamped_info``),
        empty where the file is gone: nothing is put down then.
        Gives up after 5 s. Call it after a turn.
        """
        self.catalogue.warning = None
        try:
            async with asyncio.timeout(TOUCH_TIMEOUT_S):
                if stamp:
                    await self.catalogue.update({info.id: CatalogueEntry(stamp, info)})
        except Exception as error:  # noqa: BLE001 - the catalogue is never more than a warning
            return f"the session catalogue was not updated: {str(error) or type(error).__name__}"
        return self.catalogue.warning

    def _match(
        self, known: Mapping[str, CatalogueEntry]
    ) -> tuple[Mapping[str, str], dict[str, CatalogueEntry]]:
        """The stamps of all session files, and those of ``known`` that still have theirs."""
        stamps = stamps_in(self.directory)
        return stamps, {
            name: known[name]
            for name, stamp in stamps.items()
            if name in known and known[name].stamp == stamp
        }

    def _in_order(self, entries: Mapping[str, CatalogueEntry]) -> Sequence[SessionInfo]:
        infos = (
            with_true_status(entry.info, self.directory / f"{name}{SUFFIX}", own=False, live=False)
            if entry.info.status is SessionStatus.RUNNING
            else entry.info
            for name, entry in entries.items()
        )
        return sorted(infos, key=lambda info: (info.updated_at, info.id), reverse=True)

    def _sweep(self) -> None:
        oldest = time.time() - LEFTOVER_AGE_S
        for path in (*self.directory.glob(".*.new*"), *self.directory.glob(".repair-*")):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime > oldest:
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()

    async def _index(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        if not await self._catch_up():
            await self.list()
        news_of = await self.catalogue.unindexed()
        names = list(news_of)
        for done in range(0, len(names), SESSIONS_PER_INDEXING):
            for at in range(done, min(done + SESSIONS_PER_INDEXING, len(names))):
                if on_progress is not None:
                    on_progress(at, len(names))
            some = {name: news_of[name] for name in names[done : done + SESSIONS_PER_INDEXING]}
            await self.catalogue.index(await asyncio.to_thread(self._texts_of, some))

    def _texts_of(self, news_of: Mapping[str, tuple[str, int]]) -> Sequence[IndexedText]:
        found = []
        for session_id, (stamp, last) in news_of.items():
            try:
                path = self.directory / f"{session_id}{SUFFIX}"
                reached, texts = read_with(path, reads.searchable_texts, last)
            except StoreError:
                continue
            found.append(IndexedText(session_id, stamp, reached, texts))
        return found

    def _read_entries(
        self, stamps: Mapping[str, str], known: Mapping[str, CatalogueEntry]
    ) -> dict[str, CatalogueEntry]:
        return {
            name: self._read_entry(name, stamp, known.get(name)) for name, stamp in stamps.items()
        }

    def _read_entry(
        self, session_id: str, stamp: str, known: CatalogueEntry | None
    ) -> CatalogueEntry:
        path = self.directory / f"{session_id}{SUFFIX}"
        try:
            return CatalogueEntry(stamp, replace(read_info(path), id=session_id))
        except (SessionDamaged, SessionTooNew) as error:
            return CatalogueEntry(stamp, _unreadable(path, error, known))
        except StoreError as error:  # it may pass: not remembered
            return CatalogueEntry("", _unreadable(path, error, known))


def _is_of_unknown_place(info: SessionInfo) -> bool:
    """Whether a damaged file is a session by its name, of nobody knows which directory."""
    is_damaged = info.status is SessionStatus.DAMAGED and not info.cwd
    return is_damaged and _OWN_ID.fullmatch(info.id) is not None


def read_info(path: Path) -> SessionInfo:
    """The line of one session file, read without locking it; raises ``StoreError``."""
    return read_with(path, reads.read_info)


def read_session(path: Path, *, hidden: bool = False) -> LoadedSession:
    """One session file, read without locking it (REC-6); raises ``StoreError``."""
    loaded = read_with(path, lambda db: reads.read_session(db, hidden=hidden))
    return replace(loaded, info=with_true_status(loaded.info, path, own=False, live=False))


def read_call_id(path: Path) -> str:
    """The call that began a sub-agent's session; empty for a user's."""
    mark = read_with(path, reads.read_state, reads.SUBAGENT_KEY)
    return str(mark.get("call_id") or "") if isinstance(mark, dict) else ""


def read_events(path: Path) -> Iterator[KeptEvent]:
    """What was kept of a session's events, in order, read bit by bit without locking it."""
    after, some = read_with(path, reads.read_events, 0, _EVENTS_AT_ONCE)
    while some:
        yield from some
        after, some = read_with(path, reads.read_events, after, _EVENTS_AT_ONCE)


def ledger_of(path: Path) -> Ledger:
    """What a session's requests have sent and cost; raises ``StoreError``."""
    from agentcli.store.ledger import read_ledger

    return read_with(path, read_ledger)


def _delete(path: Path) -> None:
    if not path.exists():
        raise SessionNotFound(f"no session file {path}", "see: agent sessions list")
    try:
        lock = WriterLock.acquire(path, name_of)
        try:
            shutil.rmtree(runs_directory(path), ignore_errors=True)
            for name in _belongings(path):
                name.unlink(missing_ok=True)
        finally:
            lock.release()
    except OSError as error:
        raise fault(error, path, writing=True) from error


def _unreadable(path: Path, error: StoreError, known: CatalogueEntry | None) -> SessionInfo:
    changed_at = disk.changed_at(path)
    if known is not None:
        last = max(known.info.updated_at, changed_at)
        return replace(known.info, status=SessionStatus.DAMAGED, detail=str(error), updated_at=last)
    cwd, title = read_names(path)
    return SessionInfo(
        id=path.stem,
        title=title,
        cwd=cwd,
        created_at=changed_at,
        updated_at=changed_at,
        status=SessionStatus.DAMAGED,
        turns=0,
        model="",
        detail=str(error),
    )


def _ambiguous(text: str, found: Sequence[tuple[str, str]]) -> SessionNotFound:
    shown = ", ".join(f"{name} ({title[:40]})" for name, title in found[:MAX_CANDIDATES])
    more = len(found) - MAX_CANDIDATES
    return SessionNotFound(
        f"{text!r} fits {len(found)} sessions: {shown}" + (f" and {more} more" if more > 0 else ""),
        "give more of the id",
    )


def _belongings(path: Path) -> Sequence[Path]:
    stem = path.stem
    copies = (*path.parent.glob(f"{stem}.v*.backup"), *path.parent.glob(f"{stem}.damaged-*"))
    beside = [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]
    return (path, *beside, *copies, recovery_path(path), lock_path(path))


# --- a copy that goes on by itself -----------------------------------------------------------

# Laws. The source is only read, and its writer is not in the way: the copy is one state of it
# (https://sqlite.org/backup.html). The copy appears under its name complete and proved readable,
# or not at all. Nothing of the source's lock or turn binds it: a turn that runs in the source was
# cut in the copy, whose next open balances it (REC-1, REC-6).


def copy_session(
    source: Path, target: Path, seal: Seal | None = None, at: int | None = None
) -> None:
    """Make ``target``, a session of its own, from the session file ``source``.

    What has the mark of ``seal`` in the one has it in the other. ``at`` and errors: see ``fork``.
    """
    from agentcli.store.tasks import leave_to_the_original

    file = SessionFile(source, writable=False)

    def build(temporary: Path, descriptor: int) -> None:
        file.read(_copy, temporary, descriptor)
        with contextlib.closing(connect_unseen(temporary)) as db:
            _make_own(db, source, target, is_live=is_live)
            seals.carry_over(db, source.stem, target.stem, seal)
            if at is not None:
                from agentcli.store.rewinds import cut_after

                cut_after(db, at)
            leave_to_the_original(db, time.time())

    try:
        file.open()
        is_live = live_owner(source) is not None
        publish(target, build)
    except (StoreError, UsageError):
        raise
    except HistoryViolation as error:
        raise damaged(source, error.message) from error
    except (MalformedBody, NewerBody) as error:
        raise fault(error, source, writing=False) from error
    except Exception as error:
        known = fault(error, source, writing=False)
        raise (
            known if isinstance(known, SessionDamaged) else fault(error, target, writing=True)
        ) from error
    finally:
        file.close()


def _copy(db: sqlite3.Connection, path: Path, descriptor: int) -> None:
    db.execute("SELECT id FROM session").fetchone()  # from here on one state is seen
    os.ftruncate(descriptor, 0)
    with contextlib.closing(connect_unseen(path)) as copy:
        db.backup(copy)
    unmark_wal(descriptor)


def _make_own(db: sqlite3.Connection, source: Path, target: Path, *, is_live: bool) -> None:
    """Prove the copy readable and lawful, and give it its own name and times."""
    now = time.time()
    line = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if line != "ok":
        raise MalformedBody(line)
    loaded = reads.read_session(db)
    loaded.history()  # raises where it is not lawful
    status, detail = loaded.info.status, loaded.info.detail
    if is_live and status is SessionStatus.RUNNING:
        status, detail = SessionStatus.CRASHED, CUT_DETAIL
    db.execute("DELETE FROM kv WHERE key = ?", (reads.SUBAGENT_KEY,))  # the user's from now on
    db.execute(
        "UPDATE session SET id = ?, parent_id = ?, created_at = ?, updated_at = ?,"
        " status = ?, detail = ?",
        (target.stem, source.stem, now, now, status.value, to_column(detail)),
    )
