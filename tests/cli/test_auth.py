"""``agent auth``: keys are stored, used, told of and forgotten, and never shown."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import termios
from pathlib import Path

import pytest

from tests.support.cli import AGENT, MODELS, Finished, agent_env, run_agent
from tests.support.keyrings import fake_keyring, kept_in
from tests.support.model_server import ANTHROPIC, OPENAI, RESPONSES, ModelServer
from tests.support.processes import alive, wait_until
from tests.support.pty_driver import Terminal
from tests.support.work_processes import commands_below

pytestmark = pytest.mark.sampled

CANARY = "sk-canary-0123456789-abcdef"


def auth(*args: str, key: str | None = None, **env: str | None) -> Finished:
    done = run_agent("auth", *args, input=key, env=agent_env(**env))
    assert CANARY not in done.stdout + done.stderr
    return done


def without_key(
    server: ModelServer, protocol: str = ANTHROPIC, **more: str | None
) -> dict[str, str]:
    none = {"ANTHROPIC_API_KEY": None, "OPENAI_API_KEY": None, "GEMINI_API_KEY": None}
    return agent_env(server, protocol, **{**none, **more})


def sent_keys(server: ModelServer) -> set[str]:
    found = set()
    for request in server.requests:
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "")
        found.add(key.removeprefix("Bearer "))
    return found


@pytest.fixture
def credentials(home: Path) -> Path:
    return home / "agentcli/credentials.json"


@pytest.mark.slow
@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("kind", ["works", "fail", "missing"])
def test_a_stored_key_is_used_told_and_forgotten(
    tmp_path: Path, credentials: Path, kind: str
) -> None:
    keyring = fake_keyring(tmp_path, kind)
    done = auth("login", "anthropic", "--stdin", key=f"  {CANARY}\n", **keyring)
    assert done.code == 0
    assert stat.S_IMODE(credentials.stat().st_mode) == 0o600
    in_keyring = kind == "works"
    assert (CANARY in credentials.read_text()) is not in_keyring
    assert ("the OS keyring is not used" in done.stderr) is not in_keyring
    with ModelServer(["hello"]) as server:
        ran = run_agent("run", "hi", env=without_key(server, **keyring))
        assert (ran.code, ran.stdout) == (0, "hello\n"), ran.stderr
        assert sent_keys(server) == {CANARY}
    (row,) = json.loads(auth("status", "--format", "json", **keyring).stdout)
    assert (row["provider"], row["source"]) == ("anthropic", "keyring" if in_keyring else "file")
    assert row["ends_with"] == (None if in_keyring else "cdef")
    assert "forgotten" in auth("logout", "anthropic", **keyring).stderr
    assert not credentials.exists()
    assert kept_in(Path(keyring["KEYRING_FILE"])) == {}
    assert json.loads(auth("status", "--format", "json", **keyring).stdout) == []


@pytest.mark.slow
@pytest.mark.spec("SEC-9", "CLI-10")
def test_the_environment_wins_over_what_is_stored_and_the_keyring_is_left_alone(
    tmp_path: Path,
) -> None:
    auth("login", "anthropic", "--stdin", key=CANARY, **fake_keyring(tmp_path))
    hanging = fake_keyring(tmp_path, "hangs")
    with ModelServer(["hello"]) as server:
        env = agent_env(server, **{**hanging, "ANTHROPIC_API_KEY": "sk-env-0123456789"})
        assert run_agent("run", "hi", env=env).code == 0
        assert sent_keys(server) == {"sk-env-0123456789"}
        (row,) = json.loads(
            run_agent("auth", "status", "anthropic", "--format", "json", env=env).stdout
        )
        assert row["source"] == "ANTHROPIC_API_KEY (environment)"
        assert row["stored"] == "keyring"


@pytest.mark.spec("CLI-10")
def test_a_stored_key_makes_its_provider_the_default() -> None:
    auth("login", "openai", "--stdin", "--file", key=CANARY)
    with ModelServer(["hello"]) as server:
        env = without_key(server, RESPONSES, AGENTCLI_MODEL=None, OPENAI_BASE_URL=None)
        models = run_agent("models", "--offline", "--format", "json", env=env)
        (default,) = [row for row in json.loads(models.stdout) if row["default"]]
        assert (default["id"].partition("/")[0], default["ready"]) == ("openai", True)


@pytest.mark.spec("SEC-9")
@pytest.mark.parametrize("protocol", [OPENAI, RESPONSES])
def test_one_account_by_two_names_has_one_key(protocol: str) -> None:
    auth("login", "openai-responses", "--stdin", "--file", key=CANARY)
    with ModelServer(["hello"]) as server:
        assert run_agent("run", "hi", env=without_key(server, protocol)).code == 0
        assert sent_keys(server) == {CANARY}


@pytest.mark.spec("SEC-1", "SEC-9")
def test_a_stored_key_never_goes_to_an_address_that_a_repository_names(tmp_path: Path) -> None:
    auth("login", "anthropic", "--stdin", "--file", key=CANARY)
    with ModelServer(["hello"], strict=False) as evil, ModelServer(default="hello") as own:
        url = evil.base_url(ANTHROPIC)
        config = f'[providers.anthropic]\nbase_url = "{url}"\n'
        for name in (".agents", ".agentcli", "agentcli"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "config.toml").write_text(config)
        (tmp_path / ".env").write_text(f"ANTHROPIC_BASE_URL={url}\nOPENAI_BASE_URL={url}\n")
        for option in ((), ("--trust",)):
            done = run_agent("run", *option, "hi", env=without_key(own), cwd=tmp_path)
            assert done.stdout == "hello\n", done.stderr
        assert evil.requests == []


@pytest.mark.slow
@pytest.mark.spec("SEC-1")
def test_a_key_for_a_provider_of_ones_own_goes_where_the_own_configuration_says(home: Path) -> None:
    with ModelServer(["hello"]) as server:
        (home / "agentcli").mkdir()
        (home / "agentcli/config.toml").write_text(
            f'[providers.mine]\nkind = "openai"\nbase_url = "{server.base_url(OPENAI)}"\n'
        )
        assert auth("login", "mine", "--stdin", "--file", key=CANARY).code == 0
        env = without_key(server, OPENAI, AGENTCLI_MODEL="mine/gpt-4.1")
        assert run_agent("run", "hi", env=env).code == 0
        assert sent_keys(server) == {CANARY}
    (home / "agentcli/config.toml").unlink()
    assert run_agent("doctor", env=without_key(server)).stdout.count("Traceback") == 0
    assert auth("status").code == 0


@pytest.mark.slow
@pytest.mark.spec("SEC-9", "CAN-1")
def test_a_keyring_that_has_lost_the_key_is_one_line_with_advice(tmp_path: Path) -> None:
    keyring = fake_keyring(tmp_path)
    auth("login", "anthropic", "--stdin", key=CANARY, **keyring)
    Path(keyring["KEYRING_FILE"]).unlink()
    with ModelServer([]) as server:
        done = run_agent("run", "hi", env=without_key(server, **keyring))
        assert done.code == 78
        assert done.stderr.count("\n") == 1
        assert "the keyring has no key of anthropic any more - agent auth login" in done.stderr
        assert server.requests == []


@pytest.mark.spec("SEC-9", "CLI-11")
@pytest.mark.parametrize(
    ("args", "key", "code", "says"),
    [
        (("login",), None, 2, "no provider was named"),
        (("login", "anthropic"), None, 2, "there is no terminal to ask for the key"),
        (("login", "anthropic", "--stdin"), "", 2, "no key was given"),
        (("login", "anthropic", "--stdin"), "a\nb", 78, "not a usable key"),
        (("login", "anthropic", "--stdin"), f"{CANARY}\n{CANARY}", 78, "not a usable key"),
        (("login", "antropic", "--stdin"), "k", 78, "did you mean anthropic"),
        (("login", CANARY), None, 2, "a key is not an argument"),
        (("login", "anthropic", CANARY), None, 2, "unexpected extra argument"),
        (("login", "offline", "--stdin"), "k", 2, "needs no key"),
        (("logout", "nothing"), None, 78, "there is no provider"),
        (("logout", "openai"), None, 0, "no stored key"),
        (("logout",), None, 0, "no stored key"),
        (("status", "openai"), None, 1, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_stores_nothing(
    credentials: Path, args: tuple[str, ...], key: str | None, code: int, says: str
) -> None:
    done = auth(*args, key=key)
    assert (done.code, done.stderr.count("\n")) == (code, 1 if says else 0), done.stderr
    assert says in done.stderr
    assert not credentials.exists()


@pytest.mark.spec("SEC-9")
def test_at_a_terminal_the_provider_is_asked_for_and_the_key_is_typed_unseen(
    credentials: Path, tmp_path: Path
) -> None:
    with Terminal([*AGENT, "auth", "login", "--file"], agent_env(), tmp_path) as terminal:
        terminal.wait_for("anthropic, openai, gemini")
        terminal.wait_for("Provider:")
        terminal.line(" Anthropic")
        terminal.wait_for("Key of anthropic (not shown):")
        modes = terminal.modes()
        modes[3] |= termios.ECHO  # as a shell has it, which goes on with a program after Ctrl-Z
        termios.tcsetattr(terminal._slave, termios.TCSANOW, modes)
        terminal.kill(signal.SIGCONT)
        terminal.wait_until(lambda: not terminal.modes()[3] & termios.ECHO)
        terminal.line(CANARY)
        assert terminal.wait_exit() == 0
        assert CANARY not in terminal.text()
        assert CANARY.encode() not in terminal.raw
        assert terminal.restored
    assert json.loads(credentials.read_text())["providers"]["anthropic"]["key"] == CANARY


@pytest.mark.spec("SEC-9", "CAN-13")
def test_ctrl_c_at_the_question_stores_nothing_and_gives_the_echo_back(
    credentials: Path, tmp_path: Path
) -> None:
    with Terminal([*AGENT, "auth", "login", "anthropic"], agent_env(), tmp_path) as terminal:
        terminal.wait_for("Key of anthropic (not shown):")
        terminal.key("ctrl-c")
        assert terminal.wait_exit() == 130
        assert terminal.restored
    assert not credentials.exists()


# has the terminal back with SIGUSR1, as a shell when the chat above a login was killed; the login
# waits for its line by then: who asks for one of a terminal that it has lost is stopped
_SHELL = """import os, signal, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
if not (pid := os.fork()):
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    os.execv(sys.argv[1], sys.argv[1:])
def waits():
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(") ")[2][0] == "S"
    except FileNotFoundError:
        return True
def take(*_):
    while not waits(): time.sleep(0.01)
    os.tcsetpgrp(0, os.getpgrp()); print("here again", flush=True)
signal.signal(signal.SIGUSR1, take)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.spec("SEC-9")
def test_a_line_for_another_program_is_no_key(credentials: Path, tmp_path: Path) -> None:
    login = [sys.executable, "-c", _SHELL, *AGENT, "auth", "login", "anthropic", "--file"]
    with Terminal(login, agent_env(), tmp_path) as terminal:
        terminal.wait_for("Key of anthropic (not shown):")
        terminal.kill(signal.SIGUSR1)
        terminal.wait_for("here again")
        terminal.line("ls")
        assert terminal.wait_exit() != 0
    assert not credentials.exists()


@pytest.mark.spec("OPS-1", "REC-8")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells that a parent has ended")
def test_a_login_ends_with_the_chat_that_has_started_it(tmp_path: Path) -> None:
    chat = """'echo $$ >chat; "$@"; true'"""
    shell = f'sh -c {chat} chat "$@"; echo it was killed; read -r line; echo "for the shell: $line"'
    login = ["/bin/sh", "-c", shell, "sh", *AGENT, "auth", "login", "anthropic", "--file"]
    with Terminal(login, agent_env(), tmp_path) as terminal:
        terminal.wait_for("Key of anthropic (not shown):")
        running = commands_below(tmp_path).items()
        (asks,) = [pid for pid, line in running if line.startswith(AGENT[0])]
        os.kill(int((tmp_path / "chat").read_text()), signal.SIGKILL)
        terminal.wait_for("it was killed")
        wait_until(lambda: not alive(asks), "the login still waits for a key")
        terminal.line("ls")
        terminal.wait_for("for the shell: ls")


@pytest.mark.slow
def test_several_keys_are_forgotten_by_name_or_all_at_once(credentials: Path) -> None:
    for name in ("anthropic", "openai"):
        auth("login", name, "--stdin", "--file", key=CANARY)
    assert "name one of them" in auth("logout").stderr
    assert auth("logout", "openai").code == 0
    assert list(json.loads(credentials.read_text())["providers"]) == ["anthropic"]
    assert auth("logout", "--all").code == 0
    assert not credentials.exists()


@pytest.mark.spec("SEC-9")
def test_a_damaged_file_is_a_warning_and_the_environment_still_serves(credentials: Path) -> None:
    credentials.parent.mkdir()
    credentials.write_text("{")
    with ModelServer(["hello"]) as server:
        done = run_agent("run", "hi", env=agent_env(server))
    assert (done.code, done.stdout) == (0, "hello\n")
    assert "credentials.json is damaged" in done.stderr
    assert os.path.getsize(credentials) == 1


@pytest.mark.spec("SEC-9")
def test_no_keyring_is_imported_on_the_way_to_a_request(tmp_path: Path) -> None:
    auth("login", "anthropic", "--stdin", "--file", key=CANARY)
    probe = (
        "import sys; from agentcli.cli.main import main;"
        "code = main(sys.argv[1:]);"
        "sys.exit(code or any(n.partition('.')[0] in ('keyring', 'getpass') for n in sys.modules))"
    )
    import subprocess

    with ModelServer(["hello"]) as server:
        done = subprocess.run(
            [sys.executable, "-c", probe, "run", "-m", MODELS[ANTHROPIC], "hi"],
            env=without_key(server), cwd=tmp_path, capture_output=True, timeout=20, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert sent_keys(server) == {CANARY}
