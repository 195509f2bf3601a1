"""The chain of context transforms, and what each of them has changed (CTRL-8).

Law: the history itself is never touched; what did not change is not looked at: a step costs the
messages that are new or were changed, not the length of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import is_not

from agentcli.domain.events import ContextTransformed
from agentcli.domain.messages import Message
from agentcli.domain.ports import ContextTransform


class TransformChain:
    """Runs the transforms of a session; remembers the sizes of the history's messages."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, int]] = {}
        self._last: Message | None = None
        self._count = 0
        self._total = 0

    def apply(
        self,
        transforms: Sequence[ContextTransform],
        messages: Sequence[Message],
        report: Callable[[ContextTransformed], None],
    ) -> Sequence[Message]:
        """The copy for one request; the same object where nothing was changed."""
        if not transforms:
            return messages
        size = self._size_of_history(messages)
        for transform in transforms:
            before, messages = messages, transform.apply(messages)
            if messages is before:
                continue
            old_size, size = size, size + self._grown(before, messages)
            counts = (len(before), len(messages))
            report(ContextTransformed(transform.name, *counts, old_size, size))
        return messages

    def _size_of_history(self, messages: Sequence[Message]) -> int:
        """Characters of visible text; only what was appended since is counted anew."""
        count = self._count
        if not (0 < count <= len(messages) and messages[count - 1] is self._last):
            self._known.clear()
            count = self._total = 0
        for message in messages[count:]:
            size = len(message.text)
            self._known[id(message)] = (message, size)
            self._total += size
        self._count = len(messages)
        self._last = messages[-1] if messages else None
        return self._total

    def _grown(self, before: Sequence[Message], after: Sequence[Message]) -> int:
        """By how much the text has grown: a look at those that differ."""
        if len(before) == len(after):
            changed = list(map(is_not, before, after))
            return self._sizes(compress(after, changed)) - self._sizes(compress(before, changed))
        start = _alike(before, after)
        end = _alike(before[start:][::-1], after[start:][::-1])
        old, new = before[start : len(before) - end], after[start : len(after) - end]
        return self._sizes(new) - self._sizes(old)

    def _sizes(self, messages: Iterable[Message]) -> int:
        total = 0
        for message in messages:
            known = self._known.get(id(message))
            if known is not None and known[0] is message:
                total += known[1]
            else:
                total += len(message.text)
        return total


def _alike(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages at the start of both are the same."""
    differ = list(map(is_not, one, other))
    return differ.index(True) if True in differ else len(differ)
