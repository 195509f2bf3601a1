"""One conversation: submit ops, receive events.

Laws: one turn at a time; events reach every listener in the order in which they happened; a
listener that raises is logged and never disturbs the turn. Two sessions share nothing (CAN-11).
What is unknown of the costs once stays unknown (COST-1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from agentcli.app.extensions.found import SessionExtensions
from agentcli.app.listeners import Listeners
from agentcli.app.models import know_key
from agentcli.app.queue import DurableQueue
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import AgentError, ConfigError, UsageError
from agentcli.domain.events import (
    AgentEvent,
    Cancelled,
    Compacted,
    CompactionTrigger,
    Continue,
    Done,
    Failed,
    Interrupt,
    Op,
    Prompt,
    QueueChanged,
    TurnSummary,
)
from agentcli.domain.history import History
from agentcli.domain.messages import TextPart, Usage, UserMessage
from agentcli.domain.ports import (
    Effort,
    ModelInfo,
    PermissionMode,
    QueuedInput,
    QueueKind,
    cost_usd,
)
from agentcli.domain.session import LoadedSession, SessionInfo, SessionPage
from agentcli.domain.tools import ToolOutput
from agentcli.domain.values import mutable
from agentcli.engine.conversation import Conversation
from agentcli.engine.gates import PLAN_KEY
from agentcli.engine.turn import Turn
from agentcli.policy.decision import Policy
from agentcli.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from agentcli.app.project_memory import SessionMemory
    from agentcli.domain.accounts import Ledger
    from agentcli.domain.background import Background, BackgroundTask
    from agentcli.domain.extensions.instructions import ProjectDoc
    from agentcli.domain.reports import ContextReport, Explanation
    from agentcli.domain.rewind import RewindPoint, RewindScope, Rewound
    from agentcli.domain.sandbox import Sandbox
    from agentcli.domain.tools import McpServers, Workspace

log = logging.getLogger(__name__)

REAP_S = 3.0
PAGE_MESSAGES = 50


class Session:
    """A conversation in a file. End it with ``aclose``.

    ``notices`` are lines for the user from its opening, ``info`` what it was then, ``extensions``
    skills, commands and agents of the user's that it has; ``notify`` says a line to them. With
    ``add_listener`` every event goes to a function, synchronously; it returns what removes it.
    """

    def __init__(
        self,
        loaded: LoadedSession,
        store: SqliteStore,
        queue: DurableQueue,
        conversation: Conversation,
        listeners: Listeners | None = None,
        notices: Sequence[str] = (),
    ) -> None:
        listeners = listeners or Listeners(loaded.info.id)
        self.info = loaded.info
        self.resumed = loaded if loaded.messages else None
        self.notices = notices
        self.extensions = SessionExtensions()
        self.add_listener = listeners.add
        self._emit = listeners.emit
        self.notify = listeners.notify
        self._store = store
        self._queue = queue
        self._conversation = conversation
        self._parts = conversation.parts
        self._token: CancelToken | None = None
        self._totals = Totals.of(loaded.info)
        self._has_shell_lines = self.resumed is not None

    async def events(self) -> AsyncIterator[AgentEvent]:
        """The events of the running or next turn, up to its terminal event (CAN-12)."""
        queue: asyncio.Queue[AgentEvent] = asyncio.Queue()
        remove = self.add_listener(queue.put_nowait)
        try:
            while True:
                event = await queue.get()
                yield event
                if isinstance(event, Done | Cancelled | Failed):
                    return
        finally:
            remove()

    # --- what can be seen ------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's id (UUIDv7)."""
        return self.info.id

    @property
    def title(self) -> str:
        """Its name, or the first line of its first prompt."""
        return self._totals.title

    @property
    def model(self) -> ModelInfo:
        """Who answers."""
        return self._conversation.model

    @property
    def mode(self) -> PermissionMode:
        """What runs without asking."""
        return self._parts.policy.mode

    @property
    def history(self) -> History:
        """The messages, as stored."""
        return self._conversation.history

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools that the model has."""
        return tuple(map(attrgetter("name"), self._parts.toolbox.definitions))

    @property
    def usage(self) -> Usage:
        """Tokens of all turns."""
        return self._totals.usage

    @property
    def cost_usd(self) -> float | None:
        """Money of all turns; ``None`` when a part of it is unknown."""
        return self._totals.cost_usd

    @property
    def turns(self) -> int:
        """How many turns were begun."""
        return self._totals.turns

    @property
    def workspace(self) -> Workspace:
        """Where it works."""
        return self._parts.workspace

    @property
    def file(self) -> Path:
        """Its file; there is none before the first turn."""
        return self._store.path

    @property
    def documents(self) -> tuple[ProjectDoc, ...]:
        """The instructions that the model has read, the nearest last (CTX-1, EXT-4)."""
        from agentcli.domain.extensions.instructions import documents_of

        later = documents_of(self._conversation.history.messages)
        return (*self._parts.documents, *later)

    @property
    def is_running(self) -> bool:
        """Whether a turn is under way."""
        return self._token is not None

    @property
    def effort(self) -> Effort | None:
        """How much the model is asked to reason; ``None`` leaves it to the model."""
        return self._conversation.effort

    @property
    def policy(self) -> Policy:
        """The rules that decide what runs (SEC-3)."""
        return self._parts.policy

    async def explain(self, text: str) -> Explanation:
        """What would become of the command, or of the call ``TOOL name=value``; see there."""
        from agentcli.app.permissions import explain, read_call
        from agentcli.engine.jobs import SHELL

        parts = self._parts
        if parts.sandbox is not None:
            await parts.sandbox.begin()
        self.sandbox_changed()
        name, arguments = read_call(parts.toolbox, text)
        left = await parts.state.get(SHELL)
        return explain(parts.toolbox, parts.workspace, parts.policy, name, arguments, left)

    @property
    def sandbox(self) -> Sandbox | None:
        """What limits commands (SEC-7)."""
        return self._parts.sandbox

    @property
    def boundary(self) -> str:
        """What limits commands in the mode that it is in, in a word; empty until it is known."""
        sandbox, policy = self.sandbox, self.policy
        if sandbox is None:
            return ""
        if not policy.wants_boundary:
            return "no boundary"
        if not sandbox.state.known:
            return ""
        return "sandbox" if sandbox.state.is_on else "no sandbox"

    async def look_for_sandbox(self) -> None:
        """Find out by a real run what limits commands; that nothing does is told once (SEC-7)."""
        sandbox = self._parts.sandbox
        if sandbox is not None and "bash" in self.tool_names:
            await sandbox.begin()
            for line in sandbox.take_notice().splitlines():
                self.notify(line)

    def sandbox_changed(self) -> None:
        """Judge commands by what limits them now."""
        if (sandbox := self._parts.sandbox) is None:
            self.policy.contained = False
        else:
            self.policy.limit_by(sandbox.state)

    @property
    def background(self) -> Background | None:
        """The session's background runs; ``None`` where it has none (BG-1)."""
        return None if self._parts.background is None else self._parts.background()

    @property
    def servers(self) -> McpServers | None:
        """The MCP servers that it may use; ``None`` where it has none (MCP-2)."""
        return None if self._parts.servers is None else self._parts.servers()

    async def with_resources(
        self, message: UserMessage, typed: str, token: CancelToken
    ) -> UserMessage:
        """``message`` with what ``typed`` names of MCP servers, ``@SERVER:URI`` (MCP-1)."""
        if "@" not in typed or self._parts.servers is None:
            return message
        from agentcli.app.extensions.mcp import resources_named

        servers = self._parts.servers()
        return replace(
            message,
            parts=(*message.parts, *await resources_named(typed, servers, token, self.notify)),
        )

    def resource_names(self) -> Mapping[str, str]:
        """What servers have to read, ``SERVER:URI``, and what they say it is (MCP-1)."""
        if self._parts.servers is None:
            return {}
        from agentcli.app.extensions.mcp import resource_names

        return resource_names(self._parts.servers())

    @property
    def project_memory(self) -> SessionMemory | None:
        """What is known of the project; ``None`` where that is switched off (MEM-1)."""
        from agentcli.app.project_memory import SessionMemory

        made = None if self._parts.memory is None else self._parts.memory()
        return made if isinstance(made, SessionMemory) else None

    @property
    def active_runs(self) -> Sequence[BackgroundTask]:
        """The background runs that are under way."""
        made = None if self._parts.background is None else self._parts.background.made
        return () if made is None else [task for task in made.tasks() if task.is_active]

    def context_report(self) -> ContextReport:
        """Where the tokens of the next request go (CMP-5)."""
        from agentcli.engine.context.report import report

        return report(self._conversation)

    # --- ops -------------------------------------------------------------------------------

    async def run(
        self,
        op: Prompt | Continue,
        token: CancelToken | None = None,
        *,
        deadline: float | None = None,
        queued: Sequence[int] = (),
    ) -> TurnSummary:
        """Run one turn to its end. Raises ``UsageError`` while another one is running.

        ``deadline`` is a time of ``time.monotonic``: near it the agent is told to finish, after
        it no request is begun; what runs is not cut (CTRL-7). ``queued`` are rows of the queue
        that the message was made of.
        """
        message = op.message if isinstance(op, Prompt) else None
        news = self._queue.about_runs() if message is not None else None
        if message is not None and news is not None:
            message = replace(message, parts=(TextPart(news.text), *message.parts))
            queued = (*news.ids, *queued)
        return await self._turn(message, queued, token, deadline)

    async def run_queued(self, token: CancelToken | None = None) -> TurnSummary | None:
        """Run a turn with what waits in the queue; ``None`` when nothing does."""
        first = self._queue.next()
        if first is None:
            return None
        message = await self._conversation.message_for(first)
        return await self._turn(message, first.ids, token, None)

    async def _turn(
        self,
        message: UserMessage | None,
        queued: Sequence[int],
        token: CancelToken | None,
        deadline: float | None,
    ) -> TurnSummary:
        with self._busy(token) as cancel:
            turn = Turn(self._conversation, cancel, self._emit, deadline)
            prompt = message
            if message is not None and self._has_shell_lines:
                from agentcli.app import shell_line

                prompt = await shell_line.with_lines(message, self._parts.state)
            if prompt is not None:
                await know_key(self._conversation.provider, prompt.text, cancel)
            summary = await turn.run(prompt, queued)
        if turn.begun and message is not None and self._has_shell_lines:
            from agentcli.app import shell_line

            await shell_line.forget(self._parts.state)
            self._has_shell_lines = False
        self._totals.add_turn(summary, message.text if message else "")
        await self._update_catalogue()
        return summary

    async def submit(self, op: Op) -> TurnSummary | None:
        """Any op: run a turn, or interrupt the running one."""
        if isinstance(op, Interrupt):
            self.interrupt(CancelReason(op.reason), force=op.force)
            return None
        return await self.run(op)

    def interrupt(self, reason: CancelReason = CancelReason.USER, *, force: bool = False) -> bool:
        """Cancel the running turn; false when there is none (CAN-13)."""
        if self._token is None:
            return False
        self._token.cancel(reason, force=force)
        return True

    async def switch_model(self, name: str) -> ModelInfo:
        """Let another model answer from the next turn on (HIS-7). Raises ``ConfigError``."""
        if self._token is not None:
            raise UsageError("a turn is running", "switch the model when it has ended")
        if self._parts.choose is None:
            raise ConfigError("no model can be chosen in this session")
        provider, model = self._parts.choose(name)
        old = self._conversation.provider
        self._conversation.provider, self._conversation.model = provider, model
        await old.aclose()
        await self._store.set_model(model.id)
        return model

    async def run_command(
        self,
        command: str,
        token: CancelToken,
        on_output: Callable[[str], None],
        *,
        remember: bool = True,
    ) -> ToolOutput:
        """Run what a user typed after "!", in the session's shell, without asking (UI-4).

        With ``remember`` the model learns of it with the next prompt. Raises ``UsageError``.
        """
        from agentcli.app import shell_line

        output = await shell_line.run_line(self._conversation, command, token, on_output)
        if remember:
            await self._know_key(f"{command} {output.text}")
            await shell_line.remember(self._parts.state, command, output)
            self._has_shell_lines = True
        return output

    async def run_asked(self, command: str, token: CancelToken) -> ToolOutput:
        """Run what a file of the user's has run, judged and asked about like the model's.

        Raises ``AgentError`` when it was refused, and ``TurnCancelled``.
        """
        from agentcli.app import shell_line

        with self._busy(token) as cancel:
            return await shell_line.run_asked(self._conversation, command, cancel, self._emit)

    # --- what the model knows ----------------------------------------------------------------

    async def compact(self, focus: str = "", token: CancelToken | None = None) -> Compacted | None:
        """Fold what is old into a summary; ``None``: nothing to fold (CMP-4).

        What it cost is counted also where nothing came of it. Raises ``AgentError`` and
        ``TurnCancelled``; the history is then as it was.
        """
        from agentcli.engine.context.compaction import Compactor

        with self._busy(token) as cancel:
            compactor = Compactor(self._conversation, cancel, self._emit)
            try:
                done = await compactor.run(CompactionTrigger.MANUAL, focus)
            finally:
                if compactor.usage.is_known:
                    cost = cost_usd(compactor.model, compactor.usage)
                    self._totals.spend(compactor.usage, cost)
        await self._update_catalogue()
        return done

    async def undo_compaction(self) -> bool:
        """Bring back what the newest summary stands for, on disk and in memory; false: none."""
        with self._busy(None):
            if not await self._store.undo_compaction():
                return False
            self._conversation.history = (await self._store.load()).history()
            return True

    @contextmanager
    def quoting(self) -> Iterator[None]:
        """What is said meanwhile are a file's words and not the user's (MEM-2)."""
        self._conversation.quotes = True
        try:
            yield
        finally:
            self._conversation.quotes = False

    @contextmanager
    def _busy(self, token: CancelToken | None) -> Iterator[CancelToken]:
        if self._token is not None:
            raise UsageError("a turn is already running", "wait for it or cancel it first")
        self._token = token or CancelToken()
        try:
            yield self._token
        finally:
            self._token = None

    async def _know_key(self, text: str) -> None:
        """Before ``text`` is stored (SEC-9)."""
        await know_key(self._conversation.provider, text, self._token or CancelToken())

    def set_effort(self, effort: Effort | None) -> None:
        """How much the model is asked to reason from the next request on."""
        self._conversation.effort = effort

    def set_mode(self, mode: PermissionMode) -> None:
        """What runs without asking from the next judgement on (SEC-3)."""
        self._parts.policy.mode = mode

    def go_on_as(self, before: Session) -> None:
        """Take over what the user has chosen since ``before`` was opened."""
        self.set_effort(before.effort)
        self.policy.go_on_as(before.policy)
        if self.sandbox is not None and before.sandbox is not None:
            self.sandbox.go_on_as(before.sandbox)

    # --- back in time ----------------------------------------------------------------------

    async def rewind_points(self) -> Sequence[RewindPoint]:
        """What can be gone back to, oldest first (TT-2)."""
        return await self._store.rewinds.points()

    async def rewind(self, seq: int, scope: RewindScope | None = None) -> Rewound:
        """Go back to before the message ``seq``, chat and files; see ``rewinding.rewind``."""
        from agentcli.app.files import rewinding
        from agentcli.domain.rewind import RewindScope

        scope = scope or RewindScope.BOTH

        with self._busy(None):
            done = await rewinding.rewind(self._conversation, self._store, seq, scope)
            await self._note_files(done, scope is RewindScope.FILES, "took back")
        await self._update_catalogue()
        return done

    async def redo(self) -> Rewound | None:
        """Take the newest rewind back; ``None`` when there is none or something was said since."""
        from agentcli.app.files import rewinding

        with self._busy(None):
            done = await rewinding.bring_back(self._conversation, self._store)
            if done is not None:
                await self._note_files(done, not done.messages, "brought back")
        await self._update_catalogue()
        return done

    async def _note_files(self, done: Rewound, is_news: bool, what: str) -> None:  # noqa: FBT001 - what was seen
        """The model has to know where files are not what its history says."""
        if done.files and is_news:
            names = ", ".join(map(str, done.files))
            line = f"(The user {what} your changes of these files: {names}. Read them again.)"
            from agentcli.app import shell_line

            await shell_line.add_line(self._parts.state, line)
            self._has_shell_lines = True

    # --- what waits ------------------------------------------------------------------------

    def queued(self) -> Sequence[QueuedInput]:
        """What was typed and is not delivered yet, oldest first (UI-3)."""
        return self._queue.waiting()

    async def enqueue(self, text: str, kind: QueueKind = QueueKind.STEERING) -> QueuedInput:
        """Let ``text`` wait: durable when this returns (CTRL-1). Raises ``UsageError``."""
        await self._know_key(text)
        item = await self._queue.add(kind, text)
        self._emit(QueueChanged(len(self.queued())))
        return item

    def move_to_background(self) -> bool:
        """Let the running command go on as a background run; false when none can (UI-3)."""
        return self._parts.moves is not None and self._parts.moves.request()

    async def edit_queued(self, row_id: int, text: str) -> bool:
        """Change what waits; false when it waits no longer."""
        changed = await self._queue.edit(row_id, text)
        self._emit(QueueChanged(len(self.queued())))
        return changed

    async def drop_queued(self, row_id: int) -> bool:
        """Take back what waits; false when it waits no longer."""
        dropped = await self._queue.drop(row_id)
        self._emit(QueueChanged(len(self.queued())))
        return dropped

    # --- the session itself ----------------------------------------------------------------

    async def rename(self, title: str) -> None:
        """Name the session. Raises ``UsageError`` for an empty name."""
        cleaned = " ".join(title.split())
        if not cleaned:
            raise UsageError("a session needs a name", "write it after /rename")
        await self._know_key(cleaned)
        await self._store.set_title(cleaned)
        self._totals.title = cleaned
        await self._update_catalogue()

    async def load(self) -> LoadedSession:
        """The session as its file has it, for showing and exporting."""
        return await self._store.load(hidden=True)

    async def ledger(self) -> Ledger:
        """What was sent and what it has cost, for ``domain.accounts`` (COST-3)."""
        from agentcli.domain.accounts import Ledger
        from agentcli.store.files import ledger_of

        path = self._store.path
        return await asyncio.to_thread(ledger_of, path) if path.exists() else Ledger()

    async def pages(self) -> AsyncIterator[SessionPage]:
        """The whole session from its file, some messages at a time, however long it is (UI-12)."""
        page = await self._store.page(0, PAGE_MESSAGES)
        while page.messages:
            yield page
            page = await self._store.page(page.messages[-1].seq, PAGE_MESSAGES)

    async def raw_output(self, call_id: str) -> bytes | None:
        """The whole output of a call where it is kept beside what the model got (TOOL-3)."""
        return await self._parts.outputs.read(call_id)

    async def todos(self) -> list[dict[str, str]]:
        """The agent's list of things to do, of a file of others what is one."""
        found = await self._parts.state.get("todos")
        rows = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        return [each for each in rows if all(isinstance(text, str) for text in each.values())]

    async def memory(self) -> Mapping[str, str]:
        """What the agent has kept for this session, by key."""
        from agentcli.tools.kv import read_memory

        return await read_memory(self._parts.state)

    async def forget(self, key: str) -> bool:
        """Delete what the agent has kept as ``key``; false when there is nothing."""
        from agentcli.tools.kv import change_memory

        state = self._parts.state
        return await change_memory(state, lambda memory: memory.pop(key, None)) is not None

    async def plan(self) -> Mapping[str, Any]:
        """The newest plan: text, status, reason; empty when there is none."""
        found = await self._parts.state.get(PLAN_KEY)
        return found if isinstance(found, dict) else {}

    async def aclose(self, reason: str = "other") -> None:
        """End what runs, let it clean up, close the file. May be called again.

        ``reason`` is for hooks: "clear", "resume", "prompt_input_exit" or "other".
        """
        self._conversation.end_reason = reason
        self.interrupt(force=True)
        reaper = self._parts.reaper
        closers = (*self._parts.on_close, self._conversation.provider.aclose, self._store.aclose)
        async with AsyncExitStack() as stack:  # each one is closed, whatever becomes of another
            for close in reversed(closers):
                stack.push_async_callback(close)
            if await reaper.join(REAP_S):
                reaper.cancel()
                await reaper.join(REAP_S)

    async def _update_catalogue(self) -> None:
        """Observational: a failure is a line in the log (FAIL-2)."""
        try:
            if self._parts.update_catalogue is not None:
                await self._parts.update_catalogue()
        except (AgentError, OSError):
            log.warning("the catalogue was not updated", exc_info=True)


_TITLE_LENGTH = 80


@mutable
class Totals:
    """``cost_usd`` is ``None`` when a part of it is unknown."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    turns: int = 0
    title: str = ""

    @classmethod
    def of(cls, info: SessionInfo) -> Totals:
        """What is known of a session when it is opened."""
        return cls(info.usage, info.cost_usd if info.turns else 0.0, info.turns, info.title)

    def add_turn(self, summary: TurnSummary, prompt: str) -> None:
        """One more turn, begun with ``prompt``."""
        self.turns += 1
        self.spend(summary.usage, summary.cost_usd)
        if not self.title and prompt.strip():
            self.title = prompt.strip()[:_TITLE_LENGTH].splitlines()[0]

    def spend(self, usage: Usage, cost_usd: float | None) -> None:
        """Tokens, and what they cost where that is known."""
        self.usage += usage
        known = self.cost_usd is not None and (cost_usd is not None or not usage.is_known)
        self.cost_usd = (self.cost_usd or 0.0) + (cost_usd or 0.0) if known else None
