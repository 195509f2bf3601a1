"""A connection to an editor, and the sessions that it has open (ACP-1, ACP-2).

Laws: a session is opened by its whole id and nothing else, in the directory that the client names;
one that has ended, or whose client has gone, can be taken up again; an error is one line that says
what is wrong. https://agentclientprotocol.com/protocol/v1/schema

A client that writes the protocol's version as text (acplint 0.1 is one) names a prompt's blocks
and the kinds of updates otherwise, too, and knows other options: it is answered in its own words.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agentcli import __version__
from agentcli.acp.content import Json, bad_params
from agentcli.acp.session import (
    AUTH_REQUIRED,
    Asking,
    ClientApprover,
    ClientAsker,
    ClientFiles,
    EditorSession,
    rpc_error,
)
from agentcli.acp.updates import SessionUpdates, iso_time
from agentcli.app.library import SessionLibrary
from agentcli.domain.cancel import uninterruptible
from agentcli.domain.clean import as_object, reveal
from agentcli.domain.errors import AgentError
from agentcli.domain.session import AFTER_ALL, SessionInfo, SessionStatus
from agentcli.domain.values import frozen
from agentcli.rpc.connection import Connection, IncomingRequest
from agentcli.rpc.messages import INVALID_REQUEST, METHOD_NOT_FOUND, RpcError

VERSION = 1
RESOURCE_NOT_FOUND = -32002
PAGE = 100
MAX_OPEN = 64
KEY_METHOD = "api-key"
_CANCEL_REQUEST = "$/cancel_request"


@frozen
class AskedSession:
    """Where a session is to work, ``more`` directories of it, and the client's MCP servers."""

    cwd: Path
    more: tuple[Path, ...] = ()
    servers: tuple[Json, ...] = ()

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> AskedSession:
        """What a request asks for; raises ``RpcError``."""
        cwd, *more = _directories(params)
        given = params.get("mcpServers") or []
        if not isinstance(given, list) or not all(_has_name(each) for each in given):
            raise bad_params("mcpServers: give a list of servers, each with a name")
        return cls(cwd, tuple(more), tuple(given))


@frozen
class EditorHost:
    """What the program gives: ``library`` reads the settings of a directory, and blocks.

    With it come lines for the user. ``redact`` takes keys out of what is sent. ``is_ready``: some
    provider can be used.
    """

    library: Callable[[AskedSession], tuple[SessionLibrary, Sequence[str]]]
    is_ready: Callable[[], bool]
    redact: Callable[[str], str]


class EditorAgent:
    """Serves one client; a ``Handler`` of ``rpc``. ``connection`` is set before it runs."""

    connection: Connection

    def __init__(self, host: EditorHost) -> None:
        self._host = host
        self._sessions: dict[str, EditorSession] = {}
        self._asked: dict[str, AskedSession] = {}
        self._one_at_a_time = asyncio.Lock()
        self._client: Mapping[str, Any] | None = None
        self._writes_versions = False
        self._methods: dict[str, Callable[[IncomingRequest], Awaitable[Json]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
            "session/prompt": self._prompt,
        }

    async def answer(self, request: IncomingRequest) -> Json:
        """The result of a request; raises ``RpcError``."""
        serve = self._methods.get(request.method)
        if serve is None:
            known = f"there is no method {request.method[:100]}"
            raise RpcError(METHOD_NOT_FOUND, known)
        if self._client is None and request.method != "initialize":
            raise RpcError(INVALID_REQUEST, "initialize comes first")
        try:
            return await serve(request)
        except AgentError as error:
            raise rpc_error(error) from error

    def notice(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification. The requests before it have to begin first."""
        loop = asyncio.get_running_loop()
        if method == "session/cancel":
            session_id = params.get("sessionId")
            if isinstance(session_id, str):
                loop.call_soon(self._cancel, session_id)
        elif method == _CANCEL_REQUEST:
            request = params.get("requestId")
            if isinstance(request, str) or type(request) is int:
                loop.call_soon(self._cancel_request, request)

    def _cancel(self, session_id: str) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            session.cancel()

    def _cancel_request(self, request: int | str) -> None:
        """A prompt is answered as ``session/cancel`` would have it, another request is dropped."""
        if not any(session.cancel(request) for session in self._sessions.values()):
            self.connection.cancel(request)

    def leave(self) -> None:
        """The client has gone: nothing is done for it any more."""
        for session in self._sessions.values():
            session.cancel()

    async def aclose(self) -> None:
        """Close every session, whatever becomes of another."""
        sessions, self._sessions = tuple(self._sessions.values()), {}
        await asyncio.gather(*(each.aclose() for each in sessions), return_exceptions=True)

    # --- the connection --------------------------------------------------------------------------

    async def _initialize(self, request: IncomingRequest) -> Json:
        params = request.params
        version = params.get("protocolVersion")
        self._writes_versions = isinstance(version, str)
        offered = params.get("clientCapabilities")
        self._client = as_object(offered)
        methods: list[Json] = [
            {
                "id": KEY_METHOD,
                "name": "API key",
                "description": "A key in the environment, or stored with: agent auth login",
            }
        ]
        if self._offers("auth", "terminal"):
            methods.append(
                {
                    "id": "login",
                    "type": "terminal",
                    "name": "Store an API key",
                    "description": "Asks for the key of a provider and keeps it",
                    "args": ["--login"],
                }
            )
        return {
            "protocolVersion": str(VERSION) if self._writes_versions else VERSION,
            "agentInfo": {"name": "agentcli", "title": "agentcli", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": True},
                "sessionCapabilities": {
                    "additionalDirectories": {},
                    "close": {},
                    "delete": {},
                    "list": {},
                    "resume": {},
                },
            },
            "authMethods": methods,
        }

    async def _authenticate(self, request: IncomingRequest) -> Json:
        method = _text(request.params, "methodId")
        if method != KEY_METHOD:
            raise bad_params(f"methodId: {method!r} is none of: {KEY_METHOD}")
        if not await asyncio.to_thread(self._host.is_ready):
            advice = "run agent auth login in a terminal, or set a key in the environment"
            raise RpcError(AUTH_REQUIRED, f"there is no key of a provider - {advice}")
        return {}

    def _offers(self, *path: str) -> bool:
        """Whether the client has offered it: a flag that is true, or an object that is there."""
        found: Any = self._client
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found is True or isinstance(found, dict)

    # --- sessions --------------------------------------------------------------------------------

    async def _new(self, request: IncomingRequest) -> Json:
        asked = AskedSession.read(request.params)
        async with self._one_at_a_time:
            opened = await self._open(asked)
        self.connection.after(request.id, opened.updates.commands)
        return {"sessionId": opened.session.id, **self._state(opened)}

    async def _load(self, request: IncomingRequest) -> Json:
        opened = await self._take_up(request)
        await opened.updates.replay()
        opened.updates.commands()
        return self._state(opened)

    async def _resume(self, request: IncomingRequest) -> Json:
        opened = await self._take_up(request)
        self.connection.after(request.id, opened.updates.commands)
        return self._state(opened)

    def _state(self, opened: EditorSession) -> Json:
        options = {} if self._writes_versions else {"configOptions": opened.options()}
        return {"modes": opened.modes(), **options}

    async def _take_up(self, request: IncomingRequest) -> EditorSession:
        """The session of the request: open already, or opened now."""
        session_id = _text(request.params, "sessionId")
        async with self._one_at_a_time:
            asked = AskedSession.read(request.params)
            live = self._sessions.get(session_id)
            if live is not None:
                is_new = not await asyncio.to_thread(live.session.file.exists)
                if is_new or asked == self._asked[session_id]:
                    return live
                await self._end(session_id)
            return await self._open(asked, session_id)

    async def _open(self, asked: AskedSession, session_id: str | None = None) -> EditorSession:
        library, notices = await asyncio.to_thread(self._host.library, asked)
        if session_id is not None and not await asyncio.to_thread(library.has, session_id):
            raise _no_session(session_id)
        if len(self._sessions) >= MAX_OPEN:
            raise RpcError(
                INVALID_REQUEST, f"{MAX_OPEN} sessions are open - close one of them first"
            )
        asking = Asking(asked.cwd, self.connection.request, library.allow_always)
        asker = ClientAsker(asking) if self._offers("elicitation", "form") else None
        files = ClientFiles(asking) if self._offers("fs", "readTextFile") else None
        user = (ClientApprover(asking), asker, asker, files)
        session = await library.open_for(session_id, *user)
        asking.session_id = session.id
        asking.interrupt = session.interrupt
        asking.notify = session.notify
        asking.tell = send = partial(self._tell, session.id)
        terminals = self._offers("_meta", "terminal_output")
        lines = (*notices, *session.notices)
        redact = self._host.redact
        updates = SessionUpdates(session, send, lines, has_terminals=terminals, redact=redact)
        models = [info for info, ready in library.known_models() if ready]
        opened = EditorSession(session, updates, send, models)
        self._sessions[session.id], self._asked[session.id] = opened, asked
        return opened

    def _tell(self, session_id: str, update: Json) -> None:
        if self._writes_versions:
            update = {**update, "sessionUpdate": _in_camel_case(update["sessionUpdate"])}
        self.connection.post("session/update", {"sessionId": session_id, "update": update})

    async def _list(self, request: IncomingRequest) -> Json:
        params = request.params
        wanted = params.get("cwd")
        if wanted is not None:
            wanted = str(_absolute("cwd", wanted))
        last = _position(params.get("cursor"))
        library, _ = await asyncio.to_thread(self._host.library, AskedSession(Path("/")))
        places = () if wanted is None else (wanted,)
        found: list[SessionInfo] = []
        while len(found) <= PAGE:
            infos = await library.newest(PAGE + 1, places, last)
            found += [
                info
                for info in infos
                if info.status is not SessionStatus.DAMAGED and info.cwd.startswith("/")
            ]
            if len(infos) <= PAGE:
                break
            last = _order(infos[-1])
        result: Json = {"sessions": [_row(info) for info in found[:PAGE]]}
        if len(found) > PAGE:
            at, session_id = _order(found[PAGE - 1])
            cursor = f"{at!r} {session_id}".encode()
            result["nextCursor"] = base64.urlsafe_b64encode(cursor).decode()
        return result

    async def _close(self, request: IncomingRequest) -> Json:
        session_id = _text(request.params, "sessionId")
        async with self._one_at_a_time:
            if session_id not in self._sessions:
                raise _no_session(session_id)
            await self._end(session_id)
        return {}

    async def _delete(self, request: IncomingRequest) -> Json:
        """One that does not exist is deleted already."""
        session_id = _text(request.params, "sessionId")
        async with self._one_at_a_time:
            if session_id in self._sessions:
                await self._end(session_id)
            library, _ = await asyncio.to_thread(self._host.library, AskedSession(Path("/")))
            if await asyncio.to_thread(library.has, session_id):
                await library.delete(session_id)
        return {}

    async def _end(self, session_id: str) -> None:
        """Close it, also when the request that asks for it is given up."""
        del self._asked[session_id]
        await uninterruptible(self._sessions.pop(session_id).aclose())

    # --- what is done in one ---------------------------------------------------------------------

    def _session(self, request: IncomingRequest) -> EditorSession:
        session_id = _text(request.params, "sessionId")
        session = self._sessions.get(session_id)
        if session is None:
            raise _no_session(session_id)
        return session

    async def _set_mode(self, request: IncomingRequest) -> Json:
        self._session(request).set_mode(_text(request.params, "modeId"))
        return {}

    async def _set_option(self, request: IncomingRequest) -> Json:
        params = request.params
        return await self._session(request).set_option(
            _text(params, "configId"), params.get("value")
        )

    async def _prompt(self, request: IncomingRequest) -> Json:
        name = "content" if self._writes_versions else "prompt"
        return await self._session(request).prompt(request.id, request.params.get(name))


# --- parameters ----------------------------------------------------------------------------------


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise bad_params(f"{name}: give a text")
    return value


def _absolute(name: str, value: object) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise bad_params(f"{name}: give an absolute path")
    return Path(value)


def _directories(params: Mapping[str, Any]) -> list[Path]:
    """Where the session works, and then what else belongs to its workspace."""
    more = params.get("additionalDirectories") or []
    if not isinstance(more, list):
        raise bad_params("additionalDirectories: give a list of absolute paths")
    paths = [
        _absolute("cwd", params.get("cwd")),
        *(_absolute("additionalDirectories", each) for each in more),
    ]
    for path in paths:
        try:
            is_there = path.is_dir()
        except (OSError, ValueError):
            is_there = False
        if not is_there:
            raise bad_params(f"{path}: there is no such directory")
    return paths


def _has_name(server: object) -> bool:
    return isinstance(server, dict) and bool(server.get("name"))


def _in_camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _no_session(session_id: str) -> RpcError:
    return RpcError(RESOURCE_NOT_FOUND, f"there is no session {session_id[:64]!r}")


def _order(info: SessionInfo) -> tuple[float, str]:
    return info.updated_at, info.id


def _row(info: SessionInfo) -> Json:
    row: Json = {"sessionId": info.id, "cwd": info.cwd, "updatedAt": iso_time(info.updated_at)}
    return {**row, "title": reveal(info.title)} if info.title else row


def _position(cursor: object) -> tuple[float, str]:
    """Where the next page begins; raises ``RpcError``."""
    if cursor is None:
        return AFTER_ALL
    try:
        at, _, session_id = base64.urlsafe_b64decode(str(cursor)).decode().partition(" ")
        return float(at), session_id
    except (binascii.Error, ValueError):
        raise bad_params("cursor: it is none of ours; begin without one") from None
