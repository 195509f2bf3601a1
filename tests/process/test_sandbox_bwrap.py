"""The command line of bubblewrap: what covers what, and which path inside is which outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.process.sandbox_bwrap import PrivatePlaces, bwrap_argv, on_machine
from agentcli.process.sandbox_places import OwnPlaces, find_places

PRIVATE = PrivatePlaces(*(Path("/p") / name for name in ("", "tmp", "runs", "empty", "nothing")))


@pytest.mark.spec("SEC-7")
def test_protected_places_come_after_the_workspace_that_holds_them(
    tmp_path: Path, home: Path
) -> None:
    (home / ".ssh").mkdir()
    (home / ".netrc").touch()
    places = find_places([home], home, OwnPlaces())
    argv = bwrap_argv("/usr/bin/bwrap", places, PRIVATE, home, own_network=True, scratch=tmp_path)
    text = " ".join(argv)
    order = [
        "--ro-bind / /",
        "--ro-bind-try /proc/sys /proc/sys",
        "--bind /p/tmp /tmp",
        f"--bind {home} {home}",
        f"--ro-bind /p/empty {home}/.ssh",
        "--tmpfs /p",
        f"--bind {tmp_path} {tmp_path}",
        f"--chdir {home} --",
    ]
    at = [text.index(part) for part in order]
    assert at == sorted(at)
    assert f"--ro-bind /p/nothing {home}/.netrc" in text
    assert "--unshare-net" in argv
    assert "--unshare-net" not in bwrap_argv("b", places, PRIVATE, home, own_network=False)


@pytest.mark.spec("SEC-7")
def test_a_path_inside_is_found_on_the_machine(tmp_path: Path) -> None:
    roots = (tmp_path,)
    assert on_machine(Path("/tmp/a/../b"), roots, PRIVATE) == Path("/p/tmp/b")
    assert on_machine(Path("/var/tmp/c"), roots, PRIVATE) == Path("/p/tmp/c")
    assert on_machine(tmp_path / "d", roots, PRIVATE) == tmp_path / "d"
    assert on_machine(Path("/usr"), roots, PRIVATE) == Path("/usr")
