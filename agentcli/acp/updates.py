"""Events of a session as the ``session/update`` notifications of the protocol.

Laws: updates leave in the order of the events; every call that was announced ends ``completed`` or
``failed``; a running call's output is told in bounded pieces, and all of it before its end.
https://agentclientprotocol.com/protocol/v1/tool-calls
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from agentcli.acp.content import (
    Json,
    ShownChange,
    bounded,
    changes_of,
    diff_content,
    harmless,
    result_content,
    verbatim,
)
from agentcli.app.past import Past
from agentcli.app.session import Session
from agentcli.domain.clean import one_line, reveal
from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    BackgroundChanged,
    Compacted,
    ModelFellBack,
    Notice,
    PromptRecorded,
    RetryWait,
    StepStart,
    TextChunk,
    ThinkingChunk,
    ToolAnnounced,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    WrappingUp,
)
from agentcli.domain.messages import (
    ATTACHED,
    TOLD,
    AssistantMessage,
    ImagePart,
    ResultStatus,
    TextPart,
    ToolCall,
    Usage,
    UserMessage,
)
from agentcli.domain.secrecy import WholeWords

TODOS = "write_todos"
BASH = "bash"
PROGRESS_S = 0.1
MAX_PROGRESS_CHARS = 20_000
MAX_TITLE = 300
# what shows a diff that we have made; any other text may only look like one
EDITS = frozenset({"apply_patch", "delete_file", "edit_file", "edit_notebook", "write_file"})
_KINDS = {
    "delete_file": "delete",
    **dict.fromkeys(EDITS - {"delete_file"}, "edit"),
    **dict.fromkeys(("read_file", "list_directory", "stat_file"), "read"),
    **dict.fromkeys(("glob_files", "grep_files", "tool_search"), "search"),
    **dict.fromkeys((BASH, "spawn_background"), "execute"),
    **dict.fromkeys(("web_fetch", "web_search"), "fetch"),
    **dict.fromkeys(("task", TODOS), "think"),
    "present_plan": "switch_mode",
}
# their results are written for people, in Markdown
_MARKDOWN = frozenset({"task", "web_fetch", "web_search"})


def tool_kind(name: str) -> str:
    """The protocol's word for what a tool does."""
    return _KINDS.get(name, "other")


def title_of(summary: str, call: ToolCall) -> str:
    """What a call does, in a line, with nothing hidden in it."""
    return reveal(one_line(summary or call.name, MAX_TITLE))


def locations_of(call: ToolCall, cwd: Path, changes: Sequence[ShownChange] = ()) -> list[Json]:
    """The files that a call is about, for editors that follow along."""
    if changes:
        first: dict[str, int] = {}
        for change in changes:
            first.setdefault(change.path, change.line)
        return [{"path": path, "line": line} for path, line in first.items()]
    path = call.arguments.get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        return []
    place: Json = {"path": str(cwd / Path(path).expanduser() if path[0] == "~" else cwd / path)}
    line = call.arguments.get("offset")
    if call.name == "read_file" and type(line) is int and 0 < line < 2**32:
        place["line"] = line
    return [place]


def iso_time(seconds: float) -> str:
    """A time as the protocol writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class _Printed:
    """What a running call has printed and the editor has not been told."""

    def __init__(self, call: ToolCall, redact: Callable[[str], str]) -> None:
        self.call = call
        self.words = WholeWords(redact)
        self.tail = ""
        self.news = ""
        self.is_shown = False
        self.timer: asyncio.TimerHandle | None = None


class SessionUpdates:
    """Tells an editor of a session's events; ``send`` takes the ``update`` of a notification.

    ``notices`` are told when the first turn begins. ``has_terminals``: output of commands goes to a
    terminal that the editor shows, by the convention ``_meta.terminal_output`` of Zed and others;
    else it is content of the call. ``redact`` takes keys out of a text that comes in pieces.
    """

    def __init__(
        self,
        session: Session,
        send: Callable[[Json], None],
        notices: Sequence[str] = (),
        *,
        has_terminals: bool = False,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._session = session
        self._redact = redact
        self._words = WholeWords(redact)
        self._speaks = ""
        self._send = send
        self._has_terminals = has_terminals
        self._cwd = session.workspace.cwd
        self._message_id = uuid4().hex
        self._running: dict[str, _Printed] = {}
        self._title = session.title
        self._used = 0
        self._held: list[str] = [*notices]
        self._is_live = True

    def on_event(self, event: AgentEvent) -> None:
        """A listener of the session."""
        match event:
            case TextChunk(text):
                self._piece("agent_message_chunk", text)
                return
            case ThinkingChunk(text):
                self._piece("agent_thought_chunk", text)
                return
            case _:
                self._piece("", "")
        match event:
            case StepStart():
                self._message_id = uuid4().hex
            case ToolAnnounced():
                self._announced(event)
            case ToolStarted():
                self._started(event)
            case ToolProgress():
                self._printed(event)
            case ToolFinished():
                self._finished(event)
            case AssistantRecorded():
                self._recorded(event.message)
            case PromptRecorded():
                self._said(event.message)
            case _:
                self._told(event)

    def _told(self, event: AgentEvent) -> None:
        match event:
            case Notice():
                self.say(event.text)
            case RetryWait():
                wait = f"trying again in {event.delay_s:.0f} s"
                self.say(f"{event.error.message}; {wait} ({event.attempt}/{event.max_attempts})")
            case ModelFellBack():
                self.say(f"{event.old} stays out of reach; {event.new} answers from now on")
            case Compacted():
                self._used = event.tokens_after
                before, after = event.tokens_before, event.tokens_after
                self.say(f"The conversation was summarised: {before:,} to {after:,} tokens.")
                self.usage()
            case BackgroundChanged(ended=task) if task is not None:
                text = f"Background run {task.state.value}: {one_line(task.title)}"
                self.say(text, at_once=True)
            case BackgroundChanged(asks=task) if task is not None and task.question is not None:
                asked = f"{one_line(task.title)}: {one_line(task.question.text)}"
                how = f"in a terminal: agent tasks answer {task.run_id} TEXT"
                self.say(f"Background run asks: {asked} - answer {how}", at_once=True)
            case WrappingUp():
                self.say(f"{event.reason}: the agent is told to finish")
            case _:
                pass

    # --- words -----------------------------------------------------------------------------------

    def _piece(self, kind: str, text: str) -> None:
        """More of what the model says, as far as its words are whole (SEC-9)."""
        if kind != self._speaks:
            if rest := self._words.rest():
                self._chunk(self._speaks, rest)
            self._speaks = kind
        if told := self._words.add(text):
            self._chunk(kind, told)

    def _chunk(self, kind: str, text: str) -> None:
        content = {"type": "text", "text": harmless(text)}
        update = {"sessionUpdate": kind, "messageId": self._message_id, "content": content}
        self._send(update)

    def say(self, text: str, *, at_once: bool = False) -> None:
        """A line of the program's own: no part of the answer, so it stands with the thoughts.

        Between turns it waits for the next one, unless it is to be told ``at_once``.
        """
        if not (self._session.is_running or at_once) and self._is_live:
            self._held.append(text)
            return
        content = {"type": "text", "text": f"{reveal(text)}\n"}
        self._send(
            {
                "sessionUpdate": "agent_thought_chunk",
                "messageId": uuid4().hex,
                "content": content,
                "_meta": {"agentcli/notice": True},
            }
        )

    def begin_turn(self) -> None:
        """What was held back between turns can be told now."""
        held, self._held = self._held, []
        self._is_live = False
        for line in held:
            self.say(line)
        self._is_live = True

    def _said(self, message: UserMessage) -> None:
        """Live, the editor shows what its user has said; of the past it has to be told."""
        if self._is_live:
            return
        self._message_id = uuid4().hex
        for part in message.parts:
            if isinstance(part, ImagePart):
                shown = result_content([part])
                if shown:
                    self._send(
                        {
                            "sessionUpdate": "user_message_chunk",
                            "messageId": self._message_id,
                            "content": shown[0]["content"],
                        }
                    )
            elif isinstance(part, TextPart) and not part.text.startswith((ATTACHED, TOLD)):
                self._chunk("user_message_chunk", part.text)
        self._message_id = uuid4().hex

    # --- calls -----------------------------------------------------------------------------------

    def _announced(self, event: ToolAnnounced) -> None:
        call = event.call
        if call.name == TODOS:
            return
        update: Json = {
            "sessionUpdate": "tool_call",
            "toolCallId": call.id,
            "title": title_of(event.summary, call),
            "kind": tool_kind(call.name),
            "status": "pending",
            "rawInput": bounded(call.arguments),
            "_meta": {"agentcli/tool": call.name},
        }
        if places := locations_of(call, self._cwd):
            update["locations"] = places
        if self._shows_terminal(call):
            update["content"] = [{"type": "terminal", "terminalId": call.id}]
            info = {"terminal_id": call.id, "cwd": str(self._cwd)}
            update["_meta"]["terminal_info"] = info
        self._send(update)

    def _shows_terminal(self, call: ToolCall) -> bool:
        return self._has_terminals and call.name == BASH and self._is_live

    def _update(self, call_id: str, **fields: Any) -> None:
        self._send({"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields})

    def _started(self, event: ToolStarted) -> None:
        if event.call.name != TODOS:
            self._running[event.call.id] = _Printed(event.call, self._redact)
            self._update(event.call.id, status="in_progress")

    def _printed(self, event: ToolProgress) -> None:
        printed = self._running.get(event.call_id)
        if printed is None:
            return
        printed.news += event.text
        if printed.timer is None:
            loop = asyncio.get_running_loop()
            printed.timer = loop.call_later(PROGRESS_S, self._flush, event.call_id)
        elif len(printed.news) > MAX_PROGRESS_CHARS:
            self._flush(event.call_id)

    def _flush(self, call_id: str, *, is_last: bool = False) -> None:
        printed = self._running.get(call_id)
        if printed is None:
            return
        if printed.timer is not None:
            printed.timer.cancel()
        printed.timer = None
        whole = printed.words.add(printed.news)
        news, printed.news = harmless(whole + (printed.words.rest() if is_last else "")), ""
        if not news:
            return
        printed.is_shown = True
        if self._shows_terminal(printed.call):
            self._update(call_id, _meta={"terminal_output": {"terminal_id": call_id, "data": news}})
            return
        printed.tail = (printed.tail + news)[-MAX_PROGRESS_CHARS:]
        self._update(call_id, content=[verbatim(printed.tail)])

    def _finished(self, event: ToolFinished) -> None:
        call, result = event.call, event.result
        if call.name == TODOS:
            if result.status is ResultStatus.OK:
                self.plan(call.arguments.get("todos"))
            return
        is_ok = result.status is ResultStatus.OK
        changes = changes_of(event.display, self._cwd) if call.name in EDITS and is_ok else []
        fields: Json = {
            "status": "completed" if is_ok else "failed",
            "rawOutput": bounded(harmless(result.text)),
        }
        if self._shows_terminal(call) and call.id in self._running:
            self._end_terminal(event)
        else:
            fields["content"] = diff_content(changes) or result_content(
                result.parts, is_markdown=call.name in _MARKDOWN
            )
        if changes:
            fields["locations"] = locations_of(call, self._cwd, changes)
        self._flush(call.id, is_last=True)
        self._running.pop(call.id, None)
        self._update(call.id, **fields)

    def _end_terminal(self, event: ToolFinished) -> None:
        call_id = event.call.id
        printed = self._running[call_id]
        if not (printed.is_shown or printed.news):
            printed.news = event.result.text
        self._flush(call_id, is_last=True)
        code = 0 if event.result.status is ResultStatus.OK else 1
        ended = {"terminal_id": call_id, "exit_code": code, "signal": None}
        self._update(call_id, _meta={"terminal_exit": ended})

    def plan(self, todos: object) -> None:
        """The agent's list of things to do, all of it."""
        items = (
            [item for item in todos if isinstance(item, dict)] if isinstance(todos, list) else []
        )
        entries = [
            {
                "content": harmless(str(item.get("content", ""))),
                "priority": "medium",
                "status": str(item.get("status", "pending")),
            }
            for item in items
        ]
        self._send({"sessionUpdate": "plan", "entries": entries})

    # --- the session -----------------------------------------------------------------------------

    def _recorded(self, message: AssistantMessage) -> None:
        if message.usage.is_known:
            self._used = _in_context(message.usage)
        if self._is_live:
            self.usage()

    def usage(self) -> None:
        """How full the context is, and between turns what the session has cost."""
        if not self._used:
            return
        size = max(self._session.model.context_tokens, self._used)
        update: Json = {"sessionUpdate": "usage_update", "used": self._used, "size": size}
        if (cost := self._session.cost_usd) is not None and not self._session.is_running:
            update["cost"] = {"amount": round(cost, 6), "currency": "USD"}
        self._send(update)

    def end_turn(self, updated_at: float) -> None:
        """What is known only when a turn has ended."""
        self._piece("", "")
        for call_id in list(self._running):
            self._flush(call_id, is_last=True)
        self._running.clear()
        self.usage()
        update: Json = {"sessionUpdate": "session_info_update", "updatedAt": iso_time(updated_at)}
        if self._session.title != self._title:
            self._title = self._session.title
            update["title"] = reveal(self._title)
        self._send(update)

    def commands(self) -> None:
        """The commands and skills that a prompt may begin with."""
        found = []
        for each in self._session.extensions.commands:
            command: Json = {"name": each.name, "description": reveal(each.description)}
            if each.hint:
                command["input"] = {"hint": reveal(each.hint)}
            found.append(command)
        self._send({"sessionUpdate": "available_commands_update", "availableCommands": found})

    async def replay(self) -> None:
        """Tell the whole session again, a page at a time."""
        past = Past(lambda call: call.name)
        self._is_live = False
        try:
            async for page in self._session.pages():
                for event in past.events(page.messages, page.notes, page.runs):
                    self.on_event(event)
                await asyncio.sleep(0)
            self._piece("", "")
        finally:
            self._is_live = True
        self.usage()


def _in_context(usage: Usage) -> int:
    """Tokens that the next request begins with."""
    counts: Mapping[str, int | None] = {
        "input": usage.input_tokens,
        "read": usage.cache_read_tokens,
        "written": usage.cache_write_tokens,
        "output": usage.output_tokens,
    }
    return sum(count or 0 for count in counts.values())
