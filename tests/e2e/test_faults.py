"""Faults that a person meets, as one table (OPS-1): who proves which, and what no other file does.

The table is ``faults.py``. Whatever happens: a defined result, one line that says what to do, no
traceback, the terminal as it was, the session sound and able to go on, no process left.
"""

from __future__ import annotations

import ast
import re
import resource
import shlex
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.e2e.faults import FAULTS, NAMES
from tests.e2e.one_shot import assert_one_line_error, check_sessions, one_shot, result_of
from tests.support.cli import AGENT, agent_env, run_agent, spawn_agent
from tests.support.databases import opened
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.processes import wait_until
from tests.support.pty_driver import Terminal
from tests.support.replies import Reply, bad_gateway, call, fails, rate_limited, say
from tests.support.work_processes import commands_below, wait_for_process

pytestmark = [pytest.mark.spec("OPS-1"), pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
DAY_S = 86_400


# --- the table ----------------------------------------------------------------------------------


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def test_every_fault_of_the_contract_has_a_row() -> None:
    assert set(FAULTS) == set(NAMES)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_said_to_be_proved_is_proved_by_a_test_that_is_there(fault: str) -> None:
    for state, proof in FAULTS[fault].items():
        path, _, name = proof.partition("::")
        assert name in names_in(path), (fault, state, proof)


# --- what every ending has in common ------------------------------------------------------------


def goes_on(server: ModelServer, work: Path) -> None:
    """Nothing runs any more; the session is sound and takes the next prompt."""
    wait_until(lambda: not commands_below(work), "no process left")
    check_sessions()
    server.restart("Here I am.")
    done = one_shot(server, "--continue", "on", cwd=work)
    assert (done.code, done.stdout) == (0, "Here I am.\n"), done.stderr


# --- signals and keys in every state of the chat ------------------------------------------------


def streaming(server: ModelServer, terminal: Terminal) -> None:
    server.add(say("Half an answer", piece=20, stall_at="text"))
    terminal.line("go")
    terminal.wait_for("Half an answer")


def approving(server: ModelServer, terminal: Terminal) -> None:
    server.add(call("bash", {"command": "touch made; sleep 67.5"}, id="one"))
    terminal.line("go")
    terminal.wait_for("touch made")


def running(server: ModelServer, terminal: Terminal) -> None:
    approving(server, terminal)
    terminal.confirm("y")
    wait_for_process("sleep 67.5", terminal.process.pid)


def waiting(server: ModelServer, terminal: Terminal) -> None:
    server.add(rate_limited("40"))
    terminal.line("go")
    terminal.wait_for(re.compile("retry", re.IGNORECASE))


def summarising(server: ModelServer, terminal: Terminal) -> None:
    server.add("answer one", "answer two", "answer three", say("SUMMARY", stall_at="text"))
    for word in ("one", "two", "three"):
        terminal.line(f"question {word}")
        terminal.wait_for(f"answer {word}")
        terminal.wait_for(IDLE)
    terminal.line("/compact")
    server.wait_until_waiting(4)


STATES = {
    "approval": approving,
    "tool": running,
    "retry": waiting,
    "compaction": summarising,
}


@pytest.mark.parametrize("state", STATES)
def test_sigterm_ends_the_chat_in_every_state(
    model_server: ModelServer, chat: Chat, work: Path, state: str
) -> None:
    terminal = chat()
    STATES[state](model_server, terminal)
    terminal.kill(signal.SIGTERM)
    assert terminal.wait_exit() == 143
    assert terminal.restored
    assert "Traceback" not in terminal.text()
    assert "agent resume" in terminal.text()
    assert (work / "made").exists() is (state == "tool")
    goes_on(model_server, work)


@pytest.mark.parametrize("state", ["stream", *STATES])
def test_ctrl_c_three_times_at_once_ends_what_runs_and_never_breaks(
    model_server: ModelServer, chat: Chat, work: Path, state: str
) -> None:
    terminal = chat()
    {"stream": streaming, **STATES}[state](model_server, terminal)
    terminal.send("\x03\x03\x03")
    # the first cancels; two that find the prompt empty again leave, which is as good
    wait_until(
        lambda: terminal.process.poll() is not None or bool(IDLE.search(terminal.text()[-400:])),
        "the prompt or the end",
    )
    if terminal.process.poll() is None:
        terminal.kill(signal.SIGTERM)
    assert terminal.wait_exit() in {0, 130, 143}
    assert terminal.restored
    assert "Traceback" not in terminal.text()
    goes_on(model_server, work)


@pytest.mark.parametrize("place", ["text", "tool"])
def test_a_run_that_is_stopped_and_continued_goes_on(
    model_server: ModelServer, work: Path, place: str
) -> None:
    gate = threading.Event()
    script: list[Reply | str]
    if place == "text":
        script = [say("All of it", hold=gate, hold_at="text")]
    else:
        command = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo ended"
        script = [call("bash", {"command": command}), say("All of it")]
    model_server.add(*script)
    args = ("run", "--yolo", "-o", "json", "go")
    with spawn_agent(*args, env=agent_env(model_server), cwd=work) as run:
        if place == "text":
            model_server.wait_until_waiting()
        else:
            wait_until(lambda: (work / "begun").exists(), "the tool runs")
        run.signal(signal.SIGSTOP)  # SIGTSTP stops nobody without a shell
        wait_until(lambda: _state(run.process.pid) == "T", "it is stopped")
        gate.set()
        (work / "go").touch()
        run.signal(signal.SIGCONT)
        done = run.wait()
    assert done.code == 0, done.stderr
    assert result_of(done)["result"] == "All of it"
    goes_on(model_server, work)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# --- the disk -----------------------------------------------------------------------------------


@pytest.mark.spec("FAIL-1", "CLI-6")
@pytest.mark.parametrize("output", ["text", "stream-json"])
def test_a_disk_that_fills_up_in_mid_session_is_code_74_and_nothing_is_lost(
    model_server: ModelServer, work: Path, output: str
) -> None:
    model_server.add("A first answer.", say("word " * 200_000, piece=50_000))
    assert one_shot(model_server, "begin", cwd=work).code == 0

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))

    done = subprocess.run(
        [*AGENT, "run", "--continue", "-o", output, "more"],
        env=agent_env(model_server), cwd=work, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=25, check=False, preexec_fn=small_disk,
    )  # fmt: skip
    assert done.returncode == 74, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and " - " in errors[0], done.stderr[-2000:]
    goes_on(model_server, work)


def damaged(kind: str) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        if kind == "newer":
            with opened(path) as db:
                db.execute("PRAGMA user_version = 999")
            return
        data = {"truncated": path.read_bytes()[:-9000], "garbage": b"\xa5" * 50_000, "zero": b""}
        path.write_bytes(data[kind])

    return do


@pytest.mark.spec("REC-7", "FAIL-3")
@pytest.mark.parametrize("kind", ["truncated", "garbage", "zero", "newer"])
def test_a_session_file_that_cannot_be_used_is_one_line_and_stays_as_it_is(
    model_server: ModelServer, work: Path, home: Path, kind: str
) -> None:
    model_server.add("one")
    session_id = result_of(one_shot(model_server, "-o", "json", "x", cwd=work))["session_id"]
    path = home / "agentcli" / "sessions" / f"{session_id}.db"
    damaged(kind)(path)
    before = path.read_bytes()
    for args in (("run", "--session", session_id, "y"), ("sessions", "show", session_id)):
        done = run_agent(*args, env=agent_env(model_server), cwd=work)
        assert done.code == 74, (args, done)
        assert_one_line_error(done, session_id)
        assert ("agent sessions repair" in done.stderr) is (kind != "newer")
    assert path.read_bytes() == before
    assert len(model_server.requests) == 1


# --- the clock ----------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [400, -400])
def test_a_clock_that_jumps_changes_no_session(
    model_server: ModelServer, work: Path, days: int
) -> None:
    """The whole program lives 400 days away for one run, and comes back for the next."""
    model_server.add("From elsewhere.")
    program = (
        "import time; now, now_ns = time.time, time.time_ns;"
        f" time.time = lambda: now() + {days * DAY_S};"
        f" time.time_ns = lambda: now_ns() + {days * DAY_S} * 10**9;"
        " from agentcli.cli.entry import main; main()"
    )
    argv = [sys.executable, "-P", "-c", program, "run", "-o", "json", "go"]
    env = agent_env(model_server)
    done = subprocess.run(argv, env=env, cwd=work, capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    goes_on(model_server, work)
    for args in (("sessions", "list"), ("sessions", "check"), ("doctor",)):
        told = run_agent(*args, env=agent_env(model_server), cwd=work)
        assert told.code == 0 and "Traceback" not in told.stderr, told


# --- the network --------------------------------------------------------------------------------


class _Plain(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")


@pytest.fixture
def plain_port() -> Iterator[int]:
    """A server that speaks no TLS."""
    with socketserver.TCPServer(("127.0.0.1", 0), _Plain) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.spec("FAIL-6", "CLI-6")
@pytest.mark.parametrize(
    ("fault", "word"), [("dns", "nobody.invalid"), ("tls", "TLS"), ("proxy", "proxy")]
)
def test_a_network_that_does_not_work_is_named_and_the_session_goes_on(
    model_server: ModelServer, work: Path, plain_port: int, fault: str, word: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    env: dict[str, dict[str, str | None]] = {
        "dns": {"ANTHROPIC_BASE_URL": "http://nobody.invalid"},
        "tls": {"ANTHROPIC_BASE_URL": f"https://127.0.0.1:{plain_port}"},
        "proxy": {
            "ANTHROPIC_BASE_URL": "http://api.example.test",
            "HTTP_PROXY": f"http://127.0.0.1:{closed}",
        },
    }
    every = agent_env(model_server, ANTHROPIC, **env[fault])
    done = run_agent("run", "-o", "json", "go", env=every, cwd=work)
    assert done.code in {1, 75, 78}
    result = result_of(done)
    assert result["is_error"] and word.lower() in result["result"].lower(), result
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and " - " in errors[0], done.stderr
    goes_on(model_server, work)


@pytest.mark.spec("STR-2", "CLI-6")
@pytest.mark.parametrize("kind", ["500", "502", "529"])
def test_a_server_that_keeps_failing_is_code_75(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    page = bad_gateway()
    html = Reply(status=502, body=page.body, headers={**page.headers, "retry-after": "0"})
    reply = html if kind == "502" else fails(int(kind), retry_after="0")
    model_server.default = reply
    done = one_shot(model_server, "-o", "json", "go", cwd=work)
    assert done.code == 75
    assert len(model_server.requests) == 4
    assert result_of(done)["subtype"] == "error_during_execution"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "127.0.0.1" in errors[0] and "<" not in errors[0], done.stderr
    model_server.default = None
    goes_on(model_server, work)


@pytest.mark.spec("STR-4", "FAIL-6")
@pytest.mark.parametrize("at", [0, 1, 150, 700, "last"])
def test_a_drop_at_any_byte_is_tried_again_or_ends_the_turn(
    model_server: ModelServer, work: Path, at: int | str
) -> None:
    model_server.add(say("All that there is to say", drop_at=at))
    model_server.default = "All of it."
    done = one_shot(model_server, "-o", "json", "go", cwd=work)
    result = result_of(done)
    if done.code == 0:
        assert result["result"] in {"All of it.", "All that there is to say"}
    else:
        assert done.code == 75 and "127.0.0.1" in result["result"]
    goes_on(model_server, work)


@pytest.mark.spec("STR-3", "CAN-13")
@pytest.mark.parametrize("how", ["signal", "timeout"])
def test_a_stream_of_keep_alives_can_be_ended(
    model_server: ModelServer, work: Path, how: str
) -> None:
    model_server.add(Reply(ping_only=True))
    limit = ("--timeout", "1") if how == "timeout" else ()
    args = ("run", *limit, "-o", "json", "go")
    with spawn_agent(*args, env=agent_env(model_server), cwd=work) as run:
        model_server.wait_until_waiting()
        if how == "signal":
            run.signal(signal.SIGINT)
        done = run.wait()
    assert done.code == (130 if how == "signal" else 3)
    result_of(done)
    goes_on(model_server, work)


# --- places and tools ---------------------------------------------------------------------------

ODD = ("with space", "new\nline", "-rf '\u202e\"*", "$(touch made)")


def test_directories_of_any_name_are_worked_in(model_server: ModelServer, work: Path) -> None:
    for name in ODD:
        place = work / name
        place.mkdir()
        model_server.add(
            call("bash", {"command": "pwd > here"}),
            call("write_file", {"path": f"{name}.txt", "content": "text\n"}),
            "Done.",
        )
        done = one_shot(model_server, "--yolo", "go", cwd=place)
        assert (done.code, done.stdout) == (0, "Done.\n"), (name, done.stderr)
        assert (place / "here").read_text() == f"{place}\n"
        assert (place / f"{name}.txt").read_text() == "text\n"
        assert not (work / "made").exists() and not (place / "made").exists()
    check_sessions()


def test_a_working_directory_that_goes_away_in_mid_session_is_told_to_the_model(
    model_server: ModelServer, work: Path, tmp_path: Path
) -> None:
    gone = work / "gone"
    gone.mkdir()
    model_server.add(
        call("bash", {"command": f"rmdir {shlex.quote(str(gone))}"}),
        call("bash", {"command": "pwd"}, id="two"),
        call("write_file", {"path": "x", "content": "x"}, id="three"),
        "I see.",
    )
    done = one_shot(model_server, "--yolo", "go", cwd=gone)
    assert (done.code, done.stdout) == (0, "I see.\n"), done.stderr
    assert "Traceback" not in done.stderr
    check_sessions()


def test_a_model_that_repeats_one_call_for_ever_is_stopped_with_the_reason(
    model_server: ModelServer, work: Path
) -> None:
    model_server.default = call("list_directory", {"path": "."})
    done = one_shot(model_server, "-o", "json", "go", cwd=work)
    assert done.code == 1 and len(model_server.requests) < 15
    result = result_of(done)
    assert result["is_error"]
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "list_directory" in errors[0], done.stderr
    model_server.default = None
    goes_on(model_server, work)


def test_a_daemon_and_a_tool_that_stops_itself_leave_no_process(
    model_server: ModelServer, work: Path
) -> None:
    model_server.add(
        call("bash", {"command": "sleep 68.5 & echo left"}),
        call("bash", {"command": "trap '' TERM; kill -STOP $$", "timeout_s": 1}),
        "Done.",
    )
    done = one_shot(model_server, "--yolo", "go", cwd=work)
    assert (done.code, done.stdout) == (0, "Done.\n"), done.stderr
    goes_on(model_server, work)


def test_a_second_chat_beside_the_first_and_resizing_to_nothing(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    first = chat()
    streaming(model_server, first)
    first.resize(1, 1)
    first.resize(200, 500)
    first.resize(24, 80)
    model_server.add("From the second.")
    second = chat("--new")
    second.line("hello")
    second.wait_for("From the second.")
    leave(second)
    first.key("ctrl-c")
    first.wait_for(re.compile("cancelled", re.IGNORECASE))
    leave(first)
    goes_on(model_server, work)
