"""Edit one cell of a Jupyter notebook (TOOL-16; https://nbformat.readthedocs.io).

Law: every byte outside of the cell stays as it is: the cell's place in the text is found, and
nothing else is rewritten. Outputs of a cell whose source changes are cleared: they are of
another source.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from agentcli.domain.clean import read_json
from agentcli.domain.tools import Workspace
from agentcli.tools.common.base import Arguments, one_line
from agentcli.tools.files.diff import diff_bytes
from agentcli.tools.files.disk import require_unchanged, state_if_any
from agentcli.tools.files.file_tool import (
    Change,
    ChangeTool,
    FileContext,
    Plan,
    editable,
    encoded,
    name_of,
)
from agentcli.tools.files.paths import FileProblem, located, not_found, resolve

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"(?:cell\s*|#)?(\d{1,6})", re.IGNORECASE)
_FIRST_WITH_IDS = (4, 5)
_DECODER = json.JSONDecoder()


class EditNotebookArguments(Arguments):
    """See the tool's description."""

    path: str
    cell_id: str = Field(default="", description="Id or number; insert: after it, empty: first")
    new_source: str = ""
    mode: Literal["replace", "insert", "delete"] = "replace"
    cell_type: Literal["code", "markdown"] | None = Field(
        default=None, description="Of a new cell; default code"
    )


class EditNotebook(ChangeTool[EditNotebookArguments]):
    """The notebook tool."""

    name = "edit_notebook"
    display_name = "Edit notebook"
    description = "Replace, insert or delete a cell of a Jupyter notebook. Read it first."
    params = EditNotebookArguments

    def summary(self, args: EditNotebookArguments) -> str:
        """How the call reads in one line."""
        doing = {"replace": "Edit", "insert": "Insert into", "delete": "Delete from"}[args.mode]
        cell = f" cell {one_line(args.cell_id)}" if args.cell_id else ""
        return f"{doing} {one_line(args.path)}{cell}"

    def targets(self, args: EditNotebookArguments, workspace: Workspace) -> tuple[Path]:
        """The notebook."""
        return (resolve(workspace, args.path),)

    def plan(self, args: EditNotebookArguments, ctx: FileContext) -> Plan:
        """The edited notebook."""
        path = located(args.path, ctx)
        name = name_of(path, ctx)
        state = state_if_any(path, ctx.workspace)
        if state is None:
            raise not_found(path, ctx.workspace)
        require_unchanged(state, ctx.files, ctx.workspace)
        before = editable(state, name)
        notebook = _notebook(before.text, name)
        edit = _edited(notebook, args, name)
        after = encoded(edit.text, before.encoding, name)
        where = f"{name} cell {edit.label}"
        diff = diff_bytes(where, where, edit.old.encode(), edit.new.encode())
        text = f"{edit.done} cell {edit.label} of {name} ({diff.counts})."
        return Plan((Change(path, state, after),), text, diff.text, diff.counts)


class _Cell(NamedTuple):
    """A cell and where it stands in the text."""

    value: dict[str, Any]
    start: int
    end: int

    @property
    def source(self) -> str:
        found = self.value.get("source", "")
        return "".join(map(str, found)) if isinstance(found, list) else str(found or "")


class _Notebook(NamedTuple):
    """``opening`` and ``closing`` are where the list of cells begins and ends, within brackets."""

    text: str
    cells: list[_Cell]
    opening: int
    closing: int
    has_ids: bool


class _CellEdit(NamedTuple):
    text: str
    label: str
    old: str
    new: str
    done: str


def _notebook(text: str, name: str) -> _Notebook:
    """Where the cells stand. Raises ``FileProblem`` for what is no notebook of format 4."""
    try:
        whole = read_json(text)
        format_ = (int(whole["nbformat"]), int(whole.get("nbformat_minor", 0)))
        cells, opening, closing = _cells_in(text)
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError):
        format_ = (0, 0)
    if format_[0] != 4:  # noqa: PLR2004 - the format
        raise FileProblem(f"{name} is no notebook of format 4: use edit_file.")
    if not all(isinstance(cell.value, dict) for cell in cells):
        raise FileProblem(f"{name} has a cell that is none: use edit_file.")
    return _Notebook(text, cells, opening, closing, format_ >= _FIRST_WITH_IDS)


def _cells_in(text: str) -> tuple[list[_Cell], int, int]:
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if key == "cells":
            return _elements(text, at)
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at] == "," else at
    raise KeyError("cells")


def _elements(text: str, at: int) -> tuple[list[_Cell], int, int]:
    opening = at + 1
    found: list[_Cell] = []
    at = _skip(text, opening)
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        found.append(_Cell(value, at, end))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found, opening, at


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _edited(notebook: _Notebook, args: EditNotebookArguments, name: str) -> _CellEdit:
    text, cells = notebook.text, notebook.cells
    if args.mode == "insert":
        index = _index(cells, args.cell_id, name) + 1 if args.cell_id.strip() else 0
        made = _new_cell(notebook, args, index)
        label = str(made.get("id", index + 1))
        return _CellEdit(_inserted(notebook, index, made), label, "", args.new_source, "Inserted")
    if not args.cell_id.strip():
        raise FileProblem("cell_id is missing: give the id or the number of the cell.")
    index = _index(cells, args.cell_id, name)
    cell = cells[index]
    label = str(cell.value.get("id", index + 1))
    if args.mode == "delete":
        start = cells[index - 1].end if index else cell.start
        end = cell.end if index or len(cells) == 1 else cells[1].start
        return _CellEdit(text[:start] + text[end:], label, cell.source, "", "Deleted")
    if cell.source == args.new_source:
        raise FileProblem(f"cell {label} of {name} has this source already: nothing to change.")
    value = {**cell.value, "source": _source(notebook, args.new_source)}
    if value.get("cell_type") == "code":
        value |= {"outputs": [], "execution_count": None}
    written = _written(notebook, value, cell.start)
    return _CellEdit(
        text[: cell.start] + written + text[cell.end :],
        label,
        cell.source,
        args.new_source,
        "Edited",
    )


def _index(cells: list[_Cell], wanted: str, name: str) -> int:
    wanted = wanted.strip()
    found = [index for index, cell in enumerate(cells) if cell.value.get("id") == wanted]
    if found:
        return found[0]
    number = _NUMBER.fullmatch(wanted)
    if number and 0 < int(number[1]) <= len(cells):
        return int(number[1]) - 1
    ids = ", ".join(str(cell.value.get("id", at)) for at, cell in enumerate(cells[:20], 1))
    raise FileProblem(f"{name} has no cell {one_line(wanted)!r}; it has: {ids or 'no cells'}.")


def _new_cell(notebook: _Notebook, args: EditNotebookArguments, index: int) -> dict[str, Any]:
    kind = args.cell_type or "code"
    cell: dict[str, Any] = {"cell_type": kind}
    if kind == "code":
        cell["execution_count"] = None
    if notebook.has_ids:  # the same in the preview and in the file
        taken = [each.value.get("id") for each in notebook.cells]
        seed = f"{index} {args.new_source} {notebook.text}"
        digest = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()
        starts = range(len(digest) - 8)
        cell["id"] = next(digest[at : at + 8] for at in starts if digest[at : at + 8] not in taken)
    cell["metadata"] = {}
    if kind == "code":
        cell["outputs"] = []
    cell["source"] = _source(notebook, args.new_source)
    return cell


def _source(notebook: _Notebook, source: str) -> str | list[str]:
    """A list of lines, as Jupyter writes it, unless the notebook has texts."""
    is_text = any(isinstance(cell.value.get("source"), str) for cell in notebook.cells)
    return source if is_text else source.splitlines(keepends=True)


def _inserted(notebook: _Notebook, index: int, cell: dict[str, Any]) -> str:
    text, cells = notebook.text, notebook.cells
    if not cells:
        inner = text[notebook.opening : notebook.closing]
        line = text[: notebook.opening].rpartition("\n")[2]
        outer = line[: len(line) - len(line.lstrip())]
        step = outer or " "
        if "\n" not in text:
            return text[: notebook.opening] + json.dumps(cell) + inner + text[notebook.closing :]
        written = _dumped(cell, step, outer + step, text)
        middle = f"\n{outer}{step}{written}\n{outer}"
        return text[: notebook.opening] + middle + text[notebook.closing :]
    if index:
        before = cells[index - 1]
        gap = text[before.start - _gap(text, before.start) : before.start]
        written = _written(notebook, cell, before.start)
        return f"{text[: before.end]},{gap}{written}{text[before.end :]}"
    first = cells[0]
    gap = text[first.start - _gap(text, first.start) : first.start]
    written = _written(notebook, cell, first.start)
    return f"{text[: first.start]}{written},{gap}{text[first.start :]}"


def _gap(text: str, at: int) -> int:
    """How much white space stands before ``at``."""
    return at - len(text[:at].rstrip(" \t\r\n"))


def _written(notebook: _Notebook, value: dict[str, Any], at: int) -> str:
    """``value`` as JSON in the form of the cell at ``at``."""
    text = notebook.text
    line = text[:at].rpartition("\n")[2]
    if "\n" not in text[notebook.opening : at] or line.strip():
        return json.dumps(value, ensure_ascii=_is_ascii(text))
    after = text[at + 1 : at + 1 + 200]
    found = re.match(r"\r?\n([ \t]+)", after)
    step = found[1][len(line) :] if found and found[1].startswith(line) else " "
    return _dumped(value, step or " ", line, text)


def _dumped(value: dict[str, Any], step: str, margin: str, text: str) -> str:
    written = json.dumps(value, indent=step, ensure_ascii=_is_ascii(text))
    end = "\r\n" if "\r\n" in text else "\n"
    return written.replace("\n", f"{end}{margin}")


def _is_ascii(text: str) -> bool:
    return text.isascii() and "\\u" in text


TOOL = EditNotebook()
