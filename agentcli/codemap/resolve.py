"""Which definition of a name a use means: by its place, imports, classes and their bases (MEM-3).

Types are not known. So a use has definitions that it means, or, where several fit and nothing tells
them apart, some that it may mean. What a file imports is a set of words; a definition fits the
more of its directories and its file are among them. ``self.name`` is looked up in the class around
it and in its bases, ``Class.name`` in that class, ``module.name`` in files of that name.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from io import TextIOWrapper
from typing import NamedTuple

from agentcli.codemap.grammars import LANGUAGES
from agentcli.codemap.parse import IMPORT, MEMBER, OWN, TEXT
from agentcli.domain.codemap import Symbol

SYMBOL = (
    "SELECT symbol.id, name.text, symbol.kind, file.path, symbol.line, symbol.end,"
    " symbol.container, symbol.rank, file.id, file.language, symbol.bases FROM symbol"
    " JOIN name ON name.id = symbol.name JOIN file ON file.id = symbol.file"
)
MEMBERS = frozenset({"method", "field"})
CLASSES = frozenset({"class", "interface", "struct", "enum", "trait"})
_SELF = frozenset({OWN, "self", "cls", "Self", "static"})
_ABOVE = frozenset({"super", "parent", "base"})
_BY_IMPORT = frozenset(language.name for language in LANGUAGES if not language.shares)
_NO_MODULE = frozenset({"__init__", "index", "mod", "lib", "main"})
_OF_ANYTHING = frozenset(dir(dict) + dir(list) + dir(str) + dir(set) + dir(TextIOWrapper))
"""Members that values of every kind have."""
_MAX_BASES, _MAX_OVERRIDES, _MAX_LEVELS = 100, 50, 12
_SAME_DIRECTORY, _ABOVE_IT, _OWN_FILE = 0.5, 0.25, 100.0
Rows = Sequence["SymbolRow"]


class SymbolRow(NamedTuple):
    """A definition as ``SYMBOL`` selects it."""

    id: int
    name: str
    kind: str
    path: str
    line: int
    end: int
    container: str
    rank: float
    file: int
    language: str
    bases: str = ""

    @property
    def symbol(self) -> Symbol:
        """For those who ask."""
        return Symbol(
            self.name, self.kind, self.path, self.line, self.end, self.container, self.rank
        )


class Alike:
    """Definitions of one name that files in one family of languages use."""

    def __init__(self, rows: Iterable[SymbolRow], language: str) -> None:
        family = _family(language)
        self.rows = [row for row in rows if _family(row.language) == family]
        self.members = [row for row in self.rows if row.kind in MEMBERS]
        self.free = [row for row in self.rows if row.kind not in MEMBERS]
        self.top = [row for row in self.free if not row.container]
        self.by_class = _by_class(self.rows)
        self.members_by_class = _by_class(self.members)
        self.nested_in = {row.file for row in self.free if row.container}
        self._of_file: dict[int, list[SymbolRow]] = defaultdict(list)
        self._of_word: dict[str, list[tuple[str, SymbolRow]]] = defaultdict(list)
        for row in self.rows:
            self._of_file[row.file].append(row)
        for row in self.members:
            _, directory, own = _place(row.path)
            package = directory.rpartition("/")[2]
            self._of_word[row.container].append(("", row))
            self._of_word[own].append(("" if package == own else package, row))

    def of_file(self, file: int, *, only_free: bool) -> Rows:
        """Those of one file, members too or not."""
        found = self._of_file.get(file, [])
        return [row for row in found if row.kind not in MEMBERS] if only_free else found

    def near(self, file: int, imports: frozenset[str]) -> Rows:
        """Members that a file with these imports is likely to have to do with."""
        found = {row.id: row for row in self._of_file.get(file, ()) if row.kind in MEMBERS}
        for word in sorted(imports & self._of_word.keys()):
            for package, row in self._of_word[word]:
                if not package or package in imports:
                    found[row.id] = row
        return list(found.values())


def _by_class(rows: Rows) -> dict[str, list[SymbolRow]]:
    found: dict[str, list[SymbolRow]] = {}
    for row in rows:
        found.setdefault(row.container, []).append(row)
    return found


class FileUse(NamedTuple):
    """A file uses a name so: ``owner`` is what the name is a member of, where that is one name."""

    how: int
    owner: str
    file: int
    path: str
    language: str

    def depends_on_line(self, alike: Alike) -> bool:
        """Whether uses in other lines of the file may mean another of ``alike``."""
        return self.is_inside or self.file in alike.nested_in

    @property
    def is_inside(self) -> bool:
        """Whether it depends on the line what is meant: on the class around it."""
        return self.owner in _SELF or self.owner in _ABOVE


class Meant(NamedTuple):
    """What a use means, and what it may mean."""

    sure: Rows = ()
    maybe: Rows = ()


@lru_cache(maxsize=65_536)
def _place(path: str) -> tuple[frozenset[str], str, str]:
    """Words that an import of the file has, its directory, its own word."""
    directory, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    parts = frozenset(directory.split("/")) - {""}
    own = directory.rpartition("/")[2] if stem in _NO_MODULE else stem
    return parts | {own}, directory, own


class Resolver:
    """Looks up definitions. It keeps what it has read of the map, so it lives for one question."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._imports: dict[int, frozenset[str]] = {}
        self._classes: dict[int, list[tuple[int, int, str]]] = {}
        self._ancestors: dict[str, set[str]] = {}
        self._blocks: dict[int, tuple[int, int]] = {}
        self._bases: dict[str, tuple[str, ...]] = {}
        self._known: dict[str, tuple[bool, bool]] = {}

    # --- what the map knows ----------------------------------------------------------------

    def imports(self, file: int) -> frozenset[str]:
        """The words of the imports of a file."""
        if file not in self._imports:
            rows = self._db.execute(
                "SELECT name.text FROM used JOIN name ON name.id = used.name"
                " WHERE used.file = ? AND used.how = ?",
                (file, IMPORT),
            )
            self._imports[file] = frozenset(text for (text,) in rows)
        return self._imports[file]

    def learn_imports(self, name: str) -> None:
        """Those of all files that use ``name``, at once."""
        rows = self._db.execute(
            "SELECT used.file, name.text FROM used JOIN name ON name.id = used.name"
            " WHERE used.how = ? AND used.file IN (SELECT used.file FROM used"
            " JOIN name ON name.id = used.name WHERE name.text = ?)",
            (IMPORT, name),
        )
        found: dict[int, set[str]] = defaultdict(set)
        for file, text in rows:
            found[file].add(text)
        self._imports = {file: frozenset(words) for file, words in found.items()}

    def _around(self, file: int, line: int) -> str:
        """The innermost class around a line."""
        if file not in self._classes:
            marks = ", ".join("?" * len(CLASSES))
            self._classes[file] = self._db.execute(
                "SELECT symbol.line, symbol.end, name.text FROM symbol JOIN name"  # noqa: S608 - marks
                f" ON name.id = symbol.name WHERE symbol.file = ? AND symbol.kind IN ({marks})"
                " ORDER BY symbol.line",
                (file, *sorted(CLASSES)),
            ).fetchall()
        inside = [name for start, end, name in self._classes[file] if start <= line <= end]
        return inside[-1] if inside else ""

    def _bases_of(self, name: str) -> tuple[str, ...]:
        if name not in self._bases:
            rows = self._db.execute(
                "SELECT symbol.bases FROM symbol JOIN name ON name.id = symbol.name"
                " WHERE name.text = ? AND symbol.bases <> '' LIMIT 20",
                (name,),
            )
            words = dict.fromkeys(word for (text,) in rows for word in text.split())
            self._bases[name] = tuple(word for word in words if word != name)
        return self._bases[name]

    def _levels(self, names: Iterable[str]) -> Iterable[set[str]]:
        """``names``, their bases, the bases of these and so on."""
        seen = level = set(names)
        for _ in range(_MAX_LEVELS):
            if not level or len(seen) > _MAX_BASES:
                return
            yield level
            level = {base for name in sorted(level) for base in self._bases_of(name)} - seen
            seen = seen | level

    def _above(self, name: str) -> set[str]:
        if name not in self._ancestors:
            self._ancestors[name] = {each for level in self._levels([name]) for each in level}
        return self._ancestors[name]

    def _defines(self, name: str) -> tuple[bool, bool]:
        """Whether the project has a class of that name, and anything at all outside of classes."""
        if name not in self._known:
            kinds = {
                kind
                for (kind,) in self._db.execute(
                    "SELECT DISTINCT symbol.kind FROM symbol JOIN name ON name.id = symbol.name"
                    " WHERE name.text = ?",
                    (name,),
                )
            }
            self._known[name] = bool(kinds & CLASSES), bool(kinds - MEMBERS)
        return self._known[name]

    def forget(self, file: int) -> None:
        """Drop what is known of the file ``file``."""
        self._imports.pop(file, None)
        self._classes.pop(file, None)

    # --- what is meant ---------------------------------------------------------------------

    def meant(self, alike: Alike, use: FileUse, line: int) -> Meant:
        """Which of ``alike`` the use in ``line`` means."""
        if not alike.rows:
            return Meant()
        if use.how == MEMBER:
            return self._member(alike, use, line)
        if use.how == IMPORT:
            return self._best(alike.top, use, needs_word=True)
        by_import = use.language in _BY_IMPORT
        own = self._seen_from(alike.of_file(use.file, only_free=by_import), line)
        if own:
            return Meant(own)
        top = alike.top
        if by_import:
            is_imported = bool(top) and top[0].name in self.imports(use.file)
            return self._best(top if is_imported else (), use, needs_word=True)
        return self._best(top or (alike.free if len(alike.rows) == 1 else ()), use)

    def _seen_from(self, rows: Rows, line: int) -> Rows:
        """Those of one file that ``line`` sees: of the innermost function around it, or of none."""
        nested = [row for row in rows if row.container and row.kind not in MEMBERS]
        if not nested:
            return rows
        blocks = ((self._block_of(row), row) for row in nested)
        inside = [(start, row) for (start, end), row in blocks if start <= line <= end]
        if inside:
            innermost = max(start for start, _ in inside)
            return [row for start, row in inside if start == innermost]
        return [row for row in rows if row not in nested]

    def _block_of(self, row: SymbolRow) -> tuple[int, int]:
        """The first and the last line of what the definition is inside of."""
        if row.id not in self._blocks:
            found = self._db.execute(
                "SELECT symbol.line, symbol.end FROM symbol JOIN name ON name.id = symbol.name"
                " WHERE symbol.file = ? AND name.text = ? AND symbol.line <= ? AND symbol.end >= ?"
                " ORDER BY symbol.line DESC LIMIT 1",
                (row.file, row.container, row.line, row.end),
            ).fetchone()
            self._blocks[row.id] = found or (0, 0)
        return self._blocks[row.id]

    def _score(self, row: SymbolRow, use: FileUse) -> float:
        """How well the place of a definition fits what a file imports and where it is."""
        if row.file == use.file:
            return _OWN_FILE
        words, directory, _ = _place(row.path)
        score = float(len(words & self.imports(use.file)))
        _, here, _ = _place(use.path)
        if directory == here:
            score += _SAME_DIRECTORY
        elif here.startswith(f"{directory}/" if directory else ""):
            score += _ABOVE_IT
        return score

    def _best(self, rows: Rows, use: FileUse, *, needs_word: bool = False) -> Meant:
        """Those that fit best; several are a maybe."""
        if len(rows) <= 1 and not needs_word:
            return Meant(rows)
        scores = [self._score(row, use) for row in rows]
        top = max(scores, default=0.0)
        if needs_word and top <= 0:
            return Meant()
        best = [row for row, score in zip(rows, scores, strict=True) if score == top]
        one_place = len({(row.file, row.container) for row in best}) == 1
        return Meant(best) if one_place else Meant((), best)

    def _member(self, alike: Alike, use: FileUse, line: int) -> Meant:
        found: Meant | None = None
        if use.owner == TEXT:
            found = Meant()
        elif use.is_inside:
            found = self._of_itself(alike.members_by_class, use, line)
        elif use.owner:
            found = self._of_named(alike, use)
        return self._unknown(alike, use) if found is None else found

    def _of_itself(self, by_class: Mapping[str, Rows], use: FileUse, line: int) -> Meant | None:
        """Of ``self`` or ``super()``; nothing outside of a class."""
        around = self._around(use.file, line)
        if not around:
            return None
        if use.owner not in _ABOVE:
            return self._inherited(by_class, (around,), use)
        return self._inherited(by_class, self._bases_of(around), use, but=around)

    def _of_named(self, alike: Alike, use: FileUse) -> Meant | None:
        """Of a class or a module by its name; nothing where the name tells nothing."""
        owner = use.owner
        is_class, is_known = self._defines(owner)
        imported = owner in self.imports(use.file)
        is_near = imported or use.language not in _BY_IMPORT
        is_near = is_near or any(name == owner for *_, name in self._classes_in(use.file))
        if is_class and is_near:
            found = self._inherited(alike.by_class, (owner,), use)
            if found.sure or found.maybe:
                return found
        if not imported:
            return None
        there = [row for row in alike.top if owner in _place(row.path)[0]]
        if there:
            return self._best(there, use)
        return None if is_known else Meant()  # it belongs to nothing of the project

    def _classes_in(self, file: int) -> list[tuple[int, int, str]]:
        self._around(file, 0)
        return self._classes[file]

    def _inherited(
        self, by_class: Mapping[str, Rows], start: Iterable[str], use: FileUse, *, but: str = ""
    ) -> Meant:
        """What a member of these classes, ``but`` one, means: theirs or the next above.

        It may mean an override too.
        """
        first = set(start)
        below: list[SymbolRow] = []
        others = by_class.keys() - {but} if but else by_class.keys()
        if len(others) <= _MAX_OVERRIDES:
            for name in sorted(others - first):
                below += by_class[name] if first & self._above(name) else ()
        for level in self._levels(first):
            names = sorted(level - {"", but})
            here = [row for name in names for row in by_class.get(name, ())]
            if here:
                found = self._best(here, use)
                return Meant(found.sure, (*found.maybe, *below))
        return Meant(below) if len(below) == 1 else Meant((), below)

    def _unknown(self, alike: Alike, use: FileUse) -> Meant:
        """What a member of something means of which nothing is known."""
        imports = self.imports(use.file)
        free = [
            row
            for row in alike.free
            if (
                (row.file == use.file and self._defines(row.container)[0])
                if row.container
                else _place(row.path)[2] in imports
            )
        ]
        if len(alike.rows) == 1:
            return Meant(alike.members or free)
        near = alike.near(use.file, imports)
        if use.owner == "" and free:
            return self._best(free, use)
        if len({(row.file, row.container) for row in near}) == 1 and not free:
            return Meant((), near) if near[0].name in _OF_ANYTHING else Meant(near)
        return Meant((), (*(near or alike.members), *free))


def _family(language: str) -> str:
    """Languages whose files use each other's names."""
    return {"typescript": "javascript", "tsx": "javascript", "c": "c++"}.get(language, language)
