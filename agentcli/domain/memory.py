"""What the model has put down for itself: texts by key, in the session's file (TOOL-5).

Law: one change at a time: all of it is one value of the session's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from agentcli.domain.tools import SessionState

STATE_KEY = "memory"
_locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()


async def read_memory(state: SessionState) -> dict[str, str]:
    """Everything, by key, in the order in which it was first set."""
    found = await state.get(STATE_KEY)
    if not isinstance(found, dict):
        return {}
    return {str(key): str(value) for key, value in found.items()}


async def change_memory(state: SessionState, change: Callable[[dict[str, str]], Any]) -> Any:
    """Read, let ``change`` alter the mapping, store it; returns what ``change`` returned.

    A ``ValueError`` of ``change`` goes through and nothing is stored.
    """
    lock = _locks.setdefault(id(state), asyncio.Lock())
    async with lock:
        memory = await read_memory(state)
        before = dict(memory)
        answer = change(memory)
        if memory != before:
            await state.set(STATE_KEY, memory)
        return answer
