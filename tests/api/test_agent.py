"""The library as a program uses it: real sessions, a real server, real files."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import agentcli
from agentcli import Agent, AgentResult, tool
from agentcli.domain.errors import AgentError, ProviderError, UsageError
from agentcli.domain.events import Cancelled, Done, Outcome, TextChunk, ToolFinished
from agentcli.domain.messages import ResultStatus, ToolResult
from agentcli.domain.ports import ApprovalRequest
from tests.support.cli import agent_env
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, Reply, Text, fails


class Weather(BaseModel):
    city: str
    degrees: int


def served(
    replies: list[Any], body: Callable[[ModelServer, dict[str, str]], Awaitable[None]], **how: Any
) -> None:
    with ModelServer(replies) as server:
        asyncio.run(body(server, agent_env(server, how.get("protocol", ANTHROPIC))))


def test_the_exported_names_are_pinned() -> None:
    assert sorted(agentcli.__all__) == ["Agent", "AgentResult", "__version__", "tool"]
    for name in agentcli.__all__:
        assert getattr(agentcli, name) is not None
    with pytest.raises(AttributeError):
        agentcli.nothing
    assert (Path(agentcli.__file__).parent / "py.typed").exists()


def test_importing_the_package_loads_nothing_of_the_library() -> None:
    code = "import agentcli, sys; print([m for m in sys.modules if m.startswith('agentcli.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.spec("CAN-12")
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI])
def test_a_turn_is_its_events_and_a_function_is_a_tool(tmp_path: Path, protocol: str) -> None:
    asked: list[tuple[str, int]] = []

    def forecast(city: str, days: int = 1) -> dict[str, Any]:
        """The weather of a city.

        Not for the model.
        """
        asked.append((city, days))
        return {"city": city, "degrees": 7}

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, tools=[forecast], builtin_tools=()) as agent:
            events = [event async for event in agent.run("How is Oslo?")]
            assert events[0].type == "turn_start" and isinstance(events[-1], Done)
            assert "".join(e.text for e in events if isinstance(e, TextChunk)) == "7 degrees"
            result = await agent.run_to_end("And now?")
            assert isinstance(result, AgentResult) and result.is_complete
            assert (result.text, result.session_id) == ("still 7", agent.session_id)
            assert len(agent.messages) == 6 and agent.usage.is_known
        assert asked == [("Oslo", 3)]
        offered = str(server.requests[0].body["tools"])
        assert "The weather of a city." in offered and "Not for the model" not in offered
        assert "read_file" not in offered

    replies = [
        Reply(blocks=(Call("forecast", {"city": "Oslo", "days": 3}),)),
        Reply(blocks=(Text("7 degrees"),)),
        Reply(blocks=(Text("still 7"),)),
    ]
    served(replies, body, protocol=protocol)


@pytest.mark.spec("CTRL-5")
def test_a_result_in_the_shape_of_a_model_class(tmp_path: Path) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, output=Weather) as agent:
            result = await agent.run_to_end("How is Oslo?")
        assert Weather.model_validate(result.structured) == Weather(city="Oslo", degrees=7)
        assert len(server.requests) == 1

    served([Reply(blocks=(Call("final_result", {"city": "Oslo", "degrees": 7}),))], body)


@pytest.mark.spec("CLI-7")
def test_the_program_answers_for_the_person_and_nobody_is_there_without_it(tmp_path: Path) -> None:
    seen: list[str] = []

    async def approve(request: ApprovalRequest) -> bool:
        seen.append(request.call.name)
        return True

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env) as agent:
            await agent.run_to_end("write")
            assert not (tmp_path / "a.txt").exists()
            assert _results(agent)[-1].status is ResultStatus.REFUSED
        async with Agent(cwd=tmp_path, env=env, approve=approve) as agent:
            await agent.run_to_end("write")
        assert (tmp_path / "a.txt").read_text() == "hi" and seen == ["write_file"]

    call = Reply(blocks=(Call("write_file", {"path": "a.txt", "content": "hi"}),))
    served([call, Reply(blocks=(Text("ok"),)), call, Reply(blocks=(Text("ok"),))], body)


@pytest.mark.spec("CAN-4", "CAN-7")
def test_leaving_the_loop_cancels_the_turn_and_the_agent_goes_on(tmp_path: Path) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, permission_mode="yolo") as agent:
            async for event in agent.run("go"):
                if event.type == "tool_started":
                    break
            assert (await agent.run_to_end("go on")).text == "on"
            assert _results(agent)[-1].parts[0].text == "Cancelled by user"  # type: ignore[union-attr]  # a text

    sleeping = Reply(blocks=(Call("bash", {"command": "sleep 600"}),))
    served([sleeping, Reply(blocks=(Text("on"),))], body)


@pytest.mark.spec("CAN-4")
def test_leaving_the_block_in_mid_turn_joins_everything(tmp_path: Path) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        before = asyncio.all_tasks()
        async with Agent(cwd=tmp_path, env=env, permission_mode="yolo") as agent:
            session_id, events = agent.session_id, agent.run("go")
            async for event in events:
                if event.type == "tool_started":
                    break
        await events.aclose()  # type: ignore[attr-defined]  # an async generator
        assert asyncio.all_tasks() == before
        async with Agent(cwd=tmp_path, env=env, session=session_id) as again:
            assert _results(again)[-1].is_error
            assert (await again.run_to_end("go on")).text == "on"

    sleeping = Reply(blocks=(Call("bash", {"command": "sleep 600"}),))
    served([sleeping, Reply(blocks=(Text("on"),))], body)


def test_interrupt_enqueue_and_a_second_turn(tmp_path: Path) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, permission_mode="yolo") as agent:
            last = None
            async for event in agent.run("go"):
                last = event
                if event.type == "tool_started":
                    await agent.enqueue("and then this", when_done=True)
                    with pytest.raises(UsageError):
                        await agent.run_to_end("too early")
                    assert agent.interrupt()
            assert isinstance(last, Cancelled) and not agent.interrupt()

    served([Reply(blocks=(Call("bash", {"command": "sleep 600"}),))], body)


@pytest.mark.spec("CLI-4")
def test_a_turn_that_takes_too_long_is_cancelled(tmp_path: Path) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, permission_mode="yolo") as agent:
            result = await agent.run_to_end("go", timeout_s=0.5)
            assert result.outcome is Outcome.CANCELLED and not result.is_complete

    served([Reply(blocks=(Call("bash", {"command": "sleep 600"}),))], body)


def test_a_failed_turn_raises_its_error(tmp_path: Path) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, keep=False) as agent:
            with pytest.raises(ProviderError) as caught:
                await agent.run_to_end("go")
            assert caught.value.advice

    served([fails(401)], body)


@pytest.mark.spec("LOOP-5")
def test_what_a_function_raises_is_for_the_model_and_bad_arguments_never_reach_it(
    tmp_path: Path,
) -> None:
    @tool(name="count", description="Count.", effect="read")
    async def counting(upto: int) -> int:
        if upto > 3:
            raise ValueError("too many")
        return upto

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, tools=[counting]) as agent:
            async for event in agent.run("count"):
                if isinstance(event, ToolFinished):
                    finished.append((event.result.is_error, event.result.text))

    finished: list[tuple[bool, str]] = []
    replies = [
        Reply(
            blocks=tuple(Call("count", {"upto": value}) for value in (2, 9, "many")),
        ),
        Reply(blocks=(Text("ok"),)),
    ]
    served(replies, body)
    assert [is_error for is_error, _ in finished] == [False, True, True]
    assert finished[0][1] == "2" and "too many" in finished[1][1] and "upto" in finished[2][1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"permission_mode": "sometimes"},
        {"effort": "huge"},
        {"tools": [lambda x: x]},
        {"output": 7},
        {"model": "nobody/nothing"},
    ],
)
def test_bad_input_is_one_clear_error(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        with pytest.raises(AgentError) as caught:
            async with Agent(cwd=tmp_path, env=env, **wrong):
                pass
        assert "\n" not in caught.value.message

    served([], body)


def test_an_agent_that_is_not_open_says_so() -> None:
    with pytest.raises(UsageError, match="not open"):
        Agent().interrupt()


def _results(agent: Agent) -> list[ToolResult]:
    return [message for message in agent.messages if isinstance(message, ToolResult)]


def test_the_example_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    readme = (Path(agentcli.__file__).parent.parent / "README.md").read_text()
    example = readme.partition("## As a library")[2].partition("```python\n")[2]
    program = tmp_path / "example.py"
    program.write_text(example.partition("```")[0])
    replies = [
        Reply(blocks=(Call("stock", {"item": "apple"}),)),
        Reply(blocks=(Text("seven"),)),
        Reply(blocks=(Text("two"),)),
    ]
    with ModelServer(replies) as server:
        done = subprocess.run(
            [sys.executable, str(program)],
            capture_output=True,
            text=True,
            env=agent_env(server),
            cwd=tmp_path,
            check=False,
        )
    assert done.stderr == "" and done.stdout.startswith("seventwo 20 ")
