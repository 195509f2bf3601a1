"""Questions to the map: what is called so, who uses it, what is used most (MEM-3).

Every answer is bounded, and says where more could be said.
"""

from __future__ import annotations

from collections import defaultdict

from agentcli.codemap.index import MapIndex
from agentcli.codemap.ranking import links_among
from agentcli.codemap.resolve import SYMBOL, Alike, FileUse, Resolver, SymbolRow
from agentcli.domain.clean import clean_text
from agentcli.domain.codemap import MappedFile, MapPicture, MapState, Symbol, SymbolUses, UsedIn

MAX_SYMBOLS = 60
MAX_ALIKE = 8
MAX_FILES_SHOWN = 400
MAX_OF_FILE = 8
MAX_USES = 5_000
"""Uses of one name that are looked at; a file has several where it is a member of several."""
MAX_DEFINITIONS = 2_000
_PART = 3  # what an index of parts of names can find


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
        untold += int(self._index.get("unnamed") or 0)
        symbols = int(self._index.get("symbols") or 0)
        waiting = int(self._index.get("waiting") or 0)
        return MapState(files, symbols, waiting, partly, untold, tuple(sorted(missing)))

    # --- what is called so -----------------------------------------------------------------

    def symbols(self, query: str, kind: str = "", below: str = "") -> list[Symbol]:
        """What is called like ``query``, best first; without one what is used most.

        ``Class.name`` asks for what is inside of it. ``below`` is a file or a directory.
        """
        query, kind, below = map(clean_text, (query, kind, below))
        container, _, wanted = query.replace("::", ".").replace("#", ".").rpartition(".")
        container = container.rpartition(".")[2]
        where, values = self._limits(kind, below)
        if wanted:
            part, value = _part(wanted)
            where.append(part)
            values.append(value)
        if container:
            where.append("symbol.container LIKE ? ESCAPE '\\'")
            values.append(_escaped(container))
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        if not wanted:
            order = " ORDER BY symbol.rank DESC, symbol.id DESC LIMIT ?"
            rows = self._db.execute(SYMBOL + condition + order, (*values, MAX_SYMBOLS + 1))
            return [SymbolRow(*row).symbol for row in rows]
        folded = wanted.casefold()
        order = (
            " ORDER BY name.text = ? DESC, name.text = ? COLLATE NOCASE DESC,"
            " name.text LIKE ? ESCAPE '\\' DESC, symbol.rank DESC, file.path, symbol.line LIMIT ?"
        )
        rows = self._db.execute(
            SYMBOL + condition + order,
            (*values, wanted, folded, f"{_escaped(wanted)}%", MAX_SYMBOLS + 1),
        )
        return [SymbolRow(*row).symbol for row in rows]

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
        symbol, path = clean_text(symbol), clean_text(path)
        if symbol:
            container, _, name = symbol.replace("::", ".").replace("#", ".").rpartition(".")
            found = self._named(name, container.rpartition(".")[2], path)
        else:
            found = self._at(path, line)
        found = found[:MAX_ALIKE]
        uses = {name: self._uses_of(name, found) for name in {row.name for row in found}}
        return [uses[row.name][row.id] for row in found]

    def _named(self, name: str, container: str, path: str) -> list[SymbolRow]:
        where, values = ["name.text = ?"], [name]
        if container:
            where.append("symbol.container = ?")
            values.append(container)
        if path:
            where.append("file.path = ?")
            values.append(path)
        rows = self._db.execute(
            f"{SYMBOL} WHERE {' AND '.join(where)}"
            " ORDER BY symbol.rank DESC, file.path, symbol.line LIMIT ?",
            (*values, MAX_DEFINITIONS),
        )
        return [SymbolRow(*row) for row in rows]

    def _at(self, path: str, line: int) -> list[SymbolRow]:
        """What is defined in the line; else what is used there; else what the line is inside of."""
        rows = self._db.execute(f"{SYMBOL} WHERE file.path = ?", (path,))
        inside = [SymbolRow(*row) for row in rows]
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

    def _uses_of(self, name: str, wanted: list[SymbolRow]) -> dict[int, SymbolUses]:
        """Who uses each of ``wanted``, of those that are called ``name``."""
        alike = self._named(name, "", "")
        resolver = Resolver(self._db)
        sure: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        maybe: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        rows = self._db.execute(
            "SELECT used.how, used.owner, used.file, file.path, file.language, used.lines FROM used"
            " JOIN name ON name.id = used.name JOIN file ON file.id = used.file"
            " WHERE name.text = ? LIMIT ?",
            (name, MAX_USES),
        ).fetchall()
        resolver.learn_imports(name)
        ids = {row.id for row in wanted}
        languages = {row[4] for row in rows}
        fitting = {language: Alike(alike, language) for language in languages}
        for *place, text in rows:
            use, lines = FileUse(*place), [int(line) for line in text.split()]
            there = fitting[use.language]
            for some in ([n] for n in lines) if use.depends_on_line(there) else (lines,):
                meant = resolver.meant(there, use, some[0])
                for found, rows_meant in ((sure, meant.sure), (maybe, meant.maybe)):
                    for row in rows_meant:
                        if row.id in ids:
                            found[row.id][use.path].update(some)
        return {
            row.id: SymbolUses(
                row.symbol, _used(sure[row.id]), len(alike) - 1, _used(maybe[row.id])
            )
            for row in wanted
            if row.name == name
        }

    # --- what is used most -----------------------------------------------------------------

    def files(self, below: str = "", limit: int = MAX_FILES_SHOWN) -> list[tuple[str, float]]:
        """Files and their ranks, most used first."""
        return self._db.execute(
            "SELECT path, rank FROM file WHERE ? IN ('', path) OR path LIKE ? ESCAPE '\\'"
            " ORDER BY rank DESC, path LIMIT ?",
            (below, f"{_escaped(below)}/%", limit),
        ).fetchall()

    def picture(self, below: str = "", limit: int = MAX_FILES_SHOWN) -> MapPicture:
        """The ``limit`` files used most of a file or directory."""
        found = []
        for path, rank in self.files(below, limit):
            rows = self._db.execute(
                f"{SYMBOL} WHERE file.path = ? ORDER BY symbol.rank DESC, symbol.line LIMIT ?",
                (path, MAX_OF_FILE),
            )
            symbols = sorted((SymbolRow(*row).symbol for row in rows), key=lambda each: each.line)
            found.append(MappedFile(path, rank, tuple(symbols)))
        return MapPicture(tuple(found), tuple(links_among(self._db, [each.path for each in found])))


def _used(lines: dict[str, set[int]]) -> tuple[UsedIn, ...]:
    return tuple(UsedIn(path, tuple(sorted(found))) for path, found in sorted(lines.items()))


def _part(wanted: str) -> tuple[str, str]:
    """A condition on names that have ``wanted`` in them, or begin so where it is short."""
    if len(wanted) < _PART:
        return "name.text LIKE ? ESCAPE '\\'", f"{_escaped(wanted)}%"
    quoted = '"' + wanted.replace('"', '""') + '"'
    return "name.id IN (SELECT rowid FROM part WHERE part MATCH ?)", quoted


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
