"""Commands that find files by themselves cannot read the workspace's credentials (SEC-3, SEC-4)."""

from __future__ import annotations

import asyncio
import os
import shlex
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.ports import PermissionMode as Mode
from agentcli.domain.sandbox import MOST_SHUT, Access, Confined
from agentcli.domain.tools import Asks, ToolDefinition, Workspace
from agentcli.policy.decision import Answer, CallFacts, Decision
from agentcli.policy.places import credentials_below
from agentcli.process.git_index import index_of, tracked_in
from agentcli.process.sandbox import SessionSandbox
from agentcli.process.sandbox_places import OwnPlaces
from tests.policy.asking import Asked, judged, policy_of
from tests.policy.test_credentials import MEETS
from tests.security.test_partly_known_names import IN_AUTO
from tests.support.sandboxes import BOTH, Sandboxed

BASH = ToolDefinition("bash", "bash", "", {"type": "object"}, Asks.ANYTHING, "shell")
OWN = OwnPlaces(credentials=credentials_below)
MORE = (
    "shopt -s nocaseglob; cat .EN[V]",
    "shopt -s globstar dotglob; cat **/.e*",
    "rg -uu KEY > found; cat found",
    "for f in .e*v; do cp $f copy; done; cat co*",
    'eval "cat .e$(echo n)v"',
    'x=v; bash -c "cat .en$x"',
    "source .e*; echo $KEY",
    "tail -n+1 -- $(find . -maxdepth 1 -type f)",
    'mapfile -t a < <(find . -type f); cat "${a[@]}"',
    "f=$(ls -A | head -1); cat <> $f",
    "c=cat; $c $(ls -A)",
    "/bin/ca? $(ls -A)",
    'f() { "$@"; }; f cat $(ls -A)',
    'f() { command "$@"; }; f cat $(ls -A)',
    'f() { cat; } < "$(ls -A | head -1)"; f',
    'cd "$(find conf -mindepth 1 -type d)"; cat credentials',
    'for p in cp ln "ln -s" mv install; do $p "$(ls -A | head -1)" z; cat z; done',
    'ln -s "$(ls -A | head -1)" z; cat z',
    'cp "$(ls -A | head -1)" z; cat z',
    "find . -type f -print0 | sort --files0-from=-",
    "ls -A | head -1 > z; strings @z",
    'wc --files0-from="$(ls -A | head -1)"',
    'file -f "$(ls -A | head -1)"',
    'cmp -bl "$(ls -A | head -1)" /dev/zero | cut -c10- | tr -dc a-z',
    "grep --dir=recurse KEY .",
    "for x in '-name .e* -exec cat {} +'; do find . $x; done",
    "for x in '-exec grep -r KEY . ;'; do find . -maxdepth 0 $x; done; find . $x",
    "for x in '-T .e*'; do tar tf /dev/null $x; done",
    "for x in '-f .e*'; do file $x; done",
    "x='$(cat $(ls -A))'; echo \"${x@P}\"",
    "PS4='$(cat $(ls -A))'; set -x; :",
    "compgen -C 'cat $(ls -A)'",
    "printf -v 'a[$(cat $(ls -A) >&2)0]' x",
    'env -S "cat $(ls -A | head -1)"',
    "script -qc 'cat $(ls -A)' /dev/null",
    "ls -A | sed 's/^/cat /' | bash",
    "ls -A | sed 's/^/cat /' | . /dev/stdin",
    "source /dev/stdin <<< 'cat $(ls -A)'",
    "bash <(ls -A | sed 's/^/cat /')",
    "ls -A | sed 's/^/cat /' | xargs -n2 env",
    "ls -A | xargs -I% bash -c '. ./%; echo $KEY'",
    'bash -v "$(ls -A | head -1)"',
    'BASH_ENV="$(ls -A | head -1)" bash -xc :',
    ":;" * 5_001 + "ls -A | xargs cat",
    "bash -c :;" * 41 + "bash -c 'ls -A | xargs cat'",
    "zsh -c 'setopt extendedglob globdots; cat ^f1'",
    "zsh -c '< (.env|x)'",
    "zsh -c 'repeat 1 cat (.env|x)'",
    "zsh -c 'setopt extendedglob; cat .e#nv'",
    "fish -C 'cat ./.e(echo nv)' -c true",
)
OF_GIT = (
    "mkdir -p /tmp/e; git diff /tmp/e .",
    'git diff /dev/null "$(ls -A | head -1)"',
    "git grep --u KEY",
    "for x in '--no-index /dev/null .e*'; do git diff $x; done",
    "git --git-dir=/none diff src .",
    "GIT_CEILING_DIRECTORIES=${PWD%/*} git diff src .",
    'git config -f "$(find conf -type f)" -l',
    'git interpret-trailers "$(ls -A | head -1)"',
    'git hash-object -w "$(ls -A | head -1)" | xargs git cat-file -p',
)
NO_SEARCHES = (
    "npm test 2>&1 | tail -20",
    "make build | grep -n error",
    'cd "$(git rev-parse --show-toplevel)" && npm test | tail -n 5',
    "ENV=$x npm run deploy -- $1",
    'for t in tests/*.sh; do bash "$t"; done',
    "echo y | bash setup.sh",
    'docker compose -f "$f" up',
    'python3 manage.py "$x"',
    "git diff $(git merge-base main HEAD) --stat",
    "git diff main HEAD; git diff src tests",
    "git commit -m $x && git log -1",
    "GIT_PAGER=cat git diff HEAD -- .gitignore .",
    "((n++)); wc -l $x",
    "cp a.py b.py; sort -o x y; cat x",
    "zsh -c 'npm test && npm run lint' | tail",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "w"
    fill(root)
    return root


def fill(root: Path) -> None:
    for name in (".env", "deep/er/.env.local", "src/a.py", "conf/.aws/credentials", "f1"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(
            "KEY=canary\n" if "." in name[:9] and "a.py" not in name else "x\n"
        )
    (root / "linked").mkdir(exist_ok=True)
    if not (root / "linked/note").is_symlink():
        (root / "linked/note").symlink_to("../.env")


async def shown(here: Sandboxed, root: Path, command: str) -> str:
    """What the command shows if it runs unasked, in ``root`` as it was."""
    fill(root)
    (root / "z").unlink(missing_ok=True)
    await here.say(f"cd {root}")
    said = decision(root, command)
    if said.answer is not Answer.ALLOW or said.access is None:
        return ""
    return await here.with_access(said.access, command)


def decision(root: Path, command: str, mode: Mode = Mode.AUTO) -> Decision:
    policy = policy_of(mode, [], [])
    policy.contained = True
    place = Workspace(root, root)
    return judged(Asked(CallFacts(BASH, {"command": command}, ()), place), policy)


@pytest.mark.slow
@pytest.mark.timeout(160)
@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("kind", BOTH)
def test_no_search_that_runs_unasked_shows_a_credential(kind: str, root: Path) -> None:
    async def go() -> None:
        async with Sandboxed(root, kind, own=OWN) as here:
            for command in (*MEETS, *IN_AUTO, *MORE):
                assert "canary" not in await shown(here, root, command), command
            await here.say("git init -q . && git add src")
            for command in OF_GIT:
                assert "canary" not in await shown(here, root, command), command

    asyncio.run(go())


@pytest.mark.spec("SEC-3", "SEC-4")
def test_what_searches_nothing_keeps_what_it_needs(root: Path) -> None:
    (root / ".git").mkdir()
    for command in NO_SEARCHES:
        access = decision(root, command).access
        assert access is not None and not access.hides, command


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("kind", BOTH)
def test_a_search_sees_that_there_is_a_credential_and_all_else(kind: str, root: Path) -> None:
    async def go() -> None:
        async with Sandboxed(root, kind, own=OWN) as here:
            for access in (Access.SEARCH, Access.INSIDE_SEARCH):
                said = await here.with_access(access, "grep -r '' . ; ls -A . deep/er conf/.aws")
                assert "canary" not in said and "./.env: Permission denied" in said
                assert "src/a.py:x" in said and ".env.local" in said
            text = "for f in s*; do echo made > $f/new; cat $f/*; done; echo y > top; ls top"
            said = await here.with_access(Access.INSIDE_SEARCH, text)
            assert "made" in said and (root / "top").read_text() == "y\n"
            # named, and allowed by the user
            assert "canary" in await here.with_access(Access.READ_ONLY, "cat .env")
        assert decision(root, "cat .env").access is Access.READ_ONLY
        assert decision(root, "sh x .env").access is Access.INSIDE
        assert decision(root, "cat .env").answer is Answer.ASK
        assert (root / ".env").read_text() == "KEY=canary\n"

    asyncio.run(go())


@pytest.mark.spec("SEC-3", "SEC-7")
@pytest.mark.parametrize("kind", BOTH)
def test_the_user_is_told_what_a_search_cannot_read_of_its_own(kind: str, root: Path) -> None:
    async def run() -> tuple[str, str]:
        async with Sandboxed(root, kind, own=OWN) as here:
            told = await shown(here, root, "grep -rl KEY . > made; echo y >> made; cat made")
            return told, here.sandbox.state.problem

    told, problem = asyncio.run(run())
    assert ("y\n" in told) == (kind == "bwrap"), told
    assert ("a search cannot read what it makes" in problem) == (kind == "landlock")
    assert "not hidden" not in problem


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("kind", BOTH)
def test_git_does_not_take_a_tracked_credential_for_changed(kind: str, root: Path) -> None:
    async def go() -> None:
        async with Sandboxed(root, kind, own=OWN) as here:
            await here.say(
                "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm x"
            )
            for command in ("git status --short", "git diff --stat", "git grep -l x"):
                said = decision(root, command)
                assert said.access is not None and not said.access.hides
                shown = await here.with_access(said.access, command)
                assert ".env" not in shown and "denied" not in shown

    asyncio.run(go())


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("kind", BOTH)
def test_what_a_repository_has_git_run_on_files_reads_no_credential(kind: str, root: Path) -> None:
    (root / "src/.gitattributes").write_text("a.py filter=x\n")
    for text in ("init -q .", "add src", "config filter.x.clean 'cat .env'"):
        subprocess.run(["git", *shlex.split(text)], cwd=root, check=True)
    os.rename(root / ".git", root / "own")
    (root / ".git").write_text("gitdir: own\n")

    async def go() -> None:
        async with Sandboxed(root, kind, own=OWN) as here:
            for command in ("git diff", "git -C src diff", "cd src && git diff", "git status"):
                await here.say(f"cd {root}; echo y > src/a.py")
                said = decision(root, command, Mode.DEFAULT)
                assert said.answer is Answer.ALLOW and said.access is not None
                assert "canary" not in await here.with_access(said.access, command)

    asyncio.run(go())


def _bare(place: Path, link: str, leads: str) -> None:
    """A repository as a tree of another one may hold it: with files, and a link to ``leads``."""
    for name in ("objects/info/k", "refs/heads/k", "info/k"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    (place / "config").write_text("[core]\nrepositoryformatversion = 0\nbare = true\n")
    (place / link).symlink_to(leads)


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("kind", BOTH)
def test_no_repository_has_git_quote_a_credential(kind: str, root: Path) -> None:
    (root / ".env").write_text("KEY=canary\n")
    _bare(root / "refs", "packed-refs", "../.env")
    _bare(root / "more", "objects/info/alternates", "../../../.env")
    (root / "more/refs/heads/main").write_text("1" * 40 + "\n")
    _bare(root / "past", "shallow", "../.env")
    (root / "past/refs/heads/main").write_text("1" * 40 + "\n")
    inner = root / "inner"
    for place in (inner, root):
        subprocess.run(["git", "init", "-q", str(place)], check=True)
        (place / "f").write_text("x")
        name = "inner" if place == root else "f"
        subprocess.run(["git", "add", name], cwd=place, check=True)
        subprocess.run(shlex.split(COMMIT), cwd=place, check=True)
    (inner / ".git/packed-refs").symlink_to("../../.env")
    commands = ("git -C refs rev-parse HEAD", "(cd refs && git log)", "git -C more log",
                "git -C past log", "git status", "git diff", "git -C inner log")  # fmt: skip

    async def go() -> None:
        async with Sandboxed(root, kind, own=OWN) as here:
            for command in commands:
                said = decision(root, command, Mode.DEFAULT)
                assert said.answer is Answer.ALLOW and said.access is not None
                assert "canary" not in await here.with_access(said.access, command), command
                shown = await here.with_access(Access.READ_ONLY, command)
                assert "canary" in shown, command  # the trap is one

    asyncio.run(go())


COMMIT = "git -c user.name=a -c user.email=a@b commit -qm x"
SEARCH_AND_STATUS = "git status --short; cat $(ls -A)"


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("kind", BOTH)
def test_beside_a_search_git_takes_no_tracked_credential_for_changed(kind: str, root: Path) -> None:
    subprocess.run(f"git init -q . && git add .env && {COMMIT}", shell=True, cwd=root, check=True)
    (root / "other").mkdir()
    (root / "other/.env").write_text("KEY=untracked\n")

    async def go() -> None:
        async with Sandboxed(root, kind, own=OWN) as here:
            for access in (Access.SEARCH, Access.INSIDE_SEARCH):
                said = await here.with_access(access, "git status --short; grep -r KEY .")
                assert "M .env" not in said and "./.env:KEY=canary" in said
                assert "untracked\n" not in said and "other/.env: Permission denied" in said
            said = await here.with_access(
                Access.INSIDE_SEARCH, f"git add src f1 && {COMMIT}; cat *"
            )
            assert "denied" not in said and "fatal" not in said
            # what a command has git track stays hidden
            await here.say("git add -A -f")
            said = await here.with_access(Access.INSIDE_SEARCH, "grep -r KEY .")
            assert "untracked\n" not in said and "other/.env: Permission denied" in said

    asyncio.run(go())


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    "how",
    [
        "git add .env; git update-index --assume-unchanged .env",
        "git add .env; git update-index --skip-worktree .env",
        "git add -N .env",
        "git add .env; git update-index --split-index",
        "rm -r .git; git init -q --object-format=sha256 .; git add .env",
        "git add .env; mv .git elsewhere; ln -s elsewhere .git",
        "git add .env; mv .git elsewhere; echo gitdir: elsewhere > .git",
        "git add .env; printf xx >> .git/index",
        "mkdir -p x/.env y.env; cp .env x/.env/.env; cp .env y.env/; git add x y.env",
        "ln -s .env a; git add a",
        "mv .env b; ln -s b .env; git add .env; mv b .env",
    ],
)
def test_only_what_git_shows_anyway_is_not_hidden(root: Path, how: str) -> None:
    subprocess.run(f"git init -q .; {how}", shell=True, cwd=root, check=True)
    names = {b".env", b"linked/note"}
    assert not tracked_in(index_of(str(root)), names)


@pytest.mark.spec("SEC-3", "SEC-13")
@pytest.mark.parametrize("how", [2, 4])
def test_an_index_is_read_as_git_reads_it(root: Path, how: int) -> None:
    names = [f"{'d' * n}/.env" for n in range(1, 20)] + ["a" * 200 + "/" + "b" * 200 + "/.env"]
    for name in names:
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("x")
    version = f"git update-index --index-version {how}"
    subprocess.run(f"git init -q . && git add -A -f && {version}", shell=True, cwd=root, check=True)
    data = index_of(str(root))
    assert data[7] == how
    wanted = {os.fsencode(name) for name in names}
    assert tracked_in(data, {*wanted, b".env", b"env", b"none", b"linked/note"}) == {
        *wanted,
        b".env",
    }
    for end in range(len(data)):
        assert not tracked_in(data[:end], wanted)
    os.truncate(root / ".git/index", 16 * 1024 * 1024 + 1)
    assert index_of(str(root)) == b""


@pytest.mark.spec("SEC-3", "SEC-13")
def test_an_index_of_names_without_end_takes_no_time() -> None:
    start = struct.pack(">4sII", b"DIRC", 4, 200_000)
    first = bytes(62) + b"\0" + b"a" * 4_000_000 + b"\0"
    data = start + first + (bytes(62) + b"\0b\0") * 200_000 + bytes(20)
    assert not tracked_in(data, {b"a"})
    assert not tracked_in(start + bytes(62) + b"\xff" * 4_000_000, {b"a"})


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("kind", BOTH)
def test_git_works_in_a_linked_working_tree_that_tracks_credentials(kind: str, root: Path) -> None:
    tree = root / "tree"
    for text in ("init -q .", "add -f .env src", "config filter.x.clean cat"):
        subprocess.run(["git", *shlex.split(text)], cwd=root, check=True)
    subprocess.run(f"{COMMIT} && git worktree add -q tree", shell=True, cwd=root, check=True)
    (tree / "deep").mkdir()
    (tree / "deep/.env").write_text("KEY=untracked\n")

    async def go() -> None:
        async with Sandboxed(tree, kind, own=OWN) as here:
            for command in ("git status --short", "git diff", "grep -r untracked ."):
                said = await here.with_access(Access.SEARCH, command)
                assert " .env" not in said and "fatal" not in said and "=untracked" not in said

    asyncio.run(go())


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("kind", BOTH)
def test_a_search_makes_no_file_where_a_link_to_a_credential_leads(kind: str, root: Path) -> None:
    (root / "deep/.env.local").symlink_to("../gone/.env")
    (root / "deep/.env").symlink_to(".env")

    async def go() -> None:
        async with Sandboxed(root, kind, own=OWN) as here:
            for access in (Access.SEARCH, Access.INSIDE_SEARCH):
                assert "src/a.py:x" in await here.with_access(access, "grep -r '' .")
                assert not (root / "gone").exists()

    asyncio.run(go())


@pytest.mark.spec("SEC-3")
def test_what_goes_before_the_search_starts_is_not_left_behind_empty(root: Path) -> None:
    gone, kept = root / ".env", root / "deep/.env"
    kept.touch(mode=0o444)

    async def go() -> None:
        async with Sandboxed(root, own=OWN) as here:
            here.ctx.sandbox = Removing(here.sandbox, gone)
            assert "x" in await here.with_access(Access.INSIDE_SEARCH, "cat f*; ls -A")
            assert not gone.exists() and kept.exists()
            gone.write_text("KEY=new")
            here.ctx.sandbox = here.sandbox
            await here.with_access(Access.INSIDE_SEARCH, "cat f*")
            assert gone.read_text() == "KEY=new"

    asyncio.run(go())


class Removing:
    """The sandbox, where a file is removed before each command starts."""

    def __init__(self, sandbox: SessionSandbox, path: Path) -> None:
        self._sandbox, self._path = sandbox, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def confine(self, argv: Sequence[str], cwd: Path, access: Access) -> Confined:
        confined = await self._sandbox.confine(argv, cwd, access)
        self._path.unlink()
        return confined


@pytest.mark.spec("SEC-3", "SEC-4")
def test_a_search_of_a_home_that_cannot_be_looked_through_asks(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(MOST_SHUT + 1):
        (home / f".tool{number}").mkdir()
        (home / f".tool{number}" / "token").write_text("KEY=canary\n")
    mine = (
        "grep -rn KEY .",
        "rg --hidden KEY",
        "find . -type f | xargs cat",
        "ls -A | xargs -I% cat %/token",
    )
    for root in (home, home.parent):
        for command in mine:
            said = decision(root, command)
            assert (said.answer, said.lasts) == (Answer.ASK, False), command
            assert "home directory" in said.reason, said.reason
        for command in ("cat notes.txt", "ls -a *.md", "git status", "npm test"):
            assert decision(root, command).answer is Answer.ALLOW, command
    (home / ".tool0" / "token").unlink()
    assert decision(home, mine[0]).answer is Answer.ALLOW
    monkeypatch.setattr("agentcli.policy.places._MAX_SEEN", 50)
    assert decision(home, mine[0]).answer is Answer.ASK
    project = home / "project"
    project.mkdir()
    assert decision(project, mine[0]).answer is Answer.ALLOW
