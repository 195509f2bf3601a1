"""Landlock by itself: which rules are made, what is limited, what is said of the rest."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agentcli.process import sandbox_landlock as landlock
from agentcli.process.sandbox_setup import landlock_argv
from tests.support.sandboxes import needs


def limited(script: str, **rules: object) -> subprocess.CompletedProcess[str]:
    argv = (*landlock_argv(json.dumps(rules)), "/bin/sh", "-c", script)
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)


@pytest.mark.spec("SEC-7")
def test_what_is_hidden_is_left_out_and_its_neighbours_are_named(tmp_path: Path) -> None:
    for name in ("a", "b/secret", "b/open"):
        (tmp_path / name).mkdir(parents=True)
    top = str(tmp_path)
    assert landlock.readable(top, set()) == [top]
    assert landlock.readable(top, {f"{top}/b/secret"}) == [f"{top}/a", f"{top}/b/open"]
    assert landlock.readable(top, {top}) == []


@pytest.mark.spec("SEC-7")
def test_a_command_writes_only_where_it_may_and_reads_no_secret(tmp_path: Path) -> None:
    needs("landlock")
    for name in ("work", "other", "keys"):
        (tmp_path / name).mkdir()
    (tmp_path / "keys" / "id").write_text("canary")
    done = limited(
        f"cd {tmp_path}; echo 1 > work/a; echo 2 > other/b; cat keys/id; cat work/a; exit 7",
        writable=[str(tmp_path / "work")],
        hidden=[str(tmp_path / "keys")],
    )
    assert (done.returncode, done.stdout) == (7, "1\n")
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.spec("SEC-7")
def test_capabilities_and_new_privileges_are_gone(tmp_path: Path) -> None:
    needs("landlock")
    done = limited("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status", writable=[])
    values = dict(line.split(":\t") for line in done.stdout.splitlines())
    kept = 1 << 1
    assert int(values["CapEff"], 16) | kept == kept
    assert values["NoNewPrivs"] == "1"


@pytest.mark.spec("SEC-7")
def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    needs("landlock")
    argv = (*landlock_argv("{}"), str(tmp_path / "nothing"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    assert done.returncode == 127
    assert done.stderr == f"landlock: {tmp_path}/nothing: No such file or directory\n"


@pytest.mark.spec("SEC-7")
def test_older_kernels_are_said_to_do_less() -> None:
    assert "the network is open" in landlock.shortcomings(3, filtered=False)
    assert "only TCP" in landlock.shortcomings(4, filtered=False)
    assert "the network is open" not in landlock.shortcomings(3, filtered=True)
    assert "sockets" not in landlock.shortcomings(3, filtered=True)
    assert "names, sizes, times" in landlock.shortcomings(7, filtered=True)
    assert "can be sent signals" in landlock.shortcomings(5, filtered=True)
    assert "can be sent signals" not in landlock.shortcomings(6, filtered=True)
    assert landlock.handled_accesses(1) == (1 << 13) - 1
    assert landlock.handled_accesses(5) == (1 << 16) - 1


@pytest.mark.spec("SEC-7")
def test_what_has_become_a_link_is_not_opened_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    handle = landlock.open_real(str(tmp_path / "real" / "inner"))
    assert handle >= 100
    assert os.readlink(f"/proc/self/fd/{handle}") == str(tmp_path / "real" / "inner")
    for path in (tmp_path / "link", tmp_path / "link" / "inner", Path(f"/proc/self/fd/{handle}")):
        with pytest.raises(OSError, match="symbolic links"):
            landlock.open_real(str(path))
    os.close(handle)
