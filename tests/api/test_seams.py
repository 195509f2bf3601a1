"""Every seam of the loop through the library and through a plugin: real sessions, a real server."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcli import (
    Agent,
    AgentEvent,
    AssistantMessage,
    CancelToken,
    GateAnswer,
    GateFailed,
    HookConfig,
    HookEvent,
    MemoryStore,
    Message,
    ModelRequest,
    PersistenceError,
    ProviderError,
    ProviderRequestPrepared,
    ReminderTexts,
    RunContext,
    RunIdentity,
    SourceFailed,
    StepFacts,
    StopReason,
    StreamEnd,
    StreamEvent,
    TextDelta,
    TextPart,
    ToolCall,
    ToolResult,
    UsageError,
    user_text,
)
from agentcli.store.repair.check import check as problems_of
from tests.support.cli import agent_env, run_agent
from tests.support.docs import topic
from tests.support.model_server import ModelServer
from tests.support.replies import Call, Reply, Text


class Given:
    """Gives what a test supplies to an agent: as parameters, or by a plugin in its settings."""

    def __init__(self, how: str, site: Path) -> None:
        self.how = how
        self._site = site

    def __call__(self, tmp_path: Path, env: dict[str, str], own: Any = None, **parts: Any) -> Agent:
        """``own`` are parameters of the agent in both cases."""
        always = {"cwd": tmp_path, "env": env, "permission_mode": "yolo", **(own or {})}
        if self.how == "agent":
            return Agent(**always, **parts)
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
        return Agent(**always)


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

    def __init__(
        self, *names: str, error: Exception | None = None, name: str = "only", **rank: Any
    ) -> None:
        self.name, self.priority = name, rank.pop("priority", 5)
        self._names, self._error, self._rank = names, error, rank
        self.seen: list[StepFacts] = []

    def allow(self, facts: StepFacts) -> GateAnswer:
        self.seen.append(facts)
        if self._error:
            raise self._error
        return GateAnswer(self._names, **self._rank)


@pytest.mark.spec("CTRL-4", "CTRL-9")
@pytest.mark.parametrize(
    ("gates", "deleted"),
    [
        # the lists have nothing in common: the higher priority decides, ties go to the required one
        ([{"names": "delete_file", "priority": 9}, {"names": "read_file"}], True),
        ([{"names": "delete_file"}, {"names": "read_file", "priority": 9}], False),
        ([{"names": "delete_file"}, {"names": "read_file", "required": True}], False),
        ([{"names": "delete_file", "required": True}, {"names": "read_file"}], True),
    ],
)
def test_gates_that_have_nothing_in_common_are_decided_and_reported(
    given: Given, tmp_path: Path, gates: list[dict[str, Any]], *, deleted: bool
) -> None:
    (tmp_path / "a.txt").write_text("x")
    made = [
        Only(each["names"], name=f"gate {number}", **{k: each[k] for k in each if k != "names"})
        for number, each in enumerate(gates)
    ]

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with given(tmp_path, env, gates=made) as agent:
            told = [event.type async for event in agent.run("delete it")]
        assert "tool_gate_conflict_resolved" in told
        assert ("tool_refused" in told) is not deleted

    served([Call("delete_file", {"path": "a.txt"}), Text("ok")], body)
    assert (tmp_path / "a.txt").exists() is not deleted


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

        class Once(Only):
            """Its list can be read but once."""

            def allow(self, facts: StepFacts) -> GateAnswer:
                return GateAnswer(iter(["bash"]))  # type: ignore[arg-type]  # what is tested

        async with Agent(cwd=tmp_path, env=env, gates=[Once()]) as agent:
            with pytest.raises(GateFailed, match="no collection"):
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


class Speaks:
    """A provider of a program's own: says what it is told to, and remembers what it was asked."""

    name, host = "mine", ""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.requests: list[ModelRequest] = []
        self.closed = False

    def encode(self, request: ModelRequest) -> None:
        return None

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        yield TextDelta(0, self._texts.pop(0))
        yield StreamEnd(StopReason.END_TURN)

    async def aclose(self) -> None:
        self.closed = True


class OneByOne(Speaks):
    """Its stream is an iterator, and no generator."""

    def stream(self, request: ModelRequest, cancel: CancelToken) -> AsyncIterator[StreamEvent]:
        left = iter((TextDelta(0, self._texts.pop(0)), StreamEnd(StopReason.END_TURN)))

        class Events(AsyncIterator[StreamEvent]):
            async def __anext__(self) -> StreamEvent:
                for event in left:
                    return event
                raise StopAsyncIteration

        return Events()


@pytest.mark.spec("CTRL-9")
def test_a_provider_is_what_its_protocol_says_and_lacks_nothing(tmp_path: Path) -> None:
    always: dict[str, Any] = {"cwd": tmp_path, "env": agent_env(None)}
    assert Agent(provider=OneByOne("yes"), **always).run_sync("go").text == "yes"
    lacking: Any = type("Half", (), {"name": "half", "stream": Speaks.stream})()
    with pytest.raises(UsageError, match="the provider Half has no host, no encode"):
        Agent(provider=lacking, **always).run_sync("go")


@pytest.mark.spec("CTRL-9", "API-3")
def test_a_provider_of_ones_own_answers_and_stays_open(given: Given, tmp_path: Path) -> None:
    mine = Speaks("first", "second")

    async def body() -> None:
        async with given(tmp_path, agent_env(None), provider=mine) as agent:
            assert (await agent.run_to_end("one")).text == "first"
            assert (await agent.run_to_end("two")).text == "second"

    asyncio.run(body())
    assert not mine.closed and mine.requests[0].model.id == "mine/default"


@pytest.mark.spec("CTRL-9", "CTRL-1", "CTRL-2")
def test_sources_are_asked_where_the_queue_is_and_not_after_a_tool_has_ended_the_turn(
    given: Given, tmp_path: Path
) -> None:
    steering, later = [["look here"], [], [], []], [[], ["and then this"]]
    mine = Speaks("one", "two")

    async def follow_ups() -> list[str]:
        return later.pop() if later else []

    parts: dict[str, Any] = {"provider": mine, "follow_ups": follow_ups}
    parts["steering"] = lambda: steering.pop(0) if steering else []
    if given.how == "plugin":
        parts = {key: [value] if key != "provider" else value for key, value in parts.items()}

    async def body() -> None:
        async with given(tmp_path, agent_env(None), **parts) as agent:
            assert (await agent.run_to_end("go")).text == "two"
            said = [message.text for message in agent.messages]
            assert said == ["go", "look here", "one", "and then this", "two"]

    asyncio.run(body())


@pytest.mark.spec("CTRL-9", "CTRL-7")
def test_a_wrap_up_signal_is_a_limit_that_is_near(given: Given, tmp_path: Path) -> None:
    mine = Speaks("done for now")
    signal: Any = lambda: "the office closes"  # noqa: E731 - one value

    async def body() -> None:
        signals = [signal] if given.how == "plugin" else signal
        async with given(tmp_path, agent_env(None), provider=mine, wrap_up=signals) as agent:
            assert (await agent.run_to_end("go")).outcome == "wrapped_up"

    asyncio.run(body())
    assert "the office closes" in str(mine.requests[0].messages[-1])


@pytest.mark.spec("CTRL-9")
def test_temperature_and_fields_of_ones_own_are_in_the_request(
    given: Given, tmp_path: Path
) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        more = {"temperature": 0.25, "request_fields": {"metadata": {"user_id": "u1"}}}
        async with given(tmp_path, env, **more) as agent:
            await agent.run_to_end("go")

    sent = served([Text("ok")], body).requests[0].body
    assert sent["temperature"] == 0.25 and sent["metadata"] == {"user_id": "u1"}


@pytest.mark.spec("CTRL-9")
def test_a_function_may_be_a_hook_and_knows_the_run(given: Given, tmp_path: Path) -> None:
    told: list[Any] = []

    def refuse(event: Any) -> dict[str, Any]:
        told.append(event)
        return {"decision": "block", "reason": "not today"}

    hooks = [HookConfig(HookEvent.PRE_TOOL_USE, call=refuse, matcher="write_file")]

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with given(tmp_path, env, hooks=hooks) as agent:
            await agent.run_to_end("go")
            assert told[0]["session_id"] == agent.session_id

    write = Call("write_file", {"path": "a.txt", "content": "hi"})
    server = served([write, Text("ok")], body)
    assert not (tmp_path / "a.txt").exists() and told[0]["run_id"].startswith("run_")
    assert "not today" in str(server.requests[1].body["messages"])


@pytest.mark.spec("CTRL-9")
def test_a_tool_of_ones_own_gets_the_identity_of_the_run(tmp_path: Path) -> None:
    seen: list[RunIdentity] = []

    def who(ctx: RunContext) -> str:
        """Who asks."""
        seen.append(ctx.run)
        return "you"

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, tools=[who]) as agent:
            await agent.run_to_end("go")
            assert seen[0].session_id == agent.session_id and seen[0].run_id

    served([Call("who", {}), Text("ok")], body)


@pytest.mark.spec("CTRL-4")
def test_the_plugin_of_the_documentation_does_what_it_says(tmp_path: Path) -> None:
    text = topic("configuration").partition("<!-- plugin -->\n```python\n")[2].partition("```")[0]
    found: dict[str, Any] = {"__name__": "careful"}
    exec(compile(text, "careful", "exec", dont_inherit=True), found)
    gates = found["Plugin"].gates
    (tmp_path / "a.txt").write_text("keep me")
    calls = [
        Call("delete_file", {"path": "a.txt"}),
        Call("bash", {"command": "rm a.txt"}),
        Call("apply_patch", {"patch": "*** Begin Patch\n*** Delete File: a.txt\n*** End Patch"}),
    ]
    events: list[AgentEvent] = []

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, permission_mode="yolo", gates=gates) as agent:
            events.extend([event async for event in agent.run("go")])

    served([*calls, Text("ok")], body)
    assert [event.type for event in events].count("tool_refused") == 3
    assert (tmp_path / "a.txt").read_text() == "keep me"


# --- where it is kept ---------------------------------------------------------------------------


@pytest.mark.spec("CTRL-9", "API-3")
def test_a_store_in_memory_outlives_its_agent_and_leaves_no_file(
    given: Given, tmp_path: Path
) -> None:
    store = MemoryStore()

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with given(tmp_path, env, store=store) as agent:
            await agent.run_to_end("one")
        async with given(tmp_path, env, store=store) as agent:
            assert len(agent.messages) == 4
            await agent.run_to_end("two")
        sessions = Path(env["AGENTCLI_HOME"]) / "sessions"
        assert not list(sessions.glob("*.db"))

    server = served([Call("list_directory", {}), Text("1"), Text("2")], body)
    assert len(server.requests[2].body["messages"]) == 5 and store.outcome == "done"
    kinds = [event.type for event in asyncio.run(store.events.read())]
    assert kinds.count("turn_start") == 2 and kinds[-1] == "done"
    assert "tool_finished" in kinds and kinds.count("provider_request_prepared") == 3


@pytest.mark.spec("CTRL-9", "REC-1")
def test_a_store_whose_process_died_is_balanced_when_it_is_opened(tmp_path: Path) -> None:
    store = MemoryStore()
    call = ToolCall("c1", "bash", {"command": "true"})

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        await store.record_prompt(user_text("go"))
        await store.record_assistant(AssistantMessage((call,), "p", "m"), [call], final=None)
        await store.record_running(call)
        async with Agent(cwd=tmp_path, env=env, store=store) as agent:
            assert "interrupted by a crash" in agent.messages[-1].text
            await agent.run_to_end("and now?")

    served([Text("ok")], body)


@pytest.mark.spec("FAIL-1", "FAIL-4", "CTRL-9")
@pytest.mark.parametrize(
    "method", ["record_prompt", "record_assistant", "record_running", "record_result", "history"]
)
@pytest.mark.parametrize(
    "wrong", [ZeroDivisionError("odd"), SystemExit("odd")], ids=["error", "exit"]
)
def test_whatever_a_store_raises_is_a_failed_write_and_nothing_runs_after_it(
    tmp_path: Path, method: str, wrong: BaseException
) -> None:
    class Broken(MemoryStore):
        pass

    async def breaks(*args: Any, **more: Any) -> Any:
        raise wrong

    store = Broken()
    setattr(store, method, breaks)

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        with pytest.raises(PersistenceError, match=f"kept in Broken: {type(wrong).__name__}: odd"):
            async with Agent(cwd=tmp_path, env=env, store=store, permission_mode="yolo") as agent:
                await agent.run_to_end("go")

    write = Call("write_file", {"path": "a.txt", "content": "hi"})
    served([write, Text("never asked for")], body)
    assert (tmp_path / "a.txt").exists() == (method == "record_result")


@pytest.mark.spec("CTRL-9")
def test_prior_messages_come_before_the_first_prompt_and_are_kept(
    given: Given, tmp_path: Path
) -> None:
    call = ToolCall("c1", "lookup", {"name": "Ada"})
    prior: list[Message] = [
        user_text("Who is Ada?"),
        AssistantMessage((call,), "p", "m"),
        ToolResult("c1", "lookup", (TextPart("a programmer"),)),
        AssistantMessage((TextPart("A programmer."),), "p", "m"),
    ]

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        name = "messages" if given.how == "plugin" else "prior_messages"
        async with given(tmp_path, env, **{name: prior}) as agent:
            await agent.run_to_end("And Bob?")
            session_id = agent.session_id
        async with Agent(cwd=tmp_path, env=env, session=session_id) as again:
            assert [message.text for message in again.messages][-3:] == [
                "A programmer.",
                "And Bob?",
                "ok",
            ]
            assert problems_of(next(Path(env["AGENTCLI_HOME"]).rglob(f"{session_id}.db"))) == []

    server = served([Text("ok")], body)
    assert "a programmer" in str(server.requests[0].body["messages"])


@pytest.mark.spec("CTRL-9")
def test_prior_messages_that_are_no_history_are_refused(tmp_path: Path) -> None:
    orphan = ToolResult("c1", "lookup", (TextPart("x"),))
    with pytest.raises(UsageError, match="prior messages are no history"):
        Agent(cwd=tmp_path, env=agent_env(None), prior_messages=[orphan]).run_sync("go")


@pytest.mark.spec("CTRL-9")
def test_events_are_kept_and_read_back_in_order(tmp_path: Path) -> None:
    found: list[str] = []

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env, keep_events=True) as agent:
            seen = [event async for event in agent.run("go")]
            found.append(agent.session_id)
        kinds = [event.type for event in seen]
        done = await asyncio.to_thread(
            run_agent, "sessions", "events", found[0], "--format", "json", env=env
        )
        kept = json.loads(done.stdout)
        assert [event["type"] for event in kept] == [k for k, _ in itertools.groupby(kinds)]
        text = "".join(event["text"] for event in kept if event["type"] == "text_delta")
        assert text == "one two three"
        shown = await asyncio.to_thread(run_agent, "sessions", "events", found[0], env=env)
        assert len(shown.stdout.splitlines()) == len(kept)

    served([Call("list_directory", {}), Text("one two three")], body)


@pytest.mark.spec("CTRL-9", "LOOP-3")
def test_each_request_is_reported_and_its_prefix_stays(tmp_path: Path) -> None:
    async def body(server: ModelServer, env: dict[str, str]) -> None:
        async with Agent(cwd=tmp_path, env=env) as agent:
            events = [event async for event in agent.run("go")]
        made = [event for event in events if isinstance(event, ProviderRequestPrepared)]
        assert [(event.step, event.attempt, event.messages) for event in made] == [
            (1, 1, 1),
            (2, 1, 3),
        ]
        assert len({event.prefix_hash for event in made}) == 1 and made[0].tools > 5
        assert made[1].messages_characters > made[0].messages_characters == len("go")

    served([Call("list_directory", {}), Text("ok")], body)


@pytest.mark.spec("CTRL-9", "FAIL-4")
@pytest.mark.parametrize("wrong", [KeyError("x"), SystemExit("'x'")], ids=["error", "exit"])
@pytest.mark.parametrize(
    ("part", "error", "said"),
    [
        ("transforms", SourceFailed, "the transform odd failed: KeyError: 'x'"),
        ("wrap_up", SourceFailed, "the wrap-up signal failed: KeyError: 'x'"),
        ("steering", SourceFailed, "the steering source failed: KeyError: 'x'"),
        ("follow_ups", SourceFailed, "the follow_up source failed: KeyError: 'x'"),
        ("provider", ProviderError, "the provider mine failed: KeyError: 'x'"),
    ],
)
def test_what_fails_of_a_program_is_named_and_never_an_internal_error(
    tmp_path: Path, part: str, error: type[Exception], said: str, wrong: BaseException
) -> None:
    class Odd:
        name = "odd"

        def apply(self, messages: Any, facts: StepFacts) -> Any:
            raise wrong

    class Broken(Speaks):
        async def stream(
            self, request: ModelRequest, cancel: CancelToken
        ) -> AsyncIterator[StreamEvent]:
            raise wrong
            yield

    def raises() -> Any:
        raise wrong

    parts: dict[str, Any] = {"provider": Speaks("one"), part: raises}
    parts |= {"transforms": [Odd()]} if part == "transforms" else {}
    parts |= {"provider": Broken()} if part == "provider" else {}
    with pytest.raises(error, match=said.replace("KeyError", type(wrong).__name__)):
        Agent(cwd=tmp_path, env=agent_env(None), **parts).run_sync("go")


@pytest.mark.spec("CTRL-5", "CTRL-9")
def test_reminders_work_between_and_the_first_good_answer(given: Given, tmp_path: Path) -> None:
    texts = ReminderTexts(result="Call {tools}, please.", question="Nobody is here.")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def body(server: ModelServer, env: dict[str, str]) -> None:
        own = {"output": schema}
        async with given(tmp_path, env, own, reminders=texts) as agent:
            assert (await agent.run_to_end("go")).output == {"n": 1}

    said = ["Next I will look.", "Would you like me to proceed?"]
    looks = Call("list_directory", {})
    good = [Text(text) for text in ('{"n": 1}', '{"n": 2}', "Bye.")]
    server = served([*map(Text, said), looks, *good], body)
    told = [str(request.body["messages"][-1]) for request in server.requests]
    assert "Call final_result, please." in told[1] and "Nobody is here." in told[2]
    assert len(server.requests) == 6 and "please" in told[5]
