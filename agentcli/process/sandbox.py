"""The sandbox of one session: bubblewrap, or Landlock, or none, and why (SEC-7).

Laws: until the first command needs it nothing is imported, run or written; what is in force is
what a real run has shown. Nothing falls back in silence: a wish that cannot be met is in the state
with its reason. What is private to the session's commands lives in one directory, which goes with
the session; a killed app's is removed by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.sandbox import (
    Access,
    Confined,
    HostGate,
    Sandbox,
    SandboxKind,
    SandboxState,
    StillLives,
)
from agentcli.domain.tools import Workspace, real_path

if TYPE_CHECKING:
    import socket

    from agentcli.process.sandbox_places import Around, OwnPlaces, Places
    from agentcli.process.sandbox_setup import PrivatePlaces, Probe
    from agentcli.process.sandbox_watch import TreeWatch
    from agentcli.process.settling import Settling

NO_SANDBOX = "commands run without a sandbox, with all of your rights"
NO_LIMIT = "commands in the sandbox reach every host: the setting sandbox_network opens the network"
NO_SANDBOX_HERE = "there is no sandbox for this system; Linux has bubblewrap and Landlock"

_open: list[SessionSandbox] = []


class SessionSandbox:
    """Implements ``Sandbox`` for one workspace. ``own`` gives our places once they are needed.

    ``variables`` are credentials that commands get all the same. ``tell`` gets what was put right
    while nobody waited for a command.
    """

    def __init__(
        self,
        workspace: Workspace,
        own: Callable[[], OwnPlaces],
        wanted: str,
        *,
        network: bool = False,
        variables: Sequence[str] = (),
        tell: Callable[[str], object] | None = None,
    ) -> None:
        self._names = (workspace.root, *workspace.extra)
        self._roots = tuple(map(real_path, self._names))  # once: a command may change a link
        self._own = own
        self._home = Path(os.path.expanduser("~"))  # noqa: PTH111 - never raises
        self._wanted = wanted
        self._network = network
        self._variables = frozenset(variables)
        self._hosts: tuple[str, ...] = ()
        self.allowed: tuple[str, ...] = ()
        self._make_gate: Callable[[], HostGate] | None = None
        self._gate: HostGate | None = None
        self._door: tuple[socket.socket, asyncio.Task[None]] | None = None
        self._program = ""
        self._takes_open_files = False
        self._places: Places | None = None
        self._around: Around | None = None
        self._credentials: Callable[[Path], Iterable[Path]] = lambda _: ()
        self._filtered = False
        self._namespaces: tuple[int, ...] = ()
        self._private: PrivatePlaces | None = None
        self._searched: list[str] = []
        self._settling: Settling | None = None
        self._indexes: tuple[bytes, ...] | None = None  # git's, before any command
        self._tell = tell
        self._lock = asyncio.Lock()
        self._state = SandboxState(SandboxKind.OFF, wanted, network=network, known=wanted == "off")
        self._paused = False
        self.switched: bool | None = None
        self._leader: object = None
        self._is_closed = False
        self._notice_given = False
        _open.append(self)

    def let_through(self, hosts: tuple[str, ...], make_gate: Callable[[], HostGate]) -> None:
        """Commands reach ``hosts`` by what ``make_gate`` makes, which is asked for it once."""
        self._hosts, self._make_gate = hosts, make_gate

    @property
    def state(self) -> SandboxState:
        """What is in force, as far as it is known."""
        if self._paused:
            problem = "switched off for this session"
            return SandboxState(SandboxKind.OFF, "off", problem, self._network)
        return self._state

    @property
    def namespaces(self) -> tuple[int, ...]:
        """The network that the session's commands share, and its user namespace."""
        return self._namespaces

    async def begin(self) -> SandboxState:
        """Find out by a real run what works here, once, and not while it is switched off.

        A run that hangs is given up when the caller is cancelled, or the session ends.
        """
        async with self._lock:
            if not (self._state.known or self._paused or self._is_closed):
                gone = threading.Event()
                await uninterruptible(asyncio.to_thread(self._look, gone), gone.set)
            await self._open_door()
        return self.state

    async def allow_host(self, host: str) -> str:
        """Let commands reach ``host``, here and in other trees of the session; see the port."""
        state = await self.begin()
        if not state.is_on or state.network:
            return NO_LIMIT if state.is_on else NO_SANDBOX
        self._reach((host,))
        state = await self.begin()
        return "" if host in state.hosts else state.problem

    def _reach(self, hosts: tuple[str, ...]) -> None:
        """Let commands reach them too, from the next look on; so in other trees of the session."""
        self.allowed = tuple(dict.fromkeys((*self.allowed, *hosts)))
        self._hosts = tuple(dict.fromkeys((*self._hosts, *hosts)))
        for each in tuple(_open):
            if each._leader is self:  # noqa: SLF001 - of its own kind
                each._reach(hosts)  # noqa: SLF001 - as above

    async def _open_door(self) -> None:
        """Where hosts are named, have the gate listen in the network that commands share."""
        state, make_gate = self._state, self._make_gate
        if self._hosts == state.hosts or not (state.is_on and make_gate) or state.network:
            return
        if self._door is None:
            from agentcli.process.sandbox_setup import listener_in

            try:
                listener = await uninterruptible(asyncio.to_thread(listener_in, self._namespaces))
            except OSError as error:
                self._hosts, why = (), error.strerror or str(error)
                if why not in state.problem:
                    problem = "; ".join(filter(None, (state.problem, why)))
                    self._state = replace(state, problem=problem)
                return
            self._gate = gate = make_gate()
            self._door = listener, asyncio.create_task(gate.serve(listener))
        if self._gate is not None:
            self._gate.hosts = self._hosts
        self._state = replace(state, hosts=self._hosts)

    def switch(self, *, on: bool) -> None:
        """Use it or do not, from the next command on; on when it was never wanted: look for it."""
        self.switched, self._paused = on, not on
        if on and self._wanted == "off":
            self._wanted = "auto"
            self._state = replace(self._state, wanted="auto", known=False)
        for each in tuple(_open):
            if each._leader is self:  # noqa: SLF001 - of its own kind
                each.switch(on=on)

    def go_on_as(self, before: Sandbox) -> None:
        """Be switched as ``before`` is, and let commands reach what the user has allowed there."""
        if before.switched is not None:
            self.switch(on=before.switched)
        self._reach(before.allowed)

    def follow(self, leader: Sandbox | None) -> None:
        """Be switched as ``leader`` is and will be, which is of another tree of the session."""
        self._leader = leader
        if leader is not None:
            self.go_on_as(leader)

    def take_notice(self) -> str:
        """What the user is told, once: why there is none, and what was set aside."""
        state = self.state
        lines = self._settling.take_told() if self._settling is not None else []
        if state.lacks_it and not self._notice_given:
            self._notice_given = True
            advice = f" ({state.advice})" if state.advice else ""
            lines.append(f"{NO_SANDBOX}: {state.problem}{advice}")
        return "\n".join(lines)

    # --- what works --------------------------------------------------------------------------

    def _look(self, gone: threading.Event) -> None:
        try:
            self._state = self._find_out(gone)
        except OSError as error:
            problem = f"looking for a sandbox failed: {error}"
            self._state = replace(self._state, problem=problem, known=True)

    def _find_out(self, gone: threading.Event) -> SandboxState:
        from agentcli.process import sandbox_calls, sandbox_landlock, sandbox_setup
        from agentcli.process.environment import base_environment, without_credentials
        from agentcli.process.git_index import index_of
        from agentcli.process.sandbox_home import of_users
        from agentcli.process.settling import Settling

        if self._indexes is None:
            self._indexes = tuple(index_of(str(root)) for root in self._roots)
        state = SandboxState(SandboxKind.OFF, self._wanted, network=self._network)
        if sys.platform != "linux":
            return replace(state, problem=NO_SANDBOX_HERE)
        try:
            private = self._private = self._private or sandbox_setup.make_private(self._roots)
        except OSError as error:
            return replace(state, problem=f"no temporary directory can be made: {error.strerror}")
        self._filtered = sandbox_calls.machine() is not None
        seen = self._find_places().seen
        if self._settling is None:
            unsettled = self._own().unsettled
            self._settling = Settling(self._roots, self._new_watch, unsettled, self._tell_now)
        self._settling.put_right_what_was_left()
        base = base_environment()
        given = without_credentials(base, self._variables, network=self._network)
        inside = replace(
            state,
            readable=seen,
            sockets=sandbox_calls.reachable_sockets(),
            withheld=tuple(sorted(name for name in base if base[name] != given.get(name))),
        )
        failed: list[Probe] = []
        if self._wanted in {"auto", SandboxKind.BWRAP}:
            probe = self._try_bwrap(private, lambda: self._is_closed or gone.is_set())
            if not probe.problem:
                writable = (*self._roots, Path("/tmp"))  # noqa: S108 - a private one
                return replace(inside, kind=SandboxKind.BWRAP, writable=writable)
            if self._is_closed or gone.is_set():
                return self._state
            failed.append(probe)
        if self._wanted in {"auto", SandboxKind.LANDLOCK}:
            own = (*of_users(self._home), private.base, *self._own().read_only)
            kept_out = map(real_path, own)
            probe = sandbox_setup.probe_landlock(self._roots, kept_out)
            if not probe.problem:
                abi = sandbox_landlock.abi_version()
                missing = sandbox_landlock.shortcomings(abi, filtered=self._filtered)
                problem = "; ".join([*(each.problem for each in failed), missing])
                advice = failed[0].advice if failed else ""
                writable = (*self._roots, private.temporary)
                return replace(
                    inside,
                    kind=SandboxKind.LANDLOCK,
                    problem=problem,
                    advice=advice,
                    writable=writable,
                )
            failed.append(probe)
        problem = "; ".join(probe.problem for probe in failed)
        return replace(state, problem=problem, advice=failed[0].advice)

    def _try_bwrap(self, private: PrivatePlaces, stopped: Callable[[], bool]) -> Probe:
        from agentcli.process.environment import find_program
        from agentcli.process.sandbox_setup import (
            INSTALL,
            PROGRAM,
            WORK_ELSEWHERE,
            Probe,
            bwrap_argv,
            probe_bwrap,
            takes_open_files,
        )

        program = find_program(PROGRAM, self._roots)
        if program is None:
            if find_program(PROGRAM, ()):
                advice = f"{WORK_ELSEWHERE}, or {INSTALL}"
                return Probe("bubblewrap is found only in what you work in", advice)
            return Probe("bubblewrap is not installed", INSTALL)
        places = self._find_places()
        prefix = bwrap_argv(program, places, private, self._roots[0], own_network=True)
        probe = probe_bwrap(prefix, self._roots[0], stopped)
        self._program, self._namespaces = program, probe.namespaces
        self._takes_open_files = not probe.problem and takes_open_files(program)
        return probe

    def _find_places(self) -> Places:
        from agentcli.process.sandbox_places import Around, find_places

        if self._around is None:
            self._around = Around(self._roots, self._home, self._names)
        known = self._settling.users if self._settling is not None else None
        own = self._own()
        self._credentials = own.credentials
        self._places = find_places(
            self._roots,
            self._home,
            own,
            known.repositories if known is not None else (),
            known.scripts if known is not None else (),
            self._around,
        )
        return self._places

    # --- one command -------------------------------------------------------------------------

    def environment(
        self, base: Mapping[str, str], access: Access = Access.INSIDE
    ) -> dict[str, str]:
        """``base`` as a command inside has it; see the port."""
        if self._private is None:
            return dict(base)
        from agentcli.process.environment import without_credentials
        from agentcli.process.sandbox_setup import inside_environment, proxy_variables

        network = self._network or access is Access.NETWORK
        base = without_credentials(base, self._variables, network=network)
        is_bwrap = self._state.kind is SandboxKind.BWRAP
        door = None if network else self._door
        inside = inside_environment(
            base, self._private, self._home, is_bwrap=is_bwrap, network=network or door is not None
        )
        return inside if door is None else inside | proxy_variables(door[0].getsockname()[1])

    def read_only_environment(self, base: Mapping[str, str], command: str) -> dict[str, str]:
        """``base``, the whole of it, as a command that only reads has it; see the port."""
        if self._private is None:
            return dict(base)
        from agentcli.process.sandbox_setup import read_only_environment

        is_bwrap = self._state.kind is SandboxKind.BWRAP
        return read_only_environment(base, command, self._private, is_bwrap=is_bwrap)

    def on_machine(self, path: Path) -> Path:
        """Where what a command inside calls ``path`` lies on this machine."""
        if self._private is None or self._places is None:
            return path
        from agentcli.process.sandbox_setup import on_machine

        is_bwrap = self._state.kind is SandboxKind.BWRAP
        return on_machine(path, self._places, self._private, is_bwrap=is_bwrap)

    async def confine(self, argv: Sequence[str], cwd: Path, access: Access) -> Confined:
        """The command line that runs ``argv`` with no more than ``access``; see the port."""
        if access is Access.OUTSIDE:
            return Confined(tuple(argv), cwd)
        settling = None if access.reads_only else self._settling
        if settling is not None:
            is_bwrap = self._state.kind is SandboxKind.BWRAP
            places = await settling.before(self._find_places, mounts=is_bwrap)
        elif access.reads_only:
            places = (await asyncio.to_thread(self._find_places)).frozen()
        else:
            raise OSError(errno.ESHUTDOWN, "the session has ended")
        if access.hides:
            places = await asyncio.to_thread(self._without_credentials, places)
        confined = self._with(places, argv, cwd, access)
        if settling is not None:
            settling.begin(places.shut)
        return confined

    def _without_credentials(self, places: Places) -> Places:
        """``places`` where the nearest credentials of the workspace are shut.

        What a command has git track is not among what git tracks.
        """
        found = (each for root in self._roots for each in self._credentials(root))
        return places.without(found, self._roots, self._indexes or ())

    def _with(self, places: Places, argv: Sequence[str], cwd: Path, access: Access) -> Confined:
        private, reads_only = self._private, access.reads_only
        if private is None:
            raise OSError(errno.ESHUTDOWN, "the session has ended")
        network = not reads_only and (self._network or access is Access.NETWORK)
        is_bwrap = self._state.kind is SandboxKind.BWRAP
        temporary = private.scratch if reads_only else private.temporary
        from agentcli.process.sandbox_calls import filters
        from agentcli.process.sandbox_setup import (
            KEPT_OF_RUN,
            bwrap_argv,
            closed_places,
            opened_places,
        )

        calls = filters(
            inet=network or (is_bwrap and not reads_only),
            unix=not reads_only,
            frozen=reads_only,
            mounts=is_bwrap,
        )
        if calls:
            calls["registry"] = str(private.sockets)
        if not is_bwrap:
            own = (private.programs, private.temporary)
            rules = {
                "writable": [str(path) for path in (*places.writable, temporary)],
                "readable": [
                    *(str(path) for path in (*places.seen, *places.writable, *own)),
                    *KEPT_OF_RUN,
                ],
                "hidden": [
                    *(str(path) for path in (*places.hidden, *places.homes)),
                    *closed_places(),
                ],
                "shut": [str(path) for path in places.shut],
                "listed": [str(path) for path in places.listed],
                "network": network,
                "read_only": reads_only,
            }
            return Confined(tuple(argv), cwd, rules={"landlock": rules, "calls": calls})
        may_join = not network and (self._filtered or not reads_only)
        joined = self._namespaces if may_join else ()
        prefix = bwrap_argv(
            self._program,
            places,
            private,
            cwd,
            own_network=not network and not joined,
            opened=self._takes_open_files,
        )
        rules = {"opened": opened_places(prefix), "calls": calls}
        return Confined((*prefix, *argv), Path("/"), joined, rules)

    async def settle(self, still_lives: StillLives | None = None) -> tuple[str, ...]:
        """After a command: set aside what must not come into being; see the port."""
        if self._settling is None:
            return ()
        from agentcli.process.sandbox_setup import lines_of

        return await self._settling.settle(still_lives, lambda: lines_of(self._gate))

    async def step_outside(self) -> tuple[str, ...]:
        """Before what the user has allowed outside of it; see the port."""
        return () if self._settling is None else await self._settling.step_outside()

    async def search_along(self, path: str | None) -> None:
        """The user's shell in the session looks for programs there; see the port."""
        if path is None or path in self._searched:
            return
        self._searched.append(path)
        if self._settling is not None:
            await self._settling.search_along(path)

    async def accept(self, written: Mapping[Path, str] | None = None) -> None:
        """Take what is there now for what the user wants; see the port."""
        if self._settling is not None:
            await self._settling.accept(written)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing runs inside that may write, of no session; see the port."""
        from agentcli.process.settling import is_quiet

        return is_quiet()

    def _new_watch(self, roots: Sequence[Path]) -> TreeWatch:
        from agentcli.process.git_config import users_configurations
        from agentcli.process.sandbox_places import PROJECT, start_up_places
        from agentcli.process.sandbox_watch import TreeWatch

        project = [root / name for root in roots for name in PROJECT]
        user_configs = tuple(map(Path, users_configurations()))
        project += start_up_places(self._home)
        own = [self._private.temporary] if self._private is not None else []
        if self._state.kind is SandboxKind.LANDLOCK:
            own.append(Path("/dev/shm"))  # noqa: S108 - commands write there
        watch = TreeWatch(roots, (*project, *self._own().scripts), own, user_configs)
        for path in self._searched:
            watch.search_along(path)
        return watch

    def _tell_now(self) -> None:
        if self._tell is not None:
            for line in self.take_notice().splitlines():
                self._tell(line)

    async def aclose(self) -> None:
        """Remove the session's private temporary directory; ``tell`` what was set aside last."""
        self._is_closed = True
        if self._settling is not None:
            await self._settling.aclose()
        with contextlib.suppress(ValueError):
            _open.remove(self)
        async with self._lock:  # what is being found out would be left behind
            private, self._private = self._private, None
            namespaces, self._namespaces = self._namespaces, ()
            door, self._door = self._door, None
            self._state = replace(self._state, kind=SandboxKind.OFF, known=False)
        for handle in namespaces:
            with contextlib.suppress(OSError):
                os.close(handle)
        if door is not None:
            await uninterruptible(_shut(*door))
        if private is not None:
            from agentcli.process.leftovers import remove_tree

            await asyncio.to_thread(remove_tree, private.base)
        self._tell_now()


async def _shut(listener: socket.socket, answering: asyncio.Task[None]) -> None:
    answering.cancel()
    await asyncio.wait({answering})
    listener.close()
