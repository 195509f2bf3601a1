"""One process, many turns: ``agent run --input-format stream-json`` (CLI-4, CLI-5, CLI-6, CLI-7).

Laws: each message gets a turn of its own and each turn one ``result``, in the order in which the
messages came; what waits meanwhile is durable (CTRL-1); the end of stdin ends the run after the
last of them. On every path the last message of the process is a ``result``, and the exit code is
that of how the run ended: the last turn, or what stopped it. A control request is answered at once,
or in its turn where it changes what later messages meet. A question to the program on stdin ends
with its answer, with its cancellation or with the end of stdin, never later.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.events import AgentEvent, PromptRecorded
from agentcli.domain.messages import ImagePart, TextPart, UserMessage
from agentcli.domain.ports import (
    ApprovalAnswer,
    ApprovalRequest,
    PermissionMode,
    QueueKind,
    Verdict,
)
from agentcli.domain.values import mutable
from agentcli.headless.approvals import Nobody
from agentcli.headless.errors import ExitCode, one_line
from agentcli.headless.one_shot import OneShot, RunRequest
from agentcli.headless.result import JsonOutput, RunEnd, Subtype, failed
from agentcli.headless.stream_input import (
    Answered,
    Asked,
    LineReader,
    Said,
    Unreadable,
    permission_mode,
)
from agentcli.headless.stream_json import new_uuid
from agentcli.headless.streams import write_error_line

if TYPE_CHECKING:
    from agentcli.app.session import Session
    from agentcli.headless.approvals import Attendants

# more are left in the pipe: who writes them has to wait, unless an answer may stand behind them
MAX_WAITING = 100
_RULE = re.compile(r"(?P<tool>[^(]+)(?:\((?P<content>.*)\))?", re.DOTALL)


class StreamShot(OneShot):
    """One run whose messages come on stdin."""

    _output: JsonOutput

    def __init__(self, request: RunRequest) -> None:
        super().__init__(request)
        self._turn_started_at = self._started_at
        self._uuid = ""
        self._last_end: RunEnd | None = None
        self._stop_is_written = False
        self._channel = Channel(self._send)
        self._conversation: StreamRun | None = None

    # --- what a single shot does otherwise ---------------------------------------------------

    def _message(self) -> UserMessage | None:
        """Words of the command line are the first message; stdin is read as it comes."""
        typed = " ".join(self._request.words).strip()
        return UserMessage((TextPart(typed),)) if typed else None

    def _attendants(self) -> Attendants:
        if not self._request.asks_on_stdin:
            return Nobody(), None
        return OverChannel(self._channel, self._interrupt), None

    async def _work(self, session: Session, message: UserMessage | None) -> RunEnd:
        self._conversation = StreamRun(session, self, self._channel)
        last = await self._conversation.converse(message)
        if self._token.cancelled and not self._stop_is_written:
            return self._stopped()
        return last or failed(
            UsageError("no message came on stdin", "write one JSON object per line")
        )

    def _end(self, end: RunEnd) -> None:
        """Nothing is written twice: neither a turn's end nor that nothing was going on."""
        if self._has_ended:
            return
        is_written = end is self._last_end
        if is_written or (end.is_stop and self._output.writer.ends_with_result):
            self._has_ended = self._has_result = True
            if not is_written:
                self._report_end(end)
        else:
            super()._end(end)

    def _on_event(self, event: AgentEvent) -> None:
        if isinstance(event, PromptRecorded) and self._request.replays_messages:
            self._guarded(self._output.writer.replay, event.message, self._uuid)
        super()._on_event(event)

    # --- what a conversation asks of its process ---------------------------------------------

    @property
    def token(self) -> CancelToken:
        """Set when the whole run is to end."""
        return self._token

    async def run_turn(self, session: Session, item: _Message) -> RunEnd:
        """Run a turn to its end and write its result."""
        self._uuid = item.uuid
        self._turn_started_at = time.monotonic()
        end = await self._answer(session, item.message, item.token, item.rows)
        interrupted = item.token.reason is CancelReason.USER and not self._token.cancelled
        if interrupted and end.subtype is Subtype.CANCELLED:  # as Ctrl-C would have ended it
            code, reason = ExitCode.SIGINT, "interrupted"
            end = RunEnd(Subtype.CANCELLED, code, reason, end.summary, "cancelled")
        self._last_end = end
        self._stop_is_written = self._token.cancelled and end.is_stop
        self._write_end(end, since=self._turn_started_at, more=True)
        self._facts.refused.clear()
        self._unattended = 0
        self._terminal = None
        return end

    def skip(self, line: int, reason: str) -> None:
        """Say that a line of stdin was not understood."""
        self._guarded(self._output.writer.input_error, line, one_line(reason))
        if not self._request.quiet:
            write_error_line(f"warning: line {line} of stdin is skipped: {one_line(reason)}")

    def _send(self, value: Mapping[str, Any]) -> None:
        self._guarded(self._output.writer.control, value)

    def _interrupt(self) -> None:
        if self._conversation is not None:
            self._conversation.interrupt()


class Channel:
    """Sends requests and answers through ``send``; ``answered`` brings what came back."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None]) -> None:
        self._send = send
        self._waiting: dict[str, asyncio.Future[Answered | None]] = {}
        self._closed = False
        self.on_ask: Callable[[], object] = bool
        """Called when an answer is awaited from then on."""

    @property
    def is_asking(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._waiting)

    async def ask(self, request: Mapping[str, Any]) -> Answered | None:
        """The answer; ``None`` when none can come any more."""
        if self._closed:
            return None
        request_id = new_uuid()
        answer: asyncio.Future[Answered | None] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self.on_ask()
        self._send({"type": "control_request", "request_id": request_id, "request": request})
        try:
            return await answer
        except asyncio.CancelledError:
            self._send({"type": "control_cancel_request", "request_id": request_id})
            raise
        finally:
            del self._waiting[request_id]

    def answered(self, line: Answered) -> None:
        """An answer has come; one that nobody waits for is ignored."""
        waiting = self._waiting.get(line.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(line)

    def close(self) -> None:
        """Stdin has ended: nobody will answer."""
        self._closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def succeed(self, asked: Asked, response: Mapping[str, Any]) -> None:
        """Answer a request of the other side."""
        self._respond({"subtype": "success", "request_id": asked.request_id, "response": response})

    def refuse(self, asked: Asked, error: str) -> None:
        """Say why a request of the other side cannot be met."""
        self._respond({"subtype": "error", "request_id": asked.request_id, "error": error})

    def _respond(self, response: Mapping[str, Any]) -> None:
        self._send({"type": "control_response", "response": response})


class OverChannel:
    """An approver that asks the program on stdin (``--permission-prompt-tool stdio``)."""

    def __init__(self, channel: Channel, interrupt: Callable[[], object]) -> None:
        self._channel = channel
        self._interrupt = interrupt

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Yes, yes for this session, or no with a reason."""
        suggested = [(offer.rule, _suggestion(offer.rule)) for offer in request.offers]
        suggestions = [(rule, update) for rule, update in suggested if update]
        answered = await self._channel.ask(
            {
                "subtype": "can_use_tool",
                "tool_name": request.call.name,
                "display_name": request.summary,
                "description": request.detail,
                "input": request.call.arguments,
                "tool_use_id": request.call.id,
                "decision_reason": request.reason,
                "permission_suggestions": [update for _, update in suggestions],
            }
        )
        if answered is None:
            reason = "It needs an approval, and the program that gives them has left."
            return ApprovalAnswer(Verdict.UNATTENDED, reason)
        if answered.error:
            return ApprovalAnswer(Verdict.NO, f"The approval failed: {answered.error}")
        return self._judged(request, answered.answer, suggestions)

    def _judged(
        self,
        request: ApprovalRequest,
        answer: Mapping[str, Any],
        suggestions: Sequence[tuple[str, Mapping[str, Any]]],
    ) -> ApprovalAnswer:
        if answer.get("behavior") != "allow":
            if answer.get("interrupt"):
                self._interrupt()
            return ApprovalAnswer(Verdict.NO, str(answer.get("message") or ""))
        if answer.get("updatedInput", request.call.arguments) != request.call.arguments:
            # what was approved is not what would run
            reason = "It was approved with other arguments only, which is not supported here."
            return ApprovalAnswer(Verdict.NO, reason)
        updates = answer.get("updatedPermissions")
        for rule, update in suggestions:
            if isinstance(updates, list) and any(_same(each, update) for each in updates):
                return ApprovalAnswer(Verdict.SESSION, rule=rule)
        return ApprovalAnswer(Verdict.ONCE)


def _suggestion(rule: str) -> dict[str, Any]:
    """What "for this session" would allow, in the words of the channel; empty for no rule."""
    found = _RULE.fullmatch(rule)
    if found is None:
        return {}
    entry = {"toolName": found["tool"]}
    if found["content"] is not None:
        entry["ruleContent"] = found["content"]
    update = {"type": "addRules", "rules": [entry], "behavior": "allow"}
    return {**update, "destination": "session"}


def _same(update: Any, suggestion: Mapping[str, Any]) -> bool:
    keys = ("type", "rules", "behavior")
    return isinstance(update, dict) and all(update.get(key) == suggestion[key] for key in keys)


@mutable
class _Message:
    """A message that waits or runs. ``rows`` hold its text in the session's queue."""

    message: UserMessage
    uuid: str = ""
    rows: tuple[int, ...] = ()
    token: CancelToken = field(default_factory=CancelToken)


class StreamRun:
    """The conversation of one process."""

    def __init__(self, session: Session, run: StreamShot, channel: Channel) -> None:
        self._session = session
        self._run = run
        self._channel = channel
        self._first_model = session.model.id
        self._waiting: deque[_Message | Asked] = deque()
        self._current: _Message | None = None
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        channel.on_ask = self._has_room.set

    async def converse(self, first: UserMessage | None) -> RunEnd | None:
        """Run a turn for each message; how the last one ended, ``None`` when there was none."""
        if first is not None:
            self._waiting.append(_Message(first))
        last: RunEnd | None = None
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

    async def _turn(self, item: _Message) -> RunEnd:
        stop, token = self._run.token, item.token

        def forward() -> None:
            token.cancel(stop.reason or CancelReason.USER, force=stop.forced)

        self._current = item
        forget = stop.add_callback(forward)
        try:
            return await self._run.run_turn(self._session, item)
        finally:
            forget()
            self._current = None

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
                        self._run.skip(reader.number, line.reason)
        finally:
            self._channel.close()

    async def _said(self, line: Said) -> None:
        while len(self._waiting) >= MAX_WAITING and not self._channel.is_asking:
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
                names = self._session.extensions.names()["mcp_servers"]
                rows = [{"name": name, "status": "pending"} for name in names]
                self._channel.succeed(asked, {"mcpServers": rows})
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
                "commands": [
                    {"name": each.name, "description": each.description, "argumentHint": each.hint}
                    for each in self._session.extensions.commands
                ],
                "agents": [
                    {"name": each.name, "description": each.description}
                    for each in self._session.extensions.agents.values()
                ],
                "models": [{"value": model.id, "displayName": model.name, "description": ""}],
                "output_style": "default",
                "available_output_styles": ["default"],
                "account": {},
            },
        )

    def _set_mode(self, asked: Asked) -> None:
        name = permission_mode(str(asked.request.get("mode", "")))
        try:
            self._session.set_mode(PermissionMode(name))
        except ValueError:
            modes = ", ".join(PermissionMode)
            self._channel.refuse(asked, f"{name} is no permission mode; one of: {modes}")
            return
        self._channel.succeed(asked, {"mode": name})

    async def _switch_model(self, asked: Asked) -> None:
        name = asked.request.get("model")
        try:
            model = await self._session.switch_model(str(name) if name else self._first_model)
        except AgentError as error:
            self._channel.refuse(asked, str(error))
        else:
            self._channel.succeed(asked, {"model": model.id})
