"""One reply: what is tried again, how long it waits, and that a cancel never waits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError, TurnCancelled
from agentcli.domain.events import (
    AgentEvent,
    CallForming,
    Notice,
    OutputCapRaised,
    RetryWait,
    TextChunk,
    ThinkingChunk,
)
from agentcli.domain.messages import AssistantMessage, StopReason, TextPart, Usage, user_text
from agentcli.domain.ports import Effort, LongWait, ModelRequest
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallStart,
    UsageReport,
)
from agentcli.engine.race import Reaper, race
from agentcli.engine.sample import RetryPolicy, Sampler
from tests.support.ticks import run_ticks
from tests.support.turns import MODEL, says

REQUEST = ModelRequest(MODEL, "system", (user_text("hi"),), effort=Effort.HIGH)
RETRIED = (ErrorKind.RATE_LIMIT, ErrorKind.SERVER, ErrorKind.OVERLOADED, ErrorKind.NETWORK)
FINAL = (ErrorKind.AUTH, ErrorKind.BAD_REQUEST, ErrorKind.CONTEXT_OVERFLOW, ErrorKind.OTHER)


class Silence:
    """In a script: no chunk for ``seconds`` (for ever by default)."""

    def __init__(self, seconds: float = 1e9) -> None:
        self.seconds = seconds


Item = StreamEvent | BaseException | Silence
Script = Sequence[Item] | Callable[[], AsyncIterator[StreamEvent]]


@dataclass
class Service:
    """A provider that follows a script for each attempt and notes when each began."""

    scripts: list[Script]
    name: str = "test"
    host: str = ""
    times: list[float] = field(default_factory=list)
    requests: list[ModelRequest] = field(default_factory=list)
    closed: int = 0

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncIterator[StreamEvent]:
        self.times.append(asyncio.get_running_loop().time())
        self.requests.append(request)
        script = self.scripts[len(self.requests) - 1]
        try:
            if callable(script):
                async for event in script():
                    yield event
                return
            for item in script:
                if isinstance(item, Silence):
                    await asyncio.sleep(item.seconds)
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        return None

    @property
    def gaps(self) -> list[float]:
        return [round(b - a, 6) for a, b in zip(self.times, self.times[1:], strict=False)]


@dataclass
class Played:
    result: Any
    service: Service
    events: list[AgentEvent]
    sampler: Sampler

    @property
    def waits(self) -> list[RetryWait]:
        return [event for event in self.events if isinstance(event, RetryWait)]

    @property
    def shown(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextChunk))


def play(
    *scripts: Script,
    cancel_when: Callable[[Service, list[AgentEvent]], bool] | None = None,
    jitter: float = 0.5,
    request: ModelRequest = REQUEST,
    long_wait: LongWait | None = None,
) -> Played:
    """All attempts in virtual time; the cancel comes at the first tick where it is wanted."""
    service, events, token = Service(list(scripts)), [], CancelToken()
    sampler = Sampler(service, events.append, RetryPolicy(jitter=lambda: jitter), long_wait)

    def hook(tick: int, task: asyncio.Task[Any]) -> None:
        if cancel_when is not None and cancel_when(service, events):
            token.cancel()

    result, _ = run_ticks(
        lambda: race(sampler.sample(request, frozenset(), token), token, Reaper()), hook
    )
    return Played(result, service, events, sampler)


def failure(kind: ErrorKind, retry_after_s: float | None = None, **more: Any) -> ProviderError:
    return ProviderError(kind.value, kind=kind, retry_after_s=retry_after_s, **more)


# --- before a stream exists ------------------------------------------------------------------


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize("kind", RETRIED)
def test_what_may_pass_is_tried_three_times_more_with_growing_waits(kind: ErrorKind) -> None:
    played = play(*[[failure(kind)]] * 3, says("at last"))
    assert played.result.text == "at last"
    assert played.service.gaps == [1, 2, 4]
    assert [(w.attempt, w.max_attempts, w.delay_s) for w in played.waits] == [
        (1, 3, 1), (2, 3, 2), (3, 3, 4),
    ]  # fmt: skip
    assert all(wait.error.message == kind.value for wait in played.waits)


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize("kind", RETRIED)
def test_the_fourth_failure_is_the_answer(kind: ErrorKind) -> None:
    played = play(*[[failure(kind)]] * 9)
    assert isinstance(played.result, ProviderError)
    assert played.result.kind is kind
    assert len(played.service.times) == 4
    assert played.service.closed == 4


@pytest.mark.spec("STR-1", "STR-2")
@pytest.mark.parametrize("kind", FINAL)
def test_what_cannot_pass_is_not_tried_again(kind: ErrorKind) -> None:
    played = play([failure(kind, 1.0)], says("never"))
    assert played.result.kind is kind
    assert played.waits == []


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(("jitter", "factor"), [(0.0, 0.75), (0.5, 1.0), (0.999999, 1.25)])
def test_waits_are_spread_around_their_length(jitter: float, factor: float) -> None:
    played = play(*[[failure(ErrorKind.SERVER)]] * 3, says("x"), jitter=jitter)
    assert played.service.gaps == pytest.approx([factor, 2 * factor, 4 * factor], rel=1e-4)


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(
    ("kind", "asked", "waited"),
    [
        (ErrorKind.RATE_LIMIT, 0.0, 0), (ErrorKind.RATE_LIMIT, 7.5, 7.5),
        (ErrorKind.RATE_LIMIT, 60.0, 60), (ErrorKind.RATE_LIMIT, -30.0, 0),
        (ErrorKind.OVERLOADED, 86_400.0, 60), (ErrorKind.SERVER, 61.0, 60),
        (ErrorKind.RATE_LIMIT, 1e10, 1), (ErrorKind.SERVER, 1e10, 1),
    ],
)  # fmt: skip
def test_retry_after_wins_and_is_capped(kind: ErrorKind, asked: float, waited: float) -> None:
    played = play([failure(kind, asked)], says("x"))
    assert played.result.text == "x"
    assert played.service.gaps == [waited]
    assert played.waits[0].delay_s == waited


# --- a stream that breaks --------------------------------------------------------------------


@pytest.mark.spec("STR-3", "STR-4")
def test_ninety_seconds_without_a_chunk_is_a_stall_and_reconnects() -> None:
    played = play([Silence()], says("x"))
    assert played.result.text == "x"
    assert played.waits[0].error.kind is ErrorKind.STALLED
    assert played.service.gaps == [91]


@pytest.mark.spec("STR-3")
def test_the_first_word_and_the_silence_after_it_have_limits_of_their_own() -> None:
    model = replace(REQUEST.model, first_token_timeout_s=600.0, idle_timeout_s=30.0)
    patient = replace(REQUEST, model=model)
    late = play([Silence()], says("x"), request=patient)
    assert (late.result.text, late.service.gaps) == ("x", [601])
    assert "first_token_timeout_s" in late.waits[0].error.advice
    broken = play([TextDelta(0, "begun"), Silence()], request=patient)
    assert broken.result.kind is ErrorKind.STALLED
    assert "sent nothing for 30 s" in broken.result.message
    assert "idle_timeout_s" in broken.result.advice


@pytest.mark.spec("STR-3")
@pytest.mark.parametrize("kind", [ErrorKind.OVERLOADED, ErrorKind.EMPTY, ErrorKind.STALLED])
@pytest.mark.parametrize("attempts", [1, 2, 9])
def test_a_limit_of_attempts_holds_for_all_that_may_pass(kind: ErrorKind, attempts: int) -> None:
    request = replace(REQUEST, model=replace(REQUEST.model, max_attempts=attempts))
    played = play(*[[failure(kind)]] * 20, request=request)
    assert played.result.kind is kind
    assert len(played.service.times) == attempts


@pytest.mark.spec("STR-3")
def test_each_chunk_moves_the_deadline() -> None:
    slow = [item for n in range(5) for item in (TextDelta(0, str(n)), Silence(80))]
    played = play([*slow, StreamEnd(StopReason.END_TURN)])
    assert played.result.text == "01234"


@pytest.mark.spec("STR-3")
@pytest.mark.parametrize("pause_s", [0.3, 0.4, 89.7])
def test_ninety_seconds_are_counted_from_the_last_chunk(pause_s: float) -> None:
    chunk = (Silence(pause_s), TextDelta(0, "x"))
    assert play([*chunk, Silence(89.9), *says("y")]).result.text == "xy"
    stalled = play([*chunk, Silence(90.1), *says("y")])
    assert stalled.result.kind is ErrorKind.STALLED


@pytest.mark.spec("STR-3", "STR-4")
def test_a_stall_after_output_ends_with_the_error_and_the_partial_is_known() -> None:
    played = play([TextDelta(0, "half"), Silence()], says("never"))
    assert played.result.kind is ErrorKind.STALLED
    assert "90 s" in played.result.message
    assert played.sampler.partial_text == "half"
    assert played.shown == "half"
    assert len(played.service.times) == 1


@pytest.mark.spec("STR-4")
@pytest.mark.parametrize(
    "broken",
    [
        [Silence()],
        [UsageReport(Usage(3)), failure(ErrorKind.NETWORK)],
        [failure(ErrorKind.NETWORK, streaming=True)],
    ],
    ids=["stall", "drop after the head", "drop that says so"],
)
def test_a_stream_that_breaks_before_output_is_tried_six_times_in_all(broken: Any) -> None:
    played = play(*[broken] * 5, says("x"))
    assert played.result.text == "x"
    assert [wait.delay_s for wait in played.waits] == [1, 2, 4, 8, 16]
    assert {wait.max_attempts for wait in played.waits} == {5}
    assert isinstance(play(*[broken] * 9).result, ProviderError)
    assert len(play(*[broken] * 9).service.times) == 6


@pytest.mark.spec("STR-2", "STR-4", "STR-5")
def test_no_budget_eats_from_another() -> None:
    """3 refusals, 5 stalls and 2 empty streams in any order still leave the last attempt."""
    refused, empty = [failure(ErrorKind.OVERLOADED)], []
    faults: list[Script] = [refused, [Silence()], empty, [Silence()], refused, [Silence()]]
    faults += [[Silence()], empty, [Silence()], refused]
    assert play(*faults, says("x")).result.text == "x"
    for last in (refused, [Silence()], empty):
        played = play(*faults, last, says("never"))
        assert isinstance(played.result, ProviderError)
        assert len(played.service.times) == 11


@pytest.mark.spec("STR-4")
@pytest.mark.parametrize(
    "seen", [TextDelta(0, "a"), ThinkingDelta(0, "a"), ToolCallStart(0, "a", "look")]
)
@pytest.mark.parametrize("ending", [failure(ErrorKind.NETWORK), None])
def test_nothing_is_tried_again_after_output(
    seen: StreamEvent, ending: ProviderError | None
) -> None:
    played = play([seen, *([ending] if ending else [])], says("never"))
    assert played.result.kind is ErrorKind.NETWORK
    assert len(played.service.times) == 1


@pytest.mark.spec("STR-5")
def test_a_stream_that_ends_without_a_word_is_empty_and_tried_three_times() -> None:
    played = play([], [ThinkingSeal(0, signature="s")], says("x"))
    assert played.result.text == "x"
    assert played.service.gaps == [0.25, 0.5]
    assert [wait.error.kind for wait in played.waits] == [ErrorKind.EMPTY] * 2
    failed = play(*[[]] * 9)
    assert failed.result.kind is ErrorKind.EMPTY
    assert len(failed.service.times) == 3


# --- a reply of nothing ----------------------------------------------------------------------

NOTHING: list[Script] = [
    [StreamEnd(StopReason.END_TURN)],
    [ThinkingDelta(0, "only to myself"), StreamEnd(StopReason.END_TURN)],
    [TextDelta(0, " \n"), StreamEnd(StopReason.END_TURN)],
    [ToolCallStart(0, "a", ""), StreamEnd(StopReason.TOOL_USE)],
]


@pytest.mark.spec("STR-6")
@pytest.mark.parametrize("nothing", NOTHING)
def test_a_reply_of_nothing_is_asked_once_more_with_a_note_and_less_effort(
    nothing: Script,
) -> None:
    played = play(nothing, says("x"))
    assert played.result.text == "x"
    assert played.service.gaps == [0.5]
    first, second = played.service.requests
    assert first == REQUEST
    assert second.messages[:-1] == REQUEST.messages
    (note,) = second.messages[-1].parts
    assert isinstance(note, TextPart)
    assert len(note.text) < 200
    assert second.effort is Effort.MINIMAL


@pytest.mark.spec("STR-6")
@pytest.mark.parametrize("effort", [None, Effort.NONE, Effort.MINIMAL, Effort.LOW, Effort.MEDIUM])
def test_only_medium_and_high_effort_are_lowered(effort: Effort | None) -> None:
    service = Service([NOTHING[0], says("x")])
    sampler = Sampler(service, lambda event: None, RetryPolicy())
    request = replace(REQUEST, effort=effort)
    run_ticks(lambda: sampler.sample(request, frozenset(), CancelToken()), lambda *a: None)
    lowered = Effort.MINIMAL if effort is Effort.MEDIUM else effort
    assert service.requests[1].effort is lowered


@pytest.mark.spec("STR-6")
def test_a_second_reply_of_nothing_is_an_error() -> None:
    played = play(NOTHING[1], NOTHING[0], says("never"))
    assert played.result.kind is ErrorKind.EMPTY
    assert len(played.service.times) == 2


@pytest.mark.spec("LOOP-6", "COST-1")
def test_the_tokens_of_a_reply_of_nothing_are_counted() -> None:
    empty = [UsageReport(Usage(100, 50)), StreamEnd(StopReason.END_TURN)]
    played = play(empty, [UsageReport(Usage(7, 3)), *says("x")])
    assert played.result.usage == Usage(7, 3)
    assert played.sampler.wasted == Usage(100, 50)


def test_a_refusal_without_a_word_is_an_answer() -> None:
    played = play([StreamEnd(StopReason.REFUSAL)], says("never"))
    assert isinstance(played.result, AssistantMessage)
    assert played.result.stop_reason is StopReason.REFUSAL


@pytest.mark.spec("STR-6")
def test_the_wait_before_the_recovery_is_told() -> None:
    (wait,) = play(NOTHING[1], says("x")).waits
    assert (wait.error.kind, wait.attempt, wait.max_attempts) == (ErrorKind.EMPTY, 1, 1)
    assert wait.delay_s == 0.5
    assert "nothing" in wait.error.message


@pytest.mark.spec("STR-6", "STR-7")
def test_a_recovery_shows_no_thought_and_announces_no_call_twice() -> None:
    nameless = [ToolCallStart(1, "a", " "), StreamEnd(StopReason.TOOL_USE)]
    played = play(
        [ThinkingDelta(0, "first"), *nameless],
        [ThinkingDelta(0, "first, then"), ToolCallStart(1, "b", " "), *says("x")],
    )
    assert [e.text for e in played.events if isinstance(e, ThinkingChunk)] == ["first", ", then"]
    assert len([e for e in played.events if isinstance(e, CallForming)]) == 1


@pytest.mark.spec("STR-6", "STR-2")
def test_the_recovery_has_budgets_of_its_own() -> None:
    refused: list[Script] = [[failure(ErrorKind.OVERLOADED)]] * 3
    played = play(*refused, NOTHING[0], *refused, says("x"))
    assert played.result.text == "x"
    assert len(played.waits) == 7


# --- a reply that was cut at the output limit --------------------------------------------------

CAPPED = replace(REQUEST, model=replace(MODEL, max_output_tokens=900), max_output_tokens=200)


def cut(text: str, *events: StreamEvent) -> list[Item]:
    usage = UsageReport(Usage(10, len(text)))
    return [usage, TextDelta(0, text), *events, StreamEnd(StopReason.MAX_TOKENS)]


def raises_of(played: Played) -> list[tuple[int, int]]:
    return [(e.old_tokens, e.new_tokens) for e in played.events if isinstance(e, OutputCapRaised)]


@pytest.mark.spec("STR-7")
def test_the_cap_is_raised_step_by_step_to_the_models_limit() -> None:
    played = play(*[cut("a b")] * 4, says("never"), request=CAPPED)
    assert raises_of(played) == [(200, 400), (400, 800), (800, 900)]
    assert [r.max_output_tokens for r in played.service.requests] == [200, 400, 800, 900]
    assert played.result.text == "a b"
    assert played.result.stop_reason is StopReason.MAX_TOKENS
    assert played.service.gaps == [0, 0, 0]


@pytest.mark.spec("STR-7")
@pytest.mark.parametrize("cap", [None, 900, 1000])
def test_a_cap_that_is_not_set_or_not_below_the_limit_is_not_raised(cap: int | None) -> None:
    played = play(cut("a b"), says("never"), request=replace(CAPPED, max_output_tokens=cap))
    assert raises_of(played) == []
    assert played.result.stop_reason is StopReason.MAX_TOKENS


@pytest.mark.spec("STR-7", "STR-4")
def test_what_the_cut_reply_has_shown_is_not_shown_again() -> None:
    played = play(
        cut("The quick bro", ToolCallStart(1, "a", "look")),
        [TextDelta(0, "The qu"), TextDelta(0, "ick brown f"), ToolCallStart(1, "b", "look"),
         TextDelta(2, "ox"), StreamEnd(StopReason.TOOL_USE)],
        request=CAPPED,
    )  # fmt: skip
    assert played.shown == "The quick brown fox"
    assert played.result.text == "The quick brown fox"
    assert [call.id for call in played.result.tool_calls] == ["b"]
    assert len([e for e in played.events if isinstance(e, CallForming)]) == 1
    assert [e for e in played.events if isinstance(e, Notice)] == []


@pytest.mark.spec("STR-7")
def test_a_reply_that_takes_another_way_is_told_and_shown_from_there() -> None:
    played = play(cut("one two"), says("one ten", pieces=4), request=CAPPED)
    assert played.shown == "one two\nten"
    assert len([e for e in played.events if isinstance(e, Notice)]) == 1
    assert played.result.text == "one ten"
    assert played.sampler.partial_text == "one two\nten"


@pytest.mark.spec("STR-7", "COST-1", "LOOP-6")
def test_what_cut_replies_have_cost_is_counted_apart() -> None:
    played = play(
        cut("abc"), [UsageReport(Usage(5)), failure(ErrorKind.NETWORK, streaming=True)],
        cut("abcde"), [UsageReport(Usage(7, 8)), *says("abcdef")], request=CAPPED,
    )  # fmt: skip
    assert played.result.usage == Usage(7, 8)
    assert played.sampler.wasted == Usage(10 + 5 + 10, 3 + 5)
    played.sampler.forget()
    assert played.sampler.partial_usage == Usage()


@pytest.mark.spec("STR-7", "STR-4", "CAN-5", "COST-1")
def test_a_second_try_that_breaks_ends_with_all_that_was_shown() -> None:
    broken = [UsageReport(Usage(3)), TextDelta(0, "one two three"), failure(ErrorKind.NETWORK)]
    played = play(cut("one two"), broken, says("never"), request=CAPPED)
    assert played.result.kind is ErrorKind.NETWORK
    assert played.sampler.partial_text == "one two three"
    assert played.sampler.has_output
    assert played.sampler.partial_usage == Usage(13, 7)


@pytest.mark.spec("STR-7", "STR-4")
def test_a_second_try_that_breaks_before_output_is_tried_again() -> None:
    played = play(cut("one two"), [Silence()], [], says("one two three"), request=CAPPED)
    assert played.shown == "one two three"
    assert len(played.waits) == 2


@pytest.mark.spec("STR-7")
@pytest.mark.parametrize("kind", [ErrorKind.BAD_REQUEST, ErrorKind.CONTEXT_OVERFLOW])
def test_a_server_that_refuses_the_higher_cap_leaves_the_cut_reply(kind: ErrorKind) -> None:
    played = play(cut("one two"), [failure(kind)], says("never"), request=CAPPED)
    assert played.result.text == "one two"
    assert played.result.usage == Usage(10, 7)
    assert played.sampler.wasted == Usage()
    (notice,) = [e for e in played.events if isinstance(e, Notice)]
    assert "refused" in notice.text
    assert played.sampler.partial_text == "one two"


@pytest.mark.spec("STR-6", "STR-7")
def test_a_limit_eaten_up_by_thinking_is_raised_before_effort_is_lowered() -> None:
    thought = [ThinkingDelta(0, "hm"), StreamEnd(StopReason.MAX_TOKENS)]
    low = replace(CAPPED, max_output_tokens=450)
    played = play(thought, thought, says("x"), request=low)
    asked = [(r.max_output_tokens, r.effort) for r in played.service.requests]
    assert asked == [(450, Effort.HIGH), (900, Effort.HIGH), (450, Effort.MINIMAL)]
    assert played.result.text == "x"


@pytest.mark.spec("STR-7", "STR-6")
def test_a_refused_cap_and_nothing_said_still_gets_its_recovery() -> None:
    thought = [UsageReport(Usage(1, 1)), ThinkingDelta(0, "hm"), StreamEnd(StopReason.MAX_TOKENS)]
    played = play(thought, [failure(ErrorKind.BAD_REQUEST)], says("x"), request=CAPPED)
    assert played.result.text == "x"
    assert played.shown == "x"
    assert played.sampler.wasted == Usage(1, 1)


# --- a rate limit that lasts -------------------------------------------------------------------


@dataclass
class User:
    """Says yes to so many offers, then no; thinks for ``takes_s`` before each answer."""

    yes: int = 1
    takes_s: float = 5.0
    offers: list[tuple[ProviderError, float]] = field(default_factory=list)

    async def offer(self, error: ProviderError, delay_s: float) -> bool:
        self.offers.append((error, delay_s))
        await asyncio.sleep(self.takes_s)
        return len(self.offers) <= self.yes


LIMITED: list[Item] = [failure(ErrorKind.RATE_LIMIT, 2520.0)]


@pytest.mark.spec("STR-2", "STR-9")
def test_a_long_rate_limit_with_nobody_to_ask_ends_at_once_and_says_when() -> None:
    played = play(LIMITED, says("never"))
    assert played.result.kind is ErrorKind.RATE_LIMIT
    assert re.fullmatch(r"retry after .*\d\d:\d\d, in 42 min", played.result.advice)
    assert (played.result.retry_after_s, played.result.retryable) == (2520.0, True)
    assert played.waits == []


@pytest.mark.spec("STR-2")
def test_after_a_yes_the_wait_is_shown_and_the_turn_goes_on_by_itself() -> None:
    user = User()
    played = play(LIMITED, says("x"), long_wait=user)
    assert played.result.text == "x"
    ((error, delay_s),) = user.offers
    assert delay_s == 2520.0
    assert "42 min" in error.advice
    assert [wait.delay_s for wait in played.waits] == [2520.0]
    assert played.service.gaps == [5 + 2520]


@pytest.mark.spec("STR-2")
def test_after_a_no_the_turn_ends_with_the_error() -> None:
    played = play(LIMITED, says("never"), long_wait=User(yes=0))
    assert played.result.kind is ErrorKind.RATE_LIMIT
    assert "in 42 min" in played.result.advice
    assert played.waits == []


@pytest.mark.spec("STR-2")
def test_each_long_limit_is_asked_about_and_the_budgets_begin_anew() -> None:
    refused: list[Script] = [[failure(ErrorKind.OVERLOADED)]] * 3
    user = User(yes=2)
    played = play(*refused, LIMITED, *refused, LIMITED, *refused, says("x"), long_wait=user)
    assert played.result.text == "x"
    assert len(user.offers) == 2


@pytest.mark.spec("STR-2")
def test_a_quota_that_is_used_up_is_not_waited_for() -> None:
    spent = failure(ErrorKind.RATE_LIMIT, 2520.0, retryable=False)
    user = User()
    played = play([spent], says("never"), long_wait=user)
    assert played.result is spent
    assert user.offers == []


# --- cancel ----------------------------------------------------------------------------------


@pytest.mark.spec("CAN-9", "STR-2")
@pytest.mark.parametrize(
    ("scripts", "when"),
    [
        ([[failure(ErrorKind.RATE_LIMIT, 50.0)], says("never")], lambda s, e: bool(e)),
        ([[failure(ErrorKind.SERVER)], says("never")], lambda s, e: bool(e)),
        ([[], says("never")], lambda s, e: bool(e)),
        ([NOTHING[0], says("never")], lambda s, e: s.closed == 1),
        ([[Silence()], says("never")], lambda s, e: bool(s.times)),
        ([[TextDelta(0, "half"), Silence()]], lambda s, e: bool(e)),
        ([LIMITED, says("never")], lambda s, e: s.closed == 1),
        ([LIMITED, says("never")], lambda s, e: bool(e)),
    ],
    ids=[
        "retry-after", "back-off", "empty", "recovery", "first chunk", "next chunk", "question",
        "long wait",
    ],
)  # fmt: skip
def test_a_cancel_ends_every_wait_at_once(scripts: Any, when: Any) -> None:
    played = play(*scripts, cancel_when=when, long_wait=User())
    assert isinstance(played.result, TurnCancelled)
    assert len(played.service.times) == 1
    assert played.service.closed == 1


@pytest.mark.spec("CAN-5")
def test_the_text_of_a_reply_is_known_until_it_is_stored() -> None:
    played = play(says("all of it"))
    assert played.sampler.partial_text == "all of it"
    played.sampler.forget()
    assert played.sampler.partial_text == ""


@pytest.mark.spec("CAN-9")
def test_a_provider_that_swallows_the_cancel_shows_nothing_more_and_is_not_asked_again() -> None:
    async def swallows() -> AsyncIterator[StreamEvent]:
        yield TextDelta(0, "before")
        for _ in range(3):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                yield TextDelta(0, "after")
        raise failure(ErrorKind.NETWORK)

    played = play(swallows, says("never"), cancel_when=lambda s, e: bool(e))
    assert isinstance(played.result, TurnCancelled)
    assert played.shown == "before"
    assert len(played.service.times) == 1


@pytest.mark.spec("CAN-9")
def test_a_cancel_that_was_made_an_error_is_not_tried_again() -> None:
    async def disguises() -> AsyncIterator[StreamEvent]:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            raise failure(ErrorKind.NETWORK) from None
        yield TextDelta(0, "x")

    played = play(disguises, says("never"), cancel_when=lambda s, e: bool(s.times))
    assert isinstance(played.result, TurnCancelled)
    assert len(played.service.times) == 1


# --- providers that misbehave ----------------------------------------------------------------


@pytest.mark.spec("STR-3")
def test_a_provider_that_swallows_the_watchdog_is_stalled_all_the_same() -> None:
    async def swallows() -> AsyncIterator[StreamEvent]:
        yield TextDelta(0, "half")
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            yield TextDelta(0, " late")
        await asyncio.sleep(1e6)

    assert play(swallows).result.kind is ErrorKind.STALLED


@pytest.mark.parametrize(
    "after",
    [
        failure(ErrorKind.NETWORK), RuntimeError("broken"), Silence(), TextDelta(0, "!"),
        StreamEnd(StopReason.OTHER), TimeoutError(),
    ],
)  # fmt: skip
def test_a_reply_that_has_ended_is_complete_whatever_follows(after: Item) -> None:
    played = play([*says("whole"), after])
    assert played.result.text == "whole"
    assert played.shown == "whole"
    assert played.result.stop_reason is StopReason.END_TURN


@pytest.mark.parametrize("fault", [RuntimeError("in closing"), None])
def test_a_fault_in_closing_the_stream_does_not_lose_the_reply(fault: Exception | None) -> None:
    class Clumsy(Service):
        def stream(self, request: ModelRequest, cancel: CancelToken) -> Any:
            inner = super().stream(request, cancel)

            class Stream:
                def __aiter__(self) -> Any:
                    return inner

                async def aclose(self) -> None:
                    await inner.aclose()
                    if fault is not None:
                        raise fault
                    await asyncio.sleep(1e9)

            return Stream()

    sampler = Sampler(Clumsy([says("x")]), lambda event: None)
    result, _ = run_ticks(
        lambda: sampler.sample(REQUEST, frozenset(), CancelToken()), lambda *a: None
    )
    assert isinstance(result, AssistantMessage)


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError("x"), TimeoutError("x"), StopAsyncIteration(), OSError("x"),
        BaseExceptionGroup("several", [ValueError(), KeyError()]), asyncio.CancelledError(),
    ],
)  # fmt: skip
def test_any_other_fault_of_a_provider_comes_out_and_is_not_tried_again(
    fault: BaseException,
) -> None:
    played = play([fault], says("never"))
    assert isinstance(played.result, Exception)
    assert not isinstance(played.result, ProviderError | TurnCancelled)
    assert len(played.service.times) == 1


@pytest.mark.spec("LOOP-7")
def test_thinking_is_shown_and_a_bare_signature_shows_nothing() -> None:
    played = play(
        [ThinkingDelta(0, ""), ThinkingSeal(0, signature="s"), ThinkingDelta(1, "hm"), *says("x")]
    )
    assert [e.text for e in played.events if isinstance(e, ThinkingChunk)] == ["hm"]
