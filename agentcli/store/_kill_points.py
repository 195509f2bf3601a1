"""Test hooks: end this process at a chosen write (REC-3). Without effect unless asked for.

Each transaction on a session file passes three points: before BEGIN, before COMMIT, after
COMMIT. The creation of a session file counts as one transaction.

``AGENTCLI_TEST_KILL_AT_WRITE=N``         SIGKILL at the N-th point (from 1) of this process.
``AGENTCLI_TEST_KILL_AT_WRITE=N:before``  SIGKILL before the COMMIT of the N-th transaction.
``AGENTCLI_TEST_KILL_AT_WRITE=N:after``   SIGKILL after the COMMIT of the N-th transaction.
``AGENTCLI_TEST_COUNT_WRITES=FILE``       whenever a session is closed, append to FILE a line
with the number of points passed so far by this process; the last line is the total.
"""

from __future__ import annotations

import os
from pathlib import Path

KILL_VARIABLE = "AGENTCLI_TEST_KILL_AT_WRITE"
COUNT_VARIABLE = "AGENTCLI_TEST_COUNT_WRITES"
POINTS_PER_WRITE = 3
_OFFSETS = {"before": 2, "after": 3}

_passed = 0


def target() -> int | None:
    """The point at which this process is to end; ``None`` outside such tests."""
    text = os.environ.get(KILL_VARIABLE)
    if text is None:
        return None
    number, _, moment = text.partition(":")
    if not moment:
        return int(number)
    return (int(number) - 1) * POINTS_PER_WRITE + _OFFSETS[moment]


def reach(kill_at: int | None) -> None:
    """Pass the next point."""
    global _passed  # noqa: PLW0603 - the points of one process are one sequence
    _passed += 1
    if _passed == kill_at:
        import signal

        os.kill(os.getpid(), signal.SIGKILL)


def report() -> None:
    """Write the count where a test wants it."""
    name = os.environ.get(COUNT_VARIABLE)
    if name is not None:
        with Path(name).open("a", encoding="ascii") as file:
            file.write(f"{_passed}\n")
