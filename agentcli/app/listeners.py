"""Who hears the events of a session: front ends, keepers, a collector, and what imports early."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import (
    AssistantRecorded,
    CallForming,
    Notice,
    ProviderRequestPrepared,
    StepStart,
    TextChunk,
    ThinkingChunk,
    ToolProgress,
)
from agentcli.engine.parts import Lazy

if TYPE_CHECKING:
    from pathlib import Path

    from agentcli.app.codemap import ProjectMap
    from agentcli.config.settings import Settings
    from agentcli.domain.events import AgentEvent
    from agentcli.telemetry.observer import Observer
    from agentcli.telemetry.spans import SpanRecorder

log = logging.getLogger(__name__)

Listener = Callable[["AgentEvent"], None]
_ANSWERS = (TextChunk, ThinkingChunk, CallForming, AssistantRecorded)
# too many, and somebody's text: not for a log
_PIECES = (TextChunk, ThinkingChunk, ToolProgress)
CLIENT = "httpx"  # once it is loaded, the request leaves
MODULES = (
    *("pydantic", "agentcli.tools.bash", "agentcli.policy.judge", "agentcli.policy.read_only"),
    "tree_sitter_bash",
)
LOOK_S = 0.01
QUIET_LOOKS = 3
MOST_LOOKS = 50


class Listeners:
    """Who hears the events of a session, in the order in which they happen."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Send every event to ``listener``, synchronously; returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def emit(self, event: AgentEvent) -> None:
        """A listener that raises is logged; the others hear of the event all the same."""
        if log.isEnabledFor(logging.DEBUG) and not isinstance(event, _PIECES):
            log.debug("session %s: %s", self.session_id, event.type)
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed on %s", event.type)

    def notify(self, text: str) -> None:
        """One line for the user."""
        self.emit(Notice(text))


class AfterRequest:
    """A listener that calls ``begin`` once: when the first request has left.

    At the latest that is when the request is answered.
    """

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin
        self._timer: asyncio.TimerHandle | None = None
        self._looks = self._quiet = 0
        self._has_begun = False

    def on_event(self, event: AgentEvent) -> None:
        """Look when it leaves."""
        if self._timer is None and isinstance(event, ProviderRequestPrepared):
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        elif self._timer is not None and isinstance(event, _ANSWERS):
            self._once()

    def _look(self) -> None:
        self._looks += 1
        self._quiet += CLIENT in sys.modules
        if self._quiet > QUIET_LOOKS or self._looks >= MOST_LOOKS:
            self._once()
        else:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _once(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._begin()

    def stop(self) -> None:
        """It never begins, if it has not yet."""
        self._has_begun = True
        if self._timer is not None:
            self._timer.cancel()


class EarlyMap:
    """Makes the map of a git repository once the first request has left (MEM-3).

    What asks the map meanwhile takes over; what goes wrong is told to those who ask.
    """

    def __init__(self, root: Path, codemap: Lazy[ProjectMap], listeners: Listeners) -> None:
        self._root = root
        self._codemap = codemap
        self._cancel = CancelToken()
        self._making: asyncio.Task[None] | None = None
        self._start = AfterRequest(self._begin)
        listeners.add(self._start.on_event)

    def _begin(self) -> None:
        if any(os.path.lexists(each / ".git") for each in (self._root, *self._root.parents)):
            self._making = asyncio.create_task(self._make(), name="map")

    async def _make(self) -> None:
        await asyncio.to_thread(import_module, "agentcli.app.codemap")
        if not self._cancel.cancelled:
            try:
                await self._codemap().update(self._cancel, is_early=True)
            except Exception:
                log.warning("the map is not made early", exc_info=True)

    async def aclose(self) -> None:
        """End it. May be called again."""
        self._start.stop()
        self._cancel.cancel(force=True)
        if self._making is not None:
            await asyncio.wait({self._making})


def code_map(
    settings: Settings, root: Path, listeners: Listeners, *, early: bool
) -> tuple[Lazy[ProjectMap], Sequence[Callable[[], Awaitable[None]]]]:
    """What knows who uses what in the project at ``root`` (MEM-3), and what ends it.

    With ``early`` it is made before anybody asks.
    """

    def make() -> ProjectMap:
        from agentcli.app.codemap import ProjectMap

        return ProjectMap(settings.paths.maps_dir, root, listeners.session_id)

    found = Lazy(make)
    return found, (EarlyMap(root, found, listeners).aclose,) if early else ()


class EarlyImports:
    """A listener that imports in a thread which holds nothing and is not waited for.

    It begins when the loop has had nothing to do for 30 ms after the request, so that a quick
    answer is not held up; when the answer begins, it stops at the next module.
    """

    def __init__(self, listeners: Listeners, modules: tuple[str, ...] = MODULES) -> None:
        self._modules = modules
        self._forget = listeners.add(self._hear)
        self._timer: asyncio.Handle | None = None
        self._looks = self._quiet = 0
        self._is_wanted = True

    def _hear(self, event: AgentEvent) -> None:
        if isinstance(event, StepStart):
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        elif self._timer is not None and not isinstance(event, ProviderRequestPrepared):
            self._timer.cancel()
            self._is_wanted = False
            self._forget()

    def _look(self) -> None:
        self._looks += 1
        self._quiet += CLIENT in sys.modules
        if self._quiet > QUIET_LOOKS:
            threading.Thread(target=self._import, name="imports", daemon=True).start()
        elif self._looks < MOST_LOOKS:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _import(self) -> None:
        for name in self._modules:
            if self._is_wanted:
                import_module(name)


def telemetry(
    settings: Settings, listeners: Listeners, redact: Callable[[Any], Any]
) -> tuple[Observer | None, tuple[str, ...]]:
    """What reports the session to the user's collector (SCALE-7), and lines for the user.

    ``redact`` takes secrets out of content, where that was asked for too.
    """
    from agentcli.process.environment import hide_variables
    from agentcli.telemetry.observer import HEADERS, Observed, Observer, obstacle, pipeline

    hide_variables(HEADERS)
    if (problem := obstacle(os.environ)) is not None:
        return None, (problem,) if problem else ()
    content = redact if settings.telemetry_content else None
    observer = Observer(pipeline(_recorder), Observed(listeners.session_id, redact=content))
    listeners.add(observer.on_event)
    return observer, ()


def _recorder() -> SpanRecorder:
    """For the thread that reports, once a request has left."""
    from agentcli.telemetry.spans import make_recorder

    return make_recorder(os.environ)
