"""``agent sessions show`` and ``export``: a session to read, or for other programs (CLI-8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command
from agentcli.cli.listing import FormatOption, prices, session_files, wait
from agentcli.cli.options import choice
from agentcli.domain.errors import StoreError
from agentcli.headless.streams import use_utf8, write_error_line, write_pieces

if TYPE_CHECKING:
    from agentcli.domain.session import SessionInfo
    from agentcli.store.files import SessionFiles

EXPORT_FORMATS = ("json", "md", "html", "atif")
_ID_HELP = "Id, its beginning or end, or name."


class SessionShowOptions(FormatOption):
    """Options of ``show``."""

    id: Annotated[str, typer.Argument(metavar="ID", help=_ID_HELP)]


class ExportOptions(OptionSet):
    """Options of ``export``."""

    id: Annotated[str, typer.Argument(metavar="ID", help=_ID_HELP)]
    format: Annotated[
        str, typer.Option("--format", metavar="json|md|html|atif", help="What to write.")
    ] = "json"
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write to FILE.")
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False


def show(options: SessionShowOptions) -> int:
    """One session to read."""
    export_format = "json" if options.as_json else "md"
    files = session_files()
    _print_exported(files, wait(files.resolve(options.id)), export_format)
    return 0


def export_(options: ExportOptions) -> int:
    """One session as a file for others."""
    from agentcli.cli.redacting import write_named

    choice("--format", options.format, EXPORT_FORMATS)
    files = session_files()
    session_id = wait(files.resolve(options.id))
    if options.output is None or options.output == "-":
        _print_exported(files, session_id, options.format)
        return 0
    pieces = exported_pieces(files, session_id, options.format)
    write_named(options.output, pieces, replace=options.force)
    return 0


def session_page(session_id: str) -> str | None:
    """The session of this home as a page; ``None`` where there is none that can be read."""
    files = session_files()
    with suppress(StoreError):
        if files.path_of(session_id).exists():
            return "".join(exported_pieces(files, session_id, "html"))
    return None


def exported_pieces(files: SessionFiles, session_id: str, export_format: str) -> Iterator[str]:
    """The session in one of ``EXPORT_FORMATS``, without keys; no more than a row of it is held."""
    from agentcli.cli.redacting import exported, know_secrets
    from agentcli.domain.accounts import call_costs
    from agentcli.store.files import ledger_of
    from agentcli.store.reads import reading
    from agentcli.ui import export

    know_secrets()
    if export_format == "atif":
        for trajectory in _trajectories(files, [session_id], _agents(files, session_id)):
            yield from export.json_pieces(trajectory, exported)
        yield "\n"
        return
    path = files.path_of(session_id)
    with reading(path) as session:
        if export_format == "md":
            yield from map(exported, export.export_markdown(session))
            return
        ledger = ledger_of(path)
        costs = call_costs(ledger, prices())
        if export_format == "html":
            from agentcli.ui.session_page import export_html

            yield from map(exported, export_html(session, ledger, costs))
        else:
            yield from export.json_pieces(export.export_json(session, costs), exported)
            yield "\n"


def _print_exported(files: SessionFiles, session_id: str, export_format: str) -> None:
    """JSON and HTML are UTF-8 whatever the locale; Markdown is for reading here."""
    if export_format != "md":
        use_utf8()
    write_pieces(exported_pieces(files, session_id, export_format))


# --- with its sub-agents ---------------------------------------------------------------------

Agents = dict[str, list[str]]
"""Which sessions were begun by which, by their ids."""


def _agents(files: SessionFiles, session_id: str) -> Agents:
    agents: Agents = {}
    for info in wait(files.agents_of([session_id])):
        agents.setdefault(info.parent_id or "", []).append(info.id)
    return agents


def _trajectories(
    files: SessionFiles, ids: Sequence[str], agents: Agents
) -> Iterator[dict[str, Any]]:
    """Those of ``ids`` with their sub-agents in order, each read while it is the last one given."""
    from agentcli.store.files import ledger_of, read_call_id
    from agentcli.store.reads import reading
    from agentcli.ui.atif import export_atif

    for session_id in ids:
        path = files.path_of(session_id)
        # each once: a file may name any other as its parent
        own = list(_sound(files, agents.pop(session_id, ())))
        begun: dict[str, list[SessionInfo]] = {}
        for info in own:
            begun.setdefault(read_call_id(files.path_of(info.id)), []).append(info)
        of_own = _trajectories(files, [info.id for info in own], agents)
        with reading(path) as session:
            yield export_atif(session, ledger_of(path), begun, of_own)


def _sound(files: SessionFiles, ids: Iterable[str]) -> Iterator[SessionInfo]:
    """Those that can be read to their end."""
    from agentcli.store.files import ledger_of
    from agentcli.store.reads import reading

    for session_id in ids:
        path = files.path_of(session_id)
        try:
            with reading(path) as session:
                deque(chain(session.messages, session.tool_runs), maxlen=0)
            ledger_of(path)
        except StoreError as error:
            write_error_line(
                f"warning: without the sub-agent's session {session_id}: {error.message}"
            )
        else:
            yield session.info


def add_to(app: typer.Typer) -> None:
    """Add the commands to the group of those for sessions."""
    add_command(app, CommandSpec("show", "Print a session."), SessionShowOptions, show)
    help_text = "Write a session as JSON, Markdown, HTML or an ATIF trajectory."
    add_command(app, CommandSpec("export", help_text), ExportOptions, export_)
