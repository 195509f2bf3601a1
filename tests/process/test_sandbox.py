"""What commands in a real sandbox can and cannot do: the escape attempts, and what still works."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.boundary import look_for_sandbox
from agentcli.domain import files
from agentcli.domain.cancel import CancelToken
from agentcli.domain.sandbox import Access, Confined, SandboxKind
from agentcli.domain.tools import OutputKind, Workspace
from agentcli.process import sandbox_watch
from agentcli.process.run import end_processes
from agentcli.process.sandbox import SessionSandbox
from agentcli.process.sandbox_places import OwnPlaces
from agentcli.tools.bash import TOOL
from tests.support.databases import opened
from tests.support.processes import guard_of, started, until
from tests.support.sandboxes import BOTH, Sandboxed, bash, needs, told
from tests.support.tool_context import text_of, tool_context

pytestmark = pytest.mark.sampled

both = pytest.mark.parametrize("kind", BOTH)
CANARY = "canary-7f3a"
# the interpreter itself: a virtual environment below /tmp is not seen inside
PYTHON = os.path.realpath(sys.executable)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace that is a git repository."""
    root = tmp_path / "work"
    subprocess.run(["git", "init", "-q", str(root)], check=True, cwd=tmp_path)
    return root


def named(text: str) -> list[str]:
    """The command lines of living processes that hold ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            shown = line.replace(b"\0", b" ").decode("utf-8", "replace")
            if text in shown:
                found.append(shown)
    return found


# --- escapes -------------------------------------------------------------------------------


@both
@pytest.mark.spec("SEC-5", "SEC-15")
def test_a_link_that_comes_up_before_the_start_leads_no_command_outside_elsewhere(
    work: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other := tmp_path / "other").mkdir()
    (work / "sub").mkdir()

    async def scenario() -> str:
        async with Sandboxed(work, kind) as inside:
            await inside.say("cd sub", access="outside")
            look = inside.sandbox.step_outside

            async def step_outside() -> tuple[str, ...]:
                (work / "sub").rename(work / "before")
                (work / "sub").symlink_to(other)
                return await look()

            with monkeypatch.context() as patch:
                patch.setattr(inside.sandbox, "step_outside", step_outside)
                return await inside.say("touch mark", access="outside")

    said = asyncio.run(scenario())
    assert "Cannot start" in said and f"{work}/sub" in said
    assert not any(other.iterdir())


@both
@pytest.mark.spec("SEC-7")
def test_nothing_outside_of_the_workspace_is_written(
    work: Path, tmp_path: Path, home: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "way-out").symlink_to(outside)
    targets = [outside / "a", home / "b", work / "way-out" / "c", Path("/usr/agentcli-was-here")]
    texts = told(
        work,
        *(f"echo x > {target}; echo x >> {target}; touch {target}" for target in targets),
        f"cd {outside} && echo x > d",
        f"ln {work}/.git/HEAD {outside}/e; mv {work}/.git/HEAD {outside}/f; echo x > {work}/in",
        kind=kind,
    )
    assert [target for target in targets if target.exists()] == []
    assert list(outside.iterdir()) == []
    assert (work / "in").read_text() == "x\n", texts
    assert 'run it again with access "outside"' in texts[3]


@pytest.mark.spec("SEC-7")
def test_what_git_runs_cannot_be_changed_nor_moved_away(work: Path) -> None:
    config = (work / ".git" / "config").read_text()
    texts = told(
        work,
        "echo 'touch pwned' > .git/hooks/pre-commit",
        "git config core.fsmonitor 'touch pwned'",
        "mv .git/hooks .git/h2; rm -rf .git/hooks; mv .git .git2; rm -rf .git",
        "mv ../work ../moved; cp -r .git /tmp/copy; echo x > /tmp/copy/hooks/pre-commit",
        "mkdir -p .agents/commands; echo x > .agents/config.toml",
        "echo /tmp/copy > .git/commondir",
    )
    hooks = {path.name for path in (work / ".git" / "hooks").iterdir()}
    assert all(name.endswith(".sample") for name in hooks), hooks
    assert (work / ".git" / "config").read_text() == config
    assert not (work / ".agents").exists()
    assert (work / ".agents.set-aside" / "config.toml").exists()
    assert "would take effect outside and was renamed to .agents.set-aside" in texts[4]
    assert not (work / ".git" / "commondir").exists()


@pytest.mark.spec("SEC-7")
def test_commits_branches_and_a_new_repository_work(tmp_path: Path, home: Path) -> None:
    (home / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.org\n")
    text = told(
        tmp_path,
        "git init -q . && echo 1 > f && git add f && git commit -qm one && git log --oneline",
        "git checkout -qb b && echo 2 > f && git commit -qam two && git stash list && git log -1",
        "git config user.name B || true",
        "git branch -d b 2>&1 || git switch -q - && git branch -D b",
    )
    assert "one" in text[0]
    assert "[exit code 0" in text[0]
    assert "two" in text[1]
    assert "could not write config file" in text[2]
    assert "where git's configuration and what other programs run stays as it is" in text[2]
    assert "Deleted branch b" in text[3] and "if what it left out is needed" in text[3]


@both
@pytest.mark.spec("SEC-7", "SEC-9")
def test_secrets_and_our_own_files_are_not_read(work: Path, home: Path, kind: str) -> None:
    own = home / "agentcli"
    secrets = [
        home / ".ssh" / "id_rsa",
        home / ".aws" / "credentials",
        home / ".config" / "gh" / "hosts.yml",
        home / ".netrc",
        home / ".git-credentials",
        home / ".mozilla" / "cookies",
        own / "credentials.json",
        own / "sessions" / "s.db",
    ]
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY)
    (home / "plain").write_text("readable\n")
    places = OwnPlaces((own,), (own / "credentials.json", own / "sessions"))
    names = " ".join(map(str, secrets))
    # the home directory may be the workspace, which Landlock cannot take a part of
    for root in (work, home) if kind == "bwrap" else (work,):
        (text,) = told(root, f"cat {names}; cat {home}/*/* {home}/.*/*", kind=kind, own=places)
        assert CANARY not in text
    for path in secrets:
        assert path.read_text() == CANARY
    (text,) = told(home, "cat plain", kind=kind, own=places)
    assert text.startswith("readable\n")


@pytest.mark.spec("SEC-7")
def test_in_a_home_directory_start_up_files_and_our_files_stay_as_they_are(home: Path) -> None:
    own = home / "agentcli"
    sessions = own / "sessions"
    sessions.mkdir(parents=True)
    database = sessions / "s.db"
    with opened(database) as connection:
        connection.execute("create table t(x)")
    before = database.read_bytes()
    (home / ".bashrc").write_text("# mine\n")
    texts = told(
        home,
        "echo 'touch pwned' >> .bashrc; echo x > .profile; mkdir .ssh && echo key > .ssh/authorized_keys",
        f"echo broken > {database}; rm -rf {own}; echo 'model = \"x/y\"' > {own}/config.toml",
        own=OwnPlaces((own,), (sessions,)),
    )
    assert (home / ".bashrc").read_text() == "# mine\n"
    assert not (home / ".profile").exists()
    assert not (home / ".ssh").exists(), texts
    assert database.read_bytes() == before
    assert not (own / "config.toml").exists()


@pytest.mark.spec("SEC-3", "SEC-7", "SEC-18")
def test_the_accounts_own_home_is_a_home_directory_wherever_home_leads(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account"
    (account / ".ssh").mkdir(parents=True)
    (account / ".ssh" / "id_rsa").write_text(CANARY)
    (account / ".bashrc").write_text("# mine\n")
    monkeypatch.setattr(files, "_of_account", lambda _: (str(account),))
    assert "home directory" in look_for_sandbox(account, "landlock").problem
    reads = "import os; print(open(os.path.join('.ssh', 'id_' + 'rsa')).read())"
    texts = told(
        account, f'/usr/bin/env python3 -c "{reads}"', "echo x >> .bashrc; echo x > .zshrc"
    )
    assert CANARY not in texts[0]
    assert (account / ".bashrc").read_text() == "# mine\n", home
    assert not (account / ".zshrc").exists(), texts


@pytest.mark.spec("SEC-7", "SEC-9")
def test_in_a_home_directory_nothing_protected_is_moved_to_where_it_is_not(home: Path) -> None:
    own, state = home / ".config" / "agentcli", home / ".local" / "state" / "agentcli"
    for file in (home / ".config" / "gh" / "hosts.yml", own / "config.toml", state / "seal.key"):
        file.parent.mkdir(parents=True)
        file.write_text(CANARY)
    log = state / "agentcli.log"
    places = OwnPlaces((own, state, log), (state / "seal.key", log))

    async def run() -> list[str]:
        async with Sandboxed(home, own=places) as inside:
            said = [await inside.say("mv .config c; mv .local/state .local/s; mv .local l; true")]
            log.write_text("ours")
            reads = "find . -type f | grep -v agentcli/config | xargs cat"
            return [*said, await inside.say(f"{reads}; echo evil > c/agentcli/config.toml")]

    moved, text = asyncio.run(run())
    assert moved.count("Device or resource busy") == 3
    assert CANARY not in text
    assert (own / "config.toml").read_text() == CANARY
    assert log.read_text() == "ours", "what we write ourselves is no command's"


@both
@pytest.mark.spec("SEC-7")
def test_there_is_no_network_without_asking(work: Path, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"

        async def run() -> None:
            async with Sandboxed(work, kind) as inside:
                assert "connected" not in await inside.say(connect)
                assert "connected" in await inside.say(connect, access="network")
                assert "connected" in await inside.say(connect, access="outside")

        asyncio.run(run())


@both
@pytest.mark.spec("SEC-7")
def test_no_other_process_is_reached(work: Path, kind: str) -> None:
    with subprocess.Popen(["sleep", "1000"]) as victim:
        try:
            attempts = f"kill -9 {victim.pid}; kill -9 -1; kill -9 $PPID; echo alive"
            ptrace = (
                f'{PYTHON} -c \'import ctypes; print("ptrace", '
                f"ctypes.CDLL(None).ptrace(16, {victim.pid}, 0, 0))'"
            )
            text = told(
                work, f"kill -9 {victim.pid}", ptrace, f"cat /proc/{victim.pid}/environ", kind=kind
            )
            assert "ptrace 0" not in text[1]
            assert "PATH=" not in text[2]
            told(work, attempts, kind=kind)
            assert victim.poll() is None
        finally:
            victim.kill()


@pytest.mark.spec("SEC-7")
def test_there_is_no_way_around_the_mounts(work: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(CANARY)
    secret = tmp_path / "secret"
    texts = told(
        work,
        f"cat /proc/1/root{secret} /proc/self/root{secret} /proc/*/cwd/../secret {secret}",
        f"umount -l {work}/.git/hooks; umount /tmp; mount -o remount,rw / ; mount --bind / /tmp/m",
        "unshare -Urm sh -c 'umount -l .git/hooks; mount -o remount,rw,bind .git/hooks;"
        " echo x > .git/hooks/pre-commit; mount -o remount,rw /; echo x > /usr/pwned'",
        "echo x > /proc/sys/kernel/core_pattern; echo x > /proc/sysrq-trigger; ls /dev/sda /dev/kmsg",
        "grep -i '^cap' /proc/self/status; grep NoNewPrivs /proc/self/status; ls -l /run",
    )
    assert CANARY not in "".join(texts)
    assert not (work / ".git" / "hooks" / "pre-commit").exists()
    assert not Path("/usr/pwned").exists()
    refused = ("Permission denied", "Read-only")[not os.getuid()]
    assert f"core_pattern: {refused}" in texts[3]
    assert all(set(line.split()[1]) == {"0"} for line in texts[4].splitlines() if line[:3] == "Cap")
    assert "NoNewPrivs:\t1" in texts[4]


@pytest.mark.spec("SEC-7")
def test_a_setuid_program_gives_no_rights(work: Path) -> None:
    (text,) = told(
        work, "cp /bin/sh s; chmod u+s s; ./s -c 'id -u'; sudo -n true; su -c true; echo end"
    )
    assert str(os.getuid()) in text
    assert "end" in text


@pytest.mark.spec("SEC-7", "SEC-18")
def test_sockets_of_other_programs_are_not_reached(work: Path, tmp_path: Path) -> None:
    abstract = f"agentcli-test-{os.getpid()}"
    script = (
        "import socket, sys\n"
        "for name in sys.argv[1:]:\n"
        "    s = socket.socket(socket.AF_UNIX)\n"
        "    try:\n        s.connect(name.replace('@', chr(0)))\n        print('connected', name)\n"
        "    except OSError as e:\n        print('refused', e)\n"
    )
    (work / "c.py").write_text(script)
    listen = (
        "import socket, subprocess, sys\n"
        "s = socket.socket(socket.AF_UNIX)\ns.bind(chr(0) + sys.argv[1])\ns.listen()\n"
        "subprocess.Popen(['sleep', '60'], pass_fds=[s.fileno()], stdout=subprocess.DEVNULL)\n"
        "c = socket.socket(socket.AF_UNIX)\nc.connect(s.getsockname())\nprint('namesake')\n"
    )
    (work / "l.py").write_text(listen)
    with socket.socket(socket.AF_UNIX) as hidden, socket.socket(socket.AF_UNIX) as named_socket:
        hidden.bind("\0" + abstract)
        hidden.listen()
        os.chdir(tmp_path)  # a socket's name is short
        named_socket.bind("agent.sock")
        named_socket.listen()

        async def run() -> list[str]:
            command = f"{PYTHON} c.py @{abstract} {tmp_path}/agent.sock /run/docker.sock"
            async with Sandboxed(work) as inside:
                return [
                    await inside.say(command),
                    await inside.say(f"{PYTHON} l.py {abstract}"),
                    await inside.say(command, access="network"),
                    await inside.say(command, access="outside"),
                ]

        inside, namesake, network, outside = asyncio.run(run())
    assert "connected" not in inside
    assert "namesake" in namesake  # of another network: no key to the machine's
    assert "connected" not in network
    assert f"connected @{abstract}" in outside


@both
@pytest.mark.spec("SEC-7", "SEC-8")
def test_nothing_can_be_typed_into_a_terminal(work: Path, kind: str) -> None:
    script = "import fcntl, os; fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')"
    (text,) = told(work, f'{PYTHON} -c "{script}"; tty; cat', kind=kind)
    assert "No such device or address" in text
    assert "not a tty" in text


@both
@pytest.mark.spec("SEC-7", "SEC-8")
def test_no_variable_leads_out(work: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = {
        "SSH_AUTH_SOCK": "/s", "DISPLAY": ":0", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/b",
        "DOCKER_HOST": "unix:///d", "XDG_RUNTIME_DIR": "/run/user/0", "ANTHROPIC_API_KEY": CANARY,
        "BASH_ENV": "/e", "LD_PRELOAD": "/nowhere.so", "BASH_FUNC_ls%%": "() { echo hijacked; }",
    }  # fmt: skip
    for name, value in doors.items():
        monkeypatch.setenv(name, value)
    (text,) = told(work, "env", kind=kind)
    for name in doors:
        assert f"\n{name}=" not in f"\n{text}"
    assert CANARY not in text


# --- what still works ----------------------------------------------------------------------


@both
@pytest.mark.spec("SEC-7", "TOOL-11")
def test_directory_variables_output_and_exit_codes_are_kept(work: Path, kind: str) -> None:
    (work / "sub").mkdir()
    texts = told(
        work,
        "cd sub; export KEPT='a b' ; echo out; echo err >&2; exit 3",
        'pwd; echo "$KEPT"; cd "$TMPDIR"; mkdir -p deep; cd deep; echo 1 > here',
        "cat here; exit 0",
        "kill -TERM $$; sleep 5",
        kind=kind,
    )
    assert texts[0].startswith("out\nerr\n")
    assert "[exit code 3, " in texts[0]
    assert texts[1].startswith(f"{work}/sub\na b\n")
    assert texts[2].startswith("1\n[exit code 0")
    assert "[exit code 143" in texts[3]


@pytest.mark.spec("SEC-7")
def test_the_temporary_directory_is_the_session_s_own_and_goes_with_it(work: Path) -> None:
    async def run() -> None:
        async with Sandboxed(work) as inside:
            await inside.say("echo 1 > /tmp/mine; echo 2 > /var/tmp/too; mktemp")
            text = await inside.say("cat /tmp/mine /tmp/too; ls -A /tmp | wc -l")
            assert text.startswith("1\n2\n")
            assert not Path("/tmp/mine").exists()
            place = inside.sandbox.on_machine(Path("/tmp/mine"))
            assert place.read_text() == "1\n"
        assert not place.parent.parent.exists()

    asyncio.run(run())


@pytest.mark.spec("SEC-7")
def test_a_server_that_one_command_starts_is_reached_by_the_next(work: Path) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "open('port', 'w').write(str(s.getsockname()[1])); s.accept()[0].sendall(b'hello')"
    )

    async def run() -> None:
        async with Sandboxed(work) as inside:
            text = await inside.say(
                f'{PYTHON} -c "{server}" >/dev/null 2>&1 &\nuntil [ -s port ]; do :; done'
            )
            assert "still running in the background" in text
            assert (await inside.say("cat </dev/tcp/127.0.0.1/$(cat port)")).startswith("hello")

    asyncio.run(run())


@both
@pytest.mark.spec("SEC-7", "CAN-10")
@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
def test_a_cancel_ends_all_of_a_command_also_what_left_its_group(
    work: Path, kind: str, trap: str
) -> None:
    mark = f"86{os.getpid()}{len(kind)}{len(trap)}"

    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            inside.ctx.cancel = CancelToken()
            command = (
                f"{trap} (setsid sh -c 'sleep {mark} & sleep {mark}' &) ; echo on; sleep {mark}"
            )
            running = asyncio.create_task(bash(inside.ctx, command))
            await until(
                lambda: len([c for c in named(f"sleep {mark}") if c[:5] == "sleep"]) > 2, "all"
            )
            inside.ctx.cancel.cancel(force=bool(trap))
            output = await running
            assert output.kind is OutputKind.CANCELLED
            assert text_of(output) == "on"
            assert named(f"sleep {mark}") == []

    asyncio.run(run())


@both
@pytest.mark.spec("SEC-7", "CAN-10", "REC-8")
def test_a_killed_guard_leaves_nothing_of_its_command(work: Path, kind: str) -> None:
    mark = f"88{os.getpid()}{len(kind)}"

    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            command = f"(setsid sleep {mark} &); sleep {mark}; echo not reached"
            running = asyncio.create_task(bash(inside.ctx, command))
            await until(lambda: len(started("sleep", mark)) == 2, "both")
            os.kill(guard_of(started("sleep", mark)[0]), signal.SIGKILL)
            await running
            assert started("sleep", mark) == []

    asyncio.run(run())


@both
@pytest.mark.spec("SEC-7", "CAN-10")
def test_a_cancelled_command_is_told_with_sigterm_first(work: Path, kind: str) -> None:
    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            inside.ctx.cancel = CancelToken()
            command = "trap 'echo bye; exit 0' TERM; touch up; while :; do sleep 0.02; done"
            running = asyncio.create_task(bash(inside.ctx, command))
            await until((work / "up").exists, "it runs")
            inside.ctx.cancel.cancel()
            assert text_of(await running).endswith("bye")

    asyncio.run(run())


@pytest.mark.spec("SEC-7", "CAN-10", "REC-8")
def test_what_daemonizes_ends_with_the_session_even_if_it_kills_its_parents(work: Path) -> None:
    mark = f"87{os.getpid()}"

    async def run() -> None:
        async with Sandboxed(work) as inside:
            daemon = (
                f"(setsid setsid sleep {mark} >/dev/null 2>&1 &); kill -9 $PPID; kill -9 1; echo ok"
            )
            assert (await inside.say(daemon)).startswith("ok\n")
            assert named(f"sleep {mark}")
            await end_processes(grace_s=0.1)
            assert named(f"sleep {mark}") == []

    asyncio.run(run())


@both
@pytest.mark.spec("SEC-7", "TOOL-11")
def test_a_lot_of_output_comes_through(work: Path, kind: str) -> None:
    (text,) = told(
        work, "head -c 50000000 /dev/zero | tr '\\0' 'x' | fold -w 100; echo end", kind=kind
    )
    assert "end\n[exit code 0" in text
    assert len(text) < 40_000


# --- what the model and the person are told ------------------------------------------------


@pytest.mark.spec("SEC-7")
def test_the_approval_says_what_limits_the_command(work: Path) -> None:
    async def run() -> None:
        async with Sandboxed(work) as inside:
            shown = {}
            for access in (None, "network", "outside"):
                args = TOOL.parse({"command": "make", "access": access})
                shown[access] = await TOOL.preview(args, inside.ctx)
            assert shown[None] == f"make\n\nin {work}, in the sandbox"
            assert shown["network"].endswith(", in the sandbox, WITH NETWORK")
            assert shown["outside"].endswith(", OUTSIDE the sandbox")
            assert TOOL.summary(args) == "Run `make`, outside the sandbox"

    asyncio.run(run())


@pytest.mark.spec("SEC-7")
def test_a_failure_for_want_of_network_says_how_to_ask(work: Path) -> None:
    (text,) = told(work, "echo 'ssh: Could not resolve hostname h.example: x'; exit 128")
    assert (
        'without network and SSH keys; if that is why it failed, run it again with access "outside"'
        in text
    )
    (text,) = told(work, "echo 'curl: (6) Could not resolve host: example.org'; exit 6")
    assert 'without network; if that is why it failed, run it again with access "network"' in text


@pytest.mark.spec("SEC-7")
def test_what_says_nothing_of_the_network_is_asked_about_and_nothing_else_is(work: Path) -> None:
    silent = "curl() { cat >/dev/null; return 6; }; "
    wants, piped, shown, *others = told(
        work,
        f"{silent} curl -s https://example.org",
        f"{silent} curl -s https://example.org | cat",
        "echo 'curl: (6) Could not resolve host: example.org'; true",
        f"{silent} curl -s localhost:8000 | cat",
        "echo \"FileNotFoundError: 'x', ModuleNotFoundError\"; exit 1",
        "echo 'no such table: filepermissions'; exit 1",
        "echo 'curl: Permission denied'",
    )
    assert all('with access "network"' in text for text in (wants, piped, shown))
    (gone,) = told(work, "cat ~/.netrc")
    (Path.home() / ".local" / "bin").mkdir(parents=True)
    (idle,) = told(work, "pgrep -x no-such-one")
    assert "with processes and ports of its own; if" in idle
    (not_there,) = told(work, "cat ~/.local/bin/missing")
    assert "No such file" in not_there and "it ran in the sandbox" not in not_there
    assert "only a part of the home directory in sight; if" in gone and '"outside"' in gone
    (local,) = told(work, f"{silent} curl -s localhost:8000")
    assert "a localhost of its own and without network; if" in local
    (none,) = told(work, f"{silent} curl -s localhost:8000", kind="landlock")
    assert "ran in the sandbox, without network, that of localhost included; if" in none
    failed = 'psql: error: connection to server on socket "/var/run/postgresql/.s.PGSQL.5432" failed: No such file'
    (socket,) = told(work, f"echo '{failed} or directory'; exit 2")
    assert "with no sockets but those of its own session; if" in socket
    for text in told(
        work, "pgrep -x no-such-one", "cat /tmp/missing", "cat ~/missing", kind="landlock"
    ):
        assert "it ran in the sandbox" not in text, (
            text
        )  # nothing is hidden there, but not to be read
    for text in others:
        assert "it ran in the sandbox" not in text, text


@pytest.mark.spec("SEC-7")
def test_without_network_package_managers_do_not_wait_for_it(work: Path) -> None:
    shows = "echo $npm_config_fetch_retries,$PIP_RETRIES"

    async def run() -> None:
        async with Sandboxed(work) as inside:
            assert "0,1" in await inside.say(shows)
            assert "0,1" not in await inside.with_access(Access.NETWORK, shows)

    asyncio.run(run())


@pytest.mark.spec("SEC-7")
def test_switching_it_off_and_on_counts_from_the_next_command(work: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"

    async def run() -> None:
        async with Sandboxed(work) as inside:
            await inside.say(f"touch {outside}")
            assert not outside.exists()
            inside.sandbox.switch(on=False)
            assert not inside.sandbox.state.is_on
            await inside.say(f"touch {outside}")
            assert outside.exists()
            inside.sandbox.switch(on=True)
            assert inside.sandbox.state.is_on

    asyncio.run(run())


@pytest.mark.spec("SEC-7")
@pytest.mark.parametrize(
    ("where", "problem"),
    [("there", "is found only in what you work in"), ("elsewhere", "is not installed")],
)
def test_what_is_not_there_is_said_and_nothing_takes_its_place(
    work: Path, where: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the workspace is none; in ``/`` so is the system's own."""
    monkeypatch.setenv("PATH", str(work / "there"))
    (work / where).mkdir()
    (work / where / "bwrap").write_text("#!/bin/sh\necho ready\n")
    (work / where / "bwrap").chmod(0o755)

    async def run() -> None:
        sandbox = SessionSandbox(Workspace(work, work), OwnPlaces, "bwrap")
        state = await sandbox.begin()
        await sandbox.aclose()
        assert state.kind is SandboxKind.OFF
        assert state.problem == f"bubblewrap {problem}"
        assert "install bubblewrap" in state.advice
        assert state.lacks_it

    asyncio.run(run())


@pytest.mark.spec("SEC-7", "OPS-3")
def test_it_is_looked_for_and_taken_down_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("bwrap")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert look_for_sandbox(tmp_path, "auto").kind is SandboxKind.BWRAP
    assert list(scratch.iterdir()) == []
    assert not look_for_sandbox(tmp_path, "off").is_on


@both
@pytest.mark.spec("SEC-15")
def test_what_is_set_inside_never_reaches_a_command_outside(work: Path, kind: str) -> None:
    (work / "sub").mkdir()
    look = 'echo "[$PWD] [${MARK-none}] [${OTHER-none}]"; type -P true'
    evil = f"mkdir -p bin; echo 'echo evil' > bin/true; chmod +x bin/true; PATH={work}/bin:$PATH"

    async def run() -> list[str]:
        async with Sandboxed(work, kind) as inside:
            await inside.say(f"{evil}; export MARK=inside; cd sub")
            preview = await TOOL.preview(
                TOOL.parse({"command": "true", "access": "network"}), inside.ctx
            )
            outside = await inside.say(f"{look}; export OTHER=outside", access="outside")
            shown = await TOOL.preview(
                TOOL.parse({"command": "true", "access": "outside"}), inside.ctx
            )
            again = await inside.say(look)
            inside.ctx.sandbox = None  # what the user types
            return [preview, outside, shown, again, await inside.say(look)]

    preview, outside, shown, again, typed = asyncio.run(run())
    assert f"PATH={work}/bin:" in preview and "MARK=inside" in preview
    assert f"in {work}/sub" in preview
    assert outside.startswith(f"[{work}] [none] [none]\n") and f"{work}/bin" not in outside
    assert "OTHER=outside" in shown and "MARK" not in shown and f"in {work}, OUTSIDE" in shown
    assert again.startswith(f"[{work}/sub] [inside] [outside]\n{work}/bin/true\n")
    assert typed.startswith(f"[{work}] [none] [outside]\n") and f"{work}/bin" not in typed


EVIL = "git config core.fsmonitor 'touch pwned; :'"


def users_git(place: Path) -> None:
    """The user looks at it outside; nothing of the command's must run."""
    subprocess.run(["git", "status"], check=False, cwd=place, capture_output=True)
    assert not list(place.rglob("pwned"))


@both
@pytest.mark.spec("SEC-17", "SEC-7")
def test_a_repository_that_a_command_puts_in_anothers_place_runs_nothing(
    work: Path, kind: str
) -> None:
    sub = work / "a" / "b" / "c" / "d" / "sub"
    subprocess.run(["git", "init", "-q", str(sub)], check=True, cwd=work)
    (text,) = told(
        work, f"cd a/b/c/d; mv sub old; git init -q sub; cd sub; {EVIL}; true", kind=kind
    )
    if (sub / ".git" / "config.set-aside").exists():
        assert "would take effect outside" in text
    users_git(sub)


@both
@pytest.mark.spec("SEC-17")
def test_what_a_process_that_was_left_behind_makes_is_set_aside_too(work: Path, kind: str) -> None:
    late = f"(until [ -e go ]; do sleep 0.01; done; git init -q new; cd new; {EVIL}; touch done)"

    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            await inside.say(f"{late} >/dev/null 2>&1 &")
            (work / "go").touch()
            await until((work / "new" / "done").exists, "the late repository")
            assert "config.set-aside" in await inside.say("echo next")
            assert "config.set-aside" in inside.sandbox.take_notice()

    asyncio.run(run())
    users_git(work / "new")


@both
@pytest.mark.spec("SEC-17")
def test_what_a_process_that_was_left_behind_makes_is_set_aside_without_a_next_command(
    work: Path, kind: str
) -> None:
    late = f"(until [ -e go ]; do sleep 0.01; done; git init -q new; cd new; {EVIL})"
    told: list[str] = []

    async def run() -> None:
        async with Sandboxed(work, kind, tell=told.append) as inside:
            await inside.say(f"{late} >/dev/null 2>&1 &")
            (work / "go").touch()
            await until((work / "new/.git/config.set-aside").exists, "the look")
            await until(lambda: bool(told), "the notice")
            assert "config.set-aside" in await inside.say("echo next")

    asyncio.run(run())
    assert sum("config would take effect outside" in text for text in told) == 1
    users_git(work / "new")


@pytest.mark.spec("SEC-17")
def test_what_one_that_was_left_behind_had_begun_is_judged_when_it_has_ended(work: Path) -> None:
    steps = work / ".git/rebase-merge/git-rebase-todo"
    late = f"until [ -e go ]; do sleep 0.01; done; mkdir {steps.parent}; echo 'exec x' > {steps}"
    told: list[str] = []

    async def run() -> None:
        async with Sandboxed(work, tell=told.append) as inside:
            await inside.say(f"({late}; until [ -e end ]; do sleep 0.01; done) >/dev/null 2>&1 &")
            (work / "go").touch()
            await until(steps.exists, "the steps")
            (work / "end").touch()
            await until(lambda: bool(told), "the look")

    asyncio.run(run())
    assert "git-rebase-todo would take effect outside" in "\n".join(told)
    assert "exec" not in steps.read_text()


@pytest.mark.spec("SEC-17", "UI-7")
def test_what_is_made_again_and_again_is_not_told_again_and_again(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.process.settling._BETWEEN_S", (0.01, 0.02))
    monkeypatch.setattr("agentcli.process.settling._REST", 0)
    told: list[str] = []

    async def run() -> str:
        async with Sandboxed(work, tell=told.append) as inside:
            await inside.say(
                f"(while :; do git init -q new; (cd new; {EVIL}); done) >/dev/null 2>&1 &"
            )
            many = work / "new/.git"
            await until(lambda: len(list(many.glob("config.set-aside*"))) > 20, "many looks")
            return await inside.say("echo next")

    text = asyncio.run(run())
    assert "\n".join(told).count("would take effect") < 15
    assert "\n".join(told).count("no more is said of it") == 1
    assert text.count("would take effect") < 15


@pytest.mark.spec("SEC-17")
def test_what_a_command_that_runs_long_has_made_is_set_aside_while_it_runs(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.process.settling._LONG_S", 0.1)
    steps = ".git/rebase-merge/git-rebase-todo"

    async def run() -> str:
        async with Sandboxed(work) as inside:
            return await inside.say(
                f"mkdir .git/rebase-merge; echo 'exec make' > {steps}; git init -q new; cd new;"
                f"{EVIL}; until [ -e .git/config.set-aside ]; do sleep 0.01; done; ls ../{steps}"
            )

    text = asyncio.run(run())
    assert text.startswith(f"../{steps}\n"), "git goes on with it while the command runs"
    assert "new/.git/config would take" in text and f"{steps} would take" in text


@pytest.mark.spec("SEC-17")
def test_a_directory_that_is_moved_while_another_command_starts_hides_no_change(
    work: Path,
) -> None:
    subprocess.run(["git", "init", "-q", str(work / "sub")], check=True)
    config = work / "sub" / ".git" / "config"
    before = config.read_text()

    async def run() -> str:
        async with Sandboxed(work) as inside:
            await inside.say("cp -r sub other; sleep 1000 >/dev/null 2>&1 &")
            confine = inside.sandbox.confine

            async def confine_and_move(argv: Sequence[str], cwd: Path, access: Access) -> Confined:
                confined = await confine(argv, cwd, access)  # what was left does it at this moment
                (work / "sub").rename(work / "away")
                (work / "other").rename(work / "sub")
                return confined

            inside.sandbox.confine = confine_and_move  # type: ignore[method-assign] # a race, made sure
            return await inside.say(f"mv sub other; mv away sub; cd sub; {EVIL}; echo done")

    text = asyncio.run(run())
    assert text.startswith("done\n") and "config would take effect outside" in text
    assert config.read_text() == before


@both
@pytest.mark.spec("SEC-17")
def test_what_the_user_has_allowed_outside_stays_while_something_runs_inside(
    work: Path, kind: str
) -> None:
    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            await inside.say("sleep 1000 >/dev/null 2>&1 &")
            hook = work / ".git" / "hooks" / "pre-commit"
            for _ in range(100):  # until what was started inside has come to rest
                await inside.say("echo mine > .git/hooks/pre-commit", access="outside")
                if hook.exists():
                    break
            inside.sandbox.take_notice()
            await inside.say("true", access="outside")
            (work / ".envrc").write_text("mine")
            mine = f"sha256:{hashlib.sha256(b'mine').hexdigest()}"
            await inside.sandbox.accept({work / ".envrc": mine})
            assert "set-aside" not in await inside.say("echo next")
            # what was written again before it was looked at, and what lies beside it
            (work / ".envrc").write_text("evil")
            (work / ".exrc").write_text("evil")
            await inside.sandbox.accept({work / ".envrc": mine, work: ""})
            again = await inside.say("echo next")
            assert ".envrc.set-aside" in again and ".exrc.set-aside" in again
            assert (work / ".envrc").read_text() == "mine"
            (work / ".envrc").write_text("made once it was deleted")
            await inside.sandbox.accept({work / ".envrc": ""})
            assert ".envrc.set-aside" in await inside.say("echo next")
            assert not (work / ".envrc").exists()

    asyncio.run(run())
    assert (work / ".git" / "hooks" / "pre-commit").read_text() == "mine\n"


@both
@pytest.mark.spec("SEC-17")
def test_what_something_inside_makes_while_a_command_runs_outside_does_not_count_as_that(
    work: Path, kind: str
) -> None:
    late = "(until [ -e go ]; do sleep 0.01; done; echo evil > .envrc; touch done; sleep 1000)"

    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            await inside.say(f"{late} >/dev/null 2>&1 &")
            outside = "touch go; until [ -e done ]; do sleep 0.01; done; echo mine > mine"
            await inside.say(outside, access="outside")
            told = await inside.say("echo next")
            assert ".envrc.set-aside" in told and "left running inside" in told

    asyncio.run(run())
    assert not (work / ".envrc").exists()
    assert (work / "mine").exists()


@both
@pytest.mark.spec("SEC-17", "SEC-3")
def test_hooks_and_settings_are_what_they_were_whatever_the_sandbox(work: Path, kind: str) -> None:
    (work / ".git" / "hooks" / "pre-push").write_text("mine")
    (work / ".envrc").write_text("mine")
    (work / ".agents").mkdir()
    (work / ".agents" / "config.toml").write_text("mine = 1\n")
    config = (work / ".git" / "config").read_text()
    told(
        work,
        "echo evil > .git/hooks/pre-push; echo evil > .git/hooks/pre-commit; true",
        f"{EVIL}; echo evil > .envrc; echo evil > .agents/config.toml; true",
        "mv .git .git2; cp -r .git2 .git; echo evil > .git/hooks/pre-push; true",
        kind=kind,
    )
    assert (work / ".git" / "hooks" / "pre-push").read_text() == "mine"
    assert (work / ".envrc").read_text() == "mine"
    assert (work / ".agents" / "config.toml").read_text() == "mine = 1\n"
    assert (work / ".git" / "config").read_text() == config
    assert not (work / ".git" / "hooks" / "pre-commit").exists()


@both
@pytest.mark.spec("SEC-17", "SEC-3")
def test_work_with_git_goes_on(work: Path, home: Path, kind: str) -> None:
    (home / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.org\n")
    (text,) = told(
        work,
        "set -e; git commit -q --allow-empty -m one; git checkout -q -b other; git checkout -q -;"
        "git worktree add -q tree other; git -C tree commit -q --allow-empty -m two; git stash list;"
        "git clone -q . copy; git -C copy log --oneline; git tag v1; git reset -q --hard HEAD; git gc -q",
        kind=kind,
    )
    assert "[exit code 0" in text and "set-aside" not in text, text
    assert "Read-only file system" not in text, text  # of .git/info, which "git gc" would write


@both
@pytest.mark.spec("SEC-7")
def test_the_hint_names_the_places_that_are_writable(work: Path, kind: str) -> None:
    (text,) = told(work, "touch /usr/x || touch $TMPDIR/x && false", kind=kind)
    place = "/tmp" if kind == "bwrap" else "$TMPDIR"
    assert f"with only the workspace and {place} writable" in text


@pytest.mark.spec("SEC-4", "SEC-7")
def test_what_was_judged_for_a_sandbox_never_runs_without_it(work: Path) -> None:
    async def run() -> list[str]:
        sandbox = SessionSandbox(Workspace(work, work), OwnPlaces, "off")
        for access in (Access.INSIDE, Access.NETWORK, Access.READ_ONLY):
            with pytest.raises(OSError, match="has ended"):
                await sandbox.confine(("true",), work, access)
        texts = []
        for access in (Access.INSIDE, Access.NETWORK, Access.READ_ONLY):
            ctx = tool_context(work)
            ctx.sandbox, ctx.access = sandbox, access
            texts.append(text_of(await bash(ctx, "touch made")))
        return texts

    assert all("switched off meanwhile" in text for text in asyncio.run(run()))
    assert not (work / "made").exists()


@pytest.mark.spec("SEC-7", "SEC-18")
def test_landlock_shows_no_terminal_of_the_users_and_nothing_of_run(work: Path) -> None:
    ours, theirs = os.openpty()
    try:
        terminal = os.ttyname(theirs)
        os.write(ours, b"what is typed\n")
        commands = (f"head -n1 {terminal}", "ls /run/", "head -c1 /dev/zero | wc -c")
        said = "\n".join(told(work, *commands, kind="landlock"))
    finally:
        os.close(ours)
        os.close(theirs)
    assert "what is typed" not in said
    assert said.count("Permission denied") == 2 and "1\n" in said


@pytest.mark.spec("SEC-5", "SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("elsewhere/s", "echo evil > d/s"),
        ("work/l/s", "ln -sfn e l"),
        ("work/d/s", "mv d x; ln -s e d"),
        ("file", "ln -sfn e l"),
    ],
)
def test_no_link_has_others_run_another_file(
    tmp_path: Path, kind: str, script: str, command: str
) -> None:
    root = tmp_path / "work"
    for name, text in (("d", "mine"), ("e", "evil")):
        (root / name).mkdir(parents=True)
        (root / name / "s").write_text(text)
    (root / "l").symlink_to("d")
    (tmp_path / "elsewhere").symlink_to(root / "d")
    (tmp_path / "file").symlink_to(root / "l/s")
    told(root, command, kind=kind, own=OwnPlaces(scripts=(tmp_path / script,)))
    found = tmp_path / script
    assert not found.exists() or found.read_text() == "mine"


@pytest.mark.spec("SEC-17", "SEC-5")
def test_with_bubblewrap_what_a_hook_runs_stays_where_it_is(work: Path) -> None:
    """A hook may be called at the very moment at which another directory has its name."""
    (work / "a/tools").mkdir(parents=True)
    (work / "a/tools/check.sh").write_text("true\n")
    (work / "other").mkdir()
    own = OwnPlaces(scripts=(work / "a/tools/check.sh",))
    swaps = "for each in a a/tools; do mv $each other/away || echo $each stays; done"
    (said,) = told(work, f"{swaps}; mv other elsewhere && echo other moves", own=own)
    assert "a stays" in said and "a/tools stays" in said and "other moves" in said, said


@pytest.mark.spec("SEC-13", "SEC-17")
def test_who_cancels_does_not_wait_for_the_look_at_a_large_tree(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("bwrap")
    for number in range(100):
        (work / str(number)).mkdir()
    list_one = sandbox_watch.listing_of

    def slow(*args: Any) -> Any:
        time.sleep(0.02)
        return list_one(*args)

    async def main() -> None:
        sandbox = SessionSandbox(Workspace(work, work), OwnPlaces, SandboxKind.BWRAP)
        await sandbox.begin()
        with monkeypatch.context() as patch:
            patch.setattr(sandbox_watch, "listing_of", slow)
            start = asyncio.create_task(sandbox.confine(("true",), work, Access.INSIDE))
            await asyncio.sleep(0.2)
            began = time.monotonic()
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            assert time.monotonic() - began < 0.5
        assert await sandbox.confine(("true",), work, Access.INSIDE)
        (work / ".envrc").write_text("x")
        assert len(await sandbox.settle()) == 1
        await sandbox.aclose()

    asyncio.run(main())


@pytest.mark.spec("OPS-1", "SEC-6", "SEC-7")
@pytest.mark.parametrize("shuts", ["mkdir d; cd d; chmod 0 .", "cd /proc/$$/fd"])
def test_a_directory_that_cannot_be_entered_is_left(work: Path, shuts: str) -> None:
    (work / "kept").touch()
    _, inside, after = told(work, shuts, "rm -rf *", "pwd")
    assert "Cannot start a shell in" in inside and "nothing was run" in inside
    assert after.startswith(f"{work}\n[exit")
    assert (work / "kept").exists()


@pytest.mark.spec("OPS-1")
def test_what_a_command_says_is_never_taken_for_the_sandbox_s_own_word(work: Path) -> None:
    lie = 'echo "bwrap: Can\'t chdir to /x"; echo more; exit 1'
    first, moved = told(work, lie, f"mkdir d; cd d; {lie}")
    for said in (first, moved):
        assert "more" in said and "exit code 1" in said and "Cannot start" not in said, said
