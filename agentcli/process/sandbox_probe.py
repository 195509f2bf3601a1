"""Whether a sandbox works on this machine, found out by a real run (SEC-7).

Law: bounded in time, never raises, and what it says is what a person can act on. The run with
bubblewrap also yields the network that the session's commands share: a server that one command
starts is reached by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentcli.process import sandbox_landlock as _sandbox_landlock

TIMEOUT_S = 5.0
_READY = b"ready"
_SCRIPT = '[ -w "$0" ] && echo ready; read -r x'
# linux/nsfs.h: the user namespace that owns the one of the file
_NS_GET_USERNS = 0xB701
_LANDLOCK = str(Path(_sandbox_landlock.__file__).resolve())
INSTALL = "install bubblewrap (Debian, Ubuntu, Fedora: the package bubblewrap)"


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
