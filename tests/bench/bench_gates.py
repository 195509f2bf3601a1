"""What ten gates and ten context transforms cost a step on a long history (CTRL-4, CTRL-8).

Run: python -m tests.bench.bench_gates [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    user_text,
)
from agentcli.domain.ports import GateAnswer, StepFacts
from agentcli.engine.context.outgoing import TransformChain
from agentcli.engine.gates import resolve
from tests.bench.table import Row, show
from tests.support.turns import PlayedProvider, World

CHAIN = 10
MESSAGES = 1_000
TARGET_MS = 1.0
TOOLS = frozenset(f"tool_{number}" for number in range(30))


@dataclass
class Leaves:
    """A gate that forbids one tool."""

    name: str
    priority: int

    def allow(self, facts: StepFacts) -> GateAnswer | None:
        return GateAnswer(facts.tools - {self.name}, required=self.priority % 2 == 0)


@dataclass
class Marks:
    """A transform that changes one message: the copy of a long list and one new value."""

    name: str
    at: int

    def apply(self, messages: Sequence[Message], facts: StepFacts) -> Sequence[Message]:
        found = list(messages)
        if isinstance(message := found[self.at], ToolResult):
            found[self.at] = replace(message, parts=(TextPart(f"(left out by {self.name})"),))
        return found


def history(count: int) -> list[Message]:
    """Prompts, calls and results in turn, with output of some length."""
    made: list[Message] = []
    while len(made) < count:
        call = ToolCall(f"call_{len(made)}", "tool_1", {"path": "src/app.py"})
        made.append(user_text("Look at it again."))
        made.append(AssistantMessage((TextPart("I look."), call), provider="p", model="m"))
        made.append(ToolResult(call.id, call.name, (TextPart("a line of output\n" * 40),)))
        made.append(AssistantMessage((TextPart("It is as it was."),), provider="p", model="m"))
    return made[:count]


def rows(runs: int) -> Iterator[Row]:
    """Milliseconds for each step."""
    world = World(PlayedProvider())
    gates = [Leaves(f"tool_{number}", number) for number in range(CHAIN)]
    world.set(transforms=[Marks(f"t{n}", 2 + 4 * n) for n in range(CHAIN)])
    chain = TransformChain()
    facts = StepFacts(1, TOOLS, messages=tuple(history(MESSAGES)))
    times = []
    for _ in range(max(runs, 1) * 20):
        started = time.perf_counter()
        resolve(gates, facts)
        chain.apply(world.conversation.parts.transforms, facts, world.emit)
        times.append((time.perf_counter() - started) * 1_000)
    name = f"{CHAIN} gates and {CHAIN} transforms, {MESSAGES:,} messages, a step"
    yield Row(name, statistics.median(times), "ms", target=TARGET_MS)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
