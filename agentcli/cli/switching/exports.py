"""``agent sessions show`` and ``export``: a session to read, or for other programs (CLI-8)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command
from agentcli.cli.listing import FormatOption, prices, session_files, wait
from agentcli.cli.options import choice
from agentcli.domain.errors import StoreError
from agentcli.headless.streams import use_utf8, write_error_line, write_out

if TYPE_CHECKING:
    from agentcli.domain.session import SessionInfo
    from agentcli.store.files import SessionFiles
    from agentcli.ui.atif import SessionRecord

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
    text = exported_text(files, wait(files.resolve(options.id)), export_format)
    _print_exported(text, export_format)
    return 0


def export_(options: ExportOptions) -> int:
    """One session as a file for others."""
    from agentcli.cli.redacting import write_named

    choice("--format", options.format, EXPORT_FORMATS)
    files = session_files()
    text = exported_text(files, wait(files.resolve(options.id)), options.format)
    if options.output is None or options.output == "-":
        _print_exported(text, options.format)
        return 0
    write_named(options.output, text, replace=options.force)
    return 0


def session_page(session_id: str) -> str | None:
    """The session of this home as a page; ``None`` where there is none that can be read."""
    files = session_files()
    with suppress(StoreError):
        if files.path_of(session_id).exists():
            return exported_text(files, session_id, "html")
    return None


def exported_text(files: SessionFiles, session_id: str, export_format: str) -> str:
    """The session in one of ``EXPORT_FORMATS``, without keys."""
    from agentcli.cli.redacting import exported, know_secrets
    from agentcli.domain.accounts import call_costs
    from agentcli.store.files import ledger_of, read_session
    from agentcli.ui import export

    path = files.path_of(session_id)
    if export_format == "atif":
        return _trajectory(files, session_id)
    loaded = read_session(path, hidden=True)
    know_secrets()
    if export_format == "md":
        text: str = exported(export.export_markdown(loaded))
        return text
    ledger = ledger_of(path)
    costs = call_costs(ledger, prices())
    if export_format == "json":
        return export.export_json_text(loaded, exported, costs)
    from agentcli.ui.session_page import export_html

    page: str = exported(export_html(loaded, ledger, costs))
    return page


def _print_exported(text: str, export_format: str) -> None:
    """JSON and HTML are UTF-8 whatever the locale; Markdown is for reading here."""
    if export_format != "md":
        use_utf8()
    write_out(text)


# --- with its sub-agents ---------------------------------------------------------------------


def _trajectory(files: SessionFiles, session_id: str) -> str:
    from agentcli.cli.redacting import exported, know_secrets
    from agentcli.ui.atif import export_atif
    from agentcli.ui.sanitize import safe_json

    know_secrets()
    agents: dict[str, list[SessionInfo]] = {}
    for info in wait(files.agents_of([session_id])):
        agents.setdefault(info.parent_id or "", []).append(info)
    value: Any = exported(export_atif(_record(files, session_id, agents)))
    return safe_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n"


def _record(
    files: SessionFiles, session_id: str, agents: dict[str, list[SessionInfo]]
) -> SessionRecord:
    """The session with those of its sub-agents in order; a damaged one is left out."""
    from agentcli.store.files import ledger_of, read_call_id, read_session
    from agentcli.ui.atif import SessionRecord

    path = files.path_of(session_id)
    found = []
    # each once: a file may name any other as its parent
    for info in agents.pop(session_id, ()):
        try:
            found.append(_record(files, info.id, agents))
        except StoreError as error:
            write_error_line(f"warning: without the sub-agent's session {info.id}: {error.message}")
    loaded = read_session(path, hidden=True)
    return SessionRecord(loaded, ledger_of(path), read_call_id(path), tuple(found))


def add_to(app: typer.Typer) -> None:
    """Add the commands to the group of those for sessions."""
    add_command(app, CommandSpec("show", "Print a session."), SessionShowOptions, show)
    help_text = "Write a session as JSON, Markdown, HTML or an ATIF trajectory."
    add_command(app, CommandSpec("export", help_text), ExportOptions, export_)
