"""What is offered: ``/command`` at the start, ``@path`` and ``@server:uri``, earlier prompts.

Law: the event loop never waits for a disk or for git; completing runs none of the repository's
code (see ``FileIndex``); what is offered reads, once it stands there, as the path it names (see
``app.files.mentions``); earlier prompts are kept privately and without keys (SEC-9).
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import islice
from pathlib import Path

import prompt_toolkit.application  # noqa: F401 - the parts below need it to be imported first
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from agentcli.app.files.mentions import START, escaped, find_mentions, unescaped, written
from agentcli.app.files.safe_git import find_git, read_bounded
from agentcli.app.user_files import UserFiles
from agentcli.domain.files import make_private_directory
from agentcli.domain.patterns import LazyPattern
from agentcli.ui.sanitize import clean_line, reveal

# --- fuzzy search in paths --------------------------------------------------------------------

LOOKED_AT = 300
"""How many paths of each sort, the shortest, are ranked."""

_BIT = {char: 1 << at for at, char in enumerate("abcdefghijklmnopqrstuvwxyz0123456789._-/")}
_OTHER = 1 << len(_BIT)
_BREAKS = frozenset("/\\_-. ,()[]{}@+=:~'\"")


class MatchKind(IntEnum):
    """How a path matches, best first."""

    WHOLE = 0  # the path, its name, or its name without the ending
    NAME_START = 1  # the name begins so; with a slash typed: a part of the path does
    NAME_WORD = 2  # a word of the name begins so
    NAME_WORDS = 3  # beginnings of words of the name
    IN_NAME = 4  # with a slash typed: beginnings of the path's parts
    IN_PATH = 5
    PATH_WORDS = 6  # beginnings of words of the path
    NAME_LETTERS = 7
    PATH_LETTERS = 8


class PathList:
    """Paths with ``/``; a directory ends in one. Made once, searched often, the best match first.

    Law: what is found holds the typed letters in this order, whatever their case. Better kinds of
    match come first (``MatchKind``); within a kind what was used last, then the match with the
    fewest gaps, then the short path. A search looks closely at a bounded number of paths, so that
    a key press costs little more in 100,000 files than in 1,000.

    At most ``len(paths)`` times the length of a path, twice, is kept in memory.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = sorted(dict.fromkeys(paths))
        self.paths.sort(key=len)
        self._lowered = [_lowered(path) for path in self.paths]
        self._names = [name_of(path) for path in self._lowered]
        self._masks = [_mask(path) for path in self._lowered]
        self._everything = range(len(self.paths))
        self._narrowed: tuple[str, Sequence[int]] = ("", self._everything)

    def search(self, typed: str, limit: int, used: Mapping[str, int] | None = None) -> list[str]:
        """At most ``limit`` paths that match, best first.

        ``used`` gives a rank to paths that were used lately, the higher the later.
        """
        wanted = typed.lower()
        ranks = used or {}
        if not wanted:
            return self._top(limit, ranks)
        mask = _mask(wanted)
        scope = self._scope(wanted)
        some = [at for at in scope if self._masks[at] & mask == mask]
        self._narrowed = (wanted, some)
        found = {self.paths[at] for at in self._worth_a_look(wanted, some)}
        if ranks:
            letters = subsequence(wanted)
            found |= {path for path in ranks if letters.match(path.lower())}
        ranked = [(*rank(wanted, path, ranks), path) for path in found]
        ranked.sort()
        return [each[-1] for each in ranked[:limit]]

    def _top(self, limit: int, ranks: Mapping[str, int]) -> list[str]:
        """What to offer before anything is typed: used lately, then the uppermost level."""
        lately = sorted(ranks, key=lambda path: -ranks[path])[:limit]
        top: list[str] = []
        deeper: list[str] = []
        for path in self.paths:
            if "/" not in path[:-1]:
                top.append(path)
            elif len(deeper) < limit:
                deeper.append(path)
        top.sort(key=lambda path: (not path.endswith("/"), path.startswith("."), path.lower()))
        return list(dict.fromkeys([*lately, *top, *deeper]))[:limit]

    def _scope(self, wanted: str) -> Sequence[int]:
        """Where to look: what was left for the letters typed before, if these go on from them."""
        before, left = self._narrowed
        return left if wanted.startswith(before) else self._everything

    def _worth_a_look(self, wanted: str, some: Sequence[int]) -> set[int]:
        """The shortest paths of each sort of match."""
        names, lowered = self._names, self._lowered
        found: set[int] = set()
        if "/" not in wanted:
            inside = [at for at in some if wanted in names[at]]
            found.update([at for at in inside if names[at].startswith(wanted)][:LOOKED_AT])
            found.update(inside[:LOOKED_AT])
            if len(wanted) > 1:
                found.update(_first(names, some, wanted))
        found.update([at for at in some if wanted in lowered[at]][:LOOKED_AT])
        if len(wanted) > 1:
            found.update(_first(lowered, some, wanted))
        return found


def rank(wanted: str, path: str, used: Mapping[str, int]) -> tuple[int, int, int, int]:
    """Sorts ``path``, which holds the letters of ``wanted`` (in lower case) in order."""
    lowered = path.lower()
    name = name_of(lowered)
    start = len(path) - len(name) if len(lowered) == len(path) else len(path)
    kind, gaps = _kind(wanted, lowered, name, path[start:])
    return kind, -used.get(path, 0), gaps, len(path)


def _kind(wanted: str, lowered: str, name: str, shown: str) -> tuple[MatchKind, int]:
    """How the path matches and how many letters stand between those that do."""
    bare = name.rstrip("/")
    kind, gaps = MatchKind.PATH_LETTERS, 0
    if wanted in {lowered, name, bare, bare.rpartition(".")[0]}:
        kind = MatchKind.WHOLE
    elif name.startswith(wanted) or ("/" in wanted and f"/{wanted}" in f"/{lowered}"):
        kind = MatchKind.NAME_START
    elif _begins_word(wanted, name, shown):
        kind = MatchKind.NAME_WORD
    elif (found := _by_words(wanted, name, shown)) is not None:
        kind, gaps = MatchKind.NAME_WORDS, found
    elif wanted in name:
        kind = MatchKind.IN_NAME
    elif "/" in wanted and (found := _by_words(wanted, lowered, "")) is not None:
        kind, gaps = MatchKind.IN_NAME, found
    elif wanted in lowered:
        kind = MatchKind.IN_PATH
    elif (found := _by_words(wanted, lowered, "")) is not None:
        kind, gaps = MatchKind.PATH_WORDS, found
    elif (found := _spread(wanted, name)) is not None:
        kind, gaps = MatchKind.NAME_LETTERS, found
    else:
        gaps = _spread(wanted, lowered) or 0
    return kind, gaps


def _begins_word(wanted: str, text: str, shown: str) -> bool:
    at = text.find(wanted)
    while at >= 0:
        if _is_start(text, shown, at):
            return True
        at = text.find(wanted, at + 1)
    return False


def _is_start(text: str, shown: str, at: int) -> bool:
    """Whether a word begins at ``at``; ``shown`` is ``text`` with its capitals, or empty."""
    if at == 0 or text[at - 1] in _BREAKS:
        return True
    if len(shown) == len(text) and shown[at].isupper() and not shown[at - 1].isupper():
        return True
    return text[at].isdigit() and not text[at - 1].isdigit()


def _by_words(wanted: str, text: str, shown: str) -> int | None:
    """Letters passed over when each one typed goes on with a word or begins one; else ``None``.

    A slash stands for the end of a part; what comes after it begins the next part.
    """
    at, first = -2, -1
    for letter in wanted:
        if text[at + 1 : at + 2] == letter and at >= 0:
            at += 1
            continue
        if at >= 0 and text[at] == "/" and "/" in wanted:
            return None
        if letter == "/" and first >= 0:
            at = text.find("/", at)
            if at < 0:
                return None
            continue
        at = text.find(letter, max(at + 1, 0))
        while at >= 0 and not _is_start(text, shown, at):
            at = text.find(letter, at + 1)
        if at < 0:
            return None
        first = at if first < 0 else first
    return at + 1 - first - len(wanted)


def _spread(wanted: str, text: str) -> int | None:
    """The fewest letters passed over that a look forward and back finds; ``None``: no match."""
    at = -1
    for letter in wanted:
        at = text.find(letter, at + 1)
        if at < 0:
            return None
    end = at + 1
    first = end
    for letter in reversed(wanted):
        first = text.rfind(letter, 0, first)
    return end - first - len(wanted)


def _first(texts: Sequence[str], some: Sequence[int], wanted: str) -> list[int]:
    """The first of ``some`` whose text holds the letters in order."""
    matches = subsequence(wanted).match
    found: list[int] = []
    for at in some:
        if matches(texts[at]):
            found.append(at)
            if len(found) == LOOKED_AT:
                break
    return found


def subsequence(wanted: str) -> re.Pattern[str]:
    """Matches texts with the letters of ``wanted`` in order, in time linear in the text."""
    steps = (f"[^{re.escape(letter)}]*+{re.escape(letter)}" for letter in wanted)
    return re.compile("".join(steps), re.DOTALL)


def name_of(path: str) -> str:
    """The last part of a path; of a directory with its slash."""
    return path[path.rfind("/", 0, len(path) - 1) + 1 :]


def _lowered(path: str) -> str:
    lowered = path.lower()
    return path if lowered == path else lowered


def _mask(text: str) -> int:
    """A bit for each letter that ``text`` holds."""
    mask = 0
    for char in set(text):
        mask |= _BIT.get(char, _OTHER)
    return mask


# --- the index of a project's files -----------------------------------------------------------

MAX_FILES = 200_000
MAX_BYTES = 24_000_000
FRESH_S = 3.0
WALK_TIMEOUT_S = 5.0
WAIT_S = 0.03  # a small project's new index is worth waiting for
_PATIENCE = 20  # an index is renewed only after this many times what making it takes
_KEPT_USED = 100
_GONE = "R "
_LIST = ("ls-files", "-z", "-t", "--cached", "--others", "--deleted", "--exclude-standard")


class FileIndex:
    """The files below ``cwd``. Use it from one event loop; ``close`` ends what runs.

    Law: the event loop never waits for it, and nothing is watched: what is searched may be some
    seconds old, and asking renews it. Making it runs none of the repository's code (see
    ``safe_git``) and is bounded in time and size; without git the directories are walked.
    """

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._list: PathList | None = None
        self._made_at = float("-inf")
        self._making: asyncio.Future[None] | None = None
        self._stop = threading.Event()
        self._took_s = 0.0
        self._used: dict[str, int] = {}

    def warm(self) -> None:
        """Begin to make the index unless it is fresh; returns at once."""
        if self._making is not None or self._stop.is_set():
            return
        fresh_s = max(FRESH_S, self._took_s * _PATIENCE)
        if self._list is not None and time.monotonic() - self._made_at < fresh_s:
            return
        loop = asyncio.get_running_loop()
        self._making = loop.create_future()
        worker = threading.Thread(target=self._make_for, args=(loop, self._making), daemon=True)
        worker.start()

    async def search(self, typed: str, limit: int) -> list[str]:
        """At most ``limit`` paths that match ``typed``, best first; see ``fuzzy``."""
        self.warm()
        if self._making is not None:
            await asyncio.wait({self._making}, timeout=None if self._list is None else WAIT_S)
        found = self._list
        if found is None:
            return []
        return await asyncio.to_thread(found.search, typed, limit, dict(self._used))

    def use(self, path: str) -> None:
        """``path`` was used: it comes before others that match as well."""
        self._used.pop(path, None)
        self._used[path] = max(self._used.values(), default=0) + 1
        while len(self._used) > _KEPT_USED:
            del self._used[next(iter(self._used))]

    def close(self) -> None:
        """End what runs; nothing is found afterwards that was not found before."""
        self._stop.set()

    def _make_for(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        started = time.monotonic()
        try:
            made = make(self._cwd, self._stop)
        except OSError:
            made = PathList(())

        def finish() -> None:
            self._list = made
            self._made_at = time.monotonic()
            self._took_s = self._made_at - started
            self._making = None
            if not done.done():
                done.set_result(None)

        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finish)


def make(cwd: Path, stop: threading.Event) -> PathList:
    """The index of what is below ``cwd``; takes a while."""
    return PathList(_with_directories(project_files(cwd, stop)))


def project_files(cwd: Path, stop: threading.Event) -> list[str]:
    """Paths below ``cwd``, relative, with ``/``: those that git would add, else all (bounded)."""
    listed = _git_files(cwd, stop)
    return _typable(_walked(cwd, stop) if listed is None else listed)


def _walked(cwd: Path, stop: threading.Event) -> Iterator[str]:
    from agentcli.app.files.mentions import project_files as walk

    end = time.monotonic() + WALK_TIMEOUT_S
    return walk(cwd, lambda: stop.is_set() or time.monotonic() > end)


def _typable(paths: Iterable[str]) -> list[str]:
    """Those that can be typed: no control characters, valid UTF-8; as many as are kept."""
    found: list[str] = []
    size = 0
    for path in paths:
        size += len(path)
        if len(found) >= MAX_FILES or size > MAX_BYTES:
            break
        if path and (path.isprintable() or _has_text_only(path)):
            found.append(path)
    return found


def _has_text_only(path: str) -> bool:
    return all(char >= " " and char != "\x7f" and not "\ud800" <= char <= "\udfff" for char in path)


def _with_directories(paths: list[str]) -> Iterator[str]:
    """``paths`` with all directories above them."""
    seen: set[str] = set()
    for path in paths:
        above = path
        while (cut := above.rfind("/", 0, len(above) - 1)) > 0:
            above = above[: cut + 1]
            if above in seen:
                break
            seen.add(above)
            yield above
        yield path


def _git_files(cwd: Path, stop: threading.Event) -> list[str] | None:
    """What git knows or would add; ``None`` without git or a repository."""
    git = find_git(cwd)
    try:
        process = git.start(*_LIST) if git is not None else None
    except OSError:
        return None
    if process is None:
        return None
    with process:
        data = read_bounded(process, MAX_BYTES, stop)
        data = data[: data.rfind(b"\0") + 1]
    if process.returncode > 0 or (process.returncode and not data):
        return None
    return _parsed(data)


def _parsed(data: bytes) -> list[str]:
    """Paths of ``ls-files -z -t``, without those that are deleted."""
    lines = os.fsdecode(data).split("\0")
    gone = {line[2:] for line in lines if line.startswith(_GONE)}
    paths = dict.fromkeys(line[2:] for line in lines if line)
    return [path for path in paths if path not in gone]


# --- the completer ----------------------------------------------------------------------------

MAX_SHOWN = 50
MAX_ENTRIES = 10_000

_LONGEST_AT = 4_096  # characters before the cursor
_AT_PATH = LazyPattern(rf'{START}@("(?:[^"\\]|\\.)*+|(?:\\ |[^\s"])*+)$')
_COMMAND = LazyPattern(r"^/([a-z0-9:-]*)$")
_ARGUMENT = LazyPattern(r"^/([a-z][a-z0-9:-]*) +([^\s]*)$")
_ELSEWHERE = ("/", "~", "./", "../")


class ChatCompleter(Completer):
    """Chooses between commands and paths."""

    def __init__(
        self,
        commands: Callable[[], Mapping[str, str]],
        cwd: Path,
        arguments: Callable[[str], Sequence[str]] = lambda _: (),
        resources: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._commands = commands
        self._arguments = arguments
        self._resources = resources
        self._cwd = cwd
        self._index = FileIndex(cwd)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Completions of what stands before the cursor, made from a new index."""
        del complete_event
        yield from self._command_completions(document)
        if (typed := _typed_path(document)) is not None:
            path = _plain(typed)
            found = listed(self._cwd, path) if path.startswith(_ELSEWHERE) else None
            if found is None:
                found = make(self._cwd, threading.Event()).search(path, MAX_SHOWN)
            yield from (_completion(each, typed) for each in found)
            yield from self._resource_completions(typed)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The same without blocking the loop, from an index that is kept."""
        del complete_event
        typed = _typed_path(document)
        if typed is None:
            self._index.warm()
            for completion in self._command_completions(document):
                yield completion
            return
        path = _plain(typed)
        if path.startswith(_ELSEWHERE):
            found = await asyncio.to_thread(listed, self._cwd, path)
        else:
            found = await self._index.search(path, MAX_SHOWN)
        for each in found:
            yield _completion(each, typed)
        for completion in self._resource_completions(typed):
            yield completion

    def used(self, text: str) -> None:
        """``text`` was sent: what it names is offered first from now on."""
        for readings in islice(find_mentions(text), MAX_SHOWN):
            self._index.use(readings[0].path.removeprefix("./"))

    def close(self) -> None:
        """End what runs in the background."""
        self._index.close()

    def _command_completions(self, document: Document) -> Iterable[Completion]:
        argument = _ARGUMENT.match(document.text_before_cursor)
        if argument is not None:
            yield from self._argument_completions(argument[1], argument[2])
        found = _COMMAND.match(document.text_before_cursor)
        if found is None:
            return
        for name, help_text in self._commands().items():
            if name.startswith(found[1]):
                yield Completion(f"/{name}", -len(found[1]) - 1, display_meta=help_text)

    def _resource_completions(self, typed: str) -> Iterable[Completion]:
        """Resources of MCP servers, ``SERVER:URI``: those that begin so first."""
        wanted = typed.lower()
        about = self._resources()
        fitting = [each for each in about if wanted in each.lower() and each != typed]
        fitting.sort(key=lambda each: not each.lower().startswith(wanted))
        for each in fitting[:MAX_SHOWN]:
            yield Completion(
                each, -len(typed), display=reveal(each), display_meta=clean_line(about[each])
            )

    def _argument_completions(self, command: str, typed: str) -> Iterable[Completion]:
        """What may come after a command: what begins with the letters, then what holds them."""
        wanted = typed.lower()
        fitting = [each for each in self._arguments(command) if wanted in each.lower()]
        fitting.sort(key=lambda each: not each.lower().startswith(wanted))
        for each in fitting[:MAX_SHOWN]:
            if each.lower() != wanted:
                yield Completion(each, -len(typed))


def listed(cwd: Path, typed: str) -> list[str]:
    """Entries of the directory that ``typed`` names by a path of its own, best first."""
    above, slash, name = typed.rpartition("/")
    if not slash:
        return [f"{typed}/"]
    try:
        directory = cwd / Path(f"{above}/").expanduser()
        with os.scandir(directory) as entries:
            names = [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, MAX_ENTRIES)
                if entry.name.isprintable()
            ]
    except (OSError, RuntimeError, ValueError):
        return []
    return [f"{above}/{entry}" for entry in PathList(names).search(name, MAX_SHOWN)]


def _typed_path(document: Document) -> str | None:
    """What stands between the ``@`` and the cursor; ``None`` where no path is being typed."""
    found = _AT_PATH.search(document.current_line_before_cursor[-_LONGEST_AT:])
    return found[1] if found else None


def _plain(typed: str) -> str:
    """The path in what was typed."""
    return unescaped(typed[1:]) if typed.startswith('"') else typed.replace("\\ ", " ")


def _completion(path: str, typed: str) -> Completion:
    text = written(path)
    if path.endswith("/") and (text != path or typed.startswith('"')):
        text = f'"{escaped(path)}'  # the quote stays open: more may follow
    elif typed.startswith('"'):
        text = f'"{escaped(path)}"'
    return Completion(text, -len(typed), display=reveal(path))


def next_completion(buffer: Buffer) -> None:
    """Tab: the next of what is offered, or the first."""
    if buffer.complete_state:
        buffer.complete_next()
    else:
        buffer.start_completion(insert_common_part=False, select_first=True)


def take_completion(buffer: Buffer) -> None:
    """What was chosen with the arrows stands; the next word does not stick to it."""
    buffer.complete_state = None
    if not buffer.document.text_before_cursor.endswith("/"):
        buffer.insert_text(" ")


# --- earlier prompts --------------------------------------------------------------------------


class _SafeHistory(FileHistory):
    """A history file; where it cannot be read or written, memory has to do."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        super().__init__(str(path))
        self._redact = redact

    def load_history_strings(self) -> Iterable[str]:
        """The strings, newest first."""
        try:
            return super().load_history_strings()
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Append, privately."""
        try:
            descriptor = os.open(self.filename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            os.fchmod(descriptor, 0o600)
            os.close(descriptor)
            super().store_string(self._redact(string))
        except OSError:
            return


def prompt_history(user: UserFiles) -> History:
    """Earlier prompts, in a private file where there is one, without keys (SEC-9)."""
    path = user.history_file
    if path is None:
        return InMemoryHistory()
    try:
        make_private_directory(path.parent)
    except OSError:
        return InMemoryHistory()
    return _SafeHistory(path, user.redact_data)
