"""Reading a TOML file: errors name the file, the line and the column, and how to repair it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentcli.domain.errors import ConfigError

_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_HEADER = re.compile(r"^\s*\[\[?\s*(?P<path>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ENTRY = re.compile(r"^\s*(?P<path>(?:\"[^\"]*\"|'[^']*'|[\w-]+|\s*\.\s*)+?)\s*=")
_SEGMENT = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")
MAX_DEPTH = 32  # dotted keys nest without brackets
MAX_BYTES = 4_000_000
REPAIR = 'correct the line, or run "agent config edit"'


def read_text(path: Path) -> str | None:
    """The file's text, or ``None`` when there is no such file; raises ``ConfigError``."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ConfigError(f"{path} is no regular file", "put the settings into a plain file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB", REPAIR)
        return data.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - (error.object.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError(f"{path}:{line}:{column}: not UTF-8 text", REPAIR) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot read {path}: {reason}", "check its permissions") from error


def parse(text: str, path: Path) -> dict[str, Any]:
    """The document in ``text``; raises ``ConfigError`` with line and column."""
    import tomllib

    too_deep = ConfigError(f"{path}: its values are nested too deep", REPAIR)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = _POSITION.search(message)
        lines = text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
        if found:
            message = message[: found.start()]
            if found[1]:
                line, column = int(found[1]), int(found[2])
        raise ConfigError(f"{path}:{line}:{column}: {_lower(message)}", REPAIR) from error
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = [below for value in level for below in _within(value)]
        if not level:
            return document
    raise too_deep


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def locate(text: str, path: tuple[str, ...]) -> tuple[int, int]:
    """Line and column (from 1) where the key or table at ``path`` stands; 1, 1 if not found.

    Looks at the text, since ``tomllib`` keeps no positions: good enough to point at.
    """
    table: tuple[str, ...] = ()
    best = (1, 1)
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _segments(header["path"])
            here, column = table, header.start("path") + 1
        elif entry := _ENTRY.match(line):
            here, column = (*table, *_segments(entry["path"])), entry.start("path") + 1
        else:
            continue
        if here == path:
            return number, column
        # an inline table or a table header: as near as it gets
        if here == path[: len(here)]:
            best = (number, column)
    return best


def split_key(text: str) -> tuple[str, ...]:
    """A dotted key, quoted parts allowed: ``models."ollama/qwen3".context_tokens``."""
    return _segments(text)


def _segments(text: str) -> tuple[str, ...]:
    return tuple(a or b or c for a, b, c in _SEGMENT.findall(text))


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
