"""``/cost``: what this session has used."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui import wording
from agentcli.ui.theme import DIM


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
    paint = chat.theme.paint
    shown = [(name, value, note) for name, value, note in rows if value or not name.startswith(" ")]
    chat.show(
        [
            f"{name:<21} {value}{paint(f'  ({note})', DIM) if note else ''}"
            for name, value, note in shown
        ]
    )


COMMAND = SlashCommand("cost", "tokens and money of this session", _run, while_working=True)
