"""``agent replay``: a session plays again from its record, offline; no tool is run (TT-4).

Law: it is drawn by what drew it live (``TurnView`` on a ``Screen``); only the waits are made: as
long as it took then, within a bound, at the speed that is asked for. The terminal is given back as
it was found.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from agentcli.app.past import Past
from agentcli.domain.accounts import REPLIES, Ledger
from agentcli.domain.clean import plural
from agentcli.domain.events import (
    AgentEvent,
    Cancelled,
    Done,
    Notice,
    Outcome,
    TextChunk,
    ThinkingChunk,
    TurnSummary,
)
from agentcli.domain.messages import AssistantMessage, ResultStatus, ToolResult, Usage, UserMessage
from agentcli.domain.session import LoadedSession, Note, SessionStatus, StoredMessage
from agentcli.domain.values import frozen
from agentcli.repl.turn_view import TurnView
from agentcli.ui.sanitize import clean_line
from agentcli.ui.screen import Screen
from agentcli.ui.session_lines import call_words
from agentcli.ui.theme import DIM, Theme

LONGEST_WAIT_S = 3.0
FASTEST, SLOWEST = 64.0, 1 / 16
_WAIT_BEFORE_PROMPT_S = 1.0
_PIECE = 12
_PIECE_S = 0.03
_INTERRUPTED = "this turn did not end: the session was interrupted here"
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
KEYS = "Space pauses, Enter goes a step, + and - change the speed, q ends."


@frozen
class Scene:
    """What is shown at once or streams, after a wait of ``wait_s`` seconds."""

    wait_s: float
    events: tuple[AgentEvent, ...]


class SeenEnough(Exception):
    """The user ended it, or the terminal is gone."""


def scenes(session: LoadedSession, ledger: Ledger) -> Iterator[Scene]:
    """The session in its order, what was taken back left out; each turn with its end."""
    shown = [stored for stored in session.messages if stored.hidden_by != stored.seq]
    past, notes, last = Past(call_words), list(session.notes), None
    costs = {row.before: row.cost_usd for row in ledger.rows if row.kind in REPLIES}
    turn = _Turn(costs)
    for at, stored in enumerate(shown):
        if turn.is_over_before(stored):
            yield Scene(0.0, turn.end(SessionStatus.DONE, ""))
            turn = _Turn(costs)
        waited = _WAIT_BEFORE_PROMPT_S
        if last is not None and not isinstance(stored.message, UserMessage):
            waited = min(max(0.0, stored.created_at - last), LONGEST_WAIT_S)
        last = stored.created_at
        following = shown[at + 1].seq if at + 1 < len(shown) else None
        with_it = _until(notes, following)
        turn.add(stored, with_it)
        yield Scene(waited, tuple(past.events([stored], with_it, session.runs)))
    if shown:
        yield Scene(0.0, turn.end(session.info.status, session.info.detail))


def _until(notes: list[Note], seq: int | None) -> list[Note]:
    found = []
    while notes and (seq is None or notes[0].after_seq < seq):
        found.append(notes.pop(0))
    return found


class _Turn:
    """What a turn amounted to, from what is kept of it."""

    def __init__(self, costs: Mapping[int, float | None]) -> None:
        self._costs = costs
        self._began = self._ended = 0.0
        self._steps = 0
        self._usage = Usage()
        self._cost: float | None = 0.0
        self._is_open = self._is_answered = self._was_cancelled = self._was_cut = False

    def is_over_before(self, stored: StoredMessage) -> bool:
        """Whether ``stored`` is the prompt of another turn; what is typed within one is not."""
        message = stored.message
        said = isinstance(message, UserMessage) and not message.is_instructions
        is_ended = self._is_answered or self._was_cancelled or self._was_cut
        return self._is_open and is_ended and said

    def add(self, stored: StoredMessage, notes: Sequence[Note]) -> None:
        """One message more."""
        if not self._is_open:
            self._is_open, self._began = True, stored.created_at
        self._ended = stored.created_at
        self._was_cut = any(note.kind == "partial" for note in notes)
        message = stored.message
        if isinstance(message, AssistantMessage):
            self._steps += 1
            self._usage += message.usage
            cost = self._costs.get(stored.seq)
            known = self._cost is not None and cost is not None
            self._cost = (self._cost or 0.0) + (cost or 0.0) if known else None
            self._is_answered = not message.tool_calls
        elif isinstance(message, ToolResult):
            self._was_cancelled |= message.status is ResultStatus.CANCELLED

    def end(self, status: SessionStatus, detail: str) -> tuple[AgentEvent, ...]:
        """How it ended; ``status`` and ``detail`` are the session's if it was the last turn."""
        took = max(0.0, self._ended - self._began)
        done = TurnSummary(Outcome.DONE, self._steps, self._usage, took, cost_usd=self._cost)
        if self._was_cancelled or status is SessionStatus.CANCELLED:
            return (Cancelled(done, "user"),)
        if self._is_answered:
            return (Done(done),)
        if status is SessionStatus.DONE and self._was_cut:
            return ()  # a notice has said it
        return (Notice(detail or _INTERRUPTED),)


class Player:
    """Plays scenes on ``sys.stdout``; ``speed`` 0 is at once, ``steps`` waits for a key at each."""

    def __init__(self, theme: Theme, speed: float, *, steps: bool, folds: bool) -> None:
        self._theme = theme
        self._speed = speed
        self._steps = steps
        self._paused = False
        self._screen = Screen(sys.stdout, theme)
        self._view = TurnView(self._screen, folds=folds)
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self.exit_code = 0

    async def play(self, all_scenes: Iterator[Scene]) -> None:
        """Until the end or until the user has seen enough; ``exit_code`` says which (CLI-6)."""
        has_keys = (self._speed > 0 or self._steps) and sys.stdin.isatty() and self._theme.live
        with _keys(self._keys.put_nowait, self._end) if has_keys else _no_keys():
            if has_keys:
                self._screen.print_block([self._theme.paint(KEYS, DIM)])
            try:
                for scene in all_scenes:
                    await self._show(scene)
            except SeenEnough:
                self.exit_code = self.exit_code or 128 + signal.SIGINT
            finally:
                self._view.finish_replay()

    def _end(self, number: int) -> None:
        """A signal says that it is over."""
        self.exit_code = 128 + number
        self._keys.put_nowait("q")

    async def _show(self, scene: Scene) -> None:
        if scene.events:
            await self._wait(scene.wait_s, may_step=bool(scene.wait_s))
        for event in scene.events:
            if self._screen.is_gone:
                raise SeenEnough
            if isinstance(event, TextChunk | ThinkingChunk) and self._speed:
                for at in range(0, len(event.text), _PIECE):
                    self._view.on_event(type(event)(event.text[at : at + _PIECE]))
                    await self._wait(_PIECE_S)
            else:
                self._view.on_event(event)

    async def _wait(self, seconds: float, *, may_step: bool = False) -> None:
        """``seconds`` of then; in a pause, or before a step, until a key says so."""
        loop = asyncio.get_running_loop()
        while True:
            held, speed, since = (
                self._paused or (may_step and self._steps),
                self._speed,
                loop.time(),
            )
            if not held and (seconds <= 0 or not speed) and self._keys.empty():
                await asyncio.sleep(0)
                return
            try:
                async with asyncio.timeout(None if held else seconds / speed if speed else 0):
                    key = await self._keys.get()
            except TimeoutError:
                return
            if not held:
                seconds -= (loop.time() - since) * speed
            if self._act(key) and held:
                return

    def _act(self, key: str) -> bool:
        """What a key does; true for a step."""
        if key in {"q", "Q", "\x03", "\x04"}:
            raise SeenEnough
        if key == " " and not self._steps:
            self._paused = not self._paused
        elif key == "+":
            self._speed = min(FASTEST, (self._speed or 1.0) * 2)
        elif key == "-":
            self._speed = max(SLOWEST, (self._speed or 1.0) / 2)
        return key in {"\r", "\n", " " if self._steps else ""}


@contextmanager
def _keys(heard: Callable[[str], None], end: Callable[[int], None]) -> Iterator[None]:
    """Keys one by one and unechoed until the block ends; Ctrl-C stays a signal.

    ``end`` gets any other signal that would leave the terminal like that.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def ready() -> None:
        try:
            data = os.read(descriptor, 64)
        except OSError:
            data = b""
        for key in (data or b"q").decode("ascii", "ignore"):  # without keys nobody looks
            heard(key)

    tty.setcbreak(descriptor, termios.TCSADRAIN)
    loop.add_reader(descriptor, ready)
    for number in _ENDING:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        for number in _ENDING:
            loop.remove_signal_handler(number)


@contextmanager
def _no_keys() -> Iterator[None]:
    yield


def ended_line(session: LoadedSession, theme: Theme) -> str:
    """Said after the last scene, where somebody is looking."""
    title = clean_line(session.info.title) or session.info.id
    return theme.paint(f"End of {title} ({plural(session.info.turns, 'turn')}).", DIM)
