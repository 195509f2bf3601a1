"""Reading keys while the agent works.

Law: Ctrl-C and Esc act at once; everything else that is typed is kept, in order, for the next
prompt and never echoed. A question (an approval) takes only keys that were pressed after it had
appeared and not in the flow of other typing. What was typed before a cancel comes back as text
to edit, not as a message that is sent.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output

ESCAPE_S = 0.05
FLOW_S = 0.7

_IGNORED = frozenset(
    {Keys.CPRResponse, Keys.Vt100MouseEvent, Keys.WindowsMouseEvent, Keys.Ignore, Keys.ControlZ}
)


class KeyReader:
    """Owns the terminal's input between two prompts."""

    def __init__(self, source: Input, output: Output) -> None:
        self._source = source
        self._output = output
        self._on_interrupt: Callable[[], None] = lambda: None
        self._on_background: Callable[[], None] = lambda: None
        self._typed: list[KeyPress] = []
        self._question: asyncio.Future[str] | None = None
        self._answers: Mapping[str, str] = {}
        self._last_key_at = float("-inf")
        self._in_flow = False
        self._escape: asyncio.TimerHandle | None = None
        self._paused = False

    @contextmanager
    def reading(
        self,
        on_interrupt: Callable[[], None],
        on_background: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """Read keys, unechoed, until the block ends; typed text then goes to the next prompt.

        ``on_interrupt`` is called for each Ctrl-C or Esc, ``on_background`` for each Ctrl-B.
        """
        self._on_interrupt, self._on_background = on_interrupt, on_background
        self._typed = get_typeahead(self._source)
        try:
            with self._source.raw_mode(), self._source.attach(self._ready):
                self._marked_pastes(on=True)
                try:
                    yield
                finally:
                    self._drain()
                    self._marked_pastes(on=False)
        finally:
            if self._escape is not None:
                self._escape.cancel()
                self._escape = None
            store_typeahead(self._source, self._typed)
            self._typed = []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let something else (a prompt for a line) have the terminal meanwhile."""
        self._drain()
        kept, self._typed = self._typed, []
        self._paused = True
        try:
            with self._source.detach():
                yield
        finally:
            self._paused = False
            self._typed = kept + get_typeahead(self._source)
            self._marked_pastes(on=True)

    async def choose(self, answers: Mapping[str, str], show: Callable[[], None]) -> str:
        """Put a question with ``show`` and wait for one of the keys in ``answers``; its value.

        A word whose first letter is the key may be typed whole, with or without Enter.
        """
        loop = asyncio.get_running_loop()
        self._drain()
        self._in_flow = loop.time() - self._last_key_at < FLOW_S
        show()
        self._question = loop.create_future()
        self._answers = answers
        try:
            return await self._question
        finally:
            self._question = None

    def cancelled(self) -> None:
        """A cancel was asked for: Enter typed before it no longer sends anything."""
        self._typed = [
            KeyPress(Keys.ControlJ, "\n") if key.key == Keys.ControlM else key
            for key in self._typed
        ]

    # --- keys ------------------------------------------------------------------------------

    def _marked_pastes(self, *, on: bool) -> None:
        with suppress(OSError):
            if on:
                self._output.enable_bracketed_paste()
            else:
                self._output.disable_bracketed_paste()
            self._output.flush()

    def _drain(self) -> None:
        """Take what the terminal has and was not read yet."""
        if not self._paused and not self._source.closed:
            self._take(self._source.read_keys())

    def _ready(self) -> None:
        self._take(self._source.read_keys())
        if self._escape is not None:
            self._escape.cancel()
        loop = asyncio.get_running_loop()
        self._escape = loop.call_later(ESCAPE_S, self._flush_escape)

    def _flush_escape(self) -> None:
        """No more came after an Esc: it was the key itself."""
        self._escape = None
        keys = self._source.flush_keys()
        if [key.key for key in keys] == [Keys.Escape]:
            self._interrupt()
        else:
            self._take(keys)

    def _take(self, keys: list[KeyPress]) -> None:
        for at, key in enumerate(keys):
            if key.key in {Keys.ControlC, Keys.SIGINT}:
                self._interrupt()
            elif key.key == Keys.ControlB:
                self._on_background()
            elif key.key == Keys.ControlZ:
                self._suspend()
            elif key.key in _IGNORED:
                continue
            elif self._answers_question(key):
                self._typed += _after_answer(key, keys[at + 1 :])
                return
            elif not self._is_asking():
                self._typed.append(key)

    def _is_asking(self) -> bool:
        return self._question is not None and not self._question.done() and not self._in_flow

    def _answers_question(self, key: KeyPress) -> bool:
        now = asyncio.get_running_loop().time()
        if self._in_flow and now - self._last_key_at >= FLOW_S:
            self._in_flow = False
        self._last_key_at = now
        if not self._is_asking() or self._question is None:
            return False
        answer = self._answers.get(str(key.key).lower())
        if answer is None:
            return False
        self._question.set_result(answer)
        self._last_key_at = float("-inf")
        return True

    def _interrupt(self) -> None:
        self.cancelled()
        self._on_interrupt()

    def _suspend(self) -> None:
        """Ctrl-Z: stop the program with the terminal as the shell wants it."""
        self._marked_pastes(on=False)
        with self._source.cooked_mode():
            os.kill(0, signal.SIGTSTP)
        self._marked_pastes(on=True)


_WORDS = {"y": "es", "n": "o", "s": "ession", "r": "eason"}


def _after_answer(key: KeyPress, rest: list[KeyPress]) -> list[KeyPress]:
    """What was typed in one go after an answer, without the rest of the word and its Enter."""
    word = _WORDS.get(str(key.key).lower(), "")
    typed = "".join(str(each.key) for each in rest[: len(word)])
    left = rest[len(word) :] if word and typed.lower() == word else rest
    if left and left[0].key in {Keys.ControlM, Keys.ControlJ}:
        left = left[1:]
    return left
