"""The command line of bubblewrap, and the runs that show whether a back-end works."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli.process.sandbox_places import OwnPlaces, find_places
from agentcli.process.sandbox_setup import (
    INSTALL,
    PrivatePlaces,
    bwrap_argv,
    on_machine,
    probe_bwrap,
    probe_landlock,
)
from tests.support.sandboxes import needs

NAMES = ("", "tmp", "scratch", "empty", "nothing", "shut", "unread", "sockets", "bin")
PRIVATE = PrivatePlaces(*(Path("/p") / name for name in NAMES))


@pytest.mark.spec("SEC-7")
def test_protected_places_come_after_the_workspace_that_holds_them(
    tmp_path: Path, home: Path
) -> None:
    (home / ".ssh").mkdir()
    (home / ".netrc").touch()
    places = find_places([home], home, OwnPlaces())
    argv = bwrap_argv("/usr/bin/bwrap", places, PRIVATE, home, own_network=True)
    text = " ".join(argv)
    order = [
        "--ro-bind / /",
        *([] if os.getuid() else ["--ro-bind-try /proc/sys /proc/sys"]),
        "--bind /p/tmp /tmp",
        f"--bind {home} {home}",
        f"--ro-bind /p/empty {home}/.ssh",
        "--tmpfs /p",
        f"--chdir {home} --",
    ]
    at = [text.index(part) for part in order]
    assert at == sorted(at)
    assert f"--ro-bind /p/nothing {home}/.netrc" in text
    assert "--unshare-net" in argv
    assert "--unshare-net" not in bwrap_argv("b", places, PRIVATE, home, own_network=False)


@pytest.mark.spec("SEC-7")
def test_a_path_inside_is_found_on_the_machine(tmp_path: Path, home: Path) -> None:
    places = find_places([tmp_path], home, OwnPlaces())

    def found(path: Path | str, *, is_bwrap: bool = True) -> Path:
        return on_machine(Path(path), places, PRIVATE, is_bwrap=is_bwrap)

    assert found("/tmp/a/../b") == Path("/p/tmp/b")
    assert found("/var/tmp/c") == Path("/p/tmp/c")
    assert found("/tmp/c", is_bwrap=False) == Path("/tmp/c")
    assert found(tmp_path / "d") == tmp_path / "d"
    assert found("/usr") == Path("/usr")
    assert not found(home).exists()


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.spec("SEC-7")
def test_a_program_that_fails_is_told_with_its_first_line(tmp_path: Path) -> None:
    broken = program(tmp_path / "bwrap", "echo 'bwrap: No permissions' >&2; echo more >&2; exit 1")
    probe = probe_bwrap((broken,), tmp_path)
    assert probe.problem == "bubblewrap does not work here: bwrap: No permissions"
    assert probe.advice
    assert probe.namespaces == ()


@pytest.mark.spec("SEC-7")
def test_a_program_that_cannot_be_started_or_says_nothing_is_a_problem(tmp_path: Path) -> None:
    probe = probe_bwrap((str(tmp_path / "bwrap"),), tmp_path)
    assert "cannot be started" in probe.problem
    assert probe.advice == INSTALL
    silent = program(tmp_path / "silent", "exit 0")
    assert "cannot write to" in probe_bwrap((silent,), tmp_path).problem
    open_but = program(tmp_path / "open", 'shift 2; exec "$@"')
    assert "cannot write to" in probe_bwrap((open_but,), tmp_path / "not there").problem


@pytest.mark.spec("SEC-7")
def test_the_trial_run_leaves_a_network_to_share(tmp_path: Path) -> None:
    needs("bwrap")
    prefix = ("/usr/bin/bwrap", "--unshare-user", "--unshare-net", "--bind", "/", "/", "--")
    probe = probe_bwrap(prefix, tmp_path)
    assert probe.problem == ""
    links = [os.readlink(f"/proc/self/fd/{handle}") for handle in probe.namespaces]
    for handle in probe.namespaces:
        assert not os.get_inheritable(handle)
        os.close(handle)
    assert [link.partition(":")[0] for link in links] == ["user", "net"]
    assert links[1] != os.readlink("/proc/self/ns/net")


@pytest.mark.spec("SEC-7", "CAN-7")
def test_a_trial_run_whose_program_is_killed_leaves_nothing_running(tmp_path: Path) -> None:
    needs("bwrap")
    alive = tmp_path / "alive"  # open for as long as anything of the trial run lives
    os.mkfifo(alive)
    dies = 'kill -KILL "$PPID"; while kill -0 "$PPID" 2>/dev/null; do :; done'
    path = program(tmp_path / "bwrap", f'exec 9>"{alive}"; {dies}; exec /usr/bin/bwrap "$@"')
    prefix = (path, "--unshare-user", "--unshare-pid", "--bind", "/", "/", "--")
    code = (
        "import sys; from pathlib import Path; from agentcli.process.sandbox_setup import probe_bwrap;"
        f"probe_bwrap({prefix!r}, Path(sys.argv[1]))"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as killed,
        alive.open("rb") as end,
    ):
        assert killed.wait() == -signal.SIGKILL
        assert select.select([end], [], [], 10)[0], "a process of the trial run still lives"
        assert end.read() == b""


@pytest.mark.spec("SEC-7")
def test_landlock_is_tried_by_a_write_that_must_fail(tmp_path: Path) -> None:
    needs("landlock")
    assert probe_landlock((tmp_path,), ()).problem == ""
    assert "home directory" in probe_landlock((tmp_path,), (tmp_path / "own",)).problem
