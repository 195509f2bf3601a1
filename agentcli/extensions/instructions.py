"""Instructions that the user and a project have written down for agents (CTX-1, EXT-4).

Read at the start, the nearest to the working directory last: the user's own (our configuration
directory, ``~/.agents``, ``~/.claude``), then each directory from the project's root down to the
working directory. Of a directory: ``AGENTS.override.md``, else ``AGENTS.md``, else ``CLAUDE.md``,
else ``.claude/CLAUDE.md``; beside it ``CLAUDE.local.md`` and ``.claude/rules/**/*.md``. What lies
below the working directory, and rules with ``paths``, come with the first result that touches such
a file.

Laws: it is text for the model only and changes nothing else (SEC-1). No link and no ``@import``
makes a file from outside of the project a part of what the project says, save Markdown of the
user's own directories that is not about other projects; what holds credentials is never read.
Everything is bounded; a file that cannot be used is named once and blocks nothing. Sources:
https://code.claude.com/docs/en/memory, https://agents.md,
https://developers.openai.com/codex/guides/agents-md.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path

from agentcli.domain.clean import one_line
from agentcli.domain.extensions.instructions import MAX_BYTES, ProjectDoc, documents_of
from agentcli.domain.files import open_resolved, walk
from agentcli.domain.messages import Message
from agentcli.domain.tools import real_path
from agentcli.domain.values import frozen, mutable
from agentcli.extensions.places import INSTRUCTIONS

MAX_DEPTH = 4
"""How far imports of imports are followed."""
_MOST_RULES = 200
_MOST_FILES = 100
_RULES_DEPTH = 6
*_NAMES, _LOCAL, _RULES = INSTRUCTIONS
# other people's code: what it says to agents is not for this project
_FOREIGN = frozenset(
    {".git", "node_modules", "bower_components", "site-packages", ".venv", "venv", ".tox", ".nox"}
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*\s*$|\Z)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_IMPORT = re.compile(r"(?<!\S)@((?:\\ |[^\s`\\])+)")
_MARKDOWN = frozenset({".md", ".markdown", ".mdx", ".txt"})
_ENDS = ".,;:!?)]}'\""


@frozen
class InstructionPlaces:
    """Where instructions are looked for. ``root`` is the project's, ``own`` are the user's places.

    ``is_secret`` says whether a path holds credentials.
    """

    cwd: Path
    root: Path
    config_dir: Path | None = None
    home: Path | None = None
    is_secret: Callable[[Path], bool] = lambda _: False

    @property
    def own(self) -> tuple[Path, ...]:
        """The user's own directories, the most general first."""
        home = (self.home / ".agents", self.home / ".claude") if self.home else ()
        return (*([self.config_dir] if self.config_dir else ()), *home)


@frozen
class _Rule:
    """A file of rules that holds for paths like ``patterns``, below ``base``."""

    base: Path
    patterns: tuple[str, ...]
    doc: ProjectDoc

    def holds_for(self, path: Path) -> bool:
        """Whether ``path``, absolute, is one of its files."""
        if not path.is_relative_to(self.base):
            return False
        parts = path.relative_to(self.base).parts
        return any(_matches(parts, pattern.split("/")) for pattern in self.patterns)


@mutable
class Instructions:
    """What was found at the start; satisfies ``LaterInstructions`` for what comes on the way.

    ``docs`` are in the order in which the model reads them; ``notices`` are lines for the user.
    """

    places: InstructionPlaces
    docs: tuple[ProjectDoc, ...] = ()
    notices: list[str] = field(default_factory=list)
    _rules: list[_Rule] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def for_files(
        self, touched: Sequence[Path], messages: Sequence[Message]
    ) -> Sequence[ProjectDoc]:
        """What holds for the files ``touched`` and is not in ``messages``, the nearest last."""
        reader = _InstructionReader(self.places)
        found: list[ProjectDoc] = []
        for directory in _directories(touched, self.places):
            found += reader.of_directory(directory)
        rules = [*self._rules, *reader.rules]
        found += (rule.doc for rule in rules if any(map(rule.holds_for, touched)))
        fresh = {doc.name: doc for doc in found if doc.name not in self._known}
        if not fresh:
            return ()
        left = MAX_BYTES
        for doc in documents_of(messages):
            fresh.pop(doc.name, None)
            left -= len(doc.text.encode())
        return _within(tuple(fresh.values()), left)[0]


def find_instructions(places: InstructionPlaces) -> Instructions:
    """All that holds from the start. Raises nothing.

    When they exceed the budget the nearest are kept whole and the farthest are cut.
    """
    reader = _InstructionReader(places)
    found: list[ProjectDoc] = []
    for own in places.own:
        found += reader.of_own(own)
    upwards = [places.cwd, *places.cwd.parents]
    for directory in reversed(upwards[: upwards.index(places.root) + 1]):
        found += reader.of_directory(directory)
    docs, less = _within(found, MAX_BYTES)
    if less:
        names = ", ".join(one_line(reader.shown(doc)) for doc in less)
        reader.notices.append(
            f"instructions are read up to {MAX_BYTES // 1024} KiB in all: not whole: {names}"
        )
    known = {doc.name for doc in found}
    return Instructions(places, docs, reader.notices, reader.rules, known)


class _InstructionReader:
    """Reads each file once, however often it is named."""

    def __init__(self, places: InstructionPlaces) -> None:
        self._places = places
        self._seen: set[tuple[int, int]] = set()
        self._root = os.path.realpath(places.root)
        self.notices: list[str] = []
        self.rules: list[_Rule] = []

    def of_own(self, directory: Path) -> Iterator[ProjectDoc]:
        """What one of the user's own directories holds, with what it imports."""
        is_claude = directory.name == ".claude"
        yield from self._first(directory, ("CLAUDE.md",) if is_claude else _NAMES[:3], own=True)
        if is_claude:
            yield from self._rules_in(directory / "rules", self._places.root, own=True)

    def of_directory(self, directory: Path) -> Iterator[ProjectDoc]:
        """What a directory of the project holds, with what it imports."""
        yield from self._first(directory, _NAMES)
        yield from self._first(directory, (_LOCAL,))
        yield from self._rules_in(directory / _RULES, directory)

    def _first(
        self, directory: Path, names: Sequence[str], *, own: bool = False
    ) -> Iterator[ProjectDoc]:
        """The first of ``names`` that says anything."""
        for name in names:
            if doc := self._read(directory / name, own=own):
                yield doc
                yield from self._imports(doc, own=own)
                return

    def _rules_in(self, place: Path, base: Path, *, own: bool = False) -> Iterator[ProjectDoc]:
        if not os.path.isdir(place):  # noqa: PTH112 - never raises
            return
        for path in _markdown_below(place, self._cannot_list):
            doc = self._read(path, own=own)
            if doc is None:
                continue
            patterns, doc = self._head_of(doc)
            if patterns:
                self.rules.append(_Rule(base, patterns, doc))
            elif doc.text:
                yield doc
                yield from self._imports(doc, own=own)

    def _head_of(self, doc: ProjectDoc) -> tuple[tuple[str, ...], ProjectDoc]:
        """For which paths a file of rules holds, and what it says without its head."""
        if not doc.text.startswith("---"):
            return (), doc
        from agentcli.extensions.front_matter import Unusable, parse_document

        try:
            document = parse_document(doc.text)
        except Unusable as error:
            self._complain(f"{self.shown(doc)}: {error}: it is read without its head's `paths`")
            return (), doc
        value = (document.fields or {}).get("paths", ())
        items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        patterns = [
            pattern
            for item in items
            if isinstance(item, str)
            for each in _commas(item)
            for pattern in _without_braces(each.strip().removeprefix("./").strip("/"))
            if pattern
        ]
        return tuple(patterns), ProjectDoc(doc.path, document.body.strip(), doc.cut)

    # --- files -----------------------------------------------------------------------------

    def _read(self, path: Path, *, own: bool, real: Path | None = None) -> ProjectDoc | None:
        """The text of a regular file; ``None`` for what is missing, empty, outside or no text.

        ``real`` is where ``path`` led when it was judged.
        """
        try:
            data = self._data_of(real or real_path(path), own=own)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._complain(f"{path} is not read: {why}")
            return None
        cut = len(data) > MAX_BYTES
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data[:MAX_BYTES], final=not cut).removeprefix("\ufeff").strip()
        return ProjectDoc(path, text, cut) if text else None

    def _data_of(self, real: Path, *, own: bool) -> bytes:
        """A bounded part of it; nothing where it was read before or is blank.

        Raises ``OSError`` and ``ValueError``, which say why it is not read.
        """
        with open_resolved(real) as file:
            status = os.fstat(file.fileno())
            mark = status.st_dev, status.st_ino
            if mark in self._seen:
                return b""
            if not own and self._places.is_secret(real):
                raise ValueError("it may hold keys or passwords")
            if not own and not self._is_inside(real):
                raise ValueError("it leads out of the project")
            data = file.read(MAX_BYTES + 1)
        if b"\0" in data:
            raise ValueError("it is no text in UTF-8")
        if data.strip():
            self._seen.add(mark)
        return data

    def _cannot_list(self, error: OSError) -> None:
        self._complain(f"{error.filename} is not read: {error.strerror}")

    def _is_inside(self, real: Path) -> bool:
        return str(real).startswith(self._root.rstrip("/") + "/")

    # --- imports ---------------------------------------------------------------------------

    def _imports(self, doc: ProjectDoc, *, own: bool, depth: int = 1) -> Iterator[ProjectDoc]:
        """The files that ``doc`` names as ``@path``, each followed by its own imports."""
        for name in dict.fromkeys(imported_names(doc.text)):
            if len(self._seen) >= _MOST_FILES:
                self._complain(
                    f"{self.shown(doc)}: more than {_MOST_FILES} files: @{name} is left out"
                )
                return
            target = self._target(doc.path.parent, name)
            if target is None:
                if looks_like_path(name):
                    self._complain(
                        f"{self.shown(doc)} imports @{name.rstrip(_ENDS)}, which is not there"
                    )
                continue
            real = real_path(target)
            if why := self._refusal(target, real, own=own):
                self._complain(f"{self.shown(doc)}: @{name} is not read: {why}")
            elif depth > MAX_DEPTH:
                self._complain(
                    f"{self.shown(doc)}: @{name} is not read: imports go {MAX_DEPTH} deep"
                )
            elif found := self._read(target, own=True, real=real):
                yield found
                yield from self._imports(found, own=own, depth=depth + 1)

    def _target(self, base: Path, name: str) -> Path | None:
        """The file that ``name`` means, without the marks that end a sentence."""
        while name:
            path = base / name
            if name.startswith("~/"):
                path = (self._places.home or Path("/nonexistent")) / name[2:]
            try:
                if path.is_file():
                    return Path(os.path.normpath(path))
            except (OSError, ValueError):
                return None
            if name[-1] not in _ENDS:
                return None
            name = name[:-1]
        return None

    def _refusal(self, target: Path, real: Path, *, own: bool) -> str:
        """Why ``target``, which leads to ``real``, may not be imported; empty when it may."""
        if self._places.is_secret(target) or self._places.is_secret(real):
            return "it may hold keys or passwords"
        if self._is_inside(real):
            return ""
        is_markdown = real.suffix.lower() in _MARKDOWN
        home = self._places.home
        of_user = [Path(os.path.realpath(each)) for each in self._places.own]
        is_own = any(
            real.is_relative_to(each) and (own or real.relative_to(each).parts[0] != "projects")
            for each in of_user
        )
        if own and home is not None and real.is_relative_to(os.path.realpath(home)):
            below = real.relative_to(os.path.realpath(home)).parts
            is_own = is_own or not any(part.startswith(".") for part in below)
        if not is_own:
            return "it is outside of the project"
        return "" if is_markdown else "only Markdown is read from there"

    def shown(self, doc: ProjectDoc) -> str:
        """How a file is named to the user."""
        if doc.path.is_relative_to(self._places.root):
            return str(doc.path.relative_to(self._places.root))
        home = self._places.home
        if home is not None and doc.path.is_relative_to(home):
            return f"~/{doc.path.relative_to(home)}"
        return str(doc.path)

    def _complain(self, what: str) -> None:
        line = one_line(what)
        if line not in self.notices and len(self.notices) < _MOST_FILES:
            self.notices.append(line)


def imported_names(text: str) -> Iterator[str]:
    """What ``text`` imports: each ``@path`` that stands in no code and no comment."""
    plain = _COMMENT.sub(" ", _CODE.sub("`", _FENCE.sub("", text)))
    for found in _IMPORT.finditer(plain):
        yield found[1].replace("\\ ", " ")


def looks_like_path(name: str) -> bool:
    """Whether ``name`` is meant as a file, and is no mention of somebody."""
    last = name.rstrip(_ENDS).rpartition("/")[2]
    return name.startswith(("./", "../", "~/", "/")) or bool(re.search(r"\.\w{1,8}$", last))


def _within(
    docs: Sequence[ProjectDoc], left: int
) -> tuple[tuple[ProjectDoc, ...], list[ProjectDoc]]:
    """What of ``docs`` fits, the last ones first; and those that are not whole."""
    kept: list[ProjectDoc] = []
    less: list[ProjectDoc] = []
    for doc in reversed(docs):
        data = doc.text.encode()
        if len(data) > left:
            text = data[: max(left, 0)].decode("utf-8", "ignore").strip()
            doc = ProjectDoc(doc.path, text, cut=True)  # noqa: PLW2901 - what is kept of it
        left -= len(data)
        if doc.cut:
            less.append(doc)
        if doc.text:
            kept.append(doc)
    return tuple(reversed(kept)), less[::-1]


def _markdown_below(place: Path, onerror: Callable[[OSError], None]) -> list[Path]:
    found: list[Path] = []
    for directory, directories, files in walk(place, onerror=onerror):
        directories.sort()
        if len(Path(directory).relative_to(place).parts) >= _RULES_DEPTH:
            directories.clear()
        found += (Path(directory, name) for name in sorted(files) if name.endswith(".md"))
        if len(found) >= _MOST_RULES:
            break
    return found[:_MOST_RULES]


def _directories(touched: Iterable[Path], places: InstructionPlaces) -> list[Path]:
    """The directories of the project that hold one of ``touched``, from the top down.

    Those whose instructions were read at the start are not among them.
    """
    upwards = {places.cwd, *places.cwd.parents}
    found: set[Path] = set()
    for each in touched:
        path = Path(os.path.normpath(each))
        if path.is_relative_to(places.root) and os.path.lexists(path):
            inner = path.relative_to(places.root).parts
            if _FOREIGN.isdisjoint(inner):
                found.update(above for above in path.parents if above.is_relative_to(places.root))
    return sorted(found - upwards, key=lambda each: (len(each.parts), each))


# --- patterns of paths ---------------------------------------------------------------------------


def _commas(text: str) -> list[str]:
    """``a, b`` as two; a comma between braces is a part of the pattern."""
    return re.split(r",(?![^{}]{0,1000}\})", text)


def _without_braces(pattern: str, most: int = 64) -> list[str]:
    """``*.{ts,tsx}`` as ``*.ts`` and ``*.tsx``."""
    ready: list[str] = []
    waiting = [pattern]
    while waiting and len(ready) + len(waiting) < most:
        text = waiting.pop()
        found = re.search(r"\{([^{}]*)\}", text)
        if found is None:
            ready.append(text)
        else:
            choices = found[1].split(",")
            waiting += (text[: found.start()] + each + text[found.end() :] for each in choices)
    return [*ready, *waiting]


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path is, or lies below, what ``pattern`` names; ``**`` is any directories."""
    reached = {0}
    for part in parts:
        reached = {at for at in reached for at in _past_stars(at, pattern)}
        if len(pattern) in reached:
            return True  # a directory above is meant
        following = {at for at in reached if pattern[at] == "**"}
        following |= {at + 1 for at in reached if fnmatchcase(part, pattern[at])}
        reached = following
    return len(pattern) in {end for at in reached for end in _past_stars(at, pattern)}


def _past_stars(at: int, pattern: Sequence[str]) -> Iterator[int]:
    """``at``, and the places behind the ``**`` that stand there: they may mean no directory."""
    yield at
    while at < len(pattern) and pattern[at] == "**":
        at += 1
        yield at
