"""MCP servers in the installed program: what the model sees of them, what is asked, what is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.one_shot import check_sessions, result_of
from tests.support.cli import Finished, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import Call, call, calls, say
from tests.support.web_server import WebServer, answer

pytestmark = [pytest.mark.sampled, pytest.mark.spec("TOOL-13")]
SUPPORT = Path(__file__).resolve().parent.parent / "support"


def hostile(mode: str, **more: Any) -> dict[str, Any]:
    args = ["-S", str(SUPPORT / "mcp_hostile.py"), mode]
    return {"command": sys.executable, "args": args, **more}


def run(
    server: ModelServer,
    cwd: Path,
    servers: dict[str, Any],
    *args: str,
    env: dict[str, str] | None = None,
) -> Finished:
    config = json.dumps({"mcpServers": servers})
    line = ("run", "go", "--output-format", "json", "--mcp-config", config, *args)
    return run_agent(*line, env=env or agent_env(server), cwd=cwd)


_NOTES_ITS_PEAK = """
import atexit, os, sys
def note():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            open(os.environ["PEAK"], "w").write(line.split()[1])
if "PEAK" in os.environ and "--mcp-config" in sys.argv:
    atexit.register(note)
"""


def tools_sent(body: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in body["tools"]]


def results_of(body: dict[str, Any]) -> list[str]:
    found = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else []:
            if block.get("type") == "tool_result":
                texts = (part["text"] for part in block["content"] if part["type"] == "text")
                found.append("\n".join(texts))
    return found


@pytest.mark.spec("SEC-9", "MCP-4")
def test_a_key_that_a_server_tells_is_in_no_file(tmp_path: Path) -> None:
    key = "srvkey-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3"
    replies = [call("tool_search", {"query": "echo"}), say("done")]
    servers = {"one": hostile("tells", env={"SERVER_KEY": key})}
    with ModelServer(replies) as server:
        assert run(server, tmp_path, servers).code == 0
    files = [each for each in Path(os.environ["HOME"]).rglob("*") if each.is_file()]
    assert [each for each in files if each.parent.name == "mcp"]
    assert not [each for each in files if key.encode() in each.read_bytes()]


@pytest.mark.slow
@pytest.mark.spec("SEC-9", "MCP-4")
@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_an_error_of_a_server_is_told_without_its_key_and_with_its_address(
    tmp_path: Path, output: str
) -> None:
    key, url = "srvkey-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3", "https://gitlab.example.com/api/v4"
    place = tmp_path / "3dmodels"
    place.mkdir()
    env = {"SERVER_KEY": key, "API_URL": url, "PLACE": str(place), "MODEL": "m-large-20241022"}
    config = json.dumps({"mcpServers": {"one": hostile("betrays", env=env)}})
    told = f"{url}, {place}, m-large-20241022"
    line = ("run", told, "-o", output, "--mcp-config", config, "--yolo", "--debug", "debug.log")
    with ModelServer([call("mcp__one__echo", {}), say(told)], default=say("END")) as server:
        done = run_agent(*line, env=agent_env(server), cwd=tmp_path)
        again = run_agent("run", "-c", *line[1:], env=agent_env(server), cwd=tmp_path)
        assert (done.code, again.code) == (0, 0), done.stderr + again.stderr
        sent = json.dumps(server.requests[-1].body)
    log = (tmp_path / "debug.log").read_text()
    assert key not in done.stdout + done.stderr + again.stdout + again.stderr + log
    assert f"of {url} is not welcome" in sent and sent.count(told) == 3
    assert told in done.stdout


@pytest.mark.spec("SEC-9", "MCP-4")
@pytest.mark.parametrize("given", [
    ("--api-key", "{}"), ("--header", "X-Api-Key: {}"), ("https://a.example/mcp?tavilyApiKey={}",),
])  # fmt: skip
def test_a_key_in_a_servers_arguments_is_in_no_output_and_no_file(
    tmp_path: Path, home: Path, given: tuple[str, ...]
) -> None:
    key = "srvkey-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3"
    server_of = hostile("betrays", env={"SERVER_KEY": "x", "API_URL": "y"})
    server_of["args"] += [each.format(key) for each in given]
    config = json.dumps({"mcpServers": {"one": server_of}})
    line = ("run", "--mcp-config", config, "--yolo", "--debug", "debug.log", "go")
    with ModelServer([call("mcp__one__echo", {}), say("END")]) as server:
        done = run_agent(*line, env=agent_env(server), cwd=tmp_path)
        sent = json.dumps(server.requests[-1].body)
    assert key in sent and done.stdout == "END\n", done.stderr
    assert key not in done.stderr
    files = [each for place in (home, tmp_path) for each in place.rglob("*") if each.is_file()]
    assert not [each for each in files if key.encode() in each.read_bytes()]


@pytest.mark.spec("SEC-9", "MCP-5")
def test_what_a_server_says_when_it_is_tried_is_shown_without_the_key_that_it_was_sent(
    tmp_path: Path, home: Path
) -> None:
    key = "srvkey-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3"
    page = answer(f"no: {key}", status="403 Forbidden", Connection="close")
    with WebServer({"/mcp": page, f"/mcp?key={key}": page}) as web:
        entry = {"url": f"http://127.0.0.1:{web.port}/mcp?key={key}", "headers": {"X-Key": key}}
        (home / ".claude.json").write_text(json.dumps({"mcpServers": {"one": entry}}))
        added = run_agent("mcp", "import", str(home / ".claude.json"), cwd=tmp_path)
        assert added.code == 0, added.stderr
        for shape in ("table", "json"):
            done = run_agent("mcp", "test", "one", "--format", shape, cwd=tmp_path)
            assert "403" in done.stdout and key not in done.stdout + done.stderr


@pytest.mark.spec("MCP-4")
def test_a_tool_is_found_and_called_and_the_prefix_never_changes(tmp_path: Path) -> None:
    replies = [
        call("tool_search", {"query": "echo"}),
        call("mcp_call", {"server": "one", "tool": "echo", "arguments": {"a": "b"}}),
        say("done"),
    ]
    servers = {"one": hostile("echo"), "two": hostile("odd")}
    with ModelServer(replies) as server:
        done = run(server, tmp_path, servers, "--allow-tool", "mcp__one__*")
        assert result_of(done)["result"] == "done", done.stderr
        assert not server.violations
        first, second, third = (request.body for request in server.requests)
        server.restart(say("again"))
        again = run(server, tmp_path, servers)
        assert again.code == 0
        later = server.requests[-1].body
    assert {"tool_search", "mcp_call"} <= set(tools_sent(first))
    for body in (second, third):
        assert body["tools"] == first["tools"]
        assert body["system"] == first["system"]
    assert "- one: its tools are not known yet" in json.dumps(first["system"])
    assert 'mcp_call with server "one", tool "echo"' in results_of(second)[0]
    assert results_of(third)[1] == '{"a": "b"}'
    told = json.dumps(later["system"], ensure_ascii=False)
    assert "- one: Tools: echo" in told
    assert "- two: Tools: bash, loop, list, huge" in told
    assert "\\u001b" not in told
    check_sessions()


def test_without_a_rule_a_call_is_refused_as_the_tool_that_it_names(tmp_path: Path) -> None:
    arguments = {"server": "one", "tool": "echo", "arguments": {}}
    with ModelServer([call("mcp_call", arguments), say("done")]) as server:
        done = run(server, tmp_path, {"one": hostile("echo")})
        told = results_of(server.requests[-1].body)[0]
    assert "needs approval" in told
    assert "--allow-tool 'mcp__one__echo'" in told
    (denial,) = result_of(done)["permission_denials"]
    assert denial["tool_name"] == "mcp__one__echo"


@pytest.mark.parametrize("rule", ["mcp__one", "mcp__one__echo", "mcp__*"])
def test_a_deny_rule_for_a_server_or_a_tool_holds_in_yolo_too(tmp_path: Path, rule: str) -> None:
    arguments = {"server": "one", "tool": "echo", "arguments": {}}
    with ModelServer([call("mcp_call", arguments), say("done")]) as server:
        run(server, tmp_path, {"one": hostile("echo")}, "--yolo", "--deny-tool", rule)
        assert f"denied by the rule {rule}" in results_of(server.requests[-1].body)[0]


@pytest.mark.slow
def test_what_is_no_tool_of_a_server_cannot_be_called_through_it(tmp_path: Path) -> None:
    inner = {"tool": "bash", "args": {"command": "touch x"}}
    replies = [
        calls(
            Call(
                "mcp_call", {"server": "agentcli", "tool": "bash", "arguments": {"command": "id"}}
            ),
            Call(
                "mcp_call", {"server": "agentcli", "tool": "spawn_background", "arguments": inner}
            ),
            Call("mcp_call", {"server": "agentcli", "tool": "mcp_call", "arguments": inner}),
            Call("mcp_call", {"server": "nobody", "tool": "echo", "arguments": {}}),
        ),
        say("done"),
    ]
    with ModelServer(replies) as server:
        run(server, tmp_path, {"one": hostile("echo")}, "--yolo")
        told = results_of(server.requests[-1].body)
    assert all("call it directly" in text for text in told[:3])
    assert "There is no tool named" in told[3]
    assert not (tmp_path / "x").exists()


@pytest.mark.spec("TOOL-14")
def test_our_own_deferred_tools_are_found_and_called_in_the_same_way(tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    cell = {"cell_type": "markdown", "id": "c1", "metadata": {}, "source": "old"}
    notebook.write_text(
        json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    edit = {"path": "a.ipynb", "cell_id": "c1", "new_source": "new"}
    replies = [
        call("tool_search", {"query": "select:edit_notebook"}),
        call("read_file", {"path": "a.ipynb"}),
        call("mcp_call", {"server": "agentcli", "tool": "edit_notebook", "arguments": edit}),
        say("done"),
    ]
    with ModelServer(replies) as server:
        mode = ("--permission-mode", "accept-edits")
        run(server, tmp_path, {"one": hostile("echo")}, *mode)
        told = results_of(server.requests[-1].body)
    assert "cell_id" in told[0]
    assert "new" in notebook.read_text(), told[-1]


@pytest.mark.slow
def test_a_pinned_server_is_called_by_the_names_of_its_tools(tmp_path: Path) -> None:
    servers = {"one": hostile("odd", alwaysLoad=True)}
    with ModelServer([call("tool_search", {"query": "bash"}), say("done")]) as server:
        run(server, tmp_path, servers)
        server.restart(call("mcp__one__bash", {"x": 1}), say("done"))
        done = run(server, tmp_path, servers, "--allow-tool", "mcp__one__bash")
        assert not server.violations
        body = server.requests[-1].body
    assert done.code == 0
    assert "mcp__one__bash" in tools_sent(body)
    assert '{"x": ' in results_of(body)[0]


@pytest.mark.slow
@pytest.mark.spec("MCP-2")
def test_of_five_servers_four_are_bad_and_the_turn_ends_all_the_same(tmp_path: Path) -> None:
    names = ("hangs", "dies", "floods", "lies")
    servers = {name: hostile(name, timeout=2000) for name in names}
    servers["good"] = hostile("echo")
    one = {"tool": "echo", "arguments": {"n": 1}}
    replies = [
        calls(*(Call("mcp_call", {"server": name, **one}) for name in servers)),
        say("done"),
    ]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text(_NOTES_ITS_PEAK)
    peak = tmp_path / "peak"
    with ModelServer(replies) as server:
        env = {**agent_env(server), "PYTHONPATH": str(tmp_path / "own"), "PEAK": str(peak)}
        done = run(server, tmp_path, servers, "--allow-tool", "mcp__*", env=env)
        told = results_of(server.requests[-1].body)
    assert result_of(done)["result"] == "done"
    if sys.platform == "linux":
        assert int(peak.read_text()) < 300 * 1024  # KiB
    assert "did not answer in time" in told[0]
    assert "exited with code 7" in told[1]
    assert "16,777,216 bytes" in told[2]
    assert all('{"n": 1}' in text for text in told[3:])


@pytest.mark.spec("REC-8", "SEC-13")
@pytest.mark.parametrize(
    ("how", "mode"),
    [
        (signal.SIGKILL, "hangs"),
        (signal.SIGINT, "hangs"),
        (signal.SIGTERM, "hangs"),
        pytest.param(signal.SIGINT, "rushes", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left_of_servers_when_the_program_is_ended(
    tmp_path: Path, how: signal.Signals, mode: str
) -> None:
    import subprocess

    seen = tmp_path / "seen"
    mark = {"SEEN_FILE": str(seen)}
    config = json.dumps(
        {"mcpServers": {name: hostile(name, env=mark) for name in (mode, "silent")}}
    )
    arguments = {"server": mode, "tool": "echo", "arguments": {}}
    with ModelServer([call("mcp_call", arguments), say("done")]) as server:
        line = [sys.executable, "-m", "agentcli", "run", "go", "--yolo", "--mcp-config", config]
        process = subprocess.Popen(
            line,
            env=agent_env(server),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: seen.exists() and "tools/call" in seen.read_text())
            assert len(with_mark(str(seen))) >= 2
            process.send_signal(how)
            process.wait(10)
            until(lambda: with_mark(str(seen)) == [])
        finally:
            process.kill()
            process.wait()


def until(is_so: Any) -> None:
    for _ in range(900):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def with_mark(mark: str) -> list[str]:
    """The processes whose environment holds ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return [pid for pid in found if pid != str(os.getpid())]


@pytest.mark.spec("SEC-1", "MCP-3")
@pytest.mark.parametrize("scope", ["user", "local", "option"])
def test_no_module_of_a_directory_that_nobody_trusts_is_taken_for_a_server(
    tmp_path: Path, scope: str
) -> None:
    work, mark = tmp_path / "work", tmp_path / "ran"
    work.mkdir()
    (work / "some_server.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    line = [sys.executable, "-m", "some_server"]
    entry: dict[str, Any] = {"command": line[0], "args": line[1:]}
    if scope != "option":
        added = run_agent("mcp", "add", "--scope", scope, "ex", "--", *line, cwd=work)
        assert added.code == 0, added.stderr
    given = {"ex": entry} if scope == "option" else {}
    with ModelServer([call("tool_search", {"query": "x"}), say("done")]) as server:
        assert result_of(run(server, work, given))["result"] == "done"
        assert not mark.exists()
        server.restart(call("tool_search", {"query": "x"}), say("done"))
        run(server, work, {"ex": {**entry, "cwd": str(work)}})
    assert mark.exists(), "a server may be told to start there"


@pytest.mark.slow
@pytest.mark.spec("MCP-1")
def test_a_prompt_of_a_server_is_a_command(tmp_path: Path) -> None:
    pytest.importorskip("mcp_types")
    script = str(SUPPORT / "mcp_sdk_server.py")
    servers = {"ex": {"command": sys.executable, "args": [script]}}
    config = json.dumps({"mcpServers": servers})
    with ModelServer([call("tool_search", {"query": "add"}), say("first")]) as server:
        run(server, tmp_path, servers)  # from now on its prompts are known
        server.restart(say("done"))
        line = ("run", "/mcp__ex__review some code", "--mcp-config", config, "-o", "json")
        done = run_agent(*line, env=agent_env(server), cwd=tmp_path)
        assert result_of(done)["result"] == "done", done.stderr
        assert "Please review: some code" in json.dumps(server.requests[-1].body["messages"])
        count = len(server.requests)
        line = ("run", "/mcp__ex__review", "--mcp-config", config)
        wrong = run_agent(*line, env=agent_env(server), cwd=tmp_path)
        assert "needs code" in wrong.stderr
        assert len(server.requests) == count


@pytest.mark.slow
@pytest.mark.spec("MCP-1")
def test_a_resource_that_the_user_names_is_attached(tmp_path: Path) -> None:
    pytest.importorskip("mcp_types")
    script = str(SUPPORT / "mcp_sdk_server.py")
    config = json.dumps({"mcpServers": {"ex": {"command": sys.executable, "args": [script]}}})
    with ModelServer([say("done")]) as server:
        line = ("run", "look at @ex:note://mine, and @ex:no://such", "--mcp-config", config)
        done = run_agent(*line, env=agent_env(server), cwd=tmp_path)
        assert done.code == 0, done.stderr
        assert "the note mine" in json.dumps(server.requests[-1].body["messages"])
        assert "the MCP server ex answered" in done.stderr
