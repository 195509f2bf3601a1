"""Messages survive the store unchanged."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    ResultStatus,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.store.codec import MalformedBody, NewerBody, decode, encode, from_column, to_column


def _without_pairs(value: str) -> str:
    """Two halves of one character are that character; lone ones stay (as in JSON)."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


texts = st.text(st.one_of(st.characters(), st.sampled_from('\ud800\udfff\0\u2028\r\n"\\'))).map(
    _without_pairs
)
optional_texts = st.none() | texts
text_parts = st.builds(TextPart, texts)
image_parts = st.builds(
    ImagePart, st.sampled_from(["image/png", "image/x"]), st.binary(max_size=50)
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(
    ToolCall, texts, texts, st.dictionaries(texts, json_values, max_size=3), optional_texts
)
counts = st.none() | st.integers(0, 10**9)
messages = st.one_of(
    st.builds(UserMessage, st.lists(text_parts | image_parts, max_size=4).map(tuple)),
    st.builds(
        AssistantMessage,
        st.lists(
            text_parts | calls | st.builds(ThinkingPart, texts, optional_texts, optional_texts),
            max_size=4,
        ).map(tuple),
        texts,
        texts,
        st.sampled_from(StopReason),
        st.builds(Usage, counts, counts, counts, counts, counts),
    ),
    st.builds(
        ToolResult,
        texts,
        texts,
        st.lists(text_parts | image_parts, min_size=1, max_size=4).map(tuple),
        st.sampled_from(ResultStatus),
    ),
)


@pytest.mark.spec("HIS-8", "HIS-4")
@settings(max_examples=150, deadline=None)
@given(messages)
def test_every_message_comes_back_as_it_was(message: object) -> None:
    blobs: dict[str, bytes] = {}

    def put(data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        blobs[name] = data
        return name

    role, body = encode(message, put)
    body.encode()
    assert decode(role, body, blobs.__getitem__) == message


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters()))
def test_every_text_survives_a_column(value: str) -> None:
    assert from_column(to_column(value)) == value


def test_images_are_named_by_content_and_not_part_of_the_body() -> None:
    _, body = encode(UserMessage((ImagePart("image/png", b"\0" * 1000),)), lambda _: "name")
    part = json.loads(body)["parts"][0]
    assert part == {"type": "image", "media_type": "image/png", "blob": "name"}


@pytest.mark.parametrize(
    ("role", "body"),
    [
        ("user", "not json"),
        ("user", "[]"),
        ("user", "null"),
        ("user", "{}"),
        ("user", '{"v":1,"parts":[{"type":"image","media_type":"image/png","blob":"gone"}]}'),
        ("user", '{"v":"x","parts":[]}'),
        ("user", '{"v":1,"parts":7}'),
        ("tool", '{"v":1,"parts":[{"type":"text","text":"x"}],"name":"b","status":"ok"}'),
        ("nobody", '{"v":1,"parts":[]}'),
        ("user", "[" * 100_000),
        ("user", None),
        ("user", 7),
    ],
)
def test_a_malformed_row_is_refused_in_words(role: str, body: str) -> None:
    def nothing(name: str) -> bytes:
        raise KeyError(name)

    with pytest.raises(MalformedBody):
        decode(role, body, nothing)


def test_a_body_of_a_newer_version_is_refused_as_such() -> None:
    with pytest.raises(NewerBody, match="version 2"):
        decode("user", '{"v":2,"parts":[]}', lambda name: b"")


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ('{"type":"text","text":7}', "a text without text"),
        ('{"type":"text"}', "a text without text"),
        ('{"type":"video","url":"x"}', "unknown kind"),
        ('{"type":"thinking","text":"x"}', "in the wrong place"),
        ('{"type":"tool_call","name":"b"}', "a tool call without an id"),
        ("7", "unknown kind"),
        ('"just text"', "just text"),
        ("{}", "unknown kind"),
    ],
)
def test_a_part_of_another_version_is_a_text_and_no_damaged_session(part: str, shown: str) -> None:
    body = f'{{"v":1,"parts":[{part},{{"type":"text","text":"kept"}}]}}'
    message = decode("user", body, lambda name: b"")
    assert isinstance(message, UserMessage)
    first, second = message.parts
    assert isinstance(first, TextPart)
    assert shown in first.text
    assert second == TextPart("kept")


@pytest.mark.spec("HIS-8", "HIS-5")
@pytest.mark.parametrize(
    ("stored", "arguments", "malformed"),
    [
        ('"{\\"path\\":\\"x\\"}"', {"path": "x"}, None),
        ('"{\\"path\\": cut"', {}, '{"path": cut'),
        ("[1,2]", {}, "[1,2]"),
        ("null", {}, None),
        ("7", {}, "7"),
    ],
)
def test_arguments_of_an_older_version_are_an_object_or_kept_as_text(
    stored: str, arguments: dict[str, str], malformed: str | None
) -> None:
    call = f'{{"type":"tool_call","id":"a","name":"b","arguments":{stored}}}'
    message = decode("assistant", f'{{"v":1,"parts":[{call}]}}', lambda name: b"")
    assert isinstance(message, AssistantMessage)
    assert message.tool_calls == (ToolCall("a", "b", arguments, malformed),)
    assert (message.stop_reason, message.usage) == (StopReason.OTHER, Usage())


@pytest.mark.spec("HIS-8")
def test_a_result_of_another_version_is_an_error_where_it_does_not_say_how_it_ended() -> None:
    body = '{"v":1,"parts":[],"call_id":"a","name":"b","status":"what"}'
    result = decode("tool", body, lambda name: b"")
    assert result == ToolResult("a", "b", (TextPart("(no output)"),), ResultStatus.ERROR)
