"""Programs written for Claude Code's stream-json work with this one: Anthropic's own SDK does.

Its parser reads every line of every kind of run; its client, pointed at ``agent``, holds a
conversation with an interrupt, approvals and structured output (CLI-4, CLI-5).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stream_client import ARGS, message
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.packages import Package
from tests.support.replies import Call as ModelCall
from tests.support.replies import call, calls, fails, say

pytestmark = pytest.mark.slow

sdk = Package("claude_agent_sdk")
parser = Package("claude_agent_sdk._internal.message_parser")
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
READ = calls(ModelCall("read_file", {"path": "note.txt"}), thinking="hm", text="Let me look.")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "note.txt").write_text("the note\n")
    return tmp_path


def parsed(lines: list[dict[str, Any]]) -> list[Any]:
    """The lines as the SDK's values; none of them is unknown to it."""
    found = [
        parser.parse_message(line) for line in lines if not line["type"].startswith("control_")
    ]
    assert None not in found, lines
    return found


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize(
    ("script", "args", "code", "subtype"),
    [
        ([READ, say("It says: the note.", thinking="so")], ("--effort", "high"), 0, "success"),
        ([call("read_file", {"path": "none"}), "No such file."], (), 0, "success"),
        ([call("bash", {"command": "touch x"}), "I may not."], (), 4, "error_approval_needed"),
        ([fails(529, retry_after="0"), "At last."], (), 0, "success"),
        ([fails(400)], (), 1, "error_during_execution"),
        ([say("x", stall_at="text")], ("--timeout", "0.6"), 3, "error_timeout"),
        ([READ], ("--max-turns", "1"), 3, "error_max_turns"),
        ([call("final_result", {"n": 7})], ("--json-schema", json.dumps(SCHEMA)), 0, "success"),
    ],
    ids=["tools", "tool-error", "refused", "retry", "error", "timeout", "turns", "structured"],
)
def test_its_parser_reads_every_line(
    model_server: ModelServer,
    work: Path,
    script: list[Any],
    args: tuple[str, ...],
    code: int,
    subtype: str,
) -> None:
    model_server.add(*script)
    given = ("-o", "stream-json", "--include-partial-messages", *args, "go")
    done = run_agent("run", *given, env=agent_env(model_server), cwd=work)
    assert done.code == code, done
    values = parsed(done.lines)
    assert isinstance(values[0], sdk.SystemMessage) and values[0].subtype == "init"
    result = values[-1]
    assert isinstance(result, sdk.ResultMessage)
    assert (result.subtype, result.is_error) == (subtype, subtype != "success")
    if "--json-schema" in args:
        assert result.structured_output == {"n": 7}
    blocks = [b for v in values if isinstance(v, sdk.AssistantMessage) for b in v.content]
    if script[0] is READ and subtype == "success":
        kinds = [type(block).__name__ for block in blocks]
        assert kinds == ["ThinkingBlock", "TextBlock", "ToolUseBlock", "ThinkingBlock", "TextBlock"]


@pytest.mark.spec("CLI-4", "CLI-5")
def test_its_parser_reads_a_conversation(model_server: ModelServer, work: Path) -> None:
    model_server.add("One.", fails(400))
    lines = [json.dumps(message("a")), "oops", json.dumps(message("b", uuid="u"))]
    args = (*ARGS, "--replay-user-messages")
    done = run_agent(*args, input="\n".join(lines), env=agent_env(model_server), cwd=work)
    values = parsed(done.lines)
    assert [v.subtype for v in values if isinstance(v, sdk.ResultMessage)] == [
        "success",
        "error_during_execution",
    ]
    said = [v.content[0].text for v in values if isinstance(v, sdk.UserMessage)]
    assert said == ["a", "b"]


# --- its client -----------------------------------------------------------------------------------


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The program as one file, which is what the client wants."""
    installed = shutil.which("agent", path=str(Path(sys.executable).parent))
    if installed is not None:
        return Path(installed)
    path = tmp_path / "agent"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentcli "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def options(model_server: ModelServer, work: Path, agent: Path) -> Callable[..., Any]:
    """Options of the client for a conversation with the model server."""

    def make(**more: Any) -> Any:
        env = agent_env(model_server)
        return sdk.ClaudeAgentOptions(
            cli_path=agent, cwd=work, env=env, stderr=lambda _: None, **more
        )

    return make


def within(coroutine: Any, seconds: float = 20.0) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(bounded())


@pytest.mark.spec("CLI-4", "CLI-5", "CAN-4")
def test_its_client_holds_a_conversation_and_interrupts_it(
    model_server: ModelServer, options: Callable[..., Any], work: Path
) -> None:
    made = call("bash", {"command": "touch made"}, text="Trying.")
    model_server.add(made, "Done.", say("never", stall_at="start"), "After.")

    async def talk() -> list[list[Any]]:
        turns: list[list[Any]] = []
        given = options(
            permission_mode="bypassPermissions",
            setting_sources=[],
            allowed_tools=["Read", "Bash(git diff:*)"],
            disallowed_tools=["WebFetch"],
            max_turns=20,
            include_partial_messages=True,
        )
        async with sdk.ClaudeSDKClient(given) as client:
            await client.query("go")
            turns.append([each async for each in client.receive_response()])
            await client.query("again")
            await model_server.holding(3)
            await client.interrupt()
            turns.append([each async for each in client.receive_response()])
            await client.set_model("anthropic/claude-sonnet-4-5")
            await client.query("after")
            turns.append([each async for each in client.receive_response()])
        return turns

    turns = within(talk())
    assert [turn[-1].subtype for turn in turns] == ["success", "cancelled", "success"]
    assert (turns[0][-1].result, turns[2][-1].result) == ("Done.", "After.")
    names = [
        b.name for m in turns[0] if isinstance(m, sdk.AssistantMessage) for b in m.content
        if isinstance(b, sdk.ToolUseBlock)
    ]  # fmt: skip
    assert names == ["bash"] and (work / "made").exists()
    assert len({turn[-1].session_id for turn in turns}) == 1


@pytest.mark.spec("CLI-4", "CLI-7")
def test_its_client_decides_over_calls(
    model_server: ModelServer, options: Callable[..., Any], work: Path
) -> None:
    model_server.add(
        call("bash", {"command": "touch yes"}), call("bash", {"command": "touch no"}), "So."
    )
    seen: list[str] = []

    async def decide(name: str, given: dict[str, Any], _context: Any) -> Any:
        seen.append(f"{name} {given['command']}")
        if given["command"] == "touch yes":
            return sdk.PermissionResultAllow()
        return sdk.PermissionResultDeny(message="not that")

    async def talk() -> Any:
        async with sdk.ClaudeSDKClient(options(can_use_tool=decide)) as client:
            await client.query("go")
            return [each async for each in client.receive_response()][-1]

    result = within(talk())
    assert seen == ["bash touch yes", "bash touch no"]
    assert result.subtype == "success"
    assert [denied["tool_input"] for denied in result.permission_denials] == [
        {"command": "touch no"}
    ]
    assert (work / "yes").exists() and not (work / "no").exists()


@pytest.mark.spec("CLI-5", "CTRL-5")
def test_its_one_shot_query_gets_structured_output(
    model_server: ModelServer, options: Callable[..., Any]
) -> None:
    model_server.add(call("final_result", {"n": 7}))

    async def ask() -> list[Any]:
        given = options(output_format={"type": "json_schema", "schema": SCHEMA})
        return [each async for each in sdk.query(prompt="how many?", options=given)]

    result = within(ask())[-1]
    assert (result.subtype, result.structured_output) == ("success", {"n": 7})


@pytest.mark.spec("CLI-5", "CLI-6")
def test_its_query_raises_what_went_wrong(
    model_server: ModelServer, options: Callable[..., Any]
) -> None:
    model_server.add(fails(401))

    async def ask() -> list[Any]:
        return [each async for each in sdk.query(prompt="hi", options=options())]

    with pytest.raises(Exception, match="ANTHROPIC_API_KEY") as raised:
        within(ask())
    assert getattr(raised.value, "exit_code", None) == 78
