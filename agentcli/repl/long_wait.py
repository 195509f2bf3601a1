"""The question whether to wait for a rate limit that lasts (STR-2).

Law: only a clear yes is a yes; no answer, an unclear one and Ctrl-C end the turn.
"""

from __future__ import annotations

from agentcli.domain.errors import ProviderError
from agentcli.domain.tools import Asker

WAIT = "Wait, then go on by itself"
STOP = "Stop here"
_YES = frozenset({WAIT.lower(), "y", "yes", "wait", "ok"})


class LongWaitQuestion:
    """Satisfies ``LongWait``: asks where the chat asks everything."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def offer(self, error: ProviderError, delay_s: float) -> bool:
        """Whether to wait; ``error`` says what happened and until when."""
        del delay_s
        question = f"{error.message}; {error.advice}. Wait for it?"
        answer = await self._asker.ask(question, (WAIT, STOP))
        return answer.strip().lower() in _YES
