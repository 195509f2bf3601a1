"""Permission rules: an allow rule covers the whole call, a deny rule any part of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import PermissionMode as Mode
from agentcli.domain.tools import Asks, ToolDefinition, Workspace
from agentcli.policy.bash_command import SimpleCommand
from agentcli.policy.bash_syntax import parse_bash
from agentcli.policy.decision import Answer, CallFacts, Rule, parse_rule
from agentcli.policy.rules import (
    Subject,
    covering,
    covers,
    covers_literally,
    first,
    glob_covers,
    host_of,
    is_transparent,
    may_touch,
    might_touch,
    touches,
)
from tests.policy.asking import Asked, judged, policy_of


def allows(rule: Rule, subject: Subject) -> bool:
    """Whether the rule alone covers the whole of the call, as an allow rule must."""
    return bool(covering((rule,), subject)[0])


def bash(text: str) -> Subject:
    return Subject("bash", text=text)


def files(*paths: Path, root: Path) -> Subject:
    return Subject("edit_file", paths=tuple(path.resolve() for path in paths), root=root.resolve())


@pytest.mark.spec("SEC-3")
def test_a_pattern_means_the_program_that_it_names_by_its_place(tmp_path: Path) -> None:
    """Beside the project's own there may be another of that name, which came with the code."""
    rule = parse_rule("bash(./tools/* *)")
    root = tmp_path.resolve()

    def runs(text: str, cwd: Path = root) -> bool:
        return bool(
            covering((rule,), Subject("bash", text=text, root=root, cwd=cwd), lambda _: True)[0]
        )

    assert runs("./tools/build x") and runs("./tools/build x && ./tools/test")
    assert not runs("cd vendor && ./tools/build x")
    assert not runs("./tools/build x", root / "vendor")
    assert not runs("./tools/../vendor/build x")
    assert allows(parse_rule("bash(*)"), bash("cd vendor && ../x y"))


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("bash", Rule("bash")), (" bash(git diff *) ", Rule("bash", "git diff *")),
        ("mcp__github__*", Rule("mcp__github__*")), ("bash(echo (a))", Rule("bash", "echo (a)")),
        ("edit_file(src/**)", Rule("edit_file", "src/**")), ("bash(a\nb)", Rule("bash", "a\nb")),
    ],
)  # fmt: skip
def test_rules_are_read_and_written_alike(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule
    assert parse_rule(str(rule)) == rule


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("text", ["", "bash(", "bash()", "ba sh", "(x)", "bash(x)y", "bash)x("])
def test_what_is_no_rule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"edit_file\(src"):
        parse_rule(text)


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("Bash(rm:*)", "bash(rm *)"), ("Bash", "bash"), ("bash(rm:*)", "bash(rm *)"), ("Shell(rm *)", "bash(rm *)"),
        ("Edit(src/**)", "edit(src/**)"), ("Write", "edit"), ("Read(.env)", "read_file(.env)"), ("WebFetch(domain:a.b)", "web_fetch(a.b)"),
    ],
)  # fmt: skip
def test_a_rule_that_would_cover_nothing_is_refused_with_ours(text: str, ours: str) -> None:
    with pytest.raises(UsageError, match="would cover nothing here") as refused:
        parse_rule(text)
    assert refused.value.advice == f"write it like {ours}"
    assert str(parse_rule(ours)) == ours
    for each in ("bash(npm run build:*)", "shell(x)"):
        assert str(parse_rule(each)) == each


@pytest.mark.spec("UI-7", "SEC-4")
@pytest.mark.parametrize("how", ["", "python -m ", "python3.12 -m ", "uv run ", "poetry run "])
def test_the_prefix_of_a_module_covers_no_more_than_that_of_its_program(how: str) -> None:
    for options in ("-q", "tests -x", "--junitxml=x"):
        assert allows(Rule("bash", f"{how}pytest *"), bash(f"{how}pytest {options}")), options
    for options in ("--basetemp=src", "-c x", "--rootdir=/", "--junitxml=/x"):
        assert not allows(Rule("bash", f"{how}pytest *"), bash(f"{how}pytest {options}")), options
    assert not allows(Rule("bash", f"{how}mypy *"), bash(f"{how}mypy --install-types"))
    assert not how or allows(Rule("bash", f"{how}*"), bash(f"{how}pytest -c x"))


@pytest.mark.spec("UI-7", "SEC-4")
def test_a_rule_that_names_where_it_writes_covers_that() -> None:
    assert allows(Rule("bash", "go build -o /srv/app *"), bash("go build -o /srv/app ./cmd"))
    assert not allows(Rule("bash", "go build *"), bash("go build -o /srv/app ./cmd"))


@pytest.mark.spec("SEC-3")
def test_a_deny_rule_as_other_programs_end_it_covers_what_they_mean() -> None:
    """``git push:*``: an allow rule means a name with a colon, which scripts may have."""
    for pattern in ("git push:*", "npm run test:*"):
        said = pattern.removesuffix(":*")
        for text in (said, f"{said} x", f"ls; {said} x"):
            assert touches(Rule("bash", pattern), bash(text)), text
        assert not allows(Rule("bash", pattern), bash(f"{said} x"))
        assert not touches(Rule("bash", pattern), bash(f"{said}x"))
    assert might_touch(Rule("bash", "git push:*"), bash("git $X"))
    assert allows(Rule("bash", "npm run test:*"), bash("npm run test:unit"))


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("pattern", "covered", "other"),
    [
        ("private", "private/a/b", "private.txt"), ("private/", "private/a", "x/private"), ("./private", "private/a", "privates/a"),
        ("**/private", "x/private/a", "x/privates"), ("a/private", "a/private/b", "private/b"), ("private/*", "private/a", "private/a/b"),
        ("*", "a", "a/b"), ("/srv/x", "/srv/x/y", "/srv/xy"),
    ],
)  # fmt: skip
def test_a_deny_rule_for_a_directory_covers_what_is_in_it(
    pattern: str, covered: str, other: str
) -> None:
    rule, root = Rule("edit_file", pattern), Path("/work")

    def subject(name: str) -> Subject:
        return Subject("edit_file", (root / name,), root=root)

    assert touches(rule, subject(covered)) and not touches(rule, subject(other))
    is_allowed = bool(covering([rule], subject(covered))[0])
    assert is_allowed is ("*" in pattern.rpartition("/")[2])  # an allow rule says it: private/**


@pytest.mark.spec("SEC-3")
def test_a_bare_name_covers_the_tool_and_a_star_a_family() -> None:
    assert allows(Rule("bash"), bash("rm -rf /; x"))
    assert allows(Rule("mcp__github__*"), Subject("mcp__github__list"))
    assert not allows(Rule("mcp__github__*"), Subject("mcp__gitlab__list"))
    assert not allows(Rule("bash"), Subject("bash_extra"))


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize(
    "command",
    ["git diff", "git diff a b", "git diff --stat 'a b'", 'git diff "x"', "git diff HEAD~1"[:-2]],
)
def test_an_allow_pattern_covers_plain_commands(command: str) -> None:
    assert allows(parse_rule("bash(git diff *)"), bash(command))


HOOKS = [
    ";", "&&", "||", "|", "&", "\n", "\r\n", "$(", "`", ">", ">>", "<", "<(", "${", "(",
    "*", "?", "$", "\0", "[", "| cat >", "2>", ";a=b ", "&>",
]  # fmt: skip


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("shape", ["git diff {}rm x", "git diff a{}b", "git{} diff x"])
def test_an_allow_pattern_never_reaches_over_an_operator(hook: str, shape: str) -> None:
    assert not allows(parse_rule("bash(git diff *)"), bash(shape.replace("{}", hook)))


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "command",
    [
        "git diff $(rm x)", "git diff `rm x`", "git diff > f", "git diff >> ~/.bashrc",
        "git diff <(rm x)", "git -c core.pager=x diff", "git diff $X", "git diff *", "PAGER=x git diff",
        "git diff | tee f", "git diff &", "git diff\nrm x", "(git diff; rm x)", "git diff {a,b}",
        "if git diff; then rm x; fi", "env A=b git diff", "sudo git diff", "xargs git diff",
        "bash -c 'git diff'", "eval git diff", "./git diff", "/tmp/git diff", "git diff < ~/.netrc",
        "git 'diff x'", "git() { rm x; }; git diff", "git diff \\", "git diff 'x", "git diff ~",
    ],
)  # fmt: skip
def test_an_allow_pattern_covers_this_program_with_known_words_and_nothing_else(
    command: str,
) -> None:
    rule = parse_rule("bash(git diff *)")
    plain = command == "git diff &"
    assert allows(rule, bash(command)) is plain


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "command",
    [
        "git diff 2>&1",
        "git diff x 2>/dev/null",
        "git diff && git diff --stat",
        "git diff é",
        "(git diff)",
        "git diff; git diff x",
        "timeout 5 git diff x",
        "nice git diff",
    ],
)
def test_an_allow_pattern_covers_a_list_of_what_it_covers(command: str) -> None:
    assert allows(parse_rule("bash(git diff *)"), bash(command))


@pytest.mark.spec("SEC-4")
@settings(max_examples=100)
@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_pattern_covers_known_words_only(tail: str) -> None:
    command = f"git diff {tail}"
    is_option = tail.startswith("-")  # git takes --o for --output, which writes
    if not is_option and all(c.isascii() and (c.isalnum() or c in "_@%+,./-") for c in tail):
        assert allows(parse_rule("bash(git diff *)"), bash(command))
    if any(c in tail.rstrip(" \n\t;&") for c in "$`><;|\0"):
        parsed = bash(command).parsed
        covered = allows(parse_rule("bash(git diff *)"), bash(command))
        assert not covered or all(c.words[:2] == ("git", "diff") for c in parsed.commands)


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("command", ["rm *", "rm *.o; ls", "echo $HOME", "a\nb", "x?", "[ab]"])
def test_an_exact_rule_covers_this_very_command_and_no_other(command: str) -> None:
    rule = Rule("bash", command, exact=True)
    assert allows(rule, bash(command))
    for other in (f"{command} x", "rm -rf x", "rm x.o", command.replace("*", "y"), f"{command}\n"):
        assert other == command or not allows(rule, bash(other))


@pytest.mark.spec("SEC-3")
def test_a_rule_written_out_covers_the_text_it_is_even_with_operators() -> None:
    assert allows(parse_rule("bash(make && make test)"), bash("make && make test"))
    assert not allows(parse_rule("bash(make && make *)"), bash("make && make test"))


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    ("command", "covered"),
    [
        ("make", True), ("make && make", True), ("cd x && make", False), ("echo x | make", False),
        ("make < x", False), ("bash -c make", False), ("{ make; }", False), ("make x", False),
        ("A=b make", False), ("make > x", False), ("make\ncd x\nmake", False),
    ],
)  # fmt: skip
def test_a_rule_for_one_command_covers_the_same_act_and_no_other(
    command: str, covered: bool
) -> None:
    for rule in (parse_rule("bash(make)"), Rule("bash", "make", exact=True)):
        rules, part = covering((rule,), bash(command), lambda part: part.text == "echo x")
        assert bool(rules) is covered
        assert covered or part


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize(
    "command",
    [
        "rm x", "rm", "rm -rf /", "ls; rm x", "ls&&rm x", "ls || rm x", "ls | rm x", "ls & rm x",
        "ls\nrm x", "$(rm x)", "echo `rm x`", "(rm x)", "{ rm x; }", "if true; then rm x; fi",
        "for i in a; do rm $i; done", "while rm x; do :; done", "! rm x", "time rm x",
        "sudo rm x", "sudo -u root rm x", "env -i A=b rm x", "xargs rm", "ls | xargs -0 rm -f",
        "timeout 5 rm x", "nohup rm x &", "bash -c 'rm x'", 'sh -c "ls; rm x"', "eval rm x",
        "find . -exec rm {} +", "A=b rm x", "A=b C=d rm x", "/bin/rm x", "/usr/bin/env rm x",
        "r\\m x", "'rm' x", 'r"m" x', "$'rm' x", ">f rm x", "rm>f x", "2>/dev/null rm x", "rm\tx",
        "  rm   x", "r\\\nm x", "cat <<<x; rm x", "echo ${x:-$(rm x)}", "function f { rm x; }",
        "setarch -R rm x", "setarch x86_64 -R rm x", "x86_64 rm x", "i386 rm x", "echo $(r\\\nm x)",
        "0<a rm x", "0<&1 rm x", "0>&- rm x", "rm 0<&1 x", "ls|0<&1 rm x", "0<<<a rm x",
        "rm 2>&- x", "rm <&-x", "<&- rm x", "rm >&- x <&-",
        "git rebase -x 'rm x' a", "git rebase -ix 'ls; rm x'", "git rebase --exec='rm x' a",
        "git submodule foreach 'rm x'", "git -C a submodule foreach --recursive rm x",
        "git bisect run rm x", "git -c alias.a='!rm x' a", "git -c core.pager='rm x' log",
        "git difftool -x 'rm x'", "git grep -O'rm x' a", "git filter-branch --tree-filter 'rm x' a",
        "pkexec --user root rm x", "chpst -u a:b rm x", "chronic rm x", "perf stat -d rm x",
        "uv run --with a rm x", "poetry run rm x", "npm exec -- rm x", "pnpm exec rm x",
        "nix develop -c rm x", "nix-shell --run 'rm x'", "guix shell -- rm x", "tox exec -- rm x",
        "distrobox enter a -- rm x", "lxc exec c -- rm x", "flatpak-spawn --host rm x", "envdir d rm x",
        "infisical run -- rm x", "foreman run rm x", "sops exec-env a 'rm x'", "vagrant ssh -c 'rm x'",
        "hatch run a:rm; hatch run rm x", "conda run -n a rm x", "docker run -v .:/w a rm x",
        "docker compose exec a rm x", "hyperfine 'rm x'", "cross-env A=b rm x", "ccache rm x",
        "mise x -- rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x", "compgen -C 'rm x'",
    ],
)  # fmt: skip
def test_a_deny_pattern_covers_any_part_and_looks_through_wrappers(command: str) -> None:
    assert touches(parse_rule("bash(rm *)"), bash(command)), command


@pytest.mark.spec("SEC-4")
def test_a_rule_that_names_the_option_allows_what_git_is_told_to_run() -> None:
    for rule, text in (
        ("bash(git rebase -x *)", "git rebase -x 'make test' a"),
        ("bash(git bisect run *)", "git bisect run make test"),
    ):
        assert allows(parse_rule(rule), bash(text)), text
        assert not allows(parse_rule("bash(git rebase *)"), bash(text)), text
        assert not allows(parse_rule("bash(make *)"), bash(text)), text


@pytest.mark.spec("SEC-3")
def test_a_deny_pattern_of_git_sees_behind_the_options_of_git_itself() -> None:
    rule = parse_rule("bash(git push *)")
    for text in ("git push", "git -C sub push", "git -c a.b=c push x", "git --no-pager push",
                 "/usr/bin/git --git-dir x -P push", "cd sub && git -C.. push",
                 "git -c alias.z=push z", "git -c Alias.z='push -f' z"):  # fmt: skip
        assert touches(rule, bash(text)), text
        assert not allows(rule, bash(text)) or text == "git push"
    for text in ("git log push", "git -C push status", "git"):
        assert not touches(rule, bash(text)), text


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    "command",
    ["echo rm x", "git rm x", "grep 'rm x' file", "rmdir x", "ls rm", "farm x", "npm rm x",
     "docker rm x", "docker run --rm x", "uv pip rm x", "echo run rm x", "npm run rm x"],
)  # fmt: skip
def test_a_deny_pattern_leaves_what_only_speaks_of_it(command: str) -> None:
    assert not touches(parse_rule("bash(rm *)"), bash(command))


@pytest.mark.spec("SEC-4")
def test_a_megabyte_of_command_is_judged() -> None:
    for text in ("sudo " * 200_000, "(" * 1_000_000, "a;" * 500_000, "'" * 1_000_001):
        assert not touches(parse_rule("bash(rm *)"), bash(text))
        assert touches(parse_rule("bash(rm *)"), bash(f"{text}; rm x"))
        assert not allows(parse_rule("bash(rm *)"), bash(text))


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [
        ("src/**", "src/a/b.py", True), ("src/**", "src/a", True), ("src/**", "src", True),
        ("src/**", "srcx/a", False), ("src/**", "src/../etc", False), ("src/*", "src/a/b", False),
        ("src/*.py", "src/a.py", True), ("src/*.py", "src/a.pyc", False), ("*.md", "a.md", True),
        ("*.md", "x/a.md", False), ("**/*.md", "x/y/a.md", True), ("**/*.md", "a.md", True),
        ("a.b", "axb", False), ("a+b[c]", "a+b[c]", True), ("**", "anything/at/all", True),
        ("src/?.py", "src/a.py", True), ("src/?.py", "src//.py", False),
    ],
)  # fmt: skip
def test_path_patterns_are_relative_to_the_root(
    pattern: str, path: str, covered: bool, tmp_path: Path
) -> None:
    subject = files(tmp_path / path, root=tmp_path)
    assert allows(Rule("edit_file", pattern), subject) is covered
    assert touches(Rule("edit_file", pattern), subject) is covered


@pytest.mark.spec("SEC-3", "SEC-5")
def test_home_absolute_and_linked_patterns_mean_the_real_place(tmp_path: Path, home: Path) -> None:
    real, root = tmp_path / "real", tmp_path / "root"
    real.mkdir()
    root.mkdir()
    (root / "link").symlink_to(real)
    inside = files(root / "link" / "x.py", root=root)
    assert inside.paths == (real / "x.py",)
    for pattern in ("link/**", "link/x.py", f"{real}/*", f"{root}/link/*.py", "./link/*"):
        assert touches(Rule("edit_file", pattern), inside), pattern
    assert not allows(Rule("edit_file", "other/**"), inside)
    notes = files(home / "notes" / "a", root=root)
    assert allows(Rule("edit_file", "~/notes/**"), notes)
    assert not allows(Rule("edit_file", "~nobody-of-that-name/**"), notes)


@pytest.mark.spec("SEC-3")
def test_allow_needs_every_path_and_deny_any(tmp_path: Path) -> None:
    both = files(tmp_path / "src/a", tmp_path / "etc/b", root=tmp_path)
    rule = Rule("edit_file", "src/**")
    assert not allows(rule, both)
    assert touches(rule, both)
    assert not allows(rule, files(root=tmp_path))


@pytest.mark.spec("SEC-5")
def test_an_exact_path_takes_stars_for_themselves(tmp_path: Path) -> None:
    rule = Rule("edit_file", f"{tmp_path}/a*", exact=True)
    assert allows(rule, files(tmp_path / "a*", root=tmp_path))
    assert not allows(rule, files(tmp_path / "abc", root=tmp_path))
    below = Rule("edit_file", f"{tmp_path}/[x]*/**", exact=True)
    assert allows(below, files(tmp_path / "[x]*" / "deep" / "a", root=tmp_path))
    assert not allows(below, files(tmp_path / "[x]y" / "a", root=tmp_path))


@pytest.mark.spec("SEC-3", "SEC-11")
@pytest.mark.parametrize(
    ("pattern", "url", "covered"),
    [
        ("python.org", "https://docs.python.org/3", True), ("python.org", "http://PYTHON.org.", True),
        ("python.org", "https://mypython.org", False), ("python.org", "https://python.org.evil.com", False),
        ("docs.python.org", "https://python.org", False), ("*.python.org", "https://a.python.org", True),
        ("python.org", "https://python.org@evil.com/", False), ("python.org", "https://evil.com#python.org", False),
        ("python.org", "https://evil.com\\@python.org", False), ("*", "https://a b", False),
        ("python.org", "http://[bad", False),
    ],
)  # fmt: skip
def test_hosts_match_by_whole_labels(pattern: str, url: str, covered: bool) -> None:
    subject = Subject("web_fetch", host=host_of(url))
    assert allows(Rule("web_fetch", pattern), subject) is covered
    if covered or not subject.host:
        assert touches(Rule("web_fetch", pattern), subject)


def test_the_first_rule_that_covers_is_named() -> None:
    rules = [parse_rule("bash(ls *)"), parse_rule("bash(git *)"), parse_rule("bash")]
    assert covering(rules, bash("git status"))[0] == (rules[2],)
    assert covering(rules[:2], bash("git status && ls"))[0] == (rules[1], rules[0])
    assert first(rules, bash("pwd; ls x")) == rules[0]
    assert covering(rules[:2], bash("git status; pwd")) == ((), "pwd")


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("command", "unsure"),
    [
        ("$X -rf x", True), ("git $X", True), ("git push $X", False), ("git status $X", False),
        ("rm $X", False), ("git push", False), ("make", False), ("git pu{s,l}h", True),
        ("git push 'unclosed", True), ("make 'unclosed", False),
        ("gi`true`t push", True), ("cd x && g`:`i`:`t push", True), ("eval gi$(:)t push", True),
        ('eval "$X"', True), ('bash -c "gi$@t push"', True), ('trap "gi$1t push" EXIT', True),
        ('zsh -c "gi$@t push"', True), ('bash <<< "gi$@t push"', True), ("sh <<E\ngi$X`:`t push\nE", True),
        ("gi`# c`t push", True), ("gi$(case a in a) ;; esac)t push", True), ("make 'unclosed $X", True),
        ('trap "rm -f $tmp" EXIT', False), ('eval "make $X"', False), ("cat <<E\n$X\nE", False),
        ("make `ls` x", False), ("g[i]t push", True), ("cd x; g[i]t push", True),
        ("bash -c 'g[i]t push'", True), ("@(git) push", True),
        ("[ -f x ] && make 'unclosed", False), ("{g,}it push", True), ("{g..h}it push", True),
        ("echo {a,b}", False), ("f() { make a,b; }; f", False),
    ],
)  # fmt: skip
def test_what_may_be_a_denied_command_is_told_apart_from_what_cannot(
    command: str, unsure: bool
) -> None:
    rule = parse_rule("bash(git push *)")
    found = might_touch(rule, bash(command))
    assert found is unsure or touches(rule, bash(command))


def _as_regex(pattern: str) -> str:
    """What a pattern means, in a form that is easy to read and slow to run."""
    special = {"/**/": "/(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    base = pattern.removesuffix("/**")
    parts = re.findall(r"/\*\*/|\*\*|\*|\?|[^*?/]+|/", base)
    tail = "(?:/.*)?" if base != pattern else ""
    return "(?s:" + "".join(special.get(part) or re.escape(part) for part in parts) + tail + ")"


@pytest.mark.spec("SEC-3")
@given(
    st.lists(st.sampled_from(["a", "b", "/", "*", "**", "?", "/**/", "/**"]), max_size=7),
    st.text("ab/\n", max_size=8),
)
def test_a_path_pattern_means_what_it_says(parts: list[str], path: str) -> None:
    pattern = "".join(parts)
    assert glob_covers(pattern, path) is bool(re.fullmatch(_as_regex(pattern), path))


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("pattern", ["**/" * 40 + "x", "*a" * 200 + "x", "**a" * 200 + "x"])
def test_a_pattern_of_many_stars_is_answered(pattern: str) -> None:
    assert not glob_covers(pattern, "a/" * 1500 + "b")
    assert not glob_covers(pattern, "a" * 4000)


BASH = shutil.which("bash")
TOOL = ToolDefinition("bash", "bash", "", {"type": "object"}, Asks.ANYTHING, "shell")


class Ground:
    """A directory with a program ``ok`` that does nothing and a ``canary`` that leaves a mark."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.programs = root / "bin"
        self.mark = root / "mark"
        self.work.mkdir()
        self.programs.mkdir()
        for name, body in (("ok", ":"), ("canary", f": > {self.mark}")):
            file = self.programs / name
            file.write_text(f"#!/bin/sh\n{body}\n")
            file.chmod(0o755)
        self.workspace = Workspace(self.work, self.work)

    def is_allowed(self, text: str, *rules: str) -> bool:
        policy = policy_of(Mode.DEFAULT, rules, [])
        facts = Asked(CallFacts(TOOL, {"command": text}, ()), self.workspace)
        return judged(facts, policy).answer is Answer.ALLOW

    def sings(self, text: str) -> bool:
        """Whether the canary runs when bash is given ``text``, or a file comes into being."""
        self.mark.unlink(missing_ok=True)
        env = {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(self.work)}
        subprocess.run(
            [str(BASH), "--noprofile", "--norc", "-c", text], env=env, cwd=self.work, timeout=5,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
        made = list(self.work.iterdir())
        for each in made:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        return self.mark.exists() or bool(made)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground"))


_PIECES = st.sampled_from(
    ["ok x", "ok x", "ok x 'a b'", "echo x", "canary", "canary x", "ok x canary", "ok x 'canary'"]
)
_JOINS = st.sampled_from(
    ["; ", " && ", " || ", " | ", " & ", "\n", "\\\n", " ", "'", '"', "`", " > f ", " >f;", " #", " 2>&1 ",
     " <(", " $(", ")", "(", "{ ", "; }", " <<E\n", "\nE\n", "! ", "if ", "; then ", "; fi", " \\", "\t",
     "\r", "\0", "$'", "${x:-", "}", "f() { ", "; f", "A=b ", "case x in x) ", ";; esac", "eval ", "xargs ",
     "bash -c ", "sudo ", "env ", "timeout 1 ", "nice ", "cd / && ", "for i in 1; do ", "; done", "\u00a0"]
)  # fmt: skip
_COMMANDS = st.lists(st.one_of(_PIECES, _JOINS), min_size=1, max_size=8).map("".join)


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.spec("SEC-4")
@settings(max_examples=200, deadline=None)
@given(text=_COMMANDS)
def test_the_canary_never_runs_under_a_rule_for_another_command(ground: Ground, text: str) -> None:
    if ground.is_allowed(text, "bash(ok x *)", "bash(ok x)"):
        assert not ground.sings(text), text


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text",
    ["canary", "ok x; canary", "ok x $(canary)", "echo `canary`", "ok x > f", "ok x\ncanary"],
)
def test_the_ground_can_tell(text: str, ground: Ground) -> None:
    assert ground.sings(text)
    assert not ground.is_allowed(text, "bash(ok x *)")


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text", ["ok x", "ok x a | ok x b", "timeout 5 ok x", "ok x && echo done", "(ok x; ok x y)"]
)
def test_what_the_rule_means_runs_unasked(text: str, ground: Ground) -> None:
    assert ground.is_allowed(text, "bash(ok x *)")


def first_command(text: str) -> SimpleCommand:
    return parse_bash(text).commands[0]


@pytest.mark.spec("SEC-4")
def test_words_keep_their_ends_in_a_pattern() -> None:
    assert covers("git diff *", first_command("git diff 'a b'"))
    assert not covers("git diff *", first_command("git 'diff x'"))
    assert not covers("git diff *", first_command("git diff $X"))
    assert covers("echo * x", first_command("echo 'a b' x"))


@pytest.mark.spec("SEC-4")
def test_a_text_covers_a_part_only_in_the_same_place_and_unfed() -> None:
    unfed = ("make", "ls; make", "ls | wc; make", " make | head", "make || ls")
    fed = (
        "ls | make", "echo 'make' | make", "make; ls | make", "make; ls | { make; }",
        "make; ls | for i in 1; do make; done", "lsmake | if true; then make; fi", "ls || ls | make",
        "make; ls | if make; then ls; fi", r"ls \|| make", "ls >&1 | make | wc || ls",
    )  # fmt: skip
    for whole in (*unfed, *fed):
        parsed = parse_bash(whole)
        (command,) = [each for each in parsed.commands if each.words == ("make",)][-1:]
        assert covers_literally("make", command, whole, parsed) is (whole in unfed), whole


def test_a_wrapper_is_transparent_only_where_what_it_runs_is_listed() -> None:
    parsed = parse_bash("timeout 5 make")
    assert is_transparent(parsed.commands[0], parsed)
    assert not is_transparent(parsed.commands[1], parsed)
    sudo = parse_bash("sudo make")
    assert not is_transparent(sudo.commands[0], sudo)


def test_an_unknown_word_may_be_the_denied_one() -> None:
    assert may_touch("git push *", "git $X", parse_bash("git $X"))
    assert not may_touch("git push *", "make $X", parse_bash("make $X"))
