"""Read a file: text in pages of numbered lines, images as images, notebooks as text (TOOL-7)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from agentcli.domain.messages import ImagePart
from agentcli.domain.tools import ToolContext, ToolHints, ToolOutput, Workspace
from agentcli.tools._base import Arguments
from agentcli.tools._output import OUTPUT_SCHEME
from agentcli.tools.files.file_tool import FileTool, name_of, plural
from agentcli.tools.files.files import chunks, fingerprint, human_size, opened
from agentcli.tools.files.kinds import HEAD_BYTES, binary_kind, image_type
from agentcli.tools.files.notebook import notebook_text
from agentcli.tools.files.pages import MAX_SCANNED_CHARS, Page, decoded, folded, read_page
from agentcli.tools.files.paths import FileProblem, located, one_line, resolve
from agentcli.tools.files.text import Encoding, decode, detect_head

DEFAULT_LIMIT = 2_000
_MAX_IMAGE_BYTES = 20_000_000  # what no provider takes is made smaller when it is sent (HIS-8)
_MAX_DECODED_BYTES = 8 * 1024 * 1024  # beyond this the encoding is judged by the beginning


class ReadFileArguments(Arguments):
    """See the tool's description."""

    path: str
    offset: int | None = Field(default=None, ge=0, description="First line, from 1")
    limit: int | None = Field(default=None, ge=1, description=f"Lines, default {DEFAULT_LIMIT}")


@dataclass(frozen=True, slots=True)
class _Source:
    """Text to page through. ``notes`` say what is special about it."""

    name: str
    pieces: Iterable[str]
    notes: tuple[str, ...] = ()
    size_bytes: int = 0


class ReadFile(FileTool[ReadFileArguments]):
    """The read tool."""

    name = "read_file"
    display_name = "Read"
    description = (
        "Read a text file as numbered lines, an image, or a notebook. Long files come in pages: "
        "go on with offset. Read a file before editing it. Other tools' long output is read at "
        f"{OUTPUT_SCHEME}<call id>."
    )
    params = ReadFileArguments
    hints = ToolHints(idempotent=True)

    def summary(self, args: ReadFileArguments) -> str:
        """How the call reads in one line: "Read src/app.py:1-80"."""
        name = f"Read {one_line(args.path)}"
        if not args.offset and args.limit is None:
            return name
        first = args.offset or 1
        return f"{name}:{first}-{first + args.limit - 1 if args.limit else ''}"

    def targets(self, args: ReadFileArguments, workspace: Workspace) -> tuple[Path, ...]:
        """The file; none for the output of an earlier call."""
        if args.path.startswith(OUTPUT_SCHEME):
            return ()
        return (resolve(workspace, args.path),)

    async def work(self, args: ReadFileArguments, ctx: ToolContext) -> ToolOutput:
        """The page, the image, or why not."""
        if args.path.startswith(OUTPUT_SCHEME):
            return await _read_output(args, ctx)
        stop = threading.Event()

        def stopped() -> bool:
            return stop.is_set() or ctx.cancel.cancelled

        try:
            return await asyncio.to_thread(_read, args, ctx, stopped)
        finally:
            stop.set()


def _read(args: ReadFileArguments, ctx: ToolContext, stopped: Callable[[], bool]) -> ToolOutput:
    path = located(args.path, ctx)
    name = name_of(path, ctx)
    with opened(path, ctx.workspace) as descriptor:
        head = b"".join(chunks(descriptor, HEAD_BYTES))
        if media_type := image_type(head):
            return _image(descriptor, name, media_type)
        mark = fingerprint(descriptor)  # before the text: what changes meanwhile was not seen
        source = _text_source(descriptor, name, head, stopped)
        output = _paged(source, args)
        if stopped():
            return ToolOutput.cancelled("The file was not read to the end of the page.")
        ctx.files.seen[path] = mark
    return output


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
        note = "a notebook, shown as text: line numbers are not the file's, edit its JSON"
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
    return (f"encoding: {encoding.label}",) if encoding.label else ()


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


async def _read_output(args: ReadFileArguments, ctx: ToolContext) -> ToolOutput:
    call_id = args.path.removeprefix(OUTPUT_SCHEME)
    raw = await ctx.outputs.read(call_id)
    if raw is None:
        raise FileProblem(f"There is no stored output of a call {one_line(call_id)!r}.")
    text = folded(raw.decode("utf-8", "replace"))
    source = _Source(one_line(args.path), [text], size_bytes=len(raw))
    return await asyncio.to_thread(_paged, source, args)


TOOL = ReadFile()
