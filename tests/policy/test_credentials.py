"""Searches that would come across credentials which they do not name (SEC-3)."""

from pathlib import Path

import pytest

from agentcli.domain.ports import PermissionMode
from agentcli.domain.sandbox import Access
from agentcli.domain.tools import Asks, ToolDefinition, Workspace
from agentcli.policy import credentials
from agentcli.policy.decision import Answer, CallFacts, CallPlace, Policy
from agentcli.policy.judge import judge
from tests.support.repositories import git

BASH = ToolDefinition("bash", "Run", "runs", {}, Asks.ANYTHING, "shell")

MEETS = (
    "grep -r KEY .", "grep -rnA3 KEY", "grep -Rn KEY ./*", "rgrep KEY", "grep --recursive KEY $PWD",
    "grep -d recurse KEY .", "timeout 5 grep -rn KEY .", "cd src && grep -rn KEY ..", "grep -rn KEY $X",
    "bash -c 'grep -r KEY .'", "grep -rn --include='*env*' KEY .", "grep -rn --exclude=.envrc KEY .",
    "rg -g '{.env}' KEY", r"rg -g '.en\v' KEY", "rg -g '[^a]env' KEY", "grep -r KEY --exclude='.[^e]nv' .",
    "grep -rn KEY --exclude='*.txt' --include='*.py' .", "rg -uuu KEY", "rg -u -u KEY", "rg --hidden KEY", "rg -. KEY", "rg -g '*env*' KEY", "rg -ng '*' KEY",
    "rg --glob='{*.py,.e*}' KEY", "ag --hidden KEY", "ag -nu KEY", "ack KEY", "diff -rN . /tmp/none",
    "git grep --no-index KEY", "git grep --untracked KEY", "git ls-files -o | xargs cat",
    "find . -exec grep KEY {} +", "find . -type f | xargs grep KEY", "find . -type f -print0 | xargs -0 cat",
    "find . -exec sh -c 'cat \"$1\"' _ {} \\;", "find . -name '*.py' -o -type f -exec cat {} +",
    "find . ! -name '*.py' -type f -exec cat {} +", "find . -name '*env*' | xargs -n1 head",
    'find . -type f | while read f; do cat "$f"; done', "for f in $(find . -type f); do sed -n p $f; done",
    "cat $(find . -type f)", "ls -A | xargs cat", "ls -A | gxargs cat", "cat $(ls -a)", "fd -H -x cat", "rg --files -uu | xargs cat",
    "for f in .e*; do cat $f; done", "find deep -type f | parallel cat",
    "diff -N . src", "diff src .", "diff --from-file=. src", "diff --to-file . src", "diff --rec -N . src",
    "git diff src .", "cd linked && ls | xargs cat", "git ls-files | xargs cat", "find linked -name note | xargs cat", "grep -d rec KEY .",
)  # fmt: skip
ORDINARY = (
    "rg KEY", "rg -u KEY src", "rg -g '*.py' KEY", "rg --files --hidden", "rg --hidden -g '!.env' -g '!deep' KEY",
    "grep -rn KEY src", "grep -rn KEY src/", "grep -rn KEY src README.md", "grep -n KEY src/a.py",
    "grep -rn --include='*.py' KEY .", "grep -rn --include=*.{py,md} KEY .", "grep -rn KEY README.md",
    "grep -rn --exclude=.env --exclude-dir=deep KEY .", "cd src && grep -rn KEY .", "ag KEY", "git grep KEY",
    "find . -name '*.py' -exec grep -n KEY {} +", "find . -name '*.py' -o -name '*.md' | xargs grep KEY",
    "find . -path ./deep -prune -o -name '*.py' -print | xargs cat", "find . -type f | xargs wc -l",
    "find . -type f -not -name '.e*' -not -path './deep/*' -exec grep KEY {} +", "find . -type f | head -20",
    "find src -type f | xargs cat", "ls -la | head", "ls | xargs cat",
    "git ls-files src | xargs grep KEY", "for f in src/*; do head -3 $f; done", "fd -H -e py -x cat", "pytest -q",
    "diff src deep", "diff README.md src", "diff README.md src/a.py", "diff <(ls) <(ls src)",
)  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> CallPlace:
    root = tmp_path / "w"
    for name in ("src/a.py", "README.md", ".env", "deep/er/.env.local"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("KEY=1\n")
    (root / "linked").mkdir()
    (root / "linked/note").symlink_to("../.env")
    policy = Policy(PermissionMode.AUTO, contained=True)
    return CallPlace(Workspace(root, root), policy)


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("mode", [PermissionMode.DEFAULT, PermissionMode.AUTO])
def test_a_search_that_would_show_a_credential_asks_or_runs_where_none_can_be_read(
    mode: PermissionMode, place: CallPlace
) -> None:
    place.policy.mode = mode
    said = {text: judge(CallFacts(BASH, {"command": text}), place) for text in (*MEETS, *ORDINARY)}
    is_safe = {
        text: each.answer is Answer.ASK or (each.access is not None and each.access.hides)
        for text, each in said.items()
    }
    assert [text for text in MEETS if not is_safe[text]] == []
    if mode is PermissionMode.AUTO:
        assert [text for text in ORDINARY if said[text].answer is not Answer.ALLOW] == []
    assert said["pytest -q"].access is Access.INSIDE
    assert said["grep -r KEY ."].access is Access.SEARCH
    (place.workspace.root / ".git").mkdir()
    of_git = judge(CallFacts(BASH, {"command": "git grep KEY"}), place)
    assert of_git.access is Access.READ_ONLY  # what it tracks it shows


@pytest.mark.spec("SEC-3")
def test_without_a_sandbox_a_search_that_would_come_across_a_credential_asks(
    place: CallPlace,
) -> None:
    place.policy.mode, place.policy.contained = PermissionMode.DEFAULT, False

    def said(text: str) -> Answer:
        return judge(CallFacts(BASH, {"command": text}), place).answer

    assert [text for text in MEETS if said(text) is Answer.ALLOW] == []
    assert said("cd deep && rg KEY er") is Answer.ALLOW  # what is hidden it leaves out
    for text in (
        "grep -rn KEY src",
        "grep -rn KEY README.md",
        "cd src && grep -rn KEY .",
        "rg KEY",
    ):
        assert said(text) is Answer.ALLOW, text
    for name in (".env", "deep/er/.env.local", "linked/note"):
        (place.workspace.root / name).unlink()
    assert said("grep -r KEY .") is Answer.ALLOW
    (place.workspace.root / ".config/deep").mkdir(parents=True)
    for text in ("rg KEY .config", "cd .config && rg KEY", "rg KEY .config/deep", "diff src deep"):
        assert said(text) is not Answer.ALLOW, text


@pytest.mark.spec("SEC-3", "SEC-13")
def test_a_repository_within_is_seen_as_soon_as_the_index_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "SETTLED_NS", -1)  # what is kept may be of this instant
    (tmp_path / "sub").mkdir()
    for place in (tmp_path, tmp_path / "sub"):
        git(place, "init", "-q")
    (tmp_path / "a").write_text("a")
    git(tmp_path, "add", "a")
    assert [credentials.may_search("git diff", tmp_path) for _ in range(2)] == [False, False]
    git(tmp_path / "sub", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path, "-c", "advice.addEmbeddedRepo=false", "add", "sub")
    assert credentials.may_search("git diff", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(credentials, "read_start", lambda *_: b"")  # it is not read again
        assert credentials.may_search("git diff", tmp_path)
