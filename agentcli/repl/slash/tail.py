"""``/tail``: follow the output of a background run; Ctrl-C or Esc stops following (UI-6)."""

from __future__ import annotations

import time

from agentcli.domain.background import Background, BackgroundRefused, BackgroundTask, TaskOutput
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line
from agentcli.ui.task_lines import log_lines, meant, state_word, took

PAGE_CHARS = 20_000
BEGINS_BEFORE_CHARS = 2_000
_WAIT_S = 30.0


async def _run(chat: Chat, arguments: str) -> None:
    background = chat.session.background
    active = [t for t in background.tasks() if t.is_active] if background is not None else []
    if background is None or (not arguments.strip() and not active):
        raise UsageError("no background run is active", "see /tasks")
    task = meant(background, arguments.strip()) if arguments.strip() else active[-1]
    if not isinstance(task, BackgroundTask):
        raise UsageError("a schedule has no output", "see /tasks")
    follower = _Follower(chat, background, task)
    await chat.work(follower.run, f"Following {clean_line(task.title)}")


class _Follower:
    """Shows whole lines as they come, from shortly before the end of what there is."""

    def __init__(self, chat: Chat, background: Background, task: BackgroundTask) -> None:
        self._chat = chat
        self._background = background
        self._task = task
        self._held = ""

    async def run(self, token: CancelToken) -> None:
        """Until the run has ended or the user has seen enough."""
        try:
            size = (await self._page(0, 0, 0.0, token)).size
            offset: int | None = max(0, size - BEGINS_BEFORE_CHARS)
            while offset is not None and not token.cancelled:
                page = await self._page(offset, PAGE_CHARS, _WAIT_S, token)
                self._show(page.text, is_last=page.next_offset is None)
                offset, self._task = page.next_offset, page.task
        except BackgroundRefused as error:
            raise UsageError(str(error), "see /tasks") from error
        if not token.cancelled:
            how = f"{state_word(self._task)}, {took(self._task, time.time())}"
            self._chat.show([f"{clean_line(self._task.title)}: {how}"])

    async def _page(self, offset: int, limit: int, wait_s: float, token: CancelToken) -> TaskOutput:
        return await self._background.output(self._task.run_id, offset, limit, wait_s, token)

    def _show(self, text: str, *, is_last: bool) -> None:
        whole, newline, rest = (self._held + text).rpartition("\n")
        if is_last:
            whole, newline, rest = whole + newline + rest, "", ""
        self._held = rest[-PAGE_CHARS:]
        if lines := log_lines(whole):
            self._chat.show(lines)


COMMAND = SlashCommand("tail", "follow the output of a background run", _run, "[RUN]")
