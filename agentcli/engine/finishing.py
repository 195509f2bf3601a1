"""Turns that may not end with just any words: terminal tools, reminders, budgets (CTRL-5, CTRL-6).

A turn with terminal tools ends when one of them has succeeded. An answer in words is turned into
the result only as the ``Fallback`` says; otherwise the model is reminded, with all of its tools
still open, at most twice in a row without work between, and then the first answer of substance
that has the right shape is used, or the turn fails. Laws: what is said after such an answer never
replaces it, unless the model has worked on in between; every turn ends after a bounded number of
answers without work and of refused results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol

from agentcli.domain.clean import loads
from agentcli.domain.errors import AgentError, AnswerBudgetSpent, NoStructuredOutput
from agentcli.domain.messages import ResultStatus, ToolCall, ToolResult
from agentcli.domain.ports import ReminderTexts
from agentcli.domain.values import frozen
from agentcli.engine.arguments.schema import Schema

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
_MAX_TAIL = 4_000
_MAX_BLOCKS = 8
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*+([\w-]*+)[ \t]*")
_ASKS = ("?", "\uff1f", "\u061f")  # also as Chinese, Japanese, Arabic and Persian write it
_PROMISES = "confirm|clarify|specify|advise|tell me|let me know|provide|choose|select|approve"
# what asks for a decision: as a question, or at the start of a sentence that lacks its mark
_QUESTION = re.compile(
    r"(?:(?:would|do|did) you (?:like|want|prefer|mean)\b|(?:shall|should|may|can|could) (?:i|we)\b"
    r"|(?:is|are|does) (?:that|this|it|these) (?:ok|okay|fine|correct|right|good|what you)\b"
    r"|(?:do you )?want me to\b|how (?:would|should|do) (?:you|i|we)\b|which\b"
    rf"|(?:can|could|would) you(?: please)? (?:{_PROMISES})\b)",
    re.IGNORECASE,
)
# the same as a request
_REQUEST = re.compile(
    rf"\b(?:(?:please|kindly) (?:{_PROMISES})\b"
    r"|let me know (?:if|whether|how|which|what|when|once)\b"
    r"|wait(?:ing)? for (?:you|your)\b|await(?:ing)? (?:you|your)\b"
    r"|if you(?:'d| would) like me to\b)",
    re.IGNORECASE,
)
# what closes a text, and asks nothing of anybody
_COURTESY = re.compile(
    r"\b(?:anything|something) else\b|\b(?:any|further|more) (?:questions|help|changes)\b"
    r"|^(?:many )?(?:thanks|thank you)\b|^(?:just )?let me know$",
    re.IGNORECASE,
)
# an answer that only says what comes next
_ANNOUNCES = re.compile(
    r"\W*(?:(?:ok(?:ay)?|sure|great|now|first|next|then|right|alright|so)\b[\s,.!:-]*)*"
    r"(?:i(?:'ll| will| am going to|'m going to)|let me|let's|let us|starting|beginning"
    r"|proceeding|moving on|going to)\b",
    re.IGNORECASE,
)
_LONGEST_ANNOUNCEMENT = 300
_SENTENCE = re.compile(r"(?<=[.!?\uff1f\u061f\u3002])\s+|\n+")


class Fallback(StrEnum):
    """What an answer in words is worth where a terminal tool should have been called.

    ``OFF``: nothing. ``NARROWED``: if it has the right shape it counts, at once where only terminal
    and status tools are allowed, else when the reminders are used up. ``EAGER``: plain words
    count as well, when the reminders are used up.
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
    reminders: ReminderTexts = field(default_factory=ReminderTexts)

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
    """Decides how one turn with terminal tools may end."""

    def __init__(self, tools: TerminalTools) -> None:
        self._tools = tools
        self.terminal = frozenset(tools.shapes)
        self._ending = self.terminal | tools.status
        self._reminders = 0
        self._refused = 0
        self._first: Accept | None = None
        self._may_replace = True

    def answered(self, text: str, allowed: frozenset[str]) -> AnswerVerdict:
        """An answer in words of a step that could call ``allowed``: result, reminder or end."""
        found = self._read(text)
        if isinstance(found, Accept):
            self._remember(found, text)
            words_only = found.value == text.strip() and self._tools.fallback is Fallback.EAGER
            if allowed <= self._ending and not words_only and self._tools.fallback != Fallback.OFF:
                return found
        if self._reminders < MAX_REMINDERS:
            self._reminders += 1
            return Remind(self._reminder(text, found))
        return self.last_resort() or GiveUp(self._failure(found))

    def called(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> Accept | GiveUp | None:
        """The newest result that a terminal tool has taken; too many refused ones are the end.

        A batch that has done some work earns the model its reminders again.
        """
        if is_productive(results):
            self._reminders, self._may_replace = 0, True
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

    def _remember(self, found: Accept, text: str) -> None:
        """The first good answer stays; one that only announces work is as good as none."""
        if self._first is None or self._may_replace:
            self._first = found
            self._may_replace = found.value == text.strip() and announces(text)

    def _reminder(self, text: str, found: Accept | str) -> str:
        texts = self._tools.reminders
        why = "" if isinstance(found, Accept) else f" What you wrote is not the result: {found}."
        said = texts.question if is_question(text) else texts.result
        return said.replace("{tools}", " or ".join(sorted(self.terminal))).replace("{why}", why)

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

    def __init__(self, budget: int, reminder: str, *, needs_result: bool) -> None:
        self._budget = budget
        self._text = reminder
        self._needs_result = needs_result
        self._count = 0
        self._productive = False

    def answered(self) -> Remind | GiveUp | None:
        """One more answer without a call; ``None``: it may end the turn."""
        if self._productive and not self._needs_result:
            return None
        self._count += 1
        if self._count <= self._budget:
            return Remind(self._text)
        return GiveUp(AnswerBudgetSpent(self._budget, self._count))

    def called(self, results: Sequence[ToolResult]) -> None:
        """A batch has run; one that has done some work counts."""
        if is_productive(results):
            self._count = 0
            self._productive = True


class Finishing:
    """Both rules for one turn. ``value`` is the result once ``has_value`` is set."""

    def __init__(
        self, check: AnswerCheck | None, budget: int | None, reminders: ReminderTexts
    ) -> None:
        self._check = check
        self._budget = (
            None
            if budget is None
            else ToolBudget(budget, reminders.use_tools, needs_result=check is not None)
        )
        self._verdict: Remind | GiveUp | None = None
        self.has_value = False
        self.value: Any = None

    def tool_choice(self, allowed: frozenset[str]) -> str:
        """What the model has to call where only terminal tools are ``allowed`` (LOOP-14)."""
        if self._check is None or not allowed or not allowed <= self._check.terminal:
            return ""
        return next(iter(allowed)) if len(allowed) == 1 else "*"

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


def is_productive(results: Sequence[ToolResult]) -> bool:
    """Whether a batch has a success that is more than a report of progress."""
    return any(not result.is_error and result.name not in STATUS_TOOLS for result in results)


def is_question(text: str) -> bool:
    """Whether ``text`` waits for an answer, as "Would you like me to proceed?" does.

    A question at the end of a short text does, and words that ask for a decision at the end of a
    text of any length; not the courtesy that closes a report ("Anything else?").
    """
    shown = _bare(text)
    if isinstance(next(iter(_json_values(text)), None), dict | list):
        return False
    parts = [part for part in map(_bare, _SENTENCE.split(shown[-_MAX_TAIL:])) if part]
    while len(parts) > 1 and _COURTESY.search(parts[-1].rstrip(".!")):
        parts.pop()
    last = parts[-1] if parts else ""
    asks = last.endswith(_ASKS)
    if (_QUESTION.search if asks else _QUESTION.match)(last) or _REQUEST.search(last):
        return True
    return asks and len(shown) <= _LONGEST_QUESTION


def _bare(text: str) -> str:
    return text.strip().rstrip("*_`\"')] \n\u201d\u2019")


def announces(text: str) -> bool:
    """Whether ``text`` only says what comes next: "Starting with part one."."""
    shown = text.strip()
    return len(shown) <= _LONGEST_ANNOUNCEMENT and bool(_ANNOUNCES.match(shown))


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
