"""``/export``: write the session to a file."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentcli.domain.accounts import CallCost, Ledger
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.files import directory_of, refuse_links
from agentcli.domain.session import LoadedSession
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line

FORMATS = ("md", "json", "html")
_LONGEST_STEM = 60


def parse(arguments: str) -> tuple[str, str]:
    """Format and file name; the file's ending decides where no format is given."""
    first, _, rest = arguments.partition(" ")
    if first in FORMATS:
        return first, rest.strip()
    ending = Path(arguments).suffix.lstrip(".").lower()
    if arguments and ending not in FORMATS:
        raise UsageError(f"cannot export as {arguments!r}", f"use one of: {', '.join(FORMATS)}")
    return (ending or "md"), arguments


def text_of(
    loaded: LoadedSession,
    wanted: str,
    redact: Callable[[Any], Any],
    costs: Mapping[str, CallCost] | None = None,
    ledger: Ledger | None = None,
) -> str:
    """The session in that format, without keys."""
    if wanted == "json":
        from agentcli.ui.export import export_json, json_pieces

        return "".join(json_pieces(export_json(loaded, costs), redact)) + "\n"
    if wanted == "html":
        from agentcli.ui.session_page import export_html

        return "".join(map(redact, export_html(loaded, ledger, costs)))
    from agentcli.ui.export import export_markdown

    return "".join(map(redact, export_markdown(loaded)))


def write(path: Path, text: str) -> None:
    """Create ``path``; raises ``UsageError`` when it exists."""
    try:
        place = refuse_links(path)
        with directory_of(place) as directory:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(place.name, flags, 0o600, dir_fd=directory)
    except FileExistsError:
        raise UsageError(f"{path} exists already", "name another file") from None
    except OSError as error:
        raise AgentError(f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        os.fchmod(descriptor, 0o600)  # the umask may have taken more away
        file.write(text)


def free_name(directory: Path, stem: str, ending: str) -> Path:
    """A name in ``directory`` that is not taken."""
    path = directory / f"{stem}.{ending}"
    number = 2
    while path.exists():
        path = directory / f"{stem}-{number}.{ending}"
        number += 1
    return path


def stem_of(title: str) -> str:
    """A file's name for a session's title: small words with dashes; empty when none is left."""
    words = re.findall(r"\w+", clean_line(title).casefold())
    return "-".join(words)[:_LONGEST_STEM].strip("-_")


def named(cwd: Path, name: str) -> Path:
    """The file that ``name`` means; ``~`` is a home directory. Raises ``UsageError``."""
    try:
        return cwd / Path(name).expanduser()
    except RuntimeError:
        message = f"cannot find the home directory in {name}"
        raise UsageError(message, "write the whole path") from None


async def _run(chat: Chat, arguments: str) -> None:
    wanted, name = parse(arguments)
    loaded = await chat.session.load()
    ledger = await chat.session.ledger()
    costs = await chat.user.call_costs(ledger)

    def work() -> Path:
        cwd = chat.user.cwd
        stem = stem_of(chat.session.title) or f"agentcli-{chat.session.id[-12:]}"
        path = named(cwd, name) if name else free_name(cwd, stem, wanted)
        write(path, text_of(loaded, wanted, chat.user.redact_data, costs, ledger))
        return path

    path = await asyncio.to_thread(work)
    chat.show([f"Written to {clean_line(str(path))}"])


COMMAND = SlashCommand("export", "write the session to a file", _run, "[md|json|html] [FILE]")
