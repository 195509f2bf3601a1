"""Every seam of the loop through the library and through a plugin: real sessions, a real server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcli import Agent
from agentcli.domain.errors import GateFailed
from agentcli.domain.events import AgentEvent
from agentcli.domain.ports import GateAnswer, StepFacts
from tests.support.cli import agent_env
from tests.support.docs import topic
from tests.support.model_server import ModelServer
from tests.support.replies import Call, Reply, Text


class Given:
    """Gives what a test supplies to an agent: as parameters, or by a plugin in its settings."""

    def __init__(self, how: str, site: Path) -> None:
        self.how = how
        self._site = site

    def __call__(self, tmp_path: Path, env: dict[str, str], **parts: Any) -> Agent:
        if self.how == "agent":
            return Agent(cwd=tmp_path, env=env, permission_mode="yolo", **parts)
        code = "plugin = type('Plugin', (), {})()\n"
        (self._site / "seam_plugin.py").write_text(code)
        info = self._site / "seam_plugin-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: seam_plugin\nVersion: 1.0\n")
        points = "[agentcli.plugins]\nseam = seam_plugin:plugin\n"
        (info / "entry_points.txt").write_text(points)
        import importlib

        module = importlib.import_module("seam_plugin")
        for name, value in parts.items():
            setattr(module.plugin, name, value)
        config = Path(env["AGENTCLI_HOME"]) / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text('plugins = ["seam"]\n')
        return Agent(cwd=tmp_path, env=env, permission_mode="yolo")


@pytest.fixture(params=["agent", "plugin"])
def given(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Given]:
    site = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(str(site))
    yield Given(request.param, site)
    sys.modules.pop("seam_plugin", None)


def served(
    blocks: list[Any], body: Callable[[ModelServer, dict[str, str]], Coroutine[Any, Any, None]]
) -> ModelServer:
    replies = [each if isinstance(each, Reply) else Reply(blocks=(each,)) for each in blocks]
    with ModelServer(replies) as server:
        asyncio.run(body(server, agent_env(server)))
    return server


class Only:
    """Lets some tools through."""

    def __init__(self, *names: str, error: Exception | None = None) -> None:
        self.name, self.priority = "only", 5
        self._names, self._error = names, error
        self.seen: list[StepFacts] = []

    def allow(self, facts: StepFacts) -> GateAnswer:
        self.seen.append(facts)
        if self._error:
            raise self._error
        return GateAnswer(self._names)


@pytest.mark.spec("CTRL-4", "CTRL-9")
def test_an_empty_list_of_a_gate_lets_nothing_through(given: Given, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("keep me")
    gate = Only()

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with given(tmp_path, env, gates=[gate]) as agent:
            events = [event async for event in agent.run("delete it")]
            session_id = agent.session_id
        told = {event.type for event in events}
        assert {"tool_gate_applied", "tool_refused"} <= told and "tool_started" not in told
        assert gate.seen[0].run.session_id == session_id and len(gate.seen[1].messages) == 3

    served([Call("delete_file", {"path": "a.txt"}), Text("ok")], body)
    assert (tmp_path / "a.txt").exists()


@pytest.mark.spec("CTRL-4", "CTRL-9")
def test_a_gate_that_raises_ends_the_turn_before_the_model_is_asked(
    given: Given, tmp_path: Path
) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with given(tmp_path, env, gates=[Only(error=KeyError("rules"))]) as agent:
            with pytest.raises(GateFailed, match="the gate only failed: KeyError: 'rules'"):
                await agent.run_to_end("go")

    assert served([Text("never asked for")], body).requests == []


@pytest.mark.spec("CTRL-8", "CTRL-9")
def test_a_transform_changes_what_is_sent_and_knows_whose_run_it_is(
    given: Given, tmp_path: Path
) -> None:
    class Masks:
        name = "masks"
        seen: list[StepFacts] = []

        def apply(self, messages: Any, facts: StepFacts) -> Any:
            self.seen.append(facts)
            return messages[-1:]

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with given(tmp_path, env, transforms=[Masks()]) as agent:
            await agent.run_to_end("one")
            await agent.run_to_end("two")
            assert len(agent.messages) == 4
            assert {facts.run.session_id for facts in Masks.seen} == {agent.session_id}
            assert len({facts.run.run_id for facts in Masks.seen}) == 2

    server = served([Text("1"), Text("2")], body)
    assert [len(request.body["messages"]) for request in server.requests] == [1, 1]


@pytest.mark.spec("CTRL-4")
def test_the_plugin_of_the_documentation_does_what_it_says(tmp_path: Path) -> None:
    text = topic("configuration").partition("<!-- plugin -->\n```python\n")[2].partition("```")[0]
    found: dict[str, Any] = {"__name__": "careful"}
    exec(compile(text, "careful", "exec", dont_inherit=True), found)
    gates = found["Plugin"].gates
    write = Call("write_file", {"path": "a.txt", "content": "hi"})
    events: list[AgentEvent] = []

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, permission_mode="yolo", gates=gates) as agent:
            events.extend([event async for event in agent.run("go")])

    blocks = [*(Reply(blocks=(write,)) for _ in range(4)), Text("ok")]
    served(blocks, body)
    assert [event.type for event in events].count("tool_refused") == 3
    assert (tmp_path / "a.txt").read_text() == "hi"
