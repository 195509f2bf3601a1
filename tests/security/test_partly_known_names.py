"""Files whose names a variable, a loop or a pattern makes are judged by what is known of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.domain.ports import PermissionMode as Mode
from agentcli.domain.tools import Asks, ToolDefinition, Workspace
from agentcli.policy.decision import Answer, CallFacts, Decision
from agentcli.policy.places import GlobFinder
from tests.e2e.one_shot import last_result, one_shot
from tests.policy.asking import Asked, judged, policy_of
from tests.support.model_server import ModelServer
from tests.support.reads import is_read_only
from tests.support.replies import call

BASH = ToolDefinition("bash", "bash", "", {"type": "object"}, Asks.ANYTHING, "shell")
MANY = " ".join(f"f{number}" for number in range(600))
IN_EVERY_MODE = (
    "for d in . src; do cat $d/.env; done",
    "for e in env; do cat .$e; done",
    "for e in n; do cat .e${e}v; done",
    "for a in .; do for b in env; do cat $a$b; done; done",
    f"cat {MANY} .env",
    f"cat {{{','.join(MANY.split())},.env}}",
)
IN_AUTO = (
    "X=.env; cat $X",
    "git log -L1,5:.env",
    "git log -p -- ':(icase).ENV'",
    "bash -c 'for f in .env; do cat $f; done'",
    "a=(.env); cat ${a[0]}",
    "e=env; cat .$e",
    "head < $d/.env",
    'cat "$(pwd)/.env"',
    "cat ${PWD%/}/.env",
    "cat ${x:-.env}",
    "cat ${FILE:-f1}",
    "dd if=.env",
    "xargs cat <<< .env",
    "while read x; do cat $x; done <<< .env",
    "cat $'.\\x65nv'",
    "f=.envx; cat ${f%x}",
    "f=g; cat ${!f}",
    "f=.en; f+=v; cat $f",
    "printf -v x %s env; cat .$x",
    "sed 'r .env' f1",
    "sed r.env f1",
    "xargs -ra.env echo",
    "sed -n '\\%x%R.env' f1",
    "ex -s +r.env f1",
    "awk '{getline < \".env\"; print}' f1",
    "sqlite3 x.db '.read .env'",
    "cat .{e..e}nv",
    "shopt -s extglob\ncat .@(env)",
    "cat $f",
    "cat src/$f",
    "head -c9 < $f",
    "f() { cat .$1; }; f env",
    "echo .fow | tr fow env | xargs cat",
    "printf %s env | xargs -I% cat .%",
    "find . -name '.e*' | xargs -I{} sh -c 'cat {}'",
    "while read f; do cat $f; done < f1",
    "git log --format=.env | xargs cat",
    "cat $(grep . f1)",
    "ls | sed s/f1/.env/ | xargs cat",
    "; ".join(f"cat f{number}" for number in range(550)) + "; cat .env",
    f"for f in {MANY} .env; do cat $f; done",
)
FREE_IN_AUTO = (
    'f=$(git ls-files | head -1); head -3 "$f"',
    "f=$(ls *.c | tail -1); cat $f",
    "git log -p -- ':!.env' ':(exclude).env'",
    "X=$(git rev-parse HEAD); echo $X > dist/rev",
    "V=1.2; sed -i s/x/$V/ f1",
    'for f in *; do cat "$f"; done',
    "OUT=dist; cp f1 $OUT/",
    "cp * src/",
    "for f in f1 src/*.py; do cat $f; done",
    "git ls-files | xargs cat",
    'git diff --name-only | while read f; do echo "== $f"; cat "$f"; done',
    "for f in $(git ls-files '*.py'); do head -5 \"$f\"; done",
    'cat $(grep -rl KEY src) "$(git rev-parse --show-toplevel)/README.md" src/$m.py',
    "find src -name '*.py' | sort | head -3 | xargs -I% head -5 %",
    "ls src | while read f; do head -2 src/$f; done",
    'N=5; head -n $N f1 | grep "$PATTERN"; sed -n "${a},${b}p" f1',
    'for f in .env; do [ -f "$f" ] && echo there; done',
    "diff <(sort f1) <(sort f1); files=(src/*.py); cat ${files[@]}",
    'f() { cat "$1"; }; f f1',
    "git mv f1 src/ && git restore . && git checkout HEAD -- f1",
)
WRITTEN = (
    "bash -c 'for f in ~/.bashrc; do echo e > $f; done'",
    "mv ${x}.git y",
    "for d in ~; do echo e >> $d/.bashrc; done",
    "X=~/.bashrc; echo e >> $X",
    "X=$HOME/.bashrc; cp f1 $X",
    "cp f1 ~/.bashr*",
    'echo e > "$(echo ~)/.bashrc"',
    "D=.git; echo e > $D/hooks/pre-commit",
    "D=.git; cp f1 $D/hooks/pre-commit",
    "git mv f1 .vscode/tasks.json",
    "git mv tasks.json .vscode/",
    "git restore -s HEAD~1 .envrc",
    "git checkout HEAD~1 -- .envrc",
)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    root, home = tmp_path / "work", tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / ".bashrc").touch()
    for name in ("src", "dist", ".git/hooks"):
        (root / name).mkdir(parents=True)
    for name in (".env", "f1"):
        (root / name).write_text("KEY=canary\n")
    return Workspace(root, root)


def decision(workspace: Workspace, command: str, mode: Mode, *, contained: bool) -> Decision:
    policy = policy_of(mode, [], [])
    policy.contained = contained
    return judged(Asked(CallFacts(BASH, {"command": command}, ()), workspace), policy)


def answer(workspace: Workspace, command: str, mode: Mode, *, contained: bool) -> Answer:
    return decision(workspace, command, mode, contained=contained).answer


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("command", [*IN_EVERY_MODE, *IN_AUTO])
def test_a_credential_that_is_named_in_part_asks(workspace: Workspace, command: str) -> None:
    if command in IN_EVERY_MODE:
        for mode in (Mode.DEFAULT, Mode.PLAN):
            assert answer(workspace, command, mode, contained=False) is not Answer.ALLOW
    if "$a$b" not in command:  # names none
        said = decision(workspace, command, Mode.AUTO, contained=True)
        assert said.answer is Answer.ASK or (said.access is not None and said.access.hides)


@pytest.mark.spec("SEC-3")
def test_what_holds_none_does_not_ask(workspace: Workspace) -> None:
    for command in FREE_IN_AUTO:
        assert answer(workspace, command, Mode.AUTO, contained=True) is Answer.ALLOW, command


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("command", WRITTEN)
def test_a_protected_place_that_is_named_in_part_asks_in_yolo(
    workspace: Workspace, command: str
) -> None:
    assert answer(workspace, command, Mode.YOLO, contained=False) is Answer.ASK


@pytest.mark.spec("SEC-13")
def test_a_pattern_that_reaches_far_is_not_followed_without_end(workspace: Workspace) -> None:
    (workspace.root / "src/a.py").touch()
    assert GlobFinder().matches("s*/?.py", workspace.root) == ["src/a.py"]
    found = GlobFinder().matches("*/.", workspace.root)
    assert sorted(found or ()) == ["dist/.", "src/."]
    finder = GlobFinder()
    assert finder.matches("/*/*/*/*/*/nothing") is None and finder.left < 0
    for command in ("cat /*/*/*/*/*/zz", "; ".join(f"cat /usr/*/*/{n}" for n in range(500))):
        assert not is_read_only(command, workspace)
        assert answer(workspace, command, Mode.AUTO, contained=True) is Answer.ASK


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    "command",
    [
        f"echo {'1' * 90_000} (", f"cat {'[' * 90_000}", f"cat {'[a' * 45_000}*",
        f"echo > {'[' * 90_000}", f"cat {{{',' * 90_000}", f"ls {'*' * 90_000}!",
        f"rm -rf {'*' * 90_000}x", f"sed '{' ' * 90_000}' f1", f"echo > {'x/' * 20_000}",
    ],
    ids=lambda command: command[:11],
)  # fmt: skip
def test_no_text_holds_the_judge_up(workspace: Workspace, command: str) -> None:
    """Each took minutes: the time limit of a test is what would be passed."""
    for mode in (Mode.AUTO, Mode.DEFAULT):
        assert answer(workspace, command, mode, contained=True) is not Answer.DENY


@pytest.mark.slow
@pytest.mark.spec("SEC-3")
def test_no_loop_shows_a_credential_unasked(workspace: Workspace) -> None:
    (workspace.root / "src/note").symlink_to("../.env")
    by_another_name = (
        "diff -N . src",
        "cd src && ls | xargs cat",
        "find src -name note | xargs cat",
    )
    for command in (*IN_EVERY_MODE, *by_another_name):
        with ModelServer([call("bash", {"command": command}), "done"]) as server:
            one_shot(server, "hi", "--sandbox", "off", cwd=workspace.root)
        assert "canary" not in last_result(server) and "not run" in last_result(server)
