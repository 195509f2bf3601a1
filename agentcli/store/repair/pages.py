"""The rows of a session file, read page by page without SQLite.

SQLite believes what a file says of its tables, and leaves out all of a page that it doubts. This
reads what is there: columns by their places, texts that are not quite UTF-8, the cells of a page
whose pointers are wrong, pages that no table leads to any more.
Laws: nothing here raises for what a file holds, which is never held whole; each page is read once,
or a few times where it goes on with a long value, so that no ring of pages holds anything up; what
is no longer part of a table adds rows that are missing there, and changes none. The format:
https://sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from agentcli.domain.values import frozen, mutable
from agentcli.store import schema, wal
from agentcli.store.codec import checksum

BAD = "\0bad"
"""The key of a row under which stand, by column, the bytes of values that are not whole."""
Row = Mapping[str, Any]
Tables = dict[str, list[Row]]
Values = list[Any]
Cell = tuple[int, Values, Mapping[int, bytes]]
"""A row's number, its values, and the bytes of those that are not whole."""

MAX_VALUE_BYTES = 64 * 1024 * 1024
MAX_PAGES = 1 << 22
_MOST_READINGS = 4  # of a page that goes on with a long value: many rows may say that it is theirs
_MAGIC = b"SQLite format 3\0"
_HEAD_BYTES = 100
_PAGE_SIZES = frozenset(1 << bits for bits in range(9, 17))
_DEFAULT_PAGE = 4096
_TABLE_LEAF, _TABLE_INNER, _INDEX_LEAF, _INDEX_INNER = 13, 5, 10, 2
_INTEGER_SIZES = (0, 1, 2, 3, 4, 6, 8)
_REAL, _ZERO, _ONE, _FIRST_BYTES = 7, 8, 9, 12
_MAX_VARINT = 9
_ROLES = frozenset({"user", "assistant", "tool", "summary"})
# tables in which rows are deleted: what lies about of them may have been, and never acts
_WITH_DELETIONS = frozenset({"kv", "input_queue", "task", "schedule", "file_change"})


@frozen
class Shape:
    """What the rows of a table look like in the file."""

    name: str
    columns: tuple[str, ...]
    kinds: tuple[tuple[type, ...], ...]
    alias: int | None
    """The place of the column that is the row's number, and NULL in the file."""
    has_rowid: bool
    least: int
    """How many columns a row has at least: those of the oldest version."""

    def fits(self, values: Sequence[Any]) -> bool:
        """Whether ``values`` can be a row of this table."""
        if not self.least <= len(values) <= len(self.columns):
            return False
        pairs = zip(values, self.kinds, strict=False)
        if not all(isinstance(value, kinds) for value, kinds in pairs):
            return False
        return self.name != "message" or values[1] in _ROLES


def shapes() -> tuple[Shape, ...]:
    """Those of this version's tables."""
    kinds = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str, bytes), "BLOB": (bytes,)}
    found = []
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for statement in schema.STATEMENTS:
            db.execute(statement)
        for name in schema.table_names():
            rows = db.execute(f"PRAGMA table_info({name})").fetchall()
            (sql,) = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
            has_rowid = "WITHOUT ROWID" not in sql
            alias = next((at for at, *_, key in _typed(rows) if key and has_rowid), None)
            found.append(
                Shape(
                    name,
                    tuple(row[1] for row in rows),
                    tuple(
                        (type(None),)
                        if at == alias
                        else kinds[kind] + (() if needed or key else (type(None),))
                        for at, kind, needed, key in _typed(rows, every=True)
                    ),
                    alias,
                    has_rowid,
                    schema.least_columns(name),
                )
            )
    return tuple(found)


def _typed(rows: Sequence[Any], *, every: bool = False) -> list[tuple[int, str, bool, bool]]:
    typed = [(row[0], row[2], bool(row[3]), bool(row[5])) for row in rows]
    return typed if every else [row for row in typed if row[1] == "INTEGER"]


# --- pages: the file, and what its write-ahead log has in their place ---------------------------


@mutable
class Pages:
    """The ``count`` pages of the open ``file``, from 1; ``usable`` bytes of each hold something."""

    file: int
    count: int
    size: int
    usable: int
    later: Mapping[int, bytes]
    read: set[int] = field(default_factory=set)

    def get(self, number: int) -> bytes:
        """The page ``number``; shorter, or empty, where the file ends before."""
        found = self.later.get(number)
        if found is None and number > 0:
            found = os.pread(self.file, self.size, (number - 1) * self.size)
        return found or b""


def _states(log: bytes, size: int) -> list[Mapping[int, bytes]]:
    """What stands in the place of pages of the file: by the whole log, by its sound part, not.

    SQLite stops at the first frame that has changed; all that was committed after it is there.
    """
    if not log:
        return [{}]
    found = list(wal.frames(log, size))
    return [_committed(log, found), _committed(log, found[: wal.count_whole(log)[1]]), {}]


def _committed(log: bytes, found: Sequence[wal.LogFrame]) -> Mapping[int, bytes]:
    salts = log[16:24]
    if found and all(frame.salts != salts for frame in found):  # it is the header that has changed
        salts = found[0].salts
    pages: dict[int, bytes] = {}
    begun: dict[int, bytes] = {}
    for frame in found:
        if frame.salts != salts:  # of an earlier log, or damaged
            continue
        if 0 < frame.page <= MAX_PAGES:
            begun[frame.page] = bytes(frame.data)
        if frame.committed:
            pages |= begun
            begun.clear()
    return pages


# --- cells: what a page holds -------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at`` and where it ends; ``IndexError`` beyond the end."""
    value = 0
    for taken in range(1, _MAX_VARINT):
        byte = data[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, at
        if taken == _MAX_VARINT - 1:
            break
    return value << 8 | data[at], at + 1


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _body_size(kind: int) -> int:
    if kind >= _FIRST_BYTES:
        return (kind - _FIRST_BYTES) // 2
    return _INTEGER_SIZES[kind] if kind < len(_INTEGER_SIZES) else (8 if kind == _REAL else 0)


def _header(payload: bytes) -> tuple[list[int], int] | None:
    """The kinds of a record's values and where these begin; ``None`` if it is no record."""
    try:
        end, at = _varint(payload, 0)
        kinds = []
        while at < end:
            kind, at = _varint(payload, at)
            if kind in {10, 11}:  # never in a file
                return None
            kinds.append(kind)
    except IndexError:
        return None
    return (kinds, end) if at == end and kinds else None


def _values(payload: bytes, kinds: Sequence[int], at: int) -> tuple[Values, Mapping[int, bytes]]:
    values: Values = []
    bad = {}
    for place, kind in enumerate(kinds):
        size = _body_size(kind)
        part = payload[at : at + size]
        at += size
        if len(part) < size:
            bad[place] = part
        if kind >= _FIRST_BYTES and kind % 2:
            try:
                values.append(part.decode())
            except UnicodeDecodeError:
                bad[place] = part
                values.append(part.decode(errors="replace"))
        elif kind >= _FIRST_BYTES:
            values.append(part)
        elif kind == _REAL:
            values.append(struct.unpack(">d", part.rjust(8, b"\0"))[0])
        elif kind in {_ZERO, _ONE}:
            values.append(kind - _ZERO)
        else:
            values.append(int.from_bytes(part, signed=True) if kind else None)
    return values, bad


class Reader:
    """Reads the tables out of ``pages``."""

    def __init__(self, pages: Pages, known: Sequence[Shape]) -> None:
        self.page_size = pages.size
        self._pages = pages
        self._left = _MOST_READINGS * pages.count
        self._known = known
        self._by_name = {shape.name: shape for shape in known}
        self.found: dict[str, dict[Any, Row]] = {shape.name: {} for shape in known}
        self.problems: list[str] = []
        self._damaged: list[int] = []
        self._strange: list[tuple[Shape, Cell]] = []

    def run(self) -> None:
        """Read everything."""
        roots = self._roots()
        for shape in self._known:
            if root := roots.get(shape.name):
                self._read_tree(shape, root)
            else:
                self.problems.append(f"table {shape.name}: the file does not say where it is")
        strays = sum(self._take_strays(self._carved(self._pages.get(at))) for at in self._damaged)
        for number in range(1, self._pages.count + 1):
            if number not in self._pages.read:
                strays += self._take_strays(self._cells(number))
        strays += self._take_strays([cell for _, cell in self._strange])
        for shape, cell in self._strange:  # values that a row of its table never has
            row = _row(shape, cell)
            if len(row) >= shape.least:
                self.found[shape.name].setdefault(_key(shape, row), row)
        if strays:
            self.problems.append(f"{strays} rows were found outside of their tables")

    def _roots(self) -> dict[str, int]:
        """The first page of each table, by what the schema says, where it still says it."""
        roots: dict[str, int] = {}
        pages, self._pages.read = self._pages.read, set()
        for _, values, _ in self._walk(1, {_TABLE_INNER, _TABLE_LEAF})[0]:
            if len(values) >= 4 and values[0] == "table" and isinstance(values[3], int):  # noqa: PLR2004 - type, name, tbl_name, rootpage
                name = values[1] if values[1] in self._by_name else values[2]
                if name in self._by_name and 1 < values[3] <= self._pages.count:
                    roots.setdefault(str(name), values[3])
        self._pages.read = pages | {1}
        return roots

    def _read_tree(self, shape: Shape, root: int) -> None:
        kinds = {_TABLE_INNER, _TABLE_LEAF} if shape.has_rowid else {_INDEX_INNER, _INDEX_LEAF}
        cells, whole = self._walk(root, kinds)
        rows = self.found[shape.name]
        strange = [cell for cell in cells if not shape.fits(cell[1])]
        for cell in cells:
            if shape.fits(cell[1]):
                row = _row(shape, cell)
                rows.setdefault(_key(shape, row), row)
        self._strange += ((shape, cell) for cell in strange)
        if not whole:
            self.problems.append(f"table {shape.name}: damaged; {len(rows)} rows could be read")

    def _take_strays(self, cells: Sequence[Cell]) -> int:
        """Rows that are of a table by their looks alone, and that it does not have."""
        taken = 0
        for cell in cells:
            fitting = [shape for shape in self._known if shape.fits(cell[1])]
            if len(fitting) != 1:
                continue
            shape = fitting[0]
            row = _row(shape, cell)
            key = _key(shape, row)
            if shape.name in _WITH_DELETIONS:
                row = {**row, "seal": ""}
            if key not in self.found[shape.name]:
                self.found[shape.name][key] = row
                taken += 1
        return taken

    def _walk(self, root: int, kinds: set[int]) -> tuple[list[Cell], bool]:
        """The cells of the tree at ``root``, in order, and whether nothing of it was damaged."""
        cells: list[Cell] = []
        whole = True
        todo = [root]
        while todo:
            number = todo.pop()
            page = self._pages.get(number)
            at = 100 if number == 1 else 0
            if number in self._pages.read or len(page) <= at or page[at] not in kinds:
                whole = False
                continue
            self._pages.read.add(number)
            of_page, children, is_whole = self._parsed(number, page)
            whole = whole and is_whole
            cells += of_page
            todo += reversed(children)
            if not is_whole:
                self._damaged.append(number)
        return cells, whole

    def _cells(self, number: int) -> list[Cell]:
        """The cells of a page that no tree leads to."""
        page = self._pages.get(number)
        cells: list[Cell] = []
        if page.count(0) == len(page):  # a hole, maybe of gigabytes
            return cells
        if page[0] in {_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER}:
            cells, _, whole = self._parsed(number, page)
            if whole:
                return cells
        return cells + self._carved(page)

    def _parsed(self, number: int, page: bytes) -> tuple[list[Cell], list[int], bool]:
        """Cells and child pages of a page of a tree, and whether all of its bytes are in order."""
        at = 100 if number == 1 else 0
        kind = page[at]
        is_inner = kind in {_TABLE_INNER, _INDEX_INNER}
        first = at + (12 if is_inner else 8)
        if len(page) < max(first, self._pages.usable):
            return [], [], False
        free, count, _, fragments = struct.unpack_from(">HHHB", page, at + 1)
        last_child = [struct.unpack_from(">I", page, at + 8)[0]] if is_inner else []
        cells: list[Cell] = []
        children: list[int] = []
        used = first + 2 * count + fragments
        whole = first + 2 * count <= self._pages.usable
        for place in range(first, min(first + 2 * count, self._pages.usable - 1), 2):
            (start,) = struct.unpack_from(">H", page, place)
            if is_inner:
                if start + 4 <= len(page):
                    children.append(struct.unpack_from(">I", page, start)[0])
                start += 4
                used += 4
            if kind == _TABLE_INNER:
                used += _length_of_varint(page, start)
                continue
            cell = self._cell(page, start, has_rowid=kind == _TABLE_LEAF)
            if cell is None:
                whole = False
                continue
            cells.append(cell[0])
            used += max(cell[1] - start, 4 - 4 * is_inner)
        while free and whole:
            if free + 4 > self._pages.usable:
                whole = False
                break
            following, size = struct.unpack_from(">HH", page, free)
            used += size
            whole = following == 0 or following >= free + size
            free = following
        (content,) = struct.unpack_from(">H", page, at + 5)
        used += (content or 65536) - (first + 2 * count)
        return cells, children + last_child, whole and used == self._pages.usable

    def _cell(
        self, page: bytes, start: int, *, has_rowid: bool, follow: bool = True
    ) -> tuple[Cell, int] | None:
        """The cell at ``start`` and where it ends; ``None`` where there is none."""
        try:
            size, at = _varint(page, start)
            rowid, at = _varint(page, at) if has_rowid else (0, at)
        except IndexError:
            return None
        usable = self._pages.usable
        most = usable - 35 if has_rowid else (usable - 12) * 64 // 255 - 23
        local = size
        if size > most:
            least = (usable - 12) * 32 // 255 - 23
            local = least + (size - least) % (usable - 4)
            local = local if local <= most else least
        end = at + local
        if not 0 < size <= MAX_VALUE_BYTES or end + (4 if local < size else 0) > usable:
            return None
        head = _header(page[at:end])
        if head is None or head[1] + sum(map(_body_size, head[0])) != size:
            return None
        payload = page[at:end]
        if local < size:
            if follow:
                payload += self._overflow(struct.unpack_from(">I", page, end)[0], size - local)
            end += 4
        values, bad = _values(payload, *head)
        return (_signed(rowid), values, bad), end

    def _overflow(self, number: int, size: int) -> bytes:
        parts: list[bytes] = []
        seen = set()
        while size > 0 and 0 < number <= self._pages.count and number not in seen:
            page = self._pages.get(number)
            self._left -= 1
            if len(page) < self._pages.usable or self._left < 0:
                break
            seen.add(number)
            parts.append(page[4 : min(4 + size, self._pages.usable)])
            size -= len(parts[-1])
            (number,) = struct.unpack_from(">I", page, 0)
        self._pages.read |= seen
        return b"".join(parts)

    def _carved(self, page: bytes) -> list[Cell]:
        """Whatever looks like a row of a table with row numbers, wherever it begins."""
        cells = []
        at = 0
        while at < len(page) - 8:
            found = None
            if page[at]:  # a size comes first
                found = self._cell(page, at, has_rowid=True, follow=False)
            if found and any(s.has_rowid and s.fits(found[0][1]) for s in self._known):
                whole = self._cell(page, at, has_rowid=True)
                cells.append((whole or found)[0])
                at = found[1]
            else:
                at += 1
        return cells


def _length_of_varint(page: bytes, at: int) -> int:
    with contextlib.suppress(IndexError):
        return _varint(page, at)[1] - at
    return 0


def _key(shape: Shape, row: Row) -> Any:
    return row["__rowid"] if shape.has_rowid else row[shape.columns[0]]


def _row(shape: Shape, cell: Cell) -> dict[str, Any]:
    rowid, values, bad = cell
    bad = dict(bad)
    for place, value in enumerate(values[: len(shape.columns)]):
        if isinstance(value, bytes) and str in shape.kinds[place]:  # its kind may have changed
            try:
                values[place] = value.decode()
            except UnicodeDecodeError:
                if not _is_escaped(value):
                    bad[place], values[place] = value, value.decode(errors="replace")
    row = dict(zip(shape.columns, values, strict=False))
    if shape.has_rowid:
        row["__rowid"] = rowid
    if shape.alias is not None:
        row[shape.columns[shape.alias]] = rowid
    if bad:
        row[BAD] = {shape.columns[place]: part for place, part in bad.items()}
    return row


def _is_escaped(value: bytes) -> bool:
    """Whether it is a text with lone surrogates, which is kept as bytes."""
    try:
        value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def read_tables(path: Path) -> tuple[Tables, list[str]]:
    """The rows of each table that the file ``path`` and its write-ahead log hold, by its name.

    A text that is not UTF-8 has U+FFFD for what is none; ``BAD`` has its bytes. Also what was
    wrong.
    """
    log_path = path.with_name(path.name + "-wal")
    log = log_path.read_bytes() if log_path.exists() else b""
    known = shapes()
    best: Reader | None = None
    with path.open("rb", buffering=0) as file:
        head, length = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
        for size, reserved in _sizes(head):
            for later in _states(log, size):
                count = max(-(-length // size), max(later, default=0))
                pages = Pages(file.fileno(), count, size, size - reserved, later)
                reader = Reader(pages, known)
                reader.run()
                best = _fuller(best, reader)
    if best is None:
        return {}, ["it is empty"]
    ordered = {
        name: [rows[key] for key in (sorted(rows) if _by_number(rows) else rows)]
        for name, rows in best.found.items()
    }
    header = [] if head.startswith(_MAGIC) else ["the file's header: made again"]
    return ordered, [*header, *best.problems]


def _by_number(rows: Mapping[Any, Row]) -> bool:
    return all(isinstance(key, int) for key in rows)


def _sizes(head: bytes) -> Iterator[tuple[int, int]]:
    """Sizes of a page, and of what is reserved at its end, that may be those of the file."""
    if not head:
        return
    size, reserved = int.from_bytes(head[16:18]), head[20] if len(head) > 20 else 0  # noqa: PLR2004 - its place in the header
    size = 65536 if size == 1 else size
    if size in _PAGE_SIZES and (size, reserved) != (_DEFAULT_PAGE, 0) and reserved < size // 4:
        yield size, reserved
    yield _DEFAULT_PAGE, 0


def is_proved(row: Row) -> bool:
    """Whether a row of ``message`` has the checksum of what is in it."""
    proof, role, body = (row.get(name) for name in ("checksum", "role", "body"))
    return BAD not in row and isinstance(proof, int) and checksum(str(role), str(body)) == proof


def _fuller(one: Reader | None, other: Reader) -> Reader:
    """Of two readings the one with more messages, with what only the other has."""
    if one is None:
        return other
    if len(other.found["message"]) > len(one.found["message"]):
        one, other = other, one
    if one.page_size == other.page_size:
        for name, rows in other.found.items():
            if name not in _WITH_DELETIONS:
                for key, row in rows.items():
                    if key not in one.found[name] or (
                        is_proved(row) and not is_proved(one.found[name][key])
                    ):
                        one.found[name][key] = row
    return one
