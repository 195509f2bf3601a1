"""What a person adds to a session beyond settings: hooks and plugins; a part of ``compose``.

Law: imported only where something of the kind is configured (the import budget).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from agentcli.app.session import Session
from agentcli.app.surroundings import Surroundings
from agentcli.config.settings import Settings
from agentcli.domain.tools import Tool
from agentcli.domain.values import frozen
from agentcli.engine.conversation import Conversation
from agentcli.extensions.hooks import HookFacts, SessionHooks
from agentcli.extensions.plugins import load_plugins
from agentcli.process.program import run_program


@frozen
class Opened:
    """The session's file, and its tools; ``takes_tools``: no list of tools was asked for.

    ``began`` is how a new session came about: "startup", or "clear" after another one.
    """

    file: Path
    tools: Tools
    takes_tools: bool
    began: str


class Tools(Protocol):
    """A tool box that can be added to."""

    def register(self, tool: Tool) -> None:
        """Raises ``ValueError`` when the name is taken."""


def extend(
    settings: Settings, session: Session, parts: Conversation, around: Surroundings, opened: Opened
) -> None:
    """Add what ``settings`` name to the session of these ``parts``, before its first turn."""
    if settings.plugins:
        _add_plugins(settings, session, parts, around, opened)
    if settings.hooks:
        _add_hooks(settings, session, parts, around, opened)


def _add_plugins(
    settings: Settings, session: Session, parts: Conversation, around: Surroundings, opened: Opened
) -> None:
    plugins = load_plugins(settings.plugins, session.tell)
    parts.gates = (*parts.gates, *plugins.gates)
    parts.transforms = (*parts.transforms, *plugins.transforms)
    for tool in plugins.tools if opened.takes_tools else ():
        try:
            opened.tools.register(tool)
        except ValueError as error:
            plugins.warnings.append(f"warning: a tool of a plugin was left out: {error}")
    for observer in plugins.observers:
        session.add_listener(observer)
    around.notices = (*around.notices, *plugins.warnings)


def _add_hooks(
    settings: Settings, session: Session, parts: Conversation, around: Surroundings, opened: Opened
) -> None:
    """Hooks are called from now on; the session's end waits for theirs."""
    kit = parts.kit
    facts = HookFacts(kit.session_id, opened.file, kit.workspace.cwd, lambda: kit.policy.mode)
    hooks = SessionHooks(settings.hooks, facts, run_program)
    kit.hooks = hooks
    around.on_close = (lambda: hooks.aclose(around.ending), *around.on_close)
    session.add_listener(hooks.on_event)
    hooks.start("resume" if around.resumed is not None else opened.began)
