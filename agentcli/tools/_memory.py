"""The model's own notes: texts by key, in the session's file, and their limits (TOOL-5).

Law: one change at a time: all of it is one value of the session's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any
from weakref import WeakValueDictionary

from pydantic import AfterValidator

from agentcli.domain.tools import SessionState
from agentcli.tools.files.paths import one_line

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


MAX_KEYS = 200
MAX_KEY_CHARS = 200
MAX_VALUE_CHARS = 20_000
MAX_TOTAL_CHARS = 200_000
_NEAR = 5


def _checked(key: str) -> str:
    if not 0 < len(key) <= MAX_KEY_CHARS:
        raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters")
    return key


Key = Annotated[str, AfterValidator(_checked)]
"""Checked here and not by the schema, which is sent with every request (CTX-2)."""


def unknown_key(key: str, memory: dict[str, str]) -> str:
    """What the model is told of a key that is not there."""
    from difflib import get_close_matches

    near = get_close_matches(key, memory, n=_NEAR, cutoff=0.5)
    known = near or list(memory)[-_NEAR:]
    hint = f"there is {', '.join(one_line(k, 60) for k in known)}" if known else "nothing is kept"
    return f"There is no key {one_line(key, 60)!r}: {hint}."
