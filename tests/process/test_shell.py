"""The file a shell leaves behind is read as if an enemy had written it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.cancel import CancelToken
from agentcli.process import shell as _scratch
from agentcli.process.run import Command, RunLimits, run
from agentcli.process.shell import Handover, ShellState, ShellStates, parse_state

BASE = {"PATH": "/bin", "HOME": "/home/x"}


def saved(*fields: bytes, end: bytes = b"end\0") -> bytes:
    return b"".join(item + b"\0" for item in fields) + end


@pytest.mark.spec("TOOL-11")
def test_only_what_differs_from_the_base_is_kept() -> None:
    data = saved(b"/x\n", b"PATH=/bin", b"NEW=a=b\nc", b"SHLVL=2", b"_=/x")
    state, dropped = parse_state(data, BASE)
    assert state == ShellState("/x", {"NEW": "a=b\nc"}, ("HOME",))
    assert dropped == ()
    assert state.environment(BASE) == {"PATH": "/bin", "NEW": "a=b\nc"}


@pytest.mark.spec("SEC-8")
def test_barred_and_oversized_variables_are_named_and_not_kept() -> None:
    big = b"BIG=" + b"x" * 40_000
    fields = [b"/x\n", b"PATH=/bin", b"HOME=/work", b"X_API_KEY=k", b"LD_PRELOAD=e", big]
    state, dropped = parse_state(saved(*fields), BASE)
    assert state == ShellState("/x")
    assert dropped == ("HOME", "X_API_KEY", "LD_PRELOAD", "BIG")


@pytest.mark.spec("SEC-13")
def test_the_sum_of_all_variables_is_bounded() -> None:
    fields = [b"V%d=%s" % (n, b"x" * 30_000) for n in range(100)]
    state, dropped = parse_state(saved(b"/x\n", *fields), {})
    assert state is not None
    assert sum(map(len, state.variables.values())) <= 128 * 1024
    assert len(state.variables) + len(dropped) == 100


@pytest.mark.parametrize("end", [b"", b"en", b"end\0more"])
def test_a_state_that_was_not_finished_counts_for_nothing(end: bytes) -> None:
    assert parse_state(saved(b"/x\n", b"A=1", end=end), BASE) == (None, ())


def test_no_state_counts_for_nothing() -> None:
    assert parse_state(b"", BASE) == parse_state(b"end\0", BASE) == (None, ())


def test_of_a_state_that_was_saved_twice_the_last_counts() -> None:
    data = saved(b"/x\n", b"A=1") + saved(b"/y\n", b"A=2")
    assert parse_state(data, {}) == (ShellState("/y", {"A": "2"}), ())


@pytest.mark.spec("SEC-15")
def test_what_runs_inside_leaves_the_shell_outside_alone_and_not_the_other_way_round() -> None:
    start = ShellState("/work", {"A": "1", "B": "1"}, ("LANG",))
    end = ShellState("/else", {"B": "2", "C": "3"}, ("TZ",))
    both = ShellStates(ShellState("/work", {"A": "1", "OWN": "x"}, ("LANG", "HOME")), start)
    assert both.after(both.inside, end, inside=True) == ShellStates(end, start)
    after = both.after(start, end, inside=False)
    assert after.outside == end
    assert after.inside == ShellState("/else", {"OWN": "x", "B": "2", "C": "3"}, ("HOME", "TZ"))


@pytest.mark.spec("SEC-15")
def test_a_state_of_an_earlier_release_is_no_word_about_the_shell_outside() -> None:
    old = ShellState("/x", {"PATH": "/evil"}).to_json()
    assert ShellStates.from_json(old) == ShellStates()


@settings(max_examples=50)
@given(
    st.none() | st.text().map(lambda text: "/" + text),
    st.dictionaries(
        st.text(),
        st.text(
            st.characters(codec="utf-8") | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
        ),
    ),
)
def test_the_state_survives_json(cwd: str | None, variables: dict[str, str]) -> None:
    state = ShellState(cwd, variables, ("A",))
    text = json.dumps(state.to_json(), ensure_ascii=False)
    assert text.encode()
    restored = ShellState.from_json(json.loads(text))
    assert restored == state


@pytest.mark.parametrize(
    "value",
    [None, 1, [], {}, {"cwd": {}, "set": 1}, {"cwd": {"hex": "zz"}, "set": {}, "unset": []}],
)
def test_a_stored_value_of_another_shape_is_a_fresh_start(value: object) -> None:
    assert ShellState.from_json(value) == ShellState()


def test_a_stored_secret_is_not_brought_back() -> None:
    state = ShellState.from_json(
        {"cwd": None, "set": {"OPENAI_API_KEY": "x", "A": "1"}, "unset": []}
    )
    assert state.environment({}) == {"A": "1"}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(_scratch, "_swept", set())
    return tmp_path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.spec("SEC-9", "REC-8")
def test_what_a_killed_app_left_is_removed_and_nothing_else(temporary: Path) -> None:
    gone, alive = dead_pid(), os.getppid()
    left = temporary / f"agentcli-{gone}-abc_123"
    kept = [
        temporary / f"agentcli-{alive}-abc_123",
        temporary / "agentcli-notes",
        temporary / f"other-{gone}-abc",
    ]
    target = temporary / "target"
    for directory in (left, *kept, target):
        directory.mkdir()
        (directory / "state").write_text("SECRET=1")
    link = temporary / f"agentcli-{gone}-link"
    link.symlink_to(target)
    _scratch.sweep_once(temporary)
    assert not left.exists()
    assert all((directory / "state").exists() for directory in (*kept, target))
    assert link.is_symlink()


@pytest.mark.spec("TOOL-11")
@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])
@pytest.mark.parametrize("ends", ["", "; exit 3", "; trap 'cd /' EXIT"])
def test_a_shell_saves_once_and_one_that_only_reads_its_directory_alone(
    tmp_path: Path, shell: str, ends: str
) -> None:
    def hands_back(*, reads_only: bool) -> list[bytes]:
        handover = Handover(f"cd {tmp_path}; export NEW=1{ends}", reads_only=reads_only)
        try:
            command = Command(
                handover.argv(shell), Path("/"), {"HOME": "/"}, handles=handover.handles(shell)
            )
            asyncio.run(run(command, RunLimits(CancelToken()), lambda _: True))
            handover.read()
            return (handover._data or b"").split(b"\0")
        finally:
            handover.close()

    whole = hands_back(reads_only=False)
    assert (whole[0], whole.count(b"NEW=1"), whole.count(b"end")) == (
        b"%s\n" % bytes(tmp_path),
        1,
        1,
    )
    assert hands_back(reads_only=True) == [whole[0], b"end", b""]
