"""The chat: take what is typed, run the turn, show it, go on.

Law: the user can always stop what runs and is never thrown out by it (CAN-13); SIGTERM and
SIGHUP cancel like Ctrl-C, let the turn commit, and end the program with 143 and 129; text that
was typed is never lost; the terminal is always given back as it was.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from typing import TypeVar

from agentcli.app.library import NewestUnreadable, SessionLibrary
from agentcli.app.session import Session
from agentcli.app.user_files import UserFiles
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, TurnCancelled
from agentcli.domain.events import Outcome, Prompt, TurnSummary
from agentcli.repl import commands as registry
from agentcli.repl.actions import BackgroundNews, ChatActions, ChatInput, Jobs, Left
from agentcli.repl.approve import Questions
from agentcli.repl.choosing import MAX_PICKED, Choosing
from agentcli.repl.commands import SlashCommand
from agentcli.repl.open_session import Attention, OpenSession
from agentcli.repl.terminal import Terminal
from agentcli.repl.turn_view import TurnView

T = TypeVar("T")
_COMPLETE = frozenset({Outcome.DONE, Outcome.WRAPPED_UP, Outcome.MAX_TOKENS})
GONE = 128 + signal.SIGHUP  # the exit code when the terminal went away
_ENDING: Mapping[signal.Signals, CancelReason] = {
    signal.SIGTERM: CancelReason.SIGTERM,
    signal.SIGHUP: CancelReason.SIGHUP,
    signal.SIGQUIT: CancelReason.SIGTERM,  # asks for the same; a core of ours helps nobody
}


async def run_chat(
    sessions: SessionLibrary,
    user: UserFiles,
    first_prompt: str | None = None,
    *,
    pick_first: bool = False,
) -> int:
    """Chat until the user leaves; the exit code (CLI-6).

    ``pick_first`` lets the user choose the session to begin with. Raises ``AgentError`` when
    no session can be opened.
    """
    settings = user.settings
    terminal = Terminal(settings.theme, screen_reader=settings.screen_reader)
    try:
        with terminal.in_use():
            try:
                return await _Chat(sessions, user, terminal).run(
                    first_prompt, pick_first=pick_first
                )
            except Exception:
                terminal.give_up_typed()
                raise
    finally:
        terminal.close()


class _Chat:
    """One run of the program's chat; satisfies ``commands.Chat``."""

    def __init__(self, sessions: SessionLibrary, user: UserFiles, terminal: Terminal) -> None:
        self.sessions = sessions
        self.user = user
        self.theme = terminal.theme
        self.terminal = terminal
        self._screen = terminal.screen
        self._folds = user.settings.thinking == "folded"
        self._view = TurnView(self._screen, folds=self._folds)
        self._attention = Attention(self._screen, user.settings.notifications)
        self._opened = OpenSession()
        self._opened.on_background = self._background_changed
        self.jobs = Jobs(self._view.show_error)
        self._actions = ChatActions(self, self._view, self._opened)
        self.input = self._make_input()
        self._questions = Questions(self._screen, user, self.input, self._actions.interrupt)
        self._questions.on_waiting = self._attention.call
        self._questions.on_answered = self._view.answered
        self._view.on_long_turn = lambda _: self._attention.call("the agent has finished")
        self._choosing = Choosing(self.input)
        self.choose = self._choosing.row
        self._looked_for: Session | None = None  # whose sandbox
        self._looking = Jobs(self._view.show_error)  # nothing that is asked for waits for that
        self._leaving = False
        self._in_command = False  # whose line stands for what it says
        self._exit_code = 0
        self._news = BackgroundNews(
            self._actions, self._attention.call, reacts=user.settings.background_reacts
        )

    def _make_input(self) -> ChatInput:
        """The live input where the terminal can show it, else line by line."""
        if not self.theme.live:
            from agentcli.repl.line_input import LineInput

            return LineInput(self.terminal, self._view, self._actions, self.user)
        from agentcli.repl.live_input import LiveInput

        return LiveInput(self.terminal, self._view, self._actions, self._opened, self.user)

    # --- commands.Chat ---------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The conversation that is open."""
        if self._opened.session is None:
            raise RuntimeError("no session is open")
        return self._opened.session

    def show(self, lines: Sequence[str]) -> None:
        """Print painted lines."""
        if self._actions.is_working:
            self._screen.print_aside(lines)
        else:
            self._screen.print_block(lines)

    async def say(self, text: str) -> None:
        """Run a turn with what was typed, after what waits; an empty text sends what waits."""
        try:
            if self.session.queued():
                if text.strip():
                    await self.session.enqueue(text)
                summary = await self._turn(self.session.run_queued)
            elif text.strip():
                self._view.echo(text, shown=not self._in_command)
                prompt = await self._prompt(text)
                summary = await self._turn(lambda: self.session.run(prompt))
            else:
                return
            while summary and summary.outcome in _COMPLETE and self.session.queued():
                summary = await self._turn(self.session.run_queued)
        except AgentError as error:
            self._view.show_error(error.message, error.advice)
            self.input.give_back(text)

    async def send(self, making: AbstractAsyncContextManager[Prompt | None]) -> None:
        """Run a turn with the prompt that ``making`` gives, after what waits; see ``Chat``."""
        while self.session.queued():
            await self._turn(self.session.run_queued)
        async with making as prompt:
            if prompt is None:
                return
            self._view.echo(prompt.message.text, shown=False)
            summary = await self._turn(lambda: self.session.run(prompt))
        while summary and summary.outcome in _COMPLETE and self.session.queued():
            summary = await self._turn(self.session.run_queued)

    def send_to_terminal(self, sequence: str) -> bool:
        """A control sequence of our own that moves nothing."""
        self._screen.send(sequence)
        return self.theme.live

    def open_transcript(self) -> None:
        """Show the whole session in a pager."""
        self._actions.open_transcript()

    def leave(self) -> None:
        """End the chat."""
        self._leaving = True
        self.input.close()
        self._choosing.stop()

    async def switch_to(self, session_id: str | None) -> None:
        """Open another session; when that fails this one stays open."""
        self.sessions.mode_before = self.session.mode
        if session_id is None:
            opened = await self.sessions.open_new(self._questions, self.session.model.id)
        elif await self._leads_away(session_id):
            self.sessions.came_from = self.session.id if self.session.turns else ""
            return
        else:
            opened = await self.sessions.open_existing(session_id, self._questions)
        await self._close_session("clear" if session_id is None else "resume")
        self._adopt(opened)
        if session_id is None:
            self.show(["A new session. The one before can be resumed with /resume."])

    async def _leads_away(self, session_id: str) -> bool:
        """Whether the chat goes on with that session in its own worktree, and ends here."""
        self.sessions.leads_to = await self.sessions.elsewhere(session_id)
        if self.sessions.leads_to:
            self.leave()
        return bool(self.sessions.leads_to)

    async def reload(self) -> None:
        """Open this session again, with what the user brings as it is by now."""
        self.user.settings, notices = await self.sessions.reread()
        old = self.session
        self.sessions.mode_before = old.mode
        kept, model = (old.id if old.turns else None), old.model.id
        self._opened.adopt(None)
        await old.aclose("resume")
        try:
            if kept is None:
                opened = await self.sessions.open_new(self._questions, model)
            else:
                opened = await self.sessions.open_existing(kept, self._questions)
        except AgentError as error:
            self._view.show_error(str(error))
            opened = await self.sessions.open_new(self._questions, model)
        opened.go_on_as(old)
        self._adopt(opened, replays=False)
        for notice in notices:
            opened.notify(notice)

    async def pick_session(self) -> str | None:
        """Let the user choose among the sessions; ``None`` also when a signal ended that."""
        infos = await self.sessions.newest(MAX_PICKED)
        if not infos:
            self.show(["There is no session yet."])
            return None
        return await self._choosing.session(infos, self.sessions)

    def put_in_input(self, text: str) -> None:
        """Let the user edit ``text`` and say it."""
        self.input.give_back(text)

    async def edit(self, text: str) -> str:
        """``text`` as the user's editor leaves it."""
        return await self._actions.edit(text)

    async def log_in(self, provider: str) -> bool:
        """Let the user store a key of ``provider``; whether that was done."""
        return await self._actions.log_in(provider)

    def commands(self) -> Sequence[SlashCommand]:
        """All commands, by name."""
        return registry.all_commands()

    async def _prompt(self, text: str) -> Prompt:
        """What was typed, with what it names; of servers only if that was not cancelled."""
        message = await self.user.message(text, self.session.notify)
        if "@" not in text or self.session.servers is None:
            return Prompt(message)
        read = self.session.with_resources
        found = await self.work(lambda token: read(message, text, token), "reading resources")
        return Prompt(found or message)

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

    async def run_command(self, text: str) -> None:
        """A slash command. Raises ``AgentError``."""
        parsed = registry.parse(text)
        found = registry.find(parsed[0]) if parsed else None
        if parsed and found:
            await found.run(self, parsed[1])

    def terminal_gone(self) -> None:
        """The window was closed: the same as SIGHUP, which may come later than the news."""
        self._exit_code = self._exit_code or GONE
        self._leaving = True
        self._actions.end_all(CancelReason.SIGHUP)
        self.input.close()

    # --- the loop --------------------------------------------------------------------------

    async def run(self, first_prompt: str | None, *, pick_first: bool) -> int:
        """Until the user leaves."""
        with chat_signals(self._on_sigint, self._on_end_signal):
            unreadable = None
            try:
                if not pick_first:
                    try:
                        await self._open_first(None)
                    except NewestUnreadable as error:
                        unreadable = error
                asking = self._opened.asking(self.user, self.theme, self.input.refresh)
                looking = self._looking.running(finish=False)  # it may wait for what hangs
                async with looking, self.jobs.running(), self.input.running(), asking:
                    if pick_first:
                        await self._open_first(await self.pick_session())
                    if unreadable is not None:
                        await self._open_instead(unreadable)
                    await self._converse(first_prompt)
            finally:
                self._attention.give_title_back()
                await self._close_session("other" if self._exit_code else "prompt_input_exit")
        return self._exit_code

    async def _open_first(self, chosen: str | None) -> None:
        if self._leaving:
            return
        if chosen is not None and await self._leads_away(chosen):
            return
        if chosen is not None:
            self._adopt(await self.sessions.open_existing(chosen, self._questions))
        else:
            self._adopt(await self.sessions.open_first(self._questions))

    async def _open_instead(self, error: NewestUnreadable) -> None:
        """Let the user say what is opened where the newest session cannot be (REC-7)."""
        self._view.show_error(error.message)
        chosen = await self._choosing.instead_of(error)
        if self._leaving:
            return
        if chosen is None:
            raise error
        if not chosen:
            self._adopt(await self.sessions.open_fresh(self._questions))
            return
        if chosen == error.session_id:
            self.show(await self.sessions.repair(chosen))
        await self._open_first(chosen)

    async def _converse(self, first_prompt: str | None) -> None:
        text = (first_prompt or "").strip()
        while not self._leaving:
            try:
                if not text and self._looked_for is not self.session:
                    self._looked_for = self.session
                    self._looking.add(partial(self._look_for_sandbox, self.session))
                text = text or await self.input.next_text()
                self._news.said(text)
                await self._handle(text)
            except Left:
                return
            self.name_window()
            text = ""

    async def _look_for_sandbox(self, session: Session) -> None:
        """Once the prompt is there, which does not wait for it (SEC-7)."""
        await asyncio.to_thread(self.terminal.drain)
        if self._opened.session is session:  # one that is closed would leave its places behind
            await session.look_for_sandbox()
        self.name_window()
        self.input.refresh()

    async def _handle(self, text: str) -> None:
        """Do what was typed; what could not be used comes back to be edited."""
        self._actions.forget_hint()
        typed, command = registry.parse_typed(text), registry.parse(text)
        if registry.is_leaving(text):
            self.show([registry.HOW_TO_LEAVE])
            return
        if typed is None and registry.is_prompt(text):
            await self.say(text)
            return
        self._view.echo(text)
        try:
            if typed is not None:
                self._actions.check_typed(typed[0])
                await self._view.run_typed(self, typed[0], remember=typed[1])
            elif command is not None and (found := registry.find(command[0])):
                self._in_command = True
                await found.run(self, command[1])
            elif command is not None:
                self._view.show_error(*registry.unknown(command[0]))
                self.input.give_back(text)
        except (AgentError, OSError) as error:
            self._view.show_error(str(error))
        finally:
            self._in_command = False

    async def _turn(self, run: Callable[[], Awaitable[TurnSummary | None]]) -> TurnSummary | None:
        try:
            with self._busy(None):
                summary = await run()
                await self.jobs.done()
                return summary
        finally:
            self._screen.end_text()
            self.name_window()

    @contextmanager
    def _busy(self, token: CancelToken | None) -> Iterator[None]:
        """The agent works: a turn of the session, or what ``token`` stops."""
        with self._actions.working(token), self.input.working():
            yield

    # --- sessions --------------------------------------------------------------------------

    def _adopt(self, session: Session, *, replays: bool = True) -> None:
        """Make ``session`` the open one and say what it is."""
        self._opened.adopt(session)
        registry.use_custom(map(registry.custom_command, session.extensions.commands))
        self._view.adopt(session.resumed)
        for listener in (self._view.on_event, self._opened.on_event, self._news.on_event):
            session.add_listener(listener)
        if replays:
            size = self._screen.size
            self.show(self._opened.replayed_lines(self.theme, size, folds=self._folds))
            self.show(self._opened.opening_lines(self.user.cwd, self.theme, size.columns))
        self._view.show_notices(session.notices)
        self.name_window()
        self.input.refresh()

    def _background_changed(self) -> None:
        self.input.refresh()
        self.name_window()

    def name_window(self) -> None:
        """Say in the window's title what the status line says (UI-6)."""
        self._opened.changed()
        if self._opened.session is not None:
            self._attention.title(self._opened.title(self.user.cwd, self.theme))

    async def _close_session(self, reason: str) -> None:
        """Close the open session and say how to come back to it (UI-9); see ``Session.aclose``."""
        session = self._opened.session
        if session is None:
            return
        farewell = self._opened.closing_lines(self.theme)
        self._opened.adopt(None)
        self.show(farewell)
        await session.aclose(reason)

    # --- signals ---------------------------------------------------------------------------

    def _on_sigint(self) -> None:
        if self._choosing.is_open:
            self._choosing.stop()
        else:
            self.input.press_ctrl_c()

    def _on_end_signal(self, reason: CancelReason, code: int) -> None:
        """SIGTERM, SIGHUP, SIGQUIT: stop what runs, then leave."""
        self._exit_code = self._exit_code or code
        self._actions.end_all(reason)
        self.leave()


@contextmanager
def chat_signals(
    on_sigint: Callable[[], None], on_end: Callable[[CancelReason, int], None]
) -> Iterator[None]:
    """Handle the chat's signals until the block ends; from then on the ending is decided.

    SIGINT is Ctrl-C; SIGTERM, SIGHUP and SIGQUIT end the chat (CAN-13): ``on_end`` gets the reason
    and the exit code (CLI-6).
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, on_sigint)
    for number, reason in _ENDING.items():
        loop.add_signal_handler(number, on_end, reason, 128 + number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, *_ENDING):
            with suppress(RuntimeError):
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
