"""One file as what it defines and the names that it uses (MEM-3).

Law: pure and bounded: so many definitions and uses are kept of a file and no more, one that takes
too long is given up, and the result says so. What has no grammar is read as text, where comments
count as code.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from agentcli.codemap.grammars import BY_SUFFIX, TEXT_SUFFIXES, Language, Queries, queries_of

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

MAX_DEFINITIONS = 20_000
MAX_USES = 200_000
MAX_NAME = 200
PARSE_S = 5.0
GIVEN_UP = "too hard to parse"
_MARKS = re.compile(rb"(?<![^\w\"'])[^\w\"']{500,}")
_MAX_MARKS = 4_000  # side by side; a query takes time that grows by their square
MAX_NODES = 600_000
_MAX_DEPTH = 30_000  # a query of a tree deeper than 65,535 takes minutes, and cannot be stopped
_DEPTH_STEP = 1_000
_CHUNK_BYTES = 64 * 1024
USE, MEMBER, IMPORT = range(3)
"""How a name is used: alone, as a member of something, in an import."""
_CLASSES = frozenset({"class", "interface", "struct", "enum", "trait", "container"})
_MAX_BASES_CHARS = 400
_BASES = re.compile(
    r"<[^<>]*>|\[[^\[\]]*\]|\{.*|\w+\s*=[^,)]*|\b(?:extends|implements|public|private|virtual)\b",
    re.DOTALL,
)
_NAMES = re.compile(r"[^\W\d]\w*\b(?!\s*\.)")
_WORD_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")
_LINKS = (b"?.", b".", b"->", b"::")
_BEFORE_BYTES = 250
OWN, TEXT = "this", '"'
"""What a member belongs to: the object itself, without a word for it; a text."""
_PATH_WORDS = re.compile(r"[\w-]+")
_WORD = re.compile(r"(?:(\.|->|::)\s*+)?\b([A-Za-z_]\w{2,199})\b")
_TEXT_DEFINITION = re.compile(
    r"^[ \t]*+(?:(?:export|public|private|protected|internal|open|abstract|final|static|sealed|data"
    r"|override|inline|suspend|async|local|pub|default|case)[ \t]++)*+"
    r"(class|interface|struct|enum|trait|object|module|protocol|def|defp|defmodule|func|fun|fn"
    r"|function|sub|proc|type|typealias|message|service|contract|table|view)[ \t]++"
    r"([A-Za-z_]\w{0,199})",
    re.MULTILINE | re.IGNORECASE,
)
_TEXT_KINDS = {
    **dict.fromkeys(("class", "object", "contract"), "class"),
    **dict.fromkeys(("interface", "protocol"), "interface"),
    **dict.fromkeys(("module", "defmodule"), "module"),
    **dict.fromkeys(("type", "typealias", "message", "service", "table", "view"), "type"),
    **{kind: kind for kind in ("struct", "enum", "trait")},
}


class Definition(NamedTuple):
    """What a file defines; lines count from 1, ``container`` is what it is inside of.

    ``bases`` are the names that stand between the name of a class and its body.
    """

    name: str
    kind: str
    line: int
    end: int
    container: str
    bases: str = ""


@dataclass(slots=True)
class Parsed:
    """What was found in a file.

    ``uses``: the lines by name, how it is used, and what it is a member of, where that is one name.
    """

    language: str
    definitions: list[Definition] = field(default_factory=list)
    uses: dict[tuple[str, int, str], list[int]] = field(default_factory=dict)
    note: str = ""

    def use(self, name: str, how: int, line: int, of: str = "") -> None:
        """Remember a use; a line counts once."""
        lines = self.uses.setdefault((name, how, of), [])
        if not lines or lines[-1] != line:
            lines.append(line)


def is_code(path: str) -> bool:
    """Whether the map has a place for a file of this name."""
    suffix = PurePath(path).suffix.lower()
    return suffix in BY_SUFFIX or suffix in TEXT_SUFFIXES


def parse(path: str, source: bytes, limit_s: float = PARSE_S) -> Parsed:
    """What the file ``path`` of this content defines and uses, as far as ``limit_s`` lasts."""
    suffix = PurePath(path).suffix.lower()
    language = BY_SUFFIX.get(suffix)
    queries = queries_of(language) if language is not None else None
    if language is None or queries is None:
        name = language.name if language is not None else suffix.lstrip(".")
        return _as_text(name, source, needs_grammar=language is not None)
    return _as_tree(language, queries, source, limit_s)


# --- with a grammar ------------------------------------------------------------------------


class _Span(NamedTuple):
    start: int
    end: int
    name: str
    kind: str


def _as_tree(language: Language, queries: Queries, source: bytes, limit_s: float) -> Parsed:
    from tree_sitter import Parser, QueryCursor

    until = time.monotonic() + limit_s
    if any(len(run) > _MAX_MARKS for run in _MARKS.findall(source)):
        return Parsed("", note=GIVEN_UP)

    def is_late(*_: object) -> bool:
        return time.monotonic() > until

    def chunk(offset: int, _: object) -> bytes:
        return source[offset : offset + _CHUNK_BYTES]

    try:
        tree = Parser(queries.grammar).parse(chunk, progress_callback=is_late)
    except (
        ValueError
    ):  # https://tree-sitter.github.io/py-tree-sitter/classes/tree_sitter.Parser.html
        return Parsed("", note=GIVEN_UP)
    if _is_too_large(tree):
        return Parsed("", note=GIVEN_UP)
    found = Parsed(language.name)
    matches = QueryCursor(queries.definitions).matches(tree.root_node)
    captures = {} if is_late() else QueryCursor(queries.uses).captures(tree.root_node)
    if is_late():
        return Parsed("", note=GIVEN_UP)
    names = _define(found, (captures for _, captures in matches), source)
    _use(found, captures, names, source)
    return found


def _is_too_large(tree: Tree) -> bool:
    """Whether a query of ``tree`` would take more memory or time than it is worth."""
    count = tree.root_node.descendant_count
    cursor = tree.walk()
    for number in range(0, count if count <= MAX_NODES else 0, _DEPTH_STEP):
        cursor.goto_descendant(number)
        if cursor.depth > _MAX_DEPTH:  # what follows a node in this order is inside of it
            return True
    return count > MAX_NODES


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def _spans(
    matches: Iterable[dict[str, list[Node]]], source: bytes
) -> dict[int, tuple[_Span, Node, Node, str]]:
    """Each definition by the place of its name: the nodes of name and all, what it is of."""
    spans: dict[int, tuple[_Span, Node, Node, str]] = {}
    for captures in matches:
        name_node = captures["name"][0]
        given = _text(captures["of"][0], source) if "of" in captures else ""
        kind = next(kind for kind in captures if kind not in {"name", "of"})
        whole, place = captures[kind][0], name_node.start_byte
        span = _Span(whole.start_byte, whole.end_byte, _text(name_node, source), kind)
        if not 0 < len(span.name) <= MAX_NAME:
            continue
        if place not in spans or spans[place][0].kind == "constant":  # const f = () => ...
            spans[place] = (span, name_node, whole, given)
    return spans


def _bases(name_node: Node, whole: Node, source: bytes) -> str:
    """The names between that of a class and its body."""
    body = whole.child_by_field_name("body")
    start = name_node.end_byte
    end = body.start_byte if body is not None else source.find(b"\n", start)
    text = source[start : max(start, min(end, start + _MAX_BASES_CHARS))].decode("utf-8", "replace")
    return " ".join(dict.fromkeys(_NAMES.findall(_BASES.sub(" ", text))))


def _define(
    found: Parsed, matches: Iterable[dict[str, list[Node]]], source: bytes
) -> dict[int, str]:
    """Add the definitions; returns their names by the places where these stand."""
    spans = _spans(matches, source)
    inside: list[_Span] = []
    for span, name_node, whole, given in sorted(
        spans.values(), key=lambda each: (each[0].start, -each[0].end)
    ):
        while inside and inside[-1].end <= span.start:
            inside.pop()
        around = inside[-1] if inside else None
        inside.append(span)
        if span.kind == "container":
            continue
        if len(found.definitions) == MAX_DEFINITIONS:
            found.note = f"only its first {MAX_DEFINITIONS:,} definitions"
            break
        of_class = given or (around is not None and around.kind in _CLASSES)
        kind = "method" if of_class and span.kind == "function" else span.kind
        container = given or (around.name if around is not None else "")
        line, end = name_node.start_point.row + 1, whole.end_point.row + 1
        bases = _bases(name_node, whole, source) if span.kind in _CLASSES else ""
        found.definitions.append(Definition(span.name, kind, line, end, container, bases))
    return {place: entry[0].name for place, entry in spans.items() if entry[0].kind != "container"}


def _of(source: bytes, place: int) -> str:
    """What the member at ``place`` belongs to, where that is a name; see ``Parsed``."""
    before = source[max(0, place - _BEFORE_BYTES) : place].rstrip()
    link = next((each for each in _LINKS if before.endswith(each)), b"")
    if not link:
        return OWN
    before = before[: -len(link)].rstrip()
    if before.endswith(b"super()"):
        return "super"
    if before.endswith((b'"', b"'", b"`")):
        return TEXT
    start = end = len(before)
    while start and before[start - 1] in _WORD_BYTES:
        start -= 1
    chained = before[:start].rstrip().endswith(_LINKS)
    return "" if chained else before[start:end].decode()


def _use(
    found: Parsed, captures: dict[str, list[Node]], defined: dict[int, str], source: bytes
) -> None:
    for node in captures.get("path", ()):
        for word in _PATH_WORDS.findall(_text(node, source)):
            found.use(word[:MAX_NAME], IMPORT, node.start_point.row + 1)
    taken = set(defined)
    taken.update(node.start_byte for node in captures.get("skip", ()))
    bound = _Bound(captures, set(defined), source)
    taken |= bound.places
    ordered: list[tuple[int, int, Node]] = []
    for how, kind in ((IMPORT, "import"), (MEMBER, "member"), (USE, "use")):
        for node in captures.get(kind, ()):
            place = node.start_byte
            if place not in taken:
                taken.add(place)
                ordered.append((place, how, node))
    ordered.sort(key=lambda each: each[0])
    for number, (place, how, node) in enumerate(ordered):
        if number == MAX_USES:
            found.note = f"only the names of its first {MAX_USES:,} uses"
            break
        name = _text(node, source)
        if len(name) <= MAX_NAME and not (how == USE and bound.holds(name, place)):
            of = _of(source, place) if how == MEMBER else ""
            found.use(name, how, node.start_point.row + 1, of)


class _Bound:
    """Names that belong to a function: its parameters and variables."""

    def __init__(self, captures: dict[str, list[Node]], defined: set[int], source: bytes) -> None:
        self.places: set[int] = set()
        scopes = sorted((node.start_byte, node.end_byte) for node in captures.get("scope", ()))
        self._starts = [start for start, _ in scopes]
        self._ends = [end for _, end in scopes]
        self._around = list(self._parents())
        self._names: list[set[str]] = [set() for _ in scopes]
        for node in captures.get("local", ()):
            place = node.start_byte
            scope = self._scope(place)
            if scope >= 0 and place not in defined:
                self._names[scope].add(_text(node, source))
                self.places.add(place)

    def _parents(self) -> Iterator[int]:
        open_: list[int] = []
        for number, start in enumerate(self._starts):
            while open_ and self._ends[open_[-1]] <= start:
                open_.pop()
            yield open_[-1] if open_ else -1
            open_.append(number)

    def _scope(self, place: int) -> int:
        """The innermost scope around ``place``, or -1."""
        scope = bisect_right(self._starts, place) - 1
        while scope >= 0 and self._ends[scope] <= place:
            scope = self._around[scope]
        return scope

    def holds(self, name: str, place: int) -> bool:
        """Whether ``name`` is bound by a scope around ``place``."""
        scope = self._scope(place)
        while scope >= 0:
            if name in self._names[scope]:
                return True
            scope = self._around[scope]
        return False


# --- without one ---------------------------------------------------------------------------


def _as_text(language: str, source: bytes, *, needs_grammar: bool) -> Parsed:
    text = source.decode("utf-8", "replace")
    found = Parsed(language, note="read as text" if needs_grammar else "")
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    places = set()
    for match in _TEXT_DEFINITION.finditer(text):
        if len(found.definitions) == MAX_DEFINITIONS:
            found.note = f"only its first {MAX_DEFINITIONS:,} definitions"
            break
        line = bisect_right(starts, match.start(2))
        kind = _TEXT_KINDS.get(match[1].lower(), "function")
        found.definitions.append(Definition(match[2], kind, line, line, ""))
        places.add(match.start(2))
    for number, match in enumerate(_WORD.finditer(text)):
        if number == MAX_USES:
            found.note = f"only the names of its first {MAX_USES:,} words"
            break
        if match.start(2) not in places:
            line = bisect_right(starts, match.start(2))
            found.use(match[2], MEMBER if match[1] else USE, line)
    return found
