"""``agent mcp …``: which MCP servers there are, and how they are added, tried and logged in to.

Law: to list and to change starts no server and asks nobody; what is printed holds no key; what a
file of a project names is shown, and wants a yes, before it is taken over.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcli.app.extensions.servers import (
    entries_of,
    find_servers,
    put_entries,
    root_of,
    waiting_servers,
)
from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.listing import EmptyOptions, FormatOption, print_json, print_table
from agentcli.cli.logging_setup import REDACTOR
from agentcli.cli.options import choice, number
from agentcli.cli.session_request import settings_here
from agentcli.domain.errors import UsageError
from agentcli.headless.errors import ExitCode
from agentcli.headless.streams import (
    is_terminal,
    typed_line,
    write_error_line,
    write_line,
    write_out,
)
from agentcli.ui.sanitize import clean_line, reveal

if TYPE_CHECKING:
    from agentcli.config.settings import Settings
    from agentcli.mcp.servers import McpServer

SCOPES = ("user", "local", "project")
TRANSPORTS = ("stdio", "http", "sse")
_OTHERS = (
    *("~/.claude.json", "~/.cursor/mcp.json", "~/.codex/config.toml", "~/.gemini/settings.json"),
)
_OTHERS = (
    "~/.claude.json",
    "~/.cursor/mcp.json",
    "~/.codex/config.toml",
    "~/.gemini/settings.json",
)
_WAITS = "waits for trust"
_SAID_LINES = 10


class ServerGetOptions(FormatOption):
    """Options of ``get``."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="A server.")]


class ServerRemoveOptions(OptionSet):
    """Options of ``remove``."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="A server.")]
    scope: Annotated[
        str | None,
        typer.Option("-s", "--scope", metavar="|".join(SCOPES), help="Where it is configured."),
    ] = None


class ServerAddOptions(OptionSet):
    """Options of ``add``."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]
    target: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND…|URL", help="The program and its arguments, or a URL."),
    ] = None
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Where a remote server is.")
    ] = None
    transport: Annotated[
        str | None,
        typer.Option(
            "-t", "--transport", metavar="|".join(TRANSPORTS), help="How it is spoken to."
        ),
    ] = None
    scope: Annotated[
        str,
        typer.Option(
            "-s",
            "--scope",
            metavar="|".join(SCOPES),
            help="For you everywhere, for you in this project, or in its .mcp.json.",
        ),
    ] = "user"
    env: Annotated[
        list[str] | None,
        typer.Option(
            "-e", "--env", metavar="NAME=VALUE", help="A variable of its environment; repeatable."
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            "-H", "--header", metavar="NAME:VALUE", help="A header of every request; repeatable."
        ),
    ] = None
    headers_helper: Annotated[
        str | None,
        typer.Option(
            "--headers-helper", metavar="COMMAND", help="Command that prints more headers."
        ),
    ] = None
    client_id: Annotated[
        str | None,
        typer.Option("--client-id", metavar="ID", help="The client that its login knows."),
    ] = None
    callback_port: Annotated[
        str | None,
        typer.Option("--callback-port", metavar="PORT", help="The port that its login returns to."),
    ] = None
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="MS", help="Longest wait for an answer.")
    ] = None
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Run it in the sandbox of commands.")
    ] = False
    pin: Annotated[
        bool, typer.Option("--pin", help="Offer its tools to the model by their own names.")
    ] = False


class ServerTestOptions(FormatOption):
    """Options of ``test``."""

    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A server. None: all of them.")
    ] = None


class ServerNameOptions(OptionSet):
    """Options of ``logout``."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="A server.")]


class ServerLoginOptions(ServerNameOptions):
    """Options of ``login``."""

    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = (
        False
    )


class ImportOptions(OptionSet):
    """Options of ``import``."""

    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="Such as ~/.claude.json. None: which there are."),
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", help="Also what a file of this project names, unasked.")
    ] = False


# --- what there is ------------------------------------------------------------------------------


def list_(options: FormatOption) -> int:
    """The servers of this directory and how each stands."""
    settings, warnings = settings_here()
    rows = list(_rows(settings, warnings))
    if options.as_json:
        print_json(rows)
    elif rows:
        columns = ("name", "scope", "transport", "state", "target")
        cells = [tuple(clean_line(str(row[column])) for column in columns) for row in rows]
        print_table(tuple(column.upper() for column in columns), cells)
    else:
        write_error_line("no MCP server is configured; to add one: agent mcp add --help")
    return 0


def _rows(settings: Settings, warnings: Sequence[str]) -> Iterator[dict[str, Any]]:
    found = find_servers(settings, Path.cwd())
    for server in found.servers:
        yield _row(server, "on" if server.enabled else "switched off")
    waiting, notices = waiting_servers(settings, Path.cwd())
    for server in waiting:
        yield _row(server, _WAITS)
    for line in (*warnings, *found.notices, *notices):
        write_error_line(f"warning: {clean_line(line)}")


def _row(server: McpServer, state: str) -> dict[str, Any]:
    return {
        "name": server.name,
        "scope": str(server.scope),
        "transport": str(server.transport),
        "state": state,
        "target": server.shown,
        "source": server.source,
    }


def get(options: ServerGetOptions) -> int:
    """All that is set for a server; values that are keys are hidden."""
    from agentcli.mcp.servers import hidden

    settings, _ = settings_here()
    server, state = _named(settings, options.name)
    shown: dict[str, Any] = {
        **_row(server, state),
        "command": server.command,
        "args": list(server.args),
        "env": dict(server.env),
        "cwd": server.cwd,
        "url": server.url,
        "headers": dict(server.headers),
        "headersHelper": server.headers_command,
        "timeout_s": server.timeout_s,
        "startup_timeout_s": server.startup_timeout_s,
        "pin": server.pinned,
        "sandbox": server.sandboxed,
        "enabledTools": None if server.enabled_tools is None else list(server.enabled_tools),
        "disabledTools": list(server.disabled_tools),
        "oauth": {
            "clientId": server.oauth.client_id,
            "callbackPort": server.oauth.callback_port,
            "scopes": list(server.oauth.scopes),
        },
    }
    shown = {**hidden(shown), "source": server.source}
    shown = {key: value for key, value in shown.items() if value or key == "state"}
    if not any(shown.get("oauth", {}).values()):
        shown.pop("oauth", None)
    if options.as_json:
        print_json(shown)
    else:
        for key, value in shown.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            write_line(f"{key}: {clean_line(text)}")
    return 0


def _named(settings: Settings, name: str) -> tuple[McpServer, str]:
    servers = find_servers(settings, Path.cwd()).servers
    waiting, _ = waiting_servers(settings, Path.cwd())
    known = {each.name: (each, _WAITS) for each in waiting}
    known |= {each.name: (each, "on" if each.enabled else "switched off") for each in servers}
    if name not in known:
        raise unknown_server(name, list(known))
    return known[name]


def unknown_server(name: str, known: Sequence[str]) -> UsageError:
    """The error for a server that is not configured; names those that are like it."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=2, cutoff=0.5)
    there = f"there are {', '.join(known)}" if known else "to add one: agent mcp add --help"
    advice = f"did you mean {' or '.join(near)}?" if near else there
    return UsageError(f"there is no MCP server {clean_line(name)}", advice)


# --- changes ------------------------------------------------------------------------------------


def add(options: ServerAddOptions) -> int:
    """Write a server where ``--scope`` says."""
    from agentcli.mcp.servers import (
        AnyEnvironment,
        ServerPlace,
        ServerScope,
        UnusableEntry,
        read_server,
    )

    choice("--scope", options.scope, SCOPES)
    choice("--transport", options.transport, TRANSPORTS)
    settings, _ = settings_here()
    entry = _entry(options)
    place = ServerPlace(ServerScope(options.scope), "", AnyEnvironment())
    try:
        server = read_server(options.name, entry, place)
    except UnusableEntry as why:
        raise UsageError(f"the server {clean_line(options.name)} cannot be added: {why}") from None
    root = root_of(Path.cwd())
    if options.name in entries_of(settings, options.scope, root):
        raise UsageError(
            f"there is an MCP server {options.name} already ({options.scope})",
            f"remove it first: agent mcp remove {options.name} --scope {options.scope}",
        )
    put_entries(settings, options.scope, root, {options.name: entry})
    if server.secrets:
        write_error_line(
            "note: a key is in it; better name a variable that holds it: '${NAME}' (in quotes)"
        )
    has_key = any(name.lower() == "authorization" for name, _ in server.headers)
    how = "agent mcp login" if server.is_remote and not has_key else "agent mcp test"
    shown = reveal(server.shown)
    write_error_line(f"added {options.name} ({options.scope}): {shown}; next: {how} {options.name}")
    return 0


def _entry(options: ServerAddOptions) -> dict[str, Any]:
    """What is written down. Raises ``UsageError``."""
    words = list(options.target or ())
    is_address = len(words) == 1 and words[0].startswith(("http://", "https://"))
    url = options.url or (words[0] if is_address and options.transport != "stdio" else "")
    if options.url and words:
        raise UsageError("give a command or --url, not both", "see: agent mcp add --help")
    if not url and (not words or options.transport in {"http", "sse"}):
        raise UsageError(
            "say what the server is",
            f"agent mcp add {clean_line(options.name)} -- COMMAND…, or --url URL",
        )
    entry: dict[str, Any] = {}
    if url:
        if options.transport == "sse":
            entry["type"] = "sse"
        entry["url"] = url
    else:
        entry |= {"command": words[0], "args": words[1:]}
    pairs = {
        "env": _pairs("--env", options.env, "="),
        "headers": _pairs("--header", options.header, ":"),
        "oauth": {
            key: value
            for key, value in (
                ("clientId", options.client_id),
                ("callbackPort", number("--callback-port", options.callback_port, int)),
            )
            if value
        },
        "headersHelper": options.headers_helper,
        "timeout": number("--timeout", options.timeout, int),
        "sandbox": options.sandbox,
        "pin": options.pin,
    }
    for key in ("headers", "headersHelper", "oauth") if not url else ("env", "sandbox"):
        if pairs[key]:
            kind = "a remote server" if key != "env" and not url else "a local one"
            raise UsageError(f"{key} belongs to {kind}", "leave it out")
    return entry | {key: value for key, value in pairs.items() if value}


def _pairs(option: str, texts: Sequence[str] | None, sign: str) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, given, value = text.partition(sign)
        if not given or not name.strip():
            raise UsageError(f"{option} is not valid", f"write it as NAME{sign}VALUE")
        found[name.strip()] = value.strip() if sign == ":" else value
    return found


def remove(options: ServerRemoveOptions) -> int:
    """Remove a server from where it is configured."""
    choice("--scope", options.scope, SCOPES)
    settings, _ = settings_here()
    root = root_of(Path.cwd())
    scopes = [options.scope] if options.scope else SCOPES
    places = [each for each in scopes if options.name in entries_of(settings, each, root)]
    if not places:
        servers = {each.name: each for each in find_servers(settings, Path.cwd()).servers}
        if (there := servers.get(options.name)) is not None:
            raise UsageError(
                f"{options.name} is of {there.source}",
                "/mcp in the chat switches it off"
                if str(there.scope) == "plugin"
                else f"its scope is {there.scope}",
            )
        raise unknown_server(options.name, list(servers))
    if len(places) > 1:
        raise UsageError(
            f"{options.name} is configured more than once", f"say which: --scope {'|'.join(places)}"
        )
    put_entries(settings, places[0], root, {options.name: None})
    write_error_line(f"removed {options.name} ({places[0]})")
    return 0


# --- real servers -------------------------------------------------------------------------------


def test(options: ServerTestOptions) -> int:
    """Start servers, or call them, and say what they have; 1 if one cannot be used."""
    from agentcli.app.extensions.mcp import try_servers

    settings, _ = settings_here()
    servers = _chosen(settings, options.name)
    if not servers:
        write_error_line("no MCP server is configured; to add one: agent mcp add --help")
    rows = asyncio.run(try_servers(settings, servers, REDACTOR.add))
    if options.as_json:
        print_json(rows)
    for row in () if options.as_json else rows:
        what = f"{row['version']} ({row['protocol']}), {len(row['tools'])} tools"
        says = what if row["is_ok"] else f"{row['state']}: {row['problem']}"
        write_line(f"{row['name']}: {clean_line(says)}")
        if options.name and row["is_ok"]:
            write_out("".join(f"  {clean_line(tool)}\n" for tool in row["tools"]))
        for line in () if row["is_ok"] else row["stderr"][-_SAID_LINES:]:
            write_line(f"  {clean_line(line)}")
    return 0 if all(row["is_ok"] for row in rows) else int(ExitCode.FAILED)


def _chosen(settings: Settings, name: str | None) -> list[McpServer]:
    if name is None:
        found = find_servers(settings, Path.cwd())
        for line in found.notices:
            write_error_line(f"warning: {clean_line(line)}")
        return [each for each in found.servers if each.enabled]
    server, state = _named(settings, name)
    if state == _WAITS:
        raise UsageError(
            f"{name} is the project's, which is not trusted", 'start "agent" there to decide'
        )
    return [server if server.enabled else replace(server, enabled=True)]


def login(options: ServerLoginOptions) -> int:
    """Log in to a server, in the browser."""
    from agentcli.app.extensions.logins import ServerLogins

    settings, _ = settings_here()
    (server,) = _chosen(settings, options.name)
    logins = ServerLogins(settings.paths, settings.env, REDACTOR.add)
    browse = partial(_browse, settings, no_browser=options.no_browser)
    write_error_line(asyncio.run(logins.log_in(server, browse)))
    return 0


async def _browse(settings: Settings, url: str, *, no_browser: bool) -> str:
    """Show the address; what the user brings back by hand, if anything."""
    from agentcli.app.extensions.logins import open_browser

    is_shown = not no_browser and open_browser(url, settings.env, root_of(Path.cwd()))
    how = "Go on in the browser" if is_shown else "Open this address in a browser"
    write_error_line(f"{how}: {url}")
    if not is_terminal(sys.stdin):
        return ""
    write_error_line("If it ends on a page that cannot be shown, paste that page's address here:")
    return (await typed_line()).strip()


def logout(options: ServerNameOptions) -> int:
    """Forget the login to a server."""
    from agentcli.app.extensions.logins import ServerLogins

    settings, _ = settings_here()
    server, _ = _named(settings, options.name)
    is_gone = ServerLogins(settings.paths, settings.env).log_out(server)
    said = f"logged out of {options.name}" if is_gone else f"there was no login to {options.name}"
    write_error_line(said)
    return 0


# --- servers of other agents --------------------------------------------------------------------


def take_over(options: ImportOptions) -> int:
    """Take over what another agent's file names; what is there already stays."""
    from agentcli.mcp.others import servers_of_file

    settings, _ = settings_here()
    if options.file is None:
        return _say_what_there_is()
    root = root_of(Path.cwd())
    path = Path(options.file).expanduser().absolute()
    found = servers_of_file(path, root)
    for line in found.notices:
        write_error_line(f"warning: {clean_line(line)}")
    news: dict[str, dict[str, Mapping[str, Any]]] = {"user": {}, "local": {}}
    for scope, name, entry, shown in found.entries:
        if name in entries_of(settings, scope, root):
            write_error_line(f"{name} is there already ({scope}) and stays as it is")
        else:
            news[scope][name] = entry
            write_error_line(f"{name} ({scope}): {reveal(shown)}")
    if not any(news.values()):
        write_error_line("nothing was imported")
        return 0
    real = Path(os.path.realpath(path))
    home = os.path.realpath(Path.home())
    is_of_project = real.is_relative_to(os.path.realpath(root)) and os.path.realpath(root) != home
    if is_of_project and not options.yes and not _agreed():
        write_error_line(
            "nothing was imported: the file is the project's own;"
            f" for a yes to the above: agent mcp import {options.file} --yes"
        )
        return int(ExitCode.APPROVAL)
    for scope, entries in news.items():
        if entries:
            put_entries(settings, scope, root, entries)
    count = sum(map(len, news.values()))
    write_error_line(f"imported {count} {'server' if count == 1 else 'servers'}")
    return 0


def _say_what_there_is() -> int:
    there = [name for name in _OTHERS if Path(name).expanduser().is_file()]
    for name in there:
        write_line(f"agent mcp import {name}")
    if not there:
        write_error_line(f"none of {', '.join(_OTHERS)} is there; give a FILE")
    return 0


def _agreed() -> bool:
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        return False
    sys.stderr.write("Import them? They are started when they are needed. [y]es / [n]o: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def serve(options: EmptyOptions) -> int:
    """Say that this is no server."""
    del options
    raise UsageError(
        "agent mcp serve is out of scope for now: agentcli is no MCP server",
        "editors and programs can use: agent run -o stream-json",
    )


APP = new_app("Servers of the Model Context Protocol, whose tools the model may use.", "list")
add_command(APP, CommandSpec("list", "The servers of this directory."), FormatOption, list_)
add_command(APP, CommandSpec("get", "Show the settings of a server."), ServerGetOptions, get)
add_command(
    APP,
    CommandSpec(
        "add",
        "Add a server: NAME -- COMMAND ARGUMENTS…, or NAME --url URL.",
        "Example: agent mcp add files -- npx -y @modelcontextprotocol/server-filesystem .",
    ),
    ServerAddOptions,
    add,
)
add_command(APP, CommandSpec("remove", "Remove a server."), ServerRemoveOptions, remove)
add_command(
    APP, CommandSpec("test", "Start servers and say what they have."), ServerTestOptions, test
)
add_command(APP, CommandSpec("login", "Log in to a server."), ServerLoginOptions, login)
add_command(APP, CommandSpec("logout", "Forget a login."), ServerNameOptions, logout)
add_command(
    APP,
    CommandSpec("import", "Take over the servers of another agent's file."),
    ImportOptions,
    take_over,
)
add_command(APP, CommandSpec("serve", "Not supported: be a server."), EmptyOptions, serve)
