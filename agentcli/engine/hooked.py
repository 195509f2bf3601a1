"""What the user's hooks say of a turn and of its calls.

Laws of the turn. A prompt that a hook refuses is never stored and never lost: it goes back to the
user. What hooks say to the model is stored like everything it is told. A turn is kept from ending
at most ``MAX_HOLDS`` times in a row; without hooks nothing here waits.

Laws of the calls. A call is stored as the model made it (W1) before any hook hears of it;
arguments that a hook changes are validated and judged again, are what the user is asked about and
what runs, and the model is told of them: the record says both what was asked for and what was
done. A result is durable before its hook hears of it: what a
hook then says is a message of its own, so that nothing that has happened is lost while a hook runs
(CAN-6, CAN-8).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from agentcli.domain.errors import AgentError, PromptBlocked, TurnCancelled
from agentcli.domain.events import AgentEvent, CompactionTrigger, Notice, QueueChanged
from agentcli.domain.extensions.hooks import HookEvent, Hooks, HookVerdict, Permission
from agentcli.domain.messages import (
    ADDED_BY_HOOK,
    ResultStatus,
    TextPart,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import QueueSource
from agentcli.domain.tools import ToolOutput, status_of
from agentcli.engine.jobs import Job, text_of
from agentcli.engine.race import Reaper, race

if TYPE_CHECKING:
    from agentcli.domain.ports import QueuedInput
    from agentcli.engine.conversation import Conversation, Emit
    from agentcli.engine.parts import SessionParts


MAX_HOLDS = 8
_SHOWN = 200


class TurnHooks:
    """The hooks around one turn."""

    def __init__(
        self, hooks: Hooks, conversation: Conversation, token: CancelToken, emit: Emit
    ) -> None:
        self._hooks = hooks
        self._conversation = conversation
        self._parts = conversation.parts
        self._token = token
        self._emit = emit
        self._holds = 0
        self._notices: tuple[str, ...] = ()

    @property
    def guards_the_end(self) -> bool:
        """Whether a hook has to be asked before a turn ends."""
        return self._hooks.listens(HookEvent.STOP)

    # --- the prompt ------------------------------------------------------------------------

    async def admitted(
        self, prompt: UserMessage | None, queued: Sequence[int]
    ) -> UserMessage | None:
        """The prompt with what hooks add to it; raises ``PromptBlocked``.

        A cancel ends the asking and not the turn: it then records the prompt and ends (CAN-3).
        """
        if prompt is None or not prompt.text.strip():
            return prompt
        asking = self._ask(prompt.text)
        try:
            said = await uninterruptible(asking, lambda: self._token.cancel(CancelReason.OUTER))
        except (TurnCancelled, asyncio.CancelledError):
            return prompt  # the token remembers it
        if blocked := said.blocked or said.stopped:
            self._notices = said.notices
            self.emit_notices()
            if queued and self._parts.queue is not None:
                for row in queued:
                    await self._parts.queue.drop(row)
                blocked = f"{blocked} (the prompt was: {_short(prompt.text)})"
            raise PromptBlocked(f"a hook refused the prompt: {blocked}", "nothing was sent")
        self._notices = said.notices
        return _with_context(prompt, said)

    def emit_notices(self) -> None:
        """What the hooks of the prompt had to say, once."""
        self._notify(self._notices)
        self._notices = ()

    async def admitted_later(self, item: QueuedInput, message: UserMessage) -> UserMessage | None:
        """The message that a queued text becomes; ``None`` when a hook refuses it.

        Raises ``TurnCancelled``.
        """
        queue = self._parts.queue
        if queue is None or item.source is not QueueSource.USER:
            return message
        said = await self._ask(item.text)
        self._notify(said.notices)
        if blocked := said.blocked or said.stopped:
            self._emit(Notice(f"a hook refused what waited ({item.text}): {blocked}"))
            await queue.drop(item.id)
            self._emit(QueueChanged(len(queue.waiting())))
            return None
        return _with_context(message, said)

    async def _ask(self, text: str) -> HookVerdict:
        asking = self._hooks.prompt_submitted(text, self._token)
        return await race(asking, self._token, self._parts.reaper)

    # --- on the way ------------------------------------------------------------------------

    async def record_feedback(self, text: str) -> None:
        """Store what hooks have said of the calls of a batch, as the next message."""
        if text:
            await uninterruptible(
                self._conversation.record_unsaid(f"({text})"),
                lambda: self._token.cancel(CancelReason.OUTER),
            )

    # --- the end ---------------------------------------------------------------------------

    async def holds_back(self, answer: str, *, final: bool = False) -> bool:
        """Whether the turn goes on instead of ending; why is then the next message.

        Nothing holds back a turn that is ``final``: a tool has ended it (CTRL-2).
        """
        if not self.guards_the_end:
            return False
        asking = self._hooks.stopping(answer, self._token, active=self._holds > 0)
        said = await race(asking, self._token, self._parts.reaper)
        self._notify(said.notices)
        if said.stopped:
            self._emit(Notice(f"a hook ends the turn: {said.stopped}"))
        if said.stopped or not said.blocked:
            return False
        if final or self._holds >= MAX_HOLDS:
            why = "a tool has ended it" if final else f"it did so {MAX_HOLDS} times"
            self._emit(Notice(f"a hook wants the turn to go on, but {why}: {said.blocked}"))
            return False
        self._holds += 1
        self._emit(Notice(f"a hook keeps the turn going: {said.blocked}", is_warning=False))
        await self.record_feedback(f"A hook asks you to go on: {said.blocked}")
        return True

    def _notify(self, notices: Sequence[str]) -> None:
        for text in notices:
            self._emit(Notice(text))


async def before_compaction(
    parts: SessionParts, token: CancelToken, emit: Emit, trigger: CompactionTrigger, focus: str
) -> str:
    """What the summary should mind: ``focus`` and what hooks add to it.

    Raises ``AgentError`` when a hook refuses it, and ``TurnCancelled``.
    """
    hooks = parts.hooks
    if hooks is None:
        return focus
    kind = "manual" if trigger is CompactionTrigger.MANUAL else "auto"
    said = await race(hooks.before_compaction(kind, focus, token), token, parts.reaper)
    for text in said.notices:
        emit(Notice(text))
    if refused := said.blocked or said.stopped:
        raise AgentError(f"a hook refused it: {refused}")
    return "\n".join(filter(None, (focus, *said.context)))


def _with_context(message: UserMessage, said: HookVerdict) -> UserMessage:
    parts = (TextPart(f"{ADDED_BY_HOOK}{text})") for text in said.context)
    return UserMessage((*message.parts, *parts))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# --- tool calls -----------------------------------------------------------------------------------


MAX_SHOWN = 300


class CallHooks:
    """The hooks of one turn's calls. ``stopped`` says why the turn is to end, if it is.

    ``feedback`` is what the model is to be told after the batch, in the order of the calls.
    """

    def __init__(
        self,
        hooks: Hooks,
        token: CancelToken,
        reaper: Reaper,
        emit: Callable[[AgentEvent], None],
    ) -> None:
        self._hooks = hooks
        self._token = token
        self._reaper = reaper
        self._emit = emit
        self.feedback: list[str] = []
        self.stopped = ""

    async def before(
        self, jobs: Sequence[Job], refuse: Callable[[Job, str], None]
    ) -> Sequence[Job]:
        """Ask about calls that are next; those whose arguments were changed.

        ``refuse`` is called for those that must not run. Raises ``TurnCancelled``.
        """
        asked = [job for job in jobs if job.output is None and job.hook is None]
        if not asked:
            return ()
        verdicts = await race(self._ask(asked), self._token, self._reaper)
        changed = []
        for job, said in zip(asked, verdicts, strict=True):
            job.hook = said
            self._hear(said)
            name = job.call.name
            self.feedback += [f"A hook says before {name}: {text}" for text in said.context]
            if said.blocked or said.stopped:
                refuse(job, f"by a hook: {said.blocked or said.stopped}")
            elif said.updated_input is not None:
                self._change(job, said)
                changed.append(job)
        return changed

    async def _ask(self, jobs: Sequence[Job]) -> list[HookVerdict]:
        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(self._ask_about(job)) for job in jobs]
        return [task.result() for task in asking]

    async def _ask_about(self, job: Job) -> HookVerdict:
        """Of a call that has another tool run, both are asked about, and both have to agree."""
        if job.launch is None:
            return await self._hooks.before_tool(job.call, job.cwd, self._token)
        from agentcli.engine.background.launch import both

        own = job.launch.call(job.call.id)
        inner = await self._hooks.before_tool(own, job.cwd, self._token)
        if inner.blocked or inner.stopped:
            return inner
        call = job.call
        if inner.updated_input is not None:
            call = replace(
                call, arguments={**call.arguments, job.launch.field: dict(inner.updated_input)}
            )
        return both(inner, await self._hooks.before_tool(call, job.cwd, self._token), call)

    async def answers(self, job: Job) -> bool | None:
        """What a hook says in the user's place when they would be asked; ``None``: ask them.

        A yes counts as one of theirs would (SEC-3). Sets ``job.hook``.
        """
        if not self._hooks.listens(HookEvent.PERMISSION_REQUEST):
            return None
        said = await self._hooks.permission_requested(job.seen, job.cwd, self._token)
        self._hear(said)
        self.feedback += [f"A hook says about {job.call.name}: {text}" for text in said.context]
        is_refused = bool(said.blocked or said.stopped)
        if not is_refused and said.permission is not Permission.ALLOW:
            return None
        job.hook = said
        return not is_refused

    def _change(self, job: Job, said: HookVerdict) -> None:
        job.call = replace(job.call, arguments=dict(said.updated_input or {}))
        shown = json.dumps(job.call.arguments, ensure_ascii=False)
        cut = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
        self._emit(Notice(f"a hook changed the arguments of {job.call.name}: {cut}"))
        self.feedback.append(
            f"A hook changed the arguments of the call {job.call.id} ({job.call.name}); it was"
            f" run with these: {shown if len(shown) <= 10 * MAX_SHOWN else cut}"
        )

    def changed(self, job: Job) -> None:
        """Its new arguments have been read; those that the tool does not take do not run."""
        if job.output is None:
            return
        why = text_of(job.output)
        name = job.call.name
        self._emit(Notice(f"a hook changed the arguments of {name} to something invalid"))
        text = f"{name} was not run: a hook changed its arguments to something invalid. {why}"
        job.output = ToolOutput.error(text)
        job.status = ResultStatus.REFUSED

    async def after(self, job: Job) -> None:
        """Tell of a call that has run; its result is durable. A cancel only ends the telling."""
        if job.started_at is None or job.output is None:
            return
        result = ToolResult(
            job.call.id, job.seen.name, job.output.parts, job.status or status_of(job.output)
        )
        telling = self._hooks.after_tool(job.seen, job.cwd, result, self._token)
        try:
            said = await race(telling, self._token, self._reaper)
        except TurnCancelled:
            return
        self._hear(said)
        texts = (said.blocked, *said.context) if said.blocked else said.context
        self.feedback += [f"A hook says after {job.call.name}: {text}" for text in texts]
        if said.blocked:
            self._emit(Notice(f"a hook says after {job.call.name}: {said.blocked}"))

    def skip(self, jobs: Sequence[Job]) -> None:
        """A hook has ended the turn: these are not run any more."""
        for job in jobs:
            if job.output is None:
                text = f"{job.call.name} was not run: a hook ended the turn ({self.stopped})."
                job.output = ToolOutput.error(text)
                job.status = ResultStatus.REFUSED

    def take_feedback(self) -> str:
        """What the model is to be told now, once."""
        texts, self.feedback = self.feedback, []
        return "\n".join(texts)

    def _hear(self, said: HookVerdict) -> None:
        for text in said.notices:
            self._emit(Notice(text))
        if said.stopped and not self.stopped:
            self.stopped = said.stopped
            self._emit(Notice(f"a hook ends the turn: {said.stopped}"))
