"""A model that goes in circles is told so, then stopped (OPS-2).

A repeat is a call with a name, arguments and a result that the turn has seen together before.
Repeats add up for each such triple, whatever other repeats stand between (A, B, A, B is a circle
too), until anything new comes: a new call, or an old one with a new result. So polling something
that moves is no circle, nor is trying again after a change. Law: the turn is never stopped by a
repeat that was not pointed out to the model before.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence

from agentcli.domain.messages import TextPart, ToolCall, ToolResult
from agentcli.domain.values import frozen

POINTED_OUT_AT = 5
STOPPED_AT = 8
_NAME_CHARS = 64
# How long a command took, at the end of what ``bash`` says of it.
_DURATION = re.compile(r"(?:\d+ min )?\d+(?:\.\d+)? s(?=\]\Z)")


@frozen
class Repeated:
    """What to do about a circle: add ``reminder`` for the model, or end the turn with ``stop``.

    Exactly one of the two is not empty.
    """

    reminder: str = ""
    stop: str = ""


class Repeats:
    """Watches the batches of one turn. Costs a digest per call."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._counts: Counter[bytes] = Counter()
        self._told: set[bytes] = set()

    def forget(self) -> None:
        """Begin anew: the user has said something, so that calling again may be right."""
        self._seen.clear()
        self._start_counting()

    def observe(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> Repeated | None:
        """Take a finished batch; a call without a result does not count."""
        by_id = {result.call_id: result for result in results}
        repeated: dict[bytes, ToolCall] = {}
        for call in calls:
            if call.id not in by_id:
                continue
            triple = _digest(call, by_id[call.id])
            if triple not in self._seen:
                self._seen.add(triple)
                self._start_counting()
                repeated.clear()
            self._counts[triple] += 1
            repeated[triple] = call
        if not repeated:
            return None
        worst = max(repeated, key=lambda triple: self._counts[triple])
        return self._judged(worst, repeated[worst].name[:_NAME_CHARS])

    def _judged(self, triple: bytes, name: str) -> Repeated | None:
        count = self._counts[triple]
        if count < POINTED_OUT_AT:
            return None
        if count >= STOPPED_AT and triple in self._told:
            return Repeated(
                stop=f"{name} was called {count} times with the same arguments and the same "
                "result; the model was going in circles"
            )
        self._told.add(triple)
        return Repeated(
            reminder=f"You have called {name} {count} times with the same arguments and got the "
            "same result each time. Calling it again will not change that. Do something else, "
            "or say what is in the way; if you repeat it again, the turn will be stopped."
        )

    def _start_counting(self) -> None:
        self._counts.clear()
        self._told.clear()


def _digest(call: ToolCall, result: ToolResult) -> bytes:
    """Call and result without what differs each time: the id, and how long a command took."""
    digest = hashlib.blake2b(digest_size=16)
    asked = json.dumps([call.name, call.arguments, call.malformed], sort_keys=True)
    digest.update(asked.encode())
    for part in result.parts:
        if isinstance(part, TextPart):
            text = _DURATION.sub("", part.text.replace(result.call_id, ""))
            digest.update(b"\0text" + text.encode("utf-8", "surrogatepass"))
        else:
            digest.update(b"\0image" + part.data)
    digest.update(b"\0" + result.status.value.encode())
    return digest.digest()
