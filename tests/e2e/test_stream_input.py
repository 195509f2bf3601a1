"""Many turns over stdin: ``agent run --input-format stream-json`` (CLI-4, CLI-5, CLI-6)."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcli.headless import stream_json
from agentcli.headless.stream_input import MAX_LINE_BYTES
from agentcli.headless.stream_run import MAX_WAITING
from tests.e2e.one_shot import RESULT_FIELDS
from tests.e2e.stream_client import ARGS, Client, control, message
from tests.support.cli import AGENT, Finished, agent_env, run_agent
from tests.support.databases import opened
from tests.support.model_server import ModelServer
from tests.support.replies import Call, call, calls, fails, say
from tests.support.sandboxes import needs
from tests.support.wire_facts import facts_of
from tests.ui.schema_check import problems

pytestmark = pytest.mark.slow
SCHEMA = json.loads((Path(stream_json.__file__).parent / "stream_json.schema.json").read_text())
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def told(done: Finished, *subtypes: str) -> list[dict[str, Any]]:
    """The results, which are ``subtypes``; every line is in the schema, the last is a result."""
    for line in done.lines:
        assert problems(line, SCHEMA, SCHEMA) == [], line
    found = [line for line in done.lines if line["type"] == "result"]
    assert [line["subtype"] for line in found] == list(subtypes), done
    assert not found or done.lines[-1] == found[-1]
    assert all(set(line) >= RESULT_FIELDS for line in found)
    assert "Traceback" not in done.stderr
    return found


def prompts(server: ModelServer) -> list[str]:
    return facts_of(server.requests[-1]).prompts


@pytest.mark.spec("CLI-4", "CLI-5")
def test_each_message_has_a_turn_and_a_result_in_order(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("One.", "Two.", "Three.")
    lines = "\n".join(json.dumps(message(text)) for text in ("first", "second", "third"))
    done = run_agent(*ARGS, input=lines, env=agent_env(model_server), cwd=tmp_path)
    assert done.code == 0, done
    results = told(done, "success", "success", "success")
    assert [result["result"] for result in results] == ["One.", "Two.", "Three."]
    assert len({result["session_id"] for result in results}) == 1
    assert [line["type"] for line in done.lines] == ["system", *["assistant", "result"] * 3]
    assert prompts(model_server) == ["first", "second", "third"]


@pytest.mark.spec("CLI-4", "CTRL-1", "UI-3")
def test_what_comes_while_a_turn_runs_waits_durably_and_is_answered_next(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(call("bash", {"command": "cat fifo"}), "One.", "Two.")
    os.mkfifo(tmp_path / "fifo")
    with Client(model_server, tmp_path, "--yolo") as client:
        client.say("first")
        client.wait_for(lambda line: line["type"] == "assistant")
        client.say("second")
        client.ask("mcp_status")
        session_id = client.events()[0]["session_id"]
        waiting = queued(tmp_path, session_id)
        (tmp_path / "fifo").write_text("go\n")
        done = client.finish()
    assert waiting == ["second"]
    assert done.code == 0, done
    assert [result["result"] for result in told(done, "success", "success")] == ["One.", "Two."]
    assert prompts(model_server) == ["first", "second"]
    assert queued(tmp_path, session_id) == []


def queued(work: Path, session_id: str) -> list[str]:
    """What waits in the session's file, read from outside."""
    path = Path(os.environ["AGENTCLI_HOME"]) / "sessions" / f"{session_id}.db"
    with opened(path) as db:
        rows = db.execute("SELECT body FROM input_queue WHERE state = 'queued'").fetchall()
    db.close()
    return [row[0] for row in rows]


@pytest.mark.spec("CLI-4", "CAN-4", "CAN-13")
def test_an_interrupt_cancels_the_running_turn_and_the_next_message_is_answered(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(say("cut here", stall_at="text"), "Two.")
    with Client(model_server, tmp_path) as client:
        client.say("first")
        model_server.wait_until_waiting()
        client.say("second")
        answer = client.ask("interrupt")
        assert answer["subtype"] == "success"
        client.results(2)
        done = client.finish()
    assert done.code == 0, done
    first, _ = told(done, "cancelled", "success")
    assert first["is_error"] and first["terminal_reason"] == "interrupted"
    assert prompts(model_server) == ["first", "second"]
    assert "cut here" not in json.dumps(model_server.requests[-1].body)


@pytest.mark.spec("CLI-4", "CLI-6")
def test_an_interrupt_right_behind_a_message_meets_its_turn_and_the_code_is_that_of_ctrl_c(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.default = say("never", stall_at="start")
    lines = [message("first"), control("r1", "interrupt")]
    text = "\n".join(json.dumps(line) for line in lines)
    done = run_agent(*ARGS, input=text, env=agent_env(model_server), cwd=tmp_path)
    assert done.code == 130, done
    told(done, "cancelled")
    again = run_agent("sessions", "list", "--format", "json", env=agent_env())
    assert [entry["state"] for entry in json.loads(again.stdout)] == ["cancelled"]


@pytest.mark.spec("CLI-4", "SEC-13")
def test_malformed_lines_are_told_and_skipped(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add("One.", "Two.")
    lines = [
        "oops",
        json.dumps(message("first")),
        "x" * (MAX_LINE_BYTES + 10),
        '{"type":"user","message":{"role":"user","content":[{"type":"document"}]}}',
        json.dumps(message("second")),
    ]
    done = run_agent(*ARGS, input="\n".join(lines), env=agent_env(model_server), cwd=tmp_path)
    assert done.code == 0, done
    told(done, "success", "success")
    errors = [line for line in done.lines if line.get("subtype") == "input_error"]
    assert [error["line"] for error in errors] == [1, 3, 4]
    assert len(done.stderr.splitlines()) == 3
    assert prompts(model_server) == ["first", "second"]


@pytest.mark.spec("CLI-4")
def test_images_are_sent_and_messages_can_be_replayed(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("A pixel.")
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}]
    line = json.dumps(message(content, uuid="mine"))
    args = (*ARGS, "--replay-user-messages")
    done = run_agent(*args, input=line, env=agent_env(model_server), cwd=tmp_path)
    assert done.code == 0, done
    told(done, "success")
    (replayed,) = [line for line in done.lines if line.get("isReplay")]
    assert replayed["uuid"] == "mine" and replayed["message"]["content"] == content
    sent = model_server.requests[0].body["messages"][-1]["content"]
    assert base64.b64decode(sent[-1]["source"]["data"]) == base64.b64decode(PIXEL)


@pytest.mark.spec("CLI-4", "CLI-6")
def test_a_turn_that_fails_does_not_end_the_run_and_the_last_turn_gives_the_code(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(fails(400), "Two.", fails(401))
    lines = "\n".join(json.dumps(message(text)) for text in ("a", "b", "c"))
    done = run_agent(*ARGS, input=lines, env=agent_env(model_server), cwd=tmp_path)
    assert done.code == 78, done
    told(done, "error_during_execution", "success", "error_during_execution")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.spec("CLI-5", "CLI-6", "CAN-13")
@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_one_result_for_each_turn(
    model_server: ModelServer, tmp_path: Path, number: int, code: int, busy: bool
) -> None:
    model_server.add("One.", say("x", stall_at="start"))
    with Client(model_server, tmp_path) as client:
        client.say("first")
        client.results(1)
        if busy:
            client.say("second")
            model_server.wait_until_waiting(2)
            client.say("third")
            client.ask("mcp_status")
        client.signal(number)
        done = client.wait()
    assert done.code == code, done
    told(done, "success", *(["cancelled"] if busy else []))
    if busy:  # what was not answered is not lost
        assert queued(tmp_path, done.lines[0]["session_id"]) == ["third"]


@pytest.mark.spec("CLI-4", "CLI-5", "CLI-6")
def test_a_timeout_ends_the_run_also_where_nobody_says_anything(tmp_path: Path) -> None:
    with ModelServer() as server, Client(server, tmp_path, "--timeout", "0.3") as client:
        done = client.wait()
    assert done.code == 3, done
    told(done, "error_timeout")


@pytest.mark.spec("CLI-2", "CLI-4", "CLI-5", "CLI-6")
def test_stdin_without_a_message_is_a_usage_error_with_a_result(
    model_server: ModelServer, tmp_path: Path
) -> None:
    lines = json.dumps(control("r1", "initialize", hooks=None))
    done = run_agent(*ARGS, input=lines, env=agent_env(model_server), cwd=tmp_path)
    assert done.code == 2, done
    told(done, "error_during_execution")
    assert done.stderr.startswith("error: no message came")


@pytest.mark.spec("CLI-4")
def test_words_of_the_command_line_are_the_first_message(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("One.", "Two.")
    args = (*ARGS, "first", "of all")
    done = run_agent(
        *args, input=json.dumps(message("then")), env=agent_env(model_server), cwd=tmp_path
    )
    told(done, "success", "success")
    assert prompts(model_server) == ["first of all", "then"]


@pytest.mark.spec("CLI-4", "SEC-3")
def test_mode_and_model_can_be_changed_and_wrong_requests_are_refused(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("One.", call("bash", {"command": "touch made"}), "Two.")
    with Client(model_server, tmp_path) as client:
        initialized = client.ask("initialize", hooks=None)
        assert initialized["response"]["models"][0]["value"] == "anthropic/claude-sonnet-4-5"
        assert client.ask("initialize", hooks={"PreToolUse": []})["subtype"] == "error"
        assert "nonsense" in client.ask("set_model", model="nonsense/x")["error"]
        assert client.ask("set_model", model="openai/gpt-4.1")["subtype"] == "success"
        client.say("first")
        client.results(1)
        assert client.ask("set_permission_mode", mode="king")["subtype"] == "error"
        assert client.ask("set_permission_mode", mode="bypassPermissions")["subtype"] == "success"
        assert "not supported" in client.ask("rewind_files")["error"]
        client.say("make it")
        client.results(2)
        done = client.finish()
    told(done, "success", "success")
    assert model_server.requests[0].body["model"] == "gpt-4.1"
    assert (tmp_path / "made").exists()


@pytest.mark.spec("CLI-4", "SEC-13")
def test_more_messages_than_may_wait_are_all_answered_and_a_reader_may_leave(
    tmp_path: Path,
) -> None:
    env = agent_env(None, AGENTCLI_MODEL="offline")
    lines = "\n".join(json.dumps(message("hello")) for _ in range(MAX_WAITING + 20))
    done = run_agent(*ARGS, input=lines, env=env, cwd=tmp_path)
    assert done.code == 0, done.stderr
    told(done, *["success"] * (MAX_WAITING + 20))
    first = subprocess.run(
        ["/bin/bash", "-c", f"{shlex.join((*AGENT, *ARGS))} | head -1; exit ${{PIPESTATUS[0]}}"],
        input=lines.encode(),
        env=env,
        cwd=tmp_path,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (first.returncode, first.stdout.count(b"\n"), first.stderr) == (0, 1, b"")


@pytest.mark.spec("CLI-5", "CLI-6")
@pytest.mark.parametrize(
    ("broken", "subtypes"),
    [
        ("import agentcli.headless.stream_run as m; m.StreamRun._said = crash", ["error_during_execution"]),
        ("import agentcli.headless.stream_run as m; m.StreamRun._turn = crash", ["error_during_execution"]),
        ("import agentcli.engine.ask as m; m.Requests.ask = crash", ["error_during_execution"] * 2),
    ],
)  # fmt: skip
def test_a_bug_of_ours_ends_with_a_result_too(
    broken: str, subtypes: list[str], tmp_path: Path
) -> None:
    program = (
        "import sys\n"
        "async def crash(*given): raise RuntimeError('a bug of ours')\n"
        f"{broken}\n"
        "from agentcli.cli.entry import main\n"
        "main()\n"
    )
    lines = "\n".join(json.dumps(message(text)) for text in ("a", "b"))
    done = subprocess.run(
        [sys.executable, "-c", program, *ARGS],
        input=lines,
        env=agent_env(None, AGENTCLI_MODEL="offline"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    found = told(Finished((), done.returncode, done.stdout, done.stderr), *subtypes)
    assert done.returncode == 1
    assert "a bug of ours" in found[-1]["result"]
    assert len(done.stderr.splitlines()) == len(subtypes)


# --- approvals (CLI-7) --------------------------------------------------------------------------


def asked(client: Client, count: int = 1) -> dict[str, Any]:
    """The request for approval number ``count``."""
    client.wait_for(lambda _: len(requests_of(client)) >= count)
    return requests_of(client)[count - 1]


def requests_of(client: Client) -> list[dict[str, Any]]:
    return [event for event in client.events() if event["type"] == "control_request"]


def answer(request: dict[str, Any], **response: Any) -> dict[str, Any]:
    inner = {"subtype": "success", "request_id": request["request_id"], "response": response}
    return {"type": "control_response", "response": inner}


@pytest.mark.spec("CLI-4", "CLI-7", "SEC-3")
def test_the_program_on_stdin_can_be_asked_for_approvals(
    model_server: ModelServer, tmp_path: Path
) -> None:
    touch = [call("bash", {"command": f"touch {name}"}, id=f"toolu_{name}") for name in "abcd"]
    model_server.add(*touch, "Done.")
    with Client(model_server, tmp_path, "--permission-prompt-tool", "stdio") as client:
        client.say("go")
        first = asked(client)
        assert first["request"]["tool_name"] == "bash"
        assert first["request"]["input"] == {"command": "touch a"}
        client.send(answer(first, behavior="allow", updatedInput={"command": "touch a"}))
        second = asked(client, 2)
        client.send(answer(second, behavior="deny", message="not that one"))
        third = asked(client, 3)
        client.send(answer(third, behavior="allow", updatedInput={"command": "touch x"}))
        fourth = asked(client, 4)
        updates = fourth["request"]["permission_suggestions"]
        client.send(answer(fourth, behavior="allow", updatedPermissions=updates))
        client.results(1)
        done = client.finish()
    assert done.code == 0, done
    (result,) = told(done, "success")
    assert [denied["tool_use_id"] for denied in result["permission_denials"]] == [
        "toolu_b",
        "toolu_c",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "d"]
    assert "not that one" in json.dumps(model_server.requests[2].body["messages"][-1])


@pytest.mark.spec("CLI-4", "CLI-7")
@pytest.mark.parametrize(
    ("answers", "first"), [(True, "success"), (False, "error_approval_needed")]
)
def test_an_answer_or_the_end_is_heard_behind_more_messages_than_may_wait(
    first: str, model_server: ModelServer, tmp_path: Path, *, answers: bool
) -> None:
    model_server.add(call("bash", {"command": "touch made"}))
    model_server.default = "Done."
    with Client(model_server, tmp_path, "--permission-prompt-tool", "stdio") as client:
        client.say(*["go"] * (MAX_WAITING + 3))
        question = asked(client)
        if answers:
            client.send(answer(question, behavior="allow"))
            client.results(1)
        done = client.finish()
    told(done, first, *["success"] * (MAX_WAITING + 2))
    assert (tmp_path / "made").exists() is answers


@pytest.mark.spec("CLI-4", "SEC-7")
def test_the_program_is_told_what_would_leave_the_sandbox(
    model_server: ModelServer, tmp_path: Path
) -> None:
    needs("bwrap")
    model_server.add(call("bash", {"command": "echo layout > .envrc"}), "Done.")
    options = ("--permission-prompt-tool", "stdio", "--permission-mode", "auto")
    with Client(model_server, tmp_path, *options) as client:
        client.say("go")
        first = asked(client)
        wanted = {"command": "echo layout > .envrc", "access": "outside"}
        assert first["request"]["input"] == wanted
        client.send(answer(first, behavior="allow", updatedInput=wanted))
        client.results(1)
        done = client.finish()
    assert done.code == 0, done
    assert (tmp_path / ".envrc").read_text() == "layout\n"


@pytest.mark.spec("SEC-3", "SEC-14")
@pytest.mark.parametrize("sandbox", ["bwrap", "landlock", "auto"])
def test_a_call_is_judged_in_the_mode_that_is_in_force_when_it_is_its_turn(
    model_server: ModelServer, tmp_path: Path, sandbox: str
) -> None:
    """A mode that is switched while the calls of one reply run says where they run, too."""
    needs("bwrap" if sandbox == "auto" else sandbox)
    work, other = tmp_path / "work", tmp_path / "other"
    (work / "sub").mkdir(parents=True)
    other.write_text("alpha")
    read = Call("read_file", {"path": str(other)})
    crossing = Call("write_file", {"path": str(other), "content": "beta"})
    # another directory than that of the shell outside, whose workspace it would empty
    destroying = Call("bash", {"command": "rm -rf ./*"})
    second = destroying if sandbox == "auto" else crossing
    if sandbox == "auto":
        model_server.add(call("bash", {"command": "cd sub"}))
    model_server.add(calls(read, second), "Done.")
    options = ("--permission-prompt-tool", "stdio", "--sandbox", sandbox)
    with Client(model_server, work, *options) as client:
        client.say("go")
        first = asked(client)
        assert first["request"]["tool_name"] == "read_file"
        assert client.ask("set_permission_mode", mode="yolo")["subtype"] == "success"
        client.send(answer(first, behavior="allow"))
        if sandbox == "auto":
            assert asked(client, 2)["request"]["input"] == {"command": "rm -rf ./*"}
            client.send(answer(asked(client, 2), behavior="deny", message="no"))
        (result,) = client.results(1)
        client.finish()
    # what was allowed in the mode before would cross the sandbox that was named, too
    assert len(result["permission_denials"]) == (1 if sandbox == "auto" else 2), result
    assert (work / "sub").is_dir() and other.read_text() == "alpha"


@pytest.mark.spec("CLI-4", "CAN-9")
@pytest.mark.parametrize("how", ["interrupt", "deny", "eof"])
def test_a_question_ends_with_its_turn_or_with_stdin(
    model_server: ModelServer, tmp_path: Path, how: str
) -> None:
    model_server.add(call("bash", {"command": "touch made"}), "I may not.")
    with Client(model_server, tmp_path, "--permission-prompt-tool", "stdio") as client:
        client.say("go")
        request = asked(client)
        if how == "interrupt":
            client.ask("interrupt")
        elif how == "deny":
            client.send(answer(request, behavior="deny", message="no", interrupt=True))
        done = client.finish()
    taken_back = [e for e in done.lines if e["type"] == "control_cancel_request"]
    if how == "eof":
        assert done.code == 4, done
        told(done, "error_approval_needed")
    else:
        assert done.code == 130, done
        told(done, "cancelled")
    assert [e["request_id"] for e in taken_back] == (
        [request["request_id"]] if how == "interrupt" else []
    )
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("CLI-4", "CLI-11")
@pytest.mark.parametrize(
    ("args", "advice"),
    [
        (("--input-format", "stream-json"), "--output-format stream-json"),
        (("--input-format", "stream-json", "-o", "json"), "--output-format stream-json"),
        (("--input-format", "yaml"), "one of: text, stream-json"),
        (("--replay-user-messages", "x"), "--input-format stream-json"),
        (("--permission-prompt-tool", "stdio", "x"), "--input-format stream-json"),
        ((*ARGS[1:], "--permission-prompt-tool", "mcp__x"), "one of: stdio"),
    ],
)
def test_what_does_not_go_together_is_one_line_with_advice(
    args: tuple[str, ...], advice: str
) -> None:
    done = run_agent("run", *args, env=agent_env())
    assert done.code == 2
    (line,) = done.stderr.splitlines()
    assert advice in line
