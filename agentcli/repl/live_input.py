"""The input that is always there: one application for the whole chat, below the scrollback.

Law: Enter sends, or queues while the agent works; what is typed is never lost; a burst of lines is
one input, marked as a paste or not. A panel (``repl.panel``) gets the keys that come on an empty
line. Nothing wakes the program while nothing happens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, SEARCH_BUFFER, EditingMode
from prompt_toolkit.filters import (
    Condition,
    Filter,
    completion_is_selected,
    has_completions,
    has_focus,
    is_searching,
    vi_mode,
    vi_navigation_mode,
)
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, HSplit, Layout, SearchBufferControl, Window
from prompt_toolkit.search import SearchState
from prompt_toolkit.styles import BaseStyle, DummyStyle

from agentcli.app.user_files import UserFiles
from agentcli.domain.errors import AgentError
from agentcli.repl.actions import ChatActions, Left
from agentcli.repl.clipboard import InputImages, Pastes, may_name_images
from agentcli.repl.commands import helps
from agentcli.repl.completion import (
    ChatCompleter,
    next_completion,
    prompt_history,
    take_completion,
)
from agentcli.repl.keys import (
    bind_compound_backspace,
    bind_idle_escape,
    bind_moves,
    bind_panel,
    key_table,
    shown_keys,
    text_follows,
)
from agentcli.repl.live_region import InputState, LiveRenderer, Region, bind_cursor_report
from agentcli.repl.open_session import OpenSession
from agentcli.repl.panel import GUARD_S, Panel, Press
from agentcli.repl.terminal import ESCAPE_S, Terminal
from agentcli.repl.turn_view import TurnView
from agentcli.ui.live_screen import LiveScreen
from agentcli.ui.sanitize import clean_line

TWICE_S = 0.5
HOLD_S = 0.03  # the pieces of a paste come closer together


class _Application(Application[None]):
    """One that styles nothing: ``LiveRenderer`` draws what is painted."""

    def _create_merged_style(self, include_default_pygments_style: Filter) -> BaseStyle:
        del include_default_pygments_style
        return DummyStyle()


class LiveInput:
    """Satisfies ``actions.ChatInput``."""

    def __init__(
        self,
        terminal: Terminal,
        view: TurnView,
        actions: ChatActions,
        opened: OpenSession,
        user: UserFiles,
    ) -> None:
        if not isinstance(terminal.screen, LiveScreen):
            raise TypeError("a live input needs a live screen")
        self.actions = actions
        self.pastes = Pastes()
        self.keys, problems = key_table(user.settings.chat_keys, user.default_keys)
        for problem in problems:
            terminal.screen.print_block([f"! {clean_line(problem)}"], gap=False)
        self._terminal = terminal
        self._screen = terminal.screen
        self._inbox: deque[str] = deque()
        self._news = asyncio.Event()
        self.is_working = False
        self._is_idle = False
        self._leaves = False
        self.label: str | None = None  # of a line that is asked for
        self._label_hint = ""
        self._panel: Panel | None = None
        self._one_panel = asyncio.Lock()  # those that come together are shown one after the other
        self._draft: Document | None = None  # what stood in the input before the panel
        self._answered: asyncio.Future[None] | None = None
        self._later: asyncio.TimerHandle | None = None  # when the panel changes by itself
        self._line: asyncio.Future[str | None] | None = None
        self._burst_at = float("-inf")  # when a line ended in the middle of what came at once
        self._held: asyncio.TimerHandle | None = None  # Enter at the end of such lines
        self._is_tab = self._was_tab = False  # the key that is pressed, or was before it
        self.recalled = ""  # what Up has taken from the queue
        self._esc_at = float("-inf")
        self._closed = False
        self._given = ""  # what was last put into the input
        self._others = asyncio.Lock()  # something else has the terminal
        shown = shown_keys(user.settings.chat_keys, user.default_keys)
        self.region = Region(view, opened, self._screen.theme, shown)

        self._completer = ChatCompleter(helps, user.cwd, actions.arguments_of, actions.resources)
        self.buffer = Buffer(
            name=DEFAULT_BUFFER,
            completer=self._completer,
            complete_while_typing=True,
            history=prompt_history(user),
            multiline=True,
        )
        self.images = InputImages(self.buffer, self.pastes, self._screen, user)
        self.search = SearchBufferControl(Buffer(name=SEARCH_BUFFER), ignore_case=True)
        self.control = BufferControl(self.buffer, search_buffer_control=self.search)
        is_vi = user.settings.editing_mode == "vi"
        layout = Layout(HSplit([Window(self.control), Window(self.search)]))
        self.app = _Application(
            layout=layout,
            key_bindings=key_bindings(self),
            editing_mode=EditingMode.VI if is_vi else EditingMode.EMACS,
            erase_when_done=True,
            terminal_size_polling_interval=None,
            max_render_postpone_time=None,
            input=self._terminal.input,
            output=self._terminal.output,
        )
        self.app.renderer = LiveRenderer(
            DummyStyle(),
            self._terminal.output,
            self._screen,
            lambda size, gap: self.region.compose(self._state(), size, needs_gap=gap),
        )
        self.app.ttimeoutlen = ESCAPE_S
        self.app.timeoutlen = 0.5
        self.app.key_processor.before_key_press += lambda _: self._key_comes()

    # --- state -----------------------------------------------------------------------------

    def _state(self) -> InputState:
        searched, document = None, self.buffer.document
        if self.app.layout.is_searching:
            searched = self.search.buffer.text
            found = self.control.search_state
            document = self.buffer.document_for_search(
                SearchState(searched, found.direction, found.ignore_case)
            )
        return InputState(
            document=document,
            label=self.label,
            hint=self._label_hint,
            panel=self._panel,
            is_working=self.is_working,
            is_idle=self._is_idle,
            leaves=self._leaves,
            searched=searched,
            completions=self.buffer.complete_state,
        )

    @property
    def panel_has_keys(self) -> bool:
        """Whether the next key is for the panel and not for the text."""
        panel = self._panel
        if panel is None or self.label is not None or self.app.layout.is_searching:
            return False
        return not (panel.yields_to_text and self.buffer.text)

    # --- actions.ChatInput -----------------------------------------------------------------------

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
            self._completer.close()
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
        self._given = whole
        self.refresh()

    @property
    def holds_given(self) -> bool:
        """Whether all that the input holds was put there, and nobody has touched it since."""
        at_end = self.buffer.cursor_position == len(self.buffer.text)
        return bool(self._given) and self.buffer.text == self._given and at_end

    @contextmanager
    def working(self) -> Iterator[None]:
        """The agent works until the block ends."""
        self.is_working = True
        try:
            yield
        finally:
            self.is_working = False
            self.refresh()

    async def choose(self, panel: Panel) -> None:
        """Show ``panel`` in place of the input until it is answered."""
        async with self._one_panel:
            async with self._others:
                pass  # it is answered where it is seen
            await self._choose(panel)

    async def _choose(self, panel: Panel) -> None:
        self._drain()
        self.app.vi_state.input_mode = InputMode.INSERT
        self._answered = asyncio.get_running_loop().create_future()
        panel.open(_now(), has_text=bool(self.buffer.text))
        self._draft = None if panel.yields_to_text else self.buffer.document
        if self._draft is not None:
            self.buffer.set_document(Document(), bypass_readonly=True)
        self._panel = panel
        self._wake_at(_now() + GUARD_S)
        self._screen.paint()
        try:
            if not self._closed:
                await self._answered
        finally:
            if self._later is not None:
                self._later.cancel()
            self._panel = self._answered = self._later = None
            if self._draft is not None:
                self.buffer.set_document(self._draft, bypass_readonly=True)
                self._draft = None
            self.refresh()

    async def line(
        self, label: str, panel: Panel | None = None, start: str = "", hint: str = ""
    ) -> str | None:
        """One line from the user, below what ``panel`` is about."""
        async with self._one_panel:
            draft = self.buffer.document
            self.buffer.set_document(Document(start), bypass_readonly=True)
            self.label, self._label_hint, self._panel = label, hint, panel
            self._line = asyncio.get_running_loop().create_future()
            self._screen.paint()
            try:
                return None if self._closed else await self._line
            finally:
                self.label = self._line = self._panel = None
                self.buffer.set_document(draft, bypass_readonly=True)
                self.refresh()

    def press(self, key: str, text: str = "", *, more: bool = False) -> None:
        """A key for the panel."""
        if self._panel is None:
            return
        given = self._panel.press(Press(key, text), _now(), more=more)
        if given.text and self._draft is not None:
            self._draft = Document(self._draft.text + given.text)
        elif given.text:
            self.buffer.insert_text(given.text)
        if given.sends:
            self.submit()
        self._look_at_panel()

    def paste_to_panel(self, text: str) -> bool:
        """A paste while the panel has the keys; false when it is for the input all the same."""
        if self._panel is None or self._panel.yields_to_text:
            self.press("paste")
            return False
        self.press("paste", text)
        return True

    def _look_at_panel(self) -> None:
        """Whether it is answered, or changes by itself later."""
        if self._panel is None:
            return
        if self._panel.is_answered and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)
        due = self._panel.due
        if due is not None and due > _now():
            self._wake_at(due)
        self.refresh()

    def _wake_at(self, when: float) -> None:
        if self._later is not None:
            self._later.cancel()
        self._later = asyncio.get_running_loop().call_at(when, self._tick_panel)

    def _tick_panel(self) -> None:
        if self._panel is not None:
            self._panel.tick(_now())
            self._look_at_panel()

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Let something else have the terminal."""
        async with self._others:
            # the application judges a lone Esc that much later and must not take one from others
            await asyncio.sleep(ESCAPE_S)
            async with in_terminal():
                with self._screen.given_away():
                    yield

    def show_todos(self, lines: Sequence[str]) -> None:
        """Show the agent's list until another is given."""
        self.region.todos = list(lines)
        self.refresh()

    def announce(self, line: str) -> None:
        """Print a painted line above."""
        self._screen.print_block([line], gap=False)

    def refresh(self) -> None:
        """Something that is shown has changed."""
        self._screen.request()

    def press_ctrl_c(self) -> None:
        """SIGINT came from outside."""
        if self.app.is_running and not self.app.is_done and not self._others.locked():
            self.app.key_processor.send_sigint()

    def close(self) -> None:
        """End the input."""
        self._closed = True
        self.answer_line(None)
        self.leave_panel()
        self._news.set()
        self._exit()

    # --- what keys do ----------------------------------------------------------------------

    def enter(self, *, more: bool) -> None:
        """Enter; ``more``: text came with it, so that the line goes on.

        At the end of lines that came at once it sends only when no more of them come.
        """
        buffer, menu = self.buffer, self.buffer.complete_state
        if more:
            buffer.complete_state = None
            self._line_in_burst()
        elif menu and menu.current_completion and not self._was_tab:
            take_completion(buffer)
        elif buffer.document.text_before_cursor.endswith("\\") and self.label is None:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        elif _now() - self._burst_at < HOLD_S:
            self._held = asyncio.get_running_loop().call_later(HOLD_S, self._submit_held)
        else:
            self.submit()

    def tab(self) -> None:
        """The next completion; Enter after it sends."""
        self._is_tab = True
        next_completion(self.buffer)

    def down(self) -> None:
        """The next prompt; what Up has taken from the queue goes back to it."""
        recalled, self.recalled = self.recalled, ""
        if recalled and self.buffer.text == recalled:
            self.buffer.reset()
            self.load_history()
            self.actions.typed_while_working(recalled)
        else:
            self.recalled = recalled
            self.buffer.auto_down()

    def _line_in_burst(self) -> None:
        self._burst_at = _now()
        self.buffer.newline(copy_margin=False)

    def _submit_held(self) -> None:
        self._held = None
        self.submit()
        self.app.invalidate()

    def submit(self) -> None:
        """Send, queue, or answer."""
        text = self.pastes.expand(self.buffer.text)
        if self._line is not None:
            self.answer_line(text)
            return
        if not text.strip():
            if not self.is_working and self.actions.has_waiting():
                self.send("")
            return
        self.buffer.history.append_string(text)
        self._completer.used(text)
        self.pastes.forget()
        self.recalled = ""
        self.buffer.reset()
        self.load_history()
        if self._panel is not None:
            self._panel.text_sent()
        if self.is_working:
            self.actions.typed_while_working(text)
        else:
            self.send(text)

    def answer_line(self, text: str | None) -> None:
        """The line that was asked for."""
        if self._line is not None and not self._line.done():
            self._line.set_result(text)

    def ctrl_c(self) -> None:
        """Ctrl-C, wherever."""
        if self.leave_panel():
            return
        if self._line is not None:
            self.answer_line(None)
        if self.is_working:
            self.actions.interrupt()
        elif self._line is not None:
            return
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

    def idle_escape(self) -> None:
        """Esc while nothing runs; twice on an empty line: go back."""
        now, menu = _now(), self.buffer.complete_state
        if menu:
            self.buffer.cancel_completion()
        elif not self.buffer.text and now - self._esc_at < TWICE_S:
            self._esc_at = float("-inf")
            self.actions.rewind()
        else:
            self._esc_at = now

    def go_back(self) -> None:
        """To an earlier prompt, while nothing runs."""
        if not self.is_working and self.label is None:
            self.actions.rewind()

    def escape(self) -> None:
        """Esc: one step back, from a line that is asked for to its choices; else as Ctrl-C."""
        if self._line is not None:
            self.answer_line(None)
        else:
            self.ctrl_c()

    def leave_panel(self) -> bool:
        """Go without an answer; false when there is no panel or it cannot be left so."""
        left = self._panel is not None and self.label is None and self._panel.leave()
        if left:
            self._look_at_panel()
        return left

    def leave_when_done(self) -> None:
        """Ctrl-D while the agent works."""
        self._leaves = True

    async def edit_outside(self) -> None:
        """Ctrl-G: the user's editor."""
        text = self.pastes.expand(self.buffer.text)
        try:
            edited = await self.actions.edit(text)
        except AgentError as error:
            self._screen.print_aside([str(error)])
            return
        self.buffer.set_document(Document(edited), bypass_readonly=True)

    def load_history(self) -> None:
        """Earlier prompts, in the background."""
        if self.app.is_running:
            self.buffer.load_history_if_not_yet_loaded()

    # --- machinery -------------------------------------------------------------------------

    def _drain(self) -> None:
        """Keys that were pressed already are no answer to what comes now."""
        is_ours = not (self._others.locked() or self._terminal.input.closed)
        if self.app.is_running and is_ours:
            self.app.key_processor.feed_multiple(self._terminal.input.read_keys())
            self.app.key_processor.process_keys()

    def send(self, text: str) -> None:
        """As if ``text`` had been typed and sent."""
        self._inbox.append(text)
        self._is_idle = False
        self._news.set()

    def _key_comes(self) -> None:
        self._leaves = False
        self._was_tab, self._is_tab = self._is_tab, False
        if self._held is not None:
            self._held.cancel()
            self._held = None
            self._line_in_burst()
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


# --- the keys, over prompt-toolkit's own (emacs or vi) ----------------------------------------


def key_bindings(typing: LiveInput) -> KeyBindings:
    """All of them.

    Law: Ctrl-C and Esc act at once, whatever else a key may begin; what is bound last wins.
    """
    bindings = KeyBindings()
    _bind_interrupts(bindings, typing)
    _bind_writing(bindings, typing)
    _bind_editing(bindings, typing)
    _bind_actions(bindings, typing)
    bind_cursor_report(bindings)
    bind_panel(bindings, Condition(lambda: typing.panel_has_keys), typing)
    return bindings


def _now() -> float:
    return asyncio.get_running_loop().time()


def _bind_writing(bindings: KeyBindings, typing: LiveInput) -> None:
    focused = has_focus(DEFAULT_BUFFER)

    # a command that was given back, or a prompt, is no beginning of the next command
    @bindings.add("/", filter=focused & Condition(lambda: typing.holds_given))
    def _command(event: KeyPressEvent) -> None:
        event.current_buffer.reset()
        event.current_buffer.insert_text("/")

    @bindings.add("enter", filter=focused)
    def _enter(event: KeyPressEvent) -> None:
        typing.enter(more=text_follows(event))

    @bindings.add(*typing.keys["newline"], filter=focused)
    @bindings.add("c-j", filter=focused)
    @bindings.add("escape", "enter", filter=focused)
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @bindings.add(Keys.BracketedPaste)
    def _paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        if typing.panel_has_keys and typing.paste_to_panel(text):
            return
        event.current_buffer.insert_text(typing.pastes.fold(text) if focused() else text)
        if focused() and typing.label is None and may_name_images(text):
            event.app.create_background_task(typing.images.take_dropped(text))

    @bindings.add(*typing.keys["image"], filter=focused & ~vi_navigation_mode, eager=True)
    def _image(event: KeyPressEvent) -> None:
        if typing.label is None:
            event.app.create_background_task(typing.images.take_clipboard())


def _bind_editing(bindings: KeyBindings, typing: LiveInput) -> None:
    focused = has_focus(DEFAULT_BUFFER)

    @Condition
    def after_sign() -> bool:
        return typing.pastes.sign_before(typing.buffer.document.text_before_cursor) > 0

    bind_compound_backspace(bindings, focused)

    @bindings.add("backspace", filter=focused & after_sign)
    def _delete_sign(event: KeyPressEvent) -> None:
        before = event.current_buffer.document.text_before_cursor
        event.current_buffer.delete_before_cursor(typing.pastes.sign_before(before))

    empty = Condition(lambda: not typing.buffer.text)

    @bindings.add(*typing.keys["recall"], filter=focused & empty & ~has_completions)
    def _recall(event: KeyPressEvent) -> None:
        typing.recalled = typing.actions.recall()
        if not typing.recalled:
            event.current_buffer.auto_up(count=event.arg)

    @bindings.add("down", filter=focused & Condition(lambda: bool(typing.recalled)))
    def _down(_event: KeyPressEvent) -> None:
        typing.down()

    @bindings.add(*typing.keys["complete"], filter=focused & ~vi_navigation_mode)
    def _tab(_event: KeyPressEvent) -> None:
        typing.tab()

    @bindings.add(*typing.keys["help"], filter=focused & empty & ~vi_navigation_mode)
    def _keys(_event: KeyPressEvent) -> None:
        typing.region.toggle_keys()


def _bind_interrupts(bindings: KeyBindings, typing: LiveInput) -> None:
    @Condition
    def alone() -> bool:
        """No key came together with this one: it is Esc and not the beginning of Alt-x."""
        return not get_app().key_processor.input_queue

    @Condition
    def leaves_insert_mode() -> bool:
        return bool(vi_mode() and not vi_navigation_mode() and typing.buffer.text)

    busy = Condition(lambda: typing.is_working or typing.label is not None or typing.panel_has_keys)

    @bindings.add("escape", filter=busy & alone & ~leaves_insert_mode & ~is_searching, eager=True)
    def _escape(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state:
            buffer.cancel_completion()
        else:
            typing.escape()

    bind_idle_escape(bindings, ~busy & ~is_searching, alone, typing)
    empty = Condition(lambda: not typing.buffer.text)

    @bindings.add("c-c", filter=~is_searching, eager=True)
    @bindings.add("<sigint>", eager=True)
    def _ctrl_c(_event: KeyPressEvent) -> None:
        typing.ctrl_c()

    @bindings.add(*typing.keys["leave"], filter=empty & ~is_searching)
    def _ctrl_d(_event: KeyPressEvent) -> None:
        if typing.label is not None:
            typing.answer_line(None)
        elif typing.is_working:
            typing.leave_when_done()
        else:
            typing.close()


def _bind_actions(bindings: KeyBindings, typing: LiveInput) -> None:
    actions, keys = typing.actions, typing.keys
    no_menu = ~has_completions & ~completion_is_selected
    commands = Condition(lambda: typing.is_working and typing.label is None)
    bindings.add(*keys["suspend"])(lambda event: event.app.suspend_to_background())
    bindings.add(*keys["mode"], filter=no_menu)(lambda _: actions.cycle_mode())
    bindings.add(*keys["todos"], eager=True)(lambda _: actions.toggle_todos())
    bindings.add(*keys["output"], eager=True)(lambda _: actions.open_transcript())
    to_background = bindings.add(*keys["background"], filter=commands & ~is_searching, eager=True)
    to_background(lambda _: actions.move_to_background())
    bind_moves(bindings, keys, has_focus(DEFAULT_BUFFER), typing.go_back)

    @bindings.add(*keys["editor"], filter=~is_searching, eager=True)
    def _editor(event: KeyPressEvent) -> None:
        event.app.create_background_task(typing.edit_outside())
