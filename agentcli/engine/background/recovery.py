"""Background runs that a crash has cut: found, ended, started again or given up (BG-7).

Law: what may have done something is never done a second time by itself: only a run whose tool is
idempotent or reads only, whose arguments are stored as they were given, and which the policy allows
without asking anybody, begins its next attempt. Each of the others is interrupted, with the reason.
"""

from __future__ import annotations

import asyncio
import time

from agentcli.domain.background import BackgroundRefused, BackgroundTask
from agentcli.domain.errors import StoreError
from agentcli.engine.background.launch import SPAWN, check_launch
from agentcli.engine.background.runs import BackgroundRuns, is_repeatable
from agentcli.engine.background.text import announcement, one_line
from agentcli.policy.decision import Answer, CallFacts, CallPlace
from agentcli.policy.judge import judge

STOPPED = "agentcli was stopped while it ran"


async def take_up(runs: BackgroundRuns) -> tuple[str, ...]:
    """Put right what the rows of an earlier process say; lines for the user."""
    notices: list[str] = []
    for task in runs.tasks():
        if task.is_active:
            notices += await _end_survivor(runs, task)
            notices.append(await _take_up_one(runs, task))
    await _announce(runs)
    return tuple(notices)


async def _end_survivor(runs: BackgroundRuns, task: BackgroundTask) -> list[str]:
    if task.pid is None or not task.pid_started:
        return []
    if not await asyncio.to_thread(runs.lent.end_process, task.pid, task.pid_started):
        return []
    return [f"process {task.pid} of the background run {_name(task)} was still there: ended"]


async def _take_up_one(runs: BackgroundRuns, task: BackgroundTask) -> str:
    attempt = task.attempt
    try:
        _check(runs, task)
        attempt = await runs.lent.store.restart(task.run_id, attempt, time.time()) or attempt
        await runs.resume(task, attempt)
    except BackgroundRefused as refused:
        why = f"{STOPPED}: {refused}"
        await runs.interrupt(task, attempt, why)
        return f"the background run {_name(task)} was interrupted: {refused}"
    except StoreError as error:
        return f"the background run {_name(task)} was not taken up: {error.message}"
    return f"the background run {_name(task)} was started again (attempt {attempt})"


def _check(runs: BackgroundRuns, task: BackgroundTask) -> None:
    """Raises ``BackgroundRefused`` where it must not be started again."""
    if runs.lent.kit.toolbox.get(SPAWN) is None:
        raise BackgroundRefused("background runs are switched off")
    if task.cancel_requested_at is not None:
        raise BackgroundRefused("it was asked to end")
    if not task.tool.strip():
        raise BackgroundRefused("its row does not say which tool it ran")
    launch = check_launch(runs.lent.kit.toolbox, task.tool, task.arguments)
    if not is_repeatable(launch):
        raise BackgroundRefused(f"what {task.tool} does is not done a second time by itself")
    if not task.is_repeatable:
        raise BackgroundRefused("its arguments are not stored as they were given")
    kit = runs.lent.kit
    paths = launch.tool.paths(launch.args, kit.workspace)
    call = CallFacts(launch.tool.definition, launch.arguments, paths)
    decision = judge(call, CallPlace(kit.workspace, kit.policy))
    if decision.answer is not Answer.ALLOW:
        raise BackgroundRefused(f"it would need an approval again ({decision.reason})")


async def _announce(runs: BackgroundRuns) -> None:
    """What ended in the file and was told to nobody: in a copy of a session."""
    untold = [
        task
        for task in runs.tasks()
        if not task.is_active and task.signals and task.announced_at is None
    ]
    if not untold:
        return
    text = "\n".join(announcement(task) for task in untold)
    names = [task.run_id for task in untold]
    recorded = await runs.lent.store.announce(names, text, time.time())
    if recorded.message is not None:
        runs.lent.arrived(recorded.message)


def _name(task: BackgroundTask) -> str:
    return f'"{one_line(task.title)}"'
