"""Many turns in one process: messages come on stdin, one JSON object per line (CLI-4).

Law: each message gets a turn of its own and each turn one ``result``, in the order in which the
messages came; what waits meanwhile is durable (CTRL-1). The end of stdin ends the run after the
last of them. A control request is answered at once, or in its turn where it changes what later
messages meet.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentcli.app.session import Session
from agentcli.cli.claude_flags import permission_mode
from agentcli.cli.options import MODES
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError
from agentcli.domain.messages import ImagePart, UserMessage
from agentcli.domain.ports import PermissionMode, QueueKind
from agentcli.headless.control import Channel
from agentcli.headless.ending import Ending
from agentcli.headless.stream_input import Answered, Asked, LineReader, Said, Unreadable

# more are left in the pipe: whoever writes them has to wait
MAX_WAITING = 100


class Run(Protocol):
    """What a process does for its turns: see ``one_shot.OneShot``."""

    @property
    def token(self) -> CancelToken:
        """Set when the whole run is to end."""

    async def turn(
        self, session: Session, message: UserMessage, token: CancelToken, queued: Sequence[int]
    ) -> Ending:
        """Run a turn to its end."""

    def tell(self, ending: Ending) -> None:
        """Write the result of a turn."""

    def skipped(self, line: int, reason: str) -> None:
        """Say that a line of stdin was not understood."""

    def now_answering(self, uuid: str) -> None:
        """Remember what the sender of the next message calls it."""


@dataclass(slots=True)
class _Message:
    """A message that waits or runs. ``rows`` hold its text in the session's queue."""

    message: UserMessage
    uuid: str = ""
    rows: tuple[int, ...] = ()
    token: CancelToken = field(default_factory=CancelToken)


class StreamRun:
    """The conversation of one process."""

    def __init__(self, session: Session, run: Run, channel: Channel) -> None:
        self._session = session
        self._run = run
        self._channel = channel
        self._first_model = session.model.id
        self._waiting: deque[_Message | Asked] = deque()
        self._current: _Message | None = None
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()

    async def converse(self, first: UserMessage | None) -> Ending | None:
        """Run a turn for each message; how the last one ended, ``None`` when there was none."""
        if first is not None:
            self._waiting.append(_Message(first))
        last: Ending | None = None
        reader = asyncio.ensure_future(self._read())
        reader.add_done_callback(lambda _: self._changed.set())
        forget = self._run.token.add_callback(self._changed.set)
        try:
            while (item := await self._next(reader)) is not None:
                if isinstance(item, Asked):
                    await self._switch_model(item)
                else:
                    last = await self._turn(item)
        finally:
            forget()
            reader.cancel()
            await asyncio.wait({reader})
        return last

    def interrupt(self) -> None:
        """Cancel the turn that runs, else the one that is about to."""
        messages = (item for item in (self._current, *self._waiting) if isinstance(item, _Message))
        if (target := next(messages, None)) is not None:
            target.token.cancel(CancelReason.USER)

    async def _next(self, reader: asyncio.Future[None]) -> _Message | Asked | None:
        while not self._run.token.cancelled:
            if self._waiting:
                self._has_room.set()
                return self._waiting.popleft()
            if reader.done():
                reader.result()
                return None
            self._changed.clear()
            await self._changed.wait()
        return None

    async def _turn(self, item: _Message) -> Ending:
        stop, token = self._run.token, item.token

        def forward() -> None:
            token.cancel(stop.reason or CancelReason.USER, force=stop.forced)

        self._current = item
        forget = stop.add_callback(forward)
        try:
            self._run.now_answering(item.uuid)
            ending = await self._run.turn(self._session, item.message, token, item.rows)
        finally:
            forget()
            self._current = None
        self._run.tell(ending)
        return ending

    # --- stdin -----------------------------------------------------------------------------

    async def _read(self) -> None:
        reader = LineReader(sys.stdin.fileno())
        try:
            async for line in reader.lines():
                match line:
                    case Said():
                        await self._said(line)
                    case Asked():
                        await self._asked(line)
                    case Answered():
                        self._channel.answered(line)
                    case Unreadable():
                        self._run.skipped(reader.number, line.reason)
        finally:
            self._channel.close()

    async def _said(self, line: Said) -> None:
        while len(self._waiting) >= MAX_WAITING:
            self._has_room.clear()
            await self._has_room.wait()
        item = _Message(line.message, line.uuid)
        if self._current is not None or self._waiting:
            item.rows = await self._keep(line.message)
        self._enqueue(item)

    async def _keep(self, message: UserMessage) -> tuple[int, ...]:
        """Its row in the session's queue; a message with images waits in memory."""
        if any(isinstance(part, ImagePart) for part in message.parts):
            return ()
        try:
            row = await self._session.enqueue(message.text, QueueKind.FOLLOW_UP)
        except AgentError:  # its turn will meet the same fault, and say so
            return ()
        return (row.id,)

    def _enqueue(self, item: _Message | Asked) -> None:
        self._waiting.append(item)
        self._changed.set()

    # --- control requests ------------------------------------------------------------------

    async def _asked(self, asked: Asked) -> None:
        match asked.subtype:
            case "initialize":
                self._initialize(asked)
            case "interrupt":
                self._channel.succeed(asked, {})
                self.interrupt()
            case "set_permission_mode":
                self._set_mode(asked)
            case "set_model" if self._current is None and not self._waiting:
                await self._switch_model(asked)
            case "set_model":
                self._enqueue(asked)
            case "mcp_status":
                self._channel.succeed(asked, {"mcpServers": []})
            case _:
                self._channel.refuse(asked, f"{asked.subtype or 'the request'} is not supported")

    def _initialize(self, asked: Asked) -> None:
        if asked.request.get("hooks"):
            # a guard that would never be asked must not look as if it were
            self._channel.refuse(asked, "hooks over the control channel are not supported")
            return
        model = self._session.model
        self._channel.succeed(
            asked,
            {
                "commands": [],
                "agents": [],
                "models": [{"value": model.id, "displayName": model.name, "description": ""}],
                "output_style": "default",
                "available_output_styles": ["default"],
                "account": {},
            },
        )

    def _set_mode(self, asked: Asked) -> None:
        name = permission_mode(str(asked.request.get("mode", "")))
        if name not in MODES:
            self._channel.refuse(asked, f"{name} is no permission mode; one of: {', '.join(MODES)}")
            return
        self._session.set_mode(PermissionMode(name))
        self._channel.succeed(asked, {"mode": name})

    async def _switch_model(self, asked: Asked) -> None:
        name = asked.request.get("model")
        try:
            model = await self._session.switch_model(str(name) if name else self._first_model)
        except AgentError as error:
            self._channel.refuse(asked, str(error))
        else:
            self._channel.succeed(asked, {"model": model.id})
