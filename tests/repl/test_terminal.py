"""What is known of a terminal before anything is written to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agentcli.repl.terminal import FLOW_S, PendingQuestion, reflows


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("env", "answer"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, True),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, True),
        ({"TERM": "xterm-kitty", "SSH_TTY": "/dev/pts/1"}, True),
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/t,1,0"}, True),
        ({"TERM": "screen-256color", "STY": "1.host", "VTE_VERSION": "7600"}, False),
        ({"TERM": "xterm", "XTERM_VERSION": "XTerm(390)"}, False),
        ({}, False),
    ],
)
def test_lines_are_taken_to_be_broken_anew_where_that_is_known(
    env: dict[str, str], answer: bool
) -> None:
    assert reflows(env) is answer


# --- Which keys answer a question


LETTERS = {"y": "yes", "n": "no", "r": "reason"}


def playing(play: Callable[[PendingQuestion], None]) -> None:
    async def main() -> None:
        play(PendingQuestion())

    asyncio.run(main())


@pytest.mark.spec("UI-7")
def test_a_key_in_the_flow_of_typing_is_no_answer_until_there_was_a_pause() -> None:
    def play(answers: PendingQuestion) -> None:
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
    def play(answers: PendingQuestion) -> None:
        answers.key_comes(10.0)
        answers.flow_ended()
        answers.ask(LETTERS, 10.1)
        answers.key_comes(10.2)
        assert answers.are_taken(10.2)
        assert not answers.answer("x", 10.2)

    playing(play)


@pytest.mark.spec("UI-7")
def test_the_rest_of_the_word_and_its_enter_belong_to_the_answer() -> None:
    def play(answers: PendingQuestion) -> None:
        answers.ask(LETTERS, 1.0)
        answers.key_comes(2.0)
        assert answers.answer("y", 2.0)
        assert not answers.is_waiting
        assert [answers.belongs_to_answer(key, 2.1) for key in "es\r"] == [True] * 3
        assert not answers.belongs_to_answer("\r", 2.1)

    playing(play)


@pytest.mark.spec("UI-7", "UI-3")
def test_other_keys_after_an_answer_are_typed_text() -> None:
    def play(answers: PendingQuestion) -> None:
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
    def play(answers: PendingQuestion) -> None:
        future = answers.ask(LETTERS, 1.0)
        answers.forget(future)
        assert not answers.are_taken(2.0)
        assert not answers.answer("y", 2.0)

    playing(play)
