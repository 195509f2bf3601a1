"""The sandbox of one session: bubblewrap, or Landlock, or none, and why (SEC-7).

Law: what is in force is what a real run has shown. Nothing falls back in silence: a wish that
cannot be met is in the state with its reason. What is private to the session's commands lives in
one directory, which goes with the session; a killed app's is removed by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentcli.domain.sandbox import Access, Confined, SandboxKind, SandboxState
from agentcli.domain.tools import Workspace
from agentcli.process import sandbox_landlock as _sandbox_landlock
from agentcli.process.environment import find_program
from agentcli.process.sandbox_places import OwnPlaces, Places, find_places, set_aside_births
from agentcli.process.shell import PREFIX, sweep_once

PROGRAM = "bwrap"
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - where the private directory is mounted
# what of /run is no door: how names are resolved, and where some systems keep their programs
_KEPT_OF_RUN = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf", "/run/current-system", "/run/booted-system",
    "/run/opengl-driver", "/run/nixos",
)  # fmt: skip
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_ISOLATION = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--cap-drop", "ALL", "--new-session",
)  # fmt: skip
TIMEOUT_S = 5.0
_READY = b"ready"
_SCRIPT = '[ -w "$0" ] && echo ready; read -r x'
# linux/nsfs.h: the user namespace that owns the one of the file
_NS_GET_USERNS = 0xB701
_LANDLOCK = str(Path(_sandbox_landlock.__file__).resolve())
INSTALL = "install bubblewrap (Debian, Ubuntu, Fedora: the package bubblewrap)"
NO_SANDBOX_HERE = "there is no sandbox for this system; Linux has bubblewrap and Landlock"
# addresses of programs outside, which would be talked to by what runs inside
_DOORS = re.compile(
    r"SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|DISPLAY|WAYLAND_\w+|XAUTHORITY|ICEAUTHORITY"
    r"|SESSION_MANAGER|DBUS_\w+|XDG_RUNTIME_DIR|DOCKER_HOST|CONTAINER_HOST|PODMAN_\w+"
    r"|GNOME_KEYRING_\w+|PULSE_SERVER|PIPEWIRE_\w+|VSCODE_\w*IPC\w*|VSCODE_GIT_\w+|GIT_ASKPASS"
    r"|TMUX|STY|NVIM|NVIM_LISTEN_ADDRESS|KITTY_LISTEN_ON|EMACS_SERVER_FILE|I3SOCK|SWAYSOCK"
    r"|AT_SPI_BUS_ADDRESS|XDG_SESSION_\w+|INVOCATION_ID|NOTIFY_SOCKET|LISTEN_\w+"
)
# what cannot be in the home directory, which is read-only: programs stop without them
_CACHES = {"GOCACHE": "go-build", "npm_config_cache": "npm", "UV_CACHE_DIR": "uv"}


@dataclass(frozen=True, slots=True)
class PrivatePlaces:
    """The session's own directory ``base`` and what is in it.

    ``temporary`` is the commands' ``/tmp``; ``runs`` holds a directory of each command;
    ``empty_dir`` and ``empty_file`` cover what is hidden.
    """

    base: Path
    temporary: Path
    runs: Path
    empty_dir: Path
    empty_file: Path


class SessionSandbox:
    """Implements ``Sandbox`` for one workspace."""

    def __init__(
        self, workspace: Workspace, own: OwnPlaces, wanted: str, *, network: bool = False
    ) -> None:
        self._roots = tuple(
            Path(os.path.realpath(root)) for root in (workspace.root, *workspace.extra)
        )
        self._own = own
        self._home = Path(os.path.expanduser("~"))  # noqa: PTH111 - never raises
        self._wanted = wanted
        self._network = network
        self._program = ""
        self._namespaces: tuple[int, ...] = ()
        self._private: PrivatePlaces | None = None
        self._before: Places | None = None
        self._unsettled = 0
        self._lock = asyncio.Lock()
        self._state = SandboxState(SandboxKind.OFF, wanted, network=network, known=False)
        self._paused = False

    @property
    def state(self) -> SandboxState:
        """What is in force, as far as it is known."""
        if self._paused:
            problem = "switched off for this session"
            return SandboxState(SandboxKind.OFF, "off", problem, self._network)
        return self._state

    async def begin(self) -> SandboxState:
        """Find out by a real run what works here; only the first call does anything."""
        async with self._lock:
            if not self._state.known:
                try:
                    self._state = await asyncio.to_thread(self._find_out)
                except OSError as error:
                    problem = f"it cannot be told what works: {error}"
                    self._state = replace(self._state, problem=problem, known=True)
        return self.state

    def switch(self, *, on: bool) -> None:
        """Use it or do not, from the next command on; on when it was never wanted: look for it."""
        self._paused = not on
        if on and self._wanted == "off":
            self._wanted = "auto"
            self._state = replace(self._state, wanted="auto", known=False)

    def take_notice(self) -> str:
        """Nothing: whoever made it tells."""
        return ""

    # --- what works --------------------------------------------------------------------------

    def _find_out(self) -> SandboxState:
        state = SandboxState(SandboxKind.OFF, self._wanted, network=self._network)
        if self._wanted == "off":
            return state
        if sys.platform != "linux":
            return replace(state, problem=NO_SANDBOX_HERE)
        try:
            self._private = make_private()
        except OSError as error:
            return replace(state, problem=f"no temporary directory can be made: {error.strerror}")
        failed: list[Probe] = []
        if self._wanted in {"auto", SandboxKind.BWRAP}:
            probe = self._try_bwrap(self._private)
            if not probe.problem:
                writable = (*self._roots, Path("/tmp"))  # noqa: S108 - a private one
                return replace(state, kind=SandboxKind.BWRAP, writable=writable)
            failed.append(probe)
        if self._wanted in {"auto", SandboxKind.LANDLOCK}:
            probe = probe_landlock()
            if not probe.problem:
                missing = _sandbox_landlock.shortcomings(_sandbox_landlock.abi_version())
                problem = "; ".join([*(each.problem for each in failed), missing])
                advice = failed[0].advice if failed else ""
                writable = (*self._roots, self._private.temporary)
                return replace(
                    state,
                    kind=SandboxKind.LANDLOCK,
                    problem=problem,
                    advice=advice,
                    writable=writable,
                )
            failed.append(probe)
        problem = "; ".join(probe.problem for probe in failed)
        return replace(state, problem=problem, advice=failed[0].advice)

    def _try_bwrap(self, private: PrivatePlaces) -> Probe:
        program = find_program(PROGRAM, self._roots)
        if program is None:
            return Probe("bubblewrap is not installed", INSTALL)
        places = self._find_places()
        prefix = bwrap_argv(program, places, private, self._roots[0], own_network=True)
        probe = probe_bwrap(prefix, self._roots[0])
        self._program, self._namespaces = program, probe.namespaces
        return probe

    def _find_places(self) -> Places:
        return find_places(self._roots, self._home, self._own)

    # --- one command -------------------------------------------------------------------------

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` as a command inside has it: nothing in it leads out."""
        if self._private is None:
            return dict(base)
        inside = {name: value for name, value in base.items() if not _DOORS.fullmatch(name)}
        is_bwrap = self._state.kind is SandboxKind.BWRAP
        temporary = "/tmp" if is_bwrap else str(self._private.temporary)  # noqa: S108 - private
        caches = {name: f"{temporary}/.cache/{place}" for name, place in _CACHES.items()}
        return caches | inside | {"TMPDIR": temporary}

    def on_machine(self, path: Path) -> Path:
        """Where what a command inside calls ``path`` lies on this machine."""
        if self._private is None or self._state.kind is not SandboxKind.BWRAP:
            return path
        return on_machine(path, self._roots, self._private)

    @property
    def scratch_parent(self) -> Path | None:
        """Where the private directory of a command is made."""
        return self._private.runs if self._private is not None else None

    async def confine(
        self, argv: Sequence[str], cwd: Path, access: Access, scratch: Path
    ) -> Confined:
        """The command line that runs ``argv`` with no more than ``access``; see the port."""
        if self._private is None or access is Access.OUTSIDE:
            return Confined(tuple(argv), cwd)
        places = await asyncio.to_thread(self._find_places)
        self._before = places
        self._unsettled += 1
        network = self._network or access is Access.NETWORK
        if self._state.kind is SandboxKind.LANDLOCK:
            return self._with_landlock(argv, cwd, places, scratch, network=network)
        joined = () if network else self._namespaces
        prefix = bwrap_argv(
            self._program,
            places,
            self._private,
            cwd,
            own_network=not network and not joined,
            scratch=scratch,
        )
        # with the machine's network come its abstract sockets: X11, D-Bus
        has_scopes = _sandbox_landlock.abi_version() >= _sandbox_landlock.ABI_SCOPE
        rules = {"scope_only": True} if network and has_scopes else None
        return Confined((*prefix, *argv), Path("/"), joined, rules)

    def _with_landlock(
        self, argv: Sequence[str], cwd: Path, places: Places, scratch: Path, *, network: bool
    ) -> Confined:
        temporary = (self._private.temporary,) if self._private is not None else ()
        rules = {
            "writable": [str(path) for path in (*places.writable, *temporary, scratch)],
            "hidden": [str(path) for path in places.hidden],
            "network": network,
        }
        return Confined(tuple(argv), cwd, landlock=rules)

    async def settle(self) -> tuple[str, ...]:
        """After a command: set aside what must not come into being; one line about each."""
        before = self._before
        self._unsettled = max(0, self._unsettled - 1)
        if not self._unsettled:
            self._before = None
        if before is None:
            return ()
        return await asyncio.to_thread(set_aside_births, before, self._roots)

    async def aclose(self) -> None:
        """Remove the session's private temporary directory."""
        private, self._private = self._private, None
        namespaces, self._namespaces = self._namespaces, ()
        self._state = replace(self._state, kind=SandboxKind.OFF, known=False)
        for handle in namespaces:
            with contextlib.suppress(OSError):
                os.close(handle)
        if private is not None:
            await asyncio.to_thread(shutil.rmtree, private.base, ignore_errors=True)


def make_private() -> PrivatePlaces:
    """A fresh private directory; raises ``OSError``."""
    parent = Path(os.path.realpath(tempfile.gettempdir()))
    sweep_once(parent)
    base = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    private = PrivatePlaces(base, base / "tmp", base / "runs", base / "empty", base / "nothing")
    for directory in (private.temporary, private.runs, private.empty_dir):
        directory.mkdir(mode=0o700)
    private.empty_file.touch(mode=0o400)
    return private


def look_for_sandbox(root: Path, wanted: str) -> SandboxState:
    """What works in ``root``; never raises. May be called while an event loop is running."""
    found: list[SandboxState] = []

    async def look() -> None:
        sandbox = SessionSandbox(Workspace(root, root), OwnPlaces(), wanted)
        try:
            found.append(await sandbox.begin())
        finally:
            await sandbox.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()
    return found[0] if found else SandboxState(SandboxKind.OFF, wanted, "it cannot be told")


# --- the command line of bubblewrap ---------------------------------------------------------------
# The whole machine read-only, then what is private, then the workspace, then what is protected in
# it: a later mount covers an earlier one.


def bwrap_argv(
    program: str,
    places: Places,
    private: PrivatePlaces,
    cwd: Path,
    *,
    own_network: bool,
    scratch: Path | None = None,
) -> tuple[str, ...]:
    """What comes before the command itself.

    ``own_network``: it gets a network of its own, without a way out; otherwise it has the one of
    the process that starts it.
    """
    argv = [program, *_ISOLATION, "--uid", str(os.getuid()), "--gid", str(os.getgid())]
    if own_network:
        argv.append("--unshare-net")
    argv += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for name in _KERNEL_SETTINGS:  # root may write them without any capability
        argv += ["--ro-bind-try", name, name]
    argv += _private_mounts(private, places.home)
    for root in _outer_first(places.writable):
        argv += ["--bind", str(root), str(root)]
    for path in _outer_first(places.pinned):
        argv += ["--bind", str(path), str(path)]
    for path in _outer_first(places.read_only):
        argv += ["--ro-bind", str(path), str(path)]
    for path in places.empty:
        argv += ["--ro-bind", str(private.empty_dir), str(path)]
    for path in _outer_first(places.hidden):
        if not _is_covered(path, places):
            cover = private.empty_dir if path.is_dir() else private.empty_file
            argv += ["--ro-bind", str(cover), str(path)]
    # our own directory would be seen through a workspace that it lies in
    argv += ["--tmpfs", str(private.base)]
    if scratch is not None:
        argv += ["--bind", str(scratch), str(scratch)]
    return (*argv, "--chdir", str(cwd), "--")


def _private_mounts(private: PrivatePlaces, home: Path) -> Iterator[str]:
    yield from ("--tmpfs", "/run")
    for name in _KEPT_OF_RUN:
        yield from ("--ro-bind-try", name, name)
    if not os.path.realpath("/var/run").startswith("/run") and Path("/var/run").is_dir():
        yield from ("--tmpfs", os.path.realpath("/var/run"))
    for place in dict.fromkeys(map(os.path.realpath, _TEMPORARY)):
        if Path(place).is_dir():
            yield from ("--bind", str(private.temporary), place)
    if is_temporary(home.parent) and home.is_dir():
        yield from ("--ro-bind", str(home), str(home))


def is_temporary(path: Path) -> bool:
    """Whether ``path`` lies where commands inside see their private directory."""
    return any(path.is_relative_to(os.path.realpath(place)) for place in _TEMPORARY)


def on_machine(path: Path, places: Sequence[Path], private: PrivatePlaces) -> Path:
    """Where what is called ``path`` inside lies on this machine."""
    plain = Path(os.path.normpath(path))
    if any(plain.is_relative_to(root) for root in places):
        return path
    for place in map(os.path.realpath, _TEMPORARY):
        if plain.is_relative_to(place):
            return private.temporary / plain.relative_to(place)
    return path


def _is_covered(path: Path, places: Places) -> bool:
    """What is below a private mount is not to be seen anyway."""
    if any(path.is_relative_to(root) for root in (*places.writable, places.home)):
        return False
    return is_temporary(path) or path.is_relative_to("/run")


def _outer_first(paths: Sequence[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: len(path.parts))


# --- does it work on this machine? ----------------------------------------------------------------
# Found out by a real run, bounded in time; never raises, and says what the user can do. The run
# with bubblewrap also yields the network that the session's commands share: a server that one
# command starts is reached by the next.


@dataclass(frozen=True, slots=True)
class Probe:
    """``problem`` is empty when it works. ``namespaces``: open files, user then network."""

    problem: str = ""
    advice: str = ""
    namespaces: tuple[int, ...] = ()


def probe_bwrap(prefix: Sequence[str], root: Path) -> Probe:
    """Run a shell with the command line of a real command; ``root`` must be writable in it."""
    read_end, write_end = os.pipe()
    argv = (prefix[0], "--info-fd", str(write_end), *prefix[1:], "/bin/sh", "-c", _SCRIPT)
    try:
        process = subprocess.Popen(  # noqa: S603 - found outside of the workspace
            (*argv, str(root)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            cwd="/",
            pass_fds=(write_end,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(read_end)
        return Probe(f"{prefix[0]} cannot be started: {error.strerror}", INSTALL)
    finally:
        os.close(write_end)
    with process:
        try:
            said = _read_until(process, time.monotonic() + TIMEOUT_S)
            if said.startswith(_READY):
                return Probe(namespaces=_namespaces(read_end))
        finally:
            os.close(read_end)
            process.kill()
    if not said.strip():
        return Probe(f"bubblewrap cannot write to {root} although we can")
    problem = said.decode("utf-8", "replace").strip().splitlines()[0][:300]
    return Probe(f"bubblewrap does not work here: {problem}", _advice())


def _read_until(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """What it prints up to "ready", its end or the deadline."""
    said = b""
    if process.stdout is None:
        return said
    handle = process.stdout.fileno()
    while _READY not in said and len(said) < 16_384:  # noqa: PLR2004 - it has nothing to say
        ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return said or b"it does not answer"
        piece = os.read(handle, 4096)
        if not piece:
            break
        said += piece
    return said


def _namespaces(info: int) -> tuple[int, ...]:
    """The run's network and the user namespace that it belongs to; none where they are not told."""
    opened: list[int] = []
    try:
        pid = int(json.loads(os.read(info, 4096))["child-pid"])
        network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        opened.append(network)
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
        os.set_inheritable(owner, False)  # noqa: FBT003 - the standard library's signature
        opened.append(owner)
    except (OSError, ValueError, KeyError, TypeError):
        for handle in opened:
            os.close(handle)
        return ()
    return owner, network


def probe_landlock() -> Probe:
    """Run a command that must fail to write, and one that must not."""
    if not _sandbox_landlock.abi_version():
        return Probe("this kernel has no Landlock", "use Linux 5.13 or later with Landlock")
    rules = json.dumps({"writable": [], "hidden": [], "network": False})
    argv = landlock_argv(rules)
    script = 'echo ready; : >/dev/null && ! (: >>"$0") 2>/dev/null && echo shut'
    with contextlib.ExitStack() as stack:
        import tempfile

        target = stack.enter_context(tempfile.NamedTemporaryFile())
        try:
            run = subprocess.run(  # noqa: S603 - our own interpreter and our own file
                (*argv, "/bin/sh", "-c", script, target.name),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=TIMEOUT_S,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Probe(f"Landlock does not work here: {error}")
    if run.stdout.split() == [b"ready", b"shut"]:
        return Probe()
    said = (run.stderr or b"it does not keep a command from writing").decode("utf-8", "replace")
    return Probe(f"Landlock does not work here: {said.strip().splitlines()[0][:300]}")


def landlock_argv(rules: str) -> tuple[str, ...]:
    """What comes before a command that is to be limited by ``rules``, which are JSON."""
    return (sys.executable, "-I", "-S", "-X", "utf8", _LANDLOCK, rules)


def _advice() -> str:
    """What most often keeps bubblewrap from working, as this machine shows it."""
    for name, wanted, how in (
        ("kernel/apparmor_restrict_unprivileged_userns", "0", "an AppArmor profile for bwrap, or"),
        ("kernel/unprivileged_userns_clone", "1", ""),
    ):
        with contextlib.suppress(OSError):
            if Path("/proc/sys", name).read_text(encoding="ascii").strip() != wanted:
                setting = f"sysctl {name.replace('/', '.')}={wanted}"
                return f"allow user namespaces: {how} {setting}".replace(":  ", ": ")
    with contextlib.suppress(OSError):
        if Path("/proc/sys/user/max_user_namespaces").read_text(encoding="ascii").strip() == "0":
            return "allow user namespaces: sysctl user.max_user_namespaces=15000"
    return "in a container it may be that only --sandbox landlock works"
