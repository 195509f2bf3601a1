"""Background runs that a crash has cut off: found, then started again or given up (BG-7).

Law: what may have had an effect is never repeated without the user: only a run whose tool is
idempotent or only reads, whose arguments are stored as they were given, and which the policy allows
without asking begins its next attempt. Every other run is interrupted, with the reason.
"""

from __future__ import annotations

import asyncio
import time

from agentcli.domain.background import BackgroundRefused, BackgroundTask
from agentcli.domain.clean import one_line
from agentcli.domain.errors import StoreError
from agentcli.engine.background.launch import SPAWN, check_launch
from agentcli.engine.background.run import announcement, unanswered
from agentcli.engine.background.runs import BackgroundRuns, is_repeatable
from agentcli.policy.decision import Answer, CallFacts, CallPlace
from agentcli.policy.judge import judge

STOPPED = "agentcli was stopped while it ran"


async def recover(runs: BackgroundRuns) -> tuple[str, ...]:
    """Put right what the rows of an earlier process say; lines for the user."""
    notices: list[str] = []
    for task in runs.tasks():
        if task.is_active:
            notices += await _end_survivor(runs, task)
            notices += filter(None, [await runs.services.parts.begin_sandbox({task.tool})])
            notices.append(await _recover_one(runs, task))
    await _announce(runs)
    return tuple(notices)


async def _end_survivor(runs: BackgroundRuns, task: BackgroundTask) -> list[str]:
    if task.pid is None or not task.pid_started:
        return []
    if not await asyncio.to_thread(runs.services.end_process, task.pid, task.pid_started):
        return []
    return [f"process {task.pid} of the background run {_name(task)} still ran and was ended"]


async def _recover_one(runs: BackgroundRuns, task: BackgroundTask) -> str:
    attempt = task.attempt
    try:
        _check(runs, task)
        attempt = await runs.services.store.restart(task.run_id, attempt, time.time()) or attempt
        await runs.resume(task, attempt)
    except BackgroundRefused as refused:
        why = "; ".join(filter(None, (str(refused), unanswered(task))))
        await runs.interrupt(task, attempt, f"{STOPPED}: {why}")
        return f"the background run {_name(task)} was interrupted: {why}"
    except StoreError as error:
        return f"the background run {_name(task)} could not be recovered: {error.message}"
    lost = f"; {found}" if (found := unanswered(task)) else ""
    return f"the background run {_name(task)} was started again (attempt {attempt}){lost}"


def _check(runs: BackgroundRuns, task: BackgroundTask) -> None:
    """Raises ``BackgroundRefused`` where it must not be started again."""
    if runs.services.parts.toolbox.get(SPAWN) is None:
        raise BackgroundRefused("background runs are switched off")
    if task.cancel_requested_at is not None:
        raise BackgroundRefused("it was asked to end")
    if not task.tool.strip():
        raise BackgroundRefused("its row does not say which tool it ran")
    launch = check_launch(runs.services.parts.toolbox, task.tool, task.arguments)
    if not is_repeatable(launch):
        raise BackgroundRefused(f"what {task.tool} does is not done a second time by itself")
    if not task.is_repeatable:
        raise BackgroundRefused("its arguments are not stored as they were given")
    parts = runs.services.parts
    paths = launch.tool.paths(launch.args, parts.workspace)
    call = CallFacts(launch.tool.definition, launch.arguments, paths, SPAWN)
    decision = judge(call, CallPlace(parts.workspace, parts.policy, is_beside=True))
    if decision.answer is not Answer.ALLOW:
        raise BackgroundRefused(f"it would need an approval again ({decision.reason})")


async def _announce(runs: BackgroundRuns) -> None:
    """Runs that had ended without a message to the session, as in a copy of one."""
    unannounced = [
        task
        for task in runs.tasks()
        if not task.is_active and task.signals and task.announced_at is None
    ]
    if not unannounced:
        return
    text = "\n".join(announcement(task) for task in unannounced)
    names = [task.run_id for task in unannounced]
    recorded = await runs.services.store.announce(names, text, time.time())
    if recorded.message is not None:
        runs.services.arrived(recorded.message)


def _name(task: BackgroundTask) -> str:
    return f'"{one_line(task.title)}"'
