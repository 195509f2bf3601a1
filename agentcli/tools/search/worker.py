"""Search without ripgrep, in a process of its own; ``main`` is what that process does.

It runs with ``python -I -S``, our package and ``pathspec``, so that a pattern that takes for ever,
of the model or of an ignore file, can be killed (TOOL-10); it prints what ripgrep would. Files are
walked the way ripgrep walks them: honoured are, nearest directory first, ``.rgignore``, then
``.ignore``, then ``.gitignore`` up to the root of the repository (or the file system, outside of
one), then ``.git/info/exclude``. Hidden entries are left out unless an ignore file names them with
``!``. Links are not followed. The order is that of the names' bytes, directory by directory.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

BAD_PATTERN = 3
"""The exit code of a pattern that Python does not take either."""
BINARY_PROBE_BYTES = 65_536
_PIECE_CHARS = 4 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_BOMS = (  # the longer ones first: UTF-32 LE begins like UTF-16 LE
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_MAX_WHOLE_BYTES = 10 * 1024 * 1024
_ERRORS = {"utf-8": "surrogateescape"}
_POLL_S = 0.05
_MAX_IGNORE_FILE_BYTES = 1024 * 1024
_ANYWHERE = re.compile(r"^!?(\*\*/)*(/\*\*$)?")  # what comes before a name at any depth
_CUSTOM, _PLAIN, _GIT, _EXCLUDE = range(4)
_FILES = (".rgignore", ".ignore", ".gitignore", ".git/info/exclude")
_NEVER_TYPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"}
)


def command_of(request: dict[str, Any]) -> tuple[str, ...]:
    """What starts the process; nothing is imported from the working directory (SEC-2)."""
    from importlib.util import find_spec
    from pathlib import Path

    library = find_spec("pathspec")
    places = [str(Path(__file__).resolve().parents[3])]
    if library is not None and library.origin is not None:
        places.append(str(Path(library.origin).resolve().parents[1]))
    code = (
        f"import sys; sys.path += {places!r}; from agentcli.tools.search.worker import main; main()"
    )
    return (sys.executable, "-I", "-S", "-X", "utf8", "-c", code, json.dumps(request))


def walk_project(root: str, stopped: Callable[[], bool]) -> Iterator[str]:
    """The files of a directory that is in no repository, for completing their names. Blocking.

    Paths below ``root``, relative to it, nearest first; directories end in a slash. What ignore
    files name, what nobody edits and ``.git`` are left out; links are listed and not followed. It
    ends when ``stopped`` says so.
    """
    import select
    import subprocess

    argv = command_of({"project": root})
    with subprocess.Popen(  # noqa: S603 - our own program
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    ) as child:
        out, rest = child.stdout, b""
        try:
            while out is not None and not stopped():
                if not select.select([out], [], [], _POLL_S)[0]:
                    continue
                data = os.read(out.fileno(), _READ_BYTES)
                if not data:
                    return
                *paths, rest = (rest + data).split(b"\0")
                yield from map(os.fsdecode, paths)
        finally:
            child.kill()


# --- in the process ------------------------------------------------------------------------


def main() -> None:
    """Answer the request in the first argument on standard output."""
    request = json.loads(sys.argv[1])
    out = sys.stdout.buffer
    if "project" in request:
        for path in _project(request["project"]):
            out.write(os.fsencode(path) + b"\0")
    elif request["pattern"] is None:
        for path in _files(request):
            out.write(b"./" + os.fsencode(path) + b"\0")
    else:
        regex = _compiled(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
        for path in _files(request):
            full = os.path.join(request["root"], path)  # noqa: PTH118 - pathlib is slow here
            _search_file(regex, full, b"./" + os.fsencode(path), request["context"], out)
    out.flush()


def _files(request: dict[str, Any]) -> Iterable[str]:
    if files := request.get("files"):
        return [str(name) for name in files]
    one_file = request["file"]
    return [one_file] if one_file else walk(request["root"], request["without"])


def _compiled(pattern: str, flags: int) -> re.Pattern[str]:
    """Or the end of the process, with what is wrong on standard output."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as [[:alpha:]], which means something else here
            return re.compile(pattern, flags)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        sys.stdout.write(str(error))
        raise SystemExit(BAD_PATTERN) from None


def _search_file(
    regex: re.Pattern[str], full: str, shown: bytes, context: int, out: BinaryIO
) -> None:
    before: deque[tuple[int, int, str]] = deque(maxlen=context)
    after = offset = 0
    for number, (line, size) in enumerate(_lines(full), start=1):
        if regex.search(line):
            out.writelines(_record(shown, b"-", *earlier) for earlier in before)
            before.clear()
            out.write(_record(shown, b":", number, offset, line))
            after = context
        elif after:
            out.write(_record(shown, b"-", number, offset, line))
            after -= 1
        elif context:
            before.append((number, offset, line))
        offset += size


def _record(path: bytes, mark: bytes, number: int, offset: int, line: str) -> bytes:
    text = line.encode("utf-8", "surrogateescape")
    return b"%s\0%d%s%d%s%s\n" % (path, number, mark, offset, mark, text)


def _lines(path: str) -> Iterator[tuple[str, int]]:
    """The lines of a text file without their ends, and their bytes in UTF-8 with them.

    None of what is binary or no plain file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError:
        return
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return
        try:
            head = file.read(BINARY_PROBE_BYTES)
            bom, codec = encoding_of(head, handle)
            if codec:
                yield from _split(_whole_lines(_decoded(head.removeprefix(bom), codec, file)))
        except OSError:
            return


def encoding_of(head: bytes, descriptor: int) -> tuple[bytes, str]:
    """The byte-order mark and codec by which ``read_file`` shows an open file (TOOL-17).

    No codec: it is binary. Files larger than ``_MAX_WHOLE_BYTES`` are known by their head.
    """
    for bom, codec in _BOMS:
        if head.startswith(bom):
            return bom, codec
    size = os.fstat(descriptor).st_size
    whole = head if size <= len(head) else b""
    if not whole and size <= _MAX_WHOLE_BYTES and b"\0" not in head:
        whole = os.pread(descriptor, _MAX_WHOLE_BYTES, 0)
    if b"\0" in whole and b"\0" not in head:
        return b"", "utf-8"  # read until there
    try:
        if whole and b"\0" not in head:
            whole.decode()
            return b"", "utf-8"
    except UnicodeDecodeError:
        pass
    from agentcli.tools.files.text import binary_kind, decode, detect_head, image_type

    if binary_kind(head) or image_type(head):
        return b"", ""
    text = decode(whole) if whole else None
    found = text.encoding if text is not None else None if whole else detect_head(head)
    return b"", found.codec if found is not None else ""


def _decoded(head: bytes, codec: str, file: BinaryIO) -> Iterator[str]:
    """The text until its end, or until it turns out to be none."""
    decoder = codecs.getincrementaldecoder(codec)(_ERRORS.get(codec, "replace"))
    yield decoder.decode(head)
    while (more := file.read(_READ_BYTES)) and (codec != "utf-8" or b"\0" not in more):
        yield decoder.decode(more)
    yield decoder.decode(b"", final=True)


def _whole_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of text that end with a line, or are very long."""
    rest = ""
    for piece in pieces:
        end = piece.rfind("\n") + 1
        if not end and len(rest) + len(piece) <= _PIECE_CHARS:
            rest += piece
            continue
        yield rest + piece[: end or None]
        rest = piece[end:] if end else ""
    yield rest


def _split(pieces: Iterable[str]) -> Iterator[tuple[str, int]]:
    for piece in pieces:
        is_ascii = piece.isascii()
        lines = piece.split("\n")
        last = lines.pop()
        for line in lines:
            size = len(line) if is_ascii else len(line.encode("utf-8", "surrogateescape"))
            yield line.removesuffix("\r"), size + 1
        if last:
            yield last.removesuffix("\r"), len(last.encode("utf-8", "surrogateescape"))


# --- which files there are ---


class IgnoreRule(NamedTuple):
    """One line of an ignore file, as git reads it.

    ``anchored``: it is tried on the path and not on the name. ``spreads``: it means all that is
    below the directory that it names.
    """

    pattern: GitIgnoreSpecPattern
    anchored: bool
    spreads: bool

    def matches(self, path: str) -> bool:
        """Whether it means ``path`` itself and not only a directory above it."""
        tested = path if self.anchored else path[path.rstrip("/").rfind("/") + 1 :]
        found = self.pattern.match_file(tested)
        if found is None:
            return False
        return not self.anchored or (found.match.end() == len(tested)) is not self.spreads


def parse_rules(text: str) -> tuple[IgnoreRule, ...]:
    """The rules of an ignore file; lines that make no sense are passed over."""
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    found = []
    for line in text.removeprefix("\ufeff").split("\n"):
        try:
            pattern = GitIgnoreSpecPattern(line.removesuffix("\r"))
        except (ValueError, re.error, OverflowError, RecursionError):
            continue
        if pattern.include is not None:
            place = _ANYWHERE.sub("", line.strip(), count=1)
            found.append(IgnoreRule(pattern, "/" in place.rstrip("/"), place.endswith("/**")))
    return tuple(found)


def verdict(rules: tuple[IgnoreRule, ...], path: str, *, is_dir: bool) -> bool | None:
    """Whether ``path``, relative to the rules' directory, is ignored; ``None``: not mentioned."""
    path += "/" if is_dir else ""
    return next((rule.pattern.include for rule in reversed(rules) if rule.matches(path)), None)


class Directory:
    """A directory's ignore files, linked to those above."""

    def __init__(self, path: str, above: Directory | None) -> None:
        self.above = above
        self.prefix = path.rstrip("/") + "/"
        self.is_repository = os.path.lexists(f"{self.prefix}.git")
        self.rules = tuple(_read_rules(self.prefix + name) for name in _FILES)
        self.has_rules = any(self.rules)

    @classmethod
    def chain(cls, path: str) -> Directory:
        """The directory with all those above it."""
        parent = os.path.dirname(path)  # noqa: PTH120 - texts throughout: this is the hot path
        return cls(path, cls.chain(parent) if parent != path else None)

    def ignores(self, path: str, *, is_dir: bool) -> bool | None:
        """Whether the absolute ``path`` below this directory is ignored; ``None``: no rule."""
        verdicts: list[bool | None] = [None] * len(_FILES)
        here: Directory | None = self
        in_repository = True
        while here is not None:
            if here.has_rules:
                relative = path[len(here.prefix) :]
                for kind, rules in enumerate(here.rules):
                    if verdicts[kind] is None and rules and (in_repository or kind < _GIT):
                        verdicts[kind] = verdict(rules, relative, is_dir=is_dir)
            in_repository = in_repository and not here.is_repository
            here = here.above
        return next((found for found in verdicts if found is not None), None)


def _read_rules(path: str) -> tuple[IgnoreRule, ...]:
    data = read_regular(path, _MAX_IGNORE_FILE_BYTES)
    return parse_rules(data.decode("utf-8", "surrogateescape")) if data else ()


def read_regular(path: str, limit: int) -> bytes:
    """The first ``limit`` bytes of a regular file; nothing for whatever else has that name."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        return file.read(limit) if stat.S_ISREG(os.fstat(handle).st_mode) else b""


def walk(root: str, without: Sequence[str] | None = None) -> Iterator[str]:
    """The files below ``root``, relative to it; hidden ones, too, but ``without``."""
    root = os.path.realpath(root)
    skip = len(root.rstrip("/")) + 1
    todo: list[tuple[str, Directory | None]] = list(_entries(Directory.chain(root), without))
    while todo:
        path, above = todo.pop()
        if above is None:
            yield path[skip:]
        else:
            todo += _entries(Directory(path, above), without)


def _entries(here: Directory, without: Sequence[str] | None) -> list[tuple[str, Directory | None]]:
    """What is in a directory, last first; directories with that directory, files without."""
    found: list[tuple[str, Directory | None]] = []
    for entry in _scanned(here):
        is_dir = _is_directory(entry)
        if not is_dir and not entry.is_file(follow_symlinks=False):
            continue
        if without is not None and entry.name in without:
            continue
        path = here.prefix + entry.name
        ignored = here.ignores(path, is_dir=is_dir)
        if ignored or (ignored is None and without is None and entry.name.startswith(".")):
            continue
        found.append((path, here if is_dir else None))
    return found


def _project(root: str) -> Iterator[str]:
    root = os.path.realpath(root)
    skip = len(root.rstrip("/")) + 1
    waiting = deque([Directory.chain(root)])
    while waiting:
        here = waiting.popleft()
        for entry in reversed(_scanned(here)):
            path, is_directory = here.prefix + entry.name, _is_directory(entry)
            if entry.name in _NEVER_TYPED or here.ignores(path, is_dir=is_directory):
                continue
            if is_directory:
                waiting.append(Directory(path, here))
            yield f"{path[skip:]}/" if is_directory else path[skip:]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _scanned(here: Directory) -> list[os.DirEntry[str]]:
    """What is in a directory, last first."""
    try:
        with os.scandir(here.prefix) as scan:
            return sorted(scan, key=lambda entry: os.fsencode(entry.name), reverse=True)
    except OSError:
        return []
