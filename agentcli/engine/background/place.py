"""Where a planned command runs: where the session's shell was when it was planned (BG-8).

Law: what was approved in one directory is not done in another.
"""

from __future__ import annotations

from typing import Any

from agentcli.domain.tools import SessionState

SHELL = "shell"


class ShellAt:
    """The state of the session, with its shell in ``cwd``; satisfies ``SessionState``."""

    def __init__(self, state: SessionState, cwd: str) -> None:
        self._state = state
        self._cwd = cwd

    async def get(self, key: str) -> Any:
        """The value, or ``None``."""
        value = await self._state.get(key)
        if key != SHELL:
            return value
        return {**(value if isinstance(value, dict) else {}), "cwd": self._cwd}

    async def set(self, key: str, value: Any) -> None:
        """Store ``value``; a planned run does not move the session's shell."""
        if key != SHELL:
            await self._state.set(key, value)
