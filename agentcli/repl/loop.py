"""The chat: take what is typed, run the turn, show it, go on.

Law: the person can always stop what runs and is never thrown out by it (CAN-13); SIGTERM and
SIGHUP cancel like Ctrl-C, let the turn commit, and end the program with 143 and 129; text that
was typed is never lost; the terminal is always given back as it was.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from agentcli.app.attachments import attach
from agentcli.app.library import SessionLibrary, UserFiles
from agentcli.app.session import Session
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, TurnCancelled
from agentcli.domain.events import Outcome, Prompt, TurnSummary
from agentcli.domain.tools import Workspace
from agentcli.repl import _slash_registry as registry
from agentcli.repl.approve import Questions
from agentcli.repl.attention import Attention
from agentcli.repl.background_news import BackgroundNews
from agentcli.repl.chat_actions import ChatActions
from agentcli.repl.choosing import Choosing
from agentcli.repl.commands import SlashCommand, custom_command
from agentcli.repl.front import Front, Left
from agentcli.repl.fronts import make_front
from agentcli.repl.jobs import Jobs
from agentcli.repl.menu import choose_row
from agentcli.repl.outside import edit_text, end_programs
from agentcli.repl.picker import pick_session
from agentcli.repl.session_facts import SessionFacts
from agentcli.repl.signals import GONE, chat_signals
from agentcli.repl.terminal import Terminal
from agentcli.repl.turn_view import TurnView
from agentcli.repl.typed_command import parse_command, run_typed
from agentcli.ui.sanitize import clean_line
from agentcli.ui.session_lines import Farewell, farewell_lines, resume_lines
from agentcli.ui.status_line import title_of
from agentcli.ui.theme import BOLD, DIM, ERROR, Theme

T = TypeVar("T")
_COMPLETE = frozenset({Outcome.DONE, Outcome.WRAPPED_UP})


async def run_chat(
    sessions: SessionLibrary,
    user: UserFiles,
    first_prompt: str | None = None,
    *,
    pick_first: bool = False,
) -> int:
    """Chat until the person leaves; the exit code (CLI-6).

    ``pick_first`` lets the person choose the session to begin with. Raises ``AgentError`` when
    no session can be opened.
    """
    settings = user.settings
    terminal = Terminal(settings.theme, screen_reader=settings.screen_reader)
    try:
        with terminal.in_use():
            return await _Chat(sessions, user, terminal).run(first_prompt, pick_first=pick_first)
    finally:
        terminal.close()


class _Chat:
    """One run of the program's chat; satisfies ``commands.Chat``."""

    def __init__(self, sessions: SessionLibrary, user: UserFiles, terminal: Terminal) -> None:
        self.sessions = sessions
        self.user = user
        self._terminal = terminal
        self._screen = terminal.screen
        self._view = TurnView(self._screen)
        self._attention = Attention(self._screen, user.settings.notifications)
        self._facts = SessionFacts()
        self._facts.on_background = self._background_changed
        self._jobs = Jobs(self._error)
        self._actions = ChatActions(self, self._view, self._facts)
        self._front: Front = make_front(terminal, self._view, self._actions, self._facts, user)
        self._questions = Questions(
            self._screen, user, lambda: self._front, self._actions.interrupt
        )
        self._questions.on_waiting = self._attention.call
        self._view.on_long_turn = lambda _: self._attention.call("the agent has finished")
        self._choosing = Choosing(lambda: self._front, self.terminal_gone)
        self._leaving = False
        self._exit_code = 0
        self._opened_at = time.monotonic()
        self._news = BackgroundNews(
            self._facts,
            self._screen,
            lambda: self._actions.is_working,
            reacts=user.settings.background_reacts,
        )
        self._news.front = self._front

    # --- commands.Chat ---------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The conversation that is open."""
        if self._facts.session is None:
            raise RuntimeError("no session is open")
        return self._facts.session

    @property
    def theme(self) -> Theme:
        """How to paint what is shown."""
        return self._terminal.theme

    def show(self, lines: Sequence[str]) -> None:
        """Print painted lines."""
        if self._actions.is_working:
            self._screen.print_aside(lines)
        else:
            self._screen.print_block(lines)

    async def say(self, text: str) -> None:
        """Say ``text`` to the agent."""
        await self._say(text)

    def send_to_terminal(self, sequence: str) -> bool:
        """A control sequence of our own that moves nothing."""
        self._screen.send(sequence)
        return self.theme.live

    def leave(self) -> None:
        """End the chat."""
        self._leaving = True
        self._front.close()
        self._choosing.stop()

    async def switch_to(self, session_id: str | None) -> None:
        """Open another session; when that fails this one stays open."""
        if session_id is None:
            opened = await self.sessions.open_new(self._questions, self.session.model.id)
        else:
            opened = await self.sessions.open_existing(session_id, self._questions)
        await self._close_session("clear" if session_id is None else "resume")
        self._adopt(opened)
        if session_id is None:
            self.show(["A new session. The one before can be resumed with /resume."])

    async def pick_session(self) -> str | None:
        """Let the person choose among the sessions; ``None`` also when a signal ended that."""
        infos = await self.sessions.list()
        if not infos:
            self.show(["There is no session yet."])
            return None
        return await self._choosing.run(pick_session(self._terminal, infos, self.sessions))

    async def choose(self, title: str, rows: Sequence[str], start: int = 0) -> int | None:
        """Let the person choose a row; ``None``: none of them."""
        return await self._choosing.run(choose_row(self._terminal, title, rows, start))

    def put_in_input(self, text: str) -> None:
        """Let the person edit ``text`` and say it."""
        self._front.give_back(text)

    async def edit(self, text: str) -> str:
        """``text`` as the person's editor leaves it."""
        async with self._front.aside():
            return await asyncio.to_thread(edit_text, text, self.user.cwd, os.environ)

    def commands(self) -> Sequence[SlashCommand]:
        """All commands, by name."""
        return registry.all_commands()

    async def work(self, run: Callable[[CancelToken], Awaitable[T]], label: str) -> T | None:
        """Do something as the agent's work; ``None`` when it was cancelled."""
        token = CancelToken()
        task = asyncio.ensure_future(run(token))

        def stop_waiting() -> None:
            if token.forced:
                task.cancel()

        forget = token.add_callback(stop_waiting)
        try:
            with self._busy(token), self._view.doing(label):
                await asyncio.wait({task})
            return task.result()
        except (TurnCancelled, asyncio.CancelledError):
            task.cancel()
            if not token.cancelled:
                raise
            self.show(["Cancelled."])
            return None
        finally:
            forget()

    # --- what the actions need -------------------------------------------------------------

    @property
    def front(self) -> Front:
        """The person's side."""
        return self._front

    @property
    def jobs(self) -> Jobs:
        """Small things to do beside the agent's work."""
        return self._jobs

    async def run_command(self, text: str) -> None:
        """A slash command. Raises ``AgentError``."""
        parsed = registry.parse(text)
        found = registry.find(parsed[0]) if parsed else None
        if parsed and found:
            await found.run(self, parsed[1])

    def terminal_gone(self) -> None:
        """The window was closed: the same as SIGHUP, which may come later than the news."""
        self._exit_code = self._exit_code or GONE
        end_programs()
        self._leaving = True
        self._actions.interrupt(CancelReason.SIGHUP)
        self._front.close()

    # --- the loop --------------------------------------------------------------------------

    async def run(self, first_prompt: str | None, *, pick_first: bool) -> int:
        """Until the person leaves."""
        with chat_signals(self._on_sigint, self._on_end_signal):
            try:
                custom, warnings = await self.user.custom_commands()
                registry.use_custom(map(custom_command, custom))
                await self._open_first(pick_first=pick_first)
                for line in warnings:
                    self.show([self.theme.paint(f"! {clean_line(line)}", DIM)])
                async with self._jobs.running(), self._front.running():
                    await self._converse(first_prompt)
            finally:
                self._attention.give_title_back()
                await self._close_session("other" if self._exit_code else "prompt_input_exit")
        return self._exit_code

    async def _open_first(self, *, pick_first: bool) -> None:
        chosen = await self.pick_session() if pick_first else None
        if self._leaving:
            return
        if chosen is not None:
            self._adopt(await self.sessions.open_existing(chosen, self._questions))
        else:
            self._adopt(await self.sessions.open_first(self._questions))

    async def _converse(self, first_prompt: str | None) -> None:
        text = (first_prompt or "").strip()
        while not self._leaving:
            try:
                text = text or await self._front.next_text()
                self._news.said(text)
                await self._handle(text)
            except Left:
                return
            self.name_window()
            text = ""

    async def _handle(self, text: str) -> None:
        """Do what was typed; what could not be used comes back to be edited."""
        self._actions.forget_hint()
        if typed := parse_command(text):
            await self._run_typed(text, *typed)
            return
        command = registry.parse(text)
        if command is None:
            await self._say(text)
            return
        self._view.echo(text)
        name, arguments = command
        found = registry.find(name)
        if found is None:
            self._error(*registry.unknown(name))
            self._front.give_back(text)
            return
        try:
            await found.run(self, arguments)
        except (AgentError, OSError) as error:
            self._error(str(error))

    async def _run_typed(self, text: str, command: str, tell: bool) -> None:  # noqa: FBT001 - what was parsed
        self._view.echo(text)
        try:
            await run_typed(self, self._view, command, tell=tell)
        except AgentError as error:
            self._error(error.message, error.advice)

    async def _say(self, text: str) -> None:
        """Run a turn with what was typed, after what waits; an empty text sends what waits."""
        try:
            if self.session.queued():
                if text.strip():
                    await self.session.enqueue(text)
                summary = await self._turn(self.session.run_queued)
            elif text.strip():
                self._view.echo(text)
                message = await attach(text, Workspace(self.user.cwd, self.user.cwd))
                summary = await self._turn(lambda: self.session.run(Prompt(message)))
            else:
                return
            while summary and summary.outcome in _COMPLETE and self.session.queued():
                summary = await self._turn(self.session.run_queued)
        except AgentError as error:
            self._error(error.message, error.advice)
            self._front.give_back(text)

    async def _turn(self, run: Callable[[], Awaitable[TurnSummary | None]]) -> TurnSummary | None:
        try:
            with self._busy(None):
                summary = await run()
                await self._jobs.done()
                return summary
        finally:
            self._screen.end_text()
            self.name_window()

    @contextmanager
    def _busy(self, token: CancelToken | None) -> Iterator[None]:
        """The agent works: a turn of the session, or what ``token`` stops."""
        with self._actions.working(token), self._front.working():
            yield

    # --- sessions --------------------------------------------------------------------------

    def _adopt(self, session: Session) -> None:
        """Make ``session`` the open one and say what it is."""
        self._facts.adopt(session)
        self._opened_at = time.monotonic()
        self._view.adopt(session.resumed)
        session.add_listener(self._view.on_event)
        session.add_listener(self._facts.on_event)
        session.add_listener(self._news.on_event)
        if session.resumed is not None:
            self.show(resume_lines(session.resumed, time.time(), self.theme))
        else:
            model = clean_line(session.model.id)
            where = clean_line(str(self.user.cwd))
            self.show([self.theme.paint("agentcli", BOLD) + f"  {model}  {where}"])
        if session.notices:
            self._screen.print_block(
                [self.theme.paint(f"! {clean_line(line)}", DIM) for line in session.notices],
                gap=False,
            )
        self.name_window()
        self._front.refresh()

    def _background_changed(self) -> None:
        self._front.refresh()
        self.name_window()

    def name_window(self) -> None:
        """Say in the window's title what the status line says (UI-6)."""
        if self._facts.session is not None:
            title = title_of(self._facts.status(), self.user.cwd.name, self.theme)
            self._attention.title(title)

    async def _close_session(self, reason: str) -> None:
        """Close the open session and say how to come back to it (UI-9); see ``Session.aclose``."""
        session = self._facts.session
        self._facts.adopt(None)
        if session is None:
            return
        end = Farewell(
            session_id=session.id,
            turns=session.turns,
            usage=session.usage,
            cost_usd=session.cost_usd,
            duration_s=time.monotonic() - self._opened_at,
        )
        self.show(farewell_lines(end, self.theme))
        await session.aclose(reason)

    def _error(self, message: str, advice: str = "") -> None:
        line = self.theme.paint(f"{self.theme.symbols.failed} {clean_line(message)}", ERROR)
        self.show([f"{line} {clean_line(advice)}".rstrip()])

    # --- signals ---------------------------------------------------------------------------

    def _on_sigint(self) -> None:
        if self._choosing.is_open:
            self._choosing.stop()
        else:
            self._front.press_ctrl_c()

    def _on_end_signal(self, reason: CancelReason, code: int) -> None:
        """SIGTERM, SIGHUP, SIGQUIT: stop what runs, then leave."""
        self._exit_code = self._exit_code or code
        end_programs()
        self._actions.interrupt(reason)
        self.leave()
