"""What has bricked a session in some rival: here each is a session that goes on (HIS-8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.events import Outcome
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store.files import new_session_id
from agentcli.store.sqlite import SqliteStore
from tests.support.cli import MODELS
from tests.support.histories import PNG
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer, Recorded
from tests.support.poisons import HOPELESS, IMAGES, TEXTS, images_in, refused_images
from tests.support.replies import Call, Reply, Text, Thinking, calls, say
from tests.support.rivals import PROTOCOLS, Talk, settings_for, talk

pytestmark = pytest.mark.sampled

SOUND = ImagePart("image/png", PNG)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def all_are_acceptable(server: ModelServer) -> None:
    for recorded in server.requests:
        assert not refused_images(recorded.body)


# --- images ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spec("HIS-8")
def test_poisoned_images_of_a_person_go_on(
    tmp_path: Path, model_server: ModelServer, protocol: str
) -> None:
    async def body(it: Talk) -> None:
        for name, image in IMAGES.items():
            model_server.add(say("I see."))
            prompt = UserMessage((TextPart(f"What is {name}?"), image))
            assert (await it.say(prompt)).outcome is Outcome.DONE, it.failure
            assert it.session.history.messages[-2] == prompt
            if name in HOPELESS:
                assert "image left out" in model_server.requests[-1].raw.decode()
        model_server.add(say("Going on."))
        assert (await it.say("go on")).outcome is Outcome.DONE, it.failure

    talk(model_server, protocol, tmp_path, body)
    all_are_acceptable(model_server)
    sent = list(images_in(model_server.requests[-1].body))
    assert len(sent) == len(IMAGES) - len(HOPELESS)


@pytest.mark.slow
@pytest.mark.spec("HIS-8")
def test_poisoned_images_that_a_tool_has_read_go_on(
    tmp_path: Path, model_server: ModelServer, protocol: str
) -> None:
    names = [name for name, image in IMAGES.items() if image.data]
    for number, name in enumerate(names):
        (tmp_path / f"{number}.png").write_bytes(IMAGES[name].data)

    async def body(it: Talk) -> None:
        reads = [Call("read_file", {"path": f"{number}.png"}) for number in range(len(names))]
        model_server.add(calls(*reads), say("Seen."), say("Going on."))
        assert (await it.say("look")).outcome is Outcome.DONE, it.failure
        assert (await it.say("go on")).outcome is Outcome.DONE, it.failure

    talk(model_server, protocol, tmp_path, body)
    all_are_acceptable(model_server)
    assert len(list(images_in(model_server.requests[-1].body))) > 5


@pytest.mark.spec("HIS-8")
def test_images_before_a_model_that_takes_none_go_on(
    tmp_path: Path, model_server: ModelServer
) -> None:
    async def body(it: Talk) -> None:
        model_server.add(say("I see."), say("I do not."))
        await it.say(UserMessage((TextPart("look"), SOUND)))
        await it.session.switch_model("openai/o3-mini")
        assert (await it.say("and you?")).outcome is Outcome.DONE, it.failure

    talk(model_server, ANTHROPIC, tmp_path, body)
    last = model_server.requests[-1]
    assert not list(images_in(last.body))
    assert "image/png, 2x2 px" in last.raw.decode()


# --- texts -----------------------------------------------------------------------------------


@pytest.mark.spec("HIS-8")
def test_lone_surrogates_nul_and_control_characters_go_on(
    tmp_path: Path, model_server: ModelServer, protocol: str
) -> None:
    (tmp_path / "odd.txt").write_bytes(b"a\x00b\xed\xa0\xbd\xff\x01\n")

    async def body(it: Talk) -> None:
        for text in TEXTS.values():
            model_server.add(calls(Call("read_file", {"path": "odd.txt", "x": text})), say("Hm."))
            assert (await it.say(f"say {text}")).outcome is Outcome.DONE, it.failure
        assert any("\ud83d" in m.text for m in it.session.history.messages if m.text)

    talk(model_server, protocol, tmp_path, body)


# --- what an older version stored --------------------------------------------------------------


def stored(server: ModelServer, messages: Sequence[Message]) -> str:
    """A session file that holds ``messages``, as an older version could have written it."""
    session_id = new_session_id()
    directory = settings_for(server, ANTHROPIC).paths.sessions_dir
    info = SessionInfo(session_id, "old", "/w", 1.0, 1.0, SessionStatus.NEW, 1, MODELS[ANTHROPIC])

    async def write() -> None:
        store = SqliteStore.new(directory / f"{session_id}.db", info)
        for message in messages:
            if isinstance(message, UserMessage):
                await store.record_prompt(message)
            elif isinstance(message, AssistantMessage):
                asked = message.tool_calls
                final = None if asked else Outcome.DONE
                await store.record_assistant(message, asked, final=final)
            else:
                await store.record_result(RecordedResult(message), [message])
        await store.aclose()

    asyncio.run(write())
    return session_id


def called(*asked: ToolCall, before: Sequence[Any] = ()) -> list[Message]:
    answers = [ToolResult(call.id, call.name, (TextPart("done"),)) for call in asked]
    return [AssistantMessage((*before, *asked), "elsewhere", "other"), *answers]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"k": [value]}
    return value


OLD: dict[str, list[Message]] = {
    "6 MB of tool output": [
        AssistantMessage((ToolCall("c1", "bash", {}),), "elsewhere", "other"),
        ToolResult("c1", "bash", (TextPart("head\n" + "x" * 6_000_000 + "\ntail"),)),
    ],
    "malformed arguments": called(ToolCall("c1", "bash", {}, '{"command": "pwd')),
    "arguments of another time": called(
        ToolCall("c1", "bash", {"a\0": float("nan"), "b": 2**70, "c": "\ud800" * 9})
    ),
    "arguments of 3 MB": called(ToolCall("c1", "write_file", {"content": "x" * 3_000_000})),
    "deep arguments": called(ToolCall("c1", "bash", nested(100))),
    "odd names and ids": called(
        ToolCall("a b" * 99, "", {}),
        ToolCall("functions.bash:0|\ud800", "läs fil\n" * 40, {}),
        ToolCall("x" * 64, "9.dots.and/slashes", {}),
    ),
    "foreign signatures": called(
        ToolCall("c1", "bash", {}),
        before=(
            ThinkingPart("hm", signature="not of this house"),
            ThinkingPart("", redacted="gAAAA"),
            ThinkingPart("unsigned"),
        ),
    ),
    "3,000 parallel calls": called(*[ToolCall(f"c{n}", "bash", {}) for n in range(3_000)]),
    "empty results": [
        AssistantMessage((ToolCall("c1", "bash", {}),), "elsewhere", "other"),
        ToolResult("c1", "bash", (TextPart(" \n"), TextPart(""))),
    ],
    "empty messages": [
        AssistantMessage((TextPart(" "),), "elsewhere", "other"),
        user_text("\t"),
        AssistantMessage((ThinkingPart("only this"),), "elsewhere", "other"),
        user_text("hm"),
        AssistantMessage((TextPart("ends in space \n"),), "elsewhere", "other"),
    ],
    "150 images": [
        UserMessage((SOUND,) * 150),
        AssistantMessage((TextPart("many"),), "elsewhere", "other"),
    ],
}


@pytest.mark.spec("HIS-8", "HIS-5", "HIS-7", "REC-2")
@pytest.mark.parametrize("name", OLD)
def test_what_an_older_version_stored_goes_on(
    tmp_path: Path, model_server: ModelServer, protocol: str, name: str
) -> None:
    history = [user_text("begin"), *OLD[name]]
    session_id = stored(model_server, history)

    async def body(it: Talk) -> None:
        model_server.default = say("Going on.")
        assert (await it.say("go on")).outcome is Outcome.DONE, it.failure
        loaded = await it.session._store.load(hidden=True)
        kept = {repr(one.message) for one in loaded.messages}
        assert kept >= {repr(message) for message in history}

    talk(model_server, protocol, tmp_path, body, resume=session_id, model=MODELS[protocol])
    all_are_acceptable(model_server)
    assert len(model_server.requests[-1].raw) < 5_000_000


# --- what only the provider knows --------------------------------------------------------------


def refusal(protocol: str, text: str, status: int = 400) -> Reply:
    """The service's own error body with ``text``."""
    error: dict[str, Any] = {"message": text}
    if protocol == ANTHROPIC:
        value: dict[str, Any] = {
            "type": "error",
            "error": {"type": "invalid_request_error", **error},
        }
    elif protocol == GEMINI:
        value = {"error": {"code": status, "status": "INVALID_ARGUMENT", **error}}
    else:
        value = {"error": {"type": "invalid_request_error", "param": None, "code": None, **error}}
    return Reply(
        status=status, body=json.dumps(value).encode(), headers={"content-type": "application/json"}
    )


def place_of(recorded: Recorded, mark: str) -> str:
    """Where ``mark`` is in the body, as this service words it."""
    name = {RESPONSES: "input", GEMINI: "contents"}.get(recorded.protocol, "messages")
    for index, message in enumerate(recorded.messages):
        blocks = message.get("parts") or message.get("content")
        for position, block in enumerate(blocks if isinstance(blocks, list) else []):
            if mark in json.dumps(block):
                if recorded.protocol == ANTHROPIC:
                    return f"messages.{index}.content.{position}"
                inner = "parts" if recorded.protocol == GEMINI else "content"
                return f"Invalid '{name}[{index}].{inner}[{position}]'"
        if mark in json.dumps(message):
            return f"messages.{index}" if recorded.protocol == ANTHROPIC else f"'{name}[{index}]'"
    raise AssertionError("there is no such mark")


def refuses(mark: str, word: Callable[[Recorded], str]) -> Callable[[Recorded], Reply | str]:
    """A service that answers 400 as long as ``mark`` is anywhere in the history."""

    def answer(recorded: Recorded) -> Reply | str:
        if mark in json.dumps(recorded.messages):
            return refusal(recorded.protocol, word(recorded))
        return "Fine."

    return answer


def named(mark: str) -> Callable[[Recorded], str]:
    return lambda recorded: f"{place_of(recorded, mark)}: this content cannot be processed"


def vague(text: str) -> Callable[[Recorded], str]:
    return lambda _recorded: text


IMAGE_MARK = "iVBORw0KGgo"


async def went_on(it: Talk, server: ModelServer, prompt: str | UserMessage) -> None:
    """One refusal, one line, one more request; from then on none."""
    before = len(server.requests)
    assert (await it.say(prompt)).outcome is Outcome.DONE, it.failure
    assert len(server.requests) == before + 2
    (line,) = it.notices
    assert "kept in the session" in line
    assert "\n" not in line
    await goes_on(it, server)


async def goes_on(it: Talk, server: ModelServer) -> None:
    before = len(server.requests)
    assert (await it.say("go on")).outcome is Outcome.DONE, it.failure
    assert len(server.requests) == before + 1
    assert not it.notices


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    "word",
    [named(IMAGE_MARK), vague("Could not process image"), vague("Bad request")],
    ids=["named", "unnamed", "vague"],
)
def test_an_image_that_only_the_provider_dislikes_goes_on_also_after_a_restart(
    tmp_path: Path, protocol: str, word: Callable[[Recorded], str]
) -> None:
    with ModelServer(default=refuses(IMAGE_MARK, word)) as server:

        async def body(it: Talk) -> str:
            await it.say("hello")
            await went_on(it, server, UserMessage((TextPart("look"), SOUND)))
            assert any(SOUND in m.parts for m in it.session.history.messages)
            return it.session.id

        async def again(it: Talk) -> None:
            await goes_on(it, server)
            assert any(SOUND in m.parts for m in it.session.history.messages)

        session_id = talk(server, protocol, tmp_path, body)
        talk(server, protocol, tmp_path, again, resume=session_id, model=None)
        assert not server.violations


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    "word",
    [named("POISON"), vague("Invalid request"), vague("Request contains an invalid argument.")],
    ids=["named", "vague", "vague as Gemini"],
)
def test_a_tool_result_that_only_the_provider_dislikes_goes_on(
    tmp_path: Path, protocol: str, word: Callable[[Recorded], str]
) -> None:
    (tmp_path / "a.txt").write_text("POISON\n")
    with ModelServer(default=refuses("POISON", word)) as server:

        async def body(it: Talk) -> None:
            server.add(calls(Call("read_file", {"path": "a.txt"})))
            before = len(server.requests)
            assert (await it.say("read")).outcome is Outcome.DONE, it.failure
            assert len(server.requests) == before + 3
            assert len(it.notices) == 1
            await goes_on(it, server)
            assert any("POISON" in m.text for m in it.session.history.messages)

        talk(server, protocol, tmp_path, body)
        assert not server.violations


@pytest.mark.spec("HIS-8", "HIS-5")
def test_arguments_that_only_the_provider_dislikes_go_on(tmp_path: Path, protocol: str) -> None:
    with ModelServer(default=refuses("POISON", named("POISON"))) as server:

        async def body(it: Talk) -> None:
            server.add(calls(Call("bash", {"command": "true # POISON"}), text="Looking."))
            assert (await it.say("try")).outcome is Outcome.DONE, it.failure
            await goes_on(it, server)

        talk(server, protocol, tmp_path, body)
        assert not server.violations


@pytest.mark.spec("HIS-8", "HIS-4")
@pytest.mark.parametrize("protocol", [ANTHROPIC, GEMINI, RESPONSES])
def test_reasoning_that_its_own_maker_refuses_goes_on(tmp_path: Path, protocol: str) -> None:
    with ModelServer(strict=False) as server:  # it demands of us what it is about to refuse
        held: list[str] = []
        mark = "thoughtSignature" if protocol == GEMINI else "I wonder"

        def refuse_it(recorded: Recorded) -> Reply | str:
            text = json.dumps(recorded.messages)
            if mark in text and "skip_thought_signature" not in text:
                held.append(place_of(recorded, mark))
                return refusal(protocol, f"{held[-1]}: Invalid `signature` in `thinking` block")
            return "Fine."

        async def body(it: Talk) -> None:
            listing = Call("list_directory", {})
            server.add(Reply((Thinking("I wonder."), Text("Hm."), listing)), say("Done."))
            await it.say("list")
            server.default = refuse_it
            await went_on(it, server, "again")
            assert any(
                isinstance(part, ThinkingPart)
                for message in it.session.history.messages
                for part in message.parts
            )

        talk(server, protocol, tmp_path, body)
        assert held
        assert not server.violations


@pytest.mark.spec("HIS-8")
def test_a_prompt_that_a_filter_refuses_does_not_stop_the_next(
    tmp_path: Path, protocol: str
) -> None:
    word = vague("The response was filtered: the prompt triggered the content management policy")
    with ModelServer(default=refuses("FORBIDDEN", word)) as server:

        async def body(it: Talk) -> None:
            assert (await it.say("hello")).outcome is Outcome.DONE
            assert (await it.say("FORBIDDEN")).outcome is Outcome.ERROR
            assert (await it.say("something else")).outcome is Outcome.DONE, it.failure
            await goes_on(it, server)

        talk(server, protocol, tmp_path, body)
        assert not server.violations


@pytest.mark.spec("HIS-8")
def test_many_poisons_of_one_kind_stop_one_turn_at_most(tmp_path: Path, protocol: str) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(f"POISON {number}\n")
    with ModelServer(default=refuses("POISON", named("POISON"))) as server:

        async def body(it: Talk) -> None:
            reads = [Call("read_file", {"path": f"{number}.txt"}) for number in range(6)]
            server.add(calls(*reads))
            await it.say("read")
            await goes_on(it, server)

        talk(server, protocol, tmp_path, body)
        assert not server.violations


@pytest.mark.spec("HIS-8")
def test_a_service_that_takes_no_tool_history_at_all_is_told_it_as_text(
    tmp_path: Path, protocol: str
) -> None:
    def picky(recorded: Recorded) -> Reply | str:
        text = json.dumps(recorded.messages)
        marks = ("tool_use", "tool_call", "function_call", "functionCall")
        if any(f'"{mark}' in text for mark in marks):
            return refusal(recorded.protocol, "Conversation roles must alternate")
        return "Fine."

    with ModelServer(strict=False) as server:

        async def body(it: Talk) -> None:
            server.add(calls(Call("list_directory", {}), text="Looking."))
            server.default = picky
            outcomes = [(await it.say("list")).outcome for _ in range(3)]
            assert outcomes[-1] is Outcome.DONE, it.failure
            assert outcomes.count(Outcome.ERROR) == 1
            await goes_on(it, server)

        talk(server, protocol, tmp_path, body)
        assert not server.violations


# --- refusals that are not about the history -----------------------------------------------------


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("The model `gpt-9` does not exist or you do not have access to it.", 404),
        ("model: claude-9 not found", 400),
        ("Unsupported parameter: 'temperature' is not supported with this model.", 400),
        ("max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens", 400),
        ("Your credit balance is too low to access the API.", 400),
        ("tools.0.custom.input_schema: JSON schema is invalid", 400),
        ("Your organization must be verified to stream this model.", 400),
        ("API key not valid. Please pass a valid API key.", 400),
    ],
)
def test_a_refusal_of_something_else_touches_nothing(
    tmp_path: Path, protocol: str, text: str, status: int
) -> None:
    with ModelServer() as server:

        async def body(it: Talk) -> None:
            server.add(calls(Call("read_file", {"path": "a.png"})), say("Seen."))
            (tmp_path / "a.png").write_bytes(PNG)
            await it.say(UserMessage((TextPart("look"), SOUND)))
            before = len(server.requests)
            server.default = refusal(protocol, text, status)
            assert (await it.say("go")).outcome is Outcome.ERROR
            assert len(server.requests) == before + 1
            assert not it.notices
            server.default = say("Fine.")
            assert (await it.say("go on")).outcome is Outcome.DONE, it.failure

        talk(server, protocol, tmp_path, body)
        assert not server.violations
        assert len(list(images_in(server.requests[-1].body))) == 2


@pytest.mark.spec("HIS-8")
def test_a_first_request_that_is_refused_is_not_asked_again(tmp_path: Path, protocol: str) -> None:
    with ModelServer(default=refusal(protocol, "Bad request")) as server:

        async def body(it: Talk) -> None:
            assert (await it.say("hello")).outcome is Outcome.ERROR
            assert len(server.requests) == 1

        talk(server, protocol, tmp_path, body)


@pytest.mark.spec("HIS-8")
def test_a_refusal_that_nothing_helps_against_gives_everything_back(
    tmp_path: Path, protocol: str
) -> None:
    (tmp_path / "a.txt").write_text("TREASURE\n")
    with ModelServer(strict=False) as server:

        async def body(it: Talk) -> None:
            server.add(calls(Call("read_file", {"path": "a.txt"})), say("Read."))
            await it.say("read")
            server.default = refusal(protocol, "Bad request")
            counts = []
            for _ in range(6):
                before = len(server.requests)
                assert (await it.say("go")).outcome is Outcome.ERROR
                counts.append(len(server.requests) - before)
            assert max(counts) == 2
            assert counts[-2:] == [1, 1]
            server.default = say("Fine.")
            assert (await it.say("go on")).outcome is Outcome.DONE
            assert "TREASURE" in server.requests[-1].raw.decode()

        talk(server, protocol, tmp_path, body)


@pytest.mark.spec("HIS-8", "HIS-7")
def test_what_one_model_has_refused_is_still_shown_to_another(tmp_path: Path) -> None:
    with ModelServer() as server:

        def answer(recorded: Recorded) -> Reply | str:
            if recorded.protocol == ANTHROPIC and IMAGE_MARK in json.dumps(recorded.messages):
                return refusal(ANTHROPIC, "Could not process image")
            return "Fine."

        async def body(it: Talk) -> None:
            await went_on(it, server, UserMessage((TextPart("look"), SOUND)))
            await it.switch(OPENAI)
            await goes_on(it, server)
            assert list(images_in(server.requests[-1].body))
            await it.switch(ANTHROPIC)
            await goes_on(it, server)

        server.default = answer
        talk(server, ANTHROPIC, tmp_path, body)
        assert not server.violations
