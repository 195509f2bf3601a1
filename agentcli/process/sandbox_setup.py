"""What a sandbox is made of: a private directory, bubblewrap's command line, a run that shows it.

Loaded when the first command needs it. Laws: a later mount covers an earlier one, so the whole
machine comes first, read-only, then what is private, then the workspace, then what is protected in
it; whether a back-end works is found out by a real run, bounded in time, that never raises and says
what the user can do (SEC-7).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentcli.domain.files import directory_of, real_text
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.sandbox import HostGate
from agentcli.process import sandbox_landlock as _sandbox_landlock
from agentcli.process.sandbox_home import git_configuration, is_below
from agentcli.process.sandbox_places import Places
from agentcli.process.shell import PREFIX, open_nameless, sweep_once

PROGRAM = "bwrap"
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - where the private directory is mounted
# what of /run is no door: how names are resolved, and where some systems keep their programs
KEPT_OF_RUN = (
    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf", "/run/current-system", "/run/booted-system",
    "/run/opengl-driver", "/run/nixos",
)  # fmt: skip
_KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_ISOLATION = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--cap-drop", "ALL", "--new-session",
)  # fmt: skip
_OF_MOUNT_POINT = 0o444  # bubblewrap.c: "ensure_file"
TIMEOUT_S = 5.0
_LOOK_S = 0.05
_READY = b"ready"
_SCRIPT = '[ -w "$0" ] && echo ready && read -r x'
# linux/nsfs.h: the user namespace that owns the one of the file
_NS_GET_USERNS = 0xB701
_LANDLOCK = str(Path(_sandbox_landlock.__file__).resolve())
INSTALL = "install bubblewrap (Debian, Ubuntu, Fedora: the package bubblewrap)"
WORK_ELSEWHERE = "start in a directory of the project's own"
# addresses of programs outside, which would be talked to by what runs inside
_DOORS = LazyPattern(
    r"SSH_AUTH_SOCK|SSH_AGENT_PID|GPG_AGENT_INFO|DISPLAY|WAYLAND_\w+|XAUTHORITY|ICEAUTHORITY"
    r"|SESSION_MANAGER|DBUS_\w+|XDG_RUNTIME_DIR|DOCKER_HOST|CONTAINER_HOST|PODMAN_\w+"
    r"|GNOME_KEYRING_\w+|PULSE_SERVER|PIPEWIRE_\w+|VSCODE_\w*IPC\w*|VSCODE_GIT_\w+|GIT_ASKPASS"
    r"|TMUX|STY|NVIM|NVIM_LISTEN_ADDRESS|KITTY_LISTEN_ON|EMACS_SERVER_FILE|I3SOCK|SWAYSOCK"
    r"|AT_SPI_BUS_ADDRESS|XDG_SESSION_\w+|INVOCATION_ID|NOTIFY_SOCKET|LISTEN_\w+"
)
# what cannot be in the home directory, which is read-only: programs stop without them
_CACHES = {"GOCACHE": "go-build", "npm_config_cache": "npm", "UV_CACHE_DIR": "uv"}
# without network nobody waits for it (npm: a minute); pip says why if it tries twice
_TRIES_ONCE = {
    "npm_config_fetch_retries": "0", "PIP_RETRIES": "1", "UV_HTTP_RETRIES": "0",
    "CARGO_NET_RETRY": "0",
}  # fmt: skip
# "git gc" would say that it cannot write .git/info/refs, which nobody needs; and a merge leaves the
# next commit outside nothing to read or write for "git rerere"
_GIT_INSIDE = {"repack.updateServerInfo": "false", "rerere.enabled": "false"}
# git-config(1): "environment"; what a repository's own configuration says is overruled
_GIT_SETTINGS = {
    "core.fsmonitor": "false", "core.hooksPath": "/dev/null", "core.pager": "cat",
    "core.editor": "true", "core.askPass": "true", "core.sshCommand": "false",
    "core.alternateRefsCommand": "false", "core.attributesFile": "/dev/null",
    "diff.submodule": "short",
    "credential.helper": "", "gpg.program": "false", "gpg.openpgp.program": "false",
    "gpg.x509.program": "false", "gpg.ssh.program": "false", "log.showSignature": "false",
    "submodule.recurse": "false", "status.submoduleSummary": "false", "fetch.recurseSubmodules":
    "false", "maintenance.auto": "false", "gc.auto": "0", "interactive.diffFilter": "cat",
}  # fmt: skip
_GIT_VARIABLES = {
    "GIT_PAGER": "cat", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1", "GIT_ASKPASS": "true", "GIT_EDITOR": "true", "GIT_SSH": "false",
    "GIT_SSH_COMMAND": "false", "GIT_ALLOW_PROTOCOL": "none", "GIT_ATTR_NOSYSTEM": "1",
}  # fmt: skip
_BARRED_IN_READ_ONLY = LazyPattern(
    r"GIT_(?:CONFIG_(?:PARAMETERS|KEY_.*|VALUE_.*)|EXTERNAL_DIFF|TRACE.*|EXEC_PATH|PROXY_COMMAND)"
)
_USES_GIT = LazyPattern(r"\bgit\b")
_ASKS_WHERE = LazyPattern(r"\b(?:which|whereis|type|command|hash)\b")
# a repository gives its diff drivers any name: only an option of the command switches them off
_GIT = r"""#!/bin/sh
# git, whose diffs run no program that a repository names
count=$# skip='' found='' of=''
while [ "$count" -gt 0 ]; do
  word=$1 count=$((count - 1))
  shift
  case $word in --subm*=diff) word=--submodule=log ;; esac
  set -- "$@" "$word"
  [ -z "$found" ] || continue
  if [ -n "$skip" ]; then skip=''; continue; fi
  case $word in
    -C | -c | --git-dir | --work-tree | --namespace | --super-prefix | --config-env) skip=1 ;;
    -*) ;;
    *) found=1 ;;
  esac
  [ -n "$found" ] || continue
  case $of$word in
    reflog | stash) found='' of=$word: ;;
    reflog:exists | reflog:expire | reflog:delete) ;;
    diff | log | show | whatchanged | diff-tree | diff-index | diff-files | format-patch | \
    stash:list | reflog:*) set -- "$@" --no-ext-diff --no-textconv ;;
    blame | annotate | grep) set -- "$@" --no-textconv ;;
    config | var) unset GIT_CONFIG_COUNT ;;
  esac
done
[ "$of$found" != reflog: ] || set -- "$@" --no-ext-diff --no-textconv
PATH=${PATH#"${0%/*}":}
exec git "$@"
"""


@dataclass(frozen=True, slots=True)
class PrivatePlaces:
    """The session's own directory ``base`` and what is in it.

    ``temporary`` is the commands' ``/tmp``, ``scratch`` that of commands that only read;
    ``empty_dir`` and ``empty_file`` cover what is hidden, ``shut_dir`` and ``shut_file`` what is
    seen and cannot be read; ``sockets`` names the Unix sockets that commands have made;
    ``programs`` stand before those of PATH in a read-only command.
    """

    base: Path
    temporary: Path
    scratch: Path
    empty_dir: Path
    empty_file: Path
    shut_dir: Path
    shut_file: Path
    sockets: Path
    programs: Path


def make_private(roots: Iterable[Path] = ()) -> PrivatePlaces:
    """A fresh private directory where ``place_for_ours`` says; raises ``OSError``."""
    return _private_in(place_for_ours(roots))


def place_for_ours(roots: Iterable[Path]) -> Path:
    """A directory for temporary ones of ours, in none of ``roots`` if that can be.

    What commands can write there, or move with what it lies in, would be taken for ours.
    """
    roots, usual = tuple(roots), os.path.realpath(tempfile.gettempdir())
    for place in dict.fromkeys((usual, *temporary_places())):
        if not is_below(place, roots) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    return Path(usual)


def _private_in(parent: Path) -> PrivatePlaces:
    sweep_once(parent)
    base = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    names = ("tmp", "scratch", "empty", "nothing", "shut", "unread", "sockets", "bin")
    private = PrivatePlaces(base, *(base / name for name in names))
    files = {private.empty_file: 0o400, private.shut_file: 0}
    for name in names:
        if base / name not in files:
            (base / name).mkdir(mode=0o700)
    for file, mode in files.items():
        file.touch(mode=mode)
    private.shut_dir.chmod(0)
    git = private.programs / "git"
    git.write_text(_GIT, encoding="ascii")
    git.chmod(0o500)
    return private


def inside_environment(
    base: Mapping[str, str], private: PrivatePlaces, home: Path, *, is_bwrap: bool, network: bool
) -> dict[str, str]:
    """``base`` as a command inside has it: nothing in it leads out.

    ``network``: it reaches something, and tries as often as it does elsewhere.
    """
    inside = {name: value for name, value in base.items() if not _DOORS.fullmatch(name)}
    temporary = "/tmp" if is_bwrap else str(private.temporary)  # noqa: S108 - private
    caches = {name: f"{temporary}/.cache/{place}" for name, place in _CACHES.items()}
    if "GIT_CONFIG_GLOBAL" not in base and (own := git_configuration(home)) is not None:
        inside["GIT_CONFIG_GLOBAL"] = _as_file(own, private)
    if is_bwrap and "HOME" in inside and is_temporary(home):
        inside["HOME"] = os.path.realpath(home)  # a link there is not seen
    if (count := inside.get("GIT_CONFIG_COUNT", "0")).isdecimal():
        for key, value in _GIT_INSIDE.items():
            inside |= {f"GIT_CONFIG_KEY_{count}": key, f"GIT_CONFIG_VALUE_{count}": value}
            inside["GIT_CONFIG_COUNT"] = count = str(int(count) + 1)
    return caches | ({} if network else _TRIES_ONCE) | inside | {"TMPDIR": temporary}


def proxy_variables(port: int) -> dict[str, str]:
    """What leads programs to the proxy that lets named hosts through, but for what runs inside."""
    proxy = f"http://127.0.0.1:{port}"
    names = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy)
    beside = dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1,[::1],0.0.0.0")
    return names | dict.fromkeys(("all_proxy", "ALL_PROXY"), proxy) | beside


def _as_file(git_settings: bytes, private: PrivatePlaces) -> str:
    """Where they are written, at once: another command may be reading them."""
    file = private.programs / "gitconfig"
    handle, new = tempfile.mkstemp(dir=private.programs)
    with os.fdopen(handle, "wb") as written:
        written.write(git_settings)
    os.replace(new, file)  # noqa: PTH105 - texts
    return str(file)


def read_only_environment(
    base: Mapping[str, str], command: str, private: PrivatePlaces, *, is_bwrap: bool
) -> dict[str, str]:
    """``base`` for a command that only reads: git runs nothing that a repository names."""
    inside = {name: text for name, text in base.items() if not _BARRED_IN_READ_ONLY.fullmatch(name)}
    inside |= {"GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS))}
    for number, (key, value) in enumerate(_GIT_SETTINGS.items()):
        inside |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    if _USES_GIT.search(command) and not _ASKS_WHERE.search(command):
        inside["PATH"] = f"{private.programs}{os.pathsep}{base.get('PATH', '')}"
    temporary = "/dev/shm" if is_bwrap else str(private.scratch)  # noqa: S108 - a private one
    return inside | _GIT_VARIABLES | {"TMPDIR": temporary}


# --- the command line of bubblewrap ---------------------------------------------------------------


def bwrap_argv(
    program: str,
    places: Places,
    private: PrivatePlaces,
    cwd: Path,
    *,
    own_network: bool,
    opened: bool = False,
) -> tuple[str, ...]:
    """What comes before the command itself.

    ``own_network``: it gets a network of its own, without a way out; otherwise it has the one of
    the process that starts it. ``/tmp`` is read-only where nothing else can be written to.
    ``opened``: what commands could have replaced by a link is named as an open file; see
    ``Confined``, and ``opened_places``.
    """
    argv = [program, *_ISOLATION, "--uid", str(os.getuid()), "--gid", str(os.getgid())]
    if own_network:
        argv.append("--unshare-net")
    argv += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    may_set = not os.getuid()  # root may write the kernel's settings without any capability
    for name in _KERNEL_SETTINGS if may_set and places.writable else ():
        argv += ["--ro-bind-try", name, name]
    temporary = temporary_places()
    argv += _private_mounts(private, temporary, places)
    for link, target in places.links:
        if is_below(link, places.homes):
            argv += ["--symlink", target, link]
    argv += _work_mounts(private, places, "-fd" if opened else "")
    # our own directory would be seen through a workspace that it lies in
    argv += ["--tmpfs", str(private.base)]
    argv += ["--ro-bind", str(private.programs), str(private.programs)]
    shut = [*map(str, places.homes)] if places.writable else temporary
    shut = [place for place in shut if not _is_bare(place, private, places)]
    for place in (*shut, *(("/proc",) if may_set and not places.writable else ())):
        argv += ["--remount-ro", place]
    return (*argv, "--chdir", str(cwd), "--")


def _private_mounts(
    private: PrivatePlaces, temporary: Sequence[str], places: Places
) -> Iterator[str]:
    yield from ("--tmpfs", "/run")
    for name in filter(os.path.exists, KEPT_OF_RUN):
        yield from ("--ro-bind-try", name, name)
    if not os.path.realpath("/var/run").startswith("/run") and Path("/var/run").is_dir():
        yield from ("--tmpfs", os.path.realpath("/var/run"))
    for place in temporary:
        is_shut = not places.writable and _is_bare(place, private, places)
        yield from ("--ro-bind" if is_shut else "--bind", str(private.temporary), place)
    for home in places.homes:
        # what only reads loses nothing that it writes there, and a mount of its own is the cheaper
        is_empty = bool(places.writable) and _is_bare(home, private, places)
        yield from ("--ro-bind", str(private.empty_dir), str(home)) if is_empty else (
            "--tmpfs", str(home)
        )  # fmt: skip


def _is_bare(place: str | Path, private: PrivatePlaces, places: Places) -> bool:
    """Whether nothing is mounted below it: then it is read-only at once, every mount takes time."""
    links = (Path(link) for link, _ in places.links)
    below = (*places.seen, *places.writable, private.base, *links)
    return not any(is_below(path, (place,)) for path in below)


def opened_places(argv: Sequence[str]) -> list[int]:
    """Where in ``argv`` a path stands for an open file."""
    return [number + 1 for number, word in enumerate(argv) if word in {"--bind-fd", "--ro-bind-fd"}]


def _work_mounts(private: PrivatePlaces, places: Places, by: str) -> Iterator[str]:
    seen = [(path, f"--ro-bind{by}") for path in places.seen]
    writable = [(path, f"--bind{by}") for path in places.writable]
    for path, how in sorted((*seen, *writable), key=lambda mount: len(mount[0].parts)):
        yield from (how, str(path), str(path))
    inner = [path for path in places.read_only if is_below(path, places.reopened)]
    outer = [path for path in places.read_only if path not in inner]
    steps = (
        (f"--bind{by}", places.pinned),
        (f"--ro-bind{by}", outer),
        (f"--bind{by}", places.reopened),
        (f"--ro-bind{by}", inner),
    )
    for how, paths in steps:
        for path in _outer_first(paths):
            yield from (how, str(path), str(path))
    for path in places.empty:
        yield from ("--ro-bind", str(private.empty_dir), str(path))
    for path in _outer_first(places.hidden):
        if not _is_covered(path, places):
            cover = private.empty_dir if path.is_dir() else private.empty_file
            yield from ("--ro-bind", str(cover), str(path))
    for path in _outer_first(places.shut):
        cover = private.shut_dir if path.is_dir() else private.shut_file
        yield from ("--ro-bind", str(cover), str(path))


def has_content(path: Path) -> bool:
    """Whether it is a file that is not empty."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size > 0


def remove_mount_points(paths: Iterable[Path]) -> None:
    """Remove what bubblewrap makes to mount on where a file has gone: empty ones, no more."""
    for path in tuple(paths):
        with contextlib.suppress(OSError), directory_of(path) as parent:
            status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
            is_empty = (status.st_size, status.st_nlink, status.st_uid) == (0, 1, os.getuid())
            if is_empty and status.st_mode == stat.S_IFREG | _OF_MOUNT_POINT:
                os.unlink(path.name, dir_fd=parent)


def temporary_places() -> list[str]:
    """The machine's, in whose place commands have their own."""
    real = dict.fromkeys(map(os.path.realpath, _TEMPORARY))
    return [place for place in real if Path(place).is_dir()]


def closed_places() -> list[str]:
    """What commands see nothing of where no mount covers it: that, other terminals, and ``/run``.

    Devices that a command needs are allowed one by one; a terminal that can be read gives away what
    the user types.
    """
    doors = dict.fromkeys(map(os.path.realpath, ("/dev", "/run", "/var/run")))
    return [*temporary_places(), *(place for place in doors if Path(place).is_dir())]


def is_temporary(path: Path) -> bool:
    """Whether ``path`` lies where commands inside see their private directory."""
    return any(path.is_relative_to(os.path.realpath(place)) for place in _TEMPORARY)


def on_machine(path: Path, places: Places, private: PrivatePlaces, *, is_bwrap: bool) -> Path:
    """Where what is called ``path`` inside lies on this machine; nowhere if it is not seen."""
    plain, real = Path(os.path.normpath(path)), Path(real_text(str(path)))
    if any(real.is_relative_to(root) for root in (*places.writable, *places.seen)):
        return path
    if any(real.is_relative_to(home) for home in places.homes):
        return private.empty_dir / "not seen"
    for place in map(os.path.realpath, _TEMPORARY if is_bwrap else ()):
        if plain.is_relative_to(place):
            return private.temporary / plain.relative_to(place)
    return path


def _is_covered(path: Path, places: Places) -> bool:
    """What is below a private mount is not to be seen anyway."""
    if any(path.is_relative_to(root) for root in (*places.writable, *places.seen)):
        return False
    return is_temporary(path) or path.is_relative_to("/run")


def _outer_first(paths: Sequence[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: len(path.parts))


def takes_open_files(program: str) -> bool:
    """Whether that bubblewrap knows ``--bind-fd`` (0.10, and what has it by a security update)."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        argv = (program, "--help")
        run = subprocess.run(argv, capture_output=True, check=False, timeout=TIMEOUT_S, cwd="/")  # noqa: S603 - found outside of the workspace
        return b"--ro-bind-fd" in run.stdout + run.stderr
    return False


# --- does it work on this machine? ----------------------------------------------------------------
# The run with bubblewrap also yields the network that the session's commands share: a server that
# one command starts is reached by the next.


@dataclass(frozen=True, slots=True)
class Probe:
    """``problem`` is empty when it works. ``namespaces``: open files, user then network."""

    problem: str = ""
    advice: str = ""
    namespaces: tuple[int, ...] = ()


def probe_bwrap(
    prefix: Sequence[str], root: Path, stopped: Callable[[], bool] = lambda: False
) -> Probe:
    """Run a shell with the command line of a real command; ``root`` must be writable in it.

    Once ``stopped`` it is not waited for.
    """
    # no pipe: bubblewrap would die of writing to it when we are killed, and leave its child behind
    info = open_nameless(b"")
    argv = (prefix[0], "--info-fd", str(info), *prefix[1:], "/bin/sh", "-c", _SCRIPT)
    try:
        process = subprocess.Popen(  # noqa: S603 - found outside of the workspace
            (*argv, str(root)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            cwd="/",
            pass_fds=(info,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(info)
        return Probe(f"{prefix[0]} cannot be started: {error.strerror}", INSTALL)
    with process:
        try:
            said = _read_until(process, time.monotonic() + TIMEOUT_S, stopped)
            if said.startswith(_READY):
                return Probe(namespaces=_namespaces(info))
        finally:
            os.close(info)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a child that still waits for it, too
    if not said.strip():
        return Probe(f"bubblewrap cannot write to {root} although we can")
    problem = said.decode("utf-8", "replace").strip().splitlines()[0][:300]
    return Probe(f"bubblewrap does not work here: {problem}", _advice())


def _read_until(
    process: subprocess.Popen[bytes], deadline: float, stopped: Callable[[], bool]
) -> bytes:
    """What it prints up to "ready", its end or the deadline."""
    said = b""
    if process.stdout is None:
        return said
    handle = process.stdout.fileno()
    while _READY not in said and len(said) < 16_384:  # noqa: PLR2004 - it has nothing to say
        ready, _, _ = select.select([handle], [], [], _LOOK_S)
        if not ready:
            if stopped() or time.monotonic() >= deadline:
                return said or b"it does not answer"
            continue
        piece = os.read(handle, 4096)
        if not piece:
            break
        said += piece
    return said


def _namespaces(info: int) -> tuple[int, ...]:
    """The run's network and the user namespace that it belongs to; none where they are not told."""
    opened: list[int] = []
    try:
        pid = int(json.loads(os.pread(info, 4096, 0))["child-pid"])
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


NO_SINGLE_HOSTS = "the network cannot be opened for single hosts here (it takes bubblewrap)"
_LISTEN = """
import socket, sys
sys.path.append(sys.argv[1])
import guard
guard.join([int(handle) for handle in sys.argv[2:]])
listener = socket.create_server(("127.0.0.1", 0))
socket.send_fds(socket.socket(fileno=0), [b"."], [listener.fileno()])
"""


def listener_in(namespaces: Sequence[int]) -> socket.socket:
    """A socket that listens in the network of ``namespaces``, and is ours; raises ``OSError``.

    Only what runs in that network reaches it. Who enters a namespace must be a process of one
    thread (setns(2)).
    """
    if not namespaces:
        raise OSError(errno.ENETDOWN, NO_SINGLE_HOSTS)
    ours, theirs = socket.socketpair()
    here = str(Path(__file__).parent)
    argv = (sys.executable, "-I", "-S", "-c", _LISTEN, here, *map(str, namespaces))
    with ours, theirs:
        try:
            subprocess.run(  # noqa: S603 - our own interpreter and our own text
                argv,
                stdin=theirs.fileno(),
                capture_output=True,
                check=True,
                timeout=TIMEOUT_S,
                cwd="/",
                pass_fds=tuple(namespaces),
            )
        except subprocess.SubprocessError:
            raise OSError(errno.ENETDOWN, f"{NO_SINGLE_HOSTS}: nothing can listen there") from None
        _, handles, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
    listener = socket.socket(fileno=handles[0])
    listener.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return listener


def probe_landlock(roots: Sequence[Path], kept_out: Iterable[Path]) -> Probe:
    """Run a command that must fail to write, and one that must not.

    Landlock cannot take out of ``roots``, which are writable, what lies in them.
    """
    if any(is_below(path, roots) for path in kept_out):
        return Probe(
            "Landlock cannot protect the home directory, or our own files, that you work in",
            f"{WORK_ELSEWHERE}, with agentcli installed outside of it",
        )
    if not _sandbox_landlock.abi_version():
        return Probe("this kernel has no Landlock", "use Linux 5.13 or later with Landlock")
    argv = landlock_argv(json.dumps({"writable": [], "readable": [], "hidden": []}))
    script = 'echo ready; : >/dev/null && ! (: >>"$0") 2>/dev/null && echo shut'
    with tempfile.NamedTemporaryFile() as target:
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


def lines_of(gate: HostGate | None) -> list[str]:
    """Which hosts were not reached since the last call, and why."""
    if gate is None:
        return []
    lines = [
        f"[sandbox: no connection to {host}, which the user has allowed: {why}]"
        for host, why in gate.take_failed()
    ]
    if refused := gate.take_refused():
        line = f"[sandbox: no connection to {', '.join(refused)}: the user has not allowed it;"
        how = '/sandbox allow HOST does, access "network" asks for all hosts at once]'
        lines.append(f"{line} {how}")
    return lines
