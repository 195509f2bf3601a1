"""One live connection to one server: agree on an era, then ask it for what it has (MCP-1, MCP-2).

Laws: a request ends with an answer or an ``McpError`` that names the server and says what to do;
what the server asks of us is answered: roots are the workspace, questions go to the user as long
as a request of ours waits for it, and end with that; sampling is refused. The era is found out by
asking ``server/discover`` first; a server that answers it late is not taken
for an old one, and one that dies of it is asked again in the old way.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentcli import __version__
from agentcli.domain.cancel import in_own_thread, uninterruptible
from agentcli.domain.clean import as_object
from agentcli.domain.extensions.mcp import (
    LoginRequired,
    McpError,
    ServerPrompt,
    ServerResource,
    ServerTool,
)
from agentcli.domain.messages import ResultPart, UserPart
from agentcli.domain.tools import ToolOutput
from agentcli.domain.values import frozen
from agentcli.mcp.http import (
    TRANSPORT_FAILED,
    Authorizer,
    PlainHeaders,
    SessionLost,
    http_channel,
    sse_channel,
)
from agentcli.mcp.protocol import (
    MAX_LISTED,
    MAX_TOOLS,
    MODERN,
    UNSUPPORTED_VERSION,
    Agreement,
    ClientFacts,
    HeaderRules,
    agreed_legacy,
    agreed_modern,
    clean,
    contents_of,
    output_of,
    parts_of,
    plain,
    prompts_in,
    resources_in,
    supported_by,
    tools_in,
)
from agentcli.mcp.servers import McpServer, Transport
from agentcli.mcp.stdio import ServerChannel, StdioPlace, stdio_channel
from agentcli.rpc.connection import (
    Connection,
    ConnectionClosed,
    IncomingRequest,
    Patience,
    beside,
)
from agentcli.rpc.messages import METHOD_NOT_FOUND, RequestId, RpcError

if TYPE_CHECKING:
    from agentcli.domain.tools import Asker

STARTUP_S = 60.0
CALL_S = 120.0
LONGEST_CALL_S = 1_800.0
LIST_S = 30.0
# how long a server has to answer the probe before the old way is tried beside it
PROBE_S = 5.0
MAX_PAGES = 100
MAX_CURSOR_CHARS = 10_000
# a subscription that has lasted so long was a good one; others end the attempts
GOOD_LISTEN_S = 30.0
MAX_LISTENS = 5
MAX_ROUNDS = 10
_STATE_WAIT_S = 0.1
T = TypeVar("T")
log = logging.getLogger(__name__)
_UNCANCELLABLE = frozenset({"initialize", "server/discover"})


@frozen
class ClientSetup:
    """What every connection of a session shares. ``roots`` are the directories of the workspace."""

    place: StdioPlace
    roots: tuple[Path, ...] = ()
    ask: Asker | None = None
    authorizer: Callable[[McpServer], Authorizer] = PlainHeaders
    changed: Callable[[str, str], None] = lambda *_: None


class _WrongEra(Exception):
    """The server has ended when it was asked in the new way."""


@asynccontextmanager
async def connected(
    server: McpServer, setup: ClientSetup, era: str = ""
) -> AsyncIterator[McpClient]:
    """A connection that is agreed upon. ``era`` is the version of the last time, if known.

    Raises ``McpError``.
    """
    attempts = [era, "2025"] if server.transport is not Transport.SSE else ["2025"]
    for place, way in enumerate(attempts):
        try:
            async with _open(server, setup, way) as client:
                yield client
                return
        except _WrongEra:
            if place + 1 == len(attempts):
                raise McpError(f"the MCP server {server.name} has ended") from None


@asynccontextmanager
async def _open(server: McpServer, setup: ClientSetup, era: str) -> AsyncIterator[McpClient]:
    if server.transport is Transport.SSE:
        async with _over(sse_channel(server, setup.authorizer(server)), server, setup) as client:
            await client.agree(era)
            yield client
        return
    authorizer = setup.authorizer(server)
    channel = (
        stdio_channel(server, setup.place)
        if server.transport is Transport.STDIO
        else http_channel(server, authorizer)
    )
    refused: McpError | None = None
    async with _over(channel, server, setup) as client:
        try:
            await client.agree(era)
        except LoginRequired:
            raise
        except McpError as error:
            if server.transport is Transport.STDIO or not client.may_be_of_2024:
                raise
            refused = error
        else:
            yield client
            return
    async with AsyncExitStack() as stack:
        try:
            opening = _over(sse_channel(server, authorizer), server, setup)
            client = await stack.enter_async_context(opening)
            await client.agree("2025")
        except LoginRequired:
            raise
        except McpError:
            raise refused from None
        yield client


@asynccontextmanager
async def _over(
    opening: AbstractAsyncContextManager[ServerChannel], server: McpServer, setup: ClientSetup
) -> AsyncIterator[McpClient]:
    async with opening as channel:
        client = McpClient(server, setup, channel)
        async with beside(client.serve()):
            yield client


class McpClient:
    """See ``connected``."""

    def __init__(self, server: McpServer, setup: ClientSetup, channel: ServerChannel) -> None:
        self._server = server
        self._setup = setup
        self._channel = channel
        self._me = ClientFacts(__version__, can_ask=setup.ask is not None)
        self._connection = Connection(channel.send, self, cancel_notice=_cancel_notice)
        self._tokens = itertools.count(1)
        self._calls: dict[int, tuple[Patience, Callable[[str], None]]] = {}
        self._asked = 0  # requests of ours that wait
        self._questions: set[RequestId] = set()
        self._ended = asyncio.Event()
        self._why = ""
        self._rules: dict[str, HeaderRules] = {}
        self.agreement = Agreement("", {})
        self.may_be_of_2024 = False

    @property
    def said(self) -> str:
        """The last lines of its standard error."""
        return self._channel.said

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._ended.is_set()

    async def ended(self) -> str:
        """Wait until the connection has ended; returns how."""
        await self._ended.wait()
        return self._why

    async def serve(self) -> None:
        """Run the connection to its end."""
        try:
            await self._connection.run(self._channel.lines())
            self._why = await self._channel.ended()
        finally:
            self._why = self._why or "it was stopped"
            self._ended.set()

    # --- the era ---------------------------------------------------------------------------------

    async def agree(self, era: str = "") -> None:
        """Settle on a version. Raises ``McpError``; ``_WrongEra`` for a server that died of it."""
        limit = self._server.startup_timeout_s or STARTUP_S
        try:
            async with asyncio.timeout(limit):
                if not era or era == MODERN:
                    await self._agree_by_probe()
                else:
                    await self._initialize()
        except TimeoutError:
            raise self._error(f"did not answer within {limit:g} s") from None
        self._channel.agreed(self.agreement, {})

    async def _agree_by_probe(self) -> None:
        """Ask in the new way; when that has no answer soon, in the old way beside it."""
        probe = asyncio.create_task(self._discover())
        try:
            await asyncio.wait({probe}, timeout=PROBE_S)
            if probe.done() and await self._is_settled(probe):
                return
            hello = asyncio.create_task(self._initialize())
            try:
                both = {probe, hello}
                while both:
                    done, both = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                    if probe in done and not hello.done() and await self._is_settled(probe):
                        return
                    if hello in done:
                        if not hello.cancelled() and hello.exception() is None:
                            return
                        if probe.done():
                            break
                if self.agreement.version:
                    return
                hello.result()
            finally:
                await _dropped(hello)
        finally:
            await _dropped(probe)

    async def _is_settled(self, probe: asyncio.Task[None]) -> bool:
        """Whether the probe has succeeded; raises what no other question would change."""
        error = probe.exception()
        if error is None:
            return bool(self.agreement.version)
        if isinstance(error, LoginRequired):
            raise error
        if isinstance(error, ConnectionClosed) and self._server.transport is Transport.STDIO:
            why = await self._ended_by()
            if why.startswith("it cannot be started"):
                raise self._error(f"has ended: {why}")
            raise _WrongEra
        return False

    async def _discover(self) -> None:
        params = {"_meta": self._me.meta(MODERN)}
        try:
            answer = await self._ask("server/discover", params)
        except RpcError as error:
            if error.code != UNSUPPORTED_VERSION or MODERN not in supported_by(error.data):
                raise
            answer = await self._ask("server/discover", params)
        if (agreed := agreed_modern(answer)) is not None and not self.agreement.version:
            self.agreement = agreed

    async def _initialize(self) -> None:
        try:
            answer = await self._ask("initialize", self._me.hello())
        except RpcError as error:
            if error.code == UNSUPPORTED_VERSION and MODERN in supported_by(error.data):
                await self._discover()
                return
            self.may_be_of_2024 = True
            raise self._error(f"refused to begin: {clean(error.message, 300)}") from None
        except ConnectionClosed:
            raise self._error(f"has ended: {await self._ended_by()}") from None
        agreed = agreed_legacy(answer)
        if agreed is None:
            version = clean(answer.get("protocolVersion") if isinstance(answer, dict) else "", 40)
            raise self._error(f"speaks version {version or '(none)'}, which is not known here")
        if not self.agreement.version:
            self.agreement = agreed
            self._channel.agreed(agreed, {})
            await self._connection.notify("notifications/initialized")

    async def _ended_by(self) -> str:
        await self._ended.wait()
        return self._why

    # --- asking ----------------------------------------------------------------------------------

    async def _ask(
        self, method: str, params: dict[str, Any], patience: Patience | None = None
    ) -> Any:
        """An answer. Raises ``RpcError``, ``ConnectionClosed``, ``TimeoutError``, ``McpError``."""
        try:
            return await self._connection.request(method, params, patience)
        except RpcError as error:
            data = error.data if isinstance(error.data, dict) else {}
            if error.code != TRANSPORT_FAILED or data.get("server") != self._server.name:
                raise
            self.may_be_of_2024 = method == "initialize" and "HTTP status 4" in error.message
            kind, advice = data.get("transport"), plain(data.get("advice"), _MAX_MESSAGE)
            if kind == LoginRequired.__name__:
                raise LoginRequired(self._server.name) from None
            if kind == SessionLost.__name__:
                raise SessionLost(error.message) from None
            name, said = self._server.name, plain(error.message, _MAX_MESSAGE)
            text = said if name in said else f"{name}: {said}"
            raise McpError(text if "MCP" in text else f"MCP server {text}", advice) from None

    async def request(
        self, method: str, params: Mapping[str, Any], patience: Patience | None = None
    ) -> Any:
        """An answer, after what the server wants to know before that. Raises ``McpError``."""
        self._asked += 1
        try:
            return await self._answered(method, dict(params), patience or Patience(total_s=LIST_S))
        finally:
            self._asked -= 1
            for question in () if self._asked else tuple(self._questions):
                self._connection.cancel(question)

    async def _answered(self, method: str, given: dict[str, Any], patience: Patience) -> Any:
        for _ in range(MAX_ROUNDS):
            if self.agreement.is_modern:
                own = given.get("_meta") or {}
                given["_meta"] = {**self._me.meta(self.agreement.version), **own}
            answer = await self._plainly(method, given, patience)
            if not isinstance(answer, dict) or answer.get("resultType") != "input_required":
                return answer
            given.pop("inputResponses", None)
            given["requestState"] = answer.get("requestState")
            wanted = answer.get("inputRequests")
            if isinstance(wanted, dict) and wanted:
                given["inputResponses"] = await self._inputs(wanted)
            else:
                await asyncio.sleep(_STATE_WAIT_S)
            if given["requestState"] is None:
                del given["requestState"]
        raise self._error(f"asked for more than {MAX_ROUNDS} times")

    async def _plainly(self, method: str, params: dict[str, Any], patience: Patience) -> Any:
        try:
            return await self._ask(method, params, patience)
        except RpcError as error:
            code = f" (code {error.code})" if error.code else ""
            raise self._error(f"answered: {clean(error.message, 1_000)}{code}") from None
        except ConnectionClosed:
            raise self._error(f"has ended: {await self._ended_by()}") from None
        except TimeoutError:
            raise self._error("did not answer in time") from None

    async def _inputs(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Answers to what a request asks for in return, by its keys."""
        found: dict[str, Any] = {}
        for key, request in itertools.islice(wanted.items(), 20):
            asked = as_object(request)
            params = asked.get("params")
            incoming = IncomingRequest(key, str(asked.get("method")), as_object(params))
            try:
                found[key] = await self.answer(incoming)
            except RpcError as error:
                raise self._error(f"wants what is not offered: {error.message}") from None
        return found

    def _error(self, what: str) -> McpError:
        said = "" if what.startswith("answered") else self.said
        told = f"; it last said: {said.splitlines()[-1]}" if said else ""
        return McpError(f"the MCP server {self._server.name} {what}{told}")

    async def _pages(
        self, method: str, key: str, read: Callable[[str, Sequence[object]], T]
    ) -> AsyncIterator[T]:
        """What ``read`` finds in each page of a list; none is held beside the next (SEC-13)."""
        cursor: object = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            answer = as_object(await self.request(method, {"cursor": cursor} if cursor else {}))
            cursor, page = answer.pop("nextCursor", None), [{key: answer.pop(key, None)}]
            yield await in_own_thread(partial(read, self._server.name, page))
            page.clear()
            is_one = isinstance(cursor, str) and 0 < len(cursor) <= MAX_CURSOR_CHARS
            if not is_one or str(cursor) in seen:
                return
            seen.add(str(cursor))

    async def tools(self) -> tuple[ServerTool, ...]:
        """All that it has and the user wants. Raises ``McpError``."""
        found: dict[str, ServerTool] = {}
        if not self.agreement.offers("tools"):
            return ()
        self._rules = {}
        async for tools, rules in self._pages("tools/list", "tools", tools_in):
            is_remote = self._server.transport is Transport.HTTP
            self._rules.update(rules if is_remote and self.agreement.is_modern else {})
            for tool in tools:
                if self._server.offers(tool.name):
                    found.setdefault(tool.full_name, tool)
            if len(found) >= MAX_TOOLS:
                break
        self._channel.agreed(self.agreement, self._rules)
        return tuple(found.values())[:MAX_TOOLS]

    async def resources(self) -> tuple[ServerResource, ...]:
        """All that can be read, and templates. Raises ``McpError``."""
        found: list[ServerResource] = []
        if not self.agreement.offers("resources"):
            return ()
        async for page in self._pages("resources/list", "resources", resources_in):
            found += page[: MAX_LISTED - len(found)]
        with suppress(McpError):  # many servers have no templates and say so with an error
            templates = self._pages("resources/templates/list", "resourceTemplates", resources_in)
            async for page in templates:
                found += page[: MAX_LISTED - len(found)]
        return tuple(found)

    async def prompts(self) -> tuple[ServerPrompt, ...]:
        """All prompts. Raises ``McpError``."""
        found: dict[str, ServerPrompt] = {}
        if not self.agreement.offers("prompts"):
            return ()
        async for page in self._pages("prompts/list", "prompts", prompts_in):
            for prompt in page[: MAX_LISTED - len(found)]:
                found.setdefault(prompt.full_name, prompt)
        return tuple(found.values())

    async def listen(self) -> None:
        """Hear of tools that come and go, where a server of 2026 offers that, until it ends.

        The answer to the request is the end of the subscription, the notices come before it:
        https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions. What
        happens between two subscriptions nobody tells, so that may have been a change.
        """
        if not self.agreement.is_modern or not self.agreement.tells_of("tools"):
            return
        meta = self._me.meta(self.agreement.version)
        params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        loop, attempt = asyncio.get_running_loop(), 0
        while attempt < MAX_LISTENS:
            began = loop.time()
            try:
                await self._ask("subscriptions/listen", params)
            except (RpcError, ConnectionClosed, LoginRequired, SessionLost):
                return
            except McpError as error:
                log.info("%s", error)
            attempt = 1 if loop.time() - began > GOOD_LISTEN_S else attempt + 1
            self._setup.changed(self._server.name, "tools")
            await asyncio.sleep(2**attempt)

    async def call(
        self, name: str, arguments: Mapping[str, Any], progress: Callable[[str], None]
    ) -> ToolOutput:
        """What the tool returned. Raises ``McpError``; a cancellation is passed on."""
        idle_s = self._server.timeout_s or CALL_S
        patience = Patience(idle_s, max(idle_s, LONGEST_CALL_S))
        token = next(self._tokens)
        self._calls[token] = patience, progress
        try:
            params = {
                "name": name,
                "arguments": dict(arguments),
                "_meta": {"progressToken": token},
            }
            return output_of(await self.request("tools/call", params, patience))
        finally:
            del self._calls[token]

    async def read(self, uri: str) -> Sequence[UserPart]:
        """What the resource holds. Raises ``McpError``."""
        answer = await self.request("resources/read", {"uri": uri})
        contents = answer.get("contents") if isinstance(answer, dict) else None
        found = contents if isinstance(contents, list) else []
        return [contents_of(each) for each in found[:100] if isinstance(each, dict)]

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[ResultPart]:
        """The messages of a prompt, as parts of one. Raises ``McpError``."""
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        answer = await self.request("prompts/get", params)
        messages = answer.get("messages") if isinstance(answer, dict) else None
        blocks: list[Mapping[str, Any]] = []
        for message in messages if isinstance(messages, list) else []:
            content = message.get("content") if isinstance(message, dict) else None
            several = content if isinstance(content, list) else [content]
            blocks += [each for each in several if isinstance(each, dict)]
        return parts_of(blocks)

    async def answers(self, within_s: float) -> bool:
        """Whether it is at work."""
        method = "server/discover" if self.agreement.is_modern else "ping"
        try:
            await self.request(method, {}, Patience(total_s=within_s))
        except McpError as error:
            return "answered:" in error.message
        return True

    # --- being asked -----------------------------------------------------------------------------

    async def answer(self, request: IncomingRequest) -> Any:
        """What the server wants of us. Raises ``RpcError``."""
        if request.method == "ping":
            return {}
        if request.method == "roots/list":
            roots = self._setup.roots
            return {"roots": [{"uri": each.as_uri(), "name": each.name} for each in roots]}
        if request.method == "elicitation/create" and self._setup.ask is not None:
            if not self._asked:
                return {"action": "cancel"}
            self._questions.add(request.id)
            try:
                with _all_suspended([patience for patience, _ in self._calls.values()]):
                    return await answer_question(self._server.name, request.params, self._setup.ask)
            finally:
                self._questions.discard(request.id)
        raise RpcError(METHOD_NOT_FOUND, f"{clean(request.method, 100)} is not offered here")

    def notice(self, method: str, params: Mapping[str, Any]) -> None:
        """Progress of a call; a list that has changed."""
        if method == "notifications/progress":
            token = params.get("progressToken")
            if type(token) is int and token in self._calls:
                patience, progress = self._calls[token]
                patience.renew()
                if text := _progress(params):
                    progress(text)
        elif method.endswith("/list_changed"):
            kind = method.removeprefix("notifications/").removesuffix("/list_changed")
            self._setup.changed(self._server.name, clean(kind, 40))
        elif method == "notifications/cancelled":
            number = params.get("requestId")
            if isinstance(number, int | str):
                self._connection.cancel(number)


def _cancel_notice(number: int, method: str) -> tuple[str, Mapping[str, Any]] | None:
    if method in _UNCANCELLABLE:
        return None
    return "notifications/cancelled", {"requestId": number, "reason": "not wanted any more"}


def _progress(params: Mapping[str, Any]) -> str:
    done, total = params.get("progress"), params.get("total")
    text = clean(params.get("message"), 300)
    if isinstance(done, int | float) and isinstance(total, int | float) and total > 0:
        text = f"{done:g}/{total:g} {text}".strip()
    return f"{text}\n" if text else ""


@contextmanager
def _all_suspended(patiences: Sequence[Patience]) -> Iterator[None]:
    """While the user is asked the time of calls does not run."""
    with ExitStack() as stack:
        for patience in patiences:
            stack.enter_context(patience.suspended())
        yield


async def _dropped(task: asyncio.Task[None]) -> None:
    """Cancel and join it; how it has ended is of no interest."""
    task.cancel()

    async def join() -> None:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()

    await uninterruptible(join())


# --- questions of a server to the user (elicitation) -------------------------------------------
#
# https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation. The user sees which
# server asks and can decline each question; an address is shown, never opened.

DECLINE = "Decline"
ANSWER = "Answer"
_DONE = "Done"
_SKIP = "(leave it out)"
_YES, _NO = "Yes", "No"
_MAX_FIELDS = 20
_MAX_OPTIONS = 50
_MAX_MESSAGE = 1_000
_MAX_TRIES = 3


class _Declined(Exception):
    """The user does not want to answer."""


async def answer_question(server: str, params: Mapping[str, Any], ask: Asker) -> dict[str, Any]:
    """The result of ``elicitation/create``."""
    said = plain(params.get("message"), _MAX_MESSAGE)
    head = f"The MCP server {server} asks: {said}"
    if params.get("mode") == "url":
        url = clean(params.get("url"), 2_000)
        question = f"{head}\nIt wants you to open this address yourself:\n{url}"
        agreed = await ask.ask(question, [_DONE, DECLINE]) == _DONE
        return {"action": "accept" if agreed else "decline"}
    schema = params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    fields = as_object(fields)
    required = schema.get("required") if isinstance(schema, dict) else None
    needed = set(map(str, required)) if isinstance(required, list) else set()
    if len(fields) != 1 and await ask.ask(head, [ANSWER, DECLINE]) != ANSWER:
        return {"action": "decline"}
    try:
        content: dict[str, Any] = {}
        for name, field in list(fields.items())[:_MAX_FIELDS]:
            about = as_object(field)
            value = await _field(head, str(name), about, ask, is_needed=name in needed)
            if value is not None:
                content[name] = value
    except _Declined:
        return {"action": "decline"}
    return {"action": "accept", "content": content}


async def _field(
    head: str, name: str, about: Mapping[str, Any], ask: Asker, *, is_needed: bool
) -> Any:
    """The value of one field; ``None`` for one that is left out. Raises ``_Declined``."""
    title = clean(about.get("title") or name, 120)
    text = clean(about.get("description"), 500)
    question = f"{head}\n{title}{f': {text}' if text else ''}"
    extra = [] if is_needed else [_SKIP]
    choices = _choices(about)
    if about.get("type") == "boolean":
        choices = {_YES: True, _NO: False}
    for _ in range(_MAX_TRIES):
        said = await ask.ask(question, [*choices, *extra, DECLINE])
        if said == DECLINE or not said.strip():  # no answer is no yes to what the server would like
            raise _Declined
        if said in extra:
            return about.get("default")
        value = choices.get(said) if choices else _typed(said.strip(), about)
        if value is not None:
            return [value] if about.get("type") == "array" else value
    raise _Declined


def _choices(about: Mapping[str, Any]) -> dict[str, Any]:
    """What can be chosen, as it is shown."""
    source = about.get("items") if about.get("type") == "array" else about
    source = as_object(source)
    titled = source.get("oneOf") or source.get("anyOf")
    if isinstance(titled, list):
        rows: Sequence[Any] = [each for each in titled if isinstance(each, dict)]
        return {
            clean(each.get("title") or each.get("const"), 120): each.get("const")
            for each in rows[:_MAX_OPTIONS]
        }
    values, names = source.get("enum"), source.get("enumNames")
    if not isinstance(values, list):
        return {}
    shown = names if isinstance(names, list) and len(names) == len(values) else values
    pairs = list(zip(shown, values, strict=True))[:_MAX_OPTIONS]
    return {clean(str(name), 120): value for name, value in pairs}


def _typed(text: str, about: Mapping[str, Any]) -> Any:
    """``text`` as the field's type; ``None`` where it is none."""
    try:
        match about.get("type"):
            case "integer":
                return int(text)
            case "number":
                return float(text)
    except ValueError:
        return None
    return text
