"""Which commands a bash text would run."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.policy.bash_syntax import (
    joined,
    matches_pattern,
    names_command_of,
    parse_bash,
    parts_of,
    skeleton,
    unquoted,
    why_unreadable,
    word_lists,
    written_names,
)
from agentcli.policy.rules import touches_command

SUITE = Path(__file__).resolve().parents[2].parent / "shared/suites/bash/codex_split_words.json"
SPLITS = json.loads(SUITE.read_text()) if SUITE.is_file() else []


def listed(text: str) -> list[tuple[str | None, ...]]:
    return [command.words for command in parse_bash(text).commands]


@pytest.mark.skipif(not SPLITS, reason="../shared/suites is not there")
@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("row", SPLITS, ids=lambda row: row["script"])
def test_words_are_those_that_another_project_expects(row: Any) -> None:
    parsed = parse_bash(row["script"])
    assert parsed.understood
    assert [list(command.words) for command in parsed.commands] == row["commands"]


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text",
    [
        "canary x", "a && canary x", "a; canary x", "a\ncanary x", "a | canary x", "a & canary x",
        "a || canary x", "a |& canary x", "(canary x)", "{ canary x; }", "$(canary x)", "! canary x",
        "`canary x`", 'a "$(canary x)"', "a <(canary x)", "a >(canary x)", "a=$(canary x)",
        "export A=$(canary x)", "if a; then canary x; fi", "if canary x; then a; fi",
        "for i in a; do canary x; done", "for i in $(canary x); do a; done", "until a; do canary x; done",
        "while canary x; do a; done", "case a in a) canary x;; esac", "f() { canary x; }; f",
        "function f { canary x; }", "cat <<E\n$(canary x)\nE", "cat <<-E\n\t`canary x`\n\tE",
        "cat <<E && canary x\nE", "cat <<<$(canary x)", "bash <<E\ncanary x\nE", "sh <<< 'canary x'",
        "a && bash <<E\ncanary x\nE", "a | sh <<E 2>&1\ncanary x\nE", "{ bash; } <<E\ncanary x\nE", "a && bash <<< 'canary x'",
        "if bash; then a; fi <<E\ncanary x\nE",
        "(cat <<A && bash\na\nA\n) <<E\ncanary x\nE", "{ cat <<A | a && sh\na\nA\n} <<E\ncanary x\nE", "timeout 5 bash <<E\ncanary x\nE",
        "bash +c 'canary x'", "sh -e +c 'canary x' a",
        "sudo canary x", "sudo -u me canary x", "sudo --odd canary x", "env A=b canary x",
        "env -i -u A canary x", "env a-b=c canary x", "env =a canary x", "env -S 'canary x'", "timeout 5 canary x", "timeout -s KILL 5 canary x",
        "nice -n 5 canary x", "nice -5 canary x", "nohup canary x", "stdbuf -oL canary x",
        "time canary x", "time { canary x; }", "command canary x", "builtin canary x", "exec canary x",
        "exec -a n canary x", "coproc canary x", "coproc { canary x; }", "setsid canary x",
        "bash -c 'canary x'", "bash -lc 'canary x'", "sh -e -c 'canary x' a b", "zsh -c 'canary x'",
        "bash --norc -o pipefail -c 'canary x'", "eval canary x", "eval 'canary x'", "eval 'can''ary' x",
        "trap 'canary x' EXIT", "alias a='canary x'", "su -c 'canary x'", "su me --command='canary x'",
        "flock f -c 'canary x'", "watch canary x", "busybox canary x", "chroot / canary x",
        "sudo env A=b timeout 5 bash -c 'nohup canary x'", "eval \"bash -c 'canary x'\"",
        "find . -name a -exec true ';' -execdir sh -c 'canary x' ';'", "A=b canary x", "can\\ary x",
        "c'anary' x", '"canary" "x"', "canary \\\n x", "can\\\nary x", "2>a canary x", "canary 2>a x", "$x canary x", "sudo $x canary x", "$x exec canary x",
        "a ) canary x", "a && ( canary x",
        "[[ $(canary x) ]]", "[ $(canary x) ]", "echo $((1+$(canary x)))", "echo ${a:-$(canary x)}",
        "((a=$(canary x)))", "a[$(canary x)]=1", "echo ${a[$(canary x)]}", "select i in a; do canary x; done",
    ],
)  # fmt: skip
def test_every_command_is_listed_wherever_it_stands(text: str) -> None:
    assert ("canary", "x") in listed(text)


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("xargs rm -f", ("rm", "-f", None)),
        ("xargs -0 -n 1 rm", ("rm", None)),
        ("xargs -I{} rm {} x", ("rm", None, "x")),
        ("xargs -n 1 -I{} rm {} x", ("rm", None, "x")),
        ("xargs -I{} -n2 rm {} x", ("rm", None, "x", None)),
        ("xargs --replace=% --max-lines=1 rm x", ("rm", "x", None)),
        ("find . -exec rm {} ';'", ("rm", None)),
        ("fd a -x rm", ("rm", None)),
        ("$cmd -rf x", (None, "-rf", "x")),
        ("rm *.py {a,b} ~ $x", ("rm", None, None, None, None)),
        ("git show HEAD^ stash@{0} a~1", ("git", "show", "HEAD^", "stash@{0}", "a~1")),
        ("/bin/rm x", ("/bin/rm", "x")),
    ],
)
def test_a_word_that_is_not_known_is_none(text: str, words: tuple[str | None, ...]) -> None:
    assert words in listed(text)


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text",
    [
        "ls 'x", "ls )", "( ls", "ls ;; pwd", "ls | | wc", "&& ls", "ls &&", "if then x", "ls\r", "\0",
        "ls\u200b", "ls\xa0", "f() { ls; }", "function f { ls; }", "coproc ls", "time { ls; }",
        "select x in a; do ls; done", "((x))", "echo $((x))", "echo $[x]", "for ((;;)); do ls; done",
        "echo ${x@P}", "echo ${!x}", "echo ${x[1]}", "echo ${x:1}", "x[1]=2", "x=(a)", "echo $'x'",
        'echo $"x"', "echo {1..3}", "[[ a -eq b ]]", "[[ a =~ b ]]", "[[ -v a ]]", "test -v a",
        "[ -v a ]", "[ $x ]", "[ $x = y ]", "let x", "printf -v x y", "read $x", "declare -i x=y",
        "read 'a[1]'", "unset 'a[1]'", "enable -f x", "hash -p x y", "shopt -s extglob", "trap x EXIT",
        "alias a=b", "$x exec y", "$(a) b", "> $ b <<< c", "eval $x", "bash -c $x", "zsh -c ls", "sudo --odd ls", "env -S ls", "env a-b=c ls", "watch ls", "fakeroot -l 'a;b' ls",
        "ls {fd}>x", "echo a<(ls)", "echo ${x:-'$(ls)'}", "`ls \\`ls\\``", "cat <<A\n", "exec 3<>x",
        "echo ?(a)", "cat <<E\n`ls`\nE", "sort -oa<<E\nE", "cat -<<E\nE", "cat <<-E -n<<F\nE\nF",
        "time A=b ls", "time -p ! ls", 'cat <<"E".. -n\nE\n', 'cat <<"E" \\  -n\nE\n',
        # a backslash at the end of a line has the next one be no delimiter
        "cat <<E\na\\\nE\ncat <<F\nE\nls\nF", "cat <<-E\n\ta\\\n\tE\ncat <<F\nE\nls\nF",
        "cat <<E\nE\\\n\nls\nE", "cat <<E\n\\\nE\nls\nE",
        # a line ends a command, and a word goes on to its blank
        "[ -f\nx ]", "[\n-f x ]", "[ a =\nb ]", "[ a -a\n-f b ]", "{ls;\n}", "{ls ;\n}", "{} & ls",
        "ls <<'E' '$x'$-\\;\nE", "! ((x))", ">& -ls x", "a <& -b", "time ((x))",
        "5+=x ls", "5=x", "a | 5+=",
        # joined lines make another word of it
        'a "$x"\\\nb', 'a "$x" &\\\n> f', 'a "$x" >& \\\n-b c', 'a "$x" > \\\n f', "cat <<E \\\n && a\nx\nE",
        "cat <<E | a \\\n b\n$x\nE",
        # plain shells read on: another command, and a word
        "ls &> /dev/null make", "ls &>>/dev/null 2>&1 make", "&>/dev/null ls", "ls 10>&1", "ls 10<x",
        "ls 0<x", "0<&1 ls", "ls 0>x", "ls a|0<<<x ls",
    ],
)  # fmt: skip
def test_what_bash_may_read_otherwise_is_not_understood(text: str) -> None:
    parsed = parse_bash(text)
    assert not parsed.understood
    assert parsed.why_not


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text",
    [
        "git commit -m 'a b' && git push", "x=1 y=2 make", 'for f in a b; do cat "$f"; done',
        "cat > f <<'E'\n$(x) `y`\nE\n", "cat <<E\n$x\nE\n", "cat <<E\na\\\nb\\\\\nE\n", "cat <<'E'\na\\\nE\n", "python3 - <<'E'\nx\nE\n", "if [ -f a ]; then ls; fi", "a 2>&1 | b",
        '[ "$x" = y ] && ls', "echo $((1 + 2))", "timeout 5 make", "bash -c 'make test'",
        "a &>/dev/null 2>&1 && b", "(a &> b) | c", "a $(b &>>c)",
        "find . -exec rm {} +", "a \\\n  b", "# only a comment", "", "echo a # b",
        "if a; then\n  b\nelse\n  c\nfi", "if a; then b; elif c; then d;else e;fi",
        "case x in a) b;;esac", "case x in\na) b ;;\n*)\nc\n;;esac",
        # a line is continued behind what the shell expands
        'a "$x" \\\n  b "$y" \\\n  c', 'a "$(b)" \\\n  && c', 'for f in a; do\n  b "$f" \\\n   c\ndone',
        "x=$(a \\\n  b)", "a $(b) \\\n  | c \\\n  > f",
    ],
)  # fmt: skip
def test_everyday_syntax_is_understood(text: str) -> None:
    assert parse_bash(text).understood


@pytest.mark.spec("SEC-4")
def test_the_rest_of_a_line_is_not_fed_what_a_here_document_gives() -> None:
    parsed = parse_bash("cat >a.sh <<E && sh a.sh\nmake\nE")
    assert [command.program for command in parsed.commands] == ["cat", "sh"]


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("text", ["sh -s - <<E\nx\nE", "sh -s - <<E | cat\nx\nE"])
def test_a_dash_before_a_here_document_is_a_word(text: str) -> None:
    parsed = parse_bash(text)
    assert parsed.commands[0].words == ("sh", "-s", "-")


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("text", ["a 2>&- b", "a b <&-", "a <&-b", "<&- a b", "a <&- b 2>&-"])
def test_what_stands_behind_a_closed_stream_is_a_word(text: str) -> None:
    assert parse_bash(text).commands[0].words == ("a", "b")


@pytest.mark.spec("SEC-4")
def test_redirections_assignments_and_wrappers_are_told() -> None:
    text = "A=b sudo tee x 2>/dev/null >>'a b' 2>&1 <in"
    outer, inner = parse_bash(text).commands
    assert outer.assignments == ("A=b",)
    assert outer.text == "A=b sudo tee x"
    told = [(one.operator, one.target, one.writes) for one in outer.redirections]
    assert told == [
        (">", "/dev/null", True),
        (">>", "a b", True),
        (">&", "1", False),
        ("<", "in", False),
    ]
    assert (inner.words, inner.text, inner.wrappers) == (("tee", "x"), "tee x", ("sudo",))
    assert parse_bash("> $x").commands[0].redirections[0].target is None


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize(
    "text",
    ["case x in esac >f", "case x in a) ;; esac >f", "(case x in esac) >f", "case $(a) in esac >f"],
)
def test_what_a_case_without_commands_writes_is_told(text: str) -> None:
    parsed = parse_bash(text)
    written = [each.target for command in parsed.commands for each in command.redirections]
    assert parsed.understood
    assert written == ["f"]


@pytest.mark.spec("SEC-4")
def test_a_case_whose_complaints_are_not_shown_is_no_command_of_its_own() -> None:
    parsed = parse_bash("case x in a) ls;; esac 2>/dev/null")
    assert [command.words for command in parsed.commands] == [("ls",)]


@pytest.mark.sampled
@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text",
    [
        "ls; " * 250_000, "(" * 10_000, "(" * 10_000 + "ls" + ")" * 10_000, "echo " + "$(" * 10_000,
        "a|" * 30_000, "`>=" * 20_000, "sudo --x " * 3_000, "env -S " * 3_000, "cat <<A " * 5_000,
        "a=b " * 250_000, "bash -c '" * 3_000, "x" * 1_000_000, "\n" * 1_000_000,
    ],
    ids=lambda text: f"{text[:8]!r}-{len(text)}",
)  # fmt: skip
def test_a_huge_text_is_answered(text: str) -> None:
    started = time.process_time()
    parse_bash(text)
    assert time.process_time() - started < 20  # seconds: an endless one, not a slow machine


@pytest.mark.spec("SEC-4")
def test_a_rule_sees_a_command_in_a_text_that_is_too_long() -> None:
    for text in ("ls; " * 2_000 + "rm -rf x", "ls; " * 100_000 + "r'm' -rf x"):
        parsed = parse_bash(text)
        assert not parsed.understood
        assert touches_command("rm *", text, parsed)
        assert not touches_command("make *", text, parsed)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab '\"$(){}[];&|<>`\\\n#=!*-\0\r\u200b\ud800"), max_size=40))
def test_no_text_raises(text: str) -> None:
    parsed = parse_bash(text)
    assert parsed.understood != bool(parsed.why_not)


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a \\\n b", "a  b"), ("'a\\\nb' c\\\nd", "'a\\\nb' cd"), ('"a\\\nb"', '"ab"'),
        ("# a \\\nb", "# a \\\nb"), ("a\\\\\nb", "a\\\\\nb"), ("a <<E\\\nb", "a <<E\\\nb"),
    ],
)  # fmt: skip
def test_line_continuations_are_removed_as_bash_does(text: str, result: str) -> None:
    assert joined(text) == result


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "char", ["\0", "\r", "\x1b", "\xa0", "\u200b", "\u202e", "\u2028", "\ud800"]
)
def test_invisible_characters_are_named(char: str) -> None:
    assert f"U+{ord(char):04X}" in why_unreadable(f"ls {char}")
    assert not why_unreadable("echo 'grün ☃'\n\tls")


@pytest.mark.spec("SEC-4")
def test_a_skeleton_keeps_the_syntax_and_empties_the_texts() -> None:
    text = "echo 'long text' # c\ncat <<'E' >f\nbody )\nE\nls \"$x y\""
    assert skeleton(text) == "echo 'x' \ncat <<'E' >f\nx\nE\nls \"$x y\""


@pytest.mark.spec("SEC-4")
def test_what_cannot_be_parsed_is_read_roughly_and_finds_commands_behind_keywords_and_assignments() -> (
    None
):
    found = set(listed("if A=b 'r'm -rf x; then ( y; fi"))
    assert {("rm", "-rf", "x"), ("y",)} <= found


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize(
    "text",
    [
        r"a >&.git/config\'", r'a >&".git\\config"', r"a >&.g\\it", "a >&'$(touch x)'", r"a >&\`b\`",
        'a >&"$x"', "a >& '.g*'",
    ],
)  # fmt: skip
def test_what_bash_expands_twice_is_not_known(text: str) -> None:
    parsed = parse_bash(text)
    assert not parsed.understood
    targets = [(each.target, each.writes) for each in parsed.commands[0].redirections]
    assert targets == [(None, True)]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.spec("SEC-4")
def test_bash_runs_what_is_quoted_behind_such_a_redirection(tmp_path: Path) -> None:
    subprocess.run(["bash", "-c", "echo >&'$(touch ran; echo out)'"], cwd=tmp_path, check=True)
    assert (tmp_path / "ran").exists()


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    "text",
    ["rm x", "ls; rm x", "$(rm x)", "if rm x", "sudo -u a rm x", "r\\m x", "'rm' x", "A=b rm x",
     "/bin/rm x", "(rm x", "`rm x", "ls\nrm x", "xargs rm x", "f() { rm x; }", "2>f rm x"],
)  # fmt: skip
def test_a_command_is_among_the_parts_of_a_text(text: str) -> None:
    assert "rm x" in set(parts_of(text))
    assert ["rm", "x"] in list(word_lists(text))


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("echo x > a", ["a"]), ("echo x >>'a b'", ["'a b'"]), ("x >| ~/.bashrc; y", ["~/.bashrc"]),
        ("x &> a", ["a"]), ('x >"$HOME"/a', ['"$HOME"/a']), ("cat < a", []), ("x <> a", ["a"]),
    ],
)  # fmt: skip
def test_what_is_written_is_named(text: str, names: list[str]) -> None:
    assert list(written_names(text)) == names


def test_patterns_are_matched_with_texts() -> None:
    assert matches_pattern("git diff", "git diff *")
    assert matches_pattern("git diff x", "git diff *")
    assert not matches_pattern("git diffx", "git diff *")
    assert not matches_pattern("ab", "a[b]*")
    assert names_command_of("rm *", "r\\m x")
    assert not names_command_of("rm *", "ls")
    assert unquoted("r\\\nm 'x'") == "rm x"


@given(st.text("rm x;|&$(){}'\"\\\n`<>=", max_size=60))
def test_any_text_falls_apart(text: str) -> None:
    assert next(parts_of(text)) == text
    for words in word_lists(text):
        assert words
