"""A model that goes in circles is told so, then stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.events import Failed, Outcome
from agentcli.domain.messages import (
    ImagePart,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.tools import ToolContext, ToolOutput
from agentcli.engine.limits import POINTED_OUT_AT, STOPPED_AT, Repeated, Repeats
from tests.support.turns import FakeTool, PlayedProvider, World, calls

pytestmark = pytest.mark.spec("OPS-2")


class Watched:
    """Feeds calls, each with an id of its own, and tells what came of the last one."""

    def __init__(self) -> None:
        self.repeats = Repeats()
        self._number = 0

    def batch(self, *steps: tuple[str, str]) -> Repeated | None:
        calls, results = [], []
        for name, result in steps:
            self._number += 1
            call = ToolCall(f"c{self._number}", name, {"n": 1, "m": [name]})
            calls.append(call)
            text = result.replace("ID", call.id)
            results.append(ToolResult(call.id, name, (TextPart(text),)))
        return self.repeats.observe(calls, results)

    def outcomes(self, *steps: tuple[str, str]) -> list[str]:
        """Of each step alone: "", "reminder" or "stop"."""
        return [_kind(self.batch(step)) for step in steps]


def _kind(found: Repeated | None) -> str:
    if found is None:
        return ""
    return "stop" if found.stop else "reminder"


def test_a_call_that_takes_its_time_counts_as_polling_and_has_ten_times_the_allowance() -> None:
    def outcomes(lasted_s: float, times: int) -> list[str]:
        repeats, found = Repeats(), []
        for number in range(times):
            call = ToolCall(f"c{number}", "bash", {"command": "sleep 1; check"})
            result = ToolResult(call.id, "bash", (TextPart("not yet"),))
            found.append(_kind(repeats.observe([call], [result], {call.id: lasted_s})))
        return found

    assert outcomes(1.0, 80) == [""] * 49 + ["reminder"] * 30 + ["stop"]
    assert outcomes(0.9, 8) == [""] * 4 + ["reminder"] * 3 + ["stop"]


@pytest.mark.spec("SEC-13")
def test_a_long_number_in_a_result_is_looked_at_at_once() -> None:
    """``python3 -c 'print(2**100000)'`` took a minute of the event loop."""
    number = "1" * 50_000
    found = Watched().outcomes(*(("bash", f"{number}\n[exit code 0, {n}.5 s]") for n in range(5)))
    assert found[-1] == "reminder"


def test_the_fifth_identical_call_is_pointed_out_and_the_eighth_stops() -> None:
    watched = Watched()
    found = [watched.batch(("look", "same")) for _ in range(8)]
    assert [_kind(each) for each in found] == [""] * 4 + ["reminder"] * 3 + ["stop"]
    told, stopped = found[4], found[7]
    assert told is not None
    assert stopped is not None
    assert "look 5 times" in told.reminder
    assert not told.stop
    assert "look was called 8 times with the same arguments and the same result" in stopped.stop
    assert not stopped.reminder


def test_a_circle_of_several_calls_is_a_circle() -> None:
    steps = [("a", "x"), ("b", "y"), ("c", "z")] * STOPPED_AT
    outcomes = Watched().outcomes(*steps)
    # the round in which all became known does not count twice
    assert "reminder" in outcomes
    assert "stop" in outcomes
    assert outcomes.index("reminder") < outcomes.index("stop")
    together = Watched()
    rounds = [_kind(together.batch(*steps[:3])) for _ in range(STOPPED_AT)]
    assert rounds[-1] in {"stop", "reminder"}


@pytest.mark.parametrize(
    "new", [("other", "same"), ("look", "changed")], ids=["another call", "another result"]
)
def test_anything_new_begins_the_count_anew(new: tuple[str, str]) -> None:
    watched = Watched()
    assert (
        watched.outcomes(*[("look", "same")] * (POINTED_OUT_AT - 1), new) == [""] * POINTED_OUT_AT
    )
    assert watched.outcomes(*[("look", "same")] * POINTED_OUT_AT)[-1] == "reminder"


def test_polling_what_moves_and_waiting_between_is_no_circle() -> None:
    steps = [step for n in range(50) for step in [("status", f"{n} %"), ("sleep", "(no output)")]]
    assert set(Watched().outcomes(*steps)) == {""}


def test_trying_again_after_each_change_is_no_circle() -> None:
    steps = [step for n in range(50) for step in [(f"edit {n}", "done"), ("test", "3 failed")]]
    assert set(Watched().outcomes(*steps)) == {""}


def test_other_arguments_are_another_call_and_their_order_is_not() -> None:
    repeats = Repeats()
    for n in range(50):
        call = ToolCall("a", "look", {"n": n})
        assert repeats.observe([call], [ToolResult("a", "look", (TextPart("x"),))]) is None
    found: list[Any] = []
    for n in range(POINTED_OUT_AT):
        arguments = {"x": 1, "y": 2} if n % 2 else {"y": 2, "x": 1}
        call = ToolCall("a", "look", arguments)
        found.append(repeats.observe([call], [ToolResult("a", "look", (TextPart("x"),))]))
    assert _kind(found[-1]) == "reminder"


@pytest.mark.parametrize(
    ("name", "of", "kind"),
    [
        ("command", "ls -l{n}\n", "reminder"), ("description", "try {n}", "reminder"),
        ("command", "ls a b {n}c", ""), ("timeout_s", "{n}", ""),
    ],
)  # fmt: skip
def test_blanks_and_what_is_said_of_a_command_make_no_other_call_of_it(
    name: str, of: str, kind: str
) -> None:
    repeats, found = Repeats(), None
    for n in range(POINTED_OUT_AT):
        text = of.format(n=" " * n if kind else n)
        arguments = {"command": "ls", "description": "a"} | {name: text}
        result = ToolResult("a", "bash", (TextPart("x"),))
        found = repeats.observe([ToolCall("a", "bash", arguments)], [result])
    assert _kind(found) == kind


def test_what_is_called_a_command_by_another_tool_is_told_by_all_that_it_is_given() -> None:
    repeats, name = Repeats(), "mcp__tracker__do"
    for n in range(2 * POINTED_OUT_AT):
        arguments = {"command": "create", "description": f"issue {n}"}
        result = ToolResult("a", name, (TextPart("done"),))
        assert _kind(repeats.observe([ToolCall("a", name, arguments)], [result])) == ""


@pytest.mark.parametrize("varied", [True, False])
def test_the_status_and_images_are_part_of_a_result(varied: bool) -> None:
    repeats = Repeats()
    found = None
    for n in range(POINTED_OUT_AT):
        data = bytes([n if varied else 0])
        result = ToolResult(
            "a", "look", (TextPart("x"), ImagePart("image/png", data)), ResultStatus.ERROR
        )
        found = repeats.observe([ToolCall("a", "look", {})], [result])
    assert _kind(found) == ("" if varied else "reminder")
    ok = ToolResult("a", "look", (TextPart("x"), ImagePart("image/png", b"\0")))
    assert repeats.observe([ToolCall("a", "look", {})], [ok]) is None


def test_how_long_a_command_took_and_its_own_id_make_no_difference() -> None:
    watched = Watched()
    texts = [
        f"a\n[cut; whole output: output://ID]\n[exit code 1, {took}]"
        for took in ["0.1 s", "2.3 s", "1 min 3 s"]
    ]
    outcomes = watched.outcomes(*[("bash", text) for text in texts * 2])
    assert outcomes[4] == "reminder"
    differing = Watched().outcomes(*[("bash", f"{n}.0 s\n[exit code 0, 0.1 s]") for n in range(9)])
    assert set(differing) == {""}


def test_malformed_calls_are_compared_by_what_was_received() -> None:
    repeats = Repeats()
    found = []
    for text in ["{x"] * POINTED_OUT_AT + ["{y"]:
        result = ToolResult("a", "look", (TextPart("invalid"),), ResultStatus.ERROR)
        found.append(_kind(repeats.observe([ToolCall("a", "look", {}, text)], [result])))
    assert found[-2:] == ["reminder", ""]


def test_many_at_once_are_pointed_out_before_they_stop() -> None:
    watched = Watched()
    assert _kind(watched.batch(*[("look", "same")] * 20)) == "reminder"
    assert _kind(watched.batch(("look", "same"))) == "stop"


def test_after_the_user_has_spoken_the_count_begins_anew() -> None:
    watched = Watched()
    watched.outcomes(*[("look", "same")] * (STOPPED_AT - 1))
    watched.repeats.forget()
    assert watched.outcomes(*[("look", "same")] * 4) == [""] * 4


def test_a_call_without_a_result_does_not_count() -> None:
    repeats = Repeats()
    for _ in range(20):
        assert repeats.observe([ToolCall("a", "look", {})], []) is None
    assert repeats.observe([], []) is None


@settings(max_examples=100)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=3), max_size=40
    )
)
def test_no_stop_without_a_reminder_and_none_before_five(
    batches: list[list[tuple[str, str]]],
) -> None:
    watched = Watched()
    reminded = False
    seen: list[tuple[str, str]] = []
    for batch in batches:
        seen += batch
        kind = _kind(watched.batch(*batch))
        assert kind == "" or max(seen.count(step) for step in batch) >= POINTED_OUT_AT
        assert kind != "stop" or reminded
        reminded = reminded or kind == "reminder"


@pytest.mark.spec("OPS-2", "LOOP-2")
def test_a_turn_that_goes_in_circles_is_told_so_and_then_ends_with_the_reason() -> None:
    async def body() -> None:
        async def look(args: Any, ctx: ToolContext) -> ToolOutput:
            return ToolOutput.text("nothing there")

        rounds = [calls((f"c{number}", "look", "{}")) for number in range(20)]
        provider = PlayedProvider(*rounds)
        world = World(provider, [FakeTool("look", look)])
        summary = await world.run("go")
        assert summary.outcome is Outcome.ERROR and summary.steps == STOPPED_AT
        failed = world.events[-1]
        assert isinstance(failed, Failed) and "look" in failed.error.message
        told = [
            isinstance(request.messages[-1], UserMessage) and len(request.messages) > 1
            for request in provider.requests
        ]
        assert told.index(True) == POINTED_OUT_AT
        assert not world.history.pending
        assert all(message.text == "go" for message in users(world))

    def users(world: World) -> list[UserMessage]:
        return [m for m in world.history.messages if isinstance(m, UserMessage)]

    asyncio.run(body())
