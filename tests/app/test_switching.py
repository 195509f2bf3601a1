"""Any model to any other in the middle of a session, there and back, over real HTTP (HIS-4, HIS-7)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from agentcli.domain.events import ModelFellBack, Outcome, Prompt, ToolStarted
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolResult,
    UserMessage,
    user_text,
)
from tests.support.cli import MODELS
from tests.support.histories import PNG
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.replies import Call, Reply, Text, Thinking, fails, say
from tests.support.rivals import PROTOCOLS, Talk, talk

pytestmark = pytest.mark.sampled

PAIRS = list(permutations(PROTOCOLS, 2))
LOOK = Call("read_file", {"path": "dot.png"})
LIST = Call("list_directory", {"path": "."})
WRITE = Call("write_file", {"path": "no.txt", "content": "x"})
SLEEP = Call("bash", {"command": "sleep 60"})


def thoughtful(*more: Call | Text) -> Reply:
    return Reply((Thinking("First I look around."), *more))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "dot.png").write_bytes(PNG)
    return tmp_path


def bodies(server: ModelServer, protocol: str) -> list[str]:
    return [json.dumps(r.body) for r in server.requests if r.protocol == protocol]


async def cancelled_turn(it: Talk, server: ModelServer) -> None:
    """Two calls, of which one is stopped while it runs and one before it starts."""
    server.add(thoughtful(Text("Waiting."), SLEEP, LIST))
    started = asyncio.Event()
    remove = it.session.add_listener(
        lambda event: started.set() if isinstance(event, ToolStarted) else None
    )
    turn = asyncio.create_task(it.session.run(Prompt(user_text("wait"))))
    await started.wait()
    it.session.interrupt()
    assert (await turn).outcome is Outcome.CANCELLED
    remove()


def thoughts(it: Talk, model: str) -> list[ThinkingPart]:
    return [
        part
        for message in it.session.history.messages
        if isinstance(message, AssistantMessage) and f"{message.provider}/{message.model}" == model
        for part in message.parts
        if isinstance(part, ThinkingPart)
    ]


@pytest.mark.spec("HIS-1", "HIS-3", "HIS-4", "HIS-7")
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda name: name)
def test_there_and_back_with_everything_a_history_can_hold(
    workspace: Path, model_server: ModelServer, one: str, other: str
) -> None:
    async def body(it: Talk) -> None:
        server = model_server
        image = ImagePart("image/png", PNG)
        for protocol in (one, other, one, other):
            if it.session.model.id != MODELS[protocol]:
                await it.switch(protocol)
            server.add(thoughtful(Text("Both."), LOOK, LIST), thoughtful(WRITE), say("Seen."))
            summary = await it.say(UserMessage((TextPart("What is this?"), image)))
            assert summary.outcome is Outcome.DONE, it.failure
            await cancelled_turn(it, server)
        server.add(say("Fine."))
        assert (await it.say("and now?")).outcome is Outcome.DONE, it.failure
        statuses = {m.status for m in it.session.history.messages if isinstance(m, ToolResult)}
        assert {ResultStatus.OK, ResultStatus.REFUSED, ResultStatus.CANCELLED} <= statuses
        for protocol in {one, other} & {ANTHROPIC}:
            signatures = [part.signature for part in thoughts(it, MODELS[protocol])]
            assert len(signatures) > 3
            for signature in filter(None, signatures[:-1]):
                assert signature in bodies(server, protocol)[-1]
                rest = {one, other} - {protocol}
                assert not any(signature in text for name in rest for text in bodies(server, name))

    talk(model_server, one, workspace, body, deny=("write_file",))


@pytest.mark.spec("HIS-4", "HIS-7")
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda name: name)
def test_a_switch_in_the_middle_of_a_tool_loop_and_back_in_the_next(
    workspace: Path, model_server: ModelServer, one: str, other: str
) -> None:
    async def body(it: Talk) -> None:
        server, conversation = model_server, it.session._conversation
        conversation.parts = replace(conversation.parts, fallbacks=(MODELS[other],))
        server.add(thoughtful(LIST, LOOK), *[fails(529) for _ in range(4)])
        server.add(thoughtful(LIST), thoughtful(LIST, LOOK), say("Done."))
        assert (await it.say("go")).outcome is Outcome.DONE, it.failure
        assert [e.new for e in it.events if isinstance(e, ModelFellBack)] == [MODELS[other]]
        await it.switch(one)
        conversation.parts = replace(conversation.parts, fallbacks=())
        server.add(thoughtful(LOOK), say("Back."))
        assert (await it.say("again")).outcome is Outcome.DONE, it.failure

    talk(model_server, one, workspace, body)


@pytest.mark.spec("HIS-4")
def test_redacted_and_unsigned_thinking_return_to_their_maker_only(
    workspace: Path, model_server: ModelServer
) -> None:
    hidden = Reply((Thinking(redacted="gAAAAencrypted"), Thinking("Aloud."), LIST))

    async def body(it: Talk) -> None:
        model_server.add(hidden, say("One."), say("Two."), say("Three."))
        await it.say("go")
        await it.session.switch_model("anthropic/claude-opus-4-5")
        await it.say("and you?")
        await it.switch(ANTHROPIC)
        assert (await it.say("back")).outcome is Outcome.DONE, it.failure
        _first, second, third, fourth = bodies(model_server, ANTHROPIC)
        assert "gAAAAencrypted" in second
        assert "gAAAAencrypted" not in third
        assert "gAAAAencrypted" in fourth

    talk(model_server, ANTHROPIC, workspace, body)


@pytest.mark.spec("HIS-7", "REC-2")
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda name: name)
def test_a_session_is_taken_up_again_with_another_model(
    workspace: Path, model_server: ModelServer, one: str, other: str
) -> None:
    async def begin(it: Talk) -> str:
        model_server.add(thoughtful(LOOK, LIST), say("Seen."))
        await it.say("go")
        await cancelled_turn(it, model_server)
        return it.session.id

    async def go_on(it: Talk) -> None:
        model_server.add(thoughtful(LIST), say("Going on."))
        assert (await it.say("go on")).outcome is Outcome.DONE, it.failure

    session_id = talk(model_server, one, workspace, begin)
    talk(model_server, other, workspace, go_on, resume=session_id, model=MODELS[other])
