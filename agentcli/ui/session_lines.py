"""Sessions as painted lines: what was resumed, lists to choose from, the farewell (UI-8, UI-9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentcli.domain.cancel import CancelReason
from agentcli.domain.messages import (
    ABOUT_RUNS,
    AssistantMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus
from agentcli.ui import wording
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.theme import BOLD, DIM, WARNING, Theme
from agentcli.ui.width import fit

LAST_LINES = 12
_TITLE_COLUMNS = 60
_ABOUT_RUNS = "(what became of a background run)"

_WHY = {
    SessionStatus.NEW: "nothing was asked yet",
    SessionStatus.RUNNING: "it was still running",
    SessionStatus.DONE: "it was finished",
    SessionStatus.LIMIT: "it had reached a limit",
    SessionStatus.CANCELLED: "it was cancelled",
    SessionStatus.FAILED: "it had failed",
    SessionStatus.CRASHED: "the program had ended in the middle of it",
}
_CANCELLED_BY: dict[str, str] = {
    CancelReason.SIGTERM: "it was told to end (SIGTERM)",
    CancelReason.SIGHUP: "its window was closed",
    CancelReason.LIMIT: "its time was over",
}


def resume_lines(loaded: LoadedSession, now: float, theme: Theme) -> list[str]:
    """What was resumed, when and why it had stopped, the last exchange, what was pending."""
    info = loaded.info
    title = clean_line(info.title) or "untitled"
    why = _WHY[info.status]
    detail = clean_line(info.detail)
    if detail and info.status is SessionStatus.FAILED:
        why += f": {detail}"
    elif info.status is SessionStatus.CANCELLED:
        why = _CANCELLED_BY.get(info.detail, why)
    lines = [
        theme.paint(f"Resumed: {title}", BOLD),
        theme.paint(
            f"  {wording.age(now - info.updated_at)}, {wording.plural(info.turns, 'turn')}; {why}.",
            WARNING if info.status.interrupted else DIM,
        ),
        *_last_exchange(loaded, theme),
        *_partial(loaded, theme),
    ]
    stopped = _stopped_calls(loaded)
    if stopped:
        lines.append(theme.paint(f"  Not finished: {', '.join(stopped)}", WARNING))
    hint = '  Type what to do next ("continue" goes on), or /new to start afresh.'
    return [*lines, theme.paint(hint, DIM)]


def _last_exchange(loaded: LoadedSession, theme: Theme) -> list[str]:
    user = answer = ""
    for stored in loaded.messages:
        message = stored.message
        if isinstance(message, UserMessage):
            if message.is_summary:
                continue
            is_ours = message.typed.startswith(ABOUT_RUNS)
            user, answer = _ABOUT_RUNS if is_ours else message.typed, ""
        elif isinstance(message, AssistantMessage) and message.text.strip():
            answer = message.text
    lines = []
    if user:
        lines += _quoted("> ", user, theme)
    if answer:
        lines += _quoted("  ", answer, theme)
    return lines


def _quoted(lead: str, text: str, theme: Theme) -> list[str]:
    lines = clean(text).strip().split("\n")
    shown = lines[:LAST_LINES]
    if len(lines) > LAST_LINES:
        shown.append(f"{theme.symbols.more} {wording.plural(len(lines) - LAST_LINES, 'more line')}")
    return [
        theme.paint(f"  {lead if at == 0 else '  '}{line}", DIM) for at, line in enumerate(shown)
    ]


def _partial(loaded: LoadedSession, theme: Theme) -> list[str]:
    """What had been seen of a reply that was never finished (CAN-5)."""
    last = loaded.messages[-1].seq if loaded.messages else 0
    texts = [note.text for note in loaded.notes if note.after_seq >= last and note.text.strip()]
    if not texts:
        return []
    return [
        theme.paint("  The reply had begun (not sent to the model again):", DIM),
        *_quoted("  ", texts[-1], theme),
    ]


def _stopped_calls(loaded: LoadedSession) -> list[str]:
    """The calls of the last turn that were stopped, by name."""
    calls: dict[str, ToolCall] = {}
    stopped: list[str] = []
    for stored in loaded.messages:
        message = stored.message
        if isinstance(message, UserMessage):
            calls.clear()
            stopped.clear()
        elif isinstance(message, AssistantMessage):
            calls.update({call.id: call for call in message.tool_calls})
        elif isinstance(message, ToolResult) and message.status in {"cancelled", "interrupted"}:
            call = calls.get(message.call_id)
            stopped.append(_call_words(call) if call else clean_line(message.name))
    return stopped


def _call_words(call: ToolCall) -> str:
    """The call and its first short argument."""
    values = [value for value in call.arguments.values() if isinstance(value, str)]
    first = fit(clean_line(values[0]), _TITLE_COLUMNS) if values else ""
    return f"{clean_line(call.name)} {first}".strip()


def session_row(info: SessionInfo, now: float) -> str:
    """One line of a list of sessions, plain: title, age, turns, cost, state, directory."""
    title = clean_line(info.title) or "untitled"
    parts = [
        title if len(title) <= _TITLE_COLUMNS else f"{title[: _TITLE_COLUMNS - 1]}…",
        wording.age(now - info.updated_at),
        wording.plural(info.turns, "turn"),
        *([wording.cost(info.cost_usd)] if info.cost_usd is not None else []),
        str(info.status),
        clean_line(info.cwd),
    ]
    return " · ".join(parts)


def session_rows(infos: Sequence[SessionInfo], now: float, theme: Theme) -> list[str]:
    """A numbered list of sessions, newest first."""
    digits = len(str(len(infos)))
    return [
        f"{theme.paint(f'{at:>{digits}}', DIM)}  {session_row(info, now)}  "
        f"{theme.paint(info.id, DIM)}"
        for at, info in enumerate(infos, 1)
    ]


@dataclass(frozen=True, slots=True)
class Farewell:
    """What to say when a chat ends (UI-9). ``duration_s``: how long it was open."""

    session_id: str
    turns: int
    usage: Usage
    cost_usd: float | None
    duration_s: float


def farewell_lines(end: Farewell, theme: Theme) -> list[str]:
    """The resume command, turns, tokens, cost, duration; only the last without any turn."""
    if end.turns == 0:
        return []
    dot = f" {theme.symbols.dot} "
    figures = dot.join(
        (
            wording.plural(end.turns, "turn"),
            wording.tokens(end.usage),
            f"cost {wording.cost(end.cost_usd)}",
            wording.duration(end.duration_s),
        )
    )
    return [theme.paint(figures, DIM), f"Resume with: agent resume {end.session_id}"]
