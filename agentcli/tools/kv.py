"""``kv_get``, ``kv_set``, ``kv_delete``, ``kv_list``: texts that the model keeps in this session.

They outlive compaction and restarts (TOOL-5).
Law: one change at a time: all of them are one value of the session's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakValueDictionary

from pydantic import AfterValidator

from agentcli.domain.tools import Asks, ToolContext, ToolHints, ToolOutput
from agentcli.domain.values import frozen
from agentcli.tools.common.base import A, Arguments, BaseTool, one_line

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import SessionState

STATE_KEY = "memory"
MAX_KEYS = 200
MAX_KEY_CHARS = 200
MAX_VALUE_CHARS = 20_000
MAX_TOTAL_CHARS = 200_000
_NEAR = 5
_SHOWN_CHARS = 80
_locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()


def _checked(key: str) -> str:
    if not 0 < len(key) <= MAX_KEY_CHARS:
        raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters")
    return key


class KeyArguments(Arguments):
    """A key. It is checked here and not by the schema, which each request carries (CTX-2)."""

    key: Annotated[str, AfterValidator(_checked)]


class SetArguments(KeyArguments):
    """Arguments of ``kv_set``."""

    value: str


class NoArguments(Arguments):
    """Arguments of ``kv_list``: none."""


@frozen
class MemoryContext(ToolContext):
    """The session's own state."""

    state: SessionState


class _MemoryTool(BaseTool[A]):
    asks = Asks.NOTHING  # it changes the session alone
    context = MemoryContext
    group = "memory"
    hints = ToolHints(idempotent=True)

    def summary(self, args: A) -> str:
        """Which key."""
        key = getattr(args, "key", "")
        return f"{self.display_name} {one_line(key, 60)}" if key else self.display_name


class GetTool(_MemoryTool[KeyArguments]):
    """Reads a key."""

    name = "kv_get"
    display_name = "Remember"
    description = "Read what kv_set has kept."
    params = KeyArguments
    concurrent = True

    async def run(self, args: KeyArguments, ctx: MemoryContext) -> ToolOutput:
        """The text; an unknown key is an error with near keys."""
        memory = await read_memory(ctx.state)
        if args.key not in memory:
            return _unknown_key(args.key, memory)
        return ToolOutput.text(memory[args.key])


class SetTool(_MemoryTool[SetArguments]):
    """Writes a key."""

    name = "kv_set"
    display_name = "Note"
    description = "Keep a text for this session, past compaction and restarts."
    params = SetArguments

    async def run(self, args: SetArguments, ctx: MemoryContext) -> ToolOutput:
        """Store it; too many keys or too much text is an error and changes nothing."""

        def put(memory: dict[str, str]) -> bool:
            replaced = args.key in memory
            memory[args.key] = args.value
            if len(args.value) > MAX_VALUE_CHARS:
                raise ValueError(f"a text has {MAX_VALUE_CHARS} characters at most")
            if len(memory) > MAX_KEYS:
                raise ValueError(f"{MAX_KEYS} keys are kept already")
            if sum(len(key) + len(text) for key, text in memory.items()) > MAX_TOTAL_CHARS:
                raise ValueError(f"{MAX_TOTAL_CHARS} characters are kept at most")
            return replaced

        try:
            replaced = await change_memory(ctx.state, put)
        except ValueError as error:
            return ToolOutput.error(f"Not kept: {error}. Use kv_delete for what is not needed.")
        what = "replaced" if replaced else "kept"
        return ToolOutput.text(f"{one_line(args.key, 60)} {what}.", display=args.value)


class DeleteTool(_MemoryTool[KeyArguments]):
    """Removes a key."""

    name = "kv_delete"
    display_name = "Forget"
    description = "Delete what kv_set has kept."
    params = KeyArguments

    async def run(self, args: KeyArguments, ctx: MemoryContext) -> ToolOutput:
        """Remove it; an unknown key is an error with near keys."""
        old = await change_memory(ctx.state, lambda memory: memory.pop(args.key, None))
        if old is None:
            return _unknown_key(args.key, await read_memory(ctx.state))
        return ToolOutput.text(f"{one_line(args.key, 60)} deleted.")


class ListKeysTool(_MemoryTool[NoArguments]):
    """Lists the keys."""

    name = "kv_list"
    display_name = "Notes"
    description = "List the keys of kv_set."
    params = NoArguments
    concurrent = True

    async def run(self, _args: NoArguments, ctx: MemoryContext) -> ToolOutput:
        """A line for each key."""
        memory = await read_memory(ctx.state)
        lines = [
            f"{one_line(key)}: {one_line(text, _SHOWN_CHARS)} ({len(text)} characters)"
            for key, text in memory.items()
        ]
        summary = "1 key" if len(lines) == 1 else f"{len(lines)} keys"
        return ToolOutput.text("\n".join(lines) or "Nothing is kept.", summary=summary)


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


def _unknown_key(key: str, memory: dict[str, str]) -> ToolOutput:
    from difflib import get_close_matches

    near = get_close_matches(key, memory, n=_NEAR, cutoff=0.5)
    known = near or list(memory)[-_NEAR:]
    hint = f"there is {', '.join(one_line(k, 60) for k in known)}" if known else "nothing is kept"
    return ToolOutput.error(f"There is no key {one_line(key, 60)!r}: {hint}.")


TOOLS = (GetTool(), SetTool(), DeleteTool(), ListKeysTool())
