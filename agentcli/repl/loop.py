"""The chat: ask, run the turn, show it, ask again.

Law: the person can always stop what runs and is never thrown out by it (CAN-13); SIGTERM and
SIGHUP cancel like Ctrl-C, let the turn commit, and end the program with 143 and 129; text that
was typed is never lost; the terminal is always given back as it was.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, TurnCancelled
from agentcli.domain.events import Prompt
from agentcli.domain.messages import user_text
from agentcli.repl import _slash_registry as registry
from agentcli.repl.approve import Questions
from agentcli.repl.commands import SlashCommand
from agentcli.repl.completion import ChatCompleter
from agentcli.repl.host import ChatHost, ChatSession
from agentcli.repl.interrupts import Action, Interrupts, Situation
from agentcli.repl.picker import pick_session
from agentcli.repl.prompt import ChatPrompt, Left
from agentcli.repl.terminal import Terminal
from agentcli.repl.turn_view import TurnView
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.session_lines import Farewell, farewell_lines, resume_lines
from agentcli.ui.theme import BOLD, DIM, ERROR, Theme

T = TypeVar("T")
HINT = "To leave, press Ctrl-C again or Ctrl-D."
_EXIT_CODES = {CancelReason.SIGTERM: 143, CancelReason.SIGHUP: 129}


async def run_chat(
    host: ChatHost, first_prompt: str | None = None, *, pick_first: bool = False
) -> int:
    """Chat until the person leaves; the exit code (CLI-6).

    ``pick_first`` lets the person choose the session to begin with. Raises ``AgentError`` when
    no session can be opened.
    """
    terminal = Terminal()
    try:
        with terminal.in_use():
            return await _Chat(host, terminal).run(first_prompt, pick_first=pick_first)
    finally:
        terminal.close()


class _Chat:
    """One run of the program's chat; satisfies ``commands.Chat``."""

    def __init__(self, host: ChatHost, terminal: Terminal) -> None:
        self.host = host
        self._terminal = terminal
        self._screen = self._terminal.screen
        self._view = TurnView(self._screen)
        self._questions = Questions(self._terminal, self._view, self._interrupt)
        self._interrupts = Interrupts()
        self._prompt = ChatPrompt(
            self._terminal,
            ChatCompleter(registry.helps, host.cwd),
            host.history_file,
            self._ctrl_c_at_prompt,
        )
        self._session: ChatSession | None = None
        self._picking: asyncio.Task[str | None] | None = None
        self._working = False
        self._job: CancelToken | None = None
        self._cancelling = False
        self._leaving = False
        self._exit_code = 0
        self._opened_at = time.monotonic()

    # --- commands.Chat ---------------------------------------------------------------------

    @property
    def session(self) -> ChatSession:
        """The conversation that is open."""
        if self._session is None:
            raise RuntimeError("no session is open")
        return self._session

    @property
    def theme(self) -> Theme:
        """How to paint what is shown."""
        return self._terminal.theme

    def show(self, lines: Sequence[str]) -> None:
        """Print painted lines."""
        self._screen.print_block(lines)

    def leave(self) -> None:
        """End the chat."""
        self._leaving = True
        self._prompt.close()
        self._stop_picking()

    async def switch_to(self, session_id: str | None) -> None:
        """Open another session; when that fails this one stays open."""
        people = (self._questions, self._questions)
        if session_id is None:
            opened = await self.host.open_new(*people, self.session.model.id)
        else:
            opened = await self.host.open_existing(session_id, *people)
        await self._close_session()
        self._adopt(opened)
        if session_id is None:
            self.show(["A new session. The one before can be resumed with /resume."])

    async def pick_session(self) -> str | None:
        """Let the person choose among the sessions; ``None`` also when a signal ended that."""
        infos = await self.host.list_sessions()
        if not infos:
            self.show(["There is no session yet."])
            return None
        self._picking = asyncio.ensure_future(pick_session(self._terminal, infos))
        try:
            await asyncio.wait({self._picking})
            return None if self._picking.cancelled() else self._picking.result()
        except (EOFError, OSError):
            self._terminal_gone()
            return None
        finally:
            self._stop_picking()
            self._picking = None
            self._screen.cursor_was_moved()

    def _stop_picking(self) -> None:
        if self._picking is not None:
            self._picking.cancel()

    def commands(self) -> Sequence[SlashCommand]:
        """All commands, by name."""
        return registry.all_commands()

    async def work(self, run: Callable[[CancelToken], Awaitable[T]], label: str) -> T | None:
        """Do something as the agent's work; ``None`` when it was cancelled."""
        token = self._job = CancelToken()
        task = asyncio.ensure_future(run(token))

        def stop_waiting() -> None:
            if token.forced:
                task.cancel()

        forget = token.add_callback(stop_waiting)
        self._working, self._cancelling = True, False
        try:
            with self._terminal.keys.reading(self._interrupt), self._view.doing(label):
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
            self._job = None
            self._working = self._cancelling = False

    # --- the loop --------------------------------------------------------------------------

    async def run(self, first_prompt: str | None, *, pick_first: bool) -> int:
        """Until the person leaves."""
        with self._signals():
            try:
                await self._open_first(pick_first=pick_first)
                await self._converse(first_prompt)
            finally:
                await self._close_session()
        return self._exit_code

    async def _open_first(self, *, pick_first: bool) -> None:
        chosen = await self.pick_session() if pick_first else None
        if self._leaving:
            return
        people = (self._questions, self._questions)
        if chosen is not None:
            self._adopt(await self.host.open_existing(chosen, *people))
        else:
            self._adopt(await self.host.open_first(*people))

    async def _converse(self, first_prompt: str | None) -> None:
        text, default = first_prompt or "", ""
        if text.strip() and not self._leaving:
            lines = clean(text).strip().split("\n")
            self._screen.print_block([f"> {lines[0]}", *(f"  {line}" for line in lines[1:])])
        while not self._leaving:
            if not text.strip():
                try:
                    text = await self._ask(default)
                except Left:
                    return
            default = await self._handle(text)
            text = ""

    async def _ask(self, default: str) -> str:
        self._screen.gap()
        try:
            return await self._prompt.ask(default)
        except Left:
            if self._terminal.input.closed:
                self._terminal_gone()
            raise
        except OSError:
            self._terminal_gone()
            raise Left from None
        finally:
            self._screen.cursor_was_moved()

    def _terminal_gone(self) -> None:
        """The window was closed: the same as SIGHUP, which may come later than the news."""
        self._exit_code = self._exit_code or _EXIT_CODES[CancelReason.SIGHUP]
        self._leaving = True

    async def _handle(self, text: str) -> str:
        """Do what was typed; what could not be used comes back for the next prompt."""
        self._interrupts.forget()
        command = registry.parse(text)
        if command is None:
            return await self._turn(text)
        name, arguments = command
        found = registry.find(name)
        if found is None:
            like = " or ".join(f"/{other}" for other in registry.near(name)) or "/help"
            self._error(f"There is no command /{name}.", f"Did you mean {like}?")
            return text
        try:
            await found.run(self, arguments)
        except (AgentError, OSError) as error:
            self._error(str(error))
        return ""

    async def _turn(self, text: str) -> str:
        """Run one turn with the keyboard read for Ctrl-C and for what is typed meanwhile."""
        self._working, self._cancelling = True, False
        try:
            with self._terminal.keys.reading(self._interrupt):
                await self.session.run(Prompt(user_text(text)))
        except AgentError as error:
            self._error(error.message, error.advice)
            return text
        finally:
            self._working = self._cancelling = False
            self._screen.end_text()
            self._screen.clear_status()
        return ""

    # --- sessions --------------------------------------------------------------------------

    def _adopt(self, session: ChatSession) -> None:
        """Make ``session`` the open one and say what it is."""
        self._session = session
        self._opened_at = time.monotonic()
        session.add_listener(self._view.on_event)
        if session.resumed is not None:
            self.show(resume_lines(session.resumed, time.time(), self.theme))
        else:
            model = clean_line(session.model.id)
            where = clean_line(str(self.host.cwd))
            self.show([self.theme.paint("agentcli", BOLD) + f"  {model}  {where}"])
        if session.notices:
            self._screen.print_block(
                [self.theme.paint(f"! {clean_line(line)}", DIM) for line in session.notices],
                gap=False,
            )

    async def _close_session(self) -> None:
        """Close the open session and say how to come back to it (UI-9)."""
        session, self._session = self._session, None
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
        await session.aclose()

    def _error(self, message: str, advice: str = "") -> None:
        line = self.theme.paint(f"{self.theme.symbols.failed} {clean_line(message)}", ERROR)
        self._screen.print_block([f"{line} {clean_line(advice)}".rstrip()])

    # --- interrupts ------------------------------------------------------------------------

    def _interrupt(self, reason: CancelReason = CancelReason.USER) -> None:
        """Ctrl-C or Esc while the agent works, or a signal."""
        if not self._working or self._session is None:
            return
        situation = Situation.CANCELLING if self._cancelling else Situation.WORKING
        force = self._interrupts.press(situation, time.monotonic()) is Action.FORCE
        if self._job is not None:
            self._job.cancel(reason, force=force)
            self._cancelling = True
        else:
            self._cancelling = self._session.interrupt(reason, force=force) or self._cancelling
        self._view.cancelling()

    def _ctrl_c_at_prompt(self, had_text: bool) -> str | None:  # noqa: FBT001 - a callback's one fact
        situation = Situation.TEXT_IN_PROMPT if had_text else Situation.EMPTY_PROMPT
        action = self._interrupts.press(situation, time.monotonic())
        if action is Action.LEAVE:
            raise Left
        return HINT if action is Action.HINT else None

    def _on_sigint(self) -> None:
        if self._working:
            self._terminal.keys.cancelled()
            self._interrupt()
        elif self._prompt.is_open:
            self._prompt.press_ctrl_c()
        else:
            self._stop_picking()

    def _on_end_signal(self, reason: CancelReason) -> None:
        """SIGTERM, SIGHUP: stop what runs, then leave."""
        self._exit_code = self._exit_code or _EXIT_CODES[reason]
        self._interrupt(reason)
        self.leave()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_sigint)
        loop.add_signal_handler(signal.SIGTERM, self._on_end_signal, CancelReason.SIGTERM)
        loop.add_signal_handler(signal.SIGHUP, self._on_end_signal, CancelReason.SIGHUP)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                with suppress(RuntimeError):
                    loop.remove_signal_handler(number)
                # from here to the exit the ending is decided: nothing interrupts it any more
                signal.signal(number, signal.SIG_IGN)
