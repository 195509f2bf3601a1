"""The servers of one session: started in the background, waited for by who needs them (MCP-2).

Laws: nothing waits for a server but a call of its own tool and a search; one that has ended or
hangs is an error of that call and is started again by the next; every task and process is joined
by ``aclose``. What a server said the last time is remembered (``Remembered``), so that the prompt
can name its tools before it is up (MCP-4); a name that is not known by then is still callable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from agentcli.domain.cancel import CancelToken, uninterruptible, unless_cancelled
from agentcli.domain.errors import TurnCancelled
from agentcli.domain.extensions.mcp import (
    LoginRequired,
    McpError,
    ServerFacts,
    ServerPrompt,
    ServerResource,
    ServerStatus,
    ServerTool,
)
from agentcli.domain.messages import ResultPart, UserPart
from agentcli.domain.tools import PREFIX, ToolOutput
from agentcli.domain.values import mutable
from agentcli.mcp.client import ClientSetup, McpClient, connected
from agentcli.mcp.http import SessionLost
from agentcli.mcp.protocol import full_name
from agentcli.mcp.remembered import KnownServer, Remembered
from agentcli.mcp.servers import McpServer
from agentcli.rpc.connection import beside

T = TypeVar("T")
PING_S = 3.0
STARTS_AT_ONCE = 8
log = logging.getLogger(__name__)


@mutable
class _Link:
    """One server as it stands."""

    server: McpServer
    status: ServerStatus = ServerStatus.IDLE
    problem: str = ""
    said: str = ""
    version: str = ""
    protocol: str = ""
    instructions: str = ""
    tools: tuple[ServerTool, ...] = ()
    resources: tuple[ServerResource, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()
    is_stale: bool = False
    logins: int = 0
    client: McpClient | None = None
    error: McpError | None = None
    task: asyncio.Task[None] | None = None
    ready: asyncio.Event | None = None


class ServerHub:
    """``domain.extensions.mcp.McpServers`` over real servers."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        setup: ClientSetup,
        remembered: Remembered | None = None,
        log_in: Callable[[McpServer], Awaitable[bool]] | None = None,
    ) -> None:
        self._setup = ClientSetup(
            setup.place, setup.roots, setup.ask, setup.authorizer, self._changed
        )
        self._remembered = remembered or Remembered()
        self._links = {each.name: _Link(each) for each in servers}
        self._gate = asyncio.Semaphore(STARTS_AT_ONCE)
        self._log_in = log_in
        self._login_lock = asyncio.Lock()
        self._declined: set[str] = set()
        self._closed = False
        for link in self._links.values():
            if link.server.enabled:
                self._recall(link)
            else:
                link.status = ServerStatus.OFF

    @property
    def names(self) -> tuple[str, ...]:
        """See ``McpServers``; without those that are switched off."""
        return tuple(name for name, link in self._links.items() if link.server.enabled)

    def begin(self) -> None:
        """See ``McpServers``."""
        for link in self._links.values():
            if link.status is ServerStatus.IDLE:
                self._start(link)

    def facts(self) -> Sequence[ServerFacts]:
        """See ``McpServers``."""
        return [self._facts(link) for link in self._links.values()]

    def _facts(self, link: _Link) -> ServerFacts:
        client, redact = link.client, self._remembered.redact
        return ServerFacts(
            name=link.server.name,
            status=link.status,
            where=link.server.shown or link.server.url or link.server.command,
            problem=redact(link.problem),
            said=redact(client.said if client is not None else link.said),
            version=link.version,
            protocol=link.protocol,
            instructions=link.instructions,
            tools=link.tools,
            resources=link.resources,
            prompts=link.prompts,
        )

    # --- names -----------------------------------------------------------------------------------

    def tool(self, wanted: str) -> ServerTool | None:
        """See ``McpServers``."""
        for link in self._links.values():
            own = f"{PREFIX}{link.server.name}__"
            for tool in link.tools:
                if wanted in {tool.full_name, f"{own}{tool.name}"}:
                    return tool
        return self._guessed(wanted)

    def _guessed(self, wanted: str) -> ServerTool | None:
        """A tool that nobody has heard of yet: its server will know whether it is there."""
        for name, link in self._links.items():
            is_open = link.server.enabled and link.status is not ServerStatus.READY
            for start in (f"{PREFIX}{name}__", full_name(name, "")):
                if is_open and wanted.startswith(start) and (tool := wanted.removeprefix(start)):
                    return ServerTool(name, tool, full_name(name, tool), "", {"type": "object"})
        return None

    def full_name(self, server: str, tool: str) -> str:
        """See ``McpServers``; also for a ``tool`` that is given by its whole name."""
        link = self._links.get(server)
        if link is None or not link.server.enabled:
            return ""
        for known in link.tools:
            if tool in {known.name, known.full_name}:
                return known.full_name
        return tool if tool.startswith(PREFIX) else full_name(server, tool)

    # --- asking ----------------------------------------------------------------------------------

    async def tools(
        self, cancel: CancelToken, progress: Callable[[str], None], within_s: float | None = None
    ) -> Sequence[str]:
        """See ``McpServers``."""

        async def of(link: _Link) -> str:
            try:
                async with asyncio.timeout(within_s):
                    client = await self._live(link, cancel, progress)
                    if link.is_stale:
                        link.is_stale = False
                        link.tools = await client.tools()
            except McpError as error:
                return str(error)
            except TimeoutError:
                return f"the MCP server {link.server.name} is still starting: search again later"
            return ""

        links = [link for link in self._links.values() if link.server.enabled]
        return [line for line in await asyncio.gather(*map(of, links)) if line]

    async def call(
        self,
        tool: ServerTool,
        arguments: Mapping[str, Any],
        cancel: CancelToken,
        progress: Callable[[str], None],
    ) -> ToolOutput:
        """See ``McpServers``."""
        heard: list[str] = []

        def hear(text: str) -> None:
            heard[:] = [*heard[-20:], text]
            progress(text)

        async def ask(client: McpClient) -> ToolOutput:
            known = {each.name for each in client_link.tools}
            if tool.name not in known:
                raise McpError(
                    f"the MCP server {tool.server} has no tool {tool.name!r}",
                    f"it has: {', '.join(sorted(known)[:50]) or 'none'}",
                )
            return await client.call(tool.name, arguments, hear)

        client_link = self._link(tool.server)
        found = await self._asked(client_link, ask, cancel, hear)
        return found if found is not None else ToolOutput.cancelled("".join(heard))

    async def read(self, server: str, uri: str, cancel: CancelToken) -> Sequence[UserPart]:
        """See ``McpServers``."""
        link = self._link(server)
        return await self._asked(link, lambda client: client.read(uri), cancel) or ()

    async def prompt(
        self, prompt: ServerPrompt, arguments: Mapping[str, str], cancel: CancelToken
    ) -> Sequence[ResultPart]:
        """See ``McpServers``."""
        link = self._link(prompt.server)
        asking = self._asked(link, lambda client: client.prompt(prompt.name, arguments), cancel)
        return await asking or ()

    def _link(self, server: str) -> _Link:
        link = self._links.get(server)
        if link is None:
            there = ", ".join(self._links) or "none"
            raise McpError(f"there is no MCP server {server!r}", f"there are: {there}")
        if not link.server.enabled:
            raise McpError(f"the MCP server {server} is switched off", "see agent mcp list")
        return link

    async def _asked(
        self,
        link: _Link,
        ask: Callable[[McpClient], Awaitable[T]],
        cancel: CancelToken,
        progress: Callable[[str], None] = lambda _: None,
    ) -> T | None:
        """What ``ask`` gets from a live server; ``None`` once ``cancel`` is set.

        Where it needs a login and the user logs in, it is asked again (MCP-5).
        """
        logins = link.logins
        try:
            return await self._asked_now(link, ask, cancel, progress)
        except LoginRequired:
            if not await self._logged_in(link, logins, cancel):
                if cancel.cancelled:
                    return None
                raise
        return await self._asked_now(link, ask, cancel, progress)

    async def _logged_in(self, link: _Link, before: int, cancel: CancelToken) -> bool:
        """Whether the user has logged in since there were ``before`` logins; offers it once."""
        name = link.server.name
        if self._log_in is None:
            return False
        async with self._login_lock:
            if link.logins == before and name not in self._declined:
                if await unless_cancelled(self._log_in(link.server), cancel):
                    link.logins += 1
                    await self._stop(link)
                elif not cancel.cancelled:
                    self._declined.add(name)
        return link.logins != before

    async def _asked_now(
        self,
        link: _Link,
        ask: Callable[[McpClient], Awaitable[T]],
        cancel: CancelToken,
        progress: Callable[[str], None],
    ) -> T | None:
        for attempt in range(2):
            client = await self._live(link, cancel, progress)
            if cancel.cancelled:
                return None
            try:
                return await unless_cancelled(ask(client), cancel)
            except SessionLost:
                await self._stop(link)
                if attempt:
                    raise
            except McpError as error:
                if "did not answer in time" in error.message and not await client.answers(PING_S):
                    await self._stop(link)
                    link.status, link.problem = ServerStatus.FAILED, "it did not answer any more"
                raise
        return None

    async def _live(
        self, link: _Link, cancel: CancelToken, progress: Callable[[str], None]
    ) -> McpClient:
        """The connection, started if need be. Raises ``McpError``; returns early on a cancel."""
        client = link.client
        if client is not None and client.is_alive:
            return client
        if link.task is not None and link.ready is not None and link.ready.is_set():
            await asyncio.wait({link.task})  # it has ended, or is about to
        if link.task is None or link.task.done():
            self._start(link)
        if link.ready is None:
            raise McpError(f"the MCP server {link.server.name} has been ended")
        if not link.ready.is_set():
            progress(f"Waiting for the MCP server {link.server.name} to start…\n")
            await unless_cancelled(link.ready.wait(), cancel)
        if link.client is not None:
            return link.client
        if cancel.cancelled:
            raise McpError(f"the MCP server {link.server.name} was still starting")
        raise link.error or McpError(f"the MCP server {link.server.name} has ended")

    # --- the life of a server --------------------------------------------------------------------

    def _start(self, link: _Link) -> None:
        if self._closed:
            link.ready = None
            return
        link.status, link.problem, link.error = ServerStatus.STARTING, "", None
        link.ready = asyncio.Event()
        link.task = asyncio.create_task(self._serve(link, link.ready))

    async def _serve(self, link: _Link, ready: asyncio.Event) -> None:
        """One life of a server: until it ends or is stopped."""
        server = link.server
        try:
            async with self._gate:
                opening = connected(server, self._setup, link.protocol)
                client = await opening.__aenter__()
            try:
                async with beside(client.listen()):
                    await self._learn(link, client)
                    link.client, link.status = client, ServerStatus.READY
                    ready.set()
                    link.problem = await client.ended()
                    link.status = ServerStatus.FAILED
            finally:
                link.client, link.said = None, client.said
                await opening.__aexit__(None, None, None)
        except LoginRequired as error:
            link.error, link.status, link.problem = error, ServerStatus.LOGIN, error.message
        except McpError as error:
            link.error, link.status, link.problem = error, ServerStatus.FAILED, error.message
        except Exception as error:
            log.exception("the MCP server %s failed", server.name)
            link.status, link.problem = ServerStatus.FAILED, f"{type(error).__name__}: {error}"
            link.error = McpError(f"the MCP server {server.name} cannot be used: {link.problem}")
        finally:
            ready.set()

    async def _learn(self, link: _Link, client: McpClient) -> None:
        """What it is and what it has."""
        agreement = client.agreement
        link.version, link.protocol = agreement.server, agreement.version
        link.instructions = agreement.instructions
        link.is_stale = False
        link.tools = await client.tools()
        for kind in ("resources", "prompts"):
            try:
                setattr(link, kind, await getattr(client, kind)())
            except McpError as error:  # its tools are there all the same
                log.info("%s", error)
        await asyncio.to_thread(self._remember, link)

    def _changed(self, server: str, kind: str) -> None:
        if (link := self._links.get(server)) is not None and kind == "tools":
            link.is_stale = True

    async def restart(self, server: str, cancel: CancelToken) -> None:
        """See ``McpServers``."""
        link = self._link(server)
        await self._stop(link)
        try:
            await self._live(link, cancel, lambda _: None)
        except McpError:
            if cancel.cancelled:
                raise TurnCancelled from None
            raise

    async def _stop(self, link: _Link) -> None:
        task = link.task
        if task is not None:
            task.cancel()
            await uninterruptible(_joined((task,)))
        link.client, link.status = None, ServerStatus.IDLE

    async def aclose(self) -> None:
        """See ``McpServers``."""
        self._closed = True
        tasks = tuple(link.task for link in self._links.values() if link.task is not None)
        for task in tasks:
            task.cancel()
        await uninterruptible(_joined(tasks))

    # --- memory ----------------------------------------------------------------------------------

    def _remember(self, link: _Link) -> None:
        known = KnownServer(
            link.protocol, link.version, link.instructions, link.tools, link.prompts
        )
        self._remembered.keep(link.server, known)

    def _recall(self, link: _Link) -> None:
        known = self._remembered.recall(link.server)
        link.protocol, link.version = known.protocol, known.version
        link.instructions, link.tools = known.instructions, known.tools
        link.prompts = known.prompts


async def _joined(tasks: Sequence[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(tasks)
