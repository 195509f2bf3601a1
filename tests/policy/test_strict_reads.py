"""Which commands are free where no sandbox makes up for a mistake."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agentcli.domain.tools import Workspace
from agentcli.policy.read_only import is_read_only
from agentcli.policy.strict_reads import is_strict_read

# what people ask for every day, in the words they use
LOOKS = [
    'for f in a.txt sub; do if grep -q x $f; then echo "$f"; else echo "no: $f"; fi; done',
    "cd sub; ls", "(cd sub; ls)", "cd sub && cat b.txt | head -3", "! grep -q x a.txt", "ls --color=never",
    "if [ -f a.txt ]; then cat a.txt; else echo no; fi", "if grep -q x a.txt; then echo yes; fi",
    "for f in *.txt; do head -3 $f | cat; done", "for d in sub a.txt; do ls $d | wc -l; done",
    'for f in sub/*.txt; do echo "== $f"; head -5 "$f"; done', "for i in 1 2 3; do echo $i; done",
    "grep -q x a.txt; echo $?", 'ls; echo "exit: $?"', "grep -e x -e y a.txt", "grep -oP 'v.d+' a.txt",
    "grep -rn x sub --include=*.py", "grep -rn --include='*.py' x sub", "grep -rl x sub --exclude-dir=.git",
    "rg --files -g '*.py'", "rg x -g '!sub' --stats", "rg -n x -t py", "rg -S x -g '*.ts'",
    "date -u", "date -u +%F", "date -Iseconds", "command -v ls", "command -v ls > /dev/null && echo yes",
    "sed 's/a/b/' a.txt", "sed 's/a.b/c/g' a.txt | head", r"sed -E 's/\.txt/x/g' a.txt", "sed 1d a.txt", "sed -n '$=' a.txt",
    "sed -n '1,3p;4q' a.txt", "awk '/x/{print}' a.txt", "awk '{print $1, $NF}' a.txt", "awk '{s+=$1} END {print s}' a.txt",
    "du -h --max-depth=1", "tree -I sub", "fold -w 80 a.txt", "rev a.txt", "expr 1 + 2", "arch", ": nothing", "cat -A a.txt",
]  # fmt: skip
NEARLY = [
    # what a list, a loop or a condition has besides
    "cd sub; rm b.txt", "cd sub; cat ../../x", "cd sub; cat /etc/hosts", "cd sub; cd ..; cat ../x", "cd missing; ls", "cd sub; ls > x",
    "if true; then ls; fi > out", "if ls > x; then pwd; fi", "if cd /; then cat etc/hosts; fi", "if true; then rm x; fi", "! ls > x",
    "if [ -f /etc/hosts ]; then ls; fi", "if [ -f $X ]; then ls; fi", "for f in a.txt /etc/hosts; do cat $f; done",
    "for f in a.txt ../x; do cat $f; done", "for f in a b; do cat $f; cd ..; done", "for f in a b; do cat $f; rm $f; done",
    "for f in a b; do cat $f > $f.x; done", "for f in a b; do ls & done", "for f in --pre=./x foo; do rg $f a; done",
    # each turn of a loop by itself: a word may be the option that makes another one a script
    "for f in -n 1p; do sed $f wa.txt; done", "for f in -n 1p; do cat a.txt | sed $f e./x; done", "for f in 1d wx; do sed $f a.txt; done",
    "for f in -n 1p; do sed $f 'wx'; done", "for f in -c a.txt; do sort $f -o x; done", "for f in 1 2; do head -n $f /etc/hosts; done",
    'for f in /etc/hosts; do cat echo "$f"; done', 'for f in /etc/hosts; do cat then echo "$f"; done', 'for f in /etc/hosts; do cat -n -- echo "$f"; done', 'for f in x; do ls; cat echo "/etc/$f"; done',
    'for f in a b; do echo "x $f" > y; done', 'for f in a b; do echo "x $(touch $f)"; done', 'for f in a b; do echo "x $f" | sh; done',
    'for f in hosts b; do cat "/etc/$f"; done', "for f in hosts b; do cat /etc/$f; done", "for f in a b; do $f; done",
    "for f in a b; do echo x | $f; done", "for f in a; do ls; done; rm x", "for f in a; do ls; done > x",
    # other variables, and other uses of what is known of one
    "echo $X", "echo $?$(touch x)", "echo $? > x", "cat $?", "cat < $?", "echo $?[1]", "$? x", 'echo "$X $?"',
    # languages
    "sed 's/a/b/w x' a.txt", "sed 's/a/b/e' a.txt", "sed 's/a/b/;w x' a.txt", "sed 's/[/]/x/w y/' a.txt", r"sed 's/\\/x/w /a' a.txt",
    "sed 's/a/b/' -i a.txt", "sed -E -i s/a/b/ a.txt", "sed 's/a/b/' /etc/hosts", "sed '1d;w x' a.txt", "sed -n '1p;4q;w x' a.txt",
    "sed 's/a/b\nw x' a.txt", "awk '/a/{print > \"x\"}' a.txt", "awk '{print \"x\" | \"sh\"}' a.txt", "awk '{s+=$1} END {print s > \"x\"}' a.txt",
    "awk '{print $NF}' /etc/hosts", "awk '/a/{print}' OFS=x a.txt", "jq -rc env a.txt", "jq -rf x a.txt",
    # options
    "grep -e x /etc/hosts", "grep --include=*.py x /etc/hosts", "grep -e --include=*.py /etc/hosts", "grep --include=$X x a.txt", "grep --exclude-from=/etc/hosts x a.txt",
    "rg -g '*.env' x", "rg -g .env x", "rg -g '*' x", "rg -g '.*' x", "rg -g .env.js x", "rg -g '*.json' x", "rg -e -g '*.py' /etc/hosts",
    "rg -- -g '*.py' /etc/hosts", "rg -g --pre=./x foo", "rg x -g '*.py' /etc", "rg -t py --pre ./x foo", "rg --type-add 'x:*' foo",
    "command rm x", "command -p ls", "command -v $(touch x)", "date -s now", "date -u 01010000", "date -f a.txt", "date -Ifoo",
    "tree -I x -o y", "tree -I x /etc", "du --max-depth=1 /etc", "fold /etc/hosts", "rev /etc/hosts", "tree -Io x a.txt", "tree -aIo x a.txt", "tree -L1o a.txt", "grep -h -- x --include=*", "grep -- x --include=*.py", "expr 1 + 2 > x", ": > x", ": $(touch x)",
]  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("1 x\n2 y\n")
    (root / "sub/b.txt").write_text("x\n")
    return Workspace(root, root)


@pytest.mark.spec("SEC-4")
def test_everyday_looks_are_free_and_change_nothing(workspace: Workspace) -> None:
    assert [text for text in LOOKS if not is_strict_read(text, workspace, None)] == []
    assert [text for text in LOOKS if not is_read_only(text, workspace)] == []
    root = workspace.root
    before = {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}
    for text in LOOKS:
        done = subprocess.run(
            ["bash", "-c", text], cwd=root, capture_output=True, stdin=subprocess.DEVNULL, check=False
        )  # fmt: skip
        assert b"syntax error" not in done.stderr, text
    assert {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))} == before


@pytest.mark.spec("SEC-4", "SEC-13")
def test_a_loop_of_many_turns_asks(workspace: Workspace) -> None:
    """Each is judged, while everything waits."""
    words, body = " ".join(f"x{n}" for n in range(20)), "; ".join(["cat $f"] * 30)
    assert is_strict_read(f"for f in {words}; do cat $f; done", workspace, None)
    assert not is_strict_read(f"for f in {words} x; do cat $f; done", workspace, None)
    assert not is_strict_read(f"for f in {words}; do {body}; done", workspace, None)


@pytest.mark.spec("SEC-3", "SEC-4")
def test_what_only_looks_like_one_is_not(workspace: Workspace) -> None:
    assert [text for text in NEARLY if is_strict_read(text, workspace, None)] == []


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not here")
def test_a_pattern_that_ripgrep_takes_for_a_hidden_credential_asks(workspace: Workspace) -> None:
    hidden = workspace.root / "sub/.env.js"
    hidden.write_text("canary\n")
    shown = subprocess.run(
        ["rg", "canary", "-g", "*.js"], cwd=workspace.root, capture_output=True, check=False
    )
    assert b"canary" in shown.stdout  # the trap is one
    for text in ("rg canary -g '*.js'", "rg canary --glob='*.py' sub"):
        assert not is_strict_read(text, workspace, None), text
    assert is_strict_read("rg canary", workspace, None)
    hidden.unlink()
    assert is_strict_read("rg canary -g '*.js'", workspace, None)


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not here")
def test_a_credential_that_is_not_hidden_is_searched_by_asking(workspace: Workspace) -> None:
    key = workspace.root / "sub/id_rsa"
    key.write_text("canary\n")
    (workspace.root / ".env").write_text("canary\n")
    shown = subprocess.run(
        ["rg", "canary"], cwd=workspace.root, capture_output=True, check=False
    ).stdout
    assert b"id_rsa" in shown and b".env" not in shown  # the trap is one
    for text in (
        "rg canary",
        "rg canary sub",
        "rg -t py canary",
        "rg canary -g '!x'",
        "cd sub; rg canary",
        "ls | rg canary sub",
        "ls | rg canary < /dev/null",
        "ls | if true; then rg canary; fi < /dev/null",
        "ls < /dev/null | if true; then rg canary < /dev/null; fi",
        "rg canary | cat",
    ):
        assert not is_strict_read(text, workspace, None), text
    for text in (
        "rg --files",
        "rg canary a.txt",
        "rg --files | rg canary",
        "ls | cat | rg canary 2>/dev/null",
    ):
        assert is_strict_read(text, workspace, None), text
    key.unlink()
    assert is_strict_read("rg canary", workspace, None)


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not here")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".gitignore", "!.env"),
        (".ignore", ".*\n!.env*\n"),
        ("sub/.rgignore", "!.*"),
        ("sub/.gitignore", "*.log\n!/.env"),
        (".git/info/exclude", "*.log\n!**/.e[n]v"),
        (".ignore", "#" * 300_000 + "\n!.env"),
    ],
)
def test_a_hidden_credential_that_is_let_into_searches_asks(
    workspace: Workspace, name: str, text: str
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=workspace.root, check=True)
    (workspace.root / "sub/.env").write_text("canary\n")
    told = workspace.root / name
    told.write_text("*.log\n!.env.example\n# !.env\n!keep\n")
    assert is_strict_read("rg canary", workspace, None)
    told.write_text(text)
    shown = subprocess.run(["rg", "canary"], cwd=workspace.root, capture_output=True, check=False)
    assert b"canary" in shown.stdout  # the trap is one
    for search in ("rg canary", "rg canary sub", "cd sub && rg canary"):
        assert not is_strict_read(search, workspace, None), search
    assert is_strict_read("rg --files", workspace, None)
