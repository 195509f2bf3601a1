"""What retries, watchdog and cancel checks cost on a stream where nothing goes wrong.

Run: python -m tests.bench.bench_resilience [RUNS]. The floor folds and shows the same stream of
the same provider without them, in turn, in processor time. Over a socket many chunks arrive
together; the second row takes every chunk as an event of its own, from memory.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import AgentEvent, TextChunk
from agentcli.domain.messages import StopReason, user_text
from agentcli.domain.ports import ModelInfo, ModelRequest, Provider, ProviderConfig
from agentcli.domain.stream import StreamEnd, StreamEvent, TextDelta
from agentcli.engine.assemble import Assembler
from agentcli.engine.sample import Sampler
from agentcli.providers._registry import create
from tests.bench.measure import service
from tests.bench.service import chunk
from tests.bench.table import Row, show

CHUNKS = 20_000
MODEL = ModelInfo("anthropic", "m")
REQUEST = ModelRequest(MODEL, "system", (user_text("hi"),))
Read = Callable[[Provider], Awaitable[object]]


class InMemory:
    """A provider that has its reply ready, one event for each chunk."""

    name = "memory"

    def __init__(self) -> None:
        self._events: list[StreamEvent] = [TextDelta(0, chunk(n)) for n in range(CHUNKS)]
        self._events.append(StreamEnd(StopReason.END_TURN))

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncIterator[StreamEvent]:
        for event in self._events:
            yield event

    async def aclose(self) -> None:
        return None


async def bare(provider: Provider) -> object:
    """Fold and show, nothing else."""
    shown: list[AgentEvent] = []
    assembler = Assembler(MODEL.provider, MODEL.name, frozenset())
    async for event in provider.stream(REQUEST, CancelToken()):
        assembler.add(event)
        if isinstance(event, TextDelta):
            shown.append(TextChunk(event.text))
    return assembler.message()


async def guarded(provider: Provider) -> object:
    """The same through the sampler."""
    shown: list[AgentEvent] = []
    return await Sampler(provider, shown.append).sample(REQUEST, frozenset(), CancelToken())


def compare(make: Callable[[], Provider], runs: int) -> tuple[float, float]:
    """Median processor seconds: guarded, bare."""

    async def once(read: Read) -> float:
        provider = make()
        began = time.process_time()
        await read(provider)
        took = time.process_time() - began
        await provider.aclose()
        return took

    found: dict[str, list[float]] = {"guarded": [], "bare": []}
    for count in range(runs + 1):
        for name, read in (("guarded", guarded), ("bare", bare)):
            took = asyncio.run(once(read))
            if count:
                found[name].append(took)
    return statistics.median(found["guarded"]), statistics.median(found["bare"])


def rows(runs: int) -> Iterator[Row]:
    """The figures of the resilience layer."""
    with service(CHUNKS) as port:
        config = ProviderConfig("anthropic", "anthropic", f"http://127.0.0.1:{port}", "", "sk-test")
        value, base = compare(lambda: create(config), runs)
    yield Row("20,000 clean chunks, retries and watchdog / without", value, "s", base, 1.05)
    memory = InMemory()
    value, base = compare(lambda: memory, runs)
    per_event = (value - base) / CHUNKS * 1e6
    yield Row("cost of both per event, every chunk an event", per_event, "us", None, 1.0)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
