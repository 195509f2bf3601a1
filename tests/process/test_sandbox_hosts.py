"""The network of commands, opened for single hosts (SEC-18)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentcli.domain.sandbox import Access
from agentcli.domain.tools import Workspace
from agentcli.headless.errors import ExitCode
from agentcli.process.sandbox import SessionSandbox
from agentcli.process.sandbox_places import OwnPlaces
from agentcli.tools.bash import TOOL
from agentcli.wire.host_proxy import HostProxy
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.sandboxes import Sandboxed, needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.spec("SEC-18")

GET = "curl -sS -m 5 --noproxy ''"


class _Here(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"reached")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """A server of this machine, as ``host:port``."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Here) as serving:
        thread = threading.Thread(target=partial(serving.serve_forever, 0.01))
        thread.start()
        try:
            yield f"127.0.0.1:{serving.server_address[1]}"
        finally:
            serving.shutdown()
            thread.join()


def test_commands_reach_the_hosts_that_are_named_and_no_other(tmp_path: Path, server: str) -> None:
    async def run() -> None:
        async with Sandboxed(tmp_path, "bwrap") as inside:
            sandbox = inside.sandbox
            sandbox.let_through((), HostProxy)
            assert "reached" not in await inside.say(f"{GET} http://{server}/")
            assert "proxy" not in (await inside.say("env")).lower()
            assert await sandbox.allow_host(server) == ""
            assert sandbox.state.hosts == (server,)
            assert "reached" in await inside.say(f"{GET} http://{server}/")
            assert "reached" in await inside.say(f"{GET} -p http://{server}/")
            refused = await inside.say(f"{GET} https://example.org/")
            assert "[sandbox: no connection to example.org:443: " in refused
            # past the proxy there is nothing; what only reads has not even that
            host, _, port = server.rpartition(":")
            direct = f"exec 3<>/dev/tcp/{host}/{port} && echo open"
            assert "open" not in await inside.say(direct)
            read = await inside.with_access(Access.READ_ONLY, f"{GET} -x $proxy http://{server}/")
            assert "reached" not in read

    asyncio.run(run())


def test_a_server_that_a_command_starts_is_still_reached_by_the_next(
    tmp_path: Path, server: str
) -> None:
    async def run() -> None:
        async with Sandboxed(tmp_path, "bwrap") as inside:
            inside.sandbox.let_through((), HostProxy)
            await inside.sandbox.allow_host(server)
            (tmp_path / "a.txt").write_text("from inside")
            await inside.say("python3 -m http.server 8123 --bind 127.0.0.1 >log 2>&1 &")
            wait = "for i in $(seq 50); do curl -s localhost:8123/a.txt && break; sleep 0.1; done"
            assert "from inside" in await inside.say(wait)
            assert "from inside" in await inside.say("curl -s 0.0.0.0:8123/a.txt")
            bypassed = "from urllib.request import proxy_bypass as at; print(at('[::1]:8123'))"
            assert "True" in await inside.say(f'python3 -c "{bypassed}"')

    asyncio.run(run())


def test_what_uses_no_proxy_is_told_that_there_is_no_other_way(tmp_path: Path) -> None:
    async def run() -> None:
        async with Sandboxed(tmp_path, "bwrap") as inside:
            inside.sandbox.let_through((), HostProxy)
            await inside.sandbox.allow_host("example.org")
            said = 'echo "ssh: Could not resolve hostname github.com" >&2; exit 128'
            assert "without network and SSH keys" in await inside.say(said)
            told = await inside.say("curl -sS -m 5 --noproxy '*' http://1.2.3.4/")
            assert "network to example.org alone" in told
            refused = await inside.say("curl -s -m 5 http://other.org/ -f")
            assert "it ran in the sandbox" not in refused
            assert "no connection to other.org:80" in refused
            await inside.sandbox.allow_host("no.such.host.invalid")
            failed = await inside.say("curl -s -m 5 https://no.such.host.invalid/")
            known = "no connection to no.such.host.invalid:443, which the user has allowed: "
            assert f"[sandbox: {known}no.such.host.invalid cannot be resolved" in failed

    asyncio.run(run())


def test_the_approval_says_what_a_command_reaches(tmp_path: Path) -> None:
    async def run() -> None:
        async with Sandboxed(tmp_path, "bwrap") as inside:
            inside.sandbox.let_through((), HostProxy)
            await inside.sandbox.allow_host("example.org")
            args = TOOL.parse({"command": "make"})
            assert (await TOOL.preview(args, inside.ctx)).endswith("with network to example.org")
            inside.ctx.access = Access.READ_ONLY
            assert (await TOOL.preview(args, inside.ctx)).endswith(", in the sandbox")

    asyncio.run(run())


def test_worktrees_of_a_session_reach_the_same_hosts(tmp_path: Path, server: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    async def run() -> None:
        async with (
            Sandboxed(tmp_path, "bwrap") as inside,
            Sandboxed(tree, "bwrap") as beside,
            Sandboxed(tree, "bwrap") as below,
        ):
            for each in (inside, beside, below):
                each.sandbox.let_through((), HostProxy)
            beside.sandbox.follow(inside.sandbox)
            below.sandbox.follow(beside.sandbox)
            assert await inside.sandbox.allow_host(server) == ""
            assert "reached" in await beside.say(f"{GET} http://{server}/")
            assert "reached" in await below.say(f"{GET} http://{server}/")

    asyncio.run(run())


def test_what_the_user_has_allowed_holds_when_the_session_is_opened_again(
    tmp_path: Path, server: str
) -> None:
    async def run() -> None:
        async with Sandboxed(tmp_path, "bwrap") as before, Sandboxed(tmp_path, "bwrap") as again:
            before.sandbox.let_through(("example.org",), HostProxy)
            again.sandbox.let_through((), HostProxy)  # the settings name it no longer
            assert await before.sandbox.allow_host(server) == ""
            assert before.sandbox.state.hosts == ("example.org", server)
            again.sandbox.go_on_as(before.sandbox)
            assert "reached" in await again.say(f"{GET} http://{server}/")
            assert again.sandbox.state.hosts == (server,)

    asyncio.run(run())


def test_with_the_session_the_way_out_ends(tmp_path: Path, server: str) -> None:
    async def run() -> None:
        doors: list[socket.socket] = []

        class Watched(HostProxy):
            async def serve(self, listener: socket.socket) -> None:
                doors.append(listener)
                await super().serve(listener)

        async with Sandboxed(tmp_path, "bwrap") as inside:
            inside.sandbox.let_through((), Watched)
            await inside.sandbox.allow_host(server)
            assert "reached" in await inside.say(f"{GET} http://{server}/")
            assert doors[0].fileno() >= 0
        assert doors[0].fileno() < 0

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["landlock", "off"])
def test_where_single_hosts_cannot_be_opened_it_says_so(tmp_path: Path, kind: str) -> None:
    async def run() -> None:
        sandbox = SessionSandbox(Workspace(tmp_path, tmp_path), OwnPlaces, kind)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(sandbox.aclose)
            sandbox.let_through(("npmjs.org",), HostProxy)
            state = await sandbox.begin()
            assert state.hosts == ()
            problem = await sandbox.allow_host("example.org")
            assert problem
            assert await sandbox.allow_host("example.org") == problem
            if state.is_on:
                assert state.problem.count("single hosts") == problem.count("single hosts") == 1
                assert "Errno" not in problem
                assert sandbox.state.hosts == ()

    asyncio.run(run())


@pytest.mark.parametrize("named", [True, False])
def test_a_run_reaches_the_hosts_of_the_settings_unasked_in_mode_auto(
    tmp_path: Path, home: Path, server: str, named: bool
) -> None:
    needs("bwrap")
    (home / "agentcli").mkdir(exist_ok=True)
    hosts = f'["{server}"]' if named else '["example.org"]'
    (home / "agentcli" / "config.toml").write_text(f"sandbox_hosts = {hosts}\n")
    work = tmp_path / "work"
    work.mkdir()
    fetch = call("bash", {"command": f"{GET} http://{server}/ -o got; cat got"})
    with ModelServer([fetch, say("done")], strict=False) as model:
        ended = run_agent(
            "run", "--permission-mode", "auto", "fetch it", cwd=work, env=agent_env(model)
        )
        assert ended.code == 0, ended.stderr
        told = str(facts_of(model.requests[-1]).results)
    assert ("reached" in told) is named
    assert (f"no connection to {server}" in told) is not named


@pytest.mark.parametrize("text", ["https://npmjs.org", "*"])
def test_what_is_no_host_is_refused_at_the_start(tmp_path: Path, home: Path, text: str) -> None:
    (home / "agentcli").mkdir(exist_ok=True)
    (home / "agentcli" / "config.toml").write_text(f'sandbox_hosts = ["{text}"]\n')
    ended = run_agent("run", "hi", cwd=tmp_path)
    assert ended.code == ExitCode.CONFIG
    assert f"sandbox_hosts: '{text}' is no host" in ended.stderr
    assert "Traceback" not in ended.stderr
