"""``agent run`` when the world fails it: signals, streams, pipes, places (OPS-1, CLI-12)."""

from __future__ import annotations

import contextlib
import email.utils
import re
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.one_shot import assert_one_line_error, check_sessions, one_shot, result_of
from tests.support.cli import AGENT, Finished, Running, agent_env, run_agent, spawn_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Reply, call, rate_limited, say
from tests.support.wire_facts import facts_of
from tests.support.work_processes import pids_of, wait_for_process

pytestmark = pytest.mark.slow

PROTOCOLS = [ANTHROPIC, OPENAI]
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def start(
    server: ModelServer, work: Path, protocol: str = ANTHROPIC, output: str = "stream-json"
) -> Running:
    env = agent_env(server, protocol)
    return spawn_agent("run", "--yolo", "-o", output, "begin", env=env, cwd=work)


def go_on(server: ModelServer, work: Path, protocol: str = ANTHROPIC) -> None:
    """The session takes the next prompt."""
    server.restart("Here I am.")
    done = one_shot(server, "--continue", "on", protocol=protocol, cwd=work)
    assert (done.code, done.stdout) == (0, "Here I am.\n"), done.stderr
    check_sessions()


# --- signals ------------------------------------------------------------------------------------


@pytest.mark.spec("CAN-13", "CLI-5", "CLI-6")
@pytest.mark.parametrize(
    ("number", "place"),
    [
        (signal.SIGINT, "connect"),
        (signal.SIGINT, "start"),
        (signal.SIGINT, "text"),
        (signal.SIGTERM, "text"),
        (signal.SIGHUP, "start"),
    ],
)
def test_a_signal_in_mid_stream_ends_with_a_result_and_its_code(
    model_server: ModelServer, tmp_path: Path, number: signal.Signals, place: str
) -> None:
    model_server.add(say("Some text that will be cut off", stall_at=place))
    with start(model_server, tmp_path) as running:
        model_server.wait_until_waiting()
        running.signal(number)
        done = running.wait()
    assert done.code == SIGNALS[number]
    result = result_of(done)
    assert result["subtype"] == "cancelled" and result["is_error"] is True
    assert model_server.wait_until_finished().client_left
    go_on(model_server, tmp_path)
    facts = facts_of(model_server.requests[-1])
    assert facts.answers == []
    assert "\n".join(facts.prompts) == "begin\non"


@pytest.mark.spec("CAN-1", "CAN-7", "CAN-10", "CAN-13")
@pytest.mark.parametrize(
    ("number", "protocol"),
    [
        (signal.SIGINT, ANTHROPIC),
        (signal.SIGINT, OPENAI),
        (signal.SIGTERM, OPENAI),
        (signal.SIGHUP, ANTHROPIC),
    ],
)
def test_a_signal_in_mid_tool_kills_the_tool_and_keeps_the_history_balanced(
    model_server: ModelServer, tmp_path: Path, number: signal.Signals, protocol: str
) -> None:
    model_server.add(call("bash", {"command": "echo begun; sleep 61.5 & wait"}, id="one"))
    with start(model_server, tmp_path, protocol) as running:
        running.wait_for(lambda line: line["type"] == "assistant")
        wait_for_process("sleep 61.5", running.process.pid)
        running.signal(number)
        done = running.wait()
    assert done.code == SIGNALS[number]
    assert result_of(done)["subtype"] == "cancelled"
    assert pids_of("sleep 61.5", tmp_path) == []
    go_on(model_server, tmp_path, protocol)
    told = facts_of(model_server.requests[-1]).results["one"]
    assert told.startswith("Cancelled by user") and "begun" in told


@pytest.mark.spec("CAN-13")
@pytest.mark.parametrize("output", ["text", "json"])
def test_every_format_has_its_ending_on_a_signal(
    model_server: ModelServer, tmp_path: Path, output: str
) -> None:
    model_server.add(say("x", stall_at="start"))
    with start(model_server, tmp_path, output=output) as running:
        model_server.wait_until_waiting()
        running.signal(signal.SIGTERM)
        done = running.wait()
    assert done.code == 143
    if output == "json":
        assert result_of(done)["subtype"] == "cancelled"
    else:
        assert done.stdout == "" and "cancelled" in done.stderr


@pytest.mark.spec("CAN-2", "CAN-13")
def test_many_signals_are_one_cancel(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add(call("bash", {"command": "trap '' TERM INT; sleep 62.5"}))
    with start(model_server, tmp_path) as running:
        running.wait_for(lambda line: line["type"] == "assistant")
        wait_for_process("sleep 62.5", running.process.pid)
        for _ in range(20):
            with contextlib.suppress(ProcessLookupError):
                running.signal(signal.SIGINT)
        done = running.wait()
    assert done.code == 130
    assert result_of(done)["subtype"] == "cancelled"
    assert pids_of("sleep 62.5", tmp_path) == []
    go_on(model_server, tmp_path)


@pytest.mark.spec("CAN-9")
def test_a_signal_during_the_wait_for_a_retry_ends_it(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(Reply(status=429, error="rate_limit", headers={"retry-after": "50"}))
    with start(model_server, tmp_path) as running:
        running.wait_for(lambda line: line.get("subtype") == "api_retry")
        running.signal(signal.SIGINT)
        done = running.wait()
    assert done.code == 130 and result_of(done)["subtype"] == "cancelled"


@pytest.mark.spec("STR-2", "STR-9", "CLI-6", "OPS-1")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("as_date", [False, True])
def test_a_rate_limit_that_lasts_ends_the_run_and_says_when_to_come_back(
    model_server: ModelServer, tmp_path: Path, protocol: str, as_date: bool
) -> None:
    later = email.utils.formatdate(time.time() + 7200, usegmt=True) if as_date else "7200"
    model_server.add(rate_limited(later))
    done = one_shot(model_server, "-o", "json", "go", protocol=protocol, cwd=tmp_path)
    assert done.code == 75
    assert re.search(r"retry after [^-]*\d\d:\d\d, in (2 h|1 h 60 min|1 h 59 min)", done.stderr)
    assert "127.0.0.1" in done.stderr
    assert 7000 < result_of(done)["retry_after_s"] <= 7200
    assert len(model_server.requests) == 1
    go_on(model_server, tmp_path, protocol)


@pytest.mark.spec("STR-2", "OPS-1")
@pytest.mark.parametrize("absurd", ["-5", "soon", "99999999999", "nan"])
def test_an_absurd_retry_after_is_not_believed(
    model_server: ModelServer, tmp_path: Path, absurd: str
) -> None:
    model_server.add(rate_limited(absurd), say("done"))
    done = one_shot(model_server, "-o", "stream-json", "go", cwd=tmp_path)
    assert done.code == 0
    (wait,) = [line for line in done.lines if line.get("subtype") == "api_retry"]
    assert wait["retry_delay_ms"] <= 1250


@pytest.mark.spec("STR-7", "CLI-5")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_reply_cut_at_the_configured_limit_is_asked_again_with_a_higher_one(
    model_server: ModelServer, tmp_path: Path, home: Path, protocol: str
) -> None:
    config = home / "agentcli" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("max_output_tokens = 1024\n")
    model_server.add(say("One two", stop="max_tokens"), say("One two three."))
    done = one_shot(
        model_server, "-o", "stream-json", "--include-partial-messages", "go",
        protocol=protocol, cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0
    assert result_of(done)["result"] == "One two three."
    (raised,) = [line for line in done.lines if line.get("subtype") == "output_cap_raised"]
    assert (raised["old_tokens"], raised["new_tokens"]) == (1024, 2048)
    deltas = [line["event"].get("delta", {}) for line in done.lines if "event" in line]
    assert "".join(delta.get("text", "") for delta in deltas) == "One two three."
    assert result_of(done)["usage"]["output_tokens"] == 40


@pytest.mark.spec("STR-2", "CLI-5")
@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_another_model_that_answers_instead_is_told_in_every_format(
    model_server: ModelServer, tmp_path: Path, output: str
) -> None:
    model_server.add(rate_limited("7200"), "From the other.")
    done = one_shot(
        model_server, "-o", output, "--fallback-model", "openai/gpt-4.1", "go", cwd=tmp_path
    )
    assert done.code == 0, done.stderr
    (said,) = [line for line in done.stderr.splitlines() if "answers from now on" in line]
    assert "openai/gpt-4.1" in said
    if output == "stream-json":
        (told,) = [line for line in done.lines if line.get("subtype") == "model_fallback"]
        assert told["new_model"] == "openai/gpt-4.1"


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize("wait_s", [0.02, 0.05, 0.08, 0.12, 0.18])
def test_a_signal_while_starting_ends_without_a_traceback(
    model_server: ModelServer, tmp_path: Path, wait_s: float
) -> None:
    model_server.add(say("x", stall_at="connect"))
    with start(model_server, tmp_path) as running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(wait_s)
        running.signal(signal.SIGTERM)
        done = running.wait()
    assert "Traceback" not in done.stderr
    if done.code != -signal.SIGTERM:  # the interpreter itself was still starting
        assert done.code == 143 and result_of(done)["subtype"] == "cancelled"


# --- streams ------------------------------------------------------------------------------------


@pytest.mark.spec("STR-1", "STR-4", "CAN-5", "CLI-6")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", ["drop_at", "close_at", "error_at"])
def test_a_stream_that_breaks_after_output_ends_the_turn_and_keeps_the_session(
    model_server: ModelServer, tmp_path: Path, protocol: str, fault: str
) -> None:
    model_server.add(say("A part of the answer and", **{fault: "text"}))
    done = one_shot(model_server, "-o", "json", "begin", protocol=protocol, cwd=tmp_path)
    assert done.code == 75, done.stderr
    assert result_of(done)["subtype"] == "error_during_execution"
    assert_one_line_error(done, protocol)
    assert len(model_server.requests) == 1
    go_on(model_server, tmp_path, protocol)
    assert facts_of(model_server.requests[-1]).answers == []


@pytest.mark.spec("STR-8")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_garbage_odd_line_ends_and_compression_do_not_hurt(
    model_server: ModelServer, protocol: str
) -> None:
    model_server.add(
        say("Fine.", transform=lambda data: data.replace(b"\n", b"\r\n"), write_bytes=3),
        say("Fine.", transform=lambda data: data.replace(b"\n", b"\r"), preamble=b"\xef\xbb\xbf"),
        say("Fine.", gzip=True),
    )
    for _ in range(3):
        done = one_shot(model_server, "go", protocol=protocol)
        assert (done.code, done.stdout) == (0, "Fine.\n"), done.stderr


@pytest.mark.spec("STR-8")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_garbage_in_a_stream_is_no_traceback(model_server: ModelServer, protocol: str) -> None:
    model_server.add(say("A part and", garbage_at="text", pings=0))
    model_server.default = "Fine."
    done = one_shot(model_server, "-o", "json", "go", protocol=protocol)
    assert done.code in {0, 1, 75}
    result_of(done)
    check_sessions()


@pytest.mark.spec("FAIL-6", "STR-2", "STR-9", "CLI-6")
def test_an_unreachable_server_is_named_with_its_host(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        env = agent_env(ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL=f"http://127.0.0.1:{port}")
        env["AGENTCLI_MODEL"] = "anthropic/claude-sonnet-4-5"
        args = ("run", "-o", "stream-json", "go")
        with spawn_agent(*args, env=env, cwd=tmp_path) as running:
            retry = running.wait_for(lambda line: line.get("subtype") == "api_retry")
            assert retry["error"] == "network"
            done = running.wait(20)
    assert done.code == 75
    assert result_of(done)["is_error"]
    assert f"127.0.0.1:{port}" in result_of(done)["result"]
    check_sessions()


# --- pipes and places ---------------------------------------------------------------------------


def shell(line: str, env: dict[str, str], cwd: Path) -> Finished:
    """Run ``line`` with $AGENT as the program."""
    agent = shlex.join(AGENT)
    done = subprocess.run(
        ["/bin/bash", "-c", f'agent() {{ {agent} "$@"; }}; {line}'],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    text, errors = (data.decode("utf-8", "replace") for data in (done.stdout, done.stderr))
    return Finished((line,), done.returncode, text, errors)


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("output", ["text", "stream-json"])
def test_a_reader_that_leaves_is_a_quiet_exit(
    model_server: ModelServer, tmp_path: Path, output: str
) -> None:
    model_server.add(say("line\n" * 50_000, piece=5000))
    line = f"agent run -o {output} go | head -1; exit ${{PIPESTATUS[0]}}"
    done = shell(line, agent_env(model_server), tmp_path)
    assert done.code == 0
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr and "Broken pipe" not in done.stderr
    check_sessions()


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(
    model_server: ModelServer, tmp_path: Path, closed: str
) -> None:
    model_server.add(call("bash", {"command": "echo made > made"}), "Answer.")
    done = shell(f"agent run --yolo go {closed}", agent_env(model_server), tmp_path)
    assert done.code == 0, done.stderr
    assert done.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "Answer.\n")
    assert "Traceback" not in done.stderr
    assert (tmp_path / "made").read_text() == "made\n"
    check_sessions()


@pytest.mark.spec("CLI-12")
def test_a_full_disk_behind_stdout_is_an_error_and_not_a_traceback(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("Answer.")
    done = shell("agent run go > /dev/full", agent_env(model_server), tmp_path)
    assert done.code != 0
    assert "Traceback" not in done.stderr and "error: " in done.stderr


@pytest.mark.spec("CLI-12", "CLI-10")
def test_without_home_it_works_where_our_own_is_given(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("Answer.")
    done = one_shot(model_server, "go", cwd=tmp_path, HOME=None)
    assert (done.code, done.stdout) == (0, "Answer.\n"), done.stderr


@pytest.mark.spec("CLI-10")
def test_without_our_own_home_the_xdg_directories_are_used(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("Answer.")
    env = {
        "AGENTCLI_HOME": None,
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    assert one_shot(model_server, "go", cwd=tmp_path, **env).code == 0
    assert list((tmp_path / "data" / "agentcli" / "sessions").glob("*.db"))


@pytest.mark.spec("CLI-6", "CLI-12", "FAIL-1")
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_home_that_cannot_be_written_is_one_line_and_code_74(
    model_server: ModelServer, tmp_path: Path, output: str
) -> None:
    (tmp_path / "file").write_text("")
    home = str(tmp_path / "file" / "home")
    done = one_shot(model_server, "-o", output, "go", cwd=tmp_path, AGENTCLI_HOME=home)
    assert done.code == 74, done.stderr
    assert model_server.requests == []
    assert any(home in line for line in done.stderr.splitlines())
    assert "Traceback" not in done.stderr
    if output == "json":
        assert result_of(done)["is_error"] is True


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("utf8", ["0", "1"])
def test_the_c_locale_is_no_reason_to_fail(
    model_server: ModelServer, tmp_path: Path, utf8: str
) -> None:
    model_server.add("Gr\u00fc\u00dfe \N{GRINNING FACE}")
    env: dict[str, str | None] = {
        "LC_ALL": "C", "LANG": None, "PYTHONUTF8": utf8, "PYTHONCOERCECLOCALE": "0",
    }  # fmt: skip
    done = one_shot(model_server, "-o", "json", "h\u00e9llo", cwd=tmp_path, **env)
    assert done.code == 0, done.stderr
    assert result_of(done)["result"] == "Gr\u00fc\u00dfe \N{GRINNING FACE}"
    assert facts_of(model_server.requests[0]).prompts == ["h\u00e9llo"]


@pytest.mark.spec("CLI-12")
def test_a_deleted_working_directory_is_one_line_or_works(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.default = "Answer."
    (tmp_path / "gone").mkdir()
    line = "cd gone; rmdir ../gone; agent run go"
    done = shell(line, agent_env(model_server), tmp_path)
    assert "Traceback" not in done.stderr
    if done.code:
        assert_one_line_error(done, "directory")
    else:
        assert done.stdout == "Answer.\n"


@pytest.mark.spec("REC-6")
def test_a_session_in_use_names_the_process_that_has_it(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(say("x", stall_at="start"))
    with start(model_server, tmp_path) as running:
        model_server.wait_until_waiting()
        session_id = running.events()[0]["session_id"]
        done = one_shot(model_server, "--session", session_id, "me too", cwd=tmp_path)
        assert done.code == 74
        assert_one_line_error(done, str(running.process.pid))
        assert run_agent("sessions", "show", session_id, env=agent_env()).code == 0
        running.signal(signal.SIGKILL)
        running.wait()
    go_on(model_server, tmp_path)
