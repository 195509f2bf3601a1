"""Between the user's input and the chat: what an input offers, what its keys and signals do.

Law: Ctrl-C while the agent works cancels and keeps the chat, again forces; at the prompt it
clears, hints, leaves (CAN-13, ``Interrupts``). What is typed while the agent works is durable
before it is said to wait (UI-3).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.events import AgentEvent, BackgroundChanged
from agentcli.domain.ports import PermissionMode, QueueSource
from agentcli.repl import commands as registry
from agentcli.repl.commands import Chat
from agentcli.repl.open_session import OpenSession
from agentcli.repl.outside import edit_text, end_programs, log_in, needs_terminal
from agentcli.repl.panel import Panel
from agentcli.repl.terminal import Terminal
from agentcli.repl.turn_view import TurnView
from agentcli.ui import wording
from agentcli.ui.theme import DIM

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundTask
    from agentcli.repl.pager import Paging


class Left(Exception):
    """The user, or a signal, ended the chat."""


class ChatInput(Protocol):
    """Where the user types: ``LiveInput`` stays on screen, ``LineInput`` asks line by line."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """The input is there until the block ends."""

    async def next_text(self) -> str:
        """What was typed and sent; empty to send what waits. Raises ``Left``."""

    def send(self, text: str) -> None:
        """As if ``text`` had been typed and sent; what is being typed stays.

        An empty one sends what waits, now or with what is being typed.
        """

    def give_back(self, text: str) -> None:
        """Put ``text`` into the input, to be edited."""

    def working(self) -> AbstractContextManager[None]:
        """The agent works until the block ends."""

    async def choose(self, panel: Panel) -> None:
        """Show ``panel`` until it is answered, or left without an answer."""

    async def line(
        self, label: str, panel: Panel | None = None, start: str = "", hint: str = ""
    ) -> str | None:
        """One line from the user, about what ``panel`` shows; ``None`` when it was refused."""

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Let something else have the terminal until the block ends."""

    def show_todos(self, lines: Sequence[str]) -> None:
        """Show the agent's list of things to do until another is given; nothing for none."""

    def announce(self, line: str) -> None:
        """Print a painted line above what is being typed."""

    def refresh(self) -> None:
        """Something that is shown has changed."""

    def press_ctrl_c(self) -> None:
        """SIGINT came from outside: the same as the key."""

    def close(self) -> None:
        """End the input; ``next_text`` raises ``Left``."""


# --- what Ctrl-C means (CAN-13) ---------------------------------------------------------------

LEAVE_WITHIN_S = 2.0


class Situation(Enum):
    """What the chat is doing when Ctrl-C comes."""

    WORKING = auto()
    CANCELLING = auto()
    TEXT_IN_PROMPT = auto()
    EMPTY_PROMPT = auto()


class Action(Enum):
    """What to do about it."""

    CANCEL = auto()
    FORCE = auto()
    CLEAR = auto()
    HINT = auto()
    LEAVE = auto()


class Interrupts:
    """What Ctrl-C means, as a pure state machine.

    ============================  ======================================================
    when Ctrl-C is pressed        what happens
    ============================  ======================================================
    the agent works               ``CANCEL`` the turn, keep the program
    a cancel is under way         ``FORCE``: skip the grace period and kill
    there is text in the prompt   ``CLEAR`` the text
    the prompt is empty           ``HINT``: say how to leave; within 2 s again: ``LEAVE``
    ============================  ======================================================
    """

    __slots__ = ("_hinted_at",)

    def __init__(self) -> None:
        self._hinted_at: float | None = None

    def press(self, situation: Situation, now: float) -> Action:
        """Ctrl-C was pressed at ``now`` (seconds of a monotonic clock)."""
        hinted_at, self._hinted_at = self._hinted_at, None
        match situation:
            case Situation.WORKING:
                return Action.CANCEL
            case Situation.CANCELLING:
                return Action.FORCE
            case Situation.TEXT_IN_PROMPT:
                return Action.CLEAR
            case Situation.EMPTY_PROMPT:
                if hinted_at is not None and now - hinted_at <= LEAVE_WITHIN_S:
                    return Action.LEAVE
                self._hinted_at = now
                return Action.HINT

    def forget(self) -> None:
        """Something else was done: the next Ctrl-C is a first one."""
        self._hinted_at = None


# --- jobs beside the agent's work -------------------------------------------------------------

Job = Callable[[], Awaitable[None]]


class Jobs:
    """Small things such as queueing, in the order in which they were asked for.

    ``show_error`` gets an error of the program's own; a bug is raised where the chat ends.
    """

    def __init__(self, show_error: Callable[[str], None]) -> None:
        self._show_error = show_error
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()

    def add(self, job: Job) -> None:
        """Do ``job`` when all that was asked before is done."""
        self._waiting.put_nowait(job)

    async def done(self) -> None:
        """Wait until nothing waits."""
        await self._waiting.join()

    @asynccontextmanager
    async def running(self, *, finish: bool = True) -> AsyncIterator[None]:
        """Jobs are done until the block ends; to ``finish``, those under way are finished first."""
        worker = asyncio.ensure_future(self._work())
        try:
            yield
            if not finish:
                return
            finished = asyncio.ensure_future(self.done())
            await asyncio.wait({worker, finished}, return_when=asyncio.FIRST_COMPLETED)
            finished.cancel()
        finally:
            worker.cancel()
            await asyncio.wait({worker})
            if not worker.cancelled() and (error := worker.exception()) is not None:
                raise error

    async def _work(self) -> None:
        while True:
            job = await self._waiting.get()
            try:
                await job()
            except (AgentError, OSError) as error:
                self._show_error(str(error))
            finally:
                self._waiting.task_done()


# --- actions ----------------------------------------------------------------------------------

HINT = "To leave, press Ctrl-C again or Ctrl-D."
_CYCLE = (
    PermissionMode.DEFAULT,
    PermissionMode.ACCEPT_EDITS,
    PermissionMode.AUTO,
    PermissionMode.PLAN,
)


class ActingChat(Chat, Protocol):
    """The chat as its keys see it."""

    @property
    def input(self) -> ChatInput:
        """Where the user types."""

    @property
    def jobs(self) -> Jobs:
        """Small things to do beside the agent's work."""

    async def run_command(self, text: str) -> None:
        """A slash command."""

    def terminal_gone(self) -> None:
        """The window was closed."""

    def name_window(self) -> None:
        """What the title says has changed."""

    @property
    def terminal(self) -> Terminal:
        """What the chat is shown on."""


class ChatActions:
    """What a key, or a signal, can ask of the chat."""

    def __init__(self, chat: ActingChat, view: TurnView, opened: OpenSession) -> None:
        self._chat = chat
        self._view = view
        self._opened = opened
        self._interrupts = Interrupts()
        self._working = False
        self._cancelling = False
        self._token: CancelToken | None = None
        self._todos_shown = False
        self._paging: Paging | None = None
        view.on_todos = self._todos_changed

    @property
    def is_working(self) -> bool:
        """Whether the agent works."""
        return self._working

    @contextmanager
    def working(self, token: CancelToken | None) -> Iterator[None]:
        """The agent works until the block ends; ``token`` stops it, else the session does."""
        self._working, self._cancelling, self._token = True, False, token
        try:
            yield
        finally:
            self._working, self._cancelling, self._token = False, False, None

    def forget_hint(self) -> None:
        """Something was done: the next Ctrl-C is a first one."""
        self._interrupts.forget()

    def interrupt(self, reason: CancelReason = CancelReason.USER) -> None:
        """Ctrl-C or Esc while the agent works, or a signal."""
        session = self._opened.session
        if not self._working or session is None:
            return
        situation = Situation.CANCELLING if self._cancelling else Situation.WORKING
        force = self._interrupts.press(situation, time.monotonic()) is Action.FORCE
        if self._token is not None:
            self._token.cancel(reason, force=force)
            self._cancelling = True
        else:
            self._cancelling = session.interrupt(reason, force=force) or self._cancelling
        self._view.cancelling()

    def end_all(self, reason: CancelReason) -> None:
        """Stop the agent, and the programs that have the terminal."""
        end_programs()
        if self._paging is not None:
            self._paging.stop()
        self.interrupt(reason)

    async def edit(self, text: str) -> str:
        """``text`` as the user's editor leaves it. Raises ``AgentError``."""
        async with self._chat.input.aside():
            return await asyncio.to_thread(edit_text, text, self._chat.user.cwd, os.environ)

    async def log_in(self, provider: str) -> bool:
        """Let the user store a key of ``provider``; whether that was done."""
        async with self._chat.input.aside():
            return await asyncio.to_thread(log_in, provider, os.environ)

    def ctrl_c_at_prompt(self, *, had_text: bool) -> str | None:
        """Ctrl-C at the prompt; a hint to show, or nothing. Raises ``Left``."""
        situation = Situation.TEXT_IN_PROMPT if had_text else Situation.EMPTY_PROMPT
        action = self._interrupts.press(situation, time.monotonic())
        if action is Action.LEAVE:
            raise Left
        return HINT if action is Action.HINT else None

    def arguments_of(self, name: str) -> Sequence[str]:
        """What the argument of a slash command may be, for completion."""
        found = registry.find(name)
        return found.completes(self._chat) if found and self._opened.session else ()

    def resources(self) -> Mapping[str, str]:
        """What MCP servers have to read, for completion."""
        session = self._opened.session
        return session.resource_names() if session else {}

    @staticmethod
    def check_typed(command: str) -> None:
        """Whether ``!command`` can run here; raises ``UsageError``."""
        if program := needs_terminal(command):
            advice = "run it in another window, or press Ctrl-Z, run it, and come back with fg"
            raise UsageError(f"{program} needs a terminal of its own", advice)
        if not command:
            raise UsageError("no command after !", "for example: !git status")

    def typed_while_working(self, text: str) -> None:
        """Enter while the agent works: queue it, or run a command that is safe now."""
        parsed = registry.parse(text)
        if registry.is_leaving(text):
            self._chat.show([registry.HOW_TO_LEAVE])
            return
        if registry.parse_typed(text):
            self._chat.input.send(text)
            self._chat.show(["The command waits until this is done; Esc stops it."])
            return
        if parsed is None or registry.is_prompt(text):
            self._chat.jobs.add(lambda: self._enqueue(text))
            return
        found = registry.find(parsed[0])
        if found is None:
            self._chat.show([" ".join(registry.unknown(parsed[0]))])
            self._chat.input.give_back(text)
        elif found.while_working:
            self._chat.jobs.add(lambda: self._chat.run_command(text))
        else:
            self._chat.input.send(text)
            self._chat.show([f"/{parsed[0]} waits until this is done; Esc stops it."])

    async def _enqueue(self, text: str) -> None:
        await self._chat.session.enqueue(text)
        self._chat.input.refresh()

    def recall(self) -> str:
        """Up on an empty line: take back what was queued last; empty when nothing is."""
        typed = [item for item in self._opened.queue() if item.source is QueueSource.USER]
        if not typed:
            return ""
        last = typed[-1]

        async def take_back() -> None:
            if await self._chat.session.drop_queued(last.id):
                self._chat.input.give_back(last.text)

        self._chat.jobs.add(take_back)
        return last.text

    def has_waiting(self) -> bool:
        """Whether queued text waits to be sent with the next Enter."""
        return bool(self._opened.queue())

    def cycle_mode(self) -> None:
        """Shift-Tab: the next permission mode; from ``yolo`` back to the first."""
        session = self._opened.session
        if session is None:
            return
        mode = session.mode
        following = _CYCLE[(_CYCLE.index(mode) + 1) % len(_CYCLE)] if mode in _CYCLE else _CYCLE[0]
        session.set_mode(following)
        self._chat.input.refresh()
        self._chat.name_window()

    def toggle_todos(self) -> None:
        """Ctrl-T: show or hide the agent's list of things to do."""
        self._todos_shown = not self._todos_shown
        self._chat.jobs.add(self.refresh_todos)

    def _todos_changed(self) -> None:
        if self._todos_shown:
            self._chat.jobs.add(self.refresh_todos)

    async def refresh_todos(self) -> None:
        """Show the list as it is now, where it is shown."""
        lines: list[str] = []
        if self._todos_shown:
            lines = wording.todo_lines(await self._chat.session.todos())
        self._chat.input.show_todos(lines)

    def move_to_background(self) -> None:
        """Ctrl-B: the running command goes on as a background run (UI-3)."""
        session = self._opened.session
        if session is None or not session.move_to_background():
            self._chat.show(["No command is running that can go to the background."])

    def open_transcript(self) -> None:
        """Ctrl-O: the whole session at its last tool call, in a pager (UI-12)."""
        from agentcli.repl.pager import Paging

        chat, opening = self._chat, self._paging
        if opening is not None:  # the same key closes it, be it before it is seen
            opening.stop()
            self._paging = None
            return
        paging = Paging(chat.terminal, chat.user.cwd, chat.input.aside, chat.terminal_gone)
        self._paging = paging
        chat.jobs.add(lambda: self._page(paging))

    async def _page(self, paging: Paging) -> None:
        try:
            if not await paging.show(self._chat.session, self._view.last_output):
                self._chat.show(["Nothing was said in this session. No tool was called yet."])
        finally:
            if self._paging is paging:
                self._paging = None

    def announce(self, text: str) -> None:
        """A line of news, above what is being typed."""
        self._chat.input.announce(self._chat.theme.paint(text, DIM))

    def announce_question(self, task: BackgroundTask) -> None:
        """What a run asks, and how it is answered."""
        session = self._opened.session
        background = session.background if session is not None else None
        tasks = background.tasks() if background is not None else ()
        number = next((at for at, each in enumerate(tasks, 1) if each.run_id == task.run_id), 0)
        self._chat.input.announce(wording.background_asks(task, number))

    def send_runs(self) -> bool:
        """Let an idle agent answer its background runs; false when it works, or more waits."""
        waiting = self._opened.queue()
        only_runs = all(item.source is QueueSource.BACKGROUND for item in waiting)
        if self._working or not waiting or not only_runs:
            return False
        self._chat.input.send("")
        return True

    def rewind(self) -> None:
        """Esc Esc on an empty line."""
        self._chat.input.send("/rewind")

    def terminal_gone(self) -> None:
        """The window was closed."""
        self._chat.terminal_gone()


# --- background runs that end, report or ask (BG-5, BG-9) -------------------------------------

MAX_REACTIONS = 20


class BackgroundNews:
    """Says when a background run ends or asks; an idle agent that ``reacts`` answers at once.

    What of a run makes it react is the run's ``wake``; ``call`` tells the user that one asks.

    Law: nothing that is being typed is sent or lost by it, nothing that the user has queued is sent
    by it, and an agent that only answers its own runs comes to rest: after ``MAX_REACTIONS`` in a
    row the user has to say something.
    """

    def __init__(self, actions: ChatActions, call: Callable[[str], None], *, reacts: bool) -> None:
        self._actions = actions
        self._call = call
        self._reacts = reacts
        self._reactions = 0

    def said(self, text: str) -> None:
        """The user has said something, or (an empty text) the chat goes on by itself."""
        if text.strip():
            self._reactions = 0

    def on_event(self, event: AgentEvent) -> None:
        """A listener of the session."""
        if not isinstance(event, BackgroundChanged):
            return
        if event.asks is not None:
            self._actions.announce_question(event.asks)
            self._call("a background run asks")
        if event.ended is not None:
            self._actions.announce(wording.background_ended(event.ended))
        reported, ended = event.asks or event.told, event.ended
        wakes = (reported and reported.wakes_on_message) or (ended and ended.wakes_on_end)
        if wakes and self._reacts and self._reactions < MAX_REACTIONS and self._actions.send_runs():
            self._reactions += 1
