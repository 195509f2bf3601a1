"""Which shell commands certainly change nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.tools import Workspace
from agentcli.policy.read_only_table import SPECS, spec_of
from tests.support.reads import is_read_only
from tests.support.repositories import git, make_repository

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
def test_no_row_that_may_not_run_unasked_is_read_only(workspace: Workspace) -> None:
    barred = [row["command"] for row in rows("codex_safe_command.json") if not row["auto_approve"]]
    assert [text for text in barred if is_read_only(text, workspace)] == []


@needs_suite
@pytest.mark.spec("SEC-4")
def test_no_dangerous_row_is_read_only(workspace: Workspace) -> None:
    barred = [row["command"] for row in rows("codex_dangerous.json")]
    assert [text for text in barred if is_read_only(text, workspace)] == []


SETS = [
    "IFS=: ls", "PATH=. read a", "IFS= PATH=. read a", "IFS=$(touch x) read a", "IFS= read PATH",
    "cd sub && PATH=. ls", "while PATH=. read a; do ls; done", "x=$(PATH=. ls)", "PATH=.; ls",
    "cat <(PATH=. ls)", "case x in x) PATH=. ls;; esac", "PATH=. timeout 5 ls", "PATH=. cd sub",
]  # fmt: skip


@needs_suite
@pytest.mark.spec("SEC-4")
def test_no_variable_but_that_of_read_is_set(workspace: Workspace) -> None:
    free = [text for text in SETS if is_read_only(text, workspace, contained=True)]
    assert free == []


@pytest.mark.spec("SEC-4")
def test_most_rows_that_may_run_unasked_do(workspace: Workspace) -> None:
    wanted = [row["command"] for row in rows("codex_safe_command.json") if row["auto_approve"]]
    free = [command for command in wanted if is_read_only(command, workspace)]
    assert len(free) >= 0.8 * len(wanted), sorted(set(wanted) - set(free))


LOOKS = [
    "[ -f 'a b' ] && ls",
    "ls", "ls -la", "ls -l sub", "cat a.txt", "<a.txt cat", "cat ./sub/../a.txt", "head -n 5 a.txt", "pwd",
    "tail -20 a.txt", "wc -l a.txt", "echo hello world", "stat a.txt", " ls ", "ls\n",
    "cat missing.txt", "uname -a", "whoami", "cat -- a.txt", "ls\tsub",
    "echo 'x'", 'echo "x y"', "echo \\x", "echo a # b", "ls && pwd", "ls; pwd;", "ls || true",
    "ls | head -5 | sort -rn", "ls 2>/dev/null", "ls >/dev/null 2>&1", "wc -l < a.txt",
    "ls &>/dev/null", "cat a.txt\nls\n\npwd", "find . -name '*.py' -type f", "find sub -print",
    "find . \\( -name a -o -name b \\) -prune", "grep -rn 'a b' .",
    "grep x", "rg -n foo",
    "sed -n 1,5p a.txt",
    "sort a.txt | uniq -c", "sort -t, -k2,2n a.txt", "cut -d: -f1 a.txt",
    "tr a-z A-Z", "date +%Y", "[ -f a.txt ] && ls", "seq 1 5",
    "type ls", "which ls", "diff a.txt a.txt",
    "jq .a a.txt",
    "cat *.txt", "ls sub/*", "wc -l nothing*",
    "cd . && ls", "(cd sub && ls)", "for f in *.txt; do head -3 $f; done", 'for f in sub/*.txt; do wc -l "$f"; done', "jq -r '.a.b[0]' a.txt", "rg --files", "awk -F: '{print $1, $3}' a.txt", "git --version", "ls -la \\\n  sub",
    "base64 a.txt", "du -sh .", "df -h /", "nl -ba a.txt", "cat - a.txt",
    "echo --- done ---", "basename /x/y", "grep -n x a.txt || echo none", "cat a.txt | wc -l",
]  # fmt: skip


@pytest.mark.spec("LOOP-4", "SEC-3", "SEC-4")
def test_looks_are_read_only(workspace: Workspace) -> None:
    may_lack = {"rg", "jq", "xxd", "git"}
    here = [t for t in LOOKS if t.split()[0] not in may_lack or shutil.which(t.split()[0])]
    assert [text for text in here if not is_read_only(text, workspace)] == []


UNCERTAIN = [
    # nothing, and what leaves the workspace
    "", " ", "\n", "# x", ";", "cat /etc/passwd", "cat ../x", "cat out/passwd", "cat passwd",
    "ls out", "ls /", "cat ~/.ssh/id_rsa", "cat ~root/x", "cat sub/../../x", "cat '/etc/passwd'",
    "wc -l < /etc/passwd", "wc -l < passwd", "grep x out/passwd", "grep -f passwd a.txt",
    "grep -fpasswd a.txt", "grep --file=passwd a.txt", "rg x /etc", "rg -f passwd", "find /",
    "find out/", "find . -newer /etc/passwd", "diff a.txt /etc/passwd", "diff . out",
    "cat pass*", "ls o*", "cat o*/passwd", "echo /etc/*", "echo out/*", "echo o*/pass*",
    'printf "%s\\n" /etc/pass*', "expr o*/passwd", "true /etc/*", "test -f /etc/passwd", "[ -f /etc/passwd ]", "test -f passwd",
    "strings @a.txt", "strings -e @a.txt a.txt", "strings -t @a.txt", "sort --files0-from=a.txt",
    # where programs look for no option behind an operand these are files
    "grep x -e /etc/passwd", "cut x -d /etc/passwd", "sort a.txt -k /etc/passwd",
    "diff -rN --from-file=. sub", "diff -rN --to-file=. sub", "cat '~nobody-of-that-name/x'",
    # between the judgement and the run a file may come to be named like an option
    "rg x *", "sort *", "find *", "printf *", "[ * ]", "rg x ?*", "timeout 5 rg x *", "xxd a*",
    "uniq a.t*", "base64 a*", "wc --files0-from=a.txt", "file -f a.txt",
    "which /etc/passwd", "type ../x", "date -r /etc/passwd", "date -f a.txt", "diff --from-file=/etc/passwd a.txt",
    "realpath --relative-to=/etc .", "grep -R x", "grep -R x .", "md5sum -c a.txt",
    "tree --fromfile a.txt", "jq -f a.txt", "jq . /etc/passwd", "jq --slurpfile a /etc/x .",
    "jq --rawfile a /etc/passwd -n '$a'", "cat @/etc/passwd /etc/passwd",
    # options that write, run, follow or wait
    "tail -f a.txt", "tail --follow=a.txt", "tail -F a.txt", "ls -Z", "ls -L", "ls -Lx",
    "sort -o a.txt a.txt", "sort -oa.txt", "sort --output=a.txt", "sort --out=a.txt a.txt",
    "sort -ro a.txt", "sort --compress-program=sh a.txt", "sort -T sub a.txt",
    "uniq a.txt b.txt", "xxd a.txt b.txt", "xxd -r a.txt", "xxd -ps /etc/passwd",
    "xxd a.txt -E", "xxd a.txt <a.txt -p", "uniq a.txt -c", "base64 a.txt -d",
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
    "rm a.txt", "touch x", "tee a.txt", "tee", "yq . a.txt", "env", "printenv",
    "xargs cat", "command rm x", "builtin cd ..", "ls | xargs rm", "make", "python3 -c 1", "sh -c ls", "bash a.sh",
    "eval ls", "exec ls", "source a.txt", ". a.txt", "cd /", "cd -",
    "cd", "pushd .", "export X", "unset X", "set -x", "alias ls", "read x", "sudo ls", "env ls",
    "less a.txt", "man ls", "curl x", "dd if=a.txt", "split a.txt", "csplit a.txt 1", "shuf -o x",
    "git status", "git diff", "git log", "git branch", "git -c x=y --version", "cargo check",
    # paths and names of programs
    "/bin/ls", "./ls", "LS", "'git status'", "sub/ls", "~/ls", "l*", "*", "ls/", "''",
    # syntax
    "(ls)", "echo $HOME", 'echo "$HOME"', "((ls))", "(ls) (ls)", "for f in *.txt; do head '$f'; done", "for f in *.txt; do head x$f; done", "for f in *.txt; do echo x > $f; done", "for f in p*; do cat $f; done", "for PATH in *.txt; do ls $PATH; done", "for f in *.txt; do $f; done", "for f in *.txt; do head $f $g; done", 'for f in *.txt; do cat "x $f"; done', "for f in *; do rm $f; done", "(cd sub); ls", "{ ls; }", "ls & pwd", "ls&", "ls |& cat", "ls>x", "ls >x", "ls >>x",
    "ls 2>x", "ls &>x", "ls >|x", "ls <>x", "ls >&x", "ls <&3", "ls >&3", "ls >&-", "<passwd cat",
    "ls >/dev/null/../x", "ls > /dev/tcp/a/1", "cat < /dev/tcp/a/1", "ls > $X", "ls {a}>/dev/null",
    "cat <(ls)", "ls $(ls)", "ls `ls`",
    "echo $TOKEN", "ls $HOME", "echo $HOME/x", 'echo "$HOME$X"', "echo ${X:=y}", "echo $((1+1))", "echo {1..3}",
    "echo ~", "echo $'x'", 'echo $"x"', "echo ?(x)", "ls []ab]", "cat [a-p]*", "cat [!a]*", "cat [L-P]*", "ls .[.]", "cat .[.]/x", "sed -n [1]*", "sed -n 1[pw]", "ls a[/]b", "A=b ls", "A=b", "PATH=. ls",
    "while false; do ls; done",
    "case a in a) ls;; esac", "f() { ls; }", "function f { ls; }", "coproc ls", "select x in a; do ls; done",
    "[[ -f a.txt ]]", "((1))", "let x=1", "ls &&", "&& ls", "ls ;; pwd", "ls | | wc", "ls; ; ls",
    "ls 'x", 'ls "x', "ls \\", "ls )", "ls (", "time", "ls && rm -rf /", "ls;rm x", "ls\nrm x",
    "ls|sh", "ls || rm x", "ls # x\nrm x", "ls '\n' && rm x", "echo x\\\n;rm x", "ls \\\nrm\\\n;rm x",
    # characters that a person does not see or that are not white space
    "\xa0ls", "ls\x0b", "ls\x1c", "ls \x85", "ls \u2028rm", "ls\0", "ls -la\r\nrm x", "\x1cls",
    "\fcd sub && ls", "\rcd sub", "(\vcd sub && ls)", "for f in a.txt; do ls $f; done\f",
    "ls\r", "ls \u200b", "ls \u202e", "ls\xa0x", "ls \ud800", "\ufeffls", "ls \x7f", "ls \x1b[0m",
]  # fmt: skip


@pytest.mark.spec("SEC-3", "SEC-4", "SEC-5")
def test_whatever_is_not_certain_is_not_read_only(workspace: Workspace) -> None:
    assert [text for text in UNCERTAIN if is_read_only(text, workspace)] == []


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


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("contained", [False, True])
def test_a_word_that_looks_like_an_option_is_no_value_to_programs_that_may_run_it(
    workspace: Workspace, *, contained: bool
) -> None:
    for name in ("--engine", "-r", "--color", "-g", "--type", "-ig", "-A", "-m"):
        command = f"rg {name} --pre=./x pat ."
        assert not is_read_only(command, workspace, contained=contained), command


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize("contained", [False, True])
def test_above_a_link_is_what_the_shell_takes_for_it(
    workspace: Workspace, *, contained: bool
) -> None:
    (workspace.root / "deep" / "dir").mkdir(parents=True)
    (workspace.root / "link").symlink_to("deep/dir")
    for command in ("cd link/.. && cat ../x", "cd link && cd .. && cat ../x"):
        assert not is_read_only(command, workspace, contained=contained), command
    within = Workspace(workspace.root, workspace.root / "link")
    assert not is_read_only("cd .. && cat ../x", within, contained=contained)
    for command in ("cd link && cat ../x", "cd deep/dir && cat ../../a.txt", "cd ./deep/.."):
        assert is_read_only(command, workspace, contained=contained), command


@pytest.mark.spec("SEC-2")
def test_a_program_of_the_repository_is_found_from_where_cd_leads(workspace: Workspace) -> None:
    (workspace.root / "sub" / "ls").write_text("#!/bin/sh\ntouch canary\n")
    (workspace.root / "sub" / "ls").chmod(0o755)
    for path in (".:/usr/bin:/bin", "/usr/bin-of-mine::/usr/bin:/bin"):
        assert is_read_only("cd sub && cat ../a.txt", workspace, path)
        assert not is_read_only("cd sub && ls", workspace, path)
        assert not is_read_only("true && cd sub; ls", workspace, path)


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


@pytest.mark.spec("SEC-2", "SEC-4")
def test_what_a_version_manager_puts_in_the_place_of_a_program_is_not_the_systems(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs what a file of the directory names (``.tool-versions``: ``nodejs path:./x``)."""
    own, shims = tmp_path / "bin", tmp_path / "there/shims"
    for place in (own, shims):
        place.mkdir(parents=True)
    for path, text in ((own / "manager", b"\x7fELF"), (shims / "perl", b"#!/bin/sh\n")):
        path.write_bytes(text)
        path.chmod(0o755)
    (shims / "ruby").symlink_to(own / "manager")
    monkeypatch.setenv("PATH", f"{shims}:{own}:/usr/bin:/bin")
    for name in ("perl", "ruby"):
        assert not is_read_only(f"{name} --version", workspace), name
    (own / "node18").write_bytes(b"\x7fELF")
    (own / "node18").chmod(0o755)
    (own / "node").symlink_to("node18")
    assert is_read_only("node --version", workspace)
    assert is_read_only("bash --version; ls", workspace)


@pytest.mark.spec("SEC-4", "SEC-5")
@pytest.mark.parametrize("contained", [False, True])
def test_what_each_process_finds_elsewhere_is_no_file_of_the_workspace(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, *, contained: bool
) -> None:
    """A command that runs in ``sub`` reads ``sub/a.txt`` there, and the judge another file."""
    monkeypatch.chdir(workspace.root)
    (workspace.root / "sub/a.txt").symlink_to("/etc/passwd")
    (workspace.root / "here").symlink_to("/proc/self/cwd")
    (workspace.root / "again").symlink_to("here/sub")
    below = Workspace(workspace.root, workspace.root / "sub")
    for name in ("/proc/self/cwd/a.txt", "/proc/thread-self/cwd/a.txt", "../here/a.txt"):
        assert not workspace.contains(below.resolve(name)), name
        for text in (f"cat {name}", f"cat < {name}", f"cd .. && cd sub && head {name}"):
            assert not is_read_only(text, below, contained=contained), text
    for text in ("cd here && cat a.txt", "cd again && ls", "ls again/*"):
        assert not is_read_only(text, workspace, contained=contained), text


@pytest.mark.spec("SEC-3")
def test_a_link_to_a_directory_hides_no_credentials(workspace: Workspace) -> None:
    (workspace.root / ".bundle").mkdir()
    (workspace.root / ".bundle/config").write_text("BUNDLE_GEMS: user:password")
    (workspace.root / "link").symlink_to(".bundle")
    assert not is_read_only("grep -r x link", workspace)
    assert not is_read_only("rg x link", workspace)
    assert not is_read_only("cd link && rg x", workspace)
    assert is_read_only("rg x sub", workspace)


def test_a_relative_path_where_no_such_program_is_does_no_harm(workspace: Workspace) -> None:
    assert is_read_only("ls", workspace, "node_modules/.bin:/usr/bin:/bin")


READS_EVERYWHERE = [
    "cd sub", "cd sub && ls", "cd sub && cat ../a.txt", "ps aux | grep x", "ps -ef",
    "awk '{print $1}' a.txt", "bash --version", "cat /etc/os-release", "sleep 1",
    "sed -n '/def x/,/^$/p' a.txt", "test -d sub && ls", "printf '%s\\n' x", "nproc", "free -h",
    "awk 'NR>=10 && NR<=20' a.txt", "awk 'NR==1 {print $2}' a.txt", "cmp a.txt a.txt",
    "paste -d, a.txt a.txt", "od -c a.txt", "stat -c '%s %n' a.txt", "readlink -f a.txt",
    "type -a ls", "find . -type f -mmin -5 -ls",
]  # fmt: skip


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("contained", [False, True])
def test_everyday_looks_are_read_only_everywhere(contained: bool, workspace: Workspace) -> None:
    every = READS_EVERYWHERE
    assert [text for text in every if not is_read_only(text, workspace, contained=contained)] == []


# what only the read-only sandbox makes sure of
CONTAINED_LOOKS = [
    "bash -c 'ls sub'", "bash -lc 'git status && git diff | head'", 'sh -c "grep -n x a.txt"', "cd sub && bash -c 'cat ../a.txt'",
    "test -f a.txt || exit 1", "ls && exit 0", "if [ ! -d sub ]; then exit 3; fi; ls sub",
    "uv version", "uv version --short", "nvidia-smi", "nvidia-smi --query-gpu=name,memory.used --format=csv",
    "set -e; ls", "set -euo pipefail; cd sub && ls", "set -e -o pipefail; ls | wc -l",
    "(cd sub; ls) && (cd sub; ls)", "(cd sub && ls); (cd ./sub && ls)", "diff <(cd sub; ls) <(cd sub; ls)",
    "curl --version",  # OPENSSL_CONF may name what it loads
    "cat <<< x", "cat <<E\nx\nE", "cat - <<E\nx\nE", "git log @{u}..",
    'for f in *.txt; do wc -l "$f" | cat; done',
    "for d in sub; do ls $d/x; done", "awk -F: '$3 > 100 {print $1}' a.txt",
    "awk '/[0-9]+/ { n += $2 / 2 } END { print n }' a.txt", "awk 'NR==1; NF{printf \"%s\\n\", $2}' a.txt",
    "awk '{print $1, $2 >= 1} $3>5' a.txt", "tar -t --file=a.tar",
    """awk '{printf "%s;\\n", $1; if ($2 > 3 || x) print $1/2} /a/' a.txt""",
    "find . -name '*.txt' | xargs grep -n x", "ls {sub,a.txt}", "cat {a,b}*.txt",
    "find . -exec grep -n a/b {} +", "find sub -exec cat {}/x {} +", "find . -exec du --max-depth=1 {} +",
    "find . -type f | xargs -I{} wc -l {}", "printf '%s %d\\n' a 1", "find sub -type f | xargs -n1 wc -l",
    "ls [ab]*", "cat [!b].txt", "cat [a-n]*", "grep x sub/[[:alpha:]]*",
    "egrep 'a|b' a.txt", "rg -e x sub",
    "sed -n '1,5p;7p' a.txt", "sed -ne 5p a.txt",
    "diff -ru sub sub", "grep -R x sub",
    "timeout 5 ls", "nice -n 5 ls", "time ls", r"\time echo x", "cat a.txt | time echo",
    "rg --engine auto x", "rg -e -x sub", "rg -ne --pre sub",
    "cat <<<$TOKEN", 'grep x <<<"a ${TOKEN}"', "cat <<X\n$TOKEN\nX", "for x in a; do cat <<<$y; done",
    "git status -sb", "git --no-pager diff HEAD~1 --stat", "git log --oneline --graph -5",
    "git show HEAD:a.txt", "git branch -a", "git branch --list 'x*'", "git stash list", "git tag -l",
    "git grep -n foo", "git blame a.txt", "git reflog", "git remote -v", "git config --get user.name", "git config user.name", "GIT_PAGER=cat git log", "LC_ALL=C sort a.txt | TZ=UTC uniq",
    "find . | xargs", "ls | xargs -n1 basename", "find . -name '*.txt' -exec dirname {} \\;", "builtin pwd", "command git log",
    "git -C sub log", "git ls-files | xargs wc -l", "git ls-files -o --exclude-standard", "env", "git log -Sfoo -p",
    "git log --pretty=format:'%h %s' | head", "git diff main...HEAD -- sub", "git rev-parse HEAD~1", "cd sub && git status",
    'echo "$USER is $(whoami)"', "yarn --version", "go version", "rustc -V", "pip list",
    "npm ls --depth=0", "wc -l $(git ls-files)", "cd $(git rev-parse --show-toplevel) && ls",
    "sed 's/[^/]*$//;/^#/d' a.txt", "sed ':a;N;$!ba;s/\\n/,/g' a.txt",
    "sed '2i\\  hello' a.txt", "sed -n '/x/I,$p' a.txt", "sed 's,[[:space:]]*$,,g;$!N' a.txt",
    "git config --get-regexp user", "lsblk /dev/sda", "dpkg -S /usr/bin/x", "find . -name '*.py' -exec grep -l x {} +", "echo $((1 + 2))",
    "while read -r line; do echo $line; done < a.txt",
    "ls | while IFS= read -r line; do echo $line; done", "IFS=: read -r a b <<< x:y", "[[ -f a.txt && -d sub ]] && echo yes",
    "tar tzf a.tgz", "case $X in a) ls;; esac", "printenv PATH", 'test -n "$X" || ls',
    'for f in $(git ls-files); do wc -l "$f"; done',
    '[ "$(git rev-parse HEAD)" = x ] && ls', "[[ $X == *a ]] && ls",
    '[ "$(ls | wc -l)" -gt 3 ] && echo many', "[ 3 -gt 2 ]", '[[ -n "$(git status --porcelain)" ]]',
    "[[ -f a.txt && $(cat a.txt) == '(1)' ]]", "diff <(sort a.txt) <(sort -u a.txt)",
    "diff -u <(git show HEAD:a.txt) a.txt", "comm -12 <(ls sub) <(ls)",
]  # fmt: skip


@pytest.mark.spec("SEC-4", "SEC-5")
@pytest.mark.parametrize("pattern", [".*", ".?", "sub/.*", "./.*", ".[.]", "{.*,a.txt}"])
def test_a_pattern_that_finds_the_directory_above_in_some_shells_is_never_free(
    pattern: str, workspace: Workspace
) -> None:
    for text in (f"cat {pattern}/x", f"grep -r x {pattern}", f"ls {pattern}"):
        assert not is_read_only(text, workspace), text
        assert not is_read_only(text, workspace, contained=True), text


@pytest.mark.spec("SEC-4")
def test_more_is_read_only_where_the_sandbox_makes_sure_of_it(workspace: Workspace) -> None:
    every = CONTAINED_LOOKS
    assert [text for text in every if not is_read_only(text, workspace, contained=True)] == []
    assert [text for text in every if is_read_only(text, workspace)] == []


# neither here nor there
NEVER = [
    "bash -c 'rm x'", "bash -lc 'ls > x'", 'bash -c "$X"', "bash -c 'cat /etc/passwd'", "bash -c ls x", "bash -ic ls", "bash -c 'bash a.sh'",
    "bash -c 'cat ../x'", "cd sub && bash -c 'cat ../../x'", 'bash -c "cat $(rm x)"', "bash -O extglob -c ls", "find . -exec bash -c 'ls' \\;", "ls | xargs bash -c 'ls'",
    "exit $(rm x)", "ls || exit 1 > x", "exit 1; rm x",
    "uv version 2.0", "uv version --bump minor", "uv version --frozen --bump minor", "nvidia-smi -r", "nvidia-smi -pm 1", "nvidia-smi -f x",
    "awk 'NR==1 {print > \"x\"}' a.txt", "awk 'NR==1{system(\"ls\")}' a.txt", "sed -n '/x/w y' a.txt",
    "sed -n '/a/,/b/e' a.txt", "sed -n '/a\\/w y' a.txt", "sed -n '/a/w y\n/p' a.txt", "printf '%b%n' x PATH",
    "printf -- '%n' PATH", "stat -c %n /etc/passwd", "cmp a.txt /etc/passwd", "paste a.txt out/passwd",
    "hexdump -f a.txt", "readlink -f out/passwd", "tree -L 2 -o x", "tree -L 1 /etc", "xxd -c 8 a.txt x",
    "jq '.a | input_filename | env' a.txt", "test -f /etc/passwd -o -v 'a[$(ls)]'",
    # what assigns, runs or keeps what a program looks at
    "printf '%n' PATH; ls", "printf '%s%n' a PATH", "printf -v PATH x", "printf '%5$n' x",
    "for PATH in .; do ls; done", "for IFS in a; do ls; done", "for BASH_ENV in a; do ls; done",
    "for http_proxy in a; do ls; done", "for HOME in /etc; do ls; done", "for x in *; do $x; done",
    '[ "$(touch x)" = y ]', '[ -v "a[$(ls)]" ]', "[ $(git log) ]",
    "read PATH < a.txt", "read -a x", "mapfile x < a.txt", "getopts a PATH", "echo ${PATH:=x}",
    "echo ${x=y}", "echo ${!x}", "echo ${x@P}", "echo ${x[$(ls)]}", "echo $((x=1))", "((PATH=1))",
    "echo $((a[$(ls)]))", "echo $[1+1]", "[[ -v a[$(ls)] ]]", "test -v 'a[$(ls)]'", "[[ $x -eq 1 ]]",
    "PATH=.; ls", "PATH+=:.; ls", "x=1 PATH=.; ls", "GIT_DIR=x; git log", "GIT_CONFIG_COUNT=0; git status", "IFS=a; ls",
    "HOME=x; git log", "LC_ALL=C; ls", "CDPATH=/; cd sub && ls", "x=$(touch y)", "x=1 > y", "x[0]=1; ls", "x=ls; $x", "F=/etc/passwd; cat $F", "F=a.txt; F=/etc/passwd; cat $F", "F=/etc; G=passwd; cat $F/$G", "O=-o; sort $O x a.txt",
    "d=sub; cd $d && ls", "D=$(rm a.txt); ls", "x=-delete; find . $x", "x='1e ls'; sed \"$x\" a.txt",
    "unset 'a[$(ls)]'", "declare x=1", "let x=1", "wait -n -p PATH", "coproc ls", "exec ls",
    "hash -p ./x ls", "enable -f ./x.so x", "trap ls EXIT", "PROMPT_COMMAND=ls", "GLOBIGNORE=x ls", "PAGER=./x git log", "LC_ALL=$(x) ls", "LC_ALL=C", "X=sub; ls $X", "N=$(wc -l < a.txt); echo $N",
    "cat <<< $(touch x)", "select PATH in .; do ls; done", "alias ls=rm", "f() { rm x; }; f",
    "ls {PATH}</dev/null", "export PATH=.", "local x", "readonly x", "source a.txt", "eval ls",
    # the directory above, in shells where such a pattern finds it
    "cat .*/x", "grep -r x .*", "ls .?/x", "cat sub/.*/x", "ls .?", "for f in .*; do cat $f/x; done",
    # a directory that is not the one that it seems to be
    "false && cd sub; cat ../../x", "cd sub | ls; cat ../x", "cd sub && cat ../../x", "cd .. && ls",
    "cd out && ls", "cd sub; cd ..; cd ..; ls", "for i in 1 2; do cd ..; done; ls", "cd -", "cd ~",
    "while true; do cd ..; done", "cd sub/../.. && ls", "cd missing && ls", "cd sub > x",
    # words of loops that are no plain names
    "for s in 1p 'w x'; do sed -n \"$s\" a.txt; done",
    "for f in '/etc/passwd'; do cat $f; done", "for f in '../x y'; do cat $f; done",
    # languages
    "awk '{print > \"x\"}' a.txt", "awk '{print | \"sh\"}' a.txt", "awk 'BEGIN{system(\"ls\")}'",
    "awk '{\"ls\" | getline}' a.txt", "awk 'BEGIN{getline x < \"/etc/passwd\"}'", "awk -f a.txt",
    "awk 'BEGIN{ARGV[1]=\"/etc/passwd\"}1' a.txt", "awk '/\"/{print \"x\" > \"f\"}' a.txt",
    "awk '{printf \"x\" >> \"f\"}' a.txt", "awk '@include \"x\"' a.txt", "awk '{print} > \"x\"' a.txt",
    "awk -i inplace 1 a.txt", "awk '{ x = 1 / print > 2 / 3 }' a.txt", "awk --file=a.txt x",
    "awk '/[/]\"/ {print} { y = \"}\" } /x/ {print > \"f\"}' a.txt", "awk 1 f=a.txt",
    # a slash that divides in one awk and starts an expression in another
    "awk '{x=$/\"/;print \"a\">\"f\";y=$/\"/}' a.txt", "awk '{if(1)/\"/;print \"a\">\"f\";if(1)/\"/}' a.txt",
    "awk '{while(x--)/\"/;print \"a\">\"f\";while(0)/\"/}' a.txt",
    "awk '{y=case/\"/;z=\"; print 1 > \"f\"; w=\"b\"#\"\n}' a.txt",
    "awk '{x=/[]/\"]/;print 1 > \"f\"#\"\n}' a.txt", "awk '/[[:alpha:]/\"]/{print 1 > \"f\"#\"\n}' a.txt",
    # where a print ends: not within a text or behind a comma
    """awk '{print "}" | "sh"}' a.txt""", """awk '{printf("%s;", $1) | "sh"}' a.txt""",
    """awk '{print "x",\n$1 > "f"}' a.txt""", """awk '{print $1, # }\n$2 | "sh"}' a.txt""",
    """awk '{print 1 \\\n| "sh"}' a.txt""", """awk '{print /}/ | "sh"}' a.txt""",
    """awk '{print a["}"] > "f"}' a.txt""", """awk '{print "\\"};" > "f"}' a.txt""",
    """awk '{print 1 || 2 | "sh"}' a.txt""", """awk '{print ($1 >= 2) > "f"}' a.txt""",
    # more choices than are looked at
    "sort {-of,a.txt}{,}{,}{,}{,}{,}{,}", "cat {/etc/passwd,a}{,}{,}{,}{,}{,}{,}",
    # programs given what they are to read or run
    "find . | xargs -d , cat", "ls | xargs -ra.env ls", "ls | xargs -0d, ls",
    "find . | xargs --delimiter=, cat",
    "echo /etc/passwd | xargs cat", "ls | xargs cat <<< /etc/passwd", "cat a.txt | xargs rm", "find . | xargs sh -c ls", "ls | xargs -a a.txt cat",
    "find . | xargs -I{} cp {} x",
    "find . | xargs -I{} cat /etc/{}", "find . | xargs -I{} grep {} /etc/passwd", "find . | xargs -I% cat %/x",
    "find . | sed s,^,/etc/, | xargs cat", "cat {a.txt,/etc/passwd}",
    "ls {..,sub}", "cat {a,b}{1..3}", "cat .{.,x}/y", "git ls-files | xargs -I{} sh -c {}", "find . -exec sh -c x {} +", "find . -exec rm {} +",
    "git diff a.txt out/hosts", "git diff out a.txt", "npm ls --prefix=out", "go list ./out/...",
    "find . -exec cat out {} +", "find . -exec grep -r x .. \\;", "find . -exec cat {}/../../x +",
    "find . -exec grep -fout x {} +", "find . -exec grep --file=../x x {} +", "find . -exec cat ../x \\;",
    "git -c core.pager=x log", "git log --output=x", "git log --outp=x", "git grep -O x",
    "git diff --ext-diff", "git grep --untr x", "git show --textconv", "git branch x", "git branch -d x", "git tag x",
    "git stash", "git stash drop", "git config a.b c", "git config --unset a.b", "git remote add x y",
    "git reflog expire --all", "git fetch", "git pull", "git checkout .", "git clean -fd", "git add .",
    "git commit -m x", "git diff --no-index /etc/passwd a.txt", "git log --show-signature", "git gc",
    "git remote set-url --push origin get-url", "git --exec-path=. status", "git -p log", "git x",
    "git symbolic-ref HEAD x", "git worktree add x", "git submodule foreach ls", "git bisect run ls",
    "git cat-file --filters HEAD:x", "git help x", "git notes add", "git stash show -p --output=x",
    "go env -w A=b", "go run .", "npm install", "npm run build", "pip install x", "python3 -c 1",
    "sed '\\%x%r.env' a.txt", "sed '\\lxlR.env' a.txt", "sed '/x/Ir.env' a.txt", "sed 's/a/b/;r.env' a.txt",
    "sed 'y/s/t/;r.env\n/x/p' a.txt", "sed 'bs;r.env;s;p' a.txt", "sed ':s/;r.env\n/p' a.txt",
    "ls a.txt &> /dev/null make", "cat a.txt 10>&1",
    "sed 's/[[.-.]/]/x/;1e ls #/p' a.txt", "sed 's/[[=a=]/]/x/;1e ls #/p' a.txt",
    "sed 's/[]a[.-.]/]/x/;1e ls #/p' a.txt",
    "sed 's/a/b/Mw x' a.txt", 'sed "1,/x/Me ls" a.txt', f"sed '{'p;' * 2_000}' a.txt",
    f"awk '{'print ' * 1_000}' a.txt",
    # what is elsewhere, named in another way
    "git config --list --file=/etc/x", "git config -l -f/etc/x", "git config --list --edit",
    "who /etc/passwd", "users ../x", "pgrep -F /etc/x", "npm ls --prefix=/etc", "go list ../x",
    "find . | awk '{print \"/etc/\" $0}' | xargs cat",
    "sed -i s/a/b/ a.txt", "sed 's/a/b/w x' a.txt", "sed '1e ls' a.txt", "tar xf a.tar", "tar cf x .",
    "tar -t --file=/etc/x.tar", "tar --list --file=../x.tar",
    "ps auxe", "ps -o environ", "ps e", "./x --version", "sudo --version ls", "make --version x",
    "ls & pwd", "env ls", "foo", "cargo check", "make", "cat /etc/passwd", "cat ../x", "rm a.txt",
    "touch x", "echo x > a.txt", "echo x >> $X", "yes | tee a.txt", "echo $(rm a.txt)", "ls $(touch x)",
    "if rm a.txt; then ls; fi", "cat <(touch x)", "diff <(ls) <(rm a.txt)",
    "diff <(ls) >(tee x)", "bash <(ls)", ". <(ls)", "tee <(ls)", "sort -o <(ls) a.txt", "<(ls)",
    "[[ $(ls) -gt 3 ]]", '[ "$(rm x)" -gt 3 ]', '[ 1 -gt 2 -a -v "a[$(ls)]" ]', "[[ -n $(rm x) ]]",
    "find . | xargs --replace touch cat x", "find . | xargs --eof sh cat", "ls | xargs --max-lines cp cat x",
    "tree -Io x out", "tree -aPo x out", "rg --type-add 'e:.env' -te x", "rg --ignore-file ig x",
    "cd sub || cd inner; cat ../../x", "if cd sub; then cd .; else cd inner; fi; cat ../../x",
    "set -a; ls", "set -- x; ls", "set -o posix; ls", "set; ls", "set -e x; ls", "set -e; cd sub; cat ../../x",
    "cd sub < nope; cat ../../x", "(cd sub; ls); cat ../x", "(cd sub; (cd ..; ls); cat ../../x)", "cd sub <<< $(cat ../x)",
    "echo $(cd sub; ls) > /dev/null; cat ../x", "[[ a == @(a|b) ]]", "[[ a < b ]]", "diff <(cd .. && ls) a.txt", "time -o x ls", "nice make", "timeout 5 git gc",
]  # fmt: skip


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("contained", [False, True])
def test_what_assigns_runs_or_leaves_is_never_read_only(
    contained: bool, workspace: Workspace
) -> None:
    wrong = [text for text in NEVER if is_read_only(text, workspace, contained=contained)]
    assert wrong == []


@pytest.mark.spec("SEC-13")
def test_a_name_that_no_file_can_have_is_judged(workspace: Workspace) -> None:
    long = "x" * 300
    for text in (f"cd {long} && grep -r x .", f"cd {long}; ls", f"grep -r x {long}"):
        assert is_read_only(text, workspace, contained=True) is text.startswith("grep")
    nowhere = Workspace(workspace.root, workspace.root / long)
    assert not is_read_only("ls", nowhere)


@pytest.mark.spec("SEC-4")
def test_what_brings_a_lock_file_up_to_date_is_no_read(workspace: Workspace) -> None:
    for text in ("cargo tree", "cargo metadata --format-version 1", "uv tree", "uv tree --depth 1"):
        assert not is_read_only(text, workspace, contained=True), text
    for text in ("cargo tree --locked", "cargo metadata --no-deps", "uv tree --frozen"):
        assert is_read_only(text, workspace, contained=True), text


@pytest.mark.spec("SEC-3", "SEC-4")
def test_no_search_looks_into_credentials_that_it_does_not_name(workspace: Workspace) -> None:
    unnamed = ["grep -rn x .", "grep -R x", "rg --hidden x", "rg -uu x", "cat $(cat list)",
               "find . -type f | xargs cat", "find . -exec grep x {} +", 'cat "$X"']  # fmt: skip
    (workspace.root / "out").unlink()
    (workspace.root / "passwd").unlink()
    assert all(is_read_only(text, workspace, contained=True) for text in unnamed)
    deep = workspace.root / "packages/app/config/dev/local"
    deep.mkdir(parents=True)
    (deep / ".env").write_text("TOKEN=x")
    for text in unnamed:  # the read-only sandbox hides it
        assert is_read_only(text, workspace, contained=True), text
        assert not is_read_only(text, workspace), text
    for text in ("grep -rn x sub", "rg x", "ls -la", "grep x a.txt", "git grep x"):
        assert is_read_only(text, workspace, contained=True), text


EVERYDAY = SUITE.parent / "everyday_commands.tsv"


@pytest.mark.skipif(not EVERYDAY.is_file(), reason="../shared/suites is not there")
@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(("contained", "share"), [(True, 0.8), (False, 0.6)])
def test_everyday_looks_do_not_ask(contained: bool, share: float, tmp_path: Path) -> None:
    for name in ("a.txt", "file.txt", "package.json", "src/a.py", "src/main.py", ".git/hooks/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    workspace = Workspace(tmp_path, tmp_path)
    lines = EVERYDAY.read_text().splitlines()
    found = [line.split("\t", 1) for line in lines if line and not line.startswith("#")]
    free = {
        text: is_read_only(text.replace("\\n", "\n"), workspace, contained=contained)
        for _, text in found
    }
    looks = [text for kind, text in found if kind == "read"]
    assert sum(free[text] for text in looks) >= share * len(looks)
    assert not any(free[text] for kind, text in found if kind == "contained")


@pytest.mark.spec("SEC-4")
def test_what_is_free_of_git_without_a_sandbox_runs_no_program_of_a_repository(
    tmp_path: Path,
) -> None:
    root = make_repository(tmp_path / "work")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    program.chmod(0o755)
    config = root / ".git/config"
    config.write_text(
        config.read_text()
        + "".join(f"[{section}]\n{key} = {program}\n" for section, key in _PROGRAMS_OF_GIT)
        + f"[extensions]\npartialClone = o\n[branch]\nsort = -committerdate\n"
        f'[remote "o"]\npromisor = true\nurl = {root}\nuploadpack = {program}\n'
    )
    head = git(root, "rev-parse", "HEAD").strip()
    for pack in (root / ".git/objects").glob("??/*"):
        pack.unlink()  # an object that is asked for is fetched
    workspace = Workspace(root, root)
    free = ["git rev-parse HEAD", "git rev-parse --abbrev-ref HEAD",
            "git rev-parse --show-toplevel", "git rev-parse --git-dir"]  # fmt: skip
    for text in free:
        assert is_read_only(text, workspace), text
        done = subprocess.run(text.split(), cwd=root, capture_output=True, text=True, check=True)
        assert text != free[0] or done.stdout.strip() == head
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "branch", "-a"], cwd=root, capture_output=True, check=False)
    assert (tmp_path / "ran").exists()  # the trap is one
    for text in ("git branch", "git branch -a", "git log", "git rev-parse HEAD^{tree}"):
        assert not is_read_only(text, workspace), text


@pytest.mark.spec("SEC-3", "SEC-5")
def test_without_a_sandbox_git_reads_nothing_that_a_link_of_the_repository_leads_to(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").write_text("canary\n")
    own = workspace.root / "sub/own"
    for name in ("objects", "refs"):
        (own / name).mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "hooks").symlink_to(own / "refs")
    assert is_read_only("cd sub/own && git rev-parse HEAD", workspace)
    (own / "packed-refs").symlink_to(tmp_path / "elsewhere")
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=own, capture_output=True, text=True, check=False
    )
    assert "canary" in done.stderr
    for text in ("cd sub/own && git rev-parse HEAD", "cd sub/own/refs && git rev-parse --git-dir"):
        assert not is_read_only(text, workspace), text
    assert is_read_only("cd sub && git rev-parse HEAD", workspace)


_PROGRAMS_OF_GIT = [
    ("core", "fsmonitor"), ("core", "pager"), ("core", "sshCommand"), ("pager", "rev-parse"),
    ("pager", "branch"), ("alias", "branch"), ("alias", "rev-parse"), ("gpg", "program"),
    ("diff", "external"), ("credential", "helper"),
]  # fmt: skip

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
