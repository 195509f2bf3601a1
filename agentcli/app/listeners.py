"""Who hears the events of a session: front ends, keepers, a collector, and what imports early."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentcli.domain.events import (
    Notice,
    ProviderRequestPrepared,
    StepStart,
    TextChunk,
    ThinkingChunk,
    ToolProgress,
)

if TYPE_CHECKING:
    from agentcli.config.settings import Settings
    from agentcli.domain.events import AgentEvent
    from agentcli.telemetry.observer import Observer
    from agentcli.telemetry.spans import SpanRecorder

log = logging.getLogger(__name__)

Listener = Callable[["AgentEvent"], None]
# too many, and somebody's text: not for a log
_PIECES = (TextChunk, ThinkingChunk, ToolProgress)
CLIENT = "httpx"  # once it is loaded, the request leaves
MODULES = ("pydantic", "agentcli.tools.bash", "agentcli.policy.judge", "tree_sitter_bash")
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
