"""Questions to the map: what is called so, who uses it, what is used most (MEM-3).

A use is tied to a definition by its name, and by what tells two of the same name apart: where it
stands, what its file imports, whether it belongs to something (``x.name``). No types are known.
What is used most is found by PageRank (https://en.wikipedia.org/wiki/PageRank) over the files.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from agentcli.codemap.grammars import LANGUAGES
from agentcli.codemap.index import MapIndex
from agentcli.codemap.parse import IMPORT, MEMBER, USE
from agentcli.domain.codemap import (
    FileLink,
    MappedFile,
    MapPicture,
    MapState,
    Symbol,
    SymbolUses,
    UsedIn,
)

MAX_SYMBOLS = 60
MAX_ALIKE = 8
MAX_FILES_SHOWN = 400
MAX_OF_FILE = 8
_DAMPING, _ROUNDS, _ENOUGH = 0.85, 40, 1e-7
_COMMON = 12
"""A name that more files define says nothing of who uses which."""
_SHORTEST = 3
_UNSURE = 0.05
"""What a use like ``x.append`` counts in a file that imports nothing of where one is defined."""
_BY_IMPORT = frozenset(language.name for language in LANGUAGES if not language.shares)
_MEMBERS = frozenset({"method", "field"})
_NO_MODULE = frozenset({"__init__", "index", "mod", "lib", "main"})
_SYMBOL = (
    "SELECT symbol.id, name.text, symbol.kind, file.path, symbol.line, symbol.end,"
    " symbol.container, symbol.rank, file.id, file.language FROM symbol"
    " JOIN name ON name.id = symbol.name JOIN file ON file.id = symbol.file"
)


class _Row(NamedTuple):
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

    @property
    def symbol(self) -> Symbol:
        return Symbol(
            self.name, self.kind, self.path, self.line, self.end, self.container, self.rank
        )

    @property
    def modules(self) -> tuple[str, ...]:
        """What an import of its file names: the file, or the directory that is a package."""
        parts = PurePath(self.path).with_suffix("").parts
        of_directory = self.language not in _BY_IMPORT or parts[-1] in _NO_MODULE
        if of_directory and len(parts) > 1:
            return parts[-1], parts[-2]
        return (parts[-1],)

    @property
    def hints(self) -> tuple[str, ...]:
        """What a file that uses a member of it is likely to import."""
        return *self.modules, self.container


class Graph:
    """Answers from one open map."""

    def __init__(self, index: MapIndex) -> None:
        self._index = index
        self._db = index.db

    def state(self) -> MapState:
        """What the map covers."""
        rows = self._db.execute("SELECT language, note, COUNT(*) FROM file GROUP BY 1, 2")
        files = partly = untold = 0
        missing = set()
        for language, note, count in rows:
            files += count
            if note == "read as text":
                missing.add(language)
            elif note:
                partly += count if language else 0
                untold += 0 if language else count
        symbols = self._db.execute("SELECT COUNT(*) FROM symbol").fetchone()[0]
        waiting = int(self._index.get("waiting") or 0)
        return MapState(files, symbols, waiting, partly, untold, tuple(sorted(missing)))

    # --- what is called so -----------------------------------------------------------------

    def symbols(self, query: str, kind: str = "", below: str = "") -> list[Symbol]:
        """What is called like ``query``, best first; without one what is used most.

        ``Class.name`` asks for what is inside of it. ``below`` is a file or a directory.
        """
        container, _, wanted = query.replace("::", ".").replace("#", ".").rpartition(".")
        container = container.rpartition(".")[2]
        where, values = self._limits(kind, below)
        if wanted:
            where.append("name.text LIKE ? ESCAPE '\\'")
            values.append(f"%{_escaped(wanted)}%")
        if container:
            where.append("symbol.container LIKE ? ESCAPE '\\'")
            values.append(_escaped(container))
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        folded = wanted.casefold()
        order = (
            " ORDER BY name.text = ? DESC, name.text = ? COLLATE NOCASE DESC,"
            " name.text LIKE ? ESCAPE '\\' DESC, symbol.rank DESC, file.path, symbol.line LIMIT ?"
        )
        rows = self._db.execute(
            _SYMBOL + condition + order,
            (*values, wanted, folded, f"{_escaped(wanted)}%", MAX_SYMBOLS + 1),
        )
        return [_Row(*row).symbol for row in rows]

    @staticmethod
    def _limits(kind: str, below: str) -> tuple[list[str], list[object]]:
        where: list[str] = []
        values: list[object] = []
        if kind:
            where.append("symbol.kind = ?")
            values.append(kind)
        if below:
            where.append("(file.path = ? OR file.path LIKE ? ESCAPE '\\')")
            values += [below, f"{_escaped(below)}/%"]
        return where, values

    # --- who uses it -----------------------------------------------------------------------

    def references(self, symbol: str, path: str = "", line: int = 0) -> list[SymbolUses]:
        """Who uses what is meant: the name ``symbol``, or what ``path`` defines in ``line``."""
        if symbol:
            container, _, name = symbol.replace("::", ".").replace("#", ".").rpartition(".")
            found = self._named(name, container.rpartition(".")[2], path)
        else:
            found = self._at(path, line)
        if not found and symbol:
            return []
        return [self._uses_of(row) for row in found[:MAX_ALIKE]]

    def _named(self, name: str, container: str, path: str) -> list[_Row]:
        where, values = ["name.text = ?"], [name]
        if container:
            where.append("symbol.container = ?")
            values.append(container)
        if path:
            where.append("file.path = ?")
            values.append(path)
        rows = self._db.execute(
            f"{_SYMBOL} WHERE {' AND '.join(where)}"
            " ORDER BY symbol.rank DESC, file.path, symbol.line",
            values,
        )
        return [_Row(*row) for row in rows]

    def _at(self, path: str, line: int) -> list[_Row]:
        """What is defined in the line; else what is used there; else what the line is inside of."""
        rows = self._db.execute(f"{_SYMBOL} WHERE file.path = ?", (path,))
        inside = [_Row(*row) for row in rows]
        if here := [row for row in inside if row.line == line]:
            return here
        used = self._db.execute(
            "SELECT DISTINCT name.text FROM used JOIN name ON name.id = used.name"
            " JOIN file ON file.id = used.file WHERE file.path = ?"
            " AND ' ' || used.lines || ' ' LIKE ?",
            (path, f"% {line} %"),
        ).fetchall()
        found = [row for (name,) in used for row in self._named(name, "", "")[:1]]
        if found:
            return sorted(found, key=lambda row: -row.rank)
        around = [row for row in inside if row.line <= line <= row.end]
        return sorted(around, key=lambda row: row.line)[-1:]

    def _uses_of(self, row: _Row) -> SymbolUses:
        alike = self._db.execute(
            "SELECT COUNT(*) - 1 FROM symbol JOIN name ON name.id = symbol.name WHERE text = ?",
            (row.name,),
        ).fetchone()[0]
        found: dict[str, set[int]] = defaultdict(set)
        uses = self._db.execute(
            "SELECT used.how, used.file, used.lines, file.path, file.language FROM used"
            " JOIN name ON name.id = used.name JOIN file ON file.id = used.file"
            " WHERE name.text = ? ORDER BY file.path",
            (row.name,),
        ).fetchall()
        imported = self._imported({row.name, *row.modules})
        for how, file, lines, path, language in uses:
            if _means(row, how, (file, language), imported, is_only=alike == 0):
                found[path].update(map(int, lines.split()))
        listed = (UsedIn(path, tuple(sorted(lines))) for path, lines in found.items())
        return SymbolUses(row.symbol, tuple(listed), alike)

    def _imported(self, names: Iterable[str]) -> set[tuple[int, str]]:
        """Who imports anything of these names."""
        return {
            (file, text)
            for text in sorted(names)
            for (file,) in self._db.execute(
                "SELECT used.file FROM used JOIN name ON name.id = used.name"
                " WHERE used.how = ? AND name.text = ?",
                (IMPORT, text),
            )
        }

    # --- what is used most -----------------------------------------------------------------

    def rank(self) -> None:
        """Give files and symbols their ranks; the sum over all files is 1."""
        files = [file for (file,) in self._db.execute("SELECT id FROM file")]
        if not files:
            return
        links = self._links()
        weights: dict[tuple[int, int], float] = defaultdict(float)
        for user, used, _, weight in links:
            if user != used:
                weights[user, used] += weight
        ranks = pagerank(files, weights)
        totals: dict[int, float] = defaultdict(float)
        for (user, _), weight in weights.items():
            totals[user] += weight
        of_symbol: dict[int, float] = defaultdict(float)
        for user, used, symbol, weight in links:
            share = 0.1 if user == used else 1.0  # what a file uses of itself tells little
            of_symbol[symbol] += share * ranks[user] * weight / max(totals[user], weight)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("UPDATE symbol SET rank = 0 WHERE rank <> 0")
            self._db.executemany(
                "UPDATE file SET rank = ? WHERE id = ?",
                ((rank, file) for file, rank in ranks.items()),
            )
            self._db.executemany(
                "UPDATE symbol SET rank = ? WHERE id = ?",
                ((rank, symbol) for symbol, rank in of_symbol.items()),
            )
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _links(self) -> list[tuple[int, int, int, float]]:
        """Who uses what: file, file, symbol, weight."""
        defined: dict[str, list[_Row]] = defaultdict(list)
        rows = self._db.execute(
            f"{_SYMBOL} WHERE length(name.text) >= ? AND substr(name.text, 1, 2) <> '__'",
            (_SHORTEST,),
        )
        for each in rows:
            row = _Row(*each)
            defined[row.name].append(row)
        by_name = {name: there for name, there in defined.items() if len(there) <= _COMMON}
        imported: set[tuple[int, str]] = set(
            self._db.execute(
                "SELECT used.file, name.text FROM used JOIN name ON name.id = used.name"
                " WHERE used.how = ?",
                (IMPORT,),
            )
        )
        found = []
        uses = self._db.execute(
            "SELECT name.text, used.how, used.file, used.lines, file.language FROM used"
            " JOIN name ON name.id = used.name JOIN file ON file.id = used.file"
        )
        for name, how, user, lines, language in uses:
            there = by_name.get(name, ())
            fitting = [
                row
                for row in there
                if _means(row, how, (user, language), imported, is_only=len(there) == 1)
            ]
            own = [row for row in fitting if row.file == user]
            weight = math.sqrt(lines.count(" ") + 1)
            share = weight / max(len(own or fitting), 1)
            for row in own or fitting:
                known = row.file == user or row.kind not in _MEMBERS
                sure = known or any((user, text) in imported for text in row.hints)
                found.append((user, row.file, row.id, share if sure else share * _UNSURE))
        return found

    def links(self, files: Sequence[str]) -> list[FileLink]:
        """Who uses whom among ``files``, the strongest first."""
        ids = {
            file: path
            for file, path in self._db.execute("SELECT id, path FROM file")
            if path in set(files)
        }
        weights: dict[tuple[str, str], float] = defaultdict(float)
        for user, used, _, weight in self._links():
            if user != used and user in ids and used in ids:
                weights[ids[user], ids[used]] += weight
        links = (FileLink(*pair, weight) for pair, weight in weights.items())
        return sorted(links, key=lambda link: (-link.weight, link.user, link.used))

    def files(self, below: str = "", limit: int = MAX_FILES_SHOWN) -> list[tuple[str, float]]:
        """Files and their ranks, most used first."""
        return self._db.execute(
            "SELECT path, rank FROM file WHERE ?1 IN ('', path) OR path LIKE ?2 ESCAPE '\\'"
            " ORDER BY rank DESC, path LIMIT ?3",
            (below, f"{_escaped(below)}/%", limit),
        ).fetchall()

    def picture(self, below: str = "", limit: int = MAX_FILES_SHOWN) -> MapPicture:
        """The ``limit`` files used most of a file or directory."""
        found = []
        for path, rank in self.files(below, limit):
            rows = self._db.execute(
                f"{_SYMBOL} WHERE file.path = ? ORDER BY symbol.rank DESC, symbol.line LIMIT ?",
                (path, MAX_OF_FILE),
            )
            symbols = sorted((_Row(*row).symbol for row in rows), key=lambda each: each.line)
            found.append(MappedFile(path, rank, tuple(symbols)))
        return MapPicture(tuple(found), tuple(self.links([each.path for each in found])))


def pagerank(nodes: Sequence[int], weights: dict[tuple[int, int], float]) -> dict[int, float]:
    """The rank of each node; ``weights`` are those of the links from one to another."""
    totals: dict[int, float] = defaultdict(float)
    for (source, _), weight in weights.items():
        totals[source] += weight
    links = [
        (source, target, weight / totals[source]) for (source, target), weight in weights.items()
    ]
    count = len(nodes)
    ranks = dict.fromkeys(nodes, 1 / count)
    for _ in range(_ROUNDS):
        dangling = sum(rank for node, rank in ranks.items() if node not in totals)
        base = (1 - _DAMPING + _DAMPING * dangling) / count
        after = dict.fromkeys(nodes, base)
        for source, target, share in links:
            after[target] += _DAMPING * ranks[source] * share
        moved = sum(abs(after[node] - rank) for node, rank in ranks.items())
        ranks = after
        if moved < _ENOUGH:
            break
    return ranks


def _means(
    row: _Row, how: int, user: tuple[int, str], imported: set[tuple[int, str]], *, is_only: bool
) -> bool:
    """Whether a use of its name by a file of some language is likely to be one of ``row``.

    ``imported`` are files with the names that they import, ``is_only`` that nothing else is
    called so.
    """
    file, language = user
    if _family(language) != _family(row.language):
        return False
    own = file == row.file
    by_module = any((file, module) in imported for module in row.modules)
    if row.kind in _MEMBERS:
        means = how == MEMBER or (how == USE and own and language not in _BY_IMPORT)
    elif how == MEMBER:
        means = by_module or (own and row.container != "")
    elif own:
        means = True
    elif row.container:  # inside of a function or a class: others reach it as a member
        means = language not in _BY_IMPORT and how == USE and is_only
    elif language in _BY_IMPORT:
        means = (file, row.name) in imported and (is_only or by_module)
    else:
        means = how == USE
    return means


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _family(language: str) -> str:
    """Languages whose files use each other's names."""
    return {"typescript": "javascript", "tsx": "javascript", "c": "c++"}.get(language, language)
