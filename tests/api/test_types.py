"""What the signatures of the library promise: every name exported, real instances, real types."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, Field

import agentcli
from agentcli import Agent, AgentResult, NoStructuredOutput, Outcome, UsageError, tool
from agentcli.domain.errors import InvalidArguments
from agentcli.tools.common.function_tool import FunctionTool
from tests.support.cli import agent_env
from tests.support.docs import README, topic
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.replies import Call, Reply, Text

pytestmark = pytest.mark.sampled


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 1.0


class Row(TypedDict):
    title: str
    when: date


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


def even(value: int) -> int:
    if value % 2:
        raise ValueError("it is odd")
    return value


class Weather(BaseModel):
    city: str
    degrees: Annotated[int, AfterValidator(even)]
    on: date


KINDS: list[tuple[Any, Any, Any]] = [
    (Colour, "red", Colour.RED),
    (date, "2026-01-02", date(2026, 1, 2)),
    (Path, "a/b", Path("a/b")),
    (UUID, "12345678123456781234567812345678", UUID("12345678123456781234567812345678")),
    (Decimal, "1.50", Decimal("1.50")),
    (set[int], [2, 1], {1, 2}),
    (frozenset[str], ["a"], frozenset("a")),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2.0], (1, 2)),
    (Point, {"x": 1}, Point(1)),
    (Row, {"title": "t", "when": "2026-01-02"}, {"title": "t", "when": date(2026, 1, 2)}),
    (
        list[Row] | None,
        [{"title": "t", "when": "2026-01-02"}],
        [{"title": "t", "when": date(2026, 1, 2)}],
    ),
    (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree(name="a", children=[Tree(name="b")])),
    (Annotated[int, Field(gt=0)], 3.0, 3),
    (Literal["a", "b"], "a", "a"),
    (dict[str, Colour], {"a": "red"}, {"a": Colour.RED}),
    (Colour | None, None, None),
]


@pytest.mark.spec("TOOL-15")
@pytest.mark.parametrize(("kind", "given", "expected"), KINDS, ids=[str(kind[0]) for kind in KINDS])
def test_every_type_that_pydantic_reads_from_json_works_for_a_tool(
    kind: Any, given: Any, expected: Any
) -> None:
    def take(value: Any, json: int = 1) -> str:
        """Takes a value."""
        return repr((value, json))

    take.__annotations__["value"] = kind
    made = FunctionTool(take, {})
    assert made.definition.parameters["required"] == ["value"]
    args = made.parse({"value": given})
    assert args.value == expected  # type: ignore[attr-defined]  # as the function says
    with pytest.raises(InvalidArguments, match="value"):
        made.parse({"value": object.__name__ * 3 if kind is not Path else 5})


def served(blocks: list[Any], body: Callable[[dict[str, str]], None]) -> ModelServer:
    replies = [Reply(blocks=(each,)) for each in blocks]
    with ModelServer(replies) as server:
        body(agent_env(server))
    return server


GOOD = {"city": "Oslo", "degrees": 8, "on": "2026-01-02"}
WEATHER = Weather(city="Oslo", degrees=8, on=date(2026, 1, 2))


@pytest.mark.spec("API-2", "CTRL-5")
def test_the_result_is_an_instance_and_its_own_validators_count(tmp_path: Path) -> None:
    def body(env: dict[str, str]) -> None:
        with Agent(cwd=tmp_path, env=env, output=Weather) as agent:
            result = agent.run_sync("go")
            assert result.structured == result.output == WEATHER

    server = served(
        [Call("final_result", {**GOOD, "degrees": 7}), Call("final_result", GOOD)], body
    )
    assert "it is odd" in str(server.requests[1].body["messages"])


@pytest.mark.spec("API-2")
@pytest.mark.parametrize(
    ("output", "given", "expected"),
    [
        (Point, {"x": 2}, Point(2)),
        (list[date], {"result": ["2026-01-02"]}, [date(2026, 1, 2)]),
        (int | None, {"result": None}, None),
    ],
)
def test_any_type_that_pydantic_knows_may_be_the_output(
    tmp_path: Path, output: Any, given: Any, expected: Any
) -> None:
    def body(env: dict[str, str]) -> None:
        assert Agent(cwd=tmp_path, env=env, output=output).run_sync("go").output == expected

    served([Call("final_result", given)], body)


@pytest.mark.spec("LOOP-14")
@pytest.mark.parametrize(
    ("protocol", "sent"),
    [
        (ANTHROPIC, {"type": "tool", "name": "final_result"}),
        (OPENAI, {"type": "function", "function": {"name": "final_result"}}),
        (RESPONSES, {"type": "function", "name": "final_result"}),
        (GEMINI, {"mode": "ANY", "allowedFunctionNames": ["final_result"]}),
    ],
)
def test_every_provider_is_told_to_call_the_one_tool_that_there_is(
    tmp_path: Path, protocol: str, sent: Any
) -> None:
    with ModelServer([Reply(blocks=(Call("final_result", GOOD),))]) as server:
        env = agent_env(server, protocol)
        agent = Agent(cwd=tmp_path, env=env, builtin_tools=(), output=Weather, effort="none")
        assert agent.run_sync("go").output == WEATHER
    body = server.requests[0].body
    found = body.get("toolConfig", {}).get("functionCallingConfig", body.get("tool_choice"))
    assert found == sent


@pytest.mark.spec("API-2")
def test_it_works_without_a_loop_inside_one_and_in_several_threads(tmp_path: Path) -> None:
    answers: list[str] = []

    def ask(env: dict[str, str]) -> None:
        answers.append(Agent(cwd=tmp_path, env=env, keep=False).run_sync("go").text)

    def body(env: dict[str, str]) -> None:
        with Agent(cwd=tmp_path, env=env) as agent:
            kinds = [event.type for event in agent.run("events, please")]
            assert kinds[0] == "turn_start" and kinds[-1] == "done"
            with pytest.raises(UsageError, match="open already"):
                agent.__enter__()

        async def within() -> None:
            ask(env)
            async with Agent(cwd=tmp_path, env=env) as other:
                with pytest.raises(UsageError, match="await run_to_end"):
                    other.run_sync("go")

        asyncio.run(within())
        threads = [threading.Thread(target=ask, args=(env,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    served([Text("ok")] * 5, body)
    assert answers == ["ok"] * 4
    assert not [thread for thread in threading.enumerate() if thread.name == "agentcli"]


@pytest.mark.spec("API-2", "LOOP-2")
def test_a_time_out_is_an_outcome_with_the_partial_text(tmp_path: Path) -> None:
    def body(env: dict[str, str]) -> None:
        with Agent(cwd=tmp_path, env=env) as agent:
            result = agent.run_sync("go", timeout_s=2)
            assert result.outcome is Outcome.TIMED_OUT and not result.is_complete
            assert result.text and "half of it".startswith(result.text)
            with pytest.raises(NoStructuredOutput, match="timed_out"):
                _ = result.output

    with ModelServer([Reply(blocks=(Text("half of it"),), stall_at="text")]) as s:
        body(agent_env(s))


@pytest.mark.spec("API-1")
def test_every_name_in_a_signature_is_exported() -> None:
    exported = set(agentcli.__getattr__("__all__"))  # type: ignore[call-overload]  # a list of names
    known = exported | {"Any", "Sequence", "Mapping", "Callable", "Awaitable", "Path", "None", "F"}
    known |= {"bool", "str", "int", "float", "type", "tuple", "list", "dict", "OutputT", "Literal"}
    signatures = [
        *(
            str(inspect.signature(getattr(Agent, name)))
            for name in dir(Agent)
            if name[0] != "_" and callable(getattr(Agent, name))
        ),
        str(inspect.signature(Agent)),
        str(inspect.signature(AgentResult)),
        str(inspect.signature(tool)),
    ]
    named = {name for text in signatures for name in re.findall(r"\b[A-Z]\w+", text)}
    assert named - known - {"Self", "BaseException", "TracebackType"} <= {
        "RunningTurn",
        "Listener",
        "LoopThread",
        "False",
        "True",
        "Thread",
    }


def examples() -> list[str]:
    """Every Python example of README and topics."""
    pages = [README, topic("library"), topic("configuration")]
    return [
        block for page in pages for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    ]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.spec("API-1")
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_the_examples_pass_strict_type_checkers(tmp_path: Path, checker: str) -> None:
    pytest.importorskip(checker)
    assert examples()
    for number, text in enumerate(examples()):
        (tmp_path / f"example_{number}.py").write_text(text)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    options = (
        ["--strict", "--cache-dir", str(tmp_path / "cache"), "."]
        if checker == "mypy"
        else ["--pythonpath", sys.executable, "."]
    )
    done = subprocess.run(
        [sys.executable, "-m", checker, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
