"""Which keys answer a question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agentcli.repl.answers import FLOW_S, Answers

LETTERS = {"y": "yes", "n": "no", "r": "reason"}


def playing(play: Callable[[Answers], None]) -> None:
    async def main() -> None:
        play(Answers())

    asyncio.run(main())


@pytest.mark.spec("UI-7")
def test_a_key_in_the_flow_of_typing_is_no_answer_until_there_was_a_pause() -> None:
    def play(answers: Answers) -> None:
        answers.key_comes(10.0)
        future = answers.ask(LETTERS, 10.1)
        answers.key_comes(10.2)
        assert not answers.are_taken(10.2)
        answers.key_comes(10.3 + FLOW_S)
        assert answers.are_taken(10.3 + FLOW_S)
        assert answers.answer("Y", 11.0)
        assert future.result() == "yes"

    playing(play)


@pytest.mark.spec("UI-7")
def test_after_a_pause_or_a_message_that_was_sent_the_first_key_counts() -> None:
    def play(answers: Answers) -> None:
        answers.key_comes(10.0)
        answers.flow_ended()
        answers.ask(LETTERS, 10.1)
        answers.key_comes(10.2)
        assert answers.are_taken(10.2)
        assert not answers.answer("x", 10.2)

    playing(play)


@pytest.mark.spec("UI-7")
def test_the_rest_of_the_word_and_its_enter_belong_to_the_answer() -> None:
    def play(answers: Answers) -> None:
        answers.ask(LETTERS, 1.0)
        answers.key_comes(2.0)
        assert answers.answer("y", 2.0)
        assert not answers.is_waiting
        assert [answers.belongs_to_answer(key, 2.1) for key in "es\r"] == [True] * 3
        assert not answers.belongs_to_answer("\r", 2.1)

    playing(play)


@pytest.mark.spec("UI-7", "UI-3")
def test_other_keys_after_an_answer_are_typed_text() -> None:
    def play(answers: Answers) -> None:
        answers.ask(LETTERS, 1.0)
        answers.key_comes(2.0)
        answers.answer("y", 2.0)
        assert not answers.belongs_to_answer("x", 2.1)
        assert not answers.belongs_to_answer("e", 2.1)
        answers.ask(LETTERS, 3.0)
        answers.answer("y", 3.0)
        assert not answers.belongs_to_answer("e", 4.0)  # too late to be the same word

    playing(play)


def test_a_question_that_is_gone_takes_nothing() -> None:
    def play(answers: Answers) -> None:
        future = answers.ask(LETTERS, 1.0)
        answers.forget(future)
        assert not answers.are_taken(2.0)
        assert not answers.answer("y", 2.0)

    playing(play)
