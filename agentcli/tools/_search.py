"""Find files and lines with ripgrep, or without it in a process of our own (TOOL-10).

Law: both engines are killable processes, search the same files in the same order and report in
the same form, which is read here as it comes: however much they find, only ``limit`` of it is kept.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agentcli.domain.cancel import CancelToken
from agentcli.tools._environment import base_environment, find_program
from agentcli.tools._globs import PathFilter
from agentcli.tools._guarded_process import Command, Ended, Ending, StartFailed
from agentcli.tools._process import run

TIME_LIMIT_S = 30.0
LINE_BYTES = 2_000
_MAX_PATH_BYTES = 64 * 1024
_NOISE_BYTES = 4_000
_RG_TROUBLE = 2
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
_WORKER = (
    f"import sys; sys.path.insert(0, {_PACKAGE_PARENT!r}); "
    "from agentcli.tools import _search_worker; _search_worker.main()"
)
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
_RG_SEARCH = ("--no-heading", "--with-filename", "--line-number", "--crlf", "--no-search-zip")
_TEXT = re.compile(rb"(\d+)([:-])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for. ``pattern`` of ``None`` asks for the files; ``file`` restricts to one."""

    root: Path
    file: str = ""
    pattern: str | None = None
    ignore_case: bool = False
    context: int = 0
    path_filter: PathFilter | None = None

    @property
    def hidden(self) -> bool:
        """Whether hidden files are wanted: only when a glob names them."""
        return self.path_filter is not None and self.path_filter.names_hidden


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, or (``number`` 0) a file. ``cut_bytes`` are missing at its end."""

    path: str
    number: int = 0
    text: str = ""
    matches: bool = True
    cut_bytes: int = 0


@dataclass(slots=True)
class Found:
    """What was found. ``more`` says that there is more than that."""

    lines: list[Line] = field(default_factory=list)
    more: bool = False
    ending: Ending = Ending.EXITED


class SearchFailed(Exception):
    """The search could not be done; the text says why."""


async def search(query: Query, limit: int, cancel: CancelToken, outside: Iterable[Path]) -> Found:
    """At most ``limit`` matching lines (with context) or files; raises ``SearchFailed``."""
    rg = find_program("rg", outside)
    if rg is not None:
        try:
            return await _run(_rg_command(rg, query), query, limit, cancel)
        except SearchFailed:
            pass  # too old or broken; ours can do it
    return await _run(_own_command(query), query, limit, cancel)


def _rg_command(rg: str, query: Query) -> tuple[str, ...]:
    options = list(_RG_OPTIONS)
    if query.hidden:
        options += ["--hidden", "--glob=!.git"]
    if query.pattern is None:
        options.append("--files")
    else:
        options += [*_RG_SEARCH, "--ignore-case" if query.ignore_case else "--case-sensitive"]
        options += [f"--context={query.context}", f"--regexp={query.pattern}"]
    return (rg, *options, "--", f"./{query.file}")


def _own_command(query: Query) -> tuple[str, ...]:
    request = {
        "root": str(query.root),
        "file": query.file,
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "context": query.context,
        "hidden": query.hidden,
    }
    return (sys.executable, "-I", "-S", "-X", "utf8", "-c", _WORKER, json.dumps(request))


async def _run(argv: tuple[str, ...], query: Query, limit: int, cancel: CancelToken) -> Found:
    found = Found()
    keep = _keeper(found, query, limit)
    reader: _FileReader | _LineReader
    reader = _FileReader(keep) if query.pattern is None else _LineReader(keep)
    command = Command(argv, query.root, base_environment())
    try:
        ended = await run(command, reader.feed, cancel, TIME_LIMIT_S)
    except StartFailed as error:
        raise SearchFailed(str(error)) from None
    reader.end()
    if _failed(ended, found, reader.noise):
        raise SearchFailed(reader.noise.decode("utf-8", "replace").strip() or "it crashed")
    found.ending = ended.ending
    return found


def _failed(ended: Ended, found: Found, noise: bytearray) -> bool:
    """Whether the engine could not do it. ripgrep also ends with 2 when a file was unreadable."""
    if ended.ending is not Ending.EXITED:
        return ended.ending is Ending.LOST
    code = ended.returncode or 0
    if code == _RG_TROUBLE:
        return bool(noise) and not found.lines
    return code not in {0, 1} or noise.startswith(b"Traceback")


def _keeper(found: Found, query: Query, limit: int) -> Callable[[Line], bool]:
    """Takes what is found; ``False`` when that is enough."""
    wanted = 0
    verdicts: dict[str, bool] = {}

    def keep(line: Line) -> bool:
        nonlocal wanted
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
        found.lines.append(line)
        return True

    return keep


class _Reader:
    def __init__(self, keep: Callable[[Line], bool]) -> None:
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


class _FileReader(_Reader):
    """Reads ``./path NUL``, over and over."""

    def feed(self, data: bytes) -> bool:
        *paths, self._rest[:] = (bytes(self._rest) + data).split(b"\0")
        return all(self._keep(Line(self._path(path))) for path in paths)


class _LineReader(_Reader):
    """Reads ``./path NUL number : text newline``; ``-`` for ``:`` marks a line of context."""

    def __init__(self, keep: Callable[[Line], bool]) -> None:
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
        line = Line(
            self._path(raw_path),
            int(match[1]),
            text[:LINE_BYTES].decode("utf-8", "ignore" if cut else "replace"),
            matches=match[2] == b":",
            cut_bytes=cut,
        )
        return self._keep(line)
