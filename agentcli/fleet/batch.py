"""A batch: every task once, to its end, as many at a time as are allowed (SCALE-2).

Laws: a task that has ended is never begun again unless that is asked for; one that was begun goes
on in its session; what is unfinished comes before what is new. A refusal by a provider, a kill, a
busy git, a full disk, or a share of the budget that is spent put a task back in the line; how often
is bounded. What would befall every other task too, a refused key or a disk that stays full, is no
task's end: no more are started, and all can go on later. ``drain`` lets what runs end, ``stop``
ends it so that it can go on later.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any, Protocol

from agentcli.app.earlier_end import spent_in
from agentcli.domain.cancel import CancelToken
from agentcli.domain.clean import plural
from agentcli.domain.errors import AgentError
from agentcli.domain.values import frozen, mutable
from agentcli.fleet.engine import Engine, LocalEngine, TaskCall, TaskResult
from agentcli.fleet.limits import Bucket, Purse, Share
from agentcli.fleet.results import BatchState, Journal, TaskStanding
from agentcli.fleet.tasks import BatchTask

__all__ = ["Batch", "BatchEnd", "BatchPlan", "BatchView", "Engine", "Journal", "LocalEngine"]
Follow = Callable[[str, Mapping[str, Any]], Sequence[BatchTask]]
LOCKED_S = 1.0
KILLED_S = 1.0
LONGEST_WAIT_S = 60.0
MOST_LOCKED = 60
_TOLD_LOCKED = 3  # a killed task ends sooner
MOST_REFUSED = 100
"""Pauses that a provider named for one task, before they count as tries."""
_WHY_CHARS = 300
_RESULTS_S = 2.0
_RESULTS_SHARE = 20.0
_APPROVAL, _STORE, _TEMPORARY = 4, 74, 75
_STATES = {0: BatchState.DONE, 3: BatchState.LIMIT, _APPROVAL: BatchState.REFUSED}
_STOPPED = frozenset({129, 130, 143})
_IN_USE = frozenset({"session_locked", "tree_in_use"})  # by what a kill has not ended yet
_DISK = "persistence_error"
_PASSING = frozenset({"git_busy", _DISK})  # not of its own prompt's making
_KEY, _CREDIT = "auth", "rate_limit"  # the latter only where it is not temporary
_RETRIED = frozenset({BatchState.FAILED, BatchState.LIMIT})


@frozen
class BatchPlan:
    """What a batch is to do.

    ``arguments`` are options of ``agent run`` for every task, ``model``, ``permission_mode`` and
    ``timeout_s`` those that a row may overrule (``is_fearless``: yolo twice). A task is tried
    ``attempts`` times at most in one start; with ``worktrees`` each in a worktree of its own.
    ``schema`` is what results of tasks without one of their own must satisfy, as JSON.
    ``default_model`` answers where nobody is named, as far as that is known.
    ``follow`` says which tasks a task's end leads to, by its id and row; ``waiting`` what may still
    come of that: names, and what they wait for.
    """

    tasks: Sequence[BatchTask]
    jobs: int
    arguments: tuple[str, ...] = ()
    model: str | None = None
    permission_mode: str | None = None
    is_fearless: bool = False
    timeout_s: float | None = None
    worktrees: bool = False
    schema: str | None = None
    attempts: int = 5
    retry_failed: bool = False
    default_model: str = ""
    follow: Follow | None = None
    waiting: Callable[[], Sequence[tuple[str, str]]] = tuple


@frozen
class BatchEnd:
    """What a batch came to. ``skipped`` tasks had ended before; ``reason`` is why others did not.

    It is ``budget``, ``provider`` (a key was refused, credit is spent), ``disk``, ``drained``,
    ``stopped`` or empty.
    """

    states: Mapping[BatchState, int]
    skipped: int
    spent_usd: float
    reason: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether every task was done."""
        return not any(
            count for state, count in self.states.items() if state is not BatchState.DONE
        )


class BatchView(Protocol):
    """Somebody who is told what happens."""

    def grows(self, tasks: Sequence[BatchTask], known: Mapping[str, TaskStanding]) -> None:
        """There are these tasks, too, which stand so where earlier starts have begun them."""

    def started(self, task: BatchTask, known: TaskStanding) -> None:
        """A run of the task begins."""

    def ended(
        self, task: BatchTask, known: TaskStanding, result: str, *, again: bool = False
    ) -> None:
        """A run has ended: the task too, or it goes on later, as its state says.

        ``again``: in this start, by itself.
        """

    def says(self, text: str) -> None:
        """A line for the user."""


@mutable
class _Queued:
    """A task in the line: tries, pauses its provider named, locks in this start; its time."""

    task: BatchTask
    model: str
    tries: int = 0
    refused: int = 0
    locked: int = 0
    not_before: float = 0.0

    @property
    def provider(self) -> str:
        return self.model.partition("/")[0]


@frozen
class _Verdict:
    """What a run amounts to. ``again``: it goes back in the line, ``wait_s`` later."""

    state: BatchState
    again: bool = False
    wait_s: float = 0.0


@mutable
class _Queues:
    """Who waits, by provider, the first in front; no tasks of ``closed`` models."""

    waiting: dict[str, deque[_Queued]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)

    def add(self, item: _Queued, *, first: bool = False) -> None:
        if item.model not in self.closed:
            line = self.waiting.setdefault(item.provider, deque())
            (line.appendleft if first else line.append)(item)

    def close(self, model: str) -> None:
        self.closed.add(model)
        for provider, line in self:
            self.waiting[provider] = deque(item for item in line if item.model != model)

    def __iter__(self) -> Iterator[tuple[str, deque[_Queued]]]:
        return iter([(name, line) for name, line in self.waiting.items() if line])

    def __bool__(self) -> bool:
        return any(self.waiting.values())


class Batch:
    """One start of a batch. ``drain`` and ``stop`` may be called from a signal's handler."""

    def __init__(
        self, plan: BatchPlan, journal: Journal, engine: Engine, view: BatchView, purse: Purse
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._engine = engine
        self._view = view
        self._tasks: list[BatchTask] = []
        self._lines = _Queues()
        self._buckets: dict[str, Bucket] = {}
        self._purse = purse
        self._token = CancelToken()
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self._running = 0
        self._draining = False
        self._reason = ""
        self._fault: AgentError | None = None
        self._skipped = 0
        self._warned_of_price = False
        self._next_results = 0.0

    # --- stopping ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Start nothing more."""
        self._draining = True
        self._news.set()

    def stop(self, *, force: bool = False) -> None:
        """End what runs as Ctrl-C would, or at once with ``force``; it can go on later."""
        self.drain()
        self._token.cancel(force=force)

    # --- from start to end ---------------------------------------------------------------------

    async def run(self) -> BatchEnd:
        """Run all that is to be run. Raises ``AgentError`` where the directory fails."""
        await self._look_up()
        async with asyncio.TaskGroup() as group:
            while True:
                wait_s = self._start_what_may(group)
                if not self._running and (self._draining or wait_s is None):
                    break
                await self._hear(wait_s)
        await self._write_results()
        if self._fault is not None:
            raise self._fault
        return self._end()

    async def _look_up(self) -> None:
        """What earlier starts have left."""
        known = self._journal.tasks
        begun = [standing for standing in known.values() if _is_begun(standing)]
        ids = [standing.session_id for standing in begun]
        spent = await asyncio.to_thread(spent_in, ids)
        for standing in begun:
            if standing.session_id in spent:  # else it is elsewhere, or had not begun
                cost = spent[standing.session_id]
                standing.cost_usd = None if cost is None else standing.earlier_usd + cost
        self._purse.spent_usd = sum(each.cost_usd or 0.0 for each in known.values())
        await self._enlist(self._plan.tasks)
        if self._plan.follow is None:
            self._tell_of_changes({task.id for task in self._plan.tasks})

    async def _enlist(self, tasks: Sequence[BatchTask]) -> None:
        """Put tasks in the line as earlier starts have left them, and what their ends lead to."""
        known = self._journal.tasks
        fresh: list[_Queued] = []
        while tasks:
            self._view.grows(tasks, known)
            self._tasks += tasks
            following: list[BatchTask] = []
            for task in tasks:
                standing = known.get(task.id)
                item = _Queued(task, task.model or self._plan.model or self._plan.default_model)
                if standing is None:
                    fresh.append(item)
                elif _is_begun(standing):
                    self._lines.add(item)
                elif self._plan.retry_failed and standing.state is not BatchState.DONE:
                    if standing.exit_code in {_APPROVAL, _STORE}:  # no more to say in that session
                        self._journal.begin_afresh(task.id)
                    self._lines.add(item)
                else:
                    self._skipped += 1
                    following += await self._following(task)
            tasks = following
        for item in fresh:
            self._lines.add(item)

    async def _following(self, task: BatchTask) -> Sequence[BatchTask]:
        """The tasks that the end of ``task`` leads to."""
        if self._plan.follow is None:
            return ()
        async with self._writing:
            row = await asyncio.to_thread(next, self._journal.rows([task.id]))
        return self._plan.follow(task.id, row)

    def _tell_of_changes(self, own: set[str]) -> None:
        known = self._journal.tasks
        if gone := len(known.keys() - own):
            what = f"{plural(gone, 'task')} of earlier starts"
            self._view.says(f"{what} not in TASKS any more: left out")
        changed = [
            task.id
            for task in self._plan.tasks
            if task.id in known and known[task.id].content not in {"", task.content}
        ]
        if changed:
            what = f"{plural(len(changed), 'task')} changed since the start of that id"
            advice = "what was begun stays as it was; give a new id to run again"
            self._view.says(f"{what} ({changed[0]}): {advice}")

    def _end(self) -> BatchEnd:
        none = TaskStanding()
        states = Counter(self._journal.tasks.get(task.id, none).state for task in self._tasks)
        reason = ""
        if not all(state.has_ended for state in states):
            reason = self._reason or ("drained" if self._draining else "budget")
            reason = "stopped" if self._token.cancelled else reason
        return BatchEnd(states, self._skipped, self._purse.spent_usd, reason)

    async def _hear(self, wait_s: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), wait_s)
        self._news.clear()

    # --- who starts ------------------------------------------------------------------------------

    def _start_what_may(self, group: asyncio.TaskGroup) -> float | None:
        """Start tasks; seconds until another may, ``None``: when one has ended, or never."""
        soonest: float | None = None
        for name, line in self._lines:
            bucket = self._buckets.setdefault(name, Bucket(self._plan.jobs))
            while line and self._running < self._plan.jobs and not self._draining:
                now = time.monotonic()
                wait_s = bucket.wait_s(now)
                if wait_s is None:
                    break
                item = next((each for each in line if each.not_before <= now), None)
                if item is None:
                    wait_s = max(wait_s, min(each.not_before for each in line) - now)
                if item is None or wait_s > 0:
                    soonest = wait_s if soonest is None else min(soonest, wait_s)
                    break
                share = self._share_of(item.task)
                if isinstance(share, bool):
                    return soonest
                line.remove(item)
                bucket.held += 1
                self._running += 1
                group.create_task(self._attempt(item, bucket, share))
        return soonest

    def _share_of(self, task: BatchTask) -> Share | bool | None:
        """What the task may spend; ``None``: no limit; ``False``: nothing is to be had now."""
        if self._purse.budget_usd is None:
            return None
        share = self._purse.take(task.id, self._plan.jobs - self._running)
        return False if share is None else share

    # --- one run of one task --------------------------------------------------------------------

    async def _attempt(self, item: _Queued, bucket: Bucket, share: Share | None) -> None:
        task = item.task
        spent, requests = 0.0, 0
        try:
            async with self._writing:
                known = await asyncio.to_thread(self._journal.begin, task.id, task.content)
            self._view.started(task, known)
            result = await self._engine.run(self._call(task, known, share), self._token)
            spent, requests = await self._account(known, result)
            verdict = self._judge(item, result, bucket, share)
            await self._settle(item, known, result, verdict)
        except AgentError as error:
            self._fault = self._fault or error
            self.stop()
        finally:
            bucket.held -= 1
            self._running -= 1
            self._purse.give_back(task.id, spent, requests)
            self._news.set()

    def _call(self, task: BatchTask, known: TaskStanding, share: Share | None) -> TaskCall:
        plan = self._plan
        options: list[str] = [*plan.arguments, *task.arguments]
        if model := task.model or plan.model:
            options += ["--model", model]
        if mode := task.permission_mode or plan.permission_mode:
            fearless = plan.is_fearless and task.permission_mode is None
            options += ["--yolo", "--yolo"] if fearless else ["--permission-mode", mode]
        limits = [] if share is None else [share.rest_usd]
        if task.max_budget_usd is not None:
            limits.append(max(0.0, task.max_budget_usd - (known.cost_usd or 0.0)))
        if limits:
            options += ["--max-budget-usd", f"{min(limits):.6f}"]
        if share is not None and share.pause_usd is not None:
            options += ["--pause-usd", f"{share.pause_usd:.6f}"]
        if plan.worktrees or task.worktree:
            options.append(f"--worktree={self._journal.worktree_of(task.id)}")
        timeout_s = task.timeout_s or plan.timeout_s
        return TaskCall(
            known.session_id,
            task.prompt,
            task.cwd,
            tuple(options),
            plan.schema if task.schema is None else task.schema,
            timeout_s,
            task.is_data,
        )

    async def _account(self, known: TaskStanding, result: TaskResult) -> tuple[float, int]:
        """Note what the run has cost; that, and in how many requests."""
        known.duration_ms += result.duration_ms
        cost = result.end.get("total_cost_usd")
        if cost is None:
            found = await asyncio.to_thread(spent_in, [known.session_id])
            cost = found.get(known.session_id, 0.0)
        before = known.cost_usd
        if cost is None:
            known.cost_usd = None
            self._warn_of_price()
            return 0.0, 1
        known.cost_usd = known.earlier_usd + cost
        spent = max(0.0, known.cost_usd - (before or 0.0))
        was_answered = spent or (result.end.get("usage") or {}).get("output_tokens")
        return spent, (result.end.get("num_turns") or 1) if was_answered else 0

    def _warn_of_price(self) -> None:
        if self._purse.budget_usd is not None and not self._warned_of_price:
            self._warned_of_price = True
            self._view.says("the price of a model is unknown: --max-budget-usd cannot hold for it")

    def _judge(
        self, item: _Queued, result: TaskResult, bucket: Bucket, share: Share | None
    ) -> _Verdict:
        """What a run amounts to, and what its provider has said of itself."""
        code, reason = result.exit_code, result.end.get("terminal_reason")
        was_killed = not result.end or code is None or code in _STOPPED
        is_stopped = was_killed and self._token.cancelled
        if is_stopped or (reason == "max_budget_usd" and self._is_of_all(item, share)):
            return _Verdict(BatchState.INTERRUPTED)
        if reason == _KEY or (reason == _CREDIT and code != _TEMPORARY):
            return self._leave_alone(item.model, _why(result))
        if reason == "paused":
            return _Verdict(BatchState.INTERRUPTED, again=True)
        if reason in _IN_USE and item.locked < MOST_LOCKED:
            return self._wait_for_lock(item, result)
        named_s = result.end.get("retry_after_s") if code == _TEMPORARY else None
        if named_s and item.refused < MOST_REFUSED:
            item.refused += 1
        else:
            item.tries += 1
        if code == _TEMPORARY:
            pause_s = bucket.refused(time.monotonic(), named_s)
            who = item.provider or "the provider"
            self._view.says(f"{who} asks for a pause: its tasks wait {pause_s:.0f} s")
        elif not was_killed and reason not in _PASSING:
            bucket.went_well()
            state = _STATES.get(code or 0, BatchState.FAILED)
            is_spent = reason == "max_budget_usd" or item.tries > item.task.retries
            is_final = is_spent or state not in _RETRIED
            return _Verdict(state) if is_final else self._again(item, result)
        return self._once_more(item, result, bucket)

    def _wait_for_lock(self, item: _Queued, result: TaskResult) -> _Verdict:
        item.locked += 1
        if item.locked == _TOLD_LOCKED:
            self._view.says(f"{item.task.id} waits: {_why(result)}")
        return _Verdict(BatchState.INTERRUPTED, again=True, wait_s=LOCKED_S)

    def _once_more(self, item: _Queued, result: TaskResult, bucket: Bucket) -> _Verdict:
        """What was no fault of the task puts it back in the line, as often as a task is tried."""
        is_disk = result.end.get("terminal_reason") == _DISK
        if item.tries < self._plan.attempts:
            if result.exit_code == _TEMPORARY:  # its provider's pause is that of all its tasks
                return _Verdict(BatchState.INTERRUPTED, again=True)
            wait_s = min(LONGEST_WAIT_S, KILLED_S * 2**item.tries)
            again = self._again(item, result, wait_s)
            if not is_disk:
                return again
            bucket.paused_until = max(bucket.paused_until, time.monotonic() + wait_s)
            return replace(again, wait_s=0.0)  # what is new waits, too, behind it
        if not is_disk:
            return _Verdict(BatchState.FAILED)
        if self._reason != "disk":
            self._reason = "disk"
            self._view.says(f"no more tasks are started: {_why(result)}")
        self.drain()
        return _Verdict(BatchState.INTERRUPTED)

    def _again(self, item: _Queued, result: TaskResult, wait_s: float = 0.0) -> _Verdict:
        if not self._draining:
            when = f" in {wait_s:.0f} s" if wait_s else ""
            self._view.says(f"{item.task.id} is tried again{when}: {_why(result)}")
        return _Verdict(BatchState.INTERRUPTED, again=True, wait_s=wait_s)

    def _leave_alone(self, model: str, why: str) -> _Verdict:
        """Start no more tasks of the model: it answers none of them."""
        if model not in self._lines.closed:
            self._lines.close(model)
            self._reason = self._reason or "provider"
            self._view.says(f"no more tasks{model and f' of {model}'} are started: {why}")
        return _Verdict(BatchState.INTERRUPTED)

    def _is_of_all(self, item: _Queued, share: Share | None) -> bool:
        """Whether the budget that a run has reached was that of all tasks, not its own."""
        own = item.task.max_budget_usd
        cost = self._journal.tasks[item.task.id].cost_usd or 0.0
        return share is not None and (own is None or cost < own)

    async def _settle(
        self, item: _Queued, known: TaskStanding, result: TaskResult, verdict: _Verdict
    ) -> None:
        """Write down how the run ended, or put the task back in the line."""
        task = item.task
        known.state, known.exit_code = verdict.state, result.exit_code
        text = _words(result)
        row: dict[str, Any] = {"result": text}
        if self._plan.worktrees or task.worktree:
            row["worktree"] = self._journal.worktree_of(task.id)
        if (structured := result.end.get("structured_output")) is not None:
            row["structured_output"] = structured
        if lines := result.end.get("truncated"):
            row["truncated"] = lines
            self._view.says(f"{task.id}: {lines[0]}")
        has_ended = verdict.state.has_ended
        write = partial(self._journal.end, row=row) if has_ended else self._journal.ran
        async with self._writing:
            await asyncio.to_thread(write, task.id)
        if verdict.again and not self._draining:
            item.not_before = time.monotonic() + verdict.wait_s
            self._lines.add(item, first=True)
        self._view.ended(task, known, text, again=verdict.again and not self._draining)
        if verdict.state.has_ended:
            await self._enlist(await self._following(task))
        if time.monotonic() >= self._next_results:
            await self._write_results()

    async def _write_results(self) -> None:
        """Write ``results.jsonl``, and not again before that was worth it."""
        began = time.monotonic()
        self._next_results = began + _RESULTS_S
        ids = [task.id for task in self._tasks]
        async with self._writing:
            await asyncio.to_thread(self._journal.write_results, ids)
        took_s = time.monotonic() - began
        self._next_results = began + max(_RESULTS_S, _RESULTS_SHARE * took_s)


def _is_begun(known: TaskStanding) -> bool:
    return not known.state.has_ended and bool(known.session_id)


def _words(result: TaskResult) -> str:
    return str(result.end.get("result") or result.problem)


def _why(result: TaskResult) -> str:
    return _words(result)[:_WHY_CHARS]
