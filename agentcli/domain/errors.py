"""Every error this program raises on purpose.

::

    AgentError                     message + advice: one line the user can act on
    ├── UsageError                 the command line asks for something impossible (exit 2)
    ├── ConfigError                configuration or credentials (exit 78)
    ├── ProviderError              the model API; has kind, retryable, host (exit 1 or 75)
    ├── StoreError                 the session file (exit 74)
    │   ├── PersistenceError       a write failed: disk full, no permission, damaged
    │   ├── SessionNotFound        no session, or several, by that name (exit 2)
    │   ├── SessionLocked          another live process writes to it
    │   ├── SessionDamaged         not a database, truncated, fails its checks
    │   └── SessionTooNew          written by a newer version of this program
    ├── CannotContinue             nothing to continue from (REC-5)
    ├── PromptBlocked              a hook refused the prompt; nothing was stored or sent
    ├── GateFailed                 a gate raised: nothing ran (CTRL-4)
    ├── SourceFailed               a source, signal or transform raised (CTRL-9)
    ├── AnswerBudgetSpent          too many answers without a tool call (CTRL-6)
    ├── NoStructuredOutput         no result in the shape that was asked for (exit 3)
    └── HistoryViolation           our own bug: a history a provider would reject

    TurnCancelled                  control flow inside the engine, never seen outside it

Tool faults are values (``ToolOutput``), not exceptions, except ``InvalidArguments``, which a
tool's ``parse`` raises.
"""

from __future__ import annotations

from enum import StrEnum

from agentcli.domain.values import frozen


class AgentError(Exception):
    """An expected failure: what happened and what to do about it."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message} - {self.advice}" if self.advice else self.message


class UsageError(AgentError):
    """The request itself is wrong: a flag, a name, a missing prompt."""


class ConfigError(AgentError):
    """Configuration or credentials are missing, wrong or unreadable.

    ``details`` are several things that are wrong, a line each.
    """

    def __init__(self, message: str, advice: str = "", details: tuple[str, ...] = ()) -> None:
        listed = "; ".join(details)
        super().__init__(f"{message}: {listed}" if listed else message, advice)
        self.headline = message
        self.details = details


class ErrorKind(StrEnum):
    """Kinds of provider failure (STR-1)."""

    RATE_LIMIT = "rate_limit"
    AUTH = "auth"
    CONTEXT_OVERFLOW = "context_overflow"
    BAD_REQUEST = "bad_request"
    SERVER = "server"
    OVERLOADED = "overloaded"
    NETWORK = "network"
    STALLED = "stalled"
    EMPTY = "empty"
    OTHER = "other"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self in _RETRYABLE


_RETRYABLE = frozenset(
    {
        ErrorKind.RATE_LIMIT,
        ErrorKind.SERVER,
        ErrorKind.OVERLOADED,
        ErrorKind.NETWORK,
        ErrorKind.STALLED,
        ErrorKind.EMPTY,
    }
)


class ProviderError(AgentError):
    """A model API failed. ``retry_after_s`` is what the server asked for, in seconds.

    ``streaming`` says that the reply had begun when it failed (STR-4).
    """

    def __init__(  # noqa: PLR0913 - an error's facts, all keyword-only
        self,
        message: str,
        advice: str = "",
        *,
        kind: ErrorKind,
        provider: str = "",
        host: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
        retryable: bool | None = None,
        streaming: bool = False,
    ) -> None:
        super().__init__(message, advice)
        self.kind = kind
        self.provider = provider
        self.host = host
        self.status = status
        self.retry_after_s = retry_after_s
        self.retryable = kind.retryable if retryable is None else retryable
        self.streaming = streaming


class StoreError(AgentError):
    """The session file cannot be used."""


class PersistenceError(StoreError):
    """A write to the session file failed (FAIL-1)."""


class SessionNotFound(StoreError):
    """No session, or more than one, answers to that name."""


class SessionLocked(StoreError):
    """A live process has the session open for writing (REC-6)."""


class SessionDamaged(StoreError):
    """The session file is not readable as one (REC-7)."""


class SessionTooNew(StoreError):
    """The session file was written by a newer version."""


class CannotContinue(AgentError):
    """There is nothing to continue without new input (REC-5)."""


class PromptBlocked(AgentError):
    """A hook of the user refused the prompt: it was neither stored nor sent."""


class NoStructuredOutput(AgentError):
    """The model gave no result that fits the schema (CTRL-5)."""


class GateFailed(AgentError):
    """A gate raised, or answered with what is no answer; its own error is the cause (CTRL-4)."""


class SourceFailed(AgentError):
    """A source, signal or transform that the program supplies raised (CTRL-9); see its cause."""


class AnswerBudgetSpent(AgentError):
    """The model answered ``count`` times in a row without a tool call; ``budget`` is the limit."""

    def __init__(self, budget: int, count: int) -> None:
        super().__init__(
            f"the model answered {count} times in a row without a tool call; the budget is"
            f" {budget}",
            "raise max_answers_without_tools, or use a model that calls tools",
        )
        self.budget = budget
        self.count = count


class HistoryViolation(AgentError):
    """The history breaks the law in ``domain.history``: a bug of ours."""


class TurnCancelled(Exception):
    """Raised at a checkpoint of the turn loop; ends at its one ``except``."""


@frozen
class ArgumentProblem:
    """One wrong argument: where, and what was expected."""

    field: str
    problem: str


class InvalidArguments(ValueError):
    """A tool call's arguments do not satisfy the tool's schema (LOOP-5)."""

    def __init__(self, problems: tuple[ArgumentProblem, ...]) -> None:
        super().__init__("; ".join(f"{p.field}: {p.problem}" for p in problems))
        self.problems = problems


def causes_of(error: BaseException) -> list[BaseException]:
    """``error`` and everything it came from, groups included."""
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        item = todo.pop()
        if item is not None and item not in found:
            found.append(item)
            todo += [item.__cause__, item.__context__]
            if isinstance(item, BaseExceptionGroup):
                todo += item.exceptions
    return found


def kind_of(error: AgentError) -> str:
    """A word for programs: the kind of a ``ProviderError``, else the class's name in snake case."""
    kind = getattr(error, "kind", None)
    if kind is not None:
        return str(kind)
    name = type(error).__name__
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
