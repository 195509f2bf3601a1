"""The program listens nowhere and speaks to its provider only (SEC-12), seen from outside."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, leave
from tests.support.cli import AGENT, agent_env
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import call, say

pytestmark = pytest.mark.slow

_ADDRESS = re.compile(
    r"(?P<call>connect|bind|listen|sendto|sendmsg|accept4?)\((?P<rest>.*)$", re.MULTILINE
)
_PORT = re.compile(r"sin6?_port=htons\((\d+)\)")
_STRACE = shutil.which("strace")


def _can_trace() -> bool:
    if _STRACE is None:
        return False
    tried = subprocess.run([_STRACE, "-f", "true"], capture_output=True, check=False, timeout=20)
    return tried.returncode == 0


@pytest.fixture(scope="module", autouse=True)
def tracer() -> None:
    if not _can_trace():
        pytest.skip("strace cannot trace here")


@pytest.fixture
def trace(tmp_path: Path) -> tuple[list[str], Path]:
    """The words that start a traced program, and the file that tells what it did."""
    file = tmp_path / "trace"
    return [str(_STRACE), "-f", "-qq", "-s", "200", "-e", "trace=network", "-o", str(file)], file


def network_of(file: Path) -> tuple[list[str], set[int]]:
    """Calls that no run may make, and the ports of this machine that were connected to."""
    wrong, ports = [], set()
    for found in _ADDRESS.finditer(file.read_text(errors="replace")):
        line = found[0]
        if "AF_INET" not in line:
            # a socket pair of an event loop has no name; anything else would be a door
            if found["call"] in {"listen", "accept", "accept4"}:
                wrong.append(line)
            elif found["call"] == "connect" and "AF_UNIX" in line and "nscd" not in line:
                wrong.append(line)
            elif found["call"] == "bind" and "AF_NETLINK" not in line:
                wrong.append(line)
            continue
        port = _PORT.search(line)
        is_here = "127.0.0.1" in line or '"::1"' in line
        if found["call"] == "connect" and is_here and port is not None:
            ports.add(int(port[1]))
        elif not _is_probe_of_ipv6(line):
            wrong.append(line)
    return wrong, ports


def _is_probe_of_ipv6(line: str) -> bool:
    """The resolver's choice between addresses: a datagram socket that sends nothing."""
    return line.startswith("connect") and "htons(0)" in line


@pytest.mark.spec("SEC-12")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("protocol", [ANTHROPIC, OPENAI, RESPONSES, GEMINI])
def test_a_run_with_tools_speaks_to_its_provider_only(
    trace: tuple[list[str], Path], tmp_path: Path, protocol: str
) -> None:
    steps = [
        call("bash", {"command": "echo a; git status; true"}),
        call("grep_files", {"pattern": "x"}),
        call("write_file", {"path": "f.txt", "content": "x"}),
        say("done"),
    ]
    with ModelServer(steps, strict=False) as server:
        done = subprocess.run(
            [*trace[0], *AGENT, "run", "--yolo", "hi"], env=agent_env(server, protocol),
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50,
            check=False,
        )  # fmt: skip
        assert done.stdout == "done\n", done.stderr
        wrong, ports = network_of(trace[1])
        assert wrong == []
        assert ports == {server.port}


@pytest.mark.spec("SEC-12")
@pytest.mark.timeout(60)
def test_the_chat_speaks_to_its_provider_only(
    trace: tuple[list[str], Path], tmp_path: Path
) -> None:
    with ModelServer([call("bash", {"command": "true"}), say("Answered.")], strict=False) as server:
        argv = [*trace[0], *AGENT, "--yolo"]
        with Terminal(argv, agent_env(server), tmp_path) as terminal:
            terminal.wait_for(IDLE, timeout=30)
            terminal.line("hello")
            terminal.wait_for("Answered.", timeout=30)
            terminal.wait_for(IDLE, timeout=30)
            leave(terminal)
        wrong, ports = network_of(trace[1])
        assert wrong == []
        assert ports == {server.port}


@pytest.mark.spec("SEC-12", "OPS-3")
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("args", "asks"),
    [
        (("doctor",), True),
        (("sessions",), False),
        (("config",), False),
        (("auth",), False),
        (("models", "--offline"), False),
        (("--version",), False),
        (("run", "--help"), False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands_speak_to_nobody_and_doctor_only_knocks_at_the_providers(
    trace: tuple[list[str], Path], tmp_path: Path, args: tuple[str, ...], asks: bool
) -> None:
    with ModelServer() as server:
        subprocess.run(
            [*trace[0], *AGENT, *args], env=agent_env(server), cwd=tmp_path,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=50, check=False,
        )  # fmt: skip
        wrong, ports = network_of(trace[1])
        assert wrong == []
        assert ports == ({server.port} if asks else set())
        assert server.requests == []


@pytest.mark.spec("SEC-12", "CLI-10")
@pytest.mark.timeout(60)
def test_without_a_key_only_servers_of_this_machine_are_asked(
    trace: tuple[list[str], Path], tmp_path: Path
) -> None:
    subprocess.run(
        [*trace[0], *AGENT, "run", "hi"], env=agent_env(), cwd=tmp_path,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=50, check=False,
    )  # fmt: skip
    wrong, ports = network_of(trace[1])
    assert wrong == []
    assert ports <= {9}  # where the tests' environment says that they are


def test_the_search_finds_what_it_is_for(trace: tuple[list[str], Path]) -> None:
    program = (
        "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen();"
        "c = socket.socket(); c.connect(s.getsockname());"
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.sendto(b'x', ('192.0.2.1', 53))"
    )
    subprocess.run([*trace[0], AGENT[0], "-c", program], check=False, timeout=20)
    wrong, ports = network_of(trace[1])
    assert {line.partition("(")[0] for line in wrong} >= {"bind", "listen", "sendto"}
    assert len(ports) == 1
