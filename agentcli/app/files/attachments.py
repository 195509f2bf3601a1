"""Files named ``@path`` in a prompt become a part of it (UI-4).

Law: the text stays as it was typed; what it names follows it, each once, in bounded blocks that
say what they are. What does not exist is no mention;
where it reads as a file's name, the user is told. What a user types here is theirs to attach
wherever it lies; what a file says that they typed names files of the workspace only; nothing but
regular files and directories is opened. The event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agentcli.domain.clean import one_line
from agentcli.domain.files import NoRegularFile, open_regular, open_resolved, opened_directory
from agentcli.domain.files import is_directory as is_directory_at
from agentcli.domain.messages import ATTACHED, ImagePart, TextPart, UserMessage, UserPart
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.tools import Workspace, real_path
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.app.files.mentions import Mention

MAX_FILES = 50
MAX_FILE_CHARS = 60_000
MAX_CHARS = 200_000
MAX_IMAGE_BYTES = 20_000_000
MAX_PDF_BYTES = 32_000_001
MAX_ENTRIES = 200
MAX_SCANNED_CHARS = 50_000_000
MAX_LOOKED_AT = 500
MAX_TOLD, MAX_TOLD_CHARS = 5, 80
_HEAD_BYTES = 4 * MAX_FILE_CHARS
# a name with a short ending; others are users, decorators and packages
_LIKE_A_FILE = LazyPattern(r"[^:]*[^:/]\.(?=\d?[A-Za-z])[A-Za-z0-9]{1,4}")


async def attach(
    text: str, workspace: Workspace, say: Callable[[str], None], *, only_inside: bool = False
) -> UserMessage:
    """``text`` as a message, with the files that it names; maybe only those of ``workspace``.

    A name in the workspace attaches no file elsewhere, and no credential that it does not name:
    anybody may have put a link there. ``say`` is told of that, and of what reads as the name of a
    file that is not there.
    """
    typed = TextPart(text)
    if "@" not in text:
        return UserMessage((typed,))
    from agentcli.app.files.mentions import leads_as_named
    from agentcli.policy.places import credential_place

    missing, led_away = list[str](), list[str]()

    def may(mention: Mention, real: Path) -> bool:
        if leads_as_named(mention, real, workspace, lambda path: bool(credential_place((path,)))):
            return not only_inside or workspace.contains(real)
        led_away.append(mention.path)
        return False

    parts = await asyncio.to_thread(attached_parts, text, workspace, missing, may)
    if missing and not only_inside:
        say(f"no such file: {_told(missing)} - sent as typed, with nothing attached")
    if led_away and not only_inside:
        what = "a link leads elsewhere, or to what may hold keys"
        say(f"not attached: {_told(led_away)} - {what}; name that file itself")
    return UserMessage((typed, *parts))


def _told(names: Sequence[str]) -> str:
    return ", ".join(f"@{one_line(name)[:MAX_TOLD_CHARS]}" for name in names[:MAX_TOLD])


def attached_parts(
    text: str,
    workspace: Workspace,
    missing: list[str] | None = None,
    may: Callable[[Mention, Path], bool] | None = None,
) -> tuple[UserPart, ...]:
    """What ``text`` names, as parts of a message; reads files. ``missing`` gets what is no file.

    ``may`` is asked whether the resolved path that a mention leads to is attached; then that very
    place is read, and no link that has come up since is followed (SEC-5).
    """
    parts: list[UserPart] = []
    left = MAX_CHARS
    for path, mention in _named(text, workspace, [] if missing is None else missing):
        real = None if may is None else real_path(path)
        if may is not None and real is not None and not may(mention, real):
            continue
        made = _parts_of(path, real, mention, workspace, min(left, MAX_FILE_CHARS))
        left = max(0, left - sum(len(part.text) for part in made if isinstance(part, TextPart)))
        parts += made
    return tuple(parts)


def _named(text: str, workspace: Workspace, missing: list[str]) -> Iterator[tuple[Path, Mention]]:
    """Files and directories that ``text`` names, each once."""
    from agentcli.app.files.mentions import find_mentions

    seen: set[tuple[Path, int, int]] = set()
    looked_at = 0
    for readings in find_mentions(text):
        for mention in readings:
            looked_at += 1
            path = _existing(mention.path, workspace)
            if path is None:
                continue
            key = (path, mention.first, mention.last)
            if key not in seen:
                seen.add(key)
                yield path, mention
            break
        else:
            name = readings[-1].path
            if _LIKE_A_FILE.fullmatch(name) and name not in missing:
                missing.append(name)
        if len(seen) >= MAX_FILES or looked_at > MAX_LOOKED_AT:
            return


def _existing(name: str, workspace: Workspace) -> Path | None:
    try:
        path = workspace.resolve(name)
        mode = path.stat().st_mode
    except (OSError, ValueError, RuntimeError):
        return None
    return path if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None


def _shown(path: Path, workspace: Workspace) -> str:
    """Relative to the working directory where it lies in it."""
    normal = Path(os.path.normpath(path))
    return str(normal.relative_to(workspace.cwd) if normal.is_relative_to(workspace.cwd) else path)


@frozen
class _Content:
    """What was read: text, an image, or a note why there is neither."""

    text: str = ""
    facts: str = ""
    note: str = ""
    image: ImagePart | None = None


def _parts_of(
    path: Path, real: Path | None, mention: Mention, workspace: Workspace, limit: int
) -> list[UserPart]:
    """``real`` is where the file is to be read, no link followed; else it is read by its name."""
    shown = _shown(path, workspace)
    is_directory = path.is_dir() if real is None else is_directory_at(real)
    try:
        if not is_directory:
            with open_regular(path) if real is None else open_resolved(real) as file:
                content = _file(file, path, mention, limit, workspace)
        elif real is None:
            content = _listing(path, limit)
        else:
            with opened_directory(real) as directory:
                content = _listing(directory, limit)
    except NoRegularFile:
        content = _Content(note="is not a regular file")
    except OSError as error:
        content = _Content(note=f"cannot be read: {error.strerror}")
    kind = "directory" if is_directory else "file"
    name = shown.replace('"', "&quot;").replace("\n", " ")
    opening = f'{ATTACHED}{kind}="{name}"{content.facts}>'
    if content.image is not None:
        what = content.text or "the image that follows"
        note = f"\n[{content.note}]\n" if content.note else ""
        return [TextPart(f"{opening}{what}{note}</attached>"), content.image]
    text = content.text if content.text.endswith("\n") or not content.text else f"{content.text}\n"
    note = f"[{content.note}]\n" if content.note else ""
    return [TextPart(f"{opening}\n{text}{note}</attached>")]


def _listing(path: Path | int, limit: int) -> _Content:
    """The entries of a directory, directories with a slash."""
    names: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            names.append(f"{entry.name}/" if entry.is_dir() else entry.name)
            if len(names) > MAX_LOOKED_AT * MAX_ENTRIES:
                break
    names.sort()
    text = "\n".join(names[:MAX_ENTRIES])[:limit]
    shown = text.count("\n") + 1 if text else 0
    note = f"{len(names) - shown} more" if len(names) > shown else ""
    return _Content(text, note=note if names else "it is empty")


def _whole(
    file: BinaryIO, head: bytes, place: tuple[Path, Workspace], limit: int
) -> _Content | None:
    """An image or a PDF; ``None`` for anything else."""
    from agentcli.domain.images import facts_of

    if head.startswith(b"%PDF-"):
        return _pdf(*place, head + file.read(MAX_PDF_BYTES), limit)
    if not facts_of(head).media_type:
        return None
    data = head + file.read(max(0, MAX_IMAGE_BYTES - len(head)) + 1)
    if len(data) > MAX_IMAGE_BYTES:
        return _Content(
            note=f"is an image of {os.fstat(file.fileno()).st_size:,} bytes, too large to attach"
        )
    return _Content(image=ImagePart(facts_of(data).media_type, data))


def _pdf(path: Path, workspace: Workspace, data: bytes, limit: int) -> _Content:
    """A document, its text beside it for models that take none; says which it is (TOOL-16)."""
    from agentcli.tools.files.paths import FileProblem
    from agentcli.tools.files.pdf import read_pdf

    try:
        pdf = read_pdf(data, path.name, None, workspace=workspace.root, max_chars=limit)
    except FileProblem as problem:
        return _Content(note=f"not attached: {problem}")
    form = "as a document" if pdf.part.data else "as text"
    note = "cut: its text is too long; read_file has the rest, by pages" if pdf.is_cut else ""
    note = note if not pdf.part.data else ""
    return _Content(f"{pdf.head}; it follows {form}", note=note, image=pdf.part)


def _file(
    file: BinaryIO, path: Path, mention: Mention, limit: int, workspace: Workspace
) -> _Content:
    info = os.fstat(file.fileno())
    head = file.read(_HEAD_BYTES)
    if (known := _whole(file, head, (path, workspace), limit)) is not None:
        return known
    decoder = _decoder(head)
    if decoder is None:
        return _Content(note=f"is a binary file of {info.st_size:,} bytes, not attached")
    if mention.first:
        lines = codecs.getreader(decoder)(file, "replace")
        file.seek(0)
        return _lines(lines, mention, limit)
    is_whole = len(head) < _HEAD_BYTES
    text = codecs.getincrementaldecoder(decoder)("replace").decode(head, final=is_whole)
    return _cut(text.replace("\r\n", "\n"), limit, is_whole=is_whole, size=info.st_size)


def _decoder(head: bytes) -> str | None:
    """The encoding of a text that begins so; ``None``: it is no text."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return None if b"\0" in head[:8_000] else "utf-8-sig"


def _cut(text: str, limit: int, *, is_whole: bool, size: int) -> _Content:
    """As many whole lines as fit."""
    text = text.replace("\0", "\ufffd")
    if not text and is_whole:
        return _Content(note="it is empty")
    if is_whole and len(text) <= limit:
        return _Content(text)
    kept = text[: text.rfind("\n", 0, limit) + 1] or text[:limit]
    lines = kept.count("\n")
    note = f"cut: the first {lines:,} lines of a file of {size:,} bytes; read_file has the rest"
    return _Content(kept, note=note if kept else "not attached: too much is attached already")


def _lines(file: codecs.StreamReader, mention: Mention, limit: int) -> _Content:
    """Lines ``first`` to ``last``, as many of them as fit."""
    kept: list[str] = []
    room, number = limit, 0
    for number, line in enumerate(_bounded_lines(file), 1):
        if number < mention.first:
            continue
        if number > mention.last or len(line) > room:
            break
        kept.append(line)
        room -= len(line)
    facts = f' lines="{mention.first}-{mention.first + len(kept) - 1}"' if kept else ""
    note = ""
    if not kept:
        note = f"it has {number} lines only" if number < mention.first else "too long to attach"
    elif len(kept) <= mention.last - mention.first and number > mention.first + len(kept) - 1:
        note = "cut; read_file has the rest"
    return _Content("".join(kept).replace("\0", "\ufffd"), facts, note)


def _bounded_lines(file: codecs.StreamReader) -> Iterator[str]:
    """Lines of a text, of which no one is longer than what can be attached."""
    rest, left = "", MAX_SCANNED_CHARS
    while left > 0 and (chunk := file.read(1 << 16)):
        left -= len(chunk)
        *lines, rest = (rest + chunk).split("\n")
        yield from (f"{line}\n" for line in lines)
        if len(rest) > MAX_FILE_CHARS:
            yield rest
            return
    if rest:
        yield rest
