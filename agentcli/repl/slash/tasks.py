"""``/tasks``: background runs and schedules; a run's output; answer one, end one (UI-6, BG-9)."""

from __future__ import annotations

import time
from dataclasses import replace

from agentcli.domain.background import (
    MAX_LOG_CHARS,
    Background,
    BackgroundRefused,
    BackgroundTask,
    Schedule,
)
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui.sanitize import clean_line
from agentcli.ui.task_lines import (
    HOW_TO_NAME,
    details,
    meant,
    overview,
    question_lines,
    state_word,
)
from agentcli.ui.theme import DIM

_LOG_CHARS = MAX_LOG_CHARS + 1_000
_TAIL_CHARS = 20_000


async def _log(background: Background, task: BackgroundTask) -> str:
    try:
        found = await background.output(task.run_id, 0, _LOG_CHARS, 0.0, CancelToken())
    except BackgroundRefused:
        return ""
    return found.text[-_TAIL_CHARS:]


async def _run(chat: Chat, arguments: str) -> None:
    background = chat.session.background
    if background is None:
        chat.show(["This session has no background runs."])
        return
    verb, _, rest = arguments.strip().partition(" ")
    now = time.time()
    if not verb:
        active = [task for task in background.tasks() if task.is_active]
        last = {task.run_id: _last_line(await _log(background, task)) for task in active}
        lines = overview(background.tasks(), background.schedules(), last, now, chat.theme)
        hint = [chat.theme.paint(HOW_TO_NAME, DIM)] if background.tasks() else []
        chat.show([*lines, *hint])
    elif verb == "cancel":
        await _cancel(chat, background, rest.strip())
    elif verb == "answer":
        await _answer(chat, background, rest.strip())
    elif rest:
        raise UsageError(f"cannot do {clean_line(arguments)!r}", HOW_TO_NAME)
    else:
        found = meant(background, verb)
        if isinstance(found, Schedule):
            chat.show(overview((), (found,), {}, now, chat.theme))
        else:
            chat.show(details(found, await _log(background, found), now, chat.theme))


async def _cancel(chat: Chat, background: Background, text: str) -> None:
    found = meant(background, text)
    if isinstance(found, BackgroundTask) and not found.is_active:
        chat.show([f"It is over already: {state_word(found)}."])
        return
    try:
        name = found.id if isinstance(found, Schedule) else found.run_id
        ended = await background.cancel(name)
    except BackgroundRefused as error:
        raise UsageError(str(error), HOW_TO_NAME) from error
    if isinstance(ended, Schedule):
        chat.show([f"It will not start again: {clean_line(ended.title)}"])
    elif ended.is_active:
        chat.show([f"It was asked to end and is still running: {clean_line(ended.title)}"])


async def _answer(chat: Chat, background: Background, text: str) -> None:
    """Answer what a run asks; without a text one of the answers that it offers is chosen."""
    name, _, said = text.partition(" ")
    found = meant(background, name)
    question = found.asks if isinstance(found, BackgroundTask) else None
    if isinstance(found, Schedule) or question is None:
        state = "a schedule" if isinstance(found, Schedule) else state_word(found)
        raise UsageError(f"it asks nothing: it is {state}", "/tasks shows which runs ask")
    if not said.strip() and question.options:
        rows = [PickRow(clean_line(option)) for option in question.options]
        lines = question_lines(replace(question, options=()))
        chosen = await chat.choose("Your answer:", rows, about=lambda: lines)
        if chosen is None:
            return
        said = question.options[chosen]
    if not said.strip():
        raise UsageError("the answer is missing", "write it after the number: /tasks answer 2 TEXT")
    try:
        await background.answer(found.run_id, said.strip())
    except BackgroundRefused as error:
        raise UsageError(str(error), HOW_TO_NAME) from error
    chat.show([f"Answered: {clean_line(found.title)} goes on."])


def _last_line(text: str) -> str:
    lines = text.rstrip().rsplit("\n", 1)
    return lines[-1].rpartition("\r")[2]


COMMAND = SlashCommand(
    "tasks",
    "background runs and schedules",
    _run,
    "[RUN|answer RUN TEXT|cancel RUN]",
    while_working=True,
)
