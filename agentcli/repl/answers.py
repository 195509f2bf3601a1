"""Which keys answer a question (UI-7). Pure but for the clock that is given.

Law: an answer counts only when it was pressed after the question had appeared, and not in the
flow of other typing: after a key that came less than ``FLOW_S`` before the question, a pause of
that length has to come first. The rest of a word (``yes``) and its Enter belong to the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

FLOW_S = 0.7
REST_S = 0.4  # the rest of a word comes as fast as a person types
_WORDS = {"y": "es", "n": "o", "s": "ession", "a": "lways"}


class Answers:
    """The question that waits, if one does. Times are those of the loop's clock."""

    def __init__(self) -> None:
        self._future: asyncio.Future[str] | None = None
        self._answers: Mapping[str, str] = {}
        self._last_key_at = float("-inf")
        self._in_flow = False
        self._rest = ""
        self._rest_until = float("-inf")

    def ask(self, answers: Mapping[str, str], now: float) -> asyncio.Future[str]:
        """A question appears; its future gets the answer."""
        self._in_flow = now - self._last_key_at < FLOW_S
        self._answers = answers
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    def forget(self, future: asyncio.Future[str]) -> None:
        """The question waits no longer."""
        if self._future is future:
            self._future = None

    def key_comes(self, now: float) -> None:
        """A key was pressed; before it is judged."""
        if self._in_flow and now - self._last_key_at >= FLOW_S:
            self._in_flow = False
        self._last_key_at = now

    def flow_ended(self) -> None:
        """A message was sent: what comes next is no longer the same typing."""
        self._last_key_at = float("-inf")

    @property
    def is_waiting(self) -> bool:
        """Whether a question waits."""
        return self._future is not None and not self._future.done()

    @property
    def letters(self) -> str:
        """The keys that answer: ``y, s, n, r``."""
        return ", ".join(self._answers)

    def are_taken(self, now: float) -> bool:
        """Whether a key at ``now`` would answer."""
        idle = now - self._last_key_at >= FLOW_S
        return self.is_waiting and (idle or not self._in_flow)

    def answer(self, key: str, now: float) -> bool:
        """Take ``key`` as the answer; false when it is none."""
        value = self._answers.get(key.lower())
        if value is None or self._future is None or self._future.done():
            return False
        self._future.set_result(value)
        self._last_key_at = float("-inf")
        self._rest = _WORDS.get(key.lower(), "")
        self._rest_until = now + REST_S
        return True

    def belongs_to_answer(self, key: str, now: float) -> bool:
        """Whether ``key`` only finishes the word of the answer just given."""
        if now > self._rest_until:
            return False
        if self._rest and key.lower() == self._rest[0]:
            self._rest = self._rest[1:]
            self._rest_until = now + REST_S
            return True
        self._rest_until = float("-inf")
        return key in {"\r", "\n"}
