"""Commands that the tables call read-only, made at random, run in a repository that is all traps.

Where the wide table says so they run in the real read-only sandbox, where the strict one does
without any: in neither case does a file change, a program of the repository run to an effect, or
a server hear of it (SEC-4).
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.domain.sandbox import Access
from agentcli.domain.tools import Workspace
from agentcli.policy.read_only_programs import _GIT_LISTS, _TOOLS, GIT_SHOWS, WIDE
from agentcli.policy.read_only_table import SPECS
from tests.support.reads import is_read_only
from tests.support.sandboxes import Sandboxed, bash, needs
from tests.support.tool_context import text_of, tool_context

RUNS = 80
TRIES = 60 * RUNS
SEEDS = range(2)
GIT_SETTINGS = (
    "core.fsmonitor", "core.pager", "diff.external", "diff.evil.textconv", "diff.evil.command",
    "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.sshCommand",
    "core.askPass", "gpg.program", "credential.helper", "core.editor", "pager.log", "pager.status",
    "core.alternateRefsCommand", "interactive.diffFilter", "uploadpack.packObjectsHook",
)  # fmt: skip
GIT_WORDS = (
    "status", "-s", "-p", "--stat", "HEAD", "HEAD~0", "--", "a.txt", "--all", "-v", "--cached",
    "--ext-diff", "--textconv", "--show-signature", "-O", "--output=CANARY", "--format='%h %GG %G?'",
    "--ignored", "--recurse-submodules", "-c", "--batch", "--refresh", "--no-index",
    "--open-files-in-pager", "-S", "x", "-G", "x", "-e", "a", ".", "--exec=./evil", "list", "show",
    "get-url", "origin", "--get", "core.pager", "--list", "-l", "--show-origin", "summary", "log",
    "-L1,1:a.txt", "--submodule", "--raw", "--patch-with-stat", "--follow", "--word-diff",
)  # fmt: skip
WORDS = (
    "a.txt", "sub", "*", ".", "-", "--version", "-l", "-n", "-r", "-a", "--help", "-v", "-i", "-o",
    "CANARY", "-oCANARY", "--output=CANARY", "'s/a/b/'", "'s/a/b/w CANARY'", "'1p'", "{}", "+",
    r"\;", "-exec", "cat", "-delete", "-name", "'*.py'", "$X", "$(ls)", '"$(git log)"', "list",
    "show", "-f", "x", "env", "tree", "metadata", "--json", "-V", "1", "'{print $1}'",
    "'{print > \"CANARY\"}'", "[a-c]*", "-t", "-tf", "http://127.0.0.1:9/", "--pre=./evil", "-q",
    "doc", "info", "check", "-qa", "search", "-S", "--sort=name", "'%s'", "<(ls)", "<(cat a.txt)",
)  # fmt: skip
PROGRAMS = sorted({*SPECS, *WIDE, *_TOOLS} - {"sleep"})
GIT_COMMANDS = sorted({*GIT_SHOWS, *_GIT_LISTS})


def one_call(rng: random.Random) -> str:
    if rng.random() < 0.45:
        before = rng.choices(["--no-pager", "-C sub", "-P"], k=rng.choice((0, 0, 1)))
        words = rng.choices(GIT_WORDS, k=rng.randint(0, 3))
        return " ".join(["git", *before, rng.choice(GIT_COMMANDS), *words])
    program = rng.choice(PROGRAMS)
    words = rng.choices(WORDS, k=rng.randint(0, 3))
    if program in _TOOLS and rng.random() < 0.7:
        words = [rng.choice(sorted(_TOOLS[program]) or ["-tf"]), *words[:2]]
    return " ".join([program, *words])


def a_command(rng: random.Random) -> str:
    call, chance = one_call(rng), rng.random()
    if chance < 0.15:
        return call + rng.choice([" | ", " && ", "; ", " || "]) + one_call(rng)
    if chance < 0.2:
        return f"for f in *; do {call} $f; done"
    if chance < 0.25:
        return f'[ "$({call})" = x ] && {one_call(rng)}'
    if chance < 0.28:
        return f"diff <({call}) <({one_call(rng)})"
    return f"cd sub && {call}" if chance < 0.33 else call


@pytest.fixture
def heard() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: socket.socket) -> Path:
    """A repository whose settings, hooks and programs all leave a mark when they run."""
    root, home = tmp_path.resolve() / "work", tmp_path.resolve() / "home"
    (root / "sub").mkdir(parents=True)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / "precious").write_text("p")

    def git(*words: str) -> None:
        own = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *own, *words], cwd=root, check=True, capture_output=True)

    git("init", "-q")
    (root / "a.txt").write_text("a\nb\n")
    (root / "sub" / "x.py").write_text("x = 1\n")
    (root / ".gitattributes").write_text("* diff=evil filter=evil merge=evil\n")
    git("add", "-f", "a.txt", "sub")
    git("commit", "-qm", "x")
    (root / "a.txt").write_text("a\nc\n")
    port = heard.getsockname()[1]
    evil = (
        f"#!/bin/bash\ntouch {root}/CANARY {home}/CANARY; rm -f {home}/precious\n"
        f"exec 3<>/dev/tcp/127.0.0.1/{port}\ncat\n"
    )
    hooks = (".git/hooks/post-index-change", ".git/hooks/pre-commit", ".git/hooks/post-checkout")
    for name in ("evil", "ls", "git", "cat", "pip", "grep", *hooks):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(evil)
        (root / name).chmod(0o755)
    for key in GIT_SETTINGS:
        git("config", key, str(root / "evil"))
    git("config", "alias.lg", f"!{root}/evil")
    git("config", "remote.origin.url", f"ext::{root}/evil")
    git("config", "log.showSignature", "true")
    address = f"http://127.0.0.1:{port}/"
    for name, text in {
        "package.json": '{"scripts":{"preinstall":"./evil"}}', ".npmrc": f"registry={address}\n",
        "setup.py": f"import os;os.system('{root}/evil')\n", "go.mod": "module x\n",
        "sitecustomize.py": f"import os;os.system('{root}/evil')\n",
        "pip.conf": f"[global]\nindex-url={address}\n", ".ripgreprc": f"--pre={root}/evil\n",
        "Cargo.toml": '[package]\nname="x"\nversion="0.1.0"\nbuild="build.rs"\n',
    }.items():  # fmt: skip
        (root / name).write_text(text)
    return root


def disk(*places: Path) -> set[tuple[str, int, int, str]]:
    found = set()
    for path in (path for place in places for path in place.rglob("*")):
        status, is_file = path.lstat(), path.is_file()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
        found.add((str(path), status.st_mode, status.st_mtime_ns if is_file else 0, digest))
    return found


def was_called(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["bwrap", "landlock", "off"])
def test_what_the_tables_call_read_only_has_no_effect(
    traps: Path, heard: socket.socket, kind: str, seed: int
) -> None:
    rng, workspace = random.Random(seed), Workspace(traps, traps)
    made = (a_command(rng) for _ in range(TRIES))
    free = (text for text in made if is_read_only(text, workspace, contained=kind != "off"))
    places = (traps, traps.parent / "home")
    before, wrong = disk(*places), []

    def check(text: str, said: str) -> None:
        nonlocal before
        after = disk(*places)
        if after != before or was_called(heard):
            wrong.append((text, sorted(after ^ before)[:4], said[:200]))
            before = after

    async def inside() -> int:
        async with Sandboxed(traps, kind) as sandboxed:
            sandboxed.ctx.access = Access.READ_ONLY
            return await each(lambda text: sandboxed.say(text, timeout_s=5))

    async def outside() -> int:
        ctx = tool_context(traps)

        async def say(text: str) -> str:
            return text_of(await bash(ctx, text, timeout_s=5))

        return await each(say)

    async def each(say) -> int:
        ran = 0
        for text in free:
            check(text, await say(text))
            ran += 1
            if ran == RUNS:
                break
        return ran

    if kind != "off":
        needs(kind)
    assert asyncio.run(outside() if kind == "off" else inside()) >= RUNS / 4
    assert not wrong, wrong
