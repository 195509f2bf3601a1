"""How far a pipeline is, and what may run next: a function of the file and of the results so far.

Law: nothing else decides. A pipeline that is begun again with the same results stands where it
stood; a task is known by all that it was made of (``StepTask.key``), so that a step that was
changed, or whose inputs were, is another task, and so is all that needs it. Limits (``retry``,
``timeout_s``, ``max_budget_usd``) are no part of that: raising one is to go on; nor is the
list of ``for_each``: what was added to it runs, the rest does not run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from agentcli.domain.clean import MAX_TEXT_BYTES
from agentcli.domain.values import frozen, mutable
from agentcli.fleet.pipeline.expressions import Expression, Literal, references, value_of
from agentcli.fleet.pipeline.file import Step, StepPipeline
from agentcli.fleet.results import BatchState, TaskStanding
from agentcli.fleet.tasks import BatchTask
from agentcli.ui.sanitize import clean_line

MAX_ITEMS = 10_000
TRUST_ADVICE = "if the file is yours, or you have read it, start it with --trust"
_ID_DIGITS = 10
_MAX_ERROR = 300
# what a run is made of beside its prompt, its directory and its item
_OF_A_RUN = ("agent", "model", "permission_mode", "allow_tools", "worktree", "schema")


@frozen
class StepTask:
    """One run of a step. ``name`` is the step's, with the place in its list (``change[3]``).

    ``key`` says what it was made of; equal keys are the same work.
    """

    key: str
    name: str
    step: Step
    prompt: str
    cwd: Path


class TaskOutcome(NamedTuple):
    """How a task ended: its result, or what went wrong, in a line."""

    is_done: bool
    result: Any = None
    error: str = ""


@mutable
class _Standing:
    """A step so far. ``state`` is empty until it has ended, ``tasks`` ``None`` until it may run.

    ``left`` is how many of them have not ended.
    """

    state: str = ""
    reason: str = ""
    tasks: tuple[StepTask, ...] | None = None
    left: int = 0


class CannotRun(Exception):
    """A step cannot run with what it got; the message says why."""


class StepReport(NamedTuple):
    """A step for a table. ``state`` is empty where it has not ended."""

    name: str
    state: str
    done: int
    tasks: tuple[StepTask, ...]
    reason: str


@frozen
class StepLimits:
    """Where steps may work, and how long their prompts may be.

    ``base`` is the directory they start in. What an untrusted file names lies within it, as what a
    model names always does. ``most_bytes`` tells how much of a prompt a model, ``None`` for the
    default one, is sent.
    """

    base: Path
    is_trusted: bool = False
    most_bytes: Callable[[str | None], int] = lambda _: MAX_TEXT_BYTES

    def directory(self, named: str, *, by_model: bool = False) -> Path:
        """The directory called so; raises ``CannotRun``."""
        try:
            written = os.path.normpath(self.base / Path(named).expanduser())
            path = Path(written).resolve()
        except (OSError, RuntimeError, ValueError):
            raise CannotRun(f"cwd {named[:80]!r} is no directory") from None
        if not path.is_relative_to(self.base.resolve()):
            if by_model:
                raise CannotRun(f"cwd {named[:80]!r} is outside of {self.base}")
            if not self.is_trusted:
                raise CannotRun(f"cwd {named[:80]!r} is outside of {self.base}: {TRUST_ADVICE}")
            if Path(written).is_relative_to(self.base):  # an earlier step may have made the link
                raise CannotRun(f"cwd {named[:80]!r} is a link to {path}: name that instead")
        if not path.is_dir():
            raise CannotRun(f"cwd {named[:80]!r} is no directory")
        return path


class PipelineProgress:
    """One pipeline under way, within its ``limits``."""

    def __init__(self, pipeline: StepPipeline, limits: StepLimits) -> None:
        self._pipeline = pipeline
        self._limits = limits
        self._steps = {step.name: _Standing() for step in pipeline.steps}
        self._outcomes: dict[str, TaskOutcome] = {}
        self._owners: dict[str, _Standing] = {}
        self._new: list[StepTask] = []

    def record(self, key: str, outcome: TaskOutcome) -> None:
        """The task ``key``, which was among ``ready``, has ended."""
        self._owners[key].left -= key not in self._outcomes
        self._outcomes[key] = outcome

    def ready(self) -> list[StepTask]:
        """The tasks that may run now and could not when this was last asked."""
        self._move_on()
        found, self._new = self._new, []
        return found

    def waiting(self) -> list[tuple[str, str]]:
        """The steps that may still run and have not begun, and which ones each waits for."""
        return [
            (step.name, ", ".join(name for name in step.needs if not self._steps[name].state))
            for step in self._pipeline.steps
            if not self._steps[step.name].state and self._steps[step.name].tasks is None
        ]

    def report(self) -> list[StepReport]:
        """Each step, in the order in which they can run."""
        self._move_on()
        return [self._reported(name, standing) for name, standing in self._steps.items()]

    def _reported(self, name: str, standing: _Standing) -> StepReport:
        tasks = standing.tasks or ()
        ended = [task for task in tasks if task.key in self._outcomes]
        done = sum(self._outcomes[task.key].is_done for task in ended)
        return StepReport(name, standing.state, done, tasks, standing.reason)

    def _move_on(self) -> None:
        """Begin and end what can be; the steps stand in an order in which one pass is enough."""
        for step in self._pipeline.steps:
            standing = self._steps[step.name]
            if standing.state:
                continue
            if standing.tasks is None:
                self._begin(step, standing)
            if standing.tasks is not None:
                self._end(step, standing)

    def _begin(self, step: Step, standing: _Standing) -> None:
        needed = {name: self._steps[name].state for name in step.needs}
        if not all(needed.values()):
            return
        missing = {
            name: state
            for name, state in needed.items()
            if state != "done" and name not in step.watches
        }
        if missing:
            name = next((each for each in missing if missing[each] != "skipped"), [*missing][-1])
            was = "" if missing[name] == "failed" else "was "
            standing.state = "skipped" if missing[name] == "skipped" else "blocked"
            standing.reason = f"{name} {was}{missing[name]}"
            return
        values = self._values(step)
        when = step.when
        if when is not None and not _is_per_item(when) and not value_of(when, values):
            standing.state, standing.reason = "skipped", "its condition does not hold"
            return
        try:
            standing.tasks = tuple(self._tasks(step, values))
        except CannotRun as error:
            standing.state, standing.reason = "failed", str(error)
            return
        standing.left = len(standing.tasks)
        self._owners |= {task.key: standing for task in standing.tasks}
        self._new += standing.tasks

    def _end(self, step: Step, standing: _Standing) -> None:
        if standing.left:
            return
        tasks = standing.tasks or ()
        outcomes = [self._outcomes[task.key] for task in tasks]
        failed = [each for each in outcomes if not each.is_done]
        standing.state = "failed" if failed else "done"
        if failed:
            standing.reason = failed[0].error
            if step.each is not None:
                standing.reason = f"{len(failed)} of {len(tasks)}: {failed[0].error}"

    def _tasks(self, step: Step, values: Mapping[str, Any]) -> Iterator[StepTask]:
        made_of = [step.name, [step.definition.get(key) for key in _OF_A_RUN], self._origin(step)]
        if step.each is None:
            yield self._task(step, step.name, values, made_of)
            return
        items = value_of(step.each, values)
        if items is not None and not isinstance(items, list):
            raise CannotRun("for_each is no list")
        if items is not None and len(items) > MAX_ITEMS:
            raise CannotRun(f"for_each has more than {MAX_ITEMS:,} values")
        seen: dict[str, int] = {}
        for index, item in enumerate(items or ()):
            here = {**values, "item": item, "index": index}
            if step.when is not None and not value_of(step.when, here):
                continue
            task = self._task(step, f"{step.name}[{index}]", here, [*made_of, item])
            again = seen[task.key] = seen.get(task.key, -1) + 1
            if again:  # the same work twice in one list is two tasks
                key = _digest([task.key, again])
                task = StepTask(key, task.name, step, task.prompt, task.cwd)
            yield task

    def _task(
        self, step: Step, name: str, values: Mapping[str, Any], made_of: Sequence[Any]
    ) -> StepTask:
        prompt = step.prompt.fill(values)
        if not prompt.strip():
            raise CannotRun(f"the prompt of {name} is empty")
        size, most = len(prompt.encode()), self._limits.most_bytes(step.settings.model)
        if size > most:
            raise CannotRun(
                f"the prompt of {name} has {size:,} bytes, and its model is sent {most:,} at most:"
                " use less of the results, or have them written to a file"
            )
        cwd = "" if step.cwd is None else step.cwd.fill(values)
        key = _digest([*made_of, prompt, cwd])
        directory = self._limits.directory(cwd, by_model=_is_told_by_a_model(step))
        return StepTask(key, name, step, prompt, directory)

    def _values(self, step: Step) -> dict[str, Any]:
        return {
            "inputs": self._pipeline.inputs,
            "steps": {name: self._facts(self._pipeline.step(name)) for name in step.needs},
        }

    def _facts(self, step: Step) -> Mapping[str, Any]:
        """What others may know of a step that has ended."""
        standing = self._steps[step.name]
        outcomes = [self._outcomes[task.key] for task in standing.tasks or ()]
        results = [each.result for each in outcomes if each.is_done]
        facts = {"state": standing.state, "error": standing.reason}
        if step.each is not None:
            return {**facts, "results": results}
        return {**facts, "result": results[0] if results else None}

    def _origin(self, step: Step) -> list[Any]:
        """The tasks whose results it may use, and how each step of them has ended."""
        found = []
        for name in sorted(step.needs):
            standing = self._steps[name]
            found.append([name, standing.state, [task.key for task in standing.tasks or ()]])
        return found


class PipelineTasks:
    """A pipeline as tasks of a batch: those at the start, and what follows the end of each.

    ``known`` is how tasks stand, by their ids, also while it runs; ``say`` is told what runs again
    because it is not what it was.
    """

    def __init__(
        self,
        progress: PipelineProgress,
        known: Mapping[str, TaskStanding],
        say: Callable[[str], None],
    ) -> None:
        self._progress = progress
        self._standing = known
        self._known: dict[str, set[str]] = {}
        self._known_ids = {(_step_of(name), name.rpartition("-")[2]): name for name in known}
        for name in known:
            self._known.setdefault(_step_of(name), set()).add(name)
        self._say = say
        self._named: dict[str, StepTask] = {}
        self.tasks: list[BatchTask] = []
        """All that were named so far."""

    def report(self) -> Sequence[StepReport]:
        """Each step, also one that has not ended: as ``BatchState`` calls that."""
        return [
            each if each.state else each._replace(state=str(self._unfinished(each.tasks)))
            for each in self._progress.report()
        ]

    def waiting(self) -> Sequence[tuple[str, str]]:
        """See ``BatchPlan``."""
        return [(name, f"after {needed}") for name, needed in self._progress.waiting()]

    def _unfinished(self, tasks: Sequence[StepTask]) -> BatchState:
        is_begun = any(self._id_of(task) in self._standing for task in tasks)
        return BatchState.INTERRUPTED if is_begun else BatchState.PENDING

    def first(self) -> Sequence[BatchTask]:
        """The tasks that need nothing."""
        return self._new()

    def follow(self, task_id: str, row: Mapping[str, Any]) -> Sequence[BatchTask]:
        """The tasks that may run now that this one has ended as its ``row`` says."""
        task = self._named[task_id]
        is_done = row["state"] == "done"
        text = str(row.get("result") or "")
        result = text if task.step.schema is None else row.get("structured_output")
        error = clean_line(text)[:_MAX_ERROR] or f"ended as {row['state']}"
        if row["state"] == "limit":  # the text is what it said last, not what went wrong
            error = f"a limit was reached: {error}"
        self._progress.record(task.key, TaskOutcome(is_done, result, "" if is_done else error))
        return self._new()

    def as_json(self, rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Each step with its state and the ``rows`` of its runs that were begun."""
        begun = {row["id"]: row for row in rows if row["attempts"]}
        steps = [
            {
                "name": each.name,
                "state": each.state,
                "reason": each.reason,
                "runs": [
                    {"name": task.name, **row}
                    for task in each.tasks
                    if (row := begun.get(self._id_of(task))) is not None
                ],
            }
            for each in self.report()
        ]
        return {"format": "agentcli-pipeline/1", "steps": steps}

    def _new(self) -> Sequence[BatchTask]:
        found = []
        for task in self._progress.ready():
            task_id = self._id_of(task)
            self._named[task_id] = task
            found.append(_batch_task(task_id, task))
        self.tasks += found
        for name in dict.fromkeys(_step_of(task.id) for task in found):
            runs = {task.id for task in found if _step_of(task.id) == name}
            if (before := self._known.pop(name, None)) is not None and before.isdisjoint(runs):
                self._say(f"{name} is not what it was when it ran: it runs again")
        return found

    def _id_of(self, task: StepTask) -> str:
        """What it was called when it was begun, also where its place in the list was another."""
        digits = task.key[:_ID_DIGITS]
        known = self._known_ids.get((task.step.name, digits))
        return known or f"{task.name}-{digits}"


def _step_of(task_id: str) -> str:
    """The step's name in ``change[3]-1a2b3c4d5e``."""
    return task_id.rpartition("-")[0].partition("[")[0]


def _batch_task(task_id: str, task: StepTask) -> BatchTask:
    run, schema = task.step.settings, task.step.schema
    options = [f"--allow-tool={rule}" for rule in run.allow_tools]
    if run.agent is not None:
        options.append(f"--agent={run.agent}")
    return BatchTask(
        id=task_id,
        prompt=task.prompt,
        cwd=task.cwd,
        content=task.key,
        line=task.step.line,
        model=run.model,
        permission_mode=run.permission_mode,
        max_budget_usd=run.max_budget_usd,
        timeout_s=run.timeout_s,
        arguments=tuple(options),
        schema=None if schema is None else json.dumps(schema),
        is_data=True,
        retries=run.retry,
        worktree=run.worktree,
    )


def _is_per_item(when: Expression) -> bool:
    return any(each.path[0] in {"item", "index"} for each in references(when))


def _is_told_by_a_model(step: Step) -> bool:
    """Whether results of steps have a say in its directory."""
    if step.cwd is None:
        return False
    used = {each.path[0] for each in step.cwd.references()}
    is_list_told = step.each is not None and not isinstance(step.each, Literal)
    if is_list_told and "item" in used and step.each is not None:
        used |= {each.path[0] for each in references(step.each)}
    return "steps" in used


def _digest(made_of: Sequence[Any]) -> str:
    text = json.dumps(made_of, sort_keys=True, ensure_ascii=True, default=str)
    return sha256(text.encode()).hexdigest()[:32]
