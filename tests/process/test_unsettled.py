"""What a killed app's commands have made is put right by the next one: with real ones, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentcli.process.sandbox_places import OwnPlaces
from agentcli.process.unsettled import Record
from tests.support.processes import started, until, wait_until
from tests.support.repositories import git, make_repository
from tests.support.sandboxes import BOTH, Sandboxed, needs

pytestmark = [pytest.mark.sampled, pytest.mark.spec("SEC-17", "REC-8")]

both = pytest.mark.parametrize("kind", BOTH)
EVIL = "git config core.fsmonitor 'touch pwned; :'"
SLEEP = ("sleep", f"1000.{os.getpid()}")
APP = """
import asyncio, sys
from pathlib import Path
from agentcli.domain.sandbox import Access
from agentcli.process.sandbox_places import OwnPlaces
from tests.support.sandboxes import Sandboxed

async def run(work, kind, unsettled, command, outside):
    async with Sandboxed(Path(work), kind, own=OwnPlaces(unsettled=Path(unsettled))) as inside:
        await inside.say(command)
        if outside:
            await inside.with_access(Access.OUTSIDE, outside)
        await asyncio.sleep(1000)

asyncio.run(run(*sys.argv[1:]))
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "work")


@pytest.fixture
def unsettled(tmp_path: Path) -> Path:
    return tmp_path / "unsettled"


@contextmanager
def app(
    work: Path, kind: str, unsettled: Path, command: str, outside: str = "", *, left: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """An app whose command runs, and is killed with it at the end."""
    needs(kind)
    wait = f"touch done; {' '.join(SLEEP)}"
    full = f"({command}; {wait}) >/dev/null 2>&1 &" if outside or left else f"{command}; {wait}"
    argv = (sys.executable, "-c", APP, str(work), kind, str(unsettled), full, outside)
    # a process group of its own, as shells make them: else Ctrl-Z does not stop it
    with subprocess.Popen(argv, process_group=0) as running:
        try:
            wait_until((work / "done").exists, "the command")
            yield running
        finally:
            running.kill()
    wait_until(lambda: not started(*SLEEP), "the end of the command")


def next_app(work: Path, kind: str, unsettled: Path) -> str:
    """What the user is told of at the start of the next one there."""

    async def run() -> str:
        async with Sandboxed(work, kind, own=OwnPlaces(unsettled=unsettled)) as inside:
            return inside.sandbox.take_notice()

    return asyncio.run(run())


@both
@pytest.mark.parametrize("left", [False, True])
def test_what_was_made_when_the_app_was_killed_is_set_aside_by_the_next(
    work: Path, unsettled: Path, kind: str, left: bool
) -> None:
    hook = work / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    again = f"(while :; do {EVIL}; sleep 0.01; done) &"
    with app(work, kind, unsettled, f"(git init -q new; cd new; {EVIL}; {again})", left=left):
        (record,) = unsettled.glob("*.json")
        assert record.stat().st_mode & 0o777 == 0o600
        assert not next_app(work, kind, unsettled), "that of an app that lives is left alone"
    told = next_app(work, kind, unsettled)
    assert "was ended here" in told and "new/.git/config would take effect outside" in told
    assert hook.read_text() == "#!/bin/sh\nexit 0\n"
    subprocess.run(["git", "status"], check=False, cwd=work / "new", capture_output=True)
    assert not list(work.rglob("pwned"))
    assert not next_app(work, kind, unsettled) and not list(unsettled.iterdir())


def test_an_app_that_was_there_before_puts_it_right_with_its_next_command(
    work: Path, unsettled: Path
) -> None:
    async def run() -> str:
        async with Sandboxed(work, own=OwnPlaces(unsettled=unsettled)) as inside:
            await inside.say("touch first")
            await until(lambda: inside.sandbox.is_quiet, "the end of all of it")
            await inside.sandbox.step_outside()
            with app(work, "bwrap", unsettled, f"git init -q new; cd new; {EVIL}; cd .."):
                pass
            await inside.say("touch second")
            return inside.sandbox.take_notice()

    assert "was ended here" in asyncio.run(run())
    assert "fsmonitor" not in (work / "new/.git/config").read_text()


def test_what_the_user_made_after_the_app_was_killed_stays(work: Path, unsettled: Path) -> None:
    with app(work, "bwrap", unsettled, "true"):
        pass
    (record,) = unsettled.glob("*.json")
    an_hour_ago = time.time() - 3600
    os.utime(record, (an_hour_ago, an_hour_ago))
    git(work, "config", "core.fsmonitor", "mine")
    assert not next_app(work, "bwrap", unsettled)
    assert "mine" in (work / ".git/config").read_text()


@both
def test_what_the_user_allowed_while_something_ran_stays_when_the_app_is_killed(
    work: Path, unsettled: Path, kind: str
) -> None:
    allowed = "git config core.fsmonitor mine; touch allowed"
    with app(work, kind, unsettled, "true", allowed):
        wait_until((work / "allowed").exists, "the command outside")
        (record,) = unsettled.glob("*.json")
        config = b64encode((work / ".git/config").read_bytes())
        wait_until(lambda: config in record.read_bytes(), "the record")
    assert not next_app(work, kind, unsettled)
    assert "mine" in (work / ".git/config").read_text()


@both
@pytest.mark.parametrize("is_removed", [False, True])
def test_what_a_command_in_a_worktree_made_in_the_main_repository_is_set_aside_there(
    work: Path, tmp_path: Path, unsettled: Path, kind: str, is_removed: bool
) -> None:
    tree = tmp_path / "trees/one"
    git(work, "worktree", "add", "-q", str(tree))
    common = work / ".git"
    command = f"printf '[core]\\n\\tfsmonitor = x\\n' > {common}/config.worktree"
    with app(tree, kind, unsettled, command):
        assert "fsmonitor" in (common / "config.worktree").read_text()
    if is_removed:
        git(work, "worktree", "remove", "--force", str(tree))
    told = next_app(work, kind, unsettled)
    assert f"{common}/config.worktree would take effect outside" in told
    assert "fsmonitor" not in (common / "config.worktree").read_text()


def test_what_a_command_in_the_main_tree_made_is_set_aside_by_the_next_app_in_a_worktree(
    work: Path, tmp_path: Path, unsettled: Path
) -> None:
    tree = tmp_path / "trees/one"
    git(work, "worktree", "add", "-q", str(tree))
    with app(work, "landlock", unsettled, EVIL):
        pass
    assert "/.git/config would take effect outside" in next_app(tree, "landlock", unsettled)


@pytest.mark.parametrize("place", [".", "sub", "../trees/two"])
def test_wherever_the_next_app_works_in_the_repository(
    work: Path, tmp_path: Path, unsettled: Path, place: str
) -> None:
    (work / "sub").mkdir(exist_ok=True)
    for name in ("one", "two"):
        git(work, "worktree", "add", "-q", str(tmp_path / "trees" / name))
    command = f"echo ../x > {work}/.git/commondir"
    with app(tmp_path / "trees/one", "bwrap", unsettled, command):
        pass
    start = Path(os.path.normpath(work / place))
    assert f"{work}/.git/commondir would take effect" in next_app(start, "bwrap", unsettled)
    assert not (work / ".git/commondir").exists()


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text", ["", "u", "u\n{}\n{}", "u\n[1]\n2", "x" * 1000, "s\n{}\n", f"u\n{DEEP}\n{DEEP}\n"]
)
def test_a_record_that_cannot_be_read_is_dropped(work: Path, unsettled: Path, text: str) -> None:
    unsettled.mkdir()
    (unsettled / "1-a.json").write_text(text)
    (unsettled / "1-a.new").write_text(text)
    record = Record(unsettled, [work])
    assert record.put_right_what_was_left(lambda _: pytest.fail("nothing to compare")) == []
    assert not list(unsettled.iterdir())


def test_where_no_record_can_be_written_commands_run(work: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not next_app(work, "bwrap", tmp_path / "file" / "unsettled")


@both
@pytest.mark.spec("SEC-17")
def test_what_runs_inside_stands_still_while_the_app_is_stopped(
    work: Path, unsettled: Path, kind: str
) -> None:
    def states() -> set[str]:
        files = (Path("/proc", str(pid), "stat") for pid in started(*SLEEP))
        return {file.read_text().rpartition(")")[2].split()[0] for file in files}

    with app(work, kind, unsettled, f"(setsid {' '.join(SLEEP)} &)") as running:
        wait_until(lambda: len(started(*SLEEP)) == 2, "both")
        for _ in range(2):
            running.send_signal(signal.SIGSTOP)
            wait_until(lambda: states() == {"T"}, "the rest")
            running.send_signal(signal.SIGCONT)
            wait_until(lambda: states() == {"S"}, "the work again")
        running.send_signal(signal.SIGSTOP)
        wait_until(lambda: states() == {"T"}, "the rest, which the end of the app ends")


@both
@pytest.mark.spec("SEC-17", "CAN-10")
def test_what_runs_inside_was_looked_at_when_ctrl_z_stops_the_app(
    work: Path, unsettled: Path, kind: str
) -> None:
    (work / "new").mkdir()
    again = f"cd new; git init -q .; {EVIL}; (while :; do {EVIL}; date > ../at; done) & cd .."
    config = work / "new/.git/config"
    with app(work, kind, unsettled, again, left=True) as running:
        for _ in range(3):
            (work / "at").unlink(missing_ok=True)
            wait_until((work / "at").exists, "the work")
            running.send_signal(signal.SIGTSTP)
            os.waitpid(running.pid, os.WUNTRACED)
            assert not config.exists() or "fsmonitor" not in config.read_text()
            running.send_signal(signal.SIGCONT)


def test_ctrl_z_pressed_twice_during_a_look_stops_the_app_once(work: Path, unsettled: Path) -> None:
    many = "for n in $(seq 600); do mkdir -p d$n/.git; done"
    with app(work, "bwrap", unsettled, many, left=True) as running:
        (record,) = unsettled.glob("*.json")
        for _ in range(3):
            running.send_signal(signal.SIGTSTP)
            time.sleep(0.05)  # during the look, as a hand does it
        os.waitpid(running.pid, os.WUNTRACED)
        stopped_at = time.time()
        running.send_signal(signal.SIGCONT)
        wait_until(lambda: record.stat().st_mtime > stopped_at, "a sign of life")
        assert os.waitpid(running.pid, os.WUNTRACED | os.WNOHANG) == (0, 0)


@pytest.mark.slow
@pytest.mark.spec("SEC-17", "OPS-1")
@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP])
def test_the_time_in_which_the_app_is_stopped_counts_for_no_time_out(
    work: Path, number: signal.Signals
) -> None:
    needs("bwrap")
    text = """
import asyncio, sys
from pathlib import Path
from tests.support.sandboxes import Sandboxed

async def run():
    async with Sandboxed(Path(sys.argv[1])) as inside:
        print(await inside.say("touch done; sleep 2; echo whole", timeout_s=6.5))

asyncio.run(run())
"""
    argv = (sys.executable, "-c", text, str(work))
    with subprocess.Popen(argv, process_group=0, stdout=subprocess.PIPE, text=True) as running:
        wait_until((work / "done").exists, "the command")
        running.send_signal(number)
        os.waitpid(running.pid, os.WUNTRACED)
        time.sleep(7)
        running.send_signal(signal.SIGCONT)
        told, _ = running.communicate()
    assert "whole" in told and "timed out" not in told
