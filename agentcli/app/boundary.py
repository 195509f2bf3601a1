"""What a session may do where it works: the policy and the sandbox (SEC-3, SEC-7).

Law: what was asked for by name and cannot be had is an error; what ``auto`` cannot find is told
once. What takes effect without a question in every project is written to by no tool unasked.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.options import SessionOptions
from agentcli.app.trust import hook_scripts, user_places
from agentcli.config.settings import Settings
from agentcli.domain.errors import ConfigError
from agentcli.domain.sandbox import (
    IN_DIRECTORIES,
    HostGate,
    SandboxKind,
    SandboxState,
    plain_host,
)
from agentcli.domain.tools import Workspace, real_path
from agentcli.extensions.places import KINDS
from agentcli.policy.decision import Policy
from agentcli.process.sandbox import SessionSandbox

if TYPE_CHECKING:
    from agentcli.process.directories import Listing
    from agentcli.process.sandbox_places import OwnPlaces

_NAMED = (SandboxKind.BWRAP, SandboxKind.LANDLOCK)
_FRESH_S = 0.5
_MOST_MARKS = 20_000  # looked at for links before an edit, the nearest
_MOST_WITH_LINKS = 200


def policy_for(
    settings: Settings,
    options: SessionOptions,
    free_to_read: tuple[Path, ...] = (),
    obeyed: tuple[Path, ...] = (),
) -> Policy:
    """The policy that a session begins with; raises ``UsageError`` for what is no rule.

    ``obeyed`` are files that nobody changes unasked.
    """
    policy = Policy(options.mode or settings.permission_mode)
    for kind in ("allow", "deny", "ask"):
        source = settings.sources.get(f"permissions.{kind}", "")
        policy.add_rules(kind, getattr(settings, kind), source)
    policy.add_rules("allow", options.allow, "--allow-tool")
    policy.add_rules("deny", options.deny, "--deny-tool")
    policy.yolo_twice = options.yolo_twice
    policy.is_bound = settings.sandbox in _NAMED
    own = (*settings.paths.own_places(options.cwd), *_users_directories(settings))
    policy.own_directories = own
    policy.roots += (options.cwd, *options.add_dirs)
    policy.own_directories += (*_hook_scripts(settings, policy.roots), *obeyed)
    policy.free_to_read = tuple(map(real_path, free_to_read))
    others = _Others(policy.roots)
    policy.run_by_others, policy.look_around = others.run, others.look
    return policy


def _hook_scripts(settings: Settings, places: Sequence[Path]) -> Iterator[Path]:
    """What hooks run of all that the session may write to (SEC-17)."""
    for place in places if settings.hooks else ():
        yield from hook_scripts(settings.hooks, place)


class _Others:
    """How git or a shell would run or obey a file, called by the user somewhere in ``roots``."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._listings: dict[str, Listing] = {}
        self._workplaces: Sequence[str] = ()
        self._linked: Sequence[tuple[str, str]] = ()
        self._settings: Sequence[tuple[str, str]] = ()
        self._looked_at = -math.inf
        self._searched: dict[str, None] = {}

    def look(self, search_path: str | None = None) -> None:
        """Find where repositories and ``.envrc`` are; of a large tree this takes its time.

        ``search_path`` is the ``PATH`` of the session's shell outside, if it was changed.
        """
        from agentcli.process.directories import workplaces_below
        from agentcli.process.environment import searched_by_each
        from agentcli.process.sandbox_places import is_setting, names_at_home, other_names

        roots = [*map(real_path, self._roots)]
        self._workplaces = workplaces_below(map(str, roots), self._listings)
        marks = (f"{at}/{name}" for at in self._workplaces for name in self._listings[at].marks)
        self._searched |= dict.fromkeys(filter(None, (search_path, *searched_by_each(marks))))
        inside = (f"{root}/{name}" for root in roots for name in ("", *self._hidden(str(root))))
        directories = (*inside, *islice(self._workplaces, _MOST_WITH_LINKS))
        home, at_home = _home(), names_at_home(_home(), roots)
        seen = ((at, each.marks) for at, each in list(self._listings.items()))
        marked = (f"{at}/{name}" for at, names in seen for name in names)
        links = filter(os.path.islink, islice(marked, _MOST_MARKS))
        self._linked = [*at_home, *other_names(directories, roots, links)]
        self._settings = [each for each in at_home if is_setting(*each, home, roots)]
        self._looked_at = time.monotonic()

    def _hidden(self, root: str) -> Sequence[str]:
        """The hidden directories of ``root``, and others of which something counts."""
        seen = self._listings.get(root)
        names = (*seen.directories, *seen.marks) if seen else ()  # one that is a link is a mark
        return [name for name in names if name.startswith(".") or name in IN_DIRECTORIES]

    def run(self, path: Path) -> str:
        """What ``path`` is to them; empty: nothing. Looks around itself if nobody just did."""
        from agentcli.policy.places import protected_place
        from agentcli.process.environment import hides, own_program
        from agentcli.process.git_config import run_by_git

        names = (Path(os.path.normpath(path)), real_path(path))
        if any(name.is_relative_to(place) for place in own_program(self._roots) for name in names):
            return "agentcli runs from there"
        if time.monotonic() - self._looked_at > _FRESH_S:
            self.look()
        if program := hides(str(path), self._searched):
            return f"run for {program}"
        for place, link in self._linked:
            if names[1].is_relative_to(place):
                other = Path(link, names[1].relative_to(place))
                if (place, link) in self._settings or protected_place((other,), ()):
                    return f"your {other}"
        return run_by_git(path, self._workplaces)


def _home() -> Path:
    return Path(os.path.expanduser("~"))  # noqa: PTH111 - never raises


def policy_here(
    settings: Settings, options: SessionOptions, obeyed: tuple[Path, ...] = ()
) -> Policy:
    """The same, knowing what would limit commands here."""
    policy = policy_for(settings, options, obeyed=obeyed)
    state, network = look_for_sandbox(options.cwd, settings.sandbox), settings.sandbox_network
    hosts = _hosts(settings) if state.kind is SandboxKind.BWRAP and not network else ()
    policy.limit_by(replace(state, network=network, hosts=hosts))
    return policy


def look_for_sandbox(root: Path, wanted: str) -> SandboxState:
    """What works in ``root``, for ``agent doctor``; found out and taken down again.

    Never raises. May be called while an event loop is running.
    """
    import asyncio
    import threading

    from agentcli.process.sandbox_places import OwnPlaces

    found: list[SandboxState] = []

    async def look() -> None:
        sandbox = SessionSandbox(Workspace(root, root), OwnPlaces, wanted)
        try:
            found.append(await sandbox.begin())
        finally:
            await sandbox.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()
    return (
        found[0] if found else SandboxState(SandboxKind.OFF, wanted, "looking for a sandbox failed")
    )


def session_sandbox(
    settings: Settings,
    workspace: Workspace,
    readable: Callable[[], Sequence[Path]] = tuple,
    obeyed: tuple[Path, ...] = (),
    tell: Callable[[str], object] | None = None,
) -> SessionSandbox:
    """The sandbox that the settings ask for; nothing is looked at before it is needed.

    ``readable`` gives what else commands may read in the home directory; ``obeyed`` are files that
    none of them changes.
    """

    def own_places() -> OwnPlaces:
        from agentcli.policy.places import credentials_below, protected_place
        from agentcli.process.environment import own_program
        from agentcli.process.sandbox_places import OwnPlaces, is_setting, names_at_home

        paths = settings.paths
        home = _home()
        roots = [*map(real_path, (workspace.root, *workspace.extra))]
        at_home = names_at_home(home, roots)
        programs = tuple(own_program((workspace.root, *workspace.extra)))
        catalogue = paths.catalogue_file
        return OwnPlaces(
            read_only=(
                *paths.own_places(workspace.root),
                *_users_directories(settings),
                *programs,
            ),
            hidden=(
                paths.config_file,
                paths.credentials_file,
                paths.logins_dir,
                paths.servers_file,
                paths.trust_file,
                paths.sessions_dir,
                *(catalogue.with_name(catalogue.name + end) for end in ("", "-wal", "-shm")),
                paths.log_file,
                paths.history_file,
                paths.seal_file,
                paths.unsettled_dir,
            ),
            seen=(*_readable_places(settings), *readable()),
            scripts=(
                *_hook_scripts(settings, (workspace.cwd, *workspace.extra)),
                *obeyed,
                *(
                    Path(real)
                    for real, link in at_home
                    if is_setting(real, link, home, roots) or protected_place((Path(link),), ())
                ),
                *(place for place in programs if place.is_symlink()),
            ),
            credentials=credentials_below,
            unsettled=paths.unsettled_dir,
        )

    wanted, network = settings.sandbox, settings.sandbox_network
    variables = settings.sandbox_variables
    sandbox = SessionSandbox(
        workspace, own_places, wanted, network=network, variables=variables, tell=tell
    )
    sandbox.let_through(_hosts(settings), _gate)
    return sandbox


def _gate() -> HostGate:
    from agentcli.wire.host_proxy import HostProxy

    return HostProxy()


def _hosts(settings: Settings) -> tuple[str, ...]:
    """Those that commands inside reach without asking; raises ``ConfigError``."""
    if not settings.sandbox_hosts:
        return ()
    hosts = {text: plain_host(text) for text in settings.sandbox_hosts}
    if wrong := next((text for text, host in hosts.items() if host is None), ""):
        raise ConfigError(
            f"sandbox_hosts: {wrong!r} is no host", "write it as npmjs.org or example.com:8443"
        )
    return tuple(filter(None, hosts.values()))


async def make_sandbox(
    settings: Settings,
    workspace: Workspace,
    readable: Callable[[], Sequence[Path]] = tuple,
    obeyed: tuple[Path, ...] = (),
    tell: Callable[[str], object] | None = None,
) -> SessionSandbox:
    """The same; raises ``ConfigError`` if it was named and fails."""
    sandbox = session_sandbox(settings, workspace, readable, obeyed, tell)
    try:
        await insist(settings, sandbox)
    except ConfigError:
        await sandbox.aclose()
        raise
    return sandbox


async def insist(settings: Settings, sandbox: SessionSandbox) -> None:
    """Raises ``ConfigError`` if the sandbox was named and, while it is on, does not work."""
    if settings.sandbox not in _NAMED:
        return
    state = await sandbox.begin()
    if not state.is_on and state.wanted != SandboxKind.OFF:
        advice = f"{state.advice or 'see: agent doctor'}; or use --sandbox auto, or off"
        raise ConfigError(f"--sandbox {settings.sandbox}: {state.problem}", advice)


def _readable_places(settings: Settings) -> Iterator[Path]:
    """What the user's skills run, and what the settings add."""
    for place in user_places(settings):
        if place.plugin:
            yield place.path  # its hooks run what is in it
        elif not place.in_repository:
            yield from map(place.path.joinpath, KINDS)
    for text in settings.sandbox_readable:
        yield Path(text)


def _users_directories(settings: Settings) -> tuple[Path, ...]:
    """What takes effect without a question in every project: no tool writes there without asking.

    Also where it is not there yet, and where a link at home leads. Our own directory and
    ``.agents`` are known elsewhere, but not what links in them lead to.
    """
    home = settings.env.get("HOME", "")
    if not home.startswith("/"):
        return ()
    claude = Path(home, ".claude")
    places = (claude, Path(home, ".agents"), settings.paths.config_file.parent)
    return (
        claude / "settings.json",
        *(place / kind for place in places for kind in KINDS),
    )
