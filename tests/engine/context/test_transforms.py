"""The chain of transforms reports true sizes, whatever is appended, replaced, dropped or folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.events import ContextTransformed
from agentcli.domain.messages import Message, user_text
from agentcli.engine.context.transforms import TransformChain


@dataclass
class Edit:
    """Cuts a part out and puts other texts in its place."""

    name: str
    start: int
    end: int
    texts: list[str] = field(default_factory=list)

    def apply(self, messages: Sequence[Message]) -> Sequence[Message]:
        if self.start >= self.end and not self.texts:
            return messages
        new = [user_text(text) for text in self.texts]
        return [*messages[: self.start], *new, *messages[max(self.start, self.end) :]]


def size(messages: Sequence[Message]) -> int:
    return sum(len(message.text) for message in messages)


texts = st.lists(st.text(max_size=4), max_size=4)
edits = st.lists(st.builds(Edit, st.just("e"), st.integers(0, 6), st.integers(0, 6), texts), max_size=3)  # fmt: skip


@pytest.mark.spec("CTRL-8")
@settings(max_examples=80)
@given(st.lists(st.tuples(texts, st.booleans(), edits), min_size=1, max_size=5))
def test_what_is_reported_is_what_was_there_and_what_is_sent(
    steps: list[tuple[list[str], bool, list[Edit]]],
) -> None:
    chain = TransformChain()
    history: list[Message] = []
    for appended, is_folded, transforms in steps:
        if is_folded:
            del history[: len(history) // 2]
        history += [user_text(text) for text in appended]
        before = tuple(history)
        told: list[ContextTransformed] = []
        sent = chain.apply(transforms, history, told.append)
        assert tuple(history) == before
        at, now = 0, list(before)
        for transform in transforms:
            after = transform.apply(now)
            if after is now:
                continue
            event, at = told[at], at + 1
            assert (event.messages_before, event.messages_after) == (len(now), len(after))
            assert (event.characters_before, event.characters_after) == (size(now), size(after))
            now = list(after)
        assert at == len(told) and [m.text for m in sent] == [m.text for m in now]


@pytest.mark.spec("CTRL-8")
def test_without_a_change_nothing_is_copied_and_nothing_reported() -> None:
    history = [user_text("a")]
    told: list[ContextTransformed] = []
    chain = TransformChain()
    assert chain.apply((), history, told.append) is history
    assert chain.apply([Edit("none", 0, 0)], history, told.append) is history
    assert told == []
