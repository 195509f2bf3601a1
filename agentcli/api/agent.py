"""One conversation as an object of the embedding program.

Law: what is true of a chat is true here: every turn ends with one terminal event, the session is
on disk before an event says so, leaving the ``async with`` block cancels what runs and joins it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from agentcli.app.compose import open_session
from agentcli.app.options import SessionOptions, function_tool, result_schema, settings_of
from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.events import (
    AgentEvent,
    Failed,
    Outcome,
    Prompt,
    TerminalEvent,
    TurnSummary,
)
from agentcli.domain.messages import Message, Usage, UserMessage, user_text
from agentcli.domain.ports import (
    ApprovalAnswer,
    ApprovalRequest,
    ContextTransform,
    Effort,
    PermissionMode,
    QueueKind,
    ToolGate,
    Verdict,
)
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.app.session import Listener, Session

Approve = Callable[[ApprovalRequest], bool | Awaitable[bool]]
F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__agentcli_tool__"


@frozen
class AgentResult:
    """How a turn ended. ``cost_usd`` is ``None`` where a price is unknown.

    ``structured`` is the result in the shape of ``Agent(output=…)``.
    """

    text: str
    outcome: Outcome
    steps: int
    usage: Usage
    cost_usd: float | None
    duration_s: float
    session_id: str
    structured: Any = None

    @property
    def is_complete(self) -> bool:
        """Whether the agent came to its own end (LOOP-2)."""
        return self.outcome in {Outcome.DONE, Outcome.WRAPPED_UP}


@dataclass(slots=True, kw_only=True)
class Agent:
    """A coding agent. Use it with ``async with``; one turn at a time.

    ``tools`` are typed functions (see ``tool``) that are offered beside the built-in ones;
    ``builtin_tools`` names those (or their groups) that the agent has: ``None`` for all, ``()`` for
    none. ``approve`` is asked before what the permission mode does not allow; without it such a
    call is refused and the model told so. ``output`` is a JSON schema or a pydantic model: the turn
    then ends with a result of that shape. ``terminal`` names tools whose success ends the turn,
    their arguments the result; ``fallback`` is what an answer in words is worth then: "off"
    nothing, "narrowed" it counts after a reminder if it has the right shape, "eager" it counts at
    once (CTRL-5). ``session`` takes up an earlier one by its id;
    ``keep`` is whether the session's file stays. ``home`` is where files go (``AGENTCLI_HOME``);
    ``env`` replaces the environment for settings and keys.
    """

    model: str | None = None
    cwd: Path | str | None = None
    tools: Sequence[Callable[..., Any]] = ()
    builtin_tools: Sequence[str] | None = None
    permission_mode: str = "default"
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    approve: Approve | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    effort: str | None = None
    max_steps: int | None = None
    max_budget_usd: float | None = None
    output: Any = None
    terminal: Sequence[str] = ()
    fallback: str = "narrowed"
    gates: Sequence[ToolGate] = ()
    transforms: Sequence[ContextTransform] = ()
    session: str | None = None
    keep: bool = True
    home: Path | str | None = None
    env: Mapping[str, str] | None = None
    _session: Session | None = field(default=None, init=False, repr=False)
    _turn: RunningTurn | None = field(default=None, init=False, repr=False)

    async def __aenter__(self) -> Self:
        """Open the session. Raises ``ConfigError``, ``UsageError`` or a ``StoreError``."""
        if self._session is not None:
            raise UsageError("this agent is open already", "make another one")
        env = dict(os.environ if self.env is None else self.env)
        if self.home is not None:
            env["AGENTCLI_HOME"] = str(self.home)
        self._session = await open_session(
            settings_of(env), self._options(), _Approver(self.approve)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel what runs, join it and close the session."""
        session, self._session = self._session, None
        turn, self._turn = self._turn, None
        if session is None:
            return
        try:
            if turn is not None:
                turn.leave()
                await uninterruptible(turn.join())
        finally:
            await session.aclose()

    # --- turns -----------------------------------------------------------------------------

    def run(self, prompt: str | UserMessage, *, timeout_s: float | None = None) -> TurnEvents:
        """One turn as its events; the last is ``Done``, ``Cancelled`` or ``Failed`` (CAN-12).

        Leaving the loop early cancels the turn, and so does cancelling the task that waits in it
        (``asyncio.timeout``). Near ``timeout_s`` seconds the agent is told to
        finish, after them the turn is cancelled. Raises ``UsageError`` while a turn runs.
        """
        message = user_text(prompt) if isinstance(prompt, str) else prompt
        return TurnEvents(self, message, timeout_s)

    async def run_to_end(
        self, prompt: str | UserMessage, *, timeout_s: float | None = None
    ) -> AgentResult:
        """One turn to its end. Raises the ``AgentError`` of a turn that failed."""
        session, last = self._open(), None
        async for event in self.run(prompt, timeout_s=timeout_s):
            last = event
        if isinstance(last, Failed):
            raise last.error
        if not isinstance(last, TerminalEvent):
            raise AgentError("the turn ended without saying how", "this is a bug; see the log")
        summary = last.summary
        return AgentResult(
            text=summary.text,
            outcome=summary.outcome,
            steps=summary.steps,
            usage=summary.usage,
            cost_usd=summary.cost_usd,
            duration_s=summary.duration_s,
            session_id=session.id,
            structured=summary.structured,
        )

    def interrupt(self) -> bool:
        """Cancel the running turn; false when there is none."""
        self._open()
        if self._turn is None or self._turn.task.done():
            return False
        self._turn.token.cancel()
        return True

    async def enqueue(self, text: str, *, when_done: bool = False) -> None:
        """Say something to the agent while it works: after this step's tools, or when done."""
        kind = QueueKind.FOLLOW_UP if when_done else QueueKind.STEERING
        await self._open().enqueue(text, kind)

    # --- what it is ------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The id by which the session can be taken up again."""
        return self._open().id

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history, as stored."""
        return self._open().history.messages

    @property
    def usage(self) -> Usage:
        """Tokens of all turns of the session."""
        return self._open().usage

    @property
    def cost_usd(self) -> float | None:
        """Money of all turns; ``None`` when a part of it is unknown."""
        return self._open().cost_usd

    # --- the rest --------------------------------------------------------------------------

    def _open(self) -> Session:
        if self._session is None:
            raise UsageError("the agent is not open", "use it inside: async with Agent(…) as agent")
        return self._session

    async def begin(
        self, message: UserMessage, timeout_s: float | None, listen: Listener
    ) -> RunningTurn:
        """Start the turn of ``run``; one that was left before its end is joined first."""
        session = self._open()
        if self._turn is not None and self._turn.is_left:
            await self._turn.join()
        if session.is_running or (self._turn is not None and not self._turn.task.done()):
            raise UsageError("a turn is already running", "wait for it, or use enqueue")
        token = CancelToken()
        task = asyncio.create_task(_bounded(session, message, timeout_s, token))
        remove = session.add_listener(listen)
        task.add_done_callback(lambda _: remove())
        self._turn = RunningTurn(task, token)
        return self._turn

    def _options(self) -> SessionOptions:
        own = tuple(function_tool(each, getattr(each, _MARK, {})) for each in self.tools)
        free = tuple(made.name for made in own if not made.always_ask)
        return SessionOptions(
            cwd=Path(self.cwd or Path.cwd()).absolute(),
            model=self.model,
            mode=_one_of(PermissionMode, self.permission_mode, "permission_mode"),
            allow=(*self.allow, *free),
            deny=tuple(self.deny),
            tools=None if self.builtin_tools is None else tuple(self.builtin_tools),
            effort=_one_of(Effort, self.effort, "effort"),
            system_prompt=self.system_prompt,
            append_system_prompt=self.append_system_prompt,
            no_session=not self.keep,
            max_steps=self.max_steps,
            max_budget_usd=self.max_budget_usd,
            resume=self.session,
            result=_result_schema(self.output),
            own_tools=own,
            terminal=tuple(self.terminal),
            fallback=self.fallback,
            gates=tuple(self.gates),
            transforms=tuple(self.transforms),
        )


@dataclass(slots=True)
class RunningTurn:
    """The task of one turn; ``is_left``: nobody listens to it any more."""

    task: asyncio.Task[TurnSummary]
    token: CancelToken
    is_left: bool = False

    def leave(self) -> None:
        """Cancel the turn, from whatever thread; somebody joins it later."""
        self.is_left = True
        with suppress(RuntimeError):  # the loop is closed, and the turn over
            self.task.get_loop().call_soon_threadsafe(self.token.cancel, CancelReason.OUTER)

    async def join(self) -> None:
        """Wait for the turn's end, however it ends."""
        await asyncio.wait({self.task})
        if not self.task.cancelled():
            self.task.exception()


class TurnEvents(AsyncIterator[AgentEvent]):
    """The events of one turn; the turn begins with the first ``__anext__``.

    Law: when the terminal event is given out the turn is over and another may begin. Anyone who
    waits for an event and is cancelled cancels the turn, and goes on when it has ended; an
    iterator that is dropped before its end cancels the turn at once, not when an asynchronous
    generator happens to be closed.
    """

    def __init__(self, agent: Agent, message: UserMessage, timeout_s: float | None) -> None:
        self._agent = agent
        self._message = message
        self._timeout_s = timeout_s
        self._events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        self._turn: RunningTurn | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        if self._is_over:
            raise StopAsyncIteration
        turn = self._turn or await self._begin()
        try:
            event = await self._events.get()
            if isinstance(event, TerminalEvent):
                await turn.join()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is not None:
            return event
        self._is_over = True
        turn.task.result()
        raise StopAsyncIteration

    async def _begin(self) -> RunningTurn:
        events = self._events
        self._turn = await self._agent.begin(self._message, self._timeout_s, events.put_nowait)
        self._turn.task.add_done_callback(lambda _: events.put_nowait(None))
        return self._turn

    async def aclose(self) -> None:
        """Cancel the turn if it is not over, and join it."""
        turn, was_over, self._is_over = self._turn, self._is_over, True
        if turn is not None and not was_over:
            turn.leave()
            await turn.join()

    def __del__(self) -> None:
        if self._turn is not None and not self._is_over:
            self._turn.leave()


async def _bounded(
    session: Session, message: UserMessage, timeout_s: float | None, token: CancelToken
) -> TurnSummary:
    """The turn, cancelled when the time is over (CTRL-7: told to finish before that)."""
    if timeout_s is None:
        return await session.run(Prompt(message), token)
    timer = asyncio.get_running_loop().call_later(timeout_s, token.cancel, CancelReason.LIMIT)
    try:
        return await session.run(Prompt(message), token, deadline=time.monotonic() + timeout_s)
    finally:
        timer.cancel()


class _Approver:
    """The program's own answer to a question; without one nobody is there (CLI-7)."""

    def __init__(self, approve: Approve | None) -> None:
        self._approve = approve

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask the program."""
        if self._approve is None:
            return ApprovalAnswer(Verdict.UNATTENDED)
        answer = self._approve(request)
        said = await answer if isinstance(answer, Awaitable) else answer
        return ApprovalAnswer(Verdict.ONCE if said else Verdict.NO)


def _one_of(kind: Any, value: str | None, name: str) -> Any:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(item.value for item in kind)
        raise UsageError(f"{name} cannot be {value!r}", f"choose one of: {known}") from None


def _result_schema(output: Any) -> Any:
    if output is None:
        return None
    describe = getattr(output, "model_json_schema", None)
    return result_schema(describe() if callable(describe) else output)


# --- a function as a tool ------------------------------------------------------------------


@overload
def tool(function: F) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: str = "write",
    timeout_s: float | None = 60.0,
    ask: bool = False,
) -> Callable[[F], F]: ...


def tool(function: F | None = None, **options: Any) -> F | Callable[[F], F]:
    """Say how a function is offered to the model; the function itself stays as it is.

    ``effect`` is "read" (may run beside others), "write" or "exec" (run alone); ``timeout_s`` in
    seconds, ``None`` for no limit; ``ask``: every call needs an approval.
    """

    def mark(marked: F) -> F:
        setattr(marked, _MARK, options)
        return marked

    return mark if function is None else mark(function)
