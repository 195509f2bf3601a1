"""A stream becomes a message in one fold."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import StopReason, TextPart, ThinkingPart, ToolCall, Usage
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.engine.assemble import MAX_REPLY_BYTES, Assembler, read_arguments

END = StreamEnd(StopReason.END_TURN)
GOOD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def fold(*events: StreamEvent, taken: frozenset[str] = frozenset()) -> Assembler:
    assembler = Assembler("p", "m", taken)
    for event in events:
        assembler.add(event)
    return assembler


@pytest.mark.spec("LOOP-4")
def test_interleaved_calls_keep_their_own_arguments_and_the_order_they_began_in() -> None:
    message = fold(
        ToolCallStart(1, "a", "look"), ToolCallStart(0, "b", "find"),
        ToolCallDelta(0, '{"q":'), ToolCallDelta(1, '{"path": "x'), TextDelta(2, "so"),
        ToolCallDelta(0, "1}"), ToolCallDelta(1, '"}'), TextDelta(2, " then"), END,
    ).message()  # fmt: skip
    assert message.parts == (
        ToolCall("a", "look", {"path": "x"}), ToolCall("b", "find", {"q": 1}), TextPart("so then"),
    )  # fmt: skip
    assert (message.provider, message.model) == ("p", "m")


@pytest.mark.slow
@pytest.mark.spec("SEC-13", "OPS-1")
@pytest.mark.parametrize(
    "endless",
    [
        TextDelta(0, "x" * 100_000), TextDelta(0, ""), TextDelta(0, "\U0001f600" * 10_000), ThinkingDelta(0, "y"),
        ThinkingSeal(0, "s" * 1_000), ToolCallStart(0, "a", "look"), ToolCallDelta(0, '{"q":'),
    ],
    ids=lambda event: type(event).__name__,
)  # fmt: skip
def test_a_reply_without_end_is_given_up_before_it_fills_the_memory(endless: StreamEvent) -> None:
    assembler = Assembler("p", "m", frozenset())
    with pytest.raises(ProviderError, match="more than") as caught:
        for _ in range(MAX_REPLY_BYTES // 32):
            assembler.add(endless)
    assert len(assembler.text) <= MAX_REPLY_BYTES
    assert caught.value.kind is ErrorKind.OTHER
    assert not caught.value.retryable


def test_a_reply_of_a_million_characters_in_single_ones_fits() -> None:
    assembler = fold(*[TextDelta(0, "x")] * 200_000, TextDelta(0, "y" * 800_000), END)
    assert len(assembler.message().text) == 1_000_000


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_blocks_come_out_the_same_however_their_pieces_interleave(data: st.DataObject) -> None:
    wanted = [json.dumps({"n": n, "text": "x" * n}) for n in range(4)]
    left = {n: list(text) for n, text in enumerate(wanted)}
    events: list[StreamEvent] = [ToolCallStart(n, f"c{n}", "look") for n in left]
    while left:
        n = data.draw(st.sampled_from(sorted(left)))
        size = data.draw(st.integers(1, 9))
        events.append(ToolCallDelta(n, "".join(left[n][:size])))
        left[n] = left[n][size:]
        if not left[n]:
            del left[n]
    calls = fold(*events, END).message().tool_calls
    assert [call.arguments for call in calls] == [json.loads(text) for text in wanted]


@pytest.mark.spec("HIS-1")
@pytest.mark.parametrize(
    "given_id", ["", "a b", "x" * 200, "functions.look:0", "ü", "\ud800", "../x", "ok-1_A"]
)
def test_every_id_fits_every_provider(given_id: str) -> None:
    (call,) = fold(ToolCallStart(0, given_id, "look"), END).message().tool_calls
    assert GOOD_ID.fullmatch(call.id)
    if GOOD_ID.fullmatch(given_id):
        assert call.id == given_id


@pytest.mark.spec("SEC-9")
def test_no_id_is_a_key() -> None:
    key = "ghp_7Qw2Lk9Xz4Pv8Nb1Mt6Rj3Hs5Dc0Fg2Yk8Va"
    (call,) = fold(ToolCallStart(0, f"a_{key}", "look"), END).message().tool_calls
    assert GOOD_ID.fullmatch(call.id)
    assert key not in call.id


@pytest.mark.spec("SEC-13")
def test_a_name_that_no_tool_can_have_is_kept_in_part() -> None:
    start = ToolCallStart(0, "one", "n" * 1_000_000)
    (call,) = fold(start, ToolCallDelta(0, "{}"), END).message().tool_calls
    assert 64 < len(call.name) < 1000


@pytest.mark.spec("HIS-1")
def test_ids_are_new_to_the_history_and_to_the_message() -> None:
    starts = [ToolCallStart(n, "same", "look") for n in range(5)]
    long = [ToolCallStart(5, "y" * 64 + "1", "look"), ToolCallStart(6, "y" * 64 + "2", "look")]
    ids = [
        call.id
        for call in fold(*starts, *long, END, taken=frozenset({"same"})).message().tool_calls
    ]
    assert len(set(ids) | {"same"}) == 8


def test_a_server_that_numbers_all_its_calls_alike_loses_none() -> None:
    calls = fold(
        ToolCallStart(0, "a", "look"), ToolCallDelta(0, '{"n":1}'),
        ToolCallStart(0, "b", "look"), ToolCallDelta(0, '{"n":2}'), END,
    ).message().tool_calls  # fmt: skip
    assert [(call.id, call.arguments) for call in calls] == [("a", {"n": 1}), ("b", {"n": 2})]


def test_kinds_that_share_an_index_are_blocks_of_their_own() -> None:
    message = fold(
        ThinkingDelta(0, "hm"), TextDelta(0, "so"), ToolCallStart(0, "a", "look"),
        ToolCallDelta(0, "{}"), END,
    ).message()  # fmt: skip
    assert message.parts == (ThinkingPart("hm"), TextPart("so"), ToolCall("a", "look", {}))


@pytest.mark.spec("LOOP-9", "LOOP-12", "HIS-5")
@pytest.mark.parametrize(
    ("text", "cut", "arguments", "malformed"),
    [
        ("", False, {}, None), (" \n", False, {}, None), ("{}", False, {}, None),
        ("", True, {}, ""), (" ", True, {}, " "),
        ('{"a": 1}', True, {"a": 1}, None),
        ('{"a": "echo h', False, {}, '{"a": "echo h'), ('{"a": 1', True, {}, '{"a": 1'),
        ("[1]", False, {}, "[1]"), ("null", False, {}, "null"), ('"x"', False, {}, '"x"'),
    ],
)  # fmt: skip
def test_arguments_are_an_object_or_malformed(
    text: str, cut: bool, arguments: dict[str, object], malformed: str | None
) -> None:
    assert read_arguments(text, cut=cut) == (arguments, malformed)


@pytest.mark.spec("HIS-5", "HIS-8", "SEC-13")
@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}', '{"a": [-Infinity]}', '{"a": 1e999}', '{"a": ' + "9" * 5000 + "}",
        '{"a": ' + "[" * 100 + "]" * 100 + "}", '{"a":' * 100_000, '{"a": ' + "[" * 100_000,
    ],
)  # fmt: skip
def test_what_could_not_be_stored_or_sent_again_is_malformed(text: str) -> None:
    assert read_arguments(text, cut=False) == ({}, text)


@given(st.text(max_size=30) | st.sampled_from(['{"a": [1.5, -2e3, true, null, {"b": "c"}]}']))
@settings(max_examples=60)
def test_arguments_that_are_taken_can_be_written_again(text: str) -> None:
    arguments, malformed = read_arguments(text, cut=False)
    assert json.loads(json.dumps(arguments, allow_nan=False)) == arguments
    assert malformed in {None, text}


@pytest.mark.spec("LOOP-7", "HIS-4")
def test_thinking_keeps_its_signature_wherever_it_comes() -> None:
    message = fold(
        ThinkingSeal(0, signature="only"), ThinkingSeal(1, signature="early"),
        ThinkingDelta(1, "a"), ThinkingDelta(1, "b"), ThinkingSeal(2, redacted="secret"),
        ThinkingDelta(3, ""), TextDelta(4, " "), TextDelta(5, "x"), END,
    ).message()  # fmt: skip
    assert message.parts == (
        ThinkingPart("", "only"), ThinkingPart("ab", "early"),
        ThinkingPart("", None, "secret"), TextPart("x"),
    )  # fmt: skip


@pytest.mark.spec("LOOP-6")
def test_a_later_usage_report_wins_where_it_knows() -> None:
    assembler = fold(
        UsageReport(Usage(10, 1, cache_read_tokens=5)), UsageReport(Usage(output_tokens=7)), END
    )
    assert assembler.message().usage == Usage(10, 7, cache_read_tokens=5)
    assert assembler.usage.reasoning_tokens is None


@pytest.mark.spec("STR-4")
@pytest.mark.parametrize(
    ("events", "output", "started"),
    [
        ((), False, False),
        ((UsageReport(Usage(1)),), False, True),
        ((TextDelta(0, ""), ThinkingDelta(1, "")), False, True),
        ((ThinkingSeal(0, signature="s"),), False, True),
        ((ToolCallStart(0, "a", ""),), False, True),
        ((TextDelta(0, " "),), True, True),
        ((ThinkingDelta(0, "h"),), True, True),
        ((ToolCallStart(0, "a", "look"),), True, True),
    ],
)
def test_output_is_what_a_person_has_seen(
    events: tuple[StreamEvent, ...], output: bool, started: bool
) -> None:
    assembler = fold(*events)
    assert (assembler.has_output, assembler.started) == (output, started)


@pytest.mark.spec("CAN-5")
def test_a_cut_stream_is_no_message_but_its_text_is_known() -> None:
    assembler = fold(TextDelta(0, "half "), ToolCallStart(1, "a", "look"), TextDelta(2, "said"))
    assert not assembler.ended
    assert assembler.text == "half said"
    with pytest.raises(ValueError, match="not ended"):
        assembler.message()


def test_nothing_is_added_after_the_end() -> None:
    late = (TextDelta(0, "!"), ToolCallStart(1, "a", "look"), StreamEnd(StopReason.OTHER))
    message = fold(TextDelta(0, "x"), END, *late).message()
    assert message.parts == (TextPart("x"),)
    assert message.stop_reason is StopReason.END_TURN


@pytest.mark.slow
def test_a_hundred_thousand_pieces_take_linear_work() -> None:
    assembler = fold(*(TextDelta(0, "x") for _ in range(100_000)), END)
    assert len(assembler.message().text) == 100_000


@pytest.mark.spec("SEC-13")
def test_many_small_pieces_take_little_more_memory_than_their_text() -> None:
    assembler = Assembler("p", "m", frozenset())
    tracemalloc.start()
    try:
        for count in range(20_000):
            assembler.add(TextDelta(0, f"{count:06}"))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert assembler.text == "".join(f"{count:06}" for count in range(20_000))
    assert held < 3 * len(assembler.text)
