"""Reading a TOML file: every mistake at once, each with its line, in plain words (CLI-9).

At the end: what the value of a key may be.

Law: a statement that cannot be read is left out and the rest is read, so that nobody repairs a
file one start at a time; what is said never repeats more than a few words of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentcli.domain.clean import is_deep
from agentcli.domain.errors import ConfigError
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen

_POSITION = LazyPattern(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_HEADER = LazyPattern(r"^\s*\[\[?\s*(?P<path>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ENTRY = LazyPattern(r"^\s*(?P<path>(?:\"[^\"]*\"|'[^']*'|[\w-]+|\s*\.\s*)+?)\s*=")
_OPEN_HEADER = LazyPattern(r"^\s*\[\[?\s*(?P<path>[^\[\]#]*)")
_BEGUN_HEADER = LazyPattern(r"\[\[?[A-Za-z]")
_SEGMENT = LazyPattern(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")
MAX_DEPTH = 32  # dotted keys nest without brackets
MAX_BYTES = 4_000_000
MOST_MISTAKES = 20
REPAIR = 'correct the line, or run "agent config edit"'
REPAIR_ALL = 'correct the lines, or run "agent config edit"'
_TWICE = "stands here twice"
_NO_STATEMENT = "this line is no `key = value` and no [table]"
_CURLY = (
    "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\N{DOUBLE LOW-9 QUOTATION MARK}"
)
_BARE = LazyPattern(r"\s*([a-z_.]{1,40})(?=\s|$)")
_OPENED = LazyPattern(r"=\s*(?:\[[^\]]*$|\{[^}]*$|\"\"\"|''')")


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
    key = _segments(name)
    if entry:
        above = (_HEADER.match(lines[n]) for n in range(first - 2, -1, -1))
        key = (*next((_segments(each["path"]) for each in above if each), ()), *key)
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


def dotted(path: tuple[str, ...]) -> str:
    """``path`` as it is written: parts that are not plain words are quoted."""
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in path)


# --- what a value may be --------------------------------------------------------------------

# Law: a value that is wrong is refused in words that hold nothing of a key.

# a comma that does not stand between brackets: rules hold commas of their own
_OUTER_COMMA = r",(?![^(]*\))"


class KeyKind(StrEnum):
    """The type of a key's value; the text is how users are told of it."""

    TEXT = "a text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    LIST = "a list of texts"
    PLACES = "a list of paths that begin with ~/ or /"
    URL = "an http:// or https:// address"
    TEXTS = "a table of texts"
    HEADERS = "a table of HTTP headers, NAME = a text of one line"


_TABLES = frozenset({KeyKind.TEXTS, KeyKind.HEADERS})
_HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
# what the program itself has to say of a request
_OWN_HEADERS = frozenset(
    {"host", "content-length", "content-type", "connection", "transfer-encoding", "accept-encoding"}
)
_LISTS = frozenset({KeyKind.LIST, KeyKind.PLACES})
_PLACE = r"~?/+[^/]"


@frozen
class Key:
    """One key. ``minimum`` bounds numbers; ``choices`` lists all that is valid, if it is a list.

    ``shared``: a trusted project may say it too; ``added``: it then adds to the user's list, and
    takes nothing of theirs away. What a project may never set, trusted or not: where keys are
    sent, what code is loaded, how the user likes the screen.
    """

    kind: KeyKind
    help: str
    default: object = None
    choices: tuple[str, ...] = ()
    minimum: float = 0
    shared: bool = False
    added: bool = False

    def check(self, value: object) -> str:
        """Why ``value`` is not valid: "expected ..."; empty when it is."""
        if not self._has_type(value):
            return f"expected {self.expected}, not {shown(value)}"
        if self.choices and value not in self.choices:
            return f"expected {self.expected}, not {shown(value)}"
        if isinstance(value, (int, float)) and not self.minimum <= value < float("inf"):
            return f"expected {self.expected}, not {shown(value)}"
        return ""

    @property
    def expected(self) -> str:
        """What is valid, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind in {KeyKind.WHOLE, KeyKind.NUMBER}:
            return f"{self.kind} of at least {self.minimum:g}"
        return str(self.kind)

    def _has_type(self, value: object) -> bool:
        match value:
            case bool():
                return self.kind is KeyKind.FLAG
            case int() | float():
                is_whole = isinstance(value, int) and self.kind is KeyKind.WHOLE
                return is_whole or self.kind is KeyKind.NUMBER
            case list() if self.kind in _LISTS:
                is_places = self.kind is KeyKind.PLACES
                return all(
                    isinstance(item, str) and (re.match(_PLACE, item) or not is_places)
                    for item in value
                )
            case str() if self.kind is KeyKind.URL:
                return value.startswith(("http://", "https://"))
            case dict() if self.kind in _TABLES:
                is_header = self.kind is KeyKind.HEADERS
                return all(_is_entry(*each, is_header=is_header) for each in value.items())
        return self.kind is KeyKind.TEXT and isinstance(value, str)

    def parse(self, text: str) -> object:
        """``text`` of the command line as a value of this key; raises ``ValueError``."""
        value = self._parsed(text.strip())
        problem = self.check(value)
        if problem:
            raise ValueError(problem)
        return value

    def _parsed(self, text: str) -> object:
        """``text`` read as this kind; a text that cannot be read so stays one, to be refused."""
        try:
            match self.kind:
                case KeyKind.FLAG:
                    return {"true": True, "false": False}.get(text.lower(), text)
                case KeyKind.WHOLE:
                    return int(text)
                case KeyKind.NUMBER:
                    return float(text)
                case _ if self.kind in _TABLES or (self.kind in _LISTS and text.startswith("[")):
                    return json.loads(text)
                case KeyKind.LIST | KeyKind.PLACES:
                    return [item.strip() for item in re.split(_OUTER_COMMA, text) if item.strip()]
        except ValueError:
            pass
        return text


def _is_entry(name: str, value: object, *, is_header: bool) -> bool:
    if not isinstance(value, str) or not value.isprintable():
        return False
    usable = (
        re.fullmatch(_HEADER_NAME, name) and name.lower() not in _OWN_HEADERS and value.isascii()
    )
    return bool(name) and bool(usable or not is_header)


def shown(value: object) -> str:
    """A value that is not valid, for a message; of a table only the names."""
    if isinstance(value, dict):  # a value in it may be a key
        return f"one with {', '.join(map(str, value))}"[:80] if value else "an empty one"
    return json.dumps(value, default=str, ensure_ascii=False)[:80]


# --- keys that hold for a name ----------------------------------------------------------------

WAIT_KEYS: Mapping[str, Key] = {
    "first_token_timeout_s": Key(
        KeyKind.NUMBER, "Longest wait for the first word of a reply, in seconds", minimum=1
    ),
    "idle_timeout_s": Key(KeyKind.NUMBER, "Longest silence within a reply, in seconds", minimum=1),
    "max_attempts": Key(KeyKind.WHOLE, "How often one reply is asked for", minimum=1),
}
"""What a provider, or one model, may be waited for (STR-3)."""

TOOL_PROTOCOL = Key(
    KeyKind.TEXT,
    "How models call tools: as the API has it, in their text, or either",
    choices=("auto", "native", "text"),
)

PROVIDER_KEYS: Mapping[str, Key] = {
    "kind": Key(KeyKind.TEXT, "The wire protocol: anthropic, openai or openai-responses"),
    "api": Key(
        KeyKind.TEXT,
        "Which API of a server that speaks like OpenAI's",
        choices=("chat", "responses"),
    ),
    "base_url": Key(KeyKind.URL, "Where the server is"),
    "api_key_env": Key(KeyKind.TEXT, "Name of the environment variable that holds the key"),
    "api_key_command": Key(
        KeyKind.TEXT, "Command that prints the key; asked again when the key is refused"
    ),
    "auth": Key(
        KeyKind.TEXT,
        "How the key is sent; by default as the API has it",
        choices=("bearer", "x-api-key", "none"),
    ),
    "headers": Key(
        KeyKind.HEADERS, "More headers of every request; ${NAME} is a variable of the environment"
    ),
    "query": Key(
        KeyKind.TEXTS, "What is added to every address, as ?NAME=VALUE; ${NAME} as in headers"
    ),
    "stream": Key(KeyKind.FLAG, "Take replies as they are written, or whole", default=True),
    "tool_protocol": TOOL_PROTOCOL,
    **WAIT_KEYS,
}

MODEL_KEYS: Mapping[str, Key] = {
    "context_tokens": Key(KeyKind.WHOLE, "Size of the context window, in tokens", minimum=1),
    "max_output_tokens": Key(KeyKind.WHOLE, "Longest reply, in tokens", minimum=1),
    "input_price": Key(KeyKind.NUMBER, "USD per million input tokens"),
    "output_price": Key(KeyKind.NUMBER, "USD per million output tokens"),
    "cache_read_price": Key(KeyKind.NUMBER, "USD per million tokens read from the cache"),
    "cache_write_price": Key(KeyKind.NUMBER, "USD per million tokens written to the cache"),
    "tool_protocol": TOOL_PROTOCOL,
    **WAIT_KEYS,
}
