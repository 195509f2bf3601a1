"""Which shell commands certainly change nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.tools import Workspace
from agentcli.policy.read_only import SPECS, is_read_only, spec_of

SUITE = Path(__file__).resolve().parents[2].parent / "shared/suites/bash"
needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason="../shared/suites is not there")


def rows(name: str) -> list[Any]:
    path = SUITE / name
    return json.loads(path.read_text()) if path.is_file() else []


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("a")
    (root / "out").symlink_to("/etc")
    (root / "passwd").symlink_to("/etc/passwd")
    return Workspace(root, root)


@needs_suite
@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("row", rows("codex_safe_command.json"), ids=lambda row: row["command"])
def test_no_row_that_may_not_run_unasked_is_read_only(row: Any, workspace: Workspace) -> None:
    if not row["auto_approve"]:
        assert not is_read_only(row["command"], workspace)


@needs_suite
@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("row", rows("codex_dangerous.json"), ids=lambda row: row["command"])
def test_no_dangerous_row_is_read_only(row: Any, workspace: Workspace) -> None:
    assert not is_read_only(row["command"], workspace)


@needs_suite
@pytest.mark.spec("SEC-4")
def test_most_rows_that_may_run_unasked_do(workspace: Workspace) -> None:
    wanted = [row["command"] for row in rows("codex_safe_command.json") if row["auto_approve"]]
    free = [command for command in wanted if is_read_only(command, workspace)]
    assert len(free) >= 0.8 * len(wanted), sorted(set(wanted) - set(free))


@pytest.mark.spec("LOOP-4", "SEC-3", "SEC-4")
@pytest.mark.parametrize(
    "command",
    [
        "ls", "ls -la", "ls -l sub", "cat a.txt", "<a.txt cat", "cat ./sub/../a.txt", "head -n 5 a.txt", "pwd",
        "tail -20 a.txt", "wc -l a.txt", "echo hello world", "stat a.txt", " ls ", "ls\n",
        "cat missing.txt", "uname -a", "whoami", "cat -- a.txt", "ls --color=never", "ls\tsub",
        "echo 'x'", 'echo "x y"', "echo \\x", "echo a # b", "ls && pwd", "ls; pwd;", "ls || true",
        "ls | head -5 | sort -rn", "ls 2>/dev/null", "ls >/dev/null 2>&1", "wc -l < a.txt",
        "ls &>/dev/null", "cat a.txt\nls\n\npwd", "find . -name '*.py' -type f", "find sub -print",
        "find . \\( -name a -o -name b \\) -prune", "grep -rn 'a b' .", "grep -e x -e y a.txt",
        "grep x", "egrep 'a|b' a.txt", "rg -n foo", "rg --files -g '*.py'", "rg -e x sub",
        "sed -n 1,5p a.txt", "sed -n '1,5p;7p' a.txt", "sed -n '/def x/,/^$/p' a.txt",
        "sed -ne 5p a.txt", "sort a.txt | uniq -c", "sort -t, -k2,2n a.txt", "cut -d: -f1 a.txt",
        "tr a-z A-Z", "date +%Y", "date -u", "[ -f a.txt ] && ls", "test -d sub", "seq 1 5",
        "printf '%s\\n' x", "type ls", "which ls", "command -v ls", "diff a.txt a.txt",
        "diff -ru sub sub", "grep -R x sub", "jq .a a.txt", "jq -r '.a | keys[]' a.txt",
        "cat *.txt", "ls sub/*", "wc -l nothing*", "timeout 5 ls", "nice -n 5 ls", "time ls",
        "cd . && ls", "git --version", "ls -la \\\n  sub",
        "base64 a.txt", "xxd -l 16 a.txt", "du -sh .", "df -h /", "nl -ba a.txt", "cat - a.txt",
        "echo --- done ---", "basename /x/y", "grep -n x a.txt || echo none", "cat a.txt | wc -l",
    ],
)  # fmt: skip
def test_looks_are_read_only(command: str, workspace: Workspace) -> None:
    program = command.split()[0]
    if program in {"rg", "jq", "xxd", "git"} and not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    assert is_read_only(command, workspace)


@pytest.mark.spec("SEC-3", "SEC-4", "SEC-5")
@pytest.mark.parametrize(
    "command",
    [
        # nothing, and what leaves the workspace
        "", " ", "\n", "# x", ";", "cat /etc/passwd", "cat ../x", "cat out/passwd", "cat passwd",
        "ls out", "ls /", "cat ~/.ssh/id_rsa", "cat ~root/x", "cat sub/../../x", "cat '/etc/passwd'",
        "wc -l < /etc/passwd", "wc -l < passwd", "grep x out/passwd", "grep -f passwd a.txt",
        "grep -fpasswd a.txt", "grep --file=passwd a.txt", "rg x /etc", "rg -f passwd", "find /",
        "find out/", "find . -newer /etc/passwd", "diff a.txt /etc/passwd", "diff . out",
        "cat pass*", "ls o*", "cat o*/passwd", "test -f /etc/passwd", "[ -f /etc/passwd ]", "test -f passwd",
        "strings @a.txt", "strings -e @a.txt a.txt", "strings -t @a.txt", "sort --files0-from=a.txt",
        # where programs look for no option behind an operand these are files
        "grep x -e /etc/passwd", "cut x -d /etc/passwd", "sort a.txt -k /etc/passwd",
        "diff -rN --from-file=. sub", "diff -rN --to-file=. sub", "cat '~nobody-of-that-name/x'",
        # between the judgement and the run a file may come to be named like an option
        "rg x *", "sort *", "find *", "printf *", "[ * ]", "rg x ?*", "timeout 5 rg x *", "xxd a*",
        "uniq a.t*", "base64 a*", "wc --files0-from=a.txt", "file -f a.txt",
        "date -r /etc/passwd", "date -f a.txt", "diff --from-file=/etc/passwd a.txt",
        "realpath --relative-to=/etc .", "grep -R x", "grep -R x .", "md5sum -c a.txt",
        "tree --fromfile a.txt", "jq -f a.txt", "jq . /etc/passwd", "jq --slurpfile a /etc/x .",
        "jq --rawfile a /etc/passwd -n '$a'", "cat @/etc/passwd /etc/passwd",
        # options that write, run, follow or wait
        "tail -f a.txt", "tail --follow=a.txt", "tail -F a.txt", "ls -Z", "ls -L", "ls -Lx",
        "sort -o a.txt a.txt", "sort -oa.txt", "sort --output=a.txt", "sort --out=a.txt a.txt",
        "sort -ro a.txt", "sort --compress-program=sh a.txt", "sort -T sub a.txt",
        "uniq a.txt b.txt", "xxd a.txt b.txt", "xxd -r a.txt", "xxd -ps /etc/passwd",
        "base64 -o x", "base64 a.txt b.txt", "tree -o x", "tree -R", "file -C", "file -z a.txt",
        "find . -delete", "find . -exec rm {} +", "find . -execdir rm {} \\;", "find . -ok rm {} \\;",
        "find . -okdir rm {} \\;", "find . -fls x", "find . -fprint x", "find . -fprint0 x",
        "find . -fprintf x %p", "find . -files0-from a.txt", "find -L .", "find . -follow",
        "find -D exec .", "find . -name", "rg --pre sh x", "rg --pre=sh x", "rg -z x", "rg -nz x",
        "rg --search-zip x", "rg --hostname-bin sh x", "rg -L x", "rg --follow x", "fd -x rm",
        "fd -X rm", "fd --exec rm", "sed 1p a.txt", "sed -n 1w\\ x a.txt", "sed -n '1,5p;w x' a.txt",
        "sed -i -n 1p a.txt", "sed -n -i 1p a.txt", "sed -n 1p a.txt -i", "sed -n '1e ls' a.txt",
        "sed -n 's/a/b/e' a.txt", "sed -n 's/a/b/w x' a.txt", "sed -n -f a.txt", "sed -n 'r /etc/x'",
        "sed -n '1p\nw x' a.txt", "sed -n '/x/p;e' a.txt", "sed -n 1p /etc/passwd",
        "sed -n --file=a.txt", "sed -n -s 1p", "jq env a.txt", "jq '$ENV' a.txt", "jq -n 'env.X'",
        "jq 'import \"x\" as $x; .' a.txt", "jq 'include \"x\"; .' a.txt", "jq -L . . a.txt",
        "date -s 12:00", "date --set=12:00", "date 010203042026", "hostname x", "hostname -F a.txt",
        "hostname -f", "diff -l a.txt a.txt", "head --bytes", "head -n x a.txt", "column --x a.txt",
        "printf -v x y", "command ls", "command -p ls", "test -v 'a[$(ls)]'", "[ -v x ]", "[ -f a",
        "timeout 5 rm a.txt", "timeout --weird ls", "timeout 5 env ls", "time -o x ls",
        "timeout 5 time -o x ls", "nice rm a.txt", "nohup ls", "timeout ls", "timeout 5 cd .",
        # other programs
        "rm a.txt", "touch x", "tee a.txt", "tee", "awk 1 a.txt", "yq . a.txt", "env", "printenv",
        "ps aux", "xargs cat", "ls | xargs rm", "make", "python3 -c 1", "sh -c ls", "bash a.sh",
        "eval ls", "exec ls", "source a.txt", ". a.txt", "cd sub", "cd sub && ls", "cd /", "cd -",
        "cd", "pushd .", "export X", "unset X", "set -x", "alias ls", "read x", "sudo ls", "env ls",
        "less a.txt", "man ls", "curl x", "dd if=a.txt", "split a.txt", "csplit a.txt 1", "shuf -o x",
        "git status", "git diff", "git log", "git branch", "git -c x=y --version", "cargo check",
        # paths and names of programs
        "/bin/ls", "./ls", "LS", "'git status'", "sub/ls", "~/ls", "l*", "*", "ls/", "''",
        # syntax
        "(ls)", "{ ls; }", "ls & pwd", "ls&", "ls |& cat", "! ls", "ls>x", "ls >x", "ls >>x",
        "ls 2>x", "ls &>x", "ls >|x", "ls <>x", "ls >&x", "ls <&3", "ls >&3", "ls >&-", "<passwd cat",
        "ls >/dev/null/../x", "ls > /dev/tcp/a/1", "cat < /dev/tcp/a/1", "ls > $X", "ls {a}>/dev/null",
        "cat <<< x", "cat <<E\nx\nE", "cat <<'E'\nx\nE\n", "cat <(ls)", "ls $(ls)", "ls `ls`",
        "echo $HOME", 'echo "$HOME"', "echo ${X:=y}", "echo $((1+1))", "echo {a,b}", "echo {1..3}",
        "echo ~", "echo $'x'", 'echo $"x"', "echo ?(x)", "ls [ab]", "A=b ls", "A=b", "PATH=. ls",
        "if true; then ls; fi", "for x in a; do ls; done", "while false; do ls; done",
        "case a in a) ls;; esac", "f() { ls; }", "function f { ls; }", "coproc ls", "select x in a; do ls; done",
        "[[ -f a.txt ]]", "((1))", "let x=1", "ls &&", "&& ls", "ls ;; pwd", "ls | | wc", "ls; ; ls",
        "ls 'x", 'ls "x', "ls \\", "ls )", "ls (", "time", "ls && rm -rf /", "ls;rm x", "ls\nrm x",
        "ls|sh", "ls || rm x", "ls # x\nrm x", "ls '\n' && rm x", "echo x\\\n;rm x", "ls \\\nrm\\\n;rm x",
        # characters that a person does not see or that are not white space
        "\xa0ls", "ls\x0b", "ls\x1c", "ls \x85", "ls \u2028rm", "ls\0", "ls -la\r\nrm x", "\x1cls",
        "ls\r", "ls \u200b", "ls \u202e", "ls\xa0x", "ls \ud800", "\ufeffls", "ls \x7f", "ls \x1b[0m",
    ],
)  # fmt: skip
def test_whatever_is_not_certain_is_not_read_only(command: str, workspace: Workspace) -> None:
    assert not is_read_only(command, workspace)


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize(
    "command", ["cat < -", "<- cat", "wc -l <-", "ls -", "du -", "cat - < a.txt"]
)
def test_a_dash_may_be_a_link_that_leads_out(command: str, workspace: Workspace) -> None:
    assert is_read_only(command, workspace)
    (workspace.root / "-").symlink_to("/etc")
    assert not is_read_only(command, workspace)


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("command", ["ls", "pwd", "cat a.txt", "cat hosts", "wc"])
def test_nothing_is_read_only_where_the_shell_has_left_the_workspace(
    command: str, workspace: Workspace
) -> None:
    assert not is_read_only(command, Workspace(workspace.root, Path("/etc")))
    assert not is_read_only(command, Workspace(workspace.root, workspace.root / "out"))


@pytest.mark.spec("SEC-5")
def test_a_shell_directory_that_is_gone_is_no_ground_to_judge_from(workspace: Workspace) -> None:
    gone = workspace.root / "sub" / "gone"
    assert not is_read_only("cat ../../a.txt", Workspace(workspace.root, gone))


@pytest.mark.spec("SEC-5")
def test_paths_count_from_the_shells_directory_and_extra_directories_are_free(
    workspace: Workspace, tmp_path: Path
) -> None:
    below = Workspace(workspace.root, workspace.root / "sub")
    assert is_read_only("cat ../a.txt", below)
    assert not is_read_only("cat ../../x", below)
    extra = tmp_path / "extra"
    extra.mkdir()
    assert is_read_only(f"cat {extra}/x", Workspace(workspace.root, workspace.root, (extra,)))


@pytest.mark.spec("SEC-2")
def test_a_program_of_the_repository_is_never_taken_for_the_systems(workspace: Workspace) -> None:
    fake = workspace.root / "bin"
    fake.mkdir()
    (fake / "ls").write_text("#!/bin/sh\ntouch canary\n")
    (fake / "ls").chmod(0o755)
    assert is_read_only("ls", workspace, "/usr/bin:/bin")
    assert not is_read_only("ls", workspace, f"{fake}:/usr/bin:/bin")
    assert not is_read_only("ls", workspace, "")
    assert is_read_only("pwd", workspace, f"{fake}:/usr/bin:/bin")
    assert not is_read_only("timeout 5 pwd", workspace, "")
    (fake / "ls").rename(fake / "grep")
    assert not is_read_only("egrep x a.txt", workspace, f"{fake}:/usr/bin:/bin")


@pytest.mark.spec("SEC-2")
@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin", "../bin", "~+", "~/bin"])
def test_a_path_that_starts_where_the_shell_is_finds_the_repositorys_programs(
    workspace: Workspace, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = Workspace(workspace.root, workspace.root / "sub")
    for place in (below.cwd, below.cwd / "bin", workspace.root / "bin"):
        place.mkdir(exist_ok=True)
        (place / "ls").write_text("#!/bin/sh\ntouch canary\n")
        (place / "ls").chmod(0o755)
    path = f"{entry}:/usr/bin:/bin"
    assert not is_read_only("ls", below, path)
    monkeypatch.setenv("PATH", path)
    assert not is_read_only("ls", below)


@pytest.mark.spec("SEC-2")
def test_a_changed_path_to_other_programs_is_not_taken_for_the_systems(
    workspace: Workspace, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "ls").write_text("#!/bin/sh\ntouch canary\n")
    (other / "ls").chmod(0o755)
    assert not is_read_only("ls", workspace, f"{other}:/usr/bin:/bin")
    assert is_read_only("cat a.txt", workspace, f"{other}:/usr/bin:/bin")


def test_a_relative_path_where_no_such_program_is_does_no_harm(workspace: Workspace) -> None:
    assert is_read_only("ls", workspace, "node_modules/.bin:/usr/bin:/bin")


KINDS = {"files", "file", "text", "pattern", "any", "none"}


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("program", sorted(SPECS))
def test_every_line_can_be_read(program: str) -> None:
    spec = spec_of(program)
    assert spec is not None
    assert spec.operands in KINDS


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("sort", "-o --output -T --compress-program --files0-from"),
        ("rg", "--pre -z --search-zip --hostname-bin -L --follow"),
        ("fd", "-x -X --exec --exec-batch -L -l"),
        ("tree", "-o -R -l --fromfile"),
        ("tail", "-f -F --follow --retry"),
        ("file", "-C -f -m -z -p"),
        ("xxd", "-r"),
        ("base64", "-o --output"),
        ("hostname", "-F -b"),
        ("diff", "-l --paginate"),
        ("ls", "-L"),
        ("wc", "--files0-from"),
    ],
)
def test_dangerous_options_are_not_in_the_table(program: str, options: str) -> None:
    spec = spec_of(program)
    assert spec is not None
    assert spec.marks.keys().isdisjoint(options.split())


def test_a_program_that_is_not_in_the_table_has_no_line() -> None:
    assert spec_of("rm") is None
