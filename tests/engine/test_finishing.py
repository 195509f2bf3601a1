"""How a turn has to end: terminal tools and their three fallbacks, reminders, the budget of words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from agentcli.app.queue import DurableQueue
from agentcli.domain.errors import (
    AgentError,
    AnswerBudgetSpent,
    ArgumentProblem,
    InvalidArguments,
    NoStructuredOutput,
)
from agentcli.domain.events import Failed, Outcome, PromptRecorded, TurnSummary
from agentcli.domain.messages import ToolResult, UserMessage
from agentcli.domain.ports import GateAnswer, QueueKind, ReminderTexts, StepFacts
from agentcli.domain.tools import ToolContext, ToolDefinition, ToolOutput
from agentcli.engine.finishing import (
    Accept,
    Fallback,
    ParametersShape,
    Remind,
    TerminalTools,
    is_question,
)
from tests.engine.test_steering import MemoryQueueFile, with_queue
from tests.support.turns import FakeTool, PlayedProvider, World, calls, says

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
RIGHT = json.dumps({"n": 1})


async def taken(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text("taken")


class Deliver(FakeTool):
    """A terminal tool that checks its arguments."""

    @property
    def definition(self) -> ToolDefinition:
        made = super().definition
        return ToolDefinition(made.name, "D", "", SCHEMA, made.asks, "test")

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        if reason := ParametersShape(SCHEMA).refusal(dict(arguments)):
            raise InvalidArguments((ArgumentProblem("n", reason),))
        return arguments


def world_with(fallback: Fallback, *replies: Any, **tools: Callable[..., Awaitable[Any]]) -> World:
    """A conversation in which ``deliver`` is the terminal tool."""
    deliver = Deliver("deliver", taken)
    world = World(
        PlayedProvider(*replies), [deliver, *(FakeTool(n, work) for n, work in tools.items())]
    )
    terminal = TerminalTools({"deliver": ParametersShape(SCHEMA)}, fallback)
    world.set(answer_check=terminal.begin)
    return world


def run(body: Coroutine[Any, Any, TurnSummary]) -> TurnSummary:
    return asyncio.run(body)


def prompts(world: World) -> list[str]:
    return [m.text for m in world.history.messages if isinstance(m, UserMessage)]


def failure(world: World) -> AgentError:
    last = world.events[-1]
    assert isinstance(last, Failed)
    return last.error


@pytest.mark.spec("CTRL-5", "CTRL-2")
def test_a_terminal_tool_that_succeeds_ends_the_turn_and_its_arguments_are_the_result() -> None:
    world = world_with(Fallback.NARROWED, calls(("1", "deliver", RIGHT), text="Here."))
    summary = run(world.run())
    assert (summary.outcome, summary.structured) == (Outcome.DONE, {"n": 1})
    assert json.loads(summary.text) == {"n": 1}
    assert len(world.provider.requests) == 1 and world.store.status is Outcome.DONE
    assert [m.call_id for m in world.store.disk if isinstance(m, ToolResult)] == ["1"]


@pytest.mark.spec("CTRL-5")
def test_a_refused_call_does_not_end_it_and_five_are_too_many() -> None:
    wrong = [calls((str(n), "deliver", "{}")) for n in range(6)]
    world = world_with(Fallback.NARROWED, *wrong[:2], calls(("z", "deliver", RIGHT)))
    assert run(world.run()).structured == {"n": 1}
    world = world_with(Fallback.OFF, *wrong)
    assert run(world.run()).outcome is Outcome.ERROR
    assert isinstance(failure(world), NoStructuredOutput) and "5 times" in str(failure(world))
    assert len(world.provider.requests) == 5 and not world.history.pending


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize(
    ("fallback", "result"),
    [(Fallback.EAGER, {"n": 1}), (Fallback.NARROWED, {"n": 1}), (Fallback.OFF, None)],
)
def test_words_are_reminded_of_twice_and_are_then_worth_what_the_fallback_says(
    fallback: Fallback, result: Any
) -> None:
    world = world_with(fallback, *(says(RIGHT) for _ in range(4)), work=taken)
    summary = run(world.run())
    assert (len(world.provider.requests), summary.structured) == (3, result)
    assert summary.outcome is (Outcome.ERROR if result is None else Outcome.DONE)


@pytest.mark.spec("CTRL-5")
def test_the_model_may_go_on_looking_after_an_answer_and_work_resets_the_reminders() -> None:
    replies = [
        says("Next I will read b.txt."),
        calls(("1", "work", "{}")),
        says("Now c.txt."),
        says("And d.txt."),
        calls(("2", "work", '{"n": 2}')),
        says("One more."),
        says("And another."),
        calls(("3", "deliver", RIGHT)),
    ]
    world = world_with(Fallback.NARROWED, *replies, work=taken)
    assert run(world.run()).structured == {"n": 1}
    assert not any(result.is_error for result in world.results)


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize("between", ["status", "failed"])
def test_a_report_of_progress_and_a_failure_reset_nothing(between: str) -> None:
    async def fails(args: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.error("no")

    batch = calls(("1", "write_todos" if between == "status" else "work", "{}"))
    replies = [says("a"), says("b"), batch, says("c")]
    world = world_with(Fallback.NARROWED, *replies, work=fails, write_todos=taken)
    assert run(world.run()).outcome is Outcome.ERROR
    assert len(world.provider.requests) == 4


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize(
    ("answers", "result"),
    [
        ((RIGHT, '{"n": 2}', '{"n": 3}'), {"n": 1}),
        (("Shall I proceed?", RIGHT, "Is there anything else?"), {"n": 1}),
        ((RIGHT, "work", "Thanks!", "As I said.", "Bye."), {"n": 1}),
        ((RIGHT, "work", '{"n": 2}', '{"n": 3}', "Bye."), {"n": 2}),
    ],
)
def test_later_drift_does_not_replace_the_first_good_answer(
    answers: tuple[str, ...], result: Any
) -> None:
    replies = [calls(("1", "work", "{}")) if text == "work" else says(text) for text in answers]
    assert run(world_with(Fallback.NARROWED, *replies, work=taken).run()).structured == result


@pytest.mark.spec("CTRL-5")
@pytest.mark.parametrize(
    ("answers", "result"),
    [
        (("Starting with part one.", "work", "It is 42.", "Bye.", "Bye."), "It is 42."),
        (("Starting with part one.", "It is 42.", "Anything else?"), "It is 42."),
        (("It is 42.", "You are welcome.", "Bye."), "It is 42."),
        (("Would you like me to proceed?", "Let me know if I should.", "It is 42."), "It is 42."),
        (("Shall I?", "Should I?", "Would you like me to proceed?"), None),
    ],
)
def test_with_eager_plain_words_count_when_the_reminders_are_used_up(
    answers: tuple[str, ...], result: Any
) -> None:
    replies = [calls(("1", "work", "{}")) if text == "work" else says(text) for text in answers]
    world = world_with(Fallback.EAGER, *replies, work=taken)
    shape = ParametersShape(SCHEMA, takes_words=True)
    world.set(answer_check=TerminalTools({"deliver": shape}, Fallback.EAGER).begin)
    assert run(world.run()).structured == result
    assert len(world.provider.requests) == len(answers)


@pytest.mark.spec("CTRL-5")
def test_with_terminal_tools_only_words_count_at_once() -> None:
    world = world_with(Fallback.NARROWED, says(f"```json\n{RIGHT}\n```"))
    assert run(world.run()).structured == {"n": 1}
    world = world_with(Fallback.NARROWED, says(RIGHT), write_todos=taken)
    assert run(world.run()).structured == {"n": 1}


@pytest.mark.spec("CTRL-5", "CTRL-4")
def test_where_gates_leave_only_results_and_reports_a_good_answer_counts_at_once() -> None:
    class Ending:
        name, priority = "ending", 1

        def allow(self, facts: StepFacts) -> GateAnswer:
            return GateAnswer({"deliver", "report_progress"})

    world = world_with(Fallback.NARROWED, says(RIGHT), work=taken, report_progress=taken)
    assert run(world.run(gates=[Ending()])).structured == {"n": 1}


@pytest.mark.spec("LOOP-14")
def test_where_only_the_result_may_be_called_the_provider_is_told_so() -> None:
    class Ending:
        name, priority = "ending", 1

        def allow(self, facts: StepFacts) -> GateAnswer | None:
            return GateAnswer({"deliver"}) if facts.step == 2 else None

    replies = [calls(("1", "work", "{}")), calls(("2", "deliver", RIGHT))]
    world = world_with(Fallback.NARROWED, *replies, work=taken)
    run(world.run(gates=[Ending()]))
    assert [request.tool_choice for request in world.provider.requests] == ["", "deliver"]
    assert world.provider.requests[0].tools == world.provider.requests[1].tools


@pytest.mark.spec("CTRL-5", "CTRL-9")
def test_the_texts_of_the_reminders_can_be_replaced() -> None:
    world = world_with(Fallback.OFF, says("a"), says("Shall I?"), says("c"), work=taken)
    texts = ReminderTexts(result="Use {tools}.{why}", question="Ask nobody.")
    terminal = TerminalTools({"deliver": ParametersShape(SCHEMA)}, Fallback.OFF, reminders=texts)
    run(world.run(answer_check=terminal.begin))
    assert prompts(world)[1:] == [
        "Use deliver. What you wrote is not the result: it is not JSON.",
        "Ask nobody.",
    ]


@pytest.mark.spec("CTRL-5")
def test_reminders_are_two_recorded_messages_that_begin_no_turn() -> None:
    world = world_with(Fallback.NARROWED, says("a"), says("b"), says("c"), work=taken)
    summary = run(world.run())
    assert summary.outcome is Outcome.ERROR and "not JSON" in str(failure(world))
    assert len(prompts(world)) == 3 and world.store.begun == 1
    recorded = [e.message.text for e in world.events if isinstance(e, PromptRecorded)]
    assert recorded == prompts(world)
    assert [len(r.messages) for r in world.provider.requests] == [1, 3, 5]
    assert world.store.status is Outcome.ERROR and not world.history.pending


@pytest.mark.spec("CTRL-5")
def test_the_second_reminder_and_the_failure_say_what_is_wrong_with_the_json() -> None:
    world = world_with(Fallback.NARROWED, says("a"), *(says('{"n": "x"}') for _ in range(2)))
    run(world.run())
    assert "does not satisfy" in prompts(world)[2] and "does not satisfy" in str(failure(world))


@pytest.mark.spec("CTRL-5")
def test_questions_are_answered_by_nobody_and_take_no_tools_away() -> None:
    replies = [says("Shall I proceed?"), calls(("1", "work", "{}")), calls(("2", "deliver", RIGHT))]
    world = world_with(Fallback.NARROWED, *replies, work=taken)
    assert run(world.run()).structured == {"n": 1}
    assert not world.results[0].is_error and "Nobody can answer" in prompts(world)[1]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Shall I proceed?", True),
        ("I looked around. **Do you want me to go on?**\n", True),
        ("続けますか？", True),
        ("Done.", False),
        ("", False),
        ("Is it 3? It is 3.", False),
        (f"{'The report. ' * 60}Anything else?", False),
        ("The total is 42. Is there anything else I can do?", False),
        ("The total is 42. Let me know if you have any questions.", False),
        ("The log says which of the two failed.", False),
        (f"{'The plan. ' * 90}\n\nWould you like me to proceed?", True),
        ("I can do it in two ways. Let me know which one you prefer.", True),
        ("Would you like me to proceed? Thanks!", True),
        ("Before I go on, please confirm that I may delete it.", True),
        ('{"question": "Would you like me to proceed?"}', False),
    ],
)
def test_what_is_only_a_question(text: str, asks: bool) -> None:
    assert is_question(text) == asks


@pytest.mark.spec("CTRL-5", "CTRL-1")
def test_steering_comes_before_any_judgement_and_follow_ups_stay_queued() -> None:
    async def body() -> None:
        world = world_with(Fallback.EAGER, says("words"), says(RIGHT))
        queue = with_queue(world)
        await queue.add(QueueKind.FOLLOW_UP, "later")
        task = asyncio.create_task(world.run())
        while not world.provider.requests:
            await asyncio.sleep(0)
        await queue.add(QueueKind.STEERING, "as JSON, please")
        assert (await task).structured == {"n": 1}
        assert prompts(world) == ["go", "as JSON, please"]
        assert [item.text for item in queue.waiting()] == ["later"]

    asyncio.run(body())


@pytest.mark.spec("CTRL-5", "LOOP-1")
def test_at_a_limit_the_first_answer_in_the_right_shape_is_used() -> None:
    world = world_with(Fallback.NARROWED, says(RIGHT), work=taken)
    summary = run(world.run(max_steps=1))
    assert (summary.outcome, summary.structured) == (Outcome.DONE, {"n": 1})
    world = world_with(Fallback.OFF, says(RIGHT))
    summary = run(world.run(max_steps=1))
    assert (summary.outcome, summary.structured) == (Outcome.MAX_STEPS, None)


@pytest.mark.spec("CTRL-5", "CTRL-2")
def test_a_turn_that_something_else_ends_has_failed_without_its_result() -> None:
    async def ends(args: Any, ctx: ToolContext) -> ToolOutput:
        output = ToolOutput.text("over")
        return ToolOutput(output.kind, output.parts, ends_turn=True)

    world = world_with(Fallback.NARROWED, calls(("1", "stop", "{}")), stop=ends)
    assert run(world.run()).outcome is Outcome.ERROR
    assert isinstance(failure(world), NoStructuredOutput) and len(world.results) == 1
    both = calls(("1", "stop", "{}"), ("2", "deliver", RIGHT))
    world = world_with(Fallback.NARROWED, both, stop=ends)
    assert run(world.run()).structured == {"n": 1}


@pytest.mark.spec("CTRL-5")
def test_each_turn_is_judged_anew() -> None:
    async def body() -> None:
        world = world_with(
            Fallback.NARROWED, *map(says, ("x", RIGHT, "x", "y", RIGHT, "z")), work=taken
        )
        assert (await world.run()).structured == {"n": 1}
        assert (await world.next_turn()).structured == {"n": 1}

    asyncio.run(body())


# --- CTRL-6 -------------------------------------------------------------------------------------


@pytest.mark.spec("CTRL-6")
def test_words_alone_end_a_turn_that_must_use_tools_with_budget_and_count() -> None:
    world = World(PlayedProvider(*(says("soon") for _ in range(5))), [FakeTool("work", taken)])
    summary = run(world.run(max_answers_without_tools=2))
    assert (summary.outcome, summary.steps) == (Outcome.ERROR, 3)
    assert "3 times" in str(failure(world)) and "budget is 2" in str(failure(world))
    error = failure(world)
    assert isinstance(error, AnswerBudgetSpent) and (error.budget, error.count) == (2, 3)
    assert len(prompts(world)) == 3 and world.store.status is Outcome.ERROR


@pytest.mark.spec("CTRL-6")
def test_once_the_tools_were_used_words_end_the_turn() -> None:
    replies = [says("soon"), calls(("1", "work", "{}")), says("done")]
    world = World(PlayedProvider(*replies), [FakeTool("work", taken)])
    summary = run(world.run(max_answers_without_tools=1))
    assert (summary.outcome, summary.text) == (Outcome.DONE, "done")


@pytest.mark.spec("CTRL-6", "CTRL-5")
@pytest.mark.parametrize(("productive", "steps"), [(True, 5), (False, 3)])
def test_a_productive_batch_resets_the_count_and_another_does_not(
    productive: bool, steps: int
) -> None:
    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.text("ok") if productive else ToolOutput.error("no")

    batch = calls(("1", "work", "{}"), ("2", "report_progress", "{}"))
    replies = [says("a"), batch, says("b"), says("c"), says(RIGHT)]
    world = world_with(Fallback.OFF, *replies, work=work, report_progress=taken)
    summary = run(world.run(max_answers_without_tools=1))
    assert (summary.outcome, summary.steps) == (Outcome.ERROR, steps - productive)
    assert "budget is 1" in str(failure(world))


@pytest.mark.spec("CTRL-6")
def test_without_a_budget_words_end_a_turn_as_ever() -> None:
    world = World(PlayedProvider(says("done")), [FakeTool("work", taken)])
    assert run(world.run()).outcome is Outcome.DONE


# --- what waits is never lost -------------------------------------------------------------------


@pytest.mark.spec("CTRL-1", "CTRL-2", "CTRL-3", "LOOP-2", "UI-3")
@pytest.mark.parametrize("ending", ["wrapped_up", "max_steps", "error", "cancelled", "done"])
def test_what_waits_is_recorded_or_still_waits_however_the_turn_ends(ending: str) -> None:
    async def body() -> None:
        async def work(args: Any, ctx: ToolContext) -> ToolOutput:
            await queue.add(QueueKind.FOLLOW_UP, "later")
            if ending == "cancelled":
                world.cancel()
            return ToolOutput.text("ok")

        after: Any = says("done")
        if ending == "error":
            after = [AgentError("broken")]
        begun = [calls((f"c{n}", "work", json.dumps({"n": n}))) for n in range(4)]
        steps = {"wrapped_up": begun, "max_steps": begun}.get(ending, begun[:1])
        world = World(PlayedProvider(*steps, *(after for _ in range(6))), [FakeTool("work", work)])
        queue = DurableQueue(MemoryQueueFile())
        world.set(queue=queue)
        limit = {"wrapped_up": 9, "max_steps": 4}.get(ending, 0)
        summary = await world.run(max_steps=limit)
        assert summary.outcome == ending == world.store.status
        queued = len([text for text in prompts(world) if text == "later"])
        assert queued + len(queue.waiting()) == len(steps)

    asyncio.run(body())


@pytest.mark.spec("SEC-13", "CTRL-5")
def test_an_answer_of_fences_without_end_is_read_in_one_pass() -> None:
    shape = ParametersShape(SCHEMA)
    check = TerminalTools({"deliver": shape}, Fallback.EAGER).begin()
    fences = "```a\n" * 60_000
    assert isinstance(check.answered(fences, frozenset()), Remind)
    block = f"```json\n{RIGHT}\n````\nSo it is.\n~~~\nno JSON\n~~~\n"
    assert check.answered(block, frozenset()) == Accept({"n": 1})
