"""What Ctrl-C means, as a pure state machine (CAN-13).

============================  ==========================================================
when Ctrl-C is pressed        what happens
============================  ==========================================================
the agent works               ``CANCEL`` the turn, keep the program
a cancel is under way         ``FORCE``: skip the grace period and kill
there is text in the prompt   ``CLEAR`` the text
the prompt is empty           ``HINT``: say how to leave; within 2 s again: ``LEAVE``
============================  ==========================================================
"""

from __future__ import annotations

from enum import Enum, auto

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
    """Remembers when the hint was given."""

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
