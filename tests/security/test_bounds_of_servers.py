"""What servers of tools, searches and editors say without measure (SEC-13)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.security.hostile_server import JSON, MB, hostile
from tests.security.test_bounds import MAX_RESIDENT_KB, Measured
from tests.support.acp_client import Editor
from tests.support.cli import agent_env, run_agent
from tests.support.memory import peak_kib
from tests.support.model_server import ModelServer
from tests.support.replies import call, say

pytestmark = [pytest.mark.spec("SEC-13"), pytest.mark.timeout(90), pytest.mark.slow]

# what comes from a server of tools for each of its lists, page after page
_SERVER = """
import json, sys
kind, asked = sys.argv[1], 0

def listed():
    if kind == "pages":
        return [{"name": f"a{asked}", "uri": f"a:{asked}", "junk": "x" * 12_000_000}]
    if kind == "headers":
        many = {f"{n}": {"type": "string", "x-mcp-header": f"h{n}"} for n in range(9_990)}
        return [{"name": f"t{n}", "inputSchema": {"properties": many}} for n in range(10)]
    if kind == "reference":
        return [{"name": "t", "inputSchema": {"$ref": "#/" + "/" * 15_500_000 + "\U0001f600"}}]
    return []

for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    result = {}
    if kind == "ids" and method == "tools/list":
        for each in range(4):
            wide = "x" * 16_000_000 + "\U0001f600"
            asks = {"jsonrpc": "2.0", "id": wide, "method": "ping"}
            print(json.dumps(asks, ensure_ascii=False), flush=True)
    if method == "initialize":
        has = {"tools": {}, "resources": {}, "prompts": {}}
        info = {"name": "x", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": has, "serverInfo": info}
    elif method.endswith("/list"):
        asked += 1
        result = {method.split("/")[-2]: listed()}
        if kind in {"pages", "cursors"} and asked % 25:
            result["nextCursor"] = "x" * (12_000_000 if kind == "cursors" else 1) + str(asked)
    if number is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"""


def servers_of(work: Path, kind: str) -> str:
    (work.parent / "server.py").write_text(_SERVER)
    args = ["-S", str(work.parent / "server.py"), kind]
    return json.dumps({"mcpServers": {"one": {"command": sys.executable, "args": args}}})


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.mark.spec("SEC-13", "MCP-6")
@pytest.mark.parametrize("kind", ["pages", "cursors", "reference", "headers", "ids"])
def test_what_a_server_lists_is_read_in_bounded_time_and_memory(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    model_server.add(call("tool_search", {"query": "echo"}), say("I see."))
    args = ("run", "--mcp-config", servers_of(work, kind), "go")
    done = Measured(*args, env=agent_env(model_server), cwd=work).ended(15)
    assert (done.code, done.stdout) == (0, "I see.\n"), done.stderr[-2000:]


@pytest.mark.spec("SEC-13", "EXT-8")
def test_what_a_search_finds_is_read_in_bounded_memory(
    model_server: ModelServer, work: Path
) -> None:
    words = " ".join(chr(0x100 + each % 500) for each in range(2_600_000))
    found = {"results": [{"title": words, "url": "https://a.example/"}]}
    body = json.dumps(found, ensure_ascii=False).encode()
    model_server.add(call("web_search", {"query": "x"}), say("I see."))
    with hostile(lambda: [body], headers=JSON) as engine:
        run_agent("config", "set", "search.url", engine.url)
        args = ("run", "--allow-tool", "web_search", "go")
        done = Measured(*args, env=agent_env(model_server), cwd=work).ended()
    assert (done.code, done.stdout) == (0, "I see.\n"), done.stderr[-2000:]


PROMPTS: dict[str, list[dict[str, str]]] = {
    "blocks": [{"type": "text", "text": "x" * 12 * MB}, *[{"type": "text", "text": "a"}] * 100_000],
    "mention": [{"type": "text", "text": "@" + "\\ " * 3_000_000}],
    "lines": [{"type": "text", "text": "@./\n" * 3_000_000}],
    "name": [{"type": "text", "text": "/" + "a" * 14_000_000}],
    "address": [{"type": "resource_link", "name": "n", "uri": "file:///" + "%41" * 5_000_000}],
}


@pytest.mark.spec("SEC-13", "ACP-2")
@pytest.mark.parametrize("kind", PROMPTS)
def test_what_an_editor_sends_is_read_in_bounded_time_and_memory(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    model_server.default = say("I see.")
    with Editor(model_server, work) as editor:
        session_id = editor.new()
        prompt = editor.request("session/prompt", sessionId=session_id, prompt=PROMPTS[kind])
        answer = editor.response(prompt)
        assert ("error" if kind == "name" else "result") in answer and len(str(answer)) < 1_000
        assert sys.platform != "linux" or peak_kib(editor.process.pid) < MAX_RESIDENT_KB
        assert editor.leave() == 0
