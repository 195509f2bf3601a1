"""Reading a TOML file: every mistake at once, each with its line, in plain words (CLI-9).

Law: a statement that cannot be read is left out and the rest is read, so that nobody repairs a
file one start at a time; what is said never repeats more than a few words of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentcli.config.keys import split_key
from agentcli.config.paths import REPAIR
from agentcli.domain.clean import is_deep
from agentcli.domain.errors import ConfigError
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen

_POSITION = LazyPattern(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_HEADER = LazyPattern(r"^\s*\[\[?\s*+(?P<path>[^\[\]\s]++(?:\s++[^\[\]\s]++)*+)\s*\]\]?\s*(#.*)?$")
_ENTRY = LazyPattern(r"^\s*+(?P<path>(?:\"[^\"]*\"|'[^']*'|[\w-]++|\s*+\.\s*+)+?)\s*=")
_OPEN_HEADER = LazyPattern(r"^\s*\[\[?\s*(?P<path>[^\[\]#]*)")
_BEGUN_HEADER = LazyPattern(r"\[\[?[A-Za-z]")
MAX_DEPTH = 32  # dotted keys nest without brackets
MOST_MISTAKES = 20
REPAIR_ALL = 'correct the lines, or run "agent config edit"'
_TWICE = "stands here twice"
_NO_STATEMENT = "this line is no `key = value` and no [table]"
_CURLY = (
    "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\N{DOUBLE LOW-9 QUOTATION MARK}"
)
_BARE = LazyPattern(r"\s*([a-z_.]{1,40})(?=\s|$)")
_OPENED = LazyPattern(r"=\s*(?:\[[^\]]*$|\{[^}]*$|\"\"\"|''')")


@frozen
class Mistake:
    """What is wrong at a place of a file, in words of its own.

    ``lines`` are the first and the last line of the statement (from 1); ``key`` is the key or the
    table that it is about, as far as it could be read, ``is_table`` which of the two it is.
    """

    line: int
    column: int
    what: str
    advice: str = REPAIR
    lines: tuple[int, int] = (0, 0)
    key: tuple[str, ...] = ()
    is_table: bool = False


def refusal(path: Path, mistakes: Sequence[Mistake]) -> ConfigError:
    """The error that lists all ``mistakes`` of a file, in the order of its lines."""
    if len(mistakes) == 1:
        only = mistakes[0]
        return ConfigError(f"{path}:{only.line}:{only.column}: {only.what}", only.advice)
    listed = sorted(dict.fromkeys(mistakes), key=lambda each: (each.line, each.column, each.what))
    lines = tuple(f"line {each.line}: {each.what}" for each in listed)
    others = [each.advice for each in listed if each.advice != REPAIR]
    advice = "; ".join(dict.fromkeys([*others, REPAIR_ALL]))
    return ConfigError(f"{path} has {len(listed)} mistakes", advice, lines)


def parse(text: str, path: Path) -> dict[str, Any]:
    """The document in ``text``; raises ``ConfigError`` that lists every mistake with its line."""
    document, mistakes, _ = parse_leniently(text, path)
    if mistakes:
        raise refusal(path, mistakes)
    return document


def parse_leniently(text: str, path: Path) -> tuple[dict[str, Any], list[Mistake], str]:
    """What of ``text`` can be read, what is wrong with the rest, and the text without that.

    Raises ``ConfigError`` for a document that is nested too deep.
    """
    import tomllib

    too_deep = ConfigError(f"{path}: its values are nested too deep", REPAIR)
    lines = text.split("\n")
    mistakes: list[Mistake] = []
    while True:
        try:
            document = tomllib.loads("\n".join(lines))
            break
        except RecursionError:
            raise too_deep from None
        except tomllib.TOMLDecodeError as error:
            mistake = _mistake(str(error), lines)
            mistakes.append(mistake)
            if len(mistakes) == MOST_MISTAKES or not _leave_out(lines, mistake):
                return {}, mistakes, ""
    if is_deep(document, MAX_DEPTH):
        raise too_deep
    return document, mistakes, "\n".join(lines)


def _leave_out(lines: list[str], mistake: Mistake) -> bool:
    """Blank the statement of ``mistake``; false when there is nothing to blank.

    Of a header that is not closed the closed one stays; of a second table of a name nothing.
    """
    first, last = mistake.lines[0] - 1, mistake.lines[1] - 1
    if mistake.is_table and mistake.what.endswith(_TWICE):
        following = (n for n in range(last + 1, len(lines)) if lines[n].lstrip().startswith("["))
        last = next(following, len(lines)) - 1
    before = lines[first : last + 1]
    lines[first : last + 1] = [""] * len(before)
    if mistake.is_table and mistake.key and not mistake.what.endswith(_TWICE):
        brackets = 2 if before[0].lstrip().startswith("[[") else 1
        name = ".".join(f'"{part}"' for part in mistake.key)
        lines[first] = "[" * brackets + name + "]" * brackets
    return lines[first : last + 1] != before


def _mistake(message: str, lines: Sequence[str]) -> Mistake:
    """What ``tomllib`` refused, where, and of which statement."""
    found = _POSITION.search(message)
    line, column = len(lines), len(lines[-1]) + 1
    if found:
        message = message[: found.start()]
        if found[1]:
            line, column = int(found[1]), int(found[2])
    while not lines[line - 1].strip() and line > 1:
        line -= 1
        column = len(lines[line - 1]) + 1
    first = _unclosed_above(lines, line)
    message = "Unclosed array" if first else message
    first = first or _begin_of(lines, line, message)
    last = line
    if first != line:
        last = first
        while last < len(lines) and ("Unterm" in message or not _is_begin(lines[last])):
            last += 1
    if first != line and _is_open(message):
        line, column = first, lines[first - 1].index("=") + 3
    statement = lines[first - 1]
    header = _OPEN_HEADER.match(statement)
    entry = None if header else _ENTRY.match(statement)
    name = (header or entry or {"path": ""})["path"].strip()
    key = split_key(name)
    if entry:
        above = (_HEADER.match(lines[n]) for n in range(first - 2, -1, -1))
        key = (*next((split_key(each["path"]) for each in above if each), ()), *key)
    what = f"something in the value of `{name}` cannot be read"
    if first == line:
        what = _in_words(message, statement, name, is_header=header is not None)
    return Mistake(line, column, what, REPAIR, (first, last), key, is_table=header is not None)


def _is_begin(line: str) -> bool:
    """Whether ``line`` reads as the beginning of a statement."""
    return bool(_ENTRY.match(line) or _BEGUN_HEADER.match(line))


def _is_open(message: str) -> bool:
    """Whether something was opened and never closed, which shows only further below."""
    return message.startswith(("Unclosed array", "Unclosed inline table", "Unterminated"))


def _unclosed_above(lines: Sequence[str], line: int) -> int:
    """The line whose [ is still open where the statement of ``line`` begins; 0 for none."""
    if not _is_begin(lines[line - 1]):
        return 0
    number = line - 1
    while number > 1 and not _is_begin(lines[number - 1]):
        number -= 1
    value = "\n".join(lines[number - 1 : line - 1])
    is_open = value.count("[") > value.count("]") or value.count("{") > value.count("}")
    return number if is_open and _OPENED.search(value) else 0


def _begin_of(lines: Sequence[str], line: int, message: str) -> int:
    """The line where the statement begins that was refused in ``line``."""
    number = line
    if _is_open(message):
        while number > 1 and not _OPENED.search(lines[number - 1]):
            number -= 1
        return number if _OPENED.search(lines[number - 1]) else line
    while number > 1 and not _is_begin(lines[number - 1]):
        number -= 1
    return number if _OPENED.search(lines[number - 1]) else line


def _in_words(  # noqa: C901, PLR0912 - one arm per mistake
    message: str, statement: str, name: str, *, is_header: bool
) -> str:
    """What is wrong with ``statement``, as one would say it to somebody who never wrote TOML.

    Values are never repeated: one of them may be a key.
    """
    value = statement.partition("=")[2].strip()
    after = f"after `{name} =`"
    what = _lower(message)
    if is_header:
        what = f"the bracket of [{name} is not closed"
        if message.startswith(("Cannot declare", "Cannot mutate", "Cannot overwrite")):
            what = f"the table [{name}] {_TWICE}"
    elif message.startswith("Cannot overwrite"):
        what = f"`{name}` {_TWICE}"
    elif not name:
        begun = _BARE.match(statement)
        what = f"there is no = after `{begun[1]}`" if begun else _NO_STATEMENT
    elif message.startswith("Invalid statement"):
        what = f"the name `{name}` needs quotes"
    elif not value or value.startswith("#"):
        what = f"there is no value {after}"
    elif _is_open(message) and value[0] in "[{":
        what = f"the {value[0]} {after} is not closed"
    elif value[0] in _CURLY:
        what = f"write straight quotes {after}"
    elif value[0] in "\"'" and _quote_is_open(message, value):
        what = f"the quote {after} is not closed"
    elif message.startswith("Unescaped"):
        what = f"write \\\\ for a backslash {after}, or put the text into single quotes"
    elif value.lower() in {"true", "false"}:
        what = f"write {value.lower()} in small letters {after}"
    elif value[0] not in "\"'[{":
        what = f"the text {after} needs quotes"
    elif message.startswith("Expected newline"):
        what = f"there is something behind the value of `{name}`"
    elif message.startswith("Illegal character"):
        what = f"there is a character {after} that does not belong into text"
    return what


def _quote_is_open(message: str, value: str) -> bool:
    if message.startswith("Unterminated"):
        return True
    is_end = message.startswith(("Illegal character '\\n'", 'Expected "\'"'))
    return is_end and value.count(value[0]) % 2 == 1


def locate(text: str, path: tuple[str, ...]) -> tuple[int, int]:
    """Line and column (from 1) where the key or table at ``path`` stands; 1, 1 if not found.

    Looks at the text, since ``tomllib`` keeps no positions: good enough to point at.
    """
    table: tuple[str, ...] = ()
    best = (1, 1)
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = split_key(header["path"])
            here, column = table, header.start("path") + 1
        elif entry := _ENTRY.match(line):
            here, column = (*table, *split_key(entry["path"])), entry.start("path") + 1
        else:
            continue
        if here == path:
            return number, column
        # an inline table or a table header: as near as it gets
        if here == path[: len(here)]:
            best = (number, column)
    return best


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
