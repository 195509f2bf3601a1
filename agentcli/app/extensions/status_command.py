"""The user's command for the line at the bottom of the chat, with Claude Code's JSON (EXT-10).

Laws: it runs when something has changed, ``DEBOUNCE_S`` later, one at a time, under a guard and
without the user's keys, and is ended after ``LIMIT_S``; what may run something of the directory
runs in the user's home directory instead, or contained where it names it: files there are edited
unasked; where it is trusted and nothing contains it, as it is; nothing
wakes the program while nothing changes; what it does wrong leaves our own line. The JSON:
https://code.claude.com/docs/en/statusline.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentcli import __version__
from agentcli.app.session import Session
from agentcli.config.hooks import may_run_from, scripts_of
from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.extensions.hooks import HookConfig, HookEvent
from agentcli.domain.messages import Usage
from agentcli.domain.values import frozen
from agentcli.engine.context.system_prompt import project_root
from agentcli.process.program import Program, run_program

DEBOUNCE_S = 0.3
LIMIT_S = 5.0
_MANY_TOKENS = 200_000
log = logging.getLogger(__name__)


@frozen
class StatusFacts:
    """The open session; ``usage`` is that of the newest request, ``used`` what the window holds.

    ``opened_at`` is a time of ``time.monotonic``; ``is_trusted``: what its directory holds may run.
    """

    session: Session
    usage: Usage | None
    used: int | None
    opened_at: float
    is_trusted: bool = False


class StatusCommand:
    """Runs ``command`` when what is shown changes; ``show`` gets what it prints, or "".

    ``shown`` is ``None`` where no session is open.
    """

    def __init__(
        self, command: str, shown: Callable[[], StatusFacts | None], show: Callable[[str], None]
    ) -> None:
        self._command = command
        self._shown = shown
        self._show = show
        self._news = asyncio.Event()
        self._token = CancelToken()

    def changed(self) -> None:
        """Something that it may show is not as it was."""
        self._news.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It is called until the block ends."""
        task = asyncio.create_task(self._go_on(), name="status line")
        try:
            yield
        finally:
            self._token.cancel(CancelReason.PARENT, force=True)
            task.cancel()
            await asyncio.wait({task})

    async def _go_on(self) -> None:
        before: Mapping[str, Any] | None = None
        while True:
            await self._news.wait()
            await asyncio.sleep(DEBOUNCE_S)
            self._news.clear()
            shown = self._shown()
            facts = None if shown is None else status_facts(shown)
            if shown is None or facts is None or facts == before:
                continue
            before = facts
            try:
                program = _program(self._command, shown, facts)
                result = await run_program(program, self._token, shown.session.sandbox)
            except Exception:
                log.exception("the status line could not be asked for")
                continue
            if result.code != 0:
                log.warning("the status line: %s", result.problem or f"exit code {result.code}")
            self._show(result.stdout.decode("utf-8", "replace") if result.code == 0 else "")


def status_facts(shown: StatusFacts) -> dict[str, Any]:
    """What Claude Code tells such a command."""
    session, usage, used = shown.session, shown.usage, shown.used
    model, total = session.model, session.usage
    cwd = session.workspace.cwd
    size = model.context_tokens
    percent = None if used is None or size <= 0 else round(min(100.0, 100 * used / size), 1)
    return {
        "hook_event_name": "Status",
        "session_id": session.id,
        "session_name": session.title,
        "transcript_path": str(session.file),
        "cwd": str(cwd),
        "permission_mode": str(session.mode),
        "model": {"id": model.id, "display_name": model.id.rpartition("/")[2]},
        "workspace": {
            "current_dir": str(cwd),
            "project_dir": str(project_root(cwd)),
            "added_dirs": [str(each) for each in session.workspace.extra],
        },
        "version": __version__,
        "output_style": {"name": "default"},
        "cost": {
            "total_cost_usd": session.cost_usd,
            "total_duration_ms": 0,
            "total_api_duration_ms": 0,
            "total_lines_added": 0,
            "total_lines_removed": 0,
        },
        "context_window": {
            "total_input_tokens": _sum(
                total.input_tokens, total.cache_read_tokens, total.cache_write_tokens
            ),
            "total_output_tokens": total.output_tokens or 0,
            "context_window_size": size,
            "used_percentage": percent,
            "remaining_percentage": None if percent is None else round(100 - percent, 1),
            "current_usage": None
            if usage is None
            else {
                "input_tokens": usage.input_tokens or 0,
                "output_tokens": usage.output_tokens or 0,
                "cache_creation_input_tokens": usage.cache_write_tokens or 0,
                "cache_read_input_tokens": usage.cache_read_tokens or 0,
            },
        },
        "exceeds_200k_tokens": (used or 0) > _MANY_TOKENS,
    }


def _program(command: str, shown: StatusFacts, facts: Mapping[str, Any]) -> Program:
    """The command with ``facts`` on its standard input, and how long the session is open."""
    open_ms = round(1000 * (time.monotonic() - shown.opened_at))
    cost = {**facts["cost"], "total_duration_ms": open_ms}
    data = (json.dumps({**facts, "cost": cost}) + "\n").encode()
    root = facts["workspace"]["project_dir"]
    cwd, is_contained = where_it_runs(command, Path(root), shown.session.workspace.cwd)
    variables = {"CLAUDE_PROJECT_DIR": root, "AGENTCLI_PROJECT_DIR": root}
    return Program(
        command,
        cwd,
        data,
        LIMIT_S,
        variables,
        contained=is_contained,
        not_without=is_contained and not shown.is_trusted,
    )


def where_it_runs(command: str, root: Path, cwd: Path) -> tuple[Path, bool]:
    """Where it runs, and whether in the sandbox (SEC-1, SEC-17)."""
    home = Path.home()
    if root == home or not may_run_from(command, root, cwd):
        return cwd, False
    names_it = scripts_of([HookConfig(HookEvent.NOTIFICATION, command)], root, cwd)
    if names_it or home.is_relative_to(root):
        return cwd, True
    return home, False


def _sum(*counts: int | None) -> int:
    return sum(count or 0 for count in counts)
