"""The table of CAN-13."""

from __future__ import annotations

import asyncio

import pytest

from agentcli.domain.errors import UsageError
from agentcli.repl.actions import LEAVE_WITHIN_S, Action, Interrupts, Jobs, Situation


@pytest.mark.spec("CAN-13")
@pytest.mark.parametrize(
    ("situation", "action"),
    [
        (Situation.WORKING, Action.CANCEL),
        (Situation.CANCELLING, Action.FORCE),
        (Situation.TEXT_IN_PROMPT, Action.CLEAR),
        (Situation.EMPTY_PROMPT, Action.HINT),
    ],
)
def test_the_first_press(situation: Situation, action: Action) -> None:
    assert Interrupts().press(situation, 100.0) is action


@pytest.mark.spec("CAN-13")
def test_the_second_press_at_an_empty_prompt_leaves_within_two_seconds_only() -> None:
    interrupts = Interrupts()
    assert interrupts.press(Situation.EMPTY_PROMPT, 0.0) is Action.HINT
    assert interrupts.press(Situation.EMPTY_PROMPT, LEAVE_WITHIN_S + 0.1) is Action.HINT
    assert interrupts.press(Situation.EMPTY_PROMPT, 2 * LEAVE_WITHIN_S) is Action.LEAVE


@pytest.mark.spec("CAN-13")
@pytest.mark.parametrize("between", [Situation.WORKING, Situation.TEXT_IN_PROMPT])
def test_a_press_for_something_else_is_not_the_first_of_two(between: Situation) -> None:
    interrupts = Interrupts()
    interrupts.press(Situation.EMPTY_PROMPT, 0.0)
    interrupts.press(between, 0.5)
    assert interrupts.press(Situation.EMPTY_PROMPT, 1.0) is Action.HINT


@pytest.mark.spec("CAN-13")
def test_doing_something_forgets_the_hint() -> None:
    interrupts = Interrupts()
    interrupts.press(Situation.EMPTY_PROMPT, 0.0)
    interrupts.forget()
    assert interrupts.press(Situation.EMPTY_PROMPT, 0.5) is Action.HINT


# --- Small things done beside the agent's work


def test_jobs_are_done_in_order_and_an_error_is_shown() -> None:
    done: list[str] = []

    async def main() -> None:
        jobs = Jobs(done.append)

        async def fail() -> None:
            raise UsageError("no", "try again")

        async def note(text: str) -> None:
            await asyncio.sleep(0)
            done.append(text)

        async with jobs.running():
            jobs.add(lambda: note("one"))
            jobs.add(fail)
            jobs.add(lambda: note("two"))
            await jobs.done()
            jobs.add(lambda: note("at the end"))

        async with jobs.running(finish=False):
            jobs.add(asyncio.Event().wait)  # for ever
            jobs.add(lambda: note("for nobody"))
            await asyncio.sleep(0)

    asyncio.run(main())
    assert done == ["one", "no - try again", "two", "at the end"]


def test_a_bug_in_a_job_is_raised_where_the_chat_ends() -> None:
    async def main() -> None:
        jobs = Jobs(lambda _: None)

        async def bug() -> None:
            raise RuntimeError("a bug")

        async with jobs.running():
            jobs.add(bug)
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(main())
