"""A command in a worktree can commit there, and changes nothing of the others (SCALE-1, SEC-17)."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from agentcli.domain.sandbox import Access
from tests.support.repositories import git, make_repository
from tests.support.sandboxes import BOTH, Sandboxed, needs


@pytest.fixture
def main(home: Path) -> Path:
    (home / ".gitconfig").write_text(
        "[user]\n\tname = A\n\temail = a@example.org\n[alias]\nst=status\n"
    )
    root = make_repository(home / "main")
    git(root, "branch", "-M", "main")
    git(root, "branch", "old")
    git(root, "pack-refs", "--all")
    for name in ("one", "two"):
        git(root, "worktree", "add", "-q", "-b", name, str(home / "trees" / name))
    return root


COMMANDS = (
    "echo 1 > f && git add f && git commit -qm second && git log --format=%s",
    "git checkout -qb side && echo 2 > g && git add g && git commit -qm third && git checkout -q one",
    "git update-ref -d refs/heads/old && git tag t && git pack-refs --all && git stash list && git st",
    "git -c sequence.editor=true rebase -q -i --root && git rebase -q side && git log --format=%s",
    "git commit -q --amend -m fourth && git reset -q --hard HEAD~1 && git merge -q side; git status -s",
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOTH)
def test_commits_branches_and_rebases_work(main: Path, home: Path, kind: str) -> None:
    tree = home / "trees/one"

    async def run() -> list[str]:
        async with Sandboxed(tree, kind) as inside:
            return [await inside.say(command) for command in COMMANDS]

    for text in asyncio.run(run()):
        assert "fatal" not in text and "error" not in text and "exit code 0" in text, text
        assert "sandbox" not in text, text
    assert git(tree, "status", "--short") == "" and "third" in git(tree, "log", "--format=%s")
    assert git(main, "status", "--short") == "" and "old" not in git(main, "branch")


ATTACKS = """
C={main}/.git; cd {tree}
printf '#!/bin/sh\ntouch {home}/evil\n' > $C/hooks/pre-commit; chmod +x $C/hooks/pre-commit
mkdir -p $C/hooks2; printf '#!/bin/sh\ntouch {home}/evil\n' > $C/hooks2/post-checkout
chmod +x $C/hooks2/post-checkout
printf '[core]\n\tfsmonitor = touch {home}/evil\n' >> $C/config
printf '[core]\n\tfsmonitor = touch {home}/evil\n' >> $C/worktrees/two/config.worktree
printf '* filter=evil\n' >> $C/info/attributes
git config core.hooksPath {tree}/h; git config --worktree core.fsmonitor {tree}/m
git config alias.st '!touch {home}/evil'
echo done
"""
# Landlock keeps no command from removing what it may write to
REMOVED = """
C={main}/.git; cd {tree}
mv $C/hooks $C/hooks3; mv $C $C-x; mv $C/worktrees $C/w; rm -rf $C/hooks $C/config
echo gitdir: /nowhere > .git; rm -f .git
echo done
"""
ONLY_OURS = """
C={main}/.git; cd {tree}
echo 0000 > $C/HEAD; rm $C/HEAD; echo > $C/index; rm $C/index; echo > $C/worktrees/two/HEAD
rm -rf $C/worktrees/two; echo > $C/worktrees/two/index; mv $C/worktrees/two $C/worktrees/x
git -C {main} checkout -q two; git -C {main} commit -qam x; git -C {main} reset --hard HEAD~0
git --git-dir=$C --work-tree={tree} add -A; GIT_DIR=$C git read-tree --empty
echo x > {main}/a.txt; cp f {home}/trees/two/a.txt; ln -s {main} link; echo x > link/a.txt
git worktree remove --force {home}/trees/two; git worktree prune; echo done
"""


@pytest.mark.spec("SEC-17", "SCALE-1")
@pytest.mark.parametrize("kind", BOTH)
def test_what_is_planted_in_the_common_directory_does_not_run(
    main: Path, home: Path, kind: str
) -> None:
    tree = home / "trees/one"
    git(main, "config", "core.hooksPath", str(main / ".git/hooks2"))
    git(main, "config", "extensions.worktreeConfig", "true")
    before = (main / ".git/config").read_bytes()

    async def run() -> str:
        async with Sandboxed(tree, kind) as inside:
            script = ATTACKS + (REMOVED if kind == "bwrap" else "")
            return await inside.say(script.format(main=main, tree=tree, home=home))

    text = asyncio.run(run())
    assert "done" in text
    assert (main / ".git/config").read_bytes() == before
    for place in (main, tree, home / "trees/two"):
        for command in ("status", "st", "commit --allow-empty -qm x", "checkout -q --detach"):
            subprocess.run(["git", *command.split()], cwd=place, check=False, capture_output=True)
    assert not (home / "evil").exists(), text
    assert git(tree, "rev-parse", "--abbrev-ref", "HEAD")


@pytest.mark.spec("SCALE-1")
def test_where_others_stand_and_what_they_have_staged_is_theirs(main: Path, home: Path) -> None:
    needs("bwrap")
    tree, other = home / "trees/one", home / "trees/two"
    (main / "a.txt").write_text("staged\n")
    git(main, "add", "a.txt")
    (other / "a.txt").write_text("changed\n")

    async def run() -> str:
        async with Sandboxed(tree, "bwrap") as inside:
            return await inside.say(ONLY_OURS.format(main=main, tree=tree, home=home))

    assert "done" in asyncio.run(run())
    assert git(main, "status", "--short") == "M  a.txt\n"
    assert git(main, "branch", "--show-current") == "main\n"
    assert git(other, "status", "--short") == " M a.txt\n"
    assert git(other, "branch", "--show-current") == "two\n"
    assert len(git(main, "worktree", "list").splitlines()) == 3


@pytest.mark.spec("SEC-17", "EXT-3")
@pytest.mark.parametrize("kind", BOTH)
def test_what_is_made_in_one_tree_while_another_looks_is_nobodys(
    main: Path, home: Path, kind: str
) -> None:
    git(main, "config", "extensions.worktreeConfig", "true")
    planted = main / ".git" / "config.worktree"

    async def run() -> str:
        async with Sandboxed(home / "trees/one", kind) as one, Sandboxed(main, kind) as top:
            await one.say("sleep 1000 >/dev/null 2>&1 &")
            planted.write_text("[core]\n\tfsmonitor = touch pwned\n")  # as what it has left could
            (main / ".envrc").write_text("mine")
            return await top.say("true")

    text = asyncio.run(run())
    assert "config.worktree would take effect outside" in text and ".envrc" not in text
    assert "fsmonitor" not in planted.read_text()


IN_SUBMODULE = (
    "echo 1 > f && git add f && git commit -qm second && git log --format=%s",
    "git switch -qc side && git stash list && git rebase -q main && git gc -q; git status -s",
)
ON_SUBMODULE = """
C=$PWD/../.git/modules/part
printf '#!/bin/sh\\ntouch {home}/evil\\n' > $C/hooks/pre-commit; chmod +x $C/hooks/pre-commit
printf '[core]\\n\\tfsmonitor = touch {home}/evil\\n' >> $C/config
printf '[core]\\n\\tfsmonitor = touch {home}/evil\\n' >> $C/config.worktree
printf '[core]\\n\\tfsmonitor = touch {home}/evil\\n' >> $C/../../config
echo evil >> $C/../../HEAD; echo evil >> ../a.txt; cat ../a.txt
echo at its end
"""


@pytest.mark.spec("SEC-4", "SEC-17", "SEC-18")
@pytest.mark.parametrize("kind", BOTH)
def test_a_submodule_that_is_worked_in_is_a_repository_and_its_own_alone(
    main: Path, home: Path, kind: str
) -> None:
    whole = make_repository(home / "whole")
    allowed = ("-c", "protocol.file.allow=always")
    git(whole, *allowed, "submodule", "--quiet", "add", str(main), "part")
    git(whole, "commit", "-qm", "with a part")
    part = whole / "part"
    configured = (whole / ".git/modules/part/config").read_bytes()

    async def run() -> list[str]:
        async with Sandboxed(part, kind) as inside:
            read = await inside.with_access(Access.READ_ONLY, "git log --format=%s; git status -s")
            done = [await inside.say(command) for command in IN_SUBMODULE]
            return [read, *done, await inside.say(ON_SUBMODULE.format(home=home))]

    read, *worked, attacked = asyncio.run(run())
    for text in (read, *worked):
        assert "fatal" not in text and "error" not in text and "exit code 0" in text, text
    assert read.startswith("first\n") and worked[0].startswith("second\nfirst\n")
    assert "at its end" in attacked and "one\n" not in attacked
    for place in (part, whole):
        for command in ("status", "commit --allow-empty -qm x", "submodule status"):
            git(place, *command.split())
    assert not (home / "evil").exists(), attacked
    assert (whole / ".git/modules/part/config").read_bytes() == configured
    assert (whole / "a.txt").read_text() == "one\n"


@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize("kind", BOTH)
def test_a_repository_that_a_file_names_and_that_is_not_its_own_is_not_seen(
    main: Path, home: Path, kind: str
) -> None:
    """Also where that one is the submodule of another."""
    git(main, "config", "core.worktree", str(main))
    work = home / "work"
    work.mkdir()
    (work / ".git").write_text(f"gitdir: {main}/.git\n")

    async def run() -> str:
        async with Sandboxed(work, kind) as inside:
            return await inside.say(f"git log; cat {main}/.git/config; echo x > {main}/.git/x")

    text = asyncio.run(run())
    assert "first" not in text and "repositoryformatversion" not in text
    assert not (main / ".git/x").exists()
