"""Completion in the prompt: ``/command`` at its start, ``@path`` anywhere.

Law: the event loop never waits for a disk or for git; completing runs none of the repository's
code (see ``file_index``); what is offered reads, once it stands there, as the path it names (see
``mentions``).
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from agentcli.app.mentions import START, escaped, find_mentions, unescaped, written
from agentcli.repl.file_index import FileIndex, make
from agentcli.repl.fuzzy import PathList
from agentcli.ui.sanitize import reveal

MAX_SHOWN = 50
MAX_ENTRIES = 10_000

_AT_PATH = re.compile(rf'{START}@("(?:[^"\\]|\\.)*|(?:\\ |[^\s"])*)$')
_COMMAND = re.compile(r"^/([a-z0-9:-]*)$")
_ELSEWHERE = ("/", "~", "./", "../")


class ChatCompleter(Completer):
    """Chooses between commands and paths."""

    def __init__(self, commands: Callable[[], Mapping[str, str]], cwd: Path) -> None:
        self._commands = commands
        self._cwd = cwd
        self._index = FileIndex(cwd)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Completions of what stands before the cursor, made from a new index."""
        del complete_event
        yield from self._command_completions(document)
        if (typed := _typed_path(document)) is not None:
            path = _plain(typed)
            found = listed(self._cwd, path) if path.startswith(_ELSEWHERE) else None
            if found is None:
                found = make(self._cwd, threading.Event()).search(path, MAX_SHOWN)
            yield from (_completion(each, typed) for each in found)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The same without blocking the loop, from an index that is kept."""
        del complete_event
        typed = _typed_path(document)
        if typed is None:
            self._index.warm()
            for completion in self._command_completions(document):
                yield completion
            return
        path = _plain(typed)
        if path.startswith(_ELSEWHERE):
            found = await asyncio.to_thread(listed, self._cwd, path)
        else:
            found = await self._index.search(path, MAX_SHOWN)
        for each in found:
            yield _completion(each, typed)

    def used(self, text: str) -> None:
        """``text`` was sent: what it names is offered first from now on."""
        for readings in islice(find_mentions(text), MAX_SHOWN):
            self._index.use(readings[0].path.removeprefix("./"))

    def close(self) -> None:
        """End what runs in the background."""
        self._index.close()

    def _command_completions(self, document: Document) -> Iterable[Completion]:
        found = _COMMAND.match(document.text_before_cursor)
        if found is None:
            return
        for name, help_text in self._commands().items():
            if name.startswith(found[1]):
                yield Completion(f"/{name}", -len(found[1]) - 1, display_meta=help_text)


def listed(cwd: Path, typed: str) -> list[str]:
    """Entries of the directory that ``typed`` names by a path of its own, best first."""
    above, slash, name = typed.rpartition("/")
    if not slash:
        return [f"{typed}/"]
    try:
        directory = cwd / Path(f"{above}/").expanduser()
        with os.scandir(directory) as entries:
            names = [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, MAX_ENTRIES)
                if entry.name.isprintable()
            ]
    except (OSError, RuntimeError, ValueError):
        return []
    return [f"{above}/{entry}" for entry in PathList(names).search(name, MAX_SHOWN)]


def _typed_path(document: Document) -> str | None:
    """What stands between the ``@`` and the cursor; ``None`` where no path is being typed."""
    found = _AT_PATH.search(document.current_line_before_cursor)
    return found[1] if found else None


def _plain(typed: str) -> str:
    """The path in what was typed."""
    return unescaped(typed[1:]) if typed.startswith('"') else typed.replace("\\ ", " ")


def _completion(path: str, typed: str) -> Completion:
    text = written(path)
    if path.endswith("/") and (text != path or typed.startswith('"')):
        text = f'"{escaped(path)}'  # the quote stays open: more may follow
    elif typed.startswith('"'):
        text = f'"{escaped(path)}"'
    return Completion(text, -len(typed), display=reveal(path))
