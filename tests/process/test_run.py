"""Real processes: whatever a command does, it can be stopped with everything it started."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import PersistenceError
from agentcli.domain.sandbox import Confined
from agentcli.process import guard
from agentcli.process import run as _run
from agentcli.process.environment import base_environment
from agentcli.process.run import (
    LIVE_BYTES,
    Capture,
    Command,
    Ending,
    LiveOutput,
    Result,
    RunLimits,
    StartFailed,
    end_processes,
    run,
)
from tests.support.processes import alive, pids_in, until, wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and a child subreaper")

# each writes its pid to a file of its own; the last three have left their parent's group,
# one of them with an empty environment and a dead parent
FAMILY = r"""
echo $$ > shell.pid
sleep 1000 & echo $! > child.pid
( sleep 1000 & echo $! > grandchild.pid )
setsid sh -c 'echo $$ > setsid.pid; exec sleep 1000' &
setsid sh -c 'trap "" TERM HUP; echo $$ > stubborn.pid; while :; do sleep 1; done' &
env -i "$(command -v sh)" -c 'PATH=/usr/bin:/bin; (setsid sh -c "echo \$\$ > orphan.pid; exec sleep 1000" &) ; exit' &
wait
"""
FAMILY_SIZE = 6


def bash(script: str, cwd: Path) -> Command:
    return Command(("/bin/bash", "--noprofile", "--norc", "-c", script), cwd, base_environment())


def keep(_: bytes) -> bool:
    return True


def once(body: Callable[[], Awaitable[None]]) -> None:
    """Run ``body``, and see to it that nothing is left of it."""

    async def whole() -> None:
        try:
            await body()
        finally:
            await end_processes(grace_s=0.1)

    asyncio.run(whole())


def test_output_and_errors_come_in_order_with_the_exit_code(tmp_path: Path) -> None:
    seen = bytearray()

    def sink(data: bytes) -> bool:
        seen.extend(data)
        return True

    async def body() -> None:
        ended = await run(
            bash("echo a; echo b >&2; echo c; exit 7", tmp_path), RunLimits(CancelToken()), sink
        )
        assert (ended.ending, ended.returncode) == (Ending.EXITED, 7)
        assert ended.left_running == ()

    once(body)
    assert bytes(seen) == b"a\nb\nc\n"


@linux
@pytest.mark.spec("CAN-10", "OPS-1")
@pytest.mark.parametrize("force", [False, True])
def test_cancel_kills_children_grandchildren_and_those_who_left_the_group(
    tmp_path: Path, force: bool
) -> None:
    async def body() -> None:
        cancel = CancelToken()
        running = asyncio.create_task(run(bash(FAMILY, tmp_path), RunLimits(cancel), keep))
        await until(lambda: len(pids_in(tmp_path)) == FAMILY_SIZE, "the family is complete")
        pids = pids_in(tmp_path)
        assert all(map(alive, pids))
        cancel.cancel(force=force)
        ended = await running
        assert ended.ending is Ending.CANCELLED
        assert ended.left_running == ()
        assert not [pid for pid in pids if alive(pid)]

    once(body)


@linux
@pytest.mark.spec("CAN-10")
def test_polite_processes_get_sigterm_before_sigkill(tmp_path: Path) -> None:
    script = (
        "trap 'echo cleaned > cleaned; exit' TERM; echo $$ > a.pid; while :; do sleep 0.05; done"
    )

    async def body() -> None:
        cancel = CancelToken()
        running = asyncio.create_task(run(bash(script, tmp_path), RunLimits(cancel), keep))
        await until(lambda: len(pids_in(tmp_path)) == 1, "it runs")
        cancel.cancel()
        await running

    once(body)
    assert (tmp_path / "cleaned").read_text() == "cleaned\n"


@linux
@pytest.mark.spec("CAN-10")
def test_a_second_interrupt_kills_what_ignores_sigterm_without_the_grace(tmp_path: Path) -> None:
    script = "trap '' TERM; echo $$ > a.pid; while :; do sleep 0.05; done"

    async def body() -> None:
        cancel = CancelToken()
        running = asyncio.create_task(run(bash(script, tmp_path), RunLimits(cancel), keep))
        await until(lambda: len(pids_in(tmp_path)) == 1, "it runs")
        cancel.cancel()
        cancel.cancel(force=True)
        ended = await running
        assert ended.returncode == -signal.SIGKILL
        assert ended.duration_s < 60

    once(body)


@linux
@pytest.mark.spec("OPS-1", "CAN-10")
@pytest.mark.parametrize("whom", ["$$", "$PPID"], ids=["itself", "its guard"])
def test_a_command_that_stopped_itself_or_its_guard_is_killed_all_the_same(
    tmp_path: Path, whom: str
) -> None:
    async def body() -> None:
        cancel = CancelToken()
        script = f"echo $$ > a.pid; kill -STOP {whom}; sleep 1000"
        running = asyncio.create_task(run(bash(script, tmp_path), RunLimits(cancel), keep))
        await until(lambda: len(pids_in(tmp_path)) == 1, "it runs")
        cancel.cancel()
        await running
        assert not alive(pids_in(tmp_path)[0])

    once(body)


@linux
@pytest.mark.spec("CAN-10")
def test_a_cancelled_task_leaves_only_after_everything_is_dead(tmp_path: Path) -> None:
    async def body() -> None:
        running = asyncio.create_task(run(bash(FAMILY, tmp_path), RunLimits(CancelToken()), keep))
        await until(lambda: len(pids_in(tmp_path)) == FAMILY_SIZE, "the family is complete")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not [pid for pid in pids_in(tmp_path) if alive(pid)]

    once(body)


@linux
@pytest.mark.spec("CAN-11")
def test_cancelling_one_command_leaves_another_alone(tmp_path: Path) -> None:
    async def body() -> None:
        first, second = CancelToken(), CancelToken()
        script = "echo $$ > {}.pid; sleep 1000"
        one = asyncio.create_task(run(bash(script.format("one"), tmp_path), RunLimits(first), keep))
        two = asyncio.create_task(
            run(bash(script.format("two"), tmp_path), RunLimits(second), keep)
        )
        await until(lambda: len(pids_in(tmp_path)) == 2, "both run")
        first.cancel()
        await one
        assert alive(int((tmp_path / "two.pid").read_text()))
        assert not two.done()
        second.cancel()
        await two

    once(body)


@linux
@pytest.mark.spec("TOOL-11", "OPS-1")
def test_a_daemon_that_keeps_the_output_open_does_not_hang_and_lives_until_close(
    tmp_path: Path,
) -> None:
    script = "sh -c 'echo $$ > daemon.pid; while :; do echo tick; sleep 0.02; done' & echo started"
    seen = bytearray()

    def sink(data: bytes) -> bool:
        seen.extend(data)
        return True

    async def body() -> None:
        ended = await run(bash(script, tmp_path), RunLimits(CancelToken(), 20), sink)
        assert (ended.ending, ended.returncode) == (Ending.EXITED, 0)
        await until(lambda: len(pids_in(tmp_path)) == 1, "the daemon runs")
        pid = pids_in(tmp_path)[0]
        assert pid in ended.left_running
        assert alive(pid)
        await end_processes(grace_s=0.1)
        assert not alive(pid)
        assert "" not in _run._live

    once(body)
    assert b"started\n" in seen


@linux
@pytest.mark.spec("CAN-6")
def test_a_command_that_had_ended_keeps_its_result_and_its_daemon(tmp_path: Path) -> None:
    async def body() -> None:
        cancel = CancelToken()

        def sink(_: bytes) -> bool:
            (process,) = _run._live[""]
            process.exited.add_done_callback(lambda _: cancel.cancel())
            return True

        script = "sh -c 'echo $$ > daemon.pid; exec sleep 1000' & echo ok; exit 5"
        ended = await run(bash(script, tmp_path), RunLimits(cancel), sink)
        assert cancel.cancelled
        assert (ended.ending, ended.returncode) == (Ending.EXITED, 5)
        await until(lambda: len(pids_in(tmp_path)) == 1, "the daemon runs")
        assert alive(pids_in(tmp_path)[0])

    once(body)


@linux
def test_where_processes_cannot_be_listed_the_group_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(_run._GUARD, "guard.py").read_text()
    source = source.replace('"/proc', '"/nowhere').replace("/bin/ps", "/no/ps")
    (tmp_path / "guard.py").write_text(source)
    monkeypatch.setattr(_run, "_GUARD", str(tmp_path))

    async def body() -> None:
        cancel = CancelToken()
        script = "sleep 1000 & echo $! > child.pid; echo $$ > shell.pid; wait"
        running = asyncio.create_task(run(bash(script, tmp_path), RunLimits(cancel), keep))
        await until(lambda: len(pids_in(tmp_path)) == 2, "it runs")
        cancel.cancel()
        await running
        assert not [pid for pid in pids_in(tmp_path) if alive(pid)]

    once(body)


@pytest.mark.spec("TOOL-11")
def test_a_time_out_kills_the_command_and_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        ended = await run(bash("sleep 1000", tmp_path), RunLimits(CancelToken(), 0.2), keep)
        assert ended.ending is Ending.TIMED_OUT

    once(body)


def test_a_sink_that_has_enough_ends_the_command(tmp_path: Path) -> None:
    async def body() -> None:
        ended = await run(bash("yes", tmp_path), RunLimits(CancelToken()), lambda _: False)
        assert ended.ending is Ending.ENOUGH

    once(body)


@pytest.mark.spec("CAN-3")
def test_nothing_is_started_with_a_cancelled_token(tmp_path: Path) -> None:
    async def body() -> None:
        cancel = CancelToken()
        cancel.cancel()
        ended = await run(bash("touch made", tmp_path), RunLimits(cancel), keep)
        assert ended == Result(Ending.CANCELLED, None, 0.0)

    once(body)
    assert not (tmp_path / "made").exists()


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    async def body() -> None:
        with pytest.raises(StartFailed, match=r"No such file.*directory"):
            await run(bash("true", tmp_path / "absent"), RunLimits(CancelToken()), keep)
        with pytest.raises(StartFailed, match=r"No such file.*program"):
            command = Command(("/no/such/program",), tmp_path, {})
            await run(command, RunLimits(CancelToken()), keep)
        assert "" not in _run._live

    once(body)


@linux
@pytest.mark.spec("CAN-10")
def test_a_start_that_cannot_be_recorded_leaves_no_process(tmp_path: Path) -> None:
    async def body() -> None:
        started: list[int] = []

        async def on_start(pid: int) -> None:
            started.append(pid)
            raise PersistenceError("the disk is full", "free some disk space")

        with pytest.raises(PersistenceError):
            await run(bash("exec sleep 1000", tmp_path), RunLimits(CancelToken()), keep, on_start)
        assert not alive(started[0])
        assert "" not in _run._live

    once(body)


@pytest.mark.slow
def test_too_many_open_files_are_a_reason_that_is_told(tmp_path: Path) -> None:
    async def body() -> None:
        _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        for spare in range(5):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, hard))
            try:
                with pytest.raises(StartFailed, match="Too many open files"):
                    await run(bash("true", tmp_path), RunLimits(CancelToken()), keep)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        gc.collect()  # would warn of what was not closed

    once(body)


@linux
@pytest.mark.spec("CAN-10", "REC-8")
def test_a_killed_guard_leaves_nothing_of_its_command(tmp_path: Path) -> None:
    async def body() -> None:
        script = f"echo $PPID > guard.pid; {FAMILY}"
        running = asyncio.create_task(run(bash(script, tmp_path), RunLimits(CancelToken()), keep))
        await until(lambda: len(pids_in(tmp_path)) == FAMILY_SIZE + 1, "it runs")
        pids = pids_in(tmp_path)
        os.kill(int((tmp_path / "guard.pid").read_text()), signal.SIGKILL)
        ended = await running
        assert ended.ending is Ending.LOST
        assert not [pid for pid in pids if alive(pid)]

    once(body)


@linux
@pytest.mark.spec("CAN-10", "REC-8")
def test_a_killed_guard_leaves_nothing_that_its_command_had_left_in_the_background(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        script = "echo $PPID > guard.pid; setsid sleep 1000 >/dev/null & echo $! > left.pid"
        ended = await run(bash(script, tmp_path), RunLimits(CancelToken()), keep)
        assert ended.left_running and ended.still_lives and ended.still_lives()
        os.kill(int((tmp_path / "guard.pid").read_text()), signal.SIGKILL)
        await until(lambda: not (ended.still_lives and ended.still_lives()), "all of it has ended")
        assert not alive(int((tmp_path / "left.pid").read_text()))

    once(body)


@linux
@pytest.mark.spec("CAN-10")
def test_a_command_that_stops_its_guard_and_what_watches_that_ends_with_the_app(
    tmp_path: Path,
) -> None:
    root = str(Path(__file__).resolve().parents[2])
    first = "kill -STOP $(ps -o ppid= -p $PPID) $PPID\n"
    host = subprocess.Popen([sys.executable, "-c", HOST, root, str(tmp_path), first])
    try:
        wait_until(lambda: len(pids_in(tmp_path)) == FAMILY_SIZE + 1, "all of them run")
        pids = pids_in(tmp_path)
    finally:
        host.kill()
        host.wait()
    wait_until(lambda: not [pid for pid in pids if alive(pid)], "all of them are dead")


FAULTY_GUARD = """
import os, sys
sys.path.append(sys.argv[1])
import guard

def fail(self):
    guard.Guard._obey = obey
    raise KeyError

obey, guard.Guard._obey = guard.Guard._obey, fail
guard.main()
os._exit(0)
"""


@linux
@pytest.mark.spec("CAN-10")
def test_a_guard_that_fails_leaves_nothing_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_run, "_RUN_GUARD", FAULTY_GUARD)

    async def body() -> None:
        cancel = CancelToken()
        running = asyncio.create_task(run(bash(FAMILY, tmp_path), RunLimits(cancel), keep))
        await until(lambda: len(pids_in(tmp_path)) == FAMILY_SIZE, "it runs")
        cancel.cancel()
        await running
        assert not [pid for pid in pids_in(tmp_path) if alive(pid)]

    once(body)


HOST = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.process.test_run import FAMILY, bash, keep
from agentcli.domain.cancel import CancelToken
from agentcli.process.run import RunLimits, run

async def main():
    here = Path(sys.argv[2])
    (here / "daemon").mkdir()
    daemon = "sh -c 'echo $$ > daemon.pid; exec sleep 1000' >/dev/null 2>&1 & echo ok"
    await run(bash(daemon, here), RunLimits(CancelToken()), keep)
    await run(bash(sys.argv[3] + FAMILY, here), RunLimits(CancelToken()), keep)

asyncio.run(main())
"""


@pytest.mark.sampled
@linux
@pytest.mark.spec("REC-8", "CAN-10")
@pytest.mark.parametrize(
    ("number", "first"),
    [(signal.SIGKILL, ""), (signal.SIGTERM, ""), (signal.SIGKILL, "kill -STOP $PPID")],
    ids=["kill", "term", "kill with a stopped guard"],
)
def test_nothing_survives_an_app_that_was_killed(
    tmp_path: Path, number: signal.Signals, first: str
) -> None:
    root = str(Path(__file__).resolve().parents[2])
    host = subprocess.Popen([sys.executable, "-c", HOST, root, str(tmp_path), first])
    try:
        wait_until(lambda: len(pids_in(tmp_path)) == FAMILY_SIZE + 1, "all of them run")
        pids = pids_in(tmp_path)
        assert all(map(alive, pids))
    finally:
        host.send_signal(number)
        host.wait()
    wait_until(lambda: not [pid for pid in pids if alive(pid)], "all of them are dead")


@pytest.mark.spec("SEC-8")
def test_a_command_has_a_session_of_its_own_and_no_input(tmp_path: Path) -> None:
    seen = bytearray()

    def sink(data: bytes) -> bool:
        seen.extend(data)
        return True

    script = "cat; [ -t 0 ] || echo none; ps -o sid= -p $$ | tr -d ' '; echo $$; trap; ulimit -c"

    async def body() -> None:
        await run(bash(script, tmp_path), RunLimits(CancelToken()), sink)

    once(body)
    lines = seen.decode().split()
    assert lines[0] == "none"
    assert lines[1] == lines[2]
    assert int(lines[1]) != os.getsid(0)


def test_a_large_environment_is_passed_whole(tmp_path: Path) -> None:
    seen = bytearray()

    def sink(data: bytes) -> bool:
        seen.extend(data)
        return True

    async def body() -> None:
        env = base_environment() | {f"BIG_{n}": "x" * 50_000 for n in range(20)}
        command = Command(("/bin/sh", "-c", "env | grep -c '^BIG_.*xxx$'"), tmp_path, env)
        await run(command, RunLimits(CancelToken()), sink)

    once(body)
    assert seen == b"20\n"


@pytest.mark.spec("CAN-11", "CAN-10")
def test_closing_one_session_ends_nothing_of_another(tmp_path: Path) -> None:
    async def body() -> None:
        for owner in ("one", "two"):
            script = f"sleep 300 & echo $! > {owner}.pid"
            command = bash(script, tmp_path)
            await run(replace(command, owner=owner), RunLimits(CancelToken()), keep)
        pids = {name: int((tmp_path / f"{name}.pid").read_text()) for name in ("one", "two")}
        await end_processes("one", grace_s=0.1)
        assert not alive(pids["one"])
        assert alive(pids["two"])
        await end_processes("two", grace_s=0.1)
        assert not alive(pids["two"])

    asyncio.run(body())


@pytest.mark.spec("TOOL-11", "SEC-13")
@settings(max_examples=80)
@given(st.lists(st.binary(max_size=30)), st.integers(1, 40), st.integers(1, 40))
def test_both_ends_are_kept_and_the_middle_is_counted(
    pieces: list[bytes], head: int, tail: int
) -> None:
    capture = Capture(head, tail)
    for piece in pieces:
        capture.feed(piece)
    whole = b"".join(pieces)
    assert capture.size_bytes == len(whole)
    if len(whole) <= head + tail:
        assert capture.data() == whole
    else:
        missing = b"\n[... %d bytes of output were not kept ...]\n" % (len(whole) - head - tail)
        assert capture.data() == whole[:head] + missing + whole[-tail:]


@pytest.mark.spec("TOOL-11")
def test_live_output_joins_what_comes_together_and_decodes_across_pieces() -> None:
    told: list[str] = []

    async def body() -> None:
        live = LiveOutput(told.append)
        for byte in "h\u00e9llo".encode():
            live.feed(bytes([byte]))
        live.close()

    asyncio.run(body())
    assert told == ["h\u00e9llo"]


@pytest.mark.spec("SEC-13")
def test_a_flood_is_reported_as_its_newest_part_and_a_size() -> None:
    told: list[str] = []

    async def body() -> None:
        live = LiveOutput(told.append)
        for _ in range(100):
            live.feed(b"x" * 100_000)
        live.feed(b"the end")
        live.close()

    asyncio.run(body())
    text = "".join(told)
    assert text.endswith("xthe end")
    assert f"[... {100 * 100_000 + 7 - LIVE_BYTES} bytes ...]" in text
    assert len(text) < 2 * LIVE_BYTES


async def refuse() -> Confined:
    raise OSError(errno.ESHUTDOWN, "the session has ended")


def test_a_command_whose_sandbox_cannot_be_set_up_does_not_start(tmp_path: Path) -> None:
    async def body() -> None:
        command = Command(("/bin/sh", "-c", "touch ran"), tmp_path, {})
        with pytest.raises(StartFailed, match=r"sandbox cannot be set up: .*session has ended"):
            await run(command, RunLimits(CancelToken()), lambda _: True, confine=refuse)
        assert not _run._live

    once(body)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("how", ["cancelled", "abandoned"])
def test_what_is_stopped_while_its_sandbox_is_set_up_does_not_start(
    tmp_path: Path, how: str
) -> None:
    async def body() -> None:
        command, cancel = Command(("/bin/sh", "-c", "touch ran"), tmp_path, {}), CancelToken()

        async def confine() -> Confined:
            if how == "abandoned":
                raise asyncio.CancelledError
            cancel.cancel()
            return Confined(command.argv, command.cwd)

        started = run(command, RunLimits(cancel), lambda _: True, confine=confine)
        if how == "abandoned":
            with pytest.raises(asyncio.CancelledError):
                await started
        else:
            assert (await started).ending is Ending.CANCELLED

    once(body)
    assert not (tmp_path / "ran").exists()


@linux
def test_a_command_gets_no_open_file_that_it_was_not_given(tmp_path: Path) -> None:
    async def body() -> None:
        handle = os.open(tmp_path, os.O_RDONLY)
        said: list[bytes] = []
        look = f"readlink /proc/$$/fd/{handle}; echo seen"
        command = Command(("/bin/sh", "-c", look), tmp_path, {}, "", (handle,))

        async def confine() -> Confined:
            return Confined(command.argv, command.cwd)

        try:
            limits = RunLimits(CancelToken())
            await run(command, limits, lambda data: not said.append(data), None, confine)
        finally:
            os.close(handle)
        assert b"".join(said) == b"seen\n"

    once(body)


@pytest.mark.spec("CAN-10", "SEC-13")
def test_a_long_line_of_processes_is_found_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each the child of the one before: nothing is killed before all of them are known."""
    line = [(pid, pid - 1, 5) for pid in range(2, 20_002)]
    monkeypatch.setattr(guard, "process_table", lambda: iter(line))
    began = time.process_time()
    assert guard.descendants(1) == [pid for pid, _, _ in line if pid != os.getpid()]
    assert len(guard.descendants(1, 5)) >= 19_998
    assert time.process_time() - began < 2.0
