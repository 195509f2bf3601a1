"""Which sessions and prompts had to do with a file: the graph of work (MEM-3).

Law: the tool calls and the snapshots of files in the session files are the truth; the catalogue
says where to look. A path in a call means what it meant in the directory of its session. A symbol
was changed by the calls after which its lines read otherwise, wherever they stand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.listing import print_json, print_table, session_files, wait
from agentcli.cli.redacting import exported, know_secrets
from agentcli.domain.errors import StoreError
from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.rewind import FileKind
from agentcli.domain.values import frozen
from agentcli.headless.streams import write_error_line
from agentcli.store.file import read_with
from agentcli.store.files import read_session
from agentcli.store.rewinds import changes_of
from agentcli.ui.export import iso_time

if TYPE_CHECKING:
    from agentcli.domain.rewind import FileChange, FileState
    from agentcli.domain.session import LoadedSession
    from agentcli.store.files import SessionFiles

MOST_SESSIONS = 1_000
DEFAULT_ROWS = 50
_MAX_PATH = 4_096
_MAX_TEXT = 200_000
_MAX_SOURCE = 1024 * 1024
_PROMPT = 80
_TOKEN = LazyPattern(r"[^\s'\"<>|;&()=]+")
_LONG = frozenset({"command", "patch"})


@frozen
class Touch:
    """A tool call that named the file or changed the symbol, and the prompt it worked for.

    None that was refused.
    """

    session_id: str
    seq: int
    at: float
    tool: str
    prompt: str
    title: str


def print_touches(wanted: Sequence[tuple[str, str]], limit: int | None, *, as_json: bool) -> int:
    """Who has touched each file, or changed its symbol, the newest first; 1 when nobody has."""
    files = session_files()
    wait(files.refresh_index())
    touches = {touch for file, symbol in wanted for touch in _touches(files, _real(file), symbol)}
    found = sorted(touches, key=lambda touch: (-touch.at, touch.session_id, touch.seq))
    rows = found[: DEFAULT_ROWS if limit is None else limit]
    know_secrets()
    if as_json:
        print_json(
            [
                {
                    "id": row.session_id,
                    "seq": row.seq,
                    "at": iso_time(row.at),
                    "tool": row.tool,
                    "prompt": exported(row.prompt),
                    "title": exported(row.title),
                }
                for row in rows
            ]
        )
    elif rows:
        print_table(
            ("ID", "MESSAGE", "TIME (UTC)", "TOOL", "PROMPT"),
            [
                (
                    row.session_id,
                    str(row.seq),
                    iso_time(row.at)[:16].replace("T", " "),
                    row.tool,
                    exported(row.prompt)[:_PROMPT] or "-",
                )
                for row in rows
            ],
        )
        if len(found) > len(rows):
            write_error_line(f"{len(found) - len(rows):,} more - show them with: --limit N")
    else:
        file, symbol = wanted[0]
        name = Path(file).name
        if symbol:
            told = f"no session has changed {symbol} in {name} - ask for the file alone"
        else:
            told = f"no session has touched {name} - paths count as you would type them"
        write_error_line(told)
    return 0 if rows else 1


def _real(file: str) -> str:
    return os.path.realpath(Path(file).expanduser())


def symbol_parts(symbol: str) -> tuple[str, str]:
    """What a symbol is inside of, if that is said, and its name."""
    container, _, name = symbol.replace("::", ".").replace("#", ".").rpartition(".")
    return container.rpartition(".")[2], name


def _touches(files: SessionFiles, real: str, symbol: str) -> Iterator[Touch]:
    name = os.path.basename(real)  # noqa: PTH119 - a text, as in the calls
    waiting = [hit.session_id for hit in wait(files.search_sessions(name, MOST_SESSIONS))]
    seen = set(waiting)
    while waiting:
        session_id = waiting.pop()
        path = files.path_of(session_id)
        try:
            loaded = read_session(path, hidden=True)
            if symbol:
                yield from _changed(loaded, read_with(path, changes_of, real), symbol)
        except StoreError:
            write_error_line(f"warning: session {session_id} cannot be read")
            continue
        if not symbol:
            yield from _in_session(loaded, real)
        parent = loaded.info.parent_id  # its file has what its sub-agents have changed
        if symbol and parent and parent not in seen and files.path_of(parent).exists():
            seen.add(parent)
            waiting.append(parent)


def _changed(
    loaded: LoadedSession, changes: Sequence[tuple[FileChange, str, float]], symbol: str
) -> Iterator[Touch]:
    """The changes of a file after which ``symbol`` reads otherwise: also its first and its last."""
    calls = {
        call.id: (stored.seq, call.name)
        for stored in loaded.messages
        if isinstance(stored.message, AssistantMessage)
        for call in stored.message.tool_calls
    }
    prompts = [
        (stored.seq, " ".join(stored.message.text.split()))
        for stored in loaded.messages
        if isinstance(stored.message, UserMessage)
    ]
    for change, call_id, at in changes:
        before, after = (_content(state) for state in (change.before, change.after))
        if before is None or after is None:
            continue
        if _source(change.path.name, before, symbol) != _source(change.path.name, after, symbol):
            seq, tool = calls.get(call_id, (change.seq, "task"))
            said = [text for number, text in prompts if number <= change.seq and text]
            title = loaded.info.title or ""
            yield Touch(loaded.info.id, seq, at, tool, said[-1] if said else "", title)


def _content(state: FileState | None) -> bytes | None:
    """What stood there, where that is known."""
    if state is None or state.kind not in {FileKind.FILE, FileKind.ABSENT}:
        return None
    return state.data if len(state.data) <= _MAX_SOURCE else None


@lru_cache(maxsize=64)
def _source(name: str, content: bytes, symbol: str) -> tuple[bytes, ...]:
    """The lines of what is called ``symbol``, wherever they stand."""
    from agentcli.codemap.parse import parse

    container, wanted = symbol_parts(symbol)
    if wanted.encode() not in content:
        return ()
    lines = content.splitlines()
    return tuple(
        b"\n".join(lines[each.line - 1 : each.end])
        for each in parse(name, content).definitions
        if each.name == wanted and container in {"", each.container}
    )


def _in_session(loaded: LoadedSession, real: str) -> Iterator[Touch]:
    cwd = str(loaded.info.cwd or "/")
    prompt = ""
    refused = {
        stored.message.call_id
        for stored in loaded.messages
        if isinstance(stored.message, ToolResult) and stored.message.status is ResultStatus.REFUSED
    }
    for stored in loaded.messages:
        message = stored.message
        if isinstance(message, UserMessage):
            prompt = " ".join(message.text.split()) or prompt
        elif isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if call.id not in refused and _names(call, real, cwd):
                    title = loaded.info.title or ""
                    place = (loaded.info.id, stored.seq, stored.created_at)
                    yield Touch(*place, call.name, prompt, title)


def _names(call: ToolCall, real: str, cwd: str) -> bool:
    """Whether any argument is the file, or a command or patch has it as a word."""
    for key, value in call.arguments.items():
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str):
                continue
            words = _TOKEN.findall(text[:_MAX_TEXT]) if key in _LONG else [text]
            if any(_means(word, real, cwd) for word in words):
                return True
    return False


@lru_cache(maxsize=4096)
def _means(word: str, real: str, cwd: str) -> bool:
    name = os.path.basename(real)  # noqa: PTH119 - a text
    if not word.endswith(name) or len(word) > _MAX_PATH or "\0" in word:
        return False
    full = os.path.join(cwd, os.path.expanduser(word))  # noqa: PTH111, PTH118 - as texts
    return os.path.realpath(full) == real
