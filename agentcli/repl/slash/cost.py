"""``/cost``: what this session has used."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui import wording


async def _run(chat: Chat, _arguments: str) -> None:
    session = chat.session
    usage = session.usage
    rows = (
        ("cost", wording.cost(session.cost_usd)),
        ("turns", str(session.turns)),
        ("input, not cached", wording.count(usage.input_tokens)),
        ("input, from cache", wording.count(usage.cache_read_tokens)),
        ("input, to cache", wording.count(usage.cache_write_tokens)),
        ("output", wording.count(usage.output_tokens)),
        ("of it reasoning", wording.count(usage.reasoning_tokens)),
    )
    if not usage.is_known and not session.turns:
        chat.show(["Nothing was used yet."])
        return
    chat.show([f"{name:<18} {value}" for name, value in rows])


COMMAND = SlashCommand("cost", "tokens and money of this session", _run, while_working=True)
