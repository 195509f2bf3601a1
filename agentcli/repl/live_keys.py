"""The keys of the live input, over prompt-toolkit's own (emacs or vi).

Law: Ctrl-C, Esc and the answers of a question act at once, whatever else a key may begin.
"""

from __future__ import annotations

import asyncio

from prompt_toolkit.application import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import (
    Condition,
    completion_is_selected,
    has_completions,
    has_focus,
    is_searching,
    vi_mode,
    vi_navigation_mode,
)
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from agentcli.repl.images import may_name_images
from agentcli.repl.live_port import LiveInput


def key_bindings(front: LiveInput) -> KeyBindings:
    """All of them."""
    bindings = KeyBindings()
    _bind_answers(bindings, front)
    _bind_interrupts(bindings, front)
    _bind_writing(bindings, front)
    _bind_editing(bindings, front)
    _bind_actions(bindings, front)
    return bindings


def _now() -> float:
    return asyncio.get_running_loop().time()


def _bind_writing(bindings: KeyBindings, front: LiveInput) -> None:
    focused = has_focus(DEFAULT_BUFFER)

    @bindings.add("enter", filter=focused)
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if front.answers.belongs_to_answer("\r", _now()):
            return
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif buffer.document.text_before_cursor.endswith("\\") and front.label is None:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            front.submit()

    @bindings.add(*front.keys["newline"], filter=focused)
    @bindings.add("c-j", filter=focused)
    @bindings.add("escape", "enter", filter=focused)
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @bindings.add(Keys.BracketedPaste)
    def _paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(front.pastes.fold(text) if focused() else text)
        if focused() and front.label is None and may_name_images(text):
            event.app.create_background_task(front.take_dropped(text))

    @bindings.add(*front.keys["image"], filter=focused & ~vi_navigation_mode, eager=True)
    def _image(event: KeyPressEvent) -> None:
        if front.label is None:
            event.app.create_background_task(front.take_clipboard())


def _bind_editing(bindings: KeyBindings, front: LiveInput) -> None:
    focused = has_focus(DEFAULT_BUFFER)

    @Condition
    def after_sign() -> bool:
        return front.pastes.sign_before(front.buffer.document.text_before_cursor) > 0

    @bindings.add("backspace", filter=focused & after_sign)
    def _delete_sign(event: KeyPressEvent) -> None:
        before = event.current_buffer.document.text_before_cursor
        event.current_buffer.delete_before_cursor(front.pastes.sign_before(before))

    empty = Condition(lambda: not front.buffer.text)

    @bindings.add("up", filter=focused & empty & ~has_completions)
    def _recall(event: KeyPressEvent) -> None:
        if not front.actions.recall():
            event.current_buffer.auto_up(count=event.arg)

    @bindings.add("?", filter=focused & empty & ~vi_navigation_mode)
    def _keys(event: KeyPressEvent) -> None:
        del event
        front.toggle_keys()


def _bind_answers(bindings: KeyBindings, front: LiveInput) -> None:
    @bindings.add(Keys.Any, filter=has_focus(DEFAULT_BUFFER) & ~vi_navigation_mode)
    def _any(event: KeyPressEvent) -> None:
        now = _now()
        if front.answers.belongs_to_answer(event.data, now):
            return
        if front.takes_answers and front.answers.answer(event.data, now):
            return
        event.current_buffer.insert_text(event.data * event.arg)


def _bind_interrupts(bindings: KeyBindings, front: LiveInput) -> None:
    @Condition
    def alone() -> bool:
        """No key came together with this one: it is Esc and not the beginning of Alt-x."""
        return not get_app().key_processor.input_queue

    @Condition
    def leaves_insert_mode() -> bool:
        return bool(vi_mode() and not vi_navigation_mode() and front.buffer.text)

    busy = Condition(lambda: front.is_working or front.label is not None)

    @bindings.add("escape", filter=busy & alone & ~leaves_insert_mode & ~is_searching, eager=True)
    def _escape(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state:
            buffer.cancel_completion()
        else:
            front.ctrl_c()

    empty = Condition(lambda: not front.buffer.text)

    @bindings.add("escape", "escape", filter=~busy & empty & ~is_searching)
    def _rewind(event: KeyPressEvent) -> None:
        del event
        front.actions.rewind()

    @bindings.add("c-c", filter=~is_searching, eager=True)
    @bindings.add("<sigint>", eager=True)
    def _ctrl_c(event: KeyPressEvent) -> None:
        del event
        front.ctrl_c()

    @bindings.add("c-d", filter=empty & ~is_searching)
    def _ctrl_d(event: KeyPressEvent) -> None:
        del event
        if front.label is not None:
            front.answer_line(None)
        elif front.is_working:
            front.leave_when_done()
        else:
            front.close()


def _bind_actions(bindings: KeyBindings, front: LiveInput) -> None:
    @bindings.add(*front.keys["suspend"])
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @bindings.add(*front.keys["mode"], filter=~has_completions & ~completion_is_selected)
    def _mode(event: KeyPressEvent) -> None:
        del event
        front.actions.cycle_mode()

    @bindings.add(*front.keys["todos"], eager=True)
    def _todos(event: KeyPressEvent) -> None:
        del event
        front.actions.toggle_todos()

    commands = Condition(lambda: front.is_working and front.label is None)

    @bindings.add(*front.keys["background"], filter=commands & ~is_searching, eager=True)
    def _background(event: KeyPressEvent) -> None:
        del event
        front.actions.move_to_background()

    @bindings.add(*front.keys["output"], eager=True)
    def _output(event: KeyPressEvent) -> None:
        del event
        front.actions.open_output()

    @bindings.add(*front.keys["editor"], filter=~is_searching, eager=True)
    def _editor(event: KeyPressEvent) -> None:
        event.app.create_background_task(front.edit_outside())
