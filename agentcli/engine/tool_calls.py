"""One batch of tool calls: judge → record intent (W2) → run → record the result (W3).

Laws: calls are announced and recorded in the model's order; concurrent ones that stand together
run together, everything else alone (LOOP-4); no effect without its W2 row; an event that
announces a result comes after its commit. A call that the cancel overtook is left pending:
the turn's one repair answers it. What a call is about to change is remembered before it (TT-1);
a cancel waits neither for that, the call then does not run, nor for long after it: what is still
being found out then is the reaper's. The user's checks see the files of a batch of edits before
the first of them and after the last, when all results are durable (EXT-6).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from agentcli.domain.errors import InvalidArguments, TurnCancelled, UsageError
from agentcli.domain.events import (
    AgentEvent,
    ApprovalWaiting,
    Notice,
    ToolAnnounced,
    ToolFinished,
    ToolProgress,
    ToolRefused,
    ToolStarted,
)
from agentcli.domain.history import History, RunDetail
from agentcli.domain.messages import ResultStatus, StopReason, ToolCall, ToolResult
from agentcli.domain.ports import ApprovalAnswer, PermissionMode, RecordedResult, Verdict
from agentcli.domain.tools import (
    Asks,
    OutputKind,
    PortMissing,
    RunIdentity,
    Tool,
    ToolContext,
    ToolOutput,
    WouldFail,
    context_for,
    status_of,
)
from agentcli.engine.gates import OPEN
from agentcli.engine.jobs import SHELL, Job, ShellPlaces, guarded, text_of
from agentcli.engine.parts import SessionParts
from agentcli.engine.race import cancel_future, first_of, race, stop
from agentcli.policy.decision import Answer, Decision, Effect

if TYPE_CHECKING:
    from pathlib import Path

    from agentcli.domain.ports import SessionStore
    from agentcli.domain.tools import BackgroundSwitch
    from agentcli.engine.hooked import CallHooks
    from agentcli.policy.decision import CallPlace, Rule

GRACE_S = 0.15
END_PATIENCE_S = 0.1
KILL_PATIENCE_S = 3.0
TAIL_CHARS = 4_000
_READER = "read_file"
# ports that the call itself has
_OF_JOB = {"access": "runs_at", "approved": "is_approved", "kept_back": "kept_back"}
log = logging.getLogger(__name__)


class ToolCalls:
    """Runs the batches of one turn. ``ended_turn``: a result asked for the turn's end (CTRL-2).

    ``answer`` is what the turn then answers with, if the result said so. ``touched`` are the files
    that calls have named and got; who looks at them takes them. ``passage`` says which
    tools the step may call (CTRL-4), ``run`` whose work it is.
    """

    def __init__(
        self,
        parts: SessionParts,
        history: History,
        token: CancelToken,
        emit: Callable[[AgentEvent], None],
        run: RunIdentity | None = None,
    ) -> None:
        self._parts = parts
        self._history = history
        self._token = token
        self._emit = emit
        self.details: dict[str, RunDetail] = {}
        self.ended_turn = False
        self.answer = ""
        self.touched: list[Path] = []
        self.passage = OPEN
        self.run = run or RunIdentity(parts.session_id, parent_id=parts.parent_id)
        self._batch: Sequence[Job] = ()
        self.hooks: CallHooks | None = None
        if parts.hooks is not None:
            from agentcli.engine.hooked import CallHooks

            self.hooks = CallHooks(parts.hooks.of_run(self.run), token, parts.reaper, emit)

    async def run_batch(self, calls: Sequence[ToolCall], stop_reason: StopReason) -> None:
        """Run the calls; raises ``TurnCancelled`` when the token was set on the way."""
        if notice := await self._parts.begin_sandbox({call.name for call in calls}):
            self._emit(Notice(notice))
        shell = await self._shells()
        cut = calls[-1] if stop_reason is StopReason.MAX_TOKENS else None
        left = await self._prepared(calls, shell, cut)
        for job in left:
            self._emit(ToolAnnounced(job.call, job.summary))
            self._tell_gated(job)
        self._batch = left
        moved = False
        while left:
            if moved:
                await self._judge_again(left)
            batch, left = _next_batch(left)
            await self._settle()
            if self._token.cancelled:  # checkpoint 2
                raise TurnCancelled
            if self.hooks is not None:
                batch, left = await self._past_hooks(self.hooks, batch, left)
            await uninterruptible(
                self._run_together(batch), lambda: self._token.cancel(CancelReason.OUTER)
            )
            for job in batch:
                if job.output is not None and job.output.ends_turn:
                    self.ended_turn = True
                    self.answer = job.output.answer or self.answer
            moved |= bool(left) and not all(job.changes_nothing for job in batch)
        self.ended_turn |= self.hooks is not None and bool(self.hooks.stopped)
        if self._token.cancelled:
            raise TurnCancelled

    async def checked(self) -> str:
        """What is wrong with the files that the batch has edited, for the model (EXT-6).

        Raises ``TurnCancelled``.
        """
        edited = [job for job in self._batch if job.started_at is not None and _edits(job)]
        if self._parts.checks is None or not edited:
            return ""
        paths = [path for job in edited for path in _paths(job)]
        checks, files = self._parts.checks(), self._parts.files
        checking = checks.after(edited[-1].call.id, paths, files, self._token)
        report = await race(checking, self._token, self._parts.reaper)
        for line in report.news:
            self._emit(Notice(line, is_warning=False))
        for line in report.warnings:
            self._emit(Notice(line))
        return report.feedback

    def _tell_gated(self, job: Job) -> None:
        """A call that a gate has kept from running is one of those that were refused (CTRL-4)."""
        if job.status is ResultStatus.REFUSED:
            reason = f"not allowed in this step by {', '.join(self.passage.gates)}"
            self._emit(ToolRefused(job.call, reason, unattended=False))

    async def run_by_hand(self, call: ToolCall) -> ToolOutput:
        """Run what a user has typed: it is neither judged nor recorded (UI-4).

        Raises ``TurnCancelled`` when the token is set before it starts.
        """
        job = self._prepare(Job(call), await self._shells(), may_be_cut=False)
        await self._settle()
        if self._token.cancelled:
            raise TurnCancelled
        if job.output is None and job.tool is not None:
            job.is_free = True  # their own command can do all that they can
            job.output = await self._run(job, job.tool)
        return job.output or ToolOutput.cancelled(job.tail)

    async def run_asked(self, call: ToolCall) -> tuple[ToolOutput, bool]:
        """Run what a file of the user's says: judged like a call of the model's, not recorded.

        What it changes is not remembered, as with what the user types (TT-1). The second value: it
        was refused. Raises ``TurnCancelled``.
        """
        if notice := await self._parts.begin_sandbox({call.name}):
            self._emit(Notice(notice))
        job = self._prepare(Job(call), await self._shells(), may_be_cut=False)
        self._emit(ToolAnnounced(call, job.summary))
        await self._settle()
        if self._token.cancelled:
            raise TurnCancelled
        if self.hooks is not None:
            await self._past_hooks(self.hooks, [job], [])
        permitted = job.output is None and await race(
            self._permitted(job), self._token, self._parts.reaper
        )
        if permitted and job.tool is not None:
            self._emit(ToolStarted(job.call, job.summary))
            job.output = await self._run(job, job.tool)
        if job.output is None:
            raise TurnCancelled
        output, status = job.output, job.status or status_of(job.output)
        result = ToolResult(call.id, call.name, output.parts, status)
        self._emit(ToolFinished(call, result, output.summary, job.elapsed_s, output.display))
        return job.output, job.status is ResultStatus.REFUSED

    async def _settle(self) -> None:
        """What was told to stop gets a bounded time to end before anything new starts (CAN-10)."""
        stuck = await self._parts.reaper.settle(KILL_PATIENCE_S, self._token)
        if stuck:
            what = "one earlier call has" if stuck == 1 else f"{stuck} earlier calls have"
            self._emit(Notice(f"{what} not ended although told to stop; going on without waiting"))

    async def _past_hooks(
        self, hooks: CallHooks, batch: list[Job], left: list[Job]
    ) -> tuple[list[Job], list[Job]]:
        """The calls that run next, after the hooks' say, and those that are left."""
        if not hooks.stopped and (changed := await hooks.before(batch, self._refuse)):
            shell = await self._shells()
            for job in changed:
                self._prepare(job, shell, may_be_cut=False)
                self._tell_gated(job)
                hooks.changed(job)
            batch, others = _next_batch(batch)
            left = [*others, *left]
        if hooks.stopped:
            hooks.skip((*batch, *left))
        return batch, left

    async def _judge_again(self, left: Sequence[Job]) -> None:
        """A call may have moved the shell or a link: what it left behind is what counts (SEC-5).

        Of those that are left the next ones, up to the first that runs alone.
        """
        shell = await self._shells()
        for job in left:
            if job.facts is not None and job.tool is not None:
                self._gather_facts(job, job.tool, shell)
            if not job.is_concurrent:
                return

    async def _shells(self) -> ShellPlaces:
        parts = self._parts
        left, is_beside = await parts.state.get(SHELL), parts.is_beside
        return ShellPlaces.seen(left, parts.workspace, parts.policy, is_beside=is_beside)

    # --- judge -----------------------------------------------------------------------------

    async def _prepared(
        self, calls: Sequence[ToolCall], shell: ShellPlaces, cut: ToolCall | None
    ) -> list[Job]:
        """A cancel waits for the judgement of one call, not of all."""
        jobs = []
        for call in calls:
            await asyncio.sleep(0)
            if self._token.cancelled:
                raise TurnCancelled
            jobs.append(self._prepare(Job(call), shell, may_be_cut=call is cut))
        return jobs

    def _prepare(self, job: Job, shell: ShellPlaces, *, may_be_cut: bool) -> Job:
        """Find the tool and read the arguments; what is wrong with them is already an answer."""
        try:
            self._read_call(job, may_be_cut=may_be_cut)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool's own code
            job.output = self._reported(job, ToolOutput.internal_error(error))
        if job.output is None and job.tool is not None:
            self._gather_facts(job, job.tool, shell)
        return job

    def _read_call(self, job: Job, *, may_be_cut: bool) -> None:
        call, toolbox = job.call, self._parts.toolbox
        job.summary = call.name
        job.tool = toolbox.get(call.name)
        if job.tool is None:
            known = [tool.name for tool in toolbox.definitions]
            near = toolbox.near(call.name)
            from agentcli.engine.arguments.problems import unknown_tool

            job.output = ToolOutput.error(unknown_tool(call.name, near, known))
            return
        definition = job.tool.definition
        job.summary = definition.display_name
        if self.passage.allowed is not None and call.name not in self.passage.allowed:
            from agentcli.engine.arguments.problems import gated

            job.output = ToolOutput.error(gated(call.name, self.passage))
            job.status = ResultStatus.REFUSED
            return
        if call.malformed is not None:
            from agentcli.engine.arguments.problems import malformed

            job.output = ToolOutput.error(malformed(call, definition, cut=may_be_cut))
            return
        try:
            job.args = job.tool.parse(call.arguments)
        except InvalidArguments as error:
            from agentcli.engine.arguments.problems import invalid

            job.output = ToolOutput.error(invalid(call, definition, error))
        if job.output is None and (target := job.tool.stands_for(job.args)) is not None:
            from agentcli.engine.background.launch import look_through

            job.launch, problem, job.status = look_through(target, toolbox, self.passage)
            job.output = ToolOutput.error(problem) if problem else None
            if job.launch is not None and job.launch.is_direct:
                job.tool, job.args = job.launch.tool, job.launch.args

    def _gather_facts(self, job: Job, tool: Tool, shell: ShellPlaces) -> None:
        """Gather what the policy looks at; a tool that fails to tell it is not run."""
        try:
            job.look(tool, shell, self._parts.workspace)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool's own code
            job.facts = job.place = None
            job.effect, job.is_concurrent = Effect.READ, True
            job.output = self._reported(job, ToolOutput.internal_error(error))

    async def _permitted(self, job: Job) -> bool:
        """Whether the call may run; when not, ``job.output`` says why."""
        if job.facts is None:
            return False
        try:
            writes = job.facts.paths or job.facts.definition.name == "bash"  # it names files, too
            look = self._parts.policy.look_around
            if writes and job.effect is not Effect.READ and look is not None:
                await asyncio.to_thread(look, (await self._shells()).outside.search_path)
            decision = await self._decision(job)
        except Exception as error:  # noqa: BLE001 - what cannot be judged is not run
            job.output = self._reported(job, ToolOutput.internal_error(error))
            return False
        if decision is not None and decision.answer is Answer.ASK:
            async with self._parts.approval_lock:
                decision = await self._decision(job)
                if decision is not None and decision.answer is Answer.ASK:
                    return await self._approved(job, decision)
        if decision is None:
            return False
        if decision.answer is Answer.DENY:
            self._refuse(job, decision.reason)
            return False
        job.access = decision.access
        return True

    async def _decision(self, job: Job) -> Decision | None:
        """The policy's answer as things are now: where a command runs may be another place.

        ``None``: ``job.output`` says why there is none.
        """
        shell = await self._shells()
        while job.tool is not None and job.facts is not None and job.is_outdated(shell):
            if notice := await self._parts.begin_sandbox({job.call.name}):
                self._emit(Notice(notice))
            shell = await self._shells()
            self._gather_facts(job, job.tool, shell)
        if job.facts is None or job.place is None:
            return None
        return job.decision(job.facts, job.place)

    async def _stays(self, job: Job, place: CallPlace | None) -> bool:
        """Whether the call would run in the ``place`` that was asked about, and still may.

        A yes takes its time: what the user has forbidden meanwhile is not run.
        """
        if job.place is not place or job.has_moved(await self._shells()):
            told = "The shell is in another place by now: nothing was run. Run it again."
            job.output = ToolOutput.error(told)
            return False
        summary = job.summary
        judged = await self._decision(job)
        job.summary = summary  # as it was asked about
        if judged is not None and judged.answer is Answer.DENY:
            self._refuse(job, judged.reason)
        return job.output is None

    async def _approved(self, job: Job, decision: Decision) -> bool:
        """Ask the user; somebody who cannot be asked has not said yes."""
        if job.facts is None or job.place is None or job.tool is None:
            return False
        job.take(decision)
        detail = await self._preview(job, *job.acting(job.tool)[:2])
        if job.launch is not None and job.launch.when:  # a summary may be cut
            detail += f"\nwhen: {job.launch.when}"
        if job.output is not None:
            return False
        if self.hooks is not None and (said := await self._hooks_say(job, self.hooks)) is not None:
            return said
        reason, place = decision.why, job.place
        self._emit(ApprovalWaiting(job.seen, job.summary, reason))
        request = job.question(job.facts, job.place, decision, detail)
        self._parts.policy.auto_offered |= request.offers_auto
        try:
            answer = await self._parts.approver.approve(request)
        except Exception as error:
            log.exception("no answer about %s", request.call.name)
            why = f"the question could not be asked: {type(error).__name__}"
            answer = ApprovalAnswer(Verdict.UNATTENDED, why)
        if self._token.cancelled:
            raise TurnCancelled
        if answer.verdict is Verdict.AUTO:
            self._parts.policy.mode = PermissionMode.AUTO
        if answer.verdict in {Verdict.ONCE, Verdict.SESSION, Verdict.AUTO}:
            job.is_approved = True
            lasts = answer.verdict is Verdict.SESSION or (
                request.per_session and answer.verdict is Verdict.ONCE
            )
            granted = self._granted(job, answer.rule) if lasts else ()
            if not await self._stays(job, place):
                return False  # and nothing is granted
            self._parts.policy.granted += granted
            return True
        unattended = answer.verdict is Verdict.UNATTENDED
        may_free = bool(request.offers)
        self._refuse(job, answer.reason or reason, unattended=unattended, is_free_by_rule=may_free)
        return False

    async def _hooks_say(self, job: Job, hooks: CallHooks) -> bool | None:
        """The answer of the user's hooks in the user's place; ``None``: the user is asked.

        They take their time: whatever they say, the call is judged as things are then.
        """
        place = job.place
        said = await hooks.answers(job)
        judged = await self._decision(job)
        if said is False and job.hook is not None:
            self._refuse(job, f"by a hook: {job.hook.blocked or job.hook.stopped}")
            return False
        if judged is None:
            return False
        if judged.answer is Answer.DENY:
            self._refuse(job, judged.reason)
            return False
        if judged.answer is Answer.ALLOW:
            job.access = judged.access
            return True
        return None if job.place is place else await self._approved(job, judged)

    def _granted(self, job: Job, chosen: str) -> Sequence[Rule]:
        """What the user has granted beyond this call; what is no rule grants this call alone."""
        try:
            rule = job.granted(chosen)
        except UsageError as error:
            self._emit(Notice(f"{error}: only this call was allowed"))
            rule = None
        return (rule,) if rule is not None else ()

    def _refuse(
        self, job: Job, reason: str, *, unattended: bool = False, is_free_by_rule: bool = True
    ) -> None:
        from agentcli.engine.arguments.problems import refused

        told = refused(
            job.seen.name, reason, unattended=unattended, is_free_by_rule=is_free_by_rule
        )
        job.output = ToolOutput.error(told)
        job.status = ResultStatus.REFUSED
        self._emit(ToolRefused(job.seen, reason, unattended))

    # --- run -------------------------------------------------------------------------------

    async def _run_together(self, jobs: Sequence[Job]) -> None:
        writer = ResultWriter(self._parts.store, self._history, self._emit, jobs)
        async with asyncio.TaskGroup() as group:
            for index, job in enumerate(jobs):
                group.create_task(self._run_one(index, job, writer))

    async def _run_one(self, index: int, job: Job, writer: ResultWriter) -> None:
        """From the judgement to the result; a call that the cancel overtook has none."""
        if job.output is None:
            try:
                permitted = await race(self._permitted(job), self._token, self._parts.reaper)
            except TurnCancelled:
                return
            if permitted and (tool := job.tool) is not None:
                await uninterruptible(self._parts.store.record_running(job.call))  # W2
                try:
                    job.output = await self._run_kept(job, tool)
                except TurnCancelled:
                    self.details[job.call.id] = RunDetail(0.0, started=False)
                    return
        if job.output is None:
            return
        if job.output.kind is OutputKind.CANCELLED:
            self.details[job.call.id] = RunDetail(job.elapsed_s, text_of(job.output))
            return
        await writer.finish(index, job.elapsed_s)
        self.touched += job.touched()
        if self.hooks is not None:
            await self.hooks.after(job)

    def _context(
        self, job: Job, tool: Tool, cancel: CancelToken, switch: BackgroundSwitch | None = None
    ) -> Any:
        """What ``tool`` declares, for this call. Raises ``PortMissing``."""

        def progress(text: str) -> None:
            if job.is_heard:
                job.tail = (job.tail + text)[-TAIL_CHARS:]
                self._emit(ToolProgress(job.call.id, text))

        def port(name: str) -> object:
            if name == "judged":
                return job.facts.paths if job.facts is not None else None
            if own := _OF_JOB.get(name):
                return getattr(job, own)
            if name == "to_background":
                return switch
            if name == "run":
                return self.run
            return self._parts.port(name, self._emit)

        call = ToolContext(job.call.id, self._parts.workspace, cancel, progress)
        return context_for(tool, call, port)

    async def _preview(self, job: Job, tool: Tool, args: Any) -> str:
        """What the user sees before saying yes; without it the question is asked all the same.

        A call that would fail has its output then, if that tells no more than reading would. Where
        there is nothing to show, the arguments are.
        """

        def told(what: str) -> str:
            import json

            given = dict(job.acting(tool)[2])
            return f"{what}\n{json.dumps(given, ensure_ascii=False, indent=2)}"

        try:
            return await tool.preview(args, self._context(job, tool, self._token))
        except WouldFail as fault:
            if job.may_be_read(self._parts.toolbox.get(_READER)):
                job.output = ToolOutput.error(str(fault))
            return told("As things are this would fail and change nothing.")
        except Exception as error:
            log.warning("no preview of %s", tool.definition.name, exc_info=error)
            return told(f"(no preview: {error})")

    async def _run_kept(self, job: Job, tool: Tool) -> ToolOutput | None:
        """Run the call; what it may change is remembered before it (TT-1).

        Raises ``TurnCancelled`` when the cancel comes before it runs.
        """
        if self._token.cancelled:  # checkpoint 3
            raise TurnCancelled
        lazy, reaper = self._parts.keeper, self._parts.reaper
        keeper = None
        if self._parts.checks is not None and _edits(job):
            paths = [path for each in self._batch if _edits(each) for path in _paths(each)]
            looking = self._parts.checks().before(paths, self._token)
            await race(looking, self._token, reaper)
        try:
            if lazy is not None and job.facts is not None and job.effect is not Effect.READ:
                keeper = lazy()
                await race(keeper.begin(job.call.id, job.facts.paths), self._token, reaper)
            self._emit(ToolStarted(job.call, job.summary))
            output = await self._run(job, tool)
            if job.effect is Effect.WRITE and output and output.kind is OutputKind.SUCCESS:
                await self._accept(_paths(job))
            return output
        finally:
            if keeper is not None:
                await uninterruptible(self._end_keeping(keeper.end(job.call.id)))
            if (sandbox := self._parts.sandbox) and (told := sandbox.take_notice()):
                self._emit(Notice(told))

    async def _accept(self, written: Sequence[Path]) -> None:
        """What the user has allowed to be written is not what something in the sandbox made."""
        if (sandbox := self._parts.sandbox) is not None:
            seen = self._parts.files.seen
            await uninterruptible(sandbox.accept({path: seen.get(path, "") for path in written}))

    async def _end_keeping(self, end: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(end)
        with cancel_future(self._token) as cancelled:
            await first_of(task, cancelled)
        if not task.done() and not self._token.forced:
            with cancel_future(self._token, forced=True) as forced:
                await first_of(task, forced, timeout_s=END_PATIENCE_S)
        if not task.done():
            self._parts.reaper.adopt(task)

    async def _run(self, job: Job, tool: Tool) -> ToolOutput | None:
        """The tool's output; a ``CANCELLED`` one when the cancel overtook it (CAN-6)."""
        job.started_at = time.monotonic()
        moves = self._parts.moves
        moving = None if moves is None else moves.begin(job, self._token, self._emit)
        cancel = self._token if moving is None else moving.token
        try:
            ctx = self._context(job, tool, cancel, moving)
        except PortMissing as missing:
            return ToolOutput.error(str(missing))
        task = asyncio.create_task(guarded(tool.run, job.args, ctx))
        try:
            with cancel_future(self._token) as cancelled:
                if moving is None:
                    await first_of(task, cancelled, timeout_s=tool.definition.timeout_s)
                elif moved := await moving.watch(task, cancelled, tool.definition.timeout_s):
                    return moved
            expired = not task.done() and not self._token.cancelled
            if not task.done() and not expired and not self._token.forced:
                with cancel_future(self._token, forced=True) as forced:
                    await first_of(task, forced, timeout_s=GRACE_S)
            if task.done() and not task.cancelled():
                return self._reported(job, task.result())
        finally:
            if moving is None or moving.end():
                await uninterruptible(stop(task, self._parts.reaper))
            job.is_heard = False
        if expired:
            from agentcli.engine.arguments.problems import timed_out

            return ToolOutput.error(timed_out(tool.definition, job.tail))
        if self._token.cancelled:
            return ToolOutput.cancelled(job.tail)
        fault = RuntimeError("the tool cancelled itself")
        return self._reported(job, ToolOutput.internal_error(fault))

    def _reported(self, job: Job, output: ToolOutput) -> ToolOutput:
        """Our own faults go to the log and to the user, not to the model (LOOP-5)."""
        if output.kind is OutputKind.INTERNAL_ERROR:
            log.error("tool %s failed", job.call.name, exc_info=output.cause)
            cause = f"{type(output.cause).__name__}: {output.cause}"
            self._emit(Notice(f"{job.call.name} failed inside agentcli: {cause} (see the log)"))
        if output.kind is OutputKind.CANCELLED and not self._token.cancelled:
            return ToolOutput.error(text_of(output))
        return output


def _edits(job: Job) -> bool:
    """Whether the call changes files that it names."""
    runs_now = job.launch is None or job.launch.is_direct
    return runs_now and job.facts is not None and job.facts.definition.asks is Asks.EDIT


def _paths(job: Job) -> Sequence[Path]:
    return () if job.facts is None else job.facts.paths


# --- the results -------------------------------------------------------------------------------


class ResultWriter:
    """Commits results as they come and makes them messages in the model's order (W3)."""

    def __init__(
        self,
        store: SessionStore,
        history: History,
        emit: Callable[[AgentEvent], None],
        jobs: Sequence[Job],
    ) -> None:
        self._store = store
        self._history = history
        self._emit = emit
        self._jobs = jobs
        self._ready: dict[int, tuple[ToolResult, float]] = {}
        self._next = 0
        self._lock = asyncio.Lock()

    async def finish(self, index: int, duration_s: float) -> None:
        """Record the output of job ``index``."""
        job = self._jobs[index]
        output = job.output
        if output is None:
            raise ValueError("there is nothing to record")
        result = ToolResult(
            job.call.id, job.call.name, output.parts, job.status or status_of(output)
        )
        recorded = RecordedResult(
            result, output.raw, output.display, self._jobs[index].summary, output.summary
        )
        async with self._lock:
            await uninterruptible(self._commit(index, recorded, duration_s))
        job.output = replace(output, raw=None)  # it is stored, and a step may have many

    async def _commit(self, index: int, recorded: RecordedResult, duration_s: float) -> None:
        ready = {**self._ready, index: (recorded.result, duration_s)}
        after = self._next
        while after in ready:
            after += 1
        in_order = [ready[i][0] for i in range(self._next, after)]
        await self._store.record_result(recorded, in_order)
        self._ready = ready
        first, self._next = self._next, after
        for result in in_order:
            self._history.append(result)
        for i in range(first, after):
            result, lasted_s = ready[i]
            job = self._jobs[i]
            summary = display = ""
            if job.output is not None:
                summary, display = job.output.summary, job.output.display
            self._emit(ToolFinished(job.call, result, summary, lasted_s, display))


def _next_batch(jobs: list[Job]) -> tuple[list[Job], list[Job]]:
    """The calls that run next, together where that may be; and those that are left."""
    count = 0
    while count < len(jobs) and jobs[count].is_concurrent:
        count += 1
    return jobs[: count or 1], jobs[count or 1 :]
