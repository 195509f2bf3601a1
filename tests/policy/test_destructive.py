"""What destroys the workspace, home, ``/`` or ``.git``, and what writes protected places."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from agentcli.domain.ports import PermissionMode as Mode
from agentcli.domain.sandbox import Access
from agentcli.domain.tools import Asks, ToolDefinition, Workspace
from agentcli.policy.decision import Answer, CallFacts, CallPlace, Decision, Policy
from agentcli.policy.destructive import Operands, operands_of
from agentcli.policy.judge import judge
from tests.policy.asking import Asked, judged, policy_of, session_rule

SUITE = Path(__file__).resolve().parents[3] / "shared/suites/bash/codex_dangerous.json"
BASH = ToolDefinition("bash", "bash", "", {"type": "object"}, Asks.ANYTHING, "shell")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "out").symlink_to(root.parent)
    (root / "here").symlink_to(".")
    (root / "sub/up").symlink_to("..")
    return Workspace(root, root)


def command(workspace: Workspace, text: str) -> Asked:
    return Asked(CallFacts(BASH, {"command": text}, ()), workspace)


def in_yolo(workspace: Workspace, text: str, **changes: bool) -> Decision:
    policy = policy_of(Mode.YOLO, ["bash", "bash(*)"], [])
    policy.granted.append(session_rule(command(workspace, text), policy))
    for name, value in changes.items():
        setattr(policy, name, value)
    return judged(command(workspace, text), policy)


DESTRUCTIVE = [
    "cd sub && find -L .. -delete", "cd sub && find -O3 .. -delete", "cd sub && find -D tree .. -exec rm -rf {} +", "cd sub && find -P ~ -delete",
    "find -L sub -delete", "find sub -follow -delete", "cd sub && fd -C .. . -x rm -rf", "cd sub && git --work-tree=.. clean -fdx",
    "/bin/r? -rf ..", "/bin/r[m] -rf ~", "cd sub && /bin/r* -rf ../*", "{rm,-rf,..}", "cd sub && {rm,-rf,..}", "ls; {rm,-rf,~}",
    "rm -rf sub/up/../*", "rm -rf sub/up/../w*", "rm -rf here/../work/*", "cd sub && rm -rf .*/*", "cd sub && rm -rf [.]?/*", "cd sub && chown -R me .*",
    "cd sub; rm -rf *", "cd sub & rm -rf *", "cd sub || rm -rf *", "cd sub && ls || rm -rf *", "cd sub && ls\nrm -rf *",
    "cd missing && rm -rf *", "cd here && rm -rf *", "cd . && rm -rf *", "cd sub && cd .. && rm -rf *", "cd sub && (cd .. && rm -rf *)",
    "cd sub && bash -c 'cd .. && rm -rf *'", "cd sub && env -C .. rm -rf .", "cd sub && rm -rf ../*", "cd sub/.. && rm -rf *",
    "CDPATH=.. cd sub && rm -rf *", "(cd sub && ls) && rm -rf *", "cd sub && popd && rm -rf *", "cd sub && . ./x && rm -rf *", "cd sub && source x && rm -rf *", "cd sub && cd - && rm -rf *",
    "rm -rf /", "rm -f /", "rm -rf .", "rm -rf ./", "rm -rf *", "rm -rf ./*", "rm -rf .*",
    "rm -rf -- .", "rm -r --force .", "rm --recurs .", "rm -rf ..", "rm -rf ../*", "rm -rf .git",
    "rm -rf .GIT", "rm -rf .g*", "rm -rf .gi?", "rm -rf {src,.git}", "rm -rf sub/../.git",
    "rm -rf ~", "rm -rf ~/", "rm -rf ~/*", 'rm -rf "$HOME"', "rm -rf $HOME/", "rm -rf ${HOME}/*",
    "rm -rf $PWD", "rm -rf out", "rm -rf /proc/self/cwd", "rm -rf /proc/self/root", "rm -rf /usr",
    "echo >&'$(rm -rf .)'", r"rm -rf $'\x{2f}'", r"$'r\x{6d}' -rf .", 'rm -rf "$X"', "rm -rf $(pwd)", "rm -rf `pwd`", "X=/; rm -rf $X", "$cmd -rf .",
    "/bin/rm -rf .", "\\rm -rf .", "r''m -rf .", "sudo rm -rf .", "env A=b rm -rf .",
    "command rm -rf .", "timeout 5 rm -rf .", "nohup rm -rf . &", "bash -c 'rm -rf .'",
    "sh -c 'cd / && rm -rf *'", "eval 'rm -rf .'", "ls | xargs rm -rf", "true && rm -rf .",
    "echo $(rm -rf .)", "if true; then rm -rf .; fi", "for d in a b; do rm -rf $d; done",
    "f() { rm -rf .; }; f", "(rm -rf .)", "ls\nrm -rf .", "cd .. && rm -rf work", "cd / && rm -rf *",
    "cd && rm -rf *", "cd sub && rm -rf ../.git", "cd $X && rm -rf build", "cd - && rm -rf build",
    "git rebase -x 'rm -rf .git' a", "git submodule foreach 'rm -rf .git'", "git -c alias.x='!rm -rf .' x",
    "rimraf .", "trash-put .git", "srm -r ~", "zip -rm x.zip .", "find . -delete", "find -delete", "find / -name x -delete", "find . -type f -exec rm {} +",
    "find . -type f -exec shred {} ';'", "find . ! -name x -delete", "find ~ -name '*' -delete",
    "git clean -fdx", "git clean -f", "git -C .. clean -xfd", "git rm -rf .", "shred -u .git/HEAD",
    "chmod -R 777 .", "chmod -R u+w,g-x .", "chmod -R $M .", "chmod -R 000 /", "chown -R nobody ~", "mv . /tmp/x",
    "mkfs.ext4 /dev/sda1", "mkfs /dev/sda1", "dd if=/dev/zero of=/dev/sda",
    "echo x > /dev/sda", "wipefs -a /dev/sda", "rsync -a --delete empty/ ./", "if then rm -rf /",
    "rm -rf . ; echo $((", "rm -rf $(pwd)/x; echo $((", "rm -rf ~+", "rm -rf ~+/sub/..", "rm -rf ~-",
    "pushd /; rm -rf ~1", "rm -rf ~+1/*", "rm -rf ~+/.git",
    "rm -rf here/../work", "rm -rf */../work", "rm -rf $PWD/*/..", "HOME=.; rm -rf ~", "export HOME=$PWD; rm -rf ~/",
    "CDPATH=..; cd work && rm -rf sub", "find . -type f | xargs rm", "find ~ -type f -print0 | xargs -0 rm -f",
    'find . -type f | while read f; do rm "$f"; done', "rm $(find . -type f)", "find .git -type f | xargs -n1 shred",
    "tar cf x.tar --remove-files .", 'trap "rm -rf $PWD" EXIT', "mv $(pwd) ../x", 'mv "`pwd`" ../x', "mv ${HOME:?} x", "rm -rf ${PWD:-x}",
    "find . -name .git -exec rm -rf {} +", "find . -type d -iname '.GIT' -exec rm -rf {} ';'",
    "find . -path './.git/*' -delete", "find sub -name '.g*' -exec rm -rf {} +",
    "find . -name .git -prune -exec rm -rf {} +", "find . -regex '.*/\\.git/.*' -delete",
    "cd -- .. && rm -rf work", "cd -P -- ..; rm -rf work", "rm {-rf,.git/.}", "rm -{r,f} .", "o=-rf; rm $o .",
    "o=rf; rm -$o .git", "rm ${o:--rf} .", "for o in -rf; do rm $o .git; done", "shopt -s extglob\nrm -rf !(x)",
    "rsync -a --remove-source-files . /tmp/x", "tar cf x.tar --remove .git", "git rm -rf :/",
    "git rm -r --cached --no-cached .", "git clean -fdx -enode_modules", "git clean -fdx -e -n",
    "git clean -nf --no-dry-run", "git -c clean.requireForce=false clean -dx", "r`true`m -rf .",
    'bash <<< "r`:`m -rf ."', "rm -rf .{a..h}it", "rm -rf .g{i..i}t", "rm -rf ../{a..z}ork",
    "fd -x rm", "fd -X rm -rf", "fd -HIx rm {}", "fd . sub/.. --exec-batch sudo rm", "fd --exec=rm -rf",
    "fdfind . / -X rm", "fd -t f --min-depth 1 -x rm ';' -H", "fd -e pyc . ~ -x rm", "fd | xargs rm",
    "fd -0 -tf . | xargs -0 rm -f", "fd | parallel rm", "fd -H '^\\.git$' -X rm -rf", "fd -u git sub -x rm -r",
    "fd --search-path /etc conf -X rm", "gfind . -delete", "find . | parallel rm",
    "0</dev/null rm -rf ~", "0<&1 rm -rf .", "rm 0<a -rf .git", "rm -rf 2>&- ~", "rm -rf <&- .",
    "time A=b rm -rf ~", "time -p a+=b B= rm -rf .", "time -p ! rm -rf ~", "time -- time A=b rm -rf .",
    "source /dev/stdin <<< 'rm -rf ~'", ". /dev/stdin <<E\nrm -rf .\nE",
    "nice -5 -- rm -rf ~", "nice -5 --4 -n 3 rm -rf .",
    "find . -exec sudo rm -rf {} +", "find . -exec nice -n 5 env A=b rm {} ';'",
]  # fmt: skip
HARMLESS = [
    "find -P sub -delete", "find -H sub -delete", "find -L . -name '*.pyc' -delete", "rm -rf sub/* sub/.*", "cd sub && rm -rf * .*",
    "rm -rf sub", "rm -rf build dist", "rm -rf {build,dist}", "rm -rf ./node_modules", "rm -f *.pyc",
    "rm -rf sub/*", "rm -rf ~/project-x/build", 'rm "$f"', "echo 'rm -rf /'", "grep -r 'rm -rf .' .",
    "find . -name '*.pyc' -delete", "find sub -delete", "find . -name x", "git clean -n",
    "git clean -fdx sub", "git rm -r --cached .", "git status", "chmod +x sub/a", "chmod -R 755 sub", "chmod -R u+rwX .",
    "mv sub other", "dd if=a of=b", "echo x > /dev/null", "echo x 2>/dev/stderr", "make",
    "cd sub && rm -rf build", "cd sub && rm -rf *", "cd sub && rm -rf ./* && ls", "cd sub && git clean -fdx .", "cd ./sub && find . -name x -o -delete", "git push --force", "rsync -a a/ b/", "cat .git/config", "rm -rf $HOME/x/y",
    "rm -rf ~+/sub", "rm -rf sub~", "rm -rf sub/~+",
    "HOME=/tmp/x make; rm -rf build", "find . -name '*.orig' | xargs rm", "find sub -type f | xargs rm",
    "fd -e pyc -x rm", "fd -ext", "fd '\\.pyc$' -X rm", "fd . sub -x rm", "fd . -t f", "fd -x grep rm",
    "fd --extension=o . -X rm", "fd foo | xargs rm", "fd git -x rm",
    'find . -type f | wc -l; rm "$f"', "rm $(find . -name '*.o')", "rm -rf sub/../build", "rm -rf */build",
    "find . -type f | xargs wc -l", "find sub -name .git -prune -o -name '*.pyc' -delete",
    "find sub -not -path '*/.git/*' -name '*.o' -delete", "find . -name '.gitkeep' -delete",
    "git clean -fdn -e x", "o=-v; rm $o a", "mv sub/{a,b} build", "cp sub/a{,.bak}",
    "rsync -a --remove-source-files build/ /tmp/x", "git checkout -- ':(exclude)x'", "cd -- sub && rm -rf build",
    "rimraf dist", "trash build", "zip -r x.zip . -x '.git/*'", "zip -m x.zip a.log",
    "sed -n '/w/p' a", "sed -i 's/How .bashrc works/x/' a", "sed -i s/x/.bashrc/ a", "awk '$1 > 5 {print}' .git/HEAD", "git rebase -x 'make test' a", "git -c user.name='a b' commit", "git -c core.editor=true rebase -i a",
    'trap "rm -f $tmp" EXIT', "rm -rf build{1..3}", "find . -exec sudo grep -l rm {} +",
    "find . -name rm -exec nice ls {} +", "for f in a b; do rm -f $f; done",
]  # fmt: skip


@pytest.mark.spec("SEC-14")
def test_a_destructive_command_asks_even_in_yolo_and_runs_when_yolo_was_given_twice(
    workspace: Workspace,
) -> None:
    for text in DESTRUCTIVE:
        decision = in_yolo(workspace, text)
        assert decision.answer is Answer.ASK, (text, decision)
        assert decision.reason and not decision.lasts, text
        assert in_yolo(workspace, text, yolo_twice=True).answer is Answer.ALLOW, text


@pytest.mark.spec("SEC-3", "SEC-14")
@pytest.mark.parametrize(
    "text",
    [
        "rm -rf .git > ~/.bashrc", "rm -rf . 2> .git/hooks/pre-commit", "git clean -fdx > .envrc",
        "find . -delete -fprint .git/config", "rsync -a --delete sub/ .git/hooks", "mv sub/.git .",
        "mv .git /tmp/x", "mv -t /tmp .git",
    ],
)  # fmt: skip
def test_a_destructive_command_that_writes_a_protected_place_asks_after_a_second_yolo_too(
    text: str, workspace: Workspace
) -> None:
    assert in_yolo(workspace, text).answer is Answer.ASK
    assert in_yolo(workspace, text, yolo_twice=True).answer is Answer.ASK


@pytest.mark.spec("SEC-3", "SEC-5")
def test_a_rule_frees_no_command_where_cd_leads_above_a_link(workspace: Workspace) -> None:
    (workspace.root / "sub" / "deep").mkdir()
    (workspace.root / "link").symlink_to("sub/deep")
    policy = policy_of(Mode.DEFAULT, ["bash(make *)"], [])
    for text in ("cd link/../.. && make x", "cd link && cd ../.. && make x"):
        assert judged(command(workspace, text), policy).answer is Answer.ASK, text
    for text in ("cd link && make x", "cd sub/deep && make x"):
        assert judged(command(workspace, text), policy).answer is Answer.ALLOW, text


@pytest.mark.spec("SEC-14")
def test_what_only_looks_like_it_runs_in_yolo(workspace: Workspace) -> None:
    asked = [text for text in HARMLESS if in_yolo(workspace, text).answer is not Answer.ALLOW]
    assert asked == []


@pytest.mark.spec("SEC-14")
def test_a_second_yolo_is_worth_nothing_in_another_mode(workspace: Workspace) -> None:
    policy = policy_of(Mode.DEFAULT, ["bash"], [])
    policy.yolo_twice = True
    assert judged(command(workspace, "rm -rf ."), policy).answer is Answer.ASK


@pytest.mark.spec("SEC-14", "SEC-7")
def test_a_sandbox_contains_what_is_outside_the_workspace_only(
    workspace: Workspace, home: Path
) -> None:
    assert not workspace.root.is_relative_to(home)
    for text in ("rm -rf ~", "rm -rf /usr", "dd if=x of=/dev/sda", "find ~ -delete"):
        assert in_yolo(workspace, text, contained=True, is_bound=True).answer is Answer.ALLOW, text
    for text in ("rm -rf .", "rm -rf /", "rm -rf $X", "rm -rf ..", "git clean -fdx"):
        assert in_yolo(workspace, text, contained=True, is_bound=True).answer is Answer.ASK, text


@pytest.mark.spec("SEC-3", "SEC-7", "SEC-14")
def test_what_the_sandbox_would_not_let_happen_is_asked_about_once_for_outside(
    workspace: Workspace,
) -> None:
    (workspace.root / ".git" / "HEAD").touch()
    kept = ("git config user.name X", "git -C sub config a.b c", "echo x > .envrc", "touch .agents/x",
            "git remote add o https://h.example/x", "git remote rm o", "git branch -u o/main",
            "git submodule init", "echo x >> .git/info/exclude", "rm -rf .git", "rm .git/hooks/a",
            "make && cp a .vscode/tasks.json", "echo x >> ~/.bashrc", "git config --global a.b c",
            "env A=b git config x.y z", "cd sub && git config x.y z", "git submodule update", "cat ~/.ssh/id_rsa > .envrc",
            "git worktree remove wt", "git -C sub worktree prune", "git worktree move a b",
            "git worktree add /srv/wt -b wt", "git -C sub worktree add -b wt --reason x --lock ~/wt HEAD")  # fmt: skip
    inside = ("echo A=b > .env", "echo x >> .bashrc", "touch .gitmodules", "rm -rf .",
              "tool --config .envrc", 'touch "$X/.envrc"', "rm -f .git/index.lock",
              "git worktree add wt", f"git worktree add -b wt {workspace.root}/wt", "git worktree add .claude/worktrees/x",
              "git -C sub worktree add ../wt", "git worktree add /tmp/wt", "git remote show o", "git push -u o main", "git branch x", "git -C /tmp/x config a.b c",
              "cd /tmp/x && git config a.b c", "cd $(mktemp -d) && git config a.b c", "make")  # fmt: skip
    for mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.AUTO):
        policy = policy_of(mode, ["bash", "bash(*)"], [])
        policy.contained = True
        for text in kept:
            decision = judged(command(workspace, text), policy)
            assert (decision.answer, decision.access) == (Answer.ASK, Access.OUTSIDE), text
            assert not decision.lasts and "runs OUTSIDE the sandbox" in decision.reason, text
        for text in inside:
            access = judged(command(workspace, text), policy).access
            assert access in {Access.INSIDE, Access.INSIDE_SEARCH}, text
    for text in kept:
        denied = policy_of(Mode.AUTO, [], ["bash(*)"])
        denied.contained = True
        assert judged(command(workspace, text), denied).answer is Answer.DENY, text
        assert in_yolo(workspace, text, contained=True, is_bound=True).answer is Answer.DENY, text
        in_plan = replace(denied, mode=Mode.PLAN, deny=())
        assert judged(command(workspace, text), in_plan).answer is Answer.DENY, text


@pytest.mark.spec("SEC-3", "SEC-17")
def test_a_version_is_written_in_the_sandbox_which_looks_at_what_it_says(
    workspace: Workspace,
) -> None:
    (workspace.root / "linked").mkdir()
    (workspace.root / "linked/.nvmrc").symlink_to("../.envrc")
    texts = ("echo v20 > .nvmrc", "echo 3.12 > sub/.python-version", "sed -i s/20/22/ .nvmrc",
             "rm .tool-versions", "cp a .node-version")  # fmt: skip
    policy = policy_of(Mode.AUTO, [], [])
    policy.contained = True
    for text in texts:
        decision = judged(command(workspace, text), policy)
        assert (decision.answer, decision.access) == (Answer.ALLOW, Access.INSIDE), text
        assert in_yolo(workspace, text, contained=True, is_bound=True).answer is Answer.ALLOW, text
        assert in_yolo(workspace, text).answer is Answer.ASK, text
    for text in ("echo v20 > .nvmrc; echo x > .envrc", "echo v20 > .husky/.nvmrc",
                 "echo v20 > .git/.nvmrc", "echo v20 > linked/.nvmrc", "echo v20 > ~/.nvmrc"):  # fmt: skip
        assert judged(command(workspace, text), policy).answer is Answer.ASK, text


@pytest.mark.spec("SEC-15")
def test_it_does_not_run_where_only_the_shell_inside_is(workspace: Workspace) -> None:
    place = CallPlace(workspace, Policy(Mode.AUTO, contained=True), outside=workspace.root / "sub")
    decision = judge(command(workspace, "echo x > .envrc").call, place)
    assert decision.answer is Answer.DENY and f"is in {workspace.root}/sub" in decision.reason
    assert judge(command(workspace, "make").call, place).answer is Answer.ALLOW


@pytest.mark.spec("SEC-14")
def test_it_says_which_part_would_destroy_what(workspace: Workspace) -> None:
    decision = in_yolo(workspace, "make; rm -rf .git")
    assert decision.why == "it would destroy git's own directory: rm -rf .git"
    assert in_yolo(workspace, "ls && echo x > .envrc").why == ".envrc is protected"
    assert in_yolo(workspace, "rm -rf .").why == "it would destroy the workspace itself"


@pytest.mark.spec("SEC-14")
def test_no_dangerous_row_of_another_project_runs_unasked(workspace: Workspace) -> None:
    if not SUITE.exists():
        pytest.skip("the shared suites are not here")
    for row in json.loads(SUITE.read_text()):
        if not row["dangerous"]:
            continue
        text = row["command"]
        policy = policy_of(Mode.DEFAULT, ["bash(git *)", "bash(echo *)"], [])
        assert judged(command(workspace, text), policy).answer is Answer.ASK, text
        if "/tmp/example" not in text and "/tmp/a" not in text:
            assert in_yolo(workspace, text).answer is Answer.ASK, text


WRITES = [
    "echo x > .git/config", "echo x >> ~/.bashrc", 'echo x >"$HOME/.profile"', "> .git/HEAD",
    "echo x | tee -a ~/.ssh/authorized_keys", "cat > .git/hooks/pre-commit <<EOF\nx\nEOF",
    "cp x .git/hooks/pre-commit", "cp .bashrc ~", "cp -t ~/.ssh x", "mv x ~/.zshrc",
    "mv .env other", "ln -sf x .git/hooks/post-merge", "install -m 755 x .git/hooks/pre-push",
    "sed -i s/a/b/ ~/.profile", "sed --in-place=.bak s/a/b/ .git/config", "perl -pi -e s/a/b/ .env",
    "dd if=x of=.git/config", "truncate -s 0 .git/index", "touch .env", "mkdir -p ~/.ssh/x",
    "chmod 600 ~/.ssh/config", "rm .git/index.lock", "git config core.hooksPath x",
    "git config --global core.pager x", "git config -f .git/config a b", "sort -o ~/.bashrc x",
    "curl -o ~/.bashrc http://x", "curl http://x --output=.git/hooks/x", "sudo tee .git/config",
    "bash -c 'echo x > .git/config'", "cd .git && echo x > config", "cd .git && touch hooks/x",
    "echo x &> .git/config", "echo x >| .git/config", "vim ~/.bashrc", "tee out/../work/.git/x",
    "f() { echo x > .git/config; }; f", "echo $((1)) > .git/config", "git log --output=$HOME/.bashrc",
    "git archive -o .git/hooks/pre-push HEAD", "git -C .git diff --output hooks/x",
    # behind other letters, cut short, glued
    "cp -rt .git/hooks x", "cp -vt.git/hooks x", "cp --targ .git/hooks x", "ln -sft.git/hooks x",
    "install -Dt .git/hooks x", "tar --dir=.git/hooks -xf a", "tar cf .git/config x",
    "tar -czvf .git/config x", "tar xf a --one-top-level=.git/hooks", "unzip -od .git/hooks a.zip",
    "curl -so .git/config u", "curl -sD.git/config u", "curl -s --etag-save .git/config u",
    "wget -qO .git/config u", "wget -P ~/.ssh u", "patch --output=.git/config a", "csplit -f .git/hooks/x a 1",
    "git --work-tree=.git/hooks checkout -f HEAD", "git --work-tree .git/hooks restore a",
    "flock .git/hooks/x true",
    "sed --in-pl s/a/b/ .git/config", "uniq -- -e .git/config", "x -- --exclude .envrc", "tar xf a.tar .git/hooks/pre-push", "tar --extract -f a .git/config",
    "git config --unset-all a.b", "git config --remove-section a", "git config edit",
    "find . -name a -exec cp {} .git/config ';'", "find . -exec cp {} + -o -exec cp {} .git/config ';'",
    "find .envrc -delete", "find .envrc -exec rm {} +", "echo a | xargs -I{} cp {} .git/config", "xargs --replace=% mv % .git/hooks", "cd -- .git && touch hooks/x",
    # what is found by its name
    "find . -name .envrc -delete", "find -iname .ENVRC -delete", "find . -path ./.envrc -delete",
    "find sub -name .bashrc -exec rm {} +", "find . -name .envrc -exec sed -i s/a/b/ {} +",
    "find . -name .envrc -exec cp x {} ';'", "find . -name .envrc | xargs rm", "fd -H '^\\.envrc$' -x rm",
    # what a script says, and git of itself
    "sed -n 'w .envrc' a", "sed 's/a/b/w .envrc' a", "sed -i -ne1p .envrc", "sed '/a/w ./.git/hooks/x' a", "awk '{print > \".envrc\"}' a", "awk '{print | \"tee ~/.bashrc\"}' a",
    'cp a "$(git rev-parse --git-dir)/hooks/pre-commit"', "cd `git rev-parse --git-dir`/hooks && cp x y",
    'echo x > "$(git rev-parse --git-path hooks/pre-commit)"', "zip .git/hooks/x a",
    # places that the shell puts in, wherever they stand
    "echo x > $(pwd)/.envrc", "bash -c 'echo x > `pwd`/.envrc'", "echo `echo x > $PWD/.envrc`",
    "echo x > $(git rev-parse --git-dir)/config", "echo $(echo x >>$PWD/.git/con\\\nfig)",
    "find . -name a -exec cp {} $PWD/.git/config ';'", 'find . -exec cp {} "$HOME/.bashrc" +',
    "find . -exec cp -t ~+/.git/hooks {} +", "xargs -I% cp % ~/.bashrc", "xargs cp -t $PWD/.git/hooks",
    "cat <<E; cp a ${PWD}/.envrc\nx\nE", "cat <<E; dd of=${HOME}/.bashrc\nx\nE",
    "a[$((1) && cp a $(pwd)/.envrc)]=1", "find . -exec sh -c 'cp {} .git/config' ';'",
    "find . -exec awk '{print > \".envrc\"}' {} +", "xargs -I% sh -c 'cp % $(pwd)/.envrc'",
    "find . -exec sh -c 'awk \"{print > \\\".envrc\\\"}\" a' ';'",
    # a template has hooks
    "git init --template=sub .", "git init --templ sub", "git -c init.templateDir=sub init x",
    "git clone --template=sub a b",
]  # fmt: skip


@pytest.mark.spec("SEC-3")
def test_a_command_that_writes_a_protected_place_asks_in_every_mode(workspace: Workspace) -> None:
    modes = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.YOLO)
    for text, mode in product(WRITES, modes):
        policy = policy_of(mode, ["bash", "bash(*)"], [])
        policy.yolo_twice = "rm" not in text and "mv" not in text
        policy.granted.append(session_rule(command(workspace, text), policy))
        decision = judged(command(workspace, text), policy)
        assert decision.answer is Answer.ASK, (text, mode, decision)
        assert not decision.lasts, text


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    "text",
    [
        "cp .bashrc.bak x", "git config --get user.name", "git config --list", "git config user.name",
        "sed s/a/b/ ~/.bashrc", "echo x > sub/a", "tee sub/a", "cat ~/.bashrc > sub/a", "git commit",
        "diff .git/config x", "source .env", "cp .env.example sub/x", "tar tf a.tar .git/config",
        "tar cf a.tar .git", "find . -name x -exec cp .git/config {} ';'", "find . -exec cat .git/HEAD {} +",
        "find . -name .envrc -exec cat {} +", "find sub -name .envrc -prune -o -name '*.o' -delete",
        "find . -name .envrc", "git init", "git init --template= x", "git clone a b",
    ],
)  # fmt: skip
def test_reading_one_does_not_in_yolo(text: str, workspace: Workspace) -> None:
    assert in_yolo(workspace, text).answer is Answer.ALLOW


@pytest.mark.spec("SEC-4", "SEC-14")
@pytest.mark.parametrize(
    "text",
    [
        "rm " + "-f " * 300_000, "rm -rf " + "x " * 100_000, "sudo " * 200_000 + "rm -rf .",
        "(" * 10_000 + "rm -rf ." + ")" * 10_000, "a;" * 300_000 + "rm -rf .",
        "rm -rf " + "{a,b}" * 300, "rm -rf " + " ".join(f"x{n}" for n in range(5_000)),
    ],
    ids=["options", "operands", "wrappers", "parentheses", "list", "braces", "names"],
)  # fmt: skip
def test_what_is_too_much_to_judge_asks(text: str, workspace: Workspace) -> None:
    assert in_yolo(workspace, text).answer is Answer.ASK


def of(text: str) -> Operands:
    return operands_of(tuple(None if word == "?" else word for word in text.split()))


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("tee -a a b", ("a", "b")), ("touch -d now a", ("a",)), ("touch -- -a", ("-a",)),
        ("cp x y z", ("z", "z/x", "z/y")), ("cp -t d x", ("d", "d/x")), ("cp ? z", ("z",)),
        ("cp --target-directory=d x", ("d", "d/x")), ("mv x y", ("y", "y/x", "x")),
        ("ln -s x y", ("y", "y/x")), ("dd if=a of=b", ("b",)), ("sed -i s/a/b/ f", ("f",)), ("sed -ie s/a/b/ f", ("s/a/b/", "f")),
        ("sed s/a/b/ f", ()), ("perl -pi -e x f", ("f",)), ("chmod 600 a", ("a",)),
        ("chmod --reference=r a", ("a",)), ("sort -o f x", ("f",)), ("sort -of x", ("f",)),
        ("curl --output=f u", ("f",)), ("gcc -o f a.c", ("f",)), ("cat a", ()), ("/usr/bin/tee a", ("a",)),
        ("git config a b", ("./.git/config",)), ("git -C d config a b", ("./d/.git/config",)),
        ("git config --global a b", ("~/.gitconfig",)), ("git config -f x a b", ("x",)),
        ("git config a b list", ("./.git/config",)), ("git config --comment --list a b", ("./.git/config",)),
        ("git config a get", ("./.git/config",)), ("git config get a", ()), ("git config -f -l a b", ("-l",)),
        ("git config --get a", ()), ("git config a", ()), ("git config --unset a", ("./.git/config",)),
        ("tar xf a.tar -C d", ("a.tar", "d")), ("tar -czf a.tar b", ("a.tar",)),
        ("unzip -od d a.zip", ("d",)),
        ("unzip -d d a.zip", ("d",)), ("curl -s u", ()),
        ("rm a ?", ("a", None)), ("find . -fprint f", ("f",)), ("? a", ()), ("", ()),
    ],
)  # fmt: skip
def test_what_is_written(command: str, written: tuple[str | None, ...]) -> None:
    assert of(command).written == written


@pytest.mark.spec("SEC-14")
@pytest.mark.parametrize(
    ("command", "destroyed", "recursive"),
    [
        ("rm -rf a b", ("a", "b"), True), ("rm a", (), False), ("rm -f a", ("a",), False),
        ("rm -- -r", (), False), ("rm --recursive ?", (None,), True), ("rm --recurs a", ("a",), True),
        ("chmod -R 0 a", ("a",), True), ("chmod 0 a", (), False), ("mv a b", ("a",), False),
        ("find a b -delete", ("a", "b"), True), ("find -delete", (".",), True),
        ("find a -name x -delete", (), True), ("find / -name x -delete", ("/",), True),
        ("find a -name * -delete", ("a",), True), ("find a -exec /bin/rm {} ;", ("a",), True),
        ("find a -name x -o -delete", ("a",), True), ("find a -name x", (), False),
        ("git clean -fd", ("./.",), True), ("git clean -n -f", (), False), ("git clean", (), False),
        ("git clean -f sub", ("./sub",), True), ("git rm -r .", ("./.",), True),
        ("git rm x", (), False), ("rsync -a --delete x/ y", ("y",), True), ("? -rf a", ("a",), True),
        ("? a", (), False), ("mkfs.ext4 /dev/sda", ("/dev/sda",), True), ("shred -n 3 a", ("a",), False),
    ],
)  # fmt: skip
def test_what_is_destroyed(
    command: str, destroyed: tuple[str | None, ...], *, recursive: bool
) -> None:
    found = of(command)
    assert (found.destroyed, found.is_recursive) == (destroyed, recursive)


NAMED = [
    "uniq a.txt .git/config", "xxd -r a.txt .git/config", "zip .git/hooks/x a.txt",
    "unzip -d .git/hooks x.zip", "git worktree add .git/hooks/x", "git format-patch -o .git/hooks HEAD~1",
    "git bundle create .git/hooks/x HEAD", "foo .git/config", "foo --out=.git/hooks/pre-commit",
    "foo -o.git/hooks/pre-commit", "foo --out .vscode/tasks.json", "git clone x .git/hooks/y",
    "7z x a.7z -o.git/hooks", "ssh-keygen -f .git/hooks/x", "d=.git; foo $d/config", 'foo "$d/.bashrc"',
    "git checkout .vscode/settings.json", "base64 -d -o .git/config a", "timeout -k 5 9 foo .git/config",
    "python3 tool.py .git/config", "sort -u a.txt -o .git/config", "uniq a.txt ~/.bashrc",
    "pandoc a.md -o .envrc", "npx prettier --write .vscode/settings.json", "gpg -o .git/config -d a.gpg",
    "openssl enc -d -in a -out .git/hooks/x", "$x a .git/config", "tree -o .git/config",
    "find . -fprint .git/config", "cd .git/hooks && uniq a pre-commit",
]  # fmt: skip
LEFT_ALONE = [
    "git -C .git log", "rm -rf node_modules", "cat .env", "pytest --rootdir .", "cp -r . /tmp/x",
    "ls -la .git/hooks", "cat .git/config | head", "git add .vscode/settings.json .env",
    'git commit -m "See .git/hooks/x" .vscode/settings.json', "git rm --cached .env",
    "zip -r out.zip . -x '.git/*' 'node_modules/*'", "tar --exclude=.git -czf /tmp/x.tgz .",
    "tar --exclude .git -czf /tmp/x.tgz .", "rsync -a --exclude .git src/ docs/",
    "docker compose --env-file .env up", "docker run --env-file=.env img", "node --env-file=.env app.js",
    "source .env && npm start", "set -a; . ./.env; set +a", "python3 -m json.tool .vscode/settings.json",
    "jq . .vscode/settings.json", "bash .git/hooks/x.sample", "sh -x .git/hooks/pre-commit",
    "python3 -c \"print(open('.git/config').read())\"", "echo '.env' >> .gitignore",
    "printf '.env\\n' >> .gitignore", "grep -q .env .gitignore || echo .env >> .gitignore",
    "find . -path ./.git -prune -o -name '*.py' -print", "tail -f .git/logs/HEAD", "wc -l .git/config",
    "shellcheck .envrc", "diff .git/config a.txt", "test -f .env && echo yes", "[ -d .git ] || git init",
    "if [ -f .env ]; then export $(grep -v '^#' .env | xargs); fi", "make test", "npm run build",
    "curl http://localhost:8000/.env", "git clone https://github.com/x/y.git",
    "git clone https://github.com/x/y.git vendor/y", "git checkout main", "git checkout -b feature/x",
    "git worktree add ../wt -b x", "git init", "git stash push .vscode/settings.json",
    "git diff --no-index .git/config a.txt", "pytest --ignore=.git --ignore .venv", "mypy --exclude .git src",
    "flake8 --exclude .git,__pycache__", "ctags -R --exclude=.git .", "du -sh .git", "tree -a -I .git",
    "fd -H -E .git", "rg --hidden -g '!.git' foo", "cargo build --target-dir target",
    "go build -o bin/x ./...", "python3 manage.py runserver", "docker build -t x .", "chmod +x src/a.py",
    "xxd a.txt out.hex", "uniq a.txt b.txt", 'gh pr create --title "Fix .git/hooks" --body "x"',
    "sed -n 1,5p .git/config", "awk '{print}' .git/config", "git log -- .vscode/settings.json",
    "git update-index --chmod=+x .husky/pre-commit", "sudo ls .git/hooks", "timeout 5 cat .git/config",
    "xargs cat < list", "cat .git/HEAD | xargs echo", "cp .env.example .env.sample",
    "dotenv -e .env -- npm start", 'aws s3 sync . s3://b --exclude ".git/*"', "watchexec -i .git make",
    "codespell --skip=.git", "ssh host 'ls /srv/.git/hooks'",
]  # fmt: skip


@pytest.mark.spec("SEC-3")
def test_what_is_not_known_to_only_read_writes_what_it_names(workspace: Workspace) -> None:
    for name in (".git/hooks/x.sample", ".vscode/settings.json", "a.txt"):
        (workspace.root / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace.root / name).write_text("x")
    asked = [text for text in NAMED if in_yolo(workspace, text).answer is not Answer.ASK]
    assert asked == []
    silly = {text: in_yolo(workspace, text).why for text in LEFT_ALONE}
    assert {text: why for text, why in silly.items() if "yolo" not in why} == {}


@pytest.mark.spec("SEC-3", "SEC-4", "SEC-13")
@pytest.mark.parametrize("tail", ["echo x > .envrc", "tee .envrc < a", "make"])
def test_a_command_that_is_too_long_to_be_read_asks_in_every_mode(
    tail: str, workspace: Workspace
) -> None:
    asked = command(workspace, "a; " * 34_000 + tail)
    for mode in (Mode.DEFAULT, Mode.AUTO, Mode.YOLO):
        policy = policy_of(mode, ["bash"], [])
        policy.yolo_twice = True
        assert judged(asked, policy).answer is Answer.ASK, mode
    held = Policy(Mode.AUTO, contained=True)
    assert judged(asked, held).answer is Answer.ALLOW
    assert judged(command(workspace, "a; " * 34_000 + "rm -rf ."), held).answer is Answer.ASK


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    ("text", "deny"), [("`{" + "a," * 9_900, []), ("({" * 49_000, ["bash(rm *)"])]
)
def test_a_long_command_of_braces_is_answered(
    text: str, deny: list[str], workspace: Workspace
) -> None:
    policy, started = policy_of(Mode.DEFAULT, [], deny), time.process_time()
    assert judged(command(workspace, text), policy).answer is Answer.ASK
    assert time.process_time() - started < 1  # seconds: without end, not a slow machine
