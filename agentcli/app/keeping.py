"""What keeps a session beside its file: a store of the program's own, and its events (CTRL-9).

Laws: a store is balanced before it is used (REC-1). A listener never waits: what happened is put
down by a task, in order, and before the session is closed; a failure is told once and changes
nothing else (FAIL-2). Neighbouring pieces of a stream are kept as one. Only values that JSON has
are kept: an image or an output is its size.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from agentcli.app.listeners import Listeners
from agentcli.domain.errors import AgentError, HistoryViolation, UsageError
from agentcli.domain.events import (
    AgentEvent,
    Notice,
    Outcome,
    TextChunk,
    ThinkingChunk,
    ToolProgress,
)
from agentcli.domain.extensions.keeping import EventStore, Store
from agentcli.domain.history import History, RepairReason, repair_results
from agentcli.domain.ports import contained
from agentcli.domain.session import KeptEvent
from agentcli.store.reads import CRASH_DETAIL
from agentcli.store.sqlite import SqliteStore

CLOSE_S = 5.0
_STREAMS = frozenset({TextChunk.type, ThinkingChunk.type, ToolProgress.type})
log = logging.getLogger(__name__)


async def in_own_store(given: Store, file: SqliteStore) -> History:
    """What is in a store of the program's own, balanced.

    The ``file`` then has what is no part of a store. Raises ``UsageError`` for messages that are
    no history.
    """
    messages = contained(given.messages)
    try:
        history = History(await messages.history())
    except HistoryViolation as error:
        what = "the messages of the store are no history"
        raise UsageError(f"{what}: {error.message}", "see HIS-1") from error
    if history.pending:
        runs = await messages.tool_runs()
        results = repair_results(history.pending, runs, RepairReason.CRASHED)
        await messages.record_end(results, Outcome.ERROR, CRASH_DETAIL, "")
        for result in results:
            history.append(result)
    await file.create()
    return history


def keep_events(store: EventStore, listeners: Listeners) -> EventKeeper:
    """A keeper of what ``listeners`` hear."""
    keeper = EventKeeper(store, listeners.notify)
    listeners.add(keeper.on_event)
    return keeper


class EventKeeper:
    """A listener of one session. End it with ``aclose``."""

    def __init__(self, store: EventStore, notify: Callable[[str], None]) -> None:
        self._store = store
        self._notify = notify
        self._waiting: list[KeptEvent] = []
        self._writing: asyncio.Task[None] | None = None
        self._has_failed = False

    def on_event(self, event: AgentEvent) -> None:
        """Keep ``event``."""
        if self._has_failed or (isinstance(event, Notice) and "events are not kept" in event.text):
            return
        last = self._waiting[-1] if self._waiting else None
        if isinstance(event, TextChunk | ThinkingChunk | ToolProgress):
            data = to_data(event)
            if last is not None and last.type == event.type:
                same = {key: data[key] for key in data if key != "text"}
                if same == {key: last.data[key] for key in same}:
                    text = last.data["text"] + event.text
                    self._waiting[-1] = KeptEvent(last.at, last.type, {**data, "text": text})
                    return
            self._waiting.append(KeptEvent(time.time(), event.type, data))
            return  # a stream is put down with what comes after it
        self._waiting.append(KeptEvent(time.time(), event.type, to_data(event)))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    async def _write(self, *, is_last: bool = False) -> None:
        while self._waiting and not self._has_failed:
            # of a stream in two rows a key would be known in neither (SEC-9)
            goes_on = self._waiting[-1].type in _STREAMS and not is_last
            end = len(self._waiting) - goes_on
            events, self._waiting = self._waiting[:end], self._waiting[end:]
            if not events:
                break
            try:
                await self._store.append(events)
            except Exception as error:  # what is watched fails nothing
                log.warning("events are not kept", exc_info=True)
                self._has_failed = True
                self._notify(f"events are not kept any more: {type(error).__name__}: {error}")

    async def aclose(self) -> None:
        """Put down what waits."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait({self._writing}, timeout=CLOSE_S)
        await asyncio.wait({asyncio.create_task(self._write(is_last=True))}, timeout=CLOSE_S)


def to_data(event: AgentEvent) -> Mapping[str, Any]:
    """The fields of ``event`` as JSON has them."""
    data = _plain(event)
    json.dumps(data)
    found: dict[str, Any] = {key: value for key, value in data.items() if key != "type"}
    return found


def _plain(value: Any) -> Any:  # noqa: PLR0911 - one line for each kind of value
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return value
        case Enum():
            return value.value
        case bytes():
            return {"bytes": len(value)}
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case AgentError():
            kind = type(value).__name__
            return {"error": kind, "message": value.message, "advice": value.advice}
        case PurePath():
            return str(value)
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None:
        return str(value)
    named = {"type": value.type} if hasattr(value, "type") else {"kind": type(value).__name__}
    return {**named, **{name: _plain(getattr(value, name)) for name in fields}}
