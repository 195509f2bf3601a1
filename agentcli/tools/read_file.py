"""Read a file: text in pages of numbered lines, images as images, notebooks as text (TOOL-7).

Law: a page ends at ``limit`` lines or ``MAX_CHARS`` characters, whichever comes first, and always
between two lines; memory is bounded by the page and one chunk, whatever the file.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from agentcli.domain.clean import plural, read_json
from agentcli.domain.messages import ImagePart
from agentcli.domain.tools import ToolHints, ToolOutput, Workspace
from agentcli.domain.values import frozen
from agentcli.tools.common.base import MAX_CHARS, OUTPUT_SCHEME, Arguments, clip_line, one_line
from agentcli.tools.files.disk import chunks, fingerprint, human_size, opened
from agentcli.tools.files.file_tool import FileContext, FileTool, name_of
from agentcli.tools.files.paths import FileProblem, located, resolve
from agentcli.tools.files.pdf import MAGIC, MAX_READ_BYTES, read_pdf
from agentcli.tools.files.text import (
    HEAD_BYTES,
    Encoding,
    binary_kind,
    decode,
    detect_head,
    image_type,
    readable,
)

if TYPE_CHECKING:
    from agentcli.domain.sandbox import Sandbox
    from agentcli.domain.tool_ports import RawOutputs
    from agentcli.domain.tools import EditorFiles

MAX_LINE_CHARS = 2_000
_FOOTER_ROOM = 500
MAX_SCANNED_CHARS = 64 * 1024 * 1024  # of one line; what comes after it is not looked at
_MAX_OUTPUT_CHARS = 4_000
_MAX_LINE_CHARS = 1_000
DEFAULT_LIMIT = 2_000
_MAX_IMAGE_BYTES = 20_000_000  # what no provider takes is made smaller when it is sent (HIS-8)
_UNSAVED = (
    "as the user's editor has it, with changes that are not saved. Edits are made to the file on"
    " disk: ask the user to save it before you edit it"
)
_MAX_DECODED_BYTES = 8 * 1024 * 1024  # beyond this the encoding is judged by the beginning


class ReadFileArguments(Arguments):
    """See the tool's description."""

    path: str
    offset: int | None = Field(default=None, ge=0, description="First line, from 1")
    limit: int | None = Field(default=None, ge=1, description=f"Lines, default {DEFAULT_LIMIT}")
    pages: str | None = Field(default=None, description='Of a PDF: "1-5"')


@dataclass(frozen=True, slots=True)
class _Source:
    """Text to page through. ``notes`` say what is special about it."""

    name: str
    pieces: Iterable[str]
    notes: tuple[str, ...] = ()
    size_bytes: int = 0


@frozen
class ReadContext(FileContext):
    """Files, on the disk and in the user's editor, and what earlier calls have printed."""

    outputs: RawOutputs
    editor: EditorFiles | None
    sandbox: Sandbox | None


class ReadFile(FileTool[ReadFileArguments]):
    """The read tool."""

    name = "read_file"
    display_name = "Read"
    description = (
        "Read a text file as numbered lines, an image, PDF or notebook. Long files come in pages: "
        "go on with offset. Read a file before editing it. Other tools' long output is read at "
        f"{OUTPUT_SCHEME}<call id>."
    )
    params = ReadFileArguments
    context = ReadContext
    hints = ToolHints(idempotent=True)

    def summary(self, args: ReadFileArguments) -> str:
        """How the call reads in one line: "Read src/app.py:1-80"."""
        name = f"Read {one_line(args.path)}"
        if args.pages:
            return f"{name} pages {one_line(args.pages)}"
        if not args.offset and args.limit is None:
            return name
        first = args.offset or 1
        return f"{name}:{first}-{first + args.limit - 1 if args.limit else ''}"

    def targets(self, args: ReadFileArguments, workspace: Workspace) -> tuple[Path, ...]:
        """The file; none for the output of an earlier call."""
        if args.path.startswith(OUTPUT_SCHEME):
            return ()
        return (resolve(workspace, args.path),)

    async def work(self, args: ReadFileArguments, ctx: ReadContext) -> ToolOutput:
        """The page, the image, or why not."""
        if args.path.startswith(OUTPUT_SCHEME):
            return await _read_output(args, ctx)
        stop = threading.Event()

        def stopped() -> bool:
            return stop.is_set() or ctx.cancel.cancelled

        try:
            unsaved = await _unsaved(located(args.path, ctx), ctx)
            return await asyncio.to_thread(_read, args, ctx, stopped, unsaved)
        finally:
            stop.set()


async def _unsaved(path: Path, ctx: ReadContext) -> str | None:
    """What the editor has of the file, which it opens by its name.

    While something runs inside that name may lead elsewhere by then: it is not asked (SEC-5).
    """
    if ctx.editor is None or (ctx.sandbox is not None and not ctx.sandbox.is_quiet):
        return None
    return await ctx.editor.read(path)


def _read(
    args: ReadFileArguments,
    ctx: ReadContext,
    stopped: Callable[[], bool],
    unsaved: str | None = None,
) -> ToolOutput:
    path = located(args.path, ctx)
    name = name_of(path, ctx)
    with opened(path, ctx.workspace) as descriptor:
        head = b"".join(chunks(descriptor, HEAD_BYTES))
        if media_type := image_type(head):
            return _image(descriptor, name, media_type)
        if head.startswith(MAGIC):
            return _pdf(descriptor, name, args, ctx, stopped)
        mark = fingerprint(descriptor)  # before the text: what changes meanwhile was not seen
        source = _text_source(descriptor, name, head, stopped)
        if unsaved is not None and _differs(unsaved, source):
            return _paged(_Source(name, [unsaved], (_UNSAVED,), len(unsaved)), args)
        output = _paged(source, args)
        if stopped():
            return ToolOutput.cancelled("The file was not read to the end of the page.")
        ctx.files.seen[path] = mark
    return output


def _differs(unsaved: str, source: _Source) -> bool:
    """Whether the editor has more than the disk; what is read in pieces is not compared."""
    if not isinstance(source.pieces, list):
        return False
    on_disk = "".join(source.pieces)
    return unsaved.replace("\r\n", "\n") != on_disk.replace("\r\n", "\n")


def _text_source(descriptor: int, name: str, head: bytes, stopped: Callable[[], bool]) -> _Source:
    size = max(os.fstat(descriptor).st_size, len(head))
    kind = binary_kind(head)
    encoding = None if kind else detect_head(head)
    if encoding is None:
        what = kind or "a binary file"
        raise FileProblem(
            f"{name} is {what} ({human_size(size)}), not text. "
            "Use bash with a program for that kind of file."
        )
    if size > _MAX_DECODED_BYTES:
        pieces = decoded(chunks(descriptor), encoding, stopped)
        return _Source(name, pieces, _encoding_note(encoding), size)
    data = b"".join(chunks(descriptor, _MAX_DECODED_BYTES))
    text = decode(data)
    if text is None:  # the rest is not what the beginning promised
        raise FileProblem(f"{name} is a binary file ({human_size(size)}), not text.")
    if name.endswith(".ipynb") and (cells := notebook_text(text.text)) is not None:
        note = (
            "a notebook, shown as text. Edit cells with the tool edit_notebook {path, cell_id,"
            " new_source, mode: replace | insert | delete}"
        )
        return _Source(name, [cells], (note,), size)
    return _Source(name, [text.text], _encoding_note(text.encoding), size)


def _paged(source: _Source, args: ReadFileArguments) -> ToolOutput:
    page = read_page(source.pieces, args.offset or 1, args.limit or DEFAULT_LIMIT)
    if not page.rows:
        if page.total == 0:
            return ToolOutput.text(f"{source.name} is empty (0 bytes).", summary="empty")
        if page.total is None:
            return ToolOutput.error(
                f"Line {page.first} was not reached: line {page.last:,} of {source.name} is longer "
                f"than {human_size(MAX_SCANNED_CHARS)}, which is not read to its end. Use bash."
            )
        return ToolOutput.error(
            f"Line {page.first} is beyond the end: {source.name} has "
            f"{plural(page.total or page.last, 'line')}."
        )
    text = "\n".join(page.rows)
    notes = _notes(page, source)
    if notes:
        text += f"\n[{'; '.join(notes)}]"
    return ToolOutput.text(text, summary=plural(len(page.rows), "line"))


def _notes(page: Page, source: _Source) -> list[str]:
    notes = list(source.notes)
    if page.crlf:
        notes.append("line ends are CRLF")
    if page.clipped:
        notes.append(f"{plural(page.clipped, 'line')} too long to show whole")
    if page.is_whole:
        return notes
    where = f"lines {page.first}-{page.last}"
    if page.total is None or page.last < page.total:
        of = f"of {page.total:,}" if page.total else f"of a file of {human_size(source.size_bytes)}"
        return [f"{where} {of}; go on with offset={page.last + 1}", *notes]
    return [f"{where} of {page.total:,}, the end of the file", *notes]


def _encoding_note(encoding: Encoding) -> tuple[str, ...]:
    notes = (f"encoding: {encoding.label}",) if encoding.label else ()
    return notes if encoding.line_end == "\n" else (*notes, "line ends are CR")


def _image(descriptor: int, name: str, media_type: str) -> ToolOutput:
    size = os.fstat(descriptor).st_size
    if size > _MAX_IMAGE_BYTES:
        raise FileProblem(
            f"{name} is an image of {human_size(size)}, more than the "
            f"{human_size(_MAX_IMAGE_BYTES)} that can be shown. Make it smaller first."
        )
    data = b"".join(chunks(descriptor, _MAX_IMAGE_BYTES))
    text = f"{name} ({media_type}, {human_size(len(data))})"
    return ToolOutput.images(text, [ImagePart(media_type, data)], summary=human_size(len(data)))


def _pdf(
    descriptor: int,
    name: str,
    args: ReadFileArguments,
    ctx: ReadContext,
    stopped: Callable[[], bool],
) -> ToolOutput:
    data = b"".join(chunks(descriptor, MAX_READ_BYTES + 1))
    pdf = read_pdf(data, name, args.pages, workspace=ctx.workspace.root, stopped=stopped)
    if stopped():
        return ToolOutput.cancelled("The PDF was not read to its end.")
    summary = pdf.head.partition(": ")[2]
    return ToolOutput.images(pdf.head, [pdf.part], summary=summary)


async def _read_output(args: ReadFileArguments, ctx: ReadContext) -> ToolOutput:
    call_id = args.path.removeprefix(OUTPUT_SCHEME)
    raw = await ctx.outputs.read(call_id)
    if raw is None:
        raise FileProblem(f"There is no stored output of a call {one_line(call_id)!r}.")
    text = folded(raw.decode("utf-8", "replace"))
    source = _Source(one_line(args.path), [text], size_bytes=len(raw))
    return await asyncio.to_thread(_paged, source, args)


# --- pages ---


@dataclass(frozen=True, slots=True)
class Page:
    """Lines ``first`` to ``last``; ``total`` is known when the end of the text was reached."""

    rows: tuple[str, ...]
    first: int
    last: int
    total: int | None
    crlf: bool
    clipped: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing is before or after the page."""
        return self.first <= 1 and self.total is not None and self.last >= self.total


def read_page(pieces: Iterable[str], offset: int, limit: int) -> Page:
    """At most ``limit`` lines, from line ``offset`` (from 1), of the text that comes in pieces."""
    rows: list[str] = []
    used, clipped, crlf = 0, 0, False
    lines = _Lines(pieces, offset)
    for text, length in lines:
        number = lines.count
        shown = text.removesuffix("\r")
        crlf = crlf or len(shown) < len(text)
        row = f"{number:>6}\t{readable(shown)}"
        if length > MAX_LINE_CHARS:
            row += f"… [{length - MAX_LINE_CHARS:,} more characters in this line]"
        if len(rows) == limit or used + len(row) + 1 > MAX_CHARS - _FOOTER_ROOM:
            return Page(tuple(rows), offset, number - 1, None, crlf, clipped)
        clipped += length > MAX_LINE_CHARS
        used += len(row) + 1
        rows.append(row)
    total = lines.count if lines.at_end else None
    return Page(tuple(rows), offset, lines.count, total, crlf, clipped)


class _Lines:
    """The lines from ``offset`` on, each cut to ``MAX_LINE_CHARS``, with its true length."""

    def __init__(self, pieces: Iterable[str], offset: int) -> None:
        self._pieces = pieces
        self._offset = offset
        self.count = 0  # lines met so far, the one just given included
        self.at_end = False

    def __iter__(self) -> Iterator[tuple[str, int]]:
        kept, length = "", 0
        for piece in self._pieces:
            start = 0
            skipped = piece.count("\n") if self.count + 1 < self._offset else 0
            if skipped and self.count + skipped < self._offset:
                self.count += skipped
                start, kept, length = piece.rfind("\n") + 1, "", 0
            while (end := piece.find("\n", start)) != -1:
                self.count += 1
                if self.count >= self._offset:
                    yield _more(kept, piece, start, end), length + end - start
                kept, length, start = "", 0, end + 1
            kept = _more(kept, piece, start, len(piece))
            length += len(piece) - start
            if length > MAX_SCANNED_CHARS:
                self.count += 1
                if self.count >= self._offset:
                    yield kept, length
                return
        if length:
            self.count += 1
            if self.count >= self._offset:
                yield kept, length
        self.at_end = True


def _more(kept: str, piece: str, start: int, end: int) -> str:
    room = MAX_LINE_CHARS - len(kept)
    return kept + piece[start : min(end, start + room)] if room > 0 else kept


def decoded(
    chunks: Iterable[bytes], encoding: Encoding, stopped: Callable[[], bool]
) -> Iterator[str]:
    """The text of ``chunks`` piece by piece; ends early once ``stopped``."""
    decoder = codecs.getincrementaldecoder(encoding.codec)("replace")
    skip = len(encoding.bom)
    for chunk in chunks:
        if stopped():
            return
        yield decoder.decode(chunk[skip:])
        skip = 0
    yield decoder.decode(b"", final=True)


def folded(text: str) -> str:
    """``text`` with over-long lines broken, so that every character of it can be paged to."""
    out: list[str] = []
    for line in text.split("\n"):
        out += [line[at : at + MAX_LINE_CHARS] for at in range(0, len(line), MAX_LINE_CHARS)] or [
            ""
        ]
    return "\n".join(out)


# --- notebooks: the cells and what they printed, without the JSON around them ---


def notebook_text(source: str) -> str | None:
    """The cells of a notebook, or ``None`` when ``source`` is none."""
    try:
        notebook = read_json(source)
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "")
        cells = notebook["cells"]
        shown = [_cell(number, cell, language) for number, cell in enumerate(cells, 1)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return "\n\n".join(shown) if shown else "(a notebook without cells)"


def _cell(number: int, cell: dict[str, Any], language: str) -> str:
    kind = str(cell.get("cell_type", "cell"))
    name = f", {cell['id']}" if "id" in cell else ""
    label = f"{kind} {language}".strip() if kind == "code" else kind
    parts = [f"--- cell {number} ({label}{name}) ---", _joined(cell.get("source", ""))]
    outputs = [text for output in cell.get("outputs", []) if (text := _output(output))]
    if outputs:
        parts += ["--- output ---", "\n".join(outputs)]
    return "\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    kind = output.get("output_type")
    if kind == "stream":
        return _short(_joined(output.get("text", "")))
    if kind == "error":
        return _short(f"{output.get('ename')}: {output.get('evalue')}")
    data = output.get("data", {})
    text = _short(_joined(data.get("text/plain", "")))
    images = [media for media in data if media.startswith("image/")]
    return "\n".join(filter(None, [text, *(f"[{media} not shown]" for media in images)]))


def _joined(source: str | list[str]) -> str:
    text = source if isinstance(source, str) else "".join(source)
    return text.rstrip("\n")


def _short(text: str) -> str:
    clipped = "\n".join(clip_line(line, _MAX_LINE_CHARS) for line in text.split("\n"))
    if len(clipped) <= _MAX_OUTPUT_CHARS:
        return clipped
    return f"{clipped[:_MAX_OUTPUT_CHARS]}\n[{len(clipped) - _MAX_OUTPUT_CHARS:,} characters cut]"


TOOL = ReadFile()
