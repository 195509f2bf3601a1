"""A script is played step by step, the same way after a resume."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    StopReason,
    TextPart,
    ThinkingPart,
    Usage,
    user_text,
)
from agentcli.domain.ports import ModelInfo
from agentcli.domain.stream import StreamEvent, TextDelta
from agentcli.providers._registry import create, provider_config
from agentcli.providers.scripted import ScriptedProvider, parse_script
from tests.providers.streams import fold, request

REPLY = AssistantMessage((TextPart("x"),), "scripted", "script")


def provider_of(path: Path | str = "") -> ScriptedProvider:
    env = {"AGENTCLI_SCRIPT": str(path)} if path else {}
    made = create(provider_config("scripted", env, {}))
    assert isinstance(made, ScriptedProvider)
    return made


async def collect(
    provider: ScriptedProvider, replies: int = 0, model: str = "script", **more: Any
) -> list[StreamEvent]:
    history: list[Message] = [user_text("go")]
    for _ in range(replies):
        history += [REPLY, user_text("on")]
    asked = request(history, ModelInfo("scripted", model))
    token = more.get("cancel") or CancelToken()
    return [event async for event in provider.stream(asked, token)]


def play(steps: Any, tmp_path: Path, replies: int = 0) -> AssistantMessage | None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(steps))
    return fold(asyncio.run(collect(provider_of(path), replies)))


def test_every_kind_of_event_is_played(tmp_path: Path) -> None:
    step = [
        {"thinking": "Hm.", "signature": "s"},
        {"redacted": "blob"},
        "Hello",
        {"text": " there", "chunk": 2},
        {"tool": "bash", "arguments": {"command": "pwd"}},
        {"tool": "bash", "raw": '{"comm', "id": "own"},
        {"usage": {"input_tokens": 3, "output_tokens": 4, "unheard_of": 1}},
    ]
    message = play([step], tmp_path)
    assert message is not None
    assert message.parts[:2] == (ThinkingPart("Hm.", "s"), ThinkingPart("", None, "blob"))
    assert message.text == "Hello there"
    one, two = message.tool_calls
    assert (one.id, one.arguments) == ("call_1_5", {"command": "pwd"})
    assert (two.id, two.malformed) == ("own", '{"comm')
    assert message.usage == Usage(3, 4)
    assert message.stop_reason is StopReason.TOOL_USE


def test_the_step_depends_on_the_history_only(tmp_path: Path) -> None:
    steps = ["one", {"text": "two"}, [{"text": "three"}]]
    for number, text in enumerate(["one", "two", "three"]):
        message = play(steps, tmp_path, replies=number)
        assert message is not None
        assert message.text == text


def test_a_script_that_is_over_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="is over: it has 1 steps and step 2") as caught:
        play(["one"], tmp_path, replies=1)
    assert not caught.value.retryable


def test_json_lines_and_a_path_in_the_model_name(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text('["one", " more"]\n\n{"text": "two"}\n')
    first = fold(asyncio.run(collect(provider_of(), 0, model=str(path))))
    second = fold(asyncio.run(collect(provider_of(), 1, model=str(path))))
    assert first is not None
    assert second is not None
    assert (first.text, second.text) == ("one more", "two")


def test_errors_are_raised_for_ever_or_so_many_times(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    error = {"error": "overloaded", "times": 2, "retry_after_s": 3, "message": "busy"}
    path.write_text(json.dumps([[{"text": "a"}, error, {"text": "b"}], {"error": "odd"}]))
    provider = provider_of(path)
    for _ in range(2):
        with pytest.raises(ProviderError, match="busy") as caught:
            asyncio.run(collect(provider))
        assert (caught.value.kind, caught.value.retry_after_s) == (ErrorKind.OVERLOADED, 3)
    message = fold(asyncio.run(collect(provider)))
    assert message is not None
    assert message.text == "ab"
    for _ in range(3):
        with pytest.raises(ProviderError) as caught:
            asyncio.run(collect(provider, 1))
        assert caught.value.kind is ErrorKind.OTHER


def test_a_stop_can_be_given_or_the_stream_cut(tmp_path: Path) -> None:
    limited = play([["x", {"stop": "max_tokens"}]], tmp_path)
    assert limited is not None
    assert limited.stop_reason is StopReason.MAX_TOKENS
    assert play([["x", {"stop": "cut"}]], tmp_path) is None


@pytest.mark.spec("CAN-9")
def test_a_pause_ends_with_the_cancel(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps([["before", {"pause_s": 3600}, "after"]]))
    token = CancelToken()

    async def run() -> list[StreamEvent]:
        task = asyncio.create_task(collect(provider_of(path), cancel=token))
        await asyncio.to_thread(lambda: None)
        token.cancel()
        return await task

    events = asyncio.run(run())
    assert [e.text for e in events if isinstance(e, TextDelta)] in ([], ["before"])
    assert fold(events) is None


@pytest.mark.parametrize("text", ["[1", '{"text": "a"}\n{', "[[1]]", "[null]", "[[[]]]"])
def test_a_script_that_is_none_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"the script s\.json"):
        parse_script(text, "s.json")


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no script was named"):
        asyncio.run(collect(provider_of()))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        asyncio.run(collect(provider_of(tmp_path / "none.json")))
