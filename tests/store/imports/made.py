"""Sessions of other programs in their real shapes, small: as records, and as the bytes of a file."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from tests.support.histories import PNG

Record = dict[str, Any]
CLAUDE_ID = "11111111-2222-4333-8444-555555555555"
CODEX_ID = "019b0000-1111-7222-8333-444444444444"
PICTURE = base64.b64encode(PNG).decode()
PLACE = "/home/her/project"


def jsonl(records: Iterable[Record]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


# --- Claude Code -----------------------------------------------------------------------------


def claude(kind: str, uuid: str, parent: str | None, at: int, **more: Any) -> Record:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": PLACE,
        "sessionId": CLAUDE_ID,
        "version": "2.1.0",
        "gitBranch": "main",
        "type": kind,
        "uuid": uuid,
        "timestamp": f"2026-01-02T03:04:{at:02}.000Z",
        **more,
    }


def said(uuid: str, parent: str | None, at: int, content: Any, **more: Any) -> Record:
    message = {"role": "user", "content": content}
    return claude("user", uuid, parent, at, message=message, **more)


def reply(uuid: str, parent: str, at: int, message_id: str, *blocks: Record, **more: Any) -> Record:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": 7}
    message = {
        "id": message_id,
        "role": "assistant",
        "model": "claude-opus-4-5",
        "content": list(blocks),
        "usage": usage | {"cache_creation_input_tokens": 5},
    }
    return claude("assistant", uuid, parent, at, message=message, requestId="req_1", **more)


def use(call_id: str, name: str, **arguments: Any) -> Record:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> Record:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def text(value: str) -> Record:
    return {"type": "text", "text": value}


def claude_session() -> list[Record]:
    """Parallel calls, a prompt said again, a sub-agent, a compaction, and a call that was cut."""
    picture = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    chain: Record = {"isSidechain": True, "agentId": "ag1"}
    facts = {"trigger": "auto", "preTokens": 9}
    boundary: Record = {"subtype": "compact_boundary", "compactMetadata": facts}
    return [
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        {"type": "summary", "summary": "Fix \x1b[31mthe bug", "leafUuid": "x"},
        said("m0", None, 1, "<local-command-caveat>Caveat</local-command-caveat>", isMeta=True),
        said("u1", "m0", 2, [text("fix the bug"), {"type": "image", "source": picture}]),
        reply("a1", "u1", 3, "m1", thought),
        reply("a2", "a1", 3, "m1", use("t1", "Bash", command="ls", timeout=5000)),
        reply("a3", "a2", 4, "m1", use("t2", "Read", file_path="/w/x.py", limit=9)),
        said("r1", "a2", 5, [result("t1", "x.py")]),
        said("r2", "a3", 6, [result("t2", [text("print(1)")])]),
        reply("a4", "r2", 7, "m2", text("It prints 1.")),
        said("u2", "a4", 8, "an old prompt"),
        reply("a5", "u2", 9, "m3", text("an old answer")),
        said("u3", "a4", 10, "a better prompt"),
        reply("a6", "u3", 11, "m4", use("t3", "Task", prompt="find it", subagent_type="Explore")),
        said("s1", None, 12, "find it", **chain),
        reply("s2", "s1", 13, "sm1", text("It is in x.py."), **chain),
        said("r3", "a6", 14, [result("t3", "It is in x.py.")], toolUseResult={"agentId": "ag1"}),
        reply("a7", "r3", 15, "m5", text("Found.")),
        claude("system", "b1", None, 16, logicalParentUuid="a7", **boundary),
        said("c1", "b1", 17, "We looked for a bug in x.py.", isCompactSummary=True),
        said("u4", "c1", 18, "<command-name>/fix</command-name><command-args>it</command-args>"),
        reply("a8", "u4", 19, "m6", use("t4", "Edit", file_path="x.py", old_string="1")),
    ]


# --- Codex -----------------------------------------------------------------------------------


def codex(kind: str, at: int, **payload: Any) -> Record:
    return {"timestamp": f"2026-01-02T03:04:{at:02}.000Z", "type": kind, "payload": payload}


def item(kind: str, at: int, **payload: Any) -> Record:
    return codex("response_item", at, type=kind, **payload)


def spoken(role: str, at: int, *texts: str) -> Record:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": each} for each in texts]
    return item("message", at, role=role, content=content)


def codex_session() -> list[Record]:
    """Scaffolding, a shell, a patch, a picture, a turn taken back, a compaction."""
    arguments = {"command": ["bash", "-lc", "ls -l"], "timeout_ms": 2000}
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
    tokens = {"input_tokens": 50, "cached_input_tokens": 20, "output_tokens": 5}
    summary = [{"type": "summary_text", "text": "I look."}]
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}
    return [
        codex("session_meta", 1, id=CODEX_ID, cwd=PLACE, cli_version="0.150", model_provider="openai"),
        codex("turn_context", 1, cwd=PLACE, model="gpt-5"),
        spoken("developer", 1, "<permissions instructions>"),
        spoken("user", 1, "<environment_context>\n</environment_context>"),
        spoken("user", 2, "go"),
        codex("event_msg", 2, type="user_message", message="go"),
        item("reasoning", 3, summary=summary, encrypted_content="x"),
        spoken("assistant", 3, "I look."),
        codex("event_msg", 3, type="agent_message", message="I look."),
        item("function_call", 3, name="shell", call_id="c1", arguments=json.dumps(arguments)),
        item("custom_tool_call", 3, name="apply_patch", call_id="c2", input="*** Begin Patch"),
        item("function_call_output", 4, call_id="c1", output=json.dumps({"output": "a.txt"})),
        item("custom_tool_call_output", 5, call_id="c2", output="Success"),
        codex("event_msg", 5, type="token_count", info={"last_token_usage": tokens}),
        spoken("assistant", 6, "There is a.txt."),
        spoken("user", 7, "no, wrong"),
        spoken("assistant", 8, "Sorry."),
        codex("event_msg", 9, type="thread_rolled_back", num_turns=1),
        item("message", 10, role="user", content=[{"type": "input_text", "text": "see"}, picture]),
        spoken("assistant", 11, "A picture."),
        codex("compacted", 12, message="", replacement_history=[
            kept,
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "The summary."}]},
        ]),
        spoken("user", 13, "now write"),
        item("function_call", 14, name="exec_command", call_id="c3", arguments='{"cmd": "make"}'),
    ]  # fmt: skip


# --- opencode --------------------------------------------------------------------------------


def opencode_session() -> Record:
    """Two steps in one message, an error, a picture, a call that was cut."""
    tool = {"type": "tool", "callID": "o1", "tool": "bash"}
    done = {"status": "completed", "input": {"command": "ls", "timeout": 3000}, "output": "a.txt"}
    failed = {"status": "error", "input": {"filePath": "/b"}, "error": "no such file"}
    running = {"status": "running", "input": {"filePath": "/c", "content": "x"}}
    finish = {"type": "step-finish", "reason": "tool-calls", "cost": 0.25}
    finish["tokens"] = {"input": 9, "output": 4, "reasoning": 1, "cache": {"read": 3, "write": 2}}
    url = f"data:image/png;base64,{PICTURE}"
    model = {"providerID": "anthropic", "modelID": "claude-opus-4-5"}
    return {
        "info": {
            "id": "ses_1",
            "title": "Listing files",
            "directory": PLACE,
            "time": {"created": 1767323041000, "updated": 1767323099000},
        },
        "messages": [
            {
                "info": {"id": "msg_1", "role": "user", "time": {"created": 1767323041000}},
                "parts": [
                    {"type": "text", "text": "list"},
                    {"type": "file", "mime": "image/png", "filename": "a.png", "url": url},
                    {"type": "file", "mime": "text/plain", "url": "file:///x"},
                ],
            },
            {
                "info": {
                    "id": "msg_2",
                    "role": "assistant",
                    "time": {"created": 1767323042000},
                    **model,
                },
                "parts": [
                    {"type": "step-start"},
                    {"type": "reasoning", "text": "hm"},
                    {"type": "text", "text": "I look."},
                    {**tool, "state": {**done, "time": {"start": 1, "end": 1767323043000}}},
                    {**tool, "callID": "o2", "tool": "read", "state": failed},
                    finish,
                    {"type": "step-start"},
                    {"type": "text", "text": "There is a.txt."},
                    finish,
                ],
            },
            {
                "info": {"id": "msg_3", "role": "user", "time": {"created": 1767323050000}},
                "parts": [{"type": "text", "text": "write"}],
            },
            {
                "info": {"id": "msg_4", "role": "assistant", **model},
                "parts": [{**tool, "callID": "o3", "tool": "write", "state": running}],
            },
        ],
        "todos": [],
    }
