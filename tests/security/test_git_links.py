"""Where ``.git`` files, ``commondir`` and remotes lead is read as git reads it (SEC-17, SEC-13)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.repositories import git, make_repository
from tests.support.sandboxes import BOTH, told

pytestmark = pytest.mark.sampled

both = pytest.mark.parametrize("kind", BOTH)
# no one looks for repositories among git's own objects
PLANT = """
import os, subprocess
def plant(place):
    subprocess.run(["git", "init", "-q", "--bare", place], check=True)
    with open(place + "/config", "w") as config:
        config.write("[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n")
        config.write("\\tfsmonitor = touch " + os.getcwd() + "/pwned; false\\n")
def tree(link):
    os.mkdir("tree")
    with open("tree/.git", "w") as file:
        file.write("gitdir: " + link)
"""
LINKS = {
    "a line more": 'plant(".git/objects/a\\nb"); tree("../.git/objects/a\\nb\\n")',
    "a space at the end": 'plant(".git/objects/a "); tree("../.git/objects/a \\n")',
    "in quotes": (
        'place = chr(34) + "../.git/objects/x" + chr(34); tree(place); plant("tree/" + place)'
    ),
    "a common directory of two lines": (
        'subprocess.run(["git", "worktree", "add", "-q", "tree"], check=True); '
        'plant(".git/worktrees/..\\nb"); '
        'open(".git/worktrees/tree/commondir", "w").write("../..\\nb\\n")'
    ),
}


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_a_link_leads_nowhere_but_where_git_goes(tmp_path: Path, kind: str, link: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / "x.py").write_text(PLANT + link)
    (text,) = told(work, "python3 x.py", kind=kind)
    assert "exit code 0" in text
    for place in (work, work / "tree"):
        subprocess.run(["git", "status"], check=False, cwd=place, capture_output=True)
    assert not (work / "pwned").exists()


# what "commondir" says is known; where a link in its place leads to is changed after the comparison
COMMON = """
git worktree add -q tree && mkfifo go done && cp -r .git/objects .git/refs evil
printf '[core]\nrepositoryformatversion = 0\nfsmonitor = touch %s/pwned; false\n' $PWD > evil/config
cd .git/worktrees/tree && ln -s ../.. hop && ln -sf hop commondir && cd ../../..
(read x < go; cd .git/worktrees/tree; rm hop; echo ../../../evil > hop; echo > ../../../done) \\
    > /dev/null 2>&1 &
"""


@both
@pytest.mark.spec("SEC-17")
def test_a_link_is_no_common_directory(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / "evil").mkdir()
    text, then = told(work, COMMON, "echo > go; cat done", kind=kind)
    assert "commondir would take effect" in text and "exit code 0" in then
    subprocess.run(["git", "status"], check=False, cwd=work / "tree", capture_output=True)
    assert not (work / "pwned").exists()


@both
@pytest.mark.spec("SEC-13", "SEC-17")
def test_a_link_that_is_a_pipe_holds_nothing_up(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    make = (
        'import os; os.makedirs(".git/worktrees/x"); os.mkdir("sub/tree"); '
        'os.mkfifo(".git/worktrees/x/gitdir"); os.mkfifo("sub/tree/.git")'
    )
    (work / "x.py").write_text(make)
    texts = told(work, "python3 x.py", "echo next", kind=kind)
    assert "next\n" in texts[1]


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("name", [".git", ".git/commondir", "bin"])
def test_a_link_that_may_not_be_followed_ends_no_comparison(
    tmp_path: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/work/bin:{os.environ['PATH']}")
    if os.access("/proc/1/cwd", os.X_OK):
        pytest.skip("here every process may be looked into")
    work = make_repository(tmp_path / "work")
    make = f"""
import os, subprocess
run = lambda *words: subprocess.run(words, check=True)
if {name!r} == ".git":
    os.mkdir("tree")
elif {name!r} == "bin":
    os.mkdir("tree")
    os.symlink("/proc/1/cwd", "bin")
else:
    run("git", "init", "-q", "tree")
with open("tree/{name}", "w") as file:
    file.write("gitdir: /proc/1/cwd/x" if {name!r} == ".git" else "/proc/1/cwd")
run("git", "init", "-q", "other")
run("git", "-C", "other", "config", "core.fsmonitor", "touch ../pwned; false")
open(".envrc", "w").write("touch pwned")
"""
    (work / "x.py").write_text(make)
    text, then = told(work, "python3 x.py", "echo next", kind=kind)
    assert "exit code 0" in text and not (work / ".envrc").exists()
    assert "next\n" in then
    subprocess.run(["git", "status"], check=False, cwd=work / "other", capture_output=True)
    assert not (work / "pwned").exists()


# git goes to the directory of a submodule by its name alone
SUBMODULE = """
import os, subprocess
git = lambda *words: subprocess.run(["git", *words], check=True, capture_output=True, text=True)
module = ".git/modules/libs/foo"
os.makedirs(".git/modules/libs")
git("clone", "-q", "--bare", ".", module)
git("update-index", "--add", "--cacheinfo", "160000," + git("rev-parse", "@").stdout[:40] + ",lib")
os.mkdir("lib")
with open(".gitmodules", "w") as file:
    file.write('[submodule "libs/foo"]\\npath = lib\\nurl = https://example.org/x\\n')
with open(module + "/config", "w") as file:
    file.write("[core]\\nbare = false\\nfsmonitor = touch " + os.getcwd() + "/pwned; false\\n")
def hide(head, *directories):
    for name in directories:
        os.mkdir(".git/modules/libs/" + name)
    with open(".git/modules/libs/HEAD", "w") as file:
        file.write(head)
"""
HIDDEN = {
    "by nothing": "",
    "by a name": 'hide("x")',
    "by what is nearly a git directory": 'hide("ref: heads/x", "objects", "refs")',
    "by a common directory elsewhere": (
        'hide("ref: refs/heads/x", "objects", "refs"); '
        'open(".git/modules/libs/commondir", "w").write("none")'
    ),
}


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_what_git_takes_for_no_git_directory_hides_no_submodule(
    tmp_path: Path, kind: str, hidden: str
) -> None:
    work = make_repository(tmp_path / "work")
    (work / "x.py").write_text(SUBMODULE + hidden)
    (text,) = told(work, "python3 x.py", kind=kind)
    assert "exit code 0" in text and "modules/libs" in text
    update = ["git", "submodule", "update", "--init"]
    subprocess.run(update, check=False, cwd=work, capture_output=True)
    assert not (work / "pwned").exists()


@both
@pytest.mark.spec("SEC-3", "SEC-17")
@pytest.mark.parametrize(
    "file",
    ["objects/info/commit-graph", "info/sparse-checkout", "logs/HEAD", "logs/refs/heads/main", "logs/refs/heads/x.set-aside", "COMMIT_EDITMSG",
     "FETCH_HEAD", "logs"],
)  # fmt: skip
def test_what_git_writes_is_where_it_says(tmp_path: Path, kind: str, file: str) -> None:
    work, start = make_repository(tmp_path / "work"), tmp_path / "start"
    start.mkdir() if file == "logs" else start.write_text("")
    replace = f"rm -rf .git/{file}; ln -s {start} .git/{file}"
    (text,) = told(work, f"git branch x.set-aside; {replace}", kind=kind)
    is_shut = file.startswith("info/") and "Read-only file system" in text  # by bubblewrap
    assert is_shut or f"/.git/{file} would " in text
    config = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("commit", "--allow-empty", "-m", "x"), ("fetch", "."), ("checkout", "x.set-aside"),
                  ("commit", "--allow-empty", "-m", "x")):  # fmt: skip
        subprocess.run(["git", *config, *words], check=False, cwd=work, capture_output=True)
    assert not list(start.iterdir()) if file == "logs" else start.read_text() == ""


@pytest.mark.spec("SEC-17")
def test_what_git_writes_is_no_other_name_of_a_hook(tmp_path: Path) -> None:
    work = make_repository(tmp_path / "work")
    hook = work / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\n:\n")
    hook.chmod(0o755)
    link = f"git branch x; git symbolic-ref HEAD refs/heads/x; ln -f {hook} .git/logs/HEAD"
    (text,) = told(work, link, kind="landlock")
    assert f"{hook} would take effect" in text
    subprocess.run(["git", "checkout", "-q", "main"], check=False, cwd=work, capture_output=True)
    assert hook.read_text() == "#!/bin/sh\n:\n" and hook.stat().st_mode & 0o100
    copy = f"ln {hook} copy; ln {hook} other"
    subprocess.run(["sh", "-c", copy], check=True, cwd=work)
    assert "set-aside" not in told(work, "rm copy", "rm other", kind="landlock")[1]


# an entry more, as "git add" makes none; gitformat-index(5)
ENTRY = """
import hashlib, struct, subprocess, sys
name, link = sys.argv[1].encode(), b""
run = lambda *words: subprocess.run(words, check=True, capture_output=True).stdout
if sys.argv[2:] == ["split"]:
    run("git", "update-index", "--split-index")
file = run("git", "rev-parse", "--shared-index-path").decode().strip() or ".git/index"
blob = bytes.fromhex(run("git", "hash-object", "-w", "hook").decode())
data = open(file, "rb").read()
entry = struct.pack(">10I", *[0] * 6, 0o100755, *[0] * 3) + blob + struct.pack(">H", len(name)) + name
entry += b"\\0" * (8 - len(entry) % 8)
count, = struct.unpack_from(">I", data, 8)
data = b"DIRC" + struct.pack(">2I", 2, count + 1) + entry + data[12:-20]
open(file, "wb").write(data + hashlib.sha1(data).digest())
if file != ".git/index":  # the other half names it by its sum
    old, new = file[-40:], hashlib.sha1(data).hexdigest()
    run("cp", file, file[:-40] + new)
    half = open(".git/index", "rb").read().replace(bytes.fromhex(old), bytes.fromhex(new))[:-20]
    open(".git/index", "wb").write(half + hashlib.sha1(half).digest())
"""


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("how", ["", "split"])
@pytest.mark.parametrize(
    "name", [".git/hooks/post-checkout", "../pwned", "{}/pwned", "sub/../../pwned"]
)
def test_what_git_restores_lies_in_the_working_tree(
    tmp_path: Path, kind: str, name: str, how: str
) -> None:
    work = make_repository(tmp_path / "work")
    (work / "x.py").write_text(ENTRY)
    (work / "hook").write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    (text,) = told(work, f"python3 x.py {name.format(tmp_path)} {how}", kind=kind)
    assert "exit code 0" in text and "index would take effect" in text
    subprocess.run(["git", "restore", "."], check=False, cwd=work, capture_output=True)
    assert not (tmp_path / "pwned").exists() and not (work / ".git/hooks/post-checkout").exists()


@pytest.mark.spec("SEC-17")
def test_an_index_that_git_has_made_stays(tmp_path: Path) -> None:
    work = make_repository(tmp_path / "work")
    change = "mkdir -p ...d; echo x > ...d/..x; echo x > .gitx; git add -A"
    versions = ("update-index --index-version 4", "update-index --split-index", "rm -rq --cached .")
    for text in told(work, change, *(f"git {each}" for each in versions)):
        assert "exit code 0" in text and "set-aside" not in text


REMOTES = {
    "a new form": "git remote add origin foo::bar",
    "a scheme": "git remote add origin foo://bar",
    "of a branch": "git config branch.main.remote foo::bar",
    "an old form": "mkdir -p .git/remotes; echo 'URL: foo::bar' > .git/remotes/origin",
    "an older form": "mkdir -p .git/branches; echo foo::bar > .git/branches/origin",
}


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("remote", REMOTES.values(), ids=REMOTES)
def test_no_address_of_a_remote_has_git_run_a_program_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, remote: str
) -> None:
    work = make_repository(tmp_path / "work")
    helper = work / ".venv/bin/git-remote-foo"
    helper.parent.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(helper.parent), prepend=":")
    script = f"printf '#!/bin/sh\\ntouch {work}/pwned\\n' > {helper}; chmod 755 {helper}; {remote}"
    (work / "x.sh").write_text(script)
    told(work, "sh x.sh", kind=kind)
    assert helper.exists()
    subprocess.run(["git", "fetch"], check=False, cwd=work, capture_output=True)
    assert not (work / "pwned").exists()


_EVIL = "printf '#!/bin/sh\\ntouch %s/pwned\\n'"
_BRANCH = (
    "git switch -qc other; mkdir hooks; {evil} > hooks/post-checkout; chmod +x hooks/*;"
    " git add .; git -c user.name=t -c user.email=t@t commit -qmhooks; git switch -q main;"
)


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "configure",
    [
        "git config core.worktree ../.git",
        "git config core.worktree $PWD/.git/refs/..",
        "git config extensions.worktreeConfig true; git config --worktree core.worktree ../.git",
        "git config core.worktree ../t; mkdir t\nrmdir t; ln -s .git t",
    ],
)
def test_no_working_tree_is_a_git_directory_where_branches_would_bring_hooks(
    tmp_path: Path, kind: str, configure: str
) -> None:
    work = make_repository(tmp_path / "work")
    git(work, "branch", "-M", "main")
    evil = _EVIL % work
    told(work, "git init -q -b main new", kind=kind)
    for place in (work, work / "new"):
        commands = (_BRANCH.format(evil=evil), *configure.split("\n"))
        told(work, *(f"cd {place}; {command}" for command in commands), kind=kind)
    for place in (work, work / "new"):
        for branch in ("other", "main", "other"):
            subprocess.run(["git", "switch", "-f", branch], cwd=place, capture_output=True)
    assert not (work / "pwned").exists()


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("bare", ["", "--bare"])
def test_hooks_that_start_in_the_git_directory_find_nothing_of_a_command_there(
    tmp_path: Path, kind: str, bare: str
) -> None:
    work = make_repository(tmp_path / "work")
    top = tmp_path / "top"
    subprocess.run(["git", "clone", "-q", *bare.split(), work, top], check=True)
    directory = top if bare else top / ".git"
    git(top, "config", "core.hooksPath", "githooks")
    (directory / "hooks/update").write_text("sh tools/x\n")
    evil = _EVIL % tmp_path
    told(
        top,
        f"cd {directory}; mkdir githooks tools; {evil} | tee githooks/pre-receive > tools/x;"
        " chmod +x githooks/*",
        kind=kind,
    )
    push = ["git", "push", top, "HEAD:refs/heads/x"]
    subprocess.run(push, cwd=work, check=True, capture_output=True)
    git(top, "config", "--unset", "core.hooksPath")
    (directory / "hooks/update").chmod(0o755)
    subprocess.run([*push[:3], "HEAD:refs/heads/y"], cwd=work, capture_output=True)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "how",
    [
        "echo gitdir: worktrees/tree > .git/.git",
        "cd .git; git init -q .; git fetch -q .. other:other tree:tree",
    ],
)
def test_no_repository_has_its_tree_in_a_git_directory(tmp_path: Path, kind: str, how: str) -> None:
    work = make_repository(tmp_path / "work")
    git(work, "branch", "-M", "main")
    git(work, "worktree", "add", "-q", "tree")
    evil = _EVIL % tmp_path
    told(work, _BRANCH.format(evil=evil), f"rm -r tree; ln -s .git tree; {how}", kind=kind)
    for branch in ("other", "tree", "other"):
        switch = ["git", "-C", "tree", "switch", "-f", branch]
        subprocess.run(switch, cwd=work, capture_output=True, check=False)
    subprocess.run(["git", "switch", "-fc", "new"], cwd=work, capture_output=True, check=False)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.spec("SEC-17")
def test_working_trees_may_lie_in_a_bare_repository(tmp_path: Path) -> None:
    work = make_repository(tmp_path / "work")
    commands = "git clone -q --bare . bare; cd bare; git worktree add -q tree; git -C tree status"
    (said,) = told(work, commands, kind="landlock")
    assert "set-aside" not in said and "exit code 0" in said


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("setting", "stays"),
    [
        # git submodule update runs the hooks that it finds there (Git 2.54)
        ("submodule.s.gitdir .git/logs/modules/s", False),
        ("submodule.s.gitdir /dev/shm/modules/s", False),
        ("submodule.s.gitdir .git/modules/../logs/modules/s", False),
        ("submodule.s.gitdir .git/modules/..", False),
        ("submodule.s.gitdir .git/modules/lib%2fs", True),
        # git commit appends to logs/HEAD there, through a link, too (Git 2.54)
        ("extensions.refStorage files://../store", False),
        ("extensions.refStorage reftable:///elsewhere", False),
        ("extensions.thatNobodyKnows true", False),
        ("extensions.refStorage files", True),
        ("extensions.worktreeConfig true", True),
    ],
)
def test_no_setting_of_a_new_repository_leads_git_elsewhere(
    tmp_path: Path, kind: str, setting: str, stays: bool
) -> None:
    work = make_repository(tmp_path / "work")
    (said,) = told(work, f"git init -q new; git -C new config {setting}", kind=kind)
    assert ("config would take effect outside" not in said) is stays
    name, value = setting.split()
    config = (work / "new/.git/config").read_text()
    assert (value in config and name.rpartition(".")[2] in config) is stays


@pytest.mark.spec("SEC-17", "SEC-5")
@pytest.mark.parametrize("kind", BOTH)
def test_no_directory_elsewhere_is_removed_as_what_is_left_of_a_working_tree(
    tmp_path: Path, kind: str
) -> None:
    """``git gc``, after a commit, too, empties what it takes for that, through a link."""
    work, mine = make_repository(tmp_path / "work"), tmp_path / "mine" / "thesis"
    mine.parent.mkdir()
    mine.write_text("mine")
    command = f"mkdir -p .git/worktrees; ln -s {mine.parent} .git/worktrees/x"
    (said,) = told(work, command, kind=kind)
    assert ".git/worktrees/x would take effect outside" in said
    git(work, "gc", "-q")
    assert mine.read_text() == "mine"


@both
@pytest.mark.parametrize("way", ["$OLDPWD", "$PWD/d", "../../../d"])
def test_no_directory_elsewhere_is_a_working_tree_to_be_repaired_or_removed(
    tmp_path: Path, kind: str, way: str
) -> None:
    """``git worktree repair`` writes a file there, and with that ``remove`` deletes all of it."""
    work, mine = make_repository(tmp_path / "work"), tmp_path / "mine" / "thesis"
    mine.parent.mkdir()
    mine.write_text("mine")
    made = (
        "mkdir -p .git/worktrees/x; cd .git/worktrees/x; cp ../../HEAD .; echo ../.. > commondir; "
        f"cd {work}; OLDPWD={mine.parent}; echo {way}/.git > .git/worktrees/x/gitdir"
    )
    told(work, made, f"ln -s {mine.parent} d", kind=kind)
    ends = "".join(f"; git worktree remove --force {each}" for each in ("x", "d", mine.parent))
    subprocess.run(["sh", "-c", f"git worktree repair{ends}"], check=False, cwd=work)
    assert [mine] == list(mine.parent.iterdir())


@both
def test_a_working_tree_that_the_sandbox_alone_knows_stays(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    git(work, "worktree", "add", "-q", str(tmp_path / "beside"))
    told_of = told(
        work,
        "git worktree add -q t && git worktree add -q $TMPDIR/x && git -C t status",
        "git worktree list; git -C $TMPDIR/x status; git worktree move t u",
        kind=kind,
    )
    assert not [each for each in told_of if "set-aside" in each]
    assert (tmp_path / "beside/a.txt").exists() and "beside" in git(work, "worktree", "list")
