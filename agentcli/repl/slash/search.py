"""``/search``: earlier sessions by what was said in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from agentcli.app.library import SearchHit
from agentcli.app.memory_start import find_in_memory
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import AgentError, TurnCancelled, UsageError
from agentcli.domain.session import SessionInfo
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import BOLD, DIM

SHOWN = 15
MAX_DEPTH = 8
WORTH_SAYING = 200  # sessions to be read: some seconds
PROGRESS_STEP = 1000


async def _run(chat: Chat, arguments: str) -> None:
    if not arguments:
        raise UsageError("nothing to search for", "write it after /search; /resume lists sessions")

    async def find(token: CancelToken) -> Sequence[SearchHit]:
        await _learn_what_is_new(chat, token)
        return await chat.sessions.search(arguments, SHOWN)

    hits = await chat.work(find, "Searching")
    if hits is None:
        return
    found = await _by_session(chat, hits)
    base = chat.user.settings.paths.memory_dir
    known = await asyncio.to_thread(find_in_memory, base, arguments, SHOWN)
    if known:
        chat.show([chat.theme.paint("Project memory", BOLD), *map(_fact_line, known)])
    if not found and known:
        return
    if not found:
        chat.show([f"No session holds {clean_line(arguments)}."])
        return
    if chat.theme.live:
        await _open_one(chat, found)
        return
    paint, now = chat.theme.paint, time.time()
    lines: list[str] = []
    for info, excerpts in found:
        title = clean_line(info.title) or "untitled"
        facts = f"{wording.age(now - info.updated_at)}  {info.id}"
        lines += [f"{paint(title, BOLD)}  {paint(facts, DIM)}", *excerpts]
    chat.show([*lines, "Open one with /resume ID"])


def _fact_line(known: tuple[str, str, bool]) -> str:
    project, fact, is_confirmed = known
    return f"  {clean_line(fact)}  {clean_line(project)}{'' if is_confirmed else ' (unconfirmed)'}"


async def _learn_what_is_new(chat: Chat, token: CancelToken) -> None:
    def say_progress(done: int, total: int) -> None:
        if token.cancelled:
            raise TurnCancelled
        if total >= WORTH_SAYING and done % PROGRESS_STEP == 0:
            chat.show([f"Reading {total - done} sessions to search in; later searches need not."])

    await chat.sessions.refresh_search(say_progress)


async def _open_one(chat: Chat, found: Sequence[tuple[SessionInfo, list[str]]]) -> None:
    """Go on with what the user picks, or with a copy of it."""
    now = time.time()
    rows = []
    for info, excerpts in found:
        where = clean_line(excerpts[0]).strip()
        note = f"{wording.age(now - info.updated_at)} · {where}"
        rows.append(PickRow(clean_line(info.title) or "untitled", note))
    at = await chat.choose("Which session?", rows)
    if at is None:
        return
    chosen = found[at][0].id
    ways = [PickRow("resume", "go on with it"), PickRow("fork", "go on with a copy of it")]
    way = await chat.choose("How?", ways)
    if way == 1:
        await chat.switch_to(await chat.sessions.fork(chosen))
    elif way == 0 and chosen != chat.session.id:
        await chat.switch_to(chosen)


async def _by_session(chat: Chat, hits: Sequence[SearchHit]) -> list[tuple[SessionInfo, list[str]]]:
    """The sessions in the order of their best hits; what sub-agents said is under their parent."""
    infos = dict(await chat.sessions.infos_of([hit.session_id for hit in hits]))
    found: dict[str, list[str]] = {}
    for hit in hits:
        owner, agents = await _owner(chat, infos, hit.session_id)
        if owner is not None:
            who = "".join(f"{clean_line(agent)}: " for agent in agents)
            found.setdefault(owner, []).append(f"  {who}{clean_line(hit.excerpt)}")
    return [(infos[key], excerpts) for key, excerpts in found.items()]


async def _owner(
    chat: Chat, infos: dict[str, SessionInfo], session_id: str
) -> tuple[str | None, list[str]]:
    """The session that the user began, and the agents between it and this one."""
    agents: list[str] = []
    owner: str | None = None
    following: str | None = session_id
    while following is not None and len(agents) < MAX_DEPTH:
        if following not in infos:
            try:
                infos[following] = (await chat.sessions.load(following)).info
            except (AgentError, OSError):
                break
        owner, info = following, infos[following]
        following = info.parent_id if info.agent else None
        if following is not None:
            agents.insert(0, info.agent)
    return owner, agents


COMMAND = SlashCommand("search", "find earlier sessions by their text", _run, "WORDS")
