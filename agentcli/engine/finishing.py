"""Turns that may not end with just any words: terminal tools, reminders, budgets (CTRL-5, CTRL-6).

A turn with terminal tools ends when one of them has succeeded. An answer in words is turned into
the result only as the ``Fallback`` says; otherwise the model is reminded, at most twice, and then
the first answer of substance that has the right shape is used, or the turn fails. Law: every turn
ends after a bounded number of answers and of refused results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from agentcli.domain.errors import AgentError, NoStructuredOutput
from agentcli.domain.messages import ResultStatus, ToolCall, ToolResult
from agentcli.domain.ports import GateAnswer, StepFacts
from agentcli.domain.values import frozen
from agentcli.engine.arguments.schema import Schema
from agentcli.engine.arguments.text import loads

# --- what a check of an answer says --------------------------------------------------------


@frozen
class Accept:
    """The turn is complete; ``value`` is what it amounts to, any JSON value."""

    value: Any


@frozen
class Remind:
    """The turn goes on; ``text`` is recorded as a message to the model."""

    text: str


@frozen
class GiveUp:
    """The turn fails."""

    error: AgentError


AnswerVerdict = Accept | Remind | GiveUp


class ResultShape(Protocol):
    """What a result must look like, and how it travels as a tool's arguments."""

    def refusal(self, value: Any) -> str:
        """Why ``value`` is no such result, in a line or more; empty when it is one."""

    def of_arguments(self, arguments: Mapping[str, Any]) -> Any:
        """The result that the arguments of a call carry."""


# --- terminal tools ------------------------------------------------------------------------


MAX_REMINDERS = 2
MAX_REFUSED = 5
STATUS_TOOLS = frozenset({"write_todos", "report_progress"})
"""Tools that tell how far the work is and do none of it."""

_MAX_REASON = 500
_LONGEST_QUESTION = 600
_MAX_BLOCKS = 8
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w-]*)[ \t]*")
_ASKS = ("?", "\uff1f", "\u061f")  # also as Chinese, Japanese, Arabic and Persian write it


class Fallback(StrEnum):
    """What an answer in words is worth where a terminal tool should have been called.

    ``OFF``: nothing. ``NARROWED``: it counts where only terminal and status tools are allowed,
    which is so after the first answer in words. ``EAGER``: it counts at once.
    """

    OFF = "off"
    NARROWED = "narrowed"
    EAGER = "eager"


@frozen
class TerminalTools:
    """The tools that end a turn, by name, and the shape of what each of them delivers.

    ``begin`` makes the check of one turn: ``Conversation.answer_check = TerminalTools(...).begin``.
    """

    shapes: Mapping[str, ResultShape]
    fallback: Fallback = Fallback.NARROWED
    status: frozenset[str] = STATUS_TOOLS

    def begin(self) -> AnswerCheck:
        """The check of one turn."""
        return AnswerCheck(self)


class ParametersShape:
    """The shape that a tool's own JSON schema gives: its arguments are the result.

    ``takes_words``: plain text is a result too, which is what ``EAGER`` means where nobody asked
    for a schema of the result.
    """

    def __init__(self, parameters: Mapping[str, Any], *, takes_words: bool = False) -> None:
        self._schema = Schema(parameters)
        self._takes_words = takes_words

    def refusal(self, value: Any) -> str:
        """Why ``value`` is no arguments of the tool."""
        if self._takes_words and isinstance(value, str):
            return ""
        fits = isinstance(value, dict) and self._schema.satisfied_by(value)
        return "" if fits else "it does not satisfy the tool's schema"

    def of_arguments(self, arguments: Mapping[str, Any]) -> Any:
        """The arguments themselves."""
        return dict(arguments)


class AnswerCheck:
    """Decides how one turn with terminal tools may end. It is one of the turn's gates too."""

    name = "result"
    priority = 50

    def __init__(self, tools: TerminalTools) -> None:
        self._tools = tools
        self._terminal = frozenset(tools.shapes)
        self._ending = self._terminal | tools.status
        self._narrowed = False
        self._reminders = 0
        self._refused = 0
        self._first: Accept | None = None

    def allow(self, facts: StepFacts) -> GateAnswer | None:
        """Only what ends the turn or tells of it, once words have taken the place of a call."""
        return GateAnswer(facts.tools & self._ending, required=True) if self._narrowed else None

    def answered(self, text: str, allowed: frozenset[str]) -> AnswerVerdict:
        """An answer in words of a step that could call ``allowed``: result, reminder or end."""
        fallback, found = self._tools.fallback, self._read(text)
        if isinstance(found, Accept):
            self._first = self._first or found
            if fallback is Fallback.EAGER:
                return found
            if fallback is Fallback.NARROWED and allowed <= self._ending:
                return found
        if self._reminders < MAX_REMINDERS:
            self._reminders += 1
            return Remind(self._reminder(text, found))
        return self.last_resort() or GiveUp(self._failure(found))

    def called(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> Accept | GiveUp | None:
        """The newest result that a terminal tool has taken; too many refused ones are the end."""
        accepted: Accept | None = None
        said = {result.call_id: result for result in results}
        for call in calls:
            shape, result = self._tools.shapes.get(call.name), said.get(call.id)
            if shape is None or result is None:
                continue
            if not result.is_error:
                accepted = Accept(shape.of_arguments(call.arguments))
            elif result.status is ResultStatus.ERROR:
                self._refused += 1
        if accepted is None and self._refused >= MAX_REFUSED:
            return GiveUp(
                NoStructuredOutput(
                    f"the model's result did not fit the schema {self._refused} times",
                    "simplify the schema, say in the prompt how to fill it, or use another model",
                )
            )
        return accepted

    def last_resort(self) -> Accept | None:
        """The first answer of substance that had the right shape, where words count at all."""
        return None if self._tools.fallback is Fallback.OFF else self._first

    def _reminder(self, text: str, found: Accept | str) -> str:
        names = " or ".join(sorted(self._terminal))
        if is_question(text):
            return (
                "(Nobody can answer questions in this run. Decide yourself, go on, and call"
                f" {names} with the result when you are done.)"
            )
        self._narrowed = self._tools.fallback is Fallback.NARROWED
        why = "" if isinstance(found, Accept) else f" What you wrote is not the result: {found}."
        return (
            f"(An answer in words does not end this task: call {names} with the result now, in"
            f" the shape that its schema asks for.{why})"
        )

    def _failure(self, found: Accept | str) -> AgentError:
        why = found if isinstance(found, str) else "words do not count as one here"
        return NoStructuredOutput(
            f"the model gave no result that fits the schema, after {self._reminders} reminders:"
            f" {why}",
            "simplify the schema, say in the prompt how to fill it, or use another model",
        )

    def _read(self, text: str) -> Accept | str:
        """The result that ``text`` is, or why it is none."""
        why = "it is not JSON"
        for value in _json_values(text):
            for shape in self._tools.shapes.values():
                if not (reason := shape.refusal(value)):
                    return Accept(value)
                inner = shape.of_arguments(value) if isinstance(value, dict) else value
                if inner is not value and not shape.refusal(inner):
                    return Accept(inner)
                why = " ".join(reason.split())[:_MAX_REASON].rstrip(". ")
        if text.strip() and not is_question(text):
            for shape in self._tools.shapes.values():
                if not shape.refusal(text.strip()):
                    return Accept(text.strip())
        return why


class ToolBudget:
    """Counts answers without any tool call in a row (CTRL-6).

    ``needs_result``: words never end this turn. Otherwise they do once the tools were put to use.
    """

    def __init__(self, budget: int, *, needs_result: bool) -> None:
        self._budget = budget
        self._needs_result = needs_result
        self._count = 0
        self._productive = False

    def answered(self) -> Remind | GiveUp | None:
        """One more answer without a call; ``None``: it may end the turn."""
        if self._productive and not self._needs_result:
            return None
        self._count += 1
        if self._count <= self._budget:
            return Remind("(Words alone do not do this task: use the tools, then answer.)")
        return GiveUp(
            AgentError(
                f"the model answered {self._count} times in a row without a tool call; the budget"
                f" is {self._budget}",
                "raise max_answers_without_tools, or use a model that calls tools",
            )
        )

    def called(self, results: Sequence[ToolResult]) -> None:
        """A batch has run; one with a success that is more than a report of progress counts."""
        if any(not result.is_error and result.name not in STATUS_TOOLS for result in results):
            self._count = 0
            self._productive = True


class Finishing:
    """Both rules for one turn. ``value`` is the result once ``has_value`` is set."""

    def __init__(self, check: AnswerCheck | None, budget: int | None) -> None:
        self._check = check
        self._budget = (
            None if budget is None else ToolBudget(budget, needs_result=check is not None)
        )
        self._verdict: Remind | GiveUp | None = None
        self.has_value = False
        self.value: Any = None

    @property
    def gates(self) -> tuple[AnswerCheck, ...]:
        """What narrows the steps of the turn."""
        return () if self._check is None else (self._check,)

    def answered(self, text: str, allowed: frozenset[str]) -> bool | None:
        """Whether an answer without calls ends the turn; ``None`` is no opinion.

        When it does not, ``objection`` has the reason.
        """
        found: Remind | GiveUp | None = None
        if self._check is not None:
            verdict = self._check.answered(text, allowed)
            if isinstance(verdict, Accept):
                return self._accept(verdict)
            found = verdict
        spent = self._budget.answered() if self._budget is not None else None
        if isinstance(spent, GiveUp) or found is None:
            found = spent
        self._verdict = found
        return None if found is None else False

    def objection(self) -> str:
        """What to tell the model after an answer that did not end the turn; once.

        Raises the error of a turn that has to fail.
        """
        verdict, self._verdict = self._verdict, None
        if isinstance(verdict, GiveUp):
            raise verdict.error
        return verdict.text if verdict is not None else ""

    def called(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> bool:
        """Whether the batch ends the turn. Raises the error of a turn that has to fail."""
        if self._budget is not None:
            self._budget.called(results)
        verdict = self._check.called(calls, results) if self._check is not None else None
        if isinstance(verdict, GiveUp):
            raise verdict.error
        return verdict is not None and self._accept(verdict)

    def last_resort(self) -> bool:
        """Whether a turn that may not go on has a result all the same."""
        verdict = self._check.last_resort() if self._check is not None else None
        return verdict is not None and self._accept(verdict)

    def cut_short(self) -> None:
        """Something else ends the turn: raises where a result is missing."""
        if self._check is not None and not self.has_value and not self.last_resort():
            raise NoStructuredOutput(
                "the turn was ended before the model had given its result",
                "see what has ended it: a hook, or another tool",
            )

    def _accept(self, verdict: Accept) -> bool:
        self.has_value, self.value = True, verdict.value
        return True


def is_question(text: str) -> bool:
    """Whether ``text`` only asks, as "Shall I proceed?" does, and is no report that ends so."""
    shown = text.strip().rstrip("*_`\"')] \n\u201d\u2019")
    return shown.endswith(_ASKS) and len(shown) <= _LONGEST_QUESTION


def _json_values(text: str) -> list[Any]:
    """The JSON that ``text`` is, or that stands in its fenced blocks, the last block first."""
    found = []
    for part in (text, *reversed(_fenced(text)[-_MAX_BLOCKS:])):
        try:
            found.append(loads(part.strip()))
        except ValueError:
            continue
    return found


def _fenced(text: str) -> list[str]:
    """What stands in the fenced blocks of ``text``; a block without an end is none."""
    blocks: list[str] = []
    lines: list[str] = []
    opened = ""
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line.rstrip("\r"))
        if not opened:
            opened, lines = fence[1] if fence else "", []
        elif fence and not fence[2] and fence[1].startswith(opened):
            blocks.append("\n".join(lines))
            opened = ""
        else:
            lines.append(line)
    return blocks
