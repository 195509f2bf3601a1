"""Events that are kept: in order, and each stream as one (CTRL-9)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agentcli.app.keeping import EventKeeper
from agentcli.domain.events import StepStart, TextChunk
from agentcli.domain.session import KeptEvent


class SlowStore:
    """Takes what it is given once ``may_go`` is set."""

    def __init__(self) -> None:
        self.kept: list[KeptEvent] = []
        self.asked, self.may_go = asyncio.Event(), asyncio.Event()

    async def append(self, events: Sequence[KeptEvent]) -> None:
        self.asked.set()
        await self.may_go.wait()
        self.kept += events

    async def events(self) -> Sequence[KeptEvent]:
        return self.kept


@pytest.mark.spec("CTRL-9", "SEC-9")
def test_a_stream_that_goes_on_is_one_row_however_slow_the_store_is() -> None:
    async def body() -> None:
        store = SlowStore()
        keeper = EventKeeper(store, pytest.fail)
        keeper.on_event(StepStart(1))
        await store.asked.wait()
        keeper.on_event(TextChunk("sec"))
        store.may_go.set()
        for _ in range(10):
            await asyncio.sleep(0)
        keeper.on_event(TextChunk("ret"))
        keeper.on_event(StepStart(2))
        keeper.on_event(TextChunk("the end"))
        await keeper.aclose()
        found = [(each.type, each.data.get("text")) for each in store.kept]
        step, text = StepStart.type, TextChunk.type
        assert found == [(step, None), (text, "secret"), (step, None), (text, "the end")]

    asyncio.run(body())
