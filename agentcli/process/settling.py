"""What commands in the sandbox make is put right: before one, while it runs and after it (SEC-17).

Laws: what is there before a command starts is the user's, unless another one runs; what is set
aside is said once to the model, with the next result, and once to the user. While something runs
inside it is looked at again and again, and stands still where the app does: before Ctrl-Z stops us
there is a last look, and where another signal does each guard stops what it guards (``guard``).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.tools import real_path
from agentcli.process.guard import descendants, is_stopped, send_signal
from agentcli.process.leftovers import work_below
from agentcli.process.run import confined_guards
from agentcli.process.sandbox_setup import has_content, remove_mount_points
from agentcli.process.set_aside import pinned
from agentcli.process.unsettled import Record, put_right

if TYPE_CHECKING:
    from types import FrameType

    from agentcli.domain.sandbox import StillLives
    from agentcli.process.directories import Survey
    from agentcli.process.sandbox_places import Places
    from agentcli.process.sandbox_watch import TreeWatch
    from agentcli.process.set_aside import Pinned

T = TypeVar("T")

# what runs inside is looked at again after a time that it cannot foretell, or so many times as
# long as the look took, to a bound; a command that just runs on is so once it has run for a while
_BETWEEN_S = (0.5, 1.5)
_REST, _MOST_REST_S = 20, 10.0
_LONG_S = 10.0
_BEAT_S = 1.0
_MOST_SAID = 8  # lines of what is made while something runs on
_AND_SO_ON = (
    "[sandbox: what runs inside goes on making such files; they are renamed, and no more is said "
    "of it until it has ended]"
)
_STOPPING_S = 1.0  # what forks faster than it is stopped
_NOT_TOLD_APART = (
    "[sandbox: a process that was left running inside may have made that; if the command outside "
    "did, end that process and run the command again]"
)

_open: list[Settling] = []


class Settling:
    """Of the commands of one sandbox, in ``roots``.

    ``make_watch`` gives a watch of directories; ``unsettled`` is where it is kept what was known,
    in case the app is killed; ``tell`` gets what was put right while nobody waited for a command.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        make_watch: Callable[[Sequence[Path]], TreeWatch],
        unsettled: Path | None,
        tell: Callable[[], object],
    ) -> None:
        self._roots = roots
        self._make_watch = make_watch
        self._tell = tell
        self._record = Record(unsettled, roots) if unsettled is not None else None
        self._watch: TreeWatch | None = None
        self._watching = asyncio.Lock()
        self._looks = threading.Lock()  # held by the thread that uses the watch
        self._looking: asyncio.Task[None] | None = None
        self._unborn: tuple[Path, ...] = ()
        self._running = 0
        self._since = 0.0
        self._left: list[StillLives] = []
        self._mounted_on: set[Path] = set()
        self._shielded: Mapping[str, Pinned] = {}  # what is read-only to those that are left
        self._done = self._seen = frozenset[str]()
        self._room = _MOST_SAID
        self._unsaid: list[str] = []
        self._told: list[str] = []
        _open.append(self)

    @property
    def users(self) -> Survey | None:
        """What was there when no command ran."""
        return self._watch.users if self._watch is not None else None

    @property
    def may_write(self) -> bool:
        """Whether something runs inside that may."""
        return bool(self._running) or any(still_lives() for still_lives in self._left)

    def take_told(self) -> list[str]:
        """What the user was not told yet."""
        told, self._told = self._told, []
        return told

    def put_right_what_was_left(self) -> None:
        """By commands of apps that were killed; blocks."""
        if self._record is not None:
            self._told += self._record.put_right_what_was_left(self._make_watch)

    # --- before, and after -------------------------------------------------------------------

    async def before(self, find_places: Callable[[], Places], *, mounts: bool) -> Places:
        """After a look around, what ``find_places`` gives; ``mounts``: what is read-only is so.

        A caller that is cancelled does not wait for the look.
        """
        gone = threading.Event()

        def check() -> None:
            if gone.is_set():
                raise InterruptedError

        async with self._watching:
            try:
                return await self._alone(
                    self._look_before, find_places, mounts, check, cancel=gone.set
                )
            except InterruptedError:
                raise asyncio.CancelledError from None

    def _look_before(
        self,
        find_places: Callable[[], Places],
        mounts: bool,  # noqa: FBT001 - as above
        check: Callable[[], None],
    ) -> Places:
        is_changed, beside = False, self._beside()
        if self._watch is not None and (is_changed := self._may_have_changed()):
            self._unsaid += self._set_aside()
        else:
            self.put_right_what_was_left()  # by one that was killed since we began
            watch = self._watch or self._make_watch(self._roots)
            watch.learn(beside, check)
            self._watch = watch
            self._room = _MOST_SAID
        places = find_places()
        if mounts:
            shut = {
                path
                for path in places.read_only
                if not places.holds_reopened(path)
                and not any(watch.is_inside(str(path)) for watch in beside)
            }
            if is_changed:  # what still runs may move directories while this command's are mounted
                kept = set(map(str, filter(places.stays_where_it_is, shut)))
                before = self._watch.read_only.items()
                self._watch.read_only = {place: pin for place, pin in before if place in kept}
            else:
                self._watch.read_only = self._shielded = pinned(shut, self._watch.known.items)
        earlier = self._unborn if is_changed else ()
        self._unborn = tuple(dict.fromkeys((*earlier, *places.unborn)))
        self._keep(begins=True)
        return places

    def begin(self, shut: Iterable[Path]) -> None:
        """A command starts, to which ``shut`` is not readable."""
        _stop_with_us()
        self._since = self._since if self._running else time.monotonic()
        self._running += 1
        self._mounted_on.update(filter(has_content, shut))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._keep_looking())

    async def settle(
        self, still_lives: StillLives | None, more: Callable[[], list[str]]
    ) -> tuple[str, ...]:
        """After a command, of which ``still_lives``; ``more`` is what else it is told."""
        if self._watch is None:
            return ()
        async with self._watching:
            self._running = max(0, self._running - 1)
            if still_lives is not None:
                self._left.append(still_lives)
            before, self._unsaid = [*self._unsaid, *more()], []
            lines = (*before, *await self._alone(self._set_aside))
            if not self._running:
                self._mounted_on.clear()
            if still_lives is not None and still_lives():
                self._shielded = self._watch.read_only
            elif not self._running:
                self._watch.read_only = self._shielded
            return lines

    # --- while something runs ----------------------------------------------------------------

    async def _keep_looking(self) -> None:
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(self._keep_alive())
            await self._look_until_quiet()
            beats.cancel()

    async def _keep_alive(self) -> None:
        """Say by the time of the record that something may write, however long a look takes."""
        while self._record is not None:
            await asyncio.sleep(_BEAT_S)
            await asyncio.to_thread(self._record.beat)

    async def _look_until_quiet(self) -> None:
        is_over, next_look = False, 0.0
        while not is_over:
            await asyncio.sleep(random.uniform(*_BETWEEN_S))  # noqa: S311 - no key
            async with self._watching:
                if (began := time.monotonic()) < next_look:
                    continue
                lines = await self._alone(self._look_again)
                is_over, now = not (self._running or self._left), time.monotonic()
                next_look = now + min((now - began) * _REST, _MOST_REST_S)
            if lines:
                self._tell()

    def _look_again(self) -> list[str]:
        """What was made by what runs inside, if it did anything since."""
        if not self._may_have_changed():
            return []
        if self._running and time.monotonic() - self._since < _LONG_S:
            return []
        before, self._seen = self._seen, self._work_inside()
        if self._seen == before and self._left and not self._running:
            return []
        lines = self._set_aside(is_under_way=bool(self._running or self._left))
        self._unsaid += lines
        return lines

    def look_now(self) -> None:
        """While all that runs inside stands still; blocks."""
        if self.may_write and self._looks.acquire(timeout=_LONG_S):
            try:
                self._unsaid += self._set_aside(is_under_way=True)
            finally:
                self._looks.release()

    # --- the user's own changes --------------------------------------------------------------

    async def step_outside(self) -> tuple[str, ...]:
        """See the port."""
        async with self._watching:
            if self._watch is None or not self._may_have_changed():
                return ()
            self._done = await asyncio.to_thread(self._work_inside)
            return tuple(await self._alone(self._set_aside))

    async def search_along(self, path: str) -> None:
        """See the port."""
        async with self._watching:
            if self._watch is not None:
                await self._alone(self._watch.search_along, path)

    async def accept(self, written: Mapping[Path, str] | None) -> None:
        """See the port."""
        async with self._watching:
            if self._watch is None or not (self._running or self._left):
                return
            if written is None:
                await self._alone(self._accept_all)
            else:
                real = {real_path(path): content for path, content in written.items()}
                await self._alone(self._watch.learn_only, real)
            await self._alone(self._keep)

    def _accept_all(self) -> None:
        """Only if nothing inside did anything since ``step_outside``: else it may be of that."""
        if self._watch is None:
            return
        learned = copy.copy(self._watch)
        learned.learn(self._beside())
        if not self._running and self._work_inside() == self._done:
            self._watch = learned
        elif lines := self._set_aside():
            self._unsaid += [*lines, _NOT_TOLD_APART]

    # --- what all of them use ----------------------------------------------------------------

    async def _alone(
        self, use: Callable[..., T], *args: object, cancel: Callable[[], None] | None = None
    ) -> T:
        """``use`` the watch, in a thread; who is cancelled waits for that."""

        def used() -> T:
            with self._looks:
                return use(*args)

        return await uninterruptible(asyncio.to_thread(used), cancel)

    def _set_aside(self, *, is_under_way: bool = False) -> list[str]:
        remove_mount_points(self._mounted_on)
        lines = []
        if self._watch is not None:
            lines = put_right(self._watch, self._unborn, is_under_way=is_under_way)
        if is_under_way:
            lines = self._few_of(lines)
        self._keep()
        self._told += lines
        return lines

    def _few_of(self, lines: list[str]) -> list[str]:
        """No more than a reader bears of what makes the same again and again."""
        room, self._room = self._room, self._room - len(lines)
        if self._room >= 0 or not lines:
            return lines
        return [*lines[:room], _AND_SO_ON] if room >= 0 else []

    def _keep(self, *, begins: bool = False) -> None:
        """Have on disk what is known while something may write."""
        if self._record is not None and self._watch is not None:
            if begins or self.may_write:
                self._record.keep(self._watch, self._unborn)
            else:
                self._record.settled()

    def _may_have_changed(self) -> bool:
        """Whether a command inside, or what one left behind, has run since the last look."""
        left, self._left = self._left, [still_lives for still_lives in self._left if still_lives()]
        return bool(self._running or left)

    def _work_inside(self) -> frozenset[str]:
        return work_below([pid for still_lives in self._left if (pid := still_lives())])

    def _beside(self) -> list[TreeWatch]:
        """Those of other trees in which something is at work (EXT-3)."""
        at_work = (each for each in tuple(_open) if each._running or each._left)  # noqa: SLF001 - of its own kind
        return [each._watch for each in at_work if each is not self and each._watch is not None]  # noqa: SLF001 - as above

    async def aclose(self) -> None:
        """Put right what was made last. May be called again."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        await self.step_outside()
        if self._record is not None and not self._left:
            await asyncio.to_thread(self._record.close)
        with contextlib.suppress(ValueError):
            _open.remove(self)


def is_quiet() -> bool:
    """Whether nothing runs inside that may write, of no session."""
    return not any(each.may_write for each in tuple(_open))


# --- Ctrl-Z ------------------------------------------------------------------------------------


def _stop_with_us() -> None:
    """From now on Ctrl-Z stops what runs inside, too, where it stops us."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
        signal.signal(signal.SIGTSTP, _suspend)


def _suspend(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # pressed again meanwhile: one stop is meant
    stopped = _stop_inside()
    try:
        for each in tuple(_open):
            each.look_now()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # we go on here
    finally:
        signal.signal(number, _suspend)
        send_signal(stopped, signal.SIGCONT)


def _stop_inside() -> list[int]:
    """Stop all that runs inside; what was."""
    stopped, give_up = dict[int, None](), time.monotonic() + _STOPPING_S
    while time.monotonic() < give_up:
        found = {pid for guard in confined_guards() for pid in descendants(guard)}
        if not (running := [pid for pid in found if not is_stopped(pid)]):
            break
        send_signal(running, signal.SIGSTOP)
        stopped |= dict.fromkeys(running)
    return list(stopped)
