"""Numbers as people read them, and the wording of what happened. Plain text, nothing imported.

Law: an unknown value is called unknown, never 0 (LOOP-6, COST-1).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from agentcli.domain.clean import plural, todo_line
from agentcli.domain.events import (
    AgentEvent,
    BackgroundChanged,
    Compacted,
    CompactionStarted,
    CompactionTrigger,
    Failed,
    ModelFellBack,
    OutputCapRaised,
    RetryWait,
    ToolFinished,
    ToolGateConflictResolved,
    WrappingUp,
)
from agentcli.domain.messages import ResultStatus, Usage
from agentcli.domain.patterns import LazyPattern
from agentcli.ui.sanitize import clean, clean_line

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundTask

_LONGEST_WHY = 200
_LONGEST_QUESTION = 1_000
_DURATION = LazyPattern(r"\d (?:s|min|h)\)?$")
_MINUTE = 60
_HOUR = 3600
_DAY = 86400
_THOUSAND = 1000
_MILLION = 1_000_000
_CENT = 0.01
_LEAST = 0.0001
LONG_WAIT_S = 60.0
FELT_S = 0.1  # what takes less took no time


def duration(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if seconds < 9.95:  # noqa: PLR2004 - the last value that rounds to one digit
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


def elapsed(seconds: float) -> str:
    """How long something runs already, in whole seconds: ``3 s``, ``2 min 1 s``."""
    whole = int(max(0, seconds))
    return f"{whole} s" if whole < _MINUTE else duration(whole)


def age(seconds: float) -> str:
    """How long ago: ``just now``, ``5 min ago``, ``3 h ago``, ``2 d ago``.

    A negative age (the clock was set back) reads ``just now``.
    """
    if seconds < _MINUTE:
        return "just now"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min ago"
    if seconds < _DAY:
        return f"{int(seconds // _HOUR)} h ago"
    return f"{int(seconds // _DAY)} d ago"


def count(number: int | None) -> str:
    """``950``, ``12.3k``, ``4.5M``, ``unknown``."""
    if number is None:
        return "unknown"
    if number < _THOUSAND:
        return str(number)
    if number < _MILLION:
        return f"{number / _THOUSAND:.1f}k"
    return f"{number / _MILLION:.1f}M"


def tokens_of(number: int | None) -> str:
    """``12.3k tokens``, ``unknown``."""
    return "unknown" if number is None else f"{count(number)} tokens"


def cost(usd: float | None) -> str:
    """``$0.0042``, ``$1.27``, ``unknown``, ``free``: never ``$0.00`` (UI-13)."""
    if usd is None:
        return "unknown"
    if not usd:
        return "free"
    if usd < _LEAST:
        return f"<${_LEAST}"
    return f"${usd:.4f}" if 0 < usd < _CENT else f"${usd:.2f}"


def cost_said(usd: float | None) -> str:
    """The same within a line: ``cost $1.27``, ``cost unknown``, ``free``."""
    return cost(usd) if usd == 0 else f"cost {cost(usd)}"


def exact_cost(usd: float | None) -> str:
    """To the hundredth of a cent, for a bill: ``$0.1250``."""
    return f"${usd:.4f}" if usd and usd >= _LEAST else cost(usd)


class Bill(Protocol):
    """Money of several requests; ``unknown`` of them have no known price."""

    @property
    def known_usd(self) -> float:
        """The others, in USD."""

    @property
    def unknown(self) -> int:
        """How many."""


def sum_cost(bill: Bill) -> str:
    """``$0.1250``; a part whose price is not known is said (COST-1)."""
    if not bill.unknown:
        return exact_cost(bill.known_usd)
    return f"{exact_cost(bill.known_usd)} + unknown" if bill.known_usd else "unknown"


def tokens(usage: Usage) -> str:
    """``12.3k in (10.0k cached), 1.2k out``; ``tokens unknown`` when nothing was reported."""
    if not usage.is_known:
        return "tokens unknown"
    known = [
        part
        for part in (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        if part is not None
    ]
    sent = count(sum(known) if known else None)
    cached = f" ({count(usage.cache_read_tokens)} cached)" if usage.cache_read_tokens else ""
    return f"{sent} in{cached}, {count(usage.output_tokens)} out"


def retry(event: RetryWait, left_s: float | None = None, *, short: bool = False) -> str:
    """``Retrying in 4 s (2/3) · overloaded``; a long wait says until when and for what.

    ``left_s`` is what is left of the wait; all of it when not given. ``short``: what failed in a
    few words instead of the error's own.
    """
    kind = str(getattr(event.error, "kind", "") or "").replace("_", " ")
    what = clean_line(event.error.message) or kind
    if short:
        what = _WHY_RETRY.get(kind) or _begun(what, _SHORT_CHARS)
    left = max(event.delay_s if left_s is None else left_s, 0)
    tries = f"({event.attempt}/{event.max_attempts})"
    if event.delay_s >= LONG_WAIT_S:
        until = time.strftime("%H:%M", time.localtime(time.time() + left))
        why = "for the rate limit" if kind == "rate limit" else "to try again"
        return f"Waiting until {until} {why} {tries} · {what}"
    return f"Retrying in {left:.{0 if event.delay_s >= 1 else 1}f} s {tries} · {what}"


def _begun(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


_WHY_RETRY = {
    "rate limit": "rate limited",
    "bad request": "rejected",
    "server": "server error",
    "overloaded": "overloaded",
    "network": "connection lost",
    "stalled": "no answer",
    "empty": "empty reply",
}
_SHORT_CHARS = 36
_WHY_COMPACT = {
    CompactionTrigger.WINDOW: "the context is nearly full",
    CompactionTrigger.OVERFLOW: "the context is full",
    CompactionTrigger.MANUAL: "",
}


def news(event: AgentEvent) -> str | None:  # noqa: PLR0911 - one return per event
    """One line about what the engine did by itself; ``None`` for what is no news."""
    match event:
        case OutputCapRaised():
            return (
                f"The reply was cut at {count(event.old_tokens)} tokens; asking again with"
                f" {count(event.new_tokens)}."
            )
        case ModelFellBack():
            reason = clean_line(event.error.message)
            return (
                f"{clean_line(event.old)} cannot be reached ({reason});"
                f" {clean_line(event.new)} answers from now on."
            )
        case CompactionStarted():
            why = _WHY_COMPACT[event.trigger]
            return f"Summarising the conversation{f': {why}' if why else ''}."
        case Compacted():
            return _compacted(event)
        case WrappingUp():
            return f"A limit is near ({clean_line(event.reason)}): the agent is asked to finish."
        case BackgroundChanged(ended=task) if task is not None:
            return background_ended(task)
        case ToolGateConflictResolved():
            gates = ", ".join(each.gate for each in event.lists if not each.set_aside)
            return f"No tool is allowed by all of {gates}; {event.winner} decides."
    return None


def background_ended(task: BackgroundTask) -> str:
    """A background run that is over, in a line."""
    state = task.state.value
    why = clean_line(task.error_message if state == "interrupted" else task.summary)
    if state == "cancelled" or len(why) > _LONGEST_WHY:
        why = ""
    title = clean_line(task.title)
    return f"Background run {state}: {title}" + (f" ({why})" if why else "")


def background_asks(task: BackgroundTask, number: int) -> str:
    """What a background run asks, in a line, and how it is answered (BG-9)."""
    question = task.question
    asked = _begun(clean_line(question.text), _LONGEST_QUESTION) if question else ""
    options = " | ".join(clean_line(option) for option in question.options) if question else ""
    offered = f" [{_begun(options, _LONGEST_QUESTION)}]" if options else ""
    how = f"/tasks answer {number} TEXT"
    return f"Background run asks: {clean_line(task.title)}: {asked}{offered} - answer: {how}"


def _compacted(event: Compacted) -> str:
    """What was kept and folded stands here only where nobody asked for the summary (CMP-2)."""
    what = (
        f"Summarised: {plural(event.messages_before, 'message')} became {event.messages_after},"
        f" about {count(event.tokens_before)} tokens became {count(event.tokens_after)}."
    )
    if event.trigger is CompactionTrigger.MANUAL:
        return what
    kept, folded = clean_line(event.kept), clean_line(event.folded)
    return f"{what} Kept: {kept}. Folded: {folded}; /compact undo brings it back."


def failure(event: Failed) -> tuple[str, str]:
    """What happened and what to do about it, each one line."""
    return clean_line(event.error.message), clean_line(event.error.advice)


_STATUS_WORDS = {
    ResultStatus.OK: "done",
    ResultStatus.ERROR: "failed",
    ResultStatus.REFUSED: "refused",
    ResultStatus.CANCELLED: "cancelled",
    ResultStatus.INTERRUPTED: "interrupted",
}


def outcome(event: ToolFinished, call_line: str = "") -> str:
    """How a call ended, in the user's words: the tool's own summary, else the status and fault."""
    status = event.result.status
    word = _STATUS_WORDS[status]
    own = clean_line(event.summary)
    if call_line and own.startswith(call_line):
        own = own[len(call_line) :].strip(" :,;-·→")
    if status is ResultStatus.OK:
        return own or word
    if status is ResultStatus.ERROR and not own:
        own = _what_failed(event.result.text)
    return word if own.lower().startswith(word) else f"{word}: {own}" if own else word


_ADVICE = LazyPattern(r"(?<=[^.\s][.!?]) +[A-Z].*|; (?:use|try|call|read|pass|give|ask) .*")
_FIELDS = {"old_string": "the text to replace", "new_string": "the new text"}


def _what_failed(text: str) -> str:
    """The first sentence of an error; what follows is advice for the model, names of fields too."""
    said = _ADVICE.sub("", first_line(text).removeprefix("Error: "))
    for field, meant in _FIELDS.items():
        said = said.replace(field, meant)
    return said


def has_duration(text: str) -> bool:
    """Whether a tool's own summary ends with a duration already."""
    return _DURATION.search(text) is not None


def first_line(text: str) -> str:
    """The first line of ``text`` that is not blank, safe to print."""
    return next((line.strip() for line in clean(text).splitlines() if line.strip()), "")


def todo_lines(todos: Sequence[Mapping[str, str]]) -> list[str]:
    """A line for each thing to do, safe to print."""
    found = [todo_line(todo.get("status"), clean_line(todo.get("content", ""))) for todo in todos]
    return found or ["The agent has no list of things to do."]


_PROGRAMS = {
    "agentcli": "an agentcli export",
    "claude": "Claude Code",
    "codex": "Codex",
}


def program(name: str) -> str:
    """The program that sessions of a format come from."""
    return _PROGRAMS.get(name, name)
