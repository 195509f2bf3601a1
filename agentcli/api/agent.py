"""One conversation as an object of the embedding program.

Law: what is true of a chat is true here: every turn ends with one terminal event, the session is
on disk before an event says so, leaving the ``async with`` block cancels what runs and joins it.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import TypeVar

from agentcli.api.function import options_of
from agentcli.app.compose import open_session
from agentcli.app.options import SessionOptions, function_tool, result_schema, settings_of
from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from agentcli.domain.errors import (
    AgentError,
    ArgumentProblem,
    NoStructuredOutput,
    UsageError,
)
from agentcli.domain.events import (
    AgentEvent,
    Failed,
    Outcome,
    Prompt,
    TerminalEvent,
    TurnSummary,
)
from agentcli.domain.extensions.hooks import HookConfig
from agentcli.domain.extensions.keeping import Store
from agentcli.domain.extensions.seams import Seams
from agentcli.domain.messages import Message, Usage, UserMessage, user_text
from agentcli.domain.ports import (
    ApprovalAnswer,
    ApprovalRequest,
    ContextTransform,
    Effort,
    InputSource,
    ModelInfo,
    PermissionMode,
    Provider,
    QueueKind,
    ReminderTexts,
    ToolGate,
    Verdict,
    WrapUpSignal,
)

if TYPE_CHECKING:
    from agentcli.app.listeners import Listener
    from agentcli.app.session import Session

Approve = Callable[[ApprovalRequest], bool | Awaitable[bool]]
OutputT = TypeVar("OutputT", default=Any)
_WRAP_UP = "the program asks you to finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult(Generic[OutputT]):
    """How a turn ended. ``cost_usd`` is ``None`` where a price is unknown.

    ``outcome`` is ``timed_out`` where the time was over; ``text`` is then what there was of the
    answer. ``structured`` is the result in the shape of ``Agent(output=…)``, an instance where that
    was a type; ``None`` where the turn did not come to one.
    """

    text: str
    outcome: Outcome
    steps: int
    usage: Usage
    cost_usd: float | None
    duration_s: float
    session_id: str
    structured: OutputT | None = None
    has_output: bool = False

    @property
    def output(self) -> OutputT:
        """``structured``; raises ``NoStructuredOutput`` unless ``has_output``."""
        if not self.has_output:
            raise NoStructuredOutput(
                f"the turn ended without a result ({self.outcome})", "see outcome and text"
            )
        result: Any = self.structured  # None is one, too, where that has the shape
        return result  # type: ignore[no-any-return]  # it is what output says

    @property
    def is_complete(self) -> bool:
        """Whether the agent came to its own end (LOOP-2)."""
        return self.outcome in {Outcome.DONE, Outcome.WRAPPED_UP}


@dataclass(slots=True, kw_only=True)
class Agent(Generic[OutputT]):
    """A coding agent: use it with ``async with``, or without an event loop with ``with``.

    One turn at a time; several agents may work at once, in one loop or in threads.

    **Who answers.** ``model`` is a name (``provider/model``); or ``provider`` is an object that
    answers, with ``model`` a name of its own or a ``ModelInfo``. It stays yours to close.
    ``effort``, ``temperature`` and ``request_fields`` (put into the body) go with each request.

    **What it can do.** ``tools`` are typed functions (see ``tool``) that are offered beside the
    built-in ones; ``builtin_tools`` names those (or their groups) that the agent has: ``None`` for
    all, ``()`` for none. ``permission_mode``, ``allow`` and ``deny`` are as on the command line;
    ``approve`` is asked before what they do not allow, without it such a call is refused and the
    model told so. ``cwd`` and ``add_dirs`` are the workspace, ``sandbox`` limits its commands:
    ``auto``, ``bwrap``, ``landlock`` or ``off``.

    **How a turn ends.** ``output`` is a type that pydantic knows or a JSON schema: the turn then
    ends with a result of that shape. ``terminal`` names tools whose success ends the turn, their
    arguments the result; ``fallback`` is what an answer in words is worth then: "off" nothing,
    "narrowed" it counts when the reminders are used up if it has the right shape, "eager" plain
    words count then, too (CTRL-5). ``reminders`` are the texts. ``max_steps``, ``max_budget_usd``
    and ``wrap_up`` (asked before each step for a reason to finish) bound it.

    **What it is told and who looks on.** ``prior_messages`` come before the first prompt of a new
    session; ``steering`` and ``follow_ups`` are asked for more to say (CTRL-1). ``gates`` narrow
    the tools of a step, ``transforms`` change what is sent, ``hooks`` have a say at each moment.

    **Where it is kept.** In a file, or in ``store``, for example a ``MemoryStore``. ``keep_events``
    keeps the events, too (``agent sessions events ID``). ``session`` takes up an earlier one by its
    id; ``keep`` is whether the session's file stays. ``home`` is where files go
    (``AGENTCLI_HOME``); ``env`` replaces the environment for settings and keys.
    """

    model: str | ModelInfo | None = None
    provider: Provider | None = None
    cwd: Path | str | None = None
    add_dirs: Sequence[Path | str] = ()
    tools: Sequence[Callable[..., Any]] = ()
    builtin_tools: Sequence[str] | None = None
    permission_mode: str = "default"
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    approve: Approve | None = None
    sandbox: str | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    effort: str | None = None
    temperature: float | None = None
    request_fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_steps: int | None = None
    max_budget_usd: float | None = None
    max_answers_without_tools: int | None = None
    output: type[OutputT] | Mapping[str, Any] | None = None
    terminal: Sequence[str] = ()
    fallback: str = "narrowed"
    reminders: ReminderTexts | None = None
    prior_messages: Sequence[Message] = ()
    steering: InputSource | None = None
    follow_ups: InputSource | None = None
    wrap_up: WrapUpSignal | None = None
    gates: Sequence[ToolGate] = ()
    transforms: Sequence[ContextTransform] = ()
    hooks: Sequence[HookConfig] = ()
    store: Store | None = None
    session: str | None = None
    keep: bool = True
    keep_events: bool | None = None
    home: Path | str | None = None
    env: Mapping[str, str] | None = None
    _session: Session | None = field(default=None, init=False, repr=False)
    _turn: RunningTurn | None = field(default=None, init=False, repr=False)
    _shape: TypeAdapter[OutputT] | None = field(default=None, init=False, repr=False)
    _thread: LoopThread | None = field(default=None, init=False, repr=False)
    _finish: str = field(default="", init=False, repr=False)

    async def __aenter__(self) -> Self:
        """Open the session. Raises ``ConfigError``, ``UsageError`` or a ``StoreError``."""
        if self._session is not None:
            raise UsageError("this agent is open already", "make another one")
        env = dict(os.environ if self.env is None else self.env)
        if self.home is not None:
            env["AGENTCLI_HOME"] = str(self.home)
        if self.store is not None and self.session is not None:
            raise UsageError("session names a file, store is another place", "give one of them")
        ports = ("messages", "state", "events")
        if self.store is not None and not all(hasattr(self.store, port) for port in ports):
            raise UsageError(f"a store has {', '.join(ports)}", "see: agent help library, Seams")
        given = {
            "sandbox": self.sandbox,
            "max_answers_without_tools": self.max_answers_without_tools,
            "keep_events": self.keep_events,
        }
        approver = _Approver(self.approve)
        self._session = await open_session(settings_of(env, given), self._options(), approver)
        return self

    def __enter__(self) -> Self:
        """Open the session for a program without an event loop; raises as ``async with`` does."""
        if self._thread is not None:
            raise UsageError("this agent is open already", "make another one")
        self._thread = LoopThread()
        try:
            return self._thread.run(self.__aenter__())
        except BaseException:
            self._end_thread()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel what runs, join it, close the session and end the thread."""
        try:
            self.thread.run(self.__aexit__(kind, error, traceback))
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    @property
    def thread(self) -> LoopThread:
        """What runs the agent of a program without an event loop. Raises ``UsageError``."""
        if self._thread is None:
            raise UsageError("this agent is not open with: with", "await run_to_end instead")
        return self._thread

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

    def run_sync(
        self, prompt: str | UserMessage, *, timeout_s: float | None = None
    ) -> AgentResult[OutputT]:
        """As ``run_to_end``, for a program without an event loop, or in a thread that may wait.

        Opens the agent for this one turn where it is not open; inside of ``with`` the session goes
        on. Raises ``UsageError`` inside of ``async with``.
        """
        if self._thread is None and self._session is None:
            with self:
                return self.run_sync(prompt, timeout_s=timeout_s)
        return self.thread.run(self.run_to_end(prompt, timeout_s=timeout_s))

    async def run_to_end(
        self, prompt: str | UserMessage, *, timeout_s: float | None = None
    ) -> AgentResult[OutputT]:
        """One turn to its end. Raises the ``AgentError`` of a turn that failed.

        One whose time is over has the outcome ``timed_out``, and what there was of its text.
        """
        session, last = self._open(), None
        async for event in self.run(prompt, timeout_s=timeout_s):
            last = event
        if isinstance(last, Failed):
            raise last.error
        if not isinstance(last, TerminalEvent):
            raise AgentError("the turn ended without saying how", "this is a bug; see the log")
        summary = last.summary
        is_due = self.output is not None and summary.outcome in {Outcome.DONE, Outcome.WRAPPED_UP}
        return AgentResult(
            text=summary.text,
            outcome=summary.outcome,
            steps=summary.steps,
            usage=summary.usage,
            cost_usd=summary.cost_usd,
            duration_s=summary.duration_s,
            session_id=session.id,
            structured=self._instance(summary.structured),
            has_output=is_due or summary.structured is not None,
        )

    def _instance(self, value: Any) -> OutputT | None:
        """The result as an instance of ``output``; it was checked when the model gave it."""
        if value is None or self._shape is None:
            found: OutputT | None = value
            return found
        return self._shape.validate_json(json.dumps(value))

    def interrupt(self) -> bool:
        """Cancel the running turn; false when there is none. May be called from any thread."""
        self._open()
        if self._turn is None or self._turn.task.done():
            return False
        loop = self._turn.task.get_loop()
        if loop is _running_loop():
            self._turn.token.cancel()
        else:
            loop.call_soon_threadsafe(self._turn.token.cancel)
        return True

    def finish(self, reason: str = _WRAP_UP) -> None:
        """Tell the agent to finish the running turn, which then is ``wrapped_up`` (CTRL-7)."""
        self._open()
        self._finish = reason

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
    def notices(self) -> tuple[str, ...]:
        """Lines for the user from its opening: what was repaired, what answers, what is missing."""
        return tuple(self._open().notices)

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
        self._finish = ""
        token = CancelToken()
        task = asyncio.create_task(_bounded(session, message, timeout_s, token))
        remove = session.add_listener(listen)
        task.add_done_callback(lambda _: remove())
        self._turn = RunningTurn(task, token)
        return self._turn

    def _options(self) -> SessionOptions:
        own = tuple(function_tool(each, options_of(each)) for each in self.tools)
        free = tuple(made.name for made in own if not made.always_ask)
        info = self.model if isinstance(self.model, ModelInfo) else None
        wrap_up = () if self.wrap_up is None else (self.wrap_up,)
        return SessionOptions(
            cwd=Path(self.cwd or Path.cwd()).absolute(),
            model=info.id if info is not None else self.model,  # type: ignore[arg-type]  # no ModelInfo here
            model_info=info,
            add_dirs=tuple(Path(each).absolute() for each in self.add_dirs),
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
            result=self._result(),
            own_tools=own,
            terminal=tuple(self.terminal),
            fallback=self.fallback,
            seams=Seams(
                provider=self.provider,
                store=self.store,
                messages=tuple(self.prior_messages),
                gates=tuple(self.gates),
                transforms=tuple(self.transforms),
                steering=() if self.steering is None else (self.steering,),
                follow_ups=() if self.follow_ups is None else (self.follow_ups,),
                wrap_up=(lambda: self._finish, *wrap_up),
                reminders=self.reminders,
                temperature=self.temperature,
                request_fields=self.request_fields,
                hooks=tuple(self.hooks),
            ),
        )

    def _result(self) -> Any:
        """The shape that an answer shall have. Raises ``UsageError``."""
        self._shape = None
        if self.output is None or isinstance(self.output, Mapping | bool):
            return None if self.output is None else result_schema(self.output)
        try:
            shape = TypeAdapter[OutputT](self.output)
            schema = shape.json_schema()
        except PydanticUserError as error:
            what = str(error).splitlines()[0]
            raise UsageError(f"output has no JSON schema: {what}", "give a model class") from None
        self._shape = shape
        return result_schema(schema, lambda value: _problems(shape, value))


def _problems(shape: TypeAdapter[Any], value: Any) -> tuple[ArgumentProblem, ...]:
    """What a type asks for beyond its schema: validators of its own."""
    try:
        shape.validate_json(json.dumps(value))
    except ValidationError as error:
        return tuple(
            ArgumentProblem(".".join(map(str, item["loc"])) or "(all)", item["msg"])
            for item in error.errors(include_url=False, include_input=False)
        )
    return ()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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

    Of an agent that is open with ``with`` they can be had with ``for`` as well.

    Law: when the terminal event is given out the turn is over and another may begin. Anyone who
    waits for an event and is cancelled cancels the turn, and goes on when it has ended; an
    iterator that is dropped before its end cancels the turn at once, not when an asynchronous
    generator happens to be closed.
    """

    def __init__(self, agent: Agent[Any], message: UserMessage, timeout_s: float | None) -> None:
        self._agent = agent
        self._message = message
        self._timeout_s = timeout_s
        self._events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        self._turn: RunningTurn | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[AgentEvent]:
        """The same for a program without an event loop. Raises ``UsageError``."""
        thread = self._agent.thread
        try:
            while (event := thread.run(anext(self, None))) is not None:
                yield event
        finally:
            thread.run(self.aclose())

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


# --- without an event loop of one's own -------------------------------------------------------

_Value = TypeVar("_Value")


class LoopThread:
    """Runs coroutines for threads that have no event loop, or have one that must not wait.

    Law: what is submitted is joined before the caller goes on, also when Ctrl-C interrupts the
    wait: it is then cancelled first.
    """

    def __init__(self) -> None:
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="agentcli", daemon=True
        )
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(started.set)
            self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """The result of ``work``, or its exception."""
        tasks: list[asyncio.Task[Any] | None] = []

        async def owned() -> _Value:
            tasks.append(asyncio.current_task())
            return await work

        done = asyncio.run_coroutine_threadsafe(owned(), self._loop)
        try:
            return done.result()
        except BaseException:
            if not done.done():  # the wait was interrupted
                self._loop.call_soon_threadsafe(_cancel, tasks)
                wait([done])
            raise

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _cancel(tasks: list[asyncio.Task[Any] | None]) -> None:
    for task in tasks:
        if task is not None:
            task.cancel()
