"""Find files and lines with ripgrep, or without it in a process of our own (TOOL-10).

Law: both engines are killable processes, search the same files in the same order and report in
the same form, which is read here as it comes: however much they find, only ``limit`` of it is
kept. A pattern is theirs to understand: what ripgrep refuses is tried with Python's ``re``.

They open files by their names: a directory that becomes a link while one works leads it elsewhere.
So nothing is told that cannot be read again, at its place in the file, through an open directory
and without following a link (SEC-5).
"""

from __future__ import annotations

import asyncio
import codecs
import heapq
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from agentcli.domain.cancel import CancelToken
from agentcli.domain.files import below, lstat_at, open_at, opened_directory
from agentcli.policy.places import credential_place
from agentcli.process.environment import base_environment, find_program
from agentcli.process.run import Command, Ending, Result, RunLimits, StartFailed, run
from agentcli.tools.search.globs import PathFilter
from agentcli.tools.search.worker import (
    BAD_PATTERN,
    BINARY_PROBE_BYTES,
    command_of,
    encoding_of,
)

TIME_LIMIT_S = 30.0
_MAX_PATH_BYTES = 64 * 1024
_NOISE_BYTES = 4_000
_RG_TROUBLE = 2
_RG_OPTIONS = (
    "--no-config",
    "--no-require-git",
    "--no-ignore-global",
    "--no-messages",
    "--no-follow",
    "--no-mmap",
    "--sort=path",
    "--color=never",
    "--null",
)
_KEPT_BY_PROGRAMS = (
    *(".git", ".hg", ".svn", ".jj", ".venv", ".tox", ".nox", ".eggs", ".direnv"),
    *(".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"),
    *(".next", ".nuxt", ".yarn", ".turbo", ".parcel-cache", ".svelte-kit"),
    *(".gradle", ".terraform", ".bundle", ".dart_tool"),
)
_RG_SEARCH = (
    "--no-heading",
    "--with-filename",
    "--line-number",
    "--byte-offset",
    "--crlf",
    "--no-search-zip",
)
_TEXT = re.compile(rb"(\d+)([:-])(\d+)\2")
_GLOB_CHARS = re.compile(r"[][*?{}\\!]")
_MAX_KEPT_BYTES = 8 * 1024 * 1024
# ripgrep holds whole lines: beyond this address space it gives up, and our own engine goes on
_BOUNDED = (
    "/bin/sh",
    "-c",
    'ulimit -c 0; ulimit -v 400000 2>/dev/null; exec "$0" "$@"',
)
LINE_BYTES = 2_000
_CHUNK_BYTES = 1024 * 1024
_GIVEN_UP = frozenset({Ending.CANCELLED, Ending.TIMED_OUT})
_MAX_LISTED = 50_000
_BATCH = 200  # names in one argument, which may have 128 KiB


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for. ``pattern`` of ``None`` asks for the files; ``file`` restricts to one.

    ``nice`` is what the process yields to others, as the program of that name has it; what is
    ``kept_back`` is not found.
    """

    root: Path
    file: str = ""
    pattern: str | None = None
    ignore_case: bool = False
    context: int = 0
    path_filter: PathFilter | None = None
    nice: int = 0
    kept_back: Callable[[Path], bool] | None = None

    @property
    def without(self) -> tuple[str, ...] | None:
        """Names left out of a search of hidden files; ``None``: nothing hidden is wanted.

        It is where a glob names it, or goes through any directory: then what only programs keep
        is left out (TOOL-17).
        """
        if self.path_filter is None:
            return None
        if self.path_filter.names_hidden:
            return (".git",)
        return _KEPT_BY_PROGRAMS if self.path_filter.names_everything else None


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line of a file, or (``number`` 0) a file. ``cut_bytes`` are missing at its end.

    ``raw`` is the line in UTF-8, as far as it was, ``offset`` where it begins in the file without
    its byte-order mark and in UTF-8.
    """

    path: str
    number: int = 0
    raw: bytes = b""
    matches: bool = True
    cut_bytes: int = 0
    offset: int = 0

    @property
    def text(self) -> str:
        """The line for the user or a model."""
        return self.raw.decode("utf-8", "ignore" if self.cut_bytes else "replace")


@dataclass(slots=True)
class Found:
    """What was found. ``more`` says that there is more than that.

    ``changed`` are the lines or files that are not where the engine saw them; ``withheld`` are
    files with matches that hold credentials, or that a rule keeps back. ``unsearched`` counts files
    in older encodings whose engine does not take the pattern.
    """

    lines: list[FoundLine] = field(default_factory=list)
    more: bool = False
    changed: int = 0
    withheld: set[str] = field(default_factory=set)
    unsearched: int = 0
    ending: Ending = Ending.EXITED


class SearchFailed(Exception):
    """The search could not be done; the text says why."""


class BadPattern(SearchFailed):
    """Neither engine takes the pattern."""


async def search(query: Query, limit: int, cancel: CancelToken, outside: Iterable[Path]) -> Found:
    """At most ``limit`` matching lines (with context) or files; raises ``SearchFailed``.

    Nothing is found outside of the directory that stands at ``query.root`` now (SEC-5).
    """
    with ExitStack() as stack:
        try:
            root = stack.enter_context(opened_directory(query.root))
        except OSError as error:
            raise SearchFailed(f"cannot open the directory: {error.strerror}") from None
        found = await _found(query, limit, cancel, outside)
        if query.pattern is None:
            there = await asyncio.to_thread(lambda: list(files_there(found.lines, root)))
        else:
            there = await asyncio.to_thread(lambda: list(lines_there(found.lines, root)))
    found.changed = len(found.lines) - len(there)
    found.lines = there
    return found


async def _found(query: Query, limit: int, cancel: CancelToken, outside: Iterable[Path]) -> Found:
    rg = find_program("rg", outside)
    if rg is not None:
        try:
            return await _found_by_rg(rg, query, limit, cancel)
        except SearchFailed:
            pass  # too old, broken, or a line is larger than it may hold; ours can do it
    return await _run(_own_command(query), query, limit, cancel)


async def _found_by_rg(rg: str, query: Query, limit: int, cancel: CancelToken) -> Found:
    """What reads UTF-8, and UTF-16 with a mark; in all other text our own engine looks."""
    others = await _in_other_encodings(rg, query, cancel) if query.pattern is not None else ()
    found = await _run(_rg_command(rg, query), query, limit, cancel, frozenset(others))
    for start in range(0, len(others), _BATCH):
        if found.ending in _GIVEN_UP:
            break
        try:
            command = _own_command(query, others[start : start + _BATCH])
            more = await _run(command, query, limit, cancel)
        except BadPattern:
            found.unsearched = len(others) - start  # ripgrep takes the pattern, Python does not
            break
        found = _merged(found, more, limit)
    return found


async def _in_other_encodings(rg: str, query: Query, cancel: CancelToken) -> tuple[str, ...]:
    """The text files that ripgrep cannot read as ``read_file`` shows them (TOOL-17)."""
    options = [
        "--files-with-matches",
        "--text",
        "--encoding=none",
        r"--regexp=(?-u:[\x00\x80-\xff])",
    ]
    listing = replace(query, pattern=None)
    try:
        listed = await _run(_rg_command(rg, listing, options), listing, _MAX_LISTED, cancel)
        with opened_directory(query.root) as root:
            return await asyncio.to_thread(_others, listed.lines, root, cancel)
    except (SearchFailed, OSError):
        return ()


def _others(lines: Sequence[FoundLine], root: int, cancel: CancelToken) -> tuple[str, ...]:
    found, until = [], time.monotonic() + TIME_LIMIT_S
    for line in lines:
        if cancel.cancelled or time.monotonic() > until:
            break
        with suppress(OSError), _opened(line.path, root) as descriptor:
            bom, codec = encoding_of(os.pread(descriptor, BINARY_PROBE_BYTES, 0), descriptor)
            if codec and (codec.startswith("utf-32") if bom else codec != "utf-8"):
                found.append(line.path)
    return tuple(found)


@contextmanager
def _opened(path: str, root: int) -> Iterator[int]:
    *parents, name = path.split("/")
    with below(root, parents) as directory:
        if not _is_file(name, directory):
            raise FileNotFoundError(path)
        descriptor = open_at(name, directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _merged(found: Found, more: Found, limit: int) -> Found:
    """Both in the order of the paths, and no more of them than ``limit``."""
    kept, matches, is_cut = [], 0, False
    for line in heapq.merge(found.lines, more.lines, key=_path_order):
        matches += line.matches
        if matches > limit:
            is_cut = True
            break
        kept.append(line)
    is_cut = is_cut or found.more or more.more
    ending = more.ending if more.ending in _GIVEN_UP else found.ending
    return Found(kept, is_cut, withheld=found.withheld | more.withheld, ending=ending)


def _path_order(line: FoundLine) -> list[bytes]:
    return os.fsencode(line.path).split(b"/")


def _rg_command(rg: str, query: Query, instead: Sequence[str] = ()) -> tuple[str, ...]:
    options = list(_RG_OPTIONS)
    if query.without is not None:
        options += ["--hidden", *(f"--glob=!{name}" for name in query.without)]
    if query.pattern is None:
        options += instead or ["--files"]
    else:
        options += [*_RG_SEARCH, "--ignore-case" if query.ignore_case else "--case-sensitive"]
        options += [f"--context={query.context}", f"--regexp={query.pattern}"]
    if query.file:  # found, not named: a named one is read to its end though it is binary
        name = _GLOB_CHARS.sub(r"\\\g<0>", query.file)
        options += ["--no-ignore", "--hidden", "--max-depth=1", f"--glob=/{name}"]
    return (*_BOUNDED, rg, *options, "--", "./")


def _own_command(query: Query, files: Sequence[str] = ()) -> tuple[str, ...]:
    return command_of(
        {
            "root": str(query.root),
            "file": query.file,
            "files": list(files),
            "pattern": query.pattern,
            "ignore_case": query.ignore_case,
            "context": query.context,
            "without": query.without,
        }
    )


async def _run(
    argv: tuple[str, ...],
    query: Query,
    limit: int,
    cancel: CancelToken,
    without: frozenset[str] = frozenset(),
) -> Found:
    found = Found()
    keep = _keeper(found, query, limit, without)
    reader: _FileReader | _LineReader
    reader = _FileReader(keep) if query.pattern is None else _LineReader(keep)
    if query.nice and (program := find_program("nice", (query.root,))) is not None:
        argv = (program, "-n", str(query.nice), *argv)
    command = Command(argv, query.root, base_environment())
    try:
        ended = await run(command, RunLimits(cancel, TIME_LIMIT_S), reader.feed)
    except StartFailed as error:
        raise SearchFailed(str(error)) from None
    reader.end()
    if ended.returncode == BAD_PATTERN:
        raise BadPattern(reader.noise.decode("utf-8", "replace"))
    if _failed(ended, found, reader.noise):
        raise SearchFailed(reader.noise.decode("utf-8", "replace").strip() or "it crashed")
    found.ending = ended.ending
    return found


def _failed(ended: Result, found: Found, noise: bytearray) -> bool:
    """Whether the engine could not do it. ripgrep also ends with 2 when a file was unreadable."""
    if ended.ending is not Ending.EXITED:
        return ended.ending is Ending.LOST
    code = ended.returncode or 0
    if code == _RG_TROUBLE:
        return bool(noise) and not found.lines
    return code not in {0, 1} or noise.startswith(b"Traceback")


def _keeper(
    found: Found, query: Query, limit: int, without: frozenset[str]
) -> Callable[[FoundLine], bool]:
    """Takes what is found; ``False`` when that is enough."""
    wanted = size = 0
    verdicts: dict[str, bool] = {}

    is_withheld = _withheld(query)

    def keep(line: FoundLine) -> bool:
        nonlocal wanted, size
        if line.path in without:
            return True
        if is_withheld(line.path):
            if query.pattern is not None:
                found.withheld.add(line.path)
            return True
        if query.path_filter is not None:
            if line.path not in verdicts:
                verdicts.clear()
                verdicts[line.path] = query.path_filter.matches(line.path)
            if not verdicts[line.path]:
                return True
        if wanted == limit and line.matches:
            found.more = True
            return False
        wanted += line.matches
        size += len(line.raw)
        found.lines.append(line)
        found.more = size > _MAX_KEPT_BYTES
        return not found.more

    return keep


def _withheld(query: Query) -> Callable[[str], bool]:
    """Which files below are not shown: by a rule, or credentials that nobody has named."""
    by_rule = query.kept_back
    is_named = query.pattern is None or query.file or credential_place((query.root,))
    if is_named and by_rule is None:
        return lambda _: False

    def is_withheld(path: str) -> bool:
        whole = query.root / path
        is_secret = not is_named and credential_place((whole,))
        return bool(is_secret or (by_rule is not None and by_rule(whole)))

    return lru_cache(maxsize=64)(is_withheld)


# --- what the engines print ---


class _ResultReader:
    def __init__(self, keep: Callable[[FoundLine], bool]) -> None:
        self.noise = bytearray()
        self._keep = keep
        self._rest = bytearray()

    def end(self) -> None:
        """What is left over was no record."""
        self.noise += self._rest[:_NOISE_BYTES]

    def _path(self, raw: bytes) -> str:
        """The path of a record, messages in front of it set aside."""
        if not raw.startswith(b"./"):
            noise, _, path = raw.partition(b"\n./")
            self.noise += noise[: max(0, _NOISE_BYTES - len(self.noise))]
            raw = b"./" + path
        return os.fsdecode(raw[2:])


class _FileReader(_ResultReader):
    """Reads ``./path NUL``, over and over."""

    def feed(self, data: bytes) -> bool:
        *paths, self._rest[:] = (bytes(self._rest) + data).split(b"\0")
        return all(self._keep(FoundLine(self._path(path))) for path in paths)


class _LineReader(_ResultReader):
    """Reads ``./path NUL number : offset : text newline``; ``-`` marks a line of context."""

    def __init__(self, keep: Callable[[FoundLine], bool]) -> None:
        super().__init__(keep)
        self._skipped = 0
        self._start = 0

    def feed(self, data: bytes) -> bool:
        self._rest += data
        at = 0
        while True:
            nul = self._rest.find(b"\0", at, at + _MAX_PATH_BYTES)
            end = self._rest.find(b"\n", nul + 1) if nul >= 0 else -1
            if end < 0:
                break
            if not self._record(bytes(self._rest[at:nul]), bytes(self._rest[nul + 1 : end])):
                return False
            at = end + 1
        del self._rest[:at]
        self._bound(nul - at)
        return True

    def _bound(self, nul: int) -> None:
        """Keep no more of a line that has not ended yet than is going to be shown."""
        keep = (nul + 1 if nul >= 0 else _MAX_PATH_BYTES) + LINE_BYTES + 32
        if len(self._rest) > keep:
            self._skipped += len(self._rest) - keep
            del self._rest[keep:]

    def _record(self, raw_path: bytes, rest: bytes) -> bool:
        match = _TEXT.match(rest)
        skipped, self._skipped = self._skipped, 0
        if match is None:
            return True
        text = rest[match.end() :].removesuffix(b"\r")
        cut = max(0, len(text) - LINE_BYTES) + skipped
        line = FoundLine(
            self._path(raw_path),
            int(match[1]),
            text[:LINE_BYTES],
            matches=match[2] == b":",
            cut_bytes=cut,
            offset=int(match[3]),
        )
        return self._keep(line)


# --- whether it stands there ---


def changed_note(count: int, noun: str) -> str:
    """What is told of results that did not stand the check."""
    if not count:
        return ""
    nouns = noun if count == 1 else f"{noun}s"
    return f"\n[{count:,} {nouns} left out: changed during the search]"


def files_there(lines: Iterable[FoundLine], root: int) -> Iterator[FoundLine]:
    """Those of the files found that stand below the open directory ``root``."""
    for parents, group in groupby(lines, key=lambda line: line.path.split("/")[:-1]):
        try:
            with below(root, parents) as directory:
                for line in group:
                    if _is_file(line.path.rpartition("/")[2], directory):
                        yield line
        except OSError:
            continue


def lines_there(lines: Iterable[FoundLine], root: int) -> Iterator[FoundLine]:
    """Those of the lines found that stand where they are said to."""
    for path, group in groupby(lines, key=lambda line: line.path):
        try:
            with _opened(path, root) as descriptor:
                yield from _standing(list(group), descriptor)
        except OSError:
            continue


def _is_file(name: str, directory: int) -> bool:
    try:
        return stat.S_ISREG(lstat_at(name, directory).st_mode)
    except OSError:
        return False


def _standing(lines: list[FoundLine], descriptor: int) -> list[FoundLine]:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return []
    bom, codec = encoding_of(os.pread(descriptor, BINARY_PROBE_BYTES, 0), descriptor)
    there = [line for line in lines if _stands(line, descriptor, len(bom))]
    if len(there) == len(lines) or not codec or (there and codec == "utf-8"):
        return there
    return list(_standing_in_text(lines, _recoded(descriptor, codec, len(bom))))


def _stands(line: FoundLine, descriptor: int, skipped: int) -> bool:
    return os.pread(descriptor, len(line.raw), skipped + line.offset) == line.raw


def _recoded(descriptor: int, codec: str, skipped: int) -> Iterator[bytes]:
    """The text of the file in UTF-8, piece by piece."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    position, data = skipped, b"-"
    while data:
        data = os.pread(descriptor, _CHUNK_BYTES, position)
        position += len(data)
        yield decoder.decode(data, final=not data).encode("utf-8", "replace")


def _standing_in_text(lines: list[FoundLine], pieces: Iterator[bytes]) -> Iterator[FoundLine]:
    held, start = b"", 0
    for line in sorted(lines, key=lambda line: line.offset):
        end = line.offset + len(line.raw)
        while start + len(held) < end and (piece := next(pieces, None)) is not None:
            keep = max(0, len(held) - max(0, line.offset - start))
            start, held = start + len(held) - keep, held[len(held) - keep :] + piece
        if held[line.offset - start : end - start] == line.raw:
            yield line
