"""What others will execute, compared before and after: with real repositories and real git."""

from __future__ import annotations

import itertools
import mmap
import os
import resource
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcli.policy.places import protected_place
from agentcli.process import directories, sandbox_watch, set_aside
from agentcli.process.git_config import pushed_to, run_by_git, users_configurations
from agentcli.process.sandbox_places import OwnPlaces, find_places
from agentcli.process.sandbox_watch import TreeWatch
from agentcli.process.set_aside import SUFFIX, pinned
from tests.support.deep import deep_directory

pytestmark = pytest.mark.spec("SEC-17")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    place.mkdir()
    return place


@pytest.fixture
def shut_to_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that its user cannot list is listed by nobody; root would."""
    listdir = os.listdir

    def as_user(path: str) -> list[str]:
        if not os.stat(path).st_mode & 0o400:
            raise PermissionError(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", as_user)


def sh(command: str, cwd: Path, *, check: bool = True) -> str:
    identity = {
        f"GIT_{who}_{what}": "a@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    protocol = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow"}
    env = {**os.environ, **identity, **protocol, "GIT_CONFIG_VALUE_0": "always"}
    done = subprocess.run(
        ["sh", "-c", command], check=check, cwd=cwd, env=env, capture_output=True, text=True
    )
    return done.stdout


def born(
    root: Path, command: str, *, before: str = "", watch: TreeWatch | None = None
) -> list[str]:
    """What is told after ``command`` was run in ``root``, where the user had run ``before``."""
    if before:
        sh(before, root)
    watch = watch or TreeWatch([root])
    watch.learn()
    sh(command, root)
    told = watch.compare()
    assert watch.compare() == [], "it is told once"
    return told


REPOSITORY = "git init -q . && git commit -q --allow-empty -m one"
SUBMODULE = (
    "git init -q top && cd top && git submodule --quiet add ../lib lib && git commit -qm one"
)
CLEAN = "echo a > tools/clean.sh"
HOOK = "echo ls > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit"
EVIL = "git config core.fsmonitor 'touch pwned; :'"


@pytest.mark.parametrize(
    "command",
    [
        "git init -q sub && git -C sub config user.name A && git -C sub remote add o ../x",
        f"mkdir sub && cd sub && {REPOSITORY} && git branch b && git worktree add -q ../tree b",
        f"mkdir sub && (cd sub && {REPOSITORY}) && git clone -q sub copy && git -C copy switch -qc b",
        "git init -q --bare b.git",
        f"mkdir lib && (cd lib && {REPOSITORY}) && {SUBMODULE}",
        f"{REPOSITORY} && git checkout -q -b x && echo 1 > f && git add f && git commit -qm f",
        "git init -q . && echo '*.sh text' > .git/info/exclude && touch .git/hooks/x.sample",
    ],
)
def test_what_names_no_program_goes_on(root: Path, command: str) -> None:
    assert born(root, command) == []
    assert not list(root.rglob("*.set-aside*"))


MESSAGE = ".git/COMMIT_EDITMSG"


@pytest.mark.parametrize(
    ("before", "command", "directory"),
    [
        ("git init -q .", f"ln .git/config {MESSAGE}", "."),
        ("git init -q .", f"git init -q a; ln a/.git/config a/{MESSAGE}", "a"),
        (
            "git init -q . && git config extensions.worktreeConfig true",
            f"touch {MESSAGE}; ln {MESSAGE} .git/config.worktree",
            ".",
        ),
    ],
)
def test_configuration_with_another_name_is_not_written_by_the_next_commit(
    root: Path, before: str, command: str, directory: str
) -> None:
    (told,) = born(root, command, before=before)
    assert "would take effect outside and was renamed" in told
    (root / directory / ".git" / "MERGE_MSG").write_text(
        "[core]\n\tfsmonitor = touch pwned; false\n"
    )
    sh("GIT_EDITOR=true git commit -q --allow-empty; git status", root / directory)
    assert not [*root.rglob("pwned")]


@pytest.mark.parametrize("before", ["", "mkdir p", "git init -q ."])
@pytest.mark.parametrize("place", [".", "p"])
def test_what_looks_like_a_bare_repository_hides_nothing_in_it(
    root: Path, before: str, place: str
) -> None:
    shade = f"mkdir -p {place}/refs {place}/objects && cd {place} && echo 'ref: refs/heads/x' >HEAD"
    evil = f"mkdir -p a/b .vscode && git init -q a/b && (cd a/b && {EVIL}) && echo x > .envrc"
    told = "".join(
        born(root, f"{shade} && {evil} && echo {{}} > .vscode/tasks.json", before=before)
    )
    for name in ("a/b/.git/config", ".envrc", ".vscode"):
        assert f"{(root / place).resolve()}/{name} would take effect" in told


@pytest.mark.parametrize("depth", ["sub", "a/b/c/d/e/f/sub", "node_modules/x/sub"])
@pytest.mark.parametrize("kind", ["repository", "bare", "link", "module", "swapped"])
def test_a_program_that_git_would_run_is_set_aside_at_any_depth(
    root: Path, depth: str, kind: str
) -> None:
    place = root / depth
    before = f"mkdir -p {depth} && cd {depth} && {REPOSITORY}" if kind == "swapped" else ""
    command = {
        "repository": f"git init -q {depth} && cd {depth} && {EVIL}",
        "bare": f"git init -q --bare {depth} && cd {depth} && {EVIL} && git config core.bare false"
        " && git config core.worktree .",
        "link": f"git init -q {depth} && cd {depth} && {EVIL} && mv .git store"
        " && echo 'gitdir: store' > .git && mv store/HEAD HEAD; mv HEAD store/HEAD",
        "module": f"git init -q {depth} && cd {depth} && mkdir -p .git/modules"
        f" && git init -q m && (cd m && {EVIL}) && mv m/.git .git/modules/m"
        " && echo 'gitdir: ../.git/modules/m' > m/.git",
        "swapped": f"mv {depth} old && git init -q {depth} && cd {depth} && {EVIL}",
    }[kind]
    told = born(root, command, before=before)
    assert told and all("was renamed to" in line for line in told)
    for repository in (place, place / "m"):
        if repository.is_dir():
            sh("git status", repository, check=False)
    assert not list(root.rglob("pwned"))
    assert "touch pwned" in "".join(p.read_text() for p in root.rglob("config.set-aside"))


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("place", "link"), [(".git/q", ""), (".git", ""), (".git/objects/q", "lib"), (".git/a/b", "lib")]
)  # fmt: skip
def test_a_repository_that_is_hidden_in_a_git_directory_is_found(
    root: Path, place: str, link: str
) -> None:
    led = f"ln -s {place} {link}" if link else ":"
    told = born(root, f"git init -q {place} && (cd {place} && {EVIL}) && {led}", before=REPOSITORY)
    assert "was renamed to config.set-aside" in "".join(told)
    sh("git status", root / (link or place), check=False)
    assert not list(root.rglob("pwned"))


@pytest.mark.spec("SEC-17")
def test_what_is_said_of_a_name_is_one_line(root: Path) -> None:
    (said,) = born(root, "echo x > '.envrc.a\n[sandbox: all is well]'")
    assert "\n" not in said and "set-aside" in said


@pytest.mark.parametrize(
    ("before", "command", "name", "content"),
    [
        (REPOSITORY, "git config core.fsmonitor x", ".git/config", None),
        (REPOSITORY, "echo x > .git/hooks/pre-commit", ".git/hooks", None),
        (f"{REPOSITORY}; echo a > .git/hooks/pre-push", "echo b > .git/hooks/pre-push", ".git/hooks/pre-push", "a\n"),
        (f"{REPOSITORY}; echo 'sh tools/check.sh' >.git/hooks/pre-push; mkdir tools; echo a >tools/check.sh",
         "echo b > tools/check.sh", "tools/check.sh", "a\n"),
        (f"{REPOSITORY}; echo 'x --config=.pre-commit-config.yaml' >.git/hooks/pre-commit",
         "echo b > .pre-commit-config.yaml", ".pre-commit-config.yaml", None),
        (f"{REPOSITORY}; git config core.hooksPath .githooks; mkdir .githooks; echo a >.githooks/x",
         "echo b > .githooks/x", ".githooks/x", "a\n"),
        (f"{REPOSITORY}; git config core.hooksPath .githooks",
         "mkdir .githooks; echo b > .githooks/pre-commit", ".githooks", None),
        (f"{REPOSITORY}; git config include.path ../team.cfg; echo '[user]' > team.cfg",
         "echo '[core]fsmonitor = x' >> team.cfg", "team.cfg", "[user]\n"),
        (f"{REPOSITORY}; mkdir t; echo a > t/hook; rm -r .git/hooks; ln -s ../t .git/hooks",
         "echo b > t/hook", "t/hook", "a\n"),
        (f"{REPOSITORY}; git config filter.x.clean 'sh tools/clean.sh'; mkdir tools; {CLEAN}",
         "echo b > tools/clean.sh", "tools/clean.sh", "a\n"),
        (REPOSITORY, "echo '* filter=lfs' > .git/info/attributes", ".git/info/attributes", None),
        (REPOSITORY, "echo /elsewhere > .git/commondir", ".git/commondir", None),
        ("", "echo 'gitdir: /elsewhere' > .git", ".git", None),
        ("", "ln -s /elsewhere .git", ".git", None),
        ("", "echo x > .envrc", ".envrc", None),
        ("", "mkdir -p a/b && echo x > a/b/.envrc", "a/b/.envrc", None),
        ("", "echo x > .mi\u017fe.toml", ".mi\u017fe.toml", None),
        ("echo a > .envrc", "echo b > .envrc.new; mv .envrc.new .envrc", ".envrc", "a\n"),
        ("", "mkdir .vscode && echo x > .vscode/tasks.json", ".vscode", None),
        ("mkdir .vscode", "echo x > .vscode/tasks.json", ".vscode/tasks.json", None),
        ("mkdir -p .idea/runConfigurations && echo a > .idea/runConfigurations/a.xml",
         "echo x > .idea/runConfigurations/b.xml", ".idea/runConfigurations/b.xml", None),
        ("mkdir .husky && echo a > .husky/pre-commit",
         "echo b > .husky/pre-commit", ".husky/pre-commit", "a\n"),
        ("mkdir .husky && echo a > .husky/pre-commit",
         "rm -rf .husky; ln -s /elsewhere .husky", ".husky", None),
    ],
)  # fmt: skip
def test_what_is_changed_is_set_aside_and_put_back(
    root: Path, before: str, command: str, name: str, content: str | None
) -> None:
    (line,) = born(root, command, before=before)
    assert f"{root / name} would take effect outside" in line
    aside = root / f"{name}.set-aside"
    assert os.path.lexists(aside)
    if content is None:
        assert name == ".git/config" or not os.path.lexists(root / name)
    else:
        assert (root / name).read_text() == content
        assert "put back" in line


@pytest.mark.parametrize(
    ("users", "made"),
    [
        (".github/workflows/ci.yml", ".github/hooks/a.json"),
        (".vscode/extensions.json", ".vscode/settings.json"),
        (".claude/commands/c.md", ".claude/settings.json"),
        ("a/.idea/misc.xml", "a/.idea/workspace.xml"),
    ],
)
def test_what_was_in_a_directory_before_stays_there(root: Path, users: str, made: str) -> None:
    before = f"mkdir -p $(dirname {users}); echo mine > {users}"
    (told,) = born(root, f"mkdir -p $(dirname {made}); echo evil > {made}", before=before)
    assert f"{made} would take effect outside" in told
    assert (root / users).read_text() == "mine\n" and not (root / made).exists()


def test_settings_that_name_no_program_may_change(root: Path) -> None:
    before = f"{REPOSITORY}; git config core.fsmonitor x; git config filter.lfs.clean 'lfs %f'"
    command = "git remote add o ../x; git config branch.main.merge y; git config user.name z"
    assert born(root, command, before=before) == []
    command = "git sparse-checkout set --sparse-index lib; git config remote.o.gh-resolved base"
    assert born(root, command) == []
    told = born(root, "git config filter.lfs.smudge evil")
    assert len(told) == 1
    assert "evil" not in (root / ".git" / "config").read_text()


def test_a_bundle_that_is_cloned_is_no_repository(root: Path) -> None:
    made = f"{REPOSITORY}; git commit -q --allow-empty -m x; git bundle create -q x.bundle HEAD"
    assert born(root, "git clone -q x.bundle clone", before=made) == []
    assert (root / "x.bundle").exists() and (root / "clone/.git").exists()


def test_what_a_clone_or_a_package_brings_is_left_alone(root: Path) -> None:
    made = "mkdir .vscode; echo x > .vscode/tasks.json; echo x > .envrc"
    assert born(root, f"git init -q clone; cd clone; {made}") == []
    assert born(root, f"mkdir -p node_modules/p; cd node_modules/p; {made}") == []
    assert born(root, f"git init -q vendor/p; cd vendor/p; {made}", before="mkdir vendor") == []
    # a directory of a submodule is there, and empty, before it is fetched
    assert (
        born(root, f"git init -q .; {made}; cd lib; git init -q .; {made}", before="mkdir lib")
        != []
    )
    assert not (root / ".envrc").exists() and (root / "lib/.envrc").exists()


@pytest.mark.spec("SEC-17")
def test_what_stands_where_the_users_directory_was_is_no_fresh_clone(root: Path) -> None:
    sh("mkdir app; echo x > app/a.py", root)
    watch = TreeWatch([root])
    watch.learn()
    sh("mv app old", root)
    assert watch.compare() == []
    made = "mkdir .vscode; echo x > .vscode/tasks.json"
    sh(f"mkdir app; cp -r old/. app; git init -q app; cd app; {made}", root)
    assert any(f"{root}/app/.vscode would take effect" in line for line in watch.compare())
    assert not (root / "app/.vscode").exists()


def test_husky_may_write_its_own_files_unless_git_is_told_to_use_them(root: Path) -> None:
    own = "mkdir -p .husky/_; echo x > .husky/_/pre-commit"
    assert born(root, own, before=f"{REPOSITORY}; mkdir .husky; echo a > .husky/pre-commit") == []
    assert born(root, own, before="git config core.hooksPath .husky/_") == []
    (line,) = born(root, "echo evil > .husky/_/pre-commit")
    assert ".husky/_/pre-commit would take effect" in line


def test_scripts_of_the_users_hooks_are_protected(root: Path) -> None:
    (root / "check.sh").write_text("mine")
    watch = TreeWatch([root], scripts=[root / "check.sh", root / "not-there.sh"])
    told = born(root, "echo evil > check.sh; echo evil > not-there.sh", watch=watch)
    assert len(told) == 2
    assert (root / "check.sh").read_text() == "mine"
    assert not (root / "not-there.sh").exists()


def test_what_the_user_changes_meanwhile_is_known(root: Path) -> None:
    watch = TreeWatch([root])
    watch.learn()
    sh(f"{REPOSITORY}; {EVIL}; echo x > .git/hooks/pre-commit; echo x > .envrc", root)
    watch.learn()
    sh("echo 1 > file", root)
    assert watch.compare() == []


def test_a_look_that_nobody_wants_any_more_ends_and_what_was_known_stays_known(root: Path) -> None:
    sh(f"{REPOSITORY}; {EVIL}; mkdir -p a/b c/d", root)
    watch = TreeWatch([root])
    asked = iter([None, None])
    with pytest.raises(StopIteration):
        watch.learn(check=lambda: next(asked))
    watch.learn()
    sh("echo x > .envrc", root)
    with pytest.raises(StopIteration):
        watch.learn(check=lambda: next(asked))
    assert len(watch.compare()) == 1
    assert not (root / ".envrc").exists() and (root / ".git" / "config").exists()


def test_in_the_commands_own_temporary_directory_nothing_is_known_from_before(
    root: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    watch = TreeWatch([root], untrusted=[own])
    watch.learn()
    sh(f"mkdir x; cd x; {REPOSITORY}; {EVIL}", own)
    assert watch.compare() == [], "nobody gets there"
    watch.learn()
    sh(f"mkdir a; ln -s {own} a/sub", root)
    assert len(watch.compare()) == 1
    sh("git status", root / "a" / "sub" / "x")
    assert not (own / "x" / "pwned").exists()


def test_what_is_put_back_for_something_large_is_known_again(root: Path) -> None:
    watch = TreeWatch([root])
    told = born(root, "head -c 300000 /dev/zero > .envrc", before="echo mine > .envrc", watch=watch)
    assert "put back" in told[0] and (root / ".envrc").read_text() == "mine\n"


def test_a_change_that_keeps_size_and_times_is_seen(root: Path) -> None:
    command = "touch -r .envrc stamp; printf b > .envrc; touch -r stamp .envrc"
    assert len(born(root, command, before="printf a > .envrc; touch -d 2020-01-01 .envrc")) == 1


def test_what_is_written_through_a_mapping_is_seen(root: Path) -> None:
    """It leaves the times as they are until the page was written to the disk."""
    sh(REPOSITORY, root)
    config = root / ".git/config"
    watch = TreeWatch([root])
    watch.learn()
    old = config.stat().st_ctime_ns
    with config.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.write(b"#" * 60 + b"\n")
        file.flush()
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[size + 1 : size + 2] = b"x"  # harmless, and the page is dirty from now on
            settled = time.monotonic() + 10.0
            while time.time_ns() - config.stat().st_ctime_ns < 200_000_000:
                assert time.monotonic() < settled
            assert watch.compare() == []
            evil = b"\n[core]fsmonitor=x\n"
            memory[size : size + len(evil)] = evil
            (told,) = watch.compare()
    assert "config.set-aside" in told and config.stat().st_ctime_ns > old
    assert b"fsmonitor" not in config.read_bytes()


@pytest.mark.parametrize(
    "script",
    ["sh tools/a.sh", "node tools/a.js", '. "$(git rev-parse --show-toplevel)/tools/a.sh"'],
)
@pytest.mark.parametrize("hooks", [".git/hooks", ".githooks", ".husky"])
def test_what_a_hooks_script_runs_in_its_turn_is_protected(
    root: Path, hooks: str, script: str
) -> None:
    where = f"git config core.hooksPath {hooks}" if hooks == ".githooks" else ":"
    lines = (
        f"{REPOSITORY}; {where}; mkdir -p tools {hooks}; echo x > tools/b.sh; echo x > tools/c.js",
        """echo '. "$(dirname "$0")/b.sh"' > tools/a.sh; echo "import './c.js'" > tools/a.js""",
        f"echo {shlex.quote(script)} > {hooks}/pre-commit; chmod +x tools/*.sh",
    )
    told = "".join(
        born(root, "for f in tools/*; do echo evil >> $f; done", before="; ".join(lines))
    )
    of_a_shell = ".sh" in script
    assert ("tools/a.sh" in told, "tools/b.sh" in told) == (of_a_shell, of_a_shell)
    assert ("tools/a.js" in told) is not of_a_shell
    assert "tools/c.js" not in told  # what other languages load is the project itself
    for name in ("a.sh", "b.sh", "a.js", "c.js"):
        assert bool(run_by_git(root / "tools" / name)) is (f"tools/{name}" in told)


def test_hooks_of_the_users_configuration_count_in_each_repository_that_was_there(
    root: Path, home: Path
) -> None:
    (home / ".gitconfig").write_text('[includeIf "gitdir:/"]\n\tpath = work.inc\n')
    (home / "work.inc").write_text("[core]\n\thooksPath = .githooks\n")
    watch = TreeWatch([root], user_configs=tuple(map(Path, users_configurations())))
    before = f"{REPOSITORY}; mkdir p lib; cd p; {REPOSITORY}"
    brings = "mkdir .githooks; echo sh run.sh > .githooks/pre-commit; echo a > run.sh"
    assert born(root, f"git init -q clone; cd clone; {brings}", before=before, watch=watch) == []
    told = born(
        root, f"cd p; {brings}; cd ../lib; git init -q; {brings}; cd ..; {brings}", watch=watch
    )
    found = {line.split(" would")[0].rpartition("root/")[2] for line in told}
    assert found == {".githooks", "p/.githooks"}
    told = born(root, "echo evil | tee clone/.githooks/pre-commit clone/run.sh", watch=watch)
    assert len(told) == 2 and all("put back" in line for line in told)


def test_hooks_and_configuration_that_a_command_removes_are_put_back(root: Path) -> None:
    before = f"{REPOSITORY}; git config user.name A; echo true >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"
    config = born(root, "true", before=before) or (root / ".git/config").read_text()
    told = born(root, "rm -rf .git/hooks .git/config")
    found = {line.split()[1].rpartition("root/")[2] for line in told}
    assert found == {".git/config", ".git/hooks/pre-commit"}
    assert all("is protected and was put back" in line for line in told)
    assert (root / ".git/config").read_text() == config
    assert os.access(root / ".git/hooks/pre-commit", os.X_OK)
    other = root.parent / "other"
    other.mkdir()
    told = born(root, "rm -rf .git/hooks; ln -s ../../other .git/hooks")
    assert "renamed to hooks.set-aside" in told[0] and "put back" in told[1]
    assert list(other.iterdir()) == []
    assert born(root, "rm -rf .git") == [] and not (root / ".git").exists()


_TREES = (
    f"{REPOSITORY}; git config core.hooksPath .githooks; mkdir .githooks tools; cd .githooks;"
    " echo 'sh tools/a.sh' | tee pre-commit >pre-push; cd ..; echo true >tools/a.sh; chmod +x .githooks/*; git add .;"
    " git commit -qmtwo --no-verify"
)


@pytest.mark.parametrize(
    ("more", "evil", "tree"),
    [
        ("git worktree add -q ../tree", "", "../tree"),
        ("git worktree add -q tree", "", "tree"),
        ("", "git worktree add -q tree;", "tree"),
        ("", "mkdir -p tree/.githooks; echo gitdir: ../.git >tree/.git;", "tree"),
        (f"git init -q --separate-git-dir=.git/far tree; cd tree; {_TREES[_TREES.index('git c') :]}", "", "tree"),
        (("git config --unset core.hooksPath; git config include.path ../team.cfg;"
         " printf '[core]\\nhooksPath=.githooks' >team.cfg"), "", "."),
    ],
)  # fmt: skip
def test_what_a_configuration_names_is_protected_in_each_tree_that_uses_it(
    root: Path, more: str, evil: str, tree: str
) -> None:
    top = root / "top"
    top.mkdir()
    sh(f"{_TREES}; {more or ':'}", top)
    work = (top / tree).resolve()
    watched = work if tree == "../tree" else top
    attack = (
        f"{evil} cd {shlex.quote(str(work))}; mkdir -p tools; echo 'echo evil >{root}/pwned'"
        " | tee .githooks/pre-commit >tools/a.sh; chmod +x .githooks/pre-commit"
    )
    told = "".join(born(watched, attack))
    assert ".githooks" in told
    assert "tools/a.sh" in told or evil
    sh("git commit -qm three --allow-empty", work, check=False)
    assert not (root / "pwned").exists()


def test_a_tree_that_git_adds_keeps_its_copy_of_what_git_runs(root: Path) -> None:
    assert born(root, "git worktree add -q tree", before=_TREES) == []
    assert (root / "tree/.githooks/pre-commit").read_text() == "sh tools/a.sh\n"


@pytest.mark.parametrize("tree", ["", f"{REPOSITORY};"])
def test_what_an_envrc_loads_is_protected(root: Path, tree: str) -> None:
    envrc = "source_env_if_exists .envrc.own; dotenv; use flake; . ./tools/dev.env; . tools/a.sh"
    told = "".join(
        born(
            root,
            "echo evil | tee .env .envrc.own flake.nix tools/dev.env tools/a.sh >tools/other; cp .envrc .envrc.sample",
            before=f"{tree} mkdir tools; echo '{envrc}' >.envrc; touch tools/dev.env tools/a.sh",
        )
    )
    changed = (".env", ".envrc.own", "flake.nix", "tools/dev.env", "tools/a.sh")
    assert all(f"/{name} would" in told for name in changed) and told.count("would take") == len(
        changed
    )
    assert (root / "tools/other").exists() and (root / ".envrc.sample").exists()
    assert run_by_git(root / "tools/a.sh") == "run by .envrc"
    assert run_by_git(root / "tools/other") == ""


@pytest.mark.parametrize(
    "envrc",
    [
        'for f in envs/*; do source_env "$f"; done',
        "source_env_if_exists envs/$USER",
        "E=envs/own; dotenv $E",
    ],
)
def test_what_direnv_loads_by_a_pattern_or_a_variable_is_protected(root: Path, envrc: str) -> None:
    made = f"mkdir envs; echo true >envs/own; cat >.envrc <<'E'\n{envrc}\nE"
    sh(made, root)
    watch = TreeWatch([root])
    watch.learn()
    (root / "envs/own").write_text("evil\n")
    (told,) = watch.compare()
    assert "/envs/own would" in told and run_by_git(root / "envs/own") == "run by .envrc"


def test_an_example_is_loaded_by_a_pattern_and_meant_by_no_variable(root: Path) -> None:
    (root / ".envrc").write_text("dotenv_if_exists .env.$MODE\n")
    assert run_by_git(root / ".env.local") == "run by .envrc"
    assert run_by_git(root / ".env.example") == ""
    (root / ".envrc").write_text("for f in .env.*; do source_env $f; done\n")
    assert run_by_git(root / ".env.example") == "run by .envrc"


@pytest.mark.parametrize("place", ["packages/a", "packages/a/b"])
def test_what_an_envrc_below_has_nix_evaluate_is_protected(root: Path, place: str) -> None:
    envrc = "use flake; use flake ./own#shell; use nix dev/tools.nix"
    made = f"{REPOSITORY}; mkdir -p {place}/own {place}/dev; echo '{envrc}' >{place}/.envrc"
    names = [f"{place}/{name}" for name in ("flake.nix", "own/flake.nix", "dev/tools.nix")]
    command = f"echo evil | tee {' '.join(names)} >{place}/dev/other.nix"
    told = "".join(born(root, command, before=f"{made}; touch {' '.join(names)}"))
    assert all(f"/{name} would" in told for name in names) and told.count("would take") == 3
    assert all(run_by_git(root / name) == "run by .envrc" for name in names)


PREK = f"{REPOSITORY}; mkdir -p a/b .c; echo 'exec \"prek\" hook-impl' > .git/hooks/pre-commit"
OF_PREK = ("prek.toml", ".pre-commit-config.yaml", "a/b/prek.toml", "a/b/.pre-commit-config.yaml")


@pytest.mark.parametrize("before", ["true", f"touch {' '.join(OF_PREK)}"])
def test_what_prek_reads_at_any_depth_is_protected_where_it_is_installed(
    root: Path, before: str
) -> None:
    """https://prek.j178.dev/reference/workspace: hidden directories are left out."""
    evil = f"echo evil | tee {' '.join(OF_PREK)} .c/prek.toml > a/prek.md"
    told = "".join(born(root, evil, before=f"{PREK}; {before}"))
    assert all(f"/{name} would" in told for name in OF_PREK) and told.count("would") == 4
    for name in OF_PREK:
        assert run_by_git(root / name) == run_by_git(root / "new" / name) != ""
    assert not any(run_by_git(root / name) for name in ("a/prek.md", ".c/prek.toml"))


@pytest.mark.parametrize("before", ["true", "touch a/b/tools/check.sh a/b/tools/x.py"])
def test_what_prek_runs_for_a_directory_further_down_is_protected(root: Path, before: str) -> None:
    sh(f"{PREK}; mkdir a/b/tools a/tools; {before}", root)
    said = (
        "repos: # of prek\n- hooks:\n  - entry: sh tools/check.sh\n  - entry: python -m tools.x\n"
    )
    (root / "a/b/.pre-commit-config.yaml").write_text(said)
    names = ("a/b/tools/check.sh", "a/b/tools/x.py")
    told = "".join(born(root, f"echo evil | tee {' '.join(names)} a/tools/x.py > a/b/tools/y.py"))
    assert all(f"/{name} would" in told for name in names) and told.count("would") == 2
    assert all(run_by_git(root / name) == "run by a hook of git's" for name in names)
    assert not any(run_by_git(root / name) for name in ("a/tools/x.py", "a/b/tools/y.py"))


def test_what_prek_reads_does_not_come_up_while_its_hook_is_gone(root: Path) -> None:
    hidden = (
        "mv .git/hooks/pre-commit x; touch a/prek.toml; git init -q a/new; touch a/new/prek.toml"
    )
    told = "".join(born(root, hidden, before=PREK))
    assert "a/prek.toml would" in told and "a/new/prek.toml would" in told
    assert "hooks/pre-commit is protected" in told


@pytest.mark.parametrize("hook", ["true", "pre-commit run"])
def test_what_prek_would_read_is_free_where_it_is_not_installed(root: Path, hook: str) -> None:
    before = f"{REPOSITORY}; mkdir a; echo '{hook}' > .git/hooks/pre-commit"
    assert born(root, "touch a/.pre-commit-config.yaml a/prek.toml prek.toml", before=before) == []
    assert run_by_git(root / "a/.pre-commit-config.yaml") == ""


def test_a_file_that_the_installed_manager_is_told_of_is_protected(root: Path) -> None:
    hook = "exec pre-commit hook-impl --config=conf/checks.yaml"
    before = (
        f"{REPOSITORY}; mkdir conf; echo '{hook}' > .git/hooks/pre-commit; chmod +x .git/hooks/*"
    )
    told = "".join(born(root, "echo x > conf/checks.yaml; touch conf/other.yaml", before=before))
    assert "conf/checks.yaml would" in told and told.count("would") == 1
    assert run_by_git(root / "conf/checks.yaml") and not run_by_git(root / "conf/other.yaml")


EXTENDS = {
    "a list": "extends:\n  - packages/*/lefthook.yml\n  - conf/more.yml # ours\n",
    "in brackets": 'extends: ["packages/*/lefthook.yml", conf/more.yml]\n',
    "JSON": '{"extends": [\n "packages/*/lefthook.yml",\n "./conf/more.yml"\n]}\n',
    "TOML": 'extends = ["packages/*/lefthook.yml", "conf/more.yml"]\n[pre-commit]\n',
}


@pytest.mark.parametrize("before", ["true", "touch packages/a/lefthook.yml conf/more.yml conf/rc"])
@pytest.mark.parametrize("said", EXTENDS.values(), ids=EXTENDS)
def test_what_extends_lefthooks_configuration_is_protected(
    root: Path, said: str, before: str
) -> None:
    """https://lefthook.dev/configuration/extends, and what these extend in their turn."""
    hook = f"{REPOSITORY}; echo 'lefthook run pre-commit' >.git/hooks/pre-commit"
    sh(f"{hook}; mkdir -p packages/a packages/.b conf; {before}", root)
    (root / "lefthook.yml").write_text(f"{said}\n")
    (root / "lefthook-local.yml").write_text("rc: ./conf/rc\nextends: [conf/third.yml]\n")
    (root / "conf/third.yml").write_text("pre-commit: {}\nextends:\n- conf/fourth.yml\n")
    names = [f"packages/{name}/lefthook.yml" for name in ("a", ".b")]
    names += [f"conf/{name}" for name in ("more.yml", "third.yml", "fourth.yml", "rc")]
    free = ("packages/a/b/lefthook.yml", "conf/other.yml")
    sh("mkdir -p packages/a/b", root)
    told = "".join(born(root, f"echo evil | tee {' '.join((*names, *free))}"))
    assert all(f"/{name} would" in told for name in names), told
    assert told.count("would") == len(names)
    assert all(run_by_git(root / name) for name in (*names, "packages/new/lefthook.yml"))
    assert not any(run_by_git(root / name) for name in free)


def test_what_lefthook_has_fetched_is_protected(root: Path) -> None:
    """https://lefthook.dev/configuration/remotes: it is kept below ``.git/info``."""
    place = ".git/info/lefthook-remotes/ours-v1"
    sh(f"{REPOSITORY}; echo 'lefthook run x' >.git/hooks/x; git init -q {place}", root)
    (root / "lefthook.yml").write_text("remotes:\n- git_url: x\n  configs:\n    - a/one.yml\n")
    sh(f"mkdir -p {place}/a {place}/.lefthook/x; touch {place}/a/one.yml", root)
    names = [f"{place}/{name}" for name in ("a/one.yml", "lefthook.yml", ".lefthook/x/a.sh")]
    attack = f"echo evil | tee {' '.join(names)} > {place}/README; cd {place}; {EVIL}"
    told = "".join(born(root, attack))
    assert all(f"/{name} would" in told for name in (*names, f"{place}/.git/config")), told
    assert told.count("would") == 4


NIX = {
    "flake.nix": '{ outputs = _: import ./nix/dev.nix; inputs.x.url = "path:./sub"; lock = ./a.lock; }\n',
    "shell.nix": "pkgs.callPackage ./nix/dev.nix { src = ./src; y = import ./sub; }\n",
    "devenv.nix": "{ imports = [ ./nix/dev.nix ./sub ]; }\n",
    "devenv.yaml": "inputs: {}\nimports:\n- ./sub\n- ./nix/dev.nix\n",
}


@pytest.mark.parametrize("before", ["true", "touch nix/last.nix nix/run.sh sub/default.nix"])
@pytest.mark.parametrize("start", NIX)
def test_what_nix_imports_for_direnv_is_protected(root: Path, start: str, before: str) -> None:
    sh(f"git init -q .; mkdir nix sub src; {before}", root)
    (root / ".envrc").write_text(f"use {start.partition('.')[0].replace('shell', 'nix')}\n")
    (root / start).write_text(NIX[start])
    (root / "nix/dev.nix").write_text("{ x = ./last.nix; y = ''. ${./run.sh}''; }\n")
    ends = ("default.nix", "flake.nix", "devenv.nix")
    names = ["nix/dev.nix", "nix/last.nix", "nix/run.sh", *(f"sub/{end}" for end in ends)]
    free = ("a.lock", "src/main.py", "nix/other.nix", "README.md")
    told = "".join(born(root, f"echo evil | tee {' '.join((*names, *free))}"))
    assert all(f"/{name} would" in told for name in names), told
    assert told.count("would") == len(names)
    assert all(run_by_git(root / name) == "run by .envrc" for name in names)
    assert not any(run_by_git(root / name) for name in free)


@pytest.mark.parametrize(
    ("envrc", "file"),
    [
        ("use devenv", "devenv.local.nix"),
        ("use devenv", "devenv.local.yaml"),
        ('eval "$(pixi shell-hook)"', "pixi.toml"),
    ],
)
def test_what_other_environments_of_direnv_obey_is_protected(
    root: Path, envrc: str, file: str
) -> None:
    (root / ".envrc").write_text(f"{envrc}\n")
    (told,) = born(root, f"mkdir -p {os.path.dirname(file) or '.'}; echo evil > {file}")
    assert f"/{file} would" in told
    assert run_by_git(root / file) == "run by .envrc"


@pytest.mark.parametrize("place", ["vendor/lib", "node_modules/x/lib", "vendor"])
@pytest.mark.parametrize("first", ["true", "rm -rf {}/.git"])
def test_what_a_submodule_among_packages_has_others_run_is_protected(
    root: Path, place: str, first: str
) -> None:
    envrc = f"mkdir -p {place}/.vscode; echo '. ./env' >{place}/.envrc"
    made = f"{REPOSITORY}; {envrc}; touch {place}/env {place}/.vscode/tasks.json"
    sh(f"{made}; git init -q {place}", root)
    (watch := TreeWatch([root])).learn()
    sh(first.format(place), root)
    watch.compare()
    sh(f"cd {place}; echo evil | tee env .vscode/tasks.json .lvimrc >other", root)
    told = "".join(watch.compare())
    assert all(
        f"/{place}/{name} would" in told for name in ("env", ".vscode/tasks.json", ".lvimrc")
    )
    assert (root / place / "env").read_text() == "" and (root / place / "other").exists()


@pytest.mark.parametrize("how", ["source_env", "source_env_if_exists", "dotenv_if_exists"])
@pytest.mark.parametrize("before", ["touch local/dev", "true"])
def test_what_direnv_loads_by_its_own_words_is_protected(root: Path, how: str, before: str) -> None:
    made = f"mkdir local; echo '{how} local/dev' >.envrc; {before}"
    told = "".join(born(root, "echo evil | tee local/dev >local/other", before=made))
    assert "/local/dev would" in told and (root / "local/other").exists()
    (root / "local/dev").unlink(missing_ok=True)
    assert run_by_git(root / "local/dev") == "run by .envrc"


def test_a_script_that_a_hook_waits_for_is_not_made(root: Path) -> None:
    hook = f"{REPOSITORY}; echo 'test -x t/x.sh && t/x.sh' > .git/hooks/pre-commit; mkdir t"
    (told,) = born(root, "echo evil > t/x.sh", before=hook)
    assert "t/x.sh" in told and not (root / "t/x.sh").exists()


def test_a_file_of_another_kind_harms_nothing(root: Path) -> None:
    told = born(root, "mkfifo .envrc; git init -q s; rm s/.git/config; mkfifo s/.git/config")
    assert any(".envrc was" in line or ".envrc would" in line for line in told)
    assert any("config would" in line for line in told)


def test_hostile_names_and_contents_stop_no_comparison(root: Path) -> None:
    taken = "touch .envrc.set-aside; for i in 1 2 3 4 5 6; do touch .envrc.set-aside$i; done"
    told = born(
        root,
        f"{taken}; echo evil > .envrc; mkdir a b c; printf 'gitdir: x\\000y' > a/.git;"
        "git init -q b/r; printf 'x\\000y' > b/r/.git/commondir;"
        "git init -q c/r; printf '[core]worktree=a\\000b' > c/r/.git/config;"
        "git init -q d; printf '\\377[' > d/.git/config;"
        "git init -q e; cd e/.git/hooks; for i in $(seq 500); do touch a$i; done; touch pre-commit",
    )
    for name in (".envrc", "a/.git", "b/r/.git/commondir", "c/r/.git/config", "d/.git/config"):
        assert any(f"{root / name} would" in line for line in told), name
    assert not (root / ".envrc").exists()
    assert not (root / "e/.git/hooks/pre-commit").exists()


@pytest.mark.spec("SEC-13")
def test_a_crowd_of_large_files_is_told_apart_and_not_held(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_watch, "_MOST_KEPT_BYTES", 2000)
    crowd = (
        "mkdir -p {0}/.husky; for n in 1 2 3 4 5 6; do head -c 900 /dev/zero > {0}/.husky/$n; done"
    )
    watch = TreeWatch([root])
    mine = f"echo mine > .envrc; {crowd.format('theirs')}"
    told = born(root, f"{crowd.format('a')}; echo evil > .envrc", before=mine, watch=watch)
    assert len(told) == 2 and ".envrc would" in "".join(told), "what has not changed is none of it"
    assert (root / ".envrc").read_text() == "mine\n"
    assert sum(len(item.content.data) for item in watch.known.items.values()) < 4000
    assert "theirs/.husky/6 would" in "".join(born(root, "echo >> theirs/.husky/6", watch=watch))


def test_a_deep_tree_is_looked_at_as_far_as_names_reach(root: Path) -> None:
    watch = TreeWatch([root])
    watch.learn()
    with deep_directory(root, 3_000):
        sh("echo evil > d/d/d/.envrc", root)
        lines = watch.compare()  # where the machine is slow another one says that it took too long
        assert sum(".envrc" in line for line in lines) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_directory_that_is_made_read_only_keeps_nothing(root: Path) -> None:
    (line,) = born(root, f"git init -q x && cd x && {EVIL} && chmod 0555 .git")
    assert "renamed" in line


def test_what_cannot_be_looked_into_is_passed_over(root: Path) -> None:
    (root / "shut").mkdir(mode=0o000)
    assert born(root, "mkdir x") == []
    (root / "shut").chmod(0o700)


@pytest.mark.spec("SEC-13")
def test_one_bound_of_time_holds_for_all_that_a_comparison_looks_at(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = TreeWatch([root])
    watch.learn()
    chain = "; ".join(f"echo 'sh ./s{n + 1}.sh' > s{n}.sh" for n in range(4))
    many = "mkdir -p $(seq -f many/%g 1000)"
    sh(f"mkdir -p sub/.husky; cd sub; git init -q .; {chain}", root)
    sh(f"echo 'sh ./s0.sh' > sub/.husky/pre-commit; {many}", root)
    now = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(now) / 100)
    told = watch.compare()
    assert len(told) == 1 and "directories are looked at" in told[0]
    assert next(now) < 500


def test_beyond_the_bound_it_is_said_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_watch, "MOST_DIRECTORIES", 10)
    watch = TreeWatch([root])
    watch.learn()
    sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir -p d$i/e; done", root)
    (line,) = watch.compare()
    assert "only the nearest 10 directories are looked at" in line
    sh("mkdir more", root)
    assert watch.compare() == []


def test_beyond_the_bound_what_is_new_in_what_was_looked_at_is_seen(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_watch, "MOST_DIRECTORIES", 10)
    sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir -p d$i/e; done; mkdir .zed", root)
    watch = TreeWatch([root])
    watch.learn()
    seen = {str(Path(place).relative_to(root)) for place in watch.known.directories}
    beyond = next(f"d{i}" for i in range(1, 13) if f"d{i}" not in seen)
    plant = "mkdir .vscode new; touch .vscode/tasks.json .zed/tasks.json new/.envrc"
    sh(f"{plant}; touch {beyond}/.envrc; rm -r d*/e; find . -name 'd*' -empty -delete", root)
    told = " ".join(watch.compare())
    for name in (".vscode", ".zed/tasks.json", "new/.envrc"):
        assert f"{root / name} would take effect" in told
    assert (root / beyond / ".envrc").exists(), "it may be the user's"


@pytest.mark.spec("SEC-13")
def test_a_crowd_of_names_is_looked_at_in_parts_and_those_that_matter_most_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_watch, "MOST_DIRECTORIES", 100)
    watch = TreeWatch([root])
    watch.learn()
    (root / "a").mkdir()
    for number in range(250):
        (root / f".envrc.{number}").touch()
    (root / ".envrc").touch()
    (root / ".vscode").mkdir()
    (root / ".vscode" / "tasks.json").touch()
    told = watch.compare()
    assert "directories are looked at" in told[-1]
    assert not (root / ".envrc").exists() and not (root / ".vscode").exists()
    counts = [sum(SUFFIX not in name for name in os.listdir(root))]
    for _ in range(2):
        watch.compare()
        counts.append(sum(SUFFIX not in name for name in os.listdir(root)))
    assert counts == [151, 51, 1]


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("name", [".claude/settings.json", ".own/mcp.json", ".qwen/hooks"])
def test_a_crowd_beside_what_others_obey_by_its_form_does_not_hide_it(
    root: Path, name: str
) -> None:
    place = root / name
    sh(f"mkdir -p {place.parent}; cd {place.parent}; ln -s x {place.name}; ln -s x y", root)
    later = time.monotonic() + 60
    found = directories.listing_of(str(place.parent), None, 0, lambda _: False, later)
    assert found and found.marks == (place.name,) and not found.is_whole


@pytest.mark.spec("SEC-13")
def test_names_are_kept_as_long_as_there_is_room(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_MOST_ROOM_BYTES", 64 * 1024)
    watch = TreeWatch([root])
    watch.learn()
    place = root.joinpath(*["x" * 200] * 10)
    place.mkdir(parents=True)
    for number in range(100):
        (place / f"{number}").mkdir()
    (place / ".envrc").touch()
    told = watch.compare()
    assert "directories are looked at" in told[-1] and ".envrc.set-aside" in told[0]
    assert len(watch.known.directories) < 40


def test_a_directory_that_has_not_changed_is_not_listed_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_TICK_NS", -(10**18))
    sh("mkdir -p a/b/c d/e; git init -q .", root)
    watch = TreeWatch([root])
    watch.learn()
    listed: list[str] = []
    scandir: Callable[[str], object] = os.scandir

    def counted(path: str) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    watch.compare()
    assert [path for path in listed if ".git" not in str(path)] == []
    sh("touch a/b/new", root)
    watch.compare()
    assert [path for path in listed if ".git" not in path] == [f"{root}/a/b"]


def test_a_file_system_that_knows_whole_seconds_hides_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a").mkdir()
    lstat = os.lstat

    def whole(path: str) -> os.stat_result:
        fields = list(lstat(path).__reduce__()[1][0])
        named = {"st_ctime_ns": 1_700_000_000 * 10**9}
        return os.stat_result(fields, named)

    monkeypatch.setattr(os, "lstat", whole)
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000 * 10**9 + 900_000_000)
    watch = TreeWatch([root])
    watch.learn()
    (root / "a/.envrc").touch()
    (told,) = watch.compare()
    assert ".envrc.set-aside" in told


def test_what_no_command_could_change_was_changed_by_the_user(root: Path) -> None:
    sh("mkdir a; echo one > a/.envrc; echo one > .envrc", root)
    watch = TreeWatch([root])
    watch.learn()
    watch.read_only = pinned([root / "a/.envrc", root / ".envrc"], watch.known.items)
    sh("echo two > .envrc; mv a b; mkdir a; echo two > a/.envrc; rm -r b", root)
    (line,) = watch.compare()
    assert "a/.envrc would take effect" in line
    assert (root / ".envrc").read_text() == "two\n"


def test_a_swapped_repository_is_not_taken_for_the_one_that_was_read_only(root: Path) -> None:
    sh(f"mkdir sub; cd sub; {REPOSITORY}", root)
    watch = TreeWatch([root])
    watch.learn()
    shut = [root / "sub/.git/config", root / "sub/.git/hooks"]
    watch.read_only = pinned(shut, watch.known.items)
    sh("echo '[core]editor=mine' >> sub/.git/config; echo x > sub/.git/hooks/pre-push", root)
    assert watch.compare() == []
    sh(f"mv sub old; git init -q sub; cd sub; {EVIL}", root)
    assert any("sub/.git/config would" in line for line in watch.compare())


@pytest.mark.spec("SEC-17")
def test_what_was_read_only_is_not_once_it_has_another_name_or_was_replaced(root: Path) -> None:
    sh(
        "mkdir hooks; for f in a b .envrc hooks/x; do echo one > $f; done; ln a a2; ln hooks/x x",
        root,
    )
    files = [str(root / name) for name in ("a", "b", ".envrc", "hooks/x")]
    found = pinned([root / "a", root / "b", root / ".envrc", root / "hooks", root / "no"], files)
    assert list(found) == [f"{root}/b", f"{root}/.envrc"]
    watch = TreeWatch([root])
    watch.learn()
    watch.read_only = found
    for _ in range(4):  # the number of its inode does not come again
        sh("echo two > new; mv new .envrc", root)
        (line,) = watch.compare()
        assert ".envrc would take effect" in line


def test_what_could_not_be_put_back_at_once_is_put_back_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was left running makes the file again before it is there."""
    sh(f"{REPOSITORY}; git config user.name Mine", root)
    watch = TreeWatch([root])
    watch.learn()
    mine = (root / ".git/config").read_text()
    sh(EVIL, root)
    with monkeypatch.context() as patched:
        patched.setattr(set_aside, "_put_back", lambda *_: sh(EVIL, root))
        watch.compare()
    assert "put back" in watch.compare()[0]
    assert (root / ".git/config").read_text() == mine
    assert watch.compare() == []


def test_what_a_full_disk_takes_no_more_is_put_back_later(root: Path) -> None:
    hook = ".git/hooks/update"
    sh(f"{REPOSITORY}; git config user.name Mine; echo mine | tee .envrc > {hook}", root)
    watch = TreeWatch([root])
    watch.learn()
    mine = (root / ".git/config").read_text()
    sh(f"{EVIL}; rm .envrc {hook}; echo evil > .envrc", root)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        told = [*watch.compare(), *watch.compare()]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(told) == 2 and "was there put back" not in "".join(told)
    assert len(watch.compare()) == 3 and watch.compare() == []
    assert (root / ".git/config").read_text() == mine
    assert (root / ".envrc").read_text() == (root / hook).read_text() == "mine\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is shut to root")
def test_a_new_directory_that_cannot_be_looked_into_is_set_aside(root: Path) -> None:
    watch = TreeWatch([root])
    watch.learn()
    sh(f"git init -q x && cd x && {EVIL} && chmod 0311 .", root)
    (line,) = watch.compare()
    assert "x.set-aside" in line
    (inner,) = watch.compare()  # what it held, now that it can be looked into
    assert "x.set-aside/.git/config would" in inner
    assert watch.compare() == []


@pytest.mark.parametrize("shut", [".git/modules/libs", ".git/modules", ".git/worktrees"])
@pytest.mark.usefixtures("shut_to_root")
def test_directories_of_gits_that_cannot_be_listed_hide_nothing(root: Path, shut: str) -> None:
    evil = f"git init -q --bare {shut}/libs/foo && cd {shut}/libs/foo && {EVIL}"
    watch = TreeWatch([root])
    sh(REPOSITORY, root)
    watch.learn()
    sh(f"({evil}) && chmod 0311 {shut}", root)
    assert f"{root}/{shut} would take effect" in "".join(watch.compare())
    assert not (root / shut).exists()


@pytest.mark.spec("SEC-17")
def test_a_directory_of_the_users_that_a_command_shuts_is_opened_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def as_user(path: str) -> object:
        if os.stat(path).st_mode & 0o400:
            return scandir(path)
        raise PermissionError(path)

    watch = TreeWatch([root])
    sh(f"{REPOSITORY}; mkdir src", root)
    config = (root / ".git/config").read_text()
    watch.learn()
    monkeypatch.setattr(os, "scandir", as_user)
    sh(f"{EVIL}; chmod 111 src .git", root)
    told = watch.compare()
    opened = {line.partition(" could not be looked into")[0] for line in told[:2]}
    assert opened == {f"[sandbox: {root}/src", f"[sandbox: {root}/.git"}
    assert "config would take effect outside" in told[2] and "put back" in told[2]
    assert (root / ".git/config").read_text() == config
    assert {entry.name for entry in scandir(root)} == {".git", "src"}
    assert watch.compare() == []


def test_a_crowd_of_submodules_hides_none_that_was_known(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_MOST_MODULES", 30)
    module = ".git/modules/x/y/z"
    crowd = "mkdir $(seq -f .git/modules/%g 40)"
    evil = f"git -C {module} config core.fsmonitor 'touch pwned'"
    before = f"git init -q .; git init -q --bare {module}"
    told = "".join(born(root, f"{crowd}; {evil}", before=before))
    assert f"{root}/{module}/config would take effect" in told
    assert "the others are not protected" in told


@pytest.mark.parametrize("before", ["", f"{REPOSITORY}; {HOOK}"])
@pytest.mark.usefixtures("shut_to_root")
def test_hooks_in_a_directory_that_cannot_be_listed_do_not_stay(root: Path, before: str) -> None:
    evil = f"git init -q .; {HOOK}; echo evil >> .git/hooks/pre-commit; chmod 0311 .git/hooks"
    told = "".join(born(root, evil, before=before))
    assert f"{root}/.git/hooks would take effect" in told
    hook = root / ".git/hooks/pre-commit"
    assert hook.exists() == bool(before) and (not before or "evil" not in hook.read_text())


def test_a_crowd_of_directories_hides_nothing_that_was_known(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sh(f"mkdir -p a/b && cd a/b && {REPOSITORY}", root)
    monkeypatch.setattr(sandbox_watch, "MOST_DIRECTORIES", 20)
    watch = TreeWatch([root])
    watch.learn()
    sh(f"for i in $(seq 40); do mkdir 0$i; done; cd a/b && {EVIL}", root)
    told = watch.compare()
    assert any("a/b/.git/config would" in line for line in told)
    sh("for i in $(seq 40); do rmdir 0$i; done", root)
    assert watch.compare() == []


@pytest.mark.parametrize("place", ["zeta", "a/b/c"])
def test_a_crowd_of_directories_hides_nothing_that_comes_up_where_the_user_works(
    root: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    sh(f"mkdir -p {place} a/b/other", root)
    monkeypatch.setattr(sandbox_watch, "MOST_DIRECTORIES", 20)
    watch = TreeWatch([root])
    watch.learn()
    sh(f"for i in $(seq 40); do mkdir 0$i; done; cd {place} && git init -q . && {EVIL}", root)
    assert any(f"{place}/.git/config would" in line for line in watch.compare())


def test_a_crowd_of_names_hides_nothing_that_was_known(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sh("mkdir -p a/.vscode; echo mine > a/.vscode/tasks.json", root)
    watch = TreeWatch([root])
    watch.learn()
    monkeypatch.setattr(directories, "_MOST_ROOM_BYTES", 100_000)
    monkeypatch.setattr(directories, "MOST_FILES", 10)
    sh("for i in $(seq 500); do : > .envrc.$i; done", root)
    assert any("the others are not protected" in line for line in watch.compare())
    sh("rm -f .envrc.*; echo evil > a/.vscode/tasks.json", root)
    (told,) = watch.compare()
    assert "what was there put back" in told
    assert (root / "a/.vscode/tasks.json").read_text() == "mine\n"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p .git/modules/x && cd .git/modules/x && for n in $(seq 30); do ln -s . l$n; done",
        (
            "for n in 1 2 3 4; do mkdir -p .git/modules/x$n; touch .git/modules/x$n/HEAD;"
            " ln -s .. .git/modules/x$n/modules; done"
        ),
        "mkdir .git/modules; ln -s / .git/modules/all",
        (
            "for n in $(seq 300); do mkdir -p .git/modules/x; cd .git/modules/x; mkdir .git; done"
            " 2>/dev/null"
        ),
        (
            "p=.git; for n in $(seq 300); do p=$p/modules/x; done; mkdir -p $p;"
            " while [ $p != .git ]; do touch $p/HEAD; p=${p%/modules/x}; done"
        ),
        (
            "p=a; for n in $(seq 300); do mkdir -p $p/objects $p/refs; touch $p/HEAD;"
            " echo ../b$n > $p/commondir; p=b$n; done; mkdir $p"
        ),
    ],
)
def test_links_in_circles_and_deep_modules_end(root: Path, command: str) -> None:
    sh(REPOSITORY, root)
    watch = TreeWatch([root])
    watch.learn()
    sh(command, root, check=False)
    watch.compare()
    evil = "[core]\n\tfsmonitor = touch pwned\n"
    (root / ".git" / "config").write_text(evil)
    assert any(f"{root}/.git/config would" in line for line in watch.compare())
    places = find_places((root,), root / "no home", OwnPlaces())
    assert root / ".git" / "config" in places.read_only
    assert len(places.pinned) <= 101


@pytest.mark.parametrize("name", ["link", ".envrc", ".git/hooks/pre-commit", ".husky/run"])
def test_more_links_in_a_row_than_anybody_follows_end_no_comparison(root: Path, name: str) -> None:
    sh(f"{REPOSITORY} && mkdir .husky", root)
    watch = TreeWatch([root])
    watch.learn()
    for number in range(1100):
        (root / f"l{number}").symlink_to(f"l{number + 1}")
    (root / name).symlink_to(root / "l0")
    sh("mkdir .vscode && echo {} > .vscode/tasks.json", root)
    assert any(f"{root}/.vscode would take effect" in line for line in watch.compare())
    assert watch.compare() == []


@pytest.mark.spec("SEC-13", "SEC-17")
def test_beyond_its_time_a_look_follows_no_more_links_and_says_so(root: Path) -> None:
    (root / ".git").mkdir()
    for number in range(9):
        (root / f"link{number}").symlink_to("a/../" * 50)
    listings = [
        directories.listing_of(str(root), None, 100, lambda _: True, time.monotonic() + left)
        for left in (60, -1)
    ]
    assert [listing and (len(listing.links), listing.is_whole) for listing in listings] == [
        (9, True),
        (0, False),
    ]
    assert listings[1] and ".git" in listings[1].marks and not listings[1].is_settled


@pytest.mark.spec("SEC-13", "SEC-17")
def test_beyond_its_time_a_look_follows_no_more_remotes(root: Path) -> None:
    sh("for n in 1 2 3; do git init -q --bare b$n; done", root)
    remotes = [("remote", "url", f"{root}/b{n}", f'[remote "r{n}"]') for n in (1, 2, 3)]
    asked = itertools.count(1)
    configs = {f"{root}/.git/config": remotes}
    all_of_them = [f"{root}/b{n}" for n in (1, 2, 3)]
    assert list(pushed_to(configs, (), {}, lambda: False)) == all_of_them
    assert list(pushed_to(configs, (), {}, lambda: next(asked) > 2)) == all_of_them[:2]


def test_a_crowd_of_directories_in_what_is_run_is_set_aside(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "MOST_FILES", 20)
    command = (
        "mkdir -p .run/a && cd .run/a && for n in $(seq 30); do mkdir d$n; done; echo x > d9/x"
    )
    assert len(born(root, command)) == 1
    assert not (root / ".run").exists()


def test_a_crowd_of_files_that_was_there_is_told_of_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "MOST_FILES", 20)
    sh("mkdir .husky; for n in $(seq 30); do echo ls >.husky/h$n; done", root)
    watch = TreeWatch([root])
    watch.learn()
    (line,) = watch.compare()
    assert f"{root}/.husky: only the nearest 20 files there are compared" in line
    sh("mkdir more", root)
    assert watch.compare() == []


def test_a_link_to_a_module_hides_no_change_of_it(root: Path) -> None:
    before = f"{REPOSITORY} && mkdir .git/modules && git init -q --bare .git/modules/m"
    command = "cd .git/modules && ln -s m a && git -C m config core.fsmonitor 'touch pwned'"
    (line,) = born(root, command, before=before)
    assert line.startswith(f"[sandbox: {root}/.git/modules/m/config would take effect outside")
    assert "pwned" not in (root / ".git/modules/m/config").read_text()


def test_a_submodule_of_a_working_tree_that_lies_elsewhere_is_watched(root: Path) -> None:
    before = (
        f"mkdir lib && (cd lib && {REPOSITORY}) && {SUBMODULE} && git worktree add -q ../../far"
    )
    sh(f"{before} && cd ../../far && git submodule --quiet update --init", root)
    git = root / "top/.git/worktrees/far/modules/lib"
    lines = born(root, f"git config -f {git}/config core.fsmonitor 'touch pwned; :'")
    lines += born(root, f"mkdir -p {git}/hooks && echo x > {git}/hooks/post-checkout")
    assert [line for name in ("config", "hooks") for line in lines if f"{git}/{name} " in line]
    assert len(lines) == 2 and "fsmonitor" not in (git / "config").read_text()


def test_a_link_that_leads_nowhere_hides_no_other(root: Path) -> None:
    before = f"{REPOSITORY} && git worktree add -q ../tree"
    command = (
        "cd .git/worktrees && ln -s loop loop && printf '[core]\n\tfsmonitor = x\n' >"
        " tree/config.worktree"
    )
    sh(before, root)
    watch = TreeWatch([root])
    watch.learn()
    sh(command, root)
    lines = watch.compare()
    for name in ("loop", "tree/config.worktree"):
        start = f"[sandbox: {root}/.git/worktrees/{name} would take"
        assert any(line.startswith(start) for line in lines)
    assert len(watch.compare()) == 1 and not watch.compare()


def test_a_linked_directory_is_watched_where_it_lies(root: Path) -> None:
    sh("mkdir -p cfg/code && ln -s cfg/code .vscode && echo 1 > cfg/code/settings.json", root)
    told = born(root, "echo 2 | tee cfg/code/settings.json > cfg/code/tasks.json")
    assert len(told) == 2
    assert (root / ".vscode/settings.json").read_text() == "1\n"
    assert not (root / ".vscode/tasks.json").exists()
    assert (root / "cfg/code/tasks.json.set-aside").exists()


@pytest.mark.parametrize("known", ["", "exec make\n"])
def test_a_rebase_goes_on_with_no_program_that_a_command_has_put_in(root: Path, known: str) -> None:
    todo = root / ".git/rebase-merge/git-rebase-todo"
    steps = f"pick 1234567 one\n{known}"
    sh(f"{REPOSITORY}; mkdir .git/rebase-merge; printf '{steps}' > {todo}", root)
    (told,) = born(root, f"printf ' x\ttouch pwned\nexec touch pwned\n' >> {todo}")
    assert "git-rebase-todo.set-aside" in told
    assert todo.read_text() == "pick 1234567 one\n"
    assert born(root, f"printf 'drop 1234567 one\n' > {todo}") == []


def test_a_name_like_that_of_what_was_set_aside_hides_nothing(root: Path) -> None:
    place = ".idea/runConfigurations"
    (told,) = born(
        root, f"touch {place}/x.set-aside.xml", before=f"mkdir -p {place}; touch {place}/y"
    )
    assert "x.set-aside.xml" in told


@pytest.mark.parametrize("name", ["x.set-aside", "x.sample", "sub/x.set-aside"])
@pytest.mark.parametrize("run", ['"$f"', 'sh "$f"'])
@pytest.mark.parametrize("hooks", [".git/hooks", ".githooks"])
def test_what_a_hook_runs_of_its_own_directory_is_not_hidden_by_its_name(
    root: Path, hooks: str, run: str, name: str
) -> None:
    hook = f"{hooks}/pre-commit"
    before = (
        f"{REPOSITORY}; git config core.hooksPath {hooks}; mkdir -p {hooks}; chmod 755 {hooks};"
        f'printf \'#!/bin/sh\\nfor f in "$0.d"/* "$0.d"/*/*; do {run}; done; true\' > {hook};'
        f"chmod 755 {hook}"
    )
    place = f"{hook}.d/{name}"
    command = f"mkdir -p $(dirname {place}); echo touch pwned > {place}; chmod 755 {place}"
    sh(before, root)
    watch = TreeWatch([root])
    watch.learn()
    sh(command, root)
    assert watch.compare()
    watch.compare()
    assert watch.compare() == []
    sh("git commit -q --allow-empty -m two", root)
    assert not (root / "pwned").exists()


def test_an_executable_hook_is_not_hidden_by_its_name(root: Path) -> None:
    hook = ".git/hooks/pre-commit-x.set-aside"
    (told,) = born(root, f"touch {hook}; chmod 755 {hook}", before=f"{REPOSITORY}; {HOOK}")
    assert "pre-commit-x.set-aside in" in told


def test_what_is_put_back_makes_no_directory_through_a_link(root: Path) -> None:
    (root / "elsewhere").mkdir()
    (root / ".git").symlink_to("elsewhere")
    assert not set_aside.put_back(root / ".git/hooks/pre-commit", set_aside.MINIMAL)
    assert not [*(root / "elsewhere").iterdir()]


def test_where_mercurial_has_cloned_from_may_be_kept(root: Path) -> None:
    clone = "mkdir .hg && printf '# made\\n[paths]\\ndefault = ../x\\n' > .hg/hgrc"
    assert born(root, clone) == []
    (told,) = born(root, "printf '[hooks]\\nupdate = make\\n' >> .hg/hgrc")
    assert "put back" in told


@pytest.mark.parametrize("how", ["ln -s ../evil", "echo ../evil >"])
def test_what_names_another_store_of_jj_is_set_aside(root: Path, how: str) -> None:
    store = "mkdir -p .jj/repo evil; touch .jj/repo/config.toml"
    (told,) = born(root, f"touch evil/config.toml; rm -r .jj/repo; {how} .jj/repo", before=store)
    assert ".jj/repo would" in told


def test_what_lazygit_obeys_in_a_git_directory_is_set_aside(root: Path) -> None:
    (told,) = born(root, "echo 'os: {edit: evil}' > .git/lazygit.yml", before=REPOSITORY)
    assert "lazygit.yml.set-aside" in told
    (told,) = born(root, "git init -q new; echo 'os: {edit: evil}' > new/.git/lazygit.yml")
    assert "lazygit.yml.set-aside" in told


@pytest.mark.parametrize(
    "file",
    [".hg/hgrc", ".devcontainer.json", "sub/.helix/languages.toml", ".dir-locals-2.el",
     "sub/mise.toml", ".mcp.json", ".idea/watcherTasks.xml", ".jj/repo/config.toml",
     ".envrc.private", "mise.dev.toml", ".miserc.toml", ".config/miserc.toml", ".config/mise/config.toml", ".mise/conf.d/a.toml", "x.code-workspace",
     ".vscode/c_cpp_properties.json", ".devcontainer/init.sh", ".hg/sharedpath",
     ".Rprofile", ".pdbrc", "sub/.iex.exs", ".vim/coc-settings.json", ".opencode/plugin/a.ts", ".kiro/settings/mcp.json", ".junie/mcp/mcp.json", ".windsurf/hooks.json", ".claude/hooks/a",
     ".flox/env/manifest.toml", ".sl/config", ".ropeproject/config.py", ".direnv/flake-profile-1a2b.rc", ".lazygit.yml", ".RData", ".perldb", "sub/.agents/config.toml",
     ".kilocode/mcp.json", ".kilo/plugins/a.js", "kilo.jsonc", ".clinerules/hooks/TaskStart", ".factory/hooks.json", ".factory/mcp.json",
     ".trae/mcp.json", ".amp/settings.json", ".amp/plugins/a.ts", ".augment/settings.local.json", ".devin/hooks.v1.json", ".devin/mcp_config.json",
     ".vibe/hooks.toml", ".grok/hooks/a.json", ".pi/extensions/a.ts", ".qoder/settings.json", ".codebuddy/settings.local.json", ".iflow/settings.json",
     ".tabnine/agent/settings.json", ".ai/mcp/mcp.json", ".rovodev/mcp.json", ".kimi-code/mcp.json", ".reasonix/settings.json", "reasonix.toml",
     ".kiro/agents/a.json", ".github/mcp.json", ".github/copilot/settings.json", ".mux/mcp.jsonc", "conductor.json", ".continuerc.json",
     ".vs/mcp.json", ".vs/tasks.vs.json", "launch.vs.json", ".vimspector.json", ".theia/tasks.json", ".kateproject",
     ".claude/commands/a.md", ".claude/skills/a/SKILL.md", ".claude/agents/a.md", ".codex/rules/a.rules", ".opencode/command/a.md", ".cursor/cli.json",
     ".gemini/extensions/a/x.json", ".github/lsp.json", ".vibe/tools/a.py", ".mux/init", ".lfsconfig", ".emdash.json",
     "tui.json", ".opencode/tui.jsonc", ".opencode/skill/a/SKILL.md", ".opencode/skills/a/SKILL.md", ".opencode/mode/a.md", ".claude/scheduled_tasks.json",
     ".claude/workflows/a.js", ".claude/routines/a.md", ".claude/launch.json", ".gemini/agents/a.md", ".kilo/command/a.md", ".kilocode/skills/a/SKILL.md",
     ".qwen/hooks/a", ".new/settings.local.json", ".one/mcp.json", "mise/config.dev.toml", ".mise/config.local.toml", "sub/.crush/skills/a/SKILL.md", ".forge/commands/a.md"],
)  # fmt: skip
def test_what_other_programs_obey_is_set_aside_and_edited_unasked_by_nobody(
    root: Path, file: str
) -> None:
    assert protected_place((root / file,), ())
    (told,) = born(root, f"mkdir -p $(dirname {file}) && echo evil > {file}", before="mkdir sub")
    assert "set-aside" in told and not (root / file).exists()


@pytest.mark.parametrize(
    "made",
    [
        "git init -q --bare .cfg",
        "mkdir .astro && echo {} > .astro/settings.json",
        "mkdir -p out/.doctrees/extensions .build/hooks .build/commands",
        "mkdir -p .worktrees/agents && touch .worktrees/agents/x",
    ],
)
def test_a_hidden_directory_of_another_kind_of_program_is_left_alone(root: Path, made: str) -> None:
    made += "; mkdir -p out/.doctrees/agents; touch out/.doctrees/agents/x.doctree"
    assert born(root, made) == []


@pytest.mark.spec("SEC-13")
def test_what_hidden_links_lead_to_is_not_listed_however_much_it_holds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = set[str]()
    for function in (os.listdir, os.scandir):

        def listing(path: str, of: Callable[[str], object] = function) -> object:
            listed.add(os.fspath(path))
            return of(path)

        monkeypatch.setattr(os, function.__name__, listing)
    told = born(root, "mkdir d; echo a > d/mcp.json; ln -s d .one; mkdir e; ln -s e .two")
    assert len(told) == 1 and ".one.set-aside" in told[0]
    assert not listed & {f"{root}/.one", f"{root}/.two"}


def test_what_a_command_under_way_has_made_is_known_no_sooner_than_it_has_ended(root: Path) -> None:
    watch = TreeWatch([root])
    sh(REPOSITORY, root)
    watch.learn()
    for remote in ("../one", "../two"):
        sh(f"git init -q a; git -C a remote add origin {remote}", root)
        assert watch.compare(is_under_way=True) == []
        sh("rm -rf a", root)
        assert watch.compare(is_under_way=True) == []
    sh("rm .git/config", root)
    assert watch.compare(is_under_way=True) == [], "it may be in the middle of something"
    (told,) = watch.compare()
    assert ".git/config is protected and was put back" in told
    sh("git init -q a; git -C a config core.fsmonitor x", root)
    assert "a/.git/config would take effect" in watch.compare(is_under_way=True)[0]
    assert watch.compare(is_under_way=True) == [] == watch.compare()


@pytest.mark.parametrize(
    "text",
    [
        "path:./evil\n",
        "node path:./evil",
        "../../evil",
        "/home/u/evil\n",
        "java=/x",
        "  ~/x",
        "$HOME",
        "./x",
        "p\0a\0",
        '{{exec(command="sh plant")}}node 22\n',
        '# {{ exec(command="sh plant") }}\nnode 22\n',
        "{%- set x = exec(command='sh plant') %}node 22\n",
        "3.3.0 # path:/home/u/evil\n",
        "# path:./evil\n3.3.0\n",
        "3.3.0\n# ../../../evil\n",
    ],
)
@pytest.mark.parametrize("name", [".tool-versions", ".nvmrc", ".go-version", ".sdkmanrc"])
def test_a_directory_that_stands_in_the_place_of_a_version_is_set_aside(
    root: Path, name: str, text: str
) -> None:
    watch = TreeWatch([root])
    (root / name).write_text("22.1.0\n")
    watch.learn()
    for fine in (
        "v20",
        "nodejs 22.1.0\npython 3.12 3.11\n",
        "lts/*",
        "# see https://x.dev/y\njava=21.0.1-tem # ours\n",
    ):
        (root / name).write_text(fine)
        (root / "sub").mkdir(exist_ok=True)
        (root / "sub" / name).write_text(fine)
        assert watch.compare() == []
    (root / name).write_text(text)
    (told,) = watch.compare()
    assert f"/{name} would take effect outside" in told
    assert (root / name).read_text() == fine
    places = find_places((root,), root / "no home", OwnPlaces(), (), watch.known.scripts)
    assert root / name not in places.read_only, "a branch may bring another version"
    assert protected_place((root / name,), (root,))
