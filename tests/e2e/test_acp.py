"""Editors: ``agent acp`` over real pipes against the loopback model server (ACP-1, ACP-2)."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.acp_client import Editor
from tests.support.cli import KEY, run_agent
from tests.support.databases import opened
from tests.support.model_server import ModelServer
from tests.support.replies import Call, call, calls, fails, say
from tests.support.sandboxes import BOTH, needs
from tests.support.wire_facts import facts_of

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
UNKNOWN = "00000000-0000-7000-8000-000000000000"


def prompts(server: ModelServer) -> list[str]:
    return facts_of(server.requests[-1]).prompts


@pytest.mark.spec("ACP-1", "ACP-2")
def test_a_prompt_streams_edits_asks_and_ends(model_server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    edit = {"path": "a.txt", "old_string": "two", "new_string": "2"}
    todos = {"todos": [{"content": "edit", "status": "in_progress"}]}
    model_server.add(
        calls(Call("write_todos", todos), Call("read_file", {"path": "a.txt"}), thinking="Hm."),
        call("edit_file", edit),
        call("bash", {"command": "printf 'a\\nb\\n'; touch made"}),
        say("It is done."),
    )
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        asked = editor.ask(session_id, "Edit it.")
        permission = editor.choose("once")["params"]
        editor.choose("once")
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        assert editor.leave() == 0
    assert (tmp_path / "a.txt").read_text() == "one\n2\n"
    assert permission["sessionId"] == session_id
    diff = {
        "type": "diff",
        "path": f"{tmp_path}/a.txt",
        "oldText": "one\ntwo\n",
        "newText": "one\n2\n",
    }
    assert permission["toolCall"]["content"][0] == diff
    kinds = {each["optionId"]: each["kind"] for each in permission["options"]}
    assert kinds["once"] == "allow_once" and kinds["reject"] == "reject_once"
    assert "allow_always" in kinds.values()
    assert editor.said() == "It is done." and "Hm." in editor.said("agent_thought_chunk")
    (plan,) = editor.updates("plan")
    assert plan["entries"] == [{"content": "edit", "priority": "medium", "status": "in_progress"}]
    started = {each["kind"]: each for each in editor.updates("tool_call")}
    assert set(started) == {"read", "edit", "execute"}
    assert started["edit"]["locations"] == [{"path": f"{tmp_path}/a.txt"}]
    assert started["edit"]["rawInput"] == edit
    edited = _statuses(editor, started["edit"]["toolCallId"])
    assert [each.get("status") for each in edited] == ["in_progress", "completed"]
    assert edited[-1]["content"] == [diff]
    ran = _statuses(editor, started["execute"]["toolCallId"])[-1]
    assert ran["status"] == "completed" and "a\nb" in ran["content"][0]["content"]["text"]
    assert editor.updates("usage_update")[-1]["size"] == 200_000
    assert editor.updates("session_info_update")[-1]["title"] == "Edit it."
    last = editor.events()[-1]
    assert last["id"] == asked, "everything was told before the prompt was answered"


def _statuses(editor: Editor, call_id: str) -> list[dict[str, Any]]:
    told = editor.updates("tool_call_update")
    return [each for each in told if each["toolCallId"] == call_id]


@pytest.mark.spec("ACP-1", "ACP-2")
def test_initialize_offers_what_works_and_stdout_has_the_protocol_only(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be kind.")
    with Editor(None, tmp_path, capabilities=None) as editor:
        refused = editor.error("session/new", cwd=str(tmp_path), mcpServers=[])
        assert refused["code"] == -32600
        first = editor.call("initialize", protocolVersion=65535, clientCapabilities={})
        assert editor.error("_some/thing")["code"] == -32601
        assert editor.error("session/prompt", sessionId=UNKNOWN, prompt=[])["code"] == -32002
        session_id = editor.new()
        assert editor.prompt(session_id, "hello é中文 \U0001f600") == "end_turn"
        editor.notify("session/cancel", sessionId=session_id)
        editor.notify("session/cancel", sessionId="no such")
        assert editor.new() != session_id
        assert editor.leave() == 0
    assert first["protocolVersion"] == 1
    assert first["agentInfo"]["name"] == "agentcli" and first["agentInfo"]["version"]
    able = first["agentCapabilities"]
    assert able["loadSession"] and able["promptCapabilities"]["image"]
    assert able["mcpCapabilities"] == {"http": True, "sse": True}
    assert set(able["sessionCapabilities"]) >= {"list", "resume", "close", "delete"}
    assert all(each.get("type") != "terminal" for each in first["authMethods"])
    assert all(line["jsonrpc"] == "2.0" for line in editor.events())


@pytest.mark.spec("ACP-1", "CAN-4")
def test_a_cancel_ends_the_turn_and_what_waits_behind_it(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(say("cut here", stall_at="text"), "Two.")
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        first = editor.ask(session_id, "first")
        model_server.wait_until_waiting()
        second = editor.ask(session_id, "second")
        third = editor.ask(session_id, {"type": "text", "text": "third"}, _image())
        editor.notify("session/cancel", sessionId=session_id)
        answers = [editor.response(number) for number in (first, second, third)]
        assert [each["result"]["stopReason"] for each in answers] == ["cancelled"] * 3
        assert editor.prompt(session_id, "fourth") == "end_turn"
        assert editor.leave() == 0
    assert prompts(model_server) == ["first", "fourth"]
    assert "cut here" not in json.dumps(model_server.requests[-1].body)


def _image() -> dict[str, Any]:
    return {"type": "image", "mimeType": "image/png", "data": PIXEL}


@pytest.mark.spec("ACP-1", "CAN-9")
def test_a_cancel_right_behind_its_prompt_and_one_at_a_permission_meet_it(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(call("bash", {"command": "touch made"}), "Two.")
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        text = {"type": "text", "text": "never sent"}
        prompt = {"sessionId": session_id, "prompt": [text]}
        editor.send(
            {"id": "p", "method": "session/prompt", "params": prompt},
            {"method": "session/cancel", "params": {"sessionId": session_id}},
        )
        assert editor.response("p")["result"] == {"stopReason": "cancelled"}
        asked = editor.ask(session_id, "first")
        request = editor.asked("session/request_permission")
        editor.notify("session/cancel", sessionId=session_id)
        assert editor.response(asked)["result"] == {"stopReason": "cancelled"}
        given_up = editor.wait_for(lambda line: line.get("method") == "$/cancel_request")
        assert given_up["params"] == {"requestId": request["id"]}
        editor.reply(request, {"outcome": {"outcome": "cancelled"}})
        assert editor.prompt(session_id, "second") == "end_turn"
        assert editor.leave() == 0
    assert not (tmp_path / "made").exists()
    (started,) = editor.updates("tool_call")
    assert _statuses(editor, started["toolCallId"])[-1]["status"] == "failed"


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "CTRL-1")
def test_a_prompt_that_comes_while_a_turn_runs_steers_it_and_is_answered_with_it(
    model_server: ModelServer, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    model_server.add(call("bash", {"command": "cat fifo"}), "Both.")
    with Editor(model_server, tmp_path, "--yolo") as editor:
        session_id = editor.new()
        first = editor.ask(session_id, "first")
        editor.wait_for(lambda line: '"in_progress"' in json.dumps(line))
        second = editor.ask(session_id, "second")
        _wait_until_queued(session_id, "second")
        (tmp_path / "fifo").write_text("go\n")
        assert editor.response(first)["result"] == {"stopReason": "end_turn"}
        assert editor.response(second)["result"] == {"stopReason": "end_turn"}
        assert editor.leave() == 0
    assert len(model_server.requests) == 2
    assert prompts(model_server) == ["first", "second"]


@pytest.mark.spec("ACP-1", "CAN-9")
def test_a_session_whose_close_is_given_up_is_closed_and_can_be_taken_up(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(say("cut here", stall_at="text"))
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        asked = editor.ask(session_id, "first")
        model_server.wait_until_waiting()
        editor.send(
            {"id": "c", "method": "session/close", "params": {"sessionId": session_id}},
            {"method": "$/cancel_request", "params": {"requestId": "c"}},
        )
        assert editor.response("c") and editor.response(asked)["result"]
        editor.call("session/load", sessionId=session_id, cwd=str(tmp_path), mcpServers=[])
        assert editor.leave() == 0


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "CTRL-1")
def test_a_prompt_that_steered_a_turn_which_fails_is_answered_with_its_error(
    model_server: ModelServer, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    model_server.add(call("bash", {"command": "cat fifo"}), fails(401))
    with Editor(model_server, tmp_path, "--yolo") as editor:
        session_id = editor.new()
        first = editor.ask(session_id, "first")
        editor.wait_for(lambda line: '"in_progress"' in json.dumps(line))
        second = editor.ask(session_id, "second")
        _wait_until_queued(session_id, "second")
        (tmp_path / "fifo").write_text("go\n")
        errors = [editor.response(number)["error"] for number in (first, second)]
        assert errors[0] == errors[1]
        assert editor.leave() == 0


@pytest.mark.slow
@pytest.mark.spec("ACP-1")
def test_what_a_subagent_asks_has_an_id_of_its_own_and_an_end(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(
        calls(Call("task", {"description": "d", "prompt": "p"}, id="one")),
        calls(Call("bash", {"command": "touch made"}, id="one")),
        calls(Call("bash", {"command": "touch more"}, id="two")),
        "Half.",
        "Done.",
    )
    with Editor(model_server, tmp_path) as editor:
        asked = editor.ask(editor.new(), "go")
        calls_asked = [editor.choose(each)["params"]["toolCall"] for each in ("once", "reject")]
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        assert editor.leave() == 0
    assert [each["toolCallId"] for each in calls_asked] == ["one/one", "one/two"]
    ends = [_statuses(editor, each["toolCallId"])[-1]["status"] for each in calls_asked]
    assert ends == ["completed", "failed"]
    assert (tmp_path / "made").exists() and not (tmp_path / "more").exists()


def _wait_until_queued(session_id: str, text: str) -> None:
    path = Path(os.environ["AGENTCLI_HOME"]) / "sessions" / f"{session_id}.db"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with opened(path) as db:
            rows = db.execute("SELECT body FROM input_queue WHERE state = 'queued'").fetchall()
        if (text,) in rows:
            return
        time.sleep(0.02)
    raise AssertionError(f"{text!r} never waited")


@pytest.mark.slow
@pytest.mark.spec("ACP-1")
def test_sessions_are_listed_loaded_resumed_closed_and_deleted(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(call("read_file", {"path": "a.txt"}, text="Look."), "One.", "Two.")
    (tmp_path / "a.txt").write_text("x\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    at = {"cwd": str(tmp_path), "mcpServers": []}
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        editor.call("session/load", sessionId=session_id, **at)  # nothing was said yet
        assert editor.prompt(session_id, "first") == "end_turn"
        (row,) = editor.call("session/list")["sessions"]
        assert row["sessionId"] == session_id and row["cwd"] == str(tmp_path)
        assert row["title"] == "first" and row["updatedAt"].endswith("Z")
        assert editor.call("session/list", cwd=str(elsewhere))["sessions"] == []
        assert editor.error("session/list", cursor="nonsense")["code"] == -32602
        assert editor.leave() == 0
    with Editor(model_server, tmp_path) as editor:
        for wrong in (UNKNOWN, "first", session_id[:8], f"../sessions/{session_id}", "", "*"):
            error = editor.error("session/load", sessionId=wrong, **at)
            assert error["code"] == -32002, wrong
        assert editor.error("session/load", sessionId=session_id, cwd="elsewhere")["code"] == -32602
        loaded = editor.call("session/load", sessionId=session_id, **at)
        assert loaded["modes"]["currentModeId"] == "default"
        seen = [each["sessionUpdate"] for each in editor.updates()]
        assert seen[:5] == [
            "user_message_chunk",
            "agent_message_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk",
        ]
        assert editor.said("user_message_chunk") == "first" and editor.said() == "Look.One."
        before = len(editor.updates("user_message_chunk"))
        editor.call("session/resume", sessionId=session_id, cwd=str(tmp_path))
        assert len(editor.updates("user_message_chunk")) == before
        assert editor.prompt(session_id, "second") == "end_turn"
        assert editor.call("session/close", sessionId=session_id) == {}
        assert editor.error("session/close", sessionId=session_id)["code"] == -32002
        assert editor.call("session/delete", sessionId=session_id) == {}
        for gone in (session_id, UNKNOWN, f"../sessions/{session_id}", ".."):
            assert editor.call("session/delete", sessionId=gone) == {}
        assert editor.call("session/list")["sessions"] == []
        assert editor.leave() == 0
    assert prompts(model_server) == ["first", "second"]


@pytest.mark.slow
@pytest.mark.spec("ACP-1")
def test_modes_and_options_are_told_set_and_kept_in_step(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(call("write_file", {"path": "made", "content": "x"}), "Done.")
    with Editor(model_server, tmp_path, "--permission-mode", "plan") as editor:
        opened = editor.call("session/new", cwd=str(tmp_path), mcpServers=[])
        session_id = opened["sessionId"]
        assert opened["modes"]["currentModeId"] == "plan"
        options = {each["id"]: each for each in opened["configOptions"]}
        assert list(options) == ["mode", "model", "effort"]
        for option in options.values():
            assert option["type"] == "select"
            assert option["currentValue"] in [each["value"] for each in option["options"]]
        assert options["model"]["currentValue"] == "anthropic/claude-sonnet-4-5"
        editor.call("session/set_mode", sessionId=session_id, modeId="yolo")
        assert editor.updates("current_mode_update")[-1]["currentModeId"] == "yolo"
        told = editor.updates("config_option_update")[-1]["configOptions"]
        assert told[0]["currentValue"] == "yolo"
        for name, value in (("effort", "high"), ("model", "openai/gpt-4.1")):
            changed = editor.call(
                "session/set_config_option", sessionId=session_id, configId=name, value=value
            )["configOptions"]
            assert {each["id"]: each["currentValue"] for each in changed}[name] == value
        wrong = {"sessionId": session_id, "configId": "model", "value": "no/such"}
        assert editor.error("session/set_config_option", **wrong)["code"] == -32602
        assert editor.error("session/set_mode", sessionId=session_id, modeId="x")["code"] == -32602
        assert editor.prompt(session_id, "write it") == "end_turn"
        assert editor.leave() == 0
    assert (tmp_path / "made").read_text() == "x"
    assert model_server.requests[-1].body["model"] == "gpt-4.1"


@pytest.mark.spec("ACP-1", "UI-4")
def test_a_prompt_may_hold_links_resources_and_images(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("Seen.")
    (tmp_path / "on disk.txt").write_text("from the disk\n")
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "Look at "},
        {"type": "resource_link", "uri": f"file://{tmp_path}/on%20disk.txt", "name": "on disk"},
        {"type": "text", "text": " and "},
        {
            "type": "resource",
            "resource": {"uri": f"file://{tmp_path}/open.py", "text": "unsaved = 1"},
        },
        {"type": "resource_link", "uri": "https://example.org/x", "name": "a page"},
        _image(),
    ]
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        audio = {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}
        for wrong in ([], [audio], [{"type": "text"}], [{"type": "x"}], ["text"], "text"):
            error = editor.error("session/prompt", sessionId=session_id, prompt=wrong)
            assert error["code"] == -32602, wrong
        reason = editor.prompt(session_id, *blocks)
        assert reason == "end_turn"
        assert editor.leave() == 0
    sent = json.dumps(model_server.requests[-1].body, ensure_ascii=False)
    assert "from the disk" in sent and "unsaved = 1" in sent and "(https://example.org/x)" in sent
    assert PIXEL in sent


@pytest.mark.spec("ACP-1", "CLI-14", "EXT-3")
def test_commands_are_told_and_called_and_one_that_is_unknown_is_an_error(
    model_server: ModelServer, tmp_path: Path, home: Path
) -> None:
    commands = home / ".agents" / "commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text(
        "---\ndescription: Greets\nargument-hint: NAME\n---\nGreet $1!"
    )
    model_server.add("Hello.")
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        editor.wait_for(lambda line: "available_commands_update" in json.dumps(line))
        (told,) = editor.updates("available_commands_update")
        assert {"name": "greet", "description": "Greets", "input": {"hint": "NAME"}} in told[
            "availableCommands"
        ]
        wrong = [{"type": "text", "text": "/great Ada"}]
        error = editor.error("session/prompt", sessionId=session_id, prompt=wrong)
        assert "/greet" in error["message"]
        assert editor.prompt(session_id, "/greet Ada") == "end_turn"
        assert editor.leave() == 0
    assert prompts(model_server) == ["Greet Ada!"]


@pytest.mark.spec("ACP-1", "STR-9")
def test_a_failed_turn_is_an_error_with_advice_and_a_key_that_is_wrong_asks_for_a_login(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(fails(400), fails(401))
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        text = [{"type": "text", "text": "hi"}]
        assert editor.error("session/prompt", sessionId=session_id, prompt=text)["code"] == -32603
        refused = editor.error("session/prompt", sessionId=session_id, prompt=text)
        assert refused["code"] == -32000 and "ANTHROPIC_API_KEY" in refused["message"]
        assert editor.leave() == 0


@pytest.mark.slow
@pytest.mark.spec("ACP-1")
def test_questions_go_to_clients_that_offer_forms_and_to_no_other(
    model_server: ModelServer, tmp_path: Path
) -> None:
    question = {"question": "Which one?", "options": ["red", "blue"]}
    model_server.add(call("ask_user", question), "Blue it is.", call("ask_user", question), "Mine.")
    with Editor(model_server, tmp_path, capabilities={"elicitation": {"form": {}}}) as editor:
        asked = editor.ask(editor.new(), "ask me")
        request = editor.asked("elicitation/create")
        params = request["params"]
        assert params["mode"] == "form" and params["message"] == "Which one?"
        choices = params["requestedSchema"]["properties"]["answer"]["oneOf"]
        assert [each["const"] for each in choices] == ["red", "blue"]
        editor.reply(request, {"action": "accept", "content": {"answer": "blue"}})
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        assert editor.leave() == 0
    assert "blue" in str(facts_of(model_server.requests[1]).results)
    with Editor(model_server, tmp_path, capabilities={"elicitation": {"form": None}}) as editor:
        assert editor.prompt(editor.new(), "ask me") == "end_turn"
        assert not [line for line in editor.events() if line.get("method") == "elicitation/create"]
        assert editor.leave() == 0


@pytest.mark.slow
@pytest.mark.spec("ACP-2", "REC-1")
@pytest.mark.parametrize("how", ["eof", pytest.param("kill", marks=pytest.mark.slow)])
def test_a_client_that_vanishes_at_a_permission_leaves_a_session_to_take_up(
    model_server: ModelServer, tmp_path: Path, how: str
) -> None:
    """``kill``: the editor is another process, killed with SIGKILL, that owns the pipes."""
    model_server.add(call("bash", {"command": "touch made"}), "Two.")
    if how == "eof":
        with Editor(model_server, tmp_path) as editor:
            session_id = editor.new()
            editor.ask(session_id, "first")
            editor.asked("session/request_permission")
            assert editor.leave() == 0
    else:
        session_id = _killed_editor(model_server, tmp_path)
    shown = run_agent("sessions", "show", session_id, "--format", "json")
    assert shown.code == 0, shown
    with Editor(model_server, tmp_path) as editor:
        loaded = {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []}
        editor.call("session/load", **loaded)
        assert editor.prompt(session_id, "second") == "end_turn"
        assert editor.leave() == 0
    assert not (tmp_path / "made").exists()
    assert prompts(model_server) == ["first", "second"]


_EDITOR = """
import json, pathlib, subprocess, sys
agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(agent.pid, flush=True)
def send(number, method, **params):
    line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    agent.stdin.write(json.dumps(line).encode() + b"\\n")
    agent.stdin.flush()
send(1, "initialize", protocolVersion=1)
send(2, "session/new", cwd=str(pathlib.Path.cwd()), mcpServers=[])
for line in agent.stdout:
    message = json.loads(line)
    if message.get("id") == 2 and "result" in message:
        session_id = message["result"]["sessionId"]
        print(session_id, flush=True)
        text = {"type": "text", "text": "first"}
        send(3, "session/prompt", sessionId=session_id, prompt=[text])
    if message.get("method") == "session/request_permission":
        print("asked", flush=True)
"""


def _killed_editor(server: ModelServer, work: Path) -> str:
    from tests.support.cli import AGENT, agent_env

    with subprocess.Popen(
        [sys.executable, "-c", _EDITOR, *AGENT, "acp"],
        env=agent_env(server),
        cwd=work,
        stdout=subprocess.PIPE,
        text=True,
    ) as editor:
        assert editor.stdout is not None
        agent, session_id, asked = (editor.stdout.readline().strip() for _ in range(3))
        assert asked == "asked"
        editor.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{agent}/stat").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{agent}/stat").exists(), "the agent outlived its editor"
    return session_id


@pytest.mark.spec("ACP-2", "SEC-13")
def test_garbage_long_lines_and_used_ids_are_errors_and_the_connection_goes_on(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(say("slow", stall_at="start"), "Fine.")
    with Editor(model_server, tmp_path) as editor:
        session_id = editor.new()
        for line in (b"garbage", b"[]", b"42", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b"[" * 100_000):
            editor.line(line)
        editor.line(b'{"jsonrpc":"2.0","id":99,"method":"x","params":"' + b"y" * 20_000_000 + b'"}')
        text = {"sessionId": session_id, "prompt": [{"type": "text", "text": "hi"}]}
        one = {"id": "same", "method": "session/prompt", "params": text}
        editor.send(one)
        model_server.wait_until_waiting()
        editor.send(one)
        refused = editor.response("same")
        assert refused["error"]["code"] == -32600
        for _ in range(50):
            editor.notify("session/cancel", sessionId=session_id)
        editor.wait_for(lambda line: line.get("result") == {"stopReason": "cancelled"})
        assert editor.prompt(session_id, "again") == "end_turn"
        assert editor.leave() == 0
    assert editor.response(99)["error"]["code"] == -32600
    errors = [line for line in editor.events() if line.get("id", 0) is None]
    assert len(errors) == 6 and all(line["error"]["message"] for line in errors)


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "CAN-11")
def test_sessions_work_side_by_side(model_server: ModelServer, tmp_path: Path) -> None:
    model_server.add(say("never", stall_at="start"), "Two.")
    other = tmp_path / "other"
    other.mkdir()
    with Editor(model_server, tmp_path) as editor:
        one, two = editor.new(), editor.new(cwd=str(other))
        first = editor.ask(one, "first")
        model_server.wait_until_waiting()
        assert editor.prompt(two, "second") == "end_turn"
        closed = editor.request("session/close", sessionId=one)
        assert editor.response(first)["result"] == {"stopReason": "cancelled"}
        assert editor.response(closed)["result"] == {}
        assert editor.leave() == 0
    assert editor.updates("agent_message_chunk", one) == []
    assert editor.updates("agent_message_chunk", two)


@pytest.mark.spec("ACP-2", "OPS-1")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_cancels_and_ends(
    model_server: ModelServer, tmp_path: Path, number: signal.Signals
) -> None:
    model_server.default = say("never", stall_at="start")
    with Editor(model_server, tmp_path) as editor:
        asked = editor.ask(editor.new(), "first")
        model_server.wait_until_waiting()
        editor.process.send_signal(number)
        assert editor.response(asked)["result"] == {"stopReason": "cancelled"}
        done = editor.wait()
    assert done.code == 128 + number and "Traceback" not in done.stderr


@pytest.mark.spec("ACP-1", "CLI-13")
def test_options_that_are_the_editors_are_refused(tmp_path: Path) -> None:
    for given in ("--continue", "--session=x", "--resume"):
        done = run_agent("acp", given, cwd=tmp_path)
        assert done.code == 2 and "the editor opens the sessions" in done.stderr
    assert run_agent("acp", "--version", cwd=tmp_path).stdout.startswith("agentcli ")


@pytest.mark.spec("ACP-1", "SEC-6")
def test_a_permission_shows_what_cannot_be_seen_and_a_terminal_gets_output(
    model_server: ModelServer, tmp_path: Path
) -> None:
    command = "echo a\u202eb; printf 'one\\n\\033]0;x\\007'; cat fifo"
    os.mkfifo(tmp_path / "fifo")
    model_server.add(call("bash", {"command": command}), "Done.\x1b]52;c;aGk=\x07")
    able = {"_meta": {"terminal_output": True}}
    with Editor(model_server, tmp_path, capabilities=able) as editor:
        asked = editor.ask(editor.new(), "run it")
        shown = editor.choose("once")["params"]["toolCall"]
        editor.wait_for(lambda line: "terminal_output" in json.dumps(line))
        (tmp_path / "fifo").write_text("")
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        assert editor.leave() == 0
    assert "a<U+202E>b" in shown["content"][0]["content"]["text"]
    assert "\u202e" not in shown["title"]
    (started,) = editor.updates("tool_call")
    number = started["toolCallId"]
    assert started["content"] == [{"type": "terminal", "terminalId": number}]
    metas = [each.get("_meta", {}) for each in _statuses(editor, number)]
    printed = "".join(
        each["terminal_output"]["data"] for each in metas if "terminal_output" in each
    )
    assert printed.count("one") == 1, "the result is not printed again"
    said = editor.updates("agent_message_chunk")
    assert said and "\\u001b" not in json.dumps([said, metas])
    assert {"terminal_exit": {"terminal_id": number, "exit_code": 0, "signal": None}} in metas


def test_the_pixel_is_an_image() -> None:
    assert base64.b64decode(PIXEL).startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.spec("ACP-1")
def test_unsaved_text_is_read_from_editors_that_offer_it_and_from_no_other(
    model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("on disk\n")
    read = call("read_file", {"path": "a.txt"})
    model_server.add(*(reply for _ in range(4) for reply in (read, "Done.")))
    with Editor(model_server, tmp_path, capabilities={"fs": {"readTextFile": True}}) as editor:
        session_id = editor.new()
        for answer in ({"content": "in the editor\n"}, {"content": "on disk\r\n"}, {"no": "text"}):
            asked = editor.ask(session_id, "read it")
            request = editor.asked("fs/read_text_file")
            params = {"sessionId": session_id, "path": str(tmp_path / "a.txt")}
            assert request["params"] == params
            editor.reply(request, answer)
            assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        assert editor.leave() == 0
    told = [_last_result(model_server, number) for number in (1, 3, 5)]
    assert "in the editor" in told[0] and "not saved" in told[0] and "on disk\n" not in told[0]
    assert all("1\ton disk" in text and "not saved" not in text for text in told[1:])
    with Editor(model_server, tmp_path, capabilities={"fs": {"readTextFile": False}}) as editor:
        assert editor.prompt(editor.new(), "read it") == "end_turn"
        assert not [line for line in editor.events() if line.get("method") == "fs/read_text_file"]
        assert editor.leave() == 0


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "SEC-3", "SEC-5")
@pytest.mark.parametrize("kind", BOTH)
def test_no_editor_opens_a_file_that_something_inside_may_make_a_link_meanwhile(
    model_server: ModelServer, tmp_path: Path, kind: str
) -> None:
    needs(kind)
    (tmp_path / "a.txt").write_text("on disk\n")
    leave = call("bash", {"command": "sleep 60 >/dev/null 2>&1 &"})
    model_server.add(leave, call("read_file", {"path": "a.txt"}), "Done.")
    options = ("--permission-mode", "auto", "--sandbox", kind)
    capabilities = {"fs": {"readTextFile": True}}
    with Editor(model_server, tmp_path, *options, capabilities=capabilities) as editor:
        assert editor.prompt(editor.new(), "read it") == "end_turn"
        assert not [line for line in editor.events() if line.get("method") == "fs/read_text_file"]
        assert editor.leave() == 0
    assert "1\ton disk" in _last_result(model_server, 2)


def _last_result(server: ModelServer, number: int) -> str:
    return list(facts_of(server.requests[number]).results.values())[-1]


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "SEC-1")
def test_what_a_directory_brings_is_ignored_and_said_until_it_is_trusted(
    model_server: ModelServer, tmp_path: Path
) -> None:
    commands = tmp_path / ".claude" / "commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Greet $1!")
    (tmp_path / ".git").mkdir()
    model_server.add("One.", "Two.")
    for options, is_there in (((), False), (("--trust",), True)):
        with Editor(model_server, tmp_path, *options) as editor:
            session_id = editor.new()
            assert editor.prompt(session_id, "hi") == "end_turn"
            (told,) = editor.updates("available_commands_update")
            names = [each["name"] for each in told["availableCommands"]]
            assert ("greet" in names) is is_there
            assert ("ignored" in editor.said("agent_thought_chunk")) is (not is_there)
            assert editor.leave() == 0


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "SEC-3")
def test_a_plan_is_approved_and_the_mode_that_follows_is_told(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(
        call("present_plan", {"plan": "# Plan\n\n1. Write it."}),
        call("write_file", {"path": "made", "content": "x"}),
        "Done.",
    )
    with Editor(model_server, tmp_path, "--plan") as editor:
        asked = editor.ask(editor.new(), "plan it")
        shown = editor.choose("session")["params"]
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        assert editor.leave() == 0
    assert shown["toolCall"]["kind"] == "switch_mode"
    assert "1. Write it." in shown["toolCall"]["content"][0]["content"]["text"]
    assert [each["kind"] for each in shown["options"]] == [
        "allow_once",
        "allow_always",
        "reject_once",
    ]
    assert editor.updates("current_mode_update")[-1]["currentModeId"] == "accept-edits"
    assert (tmp_path / "made").read_text() == "x"


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "SEC-9")
def test_a_key_that_a_call_returns_is_hidden_from_the_editor(
    model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(f"key = {KEY}\n")
    model_server.add(call("read_file", {"path": "a.txt"}), "Read.")
    with Editor(model_server, tmp_path) as editor:
        assert editor.prompt(editor.new(), "read it") == "end_turn"
        assert editor.leave() == 0
    assert KEY not in editor.stdout


@pytest.mark.spec("ACP-1", "SEC-9")
@pytest.mark.parametrize("key", [KEY, "ghp_aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY1zA2"])
@pytest.mark.parametrize("piece", [4, 9])
def test_a_key_that_comes_in_pieces_is_hidden_from_the_editor(
    model_server: ModelServer, tmp_path: Path, key: str, piece: int
) -> None:
    model_server.add(
        say(f"It is {key}, said once.", thinking=f"He wants {key}", piece=piece, delay_s=0.01)
    )
    with Editor(model_server, tmp_path, GITHUB_TOKEN=key) as editor:
        session_id = editor.new()
        assert editor.prompt(session_id, "say it") == "end_turn"
        assert editor.said() == "It is [redacted], said once."
        assert editor.said("agent_thought_chunk") == "He wants [redacted]"
        told = editor.said()
        editor.call("session/load", sessionId=session_id, cwd=str(tmp_path), mcpServers=[])
        assert editor.said() == 2 * told
        assert editor.leave() == 0


@pytest.mark.spec("ACP-1", "SEC-9")
@pytest.mark.parametrize("has_terminals", [True, False])
def test_a_key_that_a_command_prints_in_pieces_is_hidden_while_it_runs(
    model_server: ModelServer, tmp_path: Path, has_terminals: bool
) -> None:
    key = "ghp_aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY1zA2"
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "first").write_text(f"It is {key[:8]}")
    (tmp_path / "rest").write_text(f"{key[8:]}\n")
    command = "cat first fifo rest fifo"
    model_server.add(call("bash", {"command": command}), "Done.")
    able = {"_meta": {"terminal_output": has_terminals}}
    with Editor(model_server, tmp_path, "--yolo", capabilities=able, GITHUB_TOKEN=key) as editor:
        asked = editor.ask(editor.new(), "print it")
        for told in ("It is", "[redacted]"):
            editor.wait_for(lambda line, told=told: told in json.dumps(line))
            (tmp_path / "fifo").write_text("")
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        assert editor.leave() == 0
    assert not any(part in editor.stdout for part in (key[:8], key[8:16]))


@pytest.mark.spec("ACP-1")
def test_a_login_is_offered_where_it_can_be_done_and_a_key_is_asked_for(
    model_server: ModelServer, tmp_path: Path
) -> None:
    with Editor(model_server, tmp_path, capabilities=None) as editor:
        able = {"auth": {"terminal": True}}
        first = editor.call("initialize", protocolVersion=1, clientCapabilities=able)
        methods = {each["id"]: each for each in first["authMethods"]}
        assert methods["login"]["type"] == "terminal" and methods["login"]["args"] == ["--login"]
        assert editor.call("authenticate", methodId="api-key") == {}
        assert editor.error("authenticate", methodId="login")["code"] == -32602
        assert editor.leave() == 0
    with Editor(None, tmp_path) as editor:
        refused = editor.error("authenticate", methodId="api-key")
        assert refused["code"] == -32000 and "agent auth login" in refused["message"]
        assert editor.leave() == 0
    stored = run_agent("--verbose", "acp", "--login", cwd=tmp_path)
    assert stored.code == 2 and "Traceback" not in stored.stderr


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "BG-5")
def test_a_background_run_that_ends_between_two_prompts_is_told_and_taken_up_with_the_next(
    model_server: ModelServer, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    spawn = {"tool": "bash", "args": {"command": "cat fifo"}, "title": "waiting"}
    model_server.add(call("spawn_background", spawn), "Started.", "Yes.", "Seen.")
    with Editor(model_server, tmp_path, "--yolo") as editor:
        session_id = editor.new()
        assert editor.prompt(session_id, "start it") == "end_turn"
        (tmp_path / "fifo").write_text("go\n")
        editor.wait_for(lambda line: "Background run succeeded: waiting" in json.dumps(line))
        assert editor.prompt(session_id, "and?") == "end_turn"
        assert editor.leave() == 0
    assert "background-run" in json.dumps(model_server.requests[-1].body)


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "MCP-1")
def test_the_servers_that_an_editor_passes_are_used(
    model_server: ModelServer, tmp_path: Path
) -> None:
    server = {
        "name": "sums",
        "command": sys.executable,
        "args": [str(Path(__file__).parents[1] / "support" / "mcp_sdk_server.py")],
        "env": [],
    }
    asked_for = {"server": "sums", "tool": "add", "arguments": {"a": 2, "b": 40}}
    model_server.add(call("mcp_call", asked_for), "It is 42.", "Seen.")
    with Editor(model_server, tmp_path) as editor:
        assert editor.error("session/new", cwd=str(tmp_path), mcpServers=[{}])["code"] == -32602
        asked = editor.ask(editor.new(mcpServers=[server]), "add")
        editor.choose("once")
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        session_id = editor.new(mcpServers=[server])
        assert editor.prompt(session_id, "look at @sums:note://mine") == "end_turn"
        assert editor.leave() == 0
    assert "42" in str(facts_of(model_server.requests[1]).results)
    assert "the note mine" in json.dumps(model_server.requests[2].body)


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "SEC-6")
def test_a_diff_and_a_title_show_an_editor_what_cannot_be_seen(
    model_server: ModelServer, tmp_path: Path
) -> None:
    hidden = "if x:  # \u202e\u2066\u200bok\x1b[8m\r\n"
    (tmp_path / "a.py").write_text("old\u200f\n", newline="")
    (tmp_path / "crlf").write_text("one\r\n", newline="")
    model_server.add(
        call("write_file", {"path": "n\u202egpj.py", "content": hidden}),
        call("edit_file", {"path": "a.py", "old_string": "old\u200f", "new_string": "new\u200b"}),
        call("edit_file", {"path": "crlf", "old_string": "one", "new_string": "two"}),
        "Done.",
    )
    with Editor(model_server, tmp_path) as editor:
        asked = editor.ask(editor.new(), "go \u202eon")
        calls = [editor.choose("once")["params"]["toolCall"] for _ in range(3)]
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        (listed,) = editor.call("session/list")["sessions"]
        assert editor.leave() == 0
    made, changed, ended = (each["content"][0] for each in calls)
    assert made["newText"].startswith("if x:  # <U+202E><U+2066><U+200B>ok<U+001B>[8m\n")
    assert made["path"].endswith("gpj.py")
    assert (changed["oldText"], changed["newText"]) == ("old<U+200F>\n", "new<U+200B>\n")
    assert (ended["oldText"], ended["newText"]) == ("one\n", "two\n"), "not what is changed"
    finished = [each["content"] for each in editor.updates("tool_call_update") if "content" in each]
    titles = [each.get("title") for each in editor.updates("session_info_update")]
    shown = json.dumps(
        [*(each["content"] for each in calls), finished, titles, listed["title"]],
        ensure_ascii=False,
    )
    assert not set(shown) & set("\u202e\u2066\u200b\u200f")


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "SEC-6")
def test_an_approval_tells_an_editor_what_no_diff_of_its_own_shows(
    model_server: ModelServer, tmp_path: Path
) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text("old\n")
    (tmp_path / "link").symlink_to("a.txt")
    mode = "diff --git a/b.txt b/b.txt\nold mode 100644\nnew mode 100755\n"
    begin = "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n"
    gone = "*** Delete File: link\n*** Update File: c.txt\n*** Move to: d.txt\n@@\n-old\n+new\n"
    model_server.add(
        call(
            "apply_patch", {"patch": f"--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+new\n{mode}"}
        ),
        call("apply_patch", {"patch": f"{begin}{gone}*** End Patch\n"}),
        call("write_file", {"path": "n.sh", "content": "#!/bin/sh\necho HIDDEN\n# \0"}),
        "Done.",
    )
    told = ("new mode 100755: b.txt", "--- a/link\\n+++ /dev/null", "echo HIDDEN")
    with Editor(model_server, tmp_path) as editor:
        asked = editor.ask(editor.new(), "go")
        for each in told:
            content = json.dumps(editor.choose("reject")["params"]["toolCall"]["content"])
            assert each in content and ("c.txt" in content) is ("link" in content)
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}


@pytest.mark.spec("ACP-1", "UI-7")
def test_no_option_shows_a_part_of_the_rule_that_it_grants(
    model_server: ModelServer, tmp_path: Path
) -> None:
    long = "touch " + "a" * 300
    wide = "x" * 300 + " y *"
    commands = ["touch one\ntouch two", "echo a  b > c", long, wide]
    model_server.add(*(call("bash", {"command": each}) for each in commands), "Done.")
    names = []
    with Editor(model_server, tmp_path) as editor:
        asked = editor.ask(editor.new(), "go")
        for _ in commands:
            options = editor.choose("reject")["params"]["options"]
            names.append(next(each["name"] for each in options if each["optionId"] == "session-1"))
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
    begin = "Allow for this session: bash"
    assert names[0] == names[2] == f"{begin}: this very call"
    assert names[1] == f"{begin}(echo a  b > c)"
    assert names[3].startswith(f"{begin}(xxx") and names[3].endswith("xxx y *)")
    assert "characters are not shown here" in names[3]


@pytest.mark.sampled
@pytest.mark.spec("ACP-1", "UI-7")
@pytest.mark.parametrize(
    "outcome",
    [
        {"outcome": "dismissed", "optionId": "once"}, {"outcome": "selected", "optionId": "always-9"},
        {"outcome": "selected", "optionId": ["once"]}, {"optionId": "once"},
    ],
)  # fmt: skip
def test_only_an_offered_option_that_was_selected_is_a_yes(
    model_server: ModelServer, tmp_path: Path, outcome: dict[str, Any]
) -> None:
    model_server.add(call("bash", {"command": "touch made"}), "Done.")
    with Editor(model_server, tmp_path) as editor:
        asked = editor.ask(editor.new(), "go")
        editor.reply(editor.asked("session/request_permission"), {"outcome": outcome})
        assert editor.response(asked)["result"] == {"stopReason": "end_turn"}
        assert "rule could not be written" not in str(editor.updates())
    assert not (tmp_path / "made").exists()
