"""``agent sessions ...``: the session files, seen from outside (CLI-8)."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.listing import (
    EmptyOptions,
    FormatOption,
    print_json,
    print_table,
    session_files,
    wait,
)
from agentcli.cli.options import number
from agentcli.cli.redacting import exported, know_secrets
from agentcli.cli.sessions.stats import StatsOptions, stats_tables
from agentcli.config.paths import Paths, ensure_dir
from agentcli.domain.errors import AgentError, SessionTooNew, StoreError, UsageError
from agentcli.headless.streams import is_terminal, write_error_line, write_line, write_out
from agentcli.ui.sanitize import clean_line

if TYPE_CHECKING:
    from agentcli.store.files import SessionFiles

_ID_HELP = "Id, its beginning or end, or name."


class SessionListOptions(FormatOption):
    """Options of ``list``."""

    limit: Annotated[
        str | None, typer.Option("--limit", metavar="N", help="At most N, the newest.")
    ] = None
    here: Annotated[bool, typer.Option("--here", help="Only those of this directory.")] = False
    all: Annotated[bool, typer.Option("--all", help="Of sub-agents and batches, too.")] = False


class SessionArgument(OptionSet):
    """One session."""

    id: Annotated[str, typer.Argument(metavar="ID", help=_ID_HELP)]


class SomeIds(FormatOption):
    """Any number of sessions; none means all."""

    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help=_ID_HELP + " None: all.")
    ] = None


_MAX_ROWS = 1000
_PROGRESS_STEP = 1000
_WORTH_SAYING = 200  # sessions to be indexed: some seconds
_MAX_EVENT = 200
_MAX_READ = 20_000


class SessionEventsOptions(FormatOption, SessionArgument):
    """Options of ``events``."""


class ForkOptions(FormatOption, SessionArgument):
    """Options of ``fork``."""

    at: Annotated[
        str | None,
        typer.Option("--at", metavar="SEQ", help="As it was right after message SEQ."),
    ] = None


class RenameOptions(SessionArgument):
    """Options of ``rename``."""

    name: Annotated[list[str], typer.Argument(metavar="NAME", help="The new name.")]


class DeleteOptions(OptionSet):
    """Options of ``delete``."""

    ids: Annotated[list[str], typer.Argument(metavar="ID", help=_ID_HELP)]
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False


class SearchOptions(FormatOption):
    """Options of ``search``."""

    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="What to look for.")] = (
        None
    )
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="PATH", help="Instead: what has touched this file."),
    ] = None
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="N", help="At most N places (50).")
    ] = None


def list_(options: SessionListOptions) -> int:
    """All sessions, newest first."""
    from agentcli.ui.export import iso_time, mark_of, session_object

    as_json = options.as_json
    limit = number("--limit", options.limit, int)
    here: set[str] = set()
    if options.here:
        here.add(os.environ.get("PWD", ""))
        with suppress(OSError):  # it is gone: its sessions are known by its name
            here.add(str(Path.cwd()))
    files = session_files()
    most = limit if limit is not None else (sys.maxsize if as_json else _MAX_ROWS)
    infos = wait(files.newest(most, here, agents=options.all))
    know_secrets()
    if as_json:
        print_json(exported(session_object(info)) for info in infos)
        return 0
    if not infos:
        more = "" if options.all else "; of sub-agents and batches: --all"
        write_error_line(f"no sessions yet - start one with: agent{more}")
        return 0
    rows = [
        (
            info.id,
            iso_time(info.updated_at)[:16].replace("T", " "),
            str(info.status),
            str(info.turns),
            info.model or "-",
            info.cwd or "-",
            exported(f"{mark_of(info)}{info.title or info.detail or '-'}"),
        )
        for info in infos
    ]
    print_table(
        ("ID", "UPDATED (UTC)", "STATE", "TURNS", "MODEL", "DIRECTORY", "TITLE"),
        rows,
        less=("MODEL", "TURNS", "DIRECTORY", "UPDATED (UTC)", "STATE"),
    )
    if limit is None and len(infos) == most:
        write_error_line(f"the {most} newest are shown - more with: --limit N, or search them")
    return 0


def events(options: SessionEventsOptions) -> int:
    """What a session said while it worked, in order, where that was kept."""
    from agentcli.store.files import read_events
    from agentcli.ui.export import iso_time

    files = session_files()
    found = read_events(files.path_of(wait(files.resolve(options.id))))
    know_secrets()
    if options.as_json:
        rows = ({"at": iso_time(each.at), "type": each.type, **each.data} for each in found)
        print_json(map(exported, rows))
        return 0
    each = None
    for each in found:
        # more than is shown: a key is known as a whole
        data = exported(json.dumps(each.data, ensure_ascii=False)[:_MAX_READ])
        line = data if len(data) <= _MAX_EVENT else data[: _MAX_EVENT - 1] + "…"
        write_out(f"{iso_time(each.at)} {clean_line(each.type)} {clean_line(line)}\n")
    if each is None:
        write_error_line("no events were kept - keep them: agent config set keep_events true")
    return 0


def fork(options: ForkOptions) -> int:
    """Copy a session; prints the id of the copy."""
    as_json = options.as_json
    files = session_files()
    source = wait(files.resolve(options.id))
    copy = files.fork(source, number("--at", options.at, int))
    if as_json:
        print_json({"id": copy, "parent_id": source})
    else:
        write_out(copy + "\n")
    return 0


def rename(options: RenameOptions) -> int:
    """Give a session a name."""
    name = " ".join(" ".join(options.name).split())
    if not name:
        raise UsageError("the name is empty", "give one: agent sessions rename ID NAME")
    files = session_files()
    path = files.path_of(wait(files.resolve(options.id)))

    async def change() -> None:
        from agentcli.store.sqlite import SqliteStore

        store = await SqliteStore.open(path)
        try:
            await store.set_title(name)
        finally:
            await store.aclose()

    wait(change())
    return 0


def delete(options: DeleteOptions) -> int:
    """Remove sessions for good."""
    files = session_files()
    ids = [wait(files.resolve(text)) for text in options.ids]
    if not options.yes and is_terminal(sys.stdin):
        what = "1 session" if len(ids) == 1 else f"{len(ids)} sessions"
        write_error_line(f"Delete {what} for good? [y/N]")
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            write_error_line("nothing was deleted")
            return 1
    elif not options.yes and ids != options.ids:
        # a whole id says what is meant; a name or a part of an id may fit another than was thought
        raise UsageError(
            f"nobody can be asked whether to delete {', '.join(ids)}",
            "give the whole id, or add --yes",
        )
    agents = [info.id for info in wait(files.agents_of(ids))]
    for session_id in (*ids, *agents):
        wait(files.delete(session_id))
        write_error_line(f"deleted: {session_id}")
    return 0


def check(options: SomeIds) -> int:
    """Check sessions for damage; exit code 1 if there is any."""
    from agentcli.store.repair.check import check as problems_of

    as_json = options.as_json
    files = session_files()
    if options.ids:
        ids = [wait(files.resolve(text)) for text in options.ids]
    else:
        ids = [info.id for info in wait(files.list())]
    found = {session_id: problems_of(files.path_of(session_id)) for session_id in ids}
    if as_json:
        print_json(
            [{"id": key, "ok": not value, "problems": value} for key, value in found.items()]
        )
    else:
        for session_id, problems in found.items():
            write_line(f"{session_id}: {'ok' if not problems else ''}".rstrip())
            for problem in problems:
                write_line(f"  {clean_line(problem)}")
            if problems and not _is_too_new(files.path_of(session_id)):
                write_line(f"  repair it with: agent sessions repair {session_id}")
    return 1 if any(found.values()) else 0


def _is_too_new(path: Path) -> bool:
    """Whether only a newer version can open the file: then there is nothing to repair."""
    from agentcli.store.files import read_info

    try:
        read_info(path)
    except SessionTooNew:
        return True
    except StoreError:
        return False
    return False


def repair(options: SessionArgument) -> int:
    """Repair a damaged session; the damaged file is kept beside it."""
    from agentcli.store.repair.repair import repair as repair_file

    files = session_files()
    path = files.path_of(_resolve_damaged(files, options.id))
    for line in repair_file(path).lines():
        write_error_line(line)
    return 0


def _resolve_damaged(files: SessionFiles, text: str) -> str:
    """An id is taken as it stands: a damaged file has no title to be found by."""
    try:
        if files.path_of(text).exists():
            return text
    except AgentError:
        pass
    return wait(files.resolve(text))


def reindex(_options: EmptyOptions) -> int:
    """Rebuild the catalogue from the session files."""
    ensure_dir(Paths.from_env(os.environ).data_dir)
    write_error_line(f"sessions indexed: {wait(session_files().reindex(_say_progress))}")
    return 0


def search(options: SearchOptions) -> int:
    """Find text in all sessions, and in what is known of projects."""
    as_json = options.as_json
    limit = number("--limit", options.limit, int)
    text = " ".join(options.text or ())
    if options.file is not None:
        if text:
            raise UsageError("TEXT and --file are two searches", "give one of them")
        touched = import_module("agentcli.cli.sessions.touched")
        code: int = touched.print_touches([(options.file, "")], limit, as_json=as_json)
        return code
    if not text:
        raise UsageError("TEXT is missing", "see: agent sessions search --help")
    files = session_files()
    hits = wait(files.search(text, 50 if limit is None else limit, _say_progress))
    if files.catalogue.losses:
        write_error_line("the index over all sessions was damaged: it has been built again")
    from agentcli.app.memory_start import find_in_memory

    known = find_in_memory(Paths.from_env(os.environ).memory_dir, text, limit or 50)
    know_secrets()
    if as_json:
        facts = [
            {"id": None, "seq": None, "excerpt": fact, "memory": project, "confirmed": holds}
            for project, fact, holds in known
        ]
        found = [{"id": hit.session_id, "seq": hit.seq, "excerpt": hit.excerpt} for hit in hits]
        print_json(exported([*facts, *found]))
    else:
        rows = [
            (f"memory of {project}", "" if holds else "unconfirmed", exported(fact))
            for project, fact, holds in known
        ]
        rows += [(hit.session_id, str(hit.seq), exported(hit.excerpt)) for hit in hits]
        print_table(("ID", "MESSAGE", "TEXT"), rows)
    return 0 if hits or known else 1


def _say_progress(done: int, total: int) -> None:
    """The first search may take a while."""
    if total < _WORTH_SAYING:
        return
    if done == 0:
        write_error_line(f"indexing {total} sessions; later searches need not")
    elif done % _PROGRESS_STEP == 0:
        write_error_line(f"indexed {done} of {total}")


APP = new_app(
    "List, show, search, import, export and repair sessions.",
    "list",
)
add_command(APP, CommandSpec("list", "All sessions, newest first."), SessionListOptions, list_)
import_module("agentcli.cli.switching.exports").add_to(APP)
add_command(
    APP,
    CommandSpec("events", "Print the events of a session that was run with keep_events."),
    SessionEventsOptions,
    events,
)
add_command(APP, CommandSpec("search", "Find text in all sessions."), SearchOptions, search)
import_module("agentcli.cli.switching.imports").add_to(APP)
add_command(
    APP,
    CommandSpec("fork", "Copy a session, also one in use; prints the id of the copy."),
    ForkOptions,
    fork,
)
add_command(APP, CommandSpec("rename", "Give a session a name."), RenameOptions, rename)
add_command(APP, CommandSpec("delete", "Remove sessions for good."), DeleteOptions, delete)
add_command(
    APP,
    CommandSpec("check", "Check sessions for damage; exit code 1 if there is any."),
    SomeIds,
    check,
)
add_command(
    APP,
    CommandSpec("stats", "Turns, tokens and cost, by model and by day."),
    StatsOptions,
    stats_tables,
)
add_command(
    APP,
    CommandSpec("repair", "Repair a damaged session; the damaged file is kept."),
    SessionArgument,
    repair,
)
add_command(
    APP,
    CommandSpec("reindex", "Rebuild the catalogue from the session files."),
    EmptyOptions,
    reindex,
)
