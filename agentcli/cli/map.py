"""``agent map``: what the files of a project define, and who uses it (MEM-3, CLI-9)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.listing import wait
from agentcli.cli.options import choice, number
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import UsageError
from agentcli.headless.streams import use_utf8, write_error_line, write_out
from agentcli.ui.sanitize import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentcli.app.codemap import ProjectMap
    from agentcli.domain.codemap import MapPicture, MapState

FORMATS = ("tree", "json", "dot", "html")
_MOST_ALIKE = 8
_DEFAULT_FILES = {"tree": 40, "dot": 60, "html": 200, "json": 400}


class MapOptions(OptionSet):
    """Options of ``map``."""

    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="A directory; default: this one.")
    ] = None
    format: Annotated[
        str, typer.Option("--format", metavar="|".join(FORMATS), help="How to show it.")
    ] = "tree"
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write to FILE.")
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="N", help="At most N files, those used most."),
    ] = None
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="FILE|FILE:SYMBOL|SYMBOL",
            help="Instead: what sessions did with a file, or changed of a symbol.",
        ),
    ] = None


def show_map(options: MapOptions) -> int:
    """The map of a directory."""
    choice("--format", options.format, FORMATS)
    if options.history is not None:
        from agentcli.cli.sessions.touched import print_touches

        choice("--format", options.format, ("tree", "json"))
        most = number("--limit", options.limit, int)
        return print_touches(_meant(options.history), most, as_json=options.format == "json")
    limit = number("--limit", options.limit, int) or _DEFAULT_FILES[options.format]
    root = Path(options.path or ".").expanduser()
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise UsageError(f"{clean_line(str(root))} {what}", "name a directory: agent map DIRECTORY")
    root = root.resolve()
    picture, state = _picture(root, limit)
    text = _text(options.format, root, picture, state)
    if options.output is not None and options.output != "-":
        from agentcli.cli.redacting import write_named

        write_named(options.output, text, replace=options.force)
        return 0
    if options.format != "tree":
        use_utf8()
    write_out(text)
    for note in state.notes if options.format == "tree" else ():
        write_error_line(f"note: {clean_line(note)}")
    return 0


def _meant(what: str) -> Sequence[tuple[str, str]]:
    """The files, and symbols in them, that a file, ``FILE:SYMBOL`` or a symbol's name means."""
    path, _, symbol = what.partition(":")
    if Path(what).expanduser().exists() or ("/" in what and not symbol):
        return [(what, "")]
    if symbol and not symbol.startswith(":"):
        return [(path, symbol)]
    from agentcli.cli.sessions.touched import symbol_parts

    root = Path.cwd()
    found, _ = wait(_project(root).symbols(what, "", None, CancelToken()))
    name = symbol_parts(what)[1]
    pairs = ((str(root / each.path), each.title) for each in found if each.name == name)
    return list(dict.fromkeys(pairs))[:_MOST_ALIKE] or [(what, "")]


def _picture(root: Path, limit: int) -> tuple[MapPicture, MapState]:
    project = _project(root)
    return wait(project.ask(lambda graph: graph.picture(limit=limit), CancelToken()))


def _project(root: Path) -> ProjectMap:
    from agentcli.app.codemap import ProjectMap
    from agentcli.config.paths import Paths

    return ProjectMap(Paths.from_env(os.environ).maps_dir, root)


def _text(shape: str, root: Path, picture: MapPicture, state: MapState) -> str:
    from agentcli.ui import map_page
    from agentcli.ui.wording import plural

    if shape == "json":
        return _json_text(picture, state)
    if shape == "dot":
        return map_page.dot_text(picture)
    if shape == "html":
        return map_page.map_page(f"Map of {root.name or root}", picture, state)
    lines = map_page.tree_lines(picture)
    found = f"{plural(state.files, 'file')}, {plural(state.symbols, 'symbol')}"
    head = f"{found}; the percentage is what is used most"
    return "\n".join((head, *lines)) + "\n"


def _json_text(picture: MapPicture, state: MapState) -> str:
    import json
    from dataclasses import asdict

    from agentcli.ui.sanitize import safe_json

    value = {"state": asdict(state), **asdict(picture)}
    return safe_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n"


APP = new_app("")
add_command(
    APP,
    CommandSpec("map", "What the files of a project define, and who uses it."),
    MapOptions,
    show_map,
)
