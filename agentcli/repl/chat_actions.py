"""What keys and signals do to the chat, whatever the front.

Law: Ctrl-C while the agent works cancels and keeps the chat, again forces; at the prompt it
clears, hints, leaves (CAN-13, ``interrupts``). What is typed while the agent works is durable
before it is said to wait (UI-3).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.ports import PermissionMode, QueueSource
from agentcli.repl import _slash_registry as registry
from agentcli.repl.commands import Chat
from agentcli.repl.front import Front, Left
from agentcli.repl.interrupts import Action, Interrupts, Situation
from agentcli.repl.jobs import Jobs
from agentcli.repl.outside import overwritten, page_text
from agentcli.repl.session_facts import SessionFacts
from agentcli.repl.slash.todos import todo_lines
from agentcli.repl.turn_view import TurnView
from agentcli.repl.typed_command import parse_command
from agentcli.ui.sanitize import clean

HINT = "To leave, press Ctrl-C again or Ctrl-D."
_CYCLE = (PermissionMode.DEFAULT, PermissionMode.ACCEPT_EDITS, PermissionMode.PLAN)
_MODES = {
    PermissionMode.DEFAULT: "Permission mode default: what changes something asks.",
    PermissionMode.ACCEPT_EDITS: "Permission mode accept-edits: edits in the workspace run.",
    PermissionMode.PLAN: "Permission mode plan: it reads and plans, nothing is changed.",
    PermissionMode.YOLO: "Permission mode yolo: everything runs without asking.",
}


class ActingChat(Chat, Protocol):
    """The chat as its keys see it."""

    @property
    def front(self) -> Front:
        """The person's side."""

    @property
    def jobs(self) -> Jobs:
        """Small things to do beside the agent's work."""

    async def run_command(self, text: str) -> None:
        """A slash command."""

    def terminal_gone(self) -> None:
        """The window was closed."""

    def name_window(self) -> None:
        """What the title tells has changed."""


class ChatActions:
    """Satisfies ``front.Actions``."""

    def __init__(self, chat: ActingChat, view: TurnView, facts: SessionFacts) -> None:
        self._chat = chat
        self._view = view
        self._facts = facts
        self._interrupts = Interrupts()
        self._working = False
        self._cancelling = False
        self._token: CancelToken | None = None
        self._todos_shown = False
        view.on_todos = self._todos_changed

    @property
    def is_working(self) -> bool:
        """Whether the agent works."""
        return self._working

    @contextmanager
    def working(self, token: CancelToken | None) -> Iterator[None]:
        """The agent works until the block ends; ``token`` stops it, else the session is told."""
        self._working, self._cancelling, self._token = True, False, token
        try:
            yield
        finally:
            self._working, self._cancelling, self._token = False, False, None

    def forget_hint(self) -> None:
        """Something was done: the next Ctrl-C is a first one."""
        self._interrupts.forget()

    # --- front.Actions ---------------------------------------------------------------------

    def interrupt(self, reason: CancelReason = CancelReason.USER) -> None:
        """Ctrl-C or Esc while the agent works, or a signal."""
        session = self._facts.session
        if not self._working or session is None:
            return
        situation = Situation.CANCELLING if self._cancelling else Situation.WORKING
        force = self._interrupts.press(situation, time.monotonic()) is Action.FORCE
        if self._token is not None:
            self._token.cancel(reason, force=force)
            self._cancelling = True
        else:
            self._cancelling = session.interrupt(reason, force=force) or self._cancelling
        self._view.cancelling()

    def ctrl_c_at_prompt(self, *, had_text: bool) -> str | None:
        """A hint to show, or nothing. Raises ``Left``."""
        situation = Situation.TEXT_IN_PROMPT if had_text else Situation.EMPTY_PROMPT
        action = self._interrupts.press(situation, time.monotonic())
        if action is Action.LEAVE:
            raise Left
        return HINT if action is Action.HINT else None

    def typed_while_working(self, text: str) -> None:
        """Queue it, or run a command that is safe now."""
        parsed = registry.parse(text)
        if parse_command(text) is not None:
            self._chat.front.send(text)
            self._chat.show(["The command waits until the agent is done."])
            return
        if parsed is None:
            self._chat.jobs.add(lambda: self._enqueue(text))
            return
        found = registry.find(parsed[0])
        if found is None:
            self._chat.show([" ".join(registry.unknown(parsed[0]))])
            self._chat.front.give_back(text)
        elif found.while_working:
            self._chat.jobs.add(lambda: self._chat.run_command(text))
        else:
            self._chat.front.send(text)
            self._chat.show([f"/{parsed[0]} waits until the agent is done."])

    async def _enqueue(self, text: str) -> None:
        await self._chat.session.enqueue(text)
        self._chat.front.refresh()

    def recall(self) -> bool:
        """Take back what was queued last."""
        typed = [item for item in self._facts.queue() if item.source is QueueSource.USER]
        if not typed:
            return False
        last = typed[-1]

        async def take_back() -> None:
            if await self._chat.session.drop_queued(last.id):
                self._chat.front.give_back(last.text)

        self._chat.jobs.add(take_back)
        return True

    def has_waiting(self) -> bool:
        """Whether queued text waits."""
        return bool(self._facts.queue())

    def cycle_mode(self) -> None:
        """The next permission mode; from ``yolo`` back to the first."""
        session = self._facts.session
        if session is None:
            return
        mode = session.mode
        following = _CYCLE[(_CYCLE.index(mode) + 1) % len(_CYCLE)] if mode in _CYCLE else _CYCLE[0]
        session.set_mode(following)
        self._chat.front.refresh()
        self._chat.name_window()

    def toggle_todos(self) -> None:
        """Show or hide the agent's list."""
        self._todos_shown = not self._todos_shown
        self._chat.jobs.add(self.refresh_todos)

    def _todos_changed(self) -> None:
        if self._todos_shown:
            self._chat.jobs.add(self.refresh_todos)

    async def refresh_todos(self) -> None:
        """Show the list as it is now, where it is shown."""
        lines: list[str] = []
        if self._todos_shown:
            lines = todo_lines(await self._chat.session.todos())
        self._chat.front.show_todos(lines)

    def move_to_background(self) -> None:
        """The running command goes on as a background run (UI-3)."""
        session = self._facts.session
        if session is None or not session.move_to_background():
            self._chat.show(["No command is running that can go to the background."])

    def open_output(self) -> None:
        """The whole output of the last tool call, in the pager."""
        self._chat.jobs.add(self._page)

    async def _page(self) -> None:
        event = self._view.last_output
        if event is None:
            self._chat.show(["No tool was called yet."])
            return
        whole = await self._chat.session.raw_output(event.call.id)
        told = event.display or event.result.text
        text = clean(overwritten(whole) if whole is not None else told).rstrip("\n") + "\n"
        async with self._chat.front.aside():
            paged = await asyncio.to_thread(page_text, text, self._chat.user.cwd, os.environ)
        if not paged:
            self._chat.show(text.removesuffix("\n").split("\n"))

    def rewind(self) -> None:
        """Esc Esc on an empty line."""
        self._chat.front.send("/rewind")

    def terminal_gone(self) -> None:
        """The window was closed."""
        self._chat.terminal_gone()
