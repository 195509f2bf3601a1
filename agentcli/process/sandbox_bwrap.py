"""The command line of bubblewrap for one command (SEC-7).

Law: the whole machine read-only, then what is private, then the workspace, then what is protected
in it: a later mount covers an earlier one. Nothing here looks at more than whether a mount point
is a file or a directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentcli.process.sandbox_places import Places

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
