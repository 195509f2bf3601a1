"""``/search``: earlier sessions by what was said in them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.desk import Hit
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import BOLD, DIM

SHOWN = 15


async def _run(chat: Chat, arguments: str) -> None:
    if not arguments:
        raise UsageError("what is to be found?", "write it after /search; /resume lists sessions")

    async def find(token: CancelToken) -> Sequence[Hit]:
        del token
        await chat.host.desk.refresh_search()
        return await chat.host.desk.search(arguments, SHOWN)

    hits = await chat.work(find, "Searching")
    if hits is None:
        return
    infos = {info.id: info for info in await chat.host.list_sessions()}
    paint, now = chat.theme.paint, time.time()
    lines: list[str] = []
    for hit in hits:
        info = infos.get(hit.session_id)
        if info is None:
            continue
        title = clean_line(info.title) or "untitled"
        facts = f"{wording.age(now - info.updated_at)}  {info.id}"
        lines += [f"{paint(title, BOLD)}  {paint(facts, DIM)}", f"  {clean_line(hit.excerpt)}"]
    if not lines:
        chat.show([f"No session holds {clean_line(arguments)}."])
        return
    chat.show([*lines, "Open one with /resume ID"])


COMMAND = SlashCommand("search", "find earlier sessions by their text", _run, "WORDS")
