"""``/memory``: what is known of the project, what is kept for this session, your instructions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.open_session import name_of
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import BOLD, DIM

if TYPE_CHECKING:
    from agentcli.app.project_memory import Fact, SessionMemory

_SHOWN_COLUMNS = 100
USAGE = "[confirm|forget|edit|join|on|off]"


async def _run(chat: Chat, arguments: str) -> None:
    word, _, rest = arguments.strip().partition(" ")
    match word:
        case "":
            chat.show(await _overview(chat))
        case "edit" if rest.strip():
            await _edit_project(chat, rest.strip())
        case "edit":
            await _edit(chat)
        case "forget" if rest.strip():
            await _forget(chat, rest.strip())
        case "confirm":
            await _confirm(chat, rest)
        case "join":
            name = await _memory(chat).join()
            chat.show(
                [f"This directory is of {clean_line(name)} now; new sessions know its memory."]
            )
        case "on" | "off":
            chat.show(list(await chat.user.set("memory", str(word == "on").lower())))
            chat.show(["New sessions go by it."])
        case _:
            raise UsageError(f"cannot do /memory {arguments}", f"use /memory {USAGE}")


def _memory(chat: Chat) -> SessionMemory:
    memory = chat.session.project_memory
    if memory is None:
        raise UsageError("the project's memory is switched off", "/memory on, then a new session")
    return memory


async def _confirm(chat: Chat, rest: str) -> None:
    words = rest.replace(",", " ").replace("u", " ").split()
    if not all(word.isdecimal() for word in words):
        raise UsageError("a fact is confirmed by its number", "/memory shows them: u1, u2 …")
    memory = _memory(chat)
    facts = await memory.confirm([int(word) for word in words])
    left = len(await asyncio.to_thread(memory.files.waiting))
    told = "New sessions know it." if facts else "Nothing waits to be confirmed."
    if left and not words:
        told = f"{told} {left} more came after the list: /memory"
    lines = [f"{chat.theme.paint('+', BOLD)} {clean_line(fact.text)}" for fact in facts]
    chat.show([*lines, told])


async def _forget(chat: Chat, what: str) -> None:
    if await chat.session.forget(what):
        chat.show([f"{clean_line(what)} is forgotten."])
        return
    memory = chat.session.project_memory
    fact = await memory.forget(what) if memory is not None else None
    if fact is None:
        raise UsageError(f"nothing is kept as {what!r}", "/memory shows what there is")
    chat.show([f"- {clean_line(fact.text)}"])


async def _edit_project(chat: Chat, what: str) -> None:
    memory = _memory(chat)
    before = await memory.text("" if what == "project" else what)
    after = await chat.edit(before)
    if after == before:
        chat.show(["Nothing was changed."])
        return
    await memory.replace("" if what == "project" else what, before, after)
    chat.show(["Saved. New sessions read it; this one goes on with what it read at its start."])


async def _project_lines(chat: Chat) -> list[str]:
    paint, memory = chat.theme.paint, chat.session.project_memory
    if memory is None:
        return [paint("Project memory is off", BOLD), paint("  switch on: /memory on", DIM)]
    facts, waiting = await memory.listed()
    lines = [paint("Known of this project", BOLD)]
    for number, fact in enumerate(facts, 1):
        topic = f"{fact.topic}: " if fact.topic else ""
        lines.append(f"  {number}. {_fact(chat, topic, fact)}")
    lines += [] if facts else ["  nothing"]
    if waiting:
        lines.append(paint("Not confirmed: no session is told of it", BOLD))
        lines += [f"  u{number}. {_fact(chat, '', fact)}" for number, fact in enumerate(waiting, 1)]
        lines.append(paint("  /memory confirm [u1 ...], /memory forget u1", DIM))
    file = clean_line(str(memory.files.index))
    change = paint("  change: /memory edit project, forget N, off", DIM)
    return [*lines, change, paint(f"  {file}", DIM)]


def _fact(chat: Chat, topic: str, fact: Fact) -> str:
    since = f"  {fact.date} {fact.session[:8]}" if fact.date else ""
    return f"{topic}{clean_line(fact.text)}{chat.theme.paint(clean_line(since), DIM)}"


async def _overview(chat: Chat) -> list[str]:
    kept = await chat.session.memory()
    text = await chat.user.instructions()
    file = clean_line(str(chat.user.instructions_file))
    lines = [chat.theme.paint("Instructions that the model has read", BOLD)]
    lines += [
        f"  {clean_line(name_of(doc.path, chat.user.cwd))}"
        f"  {len(doc.text.encode()):,} bytes{', cut' if doc.cut else ''}"
        for doc in chat.session.documents
    ]
    lines += [] if chat.session.documents else ["  none"]
    lines += await _project_lines(chat)
    lines += [chat.theme.paint("Kept by the agent for this session", BOLD)]
    lines += [
        f"  {clean_line(key)}: {fit(clean_line(value), _SHOWN_COLUMNS)}"
        for key, value in kept.items()
    ]
    lines += [] if kept else ["  nothing"]
    lines.append(chat.theme.paint("Your instructions for every session", BOLD))
    lines += [f"  {clean_line(line)}" for line in text.splitlines()] or ["  none"]
    lines.append(chat.theme.paint("  change: /memory edit", DIM))
    return [*lines, chat.theme.paint(f"  {file}", DIM)]


async def _edit(chat: Chat) -> None:
    user = chat.user
    before = await user.instructions()
    after = await chat.edit(before)
    if after == before:
        chat.show(["Nothing was changed."])
        return
    await user.set_instructions(after)
    chat.show(["Saved. New sessions read it; this one goes on with what it read at its start."])


COMMAND = SlashCommand("memory", "what the agent keeps; your own instructions", _run, USAGE)
