"""Hostile text in every place from which it may reach the terminal (SEC-10): nothing of it acts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, leave
from tests.support.cli import AGENT, agent_env, run_agent
from tests.support.model_server import OPENAI, ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import Reply, call, say

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # many starts of the program

# a title, a clipboard, a link, a colour, a cleared screen; 8-bit forms; DCS; reordering
HOSTILE = (
    "a\x1b]0;CANARY\x07b\x1b]52;c;Q0FOQVJZ\x07\x1b]8;;http://canary/\x07c\x1b[97;41md\x1b[2Je"
    "\x9b97;41mf\x9d0;CANARY\x9cg\x1bPqCANARY\x1b\\h\u202ei\x1b]777;notify;CANARY;x\x1b\\j\x1b[6nk"
)
TRACES = (
    b"\x1b]0;CANARY", b"\x1b]52;c;Q0FOQVJZ", b"\x1b]8;;http://canary", b"\x1b[97;41m", b"\x1b[2Je",
    "\x9b97".encode(), "\x9d0;".encode(), b"\x1bPq", "\u202e".encode(), b"\x1b]777;notify;CANARY",
    b"\x1b[6nk",
)  # fmt: skip
FILE_NAME = HOSTILE.replace("/", "-")


def acted(raw: bytes) -> list[bytes]:
    return [trace for trace in TRACES if trace in raw]


def at_terminal(*args: str, env: dict[str, str], cwd: Path) -> str:
    """What a command shows at a terminal, after it was looked through."""
    with Terminal([*AGENT, *args], env, cwd, 50, 200) as terminal:
        terminal.wait_exit()
        assert acted(bytes(terminal.raw)) == [], (args, terminal.text())
        return terminal.text()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (path / FILE_NAME).write_text(HOSTILE)
    return path


@pytest.fixture
def hostile_server() -> ModelServer:
    steps = [
        say(HOSTILE, thinking=HOSTILE),
        call("bash", {"command": f"printf %s '{HOSTILE}'; ls"}),
        call("read_file", {"path": FILE_NAME}),
        call(HOSTILE, {HOSTILE: HOSTILE}),
        call("edit_file", {"path": FILE_NAME, "old_string": HOSTILE, "new_string": HOSTILE * 2}),
        call("list_directory", {"path": "."}),
        call("bash", raw='{"command": "' + HOSTILE.replace("\x1b", "\\u001b")),
        say(f"# {HOSTILE}\n\n- [{HOSTILE}](http://x/{HOSTILE})\n\n```{HOSTILE}\n{HOSTILE}\n```\n"),
    ]
    return ModelServer(steps, strict=False)


@pytest.mark.spec("SEC-10")
def test_a_run_shows_hostile_text_without_its_sequences(
    hostile_server: ModelServer, work: Path
) -> None:
    with hostile_server as server:
        env = agent_env(server)
        at_terminal("run", "--yolo", HOSTILE.replace("\0", ""), env=env, cwd=work)
        at_terminal("run", "--yolo", "--verbose", "-c", "go on", env=env, cwd=work)
        for output in ("json", "stream-json"):
            server.restart(call("bash", {"command": f"printf %s '{HOSTILE}'"}), say(HOSTILE))
            at_terminal("run", "--yolo", "-o", output, "-c", "more", env=env, cwd=work)
        for args in (
            ("sessions",),
            ("sessions", "search", "CANARY"),
            ("sessions", "search", "notify", "--format", "json"),
            ("sessions", "list", "--format", "json"),
            ("sessions", "check"),
        ):
            at_terminal(*args, env=env, cwd=work)
        listed = subprocess.run(
            [*AGENT, "sessions", "list", "--format", "json"],
            env=env,
            capture_output=True,
            check=True,
        )
        for session in json.loads(listed.stdout):
            for kind in ("md", "json", "html"):
                at_terminal(
                    "sessions", "export", session["id"], "--format", kind, env=env, cwd=work
                )


@pytest.mark.spec("SEC-10", "CLI-4")
def test_a_pipe_gets_no_sequences_unless_it_asks_for_them(
    model_server: ModelServer, tmp_path: Path
) -> None:
    said = "a\x1b[31mred\x1b[0m \x1b]0;title\x07\u202eb\x9b2Jc\tüñ\n"
    model_server.default = say(said)
    env = agent_env(model_server)
    assert run_agent("run", "hi", env=env, cwd=tmp_path).stdout == "ared bc\tüñ\n"
    assert run_agent("run", "--raw", "hi", env=env, cwd=tmp_path).stdout == said
    for output in ("json", "stream-json"):
        done = run_agent("run", "-o", output, "hi", env=env, cwd=tmp_path)
        assert done.result["result"] == said.rstrip("\n") or done.result["result"] == said
        assert not set("\x1b\x07\x9b\u202e") & set(done.stdout)


@pytest.mark.spec("SEC-10", "CLI-11")
def test_errors_and_reports_show_hostile_names_without_their_sequences(
    work: Path, home: Path
) -> None:
    body = json.dumps({"error": {"message": HOSTILE, "type": HOSTILE, "code": HOSTILE}}).encode()
    faults = [Reply(status=400, body=body, headers={"content-type": "application/json"}),
              Reply(status=500, body=HOSTILE.encode(), headers={"x-should-retry": "false"}),
              Reply(status=200, body=b"data: " + body + b"\n\n",
                    headers={"content-type": "text/event-stream"})]  # fmt: skip
    hostile_directory = work / ("d" + FILE_NAME)
    hostile_directory.mkdir()
    with ModelServer(strict=False, models=[HOSTILE, "gpt-4.1"]) as server:
        env = agent_env(server, OPENAI)
        for fault in faults:
            server.restart(fault)
            at_terminal("run", "--timeout", "2", "hi", env=env, cwd=work)
        (home / "agentcli").mkdir(exist_ok=True)
        config = home / "agentcli/config.toml"
        for args in (
            ("models",),
            ("models", "--format", "json"),
            ("run", "-m", HOSTILE, "hi"),
            ("run", "-m", f"openai/{HOSTILE}", "--timeout", "2", "hi"),
            ("run", "-C", HOSTILE, "hi"),
            ("run", "--add-dir", HOSTILE, "hi"),
            ("run", "--verbose", "-C", str(hostile_directory), "--timeout", "2", "hi"),
            ("run", f"--{HOSTILE}", "hi"),
            ("run", "--tools", HOSTILE, "hi"),
            ("run", "--allow-tool", HOSTILE, "hi"),
            ("run", "--json-schema", FILE_NAME, "hi"),
            ("run", "-r", HOSTILE, "hi"),
            ("sessions", HOSTILE),
            ("sessions", "show", HOSTILE),
            ("sessions", "export", HOSTILE, "-o", FILE_NAME),
            ("config", "get", HOSTILE),
            ("config", "set", "model", HOSTILE),
            ("config", "set", "providers.x.base_url", f"http://{HOSTILE}"),
            ("config", "show"),
            ("config", "get", "model"),
            ("doctor",),
            ("auth", "login", HOSTILE),
            ("auth", "status", HOSTILE),
        ):
            at_terminal(*args, env=env, cwd=work)
        config.write_text(f'"{json.dumps(HOSTILE)[1:-1]}" = 1\n')
        for args in (("config", "show"), ("run", "hi"), ("doctor",), ("auth",), ("models",)):
            server.restart(say("x"))
            at_terminal(*args, env=env, cwd=work)
        os.rename(home / "agentcli", home / FILE_NAME)
        env["AGENTCLI_HOME"] = str(home / FILE_NAME)
        for args in (("config", "path"), ("config", "show"), ("doctor",), ("auth",)):
            at_terminal(*args, env=env, cwd=work)


@pytest.mark.spec("SEC-10", "SEC-6")
@pytest.mark.timeout(60)
def test_the_chat_shows_hostile_text_without_its_sequences(work: Path, home: Path) -> None:
    (home / "agentcli").mkdir()
    (home / "agentcli/config.toml").write_text('notifications = "desktop"\n')
    body = json.dumps({"error": {"message": HOSTILE, "type": "x"}}).encode()
    steps = [
        call("list_directory", {"path": "."}),
        call("read_file", {"path": FILE_NAME}),
        call(HOSTILE, {HOSTILE: HOSTILE}),
        call("bash", {"command": f"printf %s '{HOSTILE}'; ls; : '{HOSTILE}'"}),
        say(f"# {HOSTILE}\n\n[{HOSTILE}](http://x/{HOSTILE}) END"),
        Reply(status=400, body=body, headers={"content-type": "application/json"}),
    ]
    with ModelServer(steps, strict=False) as server:
        env = agent_env(server)
        with Terminal([*AGENT, "hello"], env, work, 50, 150) as terminal:
            terminal.confirm("y")
            terminal.wait_for("END")
            terminal.wait_for(IDLE)
            terminal.line("again")
            terminal.wait_for("rejected the request")
            terminal.wait_for(IDLE)
            terminal.line(f"/rename {HOSTILE}".replace("\x1b", "").replace("\x07", ""))
            terminal.wait_for(IDLE)
            for line in ("/context", "/usage", "/config", "/diff"):
                terminal.line(line)
                terminal.wait_for(IDLE)
            for line in ("/search notify", "/permissions"):
                terminal.line(line)
                terminal.wait_for("Esc leaves")
                terminal.key("esc")
                terminal.wait_for(IDLE)
            leave(terminal)
            assert acted(bytes(terminal.raw)) == [], terminal.text()
        with Terminal([*AGENT, "-c"], env, work, 50, 150) as terminal:
            terminal.wait_for(IDLE)
            terminal.wait_for(IDLE)
            leave(terminal)
            assert acted(bytes(terminal.raw)) == [], terminal.text()
        with Terminal([*AGENT, "-r"], env, work, 50, 150) as terminal:
            terminal.wait_for("Resume which session")
            terminal.key("esc")
            terminal.wait_until(
                lambda: terminal.process.poll() is not None or IDLE.search(terminal.text())
            )
            assert acted(bytes(terminal.raw)) == [], terminal.text()
