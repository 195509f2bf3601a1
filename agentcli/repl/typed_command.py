"""``!command``: run what the person typed in the session's shell and show it (UI-4).

Law: nothing is asked, for the person has typed it; ``!`` tells the model with the next prompt,
``!!`` does not; the output is shown sanitized, its end when it is long, the whole on request.
"""

from __future__ import annotations

import time
import uuid

from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import ToolAnnounced, ToolFinished, ToolProgress, ToolStarted
from agentcli.domain.messages import ResultStatus, TextPart, ToolCall, ToolResult
from agentcli.domain.tools import ToolOutput, status_of
from agentcli.repl.commands import Chat
from agentcli.repl.outside import overwritten
from agentcli.repl.turn_view import TurnView
from agentcli.ui import render, wording
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.theme import DIM, Theme

MAX_LINES = 100
_SUMMARY_COLUMNS = 200


def parse_command(text: str) -> tuple[str, bool] | None:
    """The command and whether the model is told; ``None`` when ``text`` is a message."""
    typed = text.strip()
    if not typed.startswith("!"):
        return None
    if typed.startswith("!!"):
        return typed[2:].strip(), False
    return typed[1:].strip(), True


async def run_typed(chat: Chat, view: TurnView, command: str, *, tell: bool) -> None:
    """Run ``command`` as the agent's work: Ctrl-C stops it. Raises ``AgentError``."""
    summary = fit(clean_line(command), _SUMMARY_COLUMNS)
    call = ToolCall(f"typed-{uuid.uuid4().hex}", "bash", {"command": command})
    started = time.monotonic()

    async def run(token: CancelToken) -> ToolOutput:
        view.on_event(ToolAnnounced(call, summary))
        view.on_event(ToolStarted(call, summary))
        return await chat.session.run_command(
            command, token, lambda text: view.on_event(ToolProgress(call.id, text)), tell=tell
        )

    try:
        output = await chat.work(run, "Running")
    finally:
        view.forget_calls()
    if output is None:
        return
    text = "\n".join(part.text for part in output.parts if isinstance(part, TextPart))
    status = status_of(output)
    result = ToolResult(call.id, call.name, (TextPart(text),), status)
    took = time.monotonic() - started
    whole = overwritten(output.raw) if output.raw is not None else ""
    view.last_output = ToolFinished(call, result, output.summary, took, display=whole)
    chat.show(_lines(summary, text, status, chat.theme, tell=tell))


def _lines(summary: str, text: str, status: ResultStatus, theme: Theme, *, tell: bool) -> list[str]:
    lines = clean(text).rstrip("\n").split("\n")
    hidden = len(lines) - MAX_LINES
    shown = [f"  {line}" for line in lines[-MAX_LINES:]]
    if hidden > 0:
        more = f"  {theme.symbols.more} {wording.plural(hidden, 'earlier line')} (Ctrl-O shows all)"
        shown = [theme.paint(more, DIM), *shown]
    note = "the agent is told with your next message" if tell else "the agent is not told"
    return [render.call_line(summary, theme, status), *shown, theme.paint(f"  ({note})", DIM)]
