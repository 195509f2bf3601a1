"""The input that is always there: one application for the whole chat, below the scrollback.

Law: Enter sends, or queues while the agent works; what is typed is never lost; a question takes
only keys that were pressed on an empty line after it had appeared, and not in the flow of other
typing. Nothing wakes the program while nothing happens.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, SEARCH_BUFFER, EditingMode
from prompt_toolkit.history import History
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, HSplit, Layout, SearchBufferControl, Window
from prompt_toolkit.styles import DummyStyle

from agentcli.domain.errors import AgentError
from agentcli.repl.answers import Answers
from agentcli.repl.completion import ChatCompleter
from agentcli.repl.front import Actions, Left
from agentcli.repl.key_names import key_table
from agentcli.repl.live_images import InputImages
from agentcli.repl.live_keys import key_bindings
from agentcli.repl.live_region import Region, Shown
from agentcli.repl.live_renderer import LiveRenderer
from agentcli.repl.outside import edit_text
from agentcli.repl.paste import Pastes
from agentcli.repl.terminal import Terminal
from agentcli.repl.turn_view import TurnView
from agentcli.ui.live_screen import LiveScreen
from agentcli.ui.sanitize import clean_line

ESCAPE_S = 0.05


@dataclass(frozen=True, slots=True)
class Typing:
    """What typing in the input needs; ``cwd`` is the workspace.

    Images from the clipboard are kept in ``images``.
    """

    completer: Completer
    history: History
    vi: bool
    cwd: Path
    keys: Mapping[str, str]
    images: Path | None


class LiveFront:
    """Satisfies ``front.Front``. ``shown`` gives what is told around the input."""

    def __init__(
        self,
        terminal: Terminal,
        view: TurnView,
        actions: Actions,
        shown: Shown,
        typing: Typing,
    ) -> None:
        if not isinstance(terminal.screen, LiveScreen):
            raise TypeError("a live front needs a live screen")
        self.actions = actions
        self.pastes = Pastes()
        table, problems = key_table(typing.keys)
        self.keys: Mapping[str, tuple[Keys | str, ...]] = table
        for problem in problems:
            terminal.screen.print_block([f"! {clean_line(problem)}"], gap=False)
        self.answers = Answers()
        self._terminal = terminal
        self._screen = terminal.screen
        self._inbox: deque[str] = deque()
        self._news = asyncio.Event()
        self._is_working = False
        self._is_idle = False
        self._leaves = False
        self._label: str | None = None  # of a line that is asked for
        self._line: asyncio.Future[str | None] | None = None
        self._closed = False
        self._away = 0  # something else has the terminal
        self.region = Region(self, view, shown, self._screen.theme)
        self._cwd = typing.cwd

        self.buffer = Buffer(
            name=DEFAULT_BUFFER,
            completer=typing.completer,
            complete_while_typing=True,
            history=typing.history,
            multiline=True,
        )
        self._images = InputImages(self.buffer, self.pastes, self._screen, typing.cwd)
        self._images.kept = typing.images
        self.search = SearchBufferControl(Buffer(name=SEARCH_BUFFER), ignore_case=True)
        self.control = BufferControl(self.buffer, search_buffer_control=self.search)
        layout = Layout(HSplit([Window(self.control), Window(self.search)]))
        self.app: Application[None] = Application(
            layout=layout,
            key_bindings=key_bindings(self),
            editing_mode=EditingMode.VI if typing.vi else EditingMode.EMACS,
            style=DummyStyle(),
            include_default_pygments_style=False,
            erase_when_done=True,
            terminal_size_polling_interval=None,
            max_render_postpone_time=None,
            input=self._terminal.input,
            output=self._terminal.output,
        )
        self.app.renderer = LiveRenderer(
            self.app._merged_style,  # noqa: SLF001 - the base class wants one; nothing is styled by it
            self._terminal.output,
            self._screen,
            self.region.compose,
        )
        self.app.ttimeoutlen = ESCAPE_S
        self.app.timeoutlen = 0.5
        self.app.key_processor.before_key_press += lambda _: self._key_comes()

    # --- state -----------------------------------------------------------------------------

    @property
    def is_working(self) -> bool:
        """Whether the agent works."""
        return self._is_working

    @property
    def is_idle(self) -> bool:
        """Whether nothing is done until something is sent."""
        return self._is_idle

    @property
    def label(self) -> str | None:
        """What the line that is asked for is about, if one is."""
        return self._label

    @property
    def takes_answers(self) -> bool:
        """Whether the next key answers a question."""
        now = asyncio.get_running_loop().time()
        return not self.buffer.text and self.answers.are_taken(now)

    # --- front.Front -----------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The input is there until the block ends."""
        started = asyncio.Event()
        task = asyncio.ensure_future(
            self.app.run_async(
                pre_run=started.set, handle_sigint=False, set_exception_handler=False
            )
        )
        task.add_done_callback(self._ended)
        starting = asyncio.ensure_future(started.wait())
        try:
            await asyncio.wait({task, starting}, return_when=asyncio.FIRST_COMPLETED)
            self.load_history()
            yield
        finally:
            starting.cancel()
            if isinstance(self.buffer.completer, ChatCompleter):
                self.buffer.completer.close()
            self._exit()
            await asyncio.wait({task})
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, EOFError | OSError):
                raise error

    async def next_text(self) -> str:
        """What was typed and sent."""
        while not self._inbox:
            if self._closed or self._leaves:
                self.close()
                raise Left
            self._is_idle = True
            self._screen.paint()  # at once: the prompt is back
            self._news.clear()
            await self._news.wait()
        self._is_idle = False
        return self._inbox.popleft()

    def give_back(self, text: str) -> None:
        """Put ``text`` into the input, before what stands there."""
        typed = self.buffer.text
        whole = f"{text}\n{typed}" if typed else text
        self.buffer.set_document(Document(whole, len(text)), bypass_readonly=True)
        self.refresh()

    @contextmanager
    def working(self) -> Iterator[None]:
        """The agent works until the block ends."""
        self._is_working = True
        try:
            yield
        finally:
            self._is_working = False
            self.refresh()

    async def choose(self, answers: Mapping[str, str], show: Callable[[], None]) -> str:
        """Put a question and wait for a key that answers it."""
        self._drain()
        future = self.answers.ask(answers, asyncio.get_running_loop().time())
        show()
        self._screen.paint()
        try:
            return await future
        finally:
            self.answers.forget(future)
            self.refresh()

    async def line(self, label: str) -> str | None:
        """One line from the person."""
        draft = self.buffer.document
        self.buffer.set_document(Document(), bypass_readonly=True)
        self._label = label
        self._line = asyncio.get_running_loop().create_future()
        self.refresh()
        try:
            answer = None if self._closed else await self._line
        finally:
            self._label = self._line = None
            self.buffer.set_document(draft, bypass_readonly=True)
            self.refresh()
        said = answer if answer is not None else ""
        self._screen.print_block([f"{label}{said}"], gap=False)
        return answer

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Let something else have the terminal."""
        self._away += 1
        # the application judges a lone Esc that much later and must not take one from others
        await asyncio.sleep(ESCAPE_S)
        try:
            async with in_terminal():
                yield
        finally:
            self._away -= 1

    def show_todos(self, lines: Sequence[str]) -> None:
        """Show the agent's list until another is given."""
        self.region.todos = list(lines)
        self.refresh()

    def refresh(self) -> None:
        """Something that is shown has changed."""
        self._screen.request()

    def press_ctrl_c(self) -> None:
        """SIGINT came from outside."""
        if self.app.is_running and not self.app.is_done and not self._away:
            self.app.key_processor.send_sigint()

    def close(self) -> None:
        """End the input."""
        self._closed = True
        self.answer_line(None)
        self._news.set()
        self._exit()

    # --- what keys do ----------------------------------------------------------------------

    def submit(self) -> None:
        """Enter."""
        text = self.pastes.expand(self.buffer.text)
        if self._line is not None:
            self.answer_line(text)
            return
        if not text.strip():
            if not self._is_working and self.actions.has_waiting():
                self.send("")
            return
        self.buffer.history.append_string(text)
        if isinstance(self.buffer.completer, ChatCompleter):
            self.buffer.completer.used(text)
        self.pastes.forget()
        self.buffer.reset()
        self.load_history()
        self.answers.flow_ended()
        if self._is_working:
            self.actions.typed_while_working(text)
        else:
            self.send(text)

    def answer_line(self, text: str | None) -> None:
        """The line that was asked for."""
        if self._line is not None and not self._line.done():
            self._line.set_result(text)

    def ctrl_c(self) -> None:
        """Ctrl-C, wherever."""
        if self._line is not None:
            self.answer_line(None)
        elif self._is_working:
            self.actions.interrupt()
        else:
            had_text = bool(self.buffer.text)
            self.buffer.reset()
            self.load_history()
            try:
                hint = self.actions.ctrl_c_at_prompt(had_text=had_text)
            except Left:
                self.close()
                return
            if hint is not None:
                self._screen.print_block([hint])

    @property
    def leaves(self) -> bool:
        """Whether the chat ends when the agent is done."""
        return self._leaves

    def leave_when_done(self) -> None:
        """Ctrl-D while the agent works."""
        self._leaves = True

    def toggle_keys(self) -> None:
        """``?``: the keys."""
        self.region.toggle_keys()

    async def edit_outside(self) -> None:
        """Ctrl-G: the person's editor."""
        text = self.pastes.expand(self.buffer.text)
        try:
            async with self.aside():
                edited = await asyncio.to_thread(edit_text, text, self._cwd, os.environ)
        except AgentError as error:
            self._screen.print_aside([str(error)])
            return
        self.buffer.set_document(Document(edited), bypass_readonly=True)

    async def take_dropped(self, text: str) -> None:
        """What was pasted may be the paths of images: then signs stand in its place."""
        await self._images.take_dropped(text)

    async def take_clipboard(self) -> None:
        """The image in the clipboard, where a program can read it."""
        await self._images.take_clipboard()

    def load_history(self) -> None:
        """Earlier prompts, in the background."""
        if self.app.is_running:
            self.buffer.load_history_if_not_yet_loaded()

    # --- machinery -------------------------------------------------------------------------

    def _drain(self) -> None:
        """Keys that were pressed already are no answer to what comes now."""
        if self.app.is_running and not self._away and not self._terminal.input.closed:
            self.app.key_processor.feed_multiple(self._terminal.input.read_keys())
            self.app.key_processor.process_keys()

    def send(self, text: str) -> None:
        """As if ``text`` had been typed and sent."""
        self._inbox.append(text)
        self._is_idle = False
        self._news.set()

    def _key_comes(self) -> None:
        self._leaves = False
        self.answers.key_comes(asyncio.get_running_loop().time())
        self.region.key_comes()

    def _exit(self) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The application is over: asked for, or because the terminal is gone."""
        error = None if task.cancelled() else task.exception()
        gone = isinstance(error, EOFError | OSError)
        if not self._closed:
            self._closed = True
            self.answer_line(None)
            self._news.set()
            if gone:
                self.actions.terminal_gone()
