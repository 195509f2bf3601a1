"""A server as a process: a message is a line on its standard input or output (MCP-2, MCP-3).

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio. Laws: the process
is one of ``process.run``: it has a guard, and whatever becomes of us nothing of it is left (REC-8);
its environment holds no more than it needs; what it writes to standard error is kept in part.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.domain.extensions.mcp import McpError
from agentcli.domain.sandbox import Access, Confined
from agentcli.domain.values import frozen
from agentcli.mcp.protocol import plain
from agentcli.mcp.servers import ServerScope
from agentcli.process.environment import base_environment, find_program, without_credentials
from agentcli.process.run import Command, Ending, Result, RunLimits, StartFailed, run
from agentcli.rpc.connection import beside
from agentcli.rpc.messages import OverlongLine, read_lines

if TYPE_CHECKING:
    from agentcli.domain.sandbox import Sandbox, StillLives
    from agentcli.mcp.protocol import Agreement, HeaderRules
    from agentcli.mcp.servers import McpServer

SAID_LINES = 20
_SAID_CHARS = 300
# a server gets so long to end by itself once its input is closed, and after SIGTERM
CLOSE_S = 0.4
TERM_S = 0.6
# what a program needs to find itself, its user and the network; what else it needs is configured
_PASSED = frozenset({
    "HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE", "NVM_DIR", "VOLTA_HOME", "PYENV_ROOT", "ASDF_DIR", "ASDF_DATA_DIR",
    "MISE_DATA_DIR", "VIRTUAL_ENV", "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT", "JAVA_HOME",
    "DOCKER_HOST", "DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "SYSTEMROOT",
})  # fmt: skip
_PASSED_STARTS = ("LC_", "XDG_", "NPM_CONFIG_", "npm_config_", "UV_", "PIP_")


class ServerChannel(Protocol):
    """One way to one server: lines to it, lines from it."""

    async def send(self, line: bytes) -> None:
        """Send a message; raises ``OSError`` when the server is gone."""

    def lines(self) -> AsyncIterator[bytes | OverlongLine]:
        """What comes, until the server ends."""

    def agreed(self, agreement: Agreement, rules: Mapping[str, HeaderRules]) -> None:
        """What is settled by now; ``rules`` say which arguments of tools are headers as well."""

    async def ended(self) -> str:
        """How it has ended, once ``lines`` has."""

    @property
    def said(self) -> str:
        """The last lines of its standard error."""


@frozen
class StdioPlace:
    """Where servers run: the directory, whose session it is, and its sandbox.

    ``check`` raises ``McpError`` for one that may not be started any more; it blocks.
    """

    cwd: Path
    owner: str = ""
    sandbox: Sandbox | None = None
    check: Callable[[McpServer], None] = lambda _: None


def clean_environment(source: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a server gets of our variables: few, and no key but that of a proxy."""
    kept = {
        name: value
        for name, value in base_environment(source).items()
        if name in _PASSED or name.startswith(_PASSED_STARTS)
    }
    return without_credentials(kept, network=True)


@asynccontextmanager
async def stdio_channel(server: McpServer, place: StdioPlace) -> AsyncIterator[ServerChannel]:
    """The server as a running process, which is ended with the block. Raises ``McpError``."""
    await asyncio.to_thread(place.check, server)
    cwd = Path(server.cwd) if server.cwd else place.cwd
    argv = (_program(server, cwd, place.cwd), *server.args)
    environment, inside = clean_environment(), Confined(argv, cwd)
    sandbox = place.sandbox if server.sandboxed else None
    if server.sandboxed and (sandbox is None or not (await sandbox.begin()).is_on):
        raise McpError(
            f"the MCP server {server.name} is to run in the sandbox, and there is none here",
            "see agent doctor, or take sandbox out of its settings",
        )
    if sandbox is not None:
        environment = await asyncio.to_thread(sandbox.environment, environment, Access.NETWORK)
        inside = await sandbox.confine(argv, cwd, Access.NETWORK)
    environment |= {**dict(server.env), "PWD": str(cwd)}
    process, is_settled = _Process(server.name), False
    try:
        command = process.command(inside, environment, place.owner)
        async with beside(process.run(command)) as running:
            try:
                await process.started.wait()
                if sandbox is not None:  # from here on it is what a command has left running
                    is_settled = True
                    await uninterruptible(sandbox.settle(process.still_lives))
                yield process
            finally:
                await uninterruptible(process.stop(running))
    finally:
        process.close()
        if sandbox is not None and not is_settled:
            await uninterruptible(sandbox.settle(process.still_lives))


def _program(server: McpServer, cwd: Path, session_cwd: Path) -> str:
    """The absolute path of what is to be run: of a repository's only for a server of its own."""
    command = server.command
    if command.startswith("~"):
        command = os.path.expanduser(command)  # noqa: PTH111 - leaves an unknown user's as it is
    if "/" in command:
        return str(cwd / command)
    is_of_project = server.scope in {ServerScope.PROJECT, ServerScope.LOCAL}
    if found := find_program(command, () if is_of_project else (session_cwd,), is_theirs=True):
        return found
    raise McpError(
        f"the MCP server {server.name} cannot be started: there is no program {command!r}",
        "install it, or give its whole path in the settings of the server",
    )


class _Process:
    """The channel to one process, by two pipes that are ours."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._cancel = CancelToken()
        self._said: deque[str] = deque(maxlen=SAID_LINES)
        self._result: Result | None = None
        self._lives: StillLives = int
        self._problem = ""
        self.started = asyncio.Event()  # or it could not be
        self._gone = asyncio.Event()
        self._files: set[int] = set()
        self._waiting: set[Callable[[], None]] = set()
        self._input, self._theirs_in = -1, -1
        self._output, self._theirs_out = -1, -1
        try:
            self._theirs_in, self._input = self._pipe()
            self._output, self._theirs_out = self._pipe()
        except OSError as error:
            self.close()
            raise McpError(f"the MCP server {name} cannot be started: {error.strerror}") from None
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._files.update(ends)
        return ends

    def command(self, inside: Confined, environment: Mapping[str, str], owner: str) -> Command:
        """The process, whose standard input and output are the pipes."""
        return Command(
            inside.argv,
            inside.cwd,
            environment,
            owner,
            inside.namespaces,
            inside.rules,
            {0: self._theirs_in, 1: self._theirs_out},
        )

    def still_lives(self) -> int:
        """See ``domain.sandbox.StillLives``."""
        return self._lives()

    @property
    def said(self) -> str:
        """See ``ServerChannel``."""
        return "\n".join(self._said)

    async def run(self, command: Command) -> None:
        """Run it to its end, whatever that is."""
        limits = RunLimits(self._cancel, on_life=self._live)
        try:
            self._result = await run(command, limits, self._hear, self._forget_theirs)
        except StartFailed as error:
            self._problem = f"it cannot be started: {error}"
        finally:
            self.started.set()
            self._gone.set()
            for wake in tuple(self._waiting):
                wake()

    def _live(self, lives: StillLives) -> None:
        self._lives = lives

    async def _forget_theirs(self, pid: int) -> None:
        """The process has its own ends of the pipes: with ours open we would not see its end."""
        del pid
        self._close(self._theirs_in)
        self._close(self._theirs_out)
        self.started.set()

    def _hear(self, data: bytes) -> bool:
        for line in plain(data[-4096:].decode("utf-8", "replace")).splitlines():
            if line.strip():
                self._said.append(line.strip()[:_SAID_CHARS])
        return True

    def agreed(self, agreement: Agreement, rules: Mapping[str, HeaderRules]) -> None:
        """Nothing depends on it here."""

    async def send(self, line: bytes) -> None:
        """See ``ServerChannel``; waits while the pipe is full."""
        rest = memoryview(line + b"\n")
        while rest:
            if self._input < 0:
                raise BrokenPipeError("it has ended")
            try:
                rest = rest[os.write(self._input, rest) :]
            except BlockingIOError:
                await self._until(self._input, writable=True)

    async def lines(self) -> AsyncIterator[bytes | OverlongLine]:
        """See ``ServerChannel``."""
        async for line in read_lines(self._read):
            yield line

    async def _read(self, size: int) -> bytes:
        while self._output >= 0:
            is_last = self._gone.is_set()
            try:
                return os.read(self._output, size)
            except BlockingIOError:
                if is_last:  # something that it has left may hold the pipe open
                    return b""
                await self._until(self._output, writable=False)
        return b""

    async def _until(self, handle: int, *, writable: bool) -> None:
        """Return when ``handle`` is ready or the process has ended."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        (loop.add_writer if writable else loop.add_reader)(handle, wake)
        self._waiting.add(wake)
        try:
            if not self._gone.is_set():
                await ready
        finally:
            self._waiting.discard(wake)
            (loop.remove_writer if writable else loop.remove_reader)(handle)
        if writable and self._gone.is_set():
            raise BrokenPipeError("it has ended")

    async def ended(self) -> str:
        """See ``ServerChannel``; waits a moment for the exit code."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TERM_S):
                await self._gone.wait()
        if self._problem:
            return self._problem
        result = self._result
        if result is None:
            return "it closed its output"
        if result.ending is Ending.EXITED and result.returncode is not None:
            code = result.returncode
            return f"it was killed by signal {-code}" if code < 0 else f"it exited with code {code}"
        return "it was stopped" if result.ending is Ending.CANCELLED else "it was killed"

    async def stop(self, running: asyncio.Task[None]) -> None:
        """Have it end: its input is closed, then SIGTERM, then SIGKILL."""
        self._close(self._input)
        self._input = -1
        await asyncio.wait({running}, timeout=CLOSE_S)
        if not running.done():
            self._cancel.cancel()
            await asyncio.wait({running}, timeout=TERM_S)
        if not running.done():
            self._cancel.cancel(force=True)
        await asyncio.wait({running})

    def _close(self, handle: int) -> None:
        if handle in self._files:
            self._files.remove(handle)
            os.close(handle)

    def close(self) -> None:
        """Close what is open."""
        self._output = self._input = -1
        for handle in tuple(self._files):
            self._close(handle)
