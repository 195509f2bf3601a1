"""Which sessions and prompts had to do with a file: the graph of work (MEM-3).

Law: the tool calls in the session files are the truth; the catalogue says where to look. A path in
a call means what it meant in the directory of its session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.listing import print_json, print_table, session_files, wait
from agentcli.cli.redacting import know_secrets, shown
from agentcli.domain.errors import StoreError
from agentcli.domain.messages import AssistantMessage, ToolCall, UserMessage
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen
from agentcli.headless.streams import write_error_line
from agentcli.ui.export import iso_time

if TYPE_CHECKING:
    from agentcli.domain.session import LoadedSession
    from agentcli.store.files import SessionFiles

MOST_SESSIONS = 1_000
DEFAULT_ROWS = 50
_MAX_PATH = 4_096
_MAX_TEXT = 200_000
_PROMPT = 80
_TOKEN = LazyPattern(r"[^\s'\"<>|;&()=]+")
_LONG = frozenset({"command", "patch"})


@frozen
class Touch:
    """A tool call that named the file, and the prompt that it worked for."""

    session_id: str
    seq: int
    at: float
    tool: str
    prompt: str
    title: str


def print_touches(file: str, limit: int | None, *, as_json: bool) -> int:
    """Who has touched ``file``, the newest first; 1 when nobody has."""
    files = session_files()
    path = Path(file).expanduser()
    real = os.path.realpath(path)
    wait(files.refresh_index())
    found = sorted(_touches(files, real), key=lambda touch: (-touch.at, touch.session_id))
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
                    "prompt": shown(row.prompt),
                    "title": shown(row.title),
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
                    shown(row.prompt)[:_PROMPT] or "-",
                )
                for row in rows
            ],
        )
        if len(found) > len(rows):
            write_error_line(f"{len(found) - len(rows):,} more - show them with: --limit N")
    else:
        write_error_line(f"no session has touched {path.name} - paths count as you would type them")
    return 0 if rows else 1


def _touches(files: SessionFiles, real: str) -> Iterator[Touch]:
    from agentcli.store.files import read_session

    name = os.path.basename(real)  # noqa: PTH119 - a text, as in the calls
    for hit in wait(files.search_sessions(name, MOST_SESSIONS)):
        try:
            loaded = read_session(files.path_of(hit.session_id), hidden=True)
        except StoreError:
            write_error_line(f"warning: session {hit.session_id} cannot be read")
            continue
        yield from _in_session(loaded, real)


def _in_session(loaded: LoadedSession, real: str) -> Iterator[Touch]:
    cwd = str(loaded.info.cwd or "/")
    prompt = ""
    for stored in loaded.messages:
        message = stored.message
        if isinstance(message, UserMessage):
            prompt = " ".join(message.text.split()) or prompt
        elif isinstance(message, AssistantMessage):
            for call in message.tool_calls:
                if _names(call, real, cwd):
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
