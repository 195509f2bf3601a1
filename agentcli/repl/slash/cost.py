"""``/cost``: what this session has used, and which tool results cost most (COST-3)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from agentcli.domain.accounts import SUBAGENT, CallCost, Ledger, sum_of
from agentcli.domain.clean import plural
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import BOLD, DIM

SHOWN = 8


async def _run(chat: Chat, _arguments: str) -> None:
    session = chat.session
    usage = session.usage
    known = [
        part
        for part in (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
        if part is not None
    ]
    sent = sum(known) if known else None
    again = usage.cache_read_tokens
    rows = [
        ("Cost", wording.cost(session.cost_usd), ""),
        ("Turns", str(session.turns), ""),
        ("Sent to the model", wording.tokens_of(sent), ""),
        ("  sent again, cheap", wording.tokens_of(again), "the provider had kept them"),
        ("Written by the model", wording.tokens_of(usage.output_tokens), ""),
        ("  of it thinking", wording.tokens_of(usage.reasoning_tokens), ""),
    ]
    if session.cost_usd is None:
        rows[0] = ("Cost", "unknown", "the model's price is not known; see: agent help providers")
    if not usage.is_known and not session.turns:
        chat.show(["Nothing was used yet."])
        return
    ledger = await session.ledger()
    agents = [row.cost_usd for row in ledger.rows if row.kind == SUBAGENT]
    if agents:
        known_usd = [usd for usd in agents if usd is not None]
        usd = sum(known_usd) if len(known_usd) == len(agents) else None
        rows.append(("  of it sub-agents", wording.cost(usd), ""))
    paint = chat.theme.paint
    shown = [(name, value, note) for name, value, note in rows if value or not name.startswith(" ")]
    chat.show(
        [
            *(
                f"{name:<21} {value}{paint(f'  ({note})', DIM) if note else ''}"
                for name, value, note in shown
            ),
            *await _of_results(chat, ledger),
        ]
    )


async def _of_results(chat: Chat, ledger: Ledger) -> Sequence[str]:
    """The tool results that cost most, and what all of them have cost."""
    found = await chat.user.call_costs(ledger)
    sent = [cost for cost in found.values() if cost.result.tokens]
    if not sent:
        return ()
    paint = chat.theme.paint
    total = sum_of(sent)
    dearest = heapq.nsmallest(SHOWN, sent, key=lambda cost: cost.result.rank)
    money = [wording.sum_cost(cost.result) for cost in dearest]
    width = max(map(len, money))
    results = plural(len(sent), "tool result")
    tokens = (
        f"{wording.count(total.added_tokens)} tokens, {wording.count(total.again_tokens)} again"
    )
    lines = ["", paint(f"{results}: {wording.sum_cost(total)} ({tokens})", BOLD)]
    for cost, usd in zip(dearest, money, strict=True):
        what = clean_line(cost.line or cost.name)
        lines.append(f"  {usd:>{width}}  {what}  {paint(_how(cost), DIM)}")
    if len(sent) > len(dearest):
        lines.append(paint(f"  and {len(sent) - len(dearest)} more, which cost less", DIM))
    return lines


def _how(cost: CallCost) -> str:
    """``12.3k tokens, sent again in 14 requests (150.0k cached, 3.0k not)``."""
    result = cost.result
    added = wording.tokens_of(result.added_tokens)
    if not result.again_requests:
        return added
    again = plural(result.again_requests, "request")
    cached, others = result.again_cached_tokens, result.again_uncached_tokens
    return (
        f"{added}, again in {again} ({wording.count(cached)} cached, {wording.count(others)} not)"
    )


COMMAND = SlashCommand(
    "cost", "tokens and money of this session and its tools", _run, while_working=True
)
