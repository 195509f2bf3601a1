"""What a filter of system calls adds: commands that only read, and Unix sockets of the session."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.app.boundary import look_for_sandbox
from agentcli.domain.sandbox import Access
from agentcli.process import sandbox_calls, sandbox_setup
from tests.support.processes import guard_of, started, until
from tests.support.repositories import git, make_repository
from tests.support.sandboxes import BOTH, Sandboxed, needs, told

pytestmark = pytest.mark.sampled

both = pytest.mark.parametrize("kind", BOTH)
PYTHON = os.path.realpath(sys.executable)
CONNECT = """
import socket, sys
for name in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        try:
            s = socket.socket(socket.AF_UNIX, kind)
            s.connect(name.replace("@", chr(0)))
            print("CONNECTED", name)
        except OSError as e:
            print("refused", e.errno)
    try:
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        a.sendto(b"x", name.replace("@", chr(0)))
        print("CONNECTED", name)
    except OSError as e:
        print("refused", e.errno)
"""
OWN = """
import multiprocessing, os, socket, tempfile

def own(path):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen(1)
        client.connect(path)
        assert client.getpeername() == path or path[0] == chr(0), client.getpeername()
        client.sendall(b"own")
        print(server.accept()[0].recv(3).decode())

def double(x):
    return 2 * x

if __name__ == "__main__":
    own(tempfile.mkdtemp() + "/s")
    own("beside.sock")
    own(chr(0) + "own-%d" % os.getpid())
    a, b = socket.socketpair()
    a.sendall(b"pair")
    print(b.recv(4).decode())
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.map(double, [21]))
    with multiprocessing.Manager() as manager:
        print(dict(manager.dict(a=1)))
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace that is a git repository with one commit."""
    root = tmp_path / "work"
    subprocess.run(["git", "init", "-q", str(root)], check=True, cwd=tmp_path)
    (root / "file").write_text("one\n")
    (root / "connect.py").write_text(CONNECT)
    (root / "own.py").write_text(OWN)
    name = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", "add", "file"], check=True, cwd=root)
    subprocess.run(["git", *name, "commit", "-qm", "first"], check=True, cwd=root)
    return root


def reading(root: Path, *commands: str, kind: str) -> list[str]:
    """What the model is told of commands that the policy lets read and no more."""

    async def run() -> list[str]:
        async with Sandboxed(root, kind) as inside:
            return [await inside.with_access(Access.READ_ONLY, command) for command in commands]

    return asyncio.run(run())


# --- commands that only read -----------------------------------------------------------------


@both
@pytest.mark.spec("SEC-4")
def test_a_command_that_only_reads_changes_nothing(work: Path, tmp_path: Path, kind: str) -> None:
    (work / "kept").write_text("kept\n")
    (work / "kept").chmod(0o644)
    before = (work / "kept").stat()
    texts = reading(
        work,
        "echo x > new; mkdir d; rm -f kept; mv kept moved; ln kept second; : > kept; cat kept",
        f"chmod 777 kept; touch kept; {PYTHON} -c 'import os; os.utime(\"kept\", (1, 1))'",
        f'{PYTHON} -c \'import os; os.setxattr("kept", "user.a", b"b")\'',
        f"echo x > /tmp/agentcli-mark; echo x > {tmp_path}/beside; touch ~/mark; git commit -qam b",
        "echo large > $TMPDIR/own && cat $TMPDIR/own",
        kind=kind,
    )
    assert sorted(path.name for path in work.iterdir()) == [
        ".git", "connect.py", "file", "kept", "own.py",
    ]  # fmt: skip
    assert (work / "kept").read_text() == "kept\n"
    after = (work / "kept").stat()
    assert (after.st_mode, after.st_mtime, after.st_nlink) == (
        before.st_mode,
        before.st_mtime,
        before.st_nlink,
    )
    assert os.listxattr(work / "kept") == []
    assert not (tmp_path / "beside").exists()
    assert "kept\n" in texts[0]
    assert texts[4].startswith("large\n")


# linux/fs.h, fsverity.h, fscrypt.h, btrfs.h: a file that is open for reading is enough for them
ASKS = """
import errno, fcntl, os, termios
file = os.open("file", os.O_RDONLY)
of_ext4, of_any, flags, attributes, verity, key, subvolume, clone = (
    0x40086604, 0x40087602, 0x40086602, 0x401C5820, 0x40806685, 0x800C6613, 0x5000940E, 0x40049409
)
for request in (of_ext4, of_any, flags, attributes, verity, key, subvolume, clone):
    try:
        fcntl.ioctl(file, request, bytearray(1000))
        print(hex(request), "was done")
    except OSError as error:
        print(errno.errorcode[error.errno])
pipe, _ = os.pipe()
fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
print("asked")
"""


@both
@pytest.mark.spec("SEC-4")
def test_a_command_that_only_reads_has_no_file_system_change_what_it_has_open(
    work: Path, kind: str
) -> None:
    (work / "asks.py").write_text(ASKS)
    (said,) = reading(work, f"{PYTHON} -I asks.py", kind=kind)
    assert said.splitlines()[:9] == ["ENOTTY"] * 8 + ["asked"], said


# linux/fs.h: FS_XFLAG_NODUMP, in a struct file_attr; Linux 6.17
SETS_ATTRIBUTES = """
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
wanted = ctypes.create_string_buffer(struct.pack("=QIIII", 0x80, 0, 0, 0, 0))
done = libc.syscall(469, -100, b"file", wanted, 24, 0)
print(done, errno.errorcode[ctypes.get_errno()] if done else "")
"""


@both
@pytest.mark.spec("SEC-7")
def test_no_command_inside_has_a_file_system_change_attributes(work: Path, kind: str) -> None:
    (work / "sets.py").write_text(SETS_ATTRIBUTES)
    (work / "file").write_text("1")
    (said,) = told(work, f"{PYTHON} -I sets.py", kind=kind)
    assert said.startswith("-1 ENOSYS"), said


@both
@pytest.mark.spec("SEC-3", "SEC-4")
def test_a_command_that_only_reads_sees_of_the_machine_the_system_alone(
    work: Path, kind: str
) -> None:
    """The judge cannot know where a name leads that the shell makes."""
    here = Path(__file__).resolve()
    if here.parts[1] in {"opt", "tmp", "usr", "var"}:
        pytest.skip("these tests lie in a directory of the system's")
    texts = reading(work, f'head "$(echo {here})"', f'ls "$(echo {here.parent})"', kind=kind)
    assert all("imports" not in text and "exit code 0" not in text for text in texts), texts


@both
@pytest.mark.spec("SEC-4")
def test_a_command_that_only_reads_has_no_network_not_even_of_the_session(
    work: Path, kind: str
) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "open('port', 'w').write(str(s.getsockname()[1])); s.accept()"
    )

    async def run() -> None:
        async with Sandboxed(work, kind, network=True) as inside:
            await inside.say(
                f'{PYTHON} -c "{server}" >/dev/null 2>&1 &\nuntil [ -s port ]; do :; done'
            )
            command = f"exec 3<>/dev/tcp/127.0.0.1/{(work / 'port').read_text()} && echo CONNECTED"
            assert "CONNECTED" not in await inside.with_access(Access.READ_ONLY, command)
            assert "CONNECTED" in await inside.say(command)

    asyncio.run(run())


@both
@pytest.mark.spec("SEC-4", "SEC-7")
def test_what_one_reads_in_the_temporary_directory_stays_as_it_is(work: Path, kind: str) -> None:
    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            await inside.say("echo first > $TMPDIR/note")
            place = (await inside.say("echo $TMPDIR")).split()[0]
            read = f"cat {place}/note; rm -f {place}/note; echo x >> {place}/note; cat {place}/note"
            assert (await inside.with_access(Access.READ_ONLY, read)).count("first") == 2
            assert (await inside.say("cat $TMPDIR/note")).startswith("first\n[exit code 0")

    asyncio.run(run())


@pytest.fixture
def evil(work: Path) -> Path:
    """A repository whose configuration and attributes name a program for all that git can run."""
    program = work / "evil"
    program.write_text(f"#!/bin/sh\ntouch '{work}/mark' ; echo EVIL-RAN >&2; echo EVIL-RAN\n")
    program.chmod(0o755)
    lines = f"""
        [core]
            fsmonitor = {program}
            pager = {program}
            hooksPath = {work}/evil-hooks
            sshCommand = {program}
            askPass = {program}
        [diff]
            external = {program}
        [diff "x"]
            textconv = {program}
            command = {program}
        [credential]
            helper = !{program}
        [gpg]
            program = {program}
        [log]
            showSignature = true
        [pager]
            log = {program}
            status = {program}
        [interactive]
            diffFilter = {program}
    """
    with (work / ".git" / "config").open("a") as file:
        file.write(textwrap.dedent(lines))
    (work / ".gitattributes").write_text("* diff=x\n")
    (work / "evil-hooks").mkdir()
    (work / "evil-hooks" / "post-index-change").symlink_to(program)
    (work / "file").write_text("two\n")
    return work


GIT = (
    "git status",
    "git diff",
    "git -C . diff --stat -p",
    "git log -p",
    "git --no-pager show HEAD",
    "(cd /tmp; git -C {work} log -p --all)",
    "git blame file",
    "git grep two",
    "git diff-tree -p HEAD; git diff-index -p HEAD; git diff-files -p",
    "git reflog -p; git reflog show -p; git reflog HEAD -p; git stash list -p",
    "git describe --always; git stash list; git branch -a; git ls-files -m",
)


@both
@pytest.mark.spec("SEC-4", "SEC-2")
def test_git_that_only_reads_runs_no_program_of_the_repository(evil: Path, kind: str) -> None:
    texts = reading(evil, *(command.format(work=evil) for command in GIT), kind=kind)
    assert not (evil / "mark").exists()
    assert "EVIL-RAN" not in "".join(texts)
    assert [text for text in texts if "[exit code 0" not in text] == []
    assert "+two" in texts[1]
    assert "modified:" in texts[0]


@both
@pytest.mark.spec("SEC-4", "SEC-2")
def test_a_diff_of_submodules_runs_no_program_that_one_names(evil: Path, kind: str) -> None:
    lib = make_repository(evil / "lib")
    git(evil, "add", "lib")
    git(evil, "commit", "-qm", "lib")
    (lib / "a.txt").write_text("two\n")
    git(lib, "commit", "-qam", "two")
    git(lib, "config", "diff.external", f"{evil}/evil")
    git(evil, "config", "diff.submodule", "diff")
    (evil / "mark").unlink()  # what the user runs themselves
    texts = reading(evil, "git diff", "git diff --submodule=diff", kind=kind)
    assert not (evil / "mark").exists() and "EVIL-RAN" not in "".join(texts)
    assert "Submodule lib" in texts[1] and "> two" in texts[1]


@both
@pytest.mark.spec("SEC-4")
def test_what_no_option_switches_off_has_no_effect_in_the_read_only_sandbox(
    evil: Path, kind: str
) -> None:
    with (evil / ".git" / "config").open("a") as file:
        file.write(f'[filter "f"]\n\tclean = {evil}/evil\n')
    (evil / ".gitattributes").write_text("* filter=f\n")
    git = os.path.realpath("/usr/bin/git")
    reading(evil, "git status; git diff", f"{git} diff; {git} log -p", kind=kind)
    assert not (evil / "mark").exists()


@both
@pytest.mark.spec("SEC-4")
def test_git_tells_the_repositorys_own_configuration(work: Path, kind: str) -> None:
    (listed, place) = reading(work, "git config --list", "command -v git", kind=kind)
    assert "core.bare=false" in listed
    assert "fsmonitor" not in listed
    assert "agentcli-" not in place


# --- Unix sockets ----------------------------------------------------------------------------


@contextlib.contextmanager
def listening(*names: str) -> Iterator[None]:
    """Programs outside that listen there."""
    with contextlib.ExitStack() as stack:
        for name in names:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(name.replace("@", "\0"))
            server.listen(5)
        yield


@both
@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize("access", [Access.INSIDE, Access.NETWORK, Access.READ_ONLY])
def test_no_socket_of_a_program_outside_is_reached(
    work: Path, tmp_path: Path, home: Path, kind: str, access: Access
) -> None:
    names = (
        f"{home}/agent.sock",
        f"{home}/.local/bin/s",
        f"{tmp_path}/s",
        f"{work}/inside.sock",
        f"@agentcli-test-{os.getpid()}-{access}-{kind}",
    )
    (home / ".local" / "bin").mkdir(parents=True)

    async def run() -> str:
        async with Sandboxed(work, kind) as inside:
            # a name of another place does not help
            more = ("link.sock", "moved.sock", "../work/inside.sock", "/proc/self/cwd/inside.sock")
            await inside.say("ln -s inside.sock link.sock; ln inside.sock hard.sock")
            command = f"{PYTHON} connect.py {' '.join((*names, *more))} hard.sock"
            return await inside.with_access(access, command)

    with listening(*names):
        text = asyncio.run(run())
    assert "CONNECTED" not in text
    assert text.count("refused") == 4 * 10


@both
@pytest.mark.spec("SEC-18")
def test_no_socket_elsewhere_is_tried_for_a_name_that_has_become_a_link(
    work: Path, home: Path, kind: str
) -> None:
    (home / ".local" / "bin").mkdir(parents=True)
    outside = home / ".local" / "bin" / "s"  # seen in both
    script = f"""
        import os, socket
        server = socket.socket(socket.AF_UNIX)
        server.bind("mine")
        os.unlink("mine")
        os.symlink("{outside}", "mine")
        server.listen(1)
        print("listens", os.path.exists("mine"))
    """
    (work / "link.py").write_text(textwrap.dedent(script))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(outside))
        other.listen(5)
        other.setblocking(False)
        (text,) = told(work, f"{PYTHON} link.py", kind=kind)
        with pytest.raises(BlockingIOError):
            other.accept()
    assert "listens True" in text


@both
@pytest.mark.spec("SEC-18")
def test_a_socket_outside_cannot_pass_for_ones_own(work: Path, kind: str) -> None:
    script = """
        import os, socket
        server = socket.socket(socket.AF_UNIX)
        server.bind("mine")
        os.rename("mine", "away")
        os.rename("foreign", "mine")
        server.listen(1)
        for name in ("mine", "away"):
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(name)
                print("CONNECTED", name)
            except OSError as e:
                print("refused", name)
    """
    (work / "swap.py").write_text(textwrap.dedent(script))
    with listening(f"{work}/foreign"):
        (text,) = told(work, f"{PYTHON} swap.py", kind=kind)
    assert "CONNECTED mine" not in text
    assert "refused mine" in text


@both
@pytest.mark.spec("SEC-18")
def test_a_name_that_another_program_takes_once_it_is_free_is_not_ones_own(
    work: Path, kind: str
) -> None:
    name = f"agentcli-taken-{os.getpid()}-{kind}"
    script = f"""
        import os, socket
        name = chr(0) + "{name}"
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(name)
            server.listen(1)
            client.connect(name)
            print("connected to its own")
        open("free", "w").close()
        while not os.path.exists("taken"):
            pass
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(name)
            print("CONNECTED")
        except OSError as e:
            print("refused", e.errno)
    """
    (work / "free.py").write_text(textwrap.dedent(script))

    async def run() -> str:
        async with Sandboxed(work, kind, network=True) as inside:
            command = asyncio.ensure_future(inside.say(f"{PYTHON} free.py"))
            while not ((work / "free").exists() or command.done()):
                await asyncio.sleep(0)
            with listening(f"@{name}"):
                (work / "taken").touch()
                return await command

    text = asyncio.run(run())
    assert text.startswith(f"connected to its own\nrefused {errno.EACCES}\n"), text


@both
@pytest.mark.spec("SEC-18")
def test_programs_reach_their_own_sockets(work: Path, kind: str) -> None:
    (text,) = told(work, f"{PYTHON} own.py", kind=kind)
    assert text.splitlines()[:-1] == ["own", "own", "own", "pair", "[42]", "{'a': 1}"], text


@both
@pytest.mark.spec("SEC-18", "SEC-7")
def test_a_socket_that_one_command_leaves_is_reached_by_the_next_but_not_after_its_end(
    work: Path, kind: str
) -> None:
    server = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); "
        "open('up', 'w').close(); s.accept()[0].sendall(b'hello'); s.accept()"
    )
    client = (
        f"{PYTHON} -c \"import socket; s = socket.socket(socket.AF_UNIX); s.connect('s'); "
        'print(s.recv(9))"'
    )

    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            await inside.say(
                f'{PYTHON} -c "{server}" >/dev/null 2>&1 &\nuntil [ -e up ]; do :; done'
            )
            assert "b'hello'" in await inside.say(client)
            assert "b''" in await inside.say(client)  # it has accepted and ended
            assert "Error" in await inside.say(client)

    asyncio.run(run())


@both
@pytest.mark.spec("SEC-18", "CAN-10")
def test_the_socket_of_a_command_whose_guard_was_killed_is_not_ones_own_any_more(
    work: Path, kind: str
) -> None:
    mark = f"s{os.getpid()}{kind}"
    server = (
        f"import socket; s = socket.socket(1); s.bind('{mark}'); s.listen(); s.accept(); s.accept()"
    )
    client = f"import socket; print(socket.socket(1).connect_ex('{mark}'))"

    async def run() -> None:
        async with Sandboxed(work, kind) as inside:
            running = asyncio.create_task(inside.say(f'{PYTHON} -c "{server}"'))
            await until(lambda: bool(started(PYTHON, "-c", server)), "it runs")
            while not (await inside.say(f'{PYTHON} -c "{client}"')).startswith("0\n"):
                pass  # not listening yet
            os.kill(guard_of(started(PYTHON, "-c", server)[0]), signal.SIGKILL)
            await running
            assert (await inside.say(f'{PYTHON} -c "{client}"')).startswith(f"{errno.EACCES}")

    asyncio.run(run())


@both
@pytest.mark.spec("SEC-18")
def test_node_talks_to_its_children_and_its_own_sockets(work: Path, kind: str) -> None:
    script = """
        if (process.argv[2]) { process.send('ipc'); process.disconnect(); }
        else {
          const net = require('net'), fork = require('child_process').fork;
          const server = net.createServer(c => c.end('hi')).listen('node.sock', () =>
            net.connect('node.sock').on('data', d => {
              console.log(d.toString());
              server.close();
              fork(__filename, ['child']).on('message', m => console.log(m));
            }));
        }
    """
    (work / "n.js").write_text(script)
    (text,) = told(work, "command -v node >/dev/null || echo none; node n.js", kind=kind)
    if text.startswith("none"):
        pytest.skip("no node here")
    assert text.startswith("hi\nipc\n"), text


MESSAGE = """
import socket
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as own:  # NETLINK_KOBJECT_UEVENT
    own.connect((0, 0))  # the kernel: anyone may
    print("asks")
    try:
        own.connect((0, 1 << 20))
        print("SENT", own.send(b"from inside"))
    except OSError as error:
        print("refused", error.errno)
"""


@both
@pytest.mark.skipif(os.getuid() != 0, reason="messages to other programs are root's")
@pytest.mark.spec("SEC-7", "SEC-18")
def test_the_guard_lends_no_right_to_send_messages_to_other_programs(work: Path, kind: str) -> None:
    (work / "message.py").write_text(MESSAGE)

    async def run() -> str:
        async with Sandboxed(work, kind) as inside:
            return await inside.with_access(Access.NETWORK, f"{PYTHON} -I message.py")

    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as other:
        other.bind((0, 1 << 20))
        said = asyncio.run(run())
        with pytest.raises(BlockingIOError):
            other.recv(100, socket.MSG_DONTWAIT)
    assert f"asks\nrefused {errno.EPERM}\n" in said


UNASKED = """
import socket
for protocol in (0, 2, 15, 16):  # NETLINK_ROUTE, _USERSOCK, _KOBJECT_UEVENT, _GENERIC
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as own:
            print(protocol, "open")
            own.sendto(b"from inside", (1 << 20, 0))
            print("SENT")
    except OSError as error:
        print(error.errno)
"""


@both
@pytest.mark.spec("SEC-18")
def test_no_message_goes_to_a_program_that_listens_to_the_kernels_kind(
    work: Path, kind: str
) -> None:
    (work / "message.py").write_text(UNASKED)

    async def run() -> str:
        async with Sandboxed(work, kind) as inside:
            return await inside.with_access(Access.NETWORK, f"{PYTHON} -I message.py")

    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2) as other:
        other.bind((1 << 20, 0))
        said = asyncio.run(run())
        with pytest.raises(BlockingIOError):
            other.recv(100, socket.MSG_DONTWAIT)
    assert said.startswith(f"0 open\n{errno.EPERM}\n{errno.EPROTONOSUPPORT}\n15 open\n")


GROUPS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print("begins", libc.unshare(0x10000000 | 0x20000 | 0x2000000))  # user, mounts, control groups
place = os.environ["TMPDIR"].encode()
for kind, what in ((b"cgroup2", None), (b"cgroup", b"memory"), (b"cgroup", b"freezer")):
    if libc.mount(b"none", place, kind, 0, what) == 0:
        print("MOUNTED", kind, what, os.listdir(place))
"""


@both
@pytest.mark.parametrize("access", [Access.INSIDE, Access.READ_ONLY, Access.NETWORK])
@pytest.mark.skipif(os.getuid() != 0, reason="the control groups are root's")
@pytest.mark.spec("SEC-4", "SEC-7", "SEC-18")
def test_root_mounts_no_control_groups_whose_limits_hold_outside(
    work: Path, kind: str, access: Access
) -> None:
    (work / "groups.py").write_text(GROUPS)

    async def run() -> str:
        async with Sandboxed(work, kind) as inside:
            return await inside.with_access(access, f"{PYTHON} -I groups.py")

    said = asyncio.run(run())
    assert "begins" in said
    assert "MOUNTED" not in said


@pytest.mark.spec("SEC-7")
def test_in_bubblewrap_nobody_makes_the_control_groups_of_the_terminal_their_own() -> None:
    """Where systemd gives the user groups, what is killed there is the user's shell, and we."""
    if sandbox_calls.machine() is None:
        pytest.skip("no filter for this machine")
    script = f"""
        import sys
        sys.path.append({os.path.dirname(sandbox_calls.__file__)!r})
        import ctypes, errno, os, guard, sandbox_calls
        os.getuid = lambda: 1000
        calls = sandbox_calls.filters(unix=True, inet=False, frozen=False, mounts=True)
        assert guard._put_on({{**calls, "filter": calls["sealed"]}}, hands_over=False) == -1
        libc = ctypes.CDLL(None, use_errno=True)
        for flags in (0x10000000, 0x02000000, 0x10000000 | 0x02000000):
            print(libc.unshare(flags), ctypes.get_errno() == errno.EPERM)
    """
    argv = (sys.executable, "-I", "-c", textwrap.dedent(script))
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10)
    user, *groups = done.stdout.splitlines()
    if user != "0 False":
        pytest.skip("no user namespaces here")
    assert groups == ["-1 True"] * 2


@both
@pytest.mark.spec("SEC-18", "SEC-4")
def test_no_way_around_the_filter_is_open(work: Path, kind: str) -> None:
    script = """
        import ctypes, errno, socket
        libc = ctypes.CDLL(None, use_errno=True)
        for number in (425, 248, 249, 250, 300, 323) if %d else (425, 217, 218, 219, 262, 282):
            assert libc.syscall(number, 0, 0, 0, 0, 0) == -1
            print(errno.errorcode[ctypes.get_errno()])
        import resource
        resource.prlimit(0, resource.RLIMIT_CORE)
        try:
            resource.prlimit(1, resource.RLIMIT_CORE)
        except PermissionError as e:
            print(errno.errorcode[e.errno])
        for family in (38, 40):  # AF_ALG, AF_VSOCK
            try:
                socket.socket(family, socket.SOCK_STREAM)
            except OSError as e:
                print(errno.errorcode[e.errno])
    """
    (work / "around.py").write_text(textwrap.dedent(script % (os.uname().machine == "x86_64")))
    (text,) = told(work, f"{PYTHON} around.py", kind=kind)
    assert text.splitlines()[:-1] == ["ENOSYS"] * 6 + ["EPERM"] + ["EAFNOSUPPORT"] * 2


OLDER = """
import ctypes, errno, mmap, os
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("53 89f8 89f3 87ca 4489c6 cd80 5b 4898 c3"))  # the way in of 32 bits
enter = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 5)(
    ctypes.addressof(ctypes.c_char.from_buffer(page))
)
for number, first in ((359, 1), (360, 1), (102, 1), (374, 1), (340, 0), (340, os.getppid())):
    print(errno.errorcode.get(-enter(number, first, 2, 0, 0), "none"))
"""


@both
@pytest.mark.spec("SEC-18", "SEC-7")
def test_the_calls_of_the_older_architecture_are_no_way_around_the_filter(
    work: Path, kind: str
) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("what the test runs is of another processor")
    (work / "older.py").write_text(OLDER)
    if subprocess.run([PYTHON, "older.py"], cwd=work, capture_output=True, check=False).returncode:
        pytest.skip("this kernel runs no programs of 32 bits")
    (text,) = told(work, f"{PYTHON} older.py", kind=kind)
    assert text.split()[:6] == ["ENOSYS"] * 4 + ["none", "EPERM"]


@pytest.mark.spec("SEC-13", "SEC-18")
def test_no_connection_is_waited_for_where_the_guard_is_told_to_end_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = object.__new__(sandbox_calls.SocketKeeper)
    threads: list[object] = []
    monkeypatch.setattr("_thread.start_new_thread", lambda *told: threads.append(told))
    with socket.socket(socket.AF_UNIX) as mine:
        mine.setblocking(False)
        keeper._begin(1, 2, mine.fileno(), b"")
    assert len(threads) == 1


@pytest.mark.spec("SEC-18")
def test_where_calls_cannot_be_handed_over_there_are_pairs_alone(tmp_path: Path) -> None:
    if sandbox_calls.machine() is None:
        pytest.skip("no filter for this machine")
    script = f"""
        import sys
        sys.path.append({os.path.dirname(sandbox_calls.__file__)!r})
        import socket, guard, sandbox_calls
        calls = sandbox_calls.filters(unix=True, inet=False, frozen=False, mounts=True)
        assert guard._put_on(calls, hands_over=False) == -1
        socket.socketpair()
        for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
            try:
                socket.socket(family)
            except OSError as e:
                print(e.strerror)
    """
    argv = (sys.executable, "-I", "-c", textwrap.dedent(script))
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10)
    assert done.stdout.splitlines() == ["Permission denied"] + ["Network is unreachable"] * 2


@both
@pytest.mark.spec("SEC-18", "CAN-10")
def test_a_signal_ends_a_connection_that_waits_and_leaves_others_whole(
    work: Path, kind: str
) -> None:
    script = """
        import signal, socket, threading
        full = socket.socket(socket.AF_UNIX)
        full.bind("full")
        full.listen(0)
        first = socket.socket(socket.AF_UNIX)
        first.connect("full")

        class Rang(Exception):
            pass

        def ring(*_):
            raise Rang

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            socket.socket(socket.AF_UNIX).connect("full")
        except Rang:
            print("rang")
        server = socket.socket(socket.AF_UNIX)
        server.bind("open")
        server.listen(1000)
        left = [50]

        def count(*_):
            left[0] -= 1
            if left[0] > 0:
                signal.setitimer(signal.ITIMER_REAL, 0.0003)

        signal.signal(signal.SIGALRM, count)
        count()
        clients = [socket.socket(socket.AF_UNIX) for _ in range(200)]
        for client in clients:
            client.connect("open")
        left[0] = 0
        print("connected")
    """
    (work / "rings.py").write_text(textwrap.dedent(script))
    (text,) = told(work, f"{PYTHON} rings.py", kind=kind)
    assert text.startswith("rang\nconnected\n[exit code 0"), text


ODD_CONNECT = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
for at in (-1, 1 << 63, 0):
    with socket.socket(socket.AF_UNIX) as s:
        libc.connect(s.fileno(), ctypes.c_void_p(at), 16)
        print(errno.errorcode[ctypes.get_errno()])
"""


@both
@pytest.mark.spec("SEC-7", "SEC-18", "CAN-10")
def test_an_address_that_cannot_be_does_not_end_the_guard(work: Path, kind: str) -> None:
    (work / "odd.py").write_text(ODD_CONNECT)
    (text,) = told(work, f"{PYTHON} odd.py", kind=kind)
    assert text.startswith("EFAULT\nEFAULT\n") and "exit code 0" in text


FORGED_LINE = r"""
import errno, socket
with socket.socket(socket.AF_UNIX) as s, socket.socket(socket.AF_UNIX) as c:
    s.bind("\0q\nx: 1 1 00010000 1 01 zz @forged")
    s.listen()
    c.setblocking(False)
    print(errno.errorcode[c.connect_ex("\0forged")])
"""


@both
@pytest.mark.spec("SEC-7", "SEC-18", "CAN-10")
def test_a_name_that_looks_like_a_line_of_the_kernels_does_not_end_the_guard(
    work: Path, kind: str
) -> None:
    (work / "forged.py").write_text(FORGED_LINE)
    (text,) = told(work, f"{PYTHON} forged.py", kind=kind)
    assert text.startswith("E") and "exit code 0" in text


@pytest.mark.spec("SEC-7", "SEC-18")
def test_a_connection_for_which_no_thread_is_left_is_refused(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = object.__new__(sandbox_calls.SocketKeeper)
    answers: list[int] = []
    monkeypatch.setattr(keeper, "_respond", lambda _, problem: answers.append(problem))

    def none_left(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("_thread.start_new_thread", none_left)
    with socket.socket(socket.AF_UNIX) as mine:
        handle = os.dup(mine.fileno())
        keeper._begin(1, 2, handle, b"")
    assert answers == [errno.EAGAIN]
    with pytest.raises(OSError):
        os.close(handle)


@both
@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize("name", ["", "below"])
def test_what_says_which_sockets_are_the_sessions_own_is_out_of_the_commands_reach(
    work: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    (work / name).mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(work / name))
    outside = work / "another's.sock"
    (work / "forge.py").write_text(
        textwrap.dedent(
            f"""
            import glob, os, socket
            there = os.stat({str(outside)!r})
            for place in glob.glob("**/agentcli-*", recursive=True):
                if os.path.dirname(place):
                    os.rename(os.path.dirname(place), "moved")
                os.makedirs(place + "/sockets", exist_ok=True)
                open(f"{{place}}/sockets/inode-{{there.st_dev}}-{{there.st_ino}}", "w").close()
            try:
                socket.socket(socket.AF_UNIX).connect({str(outside)!r})
                print("CONNECTED")
            except OSError as error:
                print("refused")
            """
        )
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(outside))
        server.listen(1)
        (text,) = told(work, f"{PYTHON} forge.py", kind=kind)
    assert text.startswith("refused"), text


@pytest.mark.spec("SEC-18", "SEC-7")
def test_landlock_counts_as_none_where_all_temporary_directories_are_worked_in(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    monkeypatch.setattr(sandbox_setup, "temporary_places", lambda: [str(work)])
    needs("landlock")
    assert "our own files" in look_for_sandbox(work, "landlock").problem
