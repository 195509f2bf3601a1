"""What a session knows of its context: how full it is, what is left out, when to compact.

Law: looking costs a step next to nothing, whatever the length of the history; a compaction that
failed or won nothing is not tried again at every step (CMP-1).
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcli.domain.history import History
from agentcli.domain.messages import Message, Usage
from agentcli.domain.ports import ModelInfo
from agentcli.domain.tools import ToolDefinition
from agentcli.engine.context.pruning import Pruner
from agentcli.engine.context.tokens import Gauge

FULL = 0.8
NEAR = 0.9
_NEXT_SHARE = 0.1
_SURELY_LESS = 0.95
_MOST_SKIPS = 32
_OUTPUT_MARGIN = 1.02
_OUTPUT_SPARE = 100
_FEWEST_OUTPUT = 256


class Context:
    """One per session; lives as long as it does."""

    __slots__ = ("_again_at", "_failures", "_skips", "_windows", "gauge", "pruner")

    def __init__(self) -> None:
        self.gauge = Gauge()
        self.pruner = Pruner()
        self._windows: dict[str, int] = {}
        self._again_at = 0
        self._failures = 0
        self._skips = 0

    @property
    def used(self) -> int:
        """Tokens of the next request."""
        return self.gauge.used

    def window(self, model: ModelInfo) -> int:
        """The model's window in tokens, or what it turned out to be."""
        return min(model.context_tokens, self._windows.get(model.id, model.context_tokens))

    def look(
        self,
        history: History,
        system: str,
        tools: Sequence[ToolDefinition],
        model: ModelInfo | None = None,
    ) -> None:
        """Take in what is new, as ``model`` (or the last one) gets it; before all else is asked."""
        window = None if model is None else model.context_tokens
        if self.gauge.look(history, system, tools, window):
            self.pruner.resize(history.messages, self.gauge)

    def prune(self, messages: Sequence[Message], model: ModelInfo) -> int:
        """Leave old tool output out of requests where they get large; how many results more."""
        return self.pruner.prune(messages, self.gauge, self.window(model))

    def is_full(self, model: ModelInfo) -> bool:
        """Whether it is time for a compaction (CMP-4); asked once a step."""
        if self.used < max(FULL * self.window(model), self._again_at):
            return False
        if self._skips:
            self._skips -= 1
            return False
        return True

    def near_end(self, model: ModelInfo) -> str | None:
        """In words that the window is nearly used up, where no compaction has helped (CTRL-7)."""
        used, window = self.used, self.window(model)
        if used < NEAR * window:
            return None
        return f"about {used:,} of the {window:,} tokens of the context window are used"

    def overflowed(self, model: ModelInfo) -> None:
        """A request had too many tokens: the window, or our estimate, was wrong."""
        if self.gauge.is_measured:
            self._windows[model.id] = min(self.window(model), int(self.used * _SURELY_LESS))
        else:
            self.gauge.at_least(self.window(model))

    def failed(self) -> None:
        """A compaction failed: it is left alone for more and more steps."""
        self._failures += 1
        self._skips = min(2**self._failures, _MOST_SKIPS)

    def folded(self, history: History, system: str, tools: Sequence[ToolDefinition]) -> None:
        """A compaction has changed ``history``."""
        self._failures = self._skips = 0
        self.pruner.forget()
        self.look(history, system, tools)

    def wait_for_more(self, model: ModelInfo) -> None:
        """A compaction leads nowhere before there is more to fold."""
        self._again_at = self.used + int(_NEXT_SHARE * self.window(model))

    def room_for_output(self, model: ModelInfo, cap: int | None) -> int | None:
        """``cap``, lowered where request and reply together would pass the window."""
        left = int(self.window(model) - self.used * _OUTPUT_MARGIN) - _OUTPUT_SPARE
        if left >= (cap or model.max_output_tokens):
            return cap
        return max(_FEWEST_OUTPUT, left)

    def measured(self, usage: Usage) -> None:
        """What the provider reported of the request that was just answered."""
        self.gauge.measured(usage)
