"""Servers as the files of other agents name them: Claude Code, Cursor, Codex, Gemini, opencode.

Law: reading is bounded and starts nothing; what cannot be used is one line.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentcli.domain.clean import as_object, read_json
from agentcli.domain.errors import UsageError
from agentcli.domain.files import open_regular
from agentcli.domain.values import frozen
from agentcli.mcp.servers import (
    AnyEnvironment,
    ServerPlace,
    ServerScope,
    servers_in,
    table_of,
    usable_name,
)

_MAX_FILE_BYTES = 20_000_000


@frozen
class ImportedServers:
    """What another agent's file names: scope, name, entry, and the line that shows it."""

    entries: tuple[tuple[str, str, Mapping[str, Any], str], ...] = ()
    notices: tuple[str, ...] = ()


def servers_of_file(path: Path, root: Path) -> ImportedServers:
    """The servers that ``path`` names, in whichever agent's form.

    Of ``~/.claude.json`` those for the project at ``root``, too. Raises ``UsageError``.
    """
    document = _document(path)
    tables = [("user", table_of(document))]
    projects = document.get("projects") if isinstance(document, dict) else None
    mine = as_object(as_object(projects).get(str(root))).get("mcpServers")
    if isinstance(mine, dict):
        tables = [("user", as_object(document.get("mcpServers"))), ("local", mine)]
    if not any(table for _, table in tables):
        raise UsageError(f"{path} names no MCP servers", 'it should have {"mcpServers": {…}}')
    entries: list[tuple[str, str, Mapping[str, Any], str]] = []
    lines: list[str] = []
    for scope, table in tables:
        place = ServerPlace(ServerScope(scope), str(path), AnyEnvironment())
        for name, entry in (table or {}).items():
            called = usable_name(str(name))
            servers, problems = servers_in({"mcpServers": {called: entry}}, place)
            entries += [(scope, called, entry, each.shown) for each in servers]
            lines += problems
    return ImportedServers(tuple(entries), tuple(lines))


def _document(path: Path) -> Any:
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise UsageError(f"{path} has more than {_MAX_FILE_BYTES} bytes", "give another file")
        if path.suffix == ".toml":
            import tomllib

            return tomllib.loads(data.decode())
        return read_json(data.removeprefix(BOM_UTF8))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "give another file") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is neither JSON nor TOML", "give another file") from error
