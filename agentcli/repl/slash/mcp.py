"""``/mcp``: the MCP servers of the session; start one again, log in, switch it off (MCP-1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentcli.domain.errors import UsageError
from agentcli.domain.extensions.mcp import ServerFacts, ServerStatus
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import BOLD, DIM, ERROR, WARNING

if TYPE_CHECKING:
    from agentcli.app.extensions.user_servers import UserServers

_VERBS = ("restart", "login", "logout", "on", "off")
_HOW = "/mcp NAME shows one; /mcp restart|login|logout|on|off NAME"
_NONE = "No MCP server is in use. To add one: agent mcp add --help, then /reload."
_SAID_LINES = 20
_MOST_NAMED = 60


async def _run(chat: Chat, arguments: str) -> None:
    from agentcli.app.extensions.user_servers import UserServers  # only with servers

    verb, _, name = arguments.strip().partition(" ")
    name = name.strip()
    found = chat.session.extensions
    servers = UserServers(found.servers, chat.user.settings, chat.user.cwd, found.watch)
    if not servers.by_name:
        chat.show([_NONE])
    elif not verb:
        lines = [_line(chat, each) for each in _facts(chat, servers)]
        chat.show([*lines, chat.theme.paint(_HOW, DIM)])
    elif verb in _VERBS and name:
        await _do(chat, servers, verb, servers.named(name).name)
    elif name:
        raise UsageError(f"cannot do /mcp {clean_line(arguments)}", _HOW)
    else:
        wanted = servers.named(verb).name
        facts = next(each for each in _facts(chat, servers) if each.name == wanted)
        chat.show(list(_details(chat, facts, servers.by_name[wanted].source)))


async def _do(chat: Chat, servers: UserServers, verb: str, name: str) -> None:
    hub = chat.session.servers
    if verb in {"on", "off"}:
        await servers.switch(name, on=verb == "on")
        said = f"{name} is switched {verb} in this project: /reload, or the next session, obeys."
        chat.show([said])
    elif verb == "logout":
        is_gone = await servers.log_out(name)
        chat.show([f"Logged out of {name}." if is_gone else f"There was no login to {name}."])
    elif verb == "login":

        def show(line: str) -> None:
            chat.show([clean_line(line)])

        label = f"/mcp login {name}"
        done = await chat.work(lambda token: servers.log_in(name, show, token), label)
        if done is None:
            chat.show(["Not logged in."])
            return
        chat.show([clean_line(done)])
        if hub is not None and name in hub.names:
            await chat.work(lambda token: hub.restart(name, token), f"starting {name}")
    elif hub is None or name not in hub.names:
        raise UsageError(f"{name} is not used in this session", f"/mcp on {name}, then /reload")
    else:
        await chat.work(lambda token: hub.restart(name, token), f"starting {name}")
        facts = next(each for each in hub.facts() if each.name == name)
        chat.show([_line(chat, facts)])


def _facts(chat: Chat, servers: UserServers) -> list[ServerFacts]:
    """Of all that are configured, as they stand."""
    hub = chat.session.servers
    known = {each.name: each for each in hub.facts()} if hub is not None else {}
    return [
        known.get(name)
        or ServerFacts(
            name, ServerStatus.IDLE if each.enabled else ServerStatus.OFF, where=each.shown
        )
        for name, each in servers.by_name.items()
    ]


def _line(chat: Chat, facts: ServerFacts) -> str:
    paint = chat.theme.paint
    match facts.status:
        case ServerStatus.LOGIN:
            state = paint(f"needs a login: /mcp login {facts.name}", WARNING)
        case ServerStatus.FAILED:
            state = paint(f"failed: {clean_line(facts.problem)}", ERROR)
        case ServerStatus.READY:
            count = len(facts.tools)
            state = f"ready, {count} {'tool' if count == 1 else 'tools'}"
        case _:
            state = str(facts.status)
    where = paint(f" ({clean_line(facts.where)})", DIM) if facts.where else ""
    return f"{paint(facts.name, BOLD)}: {state}{where}"


def _details(chat: Chat, facts: ServerFacts, source: str) -> Iterator[str]:
    yield _line(chat, facts)
    yield f"  configured in {clean_line(source)}"
    if facts.version:
        yield f"  {clean_line(facts.version)}, protocol {facts.protocol}"
    for kind, names in (
        ("tools", [each.name for each in facts.tools]),
        ("prompts", [each.name for each in facts.prompts]),
        ("resources", [each.name for each in facts.resources]),
    ):
        if names:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield f"  {kind}: {clean_line(', '.join(names[:_MOST_NAMED]))}{more}"
    said = facts.said.splitlines()[-_SAID_LINES:]
    if said:
        yield "  it said last:"
        yield from (chat.theme.paint(f"    {clean_line(line)}", DIM) for line in said)


def _words(chat: Chat) -> list[str]:
    names = [each.name for each in chat.session.extensions.servers]
    return [*names, *(f"{verb} {name}" for verb in _VERBS for name in names)]


COMMAND = SlashCommand(
    "mcp",
    "MCP servers: how they stand; start one again, log in, switch off",
    _run,
    "[[restart|login|logout|on|off] NAME]",
    while_working=True,
    completes=_words,
)
