"""Tokens are counted once and corrected by reports; old output is left out in blocks."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import ModelInfo
from agentcli.domain.tools import Asks, ToolDefinition
from agentcli.engine.context import window as tokens
from agentcli.engine.context.outgoing import Preparer, check_request
from agentcli.engine.context.window import Context, Gauge, Pruner, of_message, stub_of

TOOL = ToolDefinition("look", "Look", "looks", {"type": "object"}, Asks.NOTHING, "test")


def answer(text: str, usage: Usage | None = None) -> AssistantMessage:
    return AssistantMessage((TextPart(text),), usage=usage or Usage())


def png(width: int, height: int) -> ImagePart:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", b"x" * 10) + chunk(b"IEND", b"")
    return ImagePart("image/png", b"\x89PNG\r\n\x1a\n" + body)


def looked(*messages: Message) -> tuple[Gauge, History]:
    history = History(messages)
    gauge = Gauge()
    gauge.look(history, "", ())
    return gauge, history


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [("", 0, 0), ("word " * 100, 100, 140), ("日本語" * 100, 270, 400), ("é" * 100, 50, 80)],
)
def test_a_text_is_estimated_by_its_length_and_script(text: str, least: int, most: int) -> None:
    assert least <= tokens.of_text(text) <= most


def test_a_lone_surrogate_is_counted_like_any_other_character() -> None:
    assert tokens.of_text("\ud800" * 4) > 0


def test_an_image_is_counted_by_its_pixels_and_an_unknown_one_as_the_largest() -> None:
    assert tokens.of_image(png(750, 100)) == 100
    assert tokens.of_image(png(10, 10)) == 85
    assert tokens.of_image(png(8_000, 8_000)) == 1_600
    assert tokens.of_image(ImagePart("image/png", b"?")) == 1_600


def test_every_kind_of_part_weighs_something() -> None:
    call = ToolCall("c", "look", {"path": "x" * 400})
    messages = [
        AssistantMessage((ThinkingPart("t" * 400, "s"),)),
        AssistantMessage((ThinkingPart("", redacted="r" * 400),)),
        AssistantMessage((call,)),
        ToolResult("c", "look", (TextPart("r" * 400),)),
        UserMessage((TextPart("u" * 400),)),
    ]
    assert all(100 <= tokens.of_message(message) <= 140 for message in messages)
    assert tokens.of_tools([TOOL]) > 10


@pytest.mark.spec("CMP-4")
def test_what_the_provider_reports_wins_and_only_what_came_later_is_estimated() -> None:
    gauge, history = looked(user_text("x" * 4_000))
    assert not gauge.is_measured
    assert 1_000 <= gauge.used <= 1_010
    gauge.measured(Usage(100, 5, 800, 700))
    assert (gauge.used, gauge.is_measured) == (1_600, True)
    history.append(answer("y" * 400))
    gauge.look(history, "", ())
    assert 1_600 + 100 <= gauge.used <= 1_600 + 1.7 * 110


def test_a_report_without_figures_changes_nothing() -> None:
    gauge, _ = looked(user_text("x" * 400))
    before = gauge.used
    gauge.measured(Usage())
    assert (gauge.used, gauge.is_measured) == (before, False)


def test_a_history_that_is_taken_up_again_goes_by_its_last_report() -> None:
    gauge, _ = looked(user_text("x" * 4_000), answer("one", Usage(1_200, 5)), user_text("y" * 400))
    assert gauge.is_measured
    assert 1_300 <= gauge.used <= 1_350


def test_a_report_of_a_history_that_was_folded_since_says_nothing() -> None:
    messages = [user_text("summary"), user_text("x"), answer("one", Usage(90_000, 5))]
    gauge = Gauge()
    gauge.look(History(messages, unlike_before=3), "", ())
    assert not gauge.is_measured and gauge.used < 100


def test_after_a_fold_everything_is_counted_anew_in_the_providers_measure() -> None:
    gauge, history = looked(user_text("x" * 4_000), answer("y" * 4_000), user_text("z" * 400))
    gauge.measured(Usage(3_200, 0))
    history.fold(UserMessage((TextPart("s" * 40),), is_summary=True), [0, 1])
    assert gauge.look(history, "", ())
    assert len(gauge.sizes) == 2
    assert 1.4 * 110 <= gauge.used <= 1.7 * 130


def test_a_look_at_an_unchanged_history_counts_nothing_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gauge, history = looked(user_text("x"))
    counted: list[Message] = []
    real = tokens.of_message

    def counting(message: Message, context_tokens: int | None = None) -> int:
        counted.append(message)
        return real(message, context_tokens)

    monkeypatch.setattr(tokens, "of_message", counting)
    assert not gauge.look(history, "", ())
    assert counted == []
    history.append(answer("new"))
    gauge.look(history, "", ())
    assert counted == [history.last]


def test_the_system_prompt_and_the_tools_count() -> None:
    gauge = Gauge()
    gauge.look(History([user_text("x")]), "s" * 400, (TOOL,))
    assert gauge._fixed == tokens.of_text("s" * 400) + tokens.of_tools([TOOL])
    assert gauge.used > gauge._fixed


def test_an_overflow_says_that_the_estimate_was_too_low() -> None:
    gauge, _ = looked(user_text("x" * 40_000))
    gauge.at_least(15_000)
    assert gauge.used == pytest.approx(15_000, rel=0.01)
    gauge.at_least(100)
    assert gauge.used == pytest.approx(15_000, rel=0.01)


@pytest.mark.spec("CMP-4", "HIS-8")
@pytest.mark.parametrize("text", ["x" * 6_000_000, "\u4f60" * 2_000_000])
def test_an_output_of_an_older_version_counts_as_much_as_is_sent_of_it(text: str) -> None:
    asked = AssistantMessage((ToolCall("c", "look", {}),))
    history = History([user_text("go"), asked, ToolResult("c", "look", (TextPart(text),))])
    context = Context()
    model = ModelInfo("test", "model", 100_000)
    for info in (model, replace(model, context_tokens=500_000)):
        sent = Preparer().prepare(history.messages, info)
        context.look(history, "", (), info)
        assert context.gauge.sizes[2] == pytest.approx(of_message(sent[2]), rel=0.1)
        assert not context.is_full(info)


WINDOW = 20_000
RESULT_TOKENS = 1_000


def step(number: int, characters: int = 4 * RESULT_TOKENS) -> list[Message]:
    call = ToolCall(f"c{number}", "read_file", {"path": f"src/{number}.py"})
    return [
        AssistantMessage((call,)),
        ToolResult(call.id, "read_file", (TextPart("x" * characters),)),
    ]


class World:
    def __init__(self, steps: int) -> None:
        self.history = History([user_text("go")])
        self.gauge, self.pruner = Gauge(), Pruner()
        for number in range(steps):
            self.add(number)

    def add(self, number: int) -> None:
        for message in step(number):
            self.history.append(message)
        self.gauge.look(self.history, "", ())

    def prune(self) -> int:
        return self.pruner.prune(self.history.messages, self.gauge, WINDOW)

    def sent(self) -> list[Message]:
        return list(self.pruner.apply(self.history.messages))

    def stubs(self) -> list[str]:
        return [m.text for m in self.sent() if isinstance(m, ToolResult) and "left out" in m.text]


def test_nothing_is_left_out_before_the_window_is_60_percent_full() -> None:
    world = World(11)
    assert world.prune() == 0
    assert world.pruner.apply(world.history.messages) == world.history.messages


@pytest.mark.spec("CTRL-8")
def test_old_results_become_a_line_that_says_what_they_were_and_how_to_read_them_again() -> None:
    world = World(13)
    before = world.history.messages
    assert world.prune() > 0
    assert world.history.messages == before
    check_request(world.sent())
    stub = world.stubs()[0]
    assert "read_file" in stub and "src/0.py" in stub and "4,000 characters" in stub
    assert 'read_file with path "output://c0"' in stub
    assert world.gauge.used < 0.6 * WINDOW


def test_the_newest_output_stays_and_so_do_short_results() -> None:
    world = World(13)
    short = ToolCall("s", "stat_file", {})
    world.history = History(
        [user_text("go"), AssistantMessage((short,)), ToolResult("s", "x", (TextPart("y"),))]
    )
    for number in range(13):
        world.add(number)
    world.gauge = Gauge()
    world.gauge.look(world.history, "", ())
    world.prune()
    kept = [m for m in world.sent() if isinstance(m, ToolResult) and "left out" not in m.text]
    assert kept[0].call_id == "s"
    assert [m.call_id for m in kept[-4:]] == ["c9", "c10", "c11", "c12"]
    assert sum(len(m.text) // 4 for m in kept) <= 0.3 * WINDOW


def test_the_last_two_steps_stay_whatever_their_size() -> None:
    world = World(0)
    for number in range(3):
        for message in step(number, 4 * 9_000):
            world.history.append(message)
    world.gauge.look(world.history, "", ())
    assert world.prune() == 1
    assert len(world.stubs()) == 1 and "src/0.py" in world.stubs()[0]


@pytest.mark.spec("CTX-2")
def test_what_is_sent_first_stays_the_same_from_step_to_step_but_for_few_blocks() -> None:
    world = World(0)
    changes = 0
    sent: list[Message] = []
    for number in range(60):
        world.add(number)
        changes += bool(world.prune())
        now = world.sent()
        changed_early = now[: len(sent)] != sent
        assert changed_early == (len(world.stubs()) > sum("left out" in m.text for m in sent))
        sent = now
    assert 2 <= changes <= 20
    assert len(world.stubs()) >= 40


def test_what_was_left_out_once_stays_left_out_and_is_the_same_object() -> None:
    world = World(13)
    world.prune()
    first = world.sent()
    world.add(13)
    second = world.sent()
    assert all(new is old for new, old in zip(second, first, strict=False))


def test_a_line_keeps_the_status_and_names_images() -> None:
    result = ToolResult(
        "c", "look", (TextPart("x" * 10), ImagePart("image/png", b"p")), ResultStatus.ERROR
    )
    stub = stub_of(result, None)
    assert (stub.status, stub.call_id, stub.name) == (ResultStatus.ERROR, "c", "look")
    assert "10 characters and 1 image" in stub.text
    long = stub_of(result, ToolCall("c", "look", {"command": "y" * 5_000}))
    assert len(long.text) < 500


def test_a_gauge_that_counted_anew_is_told_what_is_left_out() -> None:
    world = World(13)
    world.prune()
    used = world.gauge.used
    world.gauge = Gauge()
    world.gauge.look(world.history, "", ())
    world.pruner.resize(world.history.messages, world.gauge)
    assert world.gauge.used == used
