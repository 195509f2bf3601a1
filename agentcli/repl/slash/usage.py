"""``/usage``: tokens and money by session, day and week."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from agentcli.domain.clean import plural
from agentcli.domain.messages import Usage
from agentcli.domain.session import SessionInfo
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import BOLD, DIM

_DAY_S = 86_400
_WEEK = 7
SHOWN = 5


def midnight(now: float) -> float:
    """When the day of ``now`` began here."""
    today = time.localtime(now)
    return time.mktime((*today[:3], 0, 0, 0, 0, 0, -1))


def _money(infos: Iterable[SessionInfo]) -> str:
    """What they cost; a part whose price is not known is said (COST-1)."""
    costs = [info.cost_usd for info in infos if info.usage.is_known or info.cost_usd is not None]
    known = sum(cost for cost in costs if cost is not None)
    if None not in costs:
        return wording.cost_said(known)
    return f"{wording.cost_said(known)} + unknown" if known else wording.cost_said(None)


def usage_lines(infos: Sequence[SessionInfo], now: float) -> list[str]:
    """A row each for today, the last seven days and all time."""
    today = midnight(now)
    spans = (("today", today), ("7 days", today - (_WEEK - 1) * _DAY_S), ("all", 0.0))
    lines = []
    for name, begin in spans:
        within = [info for info in infos if info.updated_at >= begin]
        usage = sum((info.usage for info in within), Usage())
        figures = (
            plural(len(within), "session"),
            plural(sum(info.turns for info in within), "turn"),
            wording.tokens(usage) if usage.is_known else "no tokens",
            *([_money(within)] if usage.is_known else []),
        )
        lines.append(f"{name:<10} {', '.join(figures)}")
    return lines


async def _run(chat: Chat, _arguments: str) -> None:
    session = chat.session
    infos = await chat.sessions.list()
    paint = chat.theme.paint
    here = [plural(session.turns, "turn")]
    if session.turns or session.usage.is_known:
        here += [wording.tokens(session.usage), wording.cost_said(session.cost_usd)]
    lines = [
        f"{'this one':<10} {', '.join(here)}",
        *usage_lines(infos, time.time()),
        paint("A session counts on the day when it was last used.", DIM),
    ]
    dearest = sorted((i for i in infos if i.cost_usd), key=lambda i: -(i.cost_usd or 0.0))[:SHOWN]
    if dearest:
        lines += ["", paint("The most expensive sessions", BOLD)]
        lines += [
            f"  {wording.cost(info.cost_usd):>8}  {clean_line(info.title) or 'untitled'}"
            for info in dearest
        ]
    chat.show(lines)


COMMAND = SlashCommand(
    "usage", "tokens and money today, this week and in all", _run, while_working=True
)
