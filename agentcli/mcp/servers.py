"""A configured server as a value, and how one is read from what people write (MCP-1, MCP-3).

Every agent spells its servers a little differently, and all of it is taken here: ``.mcp.json`` and
``~/.claude.json``, ``mcp.json`` of Cursor and VS Code, what Gemini, Codex and opencode have
(https://code.claude.com/docs/en/mcp, https://cursor.com/docs/mcp). Laws: reading runs and
opens nothing; what cannot be used is one line that names the entry and holds no value of it, and
takes no other entry along; the mark stands for what the user was shown, before variables are
filled in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.secrecy import is_secret, keys_within, secrets_in
from agentcli.domain.values import frozen

MAX_SERVERS = 100
_MAX_TEXTS = 1_000
_MAX_CHARS = 100_000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?")
_BAD_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_MAX_PORT = 65_535
_MAX_TIMEOUT_S = 86_400.0
# where the servers stand in a file: Claude Code and most others; VS Code, opencode, Codex
_TABLES = ("mcpServers", "servers", "mcp", "mcp_servers")
_TOKEN = re.compile(r"(?=.*[0-9])[A-Za-z0-9_.~+-]{12,}")
_HIDDEN = "•••"


class Transport(StrEnum):
    """How a server is spoken to."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


_KINDS = {
    "stdio": Transport.STDIO,
    "local": Transport.STDIO,
    "http": Transport.HTTP,
    "streamablehttp": Transport.HTTP,
    "remote": Transport.HTTP,
    "sse": Transport.SSE,
}


class ServerScope(StrEnum):
    """Who has configured a server; the text is how users are told of it."""

    USER = "user"
    LOCAL = "local"
    PROJECT = "project"
    PLUGIN = "plugin"
    OPTION = "--mcp-config"
    CLIENT = "editor"


@frozen
class OAuthClient:
    """What a server's login is told in advance; a secret is the name of its variable only.

    ``metadata_url`` is a document of ours that others can read; ``is_program``: no user logs in.
    """

    client_id: str = ""
    secret_variable: str = ""
    callback_port: int = 0
    scopes: tuple[str, ...] = ()
    metadata_url: str = ""
    is_program: bool = False


Pairs = tuple[tuple[str, str], ...]


@frozen
class McpServer:
    """A server as it is to be started or called; variables are filled in.

    ``source`` is the file or plugin that names it. ``mark`` changes with everything that decides
    what runs and who is called. ``headers_command`` prints more headers as a JSON object, or lines
    ``Name: value``; it does not see the variables ``withheld``. Times are in seconds; 0 means the
    default. ``pinned``: its tools are offered by
    their own names (MCP-4). ``enabled_tools`` is ``None`` where all are.
    """

    name: str
    scope: ServerScope
    source: str
    transport: Transport
    mark: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Pairs = field(default=(), repr=False)
    cwd: str = ""
    url: str = ""
    headers: Pairs = field(default=(), repr=False)
    headers_command: str = ""
    timeout_s: float = 0.0
    startup_timeout_s: float = 0.0
    pinned: bool = False
    enabled: bool = True
    enabled_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    sandboxed: bool = False
    oauth: OAuthClient = OAuthClient()
    shown: str = ""
    withheld: frozenset[str] = frozenset()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may see of its environment, headers, arguments and address (SEC-9)."""
        found = [text for each in (*self.env, *self.headers) for text in secrets_in(*each)]
        options = zip(("", *self.args), self.args, strict=False)
        # "--api-key KEY" is as "--api-key=KEY", and "--header" says nothing of what is in it
        lines = [f"{before}={each}" for before, each in options if before.startswith("--")]
        for line in (*self.args, *lines, self.url):
            found += keys_within(line)
        found += filter(_is_token, urlsplit(self.url).path.split("/"))
        return tuple(dict.fromkeys(found))

    @property
    def is_remote(self) -> bool:
        """Whether it is reached through HTTP."""
        return self.transport is not Transport.STDIO

    def offers(self, tool: str) -> bool:
        """Whether the user wants ``tool`` of this server."""
        is_named = self.enabled_tools is None or tool in self.enabled_tools
        return is_named and tool not in self.disabled_tools


@frozen
class ServerPlace:
    """Where entries come from. ``cwd``: where their programs start; ``variables`` come first.

    ``exported`` are variables that their programs get, too.
    ``withheld`` are variables that are never filled into an address or a header there, nor, where a
    repository has the entry, into anything: keys of providers go nowhere that it names (SEC-1).
    """

    scope: ServerScope
    source: str
    env: Mapping[str, str] = field(repr=False)
    cwd: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    exported: Pairs = ()
    withheld: frozenset[str] = frozenset()


class AnyEnvironment(dict[str, str]):
    """One in which every variable has a value: what it is counts when a server starts."""

    def get(self, name: str, default: str | None = None) -> str:  # type: ignore[override] # always a text
        """A text that names the variable."""
        return super().get(name) or default or f"${name}"


class UnusableEntry(ValueError):
    """An entry that is no server; the text says why and holds no value of it."""


def servers_in(document: object, place: ServerPlace) -> tuple[list[McpServer], list[str]]:
    """The servers of a parsed file, in its order, and a line for each entry that is none."""
    table = table_of(document)
    if table is None:
        return [], [f'{place.source}: it holds no servers: write {{"mcpServers": {{…}}}}']
    found: list[McpServer] = []
    lines: list[str] = []
    for number, (name, entry) in enumerate(table.items()):
        if number >= MAX_SERVERS:
            lines.append(f"{place.source}: only the first {MAX_SERVERS} servers are used")
            break
        try:
            found.append(read_server(name, entry, place))
        except UnusableEntry as why:
            lines.append(f"{place.source}: the server {_short(name)} is left out: {why}")
    return found, lines


def table_of(document: object) -> Mapping[str, Any] | None:
    """The entries by name; ``None`` when ``document`` is no file of servers."""
    if not isinstance(document, dict):
        return None
    for key in _TABLES:
        if isinstance(document.get(key), dict):
            inner: Mapping[str, Any] = document[key]
            return table_of(inner) if key == "mcp" and "servers" in inner else inner
    is_bare = all(isinstance(each, dict) for each in document.values())
    return document if is_bare else None


def usable_name(name: str) -> str:
    """``name`` in the characters that a server's name may have."""
    return re.sub(r"[^A-Za-z0-9_.-]+|[_.]{2,}", "-", name).strip("-._")[:64].strip("-._")


def called(name: str) -> str:
    """A server's or tool's ``name`` as it stands in the tool's whole name, which rules know."""
    return _BAD_IN_NAME.sub("_", name)


def read_server(name: str, entry: object, place: ServerPlace) -> McpServer:
    """The server that ``entry`` stands for. Raises ``UnusableEntry``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnusableEntry("a name has 1 to 64 letters, digits, _ . and - in it")
    if "__" in called(name):  # a rule for the tools of "a" is none for those of "a__b"
        raise UnusableEntry("a name has no two of _ and . side by side")
    if not isinstance(entry, dict):
        raise UnusableEntry("it is no table of settings")
    return _Entry(entry, place).server(name)


def hidden(entry: Mapping[str, Any]) -> dict[str, Any]:
    """``entry`` with the values of its environment and headers hidden where they are secrets."""
    return {key: _hidden(value) for key, value in entry.items()}


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each) for each in value]
    if isinstance(value, str):
        parts = re.split(r"([\s/?&=:,'\"]+)", value)
        return "".join(_HIDDEN if _is_token(part) else part for part in parts)
    return value


def _is_token(part: str) -> bool:
    return bool(_TOKEN.fullmatch(part)) and is_secret(part)


class _Entry:
    """One entry while it is read: keys in any spelling, each taken once."""

    def __init__(self, entry: Mapping[str, Any], place: ServerPlace) -> None:
        self._entry = {_plain(key): value for key, value in entry.items() if isinstance(key, str)}
        self._place = place
        self._missing: list[str] = []

    def server(self, name: str) -> McpServer:
        transport = self._transport()
        is_remote = transport is not Transport.STDIO
        program = ("", ()) if is_remote else self._program()
        url = self._url() if is_remote else ""
        headers = self._headers() if is_remote else ()
        server = McpServer(
            name=name,
            scope=self._place.scope,
            source=self._place.source,
            transport=transport,
            mark=self._mark(),
            command=self._filled(program[0]),
            args=tuple(map(self._filled, program[1])),
            env=() if is_remote else (*self._place.exported, *self._pairs("env", "environment")),
            cwd="" if is_remote else self._filled(self._text("cwd")) or self._place.cwd,
            url=url,
            headers=headers,
            headers_command=self._text("headershelper", "headerscommand") if is_remote else "",
            withheld=self._place.withheld,
            timeout_s=self._seconds("timeout", "tooltimeout"),
            startup_timeout_s=self._seconds("startuptimeout"),
            pinned=self._flag("alwaysload", "pin", "pinned"),
            enabled=self._flag("enabled", default=True) and not self._flag("disabled"),
            enabled_tools=self._names("enabledtools", "includetools"),
            disabled_tools=self._names("disabledtools", "excludetools") or (),
            sandboxed=self._flag("sandbox", "sandboxed"),
            oauth=self._oauth() if is_remote else OAuthClient(),
            shown=self._shown(program, is_remote=is_remote),
        )
        if self._missing:
            names = ", ".join(f"${{{each}}}" for each in dict.fromkeys(self._missing))
            raise UnusableEntry(f"{names} is not set: set it, or write ${{NAME:-default}}")
        return server

    def _transport(self) -> Transport:
        """A ``url`` without a type is HTTP, as most agents have it."""
        kind = self._text("type", "transport")
        has_url = any(self._get(*_URLS))
        has_command = bool(self._get("command"))
        if kind:
            known = _KINDS.get(_plain(kind))
            if known is None:
                raise UnusableEntry("its type is none of stdio, http and sse")
            if known is Transport.STDIO and not has_command:
                raise UnusableEntry("it has no command")
            if known is not Transport.STDIO and not has_url:
                raise UnusableEntry("it has no url")
            return known
        if has_url and has_command:
            raise UnusableEntry("it has a command and a url: give one, or a type")
        if not has_url and not has_command:
            raise UnusableEntry("it has neither a command nor a url")
        return Transport.HTTP if has_url else Transport.STDIO

    def _program(self) -> tuple[str, tuple[str, ...]]:
        given = self._get("command")[0]
        words = given if isinstance(given, list) else [given]
        rest = (self._get("args", "arguments") or [[]])[0]
        words = [*words, *rest] if isinstance(rest, list) else [None]
        if not all(isinstance(each, str) for each in words) or len(words) > _MAX_TEXTS:
            raise UnusableEntry("its command and args are not texts")
        if not words[0].strip() or any("\0" in each or len(each) > _MAX_CHARS for each in words):
            raise UnusableEntry("its command cannot be run")
        return words[0], tuple(words[1:])

    def _url(self) -> str:
        given = self._get(*_URLS)[0]
        if not isinstance(given, str):
            raise UnusableEntry("its url is no text")
        url = self._filled(given, is_sent=True).strip()
        if self._missing:
            return ""
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
            is_usable = is_usable and (parts.port is None or parts.port > 0)
        except ValueError:
            is_usable = False
        if not is_usable or not url.isprintable() or " " in url:
            raise UnusableEntry("its url is no http:// or https:// address")
        if "@" in parts.netloc:
            raise UnusableEntry("its url holds a user name or password: use headers")
        return url.partition("#")[0]

    def _headers(self) -> Pairs:
        headers = self._pairs("headers", "httpheaders", "requestheaders", is_sent=True)
        variable = self._text("bearertokenenvvar")
        if variable:
            token = self._filled(f"${{{variable}}}", is_sent=True)
            headers = (*headers, ("Authorization", f"Bearer {token}"))
        for name, value in headers:
            if not _HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
                raise UnusableEntry("a header of it is not NAME = a text of one line")
        return headers

    def _oauth(self) -> OAuthClient:
        given = self._get("oauth", "auth")
        if not given or not isinstance(given[0], dict):
            return OAuthClient()
        inner = _Entry(given[0], self._place)
        port = (inner._get("callbackport", "redirectport") or [0])[0]
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= _MAX_PORT:
            raise UnusableEntry("its oauth.callbackPort is no port")
        scopes = (inner._get("scopes", "scope") or [[]])[0]
        scopes = scopes.split() if isinstance(scopes, str) else scopes
        if not isinstance(scopes, list) or not all(isinstance(each, str) for each in scopes):
            raise UnusableEntry("its oauth.scopes are no list of texts")
        client = OAuthClient(
            inner._filled(inner._text("clientid"), is_sent=True),
            inner._sendable(inner._text("clientsecretenv", "clientsecretvariable")),
            port,
            tuple(scopes),
            inner._text("clientmetadataurl"),
            inner._text("granttype") == "client_credentials",
        )
        self._missing += inner._missing
        return client

    def _mark(self) -> str:
        """Stands for all in the entry, as written, that decides what runs and who is called."""
        said = {key: value for key, value in self._entry.items() if key not in _HARMLESS}
        text = json.dumps([said, self._place.cwd], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def _shown(self, program: tuple[str, tuple[str, ...]], *, is_remote: bool) -> str:
        if is_remote:
            return str(_hidden(self._get(*_URLS)[0]))
        import shlex

        return " ".join(_hidden(shlex.quote(word)) for word in (program[0], *program[1]))

    # --- fields ---------------------------------------------------------------------------

    def _get(self, *keys: str) -> list[Any]:
        """The values under any spelling that is there."""
        found = (self._entry.get(key) for key in keys)
        return [each for each in found if each is not None and each != ""]

    def _text(self, *keys: str) -> str:
        for value in self._get(*keys):
            if not isinstance(value, str) or "\0" in value or len(value) > _MAX_CHARS:
                raise UnusableEntry(f"its {keys[0]} is no text")
            return value
        return ""

    def _flag(self, *keys: str, default: bool = False) -> bool:
        for value in self._get(*keys):
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.lower() in {"true", "false"}:
                return value.lower() == "true"
            raise UnusableEntry(f"its {keys[0]} is neither true nor false")
        return default

    def _seconds(self, *keys: str) -> float:
        """Milliseconds, as Claude Code and Gemini have it; with ``_s`` or ``_sec``: seconds."""
        for key in keys:
            for ending, unit in (("", 0.001), ("ms", 0.001), ("s", 1.0), ("sec", 1.0)):
                value = self._entry.get(key + ending)
                if value is None:
                    continue
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if not is_number or not 0 < value * unit <= _MAX_TIMEOUT_S:
                    raise UnusableEntry(f"its {key} is no number of milliseconds up to a day")
                return float(value * unit)
        return 0.0

    def _names(self, *keys: str) -> tuple[str, ...] | None:
        for value in self._get(*keys):
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise UnusableEntry(f"its {keys[0]} is no list of names")
            return tuple(value)
        return None

    def _pairs(self, *keys: str, is_sent: bool = False) -> Pairs:
        found: dict[str, str] = {}
        for value in self._get(*keys):
            if not isinstance(value, dict) or len(value) > _MAX_TEXTS:
                raise UnusableEntry(f"its {keys[0]} is no table of texts")
            for name, given in value.items():
                text = str(given).lower() if isinstance(given, bool) else given
                text = str(text) if isinstance(text, int | float) else text
                if not isinstance(text, str) or not name or "\0" in f"{name}{text}" or "=" in name:
                    raise UnusableEntry(f"its {keys[0]} is no table of texts")
                found[name] = self._filled(text, is_sent=is_sent)
        return tuple(found.items())

    def _filled(self, text: str, *, is_sent: bool = False) -> str:
        """``text`` with its variables in place; one without a value is noted."""

        def value_of(found: re.Match[str]) -> str:
            name, default = found[1], found[2]
            if is_sent or self._place.scope is ServerScope.PROJECT:
                self._sendable(name)
            value = self._place.variables.get(name) or self._place.env.get(name) or default
            if value is None:
                self._missing.append(name)
            return value or ""

        return _VARIABLE.sub(value_of, text)

    def _sendable(self, name: str) -> str:
        """``name`` of a variable that may be given to whom the entry names (SEC-1)."""
        if name in self._place.withheld:
            raise UnusableEntry(
                f"${{{name}}} is a key of a model's provider, and stays here: "
                "give it to a server of your own (agent mcp add)"
            )
        return name


_URLS = ("url", "httpurl", "serverurl")
# what neither starts another program nor calls another address: no new question for it
_HARMLESS = frozenset(
    {"timeout", "timeouts", "timeoutms", "tooltimeout", "tooltimeouts", "tooltimeoutsec"}
    | {"startuptimeout", "startuptimeouts", "startuptimeoutms", "startuptimeoutsec", "description"}
    | {"alwaysload", "pin", "pinned", "enabled", "disabled", "enabledtools", "disabledtools"}
    | {"includetools", "excludetools"}
)


def _plain(key: str) -> str:
    """A key without what its spellings differ in: ``startup_timeout_s``, ``startupTimeoutS``."""
    return re.sub(r"[-_\s]", "", key).lower()


def _short(name: object) -> str:
    return json.dumps(str(name)[:64], ensure_ascii=False)
