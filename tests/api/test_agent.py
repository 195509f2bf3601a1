"""The library as a program uses it: real sessions, a real server, real files."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import agentcli
from agentcli import Agent, AgentResult, tool
from agentcli.domain.errors import AgentError, NoStructuredOutput, ProviderError, UsageError
from agentcli.domain.events import Cancelled, Done, Outcome, TextChunk, ToolFinished
from agentcli.domain.messages import ResultStatus, ToolResult
from agentcli.domain.ports import ApprovalRequest
from tests.support.cli import agent_env
from tests.support.docs import topic
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, Reply, Text, fails


class Weather(BaseModel):
    city: str
    degrees: int


def read_file(path: str) -> str:
    """Has the name of a tool of ours."""
    return path


def final_result(path: str) -> str:
    """Has the name of another."""
    return path


def served(
    replies: list[Any],
    body: Callable[[ModelServer, dict[str, str]], Coroutine[Any, Any, None]],
    **how: Any,
) -> None:
    with ModelServer(replies) as server:
        asyncio.run(body(server, agent_env(server, how.get("protocol", ANTHROPIC))))


def test_the_exported_names_are_pinned() -> None:
    exported = agentcli.__getattr__("__all__")
    assert {"Agent", "AgentResult", "__version__", "tool", "user_text"} <= set(exported)  # type: ignore[arg-type]  # names
    assert sorted(set(exported)) == sorted(exported)  # type: ignore[arg-type]  # names
    for name in exported:  # type: ignore[attr-defined]  # names
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
        await events.aclose()
        assert asyncio.all_tasks() == before
        async with Agent(cwd=tmp_path, env=env, session=session_id) as again:
            assert _results(again)[-1].is_error
            assert (await again.run_to_end("go on")).text == "on"

    sleeping = Reply(blocks=(Call("bash", {"command": "sleep 600"}),))
    served([sleeping, Reply(blocks=(Text("on"),))], body)


@pytest.mark.spec("CAN-4", "CAN-7")
@pytest.mark.parametrize("how", ["timeout", "wait_for", "before_it_began"])
def test_cancelling_the_task_that_waits_cancels_the_turn_and_the_agent_goes_on(
    tmp_path: Path, how: str
) -> None:
    async def waiting(agent: Agent) -> None:
        if how == "timeout":
            async with asyncio.timeout(None) as limit:
                async for event in agent.run("go"):
                    if event.type == "tool_started":
                        limit.reschedule(0)
        elif how == "wait_for":
            await asyncio.wait_for(agent.run_to_end("go"), 0.3)
        else:
            first = asyncio.create_task(anext(agent.run("go")))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait({first})
            raise TimeoutError

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, permission_mode="yolo") as agent:
            try:
                await waiting(agent)
            except TimeoutError:
                # within the handler: what was raised still holds the iterator
                assert all(result.is_error for result in _results(agent))
                assert (await agent.run_to_end("go on")).text == "on"

    sleeping = Reply(blocks=(Call("bash", {"command": "sleep 600"}),))
    on = Reply(blocks=(Text("on"),))
    served([on] if how == "before_it_began" else [sleeping, on], body)


def test_with_its_terminal_event_a_turn_is_over_although_somebody_holds_the_iterator(
    tmp_path: Path,
) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        agent = Agent(cwd=tmp_path, env=env, keep=False)
        async with agent:
            events = agent.run("one")
            async for event in events:
                if isinstance(event, Done):
                    break
            assert (await agent.run_to_end("two")).text == "2"
            assert [event async for event in events] == []
            left = agent.run("three")
            await anext(left)
        async with agent:  # opened again: an iterator of before does not touch the new turn
            begun = agent.run("four")
            await anext(begun)
            del left
            assert isinstance([event async for event in begun][-1], Done)

    served([Reply(blocks=(Text(str(number)),)) for number in (1, 2, 3, 4)], body)


@pytest.mark.spec("CAN-11")
def test_two_agents_at_once_share_nothing(tmp_path: Path) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        how: dict[str, Any] = {"cwd": tmp_path, "env": env, "permission_mode": "yolo"}
        async with Agent(**how) as one, Agent(**how) as two:
            async for event in one.run("first"):
                if event.type == "tool_started":
                    answer = await two.run_to_end("second")
                    assert one.interrupt() and not two.interrupt()
            assert isinstance(event, Cancelled)
            assert (answer.text, len(two.messages)) == ("on", 2)
            assert one.session_id != two.session_id

    sleeping = Reply(blocks=(Call("bash", {"command": "sleep 600"}),))
    served([sleeping, Reply(blocks=(Text("on"),))], body)


@pytest.mark.spec("CTRL-5", "CTRL-2")
@pytest.mark.parametrize(
    ("fallback", "replies", "expected"),
    [
        ("narrowed", [Call("deliver", {"count": 7})], {"count": 7}),
        ("narrowed", [Text("seven"), Text('{"count": 7}'), Text("Bye.")], {"count": 7}),
        ("eager", [Text("Starting with one."), Text("seven"), Text("Bye.")], "seven"),
        ("eager", [Text("Shall I count?"), Text("seven"), Text("Bye.")], "seven"),
        ("off", [Text("{}")] * 3, NoStructuredOutput),
    ],
)
def test_any_tool_may_be_named_terminal(
    tmp_path: Path, fallback: str, replies: list[Any], expected: Any
) -> None:
    def deliver(count: int) -> None:
        """Deliver the count."""

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(
            cwd=tmp_path, env=env, tools=[deliver], terminal=["deliver"], fallback=fallback
        ) as agent:
            if expected is NoStructuredOutput:
                with pytest.raises(NoStructuredOutput):
                    await agent.run_to_end("count")
            else:
                assert (await agent.run_to_end("count")).structured == expected
        assert len(server.requests) == len(replies)

    served([Reply(blocks=(block,)) for block in replies], body)


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
            assert result.outcome is Outcome.TIMED_OUT and not result.is_complete

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
        {"tools": [partial(read_file)]},
        {"tools": [int]},
        {"store": object()},
        {"output": 7},
        {"model": "nobody/nothing"},
        {"tools": [read_file]},
        {"tools": [final_result], "output": Weather},
        {"terminal": ["nothing"]},
        {"terminal": ["read_file"], "fallback": "sometimes"},
    ],
)
def test_bad_input_is_one_clear_error(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        with pytest.raises(AgentError) as caught:
            async with Agent(cwd=tmp_path, env=env, **wrong):
                pass
        assert "\n" not in caught.value.message

    served([], body)


@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize("bug", [KeyError, StopIteration])
def test_a_bug_in_a_function_goes_to_the_log_and_not_to_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], bug: type[Exception]
) -> None:
    def boom() -> None:
        """Fail."""
        raise bug("of no concern to the model")

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, tools=[boom]) as agent:
            await agent.run_to_end("go")
            assert "of no concern" not in str(agent.messages)

    logger = logging.getLogger("agentcli")
    before, logger.propagate = logger.propagate, False
    try:
        served([Reply(blocks=(Call("boom", {}),)), Reply(blocks=(Text("ok"),))], body)
    finally:
        logger.propagate = before
    assert capfd.readouterr() == ("", "")


def test_an_agent_that_is_not_open_says_so() -> None:
    with pytest.raises(UsageError, match="not open"):
        Agent().interrupt()


def _results(agent: Agent) -> list[ToolResult]:
    return [message for message in agent.messages if isinstance(message, ToolResult)]


@pytest.mark.slow
def test_the_example_of_the_documentation_runs_as_it_stands(tmp_path: Path) -> None:
    example = topic("library").partition("```python\n")[2]
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
