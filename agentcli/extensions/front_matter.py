"""Files that users bring: a text, and before it a head of YAML between lines of ``---``.

::

    ---
    name: reviewer
    description: Reviews a change: bugs only.
    ---
    You review code.

Laws: one reader for skills, commands and agents; a value stays the text that was written (``yes``
is no boolean); fields that nobody asks for are ignored; a head that is no YAML is read once more
with its values quoted, as people write ``key: value: more``; everything read is bounded, and a file
that makes no sense raises ``Unusable``, nothing else. A head that was parsed once is taken from
``Heads`` as long as file and head are the same (EXT-2): no library of YAML is imported then.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentcli.domain.files import NoRegularFile, open_resolved
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.tools import real_path
from agentcli.domain.values import frozen
from agentcli.extensions.places import ExtensionPlace

MAX_HEAD_CHARS = 20_000
MAX_DEPTH = 10
MAX_REMEMBERED = 1_000
_VERSION = 1
_MARK = "---"
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_FIELD = LazyPattern(r"([A-Za-z][\w-]*):[ \t]++((?:[ \t]*+[^ \t\n]++)*+)[ \t]*")
# values that are YAML as they are: in quotes, a plain list, a text in the lines below
_SOUND = LazyPattern(r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|\[[\w ,./'"-]*\]|[>|][+-]?""")


class Unusable(ValueError):
    """A file that makes no sense; the text says why."""


@frozen
class Document:
    """``fields`` by their names in small letters; ``None`` where the file has no head."""

    fields: Mapping[str, Any] | None
    body: str

    def text(self, name: str) -> str:
        """The field ``name`` in one line; empty when there is none."""
        value = (self.fields or {}).get(name, "")
        if isinstance(value, list):
            value = f"[{', '.join(item for item in value if isinstance(item, str))}]"
        return " ".join(value.split()) if isinstance(value, str) else ""

    def names(self, name: str) -> tuple[str, ...] | None:
        """The field ``name`` as a list, from YAML's or with commas; ``None``: there is none."""
        if name not in (self.fields or {}):
            return None
        items = (item.strip(" \t'\"") for item in self.text(name).strip("[]").split(","))
        return tuple(dict.fromkeys(item for item in items if item))

    def says(self, name: str, otherwise: bool) -> bool:  # noqa: FBT001 - the value where nothing is said
        """The field ``name`` as a yes or no."""
        return _TRUTH.get(self.text(name).lower(), otherwise)


class Heads:
    """What was parsed before, from the ``text`` that an earlier ``Heads`` has left.

    A text that makes no sense is an empty one. Remembered is by path, size, time, inode and a
    digest of the head itself. ``has_news``: there is something to keep.
    """

    def __init__(self, text: str = "") -> None:
        self._known = _remembered(text)
        self.has_news = False

    def fields(self, path: Path, status: os.stat_result, lines: list[str]) -> dict[str, Any]:
        """The fields of the head that ``lines`` make. Raises ``Unusable``."""
        head = "\n".join(lines)
        digest = hashlib.blake2b(head.encode("utf-8", "replace"), digest_size=16).hexdigest()
        mark = [status.st_size, status.st_mtime_ns, status.st_ino, digest]
        found = self._known.pop(str(path), None)
        if found is None or found[0] != mark:
            found = mark, _fields(lines)
            if "&" in head and "*" in head:  # as JSON a reference is a copy, and can be one of many
                return found[1]
            self.has_news = True
        self._known[str(path)] = found  # the newest stand last
        return found[1]

    def text(self) -> str:
        """What to keep: the heads that were asked for last."""
        self.has_news = False
        newest = dict(list(self._known.items())[-MAX_REMEMBERED:])
        return json.dumps({"version": _VERSION, "heads": newest})


def _remembered(text: str) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    try:
        kept = json.loads(text) if text else {}
        heads = kept["heads"] if kept.get("version") == _VERSION else {}
        return {str(path): (list(mark), dict(fields)) for path, (mark, fields) in heads.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def read_placed(
    place: ExtensionPlace, path: Path, max_bytes: int, heads: Heads | None = None
) -> Document:
    """What the file of ``place`` holds, if it may be read there. Raises ``Unusable``.

    It never waits for a pipe or a device.
    """
    real = real_path(path)
    if why := place.refusal(path, real):
        raise Unusable(why)
    try:
        with open_resolved(real) as file:
            status = os.fstat(file.fileno())
            data = file.read(max_bytes + 1)
    except NoRegularFile as error:
        raise Unusable("it is no regular file") from error
    except (OSError, ValueError) as error:
        raise Unusable(f"it cannot be read: {getattr(error, 'strerror', error)}") from error
    if len(data) > max_bytes:
        raise Unusable(f"it is larger than {max_bytes:,} bytes")
    if b"\0" in data:
        raise Unusable("it is no text")
    lines, body = _split(data.decode("utf-8", "replace"))
    if lines is None:
        return Document(None, body)
    return Document(_fields(lines) if heads is None else heads.fields(path, status, lines), body)


def parse_document(text: str) -> Document:
    """The head's fields and what follows the head. Raises ``Unusable``."""
    lines, body = _split(text)
    return Document(None if lines is None else _fields(lines), body)


def _split(text: str) -> tuple[list[str] | None, str]:
    """The lines of the head, ``None`` where there is none, and the rest."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").lstrip("\n")
    lines = text.split("\n")
    if lines[0].rstrip() != _MARK:
        return None, text.strip()
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _MARK), None)
    if end is None:
        raise Unusable(f"its head has no end: a line of {_MARK}")
    return lines[1:end], "\n".join(lines[end + 1 :]).strip()


def _fields(lines: list[str]) -> dict[str, Any]:
    # no YAML has control characters, and nothing that is shown
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in lines]
    head = "\n".join(lines)
    if len(head) > MAX_HEAD_CHARS:
        raise Unusable(f"its head is longer than {MAX_HEAD_CHARS:,} characters")
    try:
        value = _yaml(head)
    except ValueError:
        try:
            value = _yaml("\n".join(map(_quoted, lines)))
        except ValueError as error:
            raise Unusable(f"its head is no YAML: {error}") from None
    if value is None or value == "":
        return {}
    if not isinstance(value, dict):
        raise Unusable("its head has no fields: lines of NAME: VALUE")
    return {str(name).lower(): each for name, each in value.items()}


def _quoted(line: str) -> str:
    """A line ``key: value`` with the value in quotes, unless it is sound without."""
    field = _FIELD.fullmatch(line)
    if field is None or not field[2] or _SOUND.fullmatch(field[2]):
        return line
    return f"{field[1]}: '{field[2].replace(chr(39), chr(39) * 2)}'"


def _yaml(text: str) -> Any:
    """``text`` as lists, mappings and texts, nothing else. Raises ``ValueError``."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):  # the loader recurses
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                raise ValueError("it is nested too deeply")
        return yaml.load(text, Loader=loader)  # noqa: S506 - the base loader makes texts of all
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        if "nesting" in problem:  # from PyYAML 6.0.4 on, libyaml has a limit and looks ahead
            raise ValueError("it is nested too deeply") from error
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 2})" if mark is not None else ""
        raise ValueError(f"{problem}{where}") from error
