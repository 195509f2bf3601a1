"""What commands that list something share: tables, JSON, the session files (CLI-9, CLI-12)."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from agentcli.cli.options import OptionSet, choice
from agentcli.domain.patterns import LazyPattern
from agentcli.headless.streams import is_terminal, use_utf8, write_out
from agentcli.ui.rows import columns_of, fit
from agentcli.ui.sanitize import clean_line, safe_json

if TYPE_CHECKING:
    from agentcli.domain.accounts import ModelOf
    from agentcli.store.files import SessionFiles

T = TypeVar("T")
LIST_FORMATS = ("table", "json")
_NARROWEST = 8
_READABLE = 16
_UUID = LazyPattern(r"^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}([0-9a-f]{12})$")


class FormatOption(OptionSet):
    """``--format`` of whatever prints a list."""

    format: Annotated[
        str, typer.Option("--format", metavar="table|json", help="How to print it.")
    ] = "table"

    @property
    def as_json(self) -> bool:
        """Whether JSON is asked for; raises ``UsageError`` for an unknown format."""
        choice("--format", self.format, LIST_FORMATS)
        return self.format == "json"


class EmptyOptions(OptionSet):
    """A command without options."""


def print_json(value: object) -> None:
    """``value`` as indented JSON; what an iterator gives is a list, written one by one."""
    use_utf8()
    if not isinstance(value, Iterator):
        write_out(f"{_json(value)}\n")
        return
    before = "[\n  "
    for item in value:
        write_out(before + _json(item).replace("\n", "\n  "))
        before = ",\n  "
    write_out("[]\n" if before.startswith("[") else "\n]\n")


def _json(value: object) -> str:
    return safe_json(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    less: Sequence[str] = (),
    readable: int = _READABLE,
) -> None:
    """Aligned columns, on a terminal made to fit; in a pipe nothing is cut."""
    write_out(table(head, rows, less, width=_width(), readable=readable))


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns if is_terminal(sys.stdout) else 0


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    less: Sequence[str] = (),
    *,
    width: int = 0,
    readable: int = _READABLE,
) -> str:
    """``rows`` under ``head``; ``width`` 0 means as wide as it gets.

    Where ``width`` is too small, ids are their last part (which names a session as well), columns
    of ``less`` are left out, the first of them first, until each other one has ``readable`` columns
    of the terminal or all that it needs; then the widest are cut.
    """
    columns = [[clean_line(cell) for cell in column] for column in zip(head, *rows, strict=True)]
    if width and _breadth(columns) > width:
        columns = [[_UUID.sub(r"\1", cell) for cell in column] for column in columns]
        for name in less:
            if _breadth(columns, readable) > width:
                columns = [column for column in columns if column[0] != name]
        most = max(map(_size, columns))
        while most > _NARROWEST and _breadth(columns, most) > width:
            most -= 1
        columns = [[_shortened(cell, most) for cell in column] for column in columns]
    sized = [(column, _size(column)) for column in columns]
    padded = ([cell + " " * (size - columns_of(cell)) for cell in cells] for cells, size in sized)
    lines = ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]
    return "".join(f"{_shortened(line, width) if width else line}\n" for line in lines)


def _size(column: Sequence[str]) -> int:
    return max(map(columns_of, column))


def _breadth(columns: Sequence[Sequence[str]], most: int = sys.maxsize) -> int:
    return sum(min(_size(column), most) + 2 for column in columns) - 2


def _shortened(text: str, most: int) -> str:
    """Of a path the end is kept, of anything else the beginning."""
    if text.startswith("/"):
        return fit(text[::-1], most, "...")[::-1]
    return fit(text, most, "...")


def session_files() -> SessionFiles:
    """The user's sessions."""
    from agentcli.config.paths import Paths
    from agentcli.config.seal import HomeSeal
    from agentcli.store.files import SessionFiles

    paths = Paths.from_env(os.environ)
    return SessionFiles(paths.sessions_dir, paths.catalogue_file, HomeSeal(paths.seal_file))


def prices() -> ModelOf:
    """The models with their prices; none where the settings cannot be read."""
    from agentcli.app.models import models_by_name
    from agentcli.config.paths import Paths
    from agentcli.config.settings import load_settings
    from agentcli.domain.errors import ConfigError
    from agentcli.headless.streams import write_error_line

    try:
        return models_by_name(load_settings(Paths.from_env(os.environ), os.environ))
    except ConfigError as error:
        write_error_line(f"warning: prices of tool calls are unknown: {error.message}")
        return lambda _: None


def wait(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` comes to."""
    import asyncio

    return asyncio.run(work)
