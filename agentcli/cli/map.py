"""``agent map``: what the files of a project define, and who uses it (MEM-3, CLI-9).

Law: names of files and symbols are somebody's text: escaped in the page, quoted in the graph,
cleaned in the tree. The page is bounded, and needs neither a script nor the network.
"""

from __future__ import annotations

import html
import json
import math
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
    from collections.abc import Iterable, Iterator, Sequence

    from agentcli.app.codemap import ProjectMap
    from agentcli.domain.codemap import FileLink, MappedFile, MapPicture, MapState

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

        write_named(options.output, [text], replace=options.force)
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
    from agentcli.domain.clean import plural

    if shape == "json":
        return _json_text(picture, state)
    if shape == "dot":
        return dot_text(picture)
    if shape == "html":
        return map_page(f"Map of {root.name or root}", picture, state)
    lines = tree_lines(picture)
    found = f"{plural(state.files, 'file')}, {plural(state.symbols, 'symbol')}"
    head = f"{found}; the percentage is what is used most"
    return "\n".join((head, *lines)) + "\n"


def _json_text(picture: MapPicture, state: MapState) -> str:
    from dataclasses import asdict

    from agentcli.ui.sanitize import safe_json

    value = {"state": asdict(state), **asdict(picture)}
    return safe_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n"


# --- a tree, a graph for Graphviz, a page -------------------------------------------------------

MAX_DRAWN = 60
MAX_LINKS = 300
MAX_NEIGHBOURS = 12
_SIZE, _RADIUS, _LABEL = 1000, 270, 34
_DOT_LINKS = 2_000


def tree_lines(picture: MapPicture) -> Iterator[str]:
    """Directory by directory, the files with what of them is used most."""
    directory = None
    for file in sorted(picture.files, key=lambda each: each.path.rpartition("/")):
        above, _, name = file.path.rpartition("/")
        if above != directory:
            directory = above
            yield clean_line(f"{above or '.'}/")
        names = ", ".join(f"{each.title}:{each.line}" for each in file.symbols)
        yield f"  {clean_line(name)}  {_percent(file.rank)}  {clean_line(names)}".rstrip()


def _percent(rank: float) -> str:
    return f"{rank:.1%}"


def dot_text(picture: MapPicture) -> str:
    """For Graphviz (https://graphviz.org/doc/info/lang.html)."""
    lines = ["digraph map {", "  rankdir=LR;", "  node [shape=box];"]
    lines += [f"  {_quoted(file.path)};" for file in picture.files]
    lines += [
        f"  {_quoted(link.user)} -> {_quoted(link.used)} [weight={max(1, round(link.weight))}];"
        for link in picture.links[:_DOT_LINKS]
    ]
    return "\n".join((*lines, "}")) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(clean_line(text), ensure_ascii=False)


# --- the page ------------------------------------------------------------------------------


def map_page(title: str, picture: MapPicture, state: MapState) -> str:
    """A page that draws who uses whom, and lists every file of the picture."""
    from agentcli.ui.charts import report_page

    some = f"the {len(picture.files):,} files that are used most are shown"
    shown = some if len(picture.files) < state.files else "all are shown"
    lead = [f"{state.files:,} files, {state.symbols:,} symbols; {shown}.", *state.notes]
    drawn = sorted(picture.files[:MAX_DRAWN], key=lambda file: file.path)
    numbers = {file.path: number for number, file in enumerate(picture.files)}
    sections = [
        ("Who uses whom", _circle(drawn, picture.links, numbers)),
        ("Files", "".join(_file(file, picture.links, numbers) for file in picture.files)),
    ]
    return report_page(title, lead, sections)


def _shown(text: str) -> str:
    return html.escape(clean_line(text))


def _circle(files: Sequence[MappedFile], links: Iterable[FileLink], numbers: dict[str, int]) -> str:
    """The files around a circle in the order of their paths, a curve for each use."""
    if not files:
        return "<p>There are no code files here.</p>"
    places = {
        file.path: 2 * math.pi * number / len(files) - math.pi / 2
        for number, file in enumerate(files)
    }
    inside = [link for link in links if link.user in places and link.used in places][:MAX_LINKS]
    most = max((link.weight for link in inside), default=1.0)
    shapes = [_curve(link, places, most) for link in inside]
    best = max(file.rank for file in files) or 1.0
    for file in files:
        shapes += _node(file, places[file.path], best, numbers[file.path])
    return (
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" role="img" width="100%"'
        ' aria-label="Files around a circle; a curve leads from a file to one that it uses">'
        f"{''.join(shapes)}</svg>"
        "<p>A curve leads from a file to one that it uses; larger points are used more. Click a"
        " name for what the file defines.</p>"
    )


def _at(angle: float, radius: float) -> tuple[float, float]:
    middle = _SIZE / 2
    return middle + radius * math.cos(angle), middle + radius * math.sin(angle)


def _curve(link: FileLink, places: dict[str, float], most: float) -> str:
    start, end = _at(places[link.user], _RADIUS), _at(places[link.used], _RADIUS)
    strength = math.sqrt(link.weight / most)
    told = f"{_shown(link.user)} uses {_shown(link.used)}"
    return (
        f'<path d="M{start[0]:.1f} {start[1]:.1f} Q{_SIZE / 2:.0f} {_SIZE / 2:.0f} {end[0]:.1f}'
        f' {end[1]:.1f}" fill="none" stroke="currentColor" stroke-width="{1 + 3 * strength:.1f}"'
        f' stroke-opacity="{0.1 + 0.5 * strength:.2f}"><title>{told}</title></path>'
    )


def _node(file: MappedFile, angle: float, best: float, number: int) -> list[str]:
    x, y = _at(angle, _RADIUS)
    text_x, text_y = _at(angle, _RADIUS + 16)
    turn = math.degrees(angle)
    is_left = math.cos(angle) < 0
    turn = turn + 180 if is_left else turn
    name = file.path if len(file.path) <= _LABEL else f"…{file.path[-_LABEL + 1 :]}"
    size = 3 + 9 * math.sqrt(file.rank / best)
    told = f"<title>{_shown(file.path)}, {_percent(file.rank)}</title>"
    point = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="currentColor">{told}</circle>'
    anchor = "end" if is_left else "start"
    label = (
        f'<a href="#f{number}"><text x="{text_x:.1f}" y="{text_y:.1f}" font-size="12"'
        f' fill="currentColor" dominant-baseline="middle" text-anchor="{anchor}"'
        f' transform="rotate({turn:.1f} {text_x:.1f} {text_y:.1f})">{_shown(name)}{told}</text></a>'
    )
    return [point, label]


def _file(file: MappedFile, links: Iterable[FileLink], numbers: dict[str, int]) -> str:
    uses = [link.used for link in links if link.user == file.path]
    users = [link.user for link in links if link.used == file.path]
    symbols = "".join(
        f"<li>{_shown(each.kind)} <b>{_shown(each.title)}</b> in line {each.line:,}</li>"
        for each in file.symbols
    )
    return (
        f'<article id="f{numbers[file.path]}"><h3>{_shown(file.path)}</h3>'
        f"<p>{_percent(file.rank)} of all use.{_linked(' Used by: ', users, numbers)}"
        f"{_linked(' Uses: ', uses, numbers)}</p><ul>{symbols}</ul></article>"
    )


def _linked(head: str, paths: Sequence[str], numbers: dict[str, int]) -> str:
    if not paths:
        return ""
    shown = ", ".join(
        f'<a href="#f{numbers[path]}">{_shown(path)}</a>' for path in paths[:MAX_NEIGHBOURS]
    )
    more = len(paths) - MAX_NEIGHBOURS
    return f"{head}{shown}{f' and {more:,} more' if more > 0 else ''}."


APP = new_app("")
add_command(
    APP,
    CommandSpec("map", "What the files of a project define, and who uses it."),
    MapOptions,
    show_map,
)
