"""``agent sessions import``: sessions of Claude Code, Codex and opencode, and our own JSON (CLI-8).

Law: ids go to stdout, all words to stderr; one file that cannot be imported never keeps the others
from it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcli.cli.commands import CommandSpec, add_command
from agentcli.cli.listing import FormatOption, prices, print_json, print_table, session_files
from agentcli.cli.options import choice, number
from agentcli.domain.errors import AgentError, UsageError
from agentcli.headless.streams import is_terminal, write_error_line, write_out
from agentcli.ui import wording
from agentcli.ui.sanitize import clean_line

if TYPE_CHECKING:
    from agentcli.store.imports.bring import ImportedSession, Importer
    from agentcli.store.imports.places import FoundSession

PROGRAMS = ("claude", "codex")


class SessionImportOptions(FormatOption):
    """Options of ``import``."""

    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="A session's file, a directory of them, - for stdin; with --from an id.",
        ),
    ] = None
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="claude|codex",
            help="The sessions that Claude Code or Codex held in this directory.",
        ),
    ] = None
    listing: Annotated[
        bool, typer.Option("--list", help="Only list what there is for this directory.")
    ] = False
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="N", help="At most N, the newest.")
    ] = None


def import_(options: SessionImportOptions) -> int:
    """Take sessions of other programs along; prints their ids here."""
    as_json, names = options.as_json, options.files or []
    limit = number("--limit", options.limit, int)
    if options.source is not None:
        choice("--from", options.source, PROGRAMS)
    if options.listing or options.source is not None:
        found = _found(options.source, names)[:limit]
        if options.listing:
            return _listed(found, as_json=as_json)
        paths: Sequence[Path | None] = [each.path for each in reversed(found)]
    elif names:
        paths = list(_paths(names))[:limit]
    else:
        raise UsageError(
            "FILE is missing",
            "name a session's file, or see what there is: agent sessions import --list",
        )
    return _imported(paths, as_json=as_json)


# --- what there is ---------------------------------------------------------------------------


def _found(program: str | None, ids: Sequence[str]) -> Sequence[FoundSession]:
    """What was held in this directory, newest first; with ``ids`` those alone."""
    from agentcli.store.imports.places import found_sessions

    found = found_sessions(Path.cwd(), os.environ, (program,) if program else PROGRAMS)
    if not ids:
        return found
    chosen = [each for each in found if any(_is_called(each, wanted) for wanted in ids)]
    for wanted in ids:
        if not any(_is_called(each, wanted) for each in found):
            raise UsageError(
                f"there is no session {wanted!r} of this directory",
                "see: agent sessions import --list",
            )
    return chosen


def _is_called(found: FoundSession, wanted: str) -> bool:
    return bool(wanted) and found.id.startswith(wanted)


def _listed(found: Sequence[FoundSession], *, as_json: bool) -> int:
    from agentcli.ui.export import iso_time

    if as_json:
        print_json(
            [
                {
                    "from": each.program,
                    "id": each.id,
                    "title": each.title,
                    "updated_at": iso_time(each.updated_at),
                    "path": str(each.path),
                }
                for each in found
            ]
        )
        return 0
    if not found:
        write_error_line("Claude Code and Codex have no sessions of this directory")
        return 0
    rows = [
        (
            each.program,
            each.id,
            iso_time(each.updated_at)[:16].replace("T", " "),
            each.title or "-",
        )
        for each in found
    ]
    print_table(("FROM", "ID", "UPDATED (UTC)", "TITLE"), rows)
    write_error_line("import one: agent sessions import --from PROGRAM ID; without ID: all")
    return 0


# --- taking along ----------------------------------------------------------------------------


def _paths(names: Sequence[str]) -> Iterator[Path | None]:
    """The files that ``names`` mean; ``None`` is stdin."""
    from agentcli.store.imports.places import session_files as files_in

    for name in names:
        path = Path(name)
        if name == "-":
            if is_terminal(sys.stdin):
                raise UsageError("nothing is piped in", "name a file, or pipe one into -")
            yield None
        elif path.is_dir():
            yield from files_in(path)
        else:
            yield path


def _imported(paths: Sequence[Path | None], *, as_json: bool) -> int:
    importer = _importer()
    done: list[ImportedSession] = []
    failures: list[AgentError] = []
    for path in paths:
        try:
            done.append(_import_one(importer, path))
        except AgentError as error:
            if len(paths) == 1:
                raise
            failures.append(error)
            write_error_line(f"left alone: {clean_line(str(error))}")
            continue
        _tell(done[-1], as_json=as_json)
    if as_json:
        print_json([_as_json(each) for each in done])
    if not paths:
        write_error_line("there is nothing to import")
    return 1 if failures and not done else 0


def _import_one(importer: Importer, path: Path | None) -> ImportedSession:
    from agentcli.store.imports.reading import opened

    if path is None:
        return importer.bring_in(importer.read(sys.stdin.buffer, "what was piped in"))
    with opened(path) as stream:
        return importer.bring_in(importer.read(stream, str(path), path))


def _importer() -> Importer:
    """Prices and redaction are those of every session that is begun here."""
    from agentcli.cli.logging_setup import REDACTOR
    from agentcli.cli.redacting import know_secrets
    from agentcli.store.imports.bring import Importer

    know_secrets()
    return Importer(session_files(), Path.cwd(), prices(), REDACTOR.redact_known)


def _tell(done: ImportedSession, *, as_json: bool) -> None:
    about = f'{wording.program(done.origin.format)}: "{clean_line(done.title)}"'
    if not done.is_new:
        write_error_line(
            f"imported before - {about}; go on with it: agent resume {done.id};"
            f" a copy: agent sessions fork {done.id}"
        )
    else:
        agents = f" and {done.agents} of sub-agents" if done.agents else ""
        write_error_line(
            f"imported from {about}, {done.messages} messages{agents};"
            f" go on with it: agent resume {done.id}"
        )
    if done.left_out:
        what = ", ".join(f"{count} x {clean_line(name)}" for name, count in done.left_out.items())
        write_error_line(f"  left out: {what}")
    if not as_json:
        write_out(f"{done.id}\n")


def _as_json(done: ImportedSession) -> dict[str, Any]:
    return {
        "id": done.id,
        "title": done.title,
        "from": done.origin.format,
        "source_id": done.origin.id,
        "messages": done.messages,
        "agents": done.agents,
        "is_new": done.is_new,
        "left_out": dict(done.left_out),
    }


def add_to(app: typer.Typer) -> None:
    """Add the command to the group of those for sessions."""
    help_text = "Import sessions of Claude Code, Codex and opencode."
    add_command(app, CommandSpec("import", help_text), SessionImportOptions, import_)
