"""Old tool output is left out of requests in blocks; the history itself is never changed."""

from __future__ import annotations

import pytest

from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
    user_text,
)
from agentcli.domain.prepare import check_request
from agentcli.engine.context.pruning import Pruner, stub_of
from agentcli.engine.context.tokens import Gauge

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
