"""The look at the context before each step, in a history of 10,000 messages.

Run: python -m tests.bench.bench_context [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator

from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    user_text,
)
from agentcli.domain.ports import ModelInfo
from agentcli.engine.context.compaction import plan
from agentcli.engine.context.window import Context
from tests.bench.table import Row, show

MESSAGES = 10_000
STEPS = 50
ROOMY = ModelInfo("test", "model", context_tokens=100_000_000)


def long_history() -> History:
    """Turns of eight messages, 1,000 to 2,000 characters each."""
    history = History()
    while len(history) < MESSAGES:
        start = len(history)
        history.append(user_text("x" * 1_000))
        for number in range(3):
            call = ToolCall(f"c{start}-{number}", "bash", {"command": "x" * 100})
            history.append(AssistantMessage((TextPart("x" * 900), call)))
            history.append(ToolResult(call.id, "bash", (TextPart("x" * 2_000),)))
        history.append(AssistantMessage((TextPart("x" * 1_000),)))
    return history


def _per_step(work: Callable[[Context, History, int], object]) -> float:
    """Median milliseconds of ``work`` in steps that each add a call and its result."""
    history, context = long_history(), Context()
    context.look(history, "system", ())
    context.gauge.measured(Usage(3_000_000, 0))
    took = []
    for number in range(STEPS):
        call = ToolCall(f"n{number}", "bash", {})
        history.append(AssistantMessage((call,)))
        history.append(ToolResult(call.id, "bash", (TextPart("x" * 1_000),)))
        began = time.perf_counter()
        work(context, history, number)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1_000


def _check(context: Context, history: History, model: ModelInfo) -> None:
    context.look(history, "system", ())
    context.prune(history.messages, model)
    context.is_full(model)
    context.pruner.apply(history.messages)


def rows(runs: int) -> Iterator[Row]:
    """Milliseconds per step: with room, and with old output left out; the target is 5."""
    filling = ModelInfo("test", "model", context_tokens=4_500_000)
    for name, model in (("with room", ROOMY), ("old output left out", filling)):
        found = [_per_step(lambda c, h, _, m=model: _check(c, h, m)) for _ in range(runs)]
        yield Row(
            f"context check, {MESSAGES:,} messages, {name}",
            statistics.median(found),
            "ms",
            None,
            5.0,
        )
    yield Row("first look at them", statistics.median(_first() for _ in range(runs)), "ms")
    yield Row("what to fold of them", statistics.median(_plan() for _ in range(runs)), "ms")


def _first() -> float:
    history = long_history()
    began = time.perf_counter()
    Context().look(history, "system", ())
    return (time.perf_counter() - began) * 1_000


def _plan() -> float:
    history, context = long_history(), Context()
    context.look(history, "system", ())
    began = time.perf_counter()
    plan(history.messages, context.gauge.sizes, 100_000)
    return (time.perf_counter() - began) * 1_000


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
