"""A canary in every place where a key may stand; then everything that was written is searched."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.chat import IDLE, leave
from tests.security.canary import IN_ADDRESS, IN_ENVIRONMENT, IN_STORE, found_in, leaks
from tests.support.cli import AGENT, Finished, agent_env, run_agent
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import Reply, call, say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.slow

ECHO = json.dumps({"type": "error", "error": {
    "type": "authentication_error",
    "message": f"Incorrect API key provided: {IN_ENVIRONMENT} ({quote(IN_ENVIRONMENT)},"
    f" {b64encode(IN_ENVIRONMENT.encode()).decode()}, {IN_ENVIRONMENT!r}) {IN_STORE}",
}}).encode()  # fmt: skip
JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}
FAULTS = {
    "401": Reply(status=401, body=ECHO, headers=JSON),
    "400": Reply(status=400, body=ECHO, headers=JSON),
    "500": Reply(status=500, body=b"<html>" + ECHO + b"</html>", headers={"x-should-retry": "false"}),
    "429": Reply(status=429, body=ECHO, headers=JSON | {"retry-after": "9999"}),
    "redirect": Reply(status=302, body=ECHO, headers={"location": f"/?key={quote(IN_ENVIRONMENT)}"}),
    "not json": Reply(status=200, body=IN_ENVIRONMENT.encode(), headers=SSE),
    "event": Reply(status=200, body=b"event: error\ndata: " + ECHO + b"\n\n", headers=SSE),
    "status line": Reply(status=418, body=IN_ENVIRONMENT.encode()),
}  # fmt: skip


@pytest.fixture
def own_home(home: Path) -> Path:
    """A home with a stored key, and an address with a password in the configuration."""
    place = home / "agentcli"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text(
        f'[providers.proxied]\nkind = "openai"\nbase_url = "http://me:{IN_ADDRESS}@127.0.0.1:9/v1"\n'
    )
    row = {"in": "file", "key": IN_STORE}
    (place / "credentials.json").write_text(
        json.dumps({"version": 1, "providers": {"openai": row}})
    )
    return place


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def canary_env(server: ModelServer, tmp_path: Path, **more: str | None) -> dict[str, str]:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    env = agent_env(server, ANTHROPIC, TMPDIR=str(scratch), OPENAI_API_KEY=None)
    env |= {"ANTHROPIC_API_KEY": IN_ENVIRONMENT}
    return {**env, **{name: value for name, value in more.items() if value is not None}}


def assert_nowhere(tmp_path: Path, own_home: Path, *runs: Finished) -> None:
    for done in runs:
        assert not found_in(done.stdout), (done.args, done.stdout)
        assert not found_in(done.stderr), (done.args, done.stderr)
        assert "Traceback" not in done.stderr
    own = [own_home / "config.toml", own_home / "credentials.json"]
    assert leaks(own_home.parent, own) == {}
    assert leaks(tmp_path / "scratch") == {}
    assert leaks(tmp_path / "logs") == {}


def looked_at(env: dict[str, str], work: Path, tmp_path: Path) -> list[Finished]:
    """Everything that shows what is stored."""
    logs = tmp_path / "logs"
    logs.mkdir(exist_ok=True)
    sessions = json.loads(run_agent("sessions", "list", "--format", "json", env=env).stdout)
    done = [run_agent("sessions", "list", env=env), run_agent("sessions", "search", "key", env=env)]
    for session in sessions:
        done.append(run_agent("sessions", "show", session["id"], env=env))
        for kind in ("json", "md", "html"):
            done.append(run_agent("sessions", "export", session["id"], "--format", kind, env=env))
            name = str(logs / f"{session['id']}.{kind}")
            run_agent("sessions", "export", session["id"], "--format", kind, "-o", name, env=env)
        assert json.loads((logs / f"{session['id']}.json").read_text())["format"]
    return done


@pytest.mark.spec("SEC-9", "STR-1")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("output", ["text", "stream-json"])
def test_a_service_that_says_the_key_gives_it_to_nobody(
    tmp_path: Path, own_home: Path, work: Path, fault: str, output: str
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    with ModelServer(default=FAULTS[fault], strict=False) as server:
        env = canary_env(server, tmp_path)
        options = ("-o", output, "--timeout", "2", "--verbose", "--debug", str(logs / "debug"))
        done = run_agent("run", *options, "hi", env=env, cwd=work)
        assert server.requests[0].headers["x-api-key"] == IN_ENVIRONMENT
    assert done.code != 0
    assert done.stderr
    assert_nowhere(tmp_path, own_home, done)


@pytest.mark.spec("SEC-9", "SEC-8")
def test_what_tools_print_is_stored_and_shown_without_keys(
    tmp_path: Path, own_home: Path, work: Path
) -> None:
    (work / "leak.txt").write_text(
        "\n".join([IN_ENVIRONMENT, IN_STORE, quote(IN_STORE, safe=""), repr(IN_ADDRESS),
                   b64encode(f"me:{IN_ENVIRONMENT}".encode()).decode(), "the end"])
    )  # fmt: skip
    steps = [
        call("bash", {"command": "env; cat leak.txt"}),
        call("read_file", {"path": "leak.txt"}),
        call("grep_files", {"pattern": "sk-"}),
        call("bash", {"command": f"echo {IN_ENVIRONMENT} >&2; exit 3"}),
        call("bash", {"command": 'yes "$(cat leak.txt)" | head -c 300000'}),
        call("edit_file", {"path": "leak.txt", "old_string": "the end", "new_string": IN_STORE}),
        call(f"no_{IN_STORE}", {"key": IN_STORE}, id=IN_ENVIRONMENT),
        call("bash", raw='{"command": "' + IN_STORE),
        say(f"Your key is {IN_STORE}, and {IN_ENVIRONMENT}."),
    ]  # fmt: skip
    with ModelServer(steps, strict=False) as server:
        env = canary_env(server, tmp_path)
        logs = tmp_path / "logs"
        logs.mkdir()
        done = run_agent(
            "run", "--yolo", "-o", "stream-json", "--debug", str(logs / "debug"),
            f"is {IN_STORE} my key?", env=env, cwd=work,
        )  # fmt: skip
        assert done.result["subtype"] == "success", done.stderr
        assert len(server.requests) == len(steps)
        shown = facts_of(server.requests[1]).results
        (first,) = shown.values()
        names = [line.partition("=")[0] for line in first.splitlines()]
        assert "PATH" in names
        assert not {"ANTHROPIC_API_KEY", "OPENAI_API_KEY"} & set(names)
        server.restart(say(f"Yes: {IN_ENVIRONMENT}"))
        text = run_agent("run", "-c", "say it", env=env, cwd=work)
        assert "[redacted]" in text.stdout
    assert_nowhere(tmp_path, own_home, done, text, *looked_at(env, work, tmp_path))


@pytest.mark.spec("SEC-9")
def test_commands_that_tell_of_the_configuration_tell_no_key(
    tmp_path: Path, own_home: Path, work: Path
) -> None:
    with ModelServer(strict=False) as server:
        env = canary_env(server, tmp_path, HTTPS_PROXY=f"http://me:{IN_ADDRESS}@127.0.0.1:9")
        runs = [
            run_agent(*args, env=env, cwd=work)
            for args in (
                ("doctor",),
                ("doctor", "--format", "json"),
                ("config", "show"),
                ("config", "show", "--format", "json"),
                ("config", "get", "providers.proxied.base_url"),
                ("config", "set", "providers.proxied.base_url", f"http://u:{IN_ADDRESS}@127.0.0.1:9/v1"),
                ("config", "set", "model", IN_ENVIRONMENT),
                ("auth", "status"),
                ("auth", "status", "--format", "json"),
                ("models",),
                ("run", "-m", "proxied/x", "--timeout", "1", "hi"),
                ("run", "-m", f"proxied/{IN_STORE}", "--timeout", "1", "hi"),
                ("run", "-C", f"/{IN_ENVIRONMENT}", "hi"),
                ("run", "--effort", IN_ENVIRONMENT, "hi"),
                ("run", f"--{IN_ENVIRONMENT}", "hi"),
                ("sessions", "show", IN_STORE),
                (IN_ENVIRONMENT.replace("/", ""), "--help"),
            )
        ]  # fmt: skip
    assert_nowhere(tmp_path, own_home, *runs)


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("text", ["model = 'x", "[providers.openai]\napi_key = '{}'\n", "x = '{}'\n",
                                  "effort = '{}'\n"])  # fmt: skip
def test_a_key_in_a_broken_configuration_is_not_told(
    tmp_path: Path, own_home: Path, work: Path, text: str
) -> None:
    (own_home / "config.toml").write_text(text.replace("{}", IN_ENVIRONMENT))
    with ModelServer(strict=False) as server:
        env = canary_env(server, tmp_path)
        runs = [
            run_agent(*args, env=env, cwd=work)
            for args in (("config", "show"), ("doctor",), ("run", "hi"), ("auth",))
        ]
    assert_nowhere(tmp_path, own_home, *runs)


@pytest.mark.spec("SEC-9")
def test_a_connection_that_is_refused_does_not_tell_the_password_of_its_address(
    tmp_path: Path, own_home: Path, work: Path
) -> None:
    with ModelServer(strict=False) as server:
        env = canary_env(server, tmp_path, ANTHROPIC_BASE_URL=f"http://me:{IN_ADDRESS}@127.0.0.1:9")
    logs = tmp_path / "logs"
    logs.mkdir()
    done = run_agent("run", "--timeout", "1", "--debug", str(logs / "d"), "hi", env=env, cwd=work)
    assert done.code != 0
    assert "127.0.0.1:9" in done.stderr
    assert_nowhere(tmp_path, own_home, done)


@pytest.mark.spec("SEC-9")
def test_a_hook_that_fails_loudly_tells_no_key(tmp_path: Path, own_home: Path, work: Path) -> None:
    (own_home / "config.toml").write_text(
        "[[hooks.PreToolUse]]\nhooks = [{ type = 'command', command = "
        "'cat leak.txt; cat leak.txt >&2; env >&2; exit 1' }]\n"
        "[[hooks.PostToolUse]]\nhooks = [{ type = 'command', command = 'cat leak.txt >&2; exit 2' }]\n"
    )
    (work / "leak.txt").write_text(f"{IN_ENVIRONMENT}\n{IN_STORE}\n")
    steps = [call("bash", {"command": "true"}), say("done")]
    with ModelServer(steps, strict=False) as server:
        env = canary_env(server, tmp_path)
        logs = tmp_path / "logs"
        logs.mkdir()
        done = run_agent(
            "run", "--yolo", "--debug", str(logs / "d"), "--verbose", "hi", env=env, cwd=work
        )
    assert done.stdout == "done\n", done.stderr
    assert_nowhere(tmp_path, own_home, done, *looked_at(env, work, tmp_path))


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize(
    "command", ["curl -H 'Authorization: Bearer {}' x", "A_TOKEN={} make", "curl --api-key={} x"]
)
def test_the_key_in_a_hook_s_own_command_is_not_told(
    tmp_path: Path, own_home: Path, work: Path, command: str
) -> None:
    key = "Canary0a9b8c7d6e5f4a3b2c"
    text = json.dumps(f"make; {command.format(key)}; exit 3")
    (own_home / "config.toml").write_text(f"[[hooks.SessionStart]]\ncommand = {text}\n")
    with ModelServer([say("done")], strict=False) as server:
        env = canary_env(server, tmp_path)
        done = run_agent("run", "--debug", str(tmp_path / "d"), "hi", env=env, cwd=work)
    assert "of your hooks runs in the sandbox" in done.stderr
    logs = [*own_home.rglob("*.log"), tmp_path / "d"]
    assert key not in done.stderr + "".join(path.read_text() for path in logs)


@pytest.mark.spec("SEC-9", "UI-3")
def test_the_chat_keeps_no_key_that_was_typed_printed_or_echoed(
    tmp_path: Path, own_home: Path, work: Path
) -> None:
    pattern = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    replies = [call("bash", {"command": "cat leak.txt"}), say("It is there."), FAULTS["401"]]
    (work / "leak.txt").write_text(IN_ENVIRONMENT)
    with ModelServer(replies, strict=False) as server:
        env = canary_env(server, tmp_path)
        logs = tmp_path / "logs"
        logs.mkdir()
        argv = [*AGENT, "--yolo", "--debug", str(logs / "debug")]
        with Terminal(argv, env, work, 40, 120) as terminal:
            terminal.wait_for(IDLE)
            terminal.line(f"is {IN_ENVIRONMENT} or {pattern} right?")
            terminal.wait_for("It is there.")
            terminal.wait_for(IDLE)
            terminal.line("again")
            terminal.wait_for(re.compile("refused access"))
            terminal.wait_for(IDLE)
            for kind in ("md", "json", "html"):
                terminal.line(f"/export {kind} {logs}/chat.{kind}")
                terminal.wait_for(f"chat.{kind}")
                terminal.wait_for(IDLE)
            leave(terminal)
        assert "[redacted]" in (own_home / "history").read_text()
        assert pattern not in (own_home / "history").read_text()
        for kind in ("md", "json", "html"):
            exported = (logs / f"chat.{kind}").read_text()
            assert "[redacted]" in exported
            assert pattern not in exported
        assert_nowhere(tmp_path, own_home, *looked_at(env, work, tmp_path))


@pytest.mark.spec("SEC-8")
def test_a_command_sees_no_key_in_its_own_environment_or_its_guards(
    tmp_path: Path, own_home: Path, work: Path
) -> None:
    script = "env; tr '\\0' '\\n' < /proc/$$/environ; tr '\\0' '\\n' < /proc/$PPID/environ"
    with ModelServer([call("bash", {"command": script}), say("done")], strict=False) as server:
        env = canary_env(server, tmp_path, OPENAI_API_KEY=IN_STORE)
        done = run_agent("run", "--yolo", "hi", env=env, cwd=work)
        assert done.stdout == "done\n", done.stderr
        (output,) = facts_of(server.requests[1]).results.values()
    assert "PATH=" in output
    assert not found_in(output), output
