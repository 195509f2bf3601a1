"""Clients that others wrote: the protocol's own package for Python, and its public checks."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.acp_client import Editor
from tests.support.cli import AGENT, agent_env
from tests.support.model_server import ModelServer
from tests.support.packages import Package
from tests.support.replies import Call, call, calls, say
from tests.support.wire_facts import facts_of

acp, schema, meta = Package("acp"), Package("acp.schema"), Package("acp.meta")


class SomeEditor:
    """An ``acp.Client`` that says yes to the first option until it is told to hold."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.permissions: list[Any] = []
        self.asked = asyncio.Event()
        self.holds = False

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> Any:
        self.permissions.append(tool_call)
        self.asked.set()
        if self.holds:
            await asyncio.Event().wait()
        chosen = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return schema.RequestPermissionResponse(outcome=chosen)

    def on_connect(self, conn: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.spec("ACP-1", "ACP-2")
def test_the_protocols_package_drives_edits_approvals_and_a_cancel(
    model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    edit = {"path": "a.txt", "old_string": "one", "new_string": "1"}
    model_server.add(
        calls(Call("read_file", {"path": "a.txt"}), thinking="Look first."),
        call("edit_file", edit),
        "It reads 1 now.",
        call("bash", {"command": "touch made"}),
        "Still here.",
    )
    editor = SomeEditor()
    asyncio.run(asyncio.wait_for(_drive(editor, model_server, tmp_path), 20))
    assert (tmp_path / "a.txt").read_text() == "1\n" and not (tmp_path / "made").exists()
    kinds = {type(update).__name__ for update in editor.updates}
    assert {"AgentMessageChunk", "AgentThoughtChunk", "ToolCallStart", "ToolCallProgress"} <= kinds
    diffs = [each for each in editor.permissions[0].content if each.type == "diff"]
    assert [(each.old_text, each.new_text) for each in diffs] == [("one\n", "1\n")]
    assert facts_of(model_server.requests[-1]).prompts == ["edit it", "run it", "and now?"]


async def _drive(editor: SomeEditor, server: ModelServer, work: Path) -> None:
    command = (AGENT[0], *AGENT[1:], "acp")
    async with acp.spawn_agent_process(editor, *command, env=agent_env(server), cwd=work) as (
        agent,
        process,
    ):
        first = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert first.protocol_version == 1 and first.agent_info.name == "agentcli"
        session = await agent.new_session(cwd=str(work), mcp_servers=[])

        def prompt(text: str) -> Any:
            return agent.prompt(session_id=session.session_id, prompt=[acp.text_block(text)])

        assert (await prompt("edit it")).stop_reason == "end_turn"
        editor.holds = True
        editor.asked.clear()
        running = asyncio.ensure_future(prompt("run it"))
        await editor.asked.wait()
        await agent.cancel(session_id=session.session_id)
        assert (await running).stop_reason == "cancelled"
        editor.holds = False
        assert (await prompt("and now?")).stop_reason == "end_turn"
        listed = await agent.list_sessions()
        assert [each.session_id for each in listed.sessions] == [session.session_id]
        assert process.returncode is None


# --- the cases of acp-tck (https://github.com/agentclientprotocol/acp-tck), against the schema ----


def _strict_problems(message: dict[str, Any], methods: dict[Any, str]) -> Iterator[str]:
    """What of a message the schema does not have: wrong shapes, unknown keys at a root."""
    known = {**meta.AGENT_METHODS, **meta.CLIENT_METHODS}
    if "method" in message:
        models = {
            "session/update": schema.SessionNotification,
            "session/request_permission": schema.RequestPermissionRequest,
        }
        assert message["method"] in known.values(), message
        yield from _problems(models[message["method"]], message["params"])
    elif "result" in message:
        models = {
            "initialize": schema.InitializeResponse,
            "session/new": schema.NewSessionResponse,
            "session/load": schema.LoadSessionResponse,
            "session/resume": schema.ResumeSessionResponse,
            "session/list": schema.ListSessionsResponse,
            "session/close": schema.CloseSessionResponse,
            "session/delete": schema.DeleteSessionResponse,
            "session/prompt": schema.PromptResponse,
            "session/set_mode": schema.SetSessionModeResponse,
            "session/set_config_option": schema.SetSessionConfigOptionResponse,
        }
        yield from _problems(models[methods[message["id"]]], message["result"])


def _problems(model: Any, value: dict[str, Any]) -> Iterator[str]:
    parsed = model.model_validate(value)
    names = {field.alias or name for name, field in model.model_fields.items()}
    if extra := set(value) - names:
        yield f"{model.__name__}: {extra}"
    again = json.loads(parsed.model_dump_json(by_alias=True, exclude_unset=True))
    if lost := _lost(value, again):
        yield f"{model.__name__}: {lost}"


def _lost(value: Any, again: Any, at: str = "") -> list[str]:
    """Where the schema's own reading of a value has less than the value."""
    if at.endswith((".rawInput", ".rawOutput", "._meta")):
        return []
    if isinstance(value, dict):
        found = [f"{at}.{key}" for key in value if key not in again]
        kept = [_lost(value[key], again[key], f"{at}.{key}") for key in value if key in again]
        return found + [each for some in kept for each in some]
    if isinstance(value, list):
        pairs = zip(value, again, strict=True)
        return [each for one, other in pairs for each in _lost(one, other, f"{at}[]")]
    return []


@pytest.mark.spec("ACP-2")
def test_every_message_is_in_the_schema_and_nothing_follows_an_answer(
    model_server: ModelServer, tmp_path: Path
) -> None:
    edit = {"path": "made.txt", "content": "x\n"}
    todos = {"todos": [{"content": "write", "status": "completed"}]}
    model_server.add(
        calls(Call("write_file", edit), Call("write_todos", todos), thinking="Hm."),
        call("bash", {"command": "echo é > f; exit 3"}),
        "Done.",
        say("cut", stall_at="text"),
    )
    extra = tmp_path / "extra"
    extra.mkdir()
    at = {"cwd": str(tmp_path), "mcpServers": []}
    methods: dict[Any, str] = {}
    with Editor(model_server, tmp_path, capabilities=None) as editor:

        def ask(number: int | str, method: str, **params: Any) -> dict[str, Any]:
            methods[number] = method
            editor.send({"id": number, "method": method, "params": params})
            return editor.response(number)

        ask(424242, "initialize", protocolVersion=1, clientCapabilities={})
        opened = ask("tck-string-id", "session/new", additionalDirectories=[str(extra)], **at)
        session_id = opened["result"]["sessionId"]
        assert "error" in ask("no-cwd", "session/new", mcpServers=[])
        assert "error" in ask("unknown", "_tck/does_not_exist")
        methods["p"] = "session/prompt"
        text = {"sessionId": session_id, "prompt": [{"type": "text", "text": "go"}]}
        meta = {"_meta": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
        editor.send({"id": "p", "method": "session/prompt", "params": {**text, **meta}})
        editor.choose("once")
        editor.choose("once")
        assert editor.response("p")["result"]["stopReason"] == "end_turn"
        ask("list", "session/list")
        loaded = ask("load", "session/load", sessionId=session_id, **at)
        assert isinstance(loaded["result"], dict)
        ask("mark", "session/list", cwd=str(extra))
        ask("resume", "session/resume", sessionId=session_id, cwd=str(tmp_path))
        methods["c"] = "session/prompt"
        editor.send({"id": "c", "method": "session/prompt", "params": text})
        model_server.wait_until_waiting(4)
        editor.notify("session/cancel", sessionId=session_id)
        assert editor.response("c")["result"]["stopReason"] == "cancelled"
        ask("again", "session/list")
        ask("close", "session/close", sessionId=session_id)
        ask("delete", "session/delete", sessionId=session_id)
        assert editor.leave() == 0
    events = editor.events()
    assert [problem for each in events for problem in _strict_problems(each, methods)] == []
    order = [each.get("id", each.get("method")) for each in events if each.get("id") != 1]
    for answer, following in (("load", "mark"), ("c", "again")):
        assert order[order.index(answer) + 1] == following, "an update came behind the answer"
    between = events[order.index("mark") : order.index("resume")]
    assert "user_message_chunk" not in json.dumps(between)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.spec("ACP-2")
def test_acplint_finds_full_conformance(tmp_path: Path) -> None:
    pytest.importorskip("acplint", reason="acplint is not installed")
    found = tmp_path / "found.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "acplint.cli", "--agent", AGENT[0], "--cwd", str(tmp_path)),
            f"--agent-args={' '.join((*AGENT[1:], 'acp'))}",
            *("--output", "json", "--output-file", str(found)),
        ],
        env=agent_env(None),
        capture_output=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(found.read_text())
    assert report["conformance_level"] == "Full Conformance"


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.spec("ACP-2", "SEC-13")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_is_asked_has_one_answer_and_none_is_a_fault_of_ours(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with Editor(None, tmp_path) as editor:
        session_id = editor.new()
        texts = [
            "",
            "x",
            session_id,
            str(tmp_path),
            "relative",
            "\0",
            "a\nb",
            "\ud800",
            "yolo",
            "model",
        ]
        prompts = ["list files", "/x", '@/etc/passwd @"x', "run true"]
        blocks = [[{"type": "text", "text": text}] for text in prompts]
        links = [{"type": "resource_link", "uri": "file:///tmp\0x", "name": None}]
        servers = [{"name": "s", "command": "true", "args": 3}, {"name": "t", "url": "x"}]
        values = [None, True, 3, -1, [], {}, [1], [{}], *texts, *blocks, links, servers]
        keys = ["sessionId", "cwd", "mcpServers", "additionalDirectories", "prompt", "modeId"]
        keys += ["configId", "value", "cursor", "methodId", "protocolVersion", "_meta"]
        methods = ["initialize", "authenticate", "_x", "session/new", "session/list"]
        names = ("load", "resume", "close", "delete", "set_mode", "set_config_option", "prompt")
        methods += [f"session/{name}" for name in names]
        asked = []
        for _ in range(150):
            params = {key: chance.choice(values) for key in keys if chance.random() < 0.6}
            if chance.random() < 0.5:
                params |= {"sessionId": session_id, "cwd": str(tmp_path)}
            asked.append(editor.request(chance.choice(methods), **params))
            if chance.random() < 0.3:
                editor.notify("session/cancel", sessionId=session_id)
                editor.notify("$/cancel_request", requestId=asked[-1])
        answers = [editor.response(number) for number in asked]
        assert editor.leave() == 0
    faults = [each for each in answers if each.get("error", {}).get("message") == "internal error"]
    assert faults == []
    numbers = [each["id"] for each in editor.events() if "method" not in each]
    assert len(numbers) == len(set(numbers))
