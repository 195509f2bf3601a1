"""``agent run`` as others run it: what goes where, how it ends, with which code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import AGENT, agent_env, run_agent, spawn_agent
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, call, calls, fails, say

pytestmark = pytest.mark.sampled

READ = call("read_file", {"path": "note.txt"}, text="Let me look.")
FORMATS = ("text", "json", "stream-json")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "note.txt").write_text("the note\n")
    return tmp_path


def user_texts(request: Any) -> list[str]:
    """The texts of the last user message in a request's body, of either protocol."""
    content = request.body["messages"][-1]["content"]
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]


def last_line(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text.splitlines()[-1])
    return value


# --- the prompt (CLI-2) --------------------------------------------------------------------


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize(
    ("args", "piped", "expected"),
    [
        (("run", "explain", "this"), None, ["explain this"]),
        (("-p", "explain this"), None, ["explain this"]),
        (("run",), "from a pipe\n", ["from a pipe"]),
        (("run", "-"), "from a pipe\n", ["from a pipe"]),
        (("run", "explain"), "the text\n", ["explain", "the text"]),
        ((), "from a pipe", ["from a pipe"]),
        (("explain",), "the text", ["explain", "the text"]),
        (("run", "--", "--model"), None, ["--model"]),
        (("-p", "sessions"), None, ["sessions"]),
        (("--", "run"), None, ["run"]),
    ],
)
def test_the_prompt_comes_from_words_and_from_stdin(
    args: tuple[str, ...], piped: str | None, expected: list[str], work: Path
) -> None:
    with ModelServer(["fine"]) as server:
        done = run_agent(*args, input=piped, env=agent_env(server), cwd=work)
        assert (done.code, done.stdout) == (0, "fine\n"), done
        assert user_texts(server.requests[0]) == expected
        assert not server.violations


@pytest.mark.slow
@pytest.mark.spec("CLI-2")
def test_an_open_pipe_that_nobody_writes_to_does_not_hang_a_run_with_a_prompt(work: Path) -> None:
    with ModelServer(["fine"]) as server:
        env = agent_env(server)
        with spawn_agent("run", "hi", env=env, cwd=work, stdin=subprocess.PIPE) as running:
            done = running.wait(15)
        assert (done.code, done.stdout) == (0, "fine\n")
        assert "nothing came on stdin" in done.stderr


@pytest.mark.spec("CLI-4", "CLI-5", "CLI-6")
def test_a_timeout_also_ends_the_wait_for_a_prompt(work: Path) -> None:
    args = ("run", "-o", "stream-json", "--timeout", "0.3")
    with spawn_agent(*args, cwd=work, stdin=subprocess.PIPE) as running:
        done = running.wait(15)
    assert (done.code, done.lines[-1]["subtype"]) == (3, "error_timeout"), done


# --- what goes where (CLI-5) ---------------------------------------------------------------


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_text_puts_only_the_final_answer_on_stdout(protocol: str, work: Path) -> None:
    with ModelServer([READ, say("It says: the note.")]) as server:
        done = run_agent("run", "read it", env=agent_env(server, protocol), cwd=work)
    assert (done.code, done.stdout) == (0, "It says: the note.\n"), done
    assert "Let me look." in done.stderr
    assert "note.txt" in done.stderr


@pytest.mark.spec("CLI-4")
def test_quiet_leaves_stderr_empty(work: Path) -> None:
    with ModelServer([READ, say("done")]) as server:
        done = run_agent("run", "--quiet", "read it", env=agent_env(server), cwd=work)
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.spec("CLI-3")
def test_verbose_tells_the_session_and_the_figures_on_stderr(work: Path) -> None:
    with ModelServer([say("done")]) as server:
        done = run_agent("run", "--verbose", "hi", env=agent_env(server), cwd=work)
    assert done.stdout == "done\n"
    assert "anthropic/claude-sonnet-4-5" in done.stderr
    assert "1 request, 100 in" in done.stderr


@pytest.mark.spec("CLI-5")
def test_json_is_exactly_one_object(work: Path) -> None:
    with ModelServer([READ, say("done")]) as server:
        done = run_agent("run", "-o", "json", "read it", env=agent_env(server), cwd=work)
    value = json.loads(done.stdout)
    assert value["type"] == "result"
    assert (value["subtype"], value["is_error"], value["result"]) == ("success", False, "done")
    assert value["num_turns"] == 2
    assert value["usage"]["input_tokens"] == 200
    assert value["total_cost_usd"] > 0
    assert value["session_id"]


@pytest.mark.spec("CLI-5")
def test_stream_json_begins_with_init_and_ends_with_one_result(work: Path) -> None:
    with ModelServer([READ, say("done")]) as server:
        done = run_agent("run", "-o", "stream-json", "read it", env=agent_env(server), cwd=work)
    kinds = [line["type"] for line in done.lines]
    assert kinds == ["system", "assistant", "user", "assistant", "result"]
    assert done.lines[0]["subtype"] == "init"
    assert done.lines[0]["cwd"] == str(work)
    assert "read_file" in done.lines[0]["tools"]


@pytest.mark.spec("CLI-4", "CLI-5")
def test_partial_messages_come_on_request(work: Path) -> None:
    args = ("run", "-o", "stream-json", "--include-partial-messages", "hi")
    with ModelServer([say("a longer answer than one piece")]) as server:
        done = run_agent(*args, env=agent_env(server), cwd=work)
    assert [line["type"] for line in done.lines].count("stream_event") > 2


@pytest.mark.spec("CLI-5")
def test_each_line_is_there_before_the_next_step(work: Path) -> None:
    with ModelServer([READ, say("never", stall_at="start")]) as server:
        env = agent_env(server)
        with spawn_agent("run", "-o", "stream-json", "hi", env=env, cwd=work) as running:
            running.wait_for(lambda line: line["type"] == "user")
            running.signal(signal.SIGINT)
            assert running.wait().code == 130


# --- how it ends (CLI-5, CLI-6) ------------------------------------------------------------


def ended(
    args: tuple[str, ...], server: ModelServer, work: Path, **env: str | None
) -> tuple[int, dict[str, Any], str]:
    """Exit code, result and stderr of a run with stream-json; checks that the result is one."""
    done = run_agent("run", "-o", "stream-json", *args, env=agent_env(server, **env), cwd=work)
    lines = done.lines
    assert [line["type"] for line in lines].count("result") == 1, done
    assert lines[-1]["type"] == "result"
    assert "Traceback" not in done.stderr
    assert lines[-1]["is_error"] == (lines[-1]["subtype"] != "success")
    return done.code, lines[-1], done.stderr


FAULT_AT_THE_END = """
from agentcli.app.session import Session
from agentcli.cli.main import run_app

close = Session.aclose

async def fail(self):
    await close(self)
    raise RuntimeError("it broke")

Session.aclose = fail
run_app()
"""


@pytest.mark.spec("CLI-5", "CLI-6")
def test_a_fault_after_the_result_makes_no_second_one(work: Path) -> None:
    with ModelServer([say("fine")]) as server:
        done = subprocess.run(
            [sys.executable, "-c", FAULT_AT_THE_END, "run", "-o", "stream-json", "hi"],
            capture_output=True, text=True, env=agent_env(server), cwd=work, check=False,
        )  # fmt: skip
    kinds = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert (done.returncode, kinds) == (1, ["system", "assistant", "result"]), done.stderr
    assert "error: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.spec("CLI-5", "CLI-6")
@pytest.mark.parametrize(
    ("script", "args", "code", "subtype"),
    [
        ([say("fine")], (), 0, "success"),
        ([READ, READ, READ], ("--max-turns", "2"), 3, "error_max_turns"),
        ([READ, READ], ("--max-budget-usd", "0.0001"), 3, "error_max_budget_usd"),
        ([say("x", stall_at="start")], ("--timeout", "0.5"), 3, "error_timeout"),
        ([fails(401)], (), 78, "error_during_execution"),
        ([fails(400)], (), 1, "error_during_execution"),
    ],
    ids=["done", "turns", "budget", "timeout", "auth", "refused"],
)
def test_every_ending_has_its_result_and_its_code(
    script: list[Any], args: tuple[str, ...], code: int, subtype: str, work: Path
) -> None:
    for number, reply in enumerate(script):
        for block in getattr(reply, "blocks", ()):
            if isinstance(block, Call):
                object.__setattr__(block, "id", f"toolu_{number}")
    with ModelServer(script, strict=False) as server:
        found, result, stderr = ended((*args, "go"), server, work)
    assert (found, result["subtype"]) == (code, subtype), (result, stderr)


@pytest.mark.spec("CLI-5", "CLI-6")
@pytest.mark.parametrize(
    ("args", "env", "code"),
    [
        (("-m", "nonsense/model", "hi"), {}, 78),
        (("-m", "no-such-model", "hi"), {}, 78),
        (("--fallback-model", "nonsense/model", "hi"), {}, 78),
        (("hi",), {"ANTHROPIC_API_KEY": None}, 78),
        (("hi",), {"AGENTCLI_MODEL": "openai/x", "OPENAI_BASE_URL": "not a url"}, 78),
        (("--session", "nothing", "hi"), {}, 2),
        (("--continue", "hi"), {}, 2),
        (("--allow-tool", "bash(", "hi"), {}, 2),
        ((), {}, 2),
        (("--max-turns", "many", "hi"), {}, 2),
        (("--timeout", "soon", "hi"), {}, 2),
        (("--effort", "extreme", "hi"), {}, 2),
        (("--plan", "--yolo", "hi"), {}, 2),
        (("--resume",), {}, 2),
        (("--session", "", "hi"), {}, 2),
    ],
    ids=[
        "provider", "model", "fallback", "key", "address", "session", "continue", "rule", "prompt",
        "turns", "timeout", "effort", "modes", "resume", "no-session-id",
    ],
)  # fmt: skip
def test_a_run_that_cannot_start_has_its_result_too(
    args: tuple[str, ...], env: dict[str, str | None], code: int, work: Path
) -> None:
    with ModelServer(["never"]) as server:
        found, result, stderr = ended(args, server, work, **env)
        assert not server.requests
    assert (found, result["subtype"]) == (code, "error_during_execution"), (result, stderr)
    assert len(stderr.splitlines()) == 1
    assert " - " in stderr


@pytest.mark.spec("CLI-5", "CLI-6", "CAN-13")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("output", FORMATS)
def test_a_signal_cancels_commits_and_ends_with_its_code(
    number: int, code: int, output: str, work: Path
) -> None:
    with ModelServer([say("a text that is cut", stall_at="text")]) as server:
        env = agent_env(server)
        with spawn_agent("run", "-o", output, "hi", env=env, cwd=work) as running:
            server.wait_until_waiting()
            running.signal(number)
            done = running.wait()
    assert done.code == code, done
    assert "Traceback" not in done.stderr
    if output == "text":
        assert done.stdout == ""
    else:
        result = last_line(done.stdout)
        assert (result["type"], result["subtype"]) == ("result", "cancelled")
        assert done.stdout.count('"type":"result"') == 1
    listed = json.loads(run_agent("sessions", "list", "--format", "json").stdout)
    assert [entry["state"] for entry in listed] == ["cancelled"]


@pytest.mark.spec("CLI-5", "CLI-6", "OPS-1")
def test_a_second_signal_makes_no_second_result_and_ends_a_write_that_nobody_reads(
    work: Path,
) -> None:
    full, fill = os.pipe()
    os.set_blocking(fill, False)
    with suppress(BlockingIOError):
        while True:
            os.write(fill, b"x" * 4096)
    os.set_blocking(fill, True)
    os.mkfifo(schema := work / "schema")
    process = subprocess.Popen(
        [*AGENT, "run", "-o", "stream-json", "--json-schema", str(schema), "hi"],
        env=agent_env(), cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=fill,
    )  # fmt: skip
    os.close(fill)
    held = os.open(schema, os.O_WRONLY)  # returns when the run reads it
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=8)
    os.close(held)
    os.close(full)
    assert (json.loads(first)["subtype"], rest, process.returncode) == ("cancelled", b"", 143)


@pytest.mark.spec("CAN-13")
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(work: Path) -> None:
    import threading

    go = threading.Event()
    with ModelServer([say("fine", hold=go)]) as server:
        process = subprocess.Popen(
            ["bash", "-c", f"trap '' HUP; exec {' '.join(AGENT)} run hi"],
            env=agent_env(server),
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        server.wait_until_waiting()
        process.send_signal(signal.SIGHUP)
        go.set()
        out, _ = process.communicate(timeout=15)
    assert (process.returncode, out) == (0, "fine\n")


@pytest.mark.slow
@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("output", FORMATS)
def test_a_reader_that_leaves_ends_the_run_quietly(output: str, work: Path) -> None:
    with ModelServer([READ, say("word " * 50_000)]) as server:
        read_end, write_end = os.pipe()
        process = subprocess.Popen(
            [*AGENT, "run", "-o", output, "hi"],
            env=agent_env(server),
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(write_end)
        os.close(read_end)
        _, err = process.communicate(timeout=15)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "Broken" not in err


# --- approvals without a terminal (CLI-7) --------------------------------------------------


@pytest.mark.spec("CLI-6", "CLI-7")
def test_an_approval_that_nobody_can_give_is_refused_at_once_and_told(work: Path) -> None:
    several = calls(
        Call("bash", {"command": "touch made"}, "toolu_1"),
        Call("read_file", {"path": "note.txt"}, "toolu_2"),
    )
    with ModelServer([several, say("I could not.")]) as server:
        code, result, stderr = ended(("make it",), server, work)
        sent = json.dumps(server.requests[1].body["messages"][-1])
    assert code == 4
    assert result["subtype"] == "error_approval_needed"
    assert [d["tool_name"] for d in result["permission_denials"]] == ["bash"]
    assert "--allow-tool" in sent
    assert "nobody could give it" in stderr
    assert not (work / "made").exists()


@pytest.mark.sampled
@pytest.mark.spec("CLI-3", "CLI-7")
@pytest.mark.parametrize("flag", [("--allow-tool", "bash(touch *)"), ("--yolo",), ("-y",)])
def test_the_flag_that_it_names_allows_it(flag: tuple[str, ...], work: Path) -> None:
    with ModelServer([call("bash", {"command": "touch made"}), say("made")]) as server:
        done = run_agent("run", *flag, "make it", env=agent_env(server), cwd=work)
    assert (done.code, done.stdout) == (0, "made\n"), done
    assert (work / "made").exists()


# --- sessions ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("REC-4", "CLI-3")
def test_one_shot_resumes_only_when_asked(work: Path) -> None:
    with ModelServer(default=say("ok")) as server:
        env = agent_env(server)
        first = run_agent("run", "-o", "json", "first", env=env, cwd=work).result["session_id"]
        second = run_agent("run", "-o", "json", "second", env=env, cwd=work).result["session_id"]
        assert first != second
        by_id = run_agent("run", "-o", "json", "--session", first, "third", env=env, cwd=work)
        assert by_id.result["session_id"] == first
        newest = run_agent("run", "-o", "json", "-c", "fourth", env=env, cwd=work)
        assert newest.result["session_id"] == first


@pytest.mark.slow
@pytest.mark.spec("CLI-3")
def test_a_fork_goes_on_in_a_copy(work: Path) -> None:
    with ModelServer(default=say("ok")) as server:
        env = agent_env(server)
        first = run_agent("run", "-o", "json", "first", env=env, cwd=work).result["session_id"]
        forked = run_agent("run", "-o", "json", "-c", "--fork", "second", env=env, cwd=work)
        assert forked.result["session_id"] != first
        assert len(server.requests[-1].body["messages"]) == 3
        again = run_agent("run", "-o", "json", "--session", first, "third", env=env, cwd=work)
        assert again.code == 0
        assert len(server.requests[-1].body["messages"]) == 3


@pytest.mark.spec("CLI-3")
def test_without_a_session_nothing_stays_on_disk(work: Path, home: Path) -> None:
    with ModelServer(["fine"]) as server:
        done = run_agent("run", "--no-session", "hi", env=agent_env(server), cwd=work)
    assert done.code == 0
    assert not list(home.rglob("*.db"))


@pytest.mark.spec("CLI-3")
def test_the_working_directory_and_the_prompts_can_be_set(work: Path, tmp_path: Path) -> None:
    inner = work / "inner"
    inner.mkdir()
    args = ("-C", "inner", "--system-prompt", "Be a bird.", "--append-system-prompt", "Sing.")
    with ModelServer([call("bash", {"command": "pwd"}), say("ok")]) as server:
        done = run_agent("run", *args, "--yolo", "hi", env=agent_env(server), cwd=work)
        assert done.code == 0, done
        system = json.dumps(server.requests[0].body["system"])
        assert "Be a bird." in system
        assert "Sing." in system
        assert str(inner) in json.dumps(server.requests[1].body["messages"][-1])


@pytest.mark.spec("CLI-10")
def test_the_offline_default_says_what_it_is_whatever_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    done = run_agent("run", "read a.txt", cwd=tmp_path)
    assert done.code == 0
    assert "alpha" in done.stdout
    assert "No model yet: answers come from a small offline demo." in done.stderr
    assert "agent auth login" in done.stderr
