"""What is used most, by PageRank (https://en.wikipedia.org/wiki/PageRank) over the files (MEM-3).

File by file, so that a project of many files takes little memory. What is used as a member of
something unknown counts little.
"""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence

from agentcli.codemap.index import MapIndex
from agentcli.codemap.parse import IMPORT
from agentcli.codemap.resolve import MEMBERS, SYMBOL, Alike, FileUse, Resolver, SymbolRow
from agentcli.domain.codemap import FileLink

_DAMPING, _ROUNDS, _ENOUGH = 0.85, 40, 1e-7
_COMMON = 12
"""A name that more places define says nothing of who uses which."""
_SHORTEST = 3
_UNSURE = 0.05
"""What a use counts that may mean another definition."""
_OWN_USE = 0.1
"""What a file uses of itself tells little."""
_KEPT_NAMES = 20_000


def rank(index: MapIndex) -> None:
    """Give files and symbols their ranks; the sum over all files is 1."""
    db = index.db
    files = [file for (file,) in db.execute("SELECT id FROM file")]
    if not files:
        return
    users, used, symbols, shares = array("q"), array("q"), array("q"), array("d")
    weights: dict[tuple[int, int], float] = defaultdict(float)
    totals: dict[int, float] = defaultdict(float)
    for user, row, weight in _links(db, files):
        for column, value in ((users, user), (used, row.file), (symbols, row.id)):
            column.append(value)
        shares.append(weight)
        if user != row.file:
            weights[user, row.file] += weight
            totals[user] += weight
    ranks = pagerank(files, weights)
    of_symbol: dict[int, float] = defaultdict(float)
    for user, target, symbol, weight in zip(users, used, symbols, shares, strict=True):
        share = _OWN_USE if user == target else 1.0
        of_symbol[symbol] += share * ranks[user] * weight / max(totals[user], weight)
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("UPDATE symbol SET rank = 0 WHERE rank <> 0")
        db.executemany(
            "UPDATE file SET rank = ? WHERE id = ?",
            ((share, file) for file, share in ranks.items()),
        )
        db.executemany(
            "UPDATE symbol SET rank = ? WHERE id = ?",
            ((share, symbol) for symbol, share in of_symbol.items()),
        )
        index.ranked()
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _links(db: sqlite3.Connection, files: Sequence[int]) -> Iterator[tuple[int, SymbolRow, float]]:
    """What each of ``files`` uses: the file, what of another or its own, how much."""
    resolver = Resolver(db)
    defined: dict[int, list[SymbolRow]] = {}
    common = "SELECT name FROM symbol GROUP BY name HAVING COUNT(*) <= ?"
    wanted = {name for (name,) in db.execute(common, (_COMMON,))}
    for file in files:
        path, language = db.execute(
            "SELECT path, language FROM file WHERE id = ?", (file,)
        ).fetchone()
        rows = db.execute(
            "SELECT used.name, used.how, used.owner, used.lines, name.text FROM used"
            " JOIN name ON name.id = used.name WHERE used.file = ? AND used.how <> ?",
            (file, IMPORT),
        ).fetchall()
        for name, how, owner, lines, text in rows:
            if name not in wanted or len(text) < _SHORTEST or text.startswith("__"):
                continue
            if name not in defined:
                if len(defined) > _KEPT_NAMES:
                    defined.clear()
                found = db.execute(f"{SYMBOL} WHERE symbol.name = ?", (name,))
                defined[name] = [SymbolRow(*row) for row in found]
            line = int(lines.partition(" ")[0])
            there = Alike(defined[name], language)
            meant = resolver.meant(there, FileUse(how, owner, file, path, language), line)
            weight = math.sqrt(lines.count(" ") + 1)
            for row in meant.sure:
                known = row.file == file or row.kind not in MEMBERS or owner
                yield file, row, weight * (1 if known else _UNSURE) / len(meant.sure)
            for row in meant.maybe:
                yield file, row, weight * _UNSURE / len(meant.maybe)
        resolver.forget(file)


def links_among(db: sqlite3.Connection, paths: Sequence[str]) -> list[FileLink]:
    """Who uses whom among the files ``paths``, the strongest first."""
    found = (db.execute("SELECT id, path FROM file WHERE path = ?", (path,)) for path in paths)
    names = dict(row for rows in found for row in rows)
    weights: dict[tuple[str, str], float] = defaultdict(float)
    for user, row, weight in _links(db, list(names)):
        if user != row.file and row.file in names:
            weights[names[user], names[row.file]] += weight
    links = (FileLink(*pair, weight) for pair, weight in weights.items())
    return sorted(links, key=lambda link: (-link.weight, link.user, link.used))


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
