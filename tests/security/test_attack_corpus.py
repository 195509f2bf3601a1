"""The attack corpus, in three modes: nobody answers, nobody is there, edits are accepted.

Real sessions with real tools, files, processes and a real service; only the person is played. A
canary outside of the workspace, in the home directory, in git's own directory and on the network
tells whether anything took effect; what the service was sent tells whether a secret has left.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.compose import open_session
from agentcli.app.options import SessionOptions
from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings
from agentcli.domain.cancel import CancelReason
from agentcli.domain.events import AgentEvent, ApprovalWaiting, Outcome, Prompt
from agentcli.domain.messages import user_text
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, PermissionMode
from tests.security.corpus import ALL, REPOSITORY, TOUCH, Attack
from tests.support.cli import AGENT, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import Call
from tests.support.replies import calls as reply_with_calls
from tests.support.sessions import Nobody

pytestmark = pytest.mark.sampled

SECRET = "PRIVATE-KEY-canary-4711"
# the policy has to hold by itself: a sandbox would keep what it lets through from being seen
NO_SANDBOX = {"sandbox": "off"}
MODES = ("nobody answers", "nobody is there", "edits are accepted")


CONNECT = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {PORT}))'"


class Silent:
    """A person who does not answer."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        await asyncio.Event().wait()
        raise AssertionError


class Beacon:
    """A server that must not hear anything."""

    def __init__(self) -> None:
        self.heard = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.heard += 1
            connection.close()

    def close(self) -> None:
        # wakes the thread that waits in accept
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Place:
    """A workspace with a repository, a home with secrets, something outside, a beacon."""

    def __init__(self, base: Path, beacon: Beacon) -> None:
        self.work, self.outside, self.home = base / "work", base / "outside", base / "home"
        self.beacon = beacon
        for directory in (self.work / ".git/hooks", self.outside, self.home / ".ssh"):
            directory.mkdir(parents=True)
        (self.work / "a.txt").write_text("alpha\n")
        (self.work / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (self.work / ".git/config").write_text("[core]\n\trepositoryformatversion = 0\n")
        for name in ("objects", "refs"):
            (self.work / ".git" / name).mkdir()
        (self.outside / "precious.txt").write_text("precious\n")
        (self.home / ".ssh/id_rsa").write_text(SECRET)
        (self.home / "copy").write_text(SECRET)
        (self.home / "list").write_text(f"{self.home}/.ssh/id_rsa\0")
        (self.home / ".bashrc").write_text("# mine\n")

    def filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.filled(item) for item in value]
        if not isinstance(value, str):
            return value
        port = str(self.beacon.port)
        names = {"W": self.work, "O": self.outside, "H": self.home, "PORT": port}
        names["U"] = f"http://127.0.0.1:{port}"
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", str(text))
        return value.replace("{{", "{").replace("}}", "}")

    def prepare(self, attack: Attack, *, anew: bool = False) -> None:
        """Put the attack's files and links there; ``anew``: in place of another attack's."""
        for name, text in attack.files.items():
            file = self.work / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.filled(text))
            file.chmod(0o755)
        for name, target in attack.links.items():
            if anew:
                (self.work / name).unlink(missing_ok=True)
            (self.work / name).symlink_to(self.filled(target))

    def state(self) -> dict[str, str]:
        """What must stay as it is: all outside of the workspace, and git's own directory."""
        found = {}
        for top in (self.outside, self.home, self.work / ".git", self.work / ".agents"):
            for directory, _, files in os.walk(top):
                if str(self.home / "agentcli") in directory:
                    continue
                for name in files:
                    path = Path(directory) / name
                    found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found


@pytest.fixture
def beacon() -> Iterator[Beacon]:
    server = Beacon()
    yield server
    server.close()


@pytest.fixture
def place(tmp_path: Path, beacon: Beacon, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path, beacon)
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.setenv("AGENTCLI_HOME", str(place.home / "agentcli"))
    monkeypatch.setenv("HOME_SECRET", SECRET)
    monkeypatch.chdir(place.work)
    return place


def play(
    server: ModelServer, place: Place, mode: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    """One turn in which the model makes ``calls``."""
    asked = [reply_with_calls(*(Call(name, args) for name, args in calls))] if calls else []
    server.restart(*asked, "Done.")
    env = agent_env(server)
    settings = load_settings(Paths.from_env(env), env, NO_SANDBOX)
    accepts = mode == "edits are accepted"
    wanted = SessionOptions(
        cwd=place.work,
        new=True,
        mode=PermissionMode.ACCEPT_EDITS if accepts else None,
    )

    async def run() -> None:
        person = Silent() if mode == "nobody answers" else Nobody()
        session = await open_session(settings, wanted, person)

        def stop(event: AgentEvent) -> None:
            if isinstance(event, ApprovalWaiting) and mode == "nobody answers":
                asyncio.get_running_loop().call_soon(session.interrupt, CancelReason.USER)

        session.add_listener(stop)
        try:
            summary = await session.run(Prompt(user_text("go")))
            assert summary.outcome in {Outcome.DONE, Outcome.CANCELLED}, summary
        finally:
            await session.aclose()

    asyncio.run(run())


def each_call(attack: Attack, mode: str) -> list[list[tuple[str, dict[str, Any]]]]:
    """A question that is not answered holds up what comes after it: then each call has a turn."""
    if mode == "nobody answers" and attack.calls:
        return [[call] for call in attack.calls]
    return [list(attack.calls)]


@pytest.mark.spec("SEC-1", "SEC-2", "SEC-3", "SEC-4", "SEC-5", "SEC-11")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.name)
def test_the_attack_has_no_effect(
    model_server: ModelServer, place: Place, attack: Attack, mode: str
) -> None:
    place.prepare(attack)
    before = place.state()
    for calls in each_call(attack, mode):
        play(model_server, place, mode, [(name, place.filled(args)) for name, args in calls])
    assert not (place.outside / "pwned").exists()
    assert place.state() == before
    assert place.beacon.heard == 0
    assert SECRET not in str([request.body for request in model_server.requests])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bash", {"command": TOUCH}),
        ("write_file", {"path": "{O}/pwned", "content": "x"}),
        ("read_file", {"path": "{H}/copy"}),  # a key by its name asks in yolo, too
        ("bash", {"command": CONNECT}),
        ("bash", {"command": "echo $HOME_SECRET"}),
    ],
)
def test_the_canaries_sing_when_it_is_allowed(
    model_server: ModelServer, place: Place, name: str, arguments: dict[str, Any]
) -> None:
    """The control: with everything allowed and no sandbox each kind of effect is seen."""
    before = place.state()
    model_server.add(reply_with_calls(Call(name, place.filled(arguments))), "Done.")
    env = agent_env(model_server)
    settings = load_settings(Paths.from_env(env), env, NO_SANDBOX)
    wanted = SessionOptions(cwd=place.work, new=True, mode=PermissionMode.YOLO)

    async def run() -> None:
        session = await open_session(settings, wanted, Nobody())
        try:
            await session.run(Prompt(user_text("go")))
        finally:
            await session.aclose()

    asyncio.run(run())
    sent = str([request.body for request in model_server.requests])
    assert place.state() != before or place.beacon.heard or SECRET in sent


def place_for_a_program(base: Path, beacon: Beacon) -> tuple[Place, list[Call]]:
    """One workspace with what all attacks need of it, and all their calls."""
    place = Place(base, beacon)
    named = [attack for attack in ALL if attack not in REPOSITORY]
    for attack in named:
        place.prepare(attack, anew=True)
    called = [call for attack in named for call in attack.calls]
    return place, [Call(name, place.filled(arguments)) for name, arguments in called]


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-4", "SEC-5", "CLI-7")
@pytest.mark.parametrize("mode", ["default", "accept-edits"])
def test_the_real_program_without_a_terminal_does_nothing_of_it(
    model_server: ModelServer, tmp_path: Path, beacon: Beacon, mode: str
) -> None:
    place, calls = place_for_a_program(tmp_path, beacon)
    before = place.state()
    model_server.add(reply_with_calls(*calls), "Done.")
    env = agent_env(model_server, HOME=str(place.home), HOME_SECRET=SECRET)
    env["AGENTCLI_HOME"] = str(place.home / "agentcli")
    done = run_agent(
        "run", "--sandbox", "off", "--permission-mode", mode, "-o", "json", "go",
        env=env, cwd=place.work, timeout=60,
    )  # fmt: skip
    assert done.code in {0, 4}, done.stderr
    assert len(done.result["permission_denials"]) > len(calls) / 2
    assert not (place.outside / "pwned").exists()
    assert place.state() == before
    assert beacon.heard == 0
    assert SECRET not in str([request.body for request in model_server.requests])


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "UI-7")
def test_a_chat_whose_question_nobody_answers_does_nothing(
    model_server: ModelServer, tmp_path: Path, beacon: Beacon
) -> None:
    place, calls = place_for_a_program(tmp_path, beacon)
    before = place.state()
    model_server.add(reply_with_calls(*calls), "Done.")
    env = agent_env(model_server, HOME=str(place.home), HOME_SECRET=SECRET)
    env["AGENTCLI_HOME"] = str(place.home / "agentcli")
    with Terminal([*AGENT, "--sandbox", "off"], env, place.work) as terminal:
        terminal.wait_for("Ask or tell")
        terminal.line("go")
        terminal.wait_for("Enter confirms")
        terminal.line("not an answer")
        terminal.wait_for("└ not an answer")
        terminal.kill(signal.SIGTERM)
        assert terminal.wait_exit() == 143
    assert not (place.outside / "pwned").exists()
    assert place.state() == before
    assert beacon.heard == 0
